"""The reports of canaries among what a pipeline gave out: found by their names, or by the order of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from masquerade.audit.canary_key import Canaries, Codes
from masquerade.audit.coded_records import CodedRecords, released_records
from masquerade.channels.policy import Policy
from masquerade.core.errors import SchemaError


@dataclass(frozen=True, slots=True)
class CanaryReports:
    """Reports of canaries: `rows` are which canaries, in the order of the file (None: nobody can tell)."""

    reports: CodedRecords
    rows: Codes | None
    named: bool
    times: int


def reports_of(data: Any, policy: Policy, key: Canaries) -> CanaryReports:
    """Return the reports of canaries: the first of each name, else row by row where the order was kept."""
    try:
        reports = released_records(data, policy, key.column)
    except SchemaError:
        reports = released_records(data, policy)
        if reports.rows != len(key.names):
            return CanaryReports(reports, None, named=False, times=0)
        rows = np.arange(reports.rows)
        aligned = _aligned(reports, rows, policy, key)
        return CanaryReports(reports, rows if aligned else None, named=False, times=0)
    place = {name: i for i, name in enumerate(key.names)}
    persons = reports.persons or ()
    own = [row for row, name in enumerate(persons) if name in place]
    first: dict[str, int] = {}
    for row in own:
        first.setdefault(persons[row], row)
    kept = sorted(first.values())
    rows = np.array([place[persons[row]] for row in kept], dtype=np.int64)
    return CanaryReports(
        reports.at(np.array(kept, dtype=np.int64)), rows, named=True, times=len(own) - len(kept)
    )


def _aligned(reports: CodedRecords, rows: Codes, policy: Policy, key: Canaries) -> bool:
    """Tell whether the rows are in the canaries' order: they fit better so than moved by one."""
    gain = 0.0
    spread = 0.0
    for group in policy.groups:
        if group.response is not None or group.own_report:
            continue
        truth = joint_codes([key.codes[name][rows] for name in group.names], group.sizes)
        report = joint_codes([reports.codes[name] for name in group.reports], group.report_sizes)
        same = (truth == report).astype(float)
        other = (np.roll(truth, 1) == report).astype(float)
        gain += float((same - other).sum())
        spread += float(((same - other) ** 2).sum())
    return gain > 5 * math.sqrt(max(spread, 1.0))


def joint_codes(columns: list[Codes], sizes: tuple[int, ...]) -> Codes:
    """Return the codes of several columns as one, the first slowest."""
    return np.asarray(np.ravel_multi_index(tuple(columns), sizes))
