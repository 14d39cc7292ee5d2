"""Log-linear models of tables, fitted to the reports and compared by their deviance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_tail, two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.evidence import Fit
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable, cell_frame, cell_plot
from masquerade.core.tally import Tally
from masquerade.core.util.display import Shown, p_text
from masquerade.stats._design import formulaic, variables_in
from masquerade.stats._tables import Where, names_of, schema_of, table_of
from masquerade.stats.estimates import TestResult
from masquerade.stats.percentages import given_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Model = str | Iterable[str | Iterable[str]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LogLinear(Shown):
    """A hierarchical log-linear model of the truth behind reports.

    `deviance` is by how much less likely the reports are than under the best table of all, with `df` degrees
    of freedom; `expected` are the fitted counts.

    >>> source = mq.tally(mq.data.students())
    >>> small = mq.stats.loglinear(source, "exams + pills")
    >>> larger = mq.stats.loglinear(source, "exams*pills")
    >>> small.compare(larger).df
    1
    """

    result_name: ClassVar[str] = "LogLinear"
    generators: tuple[tuple[str, ...], ...]
    axes: tuple[Variable, ...]
    expected: Floats
    stderr: Floats
    deviance: float
    df: int
    p_value: float
    n: int
    fit: Fit = field(repr=False)
    condition: str = ""

    @property
    def heading(self) -> str:
        """Return the model in a line."""
        return f"Log-linear model {_model(self.generators)}{self.condition}, n = {self.n:,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return how well the model fits."""
        if not self.df:
            return ("The model is saturated: it fits any table.",)
        return (f"Deviance {self.deviance:.2f}, df {self.df}, p {p_text(self.p_value)}; BIC {self.bic:.1f}.",)

    @property
    def bic(self) -> float:
        """Return the deviance less df·log n: below 0 the model is preferred to the table without it."""
        return self.deviance - self.df * float(np.log(max(self.n, 2)))

    def compare(self, larger: LogLinear) -> TestResult:
        """Test this model within a larger one, by the difference of their deviances."""
        inside = all(any(set(own) <= set(other) for other in larger.generators) for own in self.generators)
        if self.axes != larger.axes or not inside:
            raise InputError("Only models of one table can be compared, the smaller within the larger.")
        statistic, df = max(self.deviance - larger.deviance, 0.0), self.df - larger.df
        title = f"{_model(self.generators)} within {_model(larger.generators)}{self.condition}"
        return TestResult(title, statistic, df, chi_square_tail(statistic, df), self.n, "deviance")

    def to_frame(self) -> pd.DataFrame:
        """Return the fitted counts, a row for each cell."""
        return cell_frame(self.axes, expected=self.expected, stderr=self.stderr)

    def plot(self, ax: Axes | None = None, level: float = 0.95) -> Axes:
        """Draw the fitted counts with their intervals; of several variables the last is told by colours."""
        half = two_sided_quantile(level) * self.stderr
        return cell_plot(
            self.axes,
            (self.expected, self.expected - half, self.expected + half),
            ax,
            xlabel=f"fitted count, {level:.0%} intervals",
            title=self.heading,
        )


def _model(generators: tuple[tuple[str, ...], ...]) -> str:
    return ", ".join(f"[{' '.join(names)}]" for names in generators)


def loglinear(data: Tally | CountTable, model: Model, *, where: Where = None) -> LogLinear:
    """Fit a hierarchical log-linear model: by generators, [["a", "b"], "c"], or a formula, "a*b + c".

    The p-value is that of Pearson's statistic of the reports, with the degrees of freedom of the model.

    Formula: the most likely table of the model given the reports; see `CountTable.fit`.
    Reference: Haberman (1974, 1977); van den Hout & van der Heijden (2004) for randomized response.

    >>> source = mq.tally(mq.data.students())
    >>> model = mq.stats.loglinear(source, "exams*pills + pills*sleep")
    >>> model.df, round(model.deviance, 2)
    (2, 0.0)
    """
    generators = _generators(model)
    used = {name for names in generators for name in names}
    for name in used:
        schema_of(data)[name]
    names = tuple(name for name in schema_of(data) if name in used)
    table = table_of(data, names, where)
    fit, best = table.fit(generators), table.fit([names])
    size = int(np.prod(table.values.shape))
    df = fit.df - best.df
    deviance = max(fit.deviance - best.deviance, 0.0)
    p_value = chi_square_tail(max(fit.pearson - best.pearson, 0.0), df)
    stderr = fit.contrast(np.eye(size).reshape(size, *table.values.shape)).stderr.reshape(table.values.shape)
    return LogLinear(
        generators, table.axes, fit.expected, stderr, deviance, df, p_value, table.n, fit, given_text(where)
    )


def _generators(model: Model) -> tuple[tuple[str, ...], ...]:
    """Return the largest terms of a model."""
    if isinstance(model, str):
        variables_in(model)
        terms = [tuple(str(factor) for factor in term.factors) for term in formulaic().Formula(model)]
        given = [term for term in terms if term != ("1",)]
    else:
        given = [names_of(names) for names in model]
    kept = [names for names in given if not any(set(names) < set(other) for other in given)]
    if not kept:
        raise InputError("A log-linear model needs a term: [['a', 'b']], or 'a*b + c'.")
    return tuple(dict.fromkeys(kept))
