"""Covariances of estimated tables as lazy operators: exact error bars without a cells × cells matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import comb, prod
from operator import add
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import AxisMap, AxisMaps, Floats, times_ends
from masquerade.core.errors import InputError
from masquerade.core.report_moments import ShareSpread, Spread

AnySpread = TypeVar("AnySpread", Spread, ShareSpread)
Kind = Literal["population", "given_records"]
KINDS: tuple[Kind, ...] = ("population", "given_records")


class Covariance(Protocol):
    """The covariance of the cells of a table.

    Two kinds, always named: ``population`` includes the sampling of the records, ``given_records`` holds
    the records fixed and sees only the disguise.

    >>> [table] = mq.tally(mq.data.students()).answer([mq.Query(by="exams")])
    >>> table.covariance.diagonal().tolist()
    [150.0, 150.0]
    >>> table.covariance.diagonal("given_records").tolist()
    [0.0, 0.0]
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""

    def diagonal(self, kind: Kind = "population") -> Floats:
        """Return the variance of every cell."""

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`: (*other axes, B, B).

        Axes are named, or given by their position.
        """

    def quadratic(self, weights: Floats, kind: Kind = "population") -> float:
        """Return the variance of Σ weights·cells."""

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of Σ first·cells and Σ second·cells, for every weights of both.

        Weights stand along the first axis of (many, *shape).
        """

    def dense(self, max_cells: int = 4096, kind: Kind = "population") -> Floats:
        """Return the whole matrix, cells in C order; refused beyond `max_cells`."""

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> Covariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""


class BlockCovariance(ABC):
    """A covariance that follows from its blocks; `names` are those of the axes, where they have some."""

    __slots__ = ()
    names: tuple[str, ...]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""

    @abstractmethod
    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""

    @abstractmethod
    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for every weights of both along their first axes."""

    def quadratic(self, weights: Floats, kind: Kind = "population") -> float:
        """Return the variance of Σ weights·cells."""
        one = np.broadcast_to(np.asarray(weights, dtype=float), self.shape)[None]
        return float(self.between(one, one, kind)[0, 0])

    def diagonal(self, kind: Kind = "population") -> Floats:
        """Return the variance of every cell."""
        return self.within((), kind)[..., 0, 0]

    def dense(self, max_cells: int = 4096, kind: Kind = "population") -> Floats:
        """Return the whole matrix; refused beyond `max_cells`."""
        cells = prod(self.shape)
        if cells > max_cells:
            raise InputError(
                f"A dense covariance of {cells:,} cells would take {cells**2 * 8 / 2**30:,.1f} GiB. "
                f"Use diagonal(), within(axes) or quadratic(weights), or raise max_cells (now {max_cells:,})."
            )
        return self.within(tuple(range(len(self.shape))), kind)

    def positions(self, axes: Sequence[int | str]) -> list[int]:
        """Return the positions of axes that are named, or given by their position."""
        return [self.names.index(axis) if isinstance(axis, str) else axis for axis in axes]

    def in_blocks(self, cells: NDArray[Any], inner: Sequence[int]) -> NDArray[Any]:
        """Return cells of the table with those that differ only along `inner` as one last axis."""
        outer = [axis for axis in range(len(self.shape)) if axis not in inner]
        block = prod(self.shape[axis] for axis in inner)
        return cells.transpose([*outer, *inner]).reshape(*(self.shape[axis] for axis in outer), block)


@dataclass(frozen=True, slots=True)
class Part:
    """Sums of squared row weights over the observed cells of some records, and how those feed the table.

    `cubes` and `fourths` are the sums of higher powers (None: those of the squares, since every row weighs
    one); `ends` are the smallest and the largest weight that a row can have.
    """

    squares: Floats
    maps: AxisMaps
    cubes: Floats | None = None
    fourths: Floats | None = None
    ends: tuple[float, float] = (1.0, 1.0)

    @property
    def powers(self) -> tuple[Floats, Floats, Floats]:
        """Return the sums of squares, of third and of fourth powers of row weights."""
        cubes = self.squares if self.cubes is None else self.cubes
        return self.squares, cubes, self.squares if self.fourths is None else self.fourths

    def between(self, first: Floats, second: Floats) -> Floats:
        """Return Σ squares·gain·gain' of every pair of weights, a gain being what a report adds to a sum."""
        a, b = (np.stack([self.maps.spread(weights).ravel() for weights in many]) for many in (first, second))
        return np.asarray((a * self.squares.ravel()) @ b.T)

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> Part:
        """Return the part of the table summed or sliced to the axes `keep`."""
        sums, maps, ends = self.maps.reduced(self.powers, (2, 3, 4), list(keep), dict(at))
        low, high = times_ends(_as_ends(self.ends), _as_ends(ends))
        return Part(sums[0], maps, sums[1], sums[2], (float(low), float(high)))


@dataclass(frozen=True, slots=True)
class LinearCovariance(BlockCovariance):
    """Covariance of N̂ = Σ_records a(record), a linear estimate of counts.

    Formula: population Σ a aᵀ − N̂N̂ᵀ/n; given_records Σ a aᵀ − diag(E), E estimating Σ weight² over the
    records whose true cell it is (N̂ itself without survey weights). `weight` is the mean squared survey
    weight over the mean weight. Records that fall into samples of sizes n_T fixed beforehand do not vary
    between these: Σ_T s_T s_Tᵀ/n_T − N̂N̂ᵀ/n is taken off both, s_T the sums of a in each sample; `apart` are
    pairs of such a table and what its square counts.
    Reference: Ma & Sivakumar (2005), Theorem 2, with observed counts for their expectations.
    Cost: one contraction with squared maps for the diagonal, as much as the table itself.
    Error: unbiased for the conditional covariance; the population form is off by O(1/n).
    """

    parts: tuple[Part, ...]
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
        return cls((Part(values, maps),), values, values, n, names)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.values.shape

    def diagonal(self, kind: Kind = "population") -> Floats:
        """Return the variance of every cell."""
        check_kind(kind)
        raw = _sum_of([part.maps.power_sums(part.squares, 2) for part in self.parts])
        for table, counted in self.apart:
            raw = raw - counted * table * table
        return raw - (self.values * (self.values / max(self.n, 1)) if kind == "population" else self.fixed)

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        check_kind(kind)
        inner = self.positions(axes)
        raw = _sum_of(part.maps.pairs(part.squares, inner) for part in self.parts)
        for table, counted in self.apart:
            known = self.in_blocks(table, inner)
            raw = raw - counted * known[..., :, None] * known[..., None, :]
        if kind == "population":
            cells = self.in_blocks(self.values, inner)
            return raw - cells[..., :, None] * (cells / max(self.n, 1))[..., None, :]
        return raw - self.in_blocks(self.fixed, inner)[..., :, None] * np.eye(raw.shape[-1])

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for every weights of both along their first axes."""
        check_kind(kind)
        raw = _sum_of(part.between(first, second) for part in self.parts)
        a, b = first.reshape(len(first), -1), second.reshape(len(second), -1)
        for table, counted in self.apart:
            raw = raw - counted * np.outer(a @ table.ravel(), b @ table.ravel())
        if kind == "population":
            return raw - np.outer(a @ self.values.ravel(), b @ self.values.ravel()) / max(self.n, 1)
        return raw - (a * self.fixed.ravel()) @ b.T

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> LinearCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        parts = tuple(part.reduced(keep, at) for part in self.parts)
        names = tuple(self.names[axis] for axis in keep) if self.names else ()
        values = reduce_cells(self.values, keep, at)
        fixed = values if self.fixed is self.values else reduce_cells(self.fixed, keep, at)
        apart = tuple((reduce_cells(table, keep, at), counted) for table, counted in self.apart)
        return LinearCovariance(parts, values, fixed, self.n, names, self.weight, apart)

    def spread(self) -> Spread:
        """Return how the reports scatter behind every cell: see `masquerade.core.report_moments`."""
        sums = [
            _sum_of(part.maps.power_sums(part.powers[k - 2], k) for part in self.parts) for k in (2, 3, 4)
        ]
        for table, counted in self.apart:
            sums[0] = sums[0] - counted * table**2
        ends = [times_ends(_as_ends(part.ends), part.maps.ends()) for part in self.parts]
        return Spread.of(self.values, sums, ends, given=sums[0] - self.fixed, n=self.n, weight=self.weight)

    def heaviest(self) -> float:
        """Return a bound on what any report weighs in any cell."""
        maps = [
            prod([float(np.abs(m.matrix).max()) for m in part.maps.maps if m.matrix is not None])
            * max(map(abs, part.ends))
            for part in self.parts
        ]
        return max([abs(self.weight), *maps])

    def contrast_spread(self, weights: Floats) -> Spread:
        """Return how the reports scatter behind Σ weights·cells."""
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
        return Spread.of(value, sums, ends, given=np.asarray(given), n=self.n, weight=self.weight)

    def share_spread(self, axis: int, shares: Floats) -> ShareSpread:
        """Return how the reports scatter behind N̂_t − share·N̂, N̂ the sum along an axis, for every cell t."""
        sums = {
            order: [
                _sum_of(each)
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
    """Samples that records fall into, of sizes known beforehand.

    `of` names the sample of every code of an observed axis (negative: of none); `sizes` are their records.
    """

    axis: int
    of: NDArray[np.integer[Any]]
    sizes: Floats

    def between(self, firsts: Floats, maps: AxisMaps, scale: float = 1.0) -> tuple[tuple[Floats, float], ...]:
        """Return what does not vary between the samples, as `LinearCovariance` takes it.

        `firsts` are sums of row weights over the observed cells; `scale` is the records of a unit of `sizes`.
        """
        found: list[tuple[Floats, float]] = []
        for sample, size in enumerate((scale * self.sizes).tolist()):
            if size > 0:
                inside = np.flatnonzero(self.of == sample)
                own = list(maps.maps)
                own[self.axis] = AxisMap(own[self.axis].axes, maps.matrix(own[self.axis])[inside])
                rows = np.take(firsts, inside, axis=self.axis)
                found.append((AxisMaps(maps.shape, tuple(own)).apply(rows), 1 / size))
        whole: Floats = np.asarray(reduce(add, [table for table, _ in found]))
        return (*found, (whole, -1 / (scale * float(self.sizes.sum()))))


@dataclass(frozen=True, slots=True)
class IndependentCovariance(BlockCovariance):
    """Covariance of cells that err independently: for sources that know a standard error for every cell.

    `given` are the variances given the records; without them they are taken to be the same (noise that was
    added to exact counts of fixed records).

    Examples
    --------
    >>> import numpy as np
    >>> covariance = mq.extend.IndependentCovariance(np.array([4.0, 9.0]), names=("smoker",))
    >>> covariance.quadratic(np.array([1.0, -1.0]))
    13.0
    """

    variances: Floats
    given: Floats | None = None
    names: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.variances.shape

    def diagonal(self, kind: Kind = "population") -> Floats:
        """Return the variance of every cell."""
        check_kind(kind)
        return self.variances if kind == "population" or self.given is None else self.given

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        cells = self.in_blocks(self.diagonal(kind), self.positions(axes))
        return cells[..., :, None] * np.eye(cells.shape[-1])

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for every weights of both along their first axes."""
        a, b = first.reshape(len(first), -1), second.reshape(len(second), -1)
        return np.asarray((a * self.diagonal(kind).ravel()) @ b.T)

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> IndependentCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        names = tuple(self.names[axis] for axis in keep) if self.names else ()
        given = None if self.given is None else reduce_cells(self.given, keep, at)
        return IndependentCovariance(reduce_cells(self.variances, keep, at), given, names)


@dataclass(frozen=True, slots=True)
class FactorCovariance(BlockCovariance):
    """Covariance RᵀR of the rows (many, *shape) of a factor: deviations of clusters, or of replicates.

    `given` is the covariance given the records, which such rows say nothing about.
    """

    rows: Floats
    given: Covariance
    names: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.rows.shape[1:]

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        check_kind(kind)
        if kind == "given_records":
            return self.given.within(axes, kind)
        inner = self.positions(axes)
        blocks = np.stack([self.in_blocks(row, inner) for row in self.rows])
        return np.asarray(np.einsum("r...i,r...j->...ij", blocks, blocks))

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for every weights of both along their first axes."""
        check_kind(kind)
        if kind == "given_records":
            return self.given.between(first, second, kind)
        flat = self.rows.reshape(len(self.rows), -1)
        a, b = (weights.reshape(len(weights), -1) @ flat.T for weights in (first, second))
        return np.asarray(a @ b.T)

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> FactorCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        names = tuple(self.names[axis] for axis in keep) if self.names else ()
        rows = np.stack([reduce_cells(row, keep, at) for row in self.rows])
        return FactorCovariance(rows, self.given.reduced(keep, at), names)


@dataclass(frozen=True, slots=True)
class SumCovariance(BlockCovariance):
    """Covariance of a sum of independent tables: pooling adds operators."""

    terms: tuple[Covariance, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.terms[0].shape

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        return _sum_of(term.within(axes, kind) for term in self.terms)

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for every weights of both along their first axes."""
        return _sum_of(term.between(first, second, kind) for term in self.terms)

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> SumCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        return SumCovariance(tuple(term.reduced(keep, at) for term in self.terms))


@dataclass(frozen=True, slots=True)
class ScaledCovariance(BlockCovariance):
    """Covariance of a table times a factor, as an estimate of the table itself.

    Given the records, the counts that the factor adds or takes away are a guess: (factor − 1)² times what
    sampling varies.
    """

    term: Covariance
    factor: float

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.term.shape

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        return self._scaled(lambda k: self.term.within(axes, k), kind)

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for every weights of both along their first axes."""
        return self._scaled(lambda k: self.term.between(first, second, k), kind)

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> ScaledCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        return ScaledCovariance(self.term.reduced(keep, at), self.factor)

    def _scaled(self, part: Callable[[Kind], Floats], kind: Kind) -> Floats:
        check_kind(kind)
        if kind == "population":
            return self.factor**2 * part("population")
        given = part("given_records")
        return self.factor**2 * given + (self.factor - 1) ** 2 * (part("population") - given)


def spread_of(covariance: Covariance) -> Spread | None:
    """Return how reports scatter behind a table; None where only their covariance is known."""
    return _scatter(covariance, LinearCovariance.spread)


def heaviest_of(covariance: Covariance) -> float | None:
    """Return a bound on what any report weighs in any cell; None where only the covariance is known."""
    if isinstance(covariance, LinearCovariance):
        return covariance.heaviest()
    if isinstance(covariance, ScaledCovariance):
        one = heaviest_of(covariance.term)
        return None if one is None else max(one, one * abs(covariance.factor))
    if not isinstance(covariance, SumCovariance):
        return None
    terms = [heaviest_of(term) for term in covariance.terms]
    known = [term for term in terms if term is not None]
    return max(known) if len(known) == len(terms) else None


def contrast_spread_of(covariance: Covariance, weights: Floats) -> Spread | None:
    """Return how reports scatter behind Σ weights·cells; None where only the covariance is known."""
    return _scatter(covariance, lambda linear: linear.contrast_spread(weights))


def share_spread_of(covariance: Covariance, axis: int, shares: Floats) -> ShareSpread | None:
    """Return how reports scatter behind shares of an axis; None where only their covariance is known."""
    return _scatter(covariance, lambda linear: linear.share_spread(axis, shares))


def _scatter(covariance: Covariance, of: Callable[[LinearCovariance], AnySpread]) -> AnySpread | None:
    if isinstance(covariance, LinearCovariance):
        return of(covariance)
    if isinstance(covariance, ScaledCovariance):
        one = _scatter(covariance.term, of)
        return None if one is None else one.scaled(covariance.factor)
    if not isinstance(covariance, SumCovariance):
        return None
    terms = [_scatter(term, of) for term in covariance.terms]
    known = [term for term in terms if term is not None]
    return reduce(add, known) if len(known) == len(terms) else None


def _as_ends(pair: tuple[float, float]) -> tuple[Floats, Floats]:
    """Return a pair of numbers as arrays."""
    return np.asarray(pair[0]), np.asarray(pair[1])


def reduce_cells(cells: Floats, keep: Sequence[int], at: Mapping[int, int]) -> Floats:
    """Fix the axes in `at`, sum over those neither fixed nor kept, order the rest as in `keep`."""
    index = tuple(at.get(axis, slice(None)) for axis in range(cells.ndim))
    open_axes = [axis for axis in range(cells.ndim) if axis not in at]
    summed = cells[index].sum(axis=tuple(i for i, axis in enumerate(open_axes) if axis not in keep))
    left = [axis for axis in open_axes if axis in keep]
    return np.asarray(summed).transpose([left.index(axis) for axis in keep])


def check_kind(kind: str) -> None:
    """Refuse a kind of covariance that does not exist."""
    if kind not in KINDS:
        raise InputError(f"The kind of covariance must be one of {', '.join(KINDS)}. Got {kind!r} instead.")


def _sum_of(terms: Iterable[Floats]) -> Floats:
    """Add arrays of one shape; at least one."""
    return reduce(np.add, terms)
