"""Newton steps with an active set, which converge where EM is slow: along the boundary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats, contract
from masquerade.estimate.likelihood import LikelihoodPoint, ReportLikelihood

ACCURACY = 1e-3  # relative accuracy of linear systems: more would be wasted on an approximate model
ROUNDS = 12  # how often cells may be moved to zero within one step
HALVINGS = 12
WRITTEN_OUT = 512  # largest table whose channel is formed as one matrix
RIDGE = 1e-9  # relative ridge that keeps the root of a singular curvature solvable


def newton_step(model: ReportLikelihood, point: LikelihoodPoint) -> tuple[LikelihoodPoint | None, int]:
    """Step towards the minimum over N ≥ 0 of the second-order model of the deviance.

    Formula: H = P diag(Ñ/(PᵀN)²)Pᵀ, slope 1 − g; the step d solves Hd = g − 1 on the free cells and moves all
    other cells to zero. Cells that would become negative leave the free set, and the system is solved again.
    Both ends of d are feasible, so all points between them are; the step is halved until the deviance falls.
    Reference: Bertsekas (1982) for the choice of free cells; Kim et al. (2020), mix-SQP.
    Cost: some dozens of contractions (conjugate gradients; P is never formed).
    Error: the deviance of the result is below that of `point`; None if no such point was found. The work, in
    EM steps, is returned with it.
    """
    slope = 1.0 - point.pull
    weights = np.zeros_like(model.observed)
    weights[model.present] = point.ratio[model.present] ** 2 / model.observed[model.present]
    curvature = Curvature(model, weights, contract(weights, model.squared_channels))
    free = ~((slope > 0) & (point.counts * curvature.diagonal <= slope))
    step = np.zeros_like(point.counts)
    work = 1
    for _ in range(ROUNDS):
        step, used = curvature.solve(free, slope, np.where(free, step, -point.counts))
        work += used
        negative = free & (point.counts + step < 0)
        if not negative.any():
            break
        free &= ~negative
    better, tried = _towards(model, point, np.maximum(point.counts + step, 0.0))
    return better, work + tried


def quadratic_step(model: ReportLikelihood, point: LikelihoodPoint) -> tuple[LikelihoodPoint | None, int]:
    """Step towards the exact minimum over N ≥ 0 of the second-order model of the deviance.

    Formula: min over N' ≥ 0 of |RN' − RN + R⁻ᵀ(1 − g)|² (non-negative least squares), R from the QR
    decomposition of A = diag(√Ñ/PᵀN)Pᵀ. Forming H = AᵀA would square the condition number.
    Reference: Lawson & Hanson (1974); Kim et al. (2020), mix-SQP.
    Cost: P as one matrix (reports × truths), its QR, and one least-squares problem of the size of the table.
    Error: as `newton_step`; also works where channels are too ill-conditioned for conjugate gradients.
    """
    from scipy.optimize import nnls  # noqa: PLC0415  (scipy is slow to import)

    cells = point.counts.size
    present = model.present.ravel()
    roots = point.ratio.ravel()[present] / np.sqrt(model.observed.ravel()[present])
    A = roots[:, None] * model.full_channel[present]
    lengths = np.sqrt(np.einsum("ij,ij->j", A, A))
    scale = 1.0 / np.where(lengths > 0, lengths, 1.0)
    R: Floats = np.asarray(np.linalg.qr(np.vstack([A * scale, RIDGE * np.eye(cells)]), mode="r"))
    slope = (1.0 - point.pull.ravel()) * scale
    try:
        found, _ = nnls(
            R, R @ (point.counts.ravel() / scale) - np.linalg.solve(R.T, slope), maxiter=20 * cells
        )
    except RuntimeError:  # nnls reached its limit of iterations
        return None, cells
    better, tried = _towards(model, point, (found * scale).reshape(point.counts.shape))
    return better, cells + tried


def _towards(
    model: ReportLikelihood, point: LikelihoodPoint, target: Floats
) -> tuple[LikelihoodPoint | None, int]:
    """Go to the target, halving the step until the deviance falls; return None if it does not fall."""
    if not target.any():
        return None, 0
    scale = 1.0
    for halvings in range(HALVINGS):
        candidate = model.at_normalized((1 - scale) * point.counts + scale * target)
        if model.change(point, candidate) < 0:
            return candidate, 2 * halvings + 2
        scale /= 2
    return None, 2 * HALVINGS


@dataclass(frozen=True, slots=True)
class Curvature:
    """The second derivative H = P diag(weights)Pᵀ of the deviance, as an operator."""

    model: ReportLikelihood
    weights: Floats
    diagonal: Floats

    def times(self, direction: Floats) -> Floats:
        """Return H·direction."""
        return contract(
            self.weights * contract(direction, self.model.channels), self.model.transposed_channels
        )

    def solve(self, free: NDArray[np.bool_], slope: Floats, step: Floats) -> tuple[Floats, int]:
        """Solve H·step = −slope for the free cells; return the step and the work in EM steps.

        The steps of all other cells are given. Uses conjugate gradients, scaled by the diagonal of H.
        """
        cells = slope.size
        inverse = np.zeros_like(self.diagonal)
        usable = free & (self.diagonal > 0)
        inverse[usable] = 1.0 / self.diagonal[usable]
        residual = np.where(free, -slope - self.times(step), 0.0)
        scaled = direction = inverse * residual
        size = float(np.vdot(residual, scaled))
        goal = ACCURACY**2 * float(np.sum(inverse * slope**2))
        limit = 30 + cells // 2 if cells <= WRITTEN_OUT else 4 * cells
        for used in range(limit):
            if size <= goal:
                return step, used + 1
            bent = np.where(free, self.times(direction), 0.0)
            bend = float(np.vdot(direction, bent))
            if bend <= 0:
                return step, used + 1
            step = step + (size / bend) * direction
            residual = residual - (size / bend) * bent
            scaled = inverse * residual
            previous, size = size, float(np.vdot(residual, scaled))
            direction = scaled + (size / previous) * direction
        return step, limit
