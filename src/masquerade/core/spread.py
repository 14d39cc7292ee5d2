"""How reports scatter behind an estimate, and the intervals that follow from their likelihood.

An estimate is a sum over reports of what each of them weighs, N̂ = Σ a. Its variance is known only through the
reports that were seen; where few of them decide, another truth means another variance. The intervals hold the
truths that a test with the variance *under that truth* does not reject.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.beta_quantile import beta_quantile
from masquerade.core.intervals import Interval

Flags = NDArray[np.bool_]

FEWEST_DECISIVE = 10.0  # reports below which the exact distribution takes over
PER_SQUARED_Z = 2.6  # the same for high levels: 10 at z = 1.96
ROUNDING = 1e-12
TINY = 1e-300
GRID = 4096


@dataclass(frozen=True, slots=True)
class Spread:
    """Central sums over the reports behind estimates, and the ends of what one report can weigh.

    `variance`, `third` and `fourth` are Σ(a − ā)ᵏ, `mean` is ā; `high` and `low` are the largest and the
    smallest a that any report has. `given` is the variance given the records. There are `n` reports; `weight`
    is the mean squared survey weight over the mean weight, 1 without weights.
    """

    mean: Floats
    variance: Floats
    third: Floats
    fourth: Floats
    high: Floats
    low: Floats
    given: Floats
    n: float
    weight: float = 1.0

    def __add__(self, other: Spread) -> Spread:
        """Return the spread behind the sum of two estimates from different records."""
        n = self.n + other.n
        mean = (self.n * self.mean + other.n * other.mean) / max(n, 1)
        return Spread(
            mean,
            self.variance + other.variance,
            self.third + other.third,
            self.fourth + other.fourth,
            mean + np.maximum(self.high - self.mean, other.high - other.mean),
            mean + np.minimum(self.low - self.mean, other.low - other.mean),
            self.given + other.given,
            n,
            (self.weight * self.n + other.weight * other.n) / n if n else 1.0,
        )

    @property
    def skew(self) -> Floats:
        """Return Σ(a − ā)³/Σ(a − ā)²: by how much the variance rises with the estimate."""
        return _ratio(self.third, self.variance, self._seen)

    @property
    def bend(self) -> Floats:
        """Return half of how fast that rise changes; −1/n where reports are of two kinds only."""
        beyond = _ratio(self.fourth - self.skew * self.third, self.variance**2, self._seen)
        return np.maximum(beyond, 1 / max(self.n, 1)) - 2 / max(self.n, 1)

    @property
    def decisive(self) -> Floats:
        """Return by how many reports every estimate is decided: (Σ(a − ā)²)²/Σ(a − ā)⁴.

        Reports that weigh most may not have been seen: the least with one more at either end, less one.
        """
        found = [
            _ratio((self.variance + end**2) ** 2, self.fourth + end**4, end**4 + self.fourth > 0, np.inf)
            for end in (self.high - self.mean, self.low - self.mean)
        ]
        return np.minimum(*found) - 1

    def standard_error(self, variance: Floats, *, given: bool = False) -> Floats:
        """Return √variance; where no report that decides was seen, what a single one would have weighed."""
        if given:
            single = np.maximum(*(self._given_of(end) for end in (self.high, self.low)))
        else:
            single = np.maximum((self.high - self.mean) ** 2, (self.low - self.mean) ** 2)
        unseen = (variance <= ROUNDING * single) & (self.n > 0)
        return np.sqrt(np.maximum(np.where(unseen, single, variance), 0.0))

    def _given_of(self, end: Floats) -> Floats:
        """Return what one report of this weight adds to the variance given the records."""
        return np.maximum(end**2 - self.weight * end, 0.0)

    @property
    def _seen(self) -> Flags:
        single = np.maximum((self.high - self.mean) ** 2, (self.low - self.mean) ** 2)
        return np.asarray(self.variance > ROUNDING * single)


def score_interval(values: Floats, spread: Spread, z: float, *, given: bool = False) -> Interval:
    """Return the expected sums that a test at z standard errors of the null hypothesis does not reject.

    Formula: the N with (N̂ − N)² ≤ z²V(N), where V(N) = V + κ(N − N̂) + β(N − N̂)² is, to second order, the
    variance in the most likely distribution of the reports whose sum has the expectation N;
    κ = M₃/V, β = M₄/V² − M₃²/V³ − 2/n from the central sums M. Given the records, V(N) + N²/n − N.
    Where fewer than ten reports decide (see `Spread.decisive`) the ends are `exact_interval`'s.
    Reference: Wilson (1927) for reports of two kinds, mapped back through their channel; Owen (1988), (1990)
    for the most likely distribution; Clopper & Pearson (1934).
    Cost: a quadratic equation a cell.
    """
    rise, bend, variance = spread.skew, spread.bend, spread.variance
    if given:
        rise = rise + 2 * spread.mean - spread.weight
        bend = bend + 1 / max(spread.n, 1)
        variance = np.maximum(spread.given, 0.0)
    few = spread.decisive < max(FEWEST_DECISIVE, PER_SQUARED_Z * z * z)
    square = np.where(few, 1.0, 1 - z * z * bend)
    root = np.sqrt((z * z * rise) ** 2 + 4 * square * z * z * variance)
    lower, upper = (values + (z * z * rise + sign * root) / (2 * square) for sign in (-1, 1))
    if few.any():
        exact = exact_interval(values, spread, z, given=given, where=few)
        lower, upper = np.where(few, exact.lower, lower), np.where(few, exact.upper, upper)
    if given:  # records that are known have no interval
        known = ~few & (variance <= ROUNDING * spread.variance)
        lower, upper = np.where(known, values, lower), np.where(known, values, upper)
    return Interval(lower, upper)


def exact_interval(
    values: Floats, spread: Spread, z: float, *, given: bool = False, where: Flags | None = None
) -> Interval:
    """Return intervals that hold for few reports: Clopper's and Pearson's, mapped back.

    Formula: add one report at the upper (lower) end of what a report can weigh, replace all reports by those
    of two kinds with the same mean, variance and third moment; their number is k of m = n + 1, and the end is
    the Beta(k, m − k) quantile of the share of the first kind. For reports of two kinds that is the interval
    of Clopper & Pearson (1934); for many kinds the approach of Fay & Feuer (1997). Given the records, the
    distance from the estimate is scaled by the ratio of the standard errors.
    Error: conservative.
    """
    rows = np.flatnonzero(np.ones(values.shape, bool) if where is None else where)
    own = [np.broadcast_to(part, values.shape).ravel()[rows] for part in (values, spread.mean)]
    sums = [np.broadcast_to(part, values.shape).ravel()[rows] for part in (spread.variance, spread.third)]
    ends = []
    for end, share in ((spread.low, NormalDist().cdf(-z)), (spread.high, NormalDist().cdf(z))):
        raw = np.broadcast_to(end, values.shape).ravel()[rows]
        gap, scale = _exact_end(raw - own[1], sums[0], sums[1], spread.n, share)
        if given:
            known = np.broadcast_to(spread.given, values.shape).ravel()[rows]
            disguise = np.maximum(known, 0.0) + np.maximum(raw**2 - spread.weight * raw, 0.0)
            gap = gap * np.sqrt(np.minimum(_ratio(disguise, scale, scale > 0), 1.0))
        result = np.array(values, dtype=float).ravel()
        result[rows] = own[0] + gap
        ends.append(result.reshape(values.shape))
    return Interval(*ends)


def _exact_end(end: Floats, variance: Floats, third: Floats, n: float, share: float) -> tuple[Floats, Floats]:
    """Return how far an end lies from the estimate, and the variance with one report more."""
    m = n + 1
    shift = end / m
    second = np.maximum(variance + end**2 - m * shift**2, 0.0)
    cube = third + end**3 - 3 * shift * (variance + end**2) + 2 * m * shift**3
    some = second > TINY
    skew = _ratio(cube, second, some)
    root = np.sqrt(skew**2 + 4 * second / m)
    width = np.where(some, root, 1.0)
    kind = np.clip((root - skew) / (2 * width), 0.0, 1.0)  # share of the heavier kind
    below = shift + (skew - root) / 2
    gap = n * (below + width * _quantiles(m * kind, m, share))
    return np.where(some, gap, 0.0), second + m * shift**2


def _quantiles(k: Floats, m: float, share: float) -> Floats:
    """Return quantiles of Beta(k, m − k); of very many, from a grid that is dense in the square root of k."""
    if k.size <= GRID:
        return beta_quantile(k, m - k, share)
    places = np.linspace(0.0, np.sqrt(k.max()), GRID)
    at = np.minimum(places**2, m)
    return np.interp(np.sqrt(k), places, beta_quantile(at, m - at, share))


def _ratio(above: Floats, below: Floats, where: Flags, other: float = 0.0) -> Floats:
    where = np.broadcast_to(where, np.broadcast_shapes(above.shape, below.shape))
    return np.where(where, above / np.where(where, below, 1.0), other)
