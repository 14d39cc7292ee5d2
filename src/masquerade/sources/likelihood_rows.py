"""Chances of the reports of records, given the truth: channel by channel, stratum by stratum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Group, Policy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.likelihood_rows import MOST_REPORTS, LikelihoodRows, NoLikelihood, check_possible
from masquerade.core.query import Query
from masquerade.protocols.people.questions import Counts, Question
from masquerade.sources.expectation import strata
from masquerade.sources.query_plan import layouts_of, marginal_group

if TYPE_CHECKING:
    from masquerade.core.schema import Schema
    from masquerade.sources.engines.engine import Engine
    from masquerade.sources.people.count_rounds import JointCounts
    from masquerade.sources.records import Records

Codes = NDArray[np.intp]
MOST_CHANCES = 1 << 25  # distinct reports times truths
MOST_COUNTED = 1 << 24  # most records that are listed from their counts


@dataclass(frozen=True, slots=True, eq=False)
class _Reported:
    """The reports of one group of variables in one stratum.

    `chances` has the shape (truths, reports). `sample_of` is the sample of each report: the group that the
    person was dealt into, or the block of variables that the person was dealt. Over the reports of one
    sample, chances add up to 1.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    chances: Floats
    codes: Codes
    sample_of: Codes
    is_dealt: bool


def likelihood_rows_of(records: Records, over: Sequence[str]) -> LikelihoodRows:
    """Return P(report | truth) of every record for the truths of some variables.

    If the report of a group cannot be reduced to the variables in `over`, the result includes all variables
    of the group.
    """
    Query(by=tuple(over)).check(records.schema)
    hidden = _hidden_names(records, over)
    parts = [(rows, list(_reports_of(records, groups, rows, hidden))) for groups, rows in strata(records)]
    names = list(dict.fromkeys([*hidden, *(name for _, part in parts for one in part for name in one.names)]))
    shape = records.schema.shape(names)
    tables: list[Floats] = []
    channels: list[Floats] | None = []
    report, design = np.zeros(records.n, dtype=np.intp), np.zeros(records.n, dtype=np.intp)
    for rows, part in parts:
        size = records.n if isinstance(rows, slice) else len(rows)
        if not size:
            continue
        own, codes = _combine([one.codes for one in part], size)
        report[rows] = codes + sum(map(len, tables))
        if len(own) * prod(shape) > MOST_CHANCES:
            raise InputError(
                f"{len(own):,} different reports of {prod(shape):,} truths are too many for a likelihood: "
                "use fewer disguised variables."
            )
        tables.append(
            _expand([one.chances[:, at].T for one, at in zip(part, own.T, strict=True)], part, names, shape)
            if part
            else np.ones((1, prod(shape)))
        )
        samples, drawn = _combine([one.sample_of[one.codes] for one in part], size)
        if channels is not None:
            design[rows] = drawn + len(channels)
            made = [_channel_of(part, sample, names, shape) for sample in samples]
            listed = [one for one in made if one is not None]
            channels = [*channels, *listed] if len(listed) == len(made) else None
    known = {name: np.asarray(records.codes[name], dtype=np.intp) for name in over if name not in hidden}
    dealt = tuple(
        dict.fromkeys(name for _, part in parts for one in part if one.is_dealt for name in one.names)
    )
    table = np.concatenate(tables) if tables else np.ones((0, prod(shape)))
    result = LikelihoodRows(
        tuple(names), shape, table, report, tuple(channels or ()), design, known, records.weights, dealt
    )
    check_possible(result)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _CountedReports:
    """Reports of some variables, listed from their counts."""

    schema: Schema
    policy: Policy
    codes: Mapping[str, Codes]
    n: int
    weights: None = None


