"""Counting questions answered by secure aggregation: one round a batch, and never twice what is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from masquerade.channels.policy import Policy, check_policy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, Refusal
from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.core.tally import raise_refusals
from masquerade.protocols.aggregation.batch import (
    MOST_COUNTS,
    Batch,
    Counts,
    Table,
    found_in,
    smallest_cover,
)
from masquerade.protocols.aggregation.guarantee import aggregation_guarantee
from masquerade.protocols.aggregation.server import Rounds
from masquerade.sources.query_plan import Factor, Layout, QueryPlan
from masquerade.sources.record_store import Observed
from masquerade.sources.report_tally import ReportTally


class Stratum:
    """How questions are read off the reports of one stratum: the tables they need, the sums in them."""

    def __init__(self, policy: Policy, layout: Layout, given: tuple[tuple[int, int], ...]) -> None:
        self.layout = layout
        self._given = given
        self._places = {name: place for place, name in enumerate(policy.schema)}

    def table(self, plan: QueryPlan) -> Table | None:
        """Return the table that a plan needs; None if no record of the stratum can be in it.

        Conditions that a report meets or not are conditions of the table. Those that give reports weights
        are axes: the whole is tabulated, then weighed.
        """
        where = dict(self._given)
        for factor in plan.factors:
            for name, code in conditions(factor).items():
                if where.setdefault(self._places[name], code) != code:
                    return None
        columns = {self._places[name] for name in self._columns(plan)}
        return Table(tuple(sorted(columns.difference(where))), tuple(sorted(where.items())))

    def observe(self, plan: QueryPlan, known: Mapping[Table, Counts]) -> Observed:
        """Return the sums that a plan wants: of weights, and of their squares."""
        table = self.table(plan)
        cells = None if table is None else found_in(known, table)
        if table is None or cells is None:
            sizes = [prod(factor.sizes) for factor in plan.weighing]
            return Observed.of(plan, np.zeros((*plan.observed_shape, *sizes)))
        names = self._columns(plan)
        spread = self._spread(plan, table, cells.astype(np.float64))
        shape = [*plan.observed_shape, *(prod(factor.sizes) for factor in plan.weighing)]
        order = [list(dict.fromkeys(names)).index(name) for name in names]
        return Observed.of(plan, spread.transpose(order).reshape(shape))

    def _columns(self, plan: QueryPlan) -> list[str]:
        return [*plan.columns, *(name for factor in plan.weighing for name in factor.columns)]

    def _spread(self, plan: QueryPlan, table: Table, cells: Floats) -> Floats:
        """Return the cells by the plan's own columns; one that the stratum fixes gets its axis back."""
        names = self._columns(plan)
        sizes = [*(size for axis in plan.axes for size in axis.sizes)]
        sizes += [size for factor in plan.weighing for size in factor.sizes]
        where = dict(table.where)
        result = np.zeros(sizes)
        index = tuple(where.get(self._places[name], slice(None)) for name in names)
        free = [self._places[name] for name in names if self._places[name] not in where]
        result[index] = cells.transpose([table.columns.index(place) for place in free])
        return result


def conditions(factor: Factor) -> dict[str, int]:
    """Return the codes that a factor on clear columns asks for; none if it weighs reports."""
    if factor.code is None:
        return {}
    codes = np.unravel_index(factor.code, factor.sizes)
    return {name: int(code) for name, code in zip(factor.columns, codes, strict=True)}


