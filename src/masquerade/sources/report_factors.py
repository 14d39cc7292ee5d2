"""Factors of the reports of records: one for each variable or group that was disguised together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.class_response import ClassResponse
from masquerade.channels.policy import Group, Policy
from masquerade.core.errors import InputError
from masquerade.core.likelihood_rows import ReportFactor, ReportFactors, merge_equal
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.sources.expectation import strata
from masquerade.sources.query_plan import marginal_group

if TYPE_CHECKING:
    from masquerade.sources.engines.engine import Engine
    from masquerade.sources.records import Records

Codes = NDArray[np.intp]


def report_factors_of(records: Records, over: Sequence[str]) -> tuple[ReportFactors, ...]:
    """Return P(report | truth) of all records as products of factors.

    Records of one stratum and one set of blocks have factors over the same variables, and are returned
    together.
    """
    Query(by=tuple(over)).check(records.schema)
    weights = np.ones(records.n) if records.weights is None else np.asarray(records.weights, dtype=float)
    found = []
    for groups, rows in strata(records):
        own = weights[rows]
        if not len(own):
            continue
        wanted = [group for group in groups if any(name in over for name in group.names)]
        dealt = [group for group in wanted if group.response is not None]
        fixed = [_factor(records, group, rows, over) for group in wanted if group.response is None]
        for chosen, blocks in _by_blocks(
            [_block_codes(records, group, rows)[0] for group in dealt], len(own)
        ):
            parts = [ReportFactor(one.names, one.chances, one.report[chosen]) for one in fixed]
            for group, block in zip(dealt, blocks, strict=True):
                classes = _block_codes(records, group, rows)[1][chosen]
                part = _block_factor(group, int(block), classes, over)
                parts += [part] if part is not None else []
            found.append(merge_equal(parts, own[chosen]))
    for one in found:
        _check_possible(one)
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class _DistinctReports:
    """Distinct reports of an engine; the weights are their numbers of records."""

    schema: Schema
    policy: Policy
    codes: Mapping[str, Codes]
    n: int
    weights: Any


def report_factors_of_engine(engine: Engine, over: Sequence[str]) -> tuple[ReportFactors, ...]:
    """Return P(report | truth) of an engine's records as products of factors, from its distinct reports.

    Raises
    ------
    InputError
        If the records have survey weights, or their distinct reports are too many to fetch.
    """
    Query(by=tuple(over)).check(engine.schema)
    if engine.weighted:
        raise InputError("An engine adds up survey weights: the joint likelihood needs records in memory.")
    by = engine.policy.stratum_variable
    names = dict.fromkeys(
        name
        for layout in engine.layouts()
        for group in layout.groups
        if set(group.names) & set(over)
        for name in group.reports
    )
    columns: dict[str, list[Codes]] = {name: [] for name in (*names, *([] if by is None else [by]))}
    weights = []
    for stratum, part in enumerate(engine.parts(1)):
        store = part.distinct_rows(list(names))
        if store is None:
            raise InputError(
                "The distinct reports are too many to fetch from the engine: the joint likelihood needs "
                "records in memory."
            )
        size = len(next(iter(store.columns.values())))
        weights.append(np.ones(size) if store.multiplicity is None else np.asarray(store.multiplicity, float))
        for name in names:
            columns[name].append(np.asarray(store.columns[name], dtype=np.intp))
        if by is not None and by not in names:
            columns[by].append(np.full(size, stratum, dtype=np.intp))
    codes = {name: np.concatenate(parts) for name, parts in columns.items()}
    every = np.concatenate(weights)
    return report_factors_of(
        cast("Records", _DistinctReports(engine.schema, engine.policy, codes, len(every), every)), over
    )


def _by_blocks(blocks: Sequence[Codes], size: int) -> Iterator[tuple[Codes, tuple[int, ...]]]:
    """Yield the records that were dealt the same blocks, and those blocks."""
    if not blocks:
        yield np.arange(size), ()
        return
    rows, member = np.unique(np.stack(blocks, axis=1), axis=0, return_inverse=True)
    order = np.argsort(member, kind="stable")
    ends = np.cumsum(np.bincount(member.ravel(), minlength=len(rows)))
    for own, chosen in zip(rows, np.split(order, ends[:-1]), strict=True):
        yield chosen, tuple(own.tolist())


def _block_codes(records: Records, group: Group, rows: Any) -> tuple[Codes, Codes]:
    """Return every record's block and class."""
    block, kind = (np.asarray(records.codes[name][rows], dtype=np.intp) for name in group.reports)
    return block, kind


