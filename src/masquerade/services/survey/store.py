"""What a collector keeps: reports in one place, invitations in another, and nothing that joins them.

Two files of SQLite, or tables of PostgreSQL. Rows lie in the order of random ids, not of arrival, and say of
their transaction no more than that of many others; of times only the day is kept. Reports are written in
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError, InputError
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.durable_store import DurableStore, Layout
from masquerade.services.common.problems import Ended
from masquerade.services.survey.postgres_tables import PostgresTables
from masquerade.services.survey.quotas import Quota, QuotaCounts
from masquerade.services.survey.report_counts import Key, ReportCounts

REPORT_TABLES: Final = {
    "reports": "id BYTEA PRIMARY KEY, policy TEXT NOT NULL, mode INTEGER NOT NULL, day TEXT NOT NULL, "
    "codes TEXT NOT NULL",
    "spent": "token BYTEA PRIMARY KEY, id BYTEA NOT NULL",
    "withdrawn": "id BYTEA PRIMARY KEY",
    "versions": "policy TEXT PRIMARY KEY, content TEXT NOT NULL",
    "facts": "name TEXT PRIMARY KEY, value TEXT NOT NULL",
}
INVITATION_TABLES: Final = {
    "invitations": "digest BYTEA PRIMARY KEY",
    "exchanged": "digest BYTEA PRIMARY KEY, blinded BYTEA NOT NULL",
}
POOLED: Final = ("reports", "spent", "withdrawn", "exchanged")  # tables that grow one by one


def _in_file(tables: Mapping[str, str]) -> str:
    """Return the tables of a file: without numbers of rows they lie in the order of their keys."""
    made = {name: columns.replace("BYTEA", "BLOB") for name, columns in tables.items()}
    return "".join(f"CREATE TABLE {name} ({columns}) WITHOUT ROWID;\n" for name, columns in made.items())


REPORTS: Final = Layout("the reports of a survey", "the reports", b"mqsv", _in_file(REPORT_TABLES))
INVITATIONS: Final = Layout(
    "the invitations of a survey", "the invitations", b"mqsi", _in_file(INVITATION_TABLES)
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


class Tables(Protocol):
    """Where rows are kept: a file, or PostgreSQL; statements have `?` where values go."""

    committing: Callable[[], object]
    committed: Callable[[], object]

    def transaction(self) -> AbstractContextManager[object]:
        """Do everything inside together, durably, or nothing."""

    def run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""

    def run_all(self, statement: str, rows: Iterable[Sequence[object]]) -> int:
        """Run one statement for every row of values; return how many rows it changed."""

    def value(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Return the first value of the first row, None if there is none."""

    def mingle(self, table: str) -> None:
        """Within a transaction that added rows to a table: leave no sign which of its rows are new."""

    def empty_log(self) -> None:
        """Leave nothing of what was deleted."""

    def close(self) -> None:
        """Let go of them."""


class FileTables(DurableStore):
    """Tables of a file, which lie in the order of their random keys."""

    def mingle(self, table: str) -> None:
        """Nothing is left to do."""


