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
from masquerade.protocols.codec import tag_of
from masquerade.protocols.linking import LinkingOffer, LinkingParty, PseudonymRequest
from masquerade.protocols.pseudonyms import PSEUDONYM_SIZE
from masquerade.services.parties.kinds.base import Outflow, Role

if TYPE_CHECKING:
    from masquerade.services.parties.participant import Participant

ROW_SIZE = 8
PSEUDONYMS = Outflow("pseudonyms of records, which tell who is common", ("(key)",), None)


@dataclass(frozen=True, slots=True, eq=False)
class Linkage:
    """Places of records among the keys of a party, and their pseudonyms, sorted by pseudonym."""

    rows: NDArray[np.intp]
    tags: NDArray[np.uint8]

    @classmethod
    def of(cls, rows: NDArray[np.intp], pseudonyms: Sequence[bytes]) -> Linkage:
        """Bring records into the order of their pseudonyms."""
        tags = np.frombuffer(b"".join(pseudonyms), dtype=np.uint8).reshape(-1, PSEUDONYM_SIZE)
        return cls.from_tags(rows, tags)

    @classmethod
    def from_tags(cls, rows: NDArray[np.intp], tags: NDArray[np.uint8]) -> Linkage:
        """Bring records into the order of their pseudonyms, given as rows of bytes."""
        order = sorted_order(tags)
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


def sorted_order(tags: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Return the order of pseudonyms as numbers."""
    words: NDArray[Any] = np.ascontiguousarray(tags).view(">u8").astype(np.uint64)
    return np.lexsort((words[:, 1], words[:, 0]))


class LinkingRole(Role):
    """A party finds out, with all others, which of its keys they have too."""

    name = "linking"
    fresh = False

    def player(self, part: Participant) -> LinkingParty:
        """Return who masks the keys of this party, and others' masked keys."""
        return LinkingParty(
            part.node.name,
            part.data.keys(),
            most=part.limits.rows,
            roster=part.spec.parties,
            identity=part.node.identity,
            peers=part.node.identities_of(part.spec.parties),
        )

    def outflows(self, part: Participant, message: bytes) -> tuple[Outflow, ...]:  # noqa: ARG002
        """Return what a step of linking gives away."""
        tag = tag_of(message)
        if tag == LinkingOffer.TAG:
            return (Outflow("keys under secret masks", ("(key)",), Fraction(1)),)
        return (PSEUDONYMS,) if tag == PseudonymRequest.TAG else ()


LINKING = LinkingRole()
