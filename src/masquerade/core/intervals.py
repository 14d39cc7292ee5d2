"""Confidence intervals of counts, and of shares whose whole is itself uncertain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile

Flags = NDArray[np.bool_]


class Interval(NamedTuple):
    """Lower and upper ends of confidence intervals, cell by cell."""

    lower: Floats
    upper: Floats


class ConfidenceSet(NamedTuple):
    """Ends of confidence sets; where `bounded` is False the data exclude (next to) nothing: [0, 1]."""

    lower: Floats
    upper: Floats
    bounded: Flags


class RatioErrors(NamedTuple):
    """What a vector of counts and its sum say about the shares: see `ratio_errors`."""

    stderr: Floats
    with_total: Floats
    total_variance: Floats


def normal_interval(values: Floats, stderr: Floats, level: float) -> Interval:
    """Return values ± z standard errors."""
    half = two_sided_quantile(level) * stderr
    return Interval(values - half, values + half)


def count_interval(counts: Floats, variance: Floats, n: float, z: float, ratio: float = 1.0) -> Interval:
    """Return the expected counts that a test at z standard errors does not reject.

    Formula: the N with (N̂ − N)² ≤ z²(s + rN − N²/n), s = Var N̂ − rN̂ + N̂²/n (at least 0): the variance that
    the disguise adds to that of sampling; r = mean squared survey weight over mean weight, 1 without weights.
    A share of n records is the count with r = 1/n.
    Reference: Wilson (1927) when nothing is disguised; N̂ ± z·stderr when the disguise dominates.
    Cost: a quadratic equation a count.
    """
    noise = np.maximum(variance - ratio * counts + counts**2 / n, 0.0)
    curvature = 1 + z * z / n
    middle = counts + z * z * ratio / 2
    half = np.sqrt(np.maximum(middle**2 - curvature * (counts**2 - z * z * noise), 0.0))
    return Interval((middle - half) / curvature, (middle + half) / curvature)


def ratio_errors(shares: Floats, covariance: Floats, totals: Floats) -> RatioErrors:
    """Return the standard errors of shares = cells/totals, where each total is the sum of the last axis.

    Formula: Var θ ≈ (Var N_k − 2θ Cov(N_k, N) + θ² Var N)/N². The dissertation divides by N_k²: a slip.
    Constants added to cells and totals (a prior) change neither variances nor covariances.
    Reference: the delta method for a ratio of dependent normals; Ma & Sivakumar (2005) §5.
    Error: of second order in (standard error of N)/N.
    """
    with_total: Floats = covariance.sum(axis=-1)
    total_variance: Floats = np.maximum(with_total.sum(axis=-1), 0.0)
    variance = (
        np.diagonal(covariance, axis1=-2, axis2=-1)
        - 2 * shares * with_total
        + shares**2 * total_variance[..., None]
    )
    stderr = np.sqrt(np.maximum(variance, 0.0)) / totals[..., None]
    return RatioErrors(stderr, with_total, total_variance)