def likelihood_rows_of_engine(engine: Engine, over: Sequence[str]) -> LikelihoodRows:
    """Return P(report | truth) of every record of an engine, from the counts of its distinct reports.

    The order of the rows is unrelated to the order of the records.

    Raises
    ------
    NoLikelihood
        If the records have survey weights, or there are too many records or distinct reports.
    """
    Query(by=tuple(over)).check(engine.schema)
    if engine.weighted:
        raise NoLikelihood("an engine adds up survey weights.")
    if engine.n > MOST_COUNTED:
        raise NoLikelihood(f"an engine lists at most {MOST_COUNTED:,} records.")
    names = dict.fromkeys(
        name
        for layout in engine.layouts()
        for group in layout.groups
        if set(group.names) & set(over)
        for name in group.reports
    )
    by = engine.policy.stratum_variable
    columns: dict[str, list[Codes]] = {name: [] for name in (*names, *([] if by is None else [by]))}
    for stratum, part in enumerate(engine.parts(1)):
        store = part.distinct_rows(list(names))
        if store is None:
            raise NoLikelihood("the distinct reports are too many to fetch from the engine.")
        size = len(next(iter(store.columns.values())))
        counts = np.ones(size, dtype=np.intp) if store.multiplicity is None else store.multiplicity
        for name in names:
            columns[name].append(np.repeat(np.asarray(store.columns[name], dtype=np.intp), counts))
        if by is not None and by not in names:
            columns[by].append(np.full(int(counts.sum()), stratum, dtype=np.intp))
    codes = {name: np.concatenate(parts) for name, parts in columns.items()}
    reports = _CountedReports(engine.schema, engine.policy, codes, len(next(iter(codes.values()))))
    return replace(likelihood_rows_of(cast("Records", reports), over), is_ordered=False)


def likelihood_rows_of_counts(
    schema: Schema, policy: Policy, over: Sequence[str], count: Callable[[tuple[str, ...]], Any]
) -> LikelihoodRows:
    """Return P(report | truth) of every record, from a table of reports.

    Parameters
    ----------
    schema : Schema
        The variables.
    policy : Policy
        Policy of the reports.
    over : sequence of str
        Variables whose truths are needed.
    count : callable
        Takes names of report columns. Returns their table of exact counts, one axis per name.

    Returns
    -------
    LikelihoodRows
        Rows in an order unrelated to the records.

    Raises
    ------
    NoLikelihood
        If the records are too many to list.
    """
    Query(by=tuple(over)).check(schema)
    by = policy.stratum_variable
    touched = [
        name
        for layout in layouts_of(policy)
        for group in layout.groups
        if set(group.names) & set(over)
        for name in group.reports
    ]
    names = tuple(dict.fromkeys([*touched, *([] if by is None else [by])]))
    table = np.asarray(count(names))
    if table.sum() > MOST_COUNTED:
        raise NoLikelihood(f"at most {MOST_COUNTED:,} records are listed from their counts.")
    cells = np.nonzero(table)
    times = table[cells].astype(np.intp)
    codes = {name: np.repeat(codes, times) for name, codes in zip(names, cells, strict=True)}
    reports = _CountedReports(schema, policy, codes, int(times.sum()))
    return replace(likelihood_rows_of(cast("Records", reports), over), is_ordered=False)


def likelihood_rows_of_joint(source: JointCounts, over: Sequence[str]) -> LikelihoodRows:
    """Return P(report | truth) of every record of a source of joint tables, from one table.

    Raises
    ------
    NoLikelihood
        If the table has more cells than the source counts.
    """

    def count(names: tuple[str, ...]) -> Counts:
        question = Question.about(names, {}, source.policy.observed)
        if question.cells(source.sizes) > source.most_cells:
            raise NoLikelihood(f"the table of reports has more than {source.most_cells:,} cells.")
        (table,) = source.count([question])
        return np.asarray(table.transpose([question.columns.index(name) for name in names]))

    return likelihood_rows_of_counts(source.schema, source.policy, over, count)


