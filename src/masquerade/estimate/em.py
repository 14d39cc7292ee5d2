"""Maximum-likelihood counts from a table of disguised records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from masquerade.core.axes import Floats, contract
from masquerade.core.errors import InputError, NotConverged
from masquerade.estimate.inverse import generalised_map
from masquerade.estimate.likelihood import Likelihood, Point, likelihood
from masquerade.estimate.newton import WRITTEN_OUT, newton_step, quadratic_step

MIXED_IN = 0.1  # share of the even table in the start: EM cannot leave a zero
ROUNDING = 1e-14  # relative error of g: below n times this no gap can be proven
WARM_UP = 4  # accelerated EM steps before the first Newton step
PATIENCE = 4  # Newton steps by conjugate gradients before exact ones


@dataclass(frozen=True, slots=True)
class Fit:
    """Maximum-likelihood truth counts, and the proof: no table is likelier by more than `gap`.

    `steps` counts the work in EM steps; `log_likelihood` is Σ Ñ log(PᵀN/n).
    """

    counts: Floats
    steps: int
    gap: float
    log_likelihood: float


def maximum_likelihood(
    observed: Floats,
    channels: Sequence[Floats | None],
    *,
    start: Floats | None = None,
    tolerance: float = 1e-6,
    max_steps: int = 100_000,
) -> Fit:
    """Return the non-negative truth table that makes the observed one likeliest; same total.

    `channels[i]` is truths × reports for axis i of `observed`; None if the axis was not disguised.

    Formula: θ ← θ∘P(Ñ/Pᵀθ)/n (EM), sped up; stops when n(max_l g_l − 1) < tolerance, g = P(Ñ/Pᵀθ)/n,
    which bounds what the log-likelihood still lacks. The moment estimate is returned where it is one.
    Reference: Dempster, Laird & Rubin (1977); Varadhan & Roland (2008); Kim et al. (2020).
    Cost: O(J·ΣK_i) a contraction; some tens of them for an accelerated EM step or a Newton step.
    Error: the log-likelihood is within `gap` of its maximum, and never falls on the way. A tolerance below
    1e-14·n is beyond floating point and taken as that. The estimate is biased where cells were negative.
    Where different truths give the same reports it is one of several: what reports tell is the same in all.

    >>> P = np.array([[0.8, 0.2], [0.2, 0.8]])
    >>> maximum_likelihood(np.array([15.0, 85.0]), [P]).counts.tolist()
    [0.0, 100.0]
    """
    model = likelihood(observed, channels)
    maps = [None if P is None else generalised_map(P) for P in model.channels]
    shape = tuple(
        size if P is None else P.shape[0]
        for P, size in zip(model.channels, model.observed.shape, strict=True)
    )
    if model.n == 0:
        return Fit(np.zeros(shape), 0, 0.0, 0.0)
    enough = max(tolerance, ROUNDING * model.n)
    moment = np.maximum(contract(model.observed, maps), 0.0)
    point = model.normalised(moment if moment.any() else np.ones(shape))
    if model.gap(point) >= enough:
        if start is not None and np.shape(start) != shape:
            raise InputError(f"The 'start' must have the shape {shape}. Got {np.shape(start)} instead.")
        begin = moment if start is None else np.maximum(np.asarray(start, dtype=float), 0.0)
        point, steps = _climb(model, _interior(model, begin), enough, max_steps)
    else:
        steps = 0
    return Fit(point.counts, steps, model.gap(point), model.log_likelihood(point))


def _interior(model: Likelihood, begin: Floats) -> Point:
    """Mix with the even table, within each configuration of the axes that were not disguised."""
    disguised = tuple(axis for axis, P in enumerate(model.channels) if P is not None)
    totals = model.observed.sum(axis=disguised, keepdims=True)
    sizes = begin.sum(axis=disguised, keepdims=True)
    cells = np.prod([begin.shape[axis] for axis in disguised])
    scaled = begin * np.divide(totals, sizes, out=np.zeros_like(totals), where=sizes > 0)
    return model.normalised((1 - MIXED_IN) * scaled + MIXED_IN * totals / cells)


def _climb(model: Likelihood, point: Point, enough: float, max_steps: int) -> tuple[Point, int]:
    """Alternate a few accelerated EM steps with Newton steps, the latter as long as they help.

    Newton steps that have not arrived after some are taken exactly, where the table is small enough.
    """
    steps = tries = 0
    while steps < max_steps:
        for _ in range(WARM_UP):
            point = squarem_step(model, point)
            steps += 3
            if model.gap(point) < enough:
                return point, steps
        better: Point | None = point
        while better is not None and steps < max_steps:
            stubborn = tries >= PATIENCE and point.counts.size <= WRITTEN_OUT
            better, work = (quadratic_step if stubborn else newton_step)(model, point)
            steps, tries = steps + work, tries + 1
            if better is not None:
                point = better
                if model.gap(point) < enough:
                    return point, steps
    raise NotConverged(
        f"The log-likelihood may still rise by {model.gap(point):.3g} after {steps:,} steps; the tolerance "
        f"is {enough:.3g}. The channels are nearly singular, or max_steps or the tolerance is too low."
    )


def squarem_step(model: Likelihood, point: Point) -> Point:
    """Take two EM steps, extrapolate along them, and keep whichever point is likelier.

    Formula: N ← N − 2αr + α²v with r = EM(N) − N, v = (EM∘EM)(N) − EM(N) − r, α = −|r|/|v|; α is halved
    towards −1 (plain EM) until no cell that was positive is used up.
    Reference: Varadhan & Roland (2008), scheme S3; monotone safeguard by comparison with plain EM.
    Cost: two or three evaluations of the likelihood.
    Error: none of its own; the deviance of the result is at most that of `point`.
    """
    first = model.at(point.counts * point.pull)
    second = first.counts * first.pull
    r = first.counts - point.counts
    v = second - first.counts - r
    curvature = float(np.linalg.norm(v))
    if curvature > 0:
        alpha = min(-1.0, -float(np.linalg.norm(r)) / curvature)
        for _ in range(8):
            if alpha > -1.01:
                break
            jumped = point.counts - 2 * alpha * r + alpha**2 * v
            # Plain EM can never bring a cell back from zero, so none may be jumped onto it.
            if np.all((jumped > 0) | (second <= 0)):
                candidate = model.normalised(np.maximum(jumped, 0.0))
                if model.change(first, candidate) <= 0:
                    return candidate
                break
            alpha = (alpha - 1) / 2
    plain = model.at(second)
    # Rounding alone can make an EM step look worse; then stay.
    return plain if model.change(point, plain) <= 0 else point
