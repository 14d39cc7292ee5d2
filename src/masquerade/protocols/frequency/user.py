"""A person's side of frequency mining: bytes in, bytes out; nothing is trusted that can be checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from masquerade.core.errors import InputError, MasqueradeError, QueryRefused, Refusal, RoundAborted
from masquerade.crypto.ballots import BallotKeys
from masquerade.crypto.errors import DecodingError, KeySpent
from masquerade.crypto.keys import SigningKey, SingleUse
from masquerade.protocols.codec import tag_of
from masquerade.protocols.frequency.agreement import Terms
from masquerade.protocols.frequency.ballots import Booth, bits_of, make_keys
from masquerade.protocols.frequency.history import VoteHistory
from masquerade.protocols.frequency.key_checks import check_endorsements, opened_booth, setting_of
from masquerade.protocols.frequency.messages import Gathered, Invitation, Objection, Signed, Step, bounded
from masquerade.protocols.people.checks import Checks
from masquerade.protocols.people.ledger import Ledger, MemoryLedger
from masquerade.protocols.people.reports import reports_of
from masquerade.protocols.people.roster import aborted


class _OpenRound(NamedTuple):
    """A round that this user takes part in, and how far it has come."""

    asked: Invitation
    invitation: bytes
    keys: SingleUse[tuple[BallotKeys, ...]]
    post: bytes
    booth: Booth | None = None


class User:
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
    """

    def __init__(
        self,
        name: str,
        identity: SigningKey,
        record: Mapping[str, int],
        terms: Terms,
        *,
        ledger: Ledger | None = None,
        checks: Checks | None = None,
        agreed: Iterable[str] = (),
    ) -> None:
        if terms.members.get(name) != identity.public:
            raise InputError(f"{name!r} is not a member of these terms with this identity.")
        self.name, self.terms = name, terms
        self._identity = identity
        kept: Ledger = MemoryLedger() if ledger is None else ledger
        self._history = VoteHistory(kept, terms, agreed)
        self._checks = checks or Checks()
        self._reports = reports_of(record, terms.policy, name, kept)
        self._round: _OpenRound | None = None
        self._last: tuple[bytes, bytes] | None = None

    def __repr__(self) -> str:
        """Show the name, never the record."""
        return f"User({self.name!r})"

    def receive(self, message: bytes) -> bytes:
        """Answer a message of the miner; the same message again gets the same answer, byte by byte."""
        digest = hashlib.sha256(message).digest()
        if self._last is not None and self._last[0] == digest:
            return self._last[1]
        number = 0 if self._round is None else self._round.asked.number
        try:
            step, number, payload = self._answer(bounded(message))
        except MasqueradeError as error:
            return self._signed(Step.REFUSAL, number, objection(error).encode())
        reply = self._signed(step, number, payload)
        self._last = (digest, reply)
        return reply

    def _answer(self, message: bytes) -> tuple[Step, int, bytes]:
        if tag_of(message) == Invitation.TAG:
            return self._post_keys(message)
        gathered = Gathered.decode(message)
        if self._round is None or gathered.number != self._round.asked.number:
            raise InputError("This message belongs to no round that is open here.")
        if gathered.step == Step.KEYS:
            return self._endorse(self._round, message)
        return self._vote(self._round, message)

    def _post_keys(self, message: bytes) -> tuple[Step, int, bytes]:
        asked = Invitation.decode(message, self.terms)
        turn = self._history.turn()
        self._refuse(asked)
        setting = setting_of(self.terms, asked.number, message)
        pairs, payload = make_keys(asked.counts(self.terms), setting, self.name)
        fingerprint = hashlib.sha256(payload).hexdigest()
        keys = SingleUse(pairs, fingerprint, lambda name: self._history.spend(asked, name, turn))
        self._round = _OpenRound(asked, message, keys, payload)
        return Step.KEYS, asked.number, payload

    def _refuse(self, asked: Invitation) -> None:
        refusals = self._history.refusals(asked)
        if self.name not in asked.users:
            refusals.insert(0, Refusal("not_survivors", f"{self.name} is not among the users invited"))
        if refusals:
            raise QueryRefused(refusals)

    def _endorse(self, current: _OpenRound, message: bytes) -> tuple[Step, int, bytes]:
        booth = self._checks.once(opened_booth, self.terms, current.invitation, message)
        own = Signed.decode(Gathered.decode(message).parts[current.asked.users.index(self.name)])
        if own.payload != current.post:
            raise aborted("The roster has other keys for me than I sent.", "miner")
        roster, number = booth.setting.roster, current.asked.number
        self._history.endorse(number, roster)
        self._round = current._replace(booth=booth)
        return Step.ENDORSEMENT, number, roster

    def _vote(self, current: _OpenRound, message: bytes) -> tuple[Step, int, bytes]:
        booth, asked = current.booth, current.asked
        if booth is None:
            raise InputError("The roster comes before its endorsements.")
        self._checks.once(check_endorsements, self.terms, asked, booth.setting.roster, message)
        reports, sizes = self._reports, self.terms.sizes
        bits = [bit for question in asked.questions for bit in bits_of(question, reports, sizes)]
        pairs = current.keys.take()
        return Step.VOTE, asked.number, booth.cast(self.name, pairs, bits)

    def _signed(self, step: Step, number: int, payload: bytes) -> bytes:
        return Signed.make(
            self.terms, self._identity, user=self.name, step=step, number=number, payload=payload
        ).encode()


def objection(error: MasqueradeError) -> Objection:
    """Return what a user says instead of going on; the words of an error never hold a record's values."""
    if isinstance(error, QueryRefused):
        return Objection(error.refusals[0].code, str(error)[:1000])
    if isinstance(error, RoundAborted):
        return Objection("aborted", str(error)[:1000], error.culprits[:1000])
    if isinstance(error, KeySpent):
        return Objection("already_spent", str(error)[:1000])
    if isinstance(error, DecodingError):
        return Objection("malformed", str(error)[:1000], ("miner",))
    return Objection("out_of_order", str(error)[:1000])
