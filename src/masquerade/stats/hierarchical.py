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
from masquerade.stats._tables import Where, names_of, schema_of
from masquerade.stats.estimates import TestResult
from masquerade.stats.missing_values import MissingOrAll, table_of_answers
from masquerade.stats.percentages import given_text
from masquerade.stats.regression.formula import formulaic, variables_in

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Model = str | Iterable[str | Iterable[str]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LogLinear(Shown):
    """A fitted hierarchical log-linear model of the true counts.

    Attributes
    ----------
    generators : tuple of tuple of str
        Highest terms of the model.
    axes : tuple of Variable
        Variables of the table.
    expected, stderr : array
        Fitted counts and their standard errors.
    deviance : float
        Twice the log-likelihood lost against the saturated model, with `df` degrees of freedom.
    df : int
        Degrees of freedom.
    p_value : float
        P-value of Pearson's statistic on the reports.
    n : int
        Number of records.

    Examples
    --------
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
    notes: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """Return the model and the number of records."""
        return f"Log-linear model {_model_text(self.generators)}{self.condition}, n = {self.n:,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the goodness of fit."""
        if not self.df:
            return ("The model is saturated: it fits any table.", *self.notes)
        fit = f"Deviance {self.deviance:.2f}, df {self.df}, p {p_text(self.p_value)}; BIC {self.bic:.1f}."
        return (fit, *self.notes)

    @property
    def bic(self) -> float:
        """Return deviance − df·log n; below 0 the model is preferred to the saturated model."""
        return self.deviance - self.df * float(np.log(max(self.n, 2)))

    def compare(self, larger: LogLinear) -> TestResult:
        """Test this model against a larger model that contains it, by the difference of deviances.

        Parameters
        ----------
        larger : LogLinear
            Model of the same table that contains all terms of this model.

        Returns
        -------
        TestResult
            Difference of deviances and its p-value.

        Raises
        ------
        InputError
            If the models are not nested models of the same table.
        """
        inside = all(any(set(term) <= set(other) for other in larger.generators) for term in self.generators)
        if self.axes != larger.axes or not inside:
            raise InputError(
                "Only nested models of one table can be compared; 'larger' must contain this one."
            )
        statistic, df = max(self.deviance - larger.deviance, 0.0), self.df - larger.df
        title = f"{_model_text(self.generators)} within {_model_text(larger.generators)}{self.condition}"
        return TestResult(title, statistic, df, chi_square_tail(statistic, df), self.n, "deviance")

    def to_frame(self) -> pd.DataFrame:
        """Return a frame of fitted counts with one row per cell."""
        return cell_frame(self.axes, expected=self.expected, stderr=self.stderr)

    def plot(self, ax: Axes | None = None, level: float = 0.95) -> Axes:
        """Plot the fitted counts with their intervals; colours show the categories of the last variable.

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
        half = two_sided_quantile(level) * self.stderr
        return cell_plot(
            self.axes,
            (self.expected, self.expected - half, self.expected + half),
            ax,
            xlabel=f"fitted count, {level:.0%} intervals",
            title=self.heading,
        )


def _model_text(generators: tuple[tuple[str, ...], ...]) -> str:
    return ", ".join(f"[{' '.join(names)}]" for names in generators)


def loglinear(
    data: Tally | CountTable, model: Model, *, where: Where = None, missing: MissingOrAll = "answered"
) -> LogLinear:
    """Fit a hierarchical log-linear model.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    model : str or iterable
        Formula, ``"a*b + c"``, or generators, ``[["a", "b"], "c"]``.
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "category"}, default "answered"
        Count only people who answered all variables named here, or count missing answers as categories.

    Returns
    -------
    LogLinear
        The fitted model.

    Raises
    ------
    InputError
        If the model has no term or names an unknown variable.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Formula: the maximum likelihood table of the model given the reports; see `CountTable.fit`. The p-value
    is computed from Pearson's statistic on the reports, with the degrees of freedom of the model.
    Reference: Haberman (1974, 1977); van den Hout & van der Heijden (2004) for randomized response.

    Examples
    --------
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
    table, notes = table_of_answers(data, names, where, missing, "A log-linear model")
    fit, best = table.fit(generators), table.fit([names])
    size = int(np.prod(table.values.shape))
    df = fit.df - best.df
    deviance = max(fit.deviance - best.deviance, 0.0)
    p_value = chi_square_tail(max(fit.pearson - best.pearson, 0.0), df)
    stderr = fit.contrast(np.eye(size).reshape(size, *table.values.shape)).stderr.reshape(table.values.shape)
    return LogLinear(
        generators,
        table.axes,
        fit.expected,
        stderr,
        deviance,
        df,
        p_value,
        table.n,
        fit,
        given_text(where),
        notes,
    )


def _generators(model: Model) -> tuple[tuple[str, ...], ...]:
    """Return the highest terms of a model."""
    if isinstance(model, str):
        variables_in(model)
        terms = [tuple(str(factor) for factor in term.factors) for term in formulaic().Formula(model)]
        given = [term for term in terms if term != ("1",)]
    else:
        given = [names_of(names) for names in model]
    highest = [names for names in given if not any(set(names) < set(other) for other in given)]
    if not highest:
        raise InputError("A log-linear model needs a term: [['a', 'b']], or 'a*b + c'.")
    return tuple(dict.fromkeys(highest))