class SurveyStore:
    """What one survey keeps, in a folder or at ``postgresql://…``; `close` it, or use it in a with statement.

    In PostgreSQL a survey has a database, or a schema (`?options=-csearch_path%3Dname`), of its own.
    """

    def __init__(self, place: str | Path) -> None:
        self._reports: Tables
        self._invitations: Tables
        if is_postgres(place):
            self._reports = PostgresTables(str(place), REPORT_TABLES, POOLED)
        else:
            folder = Path(place)
            if not folder.is_dir():
                folder.mkdir(mode=0o700, parents=True)
            self._reports = FileTables(folder / "reports.sqlite", REPORTS)
        try:
            if is_postgres(place):
                self._invitations = PostgresTables(str(place), INVITATION_TABLES, POOLED)
            else:
                self._invitations = FileTables(Path(place) / "invitations.sqlite", INVITATIONS)
        except BaseException:
            self._reports.close()
            raise
        self.quotas: QuotaCounts | None = None
        self._counts = ReportCounts()
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
            statement = "INSERT INTO versions VALUES (?, ?) ON CONFLICT DO NOTHING"
            self._reports.run(statement, (policy.id, content))

    def versions(self) -> dict[str, Policy]:
        """Return the policies that reports came under, by id."""
        rows = self._reports.run("SELECT policy, content FROM versions ORDER BY policy")
        return {str(name): Policy.from_dict(json.loads(content)) for name, content in rows}

    def limit(self, quotas: Sequence[Quota]) -> None:
        """Take no more than quotas allow; versions are registered before."""
        self.quotas = QuotaCounts(quotas, self.versions())
        self.quotas.recount(self.reports())

    def end(self) -> None:
        """Take nothing more, for good: no report, no token, and no withdrawal."""
        with self._reports.transaction():
            self._reports.run("INSERT INTO facts VALUES ('closed', ?) ON CONFLICT DO NOTHING", (today(),))
        self.tidy()

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
            with self._counts.changing:
                with self._reports.transaction():
                    outcomes = self._kept([report for report, _ in group])
                kept = [one for (one, _), told in zip(group, outcomes, strict=True) if told is True]
                self._counts.add((one.policy, one.mode, one.text) for one in kept)
        except Exception as error:  # noqa: BLE001  (whoever waits is told, and the writer goes on)
            outcomes = [error] * len(group)
            self._recount()
        for (_, done), outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Exception):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)

    def _kept(self, group: Sequence[Report]) -> list[bool | Exception]:
        """Insert reports within the transaction that is open; tell of each whether, or why not."""
        if self.closed:
            return [Ended("The survey is closed.")] * len(group)
        names, tokens = [one.id for one in group], [one.token for one in group if one.token is not None]
        known = {bytes(name): tuple(row) for name, *row in self._rows("id, policy, mode, codes", names)}
        gone = {bytes(name) for (name,) in self._rows("id", names, "withdrawn")}
        spent = {bytes(token): bytes(name) for token, name in self._rows("token, id", tokens, "spent")}
        outcomes: list[bool | Exception] = []
        new: list[Report] = []
        for one in group:
            content = (one.policy, one.mode, one.text)
            told: bool | Exception = False
            if one.token is not None and spent.get(one.token, one.id) != one.id:
                told = KeySpent(_USED)
            elif one.id in known and known[one.id] != content:
                told = KeySpent("Another report came under this id.")
            elif one.id not in known and one.id not in gone:
                told = self._admitted(one) or True
            if told is True:
                new.append(one)
                known[one.id] = content
                if one.token is not None:
                    spent[one.token] = one.id
            outcomes.append(told)
        if new:
            day = today()
            rows = [(one.id, one.policy, one.mode, day, one.text) for one in new]
            self._reports.run_all("INSERT INTO reports VALUES (?, ?, ?, ?, ?)", rows)
            self._reports.mingle("reports")
        used = [(one.token, one.id) for one in new if one.token is not None]
        if used:
            self._reports.run_all("INSERT INTO spent VALUES (?, ?)", used)
            self._reports.mingle("spent")
        return outcomes

    def _rows(self, columns: str, keys: Sequence[bytes], table: str = "reports") -> Sequence[tuple[Any, ...]]:
        """Return columns of the rows with these keys, the first column being the key."""
        if not keys:
            return []
        marks, key = ", ".join("?" * len(keys)), columns.partition(",")[0]
        return self._reports.run(f"SELECT {columns} FROM {table} WHERE {key} IN ({marks})", keys)  # noqa: S608

    def _admitted(self, report: Report) -> Exception | None:
        """Return why a new report exceeds a quota; None if it does not, and is counted."""
        if self.quotas is None:
            return None
        refused = self.quotas.refused(report.policy, report.codes)
        if refused is None:
            self.quotas.count(report.policy, report.codes)
        return refused

    def _recount(self) -> None:
        """After a transaction that was undone: count what is there, as soon as it can be read."""
        if self.quotas is not None:
            with suppress(FileError):
                self.quotas.recount(self.reports())

    def withdraw(self, secret: bytes) -> bool:
        """Delete the report of a withdrawal code; tell whether there was one. It never comes back."""
        name = report_id(secret)
        with self._counts.changing:
            with self._reports.transaction():
                if self.closed:
                    raise Ended("The survey is closed: reports can no longer be withdrawn.")
                found = self._reports.run("SELECT policy, codes, mode FROM reports WHERE id = ?", (name,))
                if found:
                    self._reports.run("DELETE FROM reports WHERE id = ?", (name,))
                    self._reports.run("INSERT INTO withdrawn VALUES (?) ON CONFLICT DO NOTHING", (name,))
                    self._reports.mingle("withdrawn")
            if found:
                self._counts.remove((str(found[0][0]), int(found[0][2]), str(found[0][1])))
        if found:
            self._reports.empty_log()
            if self.quotas is not None:
                self.quotas.count(str(found[0][0]), json.loads(found[0][1]), -1)
        return bool(found)

    def erase(self) -> int:
        """Delete every report, token and invitation: the end of the time for which they may be kept."""
        self._counts.forget()
        with self._reports.transaction():
            number = int(self._reports.value("SELECT count(*) FROM reports"))
            for table in ("reports", "spent", "withdrawn"):
                self._reports.run(f"DELETE FROM {table}")  # noqa: S608  (our own names)
        with self._invitations.transaction():
            for table in INVITATION_TABLES:
                self._invitations.run(f"DELETE FROM {table}")  # noqa: S608
        self.tidy()
        self._recount()
        return number

    def tidy(self) -> None:
        """Leave nothing of what was deleted, and of the order in which rows were written, beside the rows."""
        self._reports.empty_log()
        self._invitations.empty_log()

    def reports(self) -> Iterator[tuple[str, int, str, tuple[int, ...]]]:
        """Yield policy, mode, day and codes of every report, in the order of their random ids."""
        for policy, mode, day, codes in self._reports.run(
            "SELECT policy, mode, day, codes FROM reports ORDER BY id"
        ):
            yield str(policy), int(mode), str(day), tuple(json.loads(codes))

    def counted(self) -> dict[str, dict[tuple[int, tuple[int, ...]], int]]:
        """Return, by policy, how often reports of a mode and codes came; they are read once, then kept."""
        with self._counts.changing, self._reports.transaction():
            reports, gone = (
                int(self._reports.value(f"SELECT count(*) FROM {table}"))  # noqa: S608  (our own names)
                for table in ("reports", "withdrawn")
            )
            return self._counts.now((reports, gone), self._grouped)

    def _grouped(self) -> dict[Key, int]:
        rows = self._reports.run(
            "SELECT policy, mode, codes, count(*) FROM reports GROUP BY policy, mode, codes"
        )
        return {(str(policy), int(mode), str(codes)): int(number) for policy, mode, codes, number in rows}

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
            rows = sorted((hashlib.sha256(code.encode()).digest(),) for code in codes)
            self._invitations.run_all("INSERT INTO invitations VALUES (?)", rows)
        return codes

    def exchange(self, code: str, blinded: bytes) -> None:
        """Let an invitation be exchanged for a token, once; for the same element as often as asked."""
        name = hashlib.sha256(code.encode()).digest()
        if self.closed:
            raise Ended("The survey is closed.")
        run = self._invitations.run
        with self._invitations.transaction():
            if not run("SELECT 1 FROM invitations WHERE digest = ?", (name,)):
                raise InputError("This is no invitation to this survey.")
            before = run("SELECT blinded FROM exchanged WHERE digest = ?", (name,))
            if before and bytes(before[0][0]) != blinded:
                raise KeySpent(_USED)
            if not before:
                run("INSERT INTO exchanged VALUES (?, ?)", (name, blinded))
                self._invitations.mingle("exchanged")

    def invited(self) -> Mapping[str, int]:
        """Return how many were invited, and how many of them asked for a token."""
        run = self._invitations.value
        return {
            "invited": int(run("SELECT count(*) FROM invitations")),
            "begun": int(run("SELECT count(*) FROM exchanged")),
        }


def is_postgres(place: str | Path) -> bool:
    """Tell whether a place is the address of a PostgreSQL server, not a folder."""
    return isinstance(place, str) and place.startswith(("postgresql://", "postgres://"))


def report_id(secret: bytes) -> bytes:
    """Return the id of the report that a withdrawal code belongs to."""
    return hashlib.sha256(b"masquerade withdrawal" + secret).digest()[:16]


def today() -> str:
    """Return the day, in UTC: all that is kept of when something came."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()
