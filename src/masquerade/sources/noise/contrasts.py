"""Makes tables with independent noise consistent with each other: means of their contrasts, in closed form.

Noise is independent and equal over the cells of a table, so its contrasts (the terms of an analysis of
variance) are uncorrelated. Every table that contains a set S of variables estimates the contrast of S; the
estimates are averaged by precision, and the contrasts of all subsets add up to the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.covariance import BlockCovariance, Covariance, Kind, check_kind
from masquerade.core.schema import Schema

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ContrastCovariance(BlockCovariance):
    """Covariance Σ_S c_S ⊗_a (I − J/K_a if a in S, else J/K_a), closed under margins and slices.

    It is the covariance of noise, so both kinds are equal.

    Attributes
    ----------
    sizes : tuple of int
        Shape of the table.
    parts : tuple of (axes, float)
        Variance c_S of the contrasts of each set S of axes.
    names : tuple of str
        Names of the axes.
    """

    sizes: tuple[int, ...]
    parts: tuple[tuple[Axes, float], ...]
    names: tuple[str, ...] = ()

    @classmethod
    def independent(
        cls, sizes: tuple[int, ...], variance: float, names: tuple[str, ...]
    ) -> ContrastCovariance:
        """Return the covariance of independent noise of one variance in all cells."""
        return cls(sizes, tuple((axes, variance) for axes in subsets(range(len(sizes)))), names)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.sizes

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        check_kind(kind)
        inner = self.positions(axes)
        outer = [axis for axis in range(len(self.sizes)) if axis not in inner]
        cells = math.prod(self.sizes[axis] for axis in inner)
        block = np.zeros((cells, cells))
        for chosen, variance in self.parts:
            factor = math.prod(
                1 - 1 / self.sizes[axis] if axis in chosen else 1 / self.sizes[axis] for axis in outer
            )
            block += variance * factor * self._projection(inner, chosen)
        return np.broadcast_to(block, (*(self.sizes[axis] for axis in outer), cells, cells)).copy()

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for all pairs of weights along the first axes."""
        check_kind(kind)
        right = np.asarray(second, dtype=float).reshape(len(second), -1).T
        result = np.zeros((len(first), len(second)))
        for chosen, variance in self.parts:
            projected = project_contrast(
                np.asarray(first, dtype=float), [axis + 1 for axis in chosen], skip=1
            )
            result += variance * (projected.reshape(len(first), -1) @ right)
        return result

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> ContrastCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        kept, parts = list(keep), dict[Axes, float]()
        for chosen, variance in self.parts:
            value = variance
            for axis, size in enumerate(self.sizes):
                if axis in at:
                    value *= 1 - 1 / size if axis in chosen else 1 / size
                elif axis not in kept:
                    value *= 0.0 if axis in chosen else size
            key = tuple(sorted(kept.index(axis) for axis in chosen if axis in kept))
            parts[key] = parts.get(key, 0.0) + value
        names = tuple(self.names[axis] for axis in kept) if self.names else ()
        return ContrastCovariance(tuple(self.sizes[axis] for axis in kept), tuple(parts.items()), names)

    def _projection(self, axes: Sequence[int], chosen: Axes) -> Floats:
        """Return the projection on the contrasts of `chosen`, over the cells of some axes."""
        result = np.ones((1, 1))
        for axis in axes:
            size = self.sizes[axis]
            mean = np.full((size, size), 1 / size)
            result = np.kron(result, np.eye(size) - mean if axis in chosen else mean)
        return result


@dataclass(frozen=True, slots=True)
class NoisyTable:
    """A table of counts with independent noise of one variance in every cell; `names` are its axes."""

    names: tuple[str, ...]
    cells: NDArray[Any] | None
    variance: float

    def margin(self, names: Sequence[str]) -> Floats:
        """Return the sums of cells over all variables but `names`, in this order."""
        if self.cells is None:
            return np.zeros(0)
        axes = [self.names.index(name) for name in names]
        others = tuple(axis for axis in range(len(self.names)) if axis not in axes)
        summed = self.cells.sum(axis=others)
        order = sorted(axes)
        return np.asarray(summed, dtype=float).transpose([order.index(axis) for axis in axes])


