"""Which records take part and under which pseudonyms: what linking leaves at a party, kept until it ends."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.protocols.linking import LinkingOffer, LinkingParty, PseudonymRequest
from masquerade.protocols.pseudonyms import PSEUDONYM_SIZE
from masquerade.services.parties.kinds.base import Outflow, Role, Step

if TYPE_CHECKING:
    from masquerade.services.parties.participant import Participant

ROW_SIZE = 8
MASKED_KEYS = Outflow("keys under secret masks", ("(key)",), Fraction(1))
PSEUDONYMS = Outflow("pseudonyms of records, which tell who is common", ("(key)",), None)


@dataclass(frozen=True, slots=True, eq=False)
class Linkage:
    """Places of records among the keys of a party, and their pseudonyms, sorted by pseudonym."""

    rows: NDArray[np.intp]
    tags: NDArray[np.uint8]

    @classmethod
    def of(cls, rows: NDArray[np.intp], tags: NDArray[np.uint8] | Sequence[bytes]) -> Linkage:
        """Bring records into the order of their pseudonyms as numbers, given as bytes or rows of bytes."""
        if not isinstance(tags, np.ndarray):
            tags = np.frombuffer(b"".join(tags), dtype=np.uint8).reshape(-1, PSEUDONYM_SIZE)
        words: NDArray[Any] = np.ascontiguousarray(tags).view(">u8").astype(np.uint64)
        order = np.lexsort((words[:, 1], words[:, 0]))
        return cls(np.asarray(rows)[order], np.ascontiguousarray(tags[order]))

    @property
    def alignment(self) -> bytes:
        """Return the digest of the pseudonyms: equal for parties that have the same records."""
        return hashlib.sha256(self.tags.data).digest()

    def to_bytes(self) -> bytes:
        """Return what is kept on the disk."""
        return b"".join([self.rows.astype("<i8", copy=False).data, self.tags.data])

    @classmethod
    def from_bytes(cls, data: bytes) -> Linkage:
        """Return what `to_bytes` wrote."""
        count, rest = divmod(len(data), ROW_SIZE + PSEUDONYM_SIZE)
        if rest:
            raise InputError("The linked records of a session cannot be read back.")
        rows = np.frombuffer(data, dtype="<i8", count=count).astype(np.intp)
        tags = np.frombuffer(data, dtype=np.uint8, offset=count * ROW_SIZE)
        return cls(rows, tags.reshape(-1, PSEUDONYM_SIZE))


class _LinkingRole(Role):
    """A party finds out, with all others, which of its keys they have too."""

    name = "linking"
    fresh = False
    steps = (
        Step(LinkingOffer, outflows=lambda _part, _message: [MASKED_KEYS]),
        Step(PseudonymRequest, outflows=lambda _part, _message: [PSEUDONYMS]),
    )

    def player(self, part: Participant) -> LinkingParty:
        return LinkingParty(
            part.node.name,
            part.data.keys(),
            most=part.limits.rows,
            roster=part.spec.parties,
            identity=part.node.identity,
            peers=part.node.identities_of(part.spec.parties),
        )


LINKING = _LinkingRole()
