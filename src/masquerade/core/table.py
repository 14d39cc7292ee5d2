"""Tables of counts with labels and standard errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.covariance import Covariance, Kind, check_kind, reduce_cells, take_cells
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.evidence import PROJECTIONS, Evidence, Fit, Projection
from masquerade.core.intervals import Interval, count_interval
from masquerade.core.linear_covariance import heaviest_of, spread_of
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
    """Counts over the combinations of variables, exact or estimated.

    A table is a value: it never queries a source again. Estimates are unbiased and may be fractional or
    negative; only `nonnegative` changes that. Statistics of `masquerade.stats` that need a single table are
    also methods: ``table.shares("smoker")``.

    Attributes
    ----------
    axes : tuple of Variable
        Variables of the table, one per axis.
    values : array
        Counts, in the shape of the axes.
    n : int
        Number of records of the whole source.
    evidence : Evidence
        Observations that the estimate is based on.
    adjusted : str or None
        Method of `nonnegative`, if it was applied.
    unbiased : array or None
        Unbiased counts of a table that was made nonnegative; its intervals use them.

    Examples
    --------
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
        """Return the pickled form."""
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
        """Return the unbiased estimate: the values themselves, or the values before `nonnegative`."""
        return self.values if self.unbiased is None else self.unbiased

    @property
    def total(self) -> float:
        """Return the sum of all cells."""
        return float(self.values.sum())

    def stderr(self, kind: Kind = "population") -> Floats:
        """Return the standard error of each cell.

        Parameters
        ----------
        kind : {"population", "given_records"}, default "population"
            "population": distance from the population that the records were sampled from. "given_records":
            distance from the true counts of these records.

        Returns
        -------
        array
            Standard errors, in the shape of the table. Where no informative report was observed, the error is
            what a single such report would have contributed, not 0. NaN for a table without records.

        Notes
        -----
        The square of the population error is unbiased: n/(n − 1) times the variance of `covariance`.
        """
        if self._is_empty:
            return np.full(self.values.shape, np.nan)
        variance = np.asarray(self.covariance.diagonal(kind), dtype=np.float64)
        heaviest = heaviest_of(self.covariance)
        if heaviest is not None and kind == "population":
            variance = variance * unbiased_factor(self.n)
        # a single report adds at most (2·heaviest)², so only a variance near 0 means that none was observed
        if heaviest is not None and variance.min(initial=np.inf) <= 4 * ROUNDING * heaviest**2:
            spread = spread_of(self.covariance)
            if spread is not None:
                return spread.standard_error(variance, given=kind == "given_records")
        return np.sqrt(np.maximum(variance, 0.0))

    @property
    def _is_empty(self) -> bool:
        """Return True if there are no records: then nothing is known about the counts of a population."""
        return not self.n and not np.any(self.values)

    def conf_int(
        self,
        level: float = 0.95,
        kind: Kind = "population",
        simultaneous: Simultaneous | None = None,
    ) -> Interval:
        """Return confidence intervals of the expected counts, or of the true counts of these records.

        Parameters
        ----------
        level : float, default 0.95
            Confidence level of the intervals.
        kind : {"population", "given_records"}, default "population"
            Intervals for the population, or for the true counts of these records.
        simultaneous : {"bonferroni", "max-t"}, optional
            Make all intervals hold together with probability `level`. "bonferroni" works for any table;
            "max-t" is narrower, uses the correlations, and takes up to 2,048 cells. By default each interval
            holds by itself.

        Returns
        -------
        Interval
            Lower and upper limits, in the shape of the table.

        Raises
        ------
        InputError
            If `level`, `kind` or `simultaneous` is invalid, or the table is too large for "max-t".

        Notes
        -----
        Formula: the counts that a test does not reject, with the variance under that count: Wilson's interval
        when nothing is disguised, Clopper and Pearson's when few reports decide, N̂ ± z·stderr when the
        disguise dominates; see `masquerade.core.report_moments.score_interval`. Where only a covariance is
        known, see `masquerade.core.intervals.count_interval`.
        Error: measured, see docs/numerics.md.
        """
        check_kind(kind)
        z, centre = self._critical(level, kind, simultaneous), self.estimate
        if self._is_empty:
            return Interval(np.full(centre.shape, np.nan), np.full(centre.shape, np.nan))
        spread = spread_of(self.covariance)
        if spread is not None:
            return score_interval(centre, spread, z, given=kind == "given_records")
        variance, given = self.covariance.diagonal("population"), self.covariance.diagonal("given_records")
        if kind == "given_records" or np.array_equal(variance, given):
            half = z * np.sqrt(np.maximum(self.covariance.diagonal(kind), 0.0))
            return Interval(centre - half, centre + half)
        return count_interval(centre, variance, max(self.n, 1), z)

    def marginal(self, names: Iterable[str] | str) -> CountTable:
        """Sum over all variables except the named ones.

        Parameters
        ----------
        names : str or iterable of str
            Variables to keep, in this order.

        Returns
        -------
        CountTable
            The smaller table.
        """
        return self._reduce(self._axes(names), {})

    def select(self, where: Mapping[str, Category]) -> CountTable:
        """Return the slice where the named variables have the given categories.

        Parameters
        ----------
        where : mapping of str to category
            Category of each fixed variable.

        Returns
        -------
        CountTable
            Table over the remaining variables.
        """
        at = {self._axis(name): self.axes[self._axis(name)].code(label) for name, label in where.items()}
        return self._reduce([axis for axis in range(len(self.axes)) if axis not in at], at)

    def restrict(self, among: Mapping[str, Sequence[Category]]) -> CountTable:
        """Return the part of the table with some categories of the named variables.

        Parameters
        ----------
        among : mapping of str to sequence of category
            Categories to keep of each of these variables, in the order of the smaller table.

        Returns
        -------
        CountTable
            Table over the same variables with fewer categories. `n` stays the number of all records.

        Raises
        ------
        InputError
            If no category is listed, or one is listed twice.

        Examples
        --------
        >>> [table] = mq.tally(mq.data.students()).answer([mq.Query(by="year")])
        >>> table.restrict({"year": [1, 3]}).values.tolist()
        [200.0, 200.0]
        """
        codes: dict[int, tuple[int, ...]] = {}
        axes = list(self.axes)
        for name, labels in among.items():
            axis = self._axis(name)
            chosen = tuple(self.axes[axis].code(label) for label in labels)
            if not chosen or len(set(chosen)) < len(chosen):
                raise InputError(f"List categories of {name!r} to keep, each once.")
            codes[axis] = chosen
            kept = [self.axes[axis].categories[code] for code in chosen]
            absent = tuple(label for label in self.axes[axis].missing if label in kept)
            axes[axis] = Variable(name, tuple(kept), absent if len(absent) < len(kept) else ())
        return CountTable(
            tuple(axes),
            take_cells(self.values, codes),
            self.n,
            self.evidence.take(codes),
            self.adjusted,
            None if self.unbiased is None else take_cells(self.unbiased, codes),
        )

    def drop_missing(self, names: Iterable[str] | str | None = None) -> CountTable:
        """Return the table of the people who answered, without missing categories.

        Parameters
        ----------
        names : str or iterable of str, optional
            Variables that must have an answer. By default all.

        Returns
        -------
        CountTable
            The table without the missing categories of these variables; itself if they have none.
        """
        axes = range(len(self.axes)) if names is None else self._axes(names)
        among = {self.axes[axis].name: self.axes[axis].answers for axis in axes if self.axes[axis].missing}
        return self.restrict(among) if among else self

    def nonnegative(self, method: Projection = "mle") -> CountTable:
        """Return the table without negative counts. This introduces a bias.

        Parameters
        ----------
        method : {"mle", "simplex", "clip"}, default "mle"
            "mle": the most likely table given the disguised records. "simplex": the nearest table with the
            same total. "clip": set negative counts to zero and rescale.

        Returns
        -------
        CountTable
            Table with nonnegative counts. Standard errors and intervals stay those of the unbiased estimate.

        Raises
        ------
        InputError
            If the method is unknown.
        """
        if method not in PROJECTIONS:
            raise InputError(
                f"nonnegative() takes one of {', '.join(map(repr, PROJECTIONS))}. Got {method!r} instead."
            )
        values = self.evidence.nonnegative(method)
        return replace(self, values=values, adjusted=method, unbiased=self.estimate)

    def deviance(self, expected: Floats) -> float:
        """Return the deviance of the reports from these true counts.

        That is twice the log-likelihood that the counts lose against the best fit.
        """
        return self.evidence.deviance(np.broadcast_to(np.asarray(expected, dtype=float), self.values.shape))

    def fit(self, generators: Iterable[Iterable[str] | str]) -> Fit:
        """Fit a hierarchical log-linear model of the true counts.

        Parameters
        ----------
        generators : iterable of str or of iterables of str
            Sets of variables whose joint margins the model follows, for example ``[["a"], ["b"]]`` for
            independence. Variables in no generator are uniformly distributed.

        Returns
        -------
        Fit
            Fitted counts, deviance and degrees of freedom.
        """
        return self.evidence.fit([self._axes(names) for names in generators])

    def __add__(self, other: CountTable) -> CountTable:
        """Return the sum with a table of different, independent records."""
        if not isinstance(other, CountTable):
            return NotImplemented
        if self.axes != other.axes:
            raise InputError(
                f"Tables over {self.names} and {other.names} cannot be added: their variables differ."
            )
        if self.adjusted != other.adjusted:
            raise InputError(
                "An unbiased table and a nonnegative one cannot be added: call nonnegative() after adding."
            )
        return CountTable(
            self.axes,
            self.values + other.values,
            self.n + other.n,
            self.evidence + other.evidence,
            self.adjusted,
            self.estimate + other.estimate if self.adjusted else None,
        )

    def within(self, names: Iterable[str] | str, kind: Kind = "population") -> Floats:
        """Return covariance blocks of cells that differ only along the named variables.

        Parameters
        ----------
        names : str or iterable of str
            Variables along which the cells of a block differ.
        kind : {"population", "given_records"}, default "population"
            Which covariance: with the sampling of the records, or with the records fixed.

        Returns
        -------
        array
            Array of shape (*other axes, B, B) for blocks of B cells.
        """
        return self.covariance.within(self._axes(names), kind)

    def to_frame(
        self, level: float = 0.95, kind: Kind = "population", simultaneous: Simultaneous | None = None
    ) -> pd.DataFrame:
        """Return a pandas frame with one row per cell: labels, count, stderr, lower, upper.

        Parameters
        ----------
        level, kind, simultaneous
            Of the intervals, as in `conf_int`.

        Returns
        -------
        pandas.DataFrame
            One row per cell.
        """
        lower, upper = self.conf_int(level, kind, simultaneous)
        return cell_frame(self.axes, count=self.values, stderr=self.stderr(kind), lower=lower, upper=upper)

    @printable
    def summary(self, level: float = 0.95, max_rows: int = 60) -> str:
        """Return the table as text.

        Parameters
        ----------
        level : float, default 0.95
            Confidence level of the intervals.
        max_rows : int, default 60
            Number of rows shown.

        Returns
        -------
        str
            Title, rows and the level of the intervals.
        """
        frame = self.to_frame(level)
        cells = prod(self.values.shape)
        title = f"{' × '.join(self.names) or 'all records'}: {cells:,} cells, n = {self.n:,}"
        if self.adjusted:
            title += f", made nonnegative by {self.adjusted!r} (standard errors of the unbiased estimate)"
        body = frame.to_string(index=False, max_rows=max_rows, float_format=lambda x: f"{x:,.1f}")
        return f"{title}\n{body}\n({level:.0%} intervals)"

    def plot(self, ax: Axes | None = None, level: float = 0.95) -> Axes:
        """Plot each count with its interval; colours show the last of several variables.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default a new figure.
        level : float, default 0.95
            Confidence level of the intervals.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return cell_plot(
            self.axes,
            (self.values, *self.conf_int(level)),
            ax,
            xlabel=f"count, {level:.0%} intervals",
            title=f"{' × '.join(self.names) or 'all records'}, n = {self.n:,}",
        )

    def __repr__(self) -> str:
        """Return the summary."""
        return self.summary(max_rows=20)

    def _critical(self, level: float, kind: Kind, simultaneous: Simultaneous | None) -> float:
        """Return the half-width of the intervals in standard errors."""
        check_simultaneous(simultaneous)
        if simultaneous is None:
            return two_sided_quantile(level)
        if simultaneous == "bonferroni":
            return bonferroni(level, self.values.size)
        return max_t(level, self.covariance.dense(MOST_CELLS, kind))

    def _axis(self, name: str) -> int:
        return self.names.index(Schema(self.axes)[name].name)

    def _axes(self, names: Iterable[str] | str) -> list[int]:
        listed = (names,) if isinstance(names, str) else tuple(names)
        if len(set(listed)) < len(listed):
            raise InputError(f"A variable is named twice among {', '.join(listed)}.")
        return [self._axis(name) for name in listed]

    def _reduce(self, keep: list[int], at: dict[int, int]) -> CountTable:
        return CountTable(
            tuple(self.axes[axis] for axis in keep),
            reduce_cells(self.values, keep, at),
            self.n,
            self.evidence.reduce(keep, at),
            self.adjusted,
            reduce_cells(self.estimate, keep, at) if self.adjusted else None,
        )


def cell_frame(axes: Sequence[Variable], **columns: NDArray[Any]) -> pd.DataFrame:
    """Return a pandas frame with one row per cell: its labels by variable, then the columns.

    An underscore is appended to the name of a column that is also the name of a variable.
    """
    import pandas as pd  # noqa: PLC0415  (core needs only NumPy; pandas is loaded for frames)

    cells = list(product(*(axis.categories for axis in axes)))
    frame = pd.DataFrame({axis.name: [cell[i] for cell in cells] for i, axis in enumerate(axes)})
    for name, column in columns.items():
        frame[name if name not in frame else f"{name}_"] = column.ravel()
    return frame


def cell_labels(axes: Sequence[Variable]) -> list[str]:
    """Return cells as text, such as ``a = 1, b = 2``; "all records" for a table without variables."""
    return [
        ", ".join(f"{axis.name} = {label}" for axis, label in zip(axes, cell, strict=True)) or "all records"
        for cell in product(*(axis.categories for axis in axes))
    ]


def cell_plot(
    axes: Sequence[Variable], columns: Sequence[NDArray[Any]], ax: Axes | None, *, xlabel: str, title: str
) -> Axes:
    """Plot values with their lower and upper limits for each cell; colours show the last of several axes."""
    from masquerade.core.plots.drawing import Dots, dot_plot  # noqa: PLC0415  (few tables are plotted)

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