class TableFusion:
    """All noisy tables of one set of records together: consistent tables of any variables that they cover.

    Formula: for each set S of variables, the mean of the contrasts of S of all tables that contain S,
    weighted by the precision K_S/(K_t·σ_t²); the total is n. Without conditions this is generalised least
    squares over all tables.
    Cost: O(tables · cells) for each set of variables, once. Error: none beyond rounding.

    Parameters
    ----------
    schema : Schema
        Order and categories of the variables.
    n : int
        Number of records, which is public.
    tables : iterable of NoisyTable
        Tables. Those without cells give covariances only.
    """

    def __init__(self, schema: Schema, n: int, tables: Iterable[NoisyTable]) -> None:
        self._schema, self._n = schema, n
        self._containing: dict[str, list[NoisyTable]] = {}
        for table in tables:
            for name in table.names:
                self._containing.setdefault(name, []).append(table)
        self._contrasts: dict[tuple[str, ...], tuple[Floats | None, float]] = {}

    def covers(self, names: Iterable[str]) -> bool:
        """Return True if a table contains all of these variables."""
        return bool(self._tables_with(tuple(names)))

    def values(self, names: tuple[str, ...]) -> Floats:
        """Return the consistent table of variables in the order of the schema."""
        shape = self._schema.shape(names)
        result = np.full(shape, self._n / math.prod(shape))
        for chosen, some, spread in self._sets(names):
            estimate = self._contrast(some)[0]
            if estimate is None:
                raise ValueError("a table without cells has no values")
            sizes = [shape[axis] if axis in chosen else 1 for axis in range(len(shape))]
            result += (estimate / spread).reshape(sizes)
        return result

    def covariance(self, names: tuple[str, ...]) -> Covariance:
        """Return the covariance of the noise of the consistent table."""
        parts = [
            (chosen, 1 / (self._contrast(some)[1] * spread)) for chosen, some, spread in self._sets(names)
        ]
        return ContrastCovariance(self._schema.shape(names), (((), 0.0), *parts), names)

    def _sets(self, names: tuple[str, ...]) -> Iterator[tuple[Axes, tuple[str, ...], float]]:
        """Yield nonempty sets of axes, their variables, and the number of table cells per cell of the set."""
        whole = math.prod(self._schema.shape(names))
        for chosen in subsets(range(len(names))):
            if chosen:
                some = tuple(names[axis] for axis in chosen)
                yield chosen, some, whole / math.prod(self._schema.shape(some))

    def _contrast(self, some: tuple[str, ...]) -> tuple[Floats | None, float]:
        """Return the mean contrast of some variables over all tables, and its precision."""
        if some not in self._contrasts:
            shape = self._schema.shape(some)
            total: Floats | None = np.zeros(shape)
            precision = 0.0
            for table in self._tables_with(some):
                weight = math.prod(shape) / (math.prod(self._schema.shape(table.names)) * table.variance)
                precision += weight
                if total is not None and table.cells is not None:
                    total = total + weight * project_contrast(table.margin(some), range(len(some)))
                else:
                    total = None
            self._contrasts[some] = (None if total is None else total / precision, precision)
        return self._contrasts[some]

    def _tables_with(self, names: tuple[str, ...]) -> list[NoisyTable]:
        first, *others = sorted(names, key=lambda name: len(self._containing.get(name, ())))
        return [table for table in self._containing.get(first, ()) if set(others) <= set(table.names)]


def project_contrast(cells: Floats, axes: Iterable[int], skip: int = 0) -> Floats:
    """Return cells minus their means along `axes`, averaged over all other axes but the first `skip`."""
    chosen = set(axes)
    for axis in range(skip, cells.ndim):
        mean = cells.mean(axis=axis, keepdims=True)
        cells = cells - mean if axis in chosen else np.broadcast_to(mean, cells.shape)
    return cells


def subsets(items: Iterable[int]) -> Iterator[Axes]:
    """Yield all subsets, small ones first."""
    listed = list(items)
    return chain.from_iterable(combinations(listed, size) for size in range(len(listed) + 1))
