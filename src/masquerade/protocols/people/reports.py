"""The reported record of a person: clear, or disguised once."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from masquerade.core.errors import InputError
from masquerade.protocols.people.ledger import Claim, PersonLedger
from masquerade.protocols.people.report_form import AnyPolicy, ReportForm

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy

MEMO = "memo"
FORMER = "aggregation report"  # the first version stored the reports of secure aggregation, not a secret


def reports_of(
    record: Mapping[str, int], policy: AnyPolicy, name: str, ledger: PersonLedger
) -> dict[str, int]:
    """Return the reports of a record, drawn by the policy; equal values always get equal reports.

    They are derived from a secret in the ledger, so a person who is counted by several protocols or in
    several epochs sends the same reports.
    """
    sizes = _categories(policy)
    for variable, size in sizes.items():
        if not 0 <= record.get(variable, -1) < size:
            raise InputError(f"The record of {name!r} has no category of {variable!r}.")
    if not policy.disguised:
        return {variable: int(record[variable]) for variable in sizes}
    kept = ledger.find(FORMER, policy.id.encode())
    if kept is not None:
        return dict(zip(sizes, struct.unpack(f"<{len(kept) // 4}I", kept), strict=True))
    secret = ledger.find(MEMO, b"")
    if secret is None:
        secret = secrets.token_bytes(32)
        ledger.claim([Claim(MEMO, b"", secret)])
    if isinstance(policy, ReportForm):
        return policy.reports(record, name, secret)
    return _by_memo(record, policy, name, secret)


def _categories(policy: AnyPolicy) -> dict[str, int]:
    if isinstance(policy, ReportForm):
        return {variable.name: len(variable.labels) for variable in policy.variables}
    return {variable.name: len(variable) for variable in policy.schema.variables}


def _by_memo(record: Mapping[str, int], policy: Policy, name: str, secret: bytes) -> dict[str, int]:
    """Return the reports that `Memo` draws from the same secret, for any channel."""
    import numpy as np  # noqa: PLC0415  (devices use report forms instead of policies)
    import pyarrow as pa  # noqa: PLC0415

    from masquerade.disguising.memo import Memo  # noqa: PLC0415
    from masquerade.disguising.report_draws import disguise_codes  # noqa: PLC0415

    draws = Memo(Path("ledger"), secret).draws(policy.id, pa.array([name]), "user")
    codes = {variable: np.array([record[variable]], dtype=np.uint32) for variable in policy.schema}
    reports = disguise_codes(codes, policy, draws)
    return {variable: int(column[0]) for variable, column in reports.items()}
