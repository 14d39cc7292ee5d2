"""A person's side of frequency mining: bytes in, bytes out; nothing is trusted that can be checked."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from masquerade.core.errors import InputError, MasqueradeError, QueryRefused, Refusal, RoundAborted
from masquerade.crypto.errors import DecodingError, KeySpent
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.single_use import SingleUse
from masquerade.disguising.memo import Memo
from masquerade.disguising.report_draws import disguise_codes
from masquerade.protocols.frequency.agreement import Terms
from masquerade.protocols.frequency.ballots import Booth, Pair, make_keys
from masquerade.protocols.frequency.history import History
from masquerade.protocols.frequency.key_checks import RosterChecks, setting_of
from masquerade.protocols.frequency.messages import (
    ENDORSEMENT,
    KEYS,
    REFUSAL,
    VOTE,
    Gathered,
    Invitation,
    Objection,
    Signed,
    bounded,
)
from masquerade.protocols.people.ledger import Claim, Ledger, MemoryLedger

_TAGS = (b"masquerade frequency invitation 1", Gathered.TAG)


class _Open(NamedTuple):
    """A round that this user takes part in, and how far it has come."""

    asked: Invitation
    invitation: bytes
    keys: SingleUse[tuple[Pair, ...]]
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
        checks: RosterChecks | None = None,
        agreed: Iterable[str] = (),
    ) -> None:
        if terms.members.get(name) != identity.public:
            raise InputError(f"{name!r} is not a member of these terms with this identity.")
        self.name, self.terms = name, terms
        self._identity = identity
        kept: Ledger = MemoryLedger() if ledger is None else ledger
        self._history = History(kept, terms, agreed)
        self._checks = RosterChecks() if checks is None else checks
        self._reports = disguised_once(record, terms, name, kept)
        self._round: _Open | None = None
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
            kind, number, payload = self._answer(bounded(message))
        except MasqueradeError as error:
            return self._signed(REFUSAL, number, objection(error).encode())
        reply = self._signed(kind, number, payload)
        self._last = (digest, reply)
        return reply

    def _answer(self, message: bytes) -> tuple[int, int, bytes]:
        if message[4:].startswith(_TAGS[0]):
            return self._post_keys(message)
        gathered = Gathered.decode(message)
        if self._round is None or gathered.number != self._round.asked.number:
            raise InputError("This message belongs to no round that is open here.")
        if gathered.kind == KEYS:
            return self._endorse(self._round, message)
        return self._vote(self._round, message)

    def _post_keys(self, message: bytes) -> tuple[int, int, bytes]:
        asked = Invitation.decode(message, self.terms)
        turn = self._history.turn()
        self._refuse(asked)
        setting = setting_of(self.terms, asked.number, message)
        pairs, payload = make_keys(asked.counts(self.terms), setting, self.name)
        fingerprint = hashlib.sha256(payload).hexdigest()
        keys = SingleUse(pairs, fingerprint, lambda name: self._history.spend(asked, name, turn))
        self._round = _Open(asked, message, keys, payload)
        return KEYS, asked.number, payload

    def _refuse(self, asked: Invitation) -> None:
        refusals = self._history.refusals(asked)
        if self.name not in asked.users:
            refusals.insert(0, Refusal("not_survivors", f"{self.name} is not among the users invited"))
        if refusals:
            raise QueryRefused(refusals)

    def _endorse(self, current: _Open, message: bytes) -> tuple[int, int, bytes]:
        booth = self._checks.booth(self.terms, current.invitation, message)
        own = Signed.decode(Gathered.decode(message).parts[current.asked.users.index(self.name)])
        if own.payload != current.post:
            raise RoundAborted(
                "The roster has other keys for me than I sent.", spent=False, culprits=("miner",)
            )
        roster, number = booth.setting.roster, current.asked.number
        self._history.endorse(number, roster)
        self._round = current._replace(booth=booth)
        return ENDORSEMENT, number, roster

    def _vote(self, current: _Open, message: bytes) -> tuple[int, int, bytes]:
        booth, asked = current.booth, current.asked
        if booth is None:
            raise InputError("The roster comes before its endorsements.")
        self._checks.endorsed(self.terms, asked.users, asked.number, booth.setting.roster, message)
        bits = [bit for question in asked.questions for bit in question.bits(self._reports, self.terms)]
        pairs = current.keys.take()
        return VOTE, asked.number, booth.cast(self.name, pairs, bits)

    def _signed(self, kind: int, number: int, payload: bytes) -> bytes:
        signed = Signed.make(
            self.terms, self._identity, user=self.name, kind=kind, number=number, payload=payload
        )
        return signed.encode()


def disguised_once(record: Mapping[str, int], terms: Terms, name: str, ledger: Ledger) -> dict[str, int]:
    """Return the reports of a record: drawn by the policy, the same ones for the same values ever after."""
    for variable in terms.policy.schema.variables:
        code = record.get(variable.name, -1)
        if not 0 <= code < len(variable):
            raise InputError(f"The record of {name!r} has no category of {variable.name!r}.")
    if not terms.policy.disguised:
        return {variable: int(record[variable]) for variable in terms.policy.schema}
    secret = ledger.find("memo", b"")
    if secret is None:
        secret = secrets.token_bytes(32)
        ledger.claim([Claim("memo", b"", secret)])
    draws = Memo(Path("ledger"), secret).draws(terms.policy.id, pa.array([name]), "user")
    codes = {variable: np.array([record[variable]], dtype=np.uint32) for variable in terms.policy.schema}
    reports = disguise_codes(codes, terms.policy, draws)
    return {variable: int(column[0]) for variable, column in reports.items()}


def objection(error: MasqueradeError) -> Objection:
    """Return what a user says instead of going on; the words of an error never hold a record's values."""
    if isinstance(error, QueryRefused):
        return Objection(error.refusals[0].code, str(error)[:1000])
    if isinstance(error, RoundAborted):
        return Objection("aborted", str(error)[:1000], error.culprits)
    if isinstance(error, KeySpent):
        return Objection("already_spent", str(error)[:1000])
    if isinstance(error, DecodingError):
        return Objection("malformed", str(error)[:1000], ("miner",))
    return Objection("out_of_order", str(error)[:1000])
