"""Inference control: what may still be answered, after all that was, without giving a small set away.

By default refusals are *simulatable* (Kenthapadi, Mishra and Nissim 2005): they follow from the questions
alone, so that whoever is refused could have found out beforehand, and learns nothing. Rules that look at the
counts, such as a minimum set size, are `DataDependentRules`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from math import prod

from masquerade.core.errors import InputError, Refusal, did_you_mean
from masquerade.core.query import Query
from masquerade.core.schema import Category, Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import Selected, Tally, check_source, raise_refusals
from masquerade.core.util.processes import Turns
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.people.ledger import Ledger, MemoryLedger
from masquerade.sources.control.answer_history import Answered, History, Knowledge, joint_schema
from masquerade.sources.control.cell_space import CellSpace
from masquerade.sources.control.data_dependent_rules import MOST_SETS, CountCheck, DataDependentRules, asked

SIMULATABLE = "refusals follow from the questions alone, and tell nothing about the records"
TELLING = "refusals look at the counts: each tells whoever asks that a rule was broken"
HISTORY = "everything that was ever answered about these records is in the history of this source"


@dataclass(frozen=True, slots=True)
class Rules:
    """What must stay undetermined.

    `protect` lists sets of variables: no cell that names all of one set may follow from the answers by adding
    and subtracting. `most_variables` m protects every set of m + 1. With neither, the cells of all variables
    together are protected: the records themselves. `impossible` are cells that everybody knows do not occur.
    None of this depends on the records; `data_dependent` rules do, and are apart for that.

    >>> rules = mq.Rules(protect=[["pills", "exams"]])
    >>> source = mq.Controlled(mq.tally(mq.data.students()), rules)
    >>> [refusal.code for refusal in source.check([mq.Query(by=("exams", "pills"))])]
    ['determined']
    """

    protect: Sequence[Sequence[str]] = ()
    most_variables: int | None = None
    impossible: tuple[Mapping[str, Category], ...] = ()
    data_dependent: DataDependentRules | None = None

    def __post_init__(self) -> None:
        if isinstance(self.protect, str) or any(isinstance(it, str) or not it for it in self.protect):
            raise InputError("'protect' of rules lists sets of variables, such as [[age, sex], [disease]].")
        object.__setattr__(self, "protect", tuple(tuple(dict.fromkeys(names)) for names in self.protect))
        object.__setattr__(self, "impossible", tuple(dict(cell) for cell in self.impossible))
        most = self.most_variables
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            raise InputError(
                f"'most_variables' of rules must be a whole number of at least 1. Got {most!r} instead."
            )

    @property
    def simulatable(self) -> bool:
        """Tell whether refusals follow from the questions alone."""
        return self.data_dependent is None

    def check(self, schema: Schema) -> None:
        """Refuse rules about variables or categories that are not in a schema."""
        for name in chain.from_iterable(self.protect):
            if name not in schema:
                hint = did_you_mean(name, schema)
                raise InputError(f"The rules protect {name!r}, which is no variable here.{hint}")
        CellSpace(schema, self.impossible)

    def protects(self, names: Collection[str], schema: Schema) -> tuple[str, ...] | None:
        """Return a protected set of variables within some, None if there is none."""
        sets = self.protect or (() if self.most_variables is not None else (schema.names,))
        for some in sets:
            if set(some) <= set(names):
                return tuple(some)
        if self.most_variables is not None and len(set(names)) > self.most_variables:
            return tuple(name for name in schema if name in names)
        return None


class InferenceControl:
    """Which questions may be answered, after all in a ledger, over a schema, under some rules.

    `counts` is asked for exact counts where rules depend on the data. Cells that were determined before these
    rules came are not protected any more; no further ones join them.
    """

    def __init__(
        self, schema: Schema, rules: Rules, ledger: Ledger | None = None, counts: Tally | None = None
    ) -> None:
        rules.check(schema)
        if rules.data_dependent is not None and counts is None:
            raise InputError("Rules that depend on the data need a source of exact counts.")
        self.schema, self.rules, self._counts = schema, rules, counts
        self.history = History(MemoryLedger() if ledger is None else ledger)
        self._turns = Turns()  # of threads: each must know what the others were answered
        self._turn, self._known = 0, Knowledge(CellSpace(schema, rules.impossible))
        self._at_risk = False  # whether earlier answers join a protected set of variables

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why questions would be refused, one after the other."""
        with self._turns:
            return self._decide(queries)[0]

    def admit(self, queries: Sequence[Query], *, recipient: str = "", purpose: str = "") -> None:
        """Raise `QueryRefused` if a question must not be answered; else all are in the history on return."""
        with self._turns:
            self._admit(queries, recipient, purpose)

    def _admit(self, queries: Sequence[Query], recipient: str, purpose: str) -> None:
        while True:
            refusals, turn, new = self._decide(queries)
            raise_refusals(refusals)
            if not new:
                return
            names = dict.fromkeys(name for query in new for name in query.names)
            variables = tuple(self.schema[name] for name in names)
            try:
                self.history.add(turn, Answered(tuple(new), variables, recipient, purpose))
            except KeySpent:  # another process has answered meanwhile: what it answered counts too
                continue
            return

    def _decide(self, queries: Sequence[Query]) -> tuple[list[Refusal], int, list[Query]]:
        """Return refusals, how many entries the history has, and the questions that would be new in it."""
        for query in queries:
            query.check(self.schema)
        turn, known = self._knowledge()
        known = known.copy()
        refusals: list[Refusal] = []
        new: list[Query] = []
        for query in dict.fromkeys(queries):
            if query in known.queries:
                continue
            if self._harmless(query, known):
                known.learn(query)
                new.append(query)
                continue
            more = known.copy()
            more.learn(query)
            refusal = self._refusal(query, known, more)
            if refusal is None:
                known = more
                new.append(query)
            else:
                refusals.append(refusal)
        return refusals, turn, new

    def _harmless(self, query: Query, known: Knowledge) -> bool:
        """Tell whether no protected cell could be determined, so that nothing need be worked out."""
        joined = known.space.closure(query.names)
        return not (
            self._at_risk or self.rules.data_dependent or self.rules.protects(joined, self.schema) is not None
        )

    def _knowledge(self) -> tuple[int, Knowledge]:
        """Return how many entries the history has, and what they tell."""
        new = self.history.entries(self._turn)
        schema = joint_schema(self._known.space.schema, new)
        if schema != self._known.space.schema:  # other sessions' variables: begin again with these
            self._turn, new = 0, self.history.entries()
            self._known = Knowledge(CellSpace(schema, self.rules.impossible))
            self._at_risk = False
        for query in (query for entry in new for query in entry.queries):
            self._known.learn(query)
            joined = self._known.space.closure(query.names)
            self._at_risk = self._at_risk or self.rules.protects(joined, self.schema) is not None
        self._turn += len(new)
        return self._turn, self._known

    def _refusal(self, query: Query, before: Knowledge, known: Knowledge) -> Refusal | None:
        if known.span.rank == before.span.rank:  # it follows from what was answered, and tells nothing new
            return None
        protected = self.rules.protects(query.names, self.schema)
        if protected is not None:
            shows = f"{asked(query)} shows cells of {' × '.join(protected)}"
            return self._determined(query, protected, shows)
        for names in self._candidates(known):
            cells = known.space.cells(names)
            if any(
                known.span.contains(it) and not before.span.contains(it)
                for it in map(known.space.vector, cells)
            ):
                shows = (
                    f"{asked(query)} determines, with what was answered before, a cell of {' × '.join(names)}"
                )
                return self._determined(query, names, shows)
        if self.rules.data_dependent is None or self._counts is None:
            return None
        return CountCheck(before, known, self.rules.data_dependent, self._counts).refusal(query)

    def _candidates(self, known: Knowledge) -> Iterator[tuple[str, ...]]:
        """Yield the sets of variables with protected cells that the answers could determine.

        Without impossible cells and earlier answers there are none: a question would name them all.
        """
        for joined in known.joined:
            if self.rules.protects(joined, self.schema) is None:
                continue
            names = known.ordered(joined)
            if prod(size + 1 for size in known.space.schema.shape(names)) > MOST_SETS:
                raise InputError(
                    f"Too many cells of {', '.join(names)} could be determined. Name fewer impossible cells."
                )
            for size in range(1, len(names) + 1):
                yield from (
                    some for some in combinations(names, size) if self.rules.protects(some, self.schema)
                )

    def _determined(self, query: Query, names: Sequence[str], shows: str) -> Refusal:
        options = [name for name in names if name in query.names]
        instead = f" Ask without {' or '.join(options)}." if options else " Ask about other variables."
        reason = f"{shows}, which must stay undetermined whatever the counts.{instead}"
        return Refusal("determined", reason[0].upper() + reason[1:], query)


