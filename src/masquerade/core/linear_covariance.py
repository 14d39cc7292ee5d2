"""Covariances of linear estimates from reports, and the moments of the underlying reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import comb, prod
from operator import add
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import AxisMap, AxisMaps, Floats, times_ends
from masquerade.core.covariance import (
    BlockCovariance,
    Covariance,
    Kind,
    ScaledCovariance,
    SumCovariance,
    add_arrays,
    check_kind,
    reduce_cells,
    take_cells,
)
from masquerade.core.report_moments import ReportSpread, ShareSpread

AnySpread = TypeVar("AnySpread", ReportSpread, ShareSpread)


@dataclass(frozen=True, slots=True)
class CovariancePart:
    """Power sums of row weights over observed cells, and the linear maps from these cells to the table.

    Attributes
    ----------
    squares : array
        Sums of squared row weights.
    maps : AxisMaps
        Linear maps from the observed cells to the table.
    cubes, fourths : array or None
        Sums of third and fourth powers. If None, they equal the squares because every row has weight 1.
    ends : tuple of float
        Smallest and largest weight that a row can have.
    """

    squares: Floats
    maps: AxisMaps
    cubes: Floats | None = None
    fourths: Floats | None = None
    ends: tuple[float, float] = (1.0, 1.0)

    @property
    def powers(self) -> tuple[Floats, Floats, Floats]:
        """Return the sums of second, third and fourth powers of row weights."""
        cubes = self.squares if self.cubes is None else self.cubes
        return self.squares, cubes, self.squares if self.fourths is None else self.fourths

    def between(self, first: Floats, second: Floats) -> Floats:
        """Return Σ squares·gain·gain' for all pairs of weights; a gain is what a report adds to a sum."""
        a, b = (np.stack([self.maps.spread(weights).ravel() for weights in many]) for many in (first, second))
        return np.asarray((a * self.squares.ravel()) @ b.T)

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> CovariancePart:
        """Return these sums for the table summed or sliced to the axes `keep`."""
        sums, maps, ends = self.maps.reduce(self.powers, (2, 3, 4), list(keep), dict(at))
        low, high = times_ends(_as_ends(self.ends), _as_ends(ends))
        return CovariancePart(sums[0], maps, sums[1], sums[2], (float(low), float(high)))


