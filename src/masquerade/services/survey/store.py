"""What a collector keeps: reports in one file, invitations in another, and nothing that joins them.

Rows lie in the order of random ids, not of arrival; of times only the day is kept. Reports are written in
groups: all that arrive while one write is under way go into the next, and each is acknowledged when it is on
the disk.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import queue
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError, InputError
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.durable_store import DurableStore, Layout
from masquerade.services.common.problems import Ended

REPORTS: Final = Layout(
    "the reports of a survey",
    "the reports",
    b"mqsv",
    "CREATE TABLE reports (id BLOB PRIMARY KEY, policy TEXT NOT NULL, mode INTEGER NOT NULL, "
    "day TEXT NOT NULL, codes TEXT NOT NULL) WITHOUT ROWID;\n"
    "CREATE TABLE spent (token BLOB PRIMARY KEY, id BLOB NOT NULL) WITHOUT ROWID;\n"
    "CREATE TABLE withdrawn (id BLOB PRIMARY KEY) WITHOUT ROWID;\n"
    "CREATE TABLE versions (policy TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;\n"
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;\n",
)
INVITATIONS: Final = Layout(
    "the invitations of a survey",
    "the invitations",
    b"mqsi",
    "CREATE TABLE invitations (digest BLOB PRIMARY KEY, blinded BLOB) WITHOUT ROWID;\n",
)
MODES: Final = ("device", "spinner", "dice", "birthday")
MOST_IN_GROUP: Final = 1000
_USED: Final = "This invitation was used already."


@dataclass(frozen=True)
class Report:
    """What a page sent: codes in the order of the policy's columns, under an id that it drew at random."""

    id: bytes
    policy: str
    mode: int
    codes: tuple[int, ...]
    token: bytes | None = None

    @property
    def text(self) -> str:
        """Return the codes as they are kept."""
        return json.dumps(self.codes, separators=(",", ":"))


