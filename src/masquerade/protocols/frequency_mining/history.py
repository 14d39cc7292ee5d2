"""A user's own rules about rounds, from what its ledger says has left and who it was counted with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

from masquerade.core.errors import FileError, Refusal
from masquerade.protocols.frequency_mining.ballots import counts_of
from masquerade.protocols.frequency_mining.messages import MOST_PROOFS, ROUND, Enrolment, Invitation, Terms
from masquerade.protocols.people.history import History, against_difference, against_newcomers
from masquerade.protocols.people.ledger import Claim, Ledger
from masquerade.protocols.people.questions import Question, written
from masquerade.protocols.people.roster import flagged, flags_of

ENDORSED, KEY, QUESTION, TERMS, VOTED = "endorsed", "key", "question", "terms", "voted"
VOIDED, LIED = "voided", "miner lied"


class VoteHistory(History):
    """What a user has voted in, in this epoch and in others, and who was counted with it.

    A vote is spent when it leaves. Rosters of clear votes are kept with the terms they were cast under, so
    that those of other epochs can be compared with; those of the epochs in `agreed` are not.
    """

    def __init__(self, ledger: Ledger, terms: Terms, agreed: Iterable[str] = ()) -> None:
        super().__init__(ledger)
        self._terms, self._agreed = terms, frozenset(agreed)

    def refusals(self, asked: Invitation) -> list[Refusal]:
        """Return why a round must not be joined."""
        terms, found, cheats = self._terms, list[Refusal](), self._cheats()
        if self.ledger.find(LIED, terms.id) is not None:
            found.append(Refusal("miner_lied", "the miner has shown a cheat that was none, in this epoch"))
        if not cheats.isdisjoint(asked.users):
            named = ", ".join(sorted(cheats.intersection(asked.users))[:3])
            found.append(Refusal("cheated", f"{named} cast an invalid vote in an earlier round"))
        if self.ledger.find(ENDORSED, self._name(asked.number)) is not None:
            found.append(
                Refusal("already_spent", f"round {asked.number} has been endorsed or voted in already")
            )
        gone = [q for q in asked.questions if self.ledger.find(QUESTION, self._question(q)) is not None]
        if gone:
            names = ", ".join(" × ".join(question.names) for question in gone[:3])
            found.append(Refusal("already_spent", f"a vote on {names} has left already in this epoch"))
        # what cheats answered was in their own hands, so that counts with and without them tell the same
        earlier = [
            frozenset(flagged(flags, terms.roster.names)) - cheats
            for flags in self.ledger.values(VOTED, terms.id)
        ]
        found += roster_refusals(terms, frozenset(asked.users), earlier, asked.questions)
        return found + (self._across(asked) if terms.asks_clear(asked.questions) else [])

    def endorse(self, number: int, roster: bytes) -> None:
        """Record, durably, the roster that is about to be endorsed; `KeySpent` if one has been."""
        self.ledger.claim([Claim(ENDORSED, self._name(number), roster)])

    def spend(self, asked: Invitation, fingerprint: str, turn: int) -> None:
        """Record, durably and all at once, what the vote about to be made uses up."""
        terms = self._terms
        flags = flags_of([terms.roster.places[user] for user in asked.users], len(terms.roster))
        claims = [
            Claim(KEY, bytes.fromhex(fingerprint)),
            Claim(VOTED, self._name(asked.number), flags),
            *[Claim(QUESTION, self._question(question)) for question in asked.questions],
        ]
        if terms.asks_clear(asked.questions):
            claims.append(self.clear_vote(turn, terms.id, flags))
            if self.ledger.find(TERMS, terms.id) is None:
                claims.append(Claim(TERMS, terms.id, terms.encoded))
        self.ledger.claim(claims)

    def void(self, asked: Invitation, cheats: Sequence[str]) -> None:
        """Record, durably, who made a round worthless: they are left out, and it may be asked again."""
        terms, name = self._terms, self._name(asked.number)
        if self.ledger.find(VOIDED, name) is None:
            flags = flags_of([terms.roster.places[user] for user in cheats], len(terms.roster))
            questions = b"".join(question_id(question, terms) for question in asked.questions)
            self.ledger.claim([Claim(VOIDED, name, flags + questions)])

    def lied(self, number: int) -> None:
        """Record, durably, that the miner lied about a cheat."""
        if self.ledger.find(LIED, self._terms.id) is None:
            self.ledger.claim([Claim(LIED, self._terms.id, number.to_bytes(ROUND, "big"))])

    def _cheats(self) -> frozenset[str]:
        """Return who was shown to have cast an invalid vote in this epoch."""
        names, size = self._terms.roster.names, -(-len(self._terms.roster) // 8)
        values = self.ledger.values(VOIDED, self._terms.id)
        return frozenset(name for value in values for name in flagged(value[:size], names))

    def _question(self, question: Question) -> bytes:
        """Return the name under which a vote on a question is spent: another one after a void round."""
        own, size = question_id(question, self._terms), -(-len(self._terms.roster) // 8)
        values = self.ledger.values(VOIDED, self._terms.id)
        asked = [value[at : at + len(own)] for value in values for at in range(size, len(value), len(own))]
        void = asked.count(own)
        return own if not void else own + void.to_bytes(ROUND, "big")

    def _across(self, asked: Invitation) -> list[Refusal]:
        """Return why clear counts of this round and of rounds under other terms give somebody away.

        Of two minimums the larger holds: it was promised to those who left.
        """
        sums = self.against_other_sums()
        if sums is not None:
            return [sums]
        now = frozenset(self._terms.members[user] for user in asked.users)
        for vote in self.clear_votes():
            if vote.under == self._terms.id:
                continue
            written = self.ledger.find(TERMS, vote.under)
            if written is None:
                raise FileError("The ledger has a vote under terms that it does not have.")
            then = _enrolment(written)
            if then.epoch in self._agreed:
                continue
            before = frozenset(flagged(vote.flags, tuple(then.members.values())))
            refusal = against_difference(now, before, max(self._terms.minimum, then.minimum))
            if refusal is not None:
                return [Refusal(refusal.code, f"as counted in epoch {then.epoch!r}: {refusal.reason}")]
        return []

    def _name(self, number: int) -> bytes:
        return self._terms.id + number.to_bytes(ROUND, "big")


@lru_cache(maxsize=8)
def _enrolment(written: bytes) -> Enrolment:
    return Enrolment.decode(written)


def question_id(question: Question, terms: Terms) -> bytes:
    """Return 32 bytes that stand for a question under these terms."""
    encoded = written([question], terms)
    return hashlib.sha256(b"masquerade frequency question 1" + terms.id + encoded).digest()


def roster_refusals(
    terms: Terms, now: frozenset[str], earlier: Iterable[frozenset[str]], questions: Sequence[Question]
) -> list[Refusal]:
    """Return why these users must not answer these questions after rounds with `earlier` rosters.

    A later round goes only to users of the earlier ones; what else `against_difference` asks for is needed
    unless all that is asked is disguised, and so bounded even if seen as it is.
    """
    found: list[Refusal] = []
    if len(now) < terms.minimum:
        reason = f"{len(now)} users take part, and at least {terms.minimum} must"
        found.append(Refusal("roster_too_small", reason))
    counts = sum(counts_of(question, terms.sizes) for question in questions)
    if len(now) * counts > MOST_PROOFS:
        reason = (
            f"{len(now):,} users and {counts:,} counts make {len(now) * counts:,} pairs of keys that "
            f"every user has to check (at most {MOST_PROOFS:,}): ask for less at a time, or use secure "
            "aggregation"
        )
        found.append(Refusal("too_many_cells", reason))
    clear = terms.asks_clear(questions)
    for before in earlier:
        refusal = against_difference(now, before, terms.minimum) if clear else against_newcomers(now, before)
        if refusal is not None:
            return [*found, refusal]
    return found
