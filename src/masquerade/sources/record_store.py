"""Coded reports in memory, and the sums that a reading wants of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.kernels.count import count_many, count_weighted, distinct
from masquerade.sources.query_plan import Layout, Reading

Codes = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Observed:
    """Sums over the observed cells: of record weights, of their squares, of squared survey weights."""

    firsts: Floats
    squares: Floats
    fixed: Floats

    @classmethod
    def counts(cls, cells: Floats) -> Observed:
        """Return the sums where every record counts one."""
        return cls(cells, cells, cells)


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

    def observe(self, plans: Sequence[Reading]) -> list[Observed]:
        """Return the sums that readings want; unconditioned ones share as few passes as pay."""
        plain = [i for i, plan in enumerate(plans) if not plan.factors and self.weights is None]
        found = dict(zip(plain, self._count([plans[i] for i in plain]), strict=True))
        return [found[i] if i in found else self._weigh(plan) for i, plan in enumerate(plans)]

    def _count(self, plans: Sequence[Reading]) -> list[Observed]:
        if not plans:
            return []
        names = list(self.columns)
        tables = count_many(
            [self.columns[name] for name in names],
            [self.sizes[name] for name in names],
            [tuple(names.index(name) for name in plan.columns) for plan in plans],
            self.multiplicity,
        )
        return [
            Observed.counts(table.reshape(plan.observed_shape).astype(np.float64))
            for plan, table in zip(plans, tables, strict=True)
        ]

    def _weigh(self, plan: Reading) -> Observed:
        sums = count_weighted(
            [self.columns[name] for name in plan.columns],
            [self.sizes[name] for name in plan.columns],
            [(self.joint(factor.columns, factor.sizes), factor.vector) for factor in plan.factors],
            self.weights,
            self.multiplicity,
        )
        firsts, squares, fixed = (array.reshape(plan.observed_shape) for array in sums)
        return Observed(firsts, squares, fixed)

    def joint(self, columns: Sequence[str], sizes: Sequence[int]) -> Codes:
        """Return the joint report code of columns that were disguised together."""
        if len(columns) == 1:
            return self.columns[columns[0]]
        joint = self.columns[columns[0]].astype(np.uint32)
        for name, size in zip(columns[1:], sizes[1:], strict=True):
            joint *= np.uint32(size)
            joint += self.columns[name]
        return joint
