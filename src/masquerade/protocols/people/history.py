"""What has left a device in clear, with whom it was counted, and when two counts would tell about few people.

Clear votes take turns: a round is joined at the turn after the last one, and of several rounds joined at one
turn, by several processes, in several epochs or by different protocols, only the first to be voted in gets
it. So nothing that was looked up on joining has changed since.

Whoever sees two clear counts sees their difference. So a later count goes only to people of the earlier ones,
and either nobody has left or so many that they hide each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from masquerade.core.errors import QueryRefused, Refusal
from masquerade.protocols.people.ledger import Claim, Ledger

TERMS_SIZE = 32  # bytes of the name of terms, or of a session
CLEAR, FORMER = "clear", "aggregation turn"  # secure aggregation of the first version took turns of its own
SESSION = "session of a clear record"
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

    def against_other_sums(self, own: bytes | None = None, agreed: Collection[bytes] = ()) -> Refusal | None:
        """Return why a clear vote must not leave after one in a sum with people who are not all known here.

        Nothing can be compared with such a sum. So a clear record is counted either in one session of such
        sums, called `own`, or (None) in rounds whose rosters are known, never in both. Votes under what the
        person `agreed` to are left out.
        """
        for vote in self.clear_votes():
            if vote.under in agreed:
                continue
            if not vote.flags if own is None else vote.flags or vote.under not in (own, b""):
                reason = "this user's clear record was counted in another session: two sums may give it away"
                return Refusal("already_spent", reason)
        return None


class SessionHistory(History):
    """What leaves in a session whose people this device does not see all of: a mix, a comparison of rows.

    Whoever has the records of two such sessions has their difference, and loses one message in the second to
    make it one person's record. Nobody here could notice, so a clear record goes into one session alone.
    `agreed` names earlier sessions of which this person agrees that whoever has both may have the difference.
    """

    def __init__(self, ledger: Ledger, session: str, under: bytes, agreed: Iterable[str] = ()) -> None:
        super().__init__(ledger)
        self._session, self._under, self._agreed = session.encode(), under, [it.encode() for it in agreed]

    def check(self) -> int:
        """Return the turn of a clear record, or raise `QueryRefused` where one must not leave."""
        turn = self.turn()
        agreed = [
            vote.under
            for vote in self.clear_votes()
            if vote.under and self.ledger.find(SESSION, vote.under) in self._agreed
        ]
        refusal = self.against_other_sums(self._under, agreed)
        if refusal is not None:
            raise QueryRefused([refusal])
        return turn

    def spent(self, turn: int) -> list[Claim]:
        """Return the claims of a clear record that is about to leave at a turn."""
        return [self.clear_vote(turn, self._under), Claim(SESSION, self._under, self._session)]


def tolerated(minimum: int) -> int:
    """Return how many may collude so that two of any `minimum` users are honest."""
    return minimum - 2


def against_newcomers(now: AbstractSet[object], before: AbstractSet[object]) -> Refusal | None:
    """Return a refusal if anybody takes part who did not before."""
    if now <= before:
        return None
    return Refusal("not_survivors", "a later round goes only to users of the earlier ones")


def against_few_departed(now: int, before: int, minimum: int) -> Refusal | None:
    """Return why a count over `now` of the `before` users counted earlier would be about too few."""
    if not 1 <= before - now < minimum:
        return None
    return Refusal(
        "departed_too_few",
        f"{before - now} of the {before} users counted before left, fewer than {minimum}: the difference of "
        "two counts would show what they answered",
    )


def against_difference(now: AbstractSet[object], before: AbstractSet[object], minimum: int) -> Refusal | None:
    """Return why clear counts over `now` after clear counts over `before` would give somebody away.

    A user knows only the rosters that it voted in itself, so the rule has to hold for all of them together.
    Let c = minimum − 2 users collude, and call two rosters linked if they share an honest user. That user
    sees to it that one contains the other, that they are equal or differ by at least `minimum` users, and
    that twice the smaller has more users than the larger and c together. Then:

    - two rosters within a third, linked to it, share more than c users, so an honest one: they are linked;
    - two rosters that contain a third, linked to it, share its honest users: they are linked;
    - so rosters linked to the same one are linked, and all that hang together form a chain, each within the
      one before; rosters of different chains have no honest user in common.

    Whatever is computed from sums over a chain comes from sums over its smallest roster and over what left
    from one to the next: at least `minimum` users each, two of them honest, who hide each other.

    Where a quorum of all users signs every list of who is counted (secure aggregation), any two lists have an
    honest signer in common and the last clause is not needed; `aggregation.history` has that proof.
    """
    refusal = against_newcomers(now, before) or against_few_departed(len(now), len(before), minimum)
    if refusal is not None:
        return refusal
    least = (len(before) + tolerated(minimum)) // 2 + 1
    if len(now) < least:
        return Refusal(
            "departed_too_many",
            f"{len(now)} of the {len(before)} users counted before take part, and at least {least} must: "
            "two later rounds might else have no honest user in common who would notice what they give away",
        )
    return None
