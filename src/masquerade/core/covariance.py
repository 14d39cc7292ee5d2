"""Covariances of estimated tables as lazy operators.

They give exact standard errors without a matrix of cells × cells.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError

Kind = Literal["population", "given_records"]
KINDS: tuple[Kind, ...] = ("population", "given_records")


class Covariance(Protocol):
    """The covariance of the cells of a table.

    There are two kinds: ``population`` includes the sampling of the records, ``given_records`` holds the
    records fixed and includes only the disguise.

    Examples
    --------
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
        """Return the variance of each cell."""

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`.

        Parameters
        ----------
        axes : sequence of int or str
            Axes by position or name.
        kind : {"population", "given_records"}, default "population"
            Which covariance.

        Returns
        -------
        array
            Array of shape (*other axes, B, B) for blocks of B cells.
        """

    def quadratic(self, weights: Floats, kind: Kind = "population") -> float:
        """Return the variance of Σ weights·cells.

        Parameters
        ----------
        weights : array
            One weight per cell.
        kind : {"population", "given_records"}, default "population"
            Which covariance.

        Returns
        -------
        float
            The variance.
        """

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of Σ first·cells and Σ second·cells, for all pairs of weights.

        Parameters
        ----------
        first, second : array of shape (number of sums, *shape)
            Weights of the sums.
        kind : {"population", "given_records"}, default "population"
            Which covariance.

        Returns
        -------
        array
            Matrix with one row per `first` and one column per `second`.
        """

    def dense(self, max_cells: int = 4096, kind: Kind = "population") -> Floats:
        """Return the full matrix, cells in C order.

        Parameters
        ----------
        max_cells : int, default 4096
            Largest table allowed.
        kind : {"population", "given_records"}, default "population"
            Which covariance.

        Returns
        -------
        array
            Matrix of cells × cells.

        Raises
        ------
        InputError
            If the table has more than `max_cells` cells.
        """

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> Covariance:
        """Return the covariance of the table summed or sliced to the axes `keep`.

        Parameters
        ----------
        keep : sequence of int
            Axes to keep, in this order.
        at : mapping of int to int
            Code at which each of these axes is fixed. All other axes are summed over.

        Returns
        -------
        Covariance
            Covariance of the smaller table.
        """


class BlockCovariance(ABC):
    """A covariance defined by its blocks; `names` are the names of the axes, or empty."""

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
        """Return the covariances of sums of cells, for all pairs of weights along the first axes."""

    def quadratic(self, weights: Floats, kind: Kind = "population") -> float:
        """Return the variance of Σ weights·cells."""
        one = np.broadcast_to(np.asarray(weights, dtype=float), self.shape)[None]
        return float(self.between(one, one, kind)[0, 0])

    def diagonal(self, kind: Kind = "population") -> Floats:
        """Return the variance of each cell."""
        return self.within((), kind)[..., 0, 0]

    def dense(self, max_cells: int = 4096, kind: Kind = "population") -> Floats:
        """Return the full matrix; raise InputError beyond `max_cells`."""
        cells = prod(self.shape)
        if cells > max_cells:
            raise InputError(
                f"A dense covariance of {cells:,} cells would take {cells**2 * 8 / 2**30:,.1f} GiB. "
                f"Use diagonal(), within(axes) or quadratic(weights), or raise max_cells (now {max_cells:,})."
            )
        return self.within(tuple(range(len(self.shape))), kind)

    def positions(self, axes: Sequence[int | str]) -> list[int]:
        """Return the positions of axes given by name or position."""
        return [self.names.index(axis) if isinstance(axis, str) else axis for axis in axes]

    def in_blocks(self, cells: NDArray[Any], inner: Sequence[int]) -> NDArray[Any]:
        """Return the cells of the table with the axes `inner` flattened into one last axis."""
        outer = [axis for axis in range(len(self.shape)) if axis not in inner]
        block = prod(self.shape[axis] for axis in inner)
        return cells.transpose([*outer, *inner]).reshape(*(self.shape[axis] for axis in outer), block)


@dataclass(frozen=True, slots=True)
class IndependentCovariance(BlockCovariance):
    """Covariance of cells with independent errors, for sources that know one standard error per cell.

    Parameters
    ----------
    variances : array
        Variance of each cell.
    given : array, optional
        Variances given the records. By default the same, as for noise added to exact counts.
    names : tuple of str, optional
        Names of the axes.

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
        """Return the variance of each cell."""
        check_kind(kind)
        return self.variances if kind == "population" or self.given is None else self.given

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`.

        Parameters
        ----------
        axes : sequence of int or str
            Axes by position or name.
        kind : {"population", "given_records"}, default "population"
            Which covariance.

        Returns
        -------
        array
            Diagonal blocks.
        """
        cells = self.in_blocks(self.diagonal(kind), self.positions(axes))
        return cells[..., :, None] * np.eye(cells.shape[-1])

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for all pairs of weights.

        Parameters
        ----------
        first, second : array of shape (number of sums, *shape)
            Weights of the sums.
        kind : {"population", "given_records"}, default "population"
            Which covariance.

        Returns
        -------
        array
            Matrix of covariances.
        """
        a, b = first.reshape(len(first), -1), second.reshape(len(second), -1)
        return np.asarray((a * self.diagonal(kind).ravel()) @ b.T)

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> IndependentCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`.

        Parameters
        ----------
        keep : sequence of int
            Axes to keep, in this order.
        at : mapping of int to int
            Code at which each of these axes is fixed. All other axes are summed over.

        Returns
        -------
        IndependentCovariance
            Covariance of the smaller table.
        """
        names = tuple(self.names[axis] for axis in keep) if self.names else ()
        given = None if self.given is None else reduce_cells(self.given, keep, at)
        return IndependentCovariance(reduce_cells(self.variances, keep, at), given, names)


@dataclass(frozen=True, slots=True)
class FactorCovariance(BlockCovariance):
    """Covariance RᵀR of the rows (rows, *shape) of a factor: deviations of clusters or of replicates.

    `given` is the covariance given the records, which the rows do not determine.
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
        """Return the covariances of sums of cells, for all pairs of weights along the first axes."""
        check_kind(kind)
        if kind == "given_records":
            return self.given.between(first, second, kind)
        flat = self.rows.reshape(len(self.rows), -1)
        a, b = (weights.reshape(len(weights), -1) @ flat.T for weights in (first, second))
        return np.asarray(a @ b.T)

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> FactorCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        names = tuple(self.names[axis] for axis in keep) if self.names else ()
        rows = np.stack([reduce_cells(row, keep, at) for row in self.rows])
        return FactorCovariance(rows, self.given.reduce(keep, at), names)


@dataclass(frozen=True, slots=True)
class SumCovariance(BlockCovariance):
    """Covariance of a sum of independent tables."""

    terms: tuple[Covariance, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.terms[0].shape

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        return add_arrays(term.within(axes, kind) for term in self.terms)

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for all pairs of weights along the first axes."""
        return add_arrays(term.between(first, second, kind) for term in self.terms)

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> SumCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        return SumCovariance(tuple(term.reduce(keep, at) for term in self.terms))


@dataclass(frozen=True, slots=True)
class ScaledCovariance(BlockCovariance):
    """Covariance of a table times a factor, if the product is an estimate of the table of other records.

    An example is the table of several samples, estimated from one of them. Given the records of that sample,
    the counts that the factor adds or removes are a guess, so (factor − 1)² times the sampling variance is
    added.
    """

    term: Covariance
    factor: float

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.term.shape

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        return self._scale(lambda k: self.term.within(axes, k), kind)

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for all pairs of weights along the first axes."""
        return self._scale(lambda k: self.term.between(first, second, k), kind)

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> ScaledCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        return ScaledCovariance(self.term.reduce(keep, at), self.factor)

    def _scale(self, part: Callable[[Kind], Floats], kind: Kind) -> Floats:
        check_kind(kind)
        if kind == "population":
            return self.factor**2 * part("population")
        given = part("given_records")
        return self.factor**2 * given + (self.factor - 1) ** 2 * (part("population") - given)


def reduce_cells(cells: Floats, keep: Sequence[int], at: Mapping[int, int]) -> Floats:
    """Fix the axes in `at`, sum over axes neither fixed nor kept, and order the rest as in `keep`."""
    index = tuple(at.get(axis, slice(None)) for axis in range(cells.ndim))
    open_axes = [axis for axis in range(cells.ndim) if axis not in at]
    summed = cells[index].sum(axis=tuple(i for i, axis in enumerate(open_axes) if axis not in keep))
    left = [axis for axis in open_axes if axis in keep]
    return np.asarray(summed).transpose([left.index(axis) for axis in keep])


def take_cells(cells: Floats, codes: Mapping[int, Sequence[int]]) -> Floats:
    """Return the cells of a table with the given codes on some axes."""
    for axis, chosen in codes.items():
        cells = cells.take(list(chosen), axis=axis)
    return cells


def check_kind(kind: str) -> None:
    """Raise InputError if the kind of covariance is unknown."""
    if kind not in KINDS:
        raise InputError(f"The kind of covariance must be one of {', '.join(KINDS)}. Got {kind!r} instead.")


def add_arrays(terms: Iterable[Floats]) -> Floats:
    """Return the sum of one or more arrays of equal shape."""
    return reduce(np.add, terms)
