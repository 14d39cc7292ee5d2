"""Lower and upper limits of ε from counts of reports."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats

Counts = NDArray[np.int64]
TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Bracket:
    """Limits of ε from draws.

    `lower` is based on a set of reports, `reports`, that was chosen on separate draws. `first` and `second`
    are the truths that this set distinguishes best. `upper` is valid if the reports of one truth are drawn
    independently. It is infinite if some report was never seen for some truth.
    """

    lower: float
    upper: float
    first: int
    second: int
    reports: tuple[int, ...]
    alpha: float


def clopper_pearson(successes: Any, trials: Any, alpha: float) -> tuple[Floats, Floats]:
    """Return a lower and an upper limit of a probability, each wrong with probability at most `alpha`.

    Formula: Beta(α; k, n − k + 1) and Beta(1 − α; k + 1, n − k).
    Reference: Clopper & Pearson (1934).
    """
    from scipy.special import betaincinv  # noqa: PLC0415  (scipy is slow to import)

    k, n = np.broadcast_arrays(np.asarray(successes, dtype=float), np.asarray(trials, dtype=float))
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, alpha), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 1 - alpha), 1.0)
    return low, high


@dataclass(frozen=True, slots=True)
class Event:
    """A set of reports, or of values at one position, that distinguishes two truths."""

    # ln of the ratio of the limits of its probabilities, minus the ε allowed between these truths
    gain: float
    first: int
    second: int
    reports: NDArray[np.int64]
    position: int | None = None

    def lower(self, counts: Counts, alpha: float) -> float:
        """Return a lower limit of ε from counts that were not used to choose the event.

        `counts` is truths × reports, or truths × positions × values for an event at one position.
        """
        table = counts if self.position is None else counts[:, self.position]
        first, second = table[self.first], table[self.second]
        return lower_limit(
            int(first[self.reports].sum()),
            int(first.sum()),
            int(second[self.reports].sum()),
            int(second.sum()),
            alpha,
        )


def lower_limit(hits: int, trials: int, other_hits: int, other_trials: int, alpha: float) -> float:
    """Return a lower limit of ε from the occurrences of one event under two truths.

    The limit is wrong with probability at most `alpha`.

    Formula: ln(lower limit of P(S | a) / upper limit of P(S | b)), α/2 each, at least 0.
    Reference: Jagielski, Ullman & Oprea (2020).
    """
    low, _ = clopper_pearson(hits, trials, alpha / 2)
    _, high = clopper_pearson(other_hits, other_trials, alpha / 2)
    return max(math.log(float(low) / float(high)), 0.0) if float(low) > 0 else 0.0


def choose_set(counts: Counts, alpha: float, allowed: Floats | None = None) -> Event:
    """Choose the two truths, and the set of reports, that these counts distinguish best.

    Formula: sort the reports by estimated likelihood ratio and take the prefix with the largest
    ln(lower limit under one truth / upper limit under the other), over all ordered pairs of truths. With
    `allowed` (truths × truths), the ε allowed for the pair is subtracted.
    Cost: O(truths² · reports).
    """
    n = counts.sum(axis=1)
    shares = (counts + 0.5) / (n + 0.5 * counts.shape[1])[:, None]
    best = Event(-math.inf, 0, 1, np.zeros(1, dtype=np.int64))
    for a in range(len(counts)):
        for b in range(len(counts)):
            if a == b:
                continue
            order = np.argsort(-shares[a] / shares[b], kind="stable")
            low = _quick_limit(np.cumsum(counts[a, order]), n[a], alpha, -1)
            high = _quick_limit(np.cumsum(counts[b, order]), n[b], alpha, 1)
            gain = np.log(np.maximum(low, TINY) / high) - (0.0 if allowed is None else allowed[a, b])
            place = int(np.argmax(gain))
            if gain[place] > best.gain:
                best = Event(float(gain[place]), a, b, order[: place + 1])
    return best


def choose_position(counts: Counts, alpha: float, allowed: Floats | None = None) -> Event:
    """Choose the two truths, and the value at one position, that these counts distinguish best.

    `counts` is truths × positions × values. Formula and `allowed` as in `choose_set`.
    Cost: O(truths · positions · values); with `allowed`, times the number of truths.
    """
    n = counts.sum(axis=2, keepdims=True)
    low = np.log(np.maximum(_quick_limit(counts, n, alpha, -1), TINY))
    high = np.log(_quick_limit(counts, n, alpha, 1))
    if allowed is None:
        first, second = low.argmax(axis=0), high.argmin(axis=0)
        gain = low.max(axis=0) - high.min(axis=0)
        position, value = (int(place) for place in np.unravel_index(int(gain.argmax()), gain.shape))
        a, b = int(first[position, value]), int(second[position, value])
        best = float(gain[position, value])
    else:
        every = low[:, None] - high[None] - allowed[:, :, None, None]
        places = np.unravel_index(int(every.argmax()), every.shape)
        a, b, position, value = (int(place) for place in places)
        best = float(every[a, b, position, value])
    return Event(best, a, b, np.array([value], dtype=np.int64), position)


def epsilon_bracket(first: Counts, second: Counts, alpha: float, levels: Floats | None = None) -> Bracket:
    """Return limits of ε from two independent tables of counts (truths × reports).

    Formula: the pair of truths and the set S are chosen on the first table. The second table, which is
    independent of the choice, gives ε ≥ ln(lower limit of P(S | a) / upper limit of P(S | b)), α/2 each. The
    upper limit is taken over every report of both tables (Bonferroni). With `levels`, a matrix of the claimed
    probabilities, it is taken over every set of reports with equal claimed likelihood ratio for a pair of
    truths.
    Reference: Jagielski, Ullman & Oprea (2020) for limits by two binomials; Neyman & Pearson (1933) for
    likelihood-ratio sets.
    Error: the lower and the upper limit are each wrong with probability at most `alpha` (with `levels`: if
    reports with equal claimed likelihood ratios really have equal ones).
    """
    event = choose_set(first, alpha / 2)
    every = first + second
    upper = _upper(every, alpha) if levels is None else _upper_by_levels(every, levels, alpha)
    chosen = tuple(sorted(event.reports.tolist()))
    return Bracket(event.lower(second, alpha), upper, event.first, event.second, chosen, alpha)


def channel_p_value(counts: Counts, claimed: Floats) -> float:
    """Return a p-value of the claim that counts (truths × reports) come from these probabilities.

    Formula: the smallest exact binomial tail over all cells, times twice the number of cells (Bonferroni).
    Reports that are equally likely under the claim are also pooled into cells: for every truth and, if the
    claimed probability is the same for all truths, over all truths.
    Error: the type I error is at most the nominal level, for any counts.
    """
    from scipy.special import bdtr, bdtrc  # noqa: PLC0415  (scipy is slow to import)

    if np.any(counts[claimed == 0] > 0):
        return 0.0
    n = counts.sum(axis=1)
    tests: list[tuple[int, int, float]] = []
    pooled: dict[tuple[int, int], list[int]] = {}  # over all truths, where the claim is the same for all
    level = np.rint(claimed * 2**40).astype(np.int64)
    seen = np.flatnonzero(n)
    for truth in seen.tolist():
        for value in np.unique(level[truth]).tolist():
            alike = np.flatnonzero(level[truth] == value)
            cells = [alike] if len(alike) == 1 else [alike, *alike[:, None]]
            tests += [
                (int(counts[truth, cell].sum()), int(n[truth]), float(claimed[truth, cell].sum()))
                for cell in cells
            ]
            pooled.setdefault((value, len(alike)), []).append(int(counts[truth, alike].sum()))
    if len(seen) > 1:
        tests += [
            (sum(found), int(n.sum()), min(1.0, value * size / 2**40))
            for (value, size), found in pooled.items()
            if len(found) == len(seen)
        ]
    if not tests:
        return 1.0
    k, trials, p = (np.array(column, dtype=float) for column in zip(*tests, strict=True))
    p = np.minimum(p, 1.0)
    below = bdtr(k, trials.astype(int), p)
    above = np.where(k > 0, bdtrc(np.maximum(k - 1, 0), trials.astype(int), p), 1.0)
    return float(min(1.0, 2 * len(tests) * np.minimum(below, above).min()))


def one_run_bound(correct: int, guesses: int, alpha: float) -> float:
    """Return a lower limit of ε if `correct` of `guesses` guesses between two values in one run are right.

    Formula: under a mechanism with ε, right guesses are at most Binomial(guesses, e^ε/(1 + e^ε)):
    ε ≥ logit(Clopper–Pearson limit).
    Reference: Steinke, Nasr & Jagielski (2023), for mechanisms that act on each record separately.
    """
    if guesses == 0:
        return 0.0
    low = float(clopper_pearson(correct, guesses, alpha)[0])
    return math.log(low / (1 - low)) if low > 0.5 else 0.0


def _quick_limit(k: Counts, n: Any, alpha: float, side: int) -> Floats:
    """Return Wilson's limits, which are accurate enough for choosing a set."""
    from scipy.special import ndtri  # noqa: PLC0415  (scipy is slow to import)

    z = -float(ndtri(alpha))
    n = np.maximum(n, 1)
    share = k / n
    middle = share + z * z / (2 * n)
    wide = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return np.asarray(np.clip((middle + side * wide) / (1 + z * z / n), TINY, 1.0))


