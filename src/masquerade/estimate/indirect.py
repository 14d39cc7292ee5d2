"""Models of truths observed only indirectly: through the reports of one or more groups of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from math import prod

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.evidence import Fit
from masquerade.estimate.likelihood import Likelihood, Point, likelihood
from masquerade.estimate.loglinear import Generators, design, parameters
from masquerade.estimate.loglinear_newton import is_small, newton_climb
from masquerade.estimate.reports import Reports

MIXED_IN = 1e-3  # share of the even table in the start: EM cannot leave a zero
LEVEL = 0.7  # share of the independent table in the second start
WARM_UP = 6  # accelerated EM steps before the first Newton steps
STILL = 1e-7  # what the log-likelihood gains in a step when a fit stands still
MOST_STEPS = 5_000
VANISHED = 1e-12  # share of the records below which a cell is not extrapolated
FAR = 20.0  # the most that the logarithm of a cell moves in one extrapolation


class IndirectFit:
    """The most likely truths whose table a model allows, from several starts where there may be several tops.

    `model` gives the allowed table for one that was found, and `generators` are those of a log-linear model,
    if it is one; a `start` for the table may be given.
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
        self.likelihoods: list[Likelihood] = [likelihood(part.observed, part.channels) for part in parts]
        self.n = sum(each.n for each in self.likelihoods)
        self.total = sum(part.total for part in parts)

    def fit(self, df: int) -> Fit:
        """Return the best of the fits from all starts."""
        likely = [part.most_likely() for part in self.parts]
        axes = len(self.parts[0].reduction.keep)
        if self.generators == (tuple(range(axes)),):  # every table is allowed: proven to be the best
            points, converged = self.at(likely), True
        elif all(P is None for part in self.parts for P in part.channels):
            points, converged = self.at(self.allowed(likely)), True
        else:
            fits = [self.climbed(self.at(self.allowed(start))) for start in self.starts(likely)]
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
        """Return the most likely truths; for a log-linear model also some that depend less on each other."""
        first = [(1 - MIXED_IN) * cells + MIXED_IN * cells.sum() / cells.size for cells in likely]
        starts = [first]
        if self.generators is not None:
            level = [(1 - LEVEL) * cells + LEVEL * _independent(cells) for cells in first]
            starts.append(level)
        if self.given is not None:
            found = self.table(first)
            lifted = np.maximum(self.given, MIXED_IN * self.given.sum() / self.given.size)
            factors = lifted * (found.sum() / lifted.sum()) / found
            starts.append(
                [part.scaled(cells, factors, 1.0) for part, cells in zip(self.parts, first, strict=True)]
            )
        return starts

    def climbed(self, points: Sequence[Point]) -> tuple[list[Point], bool]:
        """Climb by EM, and from time to time by Newton steps where the model is small enough for them."""
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
        """Return the design matrix of the truths, where that is what the model is about and small enough."""
        part = self.parts[0]
        keep = part.reduction.keep
        if self.generators is None or len(self.parts) > 1 or len(keep) < len(part.truths):
            return None
        moved = tuple(tuple(keep[axis] for axis in axes) for axes in self.generators)
        if not is_small(prod(part.truths), parameters(moved, part.truths)):
            return None
        return design(moved, part.truths)

    def table(self, truths: Sequence[Floats]) -> Floats:
        """Return the table of the truths of all parts."""
        tables = [part.table(cells) for part, cells in zip(self.parts, truths, strict=True)]
        return np.asarray(reduce(np.add, tables))

    def allowed(self, truths: Sequence[Floats]) -> list[Floats]:
        """Return the truths with their table replaced by the model's."""
        found = self.table(truths)
        wanted = self.model(found)
        if len(self.parts) == 1 and len(self.parts[0].reduction.keep) == len(self.parts[0].truths):
            # nothing else is open: records may be expected where none has been found
            order = np.argsort(self.parts[0].reduction.keep)
            return [np.transpose(wanted, order).reshape(truths[0].shape) / self.parts[0].weight]
        factors = np.divide(wanted, found, out=np.zeros_like(found), where=found > 0)
        outside = self.total - float(found.sum())
        rest = (self.total - float(wanted.sum())) / outside if self.fixed_total and outside > 0 else 1.0
        return [part.scaled(cells, factors, rest) for part, cells in zip(self.parts, truths, strict=True)]

    def at(self, truths: Sequence[Floats]) -> list[Point]:
        """Evaluate the likelihood of every part."""
        return [each.at(cells) for each, cells in zip(self.likelihoods, truths, strict=True)]

    def em(self, points: Sequence[Point]) -> list[Point]:
        """Take one EM step."""
        return self.at(self.allowed([point.counts * point.pull for point in points]))

    def step(self, points: Sequence[Point]) -> list[Point]:
        """Take two EM steps and extrapolate along them on the scale of logarithms, if that is likelier."""
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
        third = self.em(self.at(self.allowed(jumped)))
        return third if total_deviance(third) < total_deviance(second) else second


def _independent(cells: Floats) -> Floats:
    """Return the product of the one-way margins of a table."""
    total = float(cells.sum())
    result = np.full(cells.shape, total)
    for axis in range(cells.ndim):
        others = tuple(other for other in range(cells.ndim) if other != axis)
        result = result * cells.sum(axis=others, keepdims=True) / total
    return result


def total_deviance(points: Iterable[Point]) -> float:
    """Return how far the log-likelihood of all parts lies below that of the observed tables."""
    return float(sum(point.deviance for point in points))


def pearson_of(observed: Floats, expected: Floats) -> float:
    """Return Pearson's statistic; cells that expect nothing have none."""
    present = expected > 0
    return float(np.sum((observed[present] - expected[present]) ** 2 / expected[present]))
