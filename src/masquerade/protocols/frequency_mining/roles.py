"""The roles of frequency mining, user and miner: bytes in, bytes out. All that can be checked is checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

from masquerade.core.errors import InputError, MasqueradeError, QueryRefused, Refusal, RoundAborted
from masquerade.crypto.errors import DecodingError, KeySpent, LogOutOfRange, SealBroken
from masquerade.crypto.keys import SigningKey, SingleUse
from masquerade.crypto.proof_batches import find_rejected
from masquerade.crypto.proofs import BallotKeys
from masquerade.protocols.frequency_mining import ballots
from masquerade.protocols.frequency_mining import messages as wire
from masquerade.protocols.frequency_mining.history import VoteHistory
from masquerade.protocols.frequency_mining.vote_noise import redrawn_votes
from masquerade.protocols.people.checks import Checks
from masquerade.protocols.people.ledger import Enrolled, PersonLedger
from masquerade.protocols.people.questions import Counts, Question, tables_of
from masquerade.protocols.people.reports import reports_of
from masquerade.protocols.people.roster import abort_round
from masquerade.protocols.wire.codec import tag_of


def setting_of(terms: wire.FrequencyTerms, number: int, invitation: bytes) -> ballots.Setting:
    """Return the context that the proofs of a round's keys are bound to."""
    return ballots.Setting(terms.id + number.to_bytes(wire.ROUND, "big"), hashlib.sha256(invitation).digest())


def opened_booth(
    terms: wire.FrequencyTerms, invitation: bytes, roster: bytes, *, workers: int = 1
) -> ballots.Booth:
    """Check and add all keys of a roster; return the public data for voting, or name the culprits.

    Cost: two Schnorr proofs per user and count, checked as one batch.
    """
    asked = wire.Invitation.decode(invitation, terms)
    counts = asked.counts(terms)
    posts = _signed_by_all(terms, asked, wire.MiningStep.KEYS, roster)
    setting = setting_of(terms, asked.number, invitation)
    claim = partial(ballots.keys_claim, counts=counts, setting=setting)
    sent = [(post.user, post.payload) for post in posts]
    bad = [posts[place].user for place in find_rejected(sent, claim, workers=workers, each=counts)]
    if bad:
        raise abort_round(f"The keys of {', '.join(bad[:5])} have no valid proof of knowledge.", *bad)
    keys = {post.user: ballots.read_keys(post.payload, counts)[0] for post in posts}
    total = ballots.sum_of_keys(list(keys.values()))
    if any(point.is_identity for point in (*total.X, *total.Y)):
        raise abort_round("The keys of all users cancel out.")
    sealed = setting._replace(roster=wire.roster_hash(terms, invitation, [post.payload for post in posts]))
    return ballots.Booth(ballots.spans_of(asked.questions, terms.sizes), total, keys, sealed)


def check_endorsements(
    terms: wire.FrequencyTerms, asked: wire.Invitation, roster: bytes, message: bytes
) -> None:
    """Raise `RoundAborted` unless there is an endorsement of `roster` by every user."""
    for one in _signed_by_all(terms, asked, wire.MiningStep.ENDORSEMENT, message):
        if one.payload != roster:
            reason = f"{one.user} received a different roster: the miner sends different rosters to users."
            raise abort_round(reason, "miner")


def shown_cheat(terms: wire.FrequencyTerms, invitation: bytes, roster: bytes, vote: bytes) -> str:
    """Return the user whose vote the miner shows as invalid, after verifying that it is invalid.

    Any user of the round can check it. If the vote is valid, or was not signed in this round, the round is
    aborted and the miner is named.
    """
    asked = wire.Invitation.decode(invitation, terms)
    return _judge_vote(terms, asked, opened_booth(terms, invitation, roster), vote)


