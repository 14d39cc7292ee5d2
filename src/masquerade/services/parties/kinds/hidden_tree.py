"""A decision tree over columns of several parties, grown on shares: splits and classes open, counts never."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from masquerade.core.errors import InputError
from masquerade.learn.classifiers.label_tree import LabelNode, LabelTree
from masquerade.learn.classifiers.prediction_rows import chosen_features
from masquerade.learn.classifiers.tree_model import DecisionTree
from masquerade.protocols.mpc.dealer_engine import MOST_RECORDS, HelpedEngine
from masquerade.protocols.mpc.engine import Steps
from masquerade.protocols.mpc.family_counts import HiddenColumns
from masquerade.protocols.mpc.guarantee import tree_guarantee
from masquerade.protocols.mpc.tree import Growth, tree
from masquerade.protocols.vertical.columns import product_agreement
from masquerade.protocols.wire.session import agreement_of
from masquerade.services.parties.kinds.base import Partition
from masquerade.services.parties.kinds.hidden_computation import COST, HiddenKind, carried

if TYPE_CHECKING:
    from masquerade.core.schema import Schema
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import Participant
    from masquerade.services.parties.session import JointSchema, SessionSpec

OPENED = "which feature splits every node and the class of every leaf, and no count or gain"


class _Terms:
    """What all members know of a tree before it grows."""

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

    def program(self, part: Participant, key: Callable[[str, int], bytes]) -> Steps[str]:
        """Grow the tree; the same text at every party."""
        name, codes = part.node.name, part.aligned().codes
        holder = {own: owner for owner, names in self._held.items() for own in names}
        columns = HiddenColumns(self.sizes, holder, {own: codes[own] for own in self._held[name]}, self._n)
        nodes = yield from tree(HelpedEngine(name, self.owners, key, self._n), columns, self.growth)
        found = LabelTree(
            self.schema[self.growth.target],
            tuple(self.schema[feature] for feature in self.growth.features),
            tuple(LabelNode(node.feature, node.branches, node.label) for node in nodes),
            self._n,
        )
        return json.dumps(found.to_dict(), sort_keys=True)

    def model(self, found: str) -> dict[str, Any]:
        """Return the tree."""
        return LabelTree.from_dict(json.loads(found)).to_dict()


def _growth(spec: SessionSpec, schema: Schema) -> Growth:
    told = spec.learn.read(schema)
    wanted = chosen_features(schema, told["target"], told["features"])
    features = [name for name in schema if name in wanted]
    return Growth.of(told["target"], features, told["max_depth"], told["min_records"])


class HiddenTree(HiddenKind):
    """Everybody learns which feature splits every node, and leaves' classes; counts and gains never open."""

    name = "hidden-tree"
    why = "one party counts alone"
    partition = Partition.COLUMNS
    opens = "tree"

    def terms(self, part: Participant) -> _Terms:
        """Return what is computed; a helper takes the parties' word for the number of records."""
        return _Terms(part.spec, part.columns(), part.agreed_records if part.helps else part.records)

    def opened(self, spec: SessionSpec) -> list[str]:  # noqa: ARG002
        """Return that splits and classes open; how much that tells follows from everybody's variables."""
        return [OPENED]

    def problems(self, spec: SessionSpec) -> Iterator[str]:
        """Yield what is wrong with a tree that is to be grown on shares."""
        yield from super().problems(spec)
        goal = spec.learn
        if goal.learner.model is None or goal.learner.model() is not DecisionTree:
            yield f"{self.name} grows a tree, not {goal.model}"
            return
        if spec.hide_order or spec.open_counts:
            yield f"{self.name} has neither hide_order nor open_counts: splits and classes open"
        if goal.options.get("significance") != 1:
            yield f"{self.name} tests no split, since tests need counts: say significance: 1"
        if goal.options.get("criterion", "gain") != "gain" or goal.options.get("prune") is not None:
            yield f"{self.name} is ID3: it knows neither gain_ratio nor prune"

    def faults(self, spec: SessionSpec, joint: JointSchema) -> Iterator[str]:
        """Yield that too few bring something, and tables that would be too large."""
        yield from super().faults(spec, joint)
        if len(joint.policies) < 2:
            yield "Hidden counts need columns of at least two parties; one counts alone."
        try:
            _growth(spec, joint.schema).check({one.name: len(one) for one in joint.schema.variables})
        except InputError as error:
            yield str(error)

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Carry the rounds of the computation, and return what all parties found."""
        spec, n = run.spec, run.records or 0
        if not 0 < n < MOST_RECORDS:
            raise InputError(f"Hidden counts are of at least one and fewer than {MOST_RECORDS:,} records.")
        terms = _Terms(spec, run.columns(), n)
        guarantee = tree_guarantee(
            terms.owners, terms.sizes, terms.growth, helper=str(spec.helper), convener=spec.convener
        )
        text, took = carried(run, terms, guarantee)
        return {**terms.model(text), COST: took}
