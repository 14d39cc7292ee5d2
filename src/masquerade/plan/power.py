"""Power of tests and of BIC links between two disguised variables, and the number of people needed.

The statistic is the deviance of the reports from independence. Under a given truth its non-centrality is 2n
times the Kullback–Leibler divergence of the distribution of the reports from the fitted null distribution.
This also holds for rare categories, where the approximation by the local Fisher information fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_point
from masquerade.core.errors import InputError

Rule = Literal["test", "bic"]
FEWEST = 10.0  # if some report is expected less often than this, the power is simulated
RUNS = 4000
FITTED = 1000  # number of simulations if each needs two fits
STEPS, HALVINGS = 40, 12
MOST_PEOPLE = 10**12


@dataclass(frozen=True, slots=True)
class PairReports:
    """Forms of the reports on two variables, separate or joint, with their probabilities.

    `parts` are pairs: the probability of a form of report, and its matrix P (cells of the pair × reports).
    """

    sizes: tuple[int, int]
    parts: tuple[tuple[float, Floats], ...]

    def divergence(self, truth: Floats) -> float:
        """Return the Kullback–Leibler divergence of the reports from the closest independent distribution."""
        return _nearest(self, truth)

    def rarest(self, truth: Floats) -> float:
        """Return the least positive probability of a report."""
        flat = truth.ravel()
        laws = [chance * (flat @ matrix) for chance, matrix in self.parts]
        return min(float(law[law > 0].min()) for law in laws)


def associated_table(first: Floats, second: Floats, phi: float) -> Floats:
    """Return the table with these margins and effect size φ.

    The codes are associated positively, or negatively if only a negative association can have this φ.
    Formula: θ = π_x π_z + s·a bᵀ with a, b the centred scores times the margins, Σ(θ−θ0)²/θ0 = φ².
    """
    independent = np.outer(first, second)
    if phi <= 0:
        return independent
    across = _scores(first)
    down = _scores(second)
    change = np.outer(first * across, second * down)
    # the scores have mean 0 and variance 1: the change alone has φ = 1
    largest = _room(independent, change)
    if phi > largest:
        if phi > _room(independent, -change):
            most = max(largest, _room(independent, -change))
            raise InputError(
                f"an association of φ = {phi:g} is impossible with these margins; the largest is {most:.3g}."
            )
        change = -change
    return np.asarray(independent + phi * change)


def largest_association(first: Floats, second: Floats) -> tuple[Floats, float]:
    """Return the strongest departure from independence with these margins, divided by its φ, and this φ.

    Formula: the difference between the independent table and the table in which both variables rise together
    as far as the margins allow, or one rises as the other falls, whichever has the larger φ.
    Reference: Fréchet (1951).
    """
    independent = np.outer(first, second)
    below, above = np.cumsum(first), np.cumsum(second)
    together = np.minimum.outer(below, above)
    apart = np.maximum(np.add.outer(below, above) - 1, 0.0)
    directions = []
    for corner in (together, apart):
        table = np.diff(np.diff(corner, axis=0, prepend=0.0), axis=1, prepend=0.0)
        size = math.sqrt(float(np.sum((table - independent) ** 2 / independent)))
        directions.append((size, (table - independent) / max(size, 1e-300)))
    size, change = max(directions, key=lambda pair: pair[0])
    return change, size


def _scores(margin: Floats) -> Floats:
    scores = np.arange(len(margin), dtype=float)
    centred = scores - margin @ scores
    return np.asarray(centred / math.sqrt(float(margin @ centred**2)))


def _room(independent: Floats, change: Floats) -> float:
    falling = change < 0
    return float(np.min(independent[falling] / -change[falling]))


def power(reports: PairReports, truth: Floats, n: int, rule: Rule = "test", level: float = 0.05) -> float:
    """Return the probability that an association is detected in n records.

    Formula: P(χ'²_df(2n·KL) > threshold), the threshold χ²_{df,1−level} or df·ln n. If a report is expected
    fewer than ten times, the power is simulated with a fixed seed. Unless the variables have two separate
    square channels, the deviance compares the fitted likelihoods of any table and of independent variables.
    Reference: Cohen (1988) for the test; Rao & Scott (1981) for the design effect that this replaces.
    """
    from scipy import stats  # noqa: PLC0415  (scipy is slow to import)

    freedom = (reports.sizes[0] - 1) * (reports.sizes[1] - 1)
    if n * reports.rarest(truth) < FEWEST:
        found = _simulate_power if _separate(reports) else _simulate_power_by_fits
        return found(reports, truth, n, _threshold(freedom, n, rule, level))
    centre = 2 * n * reports.divergence(truth)
    return float(stats.ncx2.sf(_threshold(freedom, n, rule, level), freedom, max(centre, 1e-12)))


def people_needed(
    reports: PairReports, truth: Floats, wanted: float = 0.8, rule: Rule = "test", level: float = 0.05
) -> int:
    """Return the least number of records that detects an association with the requested power."""
    from scipy import optimize, stats  # noqa: PLC0415  (scipy is slow to import)

    freedom = (reports.sizes[0] - 1) * (reports.sizes[1] - 1)
    divergence = reports.divergence(truth)
    if divergence <= 1e-300:
        return MOST_PEOPLE

    def short(log_n: float) -> float:
        n = math.exp(log_n)
        threshold = _threshold(freedom, n, rule, level)
        return float(stats.ncx2.sf(threshold, freedom, 2 * n * divergence) - wanted)

    high = math.log(20)
    while short(high) < 0:
        high += 0.5
        if high > math.log(MOST_PEOPLE):
            return MOST_PEOPLE
    if high == math.log(20):
        return 20
    return math.ceil(math.exp(optimize.brentq(short, high - 0.5, high, xtol=1e-6)))


def detectable(
    reports: PairReports,
    margins: tuple[Floats, Floats],
    n: int,
    *,
    wanted: float = 0.8,
    rule: Rule = "test",
    level: float = 0.05,
) -> float:
    """Return the least φ that n records detect with the requested power; infinite if there is none."""
    from scipy import optimize, stats  # noqa: PLC0415  (scipy is slow to import)

    independent = np.outer(*margins)
    change = associated_table(*margins, phi=1e-6) - independent
    most = 0.999 * _room(independent, change / 1e-6)
    freedom = (reports.sizes[0] - 1) * (reports.sizes[1] - 1)
    threshold = _threshold(freedom, n, rule, level)
    centre = optimize.brentq(lambda c: float(stats.ncx2.sf(threshold, freedom, c) - wanted), 1e-9, 1e7)

    def short(phi: float) -> float:
        return float(2 * n * reports.divergence(associated_table(*margins, phi=phi)) - centre)

    if short(most) < 0:
        return math.inf
    return float(optimize.brentq(short, 1e-6, most, rtol=1e-4))


def _threshold(freedom: int, n: float, rule: Rule, level: float) -> float:
    return freedom * math.log(n) if rule == "bic" else chi_square_point(level, freedom)


def _nearest(reports: PairReports, truth: Floats) -> float:
    """Return the least divergence from independence; the search starts at the margins of the true table."""
    from scipy import optimize  # noqa: PLC0415  (scipy is slow to import)

    laws = [(chance, truth.ravel() @ matrix, matrix) for chance, matrix in reports.parts]
    margins = [truth.sum(axis=1), truth.sum(axis=0)]

    def divergence(first: Floats, second: Floats) -> float:
        flat = np.outer(first, second).ravel()
        total = 0.0
        for chance, law, matrix in laws:
            seen = law > 0
            total += chance * float((law[seen] * np.log(law[seen] / (flat @ matrix)[seen])).sum())
        return total

    if _separate(reports):
        return divergence(*margins)
    rows = len(margins[0])

    def at(values: Floats) -> float:
        first = np.append(0.0, values[: rows - 1])
        second = np.append(0.0, values[rows - 1 :])
        return divergence(np.exp(first) / np.exp(first).sum(), np.exp(second) / np.exp(second).sum())

    start = np.concatenate([np.log(margin[1:] / margin[0]) for margin in margins])
    found = optimize.minimize(at, start, method="BFGS", options={"gtol": 1e-10})
    return min(float(found.fun), divergence(*margins))


def _separate(reports: PairReports) -> bool:
    """Return True if the pair has two separate square channels; then the true margins fit best."""
    if len(reports.parts) != 1:
        return False
    matrix = reports.parts[0][1]
    rows, columns = reports.sizes
    if matrix.shape != (rows * columns, rows * columns):
        return False
    parts = matrix.reshape(rows, columns, rows, columns)
    across, down = parts.sum(axis=3)[:, 0, :], parts.sum(axis=2)[0, :, :]
    return bool(np.allclose(parts, across[:, None, :, None] * down[None, :, None, :], atol=1e-12))


def _simulate_power(reports: PairReports, truth: Floats, n: int, threshold: float) -> float:
    """Return the share of simulations whose reports deviate from independence by more than the threshold."""
    law = truth.ravel() @ reports.parts[0][1]
    drawn = np.random.default_rng(8675309).multinomial(n, law / law.sum(), size=RUNS)
    tables = drawn.reshape(RUNS, *reports.sizes).astype(float)
    expected = tables.sum(axis=2)[:, :, None] * tables.sum(axis=1)[:, None, :] / n
    ratio = np.divide(tables, expected, out=np.ones_like(tables), where=tables > 0)
    deviance = 2 * (tables * np.log(ratio)).sum(axis=(1, 2))
    return float(np.mean(deviance > threshold))


def _simulate_power_by_fits(reports: PairReports, truth: Floats, n: int, threshold: float) -> float:
    """Return the share of simulations in which a saturated table fits better by more than the threshold."""
    rng = np.random.default_rng(8675309)
    told = rng.multinomial(n, _chances(reports), size=FITTED)
    drawn = []
    for place, (_, matrix) in enumerate(reports.parts):
        law = truth.ravel() @ matrix
        drawn.append(rng.multinomial(told[:, place], law / law.sum()).astype(float))
    start = truth.ravel()
    cells = len(start)
    free = np.eye(cells)[:, :-1] - np.eye(cells)[:, -1:]  # directions that preserve the sum of a table

    def any_table(values: Floats) -> tuple[Floats, Floats]:
        return start + values @ free.T, np.broadcast_to(free, (len(values), *free.shape))

    rows, columns = reports.sizes
    across, down = np.log(truth.sum(axis=1)), np.log(truth.sum(axis=0))

    def independent(values: Floats) -> tuple[Floats, Floats]:
        first = _softmax(across + np.pad(values[:, : rows - 1], ((0, 0), (1, 0))))
        second = _softmax(down + np.pad(values[:, rows - 1 :], ((0, 0), (1, 0))))
        # ∂π_i/∂β_k = π_i(δ_ik − π_k)
        by_first = first[:, :, None] * (np.eye(rows)[:, 1:] - first[:, None, 1:])
        by_second = second[:, :, None] * (np.eye(columns)[:, 1:] - second[:, None, 1:])
        slopes = np.concatenate(
            [
                np.einsum("rik,rj->rijk", by_first, second),
                np.einsum("ri,rjk->rijk", first, by_second),
            ],
            axis=3,
        )
        table = first[:, :, None] * second[:, None, :]
        return table.reshape(len(values), cells), slopes.reshape(len(values), cells, -1)

    matrices = [matrix for _, matrix in reports.parts]
    gain = _maximise_likelihoods(drawn, matrices, any_table, cells - 1)
    gain -= _maximise_likelihoods(drawn, matrices, independent, rows + columns - 2)
    return float(np.mean(2 * gain > threshold))


def _chances(reports: PairReports) -> Floats:
    """Return the probability of each form of report, and last that the pair is not reported."""
    chances = np.array([chance for chance, _ in reports.parts])
    return np.append(chances, max(1.0 - chances.sum(), 0.0))


def _softmax(values: Floats) -> Floats:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _maximise_likelihoods(
    drawn: Sequence[Floats],
    matrices: Sequence[Floats],
    model: Callable[[Floats], tuple[Floats, Floats]],
    width: int,
) -> Floats:
    """Maximise the log-likelihood of each simulation's reports by Fisher scoring from the true table."""
    runs = len(drawn[0])

    def likelihood(values: Floats) -> Floats:
        table, _ = model(values)
        total = np.zeros(runs)
        for counts, matrix in zip(drawn, matrices, strict=True):
            law = table @ matrix
            inside = np.where(counts > 0, np.log(np.maximum(law, 1e-300)), 0.0)
            total += np.where((law > 0).all(axis=1), (counts * inside).sum(axis=1), -np.inf)
        return total

    values = np.zeros((runs, width))
    best = likelihood(values)
    for _ in range(STEPS):
        table, slopes = model(values)
        score, information = np.zeros((runs, width)), np.zeros((runs, width, width))
        for counts, matrix in zip(drawn, matrices, strict=True):
            law = np.maximum(table @ matrix, 1e-300)
            change = np.einsum("rck,cm->rmk", slopes, matrix)
            score += np.einsum("rm,rmk->rk", counts / law, change)
            weight = counts.sum(axis=1, keepdims=True) / law
            information += np.einsum("rm,rmk,rml->rkl", weight, change, change)
        information += 1e-9 * np.trace(information, axis1=1, axis2=2)[:, None, None] * np.eye(width)
        step = np.linalg.solve(information, score[:, :, None])[:, :, 0]
        length = np.ones((runs, 1))
        for _ in range(HALVINGS):
            found = likelihood(values + length * step)
            length = np.where((found < best)[:, None], length / 2, length)
        better = found > best
        values = np.where(better[:, None], values + length * step, values)
        moved = np.where(better, found - best, 0.0)
        best = np.maximum(found, best)
        if moved.max() < 1e-6:
            break
    return best


def pair_of_axes(first: Floats, second: Floats) -> PairReports:
    """Return the reports of two variables that are disguised separately."""
    both = np.asarray(np.kron(first, second), dtype=np.float64)
    return PairReports((len(first), len(second)), ((1.0, both),))


def symmetric_matrix(cells: int, gamma: float, joint: int | None = None) -> Floats:
    """Return the channel of a table's cells if one symmetric channel disguises all `joint` combinations."""
    whole = cells if joint is None else joint
    other = (whole / cells) / (gamma + whole - 1)
    result = np.full((cells, cells), other)
    np.fill_diagonal(result, other + (gamma - 1) / (gamma + whole - 1))
    return result
