"""How anonymous a table is: its classes, and what they tell of sensitive values.

A class is a set of rows that agree in every quasi-identifier as it is written; a star equals a star.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.columns import coded, collapsed, listed
from masquerade.core.errors import InputError
from masquerade.core.words import counted, printable

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SensitiveReport:
    """What the classes tell of one sensitive column; every figure is of the worst class.

    `distinct_l`: fewest distinct values in a class. `entropy_l`: smallest exp(entropy) of a class.
    `recursive_c[l]`: classes are recursively (c, l)-diverse for every c above it, r₁ < c·(r_l + r_{l+1} + …).
    `t_equal`: largest total variation distance between a class and the table. `t_ordered`: largest
    earth mover's distance over ordered values, None where values have no order. `homogeneous_classes` tell
    the value of every member outright, `homogeneous_rows` of them. `rows_by_distinct` maps a number of
    distinct values to the rows in classes that have so many.
    """

    name: str
    values: int
    distinct_l: int
    entropy_l: float
    recursive_c: dict[int, float]
    t_equal: float
    t_ordered: float | None
    homogeneous_classes: int
    homogeneous_rows: int
    rows_by_distinct: dict[int, int]


@dataclass(frozen=True, slots=True)
class AnonymityReport:
    """How anonymous a table is.

    `k` is the size of the smallest class (0 for a table without rows), `unique_rows` stand alone, and
    `class_sizes` maps a size to the number of classes that have it.
    """

    quasi_identifiers: tuple[str, ...]
    rows: int
    classes: int
    k: int
    unique_rows: int
    class_sizes: dict[int, int]
    sensitive: tuple[SensitiveReport, ...]

    @property
    def uniqueness(self) -> float:
        """Return the share of rows that stand alone."""
        return self.unique_rows / self.rows if self.rows else 0.0

    def rows_below(self, k: int) -> int:
        """Return how many rows are in classes of fewer than k."""
        return sum(size * count for size, count in self.class_sizes.items() if size < k)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        values = asdict(self) | {"uniqueness": self.uniqueness}
        values["quasi_identifiers"] = list(self.quasi_identifiers)
        values["class_sizes"] = [[size, count] for size, count in self.class_sizes.items()]
        for own in values["sensitive"]:
            for pairs in ("recursive_c", "rows_by_distinct"):  # JSON has no numbers as keys
                own[pairs] = [[number, figure] for number, figure in own[pairs].items()]
        values["sensitive"] = list(values["sensitive"])
        return values

    @printable
    def summary(self) -> str:
        """Return the report as text."""
        over = ", ".join(self.quasi_identifiers)
        if not self.rows:
            return f"The table has no rows: over {over} there is nothing to tell."
        lines = [
            f"k = {self.k} over {over}",
            f"{counted(self.classes, 'class', 'classes')} of {counted(self.rows, 'row')}",
            f"{counted(self.unique_rows, 'row')} unique ({self.uniqueness:.2%})",
        ]
        for own in self.sensitive:
            ordered = "" if own.t_ordered is None else f" ({own.t_ordered:.3f} ordered)"
            lines.append(
                f"{own.name}: l = {own.distinct_l} distinct, {own.entropy_l:.2f} by entropy; "
                f"t = {own.t_equal:.3f}{ordered}; "
                f"{counted(own.homogeneous_classes, 'homogeneous class', 'homogeneous classes')}, "
                f"of {counted(own.homogeneous_rows, 'row')}"
            )
        lines.append("k-anonymity bounds no belief: it is not differential privacy.")
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """Draw how many rows are in classes of which size; return the matplotlib axes."""
        import matplotlib.pyplot as plt  # noqa: PLC0415  (slow to load)

        axes = plt.subplots()[1] if ax is None else ax
        labels, rows = self.binned()
        axes.bar(labels, rows, width=0.9)
        axes.set(xlabel="rows in the class", ylabel="rows", title=f"k = {self.k}")
        return axes

    def binned(self) -> tuple[list[str], list[int]]:
        """Return classes of doubling sizes, as words, and how many rows are in each."""
        largest = max(self.class_sizes, default=0)
        labels, rows, low = [], [], 1
        while low <= largest:
            high = 2 * low - 1
            labels.append(f"{low:,}" if low == high else f"{low:,}–{high:,}")
            rows.append(sum(s * n for s, n in self.class_sizes.items() if low <= s <= high))
            low = high + 1
        return labels, rows


def check(
    frame: Any, quasi_identifiers: Sequence[str], sensitive: Sequence[str] | None = None
) -> AnonymityReport:
    """Return k, uniqueness and class sizes of a table, and l-diversity and t-closeness of sensitive columns.

    Missing values are a category of their own.
    Reference: Sweeney (2002), k; Machanavajjhala et al. (2007), l; Li, Li & Venkatasubramanian (2007), t.
    Cost: O(rows · log rows) for each column.
    """
    table = listed(frame, quasi_identifiers, "quasi_identifiers")
    names = [] if sensitive is None else list(sensitive)
    if sensitive is not None:
        listed(frame, sensitive, "sensitive")
    for name in names:
        if name in quasi_identifiers:
            raise InputError(f"Column {name!r} is a quasi-identifier; it cannot be sensitive as well.")
    codes = np.stack([coded(table[name]).codes for name in quasi_identifiers], axis=1)
    _, of_row, sizes = collapsed(codes)
    each, times = np.unique(sizes, return_counts=True)
    return AnonymityReport(
        quasi_identifiers=tuple(quasi_identifiers),
        rows=len(codes),
        classes=len(sizes),
        k=int(sizes.min(initial=np.iinfo(np.int64).max)) if len(sizes) else 0,
        unique_rows=int((sizes == 1).sum()),
        class_sizes=dict(zip(each.tolist(), times.tolist(), strict=True)),
        sensitive=tuple(_sensitive(table[name], of_row, sizes) for name in names),
    )


def _sensitive(series: nw.Series[Any], of_row: Int64, sizes: Int64) -> SensitiveReport:
    column = coded(series)
    values = len(column.values)
    if not len(sizes):
        return SensitiveReport(series.name, 0, 0, 0.0, {}, 0.0, None, 0, 0, {})
    cells, counts = np.unique(of_row * values + column.codes, return_counts=True)
    owner, value = np.divmod(cells, values)
    distinct = np.bincount(owner, minlength=len(sizes))
    share = counts / sizes[owner]
    entropy = np.bincount(owner, -share * np.log(share), minlength=len(sizes))
    overall = np.bincount(column.codes, minlength=values) / len(of_row)
    alike = distinct == 1
    ordered = series.dtype.is_numeric() or series.dtype.is_temporal() or series.dtype == nw.Boolean
    return SensitiveReport(
        name=series.name,
        values=values,
        distinct_l=int(distinct.min()),
        entropy_l=float(np.exp(entropy.min())),
        recursive_c=recursive(owner, counts, distinct),
        t_equal=total_variation(owner, value, share, overall, len(sizes)),
        t_ordered=earth_mover(owner, value, share, overall)
        if ordered and None not in column.values
        else None,
        homogeneous_classes=int(alike.sum()),
        homogeneous_rows=int(sizes[alike].sum()),
        rows_by_distinct={int(n): int(sizes[distinct == n].sum()) for n in np.unique(distinct)},
    )


def recursive(owner: Int64, counts: Int64, distinct: Int64) -> dict[int, float]:
    """Return for l = 2 up to the fewest distinct values the largest r₁ / (r_l + r_{l+1} + …) of a class.

    r₁ ≥ r₂ ≥ … are the counts of a class.
    """
    order = np.lexsort((-counts, owner))
    sorted_counts = counts[order].astype(np.float64)
    first = np.concatenate([[0], np.cumsum(distinct)[:-1]])
    sums = np.add.reduceat(sorted_counts, first)
    rest, found = sums.copy(), {}
    for l in range(2, int(distinct.min()) + 1):
        rest = rest - sorted_counts[first + l - 2]
        found[l] = float((sorted_counts[first] / rest).max())
    return found


def total_variation(owner: Int64, value: Int64, share: Floats, overall: Floats, classes: int) -> float:
    """Return the largest ½ Σ |p − q| between a class and the table; values that a class lacks count too."""
    own = np.bincount(owner, np.abs(share - overall[value]), minlength=classes)
    absent = 1.0 - np.bincount(owner, overall[value], minlength=classes)
    return float(np.clip((own + absent) / 2, 0.0, 1.0).max())


def earth_mover(owner: Int64, value: Int64, share: Floats, overall: Floats) -> float:
    """Return the largest Σ |cumulated p − q| / (values − 1) between a class and the table.

    The cumulated difference changes at a class's own values only by its shares, so it is summed in pieces:
    between two of them the class's side is constant and the table's side a stretch of its distribution.
    """
    values = len(overall)
    if values == 1:
        return 0.0
    steps = np.cumsum(overall)[:-1]  # of the table, after each value but the last
    sums = np.concatenate([[0.0], np.cumsum(steps)])
    new = np.concatenate([[True], owner[1:] != owner[:-1]])
    height = np.cumsum(share)
    height -= np.repeat((height - share)[new], np.diff(np.append(np.flatnonzero(new), len(owner))))
    until = np.append(value[1:], values - 1)
    until[np.append(new[1:], True)] = values - 1
    total = np.bincount(owner, _gap(steps, sums, height, value, np.minimum(until, values - 1)))
    # before its first value a class has nothing
    start = value[new]
    total += sums[start]
    return float(total.max() / (values - 1))


def _gap(steps: Floats, sums: Floats, height: Floats, low: Int64, high: Int64) -> Floats:
    """Return Σ |height − steps[i]| for low ≤ i < high; steps rise, so they cross a height once."""
    cross = np.clip(np.searchsorted(steps, height), low, high)
    below = height * (cross - low) - (sums[cross] - sums[low])
    above = (sums[high] - sums[cross]) - height * (high - cross)
    return np.maximum(below, 0.0) + np.maximum(above, 0.0)
