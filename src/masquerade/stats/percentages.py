"""Percentages: shares of all records, of rows or of columns, with intervals that hold near 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.covariance import share_spread_of
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.intervals import Flags, ratio_errors
from masquerade.core.report_moments import share_interval
from masquerade.core.schema import Category, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.stats._tables import Names, Where, names_of, table_of
from masquerade.stats.estimates import Estimates

ROUNDING = 1e-9
FEWEST_SIGMAS = 5.0  # standard errors that a whole must be from 0 for shares of it to be steady


class RowShares(NamedTuple):
    """Shares of the cells of every row in it, with errors and intervals; `seen` rows have any records."""

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
    level: float = 0.95,
) -> Estimates:
    """Return the share of every category of `of` among the records with each category of `by`.

    Without `by`, shares of all records (of those that satisfy `where`): ``shares(source, "smoker")``. Row
    percentages are ``shares(source, "smoker", by="region")``, column percentages the other way round.
    With `among`, shares of the records with one of these categories: ``shares(source, "x", among=["yes",
    "no"])`` leaves out those who did not follow a design. Estimates may lie below 0 or above 1: that is
    information about how little the reports say.

    Formula: N̂_t/N̂, N̂ the estimated number of records that the share is of.
    Error: score intervals on the reports, Fieller's where that number is itself uncertain: see
    `masquerade.core.report_moments.share_interval`.

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
    table = table_of(data, (*groups, *parts), where)
    axes = list(table.axes)
    chosen = None
    title = f"Shares of {' × '.join(parts)}"
    if among is not None:
        chosen = _chosen(axes, len(groups), among)
        axes[-1] = Variable(axes[-1].name, tuple(axes[-1].categories[code] for code in chosen))
        title += f" among {', '.join(map(str, axes[-1].categories))}"
    found = row_shares(table, len(groups), level, chosen)
    title += f" by {', '.join(groups)}" if groups else ""
    notes = unsteady_notes(table, found, len(groups))
    return Estimates(
        title + given_text(where),
        "share",
        table.names,
        tuple(product(*(axis.categories for axis in axes))),
        found.values.ravel(),
        found.stderr.ravel(),
        found.lower.ravel(),
        found.upper.ravel(),
        table.n,
        level,
        in_percent=True,
        notes=notes,
    )


def _chosen(axes: Sequence[Variable], lead: int, among: Sequence[Category]) -> list[int]:
    """Return the codes of the categories that shares are of."""
    if len(axes) - lead != 1 or isinstance(among, str):
        raise InputError("'among' lists categories of the one variable that is counted: among=['yes', 'no'].")
    codes = sorted({axes[-1].code(label) for label in among})
    if len(codes) < 2:
        raise InputError("'among' needs two categories or more: the share of one among itself is 1.")
    return codes


def row_shares(table: CountTable, lead: int, level: float, chosen: Sequence[int] | None = None) -> RowShares:
    """Return the shares of the cells of a table in the rows that its first `lead` axes make.

    Of the cells that are `chosen` in every row, if there is such a choice.
    """
    inner = tuple(range(lead, table.values.ndim))
    shape = table.values.shape
    rows = (*shape[:lead], prod(shape[lead:]))
    cells, blocks = table.values.reshape(rows), table.covariance.within(inner)
    if chosen is not None:
        cells, blocks = cells[..., chosen], blocks[..., chosen, :][..., chosen]
    totals = cells.sum(axis=-1)
    seen = totals > ROUNDING * max(table.n, 1)
    whole = np.where(seen, totals, 1.0)
    values = np.where(seen[..., None], cells / whole[..., None], np.nan)
    safe = np.where(seen[..., None], values, 0.0)
    errors = ratio_errors(safe, blocks, whole)
    spread = None
    if len(inner) == 1 and chosen is None:
        spread = share_spread_of(table.covariance, lead, safe)
    z = two_sided_quantile(level)
    known = errors.total_variance <= ROUNDING * np.maximum(totals, 1.0) ** 2
    if not lead and chosen is None and known.all() and table.covariance.shape == shape:
        interval = table.conf_int(level)  # of counts in a number of records that is known
        lower, upper = (end.reshape(rows) / whole[..., None] for end in interval)
        stderr = table.stderr().reshape(rows) / whole[..., None]
    else:
        found = share_interval(safe, errors, whole, z, n=table.n, spread=spread)
        lower, upper = found.lower, found.upper
        stderr = np.where(seen[..., None], errors.stderr, np.inf)
    unseen = ~seen[..., None]
    lower, upper = np.where(unseen, 0.0, lower), np.where(unseen, 1.0, upper)
    steady = seen & (totals >= FEWEST_SIGMAS * np.sqrt(errors.total_variance))
    return RowShares(values, stderr, lower, upper, totals, np.asarray(seen), np.asarray(steady))


def unsteady_notes(table: CountTable, found: RowShares, lead: int) -> tuple[str, ...]:
    """Return words about rows whose number of records the data hardly know."""
    cells = list(product(*(axis.categories for axis in table.axes[:lead])))
    shaky = [", ".join(map(str, cells[i])) for i in np.flatnonzero(~found.steady.ravel())]
    if not shaky:
        return ()
    if not lead:
        return ("The reports do not tell how many records there are at all.",)
    names = "; ".join(shaky[:5]) + (f" and {len(shaky) - 5} more" if len(shaky) > 5 else "")
    said = (
        f"Hardly any records are seen with {', '.join(table.names[:lead])} = {names}: shares of so few are "
        "not to be trusted. More records, or coarser categories, would tell."
    )
    return (said,)


def given_text(where: Where) -> str:
    """Return a condition in words, for titles."""
    return ", where " + ", ".join(f"{name} = {label}" for name, label in where.items()) if where else ""
