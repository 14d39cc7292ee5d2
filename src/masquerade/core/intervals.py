"""Confidence intervals of counts, and of shares whose denominator is itself uncertain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile

Flags = NDArray[np.bool_]


class Interval(NamedTuple):
    """Lower and upper limits of confidence intervals, one per cell."""

    lower: Floats
    upper: Floats


class ConfidenceSet(NamedTuple):
    """Limits of confidence sets; [0, 1] where `bounded` is False: the data exclude almost nothing."""

    lower: Floats
    upper: Floats
    bounded: Flags


class RatioErrors(NamedTuple):
    """Standard errors of shares, and the variances that they follow from; see `ratio_errors`."""

    stderr: Floats
    with_total: Floats
    total_variance: Floats


def normal_interval(values: Floats, stderr: Floats, level: float) -> Interval:
    """Return values ± z standard errors."""
    half = two_sided_quantile(level) * stderr
    return Interval(values - half, values + half)


def logit_interval(shares: Floats, stderr: Floats, level: float) -> Interval:
    """Return intervals of shares that are symmetric on the scale of the logits, so inside [0, 1].

    A share at 0 or 1 keeps its value: there the logit has no error.
    """
    inner = (shares > 0) & (shares < 1)
    safe = np.where(inner, shares, 0.5)
    reach = two_sided_quantile(level) * np.where(inner, stderr, 0.0) / (safe * (1 - safe))
    ends = [1 / (1 + np.exp(-(np.log(safe / (1 - safe)) + sign * reach))) for sign in (-1, 1)]
    return Interval(*(np.where(inner, end, shares) for end in ends))


def keep_inside(values: Floats, lower: Floats, upper: Floats) -> Interval:
    """Return intervals cut to [0, 1]. They are not empty even if the estimate is outside.

    Formula: an interval whose estimate is in [0, 1] is cut, which loses no possible share. For other
    estimates, the interval has the shares θ in [0, 1] with 2(max ℓ over [0, 1] − ℓ(θ)) ≤ z², where ℓ = −(θ −
    θ̂)²/2σ² and zσ is the distance from the estimate to the old limit.
    """
    gap = np.where(values < 0, -values, values - 1)
    with np.errstate(invalid="ignore"):
        far_up = values + np.sqrt((upper - values) ** 2 + gap**2)
        far_down = values - np.sqrt((values - lower) ** 2 + gap**2)
    low = np.where(values < 0, 0.0, np.where(values > 1, far_down, lower))
    high = np.where(values > 1, 1.0, np.where(values < 0, far_up, upper))
    return Interval(np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0))


def count_interval(counts: Floats, variance: Floats, n: float, z: float, ratio: float = 1.0) -> Interval:
    """Return the expected counts that a test at z standard errors does not reject.

    Formula: the N with (N̂ − N)² ≤ z²(s + rN − N²/n), where s = Var N̂ − rN̂ + N̂²/n (at least 0) is the
    variance that the disguise adds to the sampling variance, and r is the mean squared survey weight over the
    mean weight, 1 without weights. For a share of n records use r = 1/n.
    Reference: Wilson (1927) when nothing is disguised; N̂ ± z·stderr when the disguise dominates.
    Cost: one quadratic equation per count.
    """
    noise = np.maximum(variance - ratio * counts + counts**2 / n, 0.0)
    curvature = 1 + z * z / n
    middle = counts + z * z * ratio / 2
    half = np.sqrt(np.maximum(middle**2 - curvature * (counts**2 - z * z * noise), 0.0))
    return Interval((middle - half) / curvature, (middle + half) / curvature)


def ratio_errors(shares: Floats, covariance: Floats, totals: Floats) -> RatioErrors:
    """Return the standard errors of shares = cells/totals; a total is the sum along the last axis.

    Formula: Var θ ≈ (Var N_k − 2θ Cov(N_k, N) + θ² Var N)/N². Ma (2006) divides by N_k², which is an error.
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
