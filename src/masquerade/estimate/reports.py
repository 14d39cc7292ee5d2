"""The reports of records that went through the same channels, and the table of truths behind them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.covariance import Samples
from masquerade.core.evidence import Reduction
from masquerade.estimate.em import maximum_likelihood
from masquerade.estimate.symmetric import is_symmetric, symmetric_mle


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports of records that share their channels, as a table with one axis for each group.

    `channels` are (truths × reports) matrices, None where a group was not disguised. The truths of all groups
    have the sizes `truths`, variable by variable; `reduction` reads the table that was asked for off theirs.
    With survey weights `observed` counts effective records, (Σw)²/Σw² in all, each of the same `weight`;
    `squares` are the sums of squared weights over weight², None without survey weights.
    The reports of several `samples` name the sample too. `told` is how many combinations of truths channels
    that lose some tell apart (None: all). `dealt` are samples whose sizes were known before anything was
    reported.
    """

    observed: Floats
    channels: tuple[Floats | None, ...]
    truths: tuple[int, ...]
    reduction: Reduction
    weight: float = 1.0
    samples: int = 1
    squares: Floats | None = None
    told: int | None = None
    dealt: Samples | None = None

    @property
    def latent(self) -> tuple[int, ...]:
        """Return the shape of the table of truths, one axis for each group."""
        return tuple(
            size if P is None else P.shape[0]
            for P, size in zip(self.channels, self.observed.shape, strict=True)
        )

    @property
    def groups(self) -> list[list[int]]:
        """Return the places of the variables of every group."""
        groups: list[list[int]] = []
        axis = 0
        for size in self.latent:
            groups.append([axis])
            while prod(self.truths[i] for i in groups[-1]) < size:
                groups[-1].append(groups[-1][-1] + 1)
            axis = groups[-1][-1] + 1
        groups[-1] += range(axis, len(self.truths))  # of one category each
        return groups

    @property
    def total(self) -> float:
        """Return the sum of the table of all truths, in records or survey weights."""
        return self.weight * float(self.observed.sum())

    @property
    def spare(self) -> int:
        """Return how many reports vary freely beyond the truths: of wide channels and several samples."""
        possible = prod(
            size if P is None else int(np.count_nonzero(P.any(axis=0)))
            for P, size in zip(self.channels, self.observed.shape, strict=True)
        )
        told = prod(self.truths) if self.told is None else self.told
        return possible - told - (self.samples - 1)

    def table(self, latent: Floats) -> Floats:
        """Return the table asked for from that of all truths."""
        return self.weight * self.reduction.apply(latent.reshape(self.truths))

    def most_likely(self) -> Floats:
        """Return the most likely table of all truths."""
        if not self.observed.sum():
            return np.zeros(self.latent)
        one = self.channels[0] if len(self.channels) == 1 else None
        change = None if one is None else is_symmetric(one)
        if change is not None:
            return symmetric_mle(self.observed, change)
        return maximum_likelihood(self.observed, self.channels).counts

    def scaled(self, latent: Floats, factors: Floats, rest: float) -> Floats:
        """Return truths with those of every cell of the table multiplied, those outside it by `rest`."""
        cells = latent.reshape(self.truths)
        at = dict(self.reduction.at)
        inside = tuple(at.get(axis, slice(None)) for axis in range(cells.ndim))
        left = [axis for axis in range(cells.ndim) if axis not in at]
        kept = [axis for axis in left if axis in self.reduction.keep]
        turned = factors.transpose([self.reduction.keep.index(axis) for axis in kept])
        spread = turned.reshape([cells.shape[axis] if axis in kept else 1 for axis in left])
        result = np.array(cells * rest)
        result[inside] = cells[inside] * spread
        return result.reshape(latent.shape)
