"""Optimal channels by convex optimisation: weights of staircase reports, with a certificate of optimality.

A report under which every truth has weight 1 or γ is a staircase column s ∈ {1, γ}^K; every channel with this
γ is a mixture of such columns. The information of one record about the distribution θ of the truths is linear
in the weights c, and the least variance of the wanted queries is a convex function of c.
Reference: Kairouz, Oh & Viswanath (2016) for the columns; Pukelsheim (1993) for A-optimal designs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import ChannelError, NotConverged

MOST_ENUMERATED = 10  # categories up to which all 2^K columns are columns of the problem
TOLERANCE = 1e-10  # relative distance from the optimum at which the iteration stops
STEPS = 60


@dataclass(frozen=True, slots=True)
class DesignProblem:
    """Minimise tr(A·M(c)⁻¹), M(c) = Σ c_s s sᵀ/(sᵀθ), over c ≥ 0 with Σ c_s s = 1 and `limits`·c ≤ `most`.

    The rows of `columns` are staircase columns s; `wanted` is A = WᵀW for queries in the rows of W; `prior`
    is θ.
    """

    columns: Floats
    prior: Floats
    wanted: Floats
    limits: Floats | None = None
    most: float = 1.0

    def information(self, weights: Floats) -> Floats:
        """Return M(c)."""
        scaled = self.columns * (weights / (self.columns @ self.prior))[:, None]
        return np.asarray(scaled.T @ self.columns)

    def value(self, weights: Floats) -> float:
        """Return tr(A·M(c)⁻¹), the summed second moment of one record's contribution to the queries."""
        return float(np.trace(np.linalg.solve(self.information(weights), self.wanted)))


@dataclass(frozen=True, slots=True)
class DesignSolution:
    """Weights, their value, a lower bound for all weights, and the multipliers μ and ν (`price`)."""

    weights: Floats
    value: float
    bound: float
    multipliers: Floats
    price: float = 0.0


def staircase_columns(categories: int, gamma: float) -> Floats:
    """Return all columns of {1, γ}^K except the last, which has the same direction as the first."""
    return np.array(list(product((1.0, gamma), repeat=categories)))[:-1]


def solve(problem: DesignProblem, tolerance: float = TOLERANCE) -> DesignSolution:
    """Return the optimal weights by primal-dual interior-point steps, with a lower bound of the optimum.

    Formula: the gradient is −g, g_s = sᵀBs/(sᵀθ), B = M⁻¹AM⁻¹; the Hessian 2(sᵀBt)(sᵀM⁻¹t)/((sᵀθ)(tᵀθ)) has
    rank at most K(K+1)/2 and is inverted in that many dimensions. With z = Sμ − g ≥ 0, c∘z goes to zero.
    Reference: Boyd & Vandenberghe (2004), chapter 11.
    Cost: some 30 steps of O(R·K⁴/4) for R columns, O(R³) where that is less.
    Error: `value − bound`, computed; some 1e-9 of the value.
    """
    steps = _InteriorPoint(problem)
    best = steps.solution()
    for _ in range(STEPS):
        if best.value - best.bound <= tolerance * best.value or not steps.advance():
            break
        found = steps.solution()
        if found.value - found.bound < best.value - best.bound:
            best = found
    return best


def lower_bound(problem: DesignProblem, weights: Floats, mu: Floats, price: float = 0.0) -> float:
    """Return a lower bound of the value over all weights on these columns, for any μ.

    Formula: if g_s ≤ μᵀs + ν·a_s for every column, f* ≥ 2f − μᵀ1 − ν·V by convexity and Σ c_s g_s = f, with
    a = `limits`, V = `most` and ν = `price`. If μ is slightly infeasible, all its entries are raised by the
    same amount.
    """
    value, gains = problem.value(weights), gradient(problem, weights)
    price = max(price, 0.0)
    allowed = problem.columns @ mu + (0.0 if problem.limits is None else price * problem.limits)
    lift = max(float(np.max((gains - allowed) / problem.columns.sum(axis=1))), 0.0)
    return 2 * value - float(mu.sum()) - lift * len(mu) - price * (problem.most if price else 0.0)


def gradient(problem: DesignProblem, weights: Floats) -> Floats:
    """Return g_s = sᵀBs/(sᵀθ), B = M⁻¹AM⁻¹: the decrease of the value per weight on a column."""
    middle = sandwich(problem, weights)
    columns = problem.columns
    return np.asarray(((columns @ middle) * columns).sum(axis=1) / (columns @ problem.prior))


def sandwich(problem: DesignProblem, weights: Floats) -> Floats:
    """Return B = M⁻¹AM⁻¹."""
    inverse = np.linalg.inv(problem.information(weights))
    return np.asarray(inverse @ problem.wanted @ inverse)


