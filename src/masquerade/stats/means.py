"""Means and quantiles of variables whose categories are numbers or bins, or have scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.bins import bin_edges
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.linear_covariance import contrast_spread_of
from masquerade.core.report_moments import score_interval
from masquerade.core.schema import Category, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.stats._tables import Names, Where, names_of, scores_of, squared_error, table_of
from masquerade.stats.estimates import Estimates
from masquerade.stats.missing_values import BOUNDS, Missing, check_missing, missing_notes, standardise
from masquerade.stats.percentages import given_text


def mean(
    data: Tally | CountTable,
    of: str,
    by: Names = (),
    *,
    scores: Mapping[Category, float] | Sequence[float] | None = None,
    where: Where = None,
    missing: Missing = "answered",
    given: Names = (),
    level: float = 0.95,
) -> Estimates:
    """Estimate the mean of a variable whose categories are numbers or bins, or have scores.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    of : str
        Variable to average.
    by : str or sequence of str, optional
        Variables that define the groups. Without it, the mean of all records.
    scores : mapping or sequence of float, optional
        Number of each category, by category or in order. By default, categories that are numbers represent
        themselves, and bins are represented by their midpoints.
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "at-random", "bounds", "category"}, default "answered"
        "answered" omits missing answers, "at-random" assumes that they are at random given the variables in
        `given`, "bounds" sets them all to the lowest or all to the highest number, and "category" gives them
        their number in `scores`.
    given : str or sequence of str, optional
        Variables that missing answers depend on, for "at-random".
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    Estimates
        One row per group. A note states how many answers are missing.

    Raises
    ------
    InputError
        If categories have no numbers and no `scores` are given, or a variable is unknown.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Formula: m = Σ s_k N̂_k/Σ N̂_k. Its error is the error of Σ (s_k − m)N̂_k/N̂, and its interval is the
    score interval of that sum on the reports (`masquerade.core.report_moments.score_interval`).

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.mean(source, "year", by="exams"))
    Mean of year by exams, n = 600
    exams   mean stderr  lower  upper
      few 1.8667 0.0465 1.7765 1.9594
     many 2.1333 0.0465 2.0406 2.2235
    (95% intervals)
    """
    groups, drivers = names_of(by), names_of(given)
    check_missing(missing, drivers)
    table = table_of(data, (*groups, *drivers, of), where)
    numbers, note = scores_of(table.axes[-1], scores)
    if missing == "category" and np.isnan(numbers).any():
        raise InputError(f"A missing answer is not a number: give 'scores' for all categories of {of!r}.")
    if missing == "bounds":
        return _bounded_means(table, groups, numbers, level, given_text(where))
    lead = len(groups)
    labels = list(product(*(axis.categories for axis in table.axes[:lead])))
    if drivers:
        rows = [
            _standardised_mean(table, row, numbers, level) for row in np.ndindex(table.values.shape[:lead])
        ]
    else:
        rows = [_mean_of(table, row, numbers, level) for row in np.ndindex(table.values.shape[:lead])]
    values, stderr, lower, upper = np.array(rows).T
    title = f"Mean of {of}" + (f" by {', '.join(groups)}" if groups else "") + given_text(where)
    empty = int(np.isnan(values).sum())
    notes = [*missing_notes(table, missing, drivers), *([note] if note else [])]
    if empty:
        notes.append(f"{empty} groups have no records according to the estimates: their means are unknown.")
    return Estimates(
        title, "mean", groups, tuple(labels), values, stderr, lower, upper, table.n, level, notes=tuple(notes)
    )


def _mean_of(
    table: CountTable, row: tuple[int, ...], numbers: Floats, level: float
) -> tuple[float, float, float, float]:
    is_answer = ~np.isnan(numbers)
    cells = np.where(is_answer, table.values[row], 0.0)
    total = float(cells.sum())
    if total <= 0:
        return float("nan"), float("nan"), float("-inf"), float("inf")
    scored = np.where(is_answer, numbers, 0.0)
    value = float(cells @ scored) / total
    weights = np.zeros(table.values.shape)
    weights[row] = np.where(is_answer, scored - value, 0.0) / total
    stderr = float(np.sqrt(squared_error(table, weights)))
    z = two_sided_quantile(level)
    spread = contrast_spread_of(table.covariance, weights)
    if spread is None:
        return value, stderr, value - z * stderr, value + z * stderr
    around = score_interval(np.zeros(()), spread, z)
    return value, stderr, value + float(around.lower), value + float(around.upper)


def _bounded_means(
    table: CountTable, groups: Sequence[str], numbers: Floats, level: float, condition: str
) -> Estimates:
    """Return the means if all missing answers were the lowest number, and if all were the highest."""
    variable = table.axes[-1]
    absent = [code for code in range(len(variable)) if code not in variable.answered_codes]
    answers = numbers[list(variable.answered_codes)]
    labels, rows = [], []
    for row in np.ndindex(table.values.shape[:-1]):
        lead = tuple(axis.categories[code] for axis, code in zip(table.axes, row, strict=False))
        for bound, number in zip(BOUNDS, (answers.min(), answers.max()), strict=True):
            filled = numbers.copy()
            filled[absent] = number
            labels.append((*lead, bound))
            rows.append(_mean_of(table, row, filled, level))
    values, stderr, lower, upper = np.array(rows).T
    return Estimates(
        f"Bounds of the mean of {variable.name}" + (f" by {', '.join(groups)}" if groups else "") + condition,
        "mean",
        (*groups, "bound"),
        tuple(labels),
        values,
        stderr,
        lower,
        upper,
        table.n,
        level,
        notes=missing_notes(table, "bounds"),
    )


def _standardised_mean(
    table: CountTable, row: tuple[int, ...], numbers: Floats, level: float
) -> tuple[float, float, float, float]:
    """Return the mean if missing answers are at random, with a normal interval by the delta method."""
    shares = standardise(table, row)
    scored = numbers[list(table.axes[-1].answered_codes)]
    value = float(shares.values @ scored)
    stderr = float(np.sqrt(squared_error(table, np.tensordot(scored, shares.gradients, axes=1))))
    z = two_sided_quantile(level)
    return value, stderr, value - z * stderr, value + z * stderr


def quantile(
    data: Tally | CountTable,
    of: str,
    q: float = 0.5,
    by: Names = (),
    *,
    edges: Sequence[float] | None = None,
    where: Where = None,
    missing: Missing = "answered",
    given: Names = (),
    level: float = 0.95,
) -> Estimates:
    """Estimate a quantile of an ordered variable.

    Categories are ordered as in the schema. Where they are numbers, the quantile is the number of the
    category in which the cumulative share reaches `q`. Within a bin, values are assumed to be spread evenly,
    and the quantile is interpolated.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    of : str
        Ordered variable.
    q : float, default 0.5
        Probability between 0 and 1; the median by default.
    by : str or sequence of str, optional
        Variables that define the groups. Without it, the quantile of all records.
    edges : sequence of float, optional
        Bin edges, one more than categories, if the labels are not bins.
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "at-random", "bounds"}, default "answered"
        "answered" omits missing answers, "at-random" assumes that they are at random given the variables in
        `given`, and "bounds" sets them all to the lowest or all to the highest category.
    given : str or sequence of str, optional
        Variables that missing answers depend on, for "at-random".
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    Estimates
        One row per group. A note states how many answers are missing.

    Raises
    ------
    InputError
        If `q` or `edges` are invalid, or the categories are neither numbers nor bins.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Formula: the interval contains the categories c at which the test of F(c) = q does not reject. The test
    uses the error of Σ (1[k ≤ c] − q)N̂_k.
    Reference: Woodruff (1952).

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> mq.stats.quantile(source, "year", by="exams").params.to_dict()
    {'few': 2.0, 'many': 2.0}
    """
    if not 0 < q < 1:
        raise InputError(f"'q' of a quantile must be between 0 and 1, for example 0.5. Got {q} instead.")
    groups, drivers = names_of(by), names_of(given)
    check_missing(missing, drivers)
    if missing == "category":
        raise InputError(f"A missing answer to {of!r} has no position in the order: use missing='answered'.")
    table = table_of(data, (*groups, *drivers, of), where)
    lower_ends, upper_ends, numbers = _scale(table.axes[-1], edges)
    notes = (*missing_notes(table, missing, drivers), "The standard error is derived from the interval.")
    z = two_sided_quantile(level)
    bounds = BOUNDS if missing == "bounds" else ("",)
    rows = [
        _quantile_of(table, row, q, z, (lower_ends, upper_ends), bound, interpolate=numbers is None)
        for row in np.ndindex(table.values.shape[: len(groups)])
        for bound in bounds
    ]
    columns = np.array(rows).T
    title = f"{'Median' if q == 0.5 else f'{q:g} quantile'} of {of}"
    title = f"Bounds of the {title[0].lower()}{title[1:]}" if missing == "bounds" else title
    title += (f" by {', '.join(groups)}" if groups else "") + given_text(where)
    labels = tuple(product(*(axis.categories for axis in table.axes[: len(groups)])))
    if missing == "bounds":
        labels = tuple((*row, bound) for row in labels for bound in bounds)
    stderr = (columns[2] - columns[1]) / (2 * z)
    return Estimates(
        title,
        "median" if q == 0.5 else "quantile",
        (*groups, "bound") if missing == "bounds" else groups,
        labels,
        columns[0],
        stderr,
        columns[1],
        columns[2],
        table.n,
        level,
        notes=notes,
    )


def _scale(variable: Variable, edges: Sequence[float] | None) -> tuple[Floats, Floats, Floats | None]:
    """Return the lower and upper bound of each category, and the numbers if categories are not bins."""
    if edges is not None:
        given = np.asarray(edges, dtype=float)
        if given.shape != (len(variable) + 1,) or np.any(np.diff(given) <= 0):
            raise InputError(f"'edges' of {variable.name!r} must be {len(variable) + 1} increasing numbers.")
        return given[:-1], given[1:], None
    bins = bin_edges(variable)
    if bins is not None:
        return bins[0], bins[1], None
    numbers = scores_of(variable, None)[0]
    return numbers, numbers, numbers


def _quantile_of(  # noqa: PLR0917  (parts of one result)
    table: CountTable,
    row: tuple[int, ...],
    q: float,
    z: float,
    ends: tuple[Floats, Floats],
    bound: str,
    *,
    interpolate: bool,
) -> tuple[float, float, float]:
    """Return the quantile and the limits of its interval."""
    answered = np.array(table.axes[-1].answered_codes)
    low, high = (end[answered] for end in ends)
    found = (
        _standardised_gaps(table, row, q) if len(row) < table.values.ndim - 1 else _gaps(table, row, q, bound)
    )
    if found is None:
        return float("nan"), float("-inf"), float("inf")
    gaps, errors = found
    shifts = (gaps, gaps + z * errors, gaps - z * errors)
    crossings = [_crossing(shift, q, low, high, interpolate=interpolate) for shift in shifts]
    return crossings[0], crossings[1], crossings[2]


def _gaps(table: CountTable, row: tuple[int, ...], q: float, bound: str) -> tuple[Floats, Floats] | None:
    """Return F − q at every answer, with its error; None if the group has no records.

    Without a `bound`, missing answers are omitted; otherwise all count as the lowest or the highest answer.
    """
    answered = np.array(table.axes[-1].answered_codes)
    cells = table.values[row]
    own = np.full((len(answered), len(cells)), 0.0 if not bound else (bound == "lowest") - q)
    own[:, answered] = np.tri(len(answered)) - q
    total = float(cells.sum() if bound else cells[answered].sum())
    if total <= 0:
        return None
    errors = np.empty(len(answered))
    for place, one in enumerate(own):
        weights = np.zeros(table.values.shape)
        weights[row] = one
        errors[place] = np.sqrt(squared_error(table, weights)) / total
    return own @ cells / total, errors


def _standardised_gaps(table: CountTable, row: tuple[int, ...], q: float) -> tuple[Floats, Floats]:
    """Return F − q at every answer with its error, if missing answers are at random."""
    shares = standardise(table, row)
    gradients = np.cumsum(shares.gradients, axis=0)
    errors = np.sqrt([squared_error(table, gradient) for gradient in gradients])
    return np.cumsum(shares.values) - q, errors


def _crossing(gaps: Floats, q: float, low: Floats, high: Floats, *, interpolate: bool) -> float:
    """Return the point at which the cumulative share first reaches `q`."""
    reached = np.flatnonzero(np.maximum.accumulate(gaps) >= 0)
    if not len(reached):
        return float(high[-1])
    code = int(reached[0])
    if not interpolate:
        return float(low[code])
    before = min(gaps[code - 1], 0.0) if code else -q
    part = -before / (gaps[code] - before) if gaps[code] > before else 1.0
    return float(low[code] + part * (high[code] - low[code]))
