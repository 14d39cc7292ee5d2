"""A person's device in a count: fetch messages and answer them as the ledger allows, until the count ends.

This module does not load NumPy: a device needs about thirty megabytes of memory. If the process is killed, it
can be started again with the same file; a round that was in progress continues without the device, or is
void.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit, gamma_above, parse_limit
from masquerade.core.errors import InputError, MasqueradeError, QueryRefused
from masquerade.core.record_gamma import describe_gamma
from masquerade.core.util.formatting import gamma_text
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.people.ledger import Claim, PersonLedger
from masquerade.protocols.people.owner_budget import OwnerBudget
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
    SuppressionCountTerms,
)
from masquerade.services.counting.person_file import Admission, PersonFile, read_record

SUBMISSION = "count submission"
_NOT_YET = frozenset({"not_enrolled"})
_INSTEAD = (
    "To be counted all the same, under the rules for clear records, accept that (--accept-clear); or state a "
    "higher limit (--limit)."
)
_ACCEPT_DISTANCES = "No limit holds for this. To participate all the same, accept it (--accept-clear)."
_WITH_DELTA = "A limit states the δ that you accept like this: --limit 5%:50%,delta=1e-6."


class DeviceRole(Protocol):
    """A person's role in a protocol, which answers messages."""

    def receive(self, message: bytes, /) -> bytes | None:
        """Return the reply to a message of the miner, None if there is none."""


class _Submitter:
    """A respondent of a mix; its submission is stored in the ledger, so that a retry sends it unchanged."""

    def __init__(
        self, respondent: Any, terms: CountTerms, codes: Mapping[str, int], ledger: PersonLedger
    ) -> None:
        self._respondent, self._terms, self._codes, self._ledger = respondent, terms, codes, ledger

    def receive(self, message: bytes) -> bytes:
        kept = self._ledger.find(SUBMISSION, self._terms.digest)
        if kept is None:
            kept = self._respondent.report(message, self._codes, self._terms.report_form)
            self._ledger.claim([Claim(SUBMISSION, self._terms.digest, kept)])
        return kept


class TakenPart(NamedTuple):
    """Result of a device's participation in a count.

    Attributes
    ----------
    answered : int
        Number of messages that the device answered.
    refused : tuple of str
        Reasons for its refusals.
    over : bool
        True if the count is over.

    Examples
    --------
    >>> mq.people.TakenPart(answered=3, refused=(), over=True).over
    True
    """

    answered: int
    refused: tuple[str, ...]
    over: bool


def disclosure(terms: CountTerms, budget: OwnerBudget) -> str:
    """Describe in plain words what participation in a count reveals; variables in clear come first.

    Parameters
    ----------
    terms : CountTerms
        Terms of the count.
    budget : OwnerBudget
        The γ and noise of earlier counts, and the limit of the device's owner.
    """
    form, least, noise = terms.report_form, terms.minimum, terms.noise
    if noise is not None:
        how = (
            "sums of answers that may be redrawn at random, so that nobody knows who answered truly"
            if terms.protocol == "frequency"
            else "sums to which all of them add noise that nobody knows"
        )
        listed = ", ".join(form.clear_variables)
        summed = f"Counted among at least {least} people, and only in {how}: {listed}."
        bound = (
            f"{describe_gamma(gamma_above(noise.privacy[0]))} (ε = {noise.epsilon:g} over {noise.tables} "
            f"tables, except with probability δ = {noise.delta:g}, if at most a share of {terms.colluders} "
            "of the people collude with the miner)"
        )
        lines = [summed, bound]
        if len(budget.noise) > 1 or budget.spent:
            total = budget.total("", Fraction(1))
            lines.append(f"With everything you sent: γ = {gamma_text(total)}, δ = {float(budget.delta):g}.")
        return " ".join(lines)
    if isinstance(terms, SuppressionCountTerms):
        variables = ", ".join(form.clear_variables)
        return (
            f"All {len(terms.members)} people of this table learn by name in how many of {variables} every "
            f"two of them differ, and which values your group of at least {terms.k} people shares. The miner "
            "learns how many in a group agree on a suppressed value. The rest of your row is shown to nobody."
        )
    seen = (
        f"seen without your name, among at least {least} records"
        if terms.protocol == "mix"
        else f"counted among at least {least} people"
    )
    lines = [f"In clear, {seen}: {', '.join(form.clear_variables)}."] if form.clear_variables else []
    if len(form.clear_variables) < len(form.variables):
        lines.append(f"{describe_gamma(form.record_gamma)} (γ = {gamma_text(form.record_gamma)} per person)")
        lines.append(budget.describe(form.id, form.record_gamma))
        if budget.total(form.id, form.record_gamma) > budget.limit.gamma:
            lines.append("This is above your limit: the entire record counts as clear here.")
    return " ".join(line for line in lines if line)


