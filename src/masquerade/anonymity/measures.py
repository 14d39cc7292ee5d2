"""Anonymity of a table: the sizes of its classes, and what they reveal about sensitive values.

A class is a set of rows that agree in every quasi-identifier as written; a star equals only another star.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.columns import (
    CodedColumn,
    distinct_rows,
    encode_column,
    has_distances,
    require_columns,
)
from masquerade.anonymity.requirements import count_cells, earth_mover, recursive_ratio, total_variation
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted, printable

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SensitiveReport:
    """Disclosure of one sensitive column by the classes of a table; measures are of the worst class.

    Attributes
    ----------
    name : str
        The sensitive column.
    values : int
        Number of distinct values in the table.
    distinct_l : int
        Smallest number of distinct values in a class.
    entropy_l : float
        Smallest exp(entropy) of a class.
    recursive_c : dict of int to float
        Classes are recursively (c, l)-diverse for every c above ``recursive_c[l]``: r₁ < c·(r_l + r_{l+1} +
        …).
    t_equal : float
        Largest total variation distance between a class and the table.
    t_ordered : float or None
        Largest earth mover's distance over ordered values; None if values have no order.
    homogeneous_classes : int
        Number of classes in which all rows have the same value, which is thus revealed.
    homogeneous_rows : int
        Number of rows in these classes.
    rows_by_distinct : dict of int to int
        Number of rows in classes with a given number of distinct values.

    Examples
    --------
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
    """Class sizes of a table, and what the classes reveal about sensitive columns.

    Attributes
    ----------
    quasi_identifiers : tuple of str
        Columns that define the classes.
    rows : int
        Rows of the table.
    classes : int
        Number of classes.
    k : int
        Size of the smallest class; 0 for a table without rows.
    unique_rows : int
        Number of rows that are alone in their class.
    class_sizes : dict of int to int
        Number of classes by size.
    sensitive : tuple of SensitiveReport
        One report per sensitive column.
    missing : dict of str to int
        Number of rows with an empty cell, for each column that has any. An empty cell is a value of its own.

    Examples
    --------
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
    missing: dict[str, int] = field(default_factory=dict)

    @property
    def uniqueness(self) -> float:
        """Return the share of rows that are alone in their class."""
        return self.unique_rows / self.rows if self.rows else 0.0

    def rows_below(self, k: int) -> int:
        """Return the number of rows in classes of fewer than k rows."""
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
        if not self.missing:
            del values["missing"]
        return values

    @printable
    def summary(self) -> str:
        """Return the report as text."""
        over = ", ".join(self.quasi_identifiers)
        if not self.rows:
            return f"The table has no rows, so there is nothing to report on {over}."
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
        for name, rows in self.missing.items():
            lines.append(f"{name} is missing in {counted(rows, 'row')}: an empty cell is a value of its own")
        lines.append("k-anonymity bounds no belief: it is not differential privacy.")
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """Draw the number of rows by class size; return the matplotlib axes."""
        import matplotlib.pyplot as plt  # noqa: PLC0415  (slow to load)

        axes = plt.subplots()[1] if ax is None else ax
        labels, rows = self.size_bins()
        axes.bar(labels, rows, width=0.9)
        axes.set(xlabel="rows in the class", ylabel="rows", title=f"k = {self.k}")
        return axes

    def size_bins(self) -> tuple[list[str], list[int]]:
        """Return labels of intervals of class sizes (1, 2–3, 4–7, …), and the number of rows in each."""
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
    """Measure k-anonymity of a table, and l-diversity and t-closeness of its sensitive columns.

    Parameters
    ----------
    frame : DataFrame
        Table: pandas, Polars or PyArrow. Missing values form a category of their own.
    quasi_identifiers : sequence of str
        Columns by which a person could be recognised.
    sensitive : sequence of str, optional
        Columns that an attacker should not learn.

    Returns
    -------
    AnonymityReport
        k, uniqueness, class sizes, and one report per sensitive column.

    Raises
    ------
    InputError
        If a column is unknown, listed twice, or both a quasi-identifier and sensitive.

    Notes
    -----
    Reference: Sweeney (2002), k; Machanavajjhala et al. (2007), l; Li, Li & Venkatasubramanian (2007), t.
    Cost: O(rows · log rows) for each column.

    Examples
    --------
    >>> print(mq.anonymity.check(mq.data.students(), ["exams", "year"], ["pills"]).summary())
    k = 80 over exams, year
    6 classes of 600 rows
    0 rows unique (0.00%)
    pills: l = 2 distinct, 1.38 by entropy; t = 0.123; 0 homogeneous classes, of 0 rows
    k-anonymity bounds no belief: it is not differential privacy.
    """
    table = require_columns(frame, quasi_identifiers, "quasi_identifiers")
    names = [] if sensitive is None else list(sensitive)
    if sensitive is not None:
        require_columns(frame, sensitive, "sensitive")
    for name in names:
        if name in quasi_identifiers:
            raise InputError(f"Column {name!r} is a quasi-identifier; it cannot be sensitive as well.")
    columns = [encode_column(table[name]) for name in quasi_identifiers]
    codes = np.stack([column.codes for column in columns], axis=1)
    _, of_row, sizes = distinct_rows(codes)
    each, times = np.unique(sizes, return_counts=True)
    return AnonymityReport(
        quasi_identifiers=tuple(quasi_identifiers),
        rows=len(codes),
        classes=len(sizes),
        k=int(sizes.min(initial=np.iinfo(np.int64).max)) if len(sizes) else 0,
        unique_rows=int((sizes == 1).sum()),
        class_sizes=dict(zip(each.tolist(), times.tolist(), strict=True)),
        sensitive=tuple(_sensitive(table[name], of_row, sizes) for name in names),
        missing=_missing_cells([*columns, *(encode_column(table[name]) for name in names)]),
    )


def _missing_cells(columns: Sequence[CodedColumn]) -> dict[str, int]:
    """Return the number of empty cells of each column that has any; None is the last value of a column."""
    counts = {
        column.name: int((column.codes == len(column.values) - 1).sum())
        for column in columns
        if column.values and column.values[-1] is None
    }
    return {name: count for name, count in counts.items() if count}


def _sensitive(series: nw.Series[Any], of_row: Int64, sizes: Int64) -> SensitiveReport:
    column = encode_column(series)
    values = len(column.values)
    if not len(sizes):
        return SensitiveReport(series.name, 0, 0, 0.0, {}, 0.0, None, 0, 0, {})
    overall = np.bincount(column.codes, minlength=values) / len(of_row)
    cells = count_cells(of_row, column.codes, sizes, overall)
    distinct = cells.distinct
    is_homogeneous = distinct == 1
    return SensitiveReport(
        name=series.name,
        values=values,
        distinct_l=int(distinct.min()),
        entropy_l=float(np.exp(cells.entropy.min())),
        recursive_c={l: float(recursive_ratio(cells, l).max()) for l in range(2, int(distinct.min()) + 1)},
        t_equal=float(total_variation(cells).max()),
        t_ordered=float(earth_mover(cells).max()) if has_distances(series, column) else None,
        homogeneous_classes=int(is_homogeneous.sum()),
        homogeneous_rows=int(sizes[is_homogeneous].sum()),
        rows_by_distinct={int(n): int(sizes[distinct == n].sum()) for n in np.unique(distinct)},
    )