def _judge_vote(terms: wire.FrequencyTerms, asked: wire.Invitation, booth: ballots.Booth, vote: bytes) -> str:
    try:
        signed = wire.SignedMiningMessage.decode(vote)
        signed.check(terms)
    except (DecodingError, SealBroken):
        raise abort_round("The vote that is presented as invalid was not signed.", "miner") from None
    due = (wire.MiningStep.VOTE, asked.number)
    if (signed.step, signed.number) != due or signed.user not in asked.users:
        raise abort_round("The vote that is presented as invalid is not a vote of this round.", "miner")
    if not booth.invalid([(signed.user, signed.payload)], workers=1):
        raise abort_round(f"The vote of {signed.user} that is presented as invalid is valid.", "miner")
    return signed.user


def _is_signed(terms: wire.FrequencyTerms, vote: bytes) -> bool:
    try:
        wire.SignedMiningMessage.decode(vote).check(terms)
    except (DecodingError, SealBroken):
        return False
    return True


_FAULTS = {
    wire.MiningStep.KEYS: (
        "This is not the roster of this round.",
        "The roster does not list the invited users, once each and in order.",
        "The roster has keys for {0} that {0} did not sign.",
    ),
    wire.MiningStep.ENDORSEMENT: (
        "These are not the endorsements of this round.",
        "Not every user has endorsed the roster, once each and in order.",
        "The endorsement of {0} was not signed by {0}.",
    ),
}


def _signed_by_all(
    terms: wire.FrequencyTerms, asked: wire.Invitation, step: wire.MiningStep, message: bytes
) -> list[wire.SignedMiningMessage]:
    """Return the messages of all invited users; if one is missing or invalid, the miner is to blame."""
    other_round, other_users, forged = _FAULTS[step]
    gathered = wire.Gathered.decode(message)
    if (gathered.step, gathered.number) != (step, asked.number):
        raise DecodingError(other_round)
    signed = [wire.SignedMiningMessage.decode(part) for part in gathered.parts]
    due = [(user, step, asked.number) for user in asked.users]
    if [(one.user, one.step, one.number) for one in signed] != due:
        raise abort_round(other_users, "miner")
    for one in signed:
        try:
            one.check(terms)
        except SealBroken:
            raise abort_round(forged.format(one.user), "miner") from None
    return signed


class _OpenRound(NamedTuple):
    """A round in which this user participates, and its state."""

    asked: wire.Invitation
    invitation: bytes
    keys: SingleUse[tuple[BallotKeys, ...]]
    post: bytes
    booth: ballots.Booth | None = None


