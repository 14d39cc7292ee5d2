"""Records with pseudonyms: what every kind of linking leaves a party with, and how the common are found."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.codec import check_session, tag_of
from masquerade.protocols.linking.messages import PSEUDONYM_SIZE, Begin, BeginKeyed, Compare, Done, Pseudonyms


class NamedRecords:
    """A party's records after linking: their pseudonyms, and which of them all parties have.

    A kind of linking says how records get their pseudonyms (`_reply`, which falls back on this one). `roster`
    are the parties that a session must have, this one among them; None takes whom it is offered. Fewer common
    records than `least` are refused: whoever compares says which are common, and could single out a person.
    """

    def __init__(self, name: str, *, roster: Collection[str] | None = None, least: int = 0) -> None:
        self.name, self._least = name, least
        self._roster = None if roster is None else frozenset(roster)
        if self._roster is not None and (name not in self._roster or len(self._roster) < 2):
            raise InputError("The roster of a session has two parties or more, this one among them.")
        if least < 0:
            raise InputError(f"At least 0 common records can be asked for. Got {least} instead.")
        self._offer: Begin | BeginKeyed | None = None
        self._replies: dict[bytes, tuple[bytes, bytes]] = {}
        self._pseudonyms: list[bytes] | None = None
        self._common: list[bytes] | None = None

    def receive(self, message: bytes) -> bytes:
        """Return the reply to a message; asked again it says the same, a refused one changes nothing."""
        slot, digest = self._slot(message), hashlib.sha256(message).digest()
        if slot in self._replies:
            before, reply = self._replies[slot]
            if before != digest:
                raise KeySpent("This step of the session was done already, with another message.")
            return reply
        reply = self._reply(tag_of(message), message)
        self._replies[slot] = (digest, reply)
        return reply

    @property
    def pseudonyms(self) -> list[bytes]:
        """Return the pseudonym of every own record, in own order: for cells that a miner merges."""
        if self._pseudonyms is None:
            raise InputError("The records have no pseudonyms yet, or they were forgotten.")
        return self._pseudonyms

    @property
    def common(self) -> list[bytes]:
        """Return the pseudonyms of the records that all parties have, sorted."""
        if self._common is None:
            raise InputError("The common records are not known yet, or were forgotten.")
        return self._common

    @property
    def rows(self) -> NDArray[np.intp]:
        """Return the places of the common records among own ones, in the order that all parties share."""
        place = {pseudonym: row for row, pseudonym in enumerate(self.pseudonyms)}
        return np.array([place[pseudonym] for pseudonym in self.common], dtype=np.intp)

    @property
    def alignment(self) -> bytes:
        """Return the digest of that order, by which parties notice that they mean different records."""
        return hashlib.sha256(b"".join(self.common)).digest()

    def forget(self) -> None:
        """Destroy pseudonyms; nobody can link by them any more."""
        self._pseudonyms = self._common = None
        self._replies = {}

    def _slot(self, message: bytes) -> bytes:
        """Return the name of the step that a message belongs to: each is done once."""
        return tag_of(message)

    def _reply(self, tag: bytes, message: bytes) -> bytes:
        if tag == Compare.TAG:
            self._check_current(Compare.decode(message).session)
            values = b"".join(sorted(self.pseudonyms))
            return Pseudonyms(Compare.decode(message).session, values).encode()
        return self._settle(Pseudonyms.decode(message)).encode()

    def _settle(self, found: Pseudonyms) -> Done:
        self._check_current(found.session)
        common = split_pseudonyms(found.values)
        if not set(common) <= set(self.pseudonyms):
            raise InputError("A pseudonym said to be common is none of this party's.")
        if len(common) < self._least:
            raise InputError(
                f"{len(common):,} records are said to be common: this party takes part with {self._least:,} "
                "or more, since fewer could single out a person."
            )
        self._common = common
        return Done(found.session, len(common))

    def _check_current(self, session: bytes) -> None:
        if self._offer is None:
            raise InputError("No session was begun yet.")
        check_session(session, self._offer.session)

    def _check_roster(self, roster: tuple[str, ...]) -> None:
        if len(roster) < 2 or len(set(roster)) < len(roster) or self.name not in roster:
            raise InputError("Linking needs two parties or more, each named once, this one among them.")
        if self._roster is not None and self._roster != set(roster):
            raise InputError("The session is offered with other parties than were agreed on.")


def split_pseudonyms(values: bytes) -> list[bytes]:
    """Return pseudonyms; they must be sorted, none twice."""
    if len(values) % PSEUDONYM_SIZE:
        raise InputError(f"Pseudonyms have {PSEUDONYM_SIZE} bytes each; the last is incomplete.")
    listed = [values[at : at + PSEUDONYM_SIZE] for at in range(0, len(values), PSEUDONYM_SIZE)]
    if any(first >= second for first, second in pairwise(listed)):
        raise InputError("Pseudonyms must be sorted, none twice.")
    return listed
