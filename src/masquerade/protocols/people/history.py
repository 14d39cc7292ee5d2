"""History of the clear votes of a device, and rules against counts whose difference is about few people.

Clear votes are numbered by turns. A device joins a round at the turn after its last clear vote. It may join
several rounds at the same turn (in several processes, epochs or protocols), but only the first vote can claim
the turn. So the history that was checked on joining is still current when the vote is sent.

Anyone with two clear counts can subtract them. So a later count may include only people of the earlier
counts, and either nobody has left or enough people to hide each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from masquerade.core.errors import QueryRefused, Refusal
from masquerade.protocols.people.ledger import Claim, PersonLedger

TERMS_SIZE = 32  # bytes of the id of terms or of a session
CLEAR, FORMER = "clear", "aggregation turn"  # the first version numbered these turns separately
SESSION = "session of a clear record"
_TURN = 4


class ClearVote(NamedTuple):
    """A clear vote: its terms or session, and one bit per person counted with it.

    It has no bits if the device does not know all people in the sum.
    """

    under: bytes
    flags: bytes


class History:
    """Clear votes of a device, read from its ledger; subclasses add the data of their protocol."""

    def __init__(self, ledger: PersonLedger) -> None:
        self.ledger = ledger

    def turn(self) -> int:
        """Return the number of clear votes sent so far, which is the turn of the next vote."""
        return len(self.ledger.values(CLEAR, b"")) + len(self.ledger.values(FORMER, b""))

    def clear_vote(self, turn: int, under: bytes, flags: bytes = b"") -> Claim:
        """Return the claim by which a clear vote takes a turn."""
        return Claim(CLEAR, turn.to_bytes(_TURN, "big"), under + flags)

    def clear_votes(self) -> list[ClearVote]:
        """Return the clear votes sent so far; sums of the first version have no session."""
        values = self.ledger.values(CLEAR, b"") + self.ledger.values(FORMER, b"")
        return [ClearVote(value[:TERMS_SIZE], value[TERMS_SIZE:]) for value in values]

    def against_other_sums(self, own: bytes | None = None, agreed: Collection[bytes] = ()) -> Refusal | None:
        """Return a refusal of a clear vote after a vote in a sum with people unknown to this device.

        Such a sum cannot be compared with any other count. So a clear record is counted either in one session
        of such sums (`own`) or in rounds whose rosters are known (`own` is None), never in both. Earlier
        votes under terms in `agreed`, which the person accepted, are ignored.
        """
        for vote in self.clear_votes():
            if vote.under in agreed:
                continue
            if not vote.flags if own is None else vote.flags or vote.under not in (own, b""):
                reason = "this user's clear record was counted in another session: two sums may reveal it"
                return Refusal("already_spent", reason)
        return None


class SessionHistory(History):
    """History of sessions whose people are not all known to this device: a mixnet, a comparison of rows.

    A party with the records of two such sessions has their difference, and could drop one message in the
    second to make it one person's record. No device could notice, so a clear record goes into one session
    only. `agreed` names earlier sessions for which this person accepts that difference.
    """

    def __init__(self, ledger: PersonLedger, session: str, under: bytes, agreed: Iterable[str] = ()) -> None:
        super().__init__(ledger)
        self._session, self._under, self._agreed = session.encode(), under, [it.encode() for it in agreed]

    def check(self) -> int:
        """Return the turn of a clear record; raise `QueryRefused` if it must not be sent."""
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

    def spending_claims(self, turn: int) -> list[Claim]:
        """Return the claims to record before a clear record is sent at a turn."""
        return [self.clear_vote(turn, self._under), Claim(SESSION, self._under, self._session)]


def most_colluders(minimum: int) -> int:
    """Return the largest number of colluders at which any `minimum` users include two honest ones."""
    return minimum - 2


def against_newcomers(now: AbstractSet[object], before: AbstractSet[object]) -> Refusal | None:
    """Return a refusal if a user participates who was not in the earlier round."""
    if now <= before:
        return None
    return Refusal("not_survivors", "a later round goes only to users of the earlier ones")


def against_few_departed(now: int, before: int, minimum: int) -> Refusal | None:
    """Return a refusal if a count over `now` of the `before` users would be about too few people."""
    if not 1 <= before - now < minimum:
        return None
    return Refusal(
        "departed_too_few",
        f"{before - now} of the {before} users counted before left, fewer than {minimum}: the difference of "
        "two counts would show their answers",
    )


def against_difference(now: AbstractSet[object], before: AbstractSet[object], minimum: int) -> Refusal | None:
    """Return a refusal if clear counts over `now` and over `before` would single out a person.

    A user knows only the rosters that it voted in itself, so the rule has to hold for all of them together.
    Let c = minimum − 2 users collude, and call two rosters linked if they share an honest user. That user
    ensures that one contains the other, that they are equal or differ by at least `minimum` users, and that
    twice the size of the smaller exceeds the size of the larger plus c. Then:

    - two subsets of a third roster that are linked to it share more than c users, so at least one honest
      user: they are linked;
    - two supersets of a third roster that are linked to it share its honest users: they are linked;
    - so rosters linked to the same roster are linked, and connected rosters form a chain, each contained in
      the one before; rosters of different chains have no honest user in common.

    Anything computed from sums over a chain is a function of the sum over its smallest roster and of the sums
    over the users who left between consecutive rosters. Each of these sums is over at least `minimum` users,
    two of them honest, who hide each other.

    If a quorum of all users signs every list of counted users (secure aggregation), any two lists have an
    honest signer in common and the last clause is not needed; `secure_aggregation.history` has that
    proof.
    """
    refusal = against_newcomers(now, before) or against_few_departed(len(now), len(before), minimum)
    if refusal is not None:
        return refusal
    least = (len(before) + most_colluders(minimum)) // 2 + 1
    if len(now) < least:
        return Refusal(
            "departed_too_many",
            f"{len(now)} of the {len(before)} users counted before take part, and at least {least} must: "
            "otherwise two later rounds might have no honest user in common who would notice what they "
            "reveal together",
        )
    return None
