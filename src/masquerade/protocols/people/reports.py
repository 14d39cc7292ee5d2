"""A person's record as it is reported: as it is, or disguised once and for all."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.disguising.memo import Memo
from masquerade.disguising.report_draws import disguise_codes
from masquerade.protocols.people.ledger import Claim, Ledger

MEMO = "memo"
FORMER = "aggregation report"  # the first version kept reports of secure aggregation themselves


def reports_of(record: Mapping[str, int], policy: Policy, name: str, ledger: Ledger) -> dict[str, int]:
    """Return the reports of a record: drawn by the policy, the same ones for the same values ever after.

    They follow from a secret that the ledger keeps, so a person who is counted by several protocols, or in
    several epochs, reports alike.
    """
    for variable in policy.schema.variables:
        if not 0 <= record.get(variable.name, -1) < len(variable):
            raise InputError(f"The record of {name!r} has no category of {variable.name!r}.")
    if not policy.disguised:
        return {variable: int(record[variable]) for variable in policy.schema}
    kept = ledger.find(FORMER, policy.id.encode())
    if kept is not None:
        return dict(zip(policy.schema, np.frombuffer(kept, dtype="<u4").tolist(), strict=True))
    secret = ledger.find(MEMO, b"")
    if secret is None:
        secret = secrets.token_bytes(32)
        ledger.claim([Claim(MEMO, b"", secret)])
    draws = Memo(Path("ledger"), secret).draws(policy.id, pa.array([name]), "user")
    codes = {variable: np.array([record[variable]], dtype=np.uint32) for variable in policy.schema}
    reports = disguise_codes(codes, policy, draws)
    return {variable: int(column[0]) for variable, column in reports.items()}
