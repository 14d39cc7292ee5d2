"""Bins of numbers in drafts of policies: round cut points, equally wide or with equal numbers of records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

BINS = 10
FEWEST_NUMBERS = 20  # with fewer numbers bins are equally wide
CROWDED = 0.4  # largest share of the numbers in one of several equally wide bins
MOST_SAMPLED = 1 << 14


@dataclass(slots=True)
class NumberSample:
    """Every k-th number of a stream; k doubles whenever there are too many, so memory is constant."""

    every: int = 1
    passed: int = 0
    kept: list[NDArray[np.float64]] = field(default_factory=list)
    size: int = 0

    def add(self, numbers: NDArray[np.float64]) -> None:
        """Add the numbers of a batch."""
        chosen = numbers[(-self.passed) % self.every :: self.every]
        self.passed += len(numbers)
        self.kept.append(chosen.copy())
        self.size += len(chosen)
        while self.size > MOST_SAMPLED:
            self.kept = [np.concatenate(self.kept)[::2]]
            self.size, self.every = len(self.kept[0]), 2 * self.every

    def values(self) -> tuple[float, ...]:
        """Return the sampled numbers, in order of size."""
        return tuple(np.sort(np.concatenate(self.kept)).tolist()) if self.kept else ()


def cut_points(low: float, high: float, bins: int = BINS) -> list[Decimal]:
    """Return the bounds of about ten (or `bins`) round, equally wide bins that cover a range.

    >>> [plain(edge) for edge in cut_points(18, 93)]
    ['10', '20', '30', '40', '50', '60', '70', '80', '90', '100']
    """
    width = Decimal(repr((high - low) / bins))
    unit = Decimal(1).scaleb(width.adjusted())
    step = next(unit * times for times in (1, 2, 5, 10) if unit * times >= width)
    first = math.floor(Decimal(repr(low)) / step)
    last = max(math.ceil(Decimal(repr(high)) / step), first + 1)
    return [step * place for place in range(first, last + 1)]


def round_bins(low: float, high: float, numbers: Sequence[float], bins: int = BINS) -> list[Decimal]:
    """Return round bounds of bins: equally wide, or with about equal numbers of records if those are crowded.

    Equally wide bins are crowded if one of them has more than 40% of the numbers.

    Parameters
    ----------
    low, high : float
        Range to cover.
    numbers : sequence of float
        A sample of the numbers.
    bins : int, default 10
        Approximate number of bins.

    Returns
    -------
    list of Decimal
        Increasing bounds.
    """
    even = cut_points(low, high, bins)
    sample = np.array(numbers)
    if len(sample) < FEWEST_NUMBERS:
        return even
    shares = np.histogram(sample, [float(edge) for edge in even])[0] / len(sample)
    if len(even) < 4 or shares.max() <= CROWDED:
        return even
    quantiles = quantile_cut_points(sample, bins)
    inner = [edge for edge in quantiles if even[0] < edge < even[-1]]
    first = round_down(low, inner[0]) if inner else even[0]
    return [first, *(edge for edge in inner if edge > first), even[-1]] if inner else even


def quantile_cut_points(sample: NDArray[np.float64], bins: int) -> list[Decimal]:
    """Return increasing round numbers near the quantiles of a sample.

    A quantile is rounded to a multiple of 1, 2 or 5 times a power of ten. This unit is at most a third of the
    distance to the nearest other quantile, so that bins stay about equal.

    >>> from masquerade.disguising.draft_bins import plain, quantile_cut_points
    >>> costs = np.exp(np.linspace(0, 9, 1001))
    >>> [plain(edge) for edge in quantile_cut_points(costs, 6)]
    ['5', '20', '100', '400', '1800']
    """
    targets = np.unique(np.quantile(sample, np.arange(1, bins) / bins, method="nearest"))
    if 2 * len(targets) < bins:  # a number, such as 0, has most of the records: divide the others
        numbers, counts = np.unique(sample, return_counts=True)
        others = sample[sample != numbers[counts.argmax()]]
        if len(others):
            targets = np.unique(np.quantile(others, np.arange(bins - 1) / (bins - 1), method="nearest"))
    edges: list[Decimal] = []
    for place, value in enumerate(targets.tolist()):
        gaps = np.abs(np.delete(targets, place) - value)
        gap = float(gaps.min()) if len(gaps) else abs(value) or 1.0
        step = _round_step(gap / 3)
        edge = round(Decimal(repr(value)) / step) * step
        if not edges or edge > edges[-1]:
            edges.append(edge)
    return edges


def _round_step(largest: float) -> Decimal:
    """Return the largest of 1, 2 and 5 times a power of ten that is at most this."""
    limit = Decimal(repr(largest))
    unit = Decimal(1).scaleb(limit.adjusted())
    return max(unit * times for times in (1, 2, 5) if unit * times <= limit)


def round_down(low: float, following: Decimal) -> Decimal:
    """Return a round number at or below the least number, to the precision of the first bin's width."""
    step = _round_step(max(float(following) - low, 1e-9))
    return math.floor(Decimal(repr(low)) / step) * step


def plain(edge: Decimal) -> str:
    """Return a cut point without exponent or trailing zeros."""
    text = f"{edge:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
