"""Covariances of estimated tables as lazy operators: exact error bars without a cells × cells matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import AxisMap, AxisMaps, Floats
from masquerade.core.errors import InputError

Kind = Literal["population", "given_records"]
KINDS: tuple[Kind, ...] = ("population", "given_records")


class Covariance(Protocol):
    """The covariance of the cells of a table.

    Two kinds, always named: ``population`` includes the sampling of the records, ``given_records`` holds
    the records fixed and sees only the disguise.
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
    """Sums of squared row weights over the observed cells of some records, and how those feed the table."""

    squares: Floats
    maps: AxisMaps


@dataclass(frozen=True, slots=True)
class LinearCovariance(BlockCovariance):
    """Covariance of N̂ = Σ_records a(record), a linear estimate of counts.

    Formula: population Σ a aᵀ − N̂N̂ᵀ/n; given_records Σ a aᵀ − diag(E), E estimating Σ weight² over the
    records whose true cell it is (N̂ itself without survey weights).
    Reference: Ma & Sivakumar (2005), Theorem 2, with observed counts for their expectations.
    Cost: one contraction with squared maps for the diagonal, as much as the table itself.
    Error: unbiased for the conditional covariance; the population form is off by O(1/n).
    """

    parts: tuple[Part, ...]
    values: Floats
    fixed: Floats
    n: int
    names: tuple[str, ...] = ()

    @classmethod
    def clear(cls, values: Floats, n: int, names: tuple[str, ...]) -> LinearCovariance:
        """Return the covariance of counts of clear records."""
        maps = AxisMaps(values.shape, tuple(AxisMap((axis,), None) for axis in range(values.ndim)))
        return cls((Part(values, maps),), values, values, n, names)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.values.shape

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        check_kind(kind)
        inner = self.positions(axes)
        raw = _sum_of(part.maps.pairs(part.squares, inner) for part in self.parts)
        if kind == "population":
            cells = self.in_blocks(self.values, inner)
            return raw - cells[..., :, None] * (cells / max(self.n, 1))[..., None, :]
        return raw - self.in_blocks(self.fixed, inner)[..., :, None] * np.eye(raw.shape[-1])

    def quadratic(self, weights: Floats, kind: Kind = "population") -> float:
        """Return the variance of Σ weights·cells."""
        check_kind(kind)
        weights = np.broadcast_to(np.asarray(weights, dtype=float), self.shape)
        raw = sum(float(np.sum(part.squares * part.maps.spread(weights) ** 2)) for part in self.parts)
        if kind == "population":
            return raw - float(np.sum(weights * self.values)) ** 2 / max(self.n, 1)
        return raw - float(np.sum(weights**2 * self.fixed))

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> LinearCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        parts = tuple(
            Part(*part.maps.reduced(part.squares, list(keep), dict(at), squared=True)) for part in self.parts
        )
        names = tuple(self.names[axis] for axis in keep) if self.names else ()
        return LinearCovariance(
            parts, reduce_cells(self.values, keep, at), reduce_cells(self.fixed, keep, at), self.n, names
        )


@dataclass(frozen=True, slots=True)
class IndependentCovariance(BlockCovariance):
    """Covariance of cells that err independently: for sources that know a standard error for every cell.

    `given` are the variances given the records; without them they are taken to be the same (noise that was
    added to exact counts of fixed records).
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

    def quadratic(self, weights: Floats, kind: Kind = "population") -> float:
        """Return the variance of Σ weights·cells."""
        return float(np.sum(np.asarray(weights, dtype=float) ** 2 * self.diagonal(kind)))

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> IndependentCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        names = tuple(self.names[axis] for axis in keep) if self.names else ()
        given = None if self.given is None else reduce_cells(self.given, keep, at)
        return IndependentCovariance(reduce_cells(self.variances, keep, at), given, names)


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

    def quadratic(self, weights: Floats, kind: Kind = "population") -> float:
        """Return the variance of Σ weights·cells."""
        return sum(term.quadratic(weights, kind) for term in self.terms)

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

    def quadratic(self, weights: Floats, kind: Kind = "population") -> float:
        """Return the variance of Σ weights·cells."""
        return float(self._scaled(lambda k: np.asarray(self.term.quadratic(weights, k)), kind))

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> ScaledCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        return ScaledCovariance(self.term.reduced(keep, at), self.factor)

    def _scaled(self, part: Callable[[Kind], Floats], kind: Kind) -> Floats:
        check_kind(kind)
        if kind == "population":
            return self.factor**2 * part("population")
        given = part("given_records")
        return self.factor**2 * given + (self.factor - 1) ** 2 * (part("population") - given)


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