class MiningUser(Enrolled):
    """One person with one record. A user learns only who participates, and the questions.

    `record` has the true codes by variable. If the policy disguises any of them, the reports are drawn once,
    from a secret in the ledger, and only these reports are used in votes. `receive` answers every message
    with bytes: keys for an invitation, an endorsement for a roster, a vote for the endorsements of all, else
    a signed refusal.

    The vote is sent only after the keys, the questions and the roster were written to the ledger. From then
    on they are spent, whether the vote arrives or not.

    A person has one ledger for all epochs. Clear rounds of earlier epochs count as earlier rounds, and a new
    round that differs from them by few people is refused. `agreed` names earlier epochs for which this person
    accepts such a difference, for example because their counts were never computed. A party that has both
    counts nevertheless learns the difference.

    With noise, the answer to each table is redrawn with some probability when it is sent, after the table was
    written to the ledger as spent. Tables of void rounds are spent, too.

    Votes that a miner shows as invalid are checked. A user who cheated is excluded from further rounds, and
    the questions may be repeated without the cheater: counts with and without the cheater differ only by the
    cheater's own vote. A miner that shows a valid vote, or a vote of another round, has lied: this user ends
    the epoch.
    """

    def __init__(
        self,
        name: str,
        identity: SigningKey,
        record: Mapping[str, int],
        terms: wire.FrequencyTerms,
        *,
        ledger: PersonLedger | None = None,
        checks: Checks | None = None,
        agreed: Iterable[str] = (),
    ) -> None:
        super().__init__(name, identity, terms.members, ledger)
        self.terms, self._checks = terms, checks or Checks()
        self._history = VoteHistory(self._ledger, terms, agreed)
        self._reports = reports_of(record, terms.policy, name, self._ledger)
        self._round: _OpenRound | None = None
        self._last: tuple[bytes, bytes] | None = None

    def receive(self, message: bytes) -> bytes:
        """Answer a message of the miner; a repeated message gets the same answer, byte for byte."""
        digest = hashlib.sha256(message).digest()
        if self._last is not None and self._last[0] == digest:
            return self._last[1]
        number = 0 if self._round is None else self._round.asked.number
        try:
            step, number, payload = self._answer(wire.check_length(message))
        except MasqueradeError as error:
            return self._sign(wire.MiningStep.REFUSAL, number, objection(error, digest).encode())
        reply = self._sign(step, number, payload)
        self._last = (digest, reply)
        return reply

    def _answer(self, message: bytes) -> tuple[wire.MiningStep, int, bytes]:
        if tag_of(message) == wire.Invitation.TAG:
            return self._post_keys(message)
        showing = tag_of(message) == wire.ShownVotes.TAG
        gathered = wire.ShownVotes.decode(message) if showing else wire.Gathered.decode(message)
        if self._round is None or gathered.number != self._round.asked.number:
            raise InputError("This message belongs to no round that is open here.")
        if isinstance(gathered, wire.ShownVotes):
            raise self._judge(self._round, gathered.votes)
        if gathered.step == wire.MiningStep.KEYS:
            return self._endorse(self._round, message)
        return self._vote(self._round, message)

    def _post_keys(self, message: bytes) -> tuple[wire.MiningStep, int, bytes]:
        asked = wire.Invitation.decode(message, self.terms)
        turn = self._history.turn()
        self._refuse(asked)
        setting = setting_of(self.terms, asked.number, message)
        pairs, payload = ballots.make_keys(asked.counts(self.terms), setting, self.name)
        fingerprint = hashlib.sha256(payload).hexdigest()
        keys = SingleUse(pairs, fingerprint, lambda name: self._history.spend(asked, name, turn))
        self._round = _OpenRound(asked, message, keys, payload)
        return wire.MiningStep.KEYS, asked.number, payload

    def _refuse(self, asked: wire.Invitation) -> None:
        refusals = self._history.refusals(asked)
        if self.name not in asked.users:
            refusals.insert(0, Refusal("not_survivors", f"{self.name} is not among the users invited"))
        if refusals:
            raise QueryRefused(refusals)

    def _endorse(self, current: _OpenRound, message: bytes) -> tuple[wire.MiningStep, int, bytes]:
        booth = self._checks.once(opened_booth, self.terms, current.invitation, message)
        own = wire.SignedMiningMessage.decode(
            wire.Gathered.decode(message).parts[current.asked.users.index(self.name)]
        )
        if own.payload != current.post:
            raise abort_round("The roster's keys for this user are not those that it sent.", "miner")
        roster, number = booth.setting.roster, current.asked.number
        self._history.endorse(number, roster)
        self._round = current._replace(booth=booth)
        return wire.MiningStep.ENDORSEMENT, number, roster

    def _vote(self, current: _OpenRound, message: bytes) -> tuple[wire.MiningStep, int, bytes]:
        booth, asked = current.booth, current.asked
        if booth is None:
            raise InputError("The roster comes before its endorsements.")
        self._checks.once(check_endorsements, self.terms, asked, booth.setting.roster, message)
        pairs = current.keys.take()  # from here on the round is spent: what follows is drawn at most once
        bits = self._bits(asked.questions)
        vote = booth.cast(self.name, pairs, bits)
        for pair in pairs:
            pair.x.wipe()
            pair.y.wipe()
        return wire.MiningStep.VOTE, asked.number, vote

    def _bits(self, questions: Sequence[Question]) -> list[int]:
        """Return the answers to questions; with noise they are drawn here."""
        reports, sizes, redraws = self._reports, self.terms.sizes, self.terms.redraws
        if redraws is not None:
            return redrawn_votes(questions, reports, sizes, redraws.weight)
        return [bit for question in questions for bit in ballots.bits_of(question, reports, sizes)]

    def _judge(self, current: _OpenRound, votes: Sequence[bytes]) -> RoundAborted:
        """Return the end of the round with its culprits: the users with invalid votes, or the miner.

        The result is recorded in the ledger first.
        """
        if current.booth is None or not votes:
            raise InputError("Invalid votes come after the roster, and there must be at least one.")
        try:
            cheats = [_judge_vote(self.terms, current.asked, current.booth, vote) for vote in votes]
        except RoundAborted as error:
            if any(_is_signed(self.terms, vote) for vote in votes):  # an unsigned vote may come from anyone
                self._history.record_lie(current.asked.number)
            return error
        self._history.void(current.asked, cheats)
        self._round = None
        return abort_round(f"The votes of {', '.join(cheats[:5])} are presented as invalid.", *cheats)

    def _sign(self, step: wire.MiningStep, number: int, payload: bytes) -> bytes:
        return wire.SignedMiningMessage.make(
            self.terms, self._identity, user=self.name, step=step, number=number, payload=payload
        ).encode()


