"""The output of a mix: records as columns of codes, and the disclosures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import guarantee_of
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.protocols.mixnet.messages import MixTerms, record_sizes
from masquerade.protocols.people.report_form import exceeds_limit


def unpack_records(records: Sequence[bytes], policy: Policy) -> tuple[dict[str, NDArray[np.uint32]], int]:
    """Return the codes of all records by variable, and the number of invalid records."""
    sizes = record_sizes(policy)
    whole = [record for record in records if len(record) == sum(sizes)]
    cells = np.frombuffer(b"".join(whole), np.uint8).reshape(len(whole), sum(sizes))
    codes: dict[str, NDArray[np.uint32]] = {}
    good = np.ones(len(whole), dtype=np.bool_)
    at = 0
    for variable, size in zip(policy.observed.variables, sizes, strict=True):
        column: NDArray[Any] = np.zeros(len(whole), dtype=np.uint32)
        for place in range(at, at + size):
            column = column * np.uint32(256) + cells[:, place]
        good &= column < len(variable)
        codes[variable.name] = column
        at += size
    return {name: np.ascontiguousarray(column[good]) for name, column in codes.items()}, len(records) - int(
        good.sum()
    )


def mix_guarantee(terms: MixTerms, policy: Policy, senders: int) -> Guarantee:
    """Return the disclosures of a mixnet with `senders` records, disguised by a policy or clear."""
    behind = guarantee_of(policy)
    leaders = len(terms.leaders)
    once = (
        "a clear record takes part in one mix and in no other count, since two collections differ by the "
        "record of a person who is missing in one; honest respondents refuse a second collection while they "
        "keep their ledgers and agree to no exception"
    )
    return Guarantee(
        tuple(
            Disclosure(
                "miner", f"unlinked records of {senders:,} people, {item.kind}", item.variables, item.gamma
            )
            for item in behind.disclosures
        ),
        (
            *behind.assumptions,
            f"at least one of the {leaders} leaders is honest",
            (
                f"some of the {senders:,} senders are honest, so that records have others to hide among, and "
                "no record identifies its sender by its content"
            ),
            "enrolment gave each respondent one identity, and all know the leaders' identities",
            *((once,) if exceeds_limit(policy) else ()),
            "the decisional Diffie–Hellman problem is hard on secp256k1 (hashes as random oracles)",
        ),
        adversaries={"miner": "malicious", "leader": "malicious", "respondent": "malicious"},
        colluders=leaders - 1,
        excluded_coalitions=(("miner", "all leaders"),),
        dropouts=0,
        integrity="identifies",
    )
