"""Result types of the statistics: estimates with standard errors, intervals and p-values, and tests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_point
from masquerade.core.errors import InputError
from masquerade.core.plots.drawing import Dots, chi_square_plot, dot_plot
from masquerade.core.schema import Category
from masquerade.core.util.display import Shown, p_text
from masquerade.core.util.formatting import category_text
from masquerade.stats._tables import normal_p

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Adjustment = Literal["holm", "bh"]
DOUBTFUL = 0.05


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Estimates(Shown):
    """Estimates with standard errors, intervals and, against a null value, p-values.

    An undetermined estimate is NaN. An interval that is unbounded on one side has an infinite limit there.

    Attributes
    ----------
    title : str
        Title of the estimates.
    what : str
        Name of the estimate and of its column, for example "share".
    names : tuple of str
        Names of the label columns.
    labels : tuple of tuple
        Labels of each row, one per name.
    values, stderr, lower, upper : array
        Estimates, their standard errors and the limits of their intervals.
    n : int
        Number of records.
    level : float
        Confidence level of the intervals.
    null : float or None
        Null value of the p-values.
    z : array or None
        Standard normal statistics of the tests against `null`. They use standard errors under the null
        value, so they may differ from the estimate divided by `stderr`.
    adjusted : tuple or None
        Method of adjustment, and the p-values adjusted for multiple testing.
    covariance : array or None
        Covariance of the estimates, where it is known.
    in_percent : bool
        Show estimates as percentages.
    notes : tuple of str
        Remarks on the result.

    Examples
    --------
    >>> estimates = mq.stats.shares(mq.tally(mq.data.students()), "pills", by="exams")
    >>> estimates.params.round(2).to_dict()
    {('few', 'no'): 0.88, ('few', 'yes'): 0.12, ('many', 'no'): 0.7, ('many', 'yes'): 0.3}
    >>> estimates.conf_int().round(2).loc[("many", "yes")].tolist()
    [0.25, 0.35]
    """

    result_name: ClassVar[str] = "Estimates"
    title: str
    what: str
    names: tuple[str, ...]
    labels: tuple[tuple[Category, ...], ...]
    values: Floats
    stderr: Floats
    lower: Floats
    upper: Floats
    n: int
    level: float = 0.95
    null: float | None = None
    z: Floats | None = None
    adjusted: tuple[Adjustment, Floats] | None = None
    covariance: Floats | None = None
    in_percent: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def percent(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return the columns to show as percentages."""
        return (self.what, "stderr", "lower", "upper") if self.in_percent else ()

    @property
    def heading(self) -> str:
        """Return the title and the number of records."""
        return f"{self.title}, n = {self.n:,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the confidence level, the null value and the notes."""
        null = "" if self.null is None else f"; p-values against {self.what} = {self.null:g}"
        many = "" if self.adjusted is None else f", adjusted by {ADJUSTMENTS[self.adjusted[0]]}"
        return (f"({self.level:.0%} intervals{null}{many})", *self.notes)

    @property
    def p_values(self) -> Floats | None:
        """Return the two-sided p-values of `z`."""
        return None if self.z is None else np.array([normal_p(float(one)) for one in self.z])

    @property
    def params(self) -> pd.Series:
        """Return the estimates by label."""
        return self._series(self.values)

    @property
    def bse(self) -> pd.Series:
        """Return the standard errors by label."""
        return self._series(self.stderr)

    @property
    def pvalues(self) -> pd.Series:
        """Return the p-values by label; NaN without a null value."""
        return self._series(np.full(len(self), np.nan) if self.p_values is None else self.p_values)

    @property
    def tvalues(self) -> pd.Series:
        """Return the statistics of the p-values by label; NaN without a null value."""
        return self._series(np.full(len(self), np.nan) if self.z is None else self.z)

    def conf_int(self) -> pd.DataFrame:
        """Return the intervals by label."""
        import pandas as pd  # noqa: PLC0415  (core and stats import pandas only when needed)

        return pd.DataFrame({"lower": self._series(self.lower), "upper": self._series(self.upper)})

    def cov_params(self) -> pd.DataFrame:
        """Return the covariance of the estimates by label.

        Raises
        ------
        InputError
            If the covariance is not known.
        """
        import pandas as pd  # noqa: PLC0415

        if self.covariance is None:
            raise InputError(f"The covariance of these estimates ({self.title}) was not computed.")
        index = self._series(self.values).index
        return pd.DataFrame(self.covariance, index=index, columns=index)

    def adjust(self, method: Adjustment = "holm") -> Estimates:
        """Return the estimates with p-values adjusted for multiple testing.

        Parameters
        ----------
        method : {"holm", "bh"}, default "holm"
            Holm's method, or Benjamini and Hochberg's.

        Returns
        -------
        Estimates
            The same estimates with `adjusted` set.

        Raises
        ------
        InputError
            If there are no p-values.
        """
        if self.p_values is None:
            raise InputError(f"There are no p-values to adjust: {self.title} tests nothing.")
        return replace(self, adjusted=(method, adjusted_p_values(self.p_values, method)))

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: labels, the estimate, stderr, lower, upper, z, p_value, p_adjusted."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(self.table_columns())

    def table_columns(self) -> dict[str, Any]:
        """Return the columns of `to_frame` by name."""
        columns: dict[str, Any] = {
            name: [row[index] for row in self.labels] for index, name in enumerate(self.names)
        }
        numbers = {self.what: self.values, "stderr": self.stderr, "lower": self.lower, "upper": self.upper}
        if self.z is not None and self.p_values is not None:
            numbers |= {"z": self.z, "p_value": self.p_values}
        if self.adjusted is not None:
            numbers["p_adjusted"] = self.adjusted[1]
        for name, values in numbers.items():
            columns[name if name not in columns else f"{name}_"] = values
        return columns

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot each estimate with its interval, and a line at the null value."""
        scale = 100.0 if self.in_percent else 1.0
        points = " in percentage points" if self.null is not None else " in percent"
        ends = [np.where(np.isfinite(end), end, np.nan) * scale for end in (self.lower, self.upper)]
        return dot_plot(
            [", ".join(map(category_text, row)) or "all records" for row in self.labels],
            {self.what: Dots(self.values * scale, *ends)},
            ax,
            xlabel=f"{self.what}{points if self.in_percent else ''}, {self.level:.0%} intervals",
            title=self.heading,
            mark=None if self.null is None else self.null * scale,
        )

    def __len__(self) -> int:
        """Return the number of estimates."""
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows as named tuples."""
        return iter(self.to_frame().itertuples(index=False))

    def _series(self, values: Floats) -> pd.Series:
        import pandas as pd  # noqa: PLC0415

        rows = [tuple(map(category_text, row)) for row in self.labels]
        if not self.names:
            return pd.Series(values, index=[self.what] * len(values))
        if len(self.names) == 1:
            return pd.Series(values, index=pd.Index([row[0] for row in rows], name=self.names[0]))
        return pd.Series(values, index=pd.MultiIndex.from_tuples(rows, names=list(self.names)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TestResult(Shown):
    """A hypothesis test: statistic, degrees of freedom, p-value and a one-sentence verdict.

    An F statistic also has the degrees of freedom of its denominator, `df2`.

    Examples
    --------
    >>> test = mq.stats.independence(mq.tally(mq.data.students()), "pills", "exams")
    >>> round(test.statistic, 1), test.df
    (29.3, 1.0)
    >>> test.sample_size(power=0.8)
    167
    """

    result_name: ClassVar[str] = "TestResult"
    title: str
    statistic: float
    df: float
    p_value: float
    n: int
    symbol: str = "statistic"
    notes: tuple[str, ...] = ()
    df2: float | None = None
    __test__ = False  # pytest would collect it because of its name

    @property
    def heading(self) -> str:
        """Return the title and the number of records."""
        return f"{self.title}, n = {self.n:,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the verdict and the notes."""
        return (verdict(self.p_value), *self.notes)

    def to_frame(self) -> pd.DataFrame:
        """Return the result as a frame with one row."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(self.table_columns())

    def table_columns(self) -> dict[str, Any]:
        """Return the columns of `to_frame` by name."""
        columns = {self.symbol: [self.statistic], "df": [self.df]}
        if self.df2 is not None:
            columns["df2"] = [self.df2]
        return {**columns, "p_value": [self.p_value]}

    @property
    def _chi_square(self) -> float:
        """Return the statistic on the scale of χ²: F times its first degrees of freedom."""
        return self.statistic if self.df2 is None else self.statistic * self.df

    def sample_size(self, power: float = 0.8, level: float = 0.05) -> int | None:
        """Return the number of records needed to detect the estimated departure from the hypothesis.

        Parameters
        ----------
        power : float, default 0.8
            Probability of detecting the departure.
        level : float, default 0.05
            Significance level of the test.

        Returns
        -------
        int or None
            Number of records; None if the estimated departure is 0 or less.

        Raises
        ------
        InputError
            If not 0 < level < power < 1.

        Notes
        -----
        Formula: n·λ/(statistic − df) with P(χ'²_df(λ) > χ²_{df,1−level}) = power. The statistic minus its
        degrees of freedom estimates the non-centrality without bias, and the non-centrality grows in
        proportion to n.
        Reference: Cohen, Statistical Power Analysis (1988), chapter 7.
        Error: the relative error of the estimate, about √(2(df + 2(statistic − df)))/(statistic − df).
        """
        if not 0 < level < power < 1:
            raise InputError(f"The power must be above the level and below 1. Got {power:g} and {level:g}.")
        if not self._chi_square > self.df > 0:
            return None
        from scipy import optimize, stats  # noqa: PLC0415  (slow to import, rarely needed)

        threshold = chi_square_point(level, self.df)

        def excess_power(centre: float) -> float:
            return float(stats.ncx2.sf(threshold, self.df, centre) - power)

        high = 1.0
        while excess_power(high) < 0:
            high *= 2
        centre = float(optimize.brentq(excess_power, 1e-9, high, xtol=1e-10))
        return math.ceil(self.n * centre / (self._chi_square - self.df))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the χ² distribution of the statistic under the hypothesis, and its observed value."""
        return chi_square_plot(
            self._chi_square,
            self.df,
            ax,
            xlabel=f"{self.symbol if self.df2 is None else 'F × df'}, p {p_text(self.p_value)}",
            title=self.heading,
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TestResults(Shown):
    """Several tests with p-values adjusted for multiple testing.

    Examples
    --------
    >>> tests = mq.stats.associations(mq.tally(mq.data.students()), "sleep")
    >>> len(tests), tests.to_frame().columns.tolist()
    (3, ['test', 'chi2', 'df', 'p_value', 'p_adjusted'])
    >>> tests.p_adjusted.round(3).tolist()
    [0.115, 0.634, 0.0]
    """

    result_name: ClassVar[str] = "TestResults"
    title: str
    names: tuple[str, ...]
    tests: tuple[TestResult, ...]
    method: Adjustment
    notes: tuple[str, ...] = ()
    __test__ = False

    @property
    def heading(self) -> str:
        """Return the title and the number of records."""
        return f"{self.title}, n = {max((test.n for test in self.tests), default=0):,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the method of adjustment and the rejected hypotheses."""
        rejected = [n for n, p in zip(self.names, self.p_adjusted, strict=True) if p < DOUBTFUL]
        listed = ", ".join(rejected) if rejected else "none: chance alone could give all of these results"
        adjusted = f"(p-values adjusted by {ADJUSTMENTS[self.method]})"
        return (adjusted, f"Beyond chance at 5%: {listed}.", *self.notes)

    @property
    def symbol(self) -> str:
        """Return the name of the statistic, or "statistic" if the tests have different statistics."""
        symbols = {test.symbol for test in self.tests}
        return symbols.pop() if len(symbols) == 1 else "statistic"

    @property
    def p_values(self) -> Floats:
        """Return the unadjusted p-values."""
        return np.array([test.p_value for test in self.tests])

    @property
    def p_adjusted(self) -> Floats:
        """Return the p-values adjusted for the number of tests."""
        return adjusted_p_values(self.p_values, self.method)

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with one row per test."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(
            {
                "test": list(self.names),
                self.symbol: [test.statistic for test in self.tests],
                "df": [test.df for test in self.tests],
                "p_value": self.p_values,
                "p_adjusted": self.p_adjusted,
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot −log₁₀ of the adjusted p-values, with a line at 5%."""
        heights = -np.log10(np.maximum(self.p_adjusted, 1e-30))
        return dot_plot(
            self.names,
            {"": Dots(heights)},
            ax,
            xlabel="−log₁₀ of the adjusted p-value",
            title=self.heading,
            mark=float(-np.log10(DOUBTFUL)),
        )

    def __len__(self) -> int:
        """Return the number of tests."""
        return len(self.tests)

    def __getitem__(self, name: str) -> TestResult:
        """Return the test with the given name."""
        if name not in self.names:
            raise InputError(f"There is no test {name!r}. There are: {', '.join(self.names)}.")
        return self.tests[self.names.index(name)]


def verdict(p: float) -> str:
    """Return the meaning of a p-value in one sentence."""
    if np.isnan(p):
        return "The data do not determine this test."
    if p < DOUBTFUL:
        return f"p = {p_text(p)}: more than chance alone would give at 5%.".replace("= <", "< ")
    return (
        f"p = {p_text(p)}: chance alone could give this result; that does not show that there is no effect."
    )


ADJUSTMENTS: dict[str, str] = {"holm": "Holm's method", "bh": "Benjamini and Hochberg's method"}


def adjusted_p_values(p_values: Sequence[float] | Floats, method: Adjustment = "holm") -> Floats:
    """Return p-values adjusted for multiple testing.

    Parameters
    ----------
    p_values : sequence of float
        P-values. NaN stays NaN and does not count as a test.
    method : {"holm", "bh"}, default "holm"
        Holm's method bounds the probability of any false rejection, Benjamini and Hochberg's the expected
        share of false rejections among all rejections.

    Returns
    -------
    array
        Adjusted p-values, at most 1.

    Raises
    ------
    InputError
        If the method is unknown.

    Notes
    -----
    Formula: ``holm`` max over j ≤ i of (m − j + 1)p₍ⱼ₎; ``bh`` min over j ≥ i of m·p₍ⱼ₎/j.
    Reference: Holm (1979); Benjamini & Hochberg (1995).

    Examples
    --------
    >>> mq.stats.adjusted_p_values([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    if method not in ADJUSTMENTS:
        raise InputError(f"P-values are adjusted by 'holm' or 'bh'. Got {method!r} instead.")
    given = np.asarray(p_values, dtype=float)
    result = np.full(given.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(given))
    order = tested[np.argsort(given[tested], kind="stable")]
    p, m = given[order], len(order)
    if method == "holm":
        result[order] = np.minimum(np.maximum.accumulate((m - np.arange(m)) * p), 1.0)
    else:
        raised = (m / (1 + np.arange(m)) * p)[::-1]
        result[order] = np.minimum(np.minimum.accumulate(raised)[::-1], 1.0)
    return result
