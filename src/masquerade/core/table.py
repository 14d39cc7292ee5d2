"""A labelled table of counts that knows how sure it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.covariance import Covariance, Kind, check_kind, heaviest_of, reduce_cells, spread_of
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.evidence import PROJECTIONS, Evidence, Fit, Projection
from masquerade.core.intervals import Interval, count_interval
from masquerade.core.report_moments import ROUNDING, score_interval, unbiased_factor
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.simultaneous import MOST_CELLS, Simultaneous, bonferroni, check_simultaneous, max_t
from masquerade.core.table_statistics import TableStatistics
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CountTable(Printed, TableStatistics):
    """Counts over the combinations of some variables, exact or estimated: a value that asks nobody anything.

    Estimates are unbiased and may be fractional or negative: that is information, and only
    `nonnegative` takes it away; `unbiased` keeps it for the intervals of a projected table. `n` is the
    number of records behind the whole source. `evidence` is what the estimate rests on. The statistics of
    `masquerade.stats` that are functions of one table are methods too: ``table.shares("smoker")``.

    >>> [table] = mq.tally(mq.data.students()).answer([mq.Query(by=("exams", "pills"))])
    >>> print(table.summary())
    exams × pills: 4 cells, n = 600
    exams pills  count  stderr  lower  upper
      few    no  264.0    12.2  240.5  288.0
      few   yes   36.0     5.8   26.2   49.2
     many    no  210.0    11.7  187.7  233.4
     many   yes   90.0     8.8   74.2  108.5
    (95% intervals)
    >>> table.marginal("pills").values.tolist()
    [474.0, 126.0]
    """

    axes: tuple[Variable, ...]
    values: Floats
    n: int
    evidence: Evidence
    adjusted: Projection | None = None
    unbiased: Floats | None = None

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64).view()
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a value."""
        parts = (self.axes, self.values, self.n, self.evidence, self.adjusted, self.unbiased)
        return type(self), parts

    @property
    def covariance(self) -> Covariance:
        """Return the covariance of the unbiased estimate."""
        return self.evidence.covariance

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the axes."""
        return tuple(axis.name for axis in self.axes)

    @property
    def estimate(self) -> Floats:
        """Return the unbiased estimate: the values themselves, or what they were before `nonnegative`."""
        return self.values if self.unbiased is None else self.unbiased

    @property
    def total(self) -> float:
        """Return the sum of all cells."""
        return float(self.values.sum())

    def stderr(self, kind: Kind = "population") -> Floats:
        """Return the standard error of every cell.

        ``population`` answers "how far from the population that the records were drawn from",
        ``given_records`` answers "how far from the true counts of these very records". Where no report was
        seen that would tell, it is what a single one would have weighed, and not 0. The square of that of the
        population is unbiased: n/(n − 1) times the variance of `covariance`.
        """
        variance = np.asarray(self.covariance.diagonal(kind), dtype=np.float64)
        heaviest = heaviest_of(self.covariance)
        if heaviest is not None and kind == "population":
            variance = variance * unbiased_factor(self.n)
        # a single report adds less than (2·heaviest)²: only next to nothing tells that none was seen
        if heaviest is not None and variance.min(initial=np.inf) <= 4 * ROUNDING * heaviest**2:
            spread = spread_of(self.covariance)
            if spread is not None:
                return spread.standard_error(variance, given=kind == "given_records")
        return np.sqrt(np.maximum(variance, 0.0))

    def conf_int(
        self,
        level: float = 0.95,
        kind: Kind = "population",
        simultaneous: Simultaneous | None = None,
    ) -> Interval:
        """Return confidence intervals for the expected count (or, given the records, the true count).

        Each holds by itself with probability `level`; with `simultaneous` all cells hold together:
        ``bonferroni`` for any table, ``max-t`` narrower ones by the correlations of up to 2,048 cells.

        Formula: see `masquerade.core.report_moments.score_interval`. The counts that a test does not
        reject, with the variance under that very count: Wilson's interval when nothing is disguised,
        Clopper's and Pearson's where few reports decide, N̂ ± z·stderr when the disguise dominates. Where
        only a covariance is known:
        `masquerade.core.intervals.count_interval`.
        Error: measured, see docs/numerics.md.
        """
        check_kind(kind)
        z, centre = self._critical(level, kind, simultaneous), self.estimate
        spread = spread_of(self.covariance)
        if spread is not None:
            return score_interval(centre, spread, z, given=kind == "given_records")
        variance, given = self.covariance.diagonal("population"), self.covariance.diagonal("given_records")
        if kind == "given_records" or np.array_equal(variance, given):
            half = z * np.sqrt(np.maximum(self.covariance.diagonal(kind), 0.0))
            return Interval(centre - half, centre + half)
        return count_interval(centre, variance, max(self.n, 1), z)

    def marginal(self, names: Iterable[str] | str) -> CountTable:
        """Sum over all variables but the named ones."""
        return self._reduced(self._axes(names), {})

    def select(self, where: Mapping[str, Category]) -> CountTable:
        """Return the slice where the named variables have the given categories."""
        at = {self._axis(name): self.axes[self._axis(name)].code(label) for name, label in where.items()}
        return self._reduced([axis for axis in range(len(self.axes)) if axis not in at], at)

    def nonnegative(self, method: Projection = "mle") -> CountTable:
        """Return the table with no negative counts: a visible, biased step of its own.

        ``mle`` is the most likely table given the disguised records, ``simplex`` the nearest one with the
        same total, ``clip`` sets negatives to zero and rescales. Standard errors and intervals stay
        those of the unbiased estimate.
        """
        if method not in PROJECTIONS:
            raise InputError(
                f"nonnegative() takes one of {', '.join(map(repr, PROJECTIONS))}. Got {method!r} instead."
            )
        values = self.evidence.nonnegative(method)
        return replace(self, values=values, adjusted=method, unbiased=self.estimate)

    def deviance(self, expected: Floats) -> float:
        """Return twice how much less likely the reports are under these true counts than at best."""
        return self.evidence.deviance(np.broadcast_to(np.asarray(expected, dtype=float), self.values.shape))

    def fit(self, generators: Iterable[Iterable[str] | str]) -> Fit:
        """Fit a hierarchical log-linear model of the truth, such as [["a"], ["b"]] for independence.

        Every generator is a variable or a set of variables whose joint margin the model is free to follow;
        variables in no generator are evenly distributed.
        """
        return self.evidence.fit([self._axes(names) for names in generators])

    def __add__(self, other: CountTable) -> CountTable:
        """Pool with the table of other, independent records."""
        if not isinstance(other, CountTable):
            return NotImplemented
        if self.axes != other.axes:
            raise InputError(f"Tables over {self.names} and {other.names} cannot be added: other axes.")
        if self.adjusted != other.adjusted:
            raise InputError("An unbiased table and a projected one cannot be added: project after adding.")
        return CountTable(
            self.axes,
            self.values + other.values,
            self.n + other.n,
            self.evidence + other.evidence,
            self.adjusted,
            self.estimate + other.estimate if self.adjusted else None,
        )

    def within(self, names: Iterable[str] | str, kind: Kind = "population") -> Floats:
        """Return covariance blocks of cells that differ only along the named variables."""
        return self.covariance.within(self._axes(names), kind)

    def to_frame(
        self, level: float = 0.95, kind: Kind = "population", simultaneous: Simultaneous | None = None
    ) -> pd.DataFrame:
        """Return a pandas frame: one row per cell, labels, count, stderr, lower, upper."""
        lower, upper = self.conf_int(level, kind, simultaneous)
        return cell_frame(self.axes, count=self.values, stderr=self.stderr(kind), lower=lower, upper=upper)

    @printable
    def summary(self, level: float = 0.95, max_rows: int = 60) -> str:
        """Return the table as text, the way it is pasted into a paper."""
        frame = self.to_frame(level)
        cells = prod(self.values.shape)
        title = f"{' × '.join(self.names) or 'all records'}: {cells:,} cells, n = {self.n:,}"
        if self.adjusted:
            title += f", made nonnegative by {self.adjusted!r} (standard errors of the unbiased estimate)"
        body = frame.to_string(index=False, max_rows=max_rows, float_format=lambda x: f"{x:,.1f}")
        return f"{title}\n{body}\n({level:.0%} intervals)"

    def plot(self, ax: Axes | None = None, level: float = 0.95) -> Axes:
        """Draw every count with its interval; of several variables the last is told by colours."""
        return cell_plot(
            self.axes,
            (self.values, *self.conf_int(level)),
            ax,
            xlabel=f"count, {level:.0%} intervals",
            title=f"{' × '.join(self.names) or 'all records'}, n = {self.n:,}",
        )

    def __repr__(self) -> str:
        """Show the table."""
        return self.summary(max_rows=20)

    def _critical(self, level: float, kind: Kind, simultaneous: Simultaneous | None) -> float:
        """Return how many standard errors intervals reach."""
        check_simultaneous(simultaneous)
        if simultaneous is None:
            return two_sided_quantile(level)
        if simultaneous == "bonferroni":
            return bonferroni(level, self.values.size)
        return max_t(level, self.covariance.dense(MOST_CELLS, kind))

    def _axis(self, name: str) -> int:
        return self.names.index(Schema(self.axes)[name].name)

    def _axes(self, names: Iterable[str] | str) -> list[int]:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if len(set(wanted)) < len(wanted):
            raise InputError(f"A variable is named twice among {', '.join(wanted)}.")
        return [self._axis(name) for name in wanted]

    def _reduced(self, keep: list[int], at: dict[int, int]) -> CountTable:
        return CountTable(
            tuple(self.axes[axis] for axis in keep),
            reduce_cells(self.values, keep, at),
            self.n,
            self.evidence.reduced(keep, at),
            self.adjusted,
            reduce_cells(self.estimate, keep, at) if self.adjusted else None,
        )


def cell_frame(axes: Sequence[Variable], **columns: NDArray[Any]) -> pd.DataFrame:
    """Return a pandas frame with a row for each cell: its labels by variable, then the columns.

    A column that is called like a variable gets an underscore behind its name.
    """
    import pandas as pd  # noqa: PLC0415  (core imports numpy only; a frame is asked for here)

    cells = list(product(*(axis.categories for axis in axes)))
    frame = pd.DataFrame({axis.name: [cell[i] for cell in cells] for i, axis in enumerate(axes)})
    for name, column in columns.items():
        frame[name if name not in frame else f"{name}_"] = column.ravel()
    return frame


def cell_labels(axes: Sequence[Variable]) -> list[str]:
    """Return cells in words, such as ``a = 1, b = 2``; one of no variables is of all records."""
    return [
        ", ".join(f"{axis.name} = {label}" for axis, label in zip(axes, cell, strict=True)) or "all records"
        for cell in product(*(axis.categories for axis in axes))
    ]


def cell_plot(
    axes: Sequence[Variable], columns: Sequence[NDArray[Any]], ax: Axes | None, *, xlabel: str, title: str
) -> Axes:
    """Draw values with their lower and upper ends for every cell; the last of several axes has colours."""
    from masquerade.core.plots.drawing import Dots, dot_plot  # noqa: PLC0415  (few tables are drawn)

    rows, last = (axes[:-1], axes[-1]) if len(axes) > 1 else (axes, None)
    series = {
        f"{label}": Dots(*(column[..., code].ravel() for column in columns))
        for code, label in enumerate(last.categories if last else ())
    }
    return dot_plot(
        cell_labels(rows),
        series or {xlabel: Dots(*(column.ravel() for column in columns))},
        ax,
        xlabel=xlabel,
        title=title,
        legend=last.name if last else "",
    )
