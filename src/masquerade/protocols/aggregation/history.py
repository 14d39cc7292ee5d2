"""A user's own rules about rounds, from what its ledger says has left and who it was summed with."""

from __future__ import annotations

from typing import NamedTuple

from masquerade.core.errors import Refusal
from masquerade.protocols.aggregation.roster import Context, Terms
from masquerade.protocols.aggregation.survivor_tree import NODE_SIZE, Root, Shown, decode_root
from masquerade.protocols.people.ledger import Claim, Ledger

FIRST = bytes(32)  # stands for the list before the first
SESSION_SIZE, NUMBER_SIZE = 32, 4
SPENT, LISTED, GRAPH, TURN = (f"aggregation {kind}" for kind in ("vote", "list", "graph", "turn"))


class Listed(NamedTuple):
    """A list of survivors that the user stood on: its root, and the leaves that it was shown."""

    root: Root
    leaves: bytes


class History:
    """What a user has voted in, and the lists of survivors that it stood on.

    A vote is spent when it leaves. Two sums whose users differ by one give that one's record away, so a
    user that votes in clear goes on only with all who were summed before, or without at least the minimum
    of them; and not at all after a vote whose list it never saw, or in another session.

    Clear votes take turns: a round is joined at the turn after the last one, and of several processes with
    one ledger only the first to vote gets it. So nothing that was looked up on joining has changed since.
    """

    def __init__(self, ledger: Ledger, terms: Terms) -> None:
        self._ledger, self._terms = ledger, terms

    def turn(self) -> int:
        """Return how many clear votes have left: the number that the next one claims."""
        return len(self._ledger.values(TURN, b""))

    def spend(self, context: Context, turn: int) -> None:
        """Record, durably, that the vote for a round is about to leave; `KeySpent` if one has already."""
        entries = [Claim(SPENT, _name(context), _name(context) + context.batch)]
        if not self._terms.disguised:
            entries.append(Claim(TURN, turn.to_bytes(NUMBER_SIZE, "big")))
        self._ledger.claim(entries)

    def stand(self, context: Context, shown: Shown) -> None:
        """Record, durably, the list of survivors that this user stands on."""
        name = _name(context)
        self._ledger.claim([Claim(LISTED, name, name + shown.root.encode() + shown.leaves)])

    def graph(self, session: bytes) -> bytes | None:
        """Return what the graph of a session was drawn from, if this user has taken part in it."""
        return self._ledger.find(GRAPH, session)

    def settle(self, context: Context, key: bytes) -> None:
        """Record, durably, the graph of a session: it stays the same, so that lists can be compared."""
        if self.graph(context.session) is None:
            self._ledger.claim([Claim(GRAPH, context.session, key)])

    def previous(self, session: bytes) -> bytes:
        """Return the hash of the last list of a session; disguised users need not have seen it."""
        lists = [] if self._terms.disguised else self._lists(session)
        return lists[-1].root.hash if lists else FIRST

    def against_joining(self, context: Context) -> Refusal | None:
        """Return why a round must not be joined."""
        size = SESSION_SIZE + NUMBER_SIZE
        spent = {value[:size] for value in self._ledger.values(SPENT, b"")}
        if any(name[:SESSION_SIZE] == context.session and name >= _name(context) for name in spent):
            return Refusal("already_spent", f"this user's vote in round {context.round} has left already")
        if self._terms.disguised:
            return None
        if any(name[:SESSION_SIZE] != context.session for name in spent):
            reason = "this user's clear record was counted in another session: two sums may give it away"
            return Refusal("already_spent", reason)
        if not spent <= {value[:size] for value in self._ledger.values(LISTED, b"")}:
            reason = "this user's vote left in a round whose list of survivors it never saw"
            return Refusal("already_spent", reason)
        return None

    def against_standing(self, context: Context, shown: Shown) -> Refusal | None:
        """Return why a list of survivors must not be stood on."""
        least = self._terms.parameters.minimum
        if shown.root.count < least:
            reason = f"{shown.root.count} users survived, at least {least} must hide each other"
            return Refusal("roster_too_small", reason)
        if self._terms.disguised:
            return None
        for before in self._lists(context.session):
            if int.from_bytes(shown.leaves, "big") & ~int.from_bytes(before.leaves, "big"):
                return Refusal("departed_too_few", "a user is counted who was not counted before")
            refusal = against_difference(before.root.count, shown.root.count, least)
            if refusal is not None:
                return refusal
        return None

    def _lists(self, session: bytes) -> list[Listed]:
        head = SESSION_SIZE + NUMBER_SIZE
        bodies = [value[head:] for value in self._ledger.values(LISTED, session)]
        return [Listed(decode_root(body[:NODE_SIZE]), body[NODE_SIZE:]) for body in bodies]


def _name(context: Context) -> bytes:
    return context.session + context.round.to_bytes(NUMBER_SIZE, "big")


def against_difference(before: int, now: int, minimum: int) -> Refusal | None:
    """Return why a sum over `now` of the `before` users that were summed earlier gives somebody away."""
    if now > before:
        return Refusal("departed_too_few", f"{now} users are counted, only {before} were before")
    if 0 < before - now < minimum:
        reason = (
            f"{before - now} of {before} users left since an earlier round: the difference of the counts "
            f"would be about them alone (at least {minimum} must leave together, or nobody)"
        )
        return Refusal("departed_too_few", reason)
    return None