def participant(
    person: PersonFile,
    terms: CountTerms,
    codes: Mapping[str, int],
    limit: PrivacyLimit = DEFAULT_LIMIT,
    *,
    earlier: Sequence[str] = (),
    tell: Callable[[str], object] = lambda _: None,
) -> DeviceRole:
    """Return a person's role in the protocol of a count; only the modules of that protocol are loaded.

    `earlier` are the mixes and suppressions after which the person agrees to another one.
    """
    agreed: Any = terms.protocol_terms(limit=limit)
    name, key, ledger = person.name, person.identity, person.ledger
    if terms.protocol == "frequency":
        from masquerade.protocols.frequency_mining.roles import MiningUser  # noqa: PLC0415

        return MiningUser(name, key, codes, agreed, ledger=ledger)
    if terms.protocol == "aggregation":
        from masquerade.protocols.secure_aggregation.user import AggregationUser as Summed  # noqa: PLC0415

        return Summed(name, key, codes, agreed, ledger=ledger)
    if isinstance(terms, SuppressionCountTerms):
        from masquerade.services.counting.suppression_device import SuppressionDevice  # noqa: PLC0415

        return SuppressionDevice(person, terms, agreed, codes, earlier=earlier, tell=tell)
    from masquerade.protocols.mixnet.roles import Respondent  # noqa: PLC0415

    respondent = Respondent(name, key, agreed, ledger=ledger, agreed=earlier, limit=limit)
    return _Submitter(respondent, terms, codes, ledger)