class SurveyStore:
    """The files of one survey; `close` them, or use them in a with statement."""

    def __init__(self, folder: str | Path) -> None:
        place = Path(folder)
        if not place.is_dir():
            place.mkdir(mode=0o700, parents=True)
        self._reports = DurableStore(place / "reports.sqlite", REPORTS)
        try:
            self._invitations = DurableStore(place / "invitations.sqlite", INVITATIONS)
        except BaseException:
            self._reports.close()
            raise
        self._waiting: queue.SimpleQueue[tuple[Report, Future[bool]] | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._starting = threading.Lock()

    def close(self) -> None:
        """Write what waits, and let go of the files."""
        if self._writer is not None:
            self._waiting.put(None)
            self._writer.join()
        self._reports.close()
        self._invitations.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # versions and times

    def register(self, policy: Policy) -> None:
        """Take reports under this policy, too: a survey that was amended has a version more."""
        content = json.dumps(policy.to_dict())
        with self._reports.transaction():
            self._reports.run("INSERT OR IGNORE INTO versions VALUES (?, ?)", (policy.id, content))

    def versions(self) -> dict[str, Policy]:
        """Return the policies that reports came under, by id."""
        rows = self._reports.run("SELECT policy, content FROM versions ORDER BY policy")
        return {str(name): Policy.from_dict(json.loads(content)) for name, content in rows}

    def end(self) -> None:
        """Take nothing more, for good: no report, no token, and no withdrawal."""
        with self._reports.transaction():
            self._reports.run("INSERT OR IGNORE INTO facts VALUES ('closed', ?)", (today(),))
        self._reports.empty_log()
        self._invitations.empty_log()

    @property
    def closed(self) -> str | None:
        """Return the day on which the survey was closed, None while it is open."""
        found = self._reports.value("SELECT value FROM facts WHERE name = 'closed'")
        return None if found is None else str(found)

    # reports

    def add(self, report: Report) -> bool:
        """Keep a report; it is on the disk when this returns. False: it had been kept before.

        `KeySpent` where its token, or its id, came with another report; `Ended` after the survey was closed.
        """
        return self.submit(report).result()

    def submit(self, report: Report) -> Future[bool]:
        """Keep a report with others that come meanwhile, as `add` does; the result comes when it is kept."""
        done: Future[bool] = Future()
        with self._starting:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="survey writer", daemon=True)
                self._writer.start()
        self._waiting.put((report, done))
        return done

    def _write(self) -> None:
        """Write groups of reports until told to end."""
        ending = False
        while not ending:
            group = [self._waiting.get()]
            while len(group) < MOST_IN_GROUP and not self._waiting.empty():
                group.append(self._waiting.get())
            ending = None in group
            self._write_group([entry for entry in group if entry is not None])

    def _write_group(self, group: Sequence[tuple[Report, Future[bool]]]) -> None:
        outcomes: list[bool | Exception] = []
        try:
            with self._reports.transaction():
                closed = self.closed
                outcomes = [
                    Ended("The survey is closed.") if closed else self._kept(report) for report, _ in group
                ]
        except FileError as error:
            outcomes = [error] * len(group)
        except Exception as error:  # noqa: BLE001  (whoever waits is told, and the writer goes on)
            outcomes = [error] * len(group)
        for (_, done), outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Exception):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)

    def _kept(self, report: Report) -> bool | Exception:
        """Insert one report within the transaction that is open, or say why not."""
        run = self._reports.run
        if report.token is not None:
            [*before] = run("SELECT id FROM spent WHERE token = ?", (report.token,))
            if before and bytes(before[0][0]) != report.id:
                return KeySpent(_USED)
        if run("SELECT 1 FROM withdrawn WHERE id = ?", (report.id,)):
            return False
        found = run("SELECT policy, mode, codes FROM reports WHERE id = ?", (report.id,))
        if found:
            same = tuple(found[0]) == (report.policy, report.mode, report.text)
            return False if same else KeySpent("Another report came under this id.")
        row = (report.id, report.policy, report.mode, today(), report.text)
        run("INSERT INTO reports VALUES (?, ?, ?, ?, ?)", row)
        if report.token is not None:
            run("INSERT OR IGNORE INTO spent VALUES (?, ?)", (report.token, report.id))
        return True

    def withdraw(self, secret: bytes) -> bool:
        """Delete the report of a withdrawal code; tell whether there was one. It never comes back."""
        name = report_id(secret)
        with self._reports.transaction():
            if self.closed:
                raise Ended("The survey is closed: reports can no longer be withdrawn.")
            there = bool(self._reports.run("SELECT 1 FROM reports WHERE id = ?", (name,)))
            if there:
                self._reports.run("DELETE FROM reports WHERE id = ?", (name,))
                self._reports.run("INSERT OR IGNORE INTO withdrawn VALUES (?)", (name,))
        self._reports.empty_log()
        return there

    def erase(self) -> int:
        """Delete every report, token and invitation: the end of the time for which they may be kept."""
        with self._reports.transaction():
            number = int(self._reports.value("SELECT count(*) FROM reports"))
            for table in ("reports", "spent", "withdrawn"):
                self._reports.run(f"DELETE FROM {table}")  # noqa: S608  (our own names)
        with self._invitations.transaction():
            self._invitations.run("DELETE FROM invitations")
        self._reports.empty_log()
        self._invitations.empty_log()
        return number

    def reports(self) -> Iterator[tuple[str, int, str, tuple[int, ...]]]:
        """Yield policy, mode, day and codes of every report, in the order of their random ids."""
        for policy, mode, day, codes in self._reports.run(
            "SELECT policy, mode, day, codes FROM reports ORDER BY id"
        ):
            yield str(policy), int(mode), str(day), tuple(json.loads(codes))

    def counts(self) -> dict[str, Any]:
        """Return how many reports there are, by version, mode and day."""

        def grouped(column: str) -> dict[str, int]:
            rows = self._reports.run(f"SELECT {column}, count(*) FROM reports GROUP BY {column}")  # noqa: S608
            return {str(name): int(number) for name, number in rows}

        return {
            "reports": int(self._reports.value("SELECT count(*) FROM reports")),
            "withdrawn": int(self._reports.value("SELECT count(*) FROM withdrawn")),
            "versions": grouped("policy"),
            "modes": {MODES[int(mode)]: number for mode, number in grouped("mode").items()},
            "days": grouped("day"),
            "closed": self.closed,
            **self.invited(),
        }

    # invitations

    def invite(self, number: int) -> list[str]:
        """Make so many new invitations and return their codes; of each only a digest is kept."""
        if not 1 <= number <= 1_000_000:
            raise InputError("Make from 1 to 1,000,000 invitations at once.")
        codes = [secrets.token_urlsafe(18) for _ in range(number)]
        with self._invitations.transaction():
            rows = [(hashlib.sha256(code.encode()).digest(),) for code in codes]
            self._invitations.run_all("INSERT INTO invitations VALUES (?, NULL)", rows)
        return codes

    def exchange(self, code: str, blinded: bytes) -> None:
        """Let an invitation be exchanged for a token, once; for the same element as often as asked."""
        name = hashlib.sha256(code.encode()).digest()
        if self.closed:
            raise Ended("The survey is closed.")
        with self._invitations.transaction():
            found = self._invitations.run("SELECT blinded FROM invitations WHERE digest = ?", (name,))
            if not found:
                raise InputError("This is no invitation to this survey.")
            before = found[0][0]
            if before is not None and bytes(before) != blinded:
                raise KeySpent(_USED)
            if before is None:
                self._invitations.run("UPDATE invitations SET blinded = ? WHERE digest = ?", (blinded, name))

    def invited(self) -> Mapping[str, int]:
        """Return how many were invited, and how many of them asked for a token."""
        run = self._invitations.value
        return {
            "invited": int(run("SELECT count(*) FROM invitations")),
            "begun": int(run("SELECT count(*) FROM invitations WHERE blinded IS NOT NULL")),
        }


def report_id(secret: bytes) -> bytes:
    """Return the id of the report that a withdrawal code belongs to."""
    return hashlib.sha256(b"masquerade withdrawal" + secret).digest()[:16]


def today() -> str:
    """Return the day, in UTC: all that is kept of when something came."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()
