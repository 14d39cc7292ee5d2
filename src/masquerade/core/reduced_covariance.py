"""Covariances of parts of a table: some of its categories, sums over others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.covariance import BlockCovariance, Covariance, Kind, ScaledCovariance, SumCovariance
from masquerade.core.evidence import TableReduction
from masquerade.core.linear_covariance import LinearCovariance


@dataclass(frozen=True, slots=True)
class ReducedCovariance(BlockCovariance):
    """Covariance of a reduced table, computed from the covariance of the larger one.

    It serves covariances whose own class cannot be restricted to categories. Cost: the cells of the larger
    table for every cell.
    """

    term: Covariance
    reduction: TableReduction
    names: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the reduced table."""
        return self.reduction.apply(np.empty(self.term.shape)).shape

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        inner = self.positions(axes)
        cells = self.in_blocks(np.arange(prod(self.shape)).reshape(self.shape), inner)
        blocks = []
        for block in cells.reshape(-1, cells.shape[-1]):
            units = np.zeros((len(block), prod(self.shape)))
            units[np.arange(len(block)), block] = 1.0
            each = units.reshape(len(block), *self.shape)
            blocks.append(self.between(each, each, kind))
        return np.stack(blocks).reshape(*cells.shape, cells.shape[-1])

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for all pairs of weights along the first axes."""
        return self.term.between(self._embed(first), self._embed(second), kind)

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> ReducedCovariance:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        names = tuple(self.names[axis] for axis in keep) if self.names else ()
        return ReducedCovariance(self.term, self.reduction.then(keep, at), names)

    def _embed(self, weights: Floats) -> Floats:
        """Return weights of the cells of the larger table."""
        shape = self.term.shape
        result = np.zeros((len(weights), *shape))
        index = self.reduction.index(shape)
        for row, own in zip(result, weights, strict=True):
            row[index] = self.reduction.spread(np.asarray(own, dtype=float), len(shape))
        return result


def take_covariance(covariance: Covariance, codes: Mapping[int, Sequence[int]]) -> Covariance:
    """Return the covariance of the cells of a table with the given codes on some axes."""
    if isinstance(covariance, LinearCovariance):
        return covariance.take(codes)
    if isinstance(covariance, SumCovariance):
        return SumCovariance(tuple(take_covariance(term, codes) for term in covariance.terms))
    if isinstance(covariance, ScaledCovariance):
        return ScaledCovariance(take_covariance(covariance.term, codes), covariance.factor)
    if isinstance(covariance, ReducedCovariance):
        return replace(covariance, reduction=covariance.reduction.take(codes))
    whole = TableReduction.none(len(covariance.shape))
    return ReducedCovariance(covariance, whole.take(codes), getattr(covariance, "names", ()))
