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

from masquerade.anonymity.columns import coded, collapsed, in_order, listed
from masquerade.anonymity.requirements import cells_of, earth_mover, recursive_ratio, total_variation
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted, printable

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SensitiveReport:
    """What the classes tell of one sensitive column; every figure is of the worst class.

    `distinct_l`: fewest distinct values in a class. `entropy_l`: smallest exp(entropy) of a class.
    `recursive_c[l]`: classes are recursively (c, l)-diverse for every c above it, r₁ < c·(r_l + r_{l+1} + …).
    `t_equal`: largest total variation distance between a class and the table. `t_ordered`: largest
    earth mover's distance over ordered values, None where values have no order. `homogeneous_classes` tell
    the value of every member outright, `homogeneous_rows` of them. `rows_by_distinct` maps a number of
    distinct values to the rows in classes that have so many.

    >>> [found] = mq.anonymity.check(mq.data.students(), ["exams", "year"], ["sleep"]).sensitive
    >>> found.distinct_l, found.homogeneous_rows
    (2, 0)
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

    >>> report = mq.anonymity.check(mq.data.students(), ["exams", "year"])
    >>> report.k, report.classes, report.unique_rows
    (80, 6, 0)
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

    >>> print(mq.anonymity.check(mq.data.students(), ["exams", "year"], ["pills"]).summary())
    k = 80 over exams, year
    6 classes of 600 rows
    0 rows unique (0.00%)
    pills: l = 2 distinct, 1.38 by entropy; t = 0.123; 0 homogeneous classes, of 0 rows
    k-anonymity bounds no belief: it is not differential privacy.
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
    overall = np.bincount(column.codes, minlength=values) / len(of_row)
    cells = cells_of(of_row, column.codes, sizes, overall)
    distinct = cells.distinct
    alike = distinct == 1
    return SensitiveReport(
        name=series.name,
        values=values,
        distinct_l=int(distinct.min()),
        entropy_l=float(np.exp(cells.entropy.min())),
        recursive_c={l: float(recursive_ratio(cells, l).max()) for l in range(2, int(distinct.min()) + 1)},
        t_equal=float(total_variation(cells).max()),
        t_ordered=float(earth_mover(cells).max()) if in_order(series, column) else None,
        homogeneous_classes=int(alike.sum()),
        homogeneous_rows=int(sizes[alike].sum()),
        rows_by_distinct={int(n): int(sizes[distinct == n].sum()) for n in np.unique(distinct)},
    )
