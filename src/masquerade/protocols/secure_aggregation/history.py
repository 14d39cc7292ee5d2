"""A user's rules for accepting rounds, from its ledger of sent votes and of users it was summed with.

In a session of clear votes a malicious server learns the sum over every list of survivors that a quorum of
witnesses signed. These lists form a chain: each list is contained in the lists before it, and is equal to
them or smaller by at least `minimum` users. So anything computed from the sums is a function of the sum over
the last list and the sums over the users who left between two lists: at least `minimum` users each, two of
them honest, who hide each other (`protocols.people.history`). The proof follows. It uses k, t, c and gaps
as in `Parameters.of`, and ignores events of probability 2⁻⁴⁰:

1. *One list per round.* Two quorums share an honest witness, and a witness signs one list per round. Users
   give shares only for a list that a quorum signed together with the users' own past (a hash of all lists
   that they endorsed). So all honest users who give shares in a round have the same list and the same past.
2. *Everyone on the list masked their vote.* A user gives shares only if every neighbour on the list sent it
   shares, so it masked its vote with each of them. A mask between two honest users on the list never opens:
   only colluders give shares of its keys, and they are fewer than t.
3. *Only the complete sum opens.* Suppose that a sum over some users S opens, and that others O on the list
   are not in it, whether they voted or not. By 2, an honest giver of shares in S has no neighbour in O. Among
   the neighbours of every p in S are t givers, and t users whose shares p received before it voted. The
   latter are in S, collude, or are not on the list. At least 2t − k > c neighbours belong to both groups, so
   one is an honest giver in S. Now follow the circle from S to O: p is in S, q is in O, d positions further,
   and no honest user between them is on the list. Honest givers in S are more than k/2 before q, so at most d
   of them are neighbours of p. Honest givers in O are at q or after it, so at most k/2 − d + 1 are neighbours
   of p. Hence of the k/2 − 1 other positions before q, at least t − k/2 − 1 collude. (If d is more than k/2,
   the same holds for the positions after p.) The same is found where O ends and S starts again, and an honest
   giver in S, more than k/2 from all of O, is between the two: two gaps, which do not occur. Where all users
   are neighbours, O is empty if S contains an honest giver.
4. *Lists form a chain.* Let L be summed before L′. Their quorums share an honest witness that signed
   both lists: L is in its past, and by 1 in the past of all users who give shares for L′. Every stretch of L′
   is seen by one of these users; otherwise the next of them on either side would be next to a gap. They
   compare it with the same stretch of L, so every user on L′ is on L. They also compare the numbers of users
   below both roots, so no user left, or at least `minimum` users did.

In another session, or by another protocol, no clear vote is sent at all. So the requirement of
`against_difference` that more than half must stay is not needed here: the quorum serves the same purpose. A
semi-honest server keeps the chain by itself. Records that are disguised within the limit are protected
without any of this. Sums with noise need steps 1 to 3, so that every opened sum has the noise of at least
`minimum` − `colluders` honest users, but no chain: sums over two lists have independent noise, and each table
counts against the budget in each user's ledger.
"""

from __future__ import annotations

import hashlib

from masquerade.core.errors import Refusal
from masquerade.protocols.people.history import TERMS_SIZE, History, against_few_departed
from masquerade.protocols.people.ledger import Claim, PersonLedger
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms, RoundContext
from masquerade.protocols.secure_aggregation.circle import ShownNode, count_of
from masquerade.protocols.secure_aggregation.messages import NODE_SIZE

NO_PAST = bytes(32)
NUMBER_SIZE = 4
_NAME = TERMS_SIZE + NUMBER_SIZE
SPENT, LISTED, GRAPH = (f"aggregation {kind}" for kind in ("vote", "list", "graph"))


