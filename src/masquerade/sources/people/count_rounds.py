"""Tables of reports that are counted elsewhere: which tables to request, and their sums.

Tables of reports are counted by people who vote, or by parties that pool their counts. A query plan needs the
same from both: a `Question` for every stratum of the policy, and the sums of its table.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, Refusal
from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.core.tally import raise_refusals
from masquerade.protocols.people.questions import Counts, Question, found_in, smallest_cover
from masquerade.sources.query_plan import QueryLayout, QueryPlan, layouts_of
from masquerade.sources.record_store import Observed
from masquerade.sources.report_tally import ReportTally


class _Stratum(NamedTuple):
    """A stratum of a policy, or all records: converts plans to questions, and counts to sums."""

    policy: Policy
    layout: QueryLayout
    code: int

    @classmethod
    def of(cls, policy: Policy) -> list[_Stratum]:
        """Return the strata of a policy, or one stratum of all records."""
        return [cls(policy, layout, code) for code, layout in enumerate(layouts_of(policy))]

    def question(self, plan: QueryPlan) -> Question:
        """Return the table to count for a plan.

        A factor on clear columns is a condition: people who do not meet it are not counted. Any other factor
        weighs all reports, so these are counted and weighed afterwards. All strata are counted in one table,
        with one more column.
        """
        conditions: dict[str, int] = {}
        for factor in plan.factors:
            if factor.code is not None:
                codes = np.unravel_index(factor.code, factor.sizes)
                conditions |= {name: int(code) for name, code in zip(factor.columns, codes, strict=True)}
        columns = self._columns(plan)
        by = self.policy.stratum_variable
        if by is not None and by not in conditions:
            columns.append(by)
        return Question.about(columns, conditions, self.policy.observed)

    def sum_cells(self, plan: QueryPlan, question: Question, table: Counts) -> Observed:
        """Return the sums of weights and of their squares over the observed cells of a plan."""
        order = list(dict.fromkeys(self._columns(plan)))
        rest = [name for name in question.columns if name not in order]
        cells = self._select(question, table).transpose(
            [question.columns.index(name) for name in (*order, *rest)]
        )
        counted = cells.sum(axis=tuple(range(len(order), cells.ndim)))
        shape = (*plan.observed_shape, *[prod(factor.sizes) for factor in plan.weighing])
        return Observed.of(plan, plan.lump(counted.reshape(shape).astype(np.float64)))

    def _columns(self, plan: QueryPlan) -> list[str]:
        return [*plan.columns, *[name for factor in plan.weighing for name in factor.columns]]

    def _select(self, question: Question, table: Counts) -> Counts:
        """Return the counts of this stratum, with zeros for all others."""
        by = self.policy.stratum_variable
        if by is None:
            return table
        if by not in question.columns:
            return table if dict(question.conditions)[by] == self.code else np.zeros_like(table)
        axis = question.columns.index(by)
        own = np.arange(table.shape[axis]) == self.code
        return np.asarray(table * own.reshape([-1 if i == axis else 1 for i in range(table.ndim)]))


@dataclass(frozen=True, slots=True)
class _CountedPart:
    """The reports of a stratum, as tables counted by others."""

    stratum: _Stratum
    source: CountedReports

    @property
    def layout(self) -> QueryLayout:
        return self.stratum.layout

    def observe(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        questions = [self.stratum.question(plan) for plan in plans]
        tables = self.source.count(questions)
        return [self.stratum.sum_cells(*item) for item in zip(plans, questions, tables, strict=True)]


class CountedReports(ReportTally):
    """A `Tally` over reports that are counted elsewhere, by `count`."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.strata = _Stratum.of(policy)
        observed = policy.observed
        self.sizes = dict(zip(observed, observed.shape(observed), strict=True))

    @abstractmethod
    def count(self, questions: Sequence[Question]) -> Sequence[Counts]:
        """Return the tables of questions."""

    def parts(self, questions: int) -> Sequence[_CountedPart]:
        """Return the reports by stratum."""
        del questions
        return [_CountedPart(stratum, self) for stratum in self.strata]

    def questions(self, query: Query) -> list[Question]:
        """Return the tables to count for a query."""
        found: list[Question] = []
        for stratum in self.strata:
            plan = stratum.layout.plan(query)
            found += [stratum.question(each) for each in (plan, plan.census) if each is not None]
        return found


