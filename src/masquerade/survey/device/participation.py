"""One person's part under one policy: drawn once, kept in one file, sent until it is acknowledged.

The file is written before anything leaves, and says what was drawn, never what was answered: whoever has it
learns no more of the answer than the collector does. Whatever is killed when, the same report goes under the
same id, and no other is ever drawn.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_new, write_whole
from masquerade.core.util.json_text import parse_json, read_json
from masquerade.core.util.private_file import read_private
from masquerade.crypto.errors import DecodingError, ProofRejected
from masquerade.services.common.device_client import DeviceClient
from masquerade.services.common.problems import NotFound
from masquerade.survey.device.terms import Terms

FORMAT: Final = 1
CODE_SIZE: Final = 10
MOST_ROW: Final = 1 << 20
STATES: Final = ("drawn", "sent", "withdrawn")


@dataclass(frozen=True)
class Record:
    """What a device keeps: the drawn report, the code that its id follows from, and how far it is."""

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
                f"{path}: is no record of a report. If it was one, its report may have left: nothing is "
                "drawn again while the file is there."
            ) from None

    @classmethod
    def _read(cls, values: Any) -> Record:
        if not isinstance(values, dict) or set(values) != {field.name for field in fields(cls)}:
            raise InputError("It has other parts than a record.")
        record = cls(**(values | {"reports": tuple(values["reports"])}))
        if record.masquerade_gather_record != FORMAT or record.state not in STATES:
            raise InputError("It is of another version.")
        return record


class Participation:
    """A person's report under terms: `draw` it, `send` it; each may be repeated, and does nothing twice.

    Example: `docs/howto/gather-from-devices.md`.
    """

    def __init__(self, terms: Terms, record: str | Path | None = None) -> None:
        self.terms = terms
        self.path = default_record(terms) if record is None else Path(record)
        self._record = Record.load(self.path)
        self._check_ours()

    @property
    def state(self) -> str | None:
        """Return "drawn", "sent" or "withdrawn"; None before anything was drawn."""
        return None if self._record is None else self._record.state

    def draw(self, row: Mapping[str, object], *, most_gamma: float | None = None) -> bool:
        """Draw the report of a row and keep it; False if one was drawn before, which stays.

        With `most_gamma`, nothing is drawn if a report could shift the odds about a variable by more.
        """
        if self._record is not None:
            return False
        codes = self.terms.codes(row)
        beyond = [name for name, gamma in self.terms.gammas.items() if most_gamma and gamma > most_gamma]
        if beyond:
            raise InputError(
                f"These terms give away more than γ = {most_gamma:g} of {', '.join(beyond)}: none was drawn."
            )
        terms, code = self.terms, secrets.token_hex(CODE_SIZE)
        made = Record(FORMAT, terms.policy, terms.collector, code, terms.mechanism.draw(codes))
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            write_new(self.path, made.text, what="a report that was drawn")
        except FileError:
            self._record = Record.load(self.path)  # another process was first: its report is the one
            if self._record is None:
                raise
            self._check_ours()
            return False
        self._record = made
        return True

    def use(self, invitation: str) -> None:
        """Let the report go with this invitation, a link or its code, unless it has a token already."""
        if self.terms.issuer is None:
            raise InputError("Anybody may take part: leave the invitation out.")
        code = invitation.strip().rpartition("#")[2]
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", code):
            raise InputError("The invitation is no link or code of a collector.")
        record = self._kept()
        if record.state == "drawn" and record.token is None and record.invitation != code:
            from masquerade.crypto import oprf  # noqa: PLC0415  (loads a curve, for invited people alone)
            from masquerade.crypto.ristretto255 import ristretto255  # noqa: PLC0415

            hidden = oprf.blind(secrets.token_bytes(32))
            number = ristretto255.encode_scalar(hidden.blind.reveal())
            self._keep(invitation=code, token_input=hidden.value.hex(), blind=number.hex())

    def send(self, *, timeout: float = 30.0, patience: float = 60.0) -> bool:
        """Send the report until the collector has it; False if it had been sent before."""
        if self._kept().state != "drawn":
            return False
        with self._client(timeout, patience) as client:
            if self.terms.issuer is not None and self._kept().token is None:
                self._ask_token(client)
            record = self._kept()
            client.post("reports", self._padded({
                "policy": record.policy,
                "id": report_id(bytes.fromhex(record.code)),
                "mode": 0,
                "reports": list(record.reports),
                "token": record.token,
            }))  # fmt: skip
        self._keep(state="sent", invitation=None, token_input=None, blind=None, token=None)
        return True

    def withdraw(self, *, timeout: float = 30.0, patience: float = 60.0) -> bool:
        """Have the collector delete the report; False if it has none of this code. None is drawn again."""
        record = self._kept()
        with self._client(timeout, patience) as client:
            try:
                client.post("withdraw", self._padded({"code": record.code}))
                found = True
            except NotFound:
                found = False
        self._keep(state="withdrawn")
        return found

    def _ask_token(self, client: DeviceClient) -> None:
        """Exchange the invitation for a token; who signs it cannot tell later whose it was."""
        from masquerade.crypto import oprf  # noqa: PLC0415  (loads a curve, for invited people alone)
        from masquerade.crypto.ristretto255 import ristretto255  # noqa: PLC0415

        record = self._kept()
        if record.invitation is None:
            raise InputError(
                "Only invited people may take part: give the invitation that you were sent (--invitation)."
            )
        value = bytes.fromhex(record.token_input or "")
        hidden = oprf.blind_again(value, bytes.fromhex(record.blind or ""))
        asked = {"invitation": record.invitation, "blinded": hidden.element.encode().hex()}
        reply = client.post("token", self._padded(asked))
        try:
            values = parse_json(reply)
            evaluated = ristretto255.decode(bytes.fromhex(values["evaluated"]))
            proof = bytes.fromhex(values["proof"])
        except (InputError, DecodingError, KeyError, TypeError, ValueError):
            raise ProofRejected(
                "The collector answered with something that is no signed token. No report was sent."
            ) from None
        public = ristretto255.decode(self.terms.issuer or b"")
        oprf.verify(public, [hidden.element], [evaluated], proof)
        output = oprf.output_of(value, oprf.unblind(hidden, evaluated).encode())
        self._keep(token=(value + output).hex(), invitation=None, token_input=None, blind=None)

    def _client(self, timeout: float, patience: float) -> DeviceClient:
        terms = self.terms
        return DeviceClient(terms.collector, authority=terms.authority, timeout=timeout, patience=patience)

    def _padded(self, values: Mapping[str, Any]) -> bytes:
        """Return a message; all of these terms have one length, whatever is in them."""
        body = json.dumps(values, separators=(",", ":")).encode()
        if len(body) > self.terms.size:
            raise InputError("The terms name a length of messages that is too short for them.")
        return body.ljust(self.terms.size)

    def _kept(self) -> Record:
        if self._record is None:
            raise InputError("No report was drawn: draw it first.")
        return self._record

    def _keep(self, **changes: Any) -> None:
        record = replace(self._kept(), **changes)
        write_whole(self.path, record.text, private=True)
        self._record = record

    def _check_ours(self) -> None:
        record = self._record
        if record is not None and (record.policy, record.collector) != (
            self.terms.policy,
            self.terms.collector,
        ):
            raise InputError(
                f"{self.path}: holds a report under another policy, or for another collector: each has a "
                "file of its own."
            )


def report(
    terms: str | Path,
    row: Mapping[str, object],
    *,
    record: str | Path | None = None,
    invitation: str | None = None,
    most_gamma: float | None = None,
    patience: float = 60.0,
) -> bool:
    """Take part under published terms: draw the report of a row on this device, keep it, and send it once.

    False if it had been sent before. Repeat it after whatever went wrong: nothing is drawn twice under a
    policy, and nothing counted twice. `record` is the device's file, by default one a policy in the user's
    state; `most_gamma` the most that a report may shift the odds about a variable. Example:
    `docs/howto/gather-from-devices.md`.
    """
    part = Participation(Terms.load(terms), record)
    part.draw(row, most_gamma=most_gamma)
    if invitation is not None:
        part.use(invitation)
    return part.send(patience=patience)


def report_id(code: bytes) -> str:
    """Return the id of the report that a withdrawal code belongs to, as collectors compute it."""
    return hashlib.sha256(b"masquerade withdrawal" + code).hexdigest()[:32]


def default_record(terms: Terms) -> Path:
    """Return where a device keeps its report under a policy, whoever asks: one file, however often asked."""
    base = os.environ.get("XDG_STATE_HOME")
    folder = Path(base) if base else Path.home() / ".local" / "state"
    return folder / "masquerade" / "gather" / f"{terms.policy}.record"


def read_row(path: str | Path) -> dict[str, object]:
    """Return the row in a JSON file: an object of labels by variable."""
    row = read_json(Path(path), most=MOST_ROW)
    if not isinstance(row, dict):
        raise FileError(f"{path}: must be one JSON object, a label for each variable.")
    return row
