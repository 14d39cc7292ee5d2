"""Pooled counts as a source: any learner runs on the records of parties who never show them.

Parties pool the exact tables of their *reports*; what the policy did to them is undone once, on the sums. For
clear records reports are the records, and every table equals that of the pooled clear records exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.channels.privacy import guarantee_of
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.codec import Words
from masquerade.protocols.pooling.local_counts import MOST_CELLS
from masquerade.protocols.pooling.masked_sum import PoolingParty
from masquerade.sources.query_plan import Layout, QueryPlan
from masquerade.sources.record_store import Observed
from masquerade.sources.records import Records
from masquerade.sources.report_tally import ReportTally


class Pool(Protocol):
    """A way to add up exact tables of several parties."""

    def totals(self, queries: Sequence[Query]) -> Words:
        """Return the sums of all cells of all tables, one table after the other."""

    def guarantee(self, names: Sequence[str]) -> Guarantee:
        """Return who learns what from the sums."""


class PooledTables:
    """Sums of tables of reports; the last round's are kept, since all strata are read off the same ones."""

    def __init__(self, pool: Pool, policy: Policy) -> None:
        self._pool, self._observed = pool, policy.observed
        (total,) = pool.totals([Query()])
        self.n = int(total)
        self._last: dict[Query, Floats] = {}

    def of(self, queries: Sequence[Query]) -> list[Floats]:
        """Return tables, in one round."""
        asked = list(dict.fromkeys(queries))
        if any(query not in self._last for query in asked):
            shapes = [self._observed.shape(query.by) for query in asked]
            tables = split_tables(self._pool.totals(asked), shapes)
            if any(int(table.sum()) != self.n for table in tables):
                raise RoundAborted("A pooled table does not add up to the number of records.", spent=True)
            self._last = {q: t.astype(np.float64) for q, t in zip(asked, tables, strict=True)}
        return [self._last[query] for query in queries]


def split_tables(cells: Words, shapes: Sequence[tuple[int, ...]]) -> list[Words]:
    """Return the tables that stand one after the other."""
    sizes = [prod(shape) for shape in shapes]
    if len(cells) != sum(sizes):
        raise InputError(f"The batch has {sum(sizes):,} cells. Got {len(cells):,} instead.")
    parts = np.split(cells, np.cumsum(sizes)[:-1]) if sizes else []
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


@dataclass(frozen=True, slots=True)
class PooledPart:
    """The reports of all parties, seen as sums of tables; with a `stratum` (variable, code), of that one."""

    layout: Layout
    tables: PooledTables
    stratum: tuple[str, int] | None = None

    def columns(self, plan: QueryPlan) -> tuple[str, ...]:
        """Return whose joint table a plan needs: columns tabulated, of conditions, and of the stratum."""
        names = plan.joint_columns
        by = () if self.stratum is None or self.stratum[0] in names else (self.stratum[0],)
        return (*names, *by)

    def observe(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        """Return the sums that plans want, in one round; conditions are weights over one more axis."""
        columns = [self.columns(plan) for plan in plans]
        tables = self.tables.of([Query(by=names) for names in columns])
        return [self._weighed(*item) for item in zip(plans, columns, tables, strict=True)]

    def _weighed(self, plan: QueryPlan, columns: tuple[str, ...], table: Floats) -> Observed:
        if self.stratum is not None:
            name, code = self.stratum
            axis = columns.index(name)
            own = np.arange(table.shape[axis]) == code
            table = table * own.reshape([-1 if i == axis else 1 for i in range(table.ndim)])
            if name not in plan.joint_columns:
                table = table.sum(axis=axis)
        return Observed.of(plan, plan.met(table.reshape(plan.joint_shape)))


class PooledTally(ReportTally):
    """A `Tally` over the records of all parties of a pool.

    Parties that disguise share one policy, the pool's. Those with another form a pool of their own, three or
    more at a time, and `Merged` adds the pools: a sum over reports of different channels has no inverse, and
    the sums of fewer than three parties would be their own.
    """

    def __init__(self, pool: Pool, policy: Policy) -> None:
        super().__init__(policy)
        self.guarantee = pooled_guarantee(pool.guarantee(tuple(policy.schema)), policy)
        tables = PooledTables(pool, policy)
        self.n, by = tables.n, policy.stratum_variable
        if by is None:
            self._parts = [PooledPart(Layout(policy.groups, policy.schema), tables)]
        else:
            self._parts = [
                PooledPart(Layout(policy.groups_of(label), policy.schema), tables, (by, code))
                for code, label in enumerate(policy.strata)
            ]

    def parts(self, questions: int) -> Sequence[PooledPart]:
        """Return the reports by stratum."""
        del questions
        return self._parts

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why queries would be refused: too many cells of reports, a channel that cannot be undone."""
        refusals = super().check(queries)
        if refusals:
            return refusals
        part = self._parts[0]
        columns = dict.fromkeys(part.columns(part.layout.plan(query)) for query in queries)
        cells = sum(prod(self.policy.observed.shape(names)) for names in columns)
        if cells > MOST_CELLS:
            reason = (
                f"A batch has at most {MOST_CELLS:,} pooled cells, conditions included, this one {cells:,}."
            )
            return [Refusal("too_many_cells", reason)]
        return []


def pooled_guarantee(sums: Guarantee, policy: Policy) -> Guarantee:
    """Return who learns what: sums of reports tell no more about a person than its own report would."""
    if not policy.disguised:
        return sums
    reports = guarantee_of(policy)
    disclosures = tuple(
        Disclosure(sum_.role, f"pooled counts of {item.kind}", item.variables, item.gamma)
        for sum_ in sums.disclosures
        for item in reports.disclosures
    )
    return replace(sums, disclosures=disclosures, assumptions=sums.assumptions + reports.assumptions)


def pooling_party(
    name: str, records: Tally, identity: SigningKey, peers: Mapping[str, bytes], **options: Any
) -> PoolingParty:
    """Return a party of a pool that counts its own records, in clear or by the reports that they hold."""
    policy, reports = reports_of(records)
    return PoolingParty(name, reports, identity, peers, policy=policy, **options)


def reports_of(records: Tally) -> tuple[Policy, Tally]:
    """Return the policy that records went through and a source of the exact counts of their reports."""
    if isinstance(records, Records):
        if records.weighted:
            raise InputError("Records with survey weights have no exact counts to pool.")
        if records.policy.disguised:
            seen = Policy.clear(records.policy.observed)
            return records.policy, Records(records.codes, seen, missing=records.missing)
    elif isinstance(policy := getattr(records, "policy", None), Policy) and policy.disguised:
        raise InputError("Disguised records are pooled from memory: give mq.tally(…, engine='memory').")
    return Policy.clear(records.schema), records