class JointCounts(CountedReports):
    """A `Tally` over joint tables of reports counted by others. Cells that meet conditions are selected here.

    `most_cells` limits the cells of one batch.
    """

    most_cells: int

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the reasons to refuse queries: too many cells, or a channel that has no inverse."""
        refusals = super().check(queries)
        if refusals:
            return refusals
        tables = dict.fromkeys(self.joint(one) for query in queries for one in self.questions(query))
        cells = sum(question.cells(self.sizes) for question in tables)
        if cells > self.most_cells:
            reason = (
                f"A batch has at most {self.most_cells:,} cells, conditions included; this has {cells:,}."
            )
            return [Refusal("too_many_cells", reason)]
        return []

    def joint(self, question: Question) -> Question:
        """Return the question about all variables of a question, without its conditions."""
        return Question.about(question.names, {}, self.policy.observed)


class KnownCounts(CountedReports):
    """Counts of one round over `n` people, as a source."""

    def __init__(self, policy: Policy, known: Mapping[Question, Counts], n: int) -> None:
        super().__init__(policy)
        self.n, self._known = n, known

    def covers(self, query: Query) -> bool:
        """Return True if the round has counted the tables of a query."""
        return all(found_in(self._known, question) is not None for question in self.questions(query))

    def count(self, questions: Sequence[Question]) -> list[Counts]:
        """Return the tables of questions that the round covers."""
        tables = [found_in(self._known, question) for question in questions]
        return [table for table in tables if table is not None]


@dataclass(frozen=True, eq=False)
class CountedRound:
    """The tables of one round, and the people whose votes they sum."""

    tables: dict[Question, Counts]
    people: tuple[int, ...]


class CountRounds(CountedReports):
    """A `Tally` over people who are counted in rounds: one round per batch, and nothing is queried twice.

    `refusals` returns the refusals of a round, `hold_round` runs one. `n` of a table is the number of people
    counted in its round.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.held: list[KnownCounts] = []

    @abstractmethod
    def refusals(self, questions: Sequence[Question]) -> list[Refusal]:
        """Return the refusals of a round with these questions, without contacting anyone."""

    @abstractmethod
    def hold_round(self, questions: Sequence[Question]) -> KnownCounts:
        """Run a round with these questions and return its counts.

        Raises
        ------
        QueryRefused, RoundAborted
            If the round fails.
        """

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries: because of the disguise, their size, or the rules of the people."""
        found = list({(item.code, item.query): item for item in super().check(queries)}.values())
        asked = [] if found else self.new_questions(queries)
        return found + (self.refusals(asked) if asked else [])

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch from the counts of earlier rounds, and the rest in one round."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.check(queries))
        asked = self.new_questions(queries)
        if asked:
            self.held.append(self.hold_round(asked))
        sources = [next(held for held in self.held if held.covers(query)) for query in queries]
        return [source.answer([query])[0] for source, query in zip(sources, queries, strict=True)]

    def count(self, questions: Sequence[Question]) -> list[Counts]:
        """Return the tables of questions, from an earlier round that covers them all or from a new one."""
        for held in self.held:
            tables = held.count(questions)
            if len(tables) == len(questions):
                return tables
        asked = smallest_cover(questions, self.sizes)
        raise_refusals(self.refusals(asked))
        self.held.append(self.hold_round(asked))
        return self.held[-1].count(questions)

    def new_questions(self, queries: Iterable[Query]) -> tuple[Question, ...]:
        """Return the questions of a round, without any that follow from earlier rounds or other questions."""
        wanted = [
            question
            for query in dict.fromkeys(queries)
            if not any(held.covers(query) for held in self.held)
            for question in self.questions(query)
        ]
        return smallest_cover(wanted, self.sizes)