class Device:
    """The device of a person in a count: `run` it until the count is over, or `step` by step."""

    def __init__(
        self,
        person: PersonFile,
        admission: Admission,
        record: Mapping[str, Any],
        *,
        limit: PrivacyLimit = DEFAULT_LIMIT,
        accept_clear: bool = False,
        earlier: Sequence[str] = (),
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.person, self.admission, self._record = person, admission, record
        self.limit, self._accepts_clear, self._tell = limit, accept_clear, tell
        self._earlier = tuple(earlier)
        self.http = admission.client()
        self.answered, self.refused, self.over = 0, list[str](), False
        self._participant: DeviceRole | None = None
        self._last: tuple[bytes, bytes] | None = None
        self._once = False

    def step(self) -> float:
        """Answer the pending message; return the seconds to wait before the next request."""
        role = self._participant or self._start()
        if role is None:
            return 1.0
        letter = Letter.decode(self._request(ASK_LETTER))
        if letter.kind == OVER:
            self.over = True
        elif letter.kind == MESSAGE:
            self._answer(role, letter.content, letter.id)
        return letter.pause / 1000

    def _request(self, what: str) -> bytes:
        """Return the miner's reply to a request that this person signs."""
        person, terms = self.person, bytes.fromhex(self.admission.terms)
        request = DeviceRequest.make(what, person.name, terms, person.identity)
        return self.http.exchange(what, request.encode(), once=False)

    def _answer(self, role: DeviceRole, message: bytes, letter: bytes) -> None:
        """Send the reply to a message; an equal message gets the same reply again."""
        digest = hashlib.sha256(message).digest()
        if self._last is None or self._last[0] != digest:
            try:
                reply = role.receive(message) or b""
                self.answered += 1
            except (MasqueradeError, KeySpent) as refused:
                self.refused.append(_error_text(refused))
                reply = b""
            self._last = (digest, reply)
        person, terms = self.person, bytes.fromhex(self.admission.terms)
        reply_message = DeviceReply.make(person.name, letter, self._last[1], terms, person.identity)
        receipt = self.http.exchange("replies", reply_message.encode())
        if self._once and self._last[1]:
            self.over = True
            if receipt == NOT_TAKEN:
                self.refused.append("The mix was closed before this record arrived: it was not accepted.")

    def _start(self) -> DeviceRole | None:
        """Return the person's role once the miner has the terms, None until then."""
        encoded = self.person.known_terms(self.admission)
        if encoded is None:
            try:
                encoded = self._request(ASK_TERMS)
            except QueryRefused as refused:
                if {one.code for one in refused.refusals} <= _NOT_YET:
                    return None
                raise
        terms = self.person.keep_terms(self.admission, encoded)
        codes = terms.report_form.codes(self._record)
        self._tell(disclosure(terms, self._budget(terms)))
        self._check_limit(terms)
        self.person.fix_record(terms, codes)
        self._check_limit(terms)  # another process may have started a different count since
        self._once = terms.protocol == "mix"
        left = self._budget().left(terms.report_form.id)
        self._participant = participant(
            self.person, terms, codes, left, earlier=self._earlier, tell=self._tell
        )
        return self._participant

    def _budget(self, terms: CountTerms | None = None) -> OwnerBudget:
        """Return the limit, with the γ and the noise of all started counts and the noise of `terms`."""
        noise = self.person.noise_spent()
        if terms is not None and terms.noise is not None:
            noise[terms.digest.hex()] = terms.noise.privacy
        return OwnerBudget(self.person.gammas_spent(), self.limit, noise)

    def _check_limit(self, terms: CountTerms) -> None:
        """Raise InputError if the total exceeds the limit, unless the person accepts it (`accept_clear`)."""
        if isinstance(terms, SuppressionCountTerms) and not self._accepts_clear:
            raise InputError(f"{disclosure(terms, self._budget(terms))} {_ACCEPT_DISTANCES}")
        if not self._accepts_clear:
            instead = _INSTEAD if terms.noise is None else f"{_INSTEAD} {_WITH_DELTA}"
            self._budget(terms).check(terms.report_form.id, terms.report_form.record_gamma, instead)

    def run(self, wait: float | None = None, tell: Callable[[str], object] = lambda _: None) -> TakenPart:
        """Participate until the count is over or for `wait` seconds; retry while the miner is unreachable."""
        until = None if wait is None else time.monotonic() + wait
        while not self.over:
            reported = len(self.refused)
            try:
                pause = self.step()
            except PartyUnreachable as error:
                if until is not None and time.monotonic() >= until:
                    raise
                tell(str(error))
                pause = 1.0
            for line in self.refused[reported:]:
                tell(line)
            if self.over or (until is not None and time.monotonic() >= until):
                break
            time.sleep(pause if until is None else max(0.0, min(pause, until - time.monotonic())))
        return TakenPart(self.answered, tuple(self.refused), self.over)


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


def take_part(
    file: str | Path,
    record: str | Path | Mapping[str, Any],
    *,
    admission: str | Path | None = None,
    count: str | None = None,
    wait: float | None = None,
    limit: PrivacyLimit | str = DEFAULT_LIMIT,
    accept_clear: bool = False,
    earlier: Sequence[str] = (),
    tell: Callable[[str], object] | None = None,
) -> TakenPart:
    """Participate in a count with a person's file and record.

    The ledger in the person's file determines what may be sent, and ensures that it is sent only once.

    Parameters
    ----------
    file : str or Path
        The person's file, from the enrolment office.
    record : str, Path or mapping
        Labels by variable, or a JSON file of them.
    admission : str or Path, optional
        Public file (`admission.json`) of a count for which the person's file has no admission yet.
    count : str, optional
        Name of the count, if the person's file contains several.
    wait : float, optional
        Largest number of seconds to participate. Without it, until the count is over.
    limit : PrivacyLimit or str, optional
        Limit on what the reports of all counts may reveal. If the terms reveal more, no report is drawn.
    accept_clear : bool
        True to accept terms above the limit; then the protocol's rules for clear records apply. A table of
        suppressed values needs it.
    earlier : sequence of str
        Earlier mixes and tables with this record after which the person agrees to another one.
    tell : callable, optional
        Called with each line for the person.

    Returns
    -------
    TakenPart
        Number of answers, refusals, and whether the count is over.

    Raises
    ------
    InputError
        If a file cannot be read, the record does not match the terms, or they reveal more than `limit`.

    Examples
    --------
    >>> mq.people.take_part("P00001.person", {"smoker": "no", "illness": "none"})  # doctest: +SKIP
    """
    values, most = record if isinstance(record, Mapping) else read_record(record), parse_limit(limit)
    person = PersonFile(file)
    try:
        if admission is not None:
            further = Admission.from_json(Path(admission).read_bytes(), str(admission))
            person.admit(further)
            count = further.count
        show = tell or (lambda _: None)
        chosen = person.admission(count)
        device = Device(
            person, chosen, values, limit=most, accept_clear=accept_clear, earlier=earlier, tell=show
        )
        with device.http:
            return device.run(wait, show)
    except OSError as error:
        raise InputError(
            f"{error.filename}: cannot be read ({(error.strerror or 'error').lower()})."
        ) from None
    finally:
        person.close()