@dataclass(frozen=True, slots=True)
class LinearCovariance(BlockCovariance):
    """Covariance of N̂ = Σ_records a(record), a linear estimate of counts.

    `weight` is the mean squared survey weight over the mean weight. Where records fall into samples of fixed
    sizes n_T, the variance between samples, Σ_T s_T s_Tᵀ/n_T − N̂N̂ᵀ/n with the sums s_T of a in each sample,
    is subtracted; `apart` contains pairs of such a table and the factor of its square.

    Formula: population Σ a aᵀ − N̂N̂ᵀ/n; given_records Σ a aᵀ − diag(E), where E estimates Σ weight² over the
    records of each true cell (N̂ itself without survey weights).
    Reference: Ma & Sivakumar (2005), Theorem 2, with observed counts in place of their expectations.
    Cost: one contraction with squared maps for the diagonal, the same as for the table itself.
    Error: unbiased for the conditional covariance; the population form is off by O(1/n).
    """

    parts: tuple[CovariancePart, ...]
    values: Floats
    fixed: Floats
    n: int
    names: tuple[str, ...] = ()
    weight: float = 1.0
    apart: tuple[tuple[Floats, float], ...] = ()

    @classmethod
    def clear(cls, values: Floats, n: int, names: tuple[str, ...]) -> LinearCovariance:
        """Return the covariance of counts of clear records."""
        maps = AxisMaps(values.shape, tuple(AxisMap((axis,), None) for axis in range(values.ndim)))
        return cls((CovariancePart(values, maps),), values, values, n, names)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.values.shape

    def diagonal(self, kind: Kind = "population") -> Floats:
        """Return the variance of each cell."""
        check_kind(kind)
        raw = add_arrays([part.maps.power_sums(part.squares, 2) for part in self.parts])
        for table, counted in self.apart:
            raw = raw - counted * table * table
        return raw - (self.values * (self.values / max(self.n, 1)) if kind == "population" else self.fixed)

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        check_kind(kind)
        inner = self.positions(axes)
        raw = add_arrays(part.maps.pairs(part.squares, inner) for part in self.parts)
        for table, counted in self.apart:
            cells = self.in_blocks(table, inner)
            raw = raw - counted * cells[..., :, None] * cells[..., None, :]
        if kind == "population":
            cells = self.in_blocks(self.values, inner)
            return raw - cells[..., :, None] * (cells / max(self.n, 1))[..., None, :]
        return raw - self.in_blocks(self.fixed, inner)[..., :, None] * np.eye(raw.shape[-1])

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for all pairs of weights along the first axes."""
        check_kind(kind)
        raw = add_arrays(part.between(first, second) for part in self.parts)
        a, b = first.reshape(len(first), -1), second.reshape(len(second), -1)
        for table, counted in self.apart:
            raw = raw - counted * np.outer(a @ table.ravel(), b @ table.ravel())
        if kind == "population":
            return raw - np.outer(a @ self.values.ravel(), b @ self.values.ravel()) / max(self.n, 1)
        return raw - (a * self.fixed.ravel()) @ b.T

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> LinearCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        parts = tuple(part.reduce(keep, at) for part in self.parts)
        names = tuple(self.names[axis] for axis in keep) if self.names else ()
        values = reduce_cells(self.values, keep, at)
        fixed = values if self.fixed is self.values else reduce_cells(self.fixed, keep, at)
        apart = tuple((reduce_cells(table, keep, at), counted) for table, counted in self.apart)
        return LinearCovariance(parts, values, fixed, self.n, names, self.weight, apart)

    def take(self, codes: Mapping[int, Sequence[int]]) -> LinearCovariance:
        """Return the covariance of the sub-table with these codes on some axes."""
        parts = tuple(replace(part, maps=part.maps.take(codes)) for part in self.parts)
        values = take_cells(self.values, codes)
        fixed = values if self.fixed is self.values else take_cells(self.fixed, codes)
        apart = tuple((take_cells(table, codes), counted) for table, counted in self.apart)
        return LinearCovariance(parts, values, fixed, self.n, self.names, self.weight, apart)

    def spread(self) -> ReportSpread:
        """Return the moments of the reports for each cell; see `masquerade.core.report_moments`."""
        sums = [
            add_arrays(part.maps.power_sums(part.powers[k - 2], k) for part in self.parts) for k in (2, 3, 4)
        ]
        for table, counted in self.apart:
            sums[0] = sums[0] - counted * table**2
        ends = [times_ends(_as_ends(part.ends), part.maps.ends()) for part in self.parts]
        return ReportSpread.of(
            self.values, sums, ends, given=sums[0] - self.fixed, n=self.n, weight=self.weight
        )

    def heaviest(self) -> float:
        """Return a bound on the weight of any report in any cell."""
        maps = [
            prod([float(np.abs(m.matrix).max()) for m in part.maps.maps if m.matrix is not None])
            * max(map(abs, part.ends))
            for part in self.parts
        ]
        return max([abs(self.weight), *maps])

    def contrast_spread(self, weights: Floats) -> ReportSpread:
        """Return the moments of the reports for Σ weights·cells."""
        weights = np.broadcast_to(np.asarray(weights, dtype=float), self.shape)
        gains = [part.maps.spread(weights) for part in self.parts]
        sums = [
            np.asarray(
                sum(np.sum(part.powers[k - 2] * g**k) for part, g in zip(self.parts, gains, strict=True))
            )
            for k in (2, 3, 4)
        ]
        for table, counted in self.apart:
            sums[0] = sums[0] - counted * np.sum(weights * table) ** 2
        ends = [
            times_ends(_as_ends(part.ends), (np.asarray(g.min()), np.asarray(g.max())))
            for part, g in zip(self.parts, gains, strict=True)
        ]
        value = np.asarray(np.sum(weights * self.values))
        given = sums[0] - np.sum(weights**2 * self.fixed)
        return ReportSpread.of(value, sums, ends, given=np.asarray(given), n=self.n, weight=self.weight)

    def ratio_spread(self, contrast: Floats, denominator: Floats) -> ShareSpread:
        """Return the moments of the reports for a ratio of two sums of cells.

        `contrast` are the weights of numerator − ratio·denominator, `denominator` those of the denominator.
        """
        third, fourth, with_whole, ends = 0.0, 0.0, 0.0, []
        for part in self.parts:
            b, a = (
                part.maps.spread(np.broadcast_to(weights, self.shape)) for weights in (contrast, denominator)
            )
            _, cubes, fourths = part.powers
            third += float(np.sum(cubes * b**3))
            fourth += float(np.sum(fourths * b**4))
            with_whole += float(np.sum(cubes * b**2 * a))
            ends.append(times_ends(_as_ends(part.ends), (np.asarray(b.min()), np.asarray(b.max()))))
        return ShareSpread(
            np.asarray(third),
            np.asarray(fourth),
            np.asarray(with_whole),
            np.maximum.reduce([high for _, high in ends]),
            np.minimum.reduce([low for low, _ in ends]),
        )

    def share_spread(self, axis: int, shares: Floats) -> ShareSpread:
        """Return the moments of the reports for N̂_t − share·N̂, for each cell t.

        N̂ is the sum along `axis`.
        """
        sums = {
            order: [
                add_arrays(each)
                for each in zip(
                    *(part.maps.mixed_sums(part.powers[order - 2], axis, order) for part in self.parts),
                    strict=True,
                )
            ]
            for order in (3, 4)
        }
        third = sum(comb(3, j) * (-shares) ** j * sums[3][j] for j in range(4))
        fourth = sum(comb(4, j) * (-shares) ** j * sums[4][j] for j in range(5))
        with_whole = sum(comb(2, j) * (-shares) ** j * sums[3][j + 1] for j in range(3))
        ends = [times_ends(_as_ends(part.ends), part.maps.share_ends(axis, shares)) for part in self.parts]
        return ShareSpread(
            np.asarray(third),
            np.maximum(fourth, 0.0),
            np.asarray(with_whole),
            np.maximum.reduce([high for _, high in ends]),
            np.minimum.reduce([low for low, _ in ends]),
        )


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of known sizes that partition the records.

    `of` maps each code of an observed axis to its sample (negative: no sample). `sizes` are the numbers of
    records per sample.
    """

    axis: int
    of: NDArray[np.integer[Any]]
    sizes: Floats

    def between(self, firsts: Floats, maps: AxisMaps, scale: float = 1.0) -> tuple[tuple[Floats, float], ...]:
        """Return the tables and factors that remove the variance between samples from `LinearCovariance`.

        `firsts` are sums of row weights over the observed cells; `scale` is the number of records per unit of
        `sizes`.
        """
        tables: list[tuple[Floats, float]] = []
        for sample, size in enumerate((scale * self.sizes).tolist()):
            if size > 0:
                inside = np.flatnonzero(self.of == sample)
                sample_maps = list(maps.maps)
                axis_map = sample_maps[self.axis]
                sample_maps[self.axis] = AxisMap(axis_map.axes, maps.matrix(axis_map)[inside])
                rows = np.take(firsts, inside, axis=self.axis)
                tables.append((AxisMaps(maps.shape, tuple(sample_maps)).apply(rows), 1 / size))
        total: Floats = np.asarray(reduce(add, [table for table, _ in tables]))
        return (*tables, (total, -1 / (scale * float(self.sizes.sum()))))


