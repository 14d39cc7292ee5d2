"""Newton steps with an active set: they finish where EM crawls along the boundary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import AxisMap, AxisMaps, Floats, contract
from masquerade.estimate.likelihood import Likelihood, Point

ACCURACY = 1e-3  # of the linear systems: a finer solution of a rough model is wasted
ROUNDS = 12  # of moving cells to zero within one step
HALVINGS = 12
DENSE_CELLS = 512  # tables up to this size may be solved directly
RIDGE = 1e-15  # relative: keeps empty directions of the curvature solvable


def newton_step(model: Likelihood, point: Point) -> tuple[Point | None, int]:
    """Minimise the second-order model of the deviance over N ≥ 0; go there, or part of the way.

    Formula: H = P diag(Ñ/(PᵀN)²)Pᵀ, slope 1 − g; on the free cells Hd = g − 1, on the others N + d = 0.
    Cells that would turn negative join the others and the system is solved anew. Both ends of d are
    feasible, so every point between them is; the step is halved until the deviance falls.
    Reference: Bertsekas (1982) for the choice of free cells; Kim et al. (2020), mix-SQP.
    Cost: some dozens of contractions (conjugate gradients; P is never formed).
    Error: the deviance of the result is below that of `point`; None when no such point was found. Returned
    with it: the work done, in EM steps.
    """
    slope = 1.0 - point.pull
    weights = np.zeros_like(model.observed)
    weights[model.present] = point.ratio[model.present] ** 2 / model.observed[model.present]
    curvature = Curvature(model, weights, contract(weights, model.squared))
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
    target = np.maximum(point.counts + step, 0.0)
    if not target.any():
        return None, work
    scale = 1.0
    for _ in range(HALVINGS):
        candidate = model.normalised((1 - scale) * point.counts + scale * target)
        work += 2
        if model.change(point, candidate) < 0:
            return candidate, work
        scale /= 2
    return None, work


@dataclass(frozen=True, slots=True)
class Curvature:
    """The second derivative H = P diag(weights)Pᵀ of the deviance, as an operator."""

    model: Likelihood
    weights: Floats
    diagonal: Floats

    def times(self, direction: Floats) -> Floats:
        """Return H·direction."""
        return contract(self.weights * contract(direction, self.model.channels), self.model.transposed)

    def solve(self, free: NDArray[np.bool_], slope: Floats, step: Floats) -> tuple[Floats, int]:
        """Solve H·step = −slope for the free cells, the others given; return the work with it.

        Conjugate gradients, scaled by the diagonal of H; where they are slow and the table small, directly.
        """
        cells = slope.size
        inverse = np.zeros_like(self.diagonal)
        usable = free & (self.diagonal > 0)
        inverse[usable] = 1.0 / self.diagonal[usable]
        residual = np.where(free, -slope - self.times(step), 0.0)
        start, target = step, residual
        scaled = direction = inverse * residual
        size = float(np.vdot(residual, scaled))
        goal = ACCURACY**2 * float(np.sum(inverse * slope**2))
        limit = 30 + cells // 2 if cells <= DENSE_CELLS else 4 * cells
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
        if cells <= DENSE_CELLS:
            return start + self.direct(usable, inverse, target), limit + cells
        return step, limit

    def direct(self, usable: NDArray[np.bool_], inverse: Floats, target: Floats) -> Floats:
        """Solve on the usable cells with H written out (axis by axis), scaled to a unit diagonal."""
        axes = range(self.diagonal.ndim)
        maps = tuple(AxisMap((axis,), self.model.transposed[axis]) for axis in axes)
        H = AxisMaps(self.diagonal.shape, maps).pairs(self.weights, tuple(axes))
        inside = usable.ravel()
        scale = np.sqrt(inverse.ravel()[inside])
        unit = scale[:, None] * H[np.ix_(inside, inside)] * scale
        unit[np.diag_indices_from(unit)] += RIDGE * len(unit)
        solution = np.zeros(inside.size)
        solution[inside] = scale * np.linalg.solve(unit, scale * target.ravel()[inside])
        return solution.reshape(self.diagonal.shape)
