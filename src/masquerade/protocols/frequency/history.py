"""A user's own rules about rounds, from what its ledger says has left and who it was counted with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from masquerade.core.errors import FileError, Refusal
from masquerade.protocols.frequency.agreement import Enrolled, Terms
from masquerade.protocols.frequency.messages import HASH, ROUND, Invitation
from masquerade.protocols.frequency.rules import against_difference, asks_clear, roster_refusals
from masquerade.protocols.people.ledger import Claim, Ledger

T = TypeVar("T")
TURN = 4  # bytes of its number


class Counted(NamedTuple):
    """Who was counted in a clear round under other terms, by their identities."""

    epoch: str
    minimum: int
    users: frozenset[bytes]


class History:
    """What a user has voted in, in this epoch and in others, and who was counted with it.

    A vote is spent when it leaves. Rosters of clear votes are kept with the terms they were cast under, so
    that those of other epochs can be compared with; those of the epochs in `agreed` are not.

    Clear votes take turns: a round is joined at the turn after the last one, and of several rounds joined at
    one turn, by several processes or in several epochs, only the first to be voted in gets it. So nothing
    that was looked up on joining has changed since.
    """

    def __init__(self, ledger: Ledger, terms: Terms, agreed: Iterable[str] = ()) -> None:
        self._ledger, self._terms, self._agreed = ledger, terms, frozenset(agreed)

    def turn(self) -> int:
        """Return how many clear votes have left: the number that the next one claims."""
        return len(self._ledger.values("clear", b""))

    def refusals(self, asked: Invitation) -> list[Refusal]:
        """Return why a round must not be joined."""
        terms, found = self._terms, []
        if self._ledger.find("endorsed", self._name(asked.number)) is not None:
            found.append(
                Refusal("already_spent", f"round {asked.number} has been endorsed or voted in already")
            )
        gone = [q for q in asked.questions if self._ledger.find("question", q.id(terms)) is not None]
        if gone:
            names = ", ".join(" × ".join(question.names) for question in gone[:3])
            found.append(Refusal("already_spent", f"a vote on {names} has left already in this epoch"))
        earlier = [
            frozenset(unpacked(flags, terms.names)) for flags in self._ledger.values("voted", terms.id)
        ]
        found += roster_refusals(terms, frozenset(asked.users), earlier, asked.questions)
        return found + (self._across(asked) if asks_clear(terms, asked.questions) else [])

    def endorse(self, number: int, roster: bytes) -> None:
        """Record, durably, the roster that is about to be endorsed; `KeySpent` if one has been."""
        self._ledger.claim([Claim("endorsed", self._name(number), roster)])

    def spend(self, asked: Invitation, fingerprint: str, turn: int) -> None:
        """Record, durably and all at once, what the vote about to be made uses up."""
        terms = self._terms
        flags = packed([terms.places[user] for user in asked.users], len(terms.names))
        entries = [
            Claim("key", bytes.fromhex(fingerprint)),
            Claim("voted", self._name(asked.number), flags),
            *[Claim("question", question.id(terms)) for question in asked.questions],
        ]
        if asks_clear(terms, asked.questions):
            entries.append(Claim("clear", turn.to_bytes(TURN, "big"), terms.id + flags))
            if self._ledger.find("terms", terms.id) is None:
                entries.append(Claim("terms", terms.id, terms.encoded))
        self._ledger.claim(entries)

    def _across(self, asked: Invitation) -> list[Refusal]:
        """Return why clear counts of this round and of rounds under other terms give somebody away.

        Of two minimums the larger holds: it was promised to those who left.
        """
        now = frozenset(self._terms.members[user] for user in asked.users)
        for before in self._elsewhere():
            refusal = against_difference(now, before.users, max(self._terms.minimum, before.minimum))
            if refusal is not None:
                return [Refusal(refusal.code, f"as counted in epoch {before.epoch!r}: {refusal.reason}")]
        return []

    def _elsewhere(self) -> Iterator[Counted]:
        """Return the clear rounds under other terms, but for those of epochs that were agreed to."""
        known: dict[bytes, Enrolled] = {}
        for value in self._ledger.values("clear", b""):
            name, flags = value[:HASH], value[HASH:]
            if name == self._terms.id:
                continue
            if name not in known:
                known[name] = self._enrolled(name)
            epoch, minimum, identities = known[name]
            if epoch not in self._agreed:
                yield Counted(epoch, minimum, frozenset(unpacked(flags, identities)))

    def _enrolled(self, name: bytes) -> Enrolled:
        written = self._ledger.find("terms", name)
        if written is None:
            raise FileError("The ledger has a vote under terms that it does not have.")
        return Enrolled.decode(written)

    def _name(self, number: int) -> bytes:
        return self._terms.id + number.to_bytes(ROUND, "big")


def packed(places: list[int], size: int) -> bytes:
    """Return a bit for each of `size` members, set for those at these places."""
    flags = np.zeros(size, dtype=np.bool_)
    flags[places] = True
    return np.packbits(flags).tobytes()


def unpacked(flags: bytes, members: tuple[T, ...]) -> list[T]:
    """Return the members whose bit is set."""
    return [members[place] for place in np.flatnonzero(np.unpackbits(np.frombuffer(flags, np.uint8)))]
