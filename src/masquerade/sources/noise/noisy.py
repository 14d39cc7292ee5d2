"""Counts with noise as a source: differential privacy of all answers together; learners need no change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from masquerade.channels.noise.terms import NoiseStage, NoiseTerms
from masquerade.core.axes import Floats
from masquerade.core.covariance import Covariance, SumCovariance
from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.core.guarantee import ANALYST, Disclosure, Guarantee
from masquerade.core.linear_covariance import LinearCovariance
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import Selected, Tally, check_source, raise_refusals
from masquerade.core.util.formatting import counted
from masquerade.core.util.processes import ForkSafeLock
from masquerade.crypto.errors import KeySpent
from masquerade.estimate.evidence import GaussianEvidence
from masquerade.estimate.gaussian import onto_simplex
from masquerade.protocols.people.ledger import MemoryLedger, PersonLedger
from masquerade.sources.noise.contrasts import ContrastCovariance, NoisyTable, TableFusion
from masquerade.sources.noise.spent_tables import Cells, SpentTables
from masquerade.sources.noise.table_cost import (
    MOST_AXES,
    MOST_CELLS,
    canonical_query,
    is_small,
    tables_to_ask,
)

KIND = "counts with noise"


class NoisyTally(ABC):
    """A `Tally` whose counts are revealed only with noise, and whose budget is stored in a ledger.

    Subclasses count and add noise in `_prepare` and `_open_cells`. This class has the rest: the cost of
    queries, the known tables, the ledger, and consistent tables with their errors.

    Attributes
    ----------
    terms : NoiseTerms
        The privacy guarantee for each record, over all tables.
    present : int
        Number of the agreed contributors that added noise.
    """

    schema: Schema
    guarantee: Guarantee

    def __init__(
        self,
        schema: Schema,
        n: int,
        terms: NoiseTerms,
        ledger: PersonLedger | None,
        present: int | None = None,
    ) -> None:
        self.schema, self.n, self.terms = schema, n, terms
        self.present = terms.contributors if present is None else present
        self._budget = SpentTables(MemoryLedger() if ledger is None else ledger, terms, schema, n)
        self._turns = ForkSafeLock()  # one thread at a time spends
        self._fusion: tuple[int, TableFusion] | None = None  # with the number of answers in it
        self._tables: dict[Query, CountTable] = {}

    @abstractmethod
    def _prepare(self, queries: Sequence[Query]) -> Any:
        """Do the work that may fail, before any table is spent."""

    @abstractmethod
    def _open_cells(self, prepared: Any, queries: Sequence[Query], stage: NoiseStage) -> list[Cells]:
        """Return the counts of queries with noise. Called once for each draw, after its tables are spent."""

    @property
    def tables_spent(self) -> int:
        """Return the number of tables that are spent."""
        with self._turns:
            self._budget.refresh()
            return self._budget.tables_spent

    @property
    def tables_left(self) -> int:
        """Return the number of tables that are left in the open stage."""
        with self._turns:
            self._budget.refresh()
            return self._budget.stage()[2]

    def select(self, names: Iterable[str]) -> Selected:
        """Return a source with only the named variables."""
        return Selected(self, names)

    def cost(self, queries: Sequence[Query]) -> int:
        """Return the number of tables that queries would spend now, beyond the tables that were answered.

        Parameters
        ----------
        queries : sequence of Query
            Queries of one batch.

        Returns
        -------
        int
            Number of tables. It depends on the queries alone, never on the records.
        """
        with self._turns:
            return len(self._groups(queries))

    def drawn_cells(self, queries: Sequence[Query]) -> list[Cells]:
        """Return cells with noise as they were drawn, before tables were made consistent.

        Parameters
        ----------
        queries : sequence of Query
            Queries; those that are not answered yet are answered, and spend tables.

        Returns
        -------
        list of array of int64
            One table per query, variables in the order of the schema.

        Raises
        ------
        InputError
            If a query was answered from a larger table, and has no cells of its own.
        """
        with self._turns:
            self._ask(queries)
            answers = self._budget.answers
            asked = [canonical_query(query, self.schema) for query in queries]
            if any(query not in answers for query in asked):
                raise InputError("A query was answered from a larger table: it has no cells of its own.")
            return [answers[query][0] for query in asked]

    def next_stage(self) -> None:
        """Give up the tables that are left in the open stage, so that the next one opens."""
        with self._turns:
            self._budget.refresh()
            number, stage, left = self._budget.stage()
            if stage is None or number + 1 >= len(self.terms.stages):
                raise InputError("There is no further stage.")
            self._budget.spend([], left, number)
            self._budget.refresh()

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries: a budget that is spent, tables that are too large."""
        with self._turns:
            return self._refusals(queries, self._groups(queries))

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch, or nothing. Tables are spent durably before their noise is drawn.

        Parameters
        ----------
        queries : sequence of Query
            Queries of one batch.

        Returns
        -------
        list of CountTable
            Consistent tables. They follow from all tables known so far, so a later answer to the same query
            may be more precise.

        Raises
        ------
        QueryRefused
            If the budget does not allow the batch, code "budget_spent".
        """
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        with self._turns:
            self._ask(queries)
            return [self._table(query) for query in queries]

    def ask_again(self, queries: Sequence[Query], times: int = 1) -> None:
        """Spend tables on further draws of queries, so that their errors become smaller.

        Answers are the means over all draws. Each table that is spent has its own noise, which is drawn only
        once.

        Parameters
        ----------
        queries : sequence of Query
            Queries without conditions.
        times : int, default 1
            Number of further draws of each query.

        Raises
        ------
        QueryRefused
            If the budget does not allow all of them, code "budget_spent". Then nothing is spent.

        Examples
        --------
        >>> source = mq.Noisy(mq.tally(mq.data.students()), epsilon=1, tables=5)
        >>> query = mq.Query(by=("exams", "pills"))
        >>> before = source.answer([query])[0].covariance.diagonal("given_records")
        >>> source.ask_again([query], times=3)
        >>> after = source.answer([query])[0].covariance.diagonal("given_records")
        >>> (before / after).round().ravel().tolist(), source.tables_left
        ([4.0, 4.0, 4.0, 4.0], 1)
        """
        distinct = list(dict.fromkeys(canonical_query(query, self.schema) for query in queries))
        for query in distinct:
            query.check(self.schema)
            if query.where or not query.by:
                raise InputError("Only tables without conditions are drawn again.")
        with self._turns:
            self._budget.refresh()
            left, needed = self._budget.stage()[2], times * len(distinct)
            if needed > left:
                raise QueryRefused([self._spent_refusal(needed, left)])
            raise_refusals(self._refusals([], [distinct]))
            done = 0
            while done < times:
                done += self._draw(distinct, len(distinct))
            self._budget.refresh()

    def _draw(self, queries: Sequence[Query], tables: int) -> bool:
        """Spend tables on queries and store the answers; return False if another process spent some first."""
        self._budget.refresh()
        number, stage, left = self._budget.stage()
        if stage is None or tables > left:
            raise QueryRefused([self._spent_refusal(tables, left)])
        prepared = self._prepare(queries)
        try:
            turn = self._budget.spend(queries, tables, number)
        except KeySpent:  # what is left may have changed
            return False
        self._budget.store(turn, self._open_cells(prepared, queries, stage))
        return True

    def _ask(self, queries: Sequence[Query]) -> None:
        """Spend the tables that queries need beyond the answered ones, and store their answers."""
        while groups := self._groups(queries):
            raise_refusals(self._refusals(queries, groups))
            self._draw([query for group in groups for query in group], len(groups))

    def _groups(self, queries: Sequence[Query]) -> list[list[Query]]:
        """Return the tables to spend on queries, beyond the tables that were answered."""
        for query in queries:
            query.check(self.schema)
        self._budget.refresh()
        covered = {frozenset(query.by) for query in self._budget.answers if not query.where}
        answered = {query for query in self._budget.answers if query.where}
        return tables_to_ask(queries, covered, answered, self.schema)

    def _refusals(self, queries: Sequence[Query], groups: Sequence[Sequence[Query]]) -> list[Refusal]:
        del queries
        for query in (query for group in groups for query in group):
            if not is_small(query, self.schema):
                cells = prod(self.schema.shape(query.by))
                reason = f"A table with noise has at most {MOST_CELLS:,} cells and {MOST_AXES} variables. "
                reason += f"This table has {cells:,} cells and {counted(len(query.names), 'variable')}."
                return [Refusal("too_many_cells", reason, query)]
        left = self._budget.stage()[2]
        return [self._spent_refusal(len(groups), left)] if len(groups) > left else []

    def _spent_refusal(self, needed: int, left: int) -> Refusal:
        number = self._budget.stage()[0]
        further = (
            " in this stage; next_stage() opens the next one" if number + 1 < len(self.terms.stages) else ""
        )
        reason = (
            f"These queries take {counted(needed, 'table')}, and {left} of {self.terms.number} are left"
            f"{further}. Tables that were answered stay free of charge."
        )
        return Refusal("budget_spent", reason)

    def _fuse_answers(self) -> TableFusion:
        """Return the fusion of all answered tables without conditions."""
        drawn = [(query, *answer) for query, answer in self._budget.answers.items()] + self._budget.repeats
        if self._fusion is None or self._fusion[0] != len(drawn):
            tables = [
                NoisyTable(query.by, cells, self._variance(stage))
                for query, cells, stage in drawn
                if not query.where
            ]
            self._fusion = (len(drawn), TableFusion(self.schema, self.n, tables))
            self._tables.clear()
        return self._fusion[1]

    def _variance(self, stage: int) -> float:
        return float(self.terms.total_variance(self.terms.stages[stage], self.present))

    def _table(self, query: Query) -> CountTable:
        fusion = self._fuse_answers()
        if query not in self._tables:
            names = canonical_query(Query(by=query.names), self.schema).by
            if not names or fusion.covers(names):
                values = fusion.values(names) if names else np.array(float(self.n))
                covariance: Covariance = ContrastCovariance((), (((), 0.0),))
                if names:
                    covariance = fusion.covariance(names)
                table = self._make_table(names, values, covariance)
                self._tables[query] = table.select(dict(query.where)).marginal(query.by)
            else:
                asked = canonical_query(query, self.schema)
                cells, stage = self._budget.answers[asked]
                noise = ContrastCovariance.independent(cells.shape, self._variance(stage), asked.by)
                table = self._make_table(asked.by, cells.astype(float), noise)
                self._tables[query] = table.marginal(query.by)
        return self._tables[query]

    def _make_table(self, names: tuple[str, ...], values: Floats, noise: Covariance) -> CountTable:
        likely = onto_simplex(values, max(float(values.sum()), 0.0)) if np.any(values < 0) else values
        sampling = LinearCovariance.clear(likely, self.n, names)
        evidence = GaussianEvidence.of(values, SumCovariance((sampling, noise)))
        return CountTable(tuple(self.schema[name] for name in names), values, self.n, evidence)


class Noisy(NoisyTally):
    """Counts of a source with noise: (ε, δ)-differential privacy for each record, over all answers together.

    For a curator, who holds the records and adds the noise. Two sets of records are neighbours if one record
    is substituted; the number of records is public. All statistics and learners run on it unchanged. Answered
    tables are made consistent, and what follows from them is free of charge.

    Parameters
    ----------
    source : Tally
        Exact counts of clear records, without survey weights.
    epsilon : float
        ε of all tables together.
    tables : int or sequence of (int, float)
        Number of tables that will be queried in total, or stages: tables and share of the budget of each.
    delta : float, default 1e-6
        δ; at least 1e-10, or 0.
    ledger : Ledger, optional
        Where spent tables and answers are stored durably, before an answer leaves. One ledger belongs to one
        set of records. A `NoiseLedger` also notices if it was restored from a copy. Without a ledger, the
        budget ends with this object.

    Raises
    ------
    InputError
        If counts are not exact, rules of the source depend on the counts, or the ledger has other terms.

    Examples
    --------
    >>> source = mq.Noisy(mq.tally(mq.data.students()), epsilon=1, tables=6)
    >>> [table] = source.answer([mq.Query(by=("exams", "pills"))])
    >>> table.n, source.tables_spent, source.tables_left
    (600, 1, 5)
    >>> source.cost([mq.Query(by="pills"), mq.Query(by="sleep")])
    1
    """

    def __init__(
        self,
        source: Tally,
        *,
        epsilon: float,
        tables: int | Sequence[tuple[int, float]],
        delta: float = 1e-6,
        ledger: PersonLedger | None = None,
    ) -> None:
        check_source(source)
        check_exact_source(source)
        terms = NoiseTerms(epsilon, tables, delta)
        [count] = source.answer([Query()])
        super().__init__(source.schema, count.n, terms, ledger)
        self._source = source
        self.guarantee = noise_guarantee(source.guarantee, terms, tuple(source.schema))

    def __repr__(self) -> str:
        """Return the source and its privacy guarantee as text."""
        terms = self.terms
        return f"Noisy({self._source!r}, ε = {terms.epsilon:g}, δ = {terms.delta:g}, {terms.number} tables)"

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries: by the source, or because the budget is spent.

        Parameters
        ----------
        queries : sequence of Query
            Queries of one batch.

        Returns
        -------
        list of Refusal
            Empty if all are allowed.
        """
        return [*super().check(queries), *self._source.check(queries)]

    def _prepare(self, queries: Sequence[Query]) -> list[Cells]:
        raise_refusals(self._source.check(queries))
        return [exact_cells(table) for table in self._source.answer(queries)]

    def _open_cells(self, prepared: list[Cells], queries: Sequence[Query], stage: NoiseStage) -> list[Cells]:
        del queries
        sampler = self.terms.shares(stage)
        return [cells + sampler.draw(cells.shape) for cells in prepared]