def spread_of(covariance: Covariance) -> ReportSpread | None:
    """Return the moments of the reports for a table; None if only their covariance is known."""
    return _scatter(covariance, LinearCovariance.spread)


def heaviest_of(covariance: Covariance) -> float | None:
    """Return a bound on the weight of any report in any cell; None if only the covariance is known."""
    if isinstance(covariance, LinearCovariance):
        return covariance.heaviest()
    if isinstance(covariance, ScaledCovariance):
        one = heaviest_of(covariance.term)
        return None if one is None else max(one, one * abs(covariance.factor))
    if not isinstance(covariance, SumCovariance):
        return None
    terms = [heaviest_of(term) for term in covariance.terms]
    bounds = [term for term in terms if term is not None]
    return max(bounds) if len(bounds) == len(terms) else None


def contrast_spread_of(covariance: Covariance, weights: Floats) -> ReportSpread | None:
    """Return the moments of the reports for Σ weights·cells; None if only the covariance is known."""
    return _scatter(covariance, lambda linear: linear.contrast_spread(weights))


def ratio_spread_of(covariance: Covariance, contrast: Floats, denominator: Floats) -> ShareSpread | None:
    """Return the moments of the reports for a ratio of sums; None if only the covariance is known."""
    return _scatter(covariance, lambda linear: linear.ratio_spread(contrast, denominator))


def share_spread_of(covariance: Covariance, axis: int, shares: Floats) -> ShareSpread | None:
    """Return the moments of the reports for shares along an axis; None if only the covariance is known."""
    return _scatter(covariance, lambda linear: linear.share_spread(axis, shares))


def _scatter(covariance: Covariance, of: Callable[[LinearCovariance], AnySpread]) -> AnySpread | None:
    if isinstance(covariance, LinearCovariance):
        return of(covariance)
    if isinstance(covariance, ScaledCovariance):
        one = _scatter(covariance.term, of)
        return None if one is None else one.scale(covariance.factor)
    if not isinstance(covariance, SumCovariance):
        return None
    terms = [_scatter(term, of) for term in covariance.terms]
    spreads = [term for term in terms if term is not None]
    return reduce(add, spreads) if len(spreads) == len(terms) else None


def _as_ends(pair: tuple[float, float]) -> tuple[Floats, Floats]:
    """Return a pair of numbers as arrays."""
    return np.asarray(pair[0]), np.asarray(pair[1])
