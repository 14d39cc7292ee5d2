"""Reports of canaries in the output of a pipeline, found by name or by the order of rows."""

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
    """Reports of canaries in the order of the file.

    Attributes
    ----------
    reports : CodedRecords
        The reports.
    rows : array of int, optional
        Index of the canary of each row. None if rows cannot be matched to canaries.
    named : bool
        True if a column names the canaries.
    times : int
        Number of rows beyond the first one of each canary.
    """

    reports: CodedRecords
    rows: Codes | None
    named: bool
    times: int


def find_reports(data: Any, policy: Policy, key: Canaries) -> CanaryReports:
    """Find the reports of canaries: the first row of each name, or row by row if the order was kept."""
    try:
        reports = released_records(data, policy, key.column)
    except SchemaError:
        reports = released_records(data, policy)
        if reports.rows != len(key.names):
            return CanaryReports(reports, None, named=False, times=0)
        rows = np.arange(reports.rows)
        aligned = _aligned(reports, rows, policy, key)
        return CanaryReports(reports, rows if aligned else None, named=False, times=0)
    index_of = {name: i for i, name in enumerate(key.names)}
    persons = reports.persons or ()
    canary_rows = [row for row, name in enumerate(persons) if name in index_of]
    first: dict[str, int] = {}
    for row in canary_rows:
        first.setdefault(persons[row], row)
    first_rows = sorted(first.values())
    rows = np.array([index_of[persons[row]] for row in first_rows], dtype=np.int64)
    return CanaryReports(
        reports.at(np.array(first_rows, dtype=np.int64)),
        rows,
        named=True,
        times=len(canary_rows) - len(first_rows),
    )


def _aligned(reports: CodedRecords, rows: Codes, policy: Policy, key: Canaries) -> bool:
    """Return True if the rows are in the canaries' order: they fit better than when shifted by one."""
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
    """Combine the codes of several columns into one code, the first column varying slowest."""
    return np.asarray(np.ravel_multi_index(tuple(columns), sizes))
