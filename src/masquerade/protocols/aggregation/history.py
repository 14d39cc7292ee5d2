"""A user's own rules about rounds, from what its journal says has left and who it was summed with."""

from __future__ import annotations

from masquerade.core.errors import Refusal
from masquerade.protocols.aggregation.journal import Entry, Journal
from masquerade.protocols.aggregation.roster import Context, Terms
from masquerade.protocols.aggregation.survivors import Shown

FIRST = bytes(32)  # stands for the list before the first


class History:
    """What a user has voted in, and the lists of survivors that it stood on.

    A vote is spent when it leaves. Two sums whose users differ by one give that one's record away, so a
    user that votes in clear goes on only with all who were summed before, or without at least the minimum
    of them; and not at all after a vote whose list it never saw, or in another session.
    """

    def __init__(self, journal: Journal, terms: Terms) -> None:
        self._journal, self._terms = journal, terms

    def spend(self, context: Context) -> None:
        """Record, durably, that the vote for a round is about to leave."""
        self._append("spent", context, {"batch": context.batch.hex()})

    def stand(self, context: Context, shown: Shown) -> None:
        """Record, durably, the list of survivors that this user stands on."""
        seen = {"root": shown.root.hash.hex(), "count": shown.root.count, "leaves": shown.leaves.hex()}
        self._append("listed", context, seen)

    def graph(self, session: bytes) -> bytes | None:
        """Return what the graph of a session was drawn from, if this user has taken part in it."""
        keys = [entry["key"] for entry in self._of_kind("graph") if entry["session"] == session.hex()]
        return bytes.fromhex(keys[0]) if keys else None

    def settle(self, context: Context, key: bytes) -> None:
        """Record, durably, the graph of a session: it stays the same, so that lists can be compared."""
        if self.graph(context.session) is None:
            self._append("graph", context, {"key": key.hex()})

    def previous(self, session: bytes) -> bytes:
        """Return the hash of the last list of a session; disguised users need not have seen it."""
        lists = [] if self._terms.disguised else self._lists(session)
        return bytes.fromhex(lists[-1]["root"]) if lists else FIRST

    def against_joining(self, context: Context) -> Refusal | None:
        """Return why a round must not be joined."""
        session = context.session.hex()
        spent = [(entry["session"], entry["round"]) for entry in self._of_kind("spent")]
        if any(name == session and number >= context.round for name, number in spent):
            return Refusal("already_spent", f"this user's vote in round {context.round} has left already")
        if self._terms.disguised:
            return None
        if any(name != session for name, _ in spent):
            reason = "this user's clear record was counted in another session: two sums may give it away"
            return Refusal("already_spent", reason)
        listed = {(entry["session"], entry["round"]) for entry in self._of_kind("listed")}
        if not set(spent) <= listed:
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
            earlier = int.from_bytes(bytes.fromhex(before["leaves"]), "big")
            if int.from_bytes(shown.leaves, "big") & ~earlier:
                return Refusal("departed_too_few", "a user is counted who was not counted before")
            refusal = against_difference(before["count"], shown.root.count, least)
            if refusal is not None:
                return refusal
        return None

    def _lists(self, session: bytes) -> list[Entry]:
        return [entry for entry in self._of_kind("listed") if entry["session"] == session.hex()]

    def _of_kind(self, kind: str) -> list[Entry]:
        return [entry for entry in self._journal.entries() if entry.get("kind") == kind]

    def _append(self, kind: str, context: Context, further: dict[str, object]) -> None:
        entry = {"kind": kind, "session": context.session.hex(), "round": context.round}
        self._journal.append(entry | further)


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
