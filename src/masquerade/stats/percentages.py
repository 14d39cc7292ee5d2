"""Percentages of all records, of rows or of columns, with intervals within [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError, MasqueradeError
from masquerade.core.intervals import Flags, keep_inside, ratio_errors
from masquerade.core.linear_covariance import share_spread_of
from masquerade.core.report_moments import share_interval
from masquerade.core.schema import Category, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.stats._tables import Names, Where, names_of, squared_error, table_of
from masquerade.stats.estimates import Estimates
from masquerade.stats.missing_values import (
    BOUNDS,
    Missing,
    answers_only,
    check_missing,
    missing_notes,
    standardise,
)

ROUNDING = 1e-9
FEWEST_SIGMAS = 5.0  # a total this many standard errors above 0 makes a stable denominator


class RowShares(NamedTuple):
    """Shares of the cells in each row of a table, with errors and intervals.

    `seen` marks rows with an estimated total above 0, `steady` rows whose total is precise enough to divide
    by.
    """

    values: Floats
    stderr: Floats
    lower: Floats
    upper: Floats
    totals: Floats
    seen: Flags
    steady: Flags


def shares(
    data: Tally | CountTable,
    of: Names,
    by: Names = (),
    *,
    among: Sequence[Category] | None = None,
    where: Where = None,
    missing: Missing = "category",
    given: Names = (),
    level: float = 0.95,
) -> Estimates:
    """Estimate the share of each category of a variable, in groups.

    Without `by`, the shares are of all records. ``shares(source, "smoker", by="region")`` gives row
    percentages, ``shares(source, "region", by="smoker")`` column percentages. Estimates may fall outside
    [0, 1] when the reports carry little information; they are not clipped, so that they stay unbiased.
    Intervals are within [0, 1].

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    of : str or sequence of str
        Variables whose categories are counted.
    by : str or sequence of str, optional
        Variables that define the groups. Without it, shares of all records.
    among : sequence of category, optional
        Use only records with one of these categories of `of` as the denominator, for example
        ``among=["yes", "no"]`` to omit people who did not follow the instructions of the design.
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"category", "answered", "at-random", "bounds"}, default "category"
        "category" gives shares of all records, "answered" shares of the people who answered, "at-random"
        shares of all people if missing answers are at random given the variables in `given`, and "bounds"
        the lowest and highest shares that are possible with any missing answers.
    given : str or sequence of str, optional
        Variables that missing answers depend on, for "at-random".
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    Estimates
        One row per category and group. A note states how many answers are missing.

    Raises
    ------
    InputError
        If a variable or category is unknown, or `among` lists fewer than two categories.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Formula: N̂_t/N̂, where N̂ is the estimated number of records in the denominator.
    Error: score intervals on the reports, or Fieller's intervals if the denominator is itself uncertain (see
    `masquerade.core.report_moments.share_interval`), cut to [0, 1]. If the estimate is outside [0, 1], the
    interval consists of the shares that the likelihood does not reject.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.shares(source, "pills", by="exams"))
    Shares of pills by exams, n = 600
    exams pills share stderr lower upper
      few    no 88.0%   1.9% 83.8% 91.2%
      few   yes 12.0%   1.9%  8.8% 16.2%
     many    no 70.0%   2.6% 64.6% 74.9%
     many   yes 30.0%   2.6% 25.1% 35.4%
    (95% intervals)
    """
    parts, groups = names_of(of), names_of(by)
    if not parts:
        raise InputError("shares() needs a variable whose categories are counted: of='smoker'.")
    drivers = names_of(given)
    check_missing(missing, drivers)
    if missing in ("at-random", "bounds") and (len(parts) > 1 or among is not None):
        raise InputError(f"missing={missing!r} is for the shares of all categories of one variable.")
    title = f"Shares of {' × '.join(parts)}"
    if drivers:
        table = table_of(data, (*groups, *drivers, *parts), where)
        return _standardised_shares(table, groups, drivers, level, title, given_text(where))
    table = table_of(data, (*groups, *parts), where)
    if missing == "bounds":
        return _bounded_shares(table, groups, level, title, given_text(where))
    chosen = None
    notes = missing_notes(table, missing, names=parts) if among is None else ()
    if missing == "answered" and among is None:
        table = table.drop_missing(parts)
    axes = list(table.axes)
    if among is not None:
        chosen = _denominator_codes(axes, len(groups), among)
        axes[-1] = Variable(axes[-1].name, tuple(axes[-1].categories[code] for code in chosen))
        title += f" among {', '.join(map(str, axes[-1].categories))}"
    rows = row_shares(table, len(groups), level, chosen)
    lower, upper = limit_intervals(table, rows, level)
    title += f" by {', '.join(groups)}" if groups else ""
    notes = (*notes, *unsteady_notes(table, rows, len(groups)))
    return Estimates(
        title + given_text(where),
        "share",
        table.names,
        tuple(product(*(axis.categories for axis in axes))),
        rows.values.ravel(),
        rows.stderr.ravel(),
        lower.ravel(),
        upper.ravel(),
        table.n,
        level,
        in_percent=True,
        notes=notes,
    )


def limit_intervals(table: CountTable, rows: RowShares, level: float) -> tuple[Floats, Floats]:
    """Return the intervals of shares within [0, 1]; they are never empty.

    Formula: if the estimate is in [0, 1], the interval is cut to [0, 1], which loses no possible share.
    Otherwise it consists of the shares θ in [0, 1] with 2(max ℓ over [0, 1] − ℓ(θ)) ≤ z². ℓ is the likelihood
    of the reports for two categories, else −(θ − θ̂)²/2σ², where zσ is the distance from the estimate to the
    given limit. In both cases the result contains all possible shares of the given interval, so it covers at
    least as often.
    """
    lower, upper = keep_inside(rows.values, rows.lower, rows.upper)
    below, above = rows.values < 0, rows.values > 1
    if rows.values.shape[-1] == 2 and len(table.values.shape) == rows.values.ndim:
        z = two_sided_quantile(level)
        for row in map(tuple, np.argwhere((below | above).any(axis=-1))):
            end = _likelihood_end(table, row, 0 if below[(*row, 0)] else 1, float(rows.totals[row]), z)
            if end is not None:
                first = (0.0, end) if below[(*row, 0)] else (1 - end, 1.0)
                lower[row], upper[row] = (first[0], 1 - first[1]), (first[1], 1 - first[0])
    return lower, upper


def _likelihood_end(
    table: CountTable, row: tuple[int, ...], absent: int, total: float, z: float
) -> float | None:
    """Return the upper limit for the category whose most likely share is 0; None without a likelihood."""
    from scipy.optimize import brentq  # noqa: PLC0415  (slow to import)

    at = {table.names[axis]: table.axes[axis].categories[code] for axis, code in enumerate(row)}
    try:
        evidence = (table.select(at) if at else table).evidence

        def loss(share: float) -> float:
            counts = [share, 1 - share] if absent == 0 else [1 - share, share]
            return evidence.deviance(total * np.array(counts))

        least = loss(0.0)
        if not loss(1.0) - least > z * z:
            return 1.0
        return float(brentq(lambda share: loss(share) - least - z * z, 0.0, 1.0, xtol=1e-9))
    except (MasqueradeError, NotImplementedError):
        return None


def _standardised_shares(  # noqa: PLR0917  (parts of one result)
    table: CountTable, groups: Names, drivers: Sequence[str], level: float, title: str, condition: str
) -> Estimates:
    """Return the shares of the answers if missing answers are at random given `drivers`."""
    lead = len(names_of(groups))
    answers = answers_only(table.axes[-1])
    z = two_sided_quantile(level)
    values, errors = [], []
    for row in np.ndindex(table.values.shape[:lead]):
        shares_of_row = standardise(table, row)
        values += shares_of_row.values.tolist()
        errors += [np.sqrt(squared_error(table, gradient)) for gradient in shares_of_row.gradients]
    value, stderr = np.array(values), np.array(errors)
    names = (*names_of(groups), answers.name)
    title += f" by {', '.join(names_of(groups))}" if lead else ""
    return Estimates(
        title + condition,
        "share",
        names,
        tuple(product(*(axis.categories for axis in (*table.axes[:lead], answers)))),
        value,
        stderr,
        *keep_inside(value, value - z * stderr, value + z * stderr),
        table.n,
        level,
        in_percent=True,
        notes=missing_notes(table, "at-random", drivers),
    )


def _bounded_shares(
    table: CountTable, groups: Sequence[str], level: float, title: str, condition: str
) -> Estimates:
    """Return the share of every answer if none, and if all, of the missing answers are that answer."""
    variable = table.axes[-1]
    z = two_sided_quantile(level)
    labels, rows = [], []
    for row in np.ndindex(table.values.shape[:-1]):
        cells, total = table.values[row], float(table.values[row].sum())
        lead = tuple(axis.categories[code] for axis, code in zip(table.axes, row, strict=False))
        for code in variable.answered_codes:
            for bound in BOUNDS:
                counts = np.zeros(len(cells))
                counts[code] = 1.0
                if bound == "highest":
                    counts[[k for k in range(len(cells)) if k not in variable.answered_codes]] = 1.0
                labels.append((*lead, variable.categories[code], bound))
                if total <= 0:
                    rows.append((np.nan, np.inf))
                    continue
                value = float(cells @ counts) / total
                weights = np.zeros(table.values.shape)
                weights[row] = (counts - value) / total
                stderr = float(np.sqrt(squared_error(table, weights)))
                rows.append((value, stderr))
    values, errors = np.array(rows).reshape(-1, 2).T
    lower, upper = keep_inside(values, values - z * errors, values + z * errors)
    lower, upper = np.where(np.isnan(values), 0.0, lower), np.where(np.isnan(values), 1.0, upper)
    return Estimates(
        f"Bounds of the {title[0].lower()}{title[1:]}"
        + (f" by {', '.join(groups)}" if groups else "")
        + condition,
        "share",
        (*groups, variable.name, "bound"),
        tuple(labels),
        values,
        errors,
        lower,
        upper,
        table.n,
        level,
        in_percent=True,
        notes=missing_notes(table, "bounds"),
    )


def _denominator_codes(axes: Sequence[Variable], lead: int, among: Sequence[Category]) -> list[int]:
    """Return the codes of the categories that form the denominator."""
    if len(axes) - lead != 1 or isinstance(among, str):
        raise InputError("'among' lists categories of a single counted variable: among=['yes', 'no'].")
    codes = sorted({axes[-1].code(label) for label in among})
    if len(codes) < 2:
        raise InputError("'among' needs two categories or more: a single category has a share of 1.")
    return codes


def row_shares(table: CountTable, lead: int, level: float, chosen: Sequence[int] | None = None) -> RowShares:
    """Return the shares of the cells in each row, where the first `lead` axes index the rows.

    With `chosen`, only these codes of the last axis count, in the numerator and the denominator.
    """
    inner = tuple(range(lead, table.values.ndim))
    shape = table.values.shape
    rows = (*shape[:lead], prod(shape[lead:]))
    cells, blocks = table.values.reshape(rows), table.covariance.within(inner)
    if chosen is not None:
        cells, blocks = cells[..., chosen], blocks[..., chosen, :][..., chosen]
    totals = cells.sum(axis=-1)
    seen = totals > ROUNDING * max(table.n, 1)
    divisor = np.where(seen, totals, 1.0)
    values = np.where(seen[..., None], cells / divisor[..., None], np.nan)
    safe = np.where(seen[..., None], values, 0.0)
    errors = ratio_errors(safe, blocks, divisor)
    spread = None
    if len(inner) == 1 and chosen is None:
        spread = share_spread_of(table.covariance, lead, safe)
    z = two_sided_quantile(level)
    is_known = errors.total_variance <= ROUNDING * np.maximum(totals, 1.0) ** 2
    if not lead and chosen is None and is_known.all() and table.covariance.shape == shape:
        interval = table.conf_int(level)  # the denominator is known exactly: divide count intervals by it
        lower, upper = (end.reshape(rows) / divisor[..., None] for end in interval)
        stderr = table.stderr().reshape(rows) / divisor[..., None]
    else:
        limits = share_interval(safe, errors, divisor, z, n=table.n, spread=spread)
        lower, upper = limits.lower, limits.upper
        stderr = errors.stderr
    unseen = ~seen[..., None]
    stderr = np.where(unseen, np.inf, stderr)
    lower, upper = np.where(unseen, 0.0, lower), np.where(unseen, 1.0, upper)
    steady = seen & (totals >= FEWEST_SIGMAS * np.sqrt(errors.total_variance))
    return RowShares(values, stderr, lower, upper, totals, np.asarray(seen), np.asarray(steady))


def unsteady_notes(table: CountTable, rows: RowShares, lead: int) -> tuple[str, ...]:
    """Return a note that names the rows whose number of records is too uncertain to divide by."""
    cells = list(product(*(axis.categories for axis in table.axes[:lead])))
    shaky = [", ".join(map(str, cells[i])) for i in np.flatnonzero(~rows.steady.ravel())]
    if not shaky:
        return ()
    if not table.n:
        return ("There are no records.",)
    if not lead:
        return ("The number of records cannot be estimated from these reports.",)
    names = "; ".join(shaky[:5]) + (f" and {len(shaky) - 5} more" if len(shaky) > 5 else "")
    note = (
        f"Too few records with {', '.join(table.names[:lead])} = {names} for reliable shares. Collect more "
        "records or use coarser categories."
    )
    return (note,)


def given_text(where: Where) -> str:
    """Return a condition as text for titles."""
    return ", where " + ", ".join(f"{name} = {label}" for name, label in where.items()) if where else ""
