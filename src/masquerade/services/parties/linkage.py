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
from masquerade.protocols.linking import LinkingOffer, LinkingParty, PseudonymRequest
from masquerade.protocols.pseudonyms import PSEUDONYM_SIZE, ROWS_AT_ONCE, order_of
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
    def of(cls, rows: NDArray[np.integer[Any]] | None, tags: NDArray[np.uint8] | Sequence[bytes]) -> Linkage:
        """Bring records into the order of their pseudonyms, given as bytes or rows of bytes.

        Without `rows` the first pseudonym is of the first record, and so on. Rows of bytes are sorted where
        they lie: there may be many.
        """
        if not isinstance(tags, np.ndarray):
            tags = np.frombuffer(bytearray().join(tags), dtype=np.uint8).reshape(-1, PSEUDONYM_SIZE)
        order = order_of(tags)
        words = tags.view(np.uint64)
        for half in range(2):
            words[:, half] = words[order, half]
        return cls(_narrow(order if rows is None else np.asarray(rows)[order]), tags)

    @property
    def alignment(self) -> bytes:
        """Return the digest of the pseudonyms: equal for parties that have the same records."""
        return hashlib.sha256(self.tags.data).digest()

    def to_pieces(self) -> Iterator[bytes]:
        """Yield what is kept on the disk, so many records at a time."""
        for at in range(0, max(len(self.rows), 1), ROWS_AT_ONCE):
            some = slice(at, at + ROWS_AT_ONCE)
            yield b"".join([self.rows[some].astype("<i8").data, self.tags[some].data])

    @classmethod
    def from_pieces(cls, pieces: Iterable[bytes]) -> Linkage:
        """Return what `to_pieces` wrote."""
        rows: list[NDArray[np.integer[Any]]] = [np.empty(0, np.uint32)]
        tags = [np.empty((0, PSEUDONYM_SIZE), np.uint8)]
        for piece in pieces:
            count, rest = divmod(len(piece), ROW_SIZE + PSEUDONYM_SIZE)
            if rest:
                raise InputError("The linked records of a session cannot be read back.")
            rows.append(_narrow(np.frombuffer(piece, dtype="<i8", count=count)))
            tags.append(
                np.frombuffer(piece, dtype=np.uint8, offset=count * ROW_SIZE).reshape(-1, PSEUDONYM_SIZE)
            )
        return cls(np.concatenate(rows), np.concatenate(tags))


def _narrow(rows: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """Return places of records in half the bytes, if they are not too many for that."""
    return rows.astype(np.uint32) if len(rows) == 0 or 0 <= rows.min() <= rows.max() < 1 << 32 else rows


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