def objection(error: MasqueradeError, about: bytes) -> wire.Objection:
    """Return a user's refusal to continue; the text of an error never contains a record's values.

    `about` is the SHA-256 of the message that is refused.
    """
    if isinstance(error, QueryRefused):
        return wire.Objection(about, error.refusals[0].code, str(error)[:1000])
    if isinstance(error, RoundAborted):
        return wire.Objection(about, "aborted", str(error)[:1000], error.culprits[:1000])
    if isinstance(error, KeySpent):
        return wire.Objection(about, "already_spent", str(error)[:1000])
    if isinstance(error, DecodingError):
        return wire.Objection(about, "malformed", str(error)[:1000], ("miner",))
    return wire.Objection(about, "out_of_order", str(error)[:1000])


Phase = Literal["keys", "endorsements", "votes", "done"]
_EXPECTED: dict[Phase, wire.MiningStep] = {
    "keys": wire.MiningStep.KEYS,
    "endorsements": wire.MiningStep.ENDORSEMENT,
    "votes": wire.MiningStep.VOTE,
}
REFUSED = (
    "roster_too_small",
    "too_many_cells",
    "not_survivors",
    "departed_too_few",
    "departed_too_many",
    "already_spent",
    "cheated",
    "miner_lied",
    "budget_spent",
    "not_whole_tables",
)


