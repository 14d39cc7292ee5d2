"""The server's part in drawing the graph: it convenes committees until all members of one have revealed."""

from __future__ import annotations

from collections.abc import Collection

from masquerade.protocols.aggregation import committee
from masquerade.protocols.aggregation.graph import Graph
from masquerade.protocols.aggregation.messages import Kind, MessageRefused, check_length, plain
from masquerade.protocols.aggregation.roster import NONCE_SIZE, Context, Terms

Outgoing = dict[int, bytes]


class Convening:
    """Committees of one session, attempt after attempt; the server only relays what members commit to."""

    def __init__(self, context: Context, terms: Terms) -> None:
        self._context, self._terms = context.opening, terms
        self._attempt = -1
        self.commitments: dict[int, bytes] = {}
        self.reveals: dict[int, tuple[bytes, bytes]] = {}

    @property
    def members(self) -> list[int]:
        """Return the committee of this attempt."""
        return committee.members(self._context, self._attempt, self._terms)

    @property
    def about(self) -> bytes:
        """Return what members sign with their nonces: the hash of all commitments."""
        listed = [self.commitments[place] for place in self.members]
        return committee.commitments_hash(self._context.info, self._attempt, listed)

    def call(self, present: Collection[int]) -> Outgoing:
        """Return the call to the next committee of which nobody is known to be gone, if there is one."""
        self.commitments.clear()
        self.reveals.clear()
        while self._attempt + 1 < committee.MOST_ATTEMPTS:
            self._attempt += 1
            if all(place in present for place in self.members):
                message = plain(Kind.CALL, self._context, bytes([self._attempt]))
                return dict.fromkeys(self.members, message)
        return {}

    def take_commitment(self, place: int, body: bytes, _signature: bytes) -> None:
        """Take what a member commits to."""
        check_length(body, 1 + committee.HASH_SIZE)
        if body[0] != self._attempt:
            raise MessageRefused("The commitment is for another attempt.")
        self.commitments[place] = body[1:]

    def show(self) -> Outgoing:
        """Return everybody's commitments to everybody; nothing if one is missing."""
        if len(self.commitments) < len(self.members):
            return {}
        body = bytes([self._attempt]) + b"".join(self.commitments[place] for place in self.members)
        return dict.fromkeys(self.members, plain(Kind.COMMITMENTS, self._context, body))

    def take_reveal(self, place: int, body: bytes, signature: bytes) -> None:
        """Take the nonce of a member, which must be the one it committed to."""
        check_length(body, 1 + NONCE_SIZE)
        fixed = committee.commitment(self._context.info, self._attempt, place, body[1:])
        if body[0] != self._attempt or fixed != self.commitments[place]:
            name = self._terms.roster.names[place]
            raise MessageRefused(f"{name!r} revealed another nonce than it was committed to.", [name])
        self.reveals[place] = (body[1:], signature)

    def drawn(self) -> tuple[Graph, bytes] | None:
        """Return the graph and the proof of how it was drawn; None if somebody has not revealed."""
        if len(self.reveals) < len(self.members):
            return None
        reveals = [self.reveals[place] for place in self.members]
        nonces = [nonce for nonce, _ in reveals]
        graph = committee.drawn_graph(self._context, self._attempt, nonces, self._terms)
        return graph, committee.write_drawn(self._attempt, reveals)
