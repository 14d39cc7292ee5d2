"""A person and the miner of frequency mining: bytes in, bytes out; nothing is trusted that can be checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

from masquerade.core.errors import InputError, MasqueradeError, QueryRefused, Refusal, RoundAborted
from masquerade.crypto.errors import DecodingError, KeySpent, LogOutOfRange, SealBroken
from masquerade.crypto.keys import SigningKey, SingleUse
from masquerade.crypto.proof_batches import rejected
from masquerade.crypto.proofs import BallotKeys
from masquerade.protocols.frequency_mining import ballots
from masquerade.protocols.frequency_mining import messages as wire
from masquerade.protocols.frequency_mining.history import VoteHistory
from masquerade.protocols.people.checks import Checks
from masquerade.protocols.people.ledger import Enrolled, Ledger
from masquerade.protocols.people.questions import Counts, Question, tables_of
from masquerade.protocols.people.reports import reports_of
from masquerade.protocols.people.roster import aborted
from masquerade.protocols.wire.codec import tag_of


def setting_of(terms: wire.Terms, number: int, invitation: bytes) -> ballots.Setting:
    """Return what the proofs of a round's keys are bound to."""
    return ballots.Setting(terms.id + number.to_bytes(wire.ROUND, "big"), hashlib.sha256(invitation).digest())


def opened_booth(terms: wire.Terms, invitation: bytes, roster: bytes, *, workers: int = 1) -> ballots.Booth:
    """Return where votes are cast: all keys of a roster are checked and added up, or the culprits named.

    Cost: two Schnorr proofs for every user and count, checked as one batch.
    """
    asked = wire.Invitation.decode(invitation, terms)
    counts = asked.counts(terms)
    posts = _signed_by_all(terms, asked, wire.Step.KEYS, roster)
    setting = setting_of(terms, asked.number, invitation)
    claim = partial(ballots.keys_claim, counts=counts, setting=setting)
    sent = [(post.user, post.payload) for post in posts]
    bad = [posts[place].user for place in rejected(sent, claim, workers=workers, each=counts)]
    if bad:
        raise aborted(f"The keys of {', '.join(bad[:5])} come without proof that they are known.", *bad)
    keys = {post.user: ballots.read_keys(post.payload, counts)[0] for post in posts}
    total = ballots.sum_of_keys(list(keys.values()))
    if any(point.is_identity for point in (*total.X, *total.Y)):
        raise aborted("The keys of all users cancel out.")
    sealed = setting._replace(roster=wire.roster_hash(terms, invitation, [post.payload for post in posts]))
    return ballots.Booth(ballots.spans_of(asked.questions, terms.sizes), total, keys, sealed)


def check_endorsements(terms: wire.Terms, asked: wire.Invitation, roster: bytes, message: bytes) -> None:
    """Raise `RoundAborted` unless there is an endorsement of `roster` by every user."""
    for one in _signed_by_all(terms, asked, wire.Step.ENDORSEMENT, message):
        if one.payload != roster:
            reason = f"{one.user} was shown another roster: the miner tells users different things."
            raise aborted(reason, "miner")


def shown_cheat(terms: wire.Terms, invitation: bytes, roster: bytes, vote: bytes) -> str:
    """Return whose vote a miner shows as invalid, after checking that it is: that user cheated.

    Whoever has what the users of a round have can check it. A vote that is valid, or that nobody signed in
    this round, aborts and names the miner: it lies about a cheat.
    """
    asked = wire.Invitation.decode(invitation, terms)
    return _judged(terms, asked, opened_booth(terms, invitation, roster), vote)


def _judged(terms: wire.Terms, asked: wire.Invitation, booth: ballots.Booth, vote: bytes) -> str:
    try:
        signed = wire.Signed.decode(vote)
        signed.check(terms)
    except (DecodingError, SealBroken):
        raise aborted("What is shown as a cheat was signed by nobody.", "miner") from None
    due = (wire.Step.VOTE, asked.number)
    if (signed.step, signed.number) != due or signed.user not in asked.users:
        raise aborted("What is shown as a cheat is no vote of this round.", "miner")
    if not booth.invalid([(signed.user, signed.payload)], workers=1):
        raise aborted(f"The vote of {signed.user} that is shown as a cheat is valid.", "miner")
    return signed.user


