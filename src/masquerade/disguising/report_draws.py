"""Draw report codes from truth codes: each group through its channel, by stratum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.channel import Channel
from masquerade.channels.class_response import ClassResponse
from masquerade.channels.policy import Group, Policy
from masquerade.kernels.draw import Bytes, draw

Codes = NDArray[np.unsignedinteger[Any]]
# flag added to `place` when a row is dealt its block, so that this draw never shares a random word with the
# draw of the row's report
DEALING = 1 << 15


class Draws(Protocol):
    """A function that draws one report per row."""

    def __call__(
        self, codes: Codes, channel: Channel, /, rows: NDArray[np.int64] | None, place: int
    ) -> Codes:
        """Draw reports; `rows` are the rows of the batch (None: all), `place` is the index of the channel."""


def fresh_draws(fresh: Bytes) -> Draws:
    """Return draws that use new random bytes every time."""

    def drawn(codes: Codes, channel: Channel, /, rows: NDArray[np.int64] | None, place: int) -> Codes:
        del rows, place
        return draw(codes, channel.draw_table, fresh)

    return drawn


def disguise_codes(codes: Mapping[str, Codes], policy: Policy, draws: Draws) -> dict[str, Codes]:
    """Return a report code for every truth code, column by column."""
    by = policy.stratum_variable
    if by is None:
        return through(codes, policy.groups, draws, None, 0)
    reports = {
        variable.name: np.empty(len(codes[by]), dtype=np.min_scalar_type(len(variable) - 1))
        for variable in policy.observed.variables
    }
    for place, label in enumerate(policy.strata):
        rows = np.flatnonzero(codes[by] == place)
        own = {name: column[rows] for name, column in codes.items()}
        groups = policy.groups_of(label)
        for name, column in through(own, groups, draws, rows, place * len(groups)).items():
            reports[name][rows] = column
    return reports


def through(
    codes: Mapping[str, Codes],
    groups: Sequence[Group],
    draws: Draws,
    rows: NDArray[np.int64] | None,
    first_place: int,
) -> dict[str, Codes]:
    """Apply the channel of each group to its columns."""
    reports: dict[str, Codes] = {}
    for place, group in enumerate(groups, start=first_place):
        columns = [codes[name] for name in group.names]
        if not group.disguised and not group.own_report:
            reports |= dict(zip(group.names, columns, strict=True))
        elif isinstance(group.channel, ClassResponse):
            drawn = dealt_reports(columns, group.channel, draws, rows, place)
            reports |= dict(zip(group.reports, drawn, strict=True))
        else:
            one = columns[0]
            if len(columns) > 1:
                one = np.ravel_multi_index(tuple(columns), group.sizes).astype(np.uint32)
            report = draws(one, group.channel, rows, place)
            if len(group.reports) == 1:
                reports[group.reports[0]] = report
                continue
            parts = np.unravel_index(report.astype(np.int64), group.report_sizes)
            for name, part, size in zip(group.reports, parts, group.report_sizes, strict=True):
                reports[name] = part.astype(np.min_scalar_type(size - 1))
    return reports


def dealt_reports(
    columns: Sequence[Codes],
    response: ClassResponse,
    draws: Draws,
    rows: NDArray[np.int64] | None,
    place: int,
) -> tuple[Codes, Codes]:
    """Deal every row a block, independently of its values, and draw the report of its class in that block."""
    nothing = np.zeros(len(columns[0]), dtype=np.uint8)
    blocks = draws(nothing, response.dealing, rows, place | DEALING)
    classes = response.classes_of(columns, blocks)
    reports = np.empty(len(blocks), dtype=np.min_scalar_type(response.classes - 1))
    sizes = response.block_classes[blocks]
    for size in np.unique(sizes).tolist():
        own = np.flatnonzero(sizes == size)
        among = own if rows is None else rows[own]
        reports[own] = draws(classes[own].astype(np.uint32), response.channel_of(size), among, place)
    return blocks, reports
