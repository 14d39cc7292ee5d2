"""Reports that passed through the same channels, and the underlying table of true values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.evidence import TableReduction
from masquerade.core.likelihood_rows import ReportFactor, ReportFactors
from masquerade.core.linear_covariance import Samples
from masquerade.estimate.em import maximum_likelihood
from masquerade.estimate.symmetric import is_symmetric, symmetric_mle


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports of records that share their channels, as a table with one axis per group of variables.

    Attributes
    ----------
    observed : array
        Counts of reports. With survey weights, counts of effective records, (Σw)²/Σw² in total.
    channels : tuple of array or None
        Truths × reports matrix of each group; None if a group was not disguised.
    truths : tuple of int
        Numbers of categories of all variables.
    reduction : TableReduction
        Reduction of the table of all truths to the queried table.
    weight : float
        Weight of an effective record.
    samples : int
        Number of samples, if the reports identify their sample.
    squares : array or None
        Sums of squared survey weights per cell, divided by `weight`²; None without survey weights.
    told : int or None
        Number of combinations of truths that lossy channels distinguish; None means all.
    dealt : Samples or None
        Samples whose sizes were fixed before any report was drawn.
    """

    observed: Floats
    channels: tuple[Floats | None, ...]
    truths: tuple[int, ...]
    reduction: TableReduction
    weight: float = 1.0
    samples: int = 1
    squares: Floats | None = None
    told: int | None = None
    dealt: Samples | None = None

    @property
    def latent(self) -> tuple[int, ...]:
        """Return the shape of the table of truths, one axis per group."""
        return tuple(
            size if P is None else P.shape[0]
            for P, size in zip(self.channels, self.observed.shape, strict=True)
        )

    @property
    def groups(self) -> list[list[int]]:
        """Return the positions of the variables of each group."""
        groups: list[list[int]] = []
        axis = 0
        for size in self.latent:
            groups.append([axis])
            while prod(self.truths[i] for i in groups[-1]) < size:
                groups[-1].append(groups[-1][-1] + 1)
            axis = groups[-1][-1] + 1
        groups[-1] += range(axis, len(self.truths))  # variables with a single category
        return groups

    @property
    def total(self) -> float:
        """Return the total of the table of all truths, in records or survey weights."""
        return self.weight * float(self.observed.sum())

    @property
    def spare(self) -> int:
        """Return the degrees of freedom of the reports beyond those of the truths.

        They are positive if channels have more reports than truths, or if there are several samples.
        """
        possible = prod(
            size if P is None else int(np.count_nonzero(P.any(axis=0)))
            for P, size in zip(self.channels, self.observed.shape, strict=True)
        )
        told = prod(self.truths) if self.told is None else self.told
        return possible - told - (self.samples - 1)

    def table(self, latent: Floats) -> Floats:
        """Return the queried table from the table of all truths."""
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

    def scale_cells(self, latent: Floats, factors: Floats, rest: float) -> Floats:
        """Return truths with the cells of the queried table scaled by their factors, all others by `rest`."""
        cells = latent.reshape(self.truths)
        inside = self.reduction.index(cells.shape)
        result = np.array(cells * rest)
        result[inside] = cells[inside] * self.reduction.spread(factors, cells.ndim)
        return result.reshape(latent.shape)

    def report_factors(self, over: Sequence[str]) -> ReportFactors | None:
        """Return the reports as factors over the axes of a complete table.

        Return None if the reports are of several samples or of dealt samples.
        """
        if self.dealt is not None or self.samples > 1:
            return None
        names = {place: over[axis] for axis, place in enumerate(self.reduction.keep)}
        codes = np.indices(self.observed.shape).reshape(self.observed.ndim, -1)
        factors = []
        for group, P, report in zip(self.groups, self.channels, codes, strict=True):
            sizes = [self.truths[place] for place in group]
            chances = np.eye(prod(sizes)) if P is None else np.asarray(P, dtype=float).T
            members = tuple(names[place] for place in group)
            factors.append(ReportFactor(members, np.ascontiguousarray(chances).reshape(-1, *sizes), report))
        return ReportFactors(tuple(factors), self.observed.ravel())

    def take(self, codes: Mapping[int, Sequence[int]]) -> Reports | None:
        """Return the reports of records with these true codes; None if the reports do not reveal the codes.

        Keys are positions in `truths`. The reduction keeps all axes.
        """
        if self.dealt is not None or self.reduction.among:
            return None
        observed, squares, told = self.observed, self.squares, self.told
        sizes = list(self.truths)
        for axis, chosen in codes.items():
            place = next(i for i, group in enumerate(self.groups) if axis in group)
            if self.groups[place] != [axis] or self.channels[place] is not None:
                return None
            observed = observed.take(list(chosen), axis=place)
            squares = None if squares is None else squares.take(list(chosen), axis=place)
            told = None if told is None else told // sizes[axis] * len(chosen)
            sizes[axis] = len(chosen)
        return replace(self, observed=observed, squares=squares, truths=tuple(sizes), told=told)