def _is_signed(terms: wire.Terms, vote: bytes) -> bool:
    try:
        wire.Signed.decode(vote).check(terms)
    except (DecodingError, SealBroken):
        return False
    return True


_FAULTS = {
    wire.Step.KEYS: (
        "This is not the roster of this round.",
        "The roster is not that of the users who were invited, once each and in order.",
        "The roster has keys for {0} that {0} did not sign.",
    ),
    wire.Step.ENDORSEMENT: (
        "These are not the endorsements of this round.",
        "Not every user has endorsed the roster, once each and in order.",
        "The endorsement of {0} was not signed by {0}.",
    ),
}


def _signed_by_all(
    terms: wire.Terms, asked: wire.Invitation, step: wire.Step, message: bytes
) -> list[wire.Signed]:
    """Return what the users who were invited signed; where it is not that, the miner is to blame."""
    other_round, other_users, forged = _FAULTS[step]
    gathered = wire.Gathered.decode(message)
    if (gathered.step, gathered.number) != (step, asked.number):
        raise DecodingError(other_round)
    signed = [wire.Signed.decode(part) for part in gathered.parts]
    due = [(user, step, asked.number) for user in asked.users]
    if [(one.user, one.step, one.number) for one in signed] != due:
        raise aborted(other_users, "miner")
    for one in signed:
        try:
            one.check(terms)
        except SealBroken:
            raise aborted(forged.format(one.user), "miner") from None
    return signed


class _OpenRound(NamedTuple):
    """A round that this user takes part in, and how far it has come."""

    asked: wire.Invitation
    invitation: bytes
    keys: SingleUse[tuple[BallotKeys, ...]]
    post: bytes
    booth: ballots.Booth | None = None


