"""One person's report under one policy: drawn once, stored in one file, sent until it is acknowledged.

The file is written before anything is sent. It contains the report, never the answers: a reader of the file
learns no more about the answers than the collector does. Even if the process is killed, the same report is
sent under the same id, and a second report is never drawn.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit, parse_limit
from masquerade.core.errors import FileError, InputError
from masquerade.core.record_gamma import Gamma
from masquerade.core.util.atomic import write_new, write_whole
from masquerade.core.util.json_text import parse_json, read_json
from masquerade.core.util.private_file import read_private
from masquerade.crypto.errors import DecodingError, ProofRejected
from masquerade.protocols.people.owner_budget import OwnerBudget
from masquerade.services.common.device_client import DeviceClient
from masquerade.services.common.problems import NotFound
from masquerade.survey.device.terms import AGREED, DeviceTerms

FORMAT: Final = 1
CODE_SIZE: Final = 10
SPENT: Final = ".spent"  # suffix of files with the γ of a draw, one per policy and collector
MOST_ROW: Final = 1 << 20
STATES: Final = ("drawn", "sent", "withdrawn")


@dataclass(frozen=True)
class Record:
    """The file of a device: the report, the withdrawal code that determines its id, and its state."""

    masquerade_gather_record: int
    policy: str
    collector: str
    code: str
    reports: tuple[int, ...]
    state: str = "drawn"
    invitation: str | None = None
    token_input: str | None = None
    blind: str | None = None
    token: str | None = None

    @property
    def text(self) -> str:
        """Return the record as it is written."""
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"

    @classmethod
    def load(cls, path: Path) -> Record | None:
        """Return the record in a file, None if there is no file."""
        try:
            content = read_private(path, "the record of a report")
        except FileNotFoundError:
            return None
        try:
            return cls._read(parse_json(content))
        except (InputError, TypeError):
            raise FileError(
                f"{path}: is not a valid record of a report. If it was one, its report may have been sent: "
                "no other report is drawn while this file exists."
            ) from None

    @classmethod
    def _read(cls, values: Any) -> Record:
        if not isinstance(values, dict) or set(values) != {field.name for field in fields(cls)}:
            raise InputError("It has missing or unknown keys.")
        record = cls(**(values | {"reports": tuple(values["reports"])}))
        if record.masquerade_gather_record != FORMAT or record.state not in STATES:
            raise InputError("It has an unknown version or state.")
        return record


class Participation:
    """One person's report under published terms: `draw` it, then `send` it.

    Both can be repeated safely: only one report is drawn, and it is counted once.

    Parameters
    ----------
    terms : DeviceTerms
        Published terms.
    record : str or Path, optional
        File of the report. By default one file per policy in the user's state folder.

    Raises
    ------
    InputError
        If the file belongs to other terms.
    FileError
        If the file is not a valid record.

    Examples
    --------
    >>> part = mq.people.Participation(mq.people.DeviceTerms.load("terms.json"))  # doctest: +SKIP
    >>> part.draw({"pills": "no", "nights": "some"})  # doctest: +SKIP
    True
    >>> part.send()  # doctest: +SKIP
    True
    """

    def __init__(self, terms: DeviceTerms, record: str | Path | None = None) -> None:
        self.terms = terms
        self.path = default_record(terms) if record is None else Path(record)
        self._record = Record.load(self.path)
        self._check_terms()

    @property
    def state(self) -> str | None:
        """Return "drawn", "sent" or "withdrawn"; None before anything was drawn."""
        return None if self._record is None else self._record.state

    def draw(
        self,
        row: Mapping[str, object],
        *,
        limit: PrivacyLimit | str = DEFAULT_LIMIT,
        clear: Collection[str] = (),
    ) -> bool:
        """Draw the report of a row and store it.

        Parameters
        ----------
        row : mapping of str to object
            A label for each variable.
        limit : PrivacyLimit or str, optional
            Limit on what all reports together may reveal about the row, given the variables in clear:
            "5%:50%", "gamma=19" or "epsilon=2.9". Reports that were drawn in the same folder under other
            terms count too.
        clear : collection of str, optional
            The variables that the owner of the row accepts to send in clear.

        Returns
        -------
        bool
            False if a report was drawn before, which is kept.

        Raises
        ------
        InputError
            If the row does not match the terms, or they reveal more than the owner accepts. Nothing is drawn
            then.
        """
        if self._record is not None:
            return False
        codes = self.terms.codes(row)
        refused = [name for name in self.terms.clear_variables if name not in clear]
        if refused:
            raise InputError(
                f"Nothing was drawn: these terms send {', '.join(refused)} in clear. To accept that, name "
                f"them (--clear {','.join(refused)})."
            )
        self._spend(parse_limit(limit))
        terms, code = self.terms, secrets.token_hex(CODE_SIZE)
        record = Record(FORMAT, terms.policy, terms.collector, code, terms.mechanism.draw(codes))
        try:
            write_new(self.path, record.text, what="a report that was drawn")
        except FileError:
            self._record = Record.load(self.path)  # another process was first: its report is used
            if self._record is None:
                raise
            self._check_terms()
            return False
        self._record = record
        return True

    def disclosure(self, limit: PrivacyLimit | str = DEFAULT_LIMIT) -> str:
        """Describe in plain words what is revealed by this report, and by all reports of this device."""
        budget = OwnerBudget(self._gammas_spent(), parse_limit(limit))
        together = budget.describe(self._draw_name, self.terms.record_gamma)
        return f"{self.terms.disclosure()} {together}".strip()

    @property
    def _draw_name(self) -> str:
        """Return the name of this draw, made of the policy and the collector that receives the report."""
        return hashlib.sha256(f"{self.terms.policy} {self.terms.collector}".encode()).hexdigest()[:32]

    def _gammas_spent(self) -> dict[str, Gamma]:
        """Return γ of what was drawn in this folder, by draw; an unreadable file counts as unbounded."""
        spent: dict[str, Gamma] = {}
        for file in self.path.parent.glob(f"*{SPENT}"):
            text = read_private(file, "the γ of a report").decode("ascii", "replace").strip()
            number = re.fullmatch(r"([0-9]{1,1000})/([1-9][0-9]{0,999})", text)
            spent[file.stem] = Fraction(int(number[1]), int(number[2])) if number else math.inf
        return spent

    def _spend(self, limit: PrivacyLimit) -> None:
        """Store the γ of a draw before drawing; raise InputError if it exceeds the limit."""
        gamma, name = self.terms.record_gamma, self._draw_name
        instead = "To accept that, state a higher limit (--limit)."
        OwnerBudget(self._gammas_spent(), limit).check(name, gamma, instead)
        file = self.path.parent / f"{name}{SPENT}"
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.exists():
            return
        stated = f"{gamma.numerator}/{gamma.denominator}" if isinstance(gamma, Fraction) else "inf"
        with suppress(FileError):  # another process stored the same draw
            write_new(file, stated + "\n", what="the γ of a report")
        try:  # another process may have stored a different draw since
            OwnerBudget(self._gammas_spent(), limit).check(name, gamma, instead)
        except InputError:
            file.unlink(missing_ok=True)
            raise

    def use(self, invitation: str) -> None:
        """Use an invitation for the report, unless it has a token already.

        Parameters
        ----------
        invitation : str
            Link or code of an invitation.

        Raises
        ------
        InputError
            If the survey has no invitations, or this is not a link or a code of one.
        """
        if self.terms.issuer is None:
            raise InputError("Anyone can participate in this survey: omit the invitation.")
        code = invitation.strip().rpartition("#")[2]
        if not re.fullmatch(r"[A-Za-z0-9_~-]{1,100}", code):
            raise InputError("The invitation is not a link or a code of a collector.")
        record = self._require_record()
        if record.state == "drawn" and record.token is None and record.invitation != code:
            from masquerade.crypto import oprf  # noqa: PLC0415  (loads a curve, for invited people only)
            from masquerade.crypto.ristretto255 import ristretto255  # noqa: PLC0415

            hidden = oprf.blind(secrets.token_bytes(32))
            number = ristretto255.encode_scalar(hidden.blind.reveal())
            self._keep(invitation=code, token_input=hidden.value.hex(), blind=number.hex())

    def send(self, *, timeout: float = 30.0, patience: float = 60.0) -> bool:
        """Send the report, and retry until the collector acknowledges it.

        Parameters
        ----------
        timeout : float
            Seconds to wait for one reply.
        patience : float
            Seconds after which to stop retrying.

        Returns
        -------
        bool
            False if the report was sent or withdrawn before.

        Raises
        ------
        InputError
            If no report was drawn, or an invitation is missing.
        PartyUnreachable
            If the collector does not answer. Call this again later.
        """
        if self._require_record().state != "drawn":
            return False
        with self._client(timeout, patience) as client:
            if self.terms.issuer is not None and self._require_record().token is None:
                self._request_token(client)
            record = self._require_record()
            client.post("reports", self._pad({
                "policy": record.policy,
                "id": report_id(bytes.fromhex(record.code)),
                "mode": 0,
                "reports": list(record.reports),
                "token": record.token,
                **({} if self.terms.agreed is None else {AGREED: self.terms.agreed}),
            }))  # fmt: skip
        self._keep(state="sent", invitation=None, token_input=None, blind=None, token=None)
        return True

    def withdraw(self, *, timeout: float = 30.0, patience: float = 60.0) -> bool:
        """Withdraw the report: ask the collector to delete it. No other report is ever drawn.

        Parameters
        ----------
        timeout : float
            Seconds to wait for one reply.
        patience : float
            Seconds after which to stop retrying.

        Returns
        -------
        bool
            False if the collector has no such report.

        Raises
        ------
        PartyUnreachable
            If the collector does not answer. A report that was not sent yet is withdrawn nevertheless.
        """
        record = self._require_record()
        if record.state == "drawn":  # even without a connection: from now on it is never sent
            self._keep(state="withdrawn", invitation=None, token_input=None, blind=None, token=None)
        with self._client(timeout, patience) as client:
            try:
                client.post("withdraw", self._pad({"code": record.code}))
                deleted = True
            except NotFound:
                deleted = False
        self._keep(state="withdrawn")
        return deleted

    def _request_token(self, client: DeviceClient) -> None:
        """Exchange the invitation for a blind token, which its signer cannot link to the invitation later."""
        from masquerade.crypto import oprf  # noqa: PLC0415  (loads a curve, for invited people only)
        from masquerade.crypto.ristretto255 import ristretto255  # noqa: PLC0415

        record = self._require_record()
        if record.invitation is None:
            raise InputError(
                "Only invited people can participate: give the invitation that you received (--invitation)."
            )
        value = bytes.fromhex(record.token_input or "")
        hidden = oprf.blind_again(value, bytes.fromhex(record.blind or ""))
        request = {"invitation": record.invitation, "blinded": hidden.element.encode().hex()}
        reply = client.post("token", self._pad(request))
        try:
            values = parse_json(reply)
            evaluated = ristretto255.decode(bytes.fromhex(values["evaluated"]))
            proof = bytes.fromhex(values["proof"])
        except (InputError, DecodingError, KeyError, TypeError, ValueError):
            raise ProofRejected("The collector's reply is not a signed token. No report was sent.") from None
        public = ristretto255.decode(self.terms.issuer or b"")
        oprf.verify(public, [hidden.element], [evaluated], proof)
        output = oprf.output_of(value, oprf.unblind(hidden, evaluated).encode())
        self._keep(token=(value + output).hex(), invitation=None, token_input=None, blind=None)

    def _client(self, timeout: float, patience: float) -> DeviceClient:
        terms = self.terms
        return DeviceClient(terms.collector, authority=terms.authority, timeout=timeout, patience=patience)

    def _pad(self, values: Mapping[str, Any]) -> bytes:
        """Encode a message, padded to the length of all messages under these terms."""
        body = json.dumps(values, separators=(",", ":")).encode()
        if len(body) > self.terms.size:
            raise InputError("The message length in the terms is too short for this message.")
        return body.ljust(self.terms.size)

    def _require_record(self) -> Record:
        if self._record is None:
            raise InputError("No report was drawn: draw it first.")
        return self._record

    def _keep(self, **changes: Any) -> None:
        record = replace(self._require_record(), **changes)
        write_whole(self.path, record.text, private=True)
        self._record = record

    def _check_terms(self) -> None:
        record = self._record
        if record is not None and (record.policy, record.collector) != (
            self.terms.policy,
            self.terms.collector,
        ):
            raise InputError(
                f"{self.path}: contains a report under another policy, or for another collector. Each needs "
                "its own file."
            )


def report(
    terms: str | Path,
    row: Mapping[str, object],
    *,
    record: str | Path | None = None,
    invitation: str | None = None,
    limit: PrivacyLimit | str = DEFAULT_LIMIT,
    clear: Collection[str] = (),
    patience: float = 60.0,
) -> bool:
    """Draw the report of a row on this device, store it, and send it once.

    Call it again after any failure: nothing is drawn twice under a policy, and nothing is counted twice.

    Parameters
    ----------
    terms : str or Path
        File of published terms.
    row : mapping of str to object
        A label for each variable.
    record : str or Path, optional
        File of the report. By default one file per policy in the user's state folder.
    invitation : str, optional
        Link or code of an invitation, if the survey has invitations.
    limit : PrivacyLimit or str, optional
        Limit on what the report may reveal about the row, 5%:50% by default.
    clear : collection of str, optional
        Variables that may be sent in clear.
    patience : float
        Seconds after which to stop retrying.

    Returns
    -------
    bool
        False if the report was sent before.

    Raises
    ------
    InputError
        If the row does not match the terms, or they reveal more than the owner accepts. Nothing is drawn.
    PartyUnreachable
        If the collector does not answer. Call this again later.

    Examples
    --------
    >>> mq.people.report("terms.json", {"pills": "no", "nights": "some"})  # doctest: +SKIP
    True
    """
    part = Participation(DeviceTerms.load(terms), record)
    part.draw(row, limit=limit, clear=clear)
    if invitation is not None:
        part.use(invitation)
    return part.send(patience=patience)


def report_id(code: bytes) -> str:
    """Return the id of the report that a withdrawal code belongs to, as collectors compute it."""
    return hashlib.sha256(b"masquerade withdrawal" + code).hexdigest()[:32]


def default_record(terms: DeviceTerms) -> Path:
    """Return the path of the file of a report; it depends on the policy only, so there is one per policy."""
    base = os.environ.get("XDG_STATE_HOME")
    folder = Path(base) if base else Path.home() / ".local" / "state"
    return folder / "masquerade" / "gather" / f"{terms.policy}.record"


def read_row(path: str | Path) -> dict[str, object]:
    """Read a row from a JSON file: an object of labels by variable."""
    row = read_json(Path(path), most=MOST_ROW)
    if not isinstance(row, dict):
        raise FileError(f"{path}: must be one JSON object with a label for each variable.")
    return row
