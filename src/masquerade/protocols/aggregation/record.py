"""A user's record as it votes with it: as it is, or disguised once and for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.disguising.reports import disguise_codes, fresh_draws
from masquerade.kernels.keystream import Keystream
from masquerade.protocols.aggregation.journal import Journal


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """The codes a user votes with, one for each column, and the policy they are reports of."""

    codes: tuple[int, ...]
    policy: str

    def __repr__(self) -> str:
        """Show how long it is, never what it says."""
        return f"Record({len(self.codes)} columns)"


def reported(codes: Sequence[int], policy: Policy, journal: Journal) -> Record:
    """Return the record as the policy reports it: drawn once, kept in the journal, the same ever after."""
    shape = policy.schema.shape(policy.schema)
    if len(codes) != len(shape) or any(not 0 <= code < size for code, size in zip(codes, shape, strict=True)):
        raise InputError("A record has one known category for every variable of the policy.")
    if not policy.disguised:
        return Record(tuple(int(code) for code in codes), policy.id)
    for entry in journal.entries():
        if entry.get("kind") == "report" and entry.get("policy") == policy.id:
            return Record(tuple(entry["codes"]), policy.id)
    columns = {
        name: np.array([code], dtype=np.uint32) for name, code in zip(policy.schema, codes, strict=True)
    }
    drawn = disguise_codes(columns, policy, fresh_draws(Keystream()))
    report = tuple(int(drawn[name][0]) for name in policy.schema)
    journal.append({"kind": "report", "policy": policy.id, "codes": list(report)})
    return Record(report, policy.id)
