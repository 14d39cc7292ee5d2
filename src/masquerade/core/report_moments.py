"""Moments of the reports underlying an estimate, and confidence intervals that use them.

An estimate is a sum of one weight per report, N̂ = Σ a. Its variance is estimated from the observed reports.
If few reports decide the estimate, the variance depends strongly on the true value. The intervals therefore
contain all true values that a test with the variance *under that value* does not reject.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.distributions import beta_quantile, normal_share
from masquerade.core.intervals import ConfidenceSet, Interval, RatioErrors

Flags = NDArray[np.bool_]
Ends = tuple[Floats, Floats]

FEWEST_DECISIVE = 10.0  # with fewer decisive reports the exact distribution is used
PER_SQUARED_Z = 2.6  # the same limit at high confidence levels, as a multiple of z²: 10 at z = 1.96
ROUNDING = 1e-12
TINY = 1e-300
GRID = 4096


@dataclass(frozen=True, slots=True)
class ReportSpread:
    """Central power sums of the weights of reports, and the range of a single weight.

    Attributes
    ----------
    mean : array
        Mean weight ā.
    variance, third, fourth : array
        Σ(a − ā)ᵏ for k = 2, 3, 4.
    high, low : array
        Largest and smallest weight a that any report can have.
    given : array
        Conditional variance, given the records.
    n : array or float
        Number of reports.
    weight : float
        Mean squared survey weight over the mean weight; 1 without weights.
    """

    mean: Floats
    variance: Floats
    third: Floats
    fourth: Floats
    high: Floats
    low: Floats
    given: Floats
    n: Floats | float
    weight: float = 1.0

    @classmethod
    def of(
        cls,
        values: Floats,
        sums: Sequence[Floats],
        ends: Sequence[tuple[Floats, Floats]],
        *,
        given: Floats,
        n: float,
        weight: float = 1.0,
    ) -> ReportSpread:
        """Return the spread of the reports whose weights sum to `values`.

        Parameters
        ----------
        values : array
            Estimates Σ a.
        sums : sequence of array
            Σ a², Σ a³ and Σ a⁴.
        ends : sequence of pairs of array
            Smallest and largest weight, for each type of report.
        given : array
            Conditional variance, given the records.
        n : float
            Number of reports.
        weight : float, default 1
            Mean squared survey weight over the mean weight.

        Returns
        -------
        ReportSpread
            The central sums.
        """
        second, third, fourth = sums
        mean = values / max(n, 1)
        square = mean * values
        return cls(
            mean,
            np.maximum(second - square, 0.0),
            third - 3 * mean * second + 2 * mean * square,
            np.maximum(fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**2 * square, 0.0),
            np.maximum.reduce([high for _, high in ends]),
            np.minimum.reduce([low for low, _ in ends]),
            given,
            n,
            weight,
        )

    @classmethod
    def of_two_kinds(
        cls,
        mean: Floats,
        variance: Floats,
        ends: tuple[Floats, Floats],
        n: Floats | float,
    ) -> ReportSpread:
        """Return the spread of reports with two values, one of them the limit of `a` farther from the mean.

        Exact for one binary report. Otherwise it bounds the skew from above and the number of decisive
        reports from below.
        """
        low, high = ends[0] - mean, ends[1] - mean
        up = high >= -low
        far, near = np.where(up, high, low), np.where(up, low, high)
        size = np.abs(far) > TINY
        other = -_ratio(variance / np.maximum(n, 1), far, size)
        skew = far + np.where(up, np.maximum(other, near), np.minimum(other, near))
        fourth = variance * (skew**2 + variance / np.maximum(n, 1))
        given = np.zeros_like(variance)
        return cls(mean, variance, skew * variance, fourth, ends[1], ends[0], given, n)

    def __add__(self, other: ReportSpread) -> ReportSpread:
        """Return the spread for the sum of two estimates from different records."""
        n = self.n + other.n
        mean = (self.n * self.mean + other.n * other.mean) / np.maximum(n, 1)
        return ReportSpread(
            mean,
            self.variance + other.variance,
            self.third + other.third,
            self.fourth + other.fourth,
            mean + np.maximum(self.high - self.mean, other.high - other.mean),
            mean + np.minimum(self.low - self.mean, other.low - other.mean),
            self.given + other.given,
            n,
            float((self.weight * self.n + other.weight * other.n) / n) if np.all(n) else 1.0,
        )

    def scale(self, factor: float) -> ReportSpread:
        """Return the spread for estimates multiplied by a factor."""
        sampling = (factor - 1) ** 2 * (self.variance - self.given)
        return ReportSpread(
            factor * self.mean,
            factor**2 * self.variance,
            factor**3 * self.third,
            factor**4 * self.fourth,
            factor * self.high,
            factor * self.low,
            factor**2 * self.given + sampling,
            self.n,
            factor * self.weight,
        )

    @property
    def skew(self) -> Floats:
        """Return Σ(a − ā)³/Σ(a − ā)², the slope of the variance as a function of the estimate."""
        return _ratio(self.third, self.variance, self._is_observed)

    @property
    def bend(self) -> Floats:
        """Return half the second derivative of the variance by the estimate; −1/n for two-valued reports."""
        beyond = _ratio(self.fourth - self.skew * self.third, self.variance**2, self._is_observed)
        return np.maximum(beyond, 1 / np.maximum(self.n, 1)) - 2 / np.maximum(self.n, 1)

    @property
    def decisive(self) -> Floats:
        """Return the effective number of reports that decide each estimate: (Σ(a − ā)²)²/Σ(a − ā)⁴.

        The heaviest reports may not have been observed. So one report is added at the upper or the lower
        limit, the smaller of the two numbers is taken, and the added report is subtracted.
        """
        found = [
            _ratio((self.variance + end**2) ** 2, self.fourth + end**4, end**4 + self.fourth > 0, np.inf)
            for end in (self.high - self.mean, self.low - self.mean)
        ]
        return np.minimum(*found) - 1

    def standard_error(self, variance: Floats, *, given: bool = False) -> Floats:
        """Return √variance; if no decisive report was observed, the largest deviation of a single report."""
        if given:
            single = np.maximum(*(self._given_of(end) for end in (self.high, self.low)))
        else:
            single = np.maximum((self.high - self.mean) ** 2, (self.low - self.mean) ** 2)
        unseen = (variance <= ROUNDING * single) & (self.n > 0)
        return np.sqrt(np.maximum(np.where(unseen, single, variance), 0.0))

    def _given_of(self, end: Floats) -> Floats:
        """Return the contribution of a report of this weight to the variance given the records."""
        return np.maximum(end**2 - self.weight * end, 0.0)

    @property
    def _is_observed(self) -> Flags:
        single = np.maximum((self.high - self.mean) ** 2, (self.low - self.mean) ** 2)
        return np.asarray(self.variance > ROUNDING * single)


@dataclass(frozen=True, slots=True, eq=False)
class ShareSpread:
    """Sums over the reports for N̂_k − θN̂, with b = a_k − θa: Σb³, Σb⁴, Σb²a, and the range of b."""

    third: Floats
    fourth: Floats
    with_whole: Floats
    high: Floats
    low: Floats

    @classmethod
    def of_two_kinds(
        cls, shares: Floats, variance: Floats, totals: Floats, own: Ends, whole: Ends
    ) -> ShareSpread:
        """Return the spread if b has two values, one of them the limit of b farther from 0.

        Parameters
        ----------
        shares : array
            Shares θ.
        variance : array
            Variance of N̂_k − θN̂.
        totals : array
            Totals N̂.
        own : pair of array
            Range of a_k/a.
        whole : pair of array
            Range of a.

        Returns
        -------
        ShareSpread
            The sums.
        """
        corners = [a * (k - shares) for a in whole for k in own]
        low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
        most = np.maximum(*map(np.abs, whole))
        kinds = ReportSpread.of_two_kinds(
            np.zeros_like(shares), variance, (low, high), totals / np.maximum(most, 1.0)
        )
        return cls(kinds.third, kinds.fourth, variance * most, high, low)

    def scale(self, factor: float) -> ShareSpread:
        """Return the spread for shares of estimates multiplied by a factor."""
        return ShareSpread(
            factor**3 * self.third,
            factor**4 * self.fourth,
            factor**3 * self.with_whole,
            factor * self.high,
            factor * self.low,
        )

    def __add__(self, other: ShareSpread) -> ShareSpread:
        """Return the spread for shares of sums from different records."""
        return ShareSpread(
            self.third + other.third,
            self.fourth + other.fourth,
            self.with_whole + other.with_whole,
            np.maximum(self.high, other.high),
            np.minimum(self.low, other.low),
        )


def unbiased_factor(n: float) -> float:
    """Return n/(n − 1), which makes the variance of a sample unbiased for its population."""
    return n / (n - 1) if n > 1 else 1.0


def score_interval(values: Floats, spread: ReportSpread, z: float, *, given: bool = False) -> Interval:
    """Return the expected sums that a test at z standard errors under the null hypothesis does not reject.

    Formula: the N with (N̂ − N)² ≤ z²V(N), where V(N) = V + κ(N − N̂) + β(N − N̂)² is, to second order, the
    variance in the most likely distribution of the reports whose sum has the expectation N; κ = M₃/V, β =
    M₄/V² − M₃²/V³ − 2/n from the central sums M. Given the records, the variance is V(N) + N²/n − N. With
    fewer than ten decisive reports (`ReportSpread.decisive`) the limits are those of `exact_interval`.
    Reference: Wilson (1927) for reports with two values, mapped back through their channel; Owen (1988),
    (1990) for the most likely distribution; Clopper & Pearson (1934).
    Cost: one quadratic equation per cell.
    """
    rise, bend, variance = spread.skew, spread.bend, spread.variance
    if given:
        rise = rise + 2 * spread.mean - spread.weight
        bend = bend + 1 / np.maximum(spread.n, 1)
        variance = np.maximum(spread.given, 0.0)
    few = spread.decisive < max(FEWEST_DECISIVE, PER_SQUARED_Z * z * z)
    square = np.where(few, 1.0, 1 - z * z * bend)
    root = np.sqrt((z * z * rise) ** 2 + 4 * square * z * z * variance)
    lower, upper = (values + (z * z * rise + sign * root) / (2 * square) for sign in (-1, 1))
    if few.any():
        exact = exact_interval(values, spread, z, given=given, where=few)
        lower, upper = np.where(few, exact.lower, lower), np.where(few, exact.upper, upper)
    if given:  # where the disguise adds no variance the true count is known exactly
        known = ~few & (variance <= ROUNDING * spread.variance)
        lower, upper = np.where(known, values, lower), np.where(known, values, upper)
    return Interval(lower, upper)


def exact_interval(
    values: Floats, spread: ReportSpread, z: float, *, given: bool = False, where: Flags | None = None
) -> Interval:
    """Return intervals that are valid with few reports: Clopper–Pearson, mapped back through the channel.

    Formula: add one report at the upper (lower) limit of a report's weight, then replace all reports by
    reports with two values that have the same mean, variance and third moment. Their number is k of m = n +
    1, and the limit is the Beta(k, m − k) quantile of the share of the first value. For reports with two
    values this is the interval of Clopper & Pearson (1934), for many values the approach of Fay & Feuer
    (1997). Given the records, the distance from the estimate is scaled by the ratio of the standard errors.
    Error: conservative.
    """
    rows = np.flatnonzero(np.ones(values.shape, bool) if where is None else where)
    own = [np.broadcast_to(part, values.shape).ravel()[rows] for part in (values, spread.mean)]
    sums = [np.broadcast_to(part, values.shape).ravel()[rows] for part in (spread.variance, spread.third)]
    ends = []
    for end, share in ((spread.low, normal_share(-z)), (spread.high, normal_share(z))):
        raw = np.broadcast_to(end, values.shape).ravel()[rows]
        n = np.broadcast_to(spread.n, values.shape).ravel()[rows].astype(float)
        gap, scale = _exact_end(raw - own[1], sums[0], sums[1], n, share)
        if given:
            known = np.broadcast_to(spread.given, values.shape).ravel()[rows]
            disguise = np.maximum(known, 0.0) + np.maximum(raw**2 - spread.weight * raw, 0.0)
            gap = gap * np.sqrt(np.minimum(_ratio(disguise, scale, scale > 0), 1.0))
        result = np.array(values, dtype=float).ravel()
        result[rows] = own[0] + gap
        ends.append(result.reshape(values.shape))
    return Interval(*ends)


def _exact_end(
    end: Floats, variance: Floats, third: Floats, n: Floats, share: float
) -> tuple[Floats, Floats]:
    """Return the distance of a limit from the estimate, and the variance with one added report."""
    m = n + 1
    shift = end / m
    second = np.maximum(variance + end**2 - m * shift**2, 0.0)
    cube = third + end**3 - 3 * shift * (variance + end**2) + 2 * m * shift**3
    some = second > TINY
    skew = _ratio(cube, second, some)
    root = np.sqrt(skew**2 + 4 * second / m)
    width = np.where(some, root, 1.0)
    kind = np.clip((root - skew) / (2 * width), 0.0, 1.0)  # fraction of reports with the larger weight
    below = shift + (skew - root) / 2
    gap = n * (below + width * _quantiles(m * kind, m, share))
    return np.where(some, gap, 0.0), second + m * shift**2


def _quantiles(k: Floats, m: Floats, share: float) -> Floats:
    """Return quantiles of Beta(k, m − k); for very many, interpolated on a grid that is even in √k."""
    if k.size <= GRID or m.min() < m.max():
        return beta_quantile(k, m - k, share)
    places = np.linspace(0.0, np.sqrt(k.max()), GRID)
    at = np.minimum(places**2, m[0])
    return np.interp(np.sqrt(k), places, beta_quantile(at, m[0] - at, share))


def _ratio(above: Floats, below: Floats, where: Flags, other: float = 0.0) -> Floats:
    where = np.broadcast_to(where, np.broadcast_shapes(above.shape, below.shape))
    return np.where(where, above / np.where(where, below, 1.0), other)


def share_interval(
    shares: Floats,
    errors: RatioErrors,
    totals: Floats,
    z: float,
    *,
    n: float,
    sampling: float = 1.0,
    spread: ShareSpread | None = None,
) -> ConfidenceSet:
    """Return the shares θ = N_k/N that a test at z standard errors under the null hypothesis does not reject.

    Parameters
    ----------
    shares : array
        Estimated shares θ̂.
    errors : RatioErrors
        Errors of the shares and their totals.
    totals : array
        Estimated totals N̂.
    z : float
        Half-width in standard errors.
    n : float
        Number of records.
    sampling : float, default 1
        Mean squared survey weight over the mean weight.
    spread : ShareSpread, optional
        Moments of the reports. By default those of clear records.

    Returns
    -------
    ConfidenceSet
        Limits. Where z²w₂ ≥ N̂² the set is not an interval: the limits are [0, 1] and `bounded` is False.

    Notes
    -----
    Formula: (N̂_k − θN̂)² ≤ z²V(θ), where V(θ) = V + w₁t + w₂t², t = θ − θ̂, is to second order the variance
    of N̂_k − θN̂ in the most likely distribution of the reports whose share is θ. With b = a_k − θ̂a: V =
    Σb², w₁ = −2Σab + N̂Σb³/V, w₂ = Σa² − 2N̂Σb²a/V + N̂²(Σb⁴/V² − (Σb³)²/V³ − Σb²a/(VN̂)). For clear records
    Σb³/V = r(1 − 2θ̂) and Σb²a/V = r, where r is `sampling`. This is Wilson's (1927) interval for clear
    records, Fieller's (1954) where noise dominates, θ̂ ± z·stderr for many records, and `exact_interval` of
    N̂_k − θ̂N̂ with fewer than ten decisive reports.
    Cost: one quadratic equation per share.
    """
    totals = totals[..., None]
    v = errors.total_variance[..., None] / totals**2
    c = errors.with_total / totals**2
    if spread is None:
        third, weight, beyond = sampling * (1 - 2 * shares), np.full(shares.shape, sampling), 0.0 * shares
        few = np.zeros(shares.shape, dtype=bool)
    else:
        variance = (errors.stderr * totals) ** 2
        largest = np.maximum(np.abs(spread.high), np.abs(spread.low))
        seen = variance > ROUNDING * largest**2
        third = _ratio(spread.third, variance, seen)
        weight = _ratio(spread.with_whole, variance, seen, sampling)
        beyond = _ratio(spread.fourth - third * spread.third, variance**2, seen) - weight / totals
        behind = ReportSpread(
            np.zeros_like(shares),
            np.where(seen, variance, 0.0),
            np.where(seen, spread.third, 0.0),
            np.where(seen, spread.fourth, 0.0),
            spread.high,
            spread.low,
            np.zeros_like(shares),
            np.maximum(totals / np.maximum(weight, TINY), 1.0),
        )
        few = behind.decisive < max(FEWEST_DECISIVE, PER_SQUARED_Z * z * z)
    curvature = 1 - z * z * (
        v + 1 / max(n, 1) - 2 * weight / totals + np.where(few, 0.0, np.maximum(beyond, 0.0))
    )
    slope = z * z * (2 * (c - shares * v) - third / totals)
    bounded = np.where(few, 1 - z * z * v > 0, curvature > 0)
    safe = np.where(curvature > 0, curvature, 1.0)
    root = np.sqrt(slope**2 + 4 * safe * (z * errors.stderr) ** 2)
    lower, upper = (shares - (slope + sign * root) / (2 * safe) for sign in (1, -1))
    if few.any():
        gaps = exact_interval(np.zeros_like(shares), behind, z, where=few)
        lower = np.where(few, shares + gaps.lower / totals, lower)
        upper = np.where(few, shares + gaps.upper / totals, upper)
    return ConfidenceSet(np.where(bounded, lower, 0.0), np.where(bounded, upper, 1.0), np.asarray(bounded))
