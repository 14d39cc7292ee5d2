"""Session type for decision trees in MPC, over columns of several parties: splits and classes are opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from masquerade.learn.classifiers.label_tree import LabelNode, LabelTree
from masquerade.learn.classifiers.prediction_rows import chosen_features
from masquerade.learn.classifiers.tree_model import DecisionTree
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.mpc.engine import Steps
from masquerade.protocols.mpc.family_counts import HiddenColumns
from masquerade.protocols.mpc.guarantee import tree_guarantee
from masquerade.protocols.mpc.tree import Growth, tree
from masquerade.protocols.vertical.columns import product_agreement
from masquerade.protocols.wire.session import agreement_of
from masquerade.services.parties.kinds.base import Partition
from masquerade.services.parties.kinds.hidden_computation import (
    COST,
    HiddenKind,
    count_records,
    run_computation,
)

if TYPE_CHECKING:
    from masquerade.core.schema import Schema
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import JointSchema, SessionSpec

OPENED = "which feature splits every node and the class of every leaf, and no count or gain"


class _TreeComputation:
    """Public parameters of a tree, known to all members before it is grown."""

    def __init__(self, spec: SessionSpec, columns: Mapping[str, Any], records: int) -> None:
        self._spec, self._n = spec, records
        self.schema: Schema = columns["schema"]
        self._held: Mapping[str, Sequence[str]] = columns["owners"]
        self.owners = tuple(self._held)
        self._alignment: bytes = columns["alignment"]
        self.growth = _growth(spec, self.schema)
        self.sizes = {variable.name: len(variable) for variable in self.schema.variables}

    @property
    def agreement(self) -> bytes:
        """Return the digest of the session's text, variables, owners and records."""
        held = product_agreement(self.schema, self._held, str(self._spec.helper), self._n, self._alignment)
        return agreement_of("hidden tree", self._spec.digest, held.hex())

    def program(self, part: SessionParticipant, key: Callable[[str, int], bytes]) -> Steps[str]:
        """Grow the tree; the result is the same text at every party."""
        name, codes = part.node.name, part.align_records().codes
        holder = {own: owner for owner, names in self._held.items() for own in names}
        columns = HiddenColumns(self.sizes, holder, {own: codes[own] for own in self._held[name]}, self._n)
        engine = HelpedEngine(name, self.owners, key, self._n)
        nodes = yield from tree(engine, columns, self.growth, before_opening=part.burn_opening)
        found = LabelTree(
            self.schema[self.growth.target],
            tuple(self.schema[feature] for feature in self.growth.features),
            tuple(LabelNode(node.feature, node.branches, node.label) for node in nodes),
            self._n,
        )
        return json.dumps(found.to_dict(), sort_keys=True)

    def model(self, found: str) -> dict[str, Any]:
        """Return the tree as plain values."""
        return LabelTree.from_dict(json.loads(found)).to_dict()


def _growth(spec: SessionSpec, schema: Schema) -> Growth:
    options = spec.learn.read(schema)
    chosen = chosen_features(schema, options["target"], options["features"])
    features = [name for name in schema if name in chosen]
    return Growth.of(options["target"], features, options["max_depth"], options["min_records"])


class HiddenTree(HiddenKind):
    """All parties learn the feature of every split and the class of every leaf, but no counts or gains."""

    name = "hidden-tree"
    why = "one party counts alone"
    partition = Partition.COLUMNS
    opens = "tree"

    def terms(self, part: SessionParticipant) -> _TreeComputation:
        """Return the parameters of the computation; a helper uses the number of records in `Arrange`."""
        return _TreeComputation(
            part.spec, part.columns(), part.agreed_records if part.helps else part.records
        )

    def describe_openings(self, spec: SessionSpec) -> list[str]:  # noqa: ARG002
        """Return the description of splits and classes."""
        return [OPENED]

    def problems(self, spec: SessionSpec) -> Iterator[str]:
        """Yield problems in the specification of a session that learns a tree."""
        yield from super().problems(spec)
        goal = spec.learn
        if goal.learner.model is None or goal.learner.model() is not DecisionTree:
            yield f"{self.name} grows a tree, not {goal.model}"
            return
        if spec.hide_order or spec.open_counts:
            yield f"{self.name} has neither hide_order nor open_counts: only splits and classes are opened"
        if goal.options.get("significance") != 1:
            yield f"{self.name} tests no split, since tests need counts: set significance: 1"
        if goal.options.get("criterion", "gain") != "gain" or goal.options.get("prune") is not None:
            yield f"{self.name} is ID3: it supports neither gain_ratio nor prune"

    def check(self, spec: SessionSpec, joint: JointSchema) -> None:
        """Raise InputError if tables would be too large."""
        _growth(spec, joint.schema).check({one.name: len(one) for one in joint.schema.variables})

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Relay the rounds of the computation, and return the parties' result."""
        spec = run.spec
        terms = _TreeComputation(spec, run.columns(), count_records(run))
        guarantee = tree_guarantee(
            terms.owners, terms.sizes, terms.growth, helper=str(spec.helper), convener=spec.convener
        )
        text, took = run_computation(run, terms, guarantee)
        return {**terms.model(text), COST: took}
