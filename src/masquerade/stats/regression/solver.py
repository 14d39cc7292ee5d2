"""Maximum of a report likelihood: safe Newton steps, and a certificate of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.stats.regression.likelihood import RegressionLikelihood

STEPS = 200
LONGEST = 5.0  # the largest change of a coefficient in one step
DECREMENT = 1e-10  # a smaller decrement has converged
LOOSE = 1e-6  # tolerance if the gradient is a finite difference
POLISHED = 1e-20  # a decrement at which only rounding errors are left
BLENDS = (0.5, 0.9, 1.0)  # share of the complete information: 0 gives Newton's step, 1 gives EM's step
LEAST_EIGENVALUE = 1e-8  # eigenvalue of the scaled information below which a direction is flat
FAR = 8.0  # a linear predictor from which probabilities are nearly 0 or 1
FLAT_FALL = 1e-3  # a direction is flat if ℓ falls less than this over 5 units


@dataclass(frozen=True, slots=True)
class Solution:
    """A maximum of ℓ, perhaps with some coefficients fixed.

    Attributes
    ----------
    beta : array
        Coefficients.
    value : float
        ℓ at `beta`.
    steps : int
        Number of steps.
    decrement : float
        gᵀA⁻¹g at the end, twice the expected gain of another step.
    is_newton : bool
        The last observed information was positive definite without a share of the complete information.
    was_concave : bool
        The information was positive definite at every step.
    free : array
        Positions of the coefficients that were not fixed.
    slope, observed : arrays
        Gradient of ℓ and observed information at the end, for all coefficients.
    tolerance : float
        Decrement below which the maximum is reached; larger where ℓ is an integral.
    """

    beta: Floats
    value: float
    steps: int
    decrement: float
    is_newton: bool
    was_concave: bool
    free: NDArray[np.intp]
    slope: Floats
    observed: Floats
    tolerance: float = DECREMENT

    @property
    def has_converged(self) -> bool:
        """Return True if the last decrement is small and the information positive definite."""
        return self.is_newton and abs(self.decrement) < self.tolerance


def maximise(
    likelihood: RegressionLikelihood, start: Floats | None = None, fixed: Mapping[int, float] | None = None
) -> Solution:
    """Return the maximum that safe Newton steps reach.

    Parameters
    ----------
    likelihood : RegressionLikelihood
        Function to maximise.
    start : array, optional
        Starting point; zeros by default.
    fixed : mapping, optional
        Positions and values of coefficients that do not move.

    Returns
    -------
    Solution
        A maximum. ℓ is at least as large as at the start.

    Notes
    -----
    Formula: A = (1 − τ)·observed + τ·complete information with the first τ of 0, ½, .9, 1 that is positive
    definite; step A⁻¹g, halved until ℓ rises (Armijo). ℓ of a mixture is not concave, and a plain Newton step
    may lead away from the maximum.
    Reference: Louis (1982); Lange (1995) for τ = 1.
    """
    beta = np.zeros(likelihood.parameters) if start is None else np.array(start, dtype=float)
    free = np.ones(likelihood.parameters, dtype=bool)
    for place, value in (fixed or {}).items():
        beta[place], free[place] = value, False
    places = np.flatnonzero(free)
    square = np.ix_(places, places)
    current = likelihood.derivatives(beta)
    decrement, is_newton, was_concave, steps = 0.0, True, True, 0
    is_exact, is_numeric = likelihood.is_cheap, False
    while len(places) and steps < STEPS and np.isfinite(current.value):
        slope = current.slope[places]
        newton = newton_step(current.observed[square], slope)
        is_newton = newton is not None
        if newton is not None:
            step = newton
        else:
            complete = likelihood.derivatives(beta, complete_too=True).complete
            assert complete is not None  # noqa: S101  (for the type checker: requested)
            step = _uphill_step(current.observed[square], complete[square], slope)
        decrement = float(slope @ step)
        was_concave = was_concave and is_newton
        move = np.zeros_like(beta)
        if abs(decrement) < (LOOSE if is_numeric else DECREMENT):
            if is_newton and abs(decrement) > POLISHED:  # Newton's last step squares the remaining error
                move[places] = step
                beta = beta + move
                current = replace(current, value=max(likelihood.value(beta), current.value))
            break
        length = min(1.0, LONGEST / max(float(np.abs(step).max()), 1e-300))
        shortest = 1e-10 if is_exact else 0.1 * length
        while length > shortest:
            move[places] = length * step
            new = likelihood.derivatives(beta + move)  # with derivatives: a step is seldom refused
            if new.value >= current.value + 1e-4 * length * decrement - 1e-12 * abs(current.value):
                break
            length /= 2
        else:
            exact = None if is_exact else likelihood.numeric_slope(beta)
            if exact is None:
                break
            current, is_exact, is_numeric = replace(current, slope=exact), True, True
            continue
        beta, current, steps = beta + move, new, steps + 1
        exact = likelihood.numeric_slope(beta) if is_numeric else None
        current = current if exact is None else replace(current, slope=exact)
    return Solution(
        beta,
        current.value,
        steps,
        decrement,
        is_newton,
        was_concave,
        places,
        current.slope,
        current.observed,
        DECREMENT if likelihood.is_cheap else LOOSE,
    )


def maximise_from(
    likelihood: RegressionLikelihood,
    starts: Sequence[Floats | None],
    fixed: Mapping[int, float] | None = None,
) -> tuple[Solution, bool]:
    """Return the best of the maxima from several starts, and whether finite maxima differ."""
    found = [maximise(likelihood, start, fixed) for start in starts]
    best = max(found, key=lambda one: one.value)
    tops = [one.value for one in found if one.has_converged]
    return best, bool(tops) and best.value - min(tops) > 1e-4


def newton_step(observed: Floats, slope: Floats) -> Floats | None:
    """Return Newton's step; None if the information is not safely positive definite."""
    diagonal = np.diag(observed)
    if diagonal.min() <= 0:
        return None
    scale = 1 / np.sqrt(diagonal)
    try:
        factor = np.linalg.cholesky(observed * np.outer(scale, scale))
    except np.linalg.LinAlgError:
        return None
    if factor.diagonal().min() <= 1e-7:
        return None
    inner = np.linalg.solve(factor, slope * scale)
    return np.asarray(scale * np.linalg.solve(factor.T, inner))


