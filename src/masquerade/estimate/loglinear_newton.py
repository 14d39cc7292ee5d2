"""Newton steps on the parameters of a log-linear model fitted to reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from masquerade.core.axes import Floats
from masquerade.estimate.information import information
from masquerade.estimate.likelihood import LikelihoodPoint, ReportLikelihood

ENOUGH = 1e-9  # a fit is stationary when the predicted gain of a step in log-likelihood is below this
STEPS = 50
HALVINGS = 20
FARTHEST = 4.0  # maximum change of a cell's logarithm in one step
FLATTEST = 1e-13  # minimum curvature, as a share of the largest
MOST_PARAMETERS = 400
MOST_CELLS = 4096


@dataclass(frozen=True, slots=True)
class Stationary:
    """End point of Newton steps; `reached` is True if it is stationary."""

    point: LikelihoodPoint
    reached: bool


def is_small(cells: int, parameters: int) -> bool:
    """Return True if a model is small enough for its information matrix."""
    return cells <= MOST_CELLS and parameters <= MOST_PARAMETERS


def newton_climb(model: ReportLikelihood, point: LikelihoodPoint, X: Floats) -> Stationary:
    """Climb from a point towards a stationary point of the likelihood of the model log N = Xβ.

    Formula: β ← β + |I|⁻¹s with the slope s = Xᵀ(N(g − 1)), where |I| is the observed information with its
    eigenvalues made positive, so that the steps escape saddle points. Each step is shortened until the
    likelihood rises. Ends when ½sᵀ|I|⁻¹s < 1e-9.
    Reference: Haberman (1977); Nocedal & Wright (2006), ch. 3.4.
    Cost: one contraction of a table per parameter and O(parameters³) per step.
    Error: the likelihood never falls. Cells with expectation 0 stay empty.
    """
    for _ in range(STEPS):
        slope = X.T @ (point.counts * (point.pull - 1.0)).ravel()
        change = _solve(information(model, point.counts, X), slope)
        if float(slope @ change) / 2 < ENOUGH:
            return Stationary(point, reached=True)
        move = (X @ change).reshape(point.counts.shape)
        better = _along(model, point, move)
        if better is None:
            break
        point = better
    return Stationary(point, reached=False)


def _solve(curvature: Floats, slope: Floats) -> Floats:
    """Return |I|⁻¹s; eigenvalues are computed only if the curvature is not positive definite."""
    ridge = FLATTEST * max(float(np.diag(curvature).max(initial=0.0)), 1e-300) * np.eye(len(slope))
    try:
        lower = np.linalg.cholesky(curvature + ridge)
    except np.linalg.LinAlgError:
        values, directions = np.linalg.eigh(curvature)
        bend = np.maximum(np.abs(values), FLATTEST * max(float(np.abs(values).max()), 1e-300))
        return np.asarray(directions @ ((directions.T @ slope) / bend))
    return np.asarray(np.linalg.solve(lower.T, np.linalg.solve(lower, slope)))


def _along(model: ReportLikelihood, point: LikelihoodPoint, move: Floats) -> LikelihoodPoint | None:
    scale = min(1.0, FARTHEST / max(float(np.abs(move).max()), 1e-300))
    for _ in range(HALVINGS):
        tried = model.at_normalized(point.counts * np.exp(scale * move))
        if model.change(point, tried) < 0:
            return tried
        scale /= 2
    return None
