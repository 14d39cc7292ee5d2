"""Coded reports in memory, and the sums that plans need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.kernels.count import (
    WeightedTable,
    count_flat,
    count_many,
    count_weighted,
    count_weighted_many,
    distinct,
)
from masquerade.sources.late_codes import Codes, LateCodes, load_columns
from masquerade.sources.query_plan import Factor, QueryLayout, QueryPlan
from masquerade.sources.shared_weights import SharedWeights, WeightedPass

MOST_JOINT = 1 << 14  # largest joint table that is counted; larger ones are weighed record by record
FEW_JOINT = 1 << 10


@dataclass(frozen=True, slots=True)
class Observed:
    """Sums over the observed cells: of record weights, of their squares, and of squared survey weights.

    `counted` is the underlying table of reports, with one more axis per weighing factor. It is None if only
    sums of weights are known. `weight` is the mean squared survey weight over the mean weight. `squared` are
    the sums of squared survey weights in the cells of `counted`, None without survey weights.
    """

    firsts: Floats
    squares: Floats
    fixed: Floats
    counted: Floats | None
    weight: float = 1.0
    squared: Floats | None = None

    @classmethod
    def of(
        cls,
        plan: QueryPlan,
        counted: Floats,
        squares: Floats | None = None,
        fixed: Floats | None = None,
    ) -> Observed:
        """Return the sums of a plan from the table of its columns and of its weighing factors.

        With survey weights the table contains their sums; `squares` and `fixed` are the sums of their
        squares.
        """
        if squares is None and not plan.factors:
            return cls(counted, counted, counted, counted)
        squared = squares if fixed is None else fixed
        weight = 1.0 if squared is None else mean_weight(counted, squared)
        firsts = counted
        squares = counted if squares is None else squares
        fixed = squares if fixed is None else fixed
        for factor in reversed(plan.weighing):
            firsts, squares, fixed = firsts @ factor.vector, squares @ factor.vector**2, fixed @ factor.vector
        return cls(np.asarray(firsts), np.asarray(squares), np.asarray(fixed), counted, weight, squared)


def mean_weight(sums: Floats, squares: Floats) -> float:
    """Return the mean squared survey weight over the mean weight, from the sums of both."""
    total = float(sums.sum())
    return float(squares.sum()) / total if total > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Store:
    """Coded columns of records that share their channels. Equal rows may be merged, with a multiplicity.

    A row represents `multiplicity` records of weight `weights`. Equal rows of different weights v may be
    merged too: (Σv)²/Σv² records of weight Σv²/Σv have the same sums of weights and of their squares.
    """

    layout: QueryLayout
    columns: Mapping[str, Codes]
    sizes: Mapping[str, int]
    rows: int
    multiplicity: NDArray[Any] | None = None
    weights: Floats | None = None

    @property
    def worth_merging(self) -> int:
        """Return the number of queries after which merging equal rows is tried.

        If the table of all variables is small, merging takes one pass, like a query. Otherwise rows must be
        hashed, which costs as much as dozens of queries and may save nothing.
        """
        return 2 if prod(self.sizes.values()) <= self.rows // 8 else 64

    @property
    def is_complete(self) -> bool:
        """Return True if all columns are in memory."""
        return not isinstance(self.columns, LateCodes) or self.columns.is_complete

    def compress(self) -> Store:
        """Return the store with equal rows merged, if that saves time."""
        if self.multiplicity is not None or self.weights is not None or not self.columns:
            return self
        names = list(self.columns)
        load_columns(self.columns, names)
        merged = distinct([self.columns[name] for name in names], [self.sizes[name] for name in names])
        if merged is None:
            return self
        columns, multiplicity = merged
        return replace(self, columns=dict(zip(names, columns, strict=True)), multiplicity=multiplicity)

    def covers(self, names: Iterable[str]) -> bool:
        """Return True if the store has all these columns."""
        return self.columns.keys() >= set(names)

    def observe(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        """Return the sums that plans need.

        Small joint tables are counted, several in one pass. Conditions over large tables become weights of
        records.
        """
        small = [not plan.factors or prod(plan.joint_shape) <= self._most_joint for plan in plans]
        counted = [i for i, fits in enumerate(small) if fits and self.weights is None]
        sums = dict(zip(counted, self._count([plans[i] for i in counted]), strict=True))
        weighed = [i for i, fits in enumerate(small) if not fits]
        sums |= zip(weighed, self._weigh([plans[i] for i in weighed]), strict=True)
        return [sums[i] if i in sums else self._add_up(plan) for i, plan in enumerate(plans)]

    @property
    def _most_joint(self) -> int:
        """Return the largest joint table that is counted. Beyond it, weights are looked up per record."""
        rows = self.rows if self.multiplicity is None else len(self.multiplicity)
        return min(MOST_JOINT, max(FEW_JOINT, rows))

    def _count(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        if not plans:
            return []
        # plans of dealt blocks compute different tables from the same columns
        joints = list(dict.fromkeys(plan.joint_columns for plan in plans))
        needed = {name for columns in joints for name in columns}
        names = [name for name in self.columns if name in needed] or list(self.columns)[:1]
        place = {name: i for i, name in enumerate(names)}
        load_columns(self.columns, names)
        tables = count_many(
            [self.columns[name] for name in names],
            [self.sizes[name] for name in names],
            [tuple([place[name] for name in columns]) for columns in joints],
            self.multiplicity,
        )
        counted = {columns: table.astype(np.float64) for columns, table in zip(joints, tables, strict=True)}
        return [
            Observed.of(plan, plan.select_met(counted[plan.joint_columns].reshape(plan.joint_shape)))
            for plan in plans
        ]

    def count_flat(self, names: Sequence[str], members: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count one table of reports per row of indexes into `names` (padded with −1), concatenated."""
        load_columns(self.columns, names)
        columns = [self.columns[name] for name in names]
        return count_flat(columns, [self.sizes[name] for name in names], members, self.multiplicity)

    def _add_up(self, plan: QueryPlan) -> Observed:
        """Return the sums of survey weights, from the joint table of all columns."""
        sums = count_weighted(
            [self.columns[name] for name in plan.joint_columns],
            [self.sizes[name] for name in plan.joint_columns],
            [],
            self.weights,
            self.multiplicity,
        )
        counted, squares, fixed = (plan.select_met(array.reshape(plan.joint_shape)) for array in sums)
        return Observed.of(plan, counted, squares, fixed)

    def _weigh(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        """Return the sums of weights; plans whose weights differ in few conditions share a pass."""
        shared = SharedWeights(plans, self._most_joint)
        found: dict[int, Observed] = {}
        for passes, factors, served in shared.groups():  # a group's tables are dropped after it
            tables = dict(zip(passes, self._weighted_tables(passes, factors), strict=True))
            for i in served:
                firsts, squares, fixed = shared.sums(i, tables[shared.passes[i]])
                if plans[i].weighing:
                    found[i] = Observed(firsts, squares, fixed, None)
                else:
                    squared = None if self.weights is None else fixed
                    found[i] = Observed(firsts, squares, fixed, firsts, mean_weight(firsts, fixed), squared)
        return [found[i] for i in range(len(plans))]

    def _weighted_tables(
        self, passes: Sequence[WeightedPass], factors: Sequence[Factor]
    ) -> list[WeightedTable]:
        """Return the tables of passes whose weights are products of the same factors."""
        names = list(dict.fromkeys(name for one in passes for name in one.all_columns))
        place = {name: i for i, name in enumerate(names)}
        return count_weighted_many(
            [self.columns[name] for name in names],
            [self.sizes[name] for name in names],
            [tuple([place[name] for name in one.all_columns]) for one in passes],
            [(self.joint(factor.columns, factor.sizes), factor.vector) for factor in factors],
            row_weights=self.weights,
            multiplicity=self.multiplicity,
        )

    def joint(self, columns: Sequence[str], sizes: Sequence[int]) -> Codes:
        """Return the joint report code of columns that were disguised together."""
        if len(columns) == 1:
            return self.columns[columns[0]]
        joint = self.columns[columns[0]].astype(np.uint32)
        for name, size in zip(columns[1:], sizes[1:], strict=True):
            joint *= np.uint32(size)
            joint += self.columns[name]
        return joint
