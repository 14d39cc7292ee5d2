"""Means of functions of the true records of any source, and counts of groups that a function defines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.linear_covariance import contrast_spread_of
from masquerade.core.query import Query
from masquerade.core.report_moments import ReportSpread
from masquerade.core.table import CountTable
from masquerade.core.tally import RecordTally, Selected, Tally
from masquerade.sources.expectation import MOST_TRUTHS
from masquerade.sources.records import Records

Codes = Mapping[str, NDArray[np.intp]]

LARGE_GROUP = 2**10  # joint truths of variables that are disguised together: a matrix of a million numbers
GROUPS = "groups of predictions"


class TooManyTruths(InputError):
    """The table over all variables of a model has too many cells."""


class SourceMean(NamedTuple):
    """The mean of a function over true records, its standard error, and the number of records.

    `spread` has the moments of Σ w(f − mean), and `total` is Σ w.
    """

    value: float
    stderr: float
    n: int
    warning: str | None = None
    spread: ReportSpread | None = None
    total: float = 1.0


def mean_over(
    source: Tally, f: Callable[[NDArray[np.intp]], NDArray[Any]], over: Sequence[str]
) -> SourceMean:
    """Return the mean of f over the true records of a source: see `masquerade.sources.expectation.expect`.

    A source that cannot compute the mean of a function is queried for the whole table.
    """
    if isinstance(source, Selected):
        return mean_over(source.source, f, over)
    if isinstance(source, RecordTally):
        (everyone,) = source.answer([Query()])
        if isinstance(source, Records):
            result = source.mean(f, over)
            return SourceMean(result.value, result.stderr, everyone.n, None, result.spread, result.total)
        return SourceMean(*source.expect(f, over), everyone.n)
    shape = source.schema.shape(over)
    if prod(shape) > MOST_TRUTHS:
        raise InputError(
            f"The table over {', '.join(over)} has {prod(shape):,} cells (at most {MOST_TRUTHS:,}), and the "
            "source cannot compute the mean of a function: test on records, or test a smaller model."
        )
    (table,) = source.answer([Query(by=tuple(over))])
    if not table.total > 0:
        raise InputError("The mean over no records is not defined.")
    codes = np.stack([axis.ravel() for axis in np.indices(shape)], axis=1)
    values = np.asarray(f(codes), dtype=float).reshape(shape)
    mean = float(np.sum(values * table.values)) / table.total
    variance = table.covariance.quadratic(values - mean)
    spread = contrast_spread_of(table.covariance, values - mean)
    stderr = float(np.sqrt(max(variance, 0.0))) / table.total
    return SourceMean(mean, stderr, table.n, None, spread, table.total)


class GroupCounts(NamedTuple):
    """Number of records of every group (rows) and class (columns).

    `counts` are sums over cells of `table`: `groups` is the group of each combination of its variables except
    the class, or None if `counts` are the cells themselves. Without a table, `error` returns the standard
    error of a weighted sum of the counts.
    """

    counts: Floats
    n: int
    table: CountTable | None = None
    groups: NDArray[np.intp] | None = None
    error: Callable[[Floats], float] | None = None


def count_groups(
    source: Tally, over: Sequence[str], group_of: Callable[[Codes], NDArray[np.intp]], groups: int
) -> GroupCounts:
    """Count groups of records by the last variable of `over`.

    If the other variables are not disguised, the rows themselves are counted. Otherwise the counts come from
    the table over all variables, if it has at most 65,536 cells, or from the few truths possible for every
    report, as in groups that are reported unchanged or reversed.

    Parameters
    ----------
    source : Tally
        Records, clear or disguised.
    over : sequence of str
        Variables that define the groups, then the class.
    group_of : callable
        Maps codes by variable to groups.
    groups : int
        Number of groups.

    Returns
    -------
    GroupCounts
        The counts, with the table or the function that gives their errors.
    """
    if isinstance(source, Records) and _reads_clear(source.policy, over):
        return _count_rows(source, over, group_of, groups)
    shape = source.schema.shape(over)
    if isinstance(source, Records) and (prod(shape) > MOST_TRUTHS or _in_large_groups(source.policy, over)):
        result = source.group_counts(over, group_of, (groups, shape[-1]))
        if result is not None:
            return GroupCounts(result[0], source.n, error=result[1])
    if prod(shape) > MOST_TRUTHS:
        raise TooManyTruths(
            f"The table over {', '.join(over)} has {prod(shape):,} cells (at most {MOST_TRUTHS:,}): test a "
            "model that reads fewer disguised variables."
        )
    (table,) = source.answer([Query(by=tuple(over))])
    if not table.total > 0:
        raise InputError("The mean over no records is not defined.")
    cells = np.indices(shape[:-1]).reshape(len(shape) - 1, -1)
    place = group_of({name: cells[i] for i, name in enumerate(over[:-1])})
    counts = np.zeros((groups, shape[-1]))
    np.add.at(counts, place, table.values.reshape(-1, shape[-1]))
    return GroupCounts(counts, table.n, table, place)


def _count_rows(
    source: Records, over: Sequence[str], group_of: Callable[[Codes], NDArray[np.intp]], groups: int
) -> GroupCounts:
    """Count rows by group and class; the group of every row is known."""
    rows = {name: np.asarray(source.codes[name], dtype=np.intp) for name in over[:-1]}
    variables = {GROUPS: range(groups), over[-1]: source.schema[over[-1]].categories}
    policy = Policy.build(variables, {over[-1]: source.policy.group(over[-1]).channel})
    codes = {GROUPS: group_of(rows).astype(np.min_scalar_type(groups)), over[-1]: source.codes[over[-1]]}
    reports = Records(codes, policy, source.weights, missing=source.missing)
    (table,) = reports.answer([Query(by=tuple(variables))])
    if not table.total > 0:
        raise InputError("The mean over no records is not defined.")
    return GroupCounts(table.values, table.n, table)


def _in_large_groups(policy: Policy, over: Sequence[str]) -> bool:
    """Return True if the channel of a group of variables disguised together is too large as a matrix."""
    return any(prod(group.sizes) > LARGE_GROUP for group in policy.groups if {*group.names} & {*over})


def _reads_clear(policy: Policy, over: Sequence[str]) -> bool:
    """Return True if the last variable has its own channel and all other variables are clear."""
    is_alone = len(policy.group(over[-1]).names) == 1 and policy.stratum_variable is None
    return is_alone and not any(name in policy.disguised for name in over[:-1])
