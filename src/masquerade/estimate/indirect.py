"""Fits of models of true values that are observed only through reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from math import prod

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.evidence import Fit
from masquerade.estimate.likelihood import LikelihoodPoint, ReportLikelihood, likelihood
from masquerade.estimate.loglinear import Generators, design, parameters
from masquerade.estimate.loglinear_newton import is_small, newton_climb
from masquerade.estimate.reports import Reports

MIXED_IN = 1e-3  # share of the uniform table in the start: EM cannot leave a zero
LEVEL = 0.7  # share of the independent table in the second start
WARM_UP = 6  # accelerated EM steps before the first Newton steps
STILL = 1e-7  # a fit has converged when the log-likelihood gains less than this in a step
MOST_STEPS = 5_000
VANISHED = 1e-12  # cells below this share of the records are not extrapolated
FAR = 20.0  # maximum change of a cell's logarithm in one extrapolation


class IndirectFit:
    """The most likely true counts whose table satisfies a model.

    If the likelihood may have several maxima, it is maximized from several starting tables. `model` maps a
    table to the nearest table that the model allows. `generators` are the generators of a log-linear model,
    None for other models. `start` is a further starting table. With `fixed_total`, true values outside the
    table are scaled so that the total of all records is kept.
    """

    def __init__(
        self,
        parts: Sequence[Reports],
        model: Callable[[Floats], Floats],
        generators: Generators | None = None,
        *,
        fixed_total: bool = False,
        start: Floats | None = None,
    ) -> None:
        self.parts, self.model, self.fixed_total = parts, model, fixed_total
        self.generators, self.given = generators, start
        self.likelihoods: list[ReportLikelihood] = [
            likelihood(part.observed, part.channels) for part in parts
        ]
        self.n = sum(each.n for each in self.likelihoods)
        self.total = sum(part.total for part in parts)

    def fit(self, df: int) -> Fit:
        """Return the best of the fits from all starts."""
        likely = [part.most_likely() for part in self.parts]
        axes = len(self.parts[0].reduction.keep)
        if self.generators == (tuple(range(axes)),):  # the saturated model: proven to be optimal
            points, converged = self.at(likely), True
        elif all(P is None for part in self.parts for P in part.channels):
            points, converged = self.at(self.apply_model(likely)), True
        else:
            fits = [self.climb(self.at(self.apply_model(start))) for start in self.starts(likely)]
            points, converged = min(fits, key=lambda each: total_deviance(each[0]))
        expected = self.table([point.counts for point in points])
        log_likelihood = sum(
            each.log_likelihood(point) for each, point in zip(self.likelihoods, points, strict=True)
        )
        pearson = sum(
            pearson_of(each.observed, point.expected)
            for each, point in zip(self.likelihoods, points, strict=True)
        )
        return Fit(expected, 2 * total_deviance(points), df, pearson, log_likelihood, converged)

    def starts(self, likely: Sequence[Floats]) -> list[list[Floats]]:
        """Return the starting points: the most likely truths, weaker dependence, and the given start."""
        first = [(1 - MIXED_IN) * cells + MIXED_IN * cells.sum() / cells.size for cells in likely]
        starts = [first]
        if self.generators is not None:
            level = [(1 - LEVEL) * cells + LEVEL * _independent(cells) for cells in first]
            starts.append(level)
        if self.given is not None:
            table = self.table(first)
            lifted = np.maximum(self.given, MIXED_IN * self.given.sum() / self.given.size)
            factors = lifted * (table.sum() / lifted.sum()) / table
            starts.append(
                [part.scale_cells(cells, factors, 1.0) for part, cells in zip(self.parts, first, strict=True)]
            )
        return starts

    def climb(self, points: Sequence[LikelihoodPoint]) -> tuple[list[LikelihoodPoint], bool]:
        """Maximize by EM, with occasional Newton steps if the model is small enough."""
        X = self.design()
        climbing, calm, patience = list(points), 0, WARM_UP
        for steps in range(1, MOST_STEPS):
            before = total_deviance(climbing)
            climbing = self.step(climbing)
            gained = before - total_deviance(climbing)
            calm = calm + 1 if gained <= STILL else 0
            if X is not None and (steps >= patience or calm):
                ended = newton_climb(self.likelihoods[0], climbing[0], X)
                climbing, patience = [ended.point], 2 * steps
                if ended.reached:
                    return climbing, True
            if calm > 1:
                return climbing, True
        return climbing, False

    def design(self) -> Floats | None:
        """Return the design matrix of the true values; None if it is too large or values are summed over.

        True values outside the table have one parameter each.
        """
        part = self.parts[0]
        keep, truths = part.reduction.keep, part.truths
        if self.generators is None or len(self.parts) > 1 or len(keep) < len(truths):
            return None
        moved = tuple(tuple(keep[axis] for axis in axes) for axes in self.generators)
        among = dict(part.reduction.among)
        shape = tuple(len(among[axis]) if axis in among else size for axis, size in enumerate(truths))
        columns, free = parameters(moved, shape), prod(truths) - prod(shape)
        if not is_small(prod(truths), columns + free):
            return None
        if not among:
            return design(moved, truths)
        inside = np.zeros(truths, dtype=bool)
        inside[part.reduction.index(truths)] = True
        X = np.zeros((prod(truths), columns + free))
        X[inside.ravel(), :columns] = design(moved, shape)
        X[~inside.ravel(), columns:] = np.eye(free)
        return X

    def table(self, truths: Sequence[Floats]) -> Floats:
        """Return the table of the true counts of all parts."""
        tables = [part.table(cells) for part, cells in zip(self.parts, truths, strict=True)]
        return np.asarray(reduce(np.add, tables))

    def apply_model(self, truths: Sequence[Floats]) -> list[Floats]:
        """Return the true counts with their table replaced by the model's."""
        current = self.table(truths)
        target = self.model(current)
        if len(self.parts) == 1 and self.parts[0].reduction.is_complete(len(self.parts[0].truths)):
            # the table contains all true values, so the model may fill cells that are now empty
            order = np.argsort(self.parts[0].reduction.keep)
            return [np.transpose(target, order).reshape(truths[0].shape) / self.parts[0].weight]
        factors = np.divide(target, current, out=np.zeros_like(current), where=current > 0)
        outside = self.total - float(current.sum())
        rest = (self.total - float(target.sum())) / outside if self.fixed_total and outside > 0 else 1.0
        return [
            part.scale_cells(cells, factors, rest) for part, cells in zip(self.parts, truths, strict=True)
        ]

    def at(self, truths: Sequence[Floats]) -> list[LikelihoodPoint]:
        """Return the likelihood of each part at these true counts."""
        return [each.at(cells) for each, cells in zip(self.likelihoods, truths, strict=True)]

    def em(self, points: Sequence[LikelihoodPoint]) -> list[LikelihoodPoint]:
        """Return the points after one EM step."""
        return self.at(self.apply_model([point.counts * point.pull for point in points]))

    def step(self, points: Sequence[LikelihoodPoint]) -> list[LikelihoodPoint]:
        """Return the points after two EM steps, extrapolated on the log scale if that is more likely."""
        first = self.em(points)
        second = self.em(first)
        cells = [np.concatenate([point.counts.ravel() for point in each]) for each in (points, first, second)]
        moving = np.min(cells, axis=0) > VANISHED * self.n
        logs = np.log(np.stack(cells)[:, moving])
        r, v = logs[1] - logs[0], logs[2] - 2 * logs[1] + logs[0]
        length = float(np.sqrt(np.vdot(r, r) / max(float(np.vdot(v, v)), 1e-300)))
        if not length > 1:
            return second
        far = cells[2].copy()
        far[moving] *= np.exp(np.clip(logs[0] + 2 * length * r + length**2 * v - logs[2], -FAR, FAR))
        cuts = np.cumsum([point.counts.size for point in points])[:-1]
        jumped = [
            part.reshape(point.counts.shape) * (point.counts.sum() / part.sum())
            for part, point in zip(np.split(far, cuts), second, strict=True)
        ]
        third = self.em(self.at(self.apply_model(jumped)))
        return third if total_deviance(third) < total_deviance(second) else second


def _independent(cells: Floats) -> Floats:
    """Return the product of the one-way margins of a table."""
    total = float(cells.sum())
    result = np.full(cells.shape, total)
    for axis in range(cells.ndim):
        others = tuple(other for other in range(cells.ndim) if other != axis)
        result = result * cells.sum(axis=others, keepdims=True) / total
    return result


def total_deviance(points: Iterable[LikelihoodPoint]) -> float:
    """Return the total deviance of all parts: the log-likelihood lost against the observed tables."""
    return float(sum(point.deviance for point in points))


def pearson_of(observed: Floats, expected: Floats) -> float:
    """Return Pearson's statistic; cells with expectation 0 are skipped."""
    present = expected > 0
    return float(np.sum((observed[present] - expected[present]) ** 2 / expected[present]))