class SumHistory(History):
    """The rounds in which a user voted, and the lists of survivors that it endorsed.

    A vote is spent when it is sent. The difference of two sums over lists that differ by one user is that
    user's record. So a user with clear votes continues only if all users who were summed before are still
    there, or at least `minimum` of them are not. It does not continue after a vote whose list it never saw,
    or in another session.
    """

    def __init__(self, ledger: PersonLedger, terms: AggregationTerms) -> None:
        super().__init__(ledger)
        self._terms = terms

    def spend(self, context: RoundContext, turn: int) -> None:
        """Record durably that the vote for a round is about to be sent; raise `KeySpent` if one was sent."""
        claims = [Claim(SPENT, _name(context), _name(context) + context.batch)]
        if not self._terms.bounded:
            claims.append(self.clear_vote(turn, context.session))
        self.ledger.claim(claims)

    def stand(self, context: RoundContext, shown: ShownNode) -> None:
        """Record durably the list of survivors that this user endorses."""
        name = _name(context)
        self.ledger.claim([Claim(LISTED, name, name + shown.root + shown.leaves)])

    def graph(self, session: bytes) -> bytes | None:
        """Return the drawing of a session's graph, if this user participated in it."""
        return self.ledger.find(GRAPH, session)

    def settle(self, context: RoundContext, key: bytes) -> None:
        """Record durably the graph of a session, which stays the same so that lists can be compared."""
        if self.graph(context.session) is None:
            self.ledger.claim([Claim(GRAPH, context.session, key)])

    def past(self, session: bytes) -> bytes:
        """Return a hash of the lists of a session so far; with disguised records some may be missing."""
        past = NO_PAST
        if self._terms.chained:
            for root, _ in self._lists(session):
                past = past_with(past, root)
        return past

    def against_joining(self, context: RoundContext) -> Refusal | None:
        """Return a refusal to join a round, if any."""
        spent = {value[:_NAME] for value in self.ledger.values(SPENT, b"")}
        if any(name[:TERMS_SIZE] == context.session and name >= _name(context) for name in spent):
            return Refusal("already_spent", f"this user's vote in round {context.round} was sent already")
        if self._terms.bounded:
            return None
        if any(name[:TERMS_SIZE] != context.session for name in spent):
            reason = "this user's clear record was counted in another session: two sums may reveal it"
            return Refusal("already_spent", reason)
        if not spent <= {value[:_NAME] for value in self.ledger.values(LISTED, b"")}:
            reason = "this user sent a vote in a round whose list of survivors it never saw"
            return Refusal("already_spent", reason)
        return self.against_other_sums(context.session)

    def against_standing(self, context: RoundContext, shown: ShownNode) -> Refusal | None:
        """Return a refusal to endorse a list of survivors, if any."""
        least, now = self._terms.parameters.minimum, count_of(shown.root)
        if now < least:
            reason = f"{now} users survived, but at least {least} are needed to hide each other"
            return Refusal("roster_too_small", reason)
        if self._terms.bounded:
            return None
        for root, leaves in self._lists(context.session):
            if int.from_bytes(shown.leaves, "big") & ~int.from_bytes(leaves, "big"):
                return Refusal("departed_too_few", "a user is counted who was not counted before")
            refusal = against_another_list(now, count_of(root), least)
            if refusal is not None:
                return refusal
        return None

    def _lists(self, session: bytes) -> list[tuple[bytes, bytes]]:
        """Return the lists that the user endorsed: their roots, and the leaves that it was shown."""
        bodies = [value[_NAME:] for value in self.ledger.values(LISTED, session)]
        return [(body[:NODE_SIZE], body[NODE_SIZE:]) for body in bodies]


def past_with(past: bytes, root: bytes) -> bytes:
    """Return the hash of earlier lists and a further list."""
    return hashlib.sha256(b"masquerade aggregation past" + past + root).digest()


def against_another_list(now: int, before: int, minimum: int) -> Refusal | None:
    """Return a refusal if a sum over `now` of the `before` users would single out a person."""
    if now > before:
        return Refusal("departed_too_few", f"{now} users are counted, but only {before} were counted before")
    return against_few_departed(now, before, minimum)


def _name(context: RoundContext) -> bytes:
    return context.session + context.round.to_bytes(NUMBER_SIZE, "big")
