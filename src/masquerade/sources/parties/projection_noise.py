"""Variance that a double projection adds to a table of two owners' variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.covariance import BlockCovariance, Kind, check_kind, reduce_cells
from masquerade.estimate.rotation import RandomProjection, inner_product_covariance_from_estimates
from masquerade.estimate.walsh import counts_of

Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One owner's part of a table: its axes, its exact counts, and the products with the empty product.

    The projected column of cell i is x_i = indicator of i − offset_i · 1, since the products with the empty
    product are known exactly. So x_i·x_i′ = δ margin_i − offset_i margin_i′ − margin_i offset_i′ + n offset_i
    offset_i′.
    """

    axes: tuple[int, ...]
    margin: Floats
    offset: Floats

    def inner(self, i: Places, other: Places, n: int) -> Floats:
        """Return x_i·x_other, element by element, cells flattened."""
        margin, offset = self.margin.ravel(), self.offset.ravel()
        own = np.where(i == other, margin[i], 0.0)
        return own - offset[i] * margin[other] - margin[i] * offset[other] + n * offset[i] * offset[other]

    def spread(self, weights: Floats, n: int) -> Floats:
        """Return Σ_i′ (x_i·x_i′) weights[i′, …] for all i, cells flattened."""
        margin, offset = self.margin.reshape(-1, 1), self.offset.reshape(-1, 1)
        by_margin, by_offset = margin.T @ weights, offset.T @ weights
        return margin * weights - offset * by_margin - margin * by_offset + n * offset * by_offset

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> _Side:
        own = [axis for axis in keep if axis in self.axes]
        places = [self.axes.index(axis) for axis in own]
        fixed = {self.axes.index(axis): code for axis, code in at.items() if axis in self.axes}
        return _Side(
            tuple(keep.index(axis) for axis in own),
            reduce_cells(self.margin, places, fixed),
            reduce_cells(self.offset, places, fixed),
        )


def side(axes: Sequence[int], margin: Floats) -> _Side:
    """Return an owner's part from its exact counts."""
    empty = np.zeros(margin.shape)
    empty[(0,) * margin.ndim] = 1.0
    return _Side(tuple(axes), margin, counts_of(empty))


@dataclass(frozen=True, slots=True, eq=False)
class ProjectionNoise(BlockCovariance):
    """Covariance of a table of two owners, given the records, when columns were projected twice.

    Formula: `inner_product_covariance` with the columns of `_Side`. Inner products across owners are taken
    from the table itself, and the bias of their squares is removed.
    Reference: Meng, Sivakumar & Kargupta (2004), §4.2 (the estimator; its variance is derived here).
    Cost: proportional to the queried cells. Error: unbiased.
    """

    values: Floats
    first: _Side
    second: _Side
    n: int
    reduction: RandomProjection
    names: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.values.shape

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        check_kind(kind)
        inner = self.positions(axes)
        i, j = (self.in_blocks(self._places(part), inner) for part in (self.first, self.second))
        across = self._across()
        (a, a2), (b, b2) = ((part[..., :, None], part[..., None, :]) for part in (i, j))
        own = self.first.inner(a, a2, self.n) * self.second.inner(b, b2, self.n)
        return np.asarray(
            inner_product_covariance_from_estimates(
                self.reduction, own, across[a, b2] * across[a2, b], across[a, b] * across[a2, b2]
            )
        )

    def quadratic(self, weights: Floats, kind: Kind = "population") -> float:
        """Return the variance of Σ weights·cells."""
        check_kind(kind)
        spread = np.broadcast_to(np.asarray(weights, dtype=float), self.shape)
        omega, across = self._by_sides(spread), self._across()
        own = float(np.sum(self.first.spread(omega, self.n) * self.second.spread(omega.T, self.n).T))
        narrow = omega.shape[0] < omega.shape[1]
        mixed = omega @ across.T if narrow else omega.T @ across
        swapped, crossed = float(np.sum(mixed * mixed.T)), float(np.sum(omega * across)) ** 2
        return float(inner_product_covariance_from_estimates(self.reduction, own, swapped, crossed))

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, by Cov(x, y) = (Var(x + y) − Var(x − y))/4."""
        return np.array(
            [[(self.quadratic(a + b, kind) - self.quadratic(a - b, kind)) / 4 for b in second] for a in first]
        )

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> ProjectionNoise:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        return ProjectionNoise(
            reduce_cells(self.values, keep, at),
            self.first.reduce(keep, at),
            self.second.reduce(keep, at),
            self.n,
            self.reduction,
            tuple(self.names[axis] for axis in keep),
        )

    def _places(self, part: _Side) -> Places:
        """Return, for every cell of the table, the flat cell of one owner's part."""
        own = np.arange(part.margin.size).reshape(part.margin.shape)
        order = np.argsort(part.axes)
        shape = [size if axis in part.axes else 1 for axis, size in enumerate(self.shape)]
        return np.broadcast_to(own.transpose(order).reshape(shape), self.shape)

    def _by_sides(self, cells: Floats) -> Floats:
        """Return cells of the table as a matrix: rows are the first owner's cells, columns the second's."""
        order = [*self.first.axes, *self.second.axes]
        return cells.transpose(order).reshape(self.first.margin.size, self.second.margin.size)

    def _across(self) -> Floats:
        """Return the estimated inner products x_i·y_j."""
        x, y = self.first, self.second
        margin, offset = x.margin.reshape(-1, 1), x.offset.reshape(-1, 1)
        return np.asarray(
            self._by_sides(self.values)
            - offset * y.margin.ravel()
            - margin * y.offset.ravel()
            + self.n * offset * y.offset.ravel()
        )
