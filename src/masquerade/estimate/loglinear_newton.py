"""Newton steps on the parameters of a log-linear model behind channels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from masquerade.core.axes import Floats
from masquerade.estimate.information import information
from masquerade.estimate.likelihood import Likelihood, Point

ENOUGH = 1e-9  # what a step promises to the log-likelihood at which a fit is stationary
STEPS = 50
HALVINGS = 20
FARTHEST = 4.0  # the most that the logarithm of a cell moves in one step
FLATTEST = 1e-13  # curvature, as a share of the largest, that is taken at least
MOST_PARAMETERS = 400
MOST_CELLS = 4096


@dataclass(frozen=True, slots=True)
class Stationary:
    """Where Newton steps ended, and whether nothing more is promised there."""

    point: Point
    reached: bool


def is_small(cells: int, parameters: int) -> bool:
    """Tell whether a model is small enough for its information to be written out."""
    return cells <= MOST_CELLS and parameters <= MOST_PARAMETERS


def newton_climb(model: Likelihood, point: Point, X: Floats) -> Stationary:
    """Climb from a point of the model log N = Xβ to where the log-likelihood is stationary.

    Formula: β ← β + |I|⁻¹Xᵀ(N(g − 1)), I the observed information with its eigenvalues made positive, so that
    saddles are left; shortened until the likelihood rises. Ends when ½sᵀ|I|⁻¹s < 1e-9, s the slope.
    Reference: Haberman (1977); Nocedal & Wright (2006), ch. 3.4.
    Cost: one contraction of a table for every parameter and O(parameters³) a step.
    Error: the likelihood never falls. Cells that expect nothing stay empty.
    """
    for _ in range(STEPS):
        slope = X.T @ (point.counts * (point.pull - 1.0)).ravel()
        change = _solved(information(model, point.counts, X), slope)
        if float(slope @ change) / 2 < ENOUGH:
            return Stationary(point, reached=True)
        move = (X @ change).reshape(point.counts.shape)
        better = _along(model, point, move)
        if better is None:
            break
        point = better
    return Stationary(point, reached=False)


def _solved(curvature: Floats, slope: Floats) -> Floats:
    """Return |I|⁻¹s; the eigenvalues are needed only where the curvature is not positive already."""
    ridge = FLATTEST * max(float(np.diag(curvature).max(initial=0.0)), 1e-300) * np.eye(len(slope))
    try:
        lower = np.linalg.cholesky(curvature + ridge)
    except np.linalg.LinAlgError:
        values, directions = np.linalg.eigh(curvature)
        bend = np.maximum(np.abs(values), FLATTEST * max(float(np.abs(values).max()), 1e-300))
        return np.asarray(directions @ ((directions.T @ slope) / bend))
    return np.asarray(np.linalg.solve(lower.T, np.linalg.solve(lower, slope)))


def _along(model: Likelihood, point: Point, move: Floats) -> Point | None:
    scale = min(1.0, FARTHEST / max(float(np.abs(move).max()), 1e-300))
    for _ in range(HALVINGS):
        tried = model.normalised(point.counts * np.exp(scale * move))
        if model.change(point, tried) < 0:
            return tried
        scale /= 2
    return None