class MiningRound:
    """One round of the miner: three times, a message goes to all users and each of them answers.

    `message` is the next message to all users; `receive` processes their answers, in any order and also
    repeated; `advance` continues when all answers are there. A user who is missing, refuses or cheats aborts
    the round (`RoundAborted`): the masks cancel only if all users answer. `tables` has the counts at the
    end. `evidence` has the signed invalid votes by user, for others to check, and `accusation` is the message
    that shows them to users, who are then counted without the cheaters.
    """

    def __init__(
        self,
        terms: wire.FrequencyTerms,
        number: int,
        users: Sequence[str],
        questions: Sequence[Question],
        *,
        workers: int = 2,
    ) -> None:
        self.terms, self.workers = terms, workers
        members = tuple(sorted(users, key=terms.roster.places.__getitem__))
        self.invitation = wire.Invitation(terms.id, number, members, tuple(questions))
        self._invited = frozenset(self.invitation.users)
        self.phase: Phase = "keys"
        self.message = self._opening = self.invitation.encode(terms)
        self.tables: dict[Question, Counts] = {}
        self.evidence: dict[str, bytes] = {}
        self._received: dict[str, bytes] = {}
        self._voted = False
        self._booth: ballots.Booth | None = None

    @property
    def accusation(self) -> bytes:
        """Return the message that shows users the invalid votes of this round."""
        return wire.ShownVotes(self.invitation.number, tuple(self.evidence.values())).encode()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the users who have not answered yet."""
        return tuple(user for user in self.invitation.users if user not in self._received)

    def receive(self, data: bytes) -> None:
        """Process a user's answer.

        Bytes that no user signed raise `DecodingError` or `SealBroken` and change nothing: anyone may have
        sent them. Answers to earlier messages, refusals too, are ignored.
        """
        signed = wire.SignedMiningMessage.decode(wire.check_length(data))
        signed.check(self.terms)
        if signed.user not in self._invited:
            raise DecodingError(f"{signed.user} was not invited.")
        if signed.step == wire.MiningStep.REFUSAL:
            self._object(signed)
        if signed.number != self.invitation.number or signed.step != _EXPECTED.get(self.phase):
            return
        # from the first vote on, votes count as sent
        self._voted = self._voted or signed.step == wire.MiningStep.VOTE
        before = self._received.setdefault(signed.user, data)
        if before != data:
            what = signed.step.name.lower()
            raise self._abort(f"{signed.user} signed two different {what}s.", [signed.user])

    def advance(self) -> None:
        """Check the messages of all users, and continue with the next message or the counts."""
        if self.waiting:
            missing = self.waiting
            raise self._abort(
                f"{len(missing)} of {len(self.invitation.users)} users did not answer: without "
                f"{', '.join(missing[:5])} the masks of the others do not cancel.",
                missing,
            )
        parts = tuple(self._received[user] for user in self.invitation.users)
        steps = {"keys": self._gather_keys, "endorsements": self._gather_endorsements, "votes": self._count}
        steps[self.phase](parts)
        self._received = {}

    def _gather_keys(self, parts: tuple[bytes, ...]) -> None:
        message = wire.Gathered(wire.MiningStep.KEYS, self.invitation.number, parts).encode()
        self._booth = opened_booth(self.terms, self._opening, message, workers=self.workers)
        self.phase, self.message = "endorsements", message

    def _gather_endorsements(self, parts: tuple[bytes, ...]) -> None:
        message = wire.Gathered(wire.MiningStep.ENDORSEMENT, self.invitation.number, parts).encode()
        booth = self._require_booth()
        wrong = [
            signed.user
            for signed in map(wire.SignedMiningMessage.decode, parts)
            if signed.payload != booth.setting.roster
        ]
        if wrong:
            raise self._abort(f"{', '.join(wrong[:5])} endorsed a different roster.", wrong)
        check_endorsements(self.terms, self.invitation, booth.setting.roster, message)
        self.phase, self.message = "votes", message

    def _count(self, parts: tuple[bytes, ...]) -> None:
        self._voted = True
        booth = self._require_booth()
        votes = [(signed.user, signed.payload) for signed in map(wire.SignedMiningMessage.decode, parts)]
        cheats = booth.invalid(votes, workers=self.workers)
        if cheats:
            self.evidence = {user: self._received[user] for user in cheats}
            raise self._abort(f"The votes of {', '.join(cheats[:5])} have no valid proof.", cheats)
        try:
            counts = booth.frequencies([payload for _, payload in votes], workers=self.workers)
        except LogOutOfRange as error:
            raise self._abort(str(error), []) from None
        import numpy as np  # noqa: PLC0415  (devices do not count)

        questions, spans = self.invitation.questions, [end - start for _, start, end in booth.spans]
        self.tables = tables_of(np.array(counts, dtype=np.int64), questions, spans, self.terms.sizes)
        self.phase, self.message = "done", b""

    def _object(self, signed: wire.SignedMiningMessage) -> None:
        said = wire.Objection.decode(signed.payload)
        if said.about != hashlib.sha256(self.message).digest():
            return  # of a different round or step: an attacker may have repeated it
        if self.phase == "keys" and said.code in REFUSED:
            raise QueryRefused([Refusal(said.code, f"{signed.user}: {said.reason}")])
        # only the user who stopped is known for certain; the objection's blame is a claim
        blamed = f" (blaming {', '.join(said.culprits[:5])})" if said.culprits else ""
        raise self._abort(f"{signed.user} stopped: {said.reason}{blamed}", [signed.user])

    def _require_booth(self) -> ballots.Booth:
        if self._booth is None:
            raise RuntimeError("keys are gathered first")
        return self._booth

    @property
    def votes_may_have_left(self) -> bool:
        """Return True if votes may have been sent, because all endorsements were handed out."""
        return self._voted or self.phase in {"votes", "done"}

    def _abort(self, reason: str, culprits: Sequence[str]) -> RoundAborted:
        return RoundAborted(reason, spent=self.votes_may_have_left, culprits=culprits)
