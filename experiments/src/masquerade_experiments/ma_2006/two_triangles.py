"""Ma (2006), §2.5: a density of two triangles, grouped by MGAS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

import masquerade as mq

if TYPE_CHECKING:
    from masquerade.anonymity import Bins

LOW, MIDDLE, HIGH = 0.0, 10.0, 20.0
LEAST_WIDTH = 0.25

DECLARED = (
    (
        "The support of the two-triangle density is not printed: two equal triangles side by side on [0, "
        "20], with peaks at 5 and 15."
    ),
    (
        "How MGAS measures the distance of two groups, and where a last small group goes, is not printed: by "
        "the means, and to the nearer neighbour."
    ),
)


def sample(n: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return numbers drawn from the two triangles."""
    start = np.where(generator.random(n) < 0.5, LOW, MIDDLE)
    return start + generator.triangular(0, (MIDDLE - LOW) / 2, MIDDLE - LOW, n)


def density(points: ArrayLike) -> NDArray[np.float64]:
    """Return the true density, which is 0.1 at each peak."""
    x = np.asarray(points, dtype=float)
    half = (MIDDLE - LOW) / 2
    from_peak = np.minimum(np.abs(x - (LOW + half)), np.abs(x - (MIDDLE + half)))
    return np.maximum(half - from_peak, 0) / (2 * half**2)


def distance_to_truth(edges: ArrayLike, heights: ArrayLike) -> float:
    """Return ∫|f − f̂| for a density that is constant within bins, exactly.

    Formula: between adjacent bin edges and kinks the difference is linear, from a to b. Its absolute value
    integrates to width·|a + b|/2 if a and b have the same sign, else to width·(a² + b²)/(2|a − b|).
    """
    cuts = np.asarray(edges, dtype=float)
    ends = np.unique(np.concatenate([cuts, np.linspace(LOW, HIGH, 5)]))
    middles = (ends[:-1] + ends[1:]) / 2
    inside = (middles > cuts[0]) & (middles < cuts[-1])
    place = np.clip(np.searchsorted(cuts, middles, side="right") - 1, 0, len(cuts) - 2)
    found = np.where(inside, np.asarray(heights, dtype=float)[place], 0.0)
    a, b = density(ends[:-1]) - found, density(ends[1:]) - found
    crosses = a * b < 0
    apart = np.where(crosses, np.abs(a - b), 1.0)
    mean_size = np.where(crosses, (a**2 + b**2) / (2 * apart), np.abs(a + b) / 2)
    return float((mean_size * np.diff(ends)).sum())


def policy(bins: Bins, p: float) -> mq.Policy:
    """Return the disguise of the grouped number: its group changes with probability p."""
    return mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "x": {"bins": bins.policy_bins(LOW, HIGH), "channel": {"kind": "symmetric", "p": str(p)}}
            },
        }
    )
