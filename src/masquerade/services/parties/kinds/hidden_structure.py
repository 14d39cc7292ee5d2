"""Session type for structure search in MPC, over columns of several parties: only parents are opened."""

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
from masquerade.learn.networks.graph import check_limit
from masquerade.learn.networks.link_strength import LearnedStructure
from masquerade.learn.networks.network import BayesianNetwork, bayesian_network
from masquerade.learn.networks.score_tables import ScoreTables
from masquerade.learn.networks.scores import Uncorrected, score_called
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.mpc.engine import Steps
from masquerade.protocols.mpc.family_counts import HiddenColumns
from masquerade.protocols.mpc.guarantee import opened_by, structure_guarantee
from masquerade.protocols.mpc.structure import Search, with_counts
from masquerade.protocols.vertical.columns import product_agreement
from masquerade.protocols.wire.session import agreement_of
from masquerade.services.parties.kinds.base import Partition
from masquerade.services.parties.kinds.hidden_computation import (
    COST,
    HiddenKind,
    count_records,
    run_computation,
)
from masquerade.sources.parties.products import OpenedFamilies

if TYPE_CHECKING:
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import SessionSpec

# options of network learners that a search on shares supports
SUPPORTED = {"order", "max_parents", "score", "prior", "equivalent_size", "nonnegative"}


class _StructureComputation:
    """Public parameters of a structure search, known to all members before it starts."""

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

    def program(self, part: SessionParticipant, key: Callable[[str, int], bytes]) -> Steps[str]:
        """Find parents, and open the agreed counts; the result is the same text at every party."""
        name, codes = part.node.name, part.align_records().codes
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
            before_opening=part.burn_opening,
        )
        return json.dumps({"parents": found, "counts": counts}, sort_keys=True)

    def _admit(self, part: SessionParticipant, families: Sequence[Sequence[str]]) -> None:
        """Treat opened counts like any other answers: check them against the rules and record them."""
        consent = part.node.settings.consent(self._spec.session)
        rules = None if consent is None else consent.rules
        part.admit([Query(by=tuple(names)) for names in families], self._spec.convener, rules)

    @property
    def guarantee(self) -> Guarantee:
        """Return the disclosures of the computation."""
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
        """Return the structure, or the network if all counts are opened."""
        spec, schema = self._spec, self._schema
        parents, tables = _read(found, schema, spec.open_counts, self._n)
        options = spec.learn.read(schema)
        if _is_network(spec):
            estimate = {name: options[name] for name in ("prior", "equivalent_size", "nonnegative")}
            source = OpenedFamilies(schema, self._n, self.guarantee, tables)
            return bayesian_network(source, parents, **estimate).to_dict()
        rule, score = Uncorrected().to_dict(), score_called(options["score"]).name
        learnt = LearnedStructure(parents, (), score, rule, tuple(options["order"]))
        opened = [{"by": list(names), "counts": cells.tolist()} for names, cells in tables.items()]
        return {**learnt.to_dict(), **({"opened_counts": opened} if opened else {})}


def _search(spec: SessionSpec) -> Search:
    options = spec.learn.options
    limit = check_limit(int(options.get("max_parents", 3)))
    return Search.in_order(options["order"], limit, hide_order=spec.hide_order)


class HiddenStructure(HiddenKind):
    """All parties learn the parents of every variable; counts open only if agreed on, scores never."""

    name = "hidden-structure"
    why = "one party counts alone"
    partition = Partition.COLUMNS
    opens = "structure"
    rules_kept = "each party runs the program, and gives no share of counts that it refuses"
    answers_tables = True  # counts of `open_counts` are opened, although no message requests them

    def terms(self, part: SessionParticipant) -> _StructureComputation:
        """Return the parameters of the computation; a helper uses the number of records in `Arrange`."""
        return _StructureComputation(
            part.spec, part.columns(), part.agreed_records if part.helps else part.records
        )

    def describe_openings(self, spec: SessionSpec) -> list[str]:
        """Return the description of the search's results, and of counts that were agreed on."""
        openings = [opened_by(_search(spec))]
        if spec.open_counts:  # any variable of this party may turn out to be a parent
            openings.append(f"exact counts of {', '.join(spec.open_counts)} and the parents found for them")
        return openings

    def problems(self, spec: SessionSpec) -> Iterator[str]:
        """Yield problems in the specification of a structure search."""
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
        other = [name for name in (goal.model_extra or {}) if name not in SUPPORTED]
        if other:
            yield f"{self.name} does not support {', '.join(other)}: counts are exact, and the search is K2"
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

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Relay the rounds of the computation, and return the parties' result."""
        terms = _StructureComputation(run.spec, run.columns(), count_records(run))
        text, took = run_computation(run, terms, terms.guarantee)
        return {**terms.model(text), COST: took}


def _is_network(spec: SessionSpec) -> bool:
    """Return True if the model is a network, with parameters."""
    model = spec.learn.learner.model
    return model is not None and model() is BayesianNetwork


def _read(
    text: str, schema: Schema, opened: Sequence[str], n: int
) -> tuple[dict[str, tuple[str, ...]], dict[tuple[str, ...], NDArray[np.float64]]]:
    """Return the parents and opened counts of a result; raise RoundAborted if counts are impossible."""
    values = json.loads(text)
    parents = {name: tuple(other for other in schema if other in values["parents"][name]) for name in schema}
    tables = {}
    for child in opened:
        names = tuple(sorted((child, *parents[child])))
        cells = np.array(values["counts"][child], dtype=np.float64)
        if cells.size != prod(schema.shape(names)) or cells.sum() != n:
            raise RoundAborted("The opened counts do not add up to the number of records.", spent=True)
        tables[names] = cells.reshape(schema.shape(names))
    return parents, tables