def exact_cells(table: CountTable) -> Cells:
    """Return the counts of a table as integers; raise InputError if they are not exact counts."""
    cells = np.rint(table.values)
    if (
        np.any(table.covariance.diagonal("given_records"))
        or np.any(cells != table.values)
        or np.any(cells < 0)
    ):
        raise InputError(
            "Noise is added to exact counts only: give clear records without survey weights. Disguised "
            "records have their own protection."
        )
    return cells.astype(np.int64)


def check_exact_source(source: Any) -> None:
    """Raise InputError if a source has survey weights, or rules whose refusals read exact counts."""
    if getattr(source, "weighted", False):
        raise InputError(
            "Records with survey weights have no bounded count: a heavy record would show through the noise."
        )
    if not getattr(source, "simulatable", True):
        raise InputError(
            "Rules that depend on the data cannot be combined with noise: their refusals read the exact "
            "counts. Use rules without data_dependent."
        )
    policy = getattr(source, "policy", None)
    if getattr(policy, "disguised", None):
        raise InputError(
            "Noise is added to exact counts of clear records. These records are disguised and have their own "
            "protection: query them directly."
        )
    inner = getattr(source, "source", None)
    if inner is not None:
        check_exact_source(inner)


def noise_guarantee(
    sums: Guarantee, terms: NoiseTerms, names: tuple[str, ...], role: str = ANALYST
) -> Guarantee:
    """Return the guarantee of counts with noise: ε and δ of a record over all tables."""
    delta = terms.delta if terms.delta > 0 else terms.sampler_delta
    kind = f"{counted(terms.number, 'table')} of {KIND}"
    disclosure = Disclosure(role, kind, names, None, terms.epsilon, delta)
    assumptions = (
        "the number of records is public, and one record is one person",
        "noise was drawn with OS randomness that nobody recorded, once for each table",
    )
    return replace(sums, disclosures=(disclosure,), assumptions=(*sums.assumptions, *assumptions))
