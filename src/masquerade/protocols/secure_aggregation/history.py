"""A user's own rules about rounds, from what its ledger says has left and who it was summed with.

What a malicious server learns in a session of clear votes is the sum over every list of survivors that a
quorum of witnesses signed, and these lists form a chain: each is contained in those before it, and equal to
them or smaller by at least `minimum` users. So whatever is computed from the sums comes from the last list
and from what left between two: at least `minimum` users each, two of them honest, who hide each other
(`people.history`). The argument, in which k, t, c and gaps are those of `Parameters.of`, and its chance
of 2⁻⁴⁰ is left out:

1. *One list a round.* Two quorums share an honest witness, and a witness signs one list in a round. Users
   give shares only for a list that a quorum signed together with the same past as theirs (a hash of all lists
   that they stood on). So all honest users who give shares in a round have one list and one past in common.
2. *Nobody is on it for show.* A user gives shares only if every neighbour on the list sent it shares, and so
   masked its vote with each of them. Masks between two honest users on the list never open by themselves:
   only colluders give shares of their mask keys, fewer than t.
3. *Nothing but the whole opens.* Suppose that a sum over some users S opens, and that others O on the list
   are not in it, whether they voted or not. An honest giver (of shares) in S has nobody of O around it, by 2.
   Around every p in S are t givers, and t users whose shares p got before it voted, who are in S, collude or
   are not on the list at all; 2t − k > c of them are both, so one is an honest giver in S. Now go along the
   circle from S to O: p in S, then q in O, d places further, and no honest user on the list between them.
   Honest givers in S are more than k/2 before q, at most d of them around p; those in O are at q or after it,
   at most k/2 − d + 1 around p; so of the k/2 − 1 other places before q at least t − k/2 − 1 collude. (If d
   is more than k/2, the same holds of the places after p.) The same is found where O ends and S begins again,
   and an honest giver in S, more than k/2 from all of O, lies between the two: two gaps, which do not occur.
   Where everybody is a neighbour, an honest giver in S leaves no room for O.
4. *Lists form a chain.* Let L be summed before L′. Their quorums share an honest witness, who stood on both:
   L is in its past, and by 1 in that of all who give shares for L′. Every stretch of L′ is seen by one of
   them, else the next ones on either side would have gaps beside them. They compare it with the same stretch
   of L: nobody is on L′ who is not on L; and the numbers below both roots: nobody left, or `minimum` did.

In another session, or by another protocol, no clear vote leaves at all. So the clause of `against_difference`
that more than half must stay is not needed here: the quorum sees to what it is there for. A semi-honest
server keeps the lists in a chain itself. What disguised records tell is bounded without any of it.
"""

from __future__ import annotations

import hashlib

from masquerade.core.errors import Refusal
from masquerade.protocols.people.history import TERMS_SIZE, History, against_few_departed
from masquerade.protocols.people.ledger import Claim, Ledger
from masquerade.protocols.secure_aggregation.agreement import RoundContext, Terms
from masquerade.protocols.secure_aggregation.circle import Shown, count_of
from masquerade.protocols.secure_aggregation.messages import NODE_SIZE

NO_PAST = bytes(32)
NUMBER_SIZE = 4
_NAME = TERMS_SIZE + NUMBER_SIZE
SPENT, LISTED, GRAPH = (f"aggregation {kind}" for kind in ("vote", "list", "graph"))


class SumHistory(History):
    """What a user has voted in, and the lists of survivors that it stood on.

    A vote is spent when it leaves. Two sums whose users differ by one give that one's record away, so a
    user that votes in clear goes on only with all who were summed before, or without at least the minimum
    of them; and not at all after a vote whose list it never saw, or in another session.
    """

    def __init__(self, ledger: Ledger, terms: Terms) -> None:
        super().__init__(ledger)
        self._terms = terms

    def spend(self, context: RoundContext, turn: int) -> None:
        """Record, durably, that the vote for a round is about to leave; `KeySpent` if one has already."""
        claims = [Claim(SPENT, _name(context), _name(context) + context.batch)]
        if not self._terms.disguised:
            claims.append(self.clear_vote(turn, context.session))
        self.ledger.claim(claims)

    def stand(self, context: RoundContext, shown: Shown) -> None:
        """Record, durably, the list of survivors that this user stands on."""
        name = _name(context)
        self.ledger.claim([Claim(LISTED, name, name + shown.root + shown.leaves)])

    def graph(self, session: bytes) -> bytes | None:
        """Return what the graph of a session was drawn from, if this user has taken part in it."""
        return self.ledger.find(GRAPH, session)

    def settle(self, context: RoundContext, key: bytes) -> None:
        """Record, durably, the graph of a session: it stays the same, so that lists can be compared."""
        if self.graph(context.session) is None:
            self.ledger.claim([Claim(GRAPH, context.session, key)])

    def past(self, session: bytes) -> bytes:
        """Return what stands for all lists of a session so far; disguised users need not have seen them."""
        past = NO_PAST
        if not self._terms.disguised:
            for root, _ in self._lists(session):
                past = past_with(past, root)
        return past

    def against_joining(self, context: RoundContext) -> Refusal | None:
        """Return why a round must not be joined."""
        spent = {value[:_NAME] for value in self.ledger.values(SPENT, b"")}
        if any(name[:TERMS_SIZE] == context.session and name >= _name(context) for name in spent):
            return Refusal("already_spent", f"this user's vote in round {context.round} has left already")
        if self._terms.disguised:
            return None
        if any(name[:TERMS_SIZE] != context.session for name in spent):
            reason = "this user's clear record was counted in another session: two sums may give it away"
            return Refusal("already_spent", reason)
        if not spent <= {value[:_NAME] for value in self.ledger.values(LISTED, b"")}:
            reason = "this user's vote left in a round whose list of survivors it never saw"
            return Refusal("already_spent", reason)
        return self.against_other_sums(context.session)

    def against_standing(self, context: RoundContext, shown: Shown) -> Refusal | None:
        """Return why a list of survivors must not be stood on."""
        least, now = self._terms.parameters.minimum, count_of(shown.root)
        if now < least:
            reason = f"{now} users survived, at least {least} must hide each other"
            return Refusal("roster_too_small", reason)
        if self._terms.disguised:
            return None
        for root, leaves in self._lists(context.session):
            if int.from_bytes(shown.leaves, "big") & ~int.from_bytes(leaves, "big"):
                return Refusal("departed_too_few", "a user is counted who was not counted before")
            refusal = against_another_list(now, count_of(root), least)
            if refusal is not None:
                return refusal
        return None

    def _lists(self, session: bytes) -> list[tuple[bytes, bytes]]:
        """Return the lists that the user stood on: their roots, and the leaves that it was shown."""
        bodies = [value[_NAME:] for value in self.ledger.values(LISTED, session)]
        return [(body[:NODE_SIZE], body[NODE_SIZE:]) for body in bodies]


def past_with(past: bytes, root: bytes) -> bytes:
    """Return what stands for some lists and one more after them."""
    return hashlib.sha256(b"masquerade aggregation past" + past + root).digest()


def against_another_list(now: int, before: int, minimum: int) -> Refusal | None:
    """Return why a sum over `now` of the `before` users that were summed earlier gives somebody away."""
    if now > before:
        return Refusal("departed_too_few", f"{now} users are counted, only {before} were before")
    return against_few_departed(now, before, minimum)


def _name(context: RoundContext) -> bytes:
    return context.session + context.round.to_bytes(NUMBER_SIZE, "big")
