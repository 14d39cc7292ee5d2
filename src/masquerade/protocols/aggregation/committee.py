"""How users draw the graph of a session without the server's say: a committee commits, then reveals.

The committee of each attempt follows from the name of the session. Each member reveals its nonce only when
it has seen everybody's commitments, and signs them. All members must reveal: if one is silent, another
attempt with another committee starts, 64 at most, so that whoever withholds nonces chooses among 64 graphs,
not among 2^colluders. Every user checks nonces and signatures of the committee, some 2 kB, whatever n is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from masquerade.protocols.aggregation.agreement import RoundContext, Terms
from masquerade.protocols.aggregation.messages import (
    MOST_ATTEMPTS,
    NONCE_SIZE,
    SIGNED_NONCE_SIZE,
    Call,
    Commitment,
    Commitments,
    MessageRefused,
    MessageSizes,
    Neighbours,
    Reveal,
    Signer,
    Work,
)
from masquerade.protocols.aggregation.neighbour_graph import Graph, harary_graph, permutation

Outgoing = dict[int, bytes]


def members(context: RoundContext, attempt: int, terms: Terms) -> list[int]:
    """Return the committee of an attempt: nobody's choice once the session has its name."""
    key = hashlib.sha256(b"masquerade aggregation committee" + _head(context, attempt)).digest()
    chosen: list[int] = permutation(key, terms.parameters.users)[: terms.parameters.committee].tolist()
    return chosen


def commitment_to(context: RoundContext, attempt: int, place: int, nonce: bytes) -> bytes:
    """Return the hash by which a member of a committee fixes its nonce before seeing those of others."""
    head = b"masquerade aggregation nonce" + _head(context, attempt) + place.to_bytes(4, "big")
    return hashlib.sha256(head + nonce).digest()


def commitments_hash(context: RoundContext, attempt: int, commitments: Sequence[bytes]) -> bytes:
    """Return the hash of all commitments of a committee."""
    head = b"masquerade aggregation commitments" + _head(context, attempt)
    return hashlib.sha256(head + b"".join(commitments)).digest()


def drawn_graph(context: RoundContext, attempt: int, nonces: Sequence[bytes], terms: Terms) -> Graph:
    """Return the graph that nonces decide: unpredictable while one member is honest."""
    head = b"masquerade aggregation graph" + _head(context, attempt)
    key = hashlib.sha256(head + b"".join(nonces)).digest()
    return harary_graph(terms.parameters.users, terms.parameters.neighbours, key)


def checked_graph(shown: Neighbours, context: RoundContext, terms: Terms, work: Work) -> Graph:
    """Return the graph that a committee drew, each member's nonce and signature checked."""
    attempt, opening = shown.attempt, context.opening
    places, size = members(context, attempt, terms), SIGNED_NONCE_SIZE
    pieces = [shown.drawn[at : at + size] for at in range(0, len(shown.drawn), size)]
    nonces = [piece[:NONCE_SIZE] for piece in pieces]
    hashes = [commitment_to(context, attempt, *one) for one in zip(places, nonces, strict=True)]
    about = commitments_hash(context, attempt, hashes)
    for place, piece in zip(places, pieces, strict=True):
        fields = bytes([attempt]) + piece[:NONCE_SIZE]
        signer_of(terms, place, work).check(Reveal, opening, fields, piece[NONCE_SIZE:], about)
    return drawn_graph(context, attempt, nonces, terms)


def signer_of(terms: Terms, place: int, work: Work) -> Signer:
    """Return whose signature the messages of a user must bear."""
    return Signer(terms.roster.names[place], terms.roster.identities[place], work)


def _head(context: RoundContext, attempt: int) -> bytes:
    return context.opening.info + bytes([attempt])


class CommitteeCalls:
    """The server's part: it calls committees until all members of one have revealed, and only relays."""

    def __init__(self, context: RoundContext, terms: Terms, sizes: MessageSizes) -> None:
        self._context, self._terms, self._sizes = context.opening, terms, sizes
        self.attempt = -1
        self.commitments: dict[int, bytes] = {}
        self.reveals: dict[int, Reveal] = {}

    @property
    def members(self) -> list[int]:
        """Return the committee of this attempt."""
        return members(self._context, self.attempt, self._terms)

    @property
    def about(self) -> bytes:
        """Return what members sign with their nonces: the hash of all commitments."""
        listed = [self.commitments[place] for place in self.members]
        return commitments_hash(self._context, self.attempt, listed)

    def call(self, present: Collection[int]) -> Outgoing:
        """Return the call to the next committee of which nobody is known to be gone, if there is one."""
        self.commitments.clear()
        self.reveals.clear()
        while self.attempt + 1 < MOST_ATTEMPTS:
            self.attempt += 1
            if all(place in present for place in self.members):
                return dict.fromkeys(self.members, Call(self._context.tag, self.attempt).encode())
        return {}

    def take_commitment(self, place: int, said: Commitment) -> None:
        """Take what a member commits to."""
        if said.attempt != self.attempt:
            raise MessageRefused("The commitment is for another attempt.")
        self.commitments[place] = said.commitment

    def show(self) -> Outgoing:
        """Return everybody's commitments to everybody; nothing if one is missing."""
        if len(self.commitments) < len(self.members):
            return {}
        listed = tuple(self.commitments[place] for place in self.members)
        message = Commitments(self._context.tag, self.attempt, listed).encode(self._sizes)
        return dict.fromkeys(self.members, message)

    def take_reveal(self, place: int, said: Reveal) -> None:
        """Take the nonce of a member, which must be the one it committed to."""
        fixed = commitment_to(self._context, self.attempt, place, said.nonce)
        if said.attempt != self.attempt or fixed != self.commitments[place]:
            name = self._terms.roster.names[place]
            raise MessageRefused(f"{name!r} revealed another nonce than it was committed to.", [name])
        self.reveals[place] = said

    def drawn(self) -> tuple[Graph, bytes] | None:
        """Return the graph and the proof of how it was drawn; None if somebody has not revealed."""
        if len(self.reveals) < len(self.members):
            return None
        reveals = [self.reveals[place] for place in self.members]
        graph = drawn_graph(self._context, self.attempt, [one.nonce for one in reveals], self._terms)
        return graph, b"".join(one.nonce + one.signature for one in reveals)
