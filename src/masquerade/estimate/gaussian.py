"""Tables known by values and a covariance: the nearest ones without negative counts, or of a model."""

from __future__ import annotations

import numpy as np

from masquerade.core.axes import Floats
from masquerade.estimate.loglinear import Generators, design, proportional_fit

RANGE = 1e-10  # eigenvalues below this share of the largest are taken as zero
STIFF = 1e6  # weight of directions without any variance, relative to the largest
STEPS = 200
STILL = 1e-12
FAR = 20.0  # beyond the logarithm of all records: no fitted count is tried there


def curvature(covariance: Floats) -> Floats:
    """Return Σ⁻ on the range of Σ, and a stiff weight on directions that have no variance at all."""
    spread, directions = np.linalg.eigh((covariance + covariance.T) / 2)
    largest = max(float(spread.max(initial=0.0)), 1e-300)
    known = spread <= RANGE * largest
    weights = np.where(known, 0.0, 1.0 / np.where(known, 1.0, spread))
    weights[known] = STIFF * max(float(weights.max(initial=0.0)), 1.0 / largest)
    return np.asarray((directions * weights) @ directions.T)


def nearest_nonnegative(values: Floats, weights: Floats) -> Floats:
    """Return the E ≥ 0 that minimises (values − E)ᵀW(values − E).

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


def loglinear_distance(values: Floats, generators: Generators, weights: Floats) -> tuple[Floats, float, bool]:
    """Return the model's table nearest to `values`, its distance, and whether the search stands still.

    Formula: Gauss–Newton on β of E = exp(Xβ), damped until the distance falls.
    """
    X = design(generators, values.shape)
    target = values.ravel()
    positive = np.maximum(values, max(float(values.sum()), 1.0) * 1e-6 / max(values.size, 1))
    start = proportional_fit(positive, generators).ravel()
    beta, *_ = np.linalg.lstsq(X, np.log(np.maximum(start, 1e-12)), rcond=None)
    expected = np.exp(X @ beta)
    distance = float((target - expected) @ weights @ (target - expected))
    damping = 1e-6
    highest = np.log(max(float(positive.sum()), 1.0)) + FAR
    for _ in range(STEPS):
        slopes = expected[:, None] * X
        normal = slopes.T @ weights @ slopes
        pull = slopes.T @ weights @ (target - expected)
        ridge = damping * np.diag(np.maximum(np.diag(normal), 1e-12))
        step = np.linalg.lstsq(normal + ridge, pull, rcond=None)[0]
        tried = np.exp(np.clip(X @ (beta + step), -700, highest))
        now = float((target - tried) @ weights @ (target - tried))
        if now <= distance:
            still = distance - now <= STILL * max(distance, 1.0)
            beta, expected, distance, damping = beta + step, tried, now, max(damping / 10, 1e-12)
            if still:
                return expected.reshape(values.shape), distance, True
        elif damping > 1e12:
            return expected.reshape(values.shape), distance, True
        else:
            damping *= 10
    return expected.reshape(values.shape), distance, False


def loglinear_variances(
    covariance: Floats, generators: Generators, expected: Floats, contrasts: Floats
) -> Floats:
    """Return the variances of contrasts (m, *table) of the model's table nearest to values with a covariance.

    Formula: (cE)ᵀX I⁻ Xᵀ(cE), I = (EX)ᵀΣ⁻(EX).
    """
    slopes = expected.ravel()[:, None] * design(generators, expected.shape)
    spread, directions = np.linalg.eigh(slopes.T @ curvature(covariance) @ slopes)
    known = spread > RANGE * max(float(spread.max(initial=0.0)), 1e-300)
    scaled = (contrasts.reshape(len(contrasts), -1) @ slopes) @ directions[:, known] / np.sqrt(spread[known])
    return np.asarray((scaled**2).sum(axis=1))
