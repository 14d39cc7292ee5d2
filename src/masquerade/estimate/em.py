"""Maximum likelihood counts from a table of disguised records, by accelerated EM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from masquerade.core.axes import Floats, contract
from masquerade.core.errors import InputError, NotConverged
from masquerade.estimate.inverse import generalised_map
from masquerade.estimate.likelihood import LikelihoodPoint, ReportLikelihood, likelihood
from masquerade.estimate.newton import WRITTEN_OUT, newton_step, quadratic_step

MIXED_IN = 0.1  # share of the uniform table in the start: EM cannot leave a zero
ROUNDING = 1e-14  # relative rounding error of the EM factor g; a gap below n times this cannot be proven
WARM_UP = 4  # accelerated EM steps before the first Newton step
PATIENCE = 4  # Newton steps with approximate solutions (conjugate gradients) before exact solutions


@dataclass(frozen=True, slots=True)
class EMFit:
    """Maximum likelihood counts with a certificate: no table's log-likelihood is higher by more than `gap`.

    `steps` is the work, counted in EM steps; `log_likelihood` is Σ Ñ log(PᵀN/n).
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
) -> EMFit:
    """Return the nonnegative table of true counts that makes the observed table most likely.

    Parameters
    ----------
    observed : array
        Counts of reports.
    channels : sequence of array or None
        Truths × reports matrix of each axis; None if the axis was not disguised.
    start : array, optional
        True counts from which EM starts. By default, the moment estimate without negative counts.
    tolerance : float
        Largest gap to the maximum of the log-likelihood.
    max_steps : int
        Limit of the work, counted in EM steps.

    Returns
    -------
    EMFit
        Counts with the total of `observed`.

    Raises
    ------
    NotConverged
        If `max_steps` is reached before the tolerance.

    Notes
    -----
    Formula: θ ← θ∘P(Ñ/Pᵀθ)/n (EM), accelerated; stops when n(max_l g_l − 1) < tolerance with g = P(Ñ/Pᵀθ)/n,
    which bounds the distance to the maximum. The moment estimate is returned if it has no negative cell.
    Reference: Dempster, Laird & Rubin (1977); Varadhan & Roland (2008); Kim et al. (2020).
    Cost: O(J·ΣK_i) per contraction of a table of J cells with K_i categories on axis i; dozens of
    contractions per accelerated EM or Newton step.
    Error: the log-likelihood is within `gap` of its maximum and never decreases between steps. A tolerance
    below 1e-14·n is beyond floating-point accuracy and is raised to 1e-14·n. The estimate is biased if the
    moment estimate has negative cells. If different truths give the same reports, it is one of several
    maxima with equal distributions of reports.

    Examples
    --------
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
        return EMFit(np.zeros(shape), 0, 0.0, 0.0)
    enough = max(tolerance, ROUNDING * model.n)
    moment = np.maximum(contract(model.observed, maps), 0.0)
    point = model.at_normalized(moment if moment.any() else np.ones(shape))
    if model.gap(point) >= enough:
        if start is not None and np.shape(start) != shape:
            raise InputError(f"The 'start' must have the shape {shape}. Got {np.shape(start)} instead.")
        begin = moment if start is None else np.maximum(np.asarray(start, dtype=float), 0.0)
        point, steps = _climb(model, _interior(model, begin), enough, max_steps)
    else:
        steps = 0
    return EMFit(point.counts, steps, model.gap(point), model.log_likelihood(point))


def _interior(model: ReportLikelihood, begin: Floats) -> LikelihoodPoint:
    """Mix a table with the uniform table, within each configuration of the clear axes."""
    disguised = tuple(axis for axis, P in enumerate(model.channels) if P is not None)
    totals = model.observed.sum(axis=disguised, keepdims=True)
    sizes = begin.sum(axis=disguised, keepdims=True)
    cells = np.prod([begin.shape[axis] for axis in disguised])
    scaled = begin * np.divide(totals, sizes, out=np.zeros_like(totals), where=sizes > 0)
    return model.at_normalized((1 - MIXED_IN) * scaled + MIXED_IN * totals / cells)


def _climb(
    model: ReportLikelihood, point: LikelihoodPoint, enough: float, max_steps: int
) -> tuple[LikelihoodPoint, int]:
    """Alternate accelerated EM steps with Newton steps, as long as the Newton steps help.

    After `PATIENCE` Newton steps without convergence, further Newton steps are solved exactly if the table is
    small enough.
    """
    steps = tries = 0
    while steps < max_steps:
        for _ in range(WARM_UP):
            point = squarem_step(model, point)
            steps += 3
            if model.gap(point) < enough:
                return point, steps
        better: LikelihoodPoint | None = point
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


def squarem_step(model: ReportLikelihood, point: LikelihoodPoint) -> LikelihoodPoint:
    """Take two EM steps, extrapolate along them, and keep the more likely point.

    Formula: N ← N − 2αr + α²v with r = EM(N) − N, v = (EM∘EM)(N) − EM(N) − r, α = −|r|/|v|; α is halved
    towards −1 (plain EM) until no positive cell becomes zero.
    Reference: Varadhan & Roland (2008), scheme S3; monotone safeguard by comparison with plain EM.
    Cost: two or three evaluations of the likelihood.
    Error: the deviance of the result is at most that of `point`.
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
            # EM cannot bring a cell back from zero, so no cell may be extrapolated to zero
            if np.all((jumped > 0) | (second <= 0)):
                candidate = model.at_normalized(np.maximum(jumped, 0.0))
                if model.change(first, candidate) <= 0:
                    return candidate
                break
            alpha = (alpha - 1) / 2
    plain = model.at(second)
    # rounding errors alone can make an EM step look worse; then keep the point
    return plain if model.change(point, plain) <= 0 else point
