"""The nearest nonnegative table, or the nearest table of a model, to values with a covariance."""

from __future__ import annotations

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.evidence import Projection
from masquerade.estimate.loglinear import Generators, design, proportional_fit

RANGE = 1e-10  # eigenvalues below this share of the largest count as 0
STIFF = 1e6  # weight of directions without variance, relative to the largest weight
STEPS = 200
STILL = 1e-12
FAR = 20.0  # the logarithm of a fitted count exceeds the logarithm of the total by at most this


def curvature(covariance: Floats) -> Floats:
    """Return Σ⁻ on the range of Σ, with a large weight on directions without variance."""
    spread, directions = np.linalg.eigh((covariance + covariance.T) / 2)
    largest = max(float(spread.max(initial=0.0)), 1e-300)
    known = spread <= RANGE * largest
    weights = np.where(known, 0.0, 1.0 / np.where(known, 1.0, spread))
    weights[known] = STIFF * max(float(weights.max(initial=0.0)), 1.0 / largest)
    return np.asarray((directions * weights) @ directions.T)


def nearest_nonnegative(values: Floats, weights: Floats) -> Floats:
    """Return the E ≥ 0 that minimizes (values − E)ᵀW(values − E).

    Formula: non-negative least squares on a square root of W.
    Reference: Lawson & Hanson (1974).
    """
    from scipy.optimize import nnls  # noqa: PLC0415  (scipy is slow to import)

    if np.all(values >= 0):
        return values.copy()
    spread, directions = np.linalg.eigh(weights)
    root = np.sqrt(np.maximum(spread, 0.0))[:, None] * directions.T
    found, _ = nnls(root, root @ values, maxiter=50 * max(values.size, 1))
    return np.asarray(found, dtype=float)


def loglinear_distance(
    values: Floats, generators: Generators, weights: Floats, enough: float = -np.inf
) -> tuple[Floats, float, bool]:
    """Return the model's table nearest to `values`, its distance, and whether the search converged.

    The search stops as soon as the distance is at most `enough`. Tables of the saturated model may have
    zeros.

    Formula: Newton steps on β of E = exp(Xβ), damped until the distance falls; Gauss–Newton steps where the
    distance is not convex.
    """
    if len(generators) == 1 and len(generators[0]) == values.ndim:
        nearest = nearest_nonnegative(values.ravel(), weights)
        gap = values.ravel() - nearest
        return nearest.reshape(values.shape), max(float(gap @ weights @ gap), 0.0), True
    target = values.ravel()
    positive = np.maximum(values, max(float(values.sum()), 1.0) * 1e-6 / max(values.size, 1))
    expected = np.maximum(proportional_fit(positive, generators).ravel(), 1e-12)
    gap = target - expected
    pulled = weights @ gap
    distance = float(gap @ pulled)
    if distance <= enough:
        return expected.reshape(values.shape), distance, True
    X = design(generators, values.shape)
    beta = np.linalg.solve(X.T @ X, X.T @ np.log(expected))
    damping = 1e-6
    highest = np.log(max(float(positive.sum()), 1.0)) + FAR
    for _ in range(STEPS):
        if distance <= enough:
            break
        slopes = expected[:, None] * X
        pull = slopes.T @ pulled
        normal = slopes.T @ weights @ slopes
        step = _downhill(normal - (pulled[:, None] * slopes).T @ X, normal, pull, damping)
        tried = np.exp(np.minimum(np.maximum(X @ (beta + step), -700), highest))
        gap = target - tried
        pressed = weights @ gap
        now = float(gap @ pressed)
        if now <= distance:
            still = distance - now <= STILL * max(distance, 1.0)
            beta, expected, pulled, distance = beta + step, tried, pressed, now
            damping = max(damping / 10, 1e-12)
            if still:
                return expected.reshape(values.shape), distance, True
        elif damping > 1e12:
            return expected.reshape(values.shape), distance, True
        else:
            damping *= 10
    return expected.reshape(values.shape), distance, distance <= enough


def _downhill(curved: Floats, normal: Floats, pull: Floats, damping: float) -> Floats:
    """Return the damped Newton step, or the Gauss–Newton step where the distance is not convex."""
    ridge = damping * np.maximum(normal.diagonal(), 1e-12)
    for bend in (curved, normal):
        bend.flat[:: len(bend) + 1] += ridge
        try:
            lower = np.linalg.cholesky(bend)
        except np.linalg.LinAlgError:
            continue
        return np.asarray(np.linalg.solve(lower.T, np.linalg.solve(lower, pull)))
    return np.asarray(np.linalg.lstsq(normal, pull, rcond=None)[0])


def loglinear_variances(
    covariance: Floats, generators: Generators, expected: Floats, contrasts: Floats
) -> Floats:
    """Return the variances of contrasts (m, *table) of the table E that a model fits to some values.

    `covariance` is the covariance of the values, which E approximates by minimum distance.

    Formula: (cE)ᵀX I⁻ Xᵀ(cE), I = (EX)ᵀΣ⁻(EX).
    """
    slopes = expected.ravel()[:, None] * design(generators, expected.shape)
    spread, directions = np.linalg.eigh(slopes.T @ curvature(covariance) @ slopes)
    known = spread > RANGE * max(float(spread.max(initial=0.0)), 1e-300)
    scaled = (contrasts.reshape(len(contrasts), -1) @ slopes) @ directions[:, known] / np.sqrt(spread[known])
    return np.asarray((scaled**2).sum(axis=1))


def geometric(values: Floats, method: Projection) -> Floats:
    """Project a table to nonnegative counts by a method that needs no likelihood; keep the total."""
    if not np.any(values < 0):
        return values
    project = onto_simplex if method == "simplex" else clip_and_rescale
    return project(values, float(values.sum()))


def onto_simplex(values: Floats, total: float) -> Floats:
    """Return the nearest table (least squares) with no negative cell and the given total.

    Formula: max(values − τ, 0) with τ such that the sum is `total`; zeros if `total` ≤ 0.
    Reference: Held, Wolfe & Crowder (1974); Duchi et al. (2008), Fig. 1.
    Cost: O(J log J), one sort of the J cells.
    Error: exact. The result is biased: do not average projected tables if unbiased ones are available.

    >>> onto_simplex(np.array([6.0, 5.0, -1.0]), 10.0).tolist()
    [5.5, 4.5, 0.0]
    """
    values = np.asarray(values, dtype=float)
    if total <= 0 or values.size == 0:
        return np.zeros(values.shape)
    # Only differences matter; subtracting the largest value keeps the partial sums precise.
    shifted = values - values.max()
    descending = -np.sort(-shifted, axis=None)
    thresholds = (np.cumsum(descending) - total) / np.arange(1, descending.size + 1)
    last = np.flatnonzero(descending > thresholds)[-1]
    return np.asarray(np.maximum(shifted - thresholds[last], 0.0))


def clip_and_rescale(values: Floats, total: float) -> Floats:
    """Return the table with negative cells set to zero and the rest scaled to the total.

    Formula: total · max(values, 0)/Σ max(values, 0); equal cells if none is positive; zeros if `total` ≤ 0.
    Cost: O(J).
    Error: biased, more than the projection or the maximum likelihood table when many cells are negative.

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
