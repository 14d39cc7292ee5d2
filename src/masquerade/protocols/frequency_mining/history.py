"""Rules by which a user refuses rounds, from its ledger of votes sent and of users counted with it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

from masquerade.core.errors import FileError, QueryRefused, Refusal
from masquerade.protocols.frequency_mining.ballots import counts_of
from masquerade.protocols.frequency_mining.messages import (
    MOST_PROOFS,
    ROUND,
    Enrolment,
    FrequencyTerms,
    Invitation,
)
from masquerade.protocols.people.history import History, against_difference, against_newcomers
from masquerade.protocols.people.ledger import Claim, PersonLedger
from masquerade.protocols.people.questions import Question, encode_questions
from masquerade.protocols.people.roster import flags_of, select_flagged

ENDORSED, KEY, QUESTION, TERMS, VOTED = "endorsed", "key", "question", "terms", "voted"
VOIDED, LIED, TABLE = "voided", "miner lied", "noise table"


class VoteHistory(History):
    """The rounds in which a user voted, in this and other epochs, and the users counted in them.

    A vote is spent when it is sent. Rosters of clear votes are stored with their terms, so that a new roster
    can be compared with the rosters of other epochs, except the epochs in `agreed`.
    """

    def __init__(self, ledger: PersonLedger, terms: FrequencyTerms, agreed: Iterable[str] = ()) -> None:
        super().__init__(ledger)
        self._terms, self._agreed = terms, frozenset(agreed)

    def refusals(self, asked: Invitation) -> list[Refusal]:
        """Return the reasons why a round must not be joined."""
        terms, found, cheats = self._terms, list[Refusal](), self._cheats()
        if self.ledger.find(LIED, terms.id) is not None:
            found.append(
                Refusal("miner_lied", ("the miner has presented a valid vote as invalid in this epoch"))
            )
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
            found.append(Refusal("already_spent", f"a vote on {names} was already sent in this epoch"))
        # cheaters know their own votes, so counts with and without them reveal the same
        earlier = [
            frozenset(select_flagged(flags, terms.roster.names)) - cheats
            for flags in self.ledger.values(VOTED, terms.id)
        ]
        found += roster_refusals(terms, frozenset(asked.users), earlier, asked.questions)
        found += noise_refusals(terms, asked.questions, self.tables_spent)
        return found + (self._across(asked) if terms.asks_clear(asked.questions) else [])

    @property
    def tables_spent(self) -> int:
        """Return the number of tables for which this user's answers were redrawn, void rounds included."""
        return len(self.ledger.values(TABLE, self._terms.id))

    def endorse(self, number: int, roster: bytes) -> None:
        """Record durably the roster to be endorsed; raise `KeySpent` if one was endorsed before."""
        self.ledger.claim([Claim(ENDORSED, self._name(number), roster)])

    def spend(self, asked: Invitation, fingerprint: str, turn: int) -> None:
        """Record durably, in one transaction, the key, round and questions that the next vote spends."""
        terms = self._terms
        flags = flags_of([terms.roster.places[user] for user in asked.users], len(terms.roster))
        claims = [
            Claim(KEY, bytes.fromhex(fingerprint)),
            Claim(VOTED, self._name(asked.number), flags),
            *[Claim(QUESTION, self._question(question)) for question in asked.questions],
        ]
        if terms.noise is not None:
            spent = self.tables_spent
            refused = noise_refusals(terms, asked.questions, spent)
            if refused:  # another process has spent tables since the invitation
                raise QueryRefused(refused)
            # a process that spends at the same time claims the same tables, and only one of the two gets them
            tables = range(spent, spent + len(asked.questions))
            claims += [Claim(TABLE, terms.id + table.to_bytes(ROUND, "big")) for table in tables]
        if terms.asks_clear(asked.questions):
            claims.append(self.clear_vote(turn, terms.id, flags))
            if self.ledger.find(TERMS, terms.id) is None:
                claims.append(Claim(TERMS, terms.id, terms.encoding))
        self.ledger.claim(claims)

    def void(self, asked: Invitation, cheats: Sequence[str]) -> None:
        """Record durably the cheaters of a void round: they are excluded, and it may be repeated."""
        terms, name = self._terms, self._name(asked.number)
        if self.ledger.find(VOIDED, name) is None:
            flags = flags_of([terms.roster.places[user] for user in cheats], len(terms.roster))
            questions = b"".join(question_id(question, terms) for question in asked.questions)
            self.ledger.claim([Claim(VOIDED, name, flags + questions)])

    def record_lie(self, number: int) -> None:
        """Record durably that the miner lied about a cheater."""
        if self.ledger.find(LIED, self._terms.id) is None:
            self.ledger.claim([Claim(LIED, self._terms.id, number.to_bytes(ROUND, "big"))])

    def _cheats(self) -> frozenset[str]:
        """Return the users shown to have cast an invalid vote in this epoch."""
        names, size = self._terms.roster.names, -(-len(self._terms.roster) // 8)
        values = self.ledger.values(VOIDED, self._terms.id)
        return frozenset(name for value in values for name in select_flagged(value[:size], names))

    def _question(self, question: Question) -> bytes:
        """Return the ledger key of a vote on a question; each void round of the question changes it."""
        own, size = question_id(question, self._terms), -(-len(self._terms.roster) // 8)
        values = self.ledger.values(VOIDED, self._terms.id)
        asked = [value[at : at + len(own)] for value in values for at in range(size, len(value), len(own))]
        void = asked.count(own)
        return own if not void else own + void.to_bytes(ROUND, "big")

    def _across(self, asked: Invitation) -> list[Refusal]:
        """Return a refusal if clear counts of this round and of rounds under other terms single out a person.

        Of two minimums the larger applies: it was promised to the users who left.
        """
        sums = self.against_other_sums()
        if sums is not None:
            return [sums]
        now = frozenset(self._terms.members[user] for user in asked.users)
        for vote in self.clear_votes():
            if vote.under == self._terms.id:
                continue
            enrolled = self.ledger.find(TERMS, vote.under)
            if enrolled is None:
                raise FileError("The ledger has a vote, but lacks its terms.")
            then = _enrolment(enrolled)
            if then.epoch in self._agreed:
                continue
            before = frozenset(select_flagged(vote.flags, tuple(then.members.values())))
            refusal = against_difference(now, before, max(self._terms.minimum, then.minimum))
            if refusal is not None:
                return [Refusal(refusal.code, f"as counted in epoch {then.epoch!r}: {refusal.reason}")]
        return []

    def _name(self, number: int) -> bytes:
        return self._terms.id + number.to_bytes(ROUND, "big")


@lru_cache(maxsize=8)
def _enrolment(written: bytes) -> Enrolment:
    return Enrolment.decode(written)


def question_id(question: Question, terms: FrequencyTerms) -> bytes:
    """Return 32 bytes that identify a question under these terms."""
    encoded = encode_questions([question], terms)
    return hashlib.sha256(b"masquerade frequency question 1" + terms.id + encoded).digest()


def noise_refusals(terms: FrequencyTerms, questions: Sequence[Question], spent: int) -> list[Refusal]:
    """Return the reasons why answers to questions must not be redrawn after `spent` tables."""
    redraws = terms.redraws
    if redraws is None:
        return []
    found: list[Refusal] = []
    if any(question.conditions or not question.columns for question in questions):
        found.append(Refusal("not_whole_tables", "only whole tables, without conditions, have noise"))
    cells = max((question.cells(terms.sizes) for question in questions), default=0)
    if cells > redraws.most_cells:
        reason = f"a table of {cells:,} cells would be drawn at random (at most {redraws.most_cells:,} cells)"
        found.append(Refusal("too_many_cells", reason))
    left = redraws.number - spent
    if len(questions) > left:
        reason = f"this round takes {len(questions)} tables, and {left} of {redraws.number} are left"
        found.append(Refusal("budget_spent", reason))
    return found


def roster_refusals(
    terms: FrequencyTerms,
    now: frozenset[str],
    earlier: Iterable[frozenset[str]],
    questions: Sequence[Question],
) -> list[Refusal]:
    """Return the reasons why these users must not answer these questions after rounds with `earlier` rosters.

    A later round goes only to users of the earlier rounds. The other conditions of `against_difference` apply
    unless all questions are disguised within the limit: γ then bounds them even if each report is seen.
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
