"""Models of truths observed only indirectly: through the reports of one or more groups of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.evidence import Fit
from masquerade.estimate.likelihood import Likelihood, Point, likelihood
from masquerade.estimate.reports import Reports

MIXED_IN = 1e-3  # share of the even table in the start: EM cannot leave a zero
STILL = 1e-7  # fall of the log-likelihood gap in a step below which a fit stands still
MOST_STEPS = 20_000
VANISHED = 1e-12  # share of the records below which a cell is not extrapolated
FAR = 20.0  # the most that the logarithm of a cell moves in one extrapolation


class IndirectFit:
    """EM towards the most likely truths whose table a model allows."""

    def __init__(
        self, parts: Sequence[Reports], model: Callable[[Floats], Floats], *, fixed_total: bool
    ) -> None:
        self.parts, self.model, self.fixed_total = parts, model, fixed_total
        self.likelihoods: list[Likelihood] = [likelihood(part.observed, part.channels) for part in parts]
        self.n = sum(each.n for each in self.likelihoods)
        self.total = sum(part.total for part in parts)

    def fit(self, df: int) -> Fit:
        """Climb until nothing changes."""
        points = self.at(self.allowed([self.start(part) for part in self.parts]))
        converged = all(P is None for part in self.parts for P in part.channels)
        for _ in range(0 if converged else MOST_STEPS):
            before = total_deviance(points)
            points = self.step(points)
            if before - total_deviance(points) <= STILL:
                converged = True
                break
        expected = self.table([point.counts for point in points])
        log_likelihood = sum(
            each.log_likelihood(point) for each, point in zip(self.likelihoods, points, strict=True)
        )
        pearson = sum(
            pearson_of(each.observed, point.expected)
            for each, point in zip(self.likelihoods, points, strict=True)
        )
        return Fit(expected, 2 * total_deviance(points), df, pearson, log_likelihood, converged)

    def start(self, part: Reports) -> Floats:
        """Return the most likely truths of a part, mixed with the even table."""
        likely = part.most_likely()
        if all(P is None for P in part.channels):
            return likely
        return np.asarray((1 - MIXED_IN) * likely + MIXED_IN * likely.sum() / likely.size)

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
            return [np.transpose(wanted, order).reshape(truths[0].shape)]
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
        length = float(np.sqrt(np.vdot(r, r))) / max(float(np.sqrt(np.vdot(v, v))), 1e-300)
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


def total_deviance(points: Iterable[Point]) -> float:
    """Return how far the log-likelihood of all parts lies below that of the observed tables."""
    return float(sum(point.deviance for point in points))


def pearson_of(observed: Floats, expected: Floats) -> float:
    """Return Pearson's statistic; cells that expect nothing have none."""
    present = expected > 0
    return float(np.sum((observed[present] - expected[present]) ** 2 / expected[present]))
