"""What has left a device in clear, and with whom it was counted: one history for all protocols.

Clear votes take turns: a round is joined at the turn after the last one, and of several rounds joined at one
turn, by several processes, in several epochs or by different protocols, only the first to be voted in gets
it. So nothing that was looked up on joining has changed since.
"""

from __future__ import annotations

from typing import NamedTuple

from masquerade.core.errors import Refusal
from masquerade.protocols.people.ledger import Claim, Ledger

TERMS_SIZE = 32  # bytes of the name of terms, or of a session
CLEAR, FORMER = "clear", "aggregation turn"  # secure aggregation of the first version took turns of its own
_TURN = 4


class ClearVote(NamedTuple):
    """A clear vote: under which terms, or in which session, and a bit for everybody counted with it.

    A sum over people of whom a device knows only some leaves no bits.
    """

    under: bytes
    flags: bytes


class History:
    """What a device has voted in clear, from its ledger; protocols add what they remember beside that."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def turn(self) -> int:
        """Return how many clear votes have left: the number that the next one claims."""
        return len(self.ledger.values(CLEAR, b"")) + len(self.ledger.values(FORMER, b""))

    def clear_vote(self, turn: int, under: bytes, flags: bytes = b"") -> Claim:
        """Return the claim that takes a turn."""
        return Claim(CLEAR, turn.to_bytes(_TURN, "big"), under + flags)

    def clear_votes(self) -> list[ClearVote]:
        """Return the clear votes that have left, those of the first version's sums without their session."""
        values = self.ledger.values(CLEAR, b"") + self.ledger.values(FORMER, b"")
        return [ClearVote(value[:TERMS_SIZE], value[TERMS_SIZE:]) for value in values]

    def against_other_sums(self, own: bytes | None = None) -> Refusal | None:
        """Return why a clear vote must not leave after one in a sum with people who are not all known here.

        Nothing can be compared with such a sum. So a clear record is counted either in one session of such
        sums, called `own`, or (None) in rounds whose rosters are known, never in both.
        """
        for vote in self.clear_votes():
            if not vote.flags if own is None else vote.flags or vote.under not in (own, b""):
                reason = "this user's clear record was counted in another session: two sums may give it away"
                return Refusal("already_spent", reason)
        return None
