"""Linked records of a party and their pseudonyms, kept until the session ends."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.core.util.scratch import MEMORY_ONLY, Scratch, release_pages
from masquerade.protocols.linkage.derived_keys import MOST_ROUNDS, Round
from masquerade.protocols.linkage.pseudonyms import PSEUDONYM_SIZE, ROWS_AT_ONCE, order_of, ranges_of
from masquerade.protocols.linkage.psi import LinkingOffer, LinkingParty, PseudonymRequest, Pseudonyms
from masquerade.services.common.release_ledger import KEYS
from masquerade.services.parties.kinds.base import Outflow, Role, RoleStep

if TYPE_CHECKING:
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import SessionSpec

ROW_SIZE = 8
MASKED_KEYS = Outflow("keys under secret masks", KEYS, Fraction(1))
PSEUDONYMS = Outflow("pseudonyms of records, which tell who is common", KEYS, None)


@dataclass(frozen=True, slots=True, eq=False)
class Linkage:
    """Indices of linked records among the keys of a party, and their pseudonyms, sorted by pseudonym."""

    rows: NDArray[np.integer[Any]]
    tags: NDArray[np.uint8]

    @classmethod
    def of(
        cls,
        rows: NDArray[np.integer[Any]] | None,
        tags: NDArray[np.uint8] | Sequence[bytes],
        scratch: Scratch = MEMORY_ONLY,
    ) -> Linkage:
        """Sort records by their pseudonyms, in ranges, since there may be many records.

        Parameters
        ----------
        rows : array, optional
            Index of each pseudonym's record. Without it, pseudonyms are in the order of records.
        tags : array or sequence of bytes
            Pseudonyms, as rows of bytes or as bytes.
        scratch : Scratch, optional
            Storage for long arrays.

        Returns
        -------
        Linkage
            The records in the order of their pseudonyms.
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
            release_pages()
        return cls(places, ordered)

    def in_place(self, scratch: Scratch) -> Linkage:
        """Return the linkage for records that have been reordered by pseudonym."""
        rows = scratch.column()
        for at in range(0, len(self.rows), ROWS_AT_ONCE):
            rows.append(np.arange(at, min(at + ROWS_AT_ONCE, len(self.rows)), dtype=self.rows.dtype))
        return Linkage(rows.array(), self.tags)

    @property
    def alignment(self) -> bytes:
        """Return the digest of the pseudonyms, which is equal for parties that have the same records."""
        digest = hashlib.sha256()
        for at in range(0, len(self.tags), ROWS_AT_ONCE):
            digest.update(self.tags[at : at + ROWS_AT_ONCE].data)
            release_pages()
        return digest.digest()

    def to_pieces(self) -> Iterator[bytes]:
        """Yield the linkage as bytes to store, `ROWS_AT_ONCE` records at a time."""
        for at in range(0, max(len(self.rows), 1), ROWS_AT_ONCE):
            some = slice(at, at + ROWS_AT_ONCE)
            yield b"".join([self.rows[some].astype("<i8").data, self.tags[some].data])
            release_pages()

    @classmethod
    def from_pieces(cls, pieces: Iterable[bytes], scratch: Scratch = MEMORY_ONLY) -> Linkage:
        """Return the linkage that `to_pieces` wrote; raise InputError if a piece is cut short."""
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
    """Return the integer type for indices of records: 4 bytes where they fit, else 8."""
    if isinstance(rows, int):
        return np.uint32 if rows <= 1 << 32 else np.int64
    small = len(rows) == 0 or (rows.min() >= 0 and rows.max() < 1 << 32)
    return np.uint32 if small else np.int64


class LinkingRole(Role):
    """Private set intersection (PSI): a party learns which of its keys all other parties have too.

    Sessions whose text has `link_by` link in rounds, with one role for each derived key.
    """

    fresh = False

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = "linking" if number == 0 else f"linking-{number + 1}"  # type: ignore[misc]
        self.steps = (  # type: ignore[misc]
            RoleStep(LinkingOffer, outflows=lambda part, _message: linking_outflows(part.spec, number)[:1]),
            RoleStep(
                PseudonymRequest, outflows=lambda part, _message: linking_outflows(part.spec, number)[1:]
            ),
            RoleStep(Pseudonyms, outflows=self._matches),
        )

    def player(self, part: SessionParticipant) -> LinkingParty:
        """Return the PSI party of this round, with the keys that earlier rounds did not link."""
        return LinkingParty(
            part.node.name,
            part.keys_to_link(self.number),
            most=part.limits.rows,
            roster=part.spec.parties,
            identity=part.node.identity,
            peers=part.node.identities_of(part.spec.parties),
            scratch=part.scratch,
        )

    def _matches(self, part: SessionParticipant, message: Pseudonyms) -> list[Outflow]:
        """Return the outflow of a round by derived keys: the numbers of offered and linked keys.

        Without `link_by` there are no derived keys, and nothing is added.
        """
        if not part.spec.link_by:
            return []
        parts = part.spec.link_by[self.number]
        matched = len(message.values) // PSEUDONYM_SIZE
        ended = Round(parts, (part.keys_offered(self.number),), matched)
        return [Outflow(ended.disclosure(), KEYS, Fraction(1))]


def linking_outflows(spec: SessionSpec, number: int) -> list[Outflow]:
    """Return the outflows of a round of linking."""
    if not spec.link_by:
        return [MASKED_KEYS, PSEUDONYMS]
    by = f", by {' + '.join(spec.link_by[number])}"
    return [replace(item, kind=item.kind + by) for item in (MASKED_KEYS, PSEUDONYMS)]


LINKINGS = tuple(LinkingRole(number) for number in range(MOST_ROUNDS))