def _uphill_step(observed: Floats, complete: Floats, slope: Floats) -> Floats:
    """Return a step between Newton's and EM's that leads uphill."""
    diagonal = np.diag(complete)
    whole = complete + 1e-10 * np.diag(np.maximum(diagonal, 1e-8))
    scale = 1 / np.sqrt(np.maximum(diagonal, 1e-12))
    for blend in BLENDS:
        A = (1 - blend) * observed + blend * whole
        step = newton_step(A, slope)
        if step is not None:
            return step
    step = scale * np.linalg.lstsq(whole * np.outer(scale, scale), slope * scale, rcond=1e-12)[0]
    return np.asarray(step if slope @ step > 0 else scale * scale * slope)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Evidence that a fit is a maximum with finite coefficients.

    Attributes
    ----------
    is_maximum : bool
        The decrement is small and the information positive definite.
    is_separated : bool
        Some coefficient is infinite: ℓ hardly falls along a direction towards infinity.
    decrement, least_eigenvalue, largest_predictor : float
        The decrement, the least eigenvalue of the scaled information, and the largest |η|.
    steps : int
        Number of steps.
    has_other_maxima : bool
        Another start found a lower maximum.
    """

    is_maximum: bool
    is_separated: bool
    decrement: float
    least_eigenvalue: float
    largest_predictor: float
    steps: int
    has_other_maxima: bool = False

    def __bool__(self) -> bool:
        """Return True if the fit is a finite maximum."""
        return self.is_maximum and not self.is_separated

    def __str__(self) -> str:
        """Describe the result of the fit."""
        more = " Other starts found lower maxima." if self.has_other_maxima else ""
        if self:
            return f"Maximum found, and it is finite.{more}"
        if self.is_separated:
            return (
                "No finite maximum: some estimates are infinite. Their likelihood-ratio tests and intervals "
                f"hold, but their standard errors do not.{more}"
            )
        return f"No certified maximum: the reports hardly determine some terms.{more}"


def certify(
    likelihood: RegressionLikelihood, solution: Solution, *, has_other_maxima: bool = False
) -> Certificate:
    """Return the certificate of a solution."""
    observed = solution.observed[np.ix_(solution.free, solution.free)]
    diagonal = np.diag(observed)
    scale = 1 / np.sqrt(np.maximum(np.abs(diagonal), 1e-300))
    values, vectors = np.linalg.eigh(observed * np.outer(scale, scale))
    flattest = np.zeros(likelihood.parameters)
    flattest[solution.free] = vectors[:, 0] * scale
    flattest *= 5 / max(float(np.abs(flattest).max()), 1e-300)
    eta = likelihood.predictors(solution.beta)
    largest = float(np.abs(eta).max(initial=0.0)) if eta.size else 0.0
    ahead = max(likelihood.value(solution.beta + flattest), likelihood.value(solution.beta - flattest))
    drifts = largest > FAR and ahead > solution.value - FLAT_FALL
    return Certificate(
        solution.has_converged and bool(values[0] > LEAST_EIGENVALUE),
        bool(drifts or diagonal.min(initial=1.0) <= 0),
        solution.decrement,
        float(values[0]) if len(values) else 1.0,
        largest,
        solution.steps,
        has_other_maxima,
    )
