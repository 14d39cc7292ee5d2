"""Means and quantiles of variables whose categories are numbers, bins or scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.bins import bin_edges
from masquerade.core.covariance import contrast_spread_of
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.report_moments import score_interval
from masquerade.core.schema import Category, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.stats._tables import Names, Where, names_of, scores_of, squared_error, table_of
from masquerade.stats.estimates import Estimates
from masquerade.stats.percentages import given_text


def mean(
    data: Tally | CountTable,
    of: str,
    by: Names = (),
    *,
    scores: Mapping[Category, float] | Sequence[float] | None = None,
    where: Where = None,
    level: float = 0.95,
) -> Estimates:
    """Return the mean of a variable whose categories are numbers, bins or have `scores`, in groups `by`.

    Formula: m = Σ s_k N̂_k/Σ N̂_k; its error is that of Σ (s_k − m)N̂_k/N̂, and its interval that sum's score
    interval on the reports (`masquerade.core.report_moments.score_interval`). A bin counts as its middle.

    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.mean(source, "year", by="exams"))
    Mean of year by exams, n = 600
    exams   mean stderr  lower  upper
      few 1.8667 0.0465 1.7765 1.9594
     many 2.1333 0.0465 2.0406 2.2235
    (95% intervals)
    """
    groups = names_of(by)
    table = table_of(data, (*groups, of), where)
    numbers, note = scores_of(table.axes[-1], scores)
    labels = list(product(*(axis.categories for axis in table.axes[:-1])))
    rows = [_mean_of(table, place, numbers, level) for place in np.ndindex(table.values.shape[:-1])]
    values, stderr, lower, upper = np.array(rows).T
    title = f"Mean of {of}" + (f" by {', '.join(groups)}" if groups else "") + given_text(where)
    empty = int(np.isnan(values).sum())
    notes = [note] if note else []
    if empty:
        notes.append(f"{empty} groups have no records by the estimates: their means are not determined.")
    return Estimates(
        title, "mean", groups, tuple(labels), values, stderr, lower, upper, table.n, level, notes=tuple(notes)
    )


def _mean_of(
    table: CountTable, row: tuple[int, ...], numbers: Floats, level: float
) -> tuple[float, float, float, float]:
    cells = table.values[row]
    total = float(cells.sum())
    if total <= 0:
        return float("nan"), float("nan"), float("-inf"), float("inf")
    value = float(cells @ numbers) / total
    weights = np.zeros(table.values.shape)
    weights[row] = (numbers - value) / total
    stderr = float(np.sqrt(squared_error(table, weights)))
    z = two_sided_quantile(level)
    spread = contrast_spread_of(table.covariance, weights)
    if spread is None:
        return value, stderr, value - z * stderr, value + z * stderr
    around = score_interval(np.zeros(()), spread, z)
    return value, stderr, value + float(around.lower), value + float(around.upper)


def quantile(
    data: Tally | CountTable,
    of: str,
    q: float = 0.5,
    by: Names = (),
    *,
    edges: Sequence[float] | None = None,
    where: Where = None,
    level: float = 0.95,
) -> Estimates:
    """Return a quantile of an ordered variable, the median unless `q` says another, in groups `by`.

    Categories are in the order of the schema. Those that are numbers give the number of the category in which
    the cumulative share reaches q; bins (or given `edges`, one more than there are categories) are
    interpolated as if numbers were spread evenly within a bin.

    Formula: the ends are the places that the test of F = q does not reject, with the error of
    Σ (1[k ≤ c] − q)N̂_k.
    Reference: Woodruff (1952).

    >>> source = mq.tally(mq.data.students())
    >>> mq.stats.quantile(source, "year", by="exams").params.to_dict()
    {'few': 2.0, 'many': 2.0}
    """
    if not 0 < q < 1:
        raise InputError(f"A quantile is of a share between 0 and 1, such as 0.5. Got {q} instead.")
    groups = names_of(by)
    table = table_of(data, (*groups, of), where)
    lower_ends, upper_ends, numbers = _scale(table.axes[-1], edges)
    z = two_sided_quantile(level)
    rows = [
        _quantile_of(table, place, q, z, (lower_ends, upper_ends), interpolate=numbers is None)
        for place in np.ndindex(table.values.shape[:-1])
    ]
    figures = np.array(rows).T
    title = f"{'Median' if q == 0.5 else f'{q:g} quantile'} of {of}"
    title += (f" by {', '.join(groups)}" if groups else "") + given_text(where)
    labels = tuple(product(*(axis.categories for axis in table.axes[:-1])))
    stderr = (figures[2] - figures[1]) / (2 * z)
    return Estimates(
        title,
        "median" if q == 0.5 else "quantile",
        groups,
        labels,
        figures[0],
        stderr,
        figures[1],
        figures[2],
        table.n,
        level,
        notes=("The standard error is read off the interval.",),
    )


def _scale(variable: Variable, edges: Sequence[float] | None) -> tuple[Floats, Floats, Floats | None]:
    """Return the lower and upper end of every category, and its number where it stands for one."""
    if edges is not None:
        given = np.asarray(edges, dtype=float)
        if given.shape != (len(variable) + 1,) or np.any(np.diff(given) <= 0):
            raise InputError(f"'edges' of {variable.name!r} must be {len(variable) + 1} rising numbers.")
        return given[:-1], given[1:], None
    found = bin_edges(variable)
    if found is not None:
        return found[0], found[1], None
    numbers = scores_of(variable, None)[0]
    return numbers, numbers, numbers


def _quantile_of(
    table: CountTable,
    row: tuple[int, ...],
    q: float,
    z: float,
    ends: tuple[Floats, Floats],
    *,
    interpolate: bool,
) -> tuple[float, float, float]:
    """Return the quantile and the ends of its interval."""
    low, high = ends
    size = len(low)
    cells = table.values[row]
    total = float(cells.sum())
    if total <= 0:
        return float("nan"), float("-inf"), float("inf")
    gaps, errors = np.empty(size), np.empty(size)
    for code in range(size):
        weights = np.zeros(table.values.shape)
        weights[row] = (np.arange(size) <= code) - q
        gaps[code] = float(cells @ weights[row]) / total
        errors[code] = np.sqrt(squared_error(table, weights)) / total
    shifts = (gaps, gaps + z * errors, gaps - z * errors)
    found = [_crossing(shift, q, low, high, interpolate=interpolate) for shift in shifts]
    return found[0], found[1], found[2]


def _crossing(gaps: Floats, q: float, low: Floats, high: Floats, *, interpolate: bool) -> float:
    """Return where cumulative shares less q first reach 0."""
    reached = np.flatnonzero(np.maximum.accumulate(gaps) >= 0)
    if not len(reached):
        return float(high[-1])
    code = int(reached[0])
    if not interpolate:
        return float(low[code])
    before = min(gaps[code - 1], 0.0) if code else -q
    part = -before / (gaps[code] - before) if gaps[code] > before else 1.0
    return float(low[code] + part * (high[code] - low[code]))
