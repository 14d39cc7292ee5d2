"""Coded reports in memory, and the sums that a reading wants of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.kernels.count import count_flat, count_many, count_weighted, distinct
from masquerade.sources.query_plan import Layout, QueryPlan

Codes = NDArray[np.unsignedinteger[Any]]
MOST_JOINT = 1 << 14  # cells of a joint table that is counted rather than weighed
FEW_JOINT = 1 << 10


@dataclass(frozen=True, slots=True)
class Observed:
    """Sums over the observed cells: of record weights, of their squares, of squared survey weights.

    `counted` is the table of reports behind them, with one more axis for every weighing factor; None where
    only sums of weights are known. `weight` is the mean squared survey weight over the mean weight, `squared`
    are the sums of squared survey weights in the cells of `counted`, None without such weights.
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
        """Return the sums of a plan from the table of its columns and of those of its weighing factors.

        With survey weights the table holds their sums, `squares` and `fixed` those of their squares.
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
    """Coded columns of some records that share their channels; equal rows may stand once, counted.

    A row stands for `multiplicity` records of weight `weights`. Equal rows of different weights v may be
    merged too: (Σv)²/Σv² records of weight Σv²/Σv have the same sums of weights and of their squares.
    """

    layout: Layout
    columns: Mapping[str, Codes]
    sizes: Mapping[str, int]
    rows: int
    multiplicity: NDArray[Any] | None = None
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

    def covers(self, names: Iterable[str]) -> bool:
        """Tell whether all of these columns are here."""
        return self.columns.keys() >= set(names)

    def observe(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        """Return the sums that plans want.

        Small joint tables are counted, several in a pass; conditions over large ones are weights of records.
        """
        small = [not plan.factors or prod(plan.joint_shape) <= self._most_joint for plan in plans]
        counted = [i for i, fits in enumerate(small) if fits and self.weights is None]
        found = dict(zip(counted, self._count([plans[i] for i in counted]), strict=True))
        return [
            found[i] if i in found else self._add_up(plan) if fits else self._weigh(plan)
            for i, (plan, fits) in enumerate(zip(plans, small, strict=True))
        ]

    @property
    def _most_joint(self) -> int:
        """Return how many cells a joint table may have: beyond, weights are looked up record by record."""
        rows = self.rows if self.multiplicity is None else len(self.multiplicity)
        return min(MOST_JOINT, max(FEW_JOINT, rows))

    def _count(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        if not plans:
            return []
        place = {name: i for i, name in enumerate(self.columns)}
        # plans of dealt blocks read different tables off the same columns
        wanted = list(dict.fromkeys(plan.joint_columns for plan in plans))
        tables = count_many(
            list(self.columns.values()),
            [self.sizes[name] for name in self.columns],
            [tuple([place[name] for name in columns]) for columns in wanted],
            self.multiplicity,
        )
        counted = {columns: table.astype(np.float64) for columns, table in zip(wanted, tables, strict=True)}
        return [
            Observed.of(plan, plan.met(counted[plan.joint_columns].reshape(plan.joint_shape)))
            for plan in plans
        ]

    def count_flat(self, names: Sequence[str], members: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count a table of reports for each row of places in `names` (then −1), one behind the other."""
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
        counted, squares, fixed = (plan.met(array.reshape(plan.joint_shape)) for array in sums)
        return Observed.of(plan, counted, squares, fixed)

    def _weigh(self, plan: QueryPlan) -> Observed:
        sums = count_weighted(
            [self.columns[name] for name in plan.columns],
            [self.sizes[name] for name in plan.columns],
            [(self.joint(factor.columns, factor.sizes), factor.vector) for factor in plan.factors],
            self.weights,
            self.multiplicity,
        )
        firsts, squares, fixed = (plan.lumped(array.reshape(plan.observed_shape)) for array in sums)
        if plan.weighing:
            return Observed(firsts, squares, fixed, None)
        squared = None if self.weights is None else fixed
        return Observed(firsts, squares, fixed, firsts, mean_weight(firsts, fixed), squared)

    def joint(self, columns: Sequence[str], sizes: Sequence[int]) -> Codes:
        """Return the joint report code of columns that were disguised together."""
        if len(columns) == 1:
            return self.columns[columns[0]]
        joint = self.columns[columns[0]].astype(np.uint32)
        for name, size in zip(columns[1:], sizes[1:], strict=True):
            joint *= np.uint32(size)
            joint += self.columns[name]
        return joint
