"""Tests of independence, of trend and of equal margins, and of any contrast of counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_tail, two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.link_test import link_tests
from masquerade.core.query import Query
from masquerade.core.schema import Category, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.stats._tables import (
    Names,
    Where,
    category_of,
    names_of,
    normal_p,
    null_variance,
    schema_of,
    scores_of,
    squared_error,
    table_of,
)
from masquerade.stats.estimates import Adjustment, Estimates, TestResult, TestResults
from masquerade.stats.percentages import given_text

Scores = Mapping[Category, float] | Sequence[float]
RANK = 1e-10  # of the largest eigenvalue


def independence(
    data: Tally | CountTable, first: str, second: str, *, given: Names = (), where: Where = None
) -> TestResult:
    """Test whether two variables are independent, in every category of `given` if there is any.

    The statistic is the deviance of the reports, twice the log-likelihood that the dependence adds; the
    p-value is that of Pearson's statistic on the reports, which keeps its level where counts are small: see
    `masquerade.core.link_test.link_tests`, the test that structures and trees rest on.

    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.independence(source, "pills", "sleep", given="exams"))
    Independence of pills and sleep given exams, n = 600
    deviance df p_value
       70.55  2 <0.0001
    p < 0.0001: more than chance alone would give at 5%.
    The statistic is the deviance, the p-value Pearson's on the reports.
    """
    table = table_of(data, (*names_of(given), first, second), where)
    return _tested([table], [(first, second)], names_of(given), where)[0]


def associations(
    data: Tally | CountTable,
    pairs: Iterable[tuple[str, str]] | str | None = None,
    *,
    given: Names = (),
    where: Where = None,
    method: Adjustment = "holm",
) -> TestResults:
    """Test many pairs of variables: those given, all with one variable, or all of them.

    P-values are adjusted for their number, by Holm's or Benjamini's and Hochberg's (``bh``) method.

    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.associations(source, "pills"))
    Tests of independence, n = 600
             test statistic df p_value p_adjusted
    pills – exams     30.07  1 <0.0001    <0.0001
     pills – year    6.0746  2   0.049      0.049
    pills – sleep     74.17  1 <0.0001    <0.0001
    (p-values adjusted by Holm's method)
    Beyond chance at 5%: pills – exams, pills – year, pills – sleep.
    """
    others = [name for name in schema_of(data) if name not in names_of(given) and name not in (where or {})]
    if pairs is None:
        asked = [(a, b) for place, a in enumerate(others) for b in others[place + 1 :]]
    elif isinstance(pairs, str):
        schema_of(data)[pairs]
        asked = [(pairs, name) for name in others if name != pairs]
    else:
        asked = [(a, b) for a, b in pairs]
    if not asked:
        raise InputError("associations() needs at least two variables.")
    names = [(*names_of(given), a, b) for a, b in asked]
    if isinstance(data, CountTable):
        tables = [table_of(data, each, where) for each in names]
    else:
        tables = data.answer([Query(by=each, where=where or {}) for each in names])
    found = _tested(tables, asked, names_of(given), where)
    title = "Tests of independence" + _given(names_of(given)) + given_text(where)
    return TestResults(title, tuple(f"{a} – {b}" for a, b in asked), tuple(found), method)


def _tested(
    tables: Sequence[CountTable], pairs: Sequence[tuple[str, str]], given: tuple[str, ...], where: Where
) -> list[TestResult]:
    found = link_tests(
        tables, [tuple(range(len(table.axes))) for table in tables], partial(np.random.default_rng, 0)
    )
    return [
        TestResult(
            f"Independence of {first} and {second}{_given(given)}{given_text(where)}",
            test.statistic,
            test.df,
            test.p_value,
            table.n,
            "deviance",
            ("The statistic is the deviance, the p-value Pearson's on the reports.",),
        )
        for table, (first, second), test in zip(tables, pairs, found, strict=True)
    ]


def _given(given: tuple[str, ...]) -> str:
    return f" given {', '.join(given)}" if given else ""


def trend(
    data: Tally | CountTable,
    outcome: str,
    over: str,
    *,
    category: Category | None = None,
    outcome_scores: Scores | None = None,
    scores: Scores | None = None,
    where: Where = None,
) -> TestResult:
    """Test whether an outcome rises or falls along the categories of an ordered variable.

    Of an outcome with two categories the share of `category` is meant (the one that says yes unless it is
    named). Else categories count as their scores: those given, their own numbers, the middles of bins, or
    0, 1, 2 …

    Formula: z = Σ (s_i − s̄)(t_j − t̄)N̂_ij over its standard error, √(wᵀCw).
    Reference: Cochran (1954); Armitage (1955); Mantel (1963) for outcomes with more than two categories.

    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.trend(source, "pills", "year", category="yes"))
    Trend of pills along year, n = 600
         z df p_value
    2.4551  1   0.014
    p = 0.014: more than chance alone would give at 5%.
    pills = yes rises along year.
    """
    table = table_of(data, (over, outcome), where)
    rows, columns = table.axes
    said = columns.name
    s, t = _ranked(rows, scores), _ranked(columns, outcome_scores)
    if len(columns) == 2 and outcome_scores is None:
        code = category_of(columns, category)
        t, said = np.eye(2)[code], f"{columns.name} = {columns.categories[code]}"
    total = table.total
    if total <= 0:
        raise InputError("No records are seen by the estimates: there is no trend to test.")
    s = s - float(table.values.sum(axis=1) @ s) / total
    t = t - float(table.values.sum(axis=0) @ t) / total
    z = _z(table, np.outer(s, t))
    title = f"Trend of {outcome} along {over}{given_text(where)}"
    notes = (f"{said} {'rises' if z > 0 else 'falls'} along {rows.name}.",) if normal_p(z) < 0.05 else ()
    return TestResult(title, z, 1, normal_p(z), table.n, "z", notes)


def _ranked(axis: Variable, given: Scores | None) -> Floats:
    try:
        return scores_of(axis, given)[0]
    except InputError:
        if given is not None:
            raise
        return np.arange(len(axis), dtype=float)


def marginal_homogeneity(
    data: Tally | CountTable, first: str, second: str, *, where: Where = None
) -> TestResult:
    """Test whether two variables with the same categories are distributed alike: two raters, two times.

    Formula: dᵀ(LCLᵀ + ddᵀ/n)⁻d of the differences d = LN̂ of both margins, χ² with one degree of freedom fewer
    than categories. With two categories it is McNemar's test.
    Reference: McNemar (1947); Stuart (1955).

    >>> import pandas as pd
    >>> raters = pd.DataFrame({"first": ["ill"] * 50 + ["well"] * 50, "second": ["ill"] * 40 + ["well"] * 60})
    >>> print(mq.stats.marginal_homogeneity(mq.tally(raters), "first", "second"))
    Equal margins of first and second, n = 100
     chi2 df p_value
    10.00  1  0.0016
    p = 0.0016: more than chance alone would give at 5%.
    McNemar's test.
    """
    table = table_of(data, (first, second), where)
    rows, columns = table.axes
    if rows.categories != columns.categories:
        raise InputError(f"{first!r} and {second!r} must have the same categories, in the same order.")
    size = len(rows)
    contrasts = np.stack([_margin_gap(size, code) for code in range(size - 1)])
    gaps = contrasts.reshape(size - 1, -1) @ table.values.ravel()
    null = table.covariance.between(contrasts, contrasts) + np.outer(gaps, gaps) / max(table.n, 1)
    statistic, df = wald(gaps, null)
    title = f"Equal margins of {first} and {second}{given_text(where)}"
    name = "McNemar's test." if size == 2 else "Stuart's test."
    return TestResult(title, statistic, df, chi_square_tail(statistic, df), table.n, "chi2", (name,))


def _margin_gap(size: int, code: int) -> Floats:
    unit = np.eye(size)[code]
    return np.asarray(unit[:, None] - unit[None, :])


def contrast(
    table: CountTable, weights: Floats | Sequence[float], *, null: float = 0.0, level: float = 0.95
) -> Estimates:
    """Return Σ weights·counts with its error, interval and p-value, for any weights of the table's shape.

    >>> [table] = mq.tally(mq.data.students()).answer([mq.Query(by=("exams", "pills"))])
    >>> table.values.tolist()
    [[264.0, 36.0], [210.0, 90.0]]
    >>> print(mq.stats.contrast(table, [[-1, 0], [1, 0]]))
    Contrast of exams × pills, n = 600
    contrast stderr  lower  upper p_value
      -54.00  21.66 -96.45 -11.55   0.013
    (95% intervals; p-values against contrast = 0)
    """
    table_of(table, table.names)
    given = np.asarray(weights, dtype=float)
    if given.shape != table.values.shape:
        raise InputError(f"A contrast has a weight for every cell, {table.values.shape}. Got {given.shape}.")
    value = float(np.sum(given * table.values))
    stderr = float(np.sqrt(squared_error(table, given)))
    half = two_sided_quantile(level) * stderr
    p_value = normal_p((value - null) / stderr) if stderr > 0 else float("nan")
    return Estimates(
        f"Contrast of {' × '.join(table.names)}",
        "contrast",
        (),
        ((),),
        np.array([value]),
        np.array([stderr]),
        np.array([value - half]),
        np.array([value + half]),
        table.n,
        level,
        null,
        np.array([p_value]),
    )


def wald(gaps: Floats, covariance: Floats) -> tuple[float, int]:
    """Return dᵀV⁻d and the rank of V: χ² if d is 0 but for noise with the covariance V."""
    spread, directions = np.linalg.eigh((covariance + covariance.T) / 2)
    kept = spread > RANK * max(float(spread.max(initial=0.0)), 1e-300)
    turned = directions[:, kept].T @ gaps
    return float(np.sum(turned**2 / spread[kept])), int(kept.sum())


def _z(table: CountTable, weights: Floats) -> float:
    value = float(np.sum(weights * table.values))
    variance = null_variance(table, weights, value)
    return value / np.sqrt(variance) if variance > 0 else float("nan")
