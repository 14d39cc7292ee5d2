"""The exact maximum likelihood counts of k-ary randomized response."""

from __future__ import annotations

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import ChannelError, InputError

EQUAL = 1e-12  # entries of a channel closer than this count as equal


def symmetric_mle(observed: Floats, p: float) -> Floats:
    """Return the maximum likelihood counts if each value changes with probability `p`, uniformly.

    Formula: with b = p/(K−1), the largest set S of top counts on which q_m = (1 − b|Sᶜ|)Ñ_m/Σ_S Ñ ≥ b; q = b
    elsewhere; counts n(q − b)/(1 − p − b).
    Reference: the Karush–Kuhn–Tucker conditions of Σ Ñ log q over q ≥ b, Σ q = 1.
    Cost: O(K log K), one sort.
    Error: exact. It differs from the Euclidean projection of the moment estimate, which ignores the
    likelihood.

    >>> symmetric_mle(np.array([70.0, 25.0, 5.0]), 0.2).round(2).tolist()
    [80.45, 19.55, 0.0]
    """
    observed = np.asarray(observed, dtype=float)
    if observed.ndim != 1 or observed.size == 0:
        raise InputError(
            f"symmetric_mle() takes one variable's counts. Got the shape {observed.shape} instead."
        )
    if not np.all(np.isfinite(observed)) or np.any(observed < 0):
        raise InputError("The observed counts must be finite and not negative.")
    K, n = observed.size, observed.sum()
    if K == 1 or n == 0:
        return observed.copy()
    b = p / (K - 1)
    if not (p >= 0 and 1 - p > b):
        raise ChannelError(f"The 'p' of symmetric_mle() must be in [0, {(K - 1) / K:.6g}). Got {p} instead.")
    ranked = np.sort(observed)[::-1]
    sizes = np.arange(1, K + 1)
    kept_mass = 1.0 - b * (K - sizes)
    tops = np.cumsum(ranked)
    # If a set of top counts fits, every smaller set fits too: the last that fits is the largest.
    last = np.flatnonzero(kept_mass * ranked >= b * tops)[-1]
    q = kept_mass[last] * observed / tops[last]
    return np.asarray(n * np.maximum(q - b, 0.0) / (1 - p - b))


def is_symmetric(P: Floats) -> float | None:
    """Return the probability of change if `P` is k-ary randomized response that favours the truth.

    Formula: P = (1 − p) on the diagonal and p/(K−1) elsewhere, with 1 − p > p/(K−1); None otherwise.
    Reference: Warner (1965) for two categories; Kairouz, Bonawitz & Ramage (2016) for K.
    Cost: O(K²).
    Error: entries are compared to 1e-12.

    >>> is_symmetric(np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]))
    0.2
    """
    P = np.asarray(P, dtype=float)
    if P.ndim != 2 or P.shape[0] != P.shape[1] or P.size == 0:
        return None
    K = len(P)
    if K == 1:
        return 0.0
    kept, moved = float(P[0, 0]), float(P[0, 1])
    pattern = np.full((K, K), moved)
    np.fill_diagonal(pattern, kept)
    p = moved * (K - 1)
    return p if np.max(np.abs(P - pattern)) <= EQUAL and kept - moved > EQUAL else None