class _InteriorPoint:
    """Weights c, multipliers μ and slacks z = Sμ − g of the columns; a limit's slack is a further weight."""

    def __init__(self, problem: DesignProblem) -> None:
        self.problem = problem
        self.own = len(problem.columns)
        self.equations, self.right = _equations(problem)
        self.weights = _interior(self.equations, self.right)
        self.multipliers = np.zeros(len(self.right))
        # all slacks as if the first weights were on the central path
        self.slacks = problem.value(self.weights[: self.own]) / len(self.weights) / self.weights

    def solution(self) -> DesignSolution:
        """Return the current weights, value and bound."""
        own = self.weights[: self.own]
        limited = self.problem.limits is not None
        price = max(float(self.multipliers[-1]), 0.0) if limited else 0.0
        mu = self.multipliers[:-1] if limited else self.multipliers
        bound = lower_bound(self.problem, own, mu, price)
        return DesignSolution(own, self.problem.value(own), bound, mu, price)

    def advance(self) -> bool:
        """Take one step. Return False if floating point allows no further step."""
        problem, columns = self.problem, self.problem.columns
        weights, slacks = self.weights, self.slacks
        scale = 1.0 / (columns @ problem.prior)
        inverse = np.asarray(np.linalg.inv(problem.information(weights[: self.own])), dtype=float)
        middle = inverse @ problem.wanted @ inverse
        gains = np.zeros(len(weights))
        gains[: self.own] = ((columns @ middle) * columns).sum(axis=1) * scale
        target = float(weights @ slacks) / len(weights) * 0.1
        slope = self.equations @ self.multipliers - gains - target / weights
        missing = self.right - self.equations.T @ weights
        diagonal = weights / slacks
        try:
            right = np.column_stack([slope, self.equations])
            solved = _solve_newton(diagonal, columns * np.sqrt(scale)[:, None], middle, inverse, right)
            inner = self.equations.T @ solved[:, 1:]
            change = np.linalg.solve(inner, -(self.equations.T @ solved[:, 0]) - missing)
        except np.linalg.LinAlgError:  # floating point allows no further step
            return False
        step = -solved[:, 0] - solved[:, 1:] @ change
        rise = target / weights - slacks - slacks / weights * step
        if not (np.all(np.isfinite(step)) and np.all(np.isfinite(rise))):
            return False
        length = min(_reach(weights, step), _reach(slacks, rise))
        self.weights = weights + length * step
        self.slacks = slacks + length * rise
        self.multipliers = self.multipliers + length * change
        return length > 1e-8


def _reach(values: Floats, step: Floats) -> float:
    """Return the step length, at most 1, up to which all values stay positive."""
    falling = step < 0
    return min(1.0, 0.99 * float(np.min(-values[falling] / step[falling]))) if falling.any() else 1.0


def _equations(problem: DesignProblem) -> tuple[Floats, Floats]:
    """Return E and b of Eᵀc = b; a limit is an equation with a slack."""
    right = np.ones(problem.columns.shape[1])
    if problem.limits is None:
        return problem.columns, right
    left = np.vstack([problem.columns, np.zeros((1, len(right)))])
    return np.column_stack([left, np.append(problem.limits, 1.0)]), np.append(right, problem.most)


def _solve_newton(
    diagonal: Floats, columns: Floats, middle: Floats, inverse: Floats, right: Floats
) -> Floats:
    """Return (diag(1/diagonal) + H)⁻¹·right, H = 2(sᵀBt)(sᵀM⁻¹t) over the columns; a slack's row is diagonal.

    H has rank at most K(K+1)/2: the system is solved in that many dimensions, or over the columns if they are
    fewer.
    """
    from scipy import linalg  # noqa: PLC0415  (scipy is slow to import)

    size, width = columns.shape
    roots = np.sqrt(diagonal)[:, None]
    scaled = roots * right
    own = columns * roots[:size]  # D½HD½ + I keeps its condition where weights go to zero
    if size <= width * (width + 1) // 2:
        hessian = 2 * (own @ middle @ columns.T) * (columns @ inverse @ own.T)
        hessian[np.diag_indices(size)] += 1.0
        scaled[:size] = linalg.cho_solve(linalg.cho_factor(hessian, check_finite=False), scaled[:size])
        return np.asarray(roots * scaled)
    # one basis makes both B and M⁻¹ diagonal: in it, H is a sum over pairs i ≤ j
    lengths, basis = linalg.eigh(middle, inverse)  # basisᵀ·M⁻¹·basis = 1, basisᵀ·B·basis = lengths
    turned = columns @ np.linalg.inv(basis).T
    first, second = np.triu_indices(width)
    strength = np.where(first == second, 2 * lengths[first], 2 * (lengths[first] + lengths[second]))
    factor = turned[:, first] * turned[:, second] * np.sqrt(np.maximum(strength, 0.0)) * roots[:size]
    inner = factor.T @ factor
    inner[np.diag_indices(len(inner))] += 1.0
    solved = linalg.cho_solve(linalg.cho_factor(inner, check_finite=False), factor.T @ scaled[:size])
    scaled[:size] -= factor @ solved
    return np.asarray(roots * scaled)


def _interior(equations: Floats, right: Floats) -> Floats:
    """Return weights that satisfy the equations, with the smallest as large as possible.

    Raises ChannelError if no positive weights do.
    """
    from scipy import optimize  # noqa: PLC0415  (scipy is slow to import)

    count = len(equations)
    even = equations.sum(axis=0) / right
    if np.ptp(even) <= 1e-12 * even[0]:
        return np.full(count, 1.0 / even[0])
    goal = np.zeros(count + 1)
    goal[-1] = -1.0
    # c = c' + t: the smallest weight t is as large as possible
    left = np.column_stack([equations.T, equations.sum(axis=0)])
    found = optimize.linprog(goal, A_eq=left, b_eq=right, bounds=[(0, None)] * (count + 1))
    if found.status == 2 or (found.status == 0 and found.x[-1] <= 0):
        raise ChannelError("no channel keeps all of these limits.")
    if found.status != 0:
        raise NotConverged(f"The search for a first channel stopped: {found.message}")
    return np.asarray(found.x[:-1] + found.x[-1])