def _hidden_names(records: Records, over: Sequence[str]) -> list[str]:
    """Return the variables that some stratum disguises."""
    return [
        name
        for name in dict.fromkeys(over)
        if any(
            group.disguised or group.own_report
            for groups, _ in strata(records)
            for group in groups
            if name in group.names
        )
    ]


def _reports_of(
    records: Records, groups: Sequence[Group], rows: Any, hidden: Sequence[str]
) -> Iterator[_Reported]:
    """Yield the reports of the groups that hidden variables belong to."""
    for group in groups:
        touched = tuple(name for name in group.names if name in hidden)
        if not touched:
            continue
        sampled = None
        if group.response is not None:
            sampled = group.response.sampled_channel(tuple(group.names.index(name) for name in touched))
            names = touched
        else:
            sampled = group.matrix_channel.sampled_channel
            names = group.names if sampled is not None else ()
        if sampled is not None:
            codes = sampled.lump[_joint_codes(records, group, rows)]
            sizes = tuple(group.sizes[group.names.index(name)] for name in names)
            yield _Reported(
                names,
                sizes,
                sampled.chances,
                np.asarray(codes, dtype=np.intp),
                np.maximum(np.asarray(sampled.sample, dtype=np.intp), 0),
                group.response is None,
            )
            continue
        used = group if touched == group.names else marginal_group(group, touched)
        matrix = used.matrix_channel.matrix
        alone = np.zeros(matrix.shape[1], dtype=np.intp)
        joint = _joint_codes(records, used, rows)
        yield _Reported(used.names, used.sizes, matrix, joint, alone, used.names != touched)


def _joint_codes(records: Records, group: Group, rows: Any) -> Codes:
    """Return the joint report code of a group for some records."""
    columns = [np.asarray(records.codes[name][rows], dtype=np.intp) for name in group.reports]
    return np.asarray(np.ravel_multi_index(columns, group.report_sizes), dtype=np.intp)


def _combine(codes: Sequence[Codes], size: int) -> tuple[Codes, Codes]:
    """Return the distinct combinations of codes, one column per group, and each record's combination."""
    member = np.zeros(size, dtype=np.intp)
    first = np.zeros(1, dtype=np.intp)
    for column in codes:
        width = int(column.max(initial=0)) + 1
        _, first, member = np.unique(member * width + column, return_index=True, return_inverse=True)
    own = np.stack([column[first] for column in codes], axis=1) if codes else np.zeros((1, 0), dtype=np.intp)
    return own, np.asarray(member, dtype=np.intp)


def _expand(
    tables: Sequence[Floats], part: Sequence[_Reported], names: Sequence[str], shape: Sequence[int]
) -> Floats:
    """Return the product of tables (reports, truths of a group) over all hidden variables."""
    result = np.ones((len(tables[0]), *shape))
    for table, one in zip(tables, part, strict=True):
        order = np.argsort([names.index(name) for name in one.names])
        cells = np.transpose(table.reshape(len(table), *one.sizes), (0, *(1 + order)))
        full = [size if name in one.names else 1 for name, size in zip(names, shape, strict=True)]
        result *= cells.reshape(len(table), *full)
    return result.reshape(len(result), -1)


def _channel_of(
    part: Sequence[_Reported], sample: Codes, names: Sequence[str], shape: Sequence[int]
) -> Floats | None:
    """Return the chances (truths, reports) of all reports in one sample; None if they are too many."""
    lists = [
        np.flatnonzero((one.sample_of == own) & one.chances.any(axis=0))
        for one, own in zip(part, sample, strict=True)
    ]
    if prod(map(len, lists)) > MOST_REPORTS:
        return None
    if not part:
        return np.ones((prod(shape), 1))
    chosen = np.stack([grid.ravel() for grid in np.meshgrid(*lists, indexing="ij")], axis=1)
    tables = [one.chances[:, at].T for one, at in zip(part, chosen.T, strict=True)]
    return np.ascontiguousarray(_expand(tables, part, names, shape).T)
