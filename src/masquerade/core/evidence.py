"""Evidence: the observations that a table of counts is based on.

A table holds its evidence, not its source, so nothing is queried again. Evidence knows the covariance of the
estimate, the most likely table without negative counts, the deviance of any table from the observations, and
the fit of hierarchical log-linear models. It does not refer to channels, adds to the evidence of other
records, and can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.covariance import Covariance, reduce_cells, take_cells
from masquerade.core.errors import InputError

Projection = Literal["mle", "simplex", "clip"]
PROJECTIONS: tuple[Projection, ...] = ("mle", "simplex", "clip")


@dataclass(frozen=True, slots=True)
class Fit:
    """A hierarchical log-linear model of the true counts, fitted to the observations.

    Attributes
    ----------
    expected : array
        Fitted counts.
    deviance : float
        2[ℓ(saturated reports) − ℓ(fit)], with `df` degrees of freedom if the fit is in the interior.
    df : int
        Degrees of freedom.
    pearson : float
        Pearson's statistic on the reports, with the same degrees of freedom.
    log_likelihood : float
        ℓ(fit).
    converged : bool
        True if the iteration reached its tolerance.
    generators : tuple of tuple of int
        Sets of axes whose joint margins the model follows.
    evidence : Evidence or None
        Observations that the model was fitted to.
    """

    expected: Floats
    deviance: float
    df: int
    pearson: float
    log_likelihood: float
    converged: bool
    generators: tuple[tuple[int, ...], ...] = ()
    evidence: Evidence | None = field(default=None, repr=False, compare=False)

    def contrast(self, weights: Floats) -> Contrast:
        """Return Σ weights·expected with its standard error under the model.

        Parameters
        ----------
        weights : array
            Weights in the shape of the table, or several along leading axes.

        Returns
        -------
        Contrast
            Values and standard errors.

        Raises
        ------
        InputError
            If the weights do not have the shape of the table.

        Notes
        -----
        Formula: the delta method on the observed information of the model's parameters. For a function of the
        table that is not linear, such as a log odds ratio, pass its derivative as weights.
        Error: normal theory at an interior fit; empty cells are taken as known.
        """
        shape = self.expected.shape
        cells = np.asarray(weights, dtype=float)
        if cells.shape[cells.ndim - len(shape) :] != shape:
            raise InputError(
                f"A contrast needs one weight per cell, shape {shape}. Got {cells.shape} instead."
            )
        if self.evidence is None:
            raise InputError("This fit has no evidence, so its contrasts have no standard errors.")
        many = cells.reshape(-1, *shape)
        variances = self.evidence.contrast_variances(self, many)
        values = (many * self.expected).reshape(len(many), -1).sum(axis=1)
        lead = cells.shape[: cells.ndim - len(shape)]
        return Contrast(values.reshape(lead), np.sqrt(np.maximum(variances, 0.0)).reshape(lead))


class Contrast(NamedTuple):
    """A linear function of a fitted table, and its standard error."""

    value: Floats
    stderr: Floats


@dataclass(frozen=True, slots=True)
class TableReduction:
    """A smaller table of a larger one.

    Attributes
    ----------
    keep : tuple of int
        Axes that are kept, in order. Axes neither kept nor fixed are summed over.
    at : tuple of pairs
        Axes that are fixed, and their codes.
    among : tuple of pairs
        Axes of which only some codes are kept, and these codes in the order of the smaller table.
    """

    keep: tuple[int, ...]
    at: tuple[tuple[int, int], ...] = ()
    among: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @staticmethod
    @cache
    def none(axes: int) -> TableReduction:
        """Return the reduction that changes nothing."""
        return TableReduction(tuple(range(axes)))

    def then(self, keep: Sequence[int], at: Mapping[int, int]) -> TableReduction:
        """Return this reduction followed by another."""
        among = dict(self.among)
        fixed = dict(self.at)
        for axis, code in at.items():
            own = self.keep[axis]
            fixed[own] = among.pop(own)[code] if own in among else code
        kept = tuple(self.keep[axis] for axis in keep)
        return TableReduction(kept, tuple(sorted(fixed.items())), tuple(sorted(among.items())))

    def take(self, codes: Mapping[int, Sequence[int]]) -> TableReduction:
        """Return this reduction followed by the choice of some codes of its axes."""
        among = dict(self.among)
        for axis, chosen in codes.items():
            own = self.keep[axis]
            among[own] = tuple(among[own][code] if own in among else code for code in chosen)
        return TableReduction(self.keep, self.at, tuple(sorted(among.items())))

    def follow(self, other: TableReduction) -> TableReduction:
        """Return this reduction followed by another."""
        return self.take(dict(other.among)).then(other.keep, dict(other.at))

    def index(self, shape: Sequence[int]) -> tuple[Any, ...]:
        """Return the index of the cells of a larger table that the reduced table counts."""
        at, among = dict(self.at), dict(self.among)
        codes = [
            [at[axis]] if axis in at else among.get(axis, range(size)) for axis, size in enumerate(shape)
        ]
        return np.ix_(*[np.array(each, dtype=np.intp) for each in codes])

    def spread(self, cells: Floats, axes: int) -> Floats:
        """Return cells of the reduced table with as many axes as the larger one, to broadcast at `index`."""
        kept = sorted(self.keep)
        turned = cells.transpose([self.keep.index(axis) for axis in kept])
        sizes = dict(zip(kept, turned.shape, strict=True))
        return turned.reshape([sizes.get(axis, 1) for axis in range(axes)])

    def is_complete(self, axes: int) -> bool:
        """Return True if nothing is summed over, fixed or left out."""
        return len(self.keep) == axes and not self.among

    def apply(self, cells: Floats) -> Floats:
        """Return the cells of the reduced table."""
        if self.among:
            cells = take_cells(cells, dict(self.among))
        if self.at or self.keep != tuple(range(cells.ndim)):
            return reduce_cells(cells, self.keep, dict(self.at))
        return cells


class Sample(NamedTuple):
    """Estimated counts of a sample, the evidence for them, and the number of records."""

    values: Floats
    evidence: Evidence
    n: int


@dataclass(frozen=True, slots=True)
class Pool:
    """Samples of one population combined: counts of all records and the evidence for them.

    `agreement` is the p-value of the hypothesis that the samples come from one population; 1 if not tested.
    """

    values: Floats
    evidence: Evidence
    agreement: float = 1.0


class ResamplingDraws(Protocol):
    """Random numbers for samples drawn from evidence. They are never part of a release."""

    def multinomial(self, n: int, pvals: Floats) -> Any:
        """Return the number of times each outcome occurs in `n` draws."""

    def standard_normal(self, size: int) -> Any:
        """Return standard normal numbers."""


class Evidence(Protocol):
    """The observations that a table of counts is based on. A value without connection to a source."""

    @property
    def values(self) -> Floats:
        """The unbiased estimate of the table."""

    @property
    def covariance(self) -> Covariance:
        """The covariance of the unbiased estimate."""

    def nonnegative(self, method: Projection) -> Floats:
        """Return the table without negative counts, which is biased."""

    def deviance(self, expected: Floats) -> float:
        """Return twice the log-likelihood that these true counts lose against the best fit."""

    def fit(self, generators: Iterable[Iterable[int]], start: Floats | None = None) -> Fit:
        """Fit the hierarchical log-linear model whose highest terms are these sets of axes.

        Parameters
        ----------
        generators : iterable of iterable of int
            Sets of axes whose joint margins the model follows.
        start : array, optional
            One more starting table, for likelihoods with several maxima.

        Returns
        -------
        Fit
            The fitted model.
        """

    def contrast_variances(self, fit: Fit, contrasts: Floats) -> Floats:
        """Return the variance of Σ contrast·expected of a model fitted to this, for each contrast."""

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> Evidence:
        """Return the evidence of the table summed or sliced to the axes `keep`.

        Parameters
        ----------
        keep : sequence of int
            Axes to keep, in this order.
        at : mapping of int to int
            Code at which each of these axes is fixed. All other axes are summed over.

        Returns
        -------
        Evidence
            Evidence of the smaller table.
        """

    def take(self, codes: Mapping[int, Sequence[int]]) -> Evidence:
        """Return the evidence of the cells with the given codes on some axes.

        Parameters
        ----------
        codes : mapping of int to sequence of int
            Codes to keep of each of these axes, in the order of the smaller table.

        Returns
        -------
        Evidence
            Evidence of the smaller table.
        """

    def __add__(self, other: Evidence) -> Evidence:
        """Return the evidence of the sum of two tables of different records, from any populations."""

    def pool(self, samples: Sequence[Sample]) -> Pool:
        """Combine samples of one population; `samples` includes this evidence."""

    def restrict_to_table(self) -> Evidence:
        """Return evidence about the cells of this table only.

        That is the evidence itself, or its values and covariance if its likelihood involves true values
        outside the table.
        """

    def independence(self, given: Sequence[int], first: int, second: int) -> tuple[float, float] | None:
        """Test independence of two axes given others on the observations themselves.

        Parameters
        ----------
        given : sequence of int
            Axes to condition on.
        first, second : int
            Axes to test.

        Returns
        -------
        tuple of float, or None
            Pearson's statistic and its degrees of freedom. None if independence of the true values does not
            imply independence of the observations.
        """

    def pearson(self, expected: Floats, generators: Iterable[Iterable[int]]) -> tuple[float, float] | None:
        """Return Pearson's statistic of the observations and its degrees of freedom.

        Parameters
        ----------
        expected : array
            True counts of the model, fitted to this evidence.
        generators : iterable of iterable of int
            Generators of the model.

        Returns
        -------
        tuple of float, or None
            Statistic and degrees of freedom. None if the true counts of this table do not determine the
            distribution of the observations.
        """

    def resample(self, draws: ResamplingDraws, expected: Floats | None = None) -> Evidence | None:
        """Return evidence of as many newly drawn records.

        Parameters
        ----------
        draws : ResamplingDraws
            Random numbers.
        expected : array, optional
            True counts to draw from. By default records are drawn from the observations.

        Returns
        -------
        Evidence or None
            None if the evidence does not determine what such records would have reported.
        """


@runtime_checkable
class DistanceEvidence(Protocol):
    """Evidence for which Pearson's statistic of a model is its minimum distance from the estimate."""

    def distance(self, generators: Iterable[Iterable[int]], enough: float) -> float:
        """Return the minimum distance of a model's tables, or any distance found that is at most `enough`."""
