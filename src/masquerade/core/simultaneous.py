"""Critical values of simultaneous confidence intervals."""

from __future__ import annotations

from typing import Literal

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import normal_quantile, two_sided_quantile
from masquerade.core.errors import InputError

Simultaneous = Literal["bonferroni", "max-t"]
METHODS: tuple[Simultaneous, ...] = ("bonferroni", "max-t")
POINTS = 1 << 14
MOST_CELLS = 2048
ODD = np.uint64(0x9E3779B97F4A7C15)  # increment of the SplitMix64 generator


def check_simultaneous(method: str | None) -> None:
    """Raise InputError if the method for simultaneous intervals is unknown."""
    if method is not None and method not in METHODS:
        raise InputError(
            f"'simultaneous' must be None or one of {', '.join(METHODS)}. Got {method!r} instead."
        )


def bonferroni(level: float, intervals: int) -> float:
    """Return the half-width, in standard errors, of simultaneous intervals valid under any dependence."""
    two_sided_quantile(level)
    return normal_quantile(1 - (1 - level) / (2 * max(intervals, 1)))


def max_t(level: float, covariance: Floats) -> float:
    """Return the half-width, in standard errors, of simultaneous intervals of jointly normal estimates.

    Formula: the level-quantile of max |Z_i|, where Z is normal with the correlations of the estimates; at
    most Bonferroni's value.
    Reference: Tukey (1953); Hothorn, Bretz & Westfall (2008).
    Cost: one eigendecomposition and 16,384 quasi-random points.
    Error: relative 0.01 (the points are always the same, so results are repeatable).
    """
    spread = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    seen = spread > 1e-12 * max(float(spread.max(initial=0.0)), 1e-300)
    if not seen.any():
        return two_sided_quantile(level)
    correlation = covariance[np.ix_(seen, seen)] / np.outer(spread[seen], spread[seen])
    values, directions = np.linalg.eigh((correlation + correlation.T) / 2)
    positive = values > 1e-10 * values.max()
    root = directions[:, positive] * np.sqrt(values[positive])
    most = np.zeros(POINTS)
    for begin in range(0, POINTS, 1024):
        points = slice(begin, begin + 1024)
        most[points] = np.abs(_normal_points(begin, 1024, root.shape[1]) @ root.T).max(axis=1)
    quantile = float(np.quantile(most, level))
    return max(min(quantile, bonferroni(level, int(seen.sum()))), two_sided_quantile(level))


def _normal_points(begin: int, rows: int, columns: int) -> Floats:
    """Return fixed points distributed like independent standard normals (SplitMix64 of a counter)."""
    half = (columns + 1) // 2
    place = np.arange(begin, begin + rows, dtype=np.uint64)[:, None, None] * np.uint64(2 * half)
    place = place + np.arange(2 * half, dtype=np.uint64).reshape(1, 2, half)
    mixed = (place + np.uint64(1)) * ODD
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    uniform = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
    length, angle = np.sqrt(-2 * np.log(uniform[:, 0])), 2 * np.pi * uniform[:, 1]
    return np.concatenate([length * np.cos(angle), length * np.sin(angle)], axis=1)[:, :columns]
