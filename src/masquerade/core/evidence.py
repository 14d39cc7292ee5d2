"""What an answer rests on: frozen when a table is answered, so that nothing is ever asked again.

A table carries its evidence and not its source. Evidence knows the covariance of the estimate, the most
likely table without negative counts, the deviance of any table from what was observed, and how hierarchical
log-linear models fit. It names no channel, adds to the evidence of other records, and pickles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.covariance import Covariance, reduce_cells
from masquerade.core.errors import InputError

Projection = Literal["mle", "simplex", "clip"]
PROJECTIONS: tuple[Projection, ...] = ("mle", "simplex", "clip")


@dataclass(frozen=True, slots=True)
class Fit:
    """A hierarchical log-linear model of the truth, fitted to what was observed.

    `expected` are the fitted counts of the table. `deviance` is 2[ℓ(saturated reports) − ℓ(fit)], `pearson`
    Pearson's statistic on the reports, both with `df` degrees of freedom where the fit is interior.
    `log_likelihood` is ℓ(fit). `converged` tells whether the fit stands still. `generators` are the sets of
    axes whose joint margins the model follows, `evidence` is what it was fitted to.
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
        """Return Σ weights·expected with its standard error under the model, for one array or many.

        Formula: the delta method on the observed information of the model's parameters. A function of the
        table that is not linear, such as a log odds ratio, has its derivative for weights.
        Error: normal theory at an interior fit; empty cells are taken as known.
        """
        shape = self.expected.shape
        cells = np.asarray(weights, dtype=float)
        if cells.shape[cells.ndim - len(shape) :] != shape:
            raise InputError(f"A contrast has a weight for every cell, {shape}. Got {cells.shape} instead.")
        if self.evidence is None:
            raise InputError("This fit does not know what it was fitted to.")
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
class Reduction:
    """How a table is read off a larger one: which axes are kept, in which order, which fixed at a code.

    Axes neither kept nor fixed are summed over.
    """

    keep: tuple[int, ...]
    at: tuple[tuple[int, int], ...] = ()

    @staticmethod
    @cache
    def none(axes: int) -> Reduction:
        """Return the reduction that changes nothing."""
        return Reduction(tuple(range(axes)))

    def then(self, keep: Sequence[int], at: Mapping[int, int]) -> Reduction:
        """Return this reduction followed by another one."""
        fixed = dict(self.at) | {self.keep[axis]: code for axis, code in at.items()}
        return Reduction(tuple(self.keep[axis] for axis in keep), tuple(sorted(fixed.items())))

    def apply(self, cells: Floats) -> Floats:
        """Return the cells of the reduced table."""
        if self.at or self.keep != tuple(range(cells.ndim)):
            return reduce_cells(cells, self.keep, dict(self.at))
        return cells


class Sample(NamedTuple):
    """Counts of some records, estimated, what the estimate rests on, and how many records they are."""

    values: Floats
    evidence: Evidence
    n: int


@dataclass(frozen=True, slots=True)
class Pool:
    """Samples of one population taken together: counts in all their records, and the evidence for them.

    `agreement` is the p-value of the hypothesis that it is one population, 1 where nothing hangs on it.
    """

    values: Floats
    evidence: Evidence
    agreement: float = 1.0


class Draws(Protocol):
    """Random numbers for samples that are drawn from evidence, and released to nobody."""

    def multinomial(self, n: int, pvals: Floats) -> Any:
        """Return how often each outcome comes up."""

    def standard_normal(self, size: int) -> Any:
        """Return normal numbers."""


class Evidence(Protocol):
    """What a table of counts rests on. A value: it holds no connection and asks nobody anything."""

    @property
    def values(self) -> Floats:
        """The unbiased estimate of the table as it was asked for."""

    @property
    def covariance(self) -> Covariance:
        """The covariance of the unbiased estimate."""

    def nonnegative(self, method: Projection) -> Floats:
        """Return the table without negative counts: a biased step that callers name."""

    def deviance(self, expected: Floats) -> float:
        """Return twice how much less likely the observations are under these true counts than at best."""

    def fit(self, generators: Iterable[Iterable[int]], start: Floats | None = None) -> Fit:
        """Fit the hierarchical log-linear model whose highest terms are these sets of axes.

        A `start` is one more table to climb from, where there may be several tops.
        """

    def contrast_variances(self, fit: Fit, contrasts: Floats) -> Floats:
        """Return the variance of Σ contrast·expected of a model fitted to this, for each contrast."""

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> Evidence:
        """Return the evidence of the table summed or sliced to the axes `keep`."""

    def __add__(self, other: Evidence) -> Evidence:
        """Return the evidence of both, about different records of any populations: counts add."""

    def pooled(self, samples: Sequence[Sample]) -> Pool:
        """Pool samples of one population, this one among them."""

    def alone(self) -> Evidence:
        """Return evidence about the cells of the table alone.

        Itself, or values and covariance where its likelihood is one of truths beyond the table.
        """

    def independence(self, given: Sequence[int], first: int, second: int) -> tuple[float, float] | None:
        """Test independence of two axes given others on what was observed itself: Pearson's statistic, df.

        None where independence of the truth need not be independence of what was observed.
        """

    def pearson(self, expected: Floats, generators: Iterable[Iterable[int]]) -> tuple[float, float] | None:
        """Return Pearson's statistic of what was observed, and its degrees of freedom.

        `expected` are the true counts of the model of these generators fitted to it. None where the true
        counts of the table alone do not tell what is to be observed.
        """

    def drawn(self, draws: Draws, expected: Floats | None = None) -> Evidence | None:
        """Return evidence of as many records drawn anew, from what was observed or from true counts.

        None where the evidence does not tell what such records would have reported.
        """


@runtime_checkable
class DistanceEvidence(Protocol):
    """Evidence whose Pearson's statistic of a model is the least distance of the model's tables from it."""

    def distance(self, generators: Iterable[Iterable[int]], enough: float) -> float:
        """Return the least distance of a model's tables, or that of any of them which is at most `enough`."""
