"""Tests of independence, trend and equal margins, and contrasts of counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_tail, two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.links.deviance_test import link_tests
from masquerade.core.missing_shares import missing_shares
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
    z_of,
)
from masquerade.stats.estimates import Adjustment, Estimates, TestResult, TestResults
from masquerade.stats.missing_values import (
    MissingOrAll,
    check_missing_or_all,
    join_notes,
    restrict_table,
    table_of_answers,
)
from masquerade.stats.percentages import given_text

Scores = Mapping[Category, float] | Sequence[float]
RANK = 1e-10  # eigenvalues below this fraction of the largest eigenvalue are treated as 0


def independence(
    data: Tally | CountTable,
    first: str,
    second: str,
    *,
    given: Names = (),
    where: Where = None,
    missing: MissingOrAll = "answered",
) -> TestResult:
    """Test whether two variables are independent, optionally within strata.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    first, second : str
        Variables to test.
    given : str or sequence of str, optional
        Strata: variables within whose combinations independence is tested.
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "category"}, default "answered"
        Count only people who answered all variables named here, or count missing answers as categories.

    Returns
    -------
    TestResult
        Pearson's X² of the reports, degrees of freedom and p-value.

    Raises
    ------
    InputError
        If a variable or category is unknown.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Pearson's statistic on the reports keeps its significance level at small counts. A note states how the
    p-value was computed from the statistic. Structure learning and trees use the same test,
    `masquerade.core.links.deviance_test.link_tests`.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.independence(source, "pills", "sleep", given="exams"))
    Independence of pills and sleep given exams, n = 600
     chi2 df p_value
    73.48  2 <0.0001
    p < 0.0001: more than chance alone would give at 5%.
    Pearson's X² of the reports, by χ².
    """
    check_missing_or_all(missing, "A test of independence")
    table = table_of(data, (*names_of(given), first, second), where)
    return _test_pairs([table], [(first, second)], names_of(given), where, missing)[0]


def associations(
    data: Tally | CountTable,
    pairs: Iterable[tuple[str, str]] | str | None = None,
    *,
    given: Names = (),
    where: Where = None,
    missing: MissingOrAll = "answered",
    method: Adjustment = "holm",
) -> TestResults:
    """Test pairs of variables for association, with p-values adjusted for multiple testing.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    pairs : iterable of (str, str), or str, optional
        Pairs to test. A single name tests all pairs with this variable. By default all pairs.
    given : str or sequence of str, optional
        Strata: variables within whose combinations independence is tested.
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "category"}, default "answered"
        Count only people who answered all variables named here, or count missing answers as categories.
    method : {"holm", "bh"}, default "holm"
        Adjustment of the p-values: Holm's method, or Benjamini and Hochberg's.

    Returns
    -------
    TestResults
        One test per pair.

    Raises
    ------
    InputError
        If a variable is unknown or there is no pair to test.
    QueryRefused
        If the source refuses the counts.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.associations(source, "pills"))
    Tests of independence, n = 600
             test   chi2 df p_value p_adjusted
    pills – exams  29.29  1 <0.0001    <0.0001
     pills – year 6.0277  2   0.049      0.049
    pills – sleep  77.77  1 <0.0001    <0.0001
    (p-values adjusted by Holm's method)
    Beyond chance at 5%: pills – exams, pills – year, pills – sleep.
    """
    check_missing_or_all(missing, "A test of association")
    others = [name for name in schema_of(data) if name not in names_of(given) and name not in (where or {})]
    if pairs is None:
        wanted_pairs = [(a, b) for index, a in enumerate(others) for b in others[index + 1 :]]
    elif isinstance(pairs, str):
        schema_of(data)[pairs]
        wanted_pairs = [(pairs, name) for name in others if name != pairs]
    else:
        wanted_pairs = [(a, b) for a, b in pairs]
    if not wanted_pairs:
        raise InputError("associations() needs at least two variables.")
    names = [(*names_of(given), a, b) for a, b in wanted_pairs]
    if isinstance(data, CountTable):
        tables = [table_of(data, each, where) for each in names]
    else:
        tables = data.answer([Query(by=each, where=where or {}) for each in names])
    tests = _test_pairs(tables, wanted_pairs, names_of(given), where, missing)
    title = "Tests of independence" + _given_suffix(names_of(given)) + given_text(where)
    notes = join_notes([missing_shares(table, table.names) for table in tables], missing)
    return TestResults(title, tuple(f"{a} – {b}" for a, b in wanted_pairs), tuple(tests), method, notes)


def _test_pairs(
    queried: Sequence[CountTable],
    pairs: Sequence[tuple[str, str]],
    given: tuple[str, ...],
    where: Where,
    missing: str,
) -> list[TestResult]:
    answers = [restrict_table(table, missing) for table in queried]
    tables = [each.table for each in answers]
    tests = link_tests(
        tables, [tuple(range(len(table.axes))) for table in tables], partial(np.random.default_rng, 0)
    )
    return [
        TestResult(
            f"Independence of {first} and {second}{_given_suffix(given)}{given_text(where)}",
            test.statistic,
            test.df,
            test.p_value,
            each.table.n,
            "chi2",
            (test.note, *each.notes),
        )
        for each, (first, second), test in zip(answers, pairs, tests, strict=True)
    ]


def _given_suffix(given: tuple[str, ...]) -> str:
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
    missing: MissingOrAll = "answered",
) -> TestResult:
    """Test whether an outcome rises or falls along the categories of an ordered variable.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    outcome : str
        Variable that may rise or fall. With two categories the share of `category` is tested, otherwise the
        mean score.
    over : str
        Ordered variable.
    category : category, optional
        Counted category of an outcome with two categories. May be omitted for yes/no outcomes: then it is
        "yes".
    outcome_scores : mapping or sequence of float, optional
        Scores of the outcome's categories.
    scores : mapping or sequence of float, optional
        Scores of the categories of `over`. By default numbers, the midpoints of bins, or 0, 1, 2, …
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "category"}, default "answered"
        Count only people who answered all variables named here, or count missing answers as categories.

    Returns
    -------
    TestResult
        z statistic and two-sided p-value. A note names the direction of a significant trend.

    Raises
    ------
    InputError
        If scores do not match the categories, or the estimated number of records is not positive.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Formula: U = Σ w_ij N̂_ij with w_ij = (s_i − s̄)(t_j − t̄), and z = U/√(wᵀCw + U²/n) with the covariance C
    of the counts. The denominator is the standard error of U without a trend.
    Reference: Cochran (1954); Armitage (1955); Mantel (1963) for outcomes with more than two categories.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.trend(source, "pills", "year", category="yes"))
    Trend of pills along year, n = 600
         z df p_value
    2.4551  1   0.014
    p = 0.014: more than chance alone would give at 5%.
    pills = yes rises along year.
    """
    table, absent = table_of_answers(data, (over, outcome), where, missing, "A trend")
    rows, columns = table.axes
    subject = columns.name
    s, t = _scores_or_ranks(rows, scores), _scores_or_ranks(columns, outcome_scores)
    if len(columns) == 2 and outcome_scores is None:
        code = category_of(columns, category)
        t, subject = np.eye(2)[code], f"{columns.name} = {columns.categories[code]}"
    if np.isnan([*s, *t]).any():
        raise InputError("A missing answer is not a number: give scores for all categories.")
    total = table.total
    if total <= 0:
        raise InputError("The estimated number of records is not positive: no trend can be tested.")
    s = s - float(table.values.sum(axis=1) @ s) / total
    t = t - float(table.values.sum(axis=0) @ t) / total
    z = _z(table, np.outer(s, t))
    title = f"Trend of {outcome} along {over}{given_text(where)}"
    notes = (f"{subject} {'rises' if z > 0 else 'falls'} along {rows.name}.",) if normal_p(z) < 0.05 else ()
    return TestResult(title, z, 1, normal_p(z), table.n, "z", (*notes, *absent))


def _scores_or_ranks(axis: Variable, given: Scores | None) -> Floats:
    try:
        return scores_of(axis, given)[0]
    except InputError:
        if given is not None:
            raise
        return np.arange(len(axis), dtype=float)


def marginal_homogeneity(
    data: Tally | CountTable,
    first: str,
    second: str,
    *,
    where: Where = None,
    missing: MissingOrAll = "answered",
) -> TestResult:
    """Test whether two variables with the same categories have the same distribution.

    The variables may be two raters or two points in time.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    first, second : str
        Variables with the same categories in the same order.
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "category"}, default "answered"
        Count only people who answered all variables named here, or count missing answers as categories.

    Returns
    -------
    TestResult
        χ² statistic, degrees of freedom and p-value.

    Raises
    ------
    InputError
        If the categories differ.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Formula: dᵀ(LCLᵀ + ddᵀ/n)⁻d of the differences d = LN̂ of both margins, χ² with (categories − 1) degrees
    of freedom. With two categories it is McNemar's test.
    Reference: McNemar (1947); Stuart (1955).

    Examples
    --------
    >>> import pandas as pd
    >>> raters = pd.DataFrame({"first": ["ill"] * 50 + ["well"] * 50, "second": ["ill"] * 40 + ["well"] * 60})
    >>> print(mq.stats.marginal_homogeneity(mq.tally(raters), "first", "second"))
    Equal margins of first and second, n = 100
     chi2 df p_value
    10.00  1  0.0016
    p = 0.0016: more than chance alone would give at 5%.
    McNemar's test.
    """
    table, notes = table_of_answers(data, (first, second), where, missing, "A test of equal margins")
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
    return TestResult(title, statistic, df, chi_square_tail(statistic, df), table.n, "chi2", (name, *notes))


def _margin_gap(size: int, code: int) -> Floats:
    unit = np.eye(size)[code]
    return np.asarray(unit[:, None] - unit[None, :])


def contrast(
    table: CountTable, weights: Floats | Sequence[float], *, null: float = 0.0, level: float = 0.95
) -> Estimates:
    """Estimate a weighted sum of the counts of a table.

    Parameters
    ----------
    table : CountTable
        Unbiased table.
    weights : array of float
        One weight per cell, in the shape of the table.
    null : float, default 0
        Null value of the p-value.
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    Estimates
        One row.

    Raises
    ------
    InputError
        If the weights do not have the shape of the table, or the table was made nonnegative.

    Examples
    --------
    >>> [table] = mq.tally(mq.data.students()).answer([mq.Query(by=("exams", "pills"))])
    >>> table.values.tolist()
    [[264.0, 36.0], [210.0, 90.0]]
    >>> print(mq.stats.contrast(table, [[-1, 0], [1, 0]]))
    Contrast of exams × pills, n = 600
    contrast stderr  lower  upper       z p_value
      -54.00  21.66 -96.45 -11.55 -2.4931   0.013
    (95% intervals; p-values against contrast = 0)
    """
    table_of(table, table.names)
    given = np.asarray(weights, dtype=float)
    if given.shape != table.values.shape:
        raise InputError(
            f"A contrast needs one weight per cell, shape {table.values.shape}. Got {given.shape}."
        )
    value = float(np.sum(given * table.values))
    stderr = float(np.sqrt(squared_error(table, given)))
    half = two_sided_quantile(level) * stderr
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
        np.array([z_of(value - null, stderr**2)]),
    )


def wald(gaps: Floats, covariance: Floats) -> tuple[float, int]:
    """Return Wald's statistic dᵀV⁻d and the rank of V, its degrees of freedom."""
    spread, directions = np.linalg.eigh((covariance + covariance.T) / 2)
    used = spread > RANK * max(float(spread.max(initial=0.0)), 1e-300)
    rotated = directions[:, used].T @ gaps
    return float(np.sum(rotated**2 / spread[used])), int(used.sum())


def _z(table: CountTable, weights: Floats) -> float:
    value = float(np.sum(weights * table.values))
    return z_of(value, null_variance(table, weights, value))
