"""The structure of a network over columns of several parties, found on shares: parents open, counts never."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.learn.networks.graph import checked_limit
from masquerade.learn.networks.link_strength import LearnedStructure
from masquerade.learn.networks.network import BayesianNetwork, bayesian_network
from masquerade.learn.networks.score_tables import ScoreTables
from masquerade.learn.networks.scores import Uncorrected, score_called
from masquerade.protocols.mpc.dealer_engine import MOST_RECORDS, HelpedEngine
from masquerade.protocols.mpc.engine import Steps
from masquerade.protocols.mpc.family_counts import HiddenColumns
from masquerade.protocols.mpc.guarantee import opened_by, structure_guarantee
from masquerade.protocols.mpc.structure import Search, with_counts
from masquerade.protocols.vertical.columns import product_agreement
from masquerade.protocols.wire.session import agreement_of
from masquerade.services.parties.kinds.base import Partition
from masquerade.services.parties.kinds.hidden_computation import COST, HiddenKind, carried
from masquerade.sources.parties.products import OpenedFamilies

if TYPE_CHECKING:
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import Participant
    from masquerade.services.parties.session import JointSchema, SessionSpec

# what learners of networks can be told, and a search on shares does
KNOWN = {"order", "max_parents", "score", "prior", "equivalent_size", "nonnegative"}


class _Terms:
    """What all members know of a computation before it begins."""

    def __init__(self, spec: SessionSpec, columns: Mapping[str, Any], records: int) -> None:
        self._spec, self._schema, self._n = spec, columns["schema"], records
        self._held: Mapping[str, Sequence[str]] = columns["owners"]
        self.owners = tuple(self._held)
        self._alignment: bytes = columns["alignment"]
        self.search = _search(spec)

    @property
    def agreement(self) -> bytes:
        """Return the digest of the session's text, variables, owners, records and the score's tables."""
        held = product_agreement(self._schema, self._held, str(self._spec.helper), self._n, self._alignment)
        tables = self._score.fingerprint(len(variable) for variable in self._schema.variables)
        return agreement_of("hidden structure", self._spec.digest, held.hex(), tables)

    @property
    def _score(self) -> ScoreTables:
        return ScoreTables.of(str(self._spec.learn.options.get("score", "bic")), self._n)

    def program(self, part: Participant, key: Callable[[str, int], bytes]) -> Steps[str]:
        """Find parents, and open the counts that are to be opened; the same text at every party."""
        name, codes = part.node.name, part.aligned().codes
        sizes = {variable.name: len(variable) for variable in self._schema.variables}
        holder = {own: owner for owner, names in self._held.items() for own in names}
        columns = HiddenColumns(sizes, holder, {own: codes[own] for own in self._held[name]}, self._n)
        engine = HelpedEngine(name, self.owners, key, self._n)
        found, counts = yield from with_counts(
            engine,
            columns,
            self.search,
            self._score,
            sorted(self._spec.open_counts),
            admit=lambda families: self._admit(part, families),
        )
        return json.dumps({"parents": found, "counts": counts}, sort_keys=True)

    def _admit(self, part: Participant, families: Sequence[Sequence[str]]) -> None:
        """Take counts that open for answers as any others: they are noted, and rules hold for them."""
        consent = part.node.settings.consent(self._spec.session)
        rules = None if consent is None else consent.rules
        part.admit([Query(by=tuple(names)) for names in families], self._spec.convener, rules)

    @property
    def guarantee(self) -> Guarantee:
        """Return who learns what."""
        spec = self._spec
        return structure_guarantee(
            self.owners,
            tuple(self._schema),
            self.search,
            helper=str(spec.helper),
            convener=spec.convener,
            counts=spec.open_counts,
        )

    def model(self, found: str) -> dict[str, Any]:
        """Return the structure, or with all counts the network."""
        spec, schema = self._spec, self._schema
        parents, tables = _read(found, schema, spec.open_counts, self._n)
        told = spec.learn.read(schema)
        if _is_network(spec):
            own = {name: told[name] for name in ("prior", "equivalent_size", "nonnegative")}
            source = OpenedFamilies(schema, self._n, self.guarantee, tables)
            return bayesian_network(source, parents, **own).to_dict()
        rule = Uncorrected().to_dict()
        learnt = LearnedStructure(parents, (), score_called(told["score"]).name, rule, tuple(told["order"]))
        opened = [{"by": list(names), "counts": cells.tolist()} for names, cells in tables.items()]
        return {**learnt.to_dict(), **({"opened_counts": opened} if opened else {})}


def _search(spec: SessionSpec) -> Search:
    options = spec.learn.options
    limit = checked_limit(int(options.get("max_parents", 3)))
    return Search.in_order(options["order"], limit, hide_order=spec.hide_order)


class HiddenStructure(HiddenKind):
    """Everybody learns the parents of every variable; counts and scores are never opened, unless agreed."""

    name = "hidden-structure"
    why = "one party counts alone"
    partition = Partition.COLUMNS
    opens = "structure"
    rules_kept = "each party runs the program, and gives no share of counts that it refuses"
    answers_tables = True  # those of `open_counts`, though no message asks for them

    def terms(self, part: Participant) -> _Terms:
        """Return what is computed; a helper takes the parties' word for the number of records."""
        return _Terms(part.spec, part.columns(), part.agreed_records if part.helps else part.records)

    def opened(self, spec: SessionSpec) -> list[str]:
        """Return who wins, and counts where they are agreed on."""
        found = [opened_by(_search(spec))]
        if spec.open_counts:  # whichever of own variables turn out to be parents
            found.append(f"exact counts of {', '.join(spec.open_counts)} and the parents found for them")
        return found

    def problems(self, spec: SessionSpec) -> Iterator[str]:
        """Yield what is wrong with what is to be learnt on shares."""
        yield from super().problems(spec)
        goal = spec.learn
        networks = _is_network(spec)
        if not networks and (goal.learner.model is None or goal.learner.model() is not LearnedStructure):
            yield f"{self.name} learns a structure, or a network whose counts are opened; not {goal.model}"
            return
        order = goal.options.get("order")
        if order is None:
            yield f"{self.name} needs an order of the variables, parents first"
            return
        other = [name for name in (goal.model_extra or {}) if name not in KNOWN]
        if other:
            yield f"{self.name} knows no {', '.join(other)}: counts are exact, and the search is K2's"
        unknown = [name for name in spec.open_counts if name not in order]
        if unknown:
            yield f"open_counts names {', '.join(map(repr, unknown))}, which the order does not have"
        if len(set(spec.open_counts)) < len(spec.open_counts):
            yield "open_counts names a variable twice"
        if networks and set(spec.open_counts) != set(order):
            yield "a network has parameters: name every variable in open_counts, or learn a structure"
        try:
            _search(spec)
        except InputError as error:
            yield str(error)

    def faults(self, spec: SessionSpec, joint: JointSchema) -> Iterator[str]:
        """Yield that too few bring something."""
        yield from super().faults(spec, joint)
        if len(joint.policies) < 2:
            yield "Hidden counts need columns of at least two parties; one counts alone."

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Carry the rounds of the computation, and return what all parties found."""
        spec, n = run.spec, run.records or 0
        if not 0 < n < MOST_RECORDS:
            raise InputError(f"Hidden counts are of at least one and fewer than {MOST_RECORDS:,} records.")
        terms = _Terms(spec, run.columns(), n)
        text, took = carried(run, terms, terms.guarantee)
        return {**terms.model(text), COST: took}


def _is_network(spec: SessionSpec) -> bool:
    """Tell whether parameters are to be learnt too."""
    model = spec.learn.learner.model
    return model is not None and model() is BayesianNetwork


def _read(
    text: str, schema: Schema, opened: Sequence[str], n: int
) -> tuple[dict[str, tuple[str, ...]], dict[tuple[str, ...], NDArray[np.float64]]]:
    """Return the parents and the opened counts that all parties found; counts that cannot be are refused."""
    values = json.loads(text)
    parents = {name: tuple(other for other in schema if other in values["parents"][name]) for name in schema}
    tables = {}
    for child in opened:
        names = tuple(sorted((child, *parents[child])))
        cells = np.array(values["counts"][child], dtype=np.float64)
        if cells.size != prod(schema.shape(names)) or cells.sum() != n:
            raise RoundAborted("Opened counts are not those of all records.", spent=True)
        tables[names] = cells.reshape(schema.shape(names))
    return parents, tables