def _upper(counts: Counts, alpha: float) -> float:
    used = counts[:, counts.any(axis=0)]
    low, high = clopper_pearson(used, used.sum(axis=1, keepdims=True), alpha / (2 * used.size))
    worst = high.max(axis=0) / np.maximum(low.min(axis=0), TINY)
    return math.inf if np.any(low.min(axis=0) <= 0) else float(np.log(worst.max()))


def _upper_by_levels(counts: Counts, claimed: Floats, alpha: float) -> float:
    """Return the upper limit over sets of reports with equal claimed likelihood ratio."""
    if np.any(counts[:, ~claimed.any(axis=0)]):
        return math.inf
    n = counts.sum(axis=1)
    sets: list[tuple[int, int, int, int]] = []
    for a in range(len(counts)):
        for b in range(len(counts)):
            if a == b:
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.round(np.log(claimed[a] / claimed[b]), 9)
            for level in np.unique(ratio[~np.isnan(ratio)]):
                alike = ratio == level
                sets.append((counts[a, alike].sum(), n[a], counts[b, alike].sum(), n[b]))
    if not sets:
        return math.inf
    k, trials, other, others = np.array(sets).T
    _, high = clopper_pearson(k, trials, alpha / (2 * len(sets)))
    low, _ = clopper_pearson(other, others, alpha / (2 * len(sets)))
    return math.inf if np.any(low <= 0) else float(np.log((high / low).max()))