class User(Enrolled):
    """One person with one record. Learns nothing about others but who takes part and what is asked.

    `record` holds truth codes by variable; if the policy disguises any, the reports are drawn once, from a
    secret that the ledger keeps, and only they are ever voted with. `receive` answers every message with
    bytes: keys for an invitation, an endorsement for a roster, a vote for the endorsements of all, else a
    signed refusal.

    The vote leaves only after the keys, the questions and the roster were written to the ledger: from then on
    they are spent, whether the vote arrives or not.

    A person has one ledger for all epochs: clear rounds of earlier epochs count as earlier rounds, and a new
    one that differs from them by few people is refused. `agreed` names earlier epochs for which this person
    agrees that it may: say because their counts never came out. Whoever has both counts after all then has
    the difference.

    Votes that a miner shows as invalid are checked. Whoever cheated is not counted with any more, and the
    questions may be asked again without them, since what they answered was in their own hands. A miner that
    shows a valid vote, or one of another round, has lied: its epoch is over here.
    """

    def __init__(
        self,
        name: str,
        identity: SigningKey,
        record: Mapping[str, int],
        terms: wire.Terms,
        *,
        ledger: Ledger | None = None,
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
        """Answer a message of the miner; the same message again gets the same answer, byte by byte."""
        digest = hashlib.sha256(message).digest()
        if self._last is not None and self._last[0] == digest:
            return self._last[1]
        number = 0 if self._round is None else self._round.asked.number
        try:
            step, number, payload = self._answer(wire.bounded(message))
        except MasqueradeError as error:
            return self._signed(wire.Step.REFUSAL, number, objection(error, digest).encode())
        reply = self._signed(step, number, payload)
        self._last = (digest, reply)
        return reply

    def _answer(self, message: bytes) -> tuple[wire.Step, int, bytes]:
        if tag_of(message) == wire.Invitation.TAG:
            return self._post_keys(message)
        showing = tag_of(message) == wire.ShownVotes.TAG
        gathered = wire.ShownVotes.decode(message) if showing else wire.Gathered.decode(message)
        if self._round is None or gathered.number != self._round.asked.number:
            raise InputError("This message belongs to no round that is open here.")
        if isinstance(gathered, wire.ShownVotes):
            raise self._judge(self._round, gathered.votes)
        if gathered.step == wire.Step.KEYS:
            return self._endorse(self._round, message)
        return self._vote(self._round, message)

    def _post_keys(self, message: bytes) -> tuple[wire.Step, int, bytes]:
        asked = wire.Invitation.decode(message, self.terms)
        turn = self._history.turn()
        self._refuse(asked)
        setting = setting_of(self.terms, asked.number, message)
        pairs, payload = ballots.make_keys(asked.counts(self.terms), setting, self.name)
        fingerprint = hashlib.sha256(payload).hexdigest()
        keys = SingleUse(pairs, fingerprint, lambda name: self._history.spend(asked, name, turn))
        self._round = _OpenRound(asked, message, keys, payload)
        return wire.Step.KEYS, asked.number, payload

    def _refuse(self, asked: wire.Invitation) -> None:
        refusals = self._history.refusals(asked)
        if self.name not in asked.users:
            refusals.insert(0, Refusal("not_survivors", f"{self.name} is not among the users invited"))
        if refusals:
            raise QueryRefused(refusals)

    def _endorse(self, current: _OpenRound, message: bytes) -> tuple[wire.Step, int, bytes]:
        booth = self._checks.once(opened_booth, self.terms, current.invitation, message)
        own = wire.Signed.decode(wire.Gathered.decode(message).parts[current.asked.users.index(self.name)])
        if own.payload != current.post:
            raise aborted("The roster has other keys for me than I sent.", "miner")
        roster, number = booth.setting.roster, current.asked.number
        self._history.endorse(number, roster)
        self._round = current._replace(booth=booth)
        return wire.Step.ENDORSEMENT, number, roster

    def _vote(self, current: _OpenRound, message: bytes) -> tuple[wire.Step, int, bytes]:
        booth, asked = current.booth, current.asked
        if booth is None:
            raise InputError("The roster comes before its endorsements.")
        self._checks.once(check_endorsements, self.terms, asked, booth.setting.roster, message)
        reports, sizes = self._reports, self.terms.sizes
        bits = [bit for question in asked.questions for bit in ballots.bits_of(question, reports, sizes)]
        pairs = current.keys.take()
        vote = booth.cast(self.name, pairs, bits)
        for pair in pairs:
            pair.x.wipe()
            pair.y.wipe()
        return wire.Step.VOTE, asked.number, vote

    def _judge(self, current: _OpenRound, votes: Sequence[bytes]) -> RoundAborted:
        """Return that the round is over, and by whom: those whose votes are invalid as shown, or the miner.

        What was found is in the ledger first.
        """
        if current.booth is None or not votes:
            raise InputError("Votes are shown after the roster, one at least.")
        try:
            cheats = [_judged(self.terms, current.asked, current.booth, vote) for vote in votes]
        except RoundAborted as error:
            if any(_is_signed(self.terms, vote) for vote in votes):  # what nobody signed may be anybody's
                self._history.lied(current.asked.number)
            return error
        self._history.void(current.asked, cheats)
        self._round = None
        return aborted(f"The votes of {', '.join(cheats[:5])} are shown to be invalid.", *cheats)

    def _signed(self, step: wire.Step, number: int, payload: bytes) -> bytes:
        return wire.Signed.make(
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
_EXPECTED: dict[Phase, wire.Step] = {
    "keys": wire.Step.KEYS,
    "endorsements": wire.Step.ENDORSEMENT,
    "votes": wire.Step.VOTE,
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
)


class Round:
    """One round of the miner: three times a message to all users and an answer from each.

    `message` is what users are to get next; `receive` takes their answers, in any order and also twice;
    `advance` goes on when all are there. A user who is missing, refuses or cheats aborts the round
    (`RoundAborted`): the masks of all others cancel only together. `tables` holds the counts at the end;
    `evidence` the invalid votes that were signed, by user, for others to check: `accusation` is the message
    that shows them to users, who are then counted without the cheats.
    """

    def __init__(
        self,
        terms: wire.Terms,
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
        """Return the users whose answer is still to come."""
        return tuple(user for user in self.invitation.users if user not in self._received)

    def receive(self, data: bytes) -> None:
        """Take in a user's answer.

        Bytes that no user signed raise `DecodingError` or `SealBroken` and change nothing: a stranger may
        have sent them. Answers to earlier messages, refusals too, are ignored.
        """
        signed = wire.Signed.decode(wire.bounded(data))
        signed.check(self.terms)
        if signed.user not in self._invited:
            raise DecodingError(f"{signed.user} was not invited.")
        if signed.step == wire.Step.REFUSAL:
            self._object(signed)
        if signed.number != self.invitation.number or signed.step != _EXPECTED.get(self.phase):
            return
        # from the first vote on, votes have left
        self._voted = self._voted or signed.step == wire.Step.VOTE
        before = self._received.setdefault(signed.user, data)
        if before != data:
            what = signed.step.name.lower()
            raise self._aborted(f"{signed.user} signed two different {what}s.", [signed.user])

    def advance(self) -> None:
        """Check what all users sent and go on to the next message, or to the counts."""
        if self.waiting:
            missing = self.waiting
            raise self._aborted(
                f"{len(missing)} of {len(self.invitation.users)} users did not answer: without "
                f"{', '.join(missing[:5])} the masks of the others do not cancel.",
                missing,
            )
        parts = tuple(self._received[user] for user in self.invitation.users)
        steps = {"keys": self._gather_keys, "endorsements": self._gather_endorsements, "votes": self._count}
        steps[self.phase](parts)
        self._received = {}

    def _gather_keys(self, parts: tuple[bytes, ...]) -> None:
        message = wire.Gathered(wire.Step.KEYS, self.invitation.number, parts).encode()
        self._booth = opened_booth(self.terms, self._opening, message, workers=self.workers)
        self.phase, self.message = "endorsements", message

    def _gather_endorsements(self, parts: tuple[bytes, ...]) -> None:
        message = wire.Gathered(wire.Step.ENDORSEMENT, self.invitation.number, parts).encode()
        booth = self._opened()
        wrong = [
            signed.user for signed in map(wire.Signed.decode, parts) if signed.payload != booth.setting.roster
        ]
        if wrong:
            raise self._aborted(f"{', '.join(wrong[:5])} endorsed another roster.", wrong)
        check_endorsements(self.terms, self.invitation, booth.setting.roster, message)
        self.phase, self.message = "votes", message

    def _count(self, parts: tuple[bytes, ...]) -> None:
        self._voted = True
        booth = self._opened()
        votes = [(signed.user, signed.payload) for signed in map(wire.Signed.decode, parts)]
        cheats = booth.invalid(votes, workers=self.workers)
        if cheats:
            self.evidence = {user: self._received[user] for user in cheats}
            raise self._aborted(f"The votes of {', '.join(cheats[:5])} are not proved valid.", cheats)
        try:
            counts = booth.frequencies([payload for _, payload in votes], workers=self.workers)
        except LogOutOfRange as error:
            raise self._aborted(str(error), []) from None
        import numpy as np  # noqa: PLC0415  (devices do not count)

        questions, spans = self.invitation.questions, [end - start for _, start, end in booth.spans]
        self.tables = tables_of(np.array(counts, dtype=np.int64), questions, spans, self.terms.sizes)
        self.phase, self.message = "done", b""

    def _object(self, signed: wire.Signed) -> None:
        said = wire.Objection.decode(signed.payload)
        if said.about != hashlib.sha256(self.message).digest():
            return  # of another round or step: a stranger may have sent it again
        if self.phase == "keys" and said.code in REFUSED:
            raise QueryRefused([Refusal(said.code, f"{signed.user}: {said.reason}")])
        # whom an objection blames is a claim like any other: the one who stopped is known, the rest is said
        blamed = f" (blaming {', '.join(said.culprits[:5])})" if said.culprits else ""
        raise self._aborted(f"{signed.user} stopped: {said.reason}{blamed}", [signed.user])

    def _opened(self) -> ballots.Booth:
        if self._booth is None:
            raise RuntimeError("keys are gathered first")
        return self._booth

    @property
    def votes_may_have_left(self) -> bool:
        """Tell whether votes have left, or may have: all endorsements have been handed out."""
        return self._voted or self.phase in {"votes", "done"}

    def _aborted(self, reason: str, culprits: Sequence[str]) -> RoundAborted:
        return RoundAborted(reason, spent=self.votes_may_have_left, culprits=culprits)
