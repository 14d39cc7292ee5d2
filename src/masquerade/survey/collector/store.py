"""What a collector keeps: reports in one place, invitations in another, and nothing that joins them.

Two SQLite files, or PostgreSQL for the reports and a file or another server for the invitations. Neither has
an order of arrival (`file_store`, `postgres_store`); of times only the number of reports of a day is kept.
Reports are written in groups: all that arrive while one write is under way go into the next, and each is
acknowledged when it is durable.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import queue
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError, InputError
from masquerade.crypto.errors import KeySpent
from masquerade.services.common.problems import Ended
from masquerade.survey.collector.file_store import FileInvitations, FileReports, NewReport
from masquerade.survey.collector.postgres_checks import check_clusters
from masquerade.survey.collector.postgres_store import PostgresInvitations, PostgresReports
from masquerade.survey.collector.quotas import Quota, QuotaCounts
from masquerade.survey.collector.report_counts import Key, ReportCounts

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
        return _codes_text(self.codes)

    @property
    def row(self) -> NewReport:
        """Return the report as it is kept."""
        return NewReport(self.id, self.token, (self.policy, self.mode, self.text))


class ReportKeeper(Protocol):
    """Where reports are kept. All but the three transactions are called within one of them."""

    committing: Callable[[], object]
    committed: Callable[[], object]

    def adding(self, reports: Sequence[NewReport]) -> AbstractContextManager[object]:
        """Open a transaction in which these reports can be looked up and kept."""

    def removing(self) -> AbstractContextManager[object]:
        """Open a transaction in which a report can be withdrawn, or all be deleted."""

    def reading(self) -> AbstractContextManager[object]:
        """Open a transaction in which everything can be read, and versions and facts be written."""

    def make_room(self, longest: Key) -> None:
        """Prepare for reports of this length."""

    def find_contents(self, ids: Sequence[bytes]) -> Mapping[bytes, Key]:
        """Return the contents of the reports with these ids."""

    def find_withdrawn(self, ids: Sequence[bytes]) -> Collection[bytes]:
        """Return the ids whose reports were withdrawn."""

    def find_spent(self, tokens: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the ids of the reports that tokens came with."""

    def insert(self, reports: Sequence[NewReport], day: str) -> None:
        """Keep reports."""

    def remove(self, name: bytes) -> Key | None:
        """Delete a report but for its id and token; return its content, None if it is unknown."""

    def clear(self) -> int:
        """Delete everything that was reported; return the number of reports."""

    def totals(self) -> tuple[int, int]:
        """Return the number of reports, and of those that were withdrawn."""

    def rows(self) -> Iterable[tuple[bytes, Key]]:
        """Return id and content of every report."""

    def count_equal(self) -> dict[Key, int]:
        """Return the number of reports of each content."""

    def days(self) -> dict[str, int]:
        """Return the number of reports that came on each day."""

    def run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with `?` where values go, and return its rows."""

    def value(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Return the first value of the first row, None if there is none."""

    def tidy(self) -> None:
        """Leave nothing of what was deleted, and no order, between transactions."""

    def close(self) -> None:
        """Close files and connections."""


class InvitationKeeper(Protocol):
    """Where invitations are kept."""

    def invite(self, digests: Iterable[bytes]) -> None:
        """Keep new invitations."""

    def exchange(self, name: bytes, blinded: bytes) -> bool | None:
        """Use an invitation for one element; None if it is unknown, False if it was used for another."""

    def totals(self) -> tuple[int, int]:
        """Return the number of invitations, and of those that were used."""

    def clear(self) -> None:
        """Delete every invitation."""

    def tidy(self) -> None:
        """Leave nothing of what was deleted, and no order."""

    def close(self) -> None:
        """Close files and connections."""


