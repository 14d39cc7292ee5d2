"""A person's side of a count: ask for what is due, answer by the rules of one's own ledger, until it is over.

Nothing here loads NumPy: a device that takes part needs some thirty megabytes. Killed at any moment, it goes
on with the same file; a round that it was in the middle of then goes on without it, or is void.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from masquerade.core.errors import InputError, MasqueradeError, QueryRefused
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.people.ledger import Claim, Ledger
from masquerade.services.common.problems import PartyUnreachable
from masquerade.services.counting.messages import (
    ASK_LETTER,
    ASK_TERMS,
    MESSAGE,
    NOT_TAKEN,
    OVER,
    CountTerms,
    DeviceReply,
    DeviceRequest,
    Letter,
)
from masquerade.services.counting.person_file import Admission, PersonFile, read_record

SUBMISSION = "count submission"
_NOT_YET = frozenset({"not_enrolled"})


class Participant(Protocol):
    """A person in some protocol: bytes in, bytes out; None where there is nothing to say."""

    def receive(self, message: bytes, /) -> bytes | None:
        """Answer a message of the miner."""


class _Submitter:
    """A respondent of a mix, whose one submission is kept until it has arrived."""

    def __init__(self, respondent: Any, terms: CountTerms, codes: Mapping[str, int], ledger: Ledger) -> None:
        self._respondent, self._terms, self._codes, self._ledger = respondent, terms, codes, ledger

    def receive(self, message: bytes) -> bytes:
        kept = self._ledger.find(SUBMISSION, self._terms.digest)
        if kept is None:
            kept = self._respondent.report(message, self._codes, self._terms.report_form)
            self._ledger.claim([Claim(SUBMISSION, self._terms.digest, kept)])
        return kept


class TakenPart(NamedTuple):
    """What a device did: how many messages it answered, what it refused, and whether the count is over.

    >>> mq.people.TakenPart(answered=3, refused=(), over=True).over
    True
    """

    answered: int
    refused: tuple[str, ...]
    over: bool


def participant(person: PersonFile, terms: CountTerms, codes: Mapping[str, int]) -> Participant:
    """Return a person as the protocol of a count knows them; only what that protocol needs is loaded."""
    agreed: Any = terms.agreed()
    name, key, ledger = person.name, person.identity, person.ledger
    if terms.protocol == "frequency":
        from masquerade.protocols.frequency_mining.roles import User  # noqa: PLC0415

        return User(name, key, codes, agreed, ledger=ledger)
    if terms.protocol == "aggregation":
        from masquerade.protocols.secure_aggregation.user import User as Summed  # noqa: PLC0415

        return Summed(name, key, codes, agreed, ledger=ledger)
    from masquerade.protocols.mixnet.roles import Respondent  # noqa: PLC0415

    return _Submitter(Respondent(name, key, agreed, ledger=ledger), terms, codes, ledger)


class Device:
    """A person who takes part: `run` until the count is over, or `step` by step."""

    def __init__(self, person: PersonFile, admission: Admission, record: Mapping[str, Any]) -> None:
        self.person, self.admission, self._record = person, admission, record
        self.http = admission.client()
        self.answered, self.refused, self.over = 0, list[str](), False
        self._participant: Participant | None = None
        self._last: tuple[bytes, bytes] | None = None
        self._once = False

    def step(self) -> float:
        """Answer what is due, and return how many seconds to wait before asking again."""
        role = self._participant or self._begun()
        if role is None:
            return 1.0
        letter = Letter.decode(self._request(ASK_LETTER))
        if letter.kind == OVER:
            self.over = True
        elif letter.kind == MESSAGE:
            self._answer(role, letter.content, letter.id)
        return letter.pause / 1000

    def _request(self, what: str) -> bytes:
        """Return the miner's answer to a request that this person signed."""
        person, terms = self.person, bytes.fromhex(self.admission.terms)
        request = DeviceRequest.make(what, person.name, terms, person.identity)
        return self.http.exchange(what, request.encode(), once=False)

    def _answer(self, role: Participant, message: bytes, letter: bytes) -> None:
        digest = hashlib.sha256(message).digest()
        if self._last is None or self._last[0] != digest:
            try:
                reply = role.receive(message) or b""
                self.answered += 1
            except (MasqueradeError, KeySpent) as refused:
                self.refused.append(_said(refused))
                reply = b""
            self._last = (digest, reply)
        person, terms = self.person, bytes.fromhex(self.admission.terms)
        sent = DeviceReply.make(person.name, letter, self._last[1], terms, person.identity)
        told = self.http.exchange("replies", sent.encode())
        if self._once and self._last[1]:
            self.over = True
            if told == NOT_TAKEN:
                self.refused.append("The mix was closed before this record came: it was not taken.")

    def _begun(self) -> Participant | None:
        """Return the person's side, once the terms are known; nothing else is sent before."""
        known = self.person.known_terms(self.admission)
        if known is None:
            try:
                known = self._request(ASK_TERMS)
            except QueryRefused as refused:
                if {one.code for one in refused.refusals} <= _NOT_YET:
                    return None
                raise
        terms = self.person.keep_terms(self.admission, known)
        codes = terms.report_form.codes(self._record)
        self.person.fix_record(terms, codes)
        self._once = terms.protocol == "mix"
        self._participant = participant(self.person, terms, codes)
        return self._participant

    def run(self, wait: float | None = None, tell: Callable[[str], object] = lambda _: None) -> TakenPart:
        """Take part until the count is over, or for so many seconds; a miner that is away is waited for."""
        until = None if wait is None else time.monotonic() + wait
        while not self.over:
            told = len(self.refused)
            try:
                pause = self.step()
            except PartyUnreachable as error:
                if until is not None and time.monotonic() >= until:
                    raise
                tell(str(error))
                pause = 1.0
            for line in self.refused[told:]:
                tell(line)
            if self.over or (until is not None and time.monotonic() >= until):
                break
            time.sleep(pause if until is None else max(0.0, min(pause, until - time.monotonic())))
        return TakenPart(self.answered, tuple(self.refused), self.over)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def take_part(
    file: str | Path,
    record: str | Path | Mapping[str, Any],
    *,
    admission: str | Path | None = None,
    count: str | None = None,
    wait: float | None = None,
    tell: Callable[[str], object] | None = None,
) -> TakenPart:
    """Take part in a count with a person's file and record, until it is over or for `wait` seconds.

    `record` is labels by variable, or a JSON file of them. `admission` is the public file of a further count;
    `count` names one where the person's file knows several. What leaves, and that it leaves once, is decided
    by the ledger in the person's file. Example: `docs/howto/count-people.md`.
    """
    values = record if isinstance(record, Mapping) else read_record(record)
    person = PersonFile(file)
    try:
        if admission is not None:
            given = Admission.from_json(Path(admission).read_bytes(), str(admission))
            person.admit(given)
            count = given.count
        device = Device(person, person.admission(count), values)
        with device.http:
            return device.run(wait, tell or (lambda _: None))
    except OSError as error:
        raise InputError(
            f"{error.filename}: cannot be read ({(error.strerror or 'error').lower()})."
        ) from None
    finally:
        person.close()