class Controlled:
    """A `Tally` that answers what its rules allow, given everything it has answered before.

    `rules` say what must stay undetermined; without any, the cells of all variables together. `history` is a
    ledger of what was answered, on the disk before an answer leaves: a `FileLedger` outlives the process and
    may be shared by several. One history belongs to one set of records.

    >>> source = mq.Controlled(mq.tally(mq.data.students()[["exams", "pills"]]))
    >>> source.answer([mq.Query(by="exams")])[0].values.tolist()
    [300.0, 300.0]
    >>> [refusal.code for refusal in source.check([mq.Query(by=("exams", "pills"))])]
    ['determined']
    """

    def __init__(self, source: Tally, rules: Rules | None = None, history: Ledger | None = None) -> None:
        check_source(source)
        self.source, self.schema, self.rules = source, source.schema, Rules() if rules is None else rules
        self.control = InferenceControl(self.schema, self.rules, history, source)
        told = (SIMULATABLE if self.rules.simulatable else TELLING, HISTORY)
        self.guarantee = replace(source.guarantee, assumptions=(*source.guarantee.assumptions, *told))

    def __repr__(self) -> str:
        """Show what is controlled."""
        return f"Controlled({self.source!r})"

    @property
    def simulatable(self) -> bool:
        """Tell whether refusals follow from the questions alone."""
        return self.rules.simulatable

    def select(self, names: Iterable[str]) -> Selected:
        """Return some variables as a source of their own."""
        return Selected(self, names)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why questions would be refused now; whatever is answered meanwhile counts too."""
        return [*self.source.check(queries), *self.control.check(queries)]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch, once it is in the history; all of it or nothing."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.source.check(queries))
        self.control.admit(queries)
        return self.source.answer(queries)
