"""Estimates with standard errors, intervals and p-values: what most statistics here give."""

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

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Adjustment = Literal["holm", "bh"]
DOUBTFUL = 0.05


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Estimates(Shown):
    """Some figures, each with its standard error, interval and, against a null value, its p-value.

    `labels` say what each row is about, column by column of `names`; `what` names the figure. An interval
    without an end has an infinite one; a figure that the data do not determine is NaN. `covariance` is that
    of the figures, where it is known. `adjusted` are p-values corrected for their number.

    >>> found = mq.stats.shares(mq.tally(mq.data.students()), "pills", by="exams")
    >>> found.params.round(2).to_dict()
    {('few', 'no'): 0.88, ('few', 'yes'): 0.12, ('many', 'no'): 0.7, ('many', 'yes'): 0.3}
    >>> found.conf_int().round(2).loc[("many", "yes")].tolist()
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
    p_values: Floats | None = None
    adjusted: tuple[Adjustment, Floats] | None = None
    covariance: Floats | None = None
    in_percent: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def percent(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return the columns that are read as percentages."""
        return (self.what, "stderr", "lower", "upper") if self.in_percent else ()

    @property
    def heading(self) -> str:
        """Return what the result is, in a line."""
        return f"{self.title}, n = {self.n:,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the level of the intervals, the null value, and what else must be known."""
        null = "" if self.null is None else f"; p-values against {self.what} = {self.null:g}"
        many = "" if self.adjusted is None else f", adjusted by {ADJUSTMENTS[self.adjusted[0]]}"
        return (f"({self.level:.0%} intervals{null}{many})", *self.notes)

    @property
    def params(self) -> pd.Series:
        """Return the figures by their labels."""
        return self._series(self.values)

    @property
    def bse(self) -> pd.Series:
        """Return the standard errors by their labels."""
        return self._series(self.stderr)

    @property
    def pvalues(self) -> pd.Series:
        """Return the p-values by their labels; NaN where nothing is tested."""
        return self._series(np.full(len(self), np.nan) if self.p_values is None else self.p_values)

    def conf_int(self) -> pd.DataFrame:
        """Return the intervals by their labels."""
        import pandas as pd  # noqa: PLC0415  (a frame is asked for here)

        return pd.DataFrame({"lower": self._series(self.lower), "upper": self._series(self.upper)})

    def cov_params(self) -> pd.DataFrame:
        """Return the covariance of the figures by their labels, where it is known."""
        import pandas as pd  # noqa: PLC0415

        if self.covariance is None:
            raise InputError(f"The covariance of these figures ({self.title}) was not worked out.")
        index = self._series(self.values).index
        return pd.DataFrame(self.covariance, index=index, columns=index)

    def adjust(self, method: Adjustment = "holm") -> Estimates:
        """Return the same with p-values adjusted for their number, by Holm or Benjamini and Hochberg."""
        if self.p_values is None:
            raise InputError(f"There are no p-values to adjust: {self.title} tests nothing.")
        return replace(self, adjusted=(method, adjusted_p_values(self.p_values, method)))

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: labels, the figure, stderr, lower, upper, p_value, p_adjusted."""
        import pandas as pd  # noqa: PLC0415

        columns: dict[str, Any] = {
            name: [row[place] for row in self.labels] for place, name in enumerate(self.names)
        }
        figures = {self.what: self.values, "stderr": self.stderr, "lower": self.lower, "upper": self.upper}
        if self.p_values is not None:
            figures["p_value"] = self.p_values
        if self.adjusted is not None:
            figures["p_adjusted"] = self.adjusted[1]
        for name, values in figures.items():
            columns[name if name not in columns else f"{name}_"] = values
        return pd.DataFrame(columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw every figure with its interval, and a line at the null value."""
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
        """Return how many figures there are."""
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows as named tuples, in order."""
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
    """The test of a hypothesis: its statistic, degrees of freedom and p-value, and what that means.

    >>> test = mq.stats.independence(mq.tally(mq.data.students()), "pills", "exams")
    >>> round(test.statistic, 1), test.df
    (30.1, 1.0)
    >>> test.needed(power=0.8)
    162
    """

    result_name: ClassVar[str] = "TestResult"
    title: str
    statistic: float
    df: float
    p_value: float
    n: int
    symbol: str = "statistic"
    notes: tuple[str, ...] = ()
    __test__ = False  # pytest looks for tests by their names

    @property
    def heading(self) -> str:
        """Return what was tested, in a line."""
        return f"{self.title}, n = {self.n:,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what the p-value says, in words."""
        return (verdict(self.p_value), *self.notes)

    def to_frame(self) -> pd.DataFrame:
        """Return the figures as one row."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame({self.symbol: [self.statistic], "df": [self.df], "p_value": [self.p_value]})

    def needed(self, power: float = 0.8, level: float = 0.05) -> int | None:
        """Return how many records find a departure as large as estimated here; None if that is 0 or less.

        Formula: n·λ/(statistic − df) with P(χ'²_df(λ) > χ²_{df,1−level}) = power: the statistic less its
        degrees of freedom estimates the non-centrality without bias, and that grows with n.
        Reference: Cohen, Statistical Power Analysis (1988), chapter 7.
        Error: that of the estimate: relative, about √(2(df + 2(statistic − df)))/(statistic − df).
        """
        if not 0 < level < power < 1:
            raise InputError(f"The power must be above the level and below 1. Got {power:g} and {level:g}.")
        if not self.statistic > self.df > 0:
            return None
        from scipy import optimize, stats  # noqa: PLC0415  (few ask)

        threshold = chi_square_point(level, self.df)

        def short(centre: float) -> float:
            return float(stats.ncx2.sf(threshold, self.df, centre) - power)

        high = 1.0
        while short(high) < 0:
            high *= 2
        centre = float(optimize.brentq(short, 1e-9, high, xtol=1e-10))
        return math.ceil(self.n * centre / (self.statistic - self.df))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how the statistic scatters if the hypothesis holds (χ², nearly), and where it is."""
        return chi_square_plot(
            self.statistic, self.df, ax, xlabel=f"{self.symbol}, p {p_text(self.p_value)}", title=self.heading
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TestResults(Shown):
    """Several tests, each with its p-value adjusted for their number.

    >>> tests = mq.stats.associations(mq.tally(mq.data.students()), "sleep")
    >>> len(tests), tests.to_frame().columns.tolist()
    (3, ['test', 'statistic', 'df', 'p_value', 'p_adjusted'])
    >>> tests.p_adjusted.round(3).tolist()
    [0.115, 0.634, 0.0]
    """

    result_name: ClassVar[str] = "TestResults"
    title: str
    names: tuple[str, ...]
    tests: tuple[TestResult, ...]
    method: Adjustment
    __test__ = False

    @property
    def heading(self) -> str:
        """Return what was tested, in a line."""
        return f"{self.title}, n = {max((test.n for test in self.tests), default=0):,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return how p-values were adjusted, and which hypotheses are rejected."""
        found = [n for n, p in zip(self.names, self.p_adjusted, strict=True) if p < DOUBTFUL]
        said = ", ".join(found) if found else "none: these data cannot tell any of them from chance"
        return (f"(p-values adjusted by {ADJUSTMENTS[self.method]})", f"Beyond chance at 5%: {said}.")

    @property
    def p_values(self) -> Floats:
        """Return the p-values, one test at a time."""
        return np.array([test.p_value for test in self.tests])

    @property
    def p_adjusted(self) -> Floats:
        """Return the p-values adjusted for the number of tests."""
        return adjusted_p_values(self.p_values, self.method)

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each test."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(
            {
                "test": list(self.names),
                "statistic": [test.statistic for test in self.tests],
                "df": [test.df for test in self.tests],
                "p_value": self.p_values,
                "p_adjusted": self.p_adjusted,
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw −log₁₀ of the adjusted p-values, with a line at 5%."""
        shown = -np.log10(np.maximum(self.p_adjusted, 1e-30))
        return dot_plot(
            self.names,
            {"": Dots(shown)},
            ax,
            xlabel="−log₁₀ of the adjusted p-value",
            title=self.heading,
            mark=float(-np.log10(DOUBTFUL)),
        )

    def __len__(self) -> int:
        """Return how many tests there are."""
        return len(self.tests)

    def __getitem__(self, name: str) -> TestResult:
        """Return a test by its name."""
        if name not in self.names:
            raise InputError(f"There is no test {name!r}. There are: {', '.join(self.names)}.")
        return self.tests[self.names.index(name)]


def verdict(p: float) -> str:
    """Return what a p-value says, in a sentence."""
    if np.isnan(p):
        return "The data do not determine this test."
    if p < DOUBTFUL:
        return f"p = {p_text(p)}: more than chance alone would give at 5%.".replace("= <", "< ")
    return (
        f"p = {p_text(p)}: these data cannot tell it from chance; that does not show that there is nothing."
    )


ADJUSTMENTS: dict[str, str] = {"holm": "Holm's method", "bh": "Benjamini's and Hochberg's method"}


def adjusted_p_values(p_values: Sequence[float] | Floats, method: Adjustment = "holm") -> Floats:
    """Return p-values adjusted for their number: NaN stays, and counts as no test.

    Formula: ``holm`` max over j ≤ i of (m − j + 1)p₍ⱼ₎, which keeps the chance of any false alarm; ``bh`` min
    over j ≥ i of m·p₍ⱼ₎/j, which keeps the share of false ones among the alarms. At most 1.
    Reference: Holm (1979); Benjamini & Hochberg (1995).

    >>> mq.stats.adjusted_p_values([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    if method not in ADJUSTMENTS:
        raise InputError(f"P-values are adjusted by 'holm' or 'bh'. Got {method!r} instead.")
    given = np.asarray(p_values, dtype=float)
    result = np.full(given.shape, np.nan)
    known = np.flatnonzero(~np.isnan(given))
    order = known[np.argsort(given[known], kind="stable")]
    p, m = given[order], len(order)
    if method == "holm":
        result[order] = np.minimum(np.maximum.accumulate((m - np.arange(m)) * p), 1.0)
    else:
        raised = (m / (1 + np.arange(m)) * p)[::-1]
        result[order] = np.minimum(np.minimum.accumulate(raised)[::-1], 1.0)
    return result
