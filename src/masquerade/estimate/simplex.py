"""Nearest non-negative counts with a given total: two projections that need no channel."""

from __future__ import annotations

import numpy as np

from masquerade.core.axes import Floats


def onto_simplex(values: Floats, total: float) -> Floats:
    """Return the nearest table (least squares) with no negative cell and the given total.

    Formula: max(values − τ, 0) with τ such that the sum is `total`; zeros if `total` ≤ 0.
    Reference: Held, Wolfe & Crowder (1974); Duchi et al. (2008), Fig. 1.
    Cost: O(J log J), one sort of the J cells.
    Error: exact. The result is biased: never average projected tables where unbiased ones are at hand.

    >>> onto_simplex(np.array([6.0, 5.0, -1.0]), 10.0).tolist()
    [5.5, 4.5, 0.0]
    """
    values = np.asarray(values, dtype=float)
    if total <= 0 or values.size == 0:
        return np.zeros(values.shape)
    # Only differences matter; without the largest value the partial sums lose nothing to its size.
    shifted = values - values.max()
    descending = -np.sort(-shifted, axis=None)
    thresholds = (np.cumsum(descending) - total) / np.arange(1, descending.size + 1)
    last = np.flatnonzero(descending > thresholds)[-1]
    return np.asarray(np.maximum(shifted - thresholds[last], 0.0))


def clip_and_rescale(values: Floats, total: float) -> Floats:
    """Return the table with negative cells set to zero and the rest scaled to the total.

    Formula: total · max(values, 0)/Σ max(values, 0); even cells if none is positive; zeros if `total` ≤ 0.
    Use: the table behind likelihoods and design effects.
    Cost: O(J).
    Error: biased, more so than the projection or the maximum-likelihood table when many cells are negative.

    >>> clip_and_rescale(np.array([6.0, 6.0, -2.0]), 10.0).tolist()
    [5.0, 5.0, 0.0]
    """
    values = np.asarray(values, dtype=float)
    if total <= 0 or values.size == 0:
        return np.zeros(values.shape)
    clipped = np.maximum(values, 0.0)
    size = clipped.sum()
    if size <= 0:
        return np.full(values.shape, total / values.size)
    return np.asarray(clipped / size * total)
