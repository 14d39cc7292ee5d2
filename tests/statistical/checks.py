"""Statistical assertions with a stated false-alarm rate, shared by all tests."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

ALPHA = 1e-6


def normal_bound(comparisons: int, alpha: float = ALPHA) -> float:
    """Return z that any of `comparisons` standard normals exceeds in size with probability ≤ alpha."""
    return NormalDist().inv_cdf(1 - alpha / comparisons / 2)


def assert_unbiased(estimates, truth, alpha: float = ALPHA) -> None:
    """Assert that the mean over runs (first axis) is the truth, by the runs' own spread."""
    estimates, truth = np.asarray(estimates), np.asarray(truth)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    bound = normal_bound(truth.size, alpha)
    assert np.all(np.abs(estimates.mean(axis=0) - truth) <= bound * error + 1e-9)


def assert_variance(estimates, claimed, alpha: float = ALPHA) -> None:
    """Assert that the spread over runs is what the standard errors claim, on average.

    The variance of a sample variance is (kurtosis − 1)·σ⁴/R; a heavy tail widens the bound accordingly.
    """
    estimates, claimed = np.asarray(estimates), np.asarray(claimed)
    runs = len(estimates)
    centred = estimates - estimates.mean(axis=0)
    spread = centred.var(axis=0, ddof=1)
    kurtosis = (centred**4).mean(axis=0) / np.maximum(spread, 1e-300) ** 2
    of_spread = np.sqrt(np.maximum(kurtosis - 1, 0.1) / runs) * spread
    of_claim = claimed.std(axis=0, ddof=1) / np.sqrt(runs)
    bound = normal_bound(spread.size, alpha)
    assert np.all(np.abs(spread - claimed.mean(axis=0)) <= bound * np.hypot(of_spread, of_claim) + 1e-9)


def assert_coverage(covered, level: float, slack: float, alpha: float = ALPHA) -> None:
    """Assert that intervals cover at the stated level, within `slack` plus the Monte-Carlo allowance."""
    covered = np.asarray(covered)
    allowance = normal_bound(covered[0].size, alpha) * np.sqrt(level * (1 - level) / len(covered))
    share = covered.mean(axis=0)
    worst = np.abs(share - level).max()
    assert worst <= slack + allowance, f"coverage {share.ravel()[np.abs(share - level).argmax()]:.4f}"