class SurveyStore:
    """What one survey keeps, in a folder or at ``postgresql://…``; `close` it, or use it in a with statement.

    In PostgreSQL a survey has a database, or a schema (`?options=-csearch_path%3Dname`), of its own.

    Parameters
    ----------
    place : str or Path
        Where reports are kept: a folder, or the address of a PostgreSQL server.
    invitations : str or Path, optional
        Where invitations are kept, likewise. Without it they are in the folder of the reports; a survey whose
        reports are in PostgreSQL then has none.
    accept : collection of str
        What a server may do although it keeps the order of arrival, see `postgres_checks.TRACES`.

    Raises
    ------
    FileError
        If a place cannot be read or written.
    InputError
        If a server keeps the order of arrival in a way that is not accepted.
    """

    def __init__(
        self, place: str | Path, invitations: str | Path | None = None, accept: Collection[str] = ()
    ) -> None:
        with ExitStack() as opened:
            self._reports: ReportKeeper = (
                PostgresReports(str(place), accept) if is_postgres(place) else FileReports(_folder(place))
            )
            opened.callback(self._reports.close)
            where = place if invitations is None and not is_postgres(place) else invitations
            self._invitations: InvitationKeeper | None = None
            if where is not None:
                self._invitations = (
                    PostgresInvitations(str(where), accept)
                    if is_postgres(where)
                    else FileInvitations(_folder(where))
                )
                opened.callback(self._invitations.close)
            if isinstance(self._reports, PostgresReports) and isinstance(
                self._invitations, PostgresInvitations
            ):
                check_clusters(self._reports, self._invitations, accept)
            opened.pop_all()
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
        if self._invitations is not None:
            self._invitations.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # versions and times

    def register(self, policy: Policy) -> None:
        """Take reports under this policy, too: a survey that was amended has a version more."""
        content = json.dumps(policy.to_dict())
        longest = _codes_text([len(variable) - 1 for variable in policy.observed.variables])
        self._reports.make_room((policy.id, 0, longest))
        with self._reports.reading():
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
        with self._reports.reading():
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
        """Keep reports in one write; return of each whether it is new, or why it is not kept."""
        rows = [one.row for one in group]
        with self._reports.adding(rows):
            if self.closed:
                return [Ended("The survey is closed.")] * len(group)
            names, tokens = [one.id for one in group], [one.token for one in group if one.token is not None]
            contents = dict(self._reports.find_contents(names))
            withdrawn, spent = self._reports.find_withdrawn(names), dict(self._reports.find_spent(tokens))
            outcomes: list[bool | Exception] = []
            new: list[NewReport] = []
            for one, row in zip(group, rows, strict=True):
                outcome: bool | Exception = False
                if one.token is not None and spent.get(one.token, one.id) != one.id:
                    outcome = KeySpent(_USED)
                elif one.id in contents and contents[one.id] != row.content:
                    outcome = KeySpent("Another report came under this id.")
                elif one.id not in contents and one.id not in withdrawn:
                    outcome = self._admitted(one) or True
                if outcome is True:
                    new.append(row)
                    contents[one.id] = row.content
                    if one.token is not None:
                        spent[one.token] = one.id
                outcomes.append(outcome)
            if new:
                self._reports.insert(new, today())
            return outcomes

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
            with self._reports.removing():
                closed = self.closed is not None
                content = None if closed else self._reports.remove(name)
            if closed:
                raise Ended("The survey is closed: reports can no longer be withdrawn.")
            if content is None:
                return False
            self._counts.remove(content)
        self._reports.tidy()
        if self.quotas is not None:
            self.quotas.count(content[0], json.loads(content[2]), -1)
        return True

    def erase(self) -> int:
        """Delete every report, token and invitation: the end of the time for which they may be kept."""
        self._counts.forget()
        with self._reports.removing():
            number = self._reports.clear()
        if self._invitations is not None:
            self._invitations.clear()
        self.tidy()
        self._recount()
        return number

    def tidy(self) -> None:
        """Leave nothing of what was deleted, and of the order in which rows were written, beside the rows."""
        self._reports.tidy()
        if self._invitations is not None:
            self._invitations.tidy()

    def reports(self) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        """Yield policy, mode and codes of every report, in the order of their random ids."""
        with self._reports.reading():
            rows = sorted(self._reports.rows())
        for _, (policy, mode, codes) in rows:
            yield policy, mode, tuple(json.loads(codes))

    def counted(self) -> dict[str, dict[tuple[int, tuple[int, ...]], int]]:
        """Return, by policy, how often reports of a mode and codes came; they are read once, then kept."""
        with self._counts.changing, self._reports.reading():
            return self._counts.now(self._reports.totals(), self._grouped)

    def _grouped(self) -> dict[Key, int]:
        return self._reports.count_equal()

    def counts(self) -> dict[str, Any]:
        """Return the number of reports, by version and mode, and of those that came on each day."""
        with self._counts.changing, self._reports.reading():
            reports, withdrawn = self._reports.totals()
            counted = self._counts.now((reports, withdrawn), self._grouped)
            days = self._reports.days()
        modes: Counter[str] = Counter()
        for equal in counted.values():
            for (mode, _), number in equal.items():
                modes[MODES[mode]] += number
        return {
            "reports": reports,
            "withdrawn": withdrawn,
            "versions": {policy: sum(equal.values()) for policy, equal in sorted(counted.items())},
            "modes": dict(modes),
            "days": days,
            "closed": self.closed,
            **self.invited(),
        }

    # invitations

    def invite(self, number: int) -> list[str]:
        """Make so many new invitations and return their codes; of each only a digest is kept."""
        if not 1 <= number <= 1_000_000:
            raise InputError("Make from 1 to 1,000,000 invitations at once.")
        if self._invitations is None:
            raise InputError(
                "This survey has no place for invitations: name a folder, or a server of their own, as "
                "'invitations' in its settings."
            )
        codes = [secrets.token_urlsafe(18) for _ in range(number)]
        self._invitations.invite(map(_digest, codes))
        return codes

    def exchange(self, code: str, blinded: bytes) -> None:
        """Let an invitation be exchanged for a token, once; for the same element as often as asked."""
        if self.closed:
            raise Ended("The survey is closed.")
        outcome = None if self._invitations is None else self._invitations.exchange(_digest(code), blinded)
        if outcome is None:
            raise InputError("This is not an invitation to this survey.")
        if not outcome:
            raise KeySpent(_USED)

    def invited(self) -> Mapping[str, int]:
        """Return the number of people who were invited, and how many of them asked for a token."""
        invited, begun = (0, 0) if self._invitations is None else self._invitations.totals()
        return {"invited": invited, "begun": begun}


def is_postgres(place: str | Path) -> bool:
    """Tell whether a place is the address of a PostgreSQL server, not a folder."""
    return isinstance(place, str) and place.startswith(("postgresql://", "postgres://"))


def _folder(place: str | Path) -> Path:
    """Return a folder, which is made if it is not there."""
    folder = Path(place)
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True)
    return folder


def _codes_text(codes: Sequence[int]) -> str:
    return json.dumps(codes, separators=(",", ":"))


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode()).digest()


def report_id(secret: bytes) -> bytes:
    """Return the id of the report that a withdrawal code belongs to."""
    return hashlib.sha256(b"masquerade withdrawal" + secret).digest()[:16]


def today() -> str:
    """Return the day, in UTC: all that is kept of when something came."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()
