"""Three losses of a linear discriminant, minimised over weighted configurations instead of records.

A problem consists of configurations of the features (rows), the number of records of each (`totals`), and the
number of these records in the predicted class (`positive`). Numbers may be fractional, and negative if the
function allows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, NotConverged

LEAST_SPREAD = 1e-10  # a direction with less standardised variance than this is omitted
ENOUGH = 1e-14  # Newton decrement per record below which the current step is the last
MOST_STEPS = 100
FLATTEST = 1e-10  # curvature per record below which a likelihood has no maximum: the classes are separated
ALWAYS_CHECKED = 2 * 4096  # configurations (of both classes) that are cheap to check at every step
CLOSE = 1e-9  # a configuration nearer to the boundary than this is on neither side


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """Configurations in coordinates with mean 0 and covariance 1, after a constant.

    `rows` = [1, X] @ `back`, so that θ in these coordinates gives the coefficients `back` @ θ, intercept
    first. Directions in which the configurations do not vary are omitted: of all equivalent coefficients
    these are the smallest.
    """

    rows: Floats
    back: Floats

    @property
    def rank(self) -> int:
        """Return the number of coordinates, including the constant."""
        return int(self.rows.shape[1])

    def penalty(self, ridge: float) -> Floats:
        """Return the matrix of ridge · Σ coefficient², which excludes the intercept."""
        return np.asarray(ridge * self.back[1:].T @ self.back[1:])


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """Coefficients (intercept first) and the inverse curvature of the loss; None for pocket."""

    coefficients: Floats
    inverse: Floats | None


def basis_of(design: Floats, totals: Floats) -> Basis:
    """Return the coordinates of a weighted design; raise InputError if negative totals leave no variance."""
    n = totals.sum()
    centre = totals @ design / n
    variance = totals @ (design - centre) ** 2 / n
    size = np.abs(design).max(axis=0, initial=0.0) ** 2
    noisy = "The unbiased counts are too noisy for these features: use a non-negative projection instead."
    if np.any(variance < -1e-12 * size):
        raise InputError(noisy)
    varies = variance > 1e-14 * size
    scale = np.sqrt(np.where(varies, variance, 1.0))
    standard = np.where(varies, (design - centre) / scale, 0.0)
    values, vectors = np.linalg.eigh(standard.T @ (totals[:, None] * standard) / n)
    if np.any(values < -1e-8):
        raise InputError(noisy)
    kept = values > LEAST_SPREAD
    turn = vectors[:, kept] / np.sqrt(values[kept])
    back = np.zeros((1 + design.shape[1], 1 + int(kept.sum())))
    back[0, 0] = 1.0
    back[1:, 1:] = turn / scale[:, None]
    back[0, 1:] = -centre @ back[1:, 1:]
    return Basis(np.column_stack([np.ones(len(design)), standard @ turn]), back)


def squares(basis: Basis, positive: Floats, totals: Floats, ridge: float = 0.0) -> Fitted:
    """Return the coefficients that minimise Σ (η − y)² + ridge·Σβ², y = 1 in the class and −1 outside.

    Formula: the weighted normal equations, which are linear in the counts, so negative estimates are allowed.
    Reference: Ma (2006), §6.2 with a different cost; Nakamura (1990) for signed counts.
    Cost: O(rows·columns²).
    Error: rounding only.
    """
    curvature = totals.sum() * np.eye(basis.rank) + basis.penalty(ridge)
    inverse = np.linalg.inv(curvature)
    theta = inverse @ (basis.rows.T @ (2 * positive - totals))
    return Fitted(basis.back @ theta, basis.back @ inverse @ basis.back.T)


def logistic(basis: Basis, positive: Floats, totals: Floats, ridge: float = 0.0) -> Fitted:
    """Return the coefficients that minimise Σ log(1 + e^η) − y·η + (ridge/2)·Σβ², y = 1 in the class or 0.

    Formula: Newton steps, halved until the loss falls; they end when the expected gain is below 1e-14 per
    record.
    Reference: Ma (2006), §6.2 with a different cost; Nakamura (1990) for signed counts.
    Cost: O(rows·columns²) per step, about ten steps.
    Error: rounding only. Separated classes have no finite solution without a ridge: `NotConverged`.
    """
    n = float(totals.sum())
    penalty = basis.penalty(ridge)
    theta = np.zeros(basis.rank)

    def loss(at: Floats) -> float:
        eta = basis.rows @ at
        return float(totals @ np.logaddexp(0.0, eta) - positive @ eta + at @ penalty @ at / 2)

    for _ in range(MOST_STEPS):
        chance = expit(basis.rows @ theta)
        slope = basis.rows.T @ (totals * chance - positive) + penalty @ theta
        spread = totals * chance * (1 - chance)
        curvature = basis.rows.T @ (spread[:, None] * basis.rows) + penalty
        if np.linalg.eigvalsh(curvature)[0] < FLATTEST * n:
            break
        step = np.linalg.solve(curvature, -slope)
        if -slope @ step / 2 < ENOUGH * n:
            inverse = np.linalg.inv(curvature)
            return Fitted(basis.back @ (theta + step), basis.back @ inverse @ basis.back.T)
        before, length = loss(theta), 1.0
        while length > 1e-6 and loss(theta + length * step) > before:
            length /= 2
        theta = theta + length * step
    raise NotConverged(
        "The logistic loss has no finite minimum: the features separate a class from the others (or the "
        "unbiased counts are too noisy). Give 'ridge' above 0, or use loss='squares' or 'pocket'."
    )


def pocket(
    basis: Basis, positive: Floats, totals: Floats, steps: int, generator: np.random.Generator
) -> Fitted:
    """Return the coefficients of the pocket algorithm with ratchet: few records on the wrong side.

    Formula: perceptron steps w ← w ± x on drawn configurations of the wrong side. w goes into the pocket if
    it has classified more consecutive draws correctly than the current pocket, and more records in total (the
    ratchet). Configurations are drawn with their counts as weights; Ma's chapter 6 goes through the records
    in turn and adds posterior weights instead. With up to 4,096 configurations, checking all records is so
    fast that any w may be compared with the pocket after one draw. The pocket starts with the constant that
    predicts the larger class.
    Reference: Gallant (1990); Ma (2006), §6.2.
    Cost: `steps` draws; O(rows·columns) each time a longer run challenges the pocket.
    Error: never worse than always predicting the larger class; the best hyperplane with a
    probability that tends to 1 as `steps` grows.
    """
    rows = np.vstack([basis.rows, -basis.rows])  # correct side of the boundary: > 0 in both halves
    weights = np.concatenate([positive, totals - positive])
    upper = np.cumsum(weights / weights.sum())
    drawn = np.minimum(np.searchsorted(upper, generator.random(steps), side="right"), len(rows) - 1)
    best = np.zeros(basis.rank)
    best[0] = 1.0 if 2 * positive.sum() >= totals.sum() else -1.0
    best_right, best_run = right_side(rows, weights, best), 0
    w = np.zeros(basis.rank)
    start = 0
    while start < steps:
        run = run_length(rows, drawn, start, w)
        if run > (0 if len(rows) <= ALWAYS_CHECKED else best_run):
            now = right_side(rows, weights, w)
            if now > best_right:
                best, best_right, best_run = w, now, run
        start += run
        if start < steps:
            w = w + rows[drawn[start]]
            start += 1
    return Fitted(basis.back @ (best / np.linalg.norm(best)), None)


def right_side(rows: Floats, weights: Floats, w: Floats) -> float:
    """Return the weight of the configurations on the correct side."""
    return float(weights[rows @ w > CLOSE * np.linalg.norm(w)].sum())


def run_length(rows: Floats, drawn: np.ndarray[tuple[int], np.dtype[np.intp]], start: int, w: Floats) -> int:
    """Return the number of consecutive draws from `start` on that are on the correct side.

    Blocks grow as long as all their draws are on the correct side.
    """
    level = CLOSE * np.linalg.norm(w)
    at, block = start, 8
    while at < len(drawn):
        wrong = rows[drawn[at : at + block]] @ w <= level
        if wrong.any():
            return at + int(wrong.argmax()) - start
        at, block = at + block, 2 * block
    return len(drawn) - start


def expit(eta: Floats) -> Floats:
    """Return 1/(1 + e^−η) without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -eta)))
