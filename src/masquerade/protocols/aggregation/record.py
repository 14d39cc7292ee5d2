"""A user's record as it votes with it: as it is, or disguised once and for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.crypto.keystream import Keystream
from masquerade.disguising.report_draws import disguise_codes, fresh_draws
from masquerade.protocols.people.ledger import Claim, Ledger

REPORT = "aggregation report"


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """The codes a user votes with, one for each column, and the policy they are reports of."""

    codes: tuple[int, ...]
    policy: str

    def __repr__(self) -> str:
        """Show how long it is, never what it says."""
        return f"Record({len(self.codes)} columns)"


def reported(codes: Sequence[int], policy: Policy, ledger: Ledger) -> Record:
    """Return the record as the policy reports it: drawn once, kept in the ledger, the same ever after."""
    shape = policy.schema.shape(policy.schema)
    if len(codes) != len(shape) or any(not 0 <= code < size for code, size in zip(codes, shape, strict=True)):
        raise InputError("A record has one known category for every variable of the policy.")
    if not policy.disguised:
        return Record(tuple(int(code) for code in codes), policy.id)
    kept = ledger.find(REPORT, policy.id.encode())
    if kept is None:
        columns = {
            name: np.array([code], dtype=np.uint32) for name, code in zip(policy.schema, codes, strict=True)
        }
        drawn = disguise_codes(columns, policy, fresh_draws(Keystream()))
        kept = np.array([drawn[name][0] for name in policy.schema], dtype="<u4").tobytes()
        ledger.claim([Claim(REPORT, policy.id.encode(), kept)])
    return Record(tuple(np.frombuffer(kept, dtype="<u4").tolist()), policy.id)
