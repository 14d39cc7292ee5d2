"""Random intercepts: each group's predictor is shifted by σu, u standard normal, and u is integrated out.

The integral is by adaptive Gauss–Hermite quadrature about each group's mode. The result is a likelihood like
the others, with σ as its last coefficient, so that tests and profile intervals are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.stats.regression.likelihood import Derivatives, RegressionLikelihood
from masquerade.stats.regression.problem import Problem

NODES = 9
MODE_STEPS = 50
LEAST_CURVATURE = 0.05  # least curvature of a group's joint density, which need not be log-concave
SD = "sd of groups"


@dataclass(frozen=True, eq=False)
class MixedLikelihood(RegressionLikelihood):
    """A likelihood with a random intercept of groups; its last parameter is the standard deviation.

    Attributes
    ----------
    group : array (rows,)
        Index of each row's group.
    loadings : array (predictors,)
        Change of each predictor per unit of the intercept.
    nodes : int
        Number of points of the quadrature.
    """

    group: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    loadings: Floats = field(default_factory=lambda: np.ones(1))
    nodes: int = NODES
    modes: dict[str, Floats] = field(default_factory=dict)
    order: NDArray[np.intp] = field(init=False)
    first: NDArray[np.intp] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "parameters", self.parameters + 1)
        order = np.argsort(self.group, kind="stable")
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "first", np.searchsorted(self.group[order], np.unique(self.group)))

    @property
    def is_cheap(self) -> bool:
        """Return False: every value is an integral."""
        return False

    @property
    def groups(self) -> int:
        """Return the number of groups."""
        return len(self.first)

    def value(self, beta: Floats) -> float:
        """Return ℓ(β, σ)."""
        if not self.model.is_feasible(self.predictors(beta)):
            return -np.inf
        u, curvature = self._find_modes(beta)
        logs = np.empty((self.nodes, self.groups))
        for q, (node, weight) in enumerate(self._nodes(u, curvature)):
            logs[q] = np.bincount(self.group, self._records(beta, beta[-1] * node)[0]) + weight
        total = float(_log_sum(logs)[0].sum())
        return total if np.isfinite(total) else -np.inf

    def predictors(self, beta: Floats, rows: slice = slice(None)) -> Floats:
        """Return η of an average group."""
        return super().predictors(beta[:-1], rows)

    def scores(self, beta: Floats) -> Floats:
        """Return the score of every group."""
        logs, slopes, _ = self._integrands(beta)
        return np.asarray(np.einsum("qj,qjp->jp", _log_sum(logs)[1], slopes))

    def outer(self, beta: Floats) -> Floats:
        """Return the sum of the outer products of the groups' scores."""
        scores = self.scores(beta)
        return np.asarray(scores.T @ scores)

    def derivatives(self, beta: Floats, *, complete_too: bool = False) -> Derivatives:
        """Return ℓ, its gradient and information by Louis' identity, with intercepts as missing data."""
        P = self.parameters
        if not self.model.is_feasible(self.predictors(beta)):
            return Derivatives(-np.inf, np.zeros(P), np.zeros((P, P)), None)
        logs, slopes, bends = self._integrands(beta)
        each, post = _log_sum(logs)
        scores = np.einsum("qj,qjp->jp", post, slopes)
        flat = slopes.reshape(-1, P)
        H = flat.T @ (post.reshape(-1, 1) * flat) - scores.T @ scores
        for a, b in np.ndindex(len(self.designs), len(self.designs)):
            weight, by_node, by_square = np.zeros((3, self.n))
            for q, (node, bend) in enumerate(bends):
                part = post[q, self.group] * bend[:, a, b]
                weight += part
                by_node += part * node[self.group]
                by_square += part * node[self.group] ** 2
            Za, Zb = self.designs[a], self.designs[b]
            H[np.ix_(self.index[a], self.index[b])] += (Za * weight[:, None]).T @ Zb
            H[self.index[a], -1] += self.loadings[b] * (by_node @ Za)
            H[-1, self.index[b]] += self.loadings[a] * (by_node @ Zb)
            H[-1, -1] += self.loadings[a] * self.loadings[b] * by_square.sum()
        value = float(each.sum())
        return Derivatives(
            value if np.isfinite(value) else -np.inf,
            scores.sum(axis=0),
            -(H + H.T) / 2,
            scores.T @ scores if complete_too else None,
        )

    def numeric_slope(self, beta: Floats) -> Floats | None:
        """Return a finite-difference gradient: the analytic gradient has the quadrature's error."""
        steps = 1e-5 * np.eye(self.parameters)
        return np.array([(self.value(beta + step) - self.value(beta - step)) / 2e-5 for step in steps])

    def _records(self, beta: Floats, shift: Floats) -> tuple[Floats, Floats, Floats]:
        """Return weighted log P(report) of rows, and its first and second derivatives in the predictors."""
        eta = self.predictors(beta) + shift[self.group][:, None] * self.loadings
        log_q, post, s, h = self._posterior(eta, slice(0, self.n))
        m = self.model.predictors
        slopes, bends = np.empty((m, self.n)).T, np.empty((m, m, self.n)).T
        for a in range(m):
            slopes[:, a] = (post * s[..., a]).sum(axis=1)
        for a in range(m):
            for b in range(a, m):
                bend = (post * (h[..., a, b] + s[..., a] * s[..., b])).sum(axis=1)
                bends[:, a, b] = bends[:, b, a] = (bend - slopes[:, a] * slopes[:, b]) * self.weights
        return log_q * self.weights, slopes * self.weights[:, None], bends

    def _integrands(self, beta: Floats) -> tuple[Floats, Floats, list[tuple[Floats, Floats]]]:
        """Return the log-integrands by node and group, their slopes, and second derivatives by node."""
        u, curvature = self._find_modes(beta)
        logs = np.empty((self.nodes, self.groups))
        slopes = np.zeros((self.nodes, self.groups, self.parameters))
        bends = []
        for q, (node, weight) in enumerate(self._nodes(u, curvature)):
            log_q, g, bend = self._records(beta, beta[-1] * node)
            logs[q] = np.bincount(self.group, log_q) + weight
            for place, (design, index) in enumerate(zip(self.designs, self.index, strict=True)):
                slopes[q][:, index] += np.add.reduceat(
                    (design * g[:, place : place + 1])[self.order], self.first
                )
            slopes[q, :, -1] = node * np.bincount(self.group, g @ self.loadings)
            bends.append((node, bend))
        return logs, slopes, bends

    def _nodes(self, u: Floats, curvature: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Yield the groups' points of the quadrature and the logarithms of their weights."""
        width = np.sqrt(2 / curvature)
        for x, w in zip(*_quadrature(self.nodes), strict=True):
            node = u + width * x
            yield node, x * x + np.log(w) + np.log(width) - node**2 / 2 - 0.5 * np.log(2 * np.pi)

    def _find_modes(self, beta: Floats) -> tuple[Floats, Floats]:
        """Return each group's mode and the curvature there, by damped Newton steps of all groups together."""
        sd = float(beta[-1])

        def evaluate(u: Floats) -> tuple[Floats, Floats, Floats]:
            log_q, g, bends = self._records(beta, sd * u)
            bend = np.einsum("nab,a,b->n", bends, self.loadings, self.loadings)
            return (
                np.bincount(self.group, log_q) - u * u / 2,
                sd * np.bincount(self.group, g @ self.loadings) - u,
                np.asarray(1 - sd * sd * np.bincount(self.group, bend), dtype=float),
            )

        u = self.modes.get("u", np.zeros(self.groups))
        now, slope, curvature = evaluate(u)
        for _ in range(MODE_STEPS):
            if np.abs(slope).max() < 1e-9:
                break
            step = slope / np.maximum(curvature, 0.2)
            length = np.ones(self.groups)
            for _ in range(12):
                new = u + length * step
                value, slope, curvature = evaluate(new)
                worse = value < now - 1e-12
                if not worse.any():
                    break
                length[worse] /= 2
            u, now = new, value
        self.modes["u"] = u
        return u, np.maximum(curvature, LEAST_CURVATURE)


def _log_sum(logs: Floats) -> tuple[Floats, Floats]:
    """Return the logarithm of the sum over nodes, and each node's share of it."""
    top = logs.max(axis=0)
    raised = np.exp(logs - top)
    total = raised.sum(axis=0)
    return np.log(total) + top, raised / total


@lru_cache(maxsize=8)
def _quadrature(nodes: int) -> tuple[Floats, Floats]:
    """Return the points and weights of Gauss–Hermite quadrature."""
    points, weights = np.polynomial.hermite.hermgauss(nodes)
    return points, weights


def with_random_intercept(problem: Problem, kind: str, group: NDArray[np.intp]) -> Problem:
    """Return the problem with a random intercept of the groups.

    Parameters
    ----------
    problem : Problem
        Likelihood without the intercept, in which each row belongs to a single group.
    kind : str
        Type of regression, for example "logistic".
    group : array (records,)
        Index of each record's group.

    Raises
    ------
    InputError
        If this type of regression cannot have a random intercept.
    """
    own = problem.likelihood
    if not own.is_flat or kind not in ("logistic", "proportional odds", "poisson"):
        raise InputError(
            "Random intercepts are for logistic, ordinal and Poisson regressions with clear covariates."
        )
    if own.has_penalty:
        raise InputError("Random intercepts and Jeffreys' penalty cannot be combined.")
    of_row = np.zeros(own.n, dtype=np.intp)
    of_row[problem.row_of] = group
    loadings = np.zeros(own.model.predictors)
    if kind == "proportional odds":
        loadings[: len(problem.labels) - 1] = -1.0
    else:
        loadings[0] = 1.0
    mixed = MixedLikelihood(
        own.chances, own.model, own.designs, own.index, own.weights, group=of_row, loadings=loadings
    )
    return replace(
        problem,
        likelihood=mixed,
        nuisance=(*problem.nuisance, SD),
        starts=tuple(np.append(start, 0.5) for start in problem.starts),
    )
