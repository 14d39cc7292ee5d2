"""Privacy measures of a channel: pure functions of its probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from masquerade.channels.channel import Channel


@dataclass(frozen=True, slots=True)
class ProbabilisticAnonymity:
    """Number of truths that stay possible under the worst report, and their distance from uniform.

    `distance` is the largest distance over all reports. `least_distance` is the smallest, which Ma (2006)
    reports.
    """

    k: int
    distance: float
    least_distance: float = 0.0


def gamma(channel: Channel, truths: Sequence[int]) -> Fraction | float:
    """Return the amplification factor among the given truths, exactly; inf if a report excludes one of them.

    Formula: γ = max_m max_{l1,l2} P[l1,m]/P[l2,m]; ε = ln γ.
    Reference: Evfimievski, Gehrke & Srikant (2003); Duchi et al. (2013) for ε.
    Cost: one pass over the probabilities.
    """
    chosen = np.asarray(truths)
    possible = channel.weights[chosen] > 0
    listed = channel.outcomes[chosen][possible]
    reports, hits = np.unique(listed, return_counts=True)
    if np.any(hits < len(chosen)):
        return math.inf
    # one row per report, with its weight and the total of every truth
    columns = np.argsort(listed, kind="stable").reshape(len(reports), len(chosen))
    weights = channel.weights[chosen][possible][columns]
    totals = np.broadcast_to(channel.denominators[chosen, None], possible.shape)[possible][columns]
    chances = weights / totals
    ratios = chances.max(axis=1) / chances.min(axis=1)
    # floating point selects the reports near the maximum; integers then decide exactly
    near = np.flatnonzero(ratios >= ratios.max() * (1 - 1e-9))
    if np.all(totals == totals[0, 0]):
        ends = np.stack([weights[near].max(axis=1), weights[near].min(axis=1)], axis=1)
        return max(Fraction(int(top), int(bottom)) for top, bottom in np.unique(ends, axis=0))
    return max(_exact_ratio(weights[report], totals[report]) for report in near)


def _exact_ratio(weights: NDArray[np.int64], totals: NDArray[np.int64]) -> Fraction:
    """Return the exact ratio of the largest to the smallest of the fractions weights/totals."""
    exact = [
        Fraction(weight, total) for weight, total in set(zip(weights.tolist(), totals.tolist(), strict=True))
    ]
    return max(exact) / min(exact)


def blocks(channel: Channel) -> tuple[tuple[int, ...], ...]:
    """Return the groups of truths connected by common reports: a report always discloses the group."""
    parent = np.arange(channel.truths)

    def root(truth: int) -> int:
        while parent[truth] != truth:
            parent[truth] = parent[parent[truth]]
            truth = int(parent[truth])
        return truth

    owner = np.full(channel.reports, -1)
    for truth in range(channel.truths):
        for report in channel.outcomes[truth][channel.weights[truth] > 0].tolist():
            if owner[report] < 0:
                owner[report] = truth
            else:
                parent[root(truth)] = root(int(owner[report]))
    members: dict[int, list[int]] = {}
    for truth in range(channel.truths):
        members.setdefault(root(truth), []).append(truth)
    return tuple(sorted(tuple(group) for group in members.values()))


def check_prior(prior: Sequence[float] | None, truths: int) -> Floats:
    """Return a prior as an array that sums to one; uniform when none is given."""
    if prior is None:
        return np.full(truths, 1 / truths)
    given = np.asarray(prior, dtype=float)
    if given.shape != (truths,) or np.any(given < 0) or not math.isclose(given.sum(), 1, abs_tol=1e-6):
        raise InputError(f"A prior needs {truths} probabilities that sum to 1.")
    return np.asarray(given / given.sum())


def _posterior(matrix: Floats, prior: Sequence[float] | None) -> tuple[Floats, Floats]:
    """Return P(truth | report) (K × M, zero for impossible reports) and P(report)."""
    joint = matrix * check_prior(prior, len(matrix))[:, None]
    chance = joint.sum(axis=0)
    return np.divide(joint, chance, out=np.zeros_like(joint), where=chance > 0), chance


def entropy(prior: Floats) -> float:
    """Return the entropy of a distribution in bits."""
    positive = prior[prior > 0]
    return float(-(positive * np.log2(positive)).sum())


def conditional_entropy(matrix: Floats, prior: Sequence[float] | None = None) -> float:
    """Return H(X | report) in bits.

    Formula: Σ_m P(m) H(X | m). Reference: Agrawal & Aggarwal (2001); Ma (2006) §3.1.1.
    """
    belief, chance = _posterior(matrix, prior)
    logs = np.log2(belief, out=np.zeros_like(belief), where=belief > 0)
    return float(-(belief * logs).sum(axis=0) @ chance)


def k_anonymity(
    matrix: Floats, prior: Sequence[float] | None = None, threshold: float = 0.0
) -> ProbabilisticAnonymity:
    """Return the least number of truths that a report leaves possible, and their distance from uniform.

    Formula: K_p = min_m #{l : P(l | m) > threshold}; Dist_K = max_m (log₂ #{l : P(l | m) > threshold} −
    H(X | m)), H over those truths. With a threshold, truths of tiny posterior probability do not count.
    Reference: Ma (2006) §3.1.3. Ma defines Dist_K as the minimum over reports, which understates the distance
    of the worst report: `distance` is the maximum, `least_distance` Ma's minimum.
    """
    belief, chance = _posterior(matrix, prior)
    counted = np.where(belief > threshold, belief, 0.0)[:, chance > 0]
    size = (counted > 0).sum(axis=0)
    mass = counted.sum(axis=0)
    shares = np.divide(counted, mass, out=np.zeros_like(counted), where=mass > 0)
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    spread = np.log2(np.maximum(size, 1)) + (shares * logs).sum(axis=0)
    most, least = (float(max(some, 0.0)) for some in (spread.max(), spread.min()))
    return ProbabilisticAnonymity(int(size.min()), most, least)


def bayes_vulnerability(matrix: Floats, prior: Sequence[float] | None = None) -> float:
    """Return the chance that the best guess after seeing the report is right: Σ_m max_l π_l P[l, m]."""
    return float((matrix * check_prior(prior, len(matrix))[:, None]).max(axis=0).sum())


def breach_bound(gamma: Fraction | float, prior: float) -> float:
    """Return ρ2*, the largest posterior probability that a prior probability ρ1 = `prior` can rise to.

    Formula: ρ2* = γρ1/(1 + (γ−1)ρ1) = ρ1/(ρ1 + (1−ρ1)/γ); no ρ1→ρ2 breach if ρ2(1−ρ1)/(ρ1(1−ρ2)) > γ.
    Reference: Evfimievski, Gehrke & Srikant (2003).
    """
    if not 0 <= prior <= 1:
        raise InputError(f"A prior belief must be in [0, 1]. Got {prior} instead.")
    if prior in {0, 1}:
        return float(prior)
    if gamma == math.inf:
        return 1.0
    return prior / (prior + (1 - prior) * float(1 / gamma))  # γ itself may exceed the largest float
