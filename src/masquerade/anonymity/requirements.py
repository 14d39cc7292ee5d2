"""Requirements on the classes of a table: l-diversity and t-closeness of a sensitive column.

If a requirement holds for two classes, it holds for their union. Closeness always holds for the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
ROUNDING = 1e-12


class ClassCells(NamedTuple):
    """Counts of a sensitive column's values in classes, sorted by class and value.

    A cell is a value that occurs in a class. `owner`, `value` and `counts` have the class, the value and the
    number of rows of each cell. `sizes` has the number of rows of each class, and `overall` the share of each
    value in the table.
    """

    owner: Int64
    value: Int64
    counts: Int64
    sizes: Int64
    overall: Floats

    @property
    def share(self) -> Floats:
        """Return the share of every cell in its class."""
        return self.counts / self.sizes[self.owner]

    @property
    def distinct(self) -> Int64:
        """Return the number of distinct values of every class."""
        return np.bincount(self.owner, minlength=len(self.sizes))

    @property
    def entropy(self) -> Floats:
        """Return the entropy of every class, in nats."""
        each: Floats = -self.share * np.log(self.share)
        return np.bincount(self.owner, each, minlength=len(self.sizes)).astype(np.float64)


def count_cells(of_row: Int64, codes: Int64, sizes: Int64, overall: Floats) -> ClassCells:
    """Count the values of classes, given the class and the value of every row."""
    cells, counts = np.unique(of_row * len(overall) + codes, return_counts=True)
    owner, value = np.divmod(cells, max(len(overall), 1))
    return ClassCells(owner, value, counts, sizes, overall)


@dataclass(frozen=True, slots=True)
class DistinctDiversity:
    """Require at least l distinct values in every class.

    Parameters
    ----------
    l : int
        Number of distinct values, at least 1.

    Notes
    -----
    Reference: Machanavajjhala, Kifer, Gehrke & Venkitasubramaniam (2007), l-diversity.

    Examples
    --------
    >>> needs = {"sleep": mq.anonymity.DistinctDiversity(2)}
    >>> found = mq.anonymity.anonymize(mq.data.students(), ["exams", "year"], 20, sensitive=needs)
    >>> mq.anonymity.check(found.frame, ["exams", "year"], ["sleep"]).sensitive[0].distinct_l
    2
    """

    l: int

    def __post_init__(self) -> None:
        if isinstance(self.l, bool) or not isinstance(self.l, int) or self.l < 1:
            raise InputError(f"'l' must be a whole number of at least 1. Got {self.l!r} instead.")

    def holds_for(self, cells: ClassCells) -> Bools:
        """Return True for every class that has at least l distinct values."""
        return cells.distinct >= self.l

    def __str__(self) -> str:
        return f"{self.l}-diverse"


@dataclass(frozen=True, slots=True)
class EntropyDiversity:
    """Require an entropy of at least log l in every class.

    Parameters
    ----------
    l : float
        Effective number of values, at least 1.

    Notes
    -----
    Reference: Machanavajjhala et al. (2007), Definition 4.1.

    Examples
    --------
    >>> needs = {"sleep": mq.anonymity.EntropyDiversity(1.5)}
    >>> found = mq.anonymity.anonymize(mq.data.students(), ["exams", "year"], 20, sensitive=needs)
    >>> mq.anonymity.check(found.frame, ["exams", "year"], ["sleep"]).sensitive[0].entropy_l >= 1.5
    True
    """

    l: float

    def __post_init__(self) -> None:
        _number("l", self.l, 1, None)

    def holds_for(self, cells: ClassCells) -> Bools:
        """Return True for every class whose entropy is at least log l."""
        return cells.entropy >= log(self.l) - ROUNDING

    def __str__(self) -> str:
        return f"{self.l:g}-diverse by entropy"


@dataclass(frozen=True, slots=True)
class RecursiveDiversity:
    """Require that the most frequent value of every class is not too frequent.

    Parameters
    ----------
    c : float
        Factor, at least 0.
    l : int
        Rank from which counts are summed, at least 2.

    Notes
    -----
    Formula: r₁ < c·(r_l + r_{l+1} + …), the counts of a class in decreasing order.
    Reference: Machanavajjhala et al. (2007), Definition 4.2.

    Examples
    --------
    >>> needs = {"sleep": mq.anonymity.RecursiveDiversity(3, 2)}
    >>> found = mq.anonymity.anonymize(mq.data.students(), ["exams", "year"], 20, sensitive=needs)
    >>> mq.anonymity.check(found.frame, ["exams", "year"], ["sleep"]).sensitive[0].recursive_c[2] < 3
    True
    """

    c: float
    l: int

    def __post_init__(self) -> None:
        _number("c", self.c, 0, None)
        if isinstance(self.l, bool) or not isinstance(self.l, int) or self.l < 2:
            raise InputError(f"'l' of (c, l) must be a whole number of at least 2. Got {self.l!r} instead.")

    def holds_for(self, cells: ClassCells) -> Bools:
        """Return True for every class that is recursively (c, l)-diverse."""
        return recursive_ratio(cells, self.l) < self.c

    def __str__(self) -> str:
        return f"recursively ({self.c:g}, {self.l})-diverse"


@dataclass(frozen=True, slots=True)
class Closeness:
    """Require that the distribution of values in every class is within a distance t of that in the table.

    The distance is total variation: half the sum of all absolute differences of shares.

    Parameters
    ----------
    t : float
        Largest distance, from 0 to 1.
    ordered : bool, default False
        Use the earth mover's distance over sorted numbers, dates or booleans instead: the share moved times
        the distance in ranks, scaled so that the lowest and the highest value have distance 1.

    Notes
    -----
    Reference: Li, Li & Venkatasubramanian (2007), t-closeness.

    Examples
    --------
    >>> needs = {"sleep": mq.anonymity.Closeness(0.2)}
    >>> found = mq.anonymity.anonymize(mq.data.students(), ["exams", "year"], 20, sensitive=needs)
    >>> mq.anonymity.check(found.frame, ["exams", "year"], ["sleep"]).sensitive[0].t_equal <= 0.2
    True
    """

    t: float
    ordered: bool = False

    def __post_init__(self) -> None:
        _number("t", self.t, 0, 1)

    def holds_for(self, cells: ClassCells) -> Bools:
        """Return True for every class within distance t of the table."""
        return (earth_mover if self.ordered else total_variation)(cells) <= self.t + ROUNDING

    def __str__(self) -> str:
        return f"{self.t:g}-close{' in order' if self.ordered else ''}"


Requirement = DistinctDiversity | EntropyDiversity | RecursiveDiversity | Closeness


def _number(name: str, value: float, low: float, high: float | None) -> None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    if not plain or value < low or (high is not None and value > high):
        limit = f"at least {low}" if high is None else f"from {low} to {high}"
        raise InputError(f"'{name}' must be a number, {limit}. Got {value!r} instead.")


def recursive_ratio(cells: ClassCells, l: int) -> Floats:
    """Return r₁ / (r_l + r_{l+1} + …) of every class, with counts r in decreasing order.

    The ratio is infinite for classes of fewer than l values.
    """
    order = np.lexsort((-cells.counts, cells.owner))
    counts = cells.counts[order].astype(np.float64)
    first = np.concatenate([[0], np.cumsum(cells.distinct)[:-1]])
    place = np.arange(len(counts)) - first[cells.owner]  # rank in the class: `order` keeps owners sorted
    rest = np.bincount(cells.owner, counts * (place >= l - 1), minlength=len(cells.sizes))
    ratio = np.full(len(cells.sizes), np.inf)
    np.divide(counts[first], rest, out=ratio, where=rest > 0)
    return ratio


def total_variation(cells: ClassCells) -> Floats:
    """Return ½ Σ |p − q| between every class and the table, including values that a class lacks."""
    own = np.abs(cells.share - cells.overall[cells.value])
    apart = np.bincount(cells.owner, own, minlength=len(cells.sizes))
    absent = 1.0 - np.bincount(cells.owner, cells.overall[cells.value], minlength=len(cells.sizes))
    return np.clip((apart + absent) / 2, 0.0, 1.0)


def earth_mover(cells: ClassCells) -> Floats:
    """Return Σ |cumulative p − q| / (values − 1) between every class and the table.

    The cumulative share of a class changes only at its own values, so the sum is computed in pieces: between
    two of these values, only the cumulative share of the table changes.
    """
    owner, value, share, values = cells.owner, cells.value, cells.share, len(cells.overall)
    if values == 1:
        return np.zeros(len(cells.sizes))
    steps = np.cumsum(cells.overall)[:-1]  # cumulative shares of the table, after each value but the last
    sums = np.concatenate([[0.0], np.cumsum(steps)])
    new = np.concatenate([[True], owner[1:] != owner[:-1]])
    height = np.cumsum(share)
    height -= np.repeat((height - share)[new], np.diff(np.append(np.flatnonzero(new), len(owner))))
    until = np.append(value[1:], values - 1)
    until[np.append(new[1:], True)] = values - 1
    total = np.bincount(owner, _gap(steps, sums, height, value, np.minimum(until, values - 1)))
    # before its first value the cumulative share of a class is 0
    total += sums[value[new]]
    return total / (values - 1)


def _gap(steps: Floats, sums: Floats, height: Floats, low: Int64, high: Int64) -> Floats:
    """Return Σ |height − steps[i]| for low ≤ i < high; steps increase, so they cross a height once."""
    cross = np.clip(np.searchsorted(steps, height), low, high)
    below = height * (cross - low) - (sums[cross] - sums[low])
    above = (sums[high] - sums[cross]) - height * (high - cross)
    return np.maximum(below, 0.0) + np.maximum(above, 0.0)