def _block_factor(group: Group, block: int, classes: Codes, over: Sequence[str]) -> ReportFactor | None:
    """Return the factor of the class that records report in a block; None without a variable of `over`."""
    response = group.response
    if not isinstance(response, ClassResponse):
        raise InputError("These blocks give no likelihood of a whole network.")
    size = int(response.block_classes[block])
    matrix = response.channel_of(size).matrix
    cells = len(response.by_cells)
    if block < cells:
        places = [int(place) for place in response.by_cells[block] if place < len(response.sizes)]
        sizes = [response.sizes[place] for place in places]
        chances = matrix.T.reshape(-1, *sizes)
    else:
        places = [int(place) for place in response.by_difference[block - cells]]
        truths = np.indices((2,) * len(places)).reshape(len(places), -1)
        kind = (1 << np.arange(len(places) - 1)[::-1]) @ (truths[1:] ^ truths[:1])
        chances = matrix.T[:, kind].reshape(-1, *[2] * len(places))
    names = tuple(group.names[place] for place in places)
    kept = [place for place, name in enumerate(names) if name in over]
    if not kept:
        return None
    if len(kept) == len(names):
        return ReportFactor(names, np.ascontiguousarray(chances), classes)
    if block >= cells:
        raise InputError(f"A difference block reports on {', '.join(names)} together: select all of them.")
    return _reduce(names, sizes, chances, classes, kept)


def _reduce(
    names: tuple[str, ...], sizes: Sequence[int], chances: Any, classes: Codes, kept: Sequence[int]
) -> ReportFactor:
    """Return the factor of some variables of a block; lumping classes keeps a symmetric channel symmetric."""
    rest = tuple(place for place in range(len(names)) if place not in kept)
    lumped = chances.reshape(*sizes, *sizes).sum(axis=rest)
    # the remaining report does not depend on the other variables, so any of their categories may be used
    index = [slice(None) if place in kept else 0 for place in range(len(names))]
    wanted = lumped[(*[slice(None)] * len(kept), *index)]
    codes = np.unravel_index(classes, sizes)
    own = [sizes[place] for place in kept]
    reports = np.ravel_multi_index([codes[place] for place in kept], own)
    return ReportFactor(
        tuple(names[place] for place in kept),
        np.ascontiguousarray(wanted.reshape(-1, *own)),
        np.asarray(reports, dtype=np.intp),
    )


def _factor(records: Records, group: Group, rows: Any, over: Sequence[str]) -> ReportFactor:
    """Return the factor of a group of variables that every record of a stratum reports."""
    sampled = group.matrix_channel.sampled_channel
    if sampled is not None:
        if not set(group.names) <= set(over):
            raise InputError(f"{', '.join(group.names)} were reported together: select all of them.")
        codes = sampled.lump[_joint_codes(records, group, rows)]
        return ReportFactor(group.names, _reshape(sampled.chances, group.sizes), np.asarray(codes, np.intp))
    touched = tuple(name for name in group.names if name in over)
    used = group if touched == group.names else marginal_group(group, touched)
    return ReportFactor(
        used.names, _reshape(used.matrix_channel.matrix, used.sizes), _joint_codes(records, used, rows)
    )


def _reshape(matrix: Any, sizes: Sequence[int]) -> Any:
    """Return chances (truths, reports) as (reports, categories of each variable)."""
    return np.ascontiguousarray(np.asarray(matrix, dtype=float).T).reshape(-1, *sizes)


def _joint_codes(records: Records, group: Group, rows: Any) -> Codes:
    """Return the joint report code of a group for some records."""
    columns = [np.asarray(records.codes[name][rows], dtype=np.intp) for name in group.reports]
    return np.asarray(np.ravel_multi_index(columns, group.report_sizes), dtype=np.intp)


def _check_possible(found: ReportFactors) -> None:
    """Raise InputError if no truth gives some record's report."""
    for factor in found.factors:
        possible = np.asarray(factor.chances.reshape(len(factor.chances), -1).any(axis=1))
        if not possible[factor.report].all():
            raise InputError(
                f"A report about {', '.join(factor.names)} cannot occur under this policy. Check the policy "
                "and the file."
            )
