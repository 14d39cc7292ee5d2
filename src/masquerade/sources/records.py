"""Records in memory, clear or disguised, as a source of counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.channels.privacy import guarantee_of
from masquerade.core.axes import Floats
from masquerade.core.covariance import LinearCovariance, Part, reduce_cells
from masquerade.core.errors import InputError, Refusal
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.supports import SupportAnswer, Supports
from masquerade.core.table import CountTable, Projection
from masquerade.core.tally import raise_refusals
from masquerade.estimate.misfit import Misfit, misfit
from masquerade.kernels.count import count_many, count_weighted, distinct
from masquerade.sources.expectation import expect
from masquerade.sources.nonnegative import most_likely, projected
from masquerade.sources.reading import Layout, Reading
from masquerade.sources.supports import supports_of

Codes = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Store:
    """Coded columns of some records that share their channels; equal rows may stand once, counted."""

    layout: Layout
    columns: Mapping[str, Codes]
    sizes: Mapping[str, int]
    rows: int
    multiplicity: NDArray[np.int64] | None = None
    weights: Floats | None = None

    @property
    def worth_merging(self) -> int:
        """Return after how many questions merging equal rows is tried.

        Where the table of all variables is small, merging is one pass like any question; else rows must be
        hashed, which costs as much as some dozens of questions and may be in vain.
        """
        return 2 if prod(self.sizes.values()) <= self.rows // 8 else 64

    def compressed(self) -> Store:
        """Return the store with equal rows merged, if that pays."""
        if self.multiplicity is not None or self.weights is not None or not self.columns:
            return self
        names = list(self.columns)
        merged = distinct([self.columns[name] for name in names], [self.sizes[name] for name in names])
        if merged is None:
            return self
        columns, multiplicity = merged
        return replace(self, columns=dict(zip(names, columns, strict=True)), multiplicity=multiplicity)


@dataclass(frozen=True, slots=True)
class Observed:
    """Sums over the observed cells: of record weights, of their squares, of squared survey weights."""

    firsts: Floats
    squares: Floats
    fixed: Floats


@dataclass(eq=False)
class Records:
    """A `Tally` over coded records that were disguised by a policy (by none: clear records).

    `codes` are report codes by variable. With `weights`, records count for their survey weight and
    `CountTable.n` stays the number of records. Equal rows are merged once several questions are asked.
    """

    codes: Mapping[str, Codes]
    policy: Policy
    weights: Floats | None = None
    schema: Schema = field(init=False)
    guarantee: Guarantee = field(init=False, repr=False)
    _stores: tuple[Store, ...] = field(init=False, repr=False)
    _asked: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        self.schema = self.policy.schema
        self.guarantee = guarantee_of(self.policy)
        lengths = {len(column) for column in self.codes.values()}
        if set(self.codes) != set(self.schema) or len(lengths) != 1:
            raise InputError("Records need one column of codes, equally long, for every variable.")
        self.n = lengths.pop()
        if self.weights is not None:
            check_weights(self.weights, self.n)
        self._stores = self._split()

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why queries would be refused: a channel that cannot be undone, too many cells."""
        return [item for query in queries for store in self._stores for item in store.layout.refusals(query)]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch; unconditioned questions share as few passes over the records as pay."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.check(queries))
        self._compress(len(queries))
        observed = [self._observe(store, queries) for store in self._stores]
        return [self._table(query, [part[i] for part in observed]) for i, query in enumerate(queries)]

    def misfit(self, names: Sequence[str]) -> Misfit:
        """Test whether the reports of some variables can have come from this policy at all.

        See `masquerade.estimate.misfit`: a small p-value flags a wrong policy or cheating respondents.
        """
        if len(self._stores) > 1 or self.weights is not None:
            raise InputError("The misfit test is for one stratum at a time and for unweighted records.")
        query = Query(by=names)
        raise_refusals(self.check([query]))
        ((plan, sums),) = self._observe(self._stores[0], [query])
        return misfit(sums.firsts, [axis.matrix for axis in plan.axes])

    def supports(self, question: Supports) -> SupportAnswer:
        """Return how many records hold each of many sets of items: thousands of counts as one question."""
        return supports_of(self, question)

    def expect(
        self, f: Callable[[NDArray[np.intp]], NDArray[Any]], over: Sequence[str], *, seed: int = 0
    ) -> tuple[float, float]:
        """Return the mean over the true records of a function of their codes, and its standard error.

        See `masquerade.sources.expectation`; for evaluation, never for learning.
        """
        return expect(self, f, over, seed=seed)

    def _split(self) -> tuple[Store, ...]:
        sizes = dict(zip(self.schema, self.policy.observed.shape(self.schema), strict=True))
        by = self.policy.stratum_variable
        if by is None:
            return (
                Store(Layout(self.policy.groups, self.schema), self.codes, sizes, self.n, None, self.weights),
            )
        stores = []
        for code, label in enumerate(self.policy.strata):
            rows = np.flatnonzero(self.codes[by] == code)
            columns = {name: np.ascontiguousarray(column[rows]) for name, column in self.codes.items()}
            weights = None if self.weights is None else self.weights[rows]
            layout = Layout(self.policy.groups_of(label), self.schema)
            stores.append(Store(layout, columns, sizes, len(rows), None, weights))
        return tuple(stores)

    def _compress(self, questions: int) -> None:
        before, self._asked = self._asked, self._asked + questions
        self._stores = tuple(
            store.compressed() if before < store.worth_merging <= self._asked else store
            for store in self._stores
        )

    def _observe(self, store: Store, queries: Sequence[Query]) -> list[tuple[Reading, Observed]]:
        plans = [store.layout.reading(query) for query in queries]
        plain = [i for i, plan in enumerate(plans) if not plan.factors and store.weights is None]
        counts = self._count(store, [plans[i] for i in plain])
        found = dict(zip(plain, counts, strict=True))
        return [(plan, found[i] if i in found else self._weigh(store, plan)) for i, plan in enumerate(plans)]

    @staticmethod
    def _count(store: Store, plans: Sequence[Reading]) -> list[Observed]:
        names = list(store.columns)
        tables = (
            count_many(
                [store.columns[name] for name in names],
                [store.sizes[name] for name in names],
                [tuple(names.index(name) for name in plan.columns) for plan in plans],
                store.multiplicity,
            )
            if plans
            else []
        )
        result = []
        for plan, table in zip(plans, tables, strict=True):
            cells = table.reshape(plan.observed_shape).astype(np.float64)
            result.append(Observed(cells, cells, cells))
        return result

    @staticmethod
    def _weigh(store: Store, plan: Reading) -> Observed:
        sums = count_weighted(
            [store.columns[name] for name in plan.columns],
            [store.sizes[name] for name in plan.columns],
            [(joint_codes(store, factor.columns, factor.sizes), factor.vector) for factor in plan.factors],
            store.weights,
            store.multiplicity,
        )
        firsts, squares, fixed = (array.reshape(plan.observed_shape) for array in sums)
        return Observed(firsts, squares, fixed)

    def _table(self, query: Query, parts: Sequence[tuple[Reading, Observed]]) -> CountTable:
        values = reduce(np.add, [plan.maps.apply(sums.firsts) for plan, sums in parts])
        plain = self.weights is None
        fixed = values if plain else reduce(np.add, [plan.maps.apply(sums.fixed) for plan, sums in parts])
        covariance = LinearCovariance(
            tuple(Part(sums.squares, plan.maps) for plan, sums in parts), values, fixed, self.n, query.by
        )
        axes = tuple(self.schema[name] for name in query.by)
        return CountTable(
            axes, values, self.n, covariance, lambda method: self._project(query, values, method)
        )

    def _project(self, query: Query, values: Floats, method: Projection) -> Floats:
        if method != "mle":
            return projected(values, method)
        whole = Query(by=query.names)
        raise_refusals(self.check([whole]))
        parts = []
        for store in self._stores:
            ((plan, sums),) = self._observe(store, [whole])
            parts.append(most_likely(plan, sums.firsts))
        given = {
            len(query.by) + i: self.schema[name].code(label) for i, (name, label) in enumerate(query.where)
        }
        return reduce_cells(reduce(np.add, parts), range(len(query.by)), given)


def joint_codes(store: Store, columns: Sequence[str], sizes: Sequence[int]) -> Codes:
    """Return the joint report code of columns that were disguised together."""
    if len(columns) == 1:
        return store.columns[columns[0]]
    joint = store.columns[columns[0]].astype(np.uint32)
    for name, size in zip(columns[1:], sizes[1:], strict=True):
        joint *= np.uint32(size)
        joint += store.columns[name]
    return joint


def check_weights(weights: Floats, rows: int) -> None:
    """Refuse survey weights that are none."""
    if weights.shape != (rows,) or not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise InputError(f"Survey weights must be {rows:,} finite numbers, none negative.")
