"""Likelihood-ratio tests and profile intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.stats.regression.likelihood import RegressionLikelihood
from masquerade.stats.regression.solver import DECREMENT, Solution, maximise, newton_step

REACH = 30.0  # the largest distance from the estimate, in standard errors or units, that is searched
CLOSE = 1e-7  # tolerance of the deviance at an end
SLIDES = 8  # most joint Newton steps to an end
FEW_ROWS = 20_000  # with at most this number of rows, null fits also start from zero


def ratio_statistic(
    likelihood: RegressionLikelihood,
    best: Solution,
    fixed: Mapping[int, float],
    starts: Sequence[Floats] = (),
) -> float:
    """Return twice the fall of ℓ when some coefficients are fixed.

    The constrained fit starts near the maximum. Where ℓ may have several maxima, it also starts at the
    maximum and at `starts` (by default zero), and the best fit is used.
    """
    null = maximise(likelihood, _shift(likelihood, best, fixed), fixed)
    if (likelihood.n <= FEW_ROWS and likelihood.is_cheap) or not null.was_concave:
        others = [maximise(likelihood, start, fixed) for start in (best.beta, *(starts or (None,)))]
        null = max(null, *others, key=lambda one: one.value)
    return max(2 * (best.value - null.value), 0.0)


def profile_interval(  # noqa: PLR0917  (all belong together)
    likelihood: RegressionLikelihood,
    best: Solution,
    place: int,
    stderr: float,
    threshold: float,
    starts: Sequence[Floats] = (),
) -> tuple[float, float]:
    """Return the two points at which the profile of ℓ is half of a threshold below its maximum.

    Parameters
    ----------
    likelihood : RegressionLikelihood
        Function that was maximised.
    best : Solution
        Maximum of the function.
    place : int
        Position of the coefficient.
    stderr : float
        Standard error of the coefficient, for the first guess.
    threshold : float
        Deviance at the ends, for example the 95% quantile of χ²₁.
    starts : sequence of arrays, optional
        Further starting points of the fits at the ends, for a likelihood with several maxima.

    Returns
    -------
    tuple of float
        The ends. An end is infinite where the profile never falls that far.

    Notes
    -----
    Formula: Newton's method for √deviance, whose derivative is −score/√deviance at the constrained maximum
    (envelope theorem). The other coefficients move along with the profiled coefficient; if that fails, they
    are fitted at every step, inside a bracket.
    Reference: Venzon & Moolgavkar (1988).
    """
    scale = stderr if np.isfinite(stderr) and 0 < stderr < 10 else 1.0
    ends = []
    for unit in (-scale, scale):
        end = _slide_to_end(likelihood, best, place, unit, threshold)
        if end is None:
            end = _find_end(likelihood, best, place, unit, threshold)
        for start in (best.beta, *starts) if starts else ():
            if np.isinf(end):
                break
            other = maximise(likelihood, start, {place: end})
            if 2 * (best.value - other.value) < threshold * (1 - 1e-6):  # the end is further out
                end = _find_end(likelihood, best, place, unit, threshold, (end, other.beta))
        ends.append(end)
    return ends[0], ends[1]


def _slide_to_end(
    likelihood: RegressionLikelihood, best: Solution, place: int, unit: float, threshold: float
) -> float | None:
    """Return the end of a profile interval if joint Newton steps of all coefficients lead there."""
    free = np.delete(np.arange(likelihood.parameters), place)
    root = np.sqrt(threshold)
    beta = _shift(likelihood, best, {place: best.beta[place] + unit * root})
    for _ in range(SLIDES):
        current = likelihood.derivatives(beta)
        inner = current.observed[np.ix_(free, free)]
        across = current.observed[free, place]
        step = newton_step(inner, current.slope[free]) if len(free) else np.zeros(0)
        follow = newton_step(inner, across) if len(free) else np.zeros(0)
        if step is None or follow is None or not np.isfinite(current.value):
            return None
        decrement = float(current.slope[free] @ step)
        deviance = 2 * best.value - 2 * current.value - decrement
        if abs(deviance - threshold) < CLOSE * threshold and decrement < DECREMENT:
            return float(beta[place])
        distance = (beta[place] - best.beta[place]) / unit
        fall = -unit * float(current.slope[place] - across @ step)  # slope of half the deviance by distance
        now = np.sqrt(max(deviance, 0.0))
        if fall <= 0 or now == 0:
            return None
        move = (root - now) * now / fall
        if not -0.7 * distance < move < 2 * distance or np.abs(step).max(initial=0.0) > 2:
            return None
        beta[free] += step - follow * unit * move
        beta[place] += unit * move
    return None


def _find_end(  # noqa: PLR0917  (all belong together)
    likelihood: RegressionLikelihood,
    best: Solution,
    place: int,
    unit: float,
    threshold: float,
    begin: tuple[float, Floats] | None = None,
) -> float:
    """Return the end of a profile interval in the direction of `unit`, beyond the point `begin`."""
    root = np.sqrt(threshold)
    inside, outside = 0.0, np.inf  # distances with deviances below and above the threshold
    distance = float(root)
    limit = REACH * max(abs(unit), 1.0) / abs(unit)
    if begin is None:
        beta = _shift(likelihood, best, {place: best.beta[place] + unit * distance})
    else:
        distance, beta = (begin[0] - best.beta[place]) / unit, begin[1]
    for _ in range(60):
        at = best.beta[place] + unit * distance
        found = maximise(likelihood, beta, {place: at})
        deviance = 2 * (best.value - found.value)
        if abs(deviance - threshold) < CLOSE * threshold:
            return float(at)
        if deviance < threshold:
            inside = max(inside, distance)
        else:
            outside = min(outside, distance)
        if inside >= limit:
            return float(np.sign(unit) * np.inf)
        slope = -unit * float(found.slope[place])  # slope of half the deviance
        now = np.sqrt(max(deviance, 0.0))
        step = (root - now) * now / slope if slope > 0 and now > 0 else np.inf
        new = distance + step
        if np.isinf(outside):
            new = min(max(new, distance * 1.2), distance * 3) if deviance < threshold else new
        if not inside < new < outside:
            new = (inside + outside) / 2
        if abs(new - distance) < 1e-13 * max(distance, 1.0):
            return float(at)
        beta = _shift(likelihood, found, {place: best.beta[place] + unit * new})
        distance = new
    return float(best.beta[place] + unit * distance)


def _shift(likelihood: RegressionLikelihood, best: Solution, fixed: Mapping[int, float]) -> Floats:
    """Return a start for a constrained fit: the other coefficients follow by the quadratic approximation."""
    beta = best.beta.copy()
    places = np.array(sorted(fixed), dtype=np.intp)
    move = np.array([fixed[place] for place in places]) - beta[places]
    beta[places] += move
    free = np.setdiff1d(np.arange(likelihood.parameters), places)
    if not len(free) or np.abs(move).max(initial=0.0) > 4:
        return beta
    observed = best.observed
    try:
        follow = np.linalg.solve(observed[np.ix_(free, free)], observed[np.ix_(free, places)] @ move)
    except np.linalg.LinAlgError:
        return beta
    if np.isfinite(follow).all() and np.abs(follow).max() < 4:
        beta[free] -= follow
    if not np.isfinite(likelihood.value(beta)):  # for example cuts out of order, or a log link above 0
        beta[free] = best.beta[free]
    return beta


def check_level(level: float) -> float:
    """Return a confidence level; raise InputError unless it is between 0 and 1."""
    if not 0 < level < 1:
        raise InputError(f"The confidence level must be between 0 and 1. Got {level} instead.")
    return level
