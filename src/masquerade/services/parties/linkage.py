"""Which records take part and under which pseudonyms: what linking leaves at a party, kept until it ends."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.core.util.scratch import HELD, Scratch, let_go
from masquerade.protocols.linkage.pseudonyms import PSEUDONYM_SIZE, ROWS_AT_ONCE, order_of, ranges_of
from masquerade.protocols.linkage.psi import LinkingOffer, LinkingParty, PseudonymRequest
from masquerade.services.parties.kinds.base import Outflow, Role, Step

if TYPE_CHECKING:
    from masquerade.services.parties.participant import Participant

ROW_SIZE = 8
MASKED_KEYS = Outflow("keys under secret masks", ("(key)",), Fraction(1))
PSEUDONYMS = Outflow("pseudonyms of records, which tell who is common", ("(key)",), None)


@dataclass(frozen=True, slots=True, eq=False)
class Linkage:
    """Places of records among the keys of a party, and their pseudonyms, sorted by pseudonym."""

    rows: NDArray[np.integer[Any]]
    tags: NDArray[np.uint8]

    @classmethod
    def of(
        cls,
        rows: NDArray[np.integer[Any]] | None,
        tags: NDArray[np.uint8] | Sequence[bytes],
        scratch: Scratch = HELD,
    ) -> Linkage:
        """Bring records into the order of their pseudonyms, given as bytes or rows of bytes.

        Without `rows` the first pseudonym is of the first record, and so on. They are sorted range by range:
        there may be many.
        """
        if not isinstance(tags, np.ndarray):
            tags = np.frombuffer(bytearray().join(tags), dtype=np.uint8).reshape(-1, PSEUDONYM_SIZE)
        places = scratch.empty((len(tags),), _kind_of(len(tags) if rows is None else rows))
        ordered = scratch.empty(tags.shape, np.uint8)
        end = 0
        for some, own in ranges_of(tags):
            order = order_of(own)
            begin, end = end, end + len(some)
            ordered[begin:end] = own[order]
            places[begin:end] = some[order] if rows is None else np.asarray(rows)[some[order]]
            let_go()
        return cls(places, ordered)

    def in_place(self, scratch: Scratch) -> Linkage:
        """Return the same pseudonyms for records that were brought into their order."""
        rows = scratch.column()
        for at in range(0, len(self.rows), ROWS_AT_ONCE):
            rows.append(np.arange(at, min(at + ROWS_AT_ONCE, len(self.rows)), dtype=self.rows.dtype))
        return Linkage(rows.array(), self.tags)

    @property
    def alignment(self) -> bytes:
        """Return the digest of the pseudonyms: equal for parties that have the same records."""
        found = hashlib.sha256()
        for at in range(0, len(self.tags), ROWS_AT_ONCE):
            found.update(self.tags[at : at + ROWS_AT_ONCE].data)
            let_go()
        return found.digest()

    def to_pieces(self) -> Iterator[bytes]:
        """Yield what is kept on the disk, so many records at a time."""
        for at in range(0, max(len(self.rows), 1), ROWS_AT_ONCE):
            some = slice(at, at + ROWS_AT_ONCE)
            yield b"".join([self.rows[some].astype("<i8").data, self.tags[some].data])
            let_go()

    @classmethod
    def from_pieces(cls, pieces: Iterable[bytes], scratch: Scratch = HELD) -> Linkage:
        """Return what `to_pieces` wrote."""
        rows, tags = scratch.column(), scratch.column()
        for piece in pieces:
            count, rest = divmod(len(piece), ROW_SIZE + PSEUDONYM_SIZE)
            if rest:
                raise InputError("The linked records of a session cannot be read back.")
            rows.append(np.frombuffer(piece, dtype="<i8", count=count))
            tags.append(
                np.frombuffer(piece, dtype=np.uint8, offset=count * ROW_SIZE).reshape(-1, PSEUDONYM_SIZE)
            )
        return cls(rows.array(), tags.array())


def _kind_of(rows: NDArray[np.integer[Any]] | int) -> type[np.uint32 | np.int64]:
    """Return the type of places of records: half the bytes, if they are not too many for that."""
    if isinstance(rows, int):
        return np.uint32 if rows <= 1 << 32 else np.int64
    small = len(rows) == 0 or (rows.min() >= 0 and rows.max() < 1 << 32)
    return np.uint32 if small else np.int64


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
            scratch=part.scratch,
        )


LINKING = _LinkingRole()