@dataclass(frozen=True, slots=True)
class Seen:
    """A stratum together with what a round has counted."""

    stratum: Stratum
    known: Mapping[Table, Counts]

    @property
    def layout(self) -> Layout:
        """Return how questions are read."""
        return self.stratum.layout

    def observe(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        """Return the sums that plans want."""
        return [self.stratum.observe(plan, self.known) for plan in plans]


class RoundTally(ReportTally):
    """What one round has counted, over the users who survived it, as a source of its own."""

    def __init__(
        self, policy: Policy, strata: Sequence[Stratum], known: Mapping[Table, Counts], n: int
    ) -> None:
        super().__init__(policy)
        self.n = n
        self._known = known
        self._seen = [Seen(stratum, known) for stratum in strata]

    def parts(self, questions: int) -> Sequence[Seen]:
        """Return the strata."""
        del questions
        return self._seen

    def covers(self, query: Query) -> bool:
        """Tell whether the round has counted what a question needs."""
        return all(found_in(self._known, table) is not None for table in needed(query, self._seen))


def needed(query: Query, parts: Sequence[Stratum] | Sequence[Seen]) -> list[Table]:
    """Return the tables that a question needs, one for each stratum that has any part in it."""
    strata = [part.stratum if isinstance(part, Seen) else part for part in parts]
    tables = [stratum.table(stratum.layout.plan(query)) for stratum in strata]
    return [table for table in tables if table is not None]


class AggregationTally:
    """A `Tally` over people who each hold one record: exact sums, and nobody sees a record.

    A batch of questions is one round. What an earlier round has counted is not asked again; of overlapping
    tables in one batch only the largest is. With a policy, users report disguised records and the sums are
    corrected as those of disguised records are. `n` of a table is the number of users who survived its
    round.
    """

    def __init__(self, rounds: Rounds, policy: Policy, *, most_counts: int = MOST_COUNTS) -> None:
        check_policy(policy)
        if rounds.terms.policy != policy.id:
            raise InputError("The users agreed to another policy than this one.")
        if not 1 <= most_counts <= MOST_COUNTS:
            raise InputError(f"A round counts from 1 to {MOST_COUNTS:,} cells. Got {most_counts} instead.")
        self.rounds, self.policy, self.schema = rounds, policy, policy.schema
        self.guarantee = aggregation_guarantee(rounds.terms, policy)
        self.most_counts = most_counts
        self._strata = strata_of(policy)
        self._answered: list[RoundTally] = []

    def __repr__(self) -> str:
        """Show how many users of which variables."""
        users = self.rounds.terms.parameters.users
        return f"{type(self).__name__}({users:,} users, {self.schema!r}, {len(self._answered)} rounds)"

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why queries would be refused: by the disguise, by their size, by the rules of the users."""
        refusals = [
            item
            for query in queries
            for item in {item.code: item for s in self._strata for item in s.layout.refusals(query)}.values()
        ]
        if refusals:
            return refusals
        asked = self._open(queries)
        if not asked:
            return []
        batch = self._batch(asked)
        if batch.length > self.most_counts:
            reason = f"the batch has {batch.length:,} cells, a vote at most {self.most_counts:,}"
            refusals.append(Refusal("too_many_cells", reason))
        return refusals + self.rounds.refusals()

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch: from earlier rounds what they have counted, the rest in one round."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.check(queries))
        asked = self._open(queries)
        if asked:
            batch = self._batch(asked)
            outcome = self.rounds.ask(batch)
            known = batch.split(outcome.counts)
            self._answered.append(RoundTally(self.policy, self._strata, known, len(outcome.survivors)))
        return [self._source(query).answer([query])[0] for query in queries]

    def _source(self, query: Query) -> RoundTally:
        return next(known for known in self._answered if known.covers(query))

    def _open(self, queries: Sequence[Query]) -> list[Query]:
        return [
            query
            for query in dict.fromkeys(queries)
            if not any(known.covers(query) for known in self._answered)
        ]

    def _batch(self, queries: Sequence[Query]) -> Batch:
        sizes = self.rounds.terms.sizes
        wanted = [table for query in queries for table in needed(query, self._strata)]
        return Batch(smallest_cover(wanted, sizes), sizes)


def strata_of(policy: Policy) -> list[Stratum]:
    """Return the strata of a policy, or the one that holds everybody."""
    by = policy.stratum_variable
    if by is None:
        return [Stratum(policy, Layout(policy.groups, policy.schema), ())]
    place = list(policy.schema).index(by)
    return [
        Stratum(policy, Layout(policy.groups_of(label), policy.schema), ((place, code),))
        for code, label in enumerate(policy.strata)
    ]
