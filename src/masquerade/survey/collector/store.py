"""Store of a survey: reports in one place, invitations in another, and nothing that links them.

The store is two SQLite files, or PostgreSQL for the reports and a file or another server for the invitations.
Neither keeps the order of arrival (`file_store`, `postgres_store`), nor any time beyond the number of reports
per day. Reports are written in groups: all that arrive during one write go into the next, and each is
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, Self

from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError, InputError
from masquerade.crypto.errors import KeySpent
from masquerade.services.common.problems import Ended
from masquerade.survey.collector.file_store import FileInvitations, FileReports, Key, NewReport
from masquerade.survey.collector.postgres_checks import check_clusters
from masquerade.survey.collector.postgres_store import PostgresInvitations, PostgresReports
from masquerade.survey.collector.quotas import Quota, QuotaCounts

MODES: Final = ("device", "spinner", "dice", "birthday")
MOST_IN_GROUP: Final = 1000
MOST_USES: Final = 1000
MOST_INVITATIONS: Final = 1_000_000
USES_MARK: Final = "~"  # between the code of a link and its number of uses
Stamp = tuple[int, int]  # number of reports, and of withdrawn reports
_CONSENT: Final = "consent "
_USED: Final = "This invitation was used already, as often as it may be."


@dataclass(frozen=True)
class Report:
    """The report of a page: codes in the order of the policy's columns, under a random id."""

    id: bytes
    policy: str
    mode: int
    codes: tuple[int, ...]
    token: bytes | None = None
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the codes, and the texts if there are any, as they are stored."""
        return encode_content(self.codes, self.texts)

    @property
    def row(self) -> NewReport:
        """Return the report as it is stored."""
        return NewReport(self.id, self.token, (self.policy, self.mode, self.text))


class ReportKeeper(Protocol):
    """Storage of reports. Methods that change or list reports are called within one of the transactions."""

    committing: Callable[[], object]
    committed: Callable[[], object]

    def adding(self, reports: Sequence[NewReport]) -> AbstractContextManager[object]:
        """Open a transaction in which these reports can be looked up and stored."""

    def removing(self) -> AbstractContextManager[object]:
        """Open a transaction in which one report can be withdrawn, or all reports deleted."""

    def reading(self) -> AbstractContextManager[object]:
        """Open a transaction that reads everything, and may write versions and facts."""

    def make_room(self, longest: Key) -> None:
        """Prepare for reports of this length."""

    def find_contents(self, ids: Sequence[bytes]) -> Mapping[bytes, Key]:
        """Return the contents of the reports with these ids."""

    def find_withdrawn(self, ids: Sequence[bytes]) -> Collection[bytes]:
        """Return the ids whose reports were withdrawn."""

    def find_spent(self, tokens: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the ids of the reports that were sent with these tokens."""

    def insert(self, reports: Sequence[NewReport], day: str) -> None:
        """Store reports."""

    def remove(self, name: bytes) -> Key | None:
        """Delete a report except its id and token; return its content, or None if the id is unknown."""

    def clear(self) -> int:
        """Delete all reports; return their number."""

    def totals(self) -> tuple[int, int]:
        """Return the number of reports, and of withdrawn reports."""

    def rows(self) -> Iterable[tuple[bytes, Key]]:
        """Return id and content of every report."""

    def count_equal(self) -> dict[Key, int]:
        """Return the number of reports of each content."""

    def days(self) -> dict[str, int]:
        """Return the number of reports that arrived on each day."""

    def run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, in which `?` is a parameter, and return its rows."""

    def value(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Return the first value of the first row, None without rows."""

    def tidy(self) -> None:
        """Remove remains of deleted rows and traces of order; call it outside transactions."""

    def close(self) -> None:
        """Close files and connections."""


class InvitationKeeper(Protocol):
    """Storage of invitations."""

    def invite(self, digests: Iterable[bytes]) -> None:
        """Store new invitations."""

    def exchange(self, names: Sequence[bytes], blinded: bytes) -> bool | None:
        """Exchange one of a link's invitations for an element, or find the earlier exchange for this element.

        Returns None if the invitations are unknown, and False if all were used for other elements.
        """

    def totals(self) -> tuple[int, int]:
        """Return the number of invitations, and of used invitations."""

    def clear(self) -> None:
        """Delete every invitation."""

    def tidy(self) -> None:
        """Remove remains of deleted rows and traces of order."""

    def close(self) -> None:
        """Close files and connections."""


class ReportCounts:
    """Counts of equal reports, and the state of the store that they belong to.

    Live figures read these counts instead of every report. Each report that is added or withdrawn changes the
    stamp, and no two states have the same stamp, because a report is withdrawn at most once. If the stamp
    differs from the store's, another process changed the store, and all reports are counted again.
    """

    def __init__(self) -> None:
        # held while reports are written and counted, and while counts are read
        self.changing = threading.RLock()
        self._counts: dict[str, dict[tuple[int, tuple[int, ...]], int]] | None = None
        self._stamp: Stamp = (0, 0)

    def add(self, keys: Iterable[Key]) -> None:
        """Count reports that were stored."""
        if self._counts is not None:
            reports, withdrawn = self._stamp
            self._stamp = (reports + sum(self._move(key, 1) for key in keys), withdrawn)

    def remove(self, key: Key) -> None:
        """Stop counting a report that was withdrawn."""
        if self._counts is not None:
            self._move(key, -1)
            self._stamp = (self._stamp[0] - 1, self._stamp[1] + 1)

    def forget(self) -> None:
        """Discard the counts: the next query counts all reports again."""
        self._counts = None

    def now(
        self, stamp: Stamp, recount: Callable[[], Mapping[Key, int]]
    ) -> dict[str, dict[tuple[int, tuple[int, ...]], int]]:
        """Return, by policy, the number of reports of each combination of mode and codes."""
        if self._counts is None or self._stamp != stamp:
            self._counts, self._stamp = {}, stamp
            for key, number in recount().items():
                self._move(key, number)
        return {policy: dict(counts) for policy, counts in self._counts.items() if counts}

    def _move(self, key: Key, by: int) -> int:
        assert self._counts is not None  # noqa: S101  (checked by the callers)
        policy, mode, text = key
        counts, content = self._counts.setdefault(policy, {}), (mode, decode_content(text)[0])
        number = counts.get(content, 0) + by
        if number:
            counts[content] = number
        else:
            counts.pop(content, None)
        return by


class SurveyStore:
    """Store of one survey, in a folder or in PostgreSQL. Close it, or use it in a with statement.

    In PostgreSQL each survey needs its own database or schema (`?options=-csearch_path%3Dname`).

    Parameters
    ----------
    place : str or Path
        Folder for the reports, or the address of a PostgreSQL server (``postgresql://…``).
    invitations : str or Path, optional
        The same for invitations. Without it they are in the folder of the reports; a survey whose reports are
        in PostgreSQL then has no invitations.
    accept : collection of str
        Traces of the order of arrival that a server may keep, from `postgres_checks.TRACES`.

    Raises
    ------
    FileError
        If a place cannot be read or written, or a server keeps the order of arrival in a way that is not
        accepted.
    InputError
        If the packages for PostgreSQL are not installed.
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
        """Write waiting reports, and close files and connections."""
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

    def register(self, policy: Policy, longest_texts: Mapping[str, int] | None = None) -> None:
        """Accept reports under this policy from now on: an amended survey has several versions.

        `longest_texts` has the largest number of bytes of each text, so that there is room for all texts from
        the start.
        """
        content = json.dumps(policy.to_dict())
        texts = {name: "x" * number for name, number in (longest_texts or {}).items()}
        longest = encode_content([len(variable) - 1 for variable in policy.observed.variables], texts)
        self._reports.make_room((policy.id, 0, longest))
        with self._reports.reading():
            statement = "INSERT INTO versions VALUES (?, ?) ON CONFLICT DO NOTHING"
            self._reports.run(statement, (policy.id, content))

    def versions(self) -> dict[str, Policy]:
        """Return the registered policies by id."""
        rows = self._reports.run("SELECT policy, content FROM versions ORDER BY policy")
        return {str(name): Policy.from_dict(json.loads(content)) for name, content in rows}

    def register_consent(self, digest: str | None) -> None:
        """Accept reports with this consent from now on; None represents a survey without a box to tick."""
        with self._reports.reading():
            statement = "INSERT INTO facts VALUES (?, ?) ON CONFLICT DO NOTHING"
            self._reports.run(statement, (f"{_CONSENT}{digest or ''}", ""))

    def consents(self) -> frozenset[str | None]:
        """Return the digests of all consents that this survey has asked for."""
        names = [str(name) for (name,) in self._reports.run("SELECT name FROM facts")]
        return frozenset(name.removeprefix(_CONSENT) or None for name in names if name.startswith(_CONSENT))

    def limit(self, quotas: Sequence[Quota]) -> None:
        """Enforce quotas; register all versions first."""
        self.quotas = QuotaCounts(quotas, self.versions())
        self.quotas.recount(self.reports())

    def end(self) -> None:
        """Close the survey permanently: it accepts no report, no token request and no withdrawal."""
        with self._reports.reading():
            self._reports.run("INSERT INTO facts VALUES ('closed', ?) ON CONFLICT DO NOTHING", (today(),))
        self.tidy()

    @property
    def closed_on(self) -> str | None:
        """Return the day on which the survey was closed, None while it is open."""
        day = self._reports.value("SELECT value FROM facts WHERE name = 'closed'")
        return None if day is None else str(day)

    # reports

    def add(self, report: Report) -> bool:
        """Store a report durably; return False if it was stored before.

        Raises
        ------
        KeySpent
            If its token or its id belongs to another report.
        Ended
            If the survey is closed, or a quota is full.
        """
        return self.submit(report).result()

    def submit(self, report: Report) -> Future[bool]:
        """Queue a report for the next write; the future completes as `add` does, once it is durable."""
        done: Future[bool] = Future()
        with self._starting:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="survey writer", daemon=True)
                self._writer.start()
        self._waiting.put((report, done))
        return done

    def _write(self) -> None:
        """Write groups of reports until `close` ends the queue."""
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
                outcomes = self._insert_group([report for report, _ in group])
                new = [one for (one, _), outcome in zip(group, outcomes, strict=True) if outcome is True]
                self._counts.add((one.policy, one.mode, one.text) for one in new)
        except Exception as error:  # noqa: BLE001  (every waiting caller gets it, and the writer continues)
            outcomes = [error] * len(group)
            self._recount()
        for (_, done), outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Exception):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)

    def _insert_group(self, group: Sequence[Report]) -> list[bool | Exception]:
        """Store reports in one write; return for each whether it is new, or the reason of its refusal."""
        rows = [one.row for one in group]
        with self._reports.adding(rows):
            if self.closed_on:
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
                    outcome = KeySpent("Another report has this id.")
                elif one.id not in contents and one.id not in withdrawn:
                    outcome = self._count_in_quotas(one) or True
                if outcome is True:
                    new.append(row)
                    contents[one.id] = row.content
                    if one.token is not None:
                        spent[one.token] = one.id
                outcomes.append(outcome)
            if new:
                self._reports.insert(new, today())
            return outcomes

    def _count_in_quotas(self, report: Report) -> Exception | None:
        """Count a new report; return the refusal instead if a quota is full."""
        if self.quotas is None:
            return None
        refusal = self.quotas.find_refusal(report.policy, report.codes)
        if refusal is None:
            self.quotas.count(report.policy, report.codes)
        return refusal

    def _recount(self) -> None:
        """Count the quotas again, after a transaction was rolled back."""
        if self.quotas is not None:
            with suppress(FileError):
                self.quotas.recount(self.reports())

    def withdraw(self, secret: bytes) -> bool:
        """Delete the report of a withdrawal code; return False if there is no such report.

        A withdrawn report cannot be submitted again.
        """
        name = report_id(secret)
        with self._counts.changing:
            with self._reports.removing():
                closed = self.closed_on is not None
                content = None if closed else self._reports.remove(name)
            if closed:
                raise Ended("The survey is closed: reports can no longer be withdrawn.")
            if content is None:
                return False
            self._counts.remove(content)
        self._reports.tidy()
        if self.quotas is not None:
            self.quotas.count(content[0], decode_content(content[2])[0], -1)
        return True

    def erase(self) -> int:
        """Delete every report, token and invitation when their time is over; return the number of reports."""
        self._counts.forget()
        with self._reports.removing():
            number = self._reports.clear()
        if self._invitations is not None:
            self._invitations.clear()
        self.tidy()
        self._recount()
        return number

    def tidy(self) -> None:
        """Remove remains of deleted rows, and traces of the order in which rows were written."""
        self._reports.tidy()
        if self._invitations is not None:
            self._invitations.tidy()

    def reports(self) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        """Yield policy, mode and codes of every report, in the order of their random ids."""
        with self._reports.reading():
            rows = sorted(self._reports.rows())
        for _, (policy, mode, codes) in rows:
            yield policy, mode, decode_content(codes)[0]

    def texts(self) -> list[tuple[str, str]]:
        """Return name and content of every text in people's own words, sorted, without their reports."""
        with self._reports.reading():
            contents = [content for _, content in self._reports.rows()]
        return sorted(pair for _, _, text in contents for pair in decode_content(text)[1].items())

    def count_reports(self) -> dict[str, dict[tuple[int, tuple[int, ...]], int]]:
        """Return, by policy, the number of reports of each combination of mode and codes.

        Repeated calls use the counts that are kept in memory.
        """
        with self._counts.changing, self._reports.reading():
            return self._counts.now(self._reports.totals(), self._count_equal)

    def _count_equal(self) -> dict[Key, int]:
        return self._reports.count_equal()

    def counts(self) -> dict[str, Any]:
        """Return the number of reports by version, by mode and by day, and of invitations."""
        with self._counts.changing, self._reports.reading():
            reports, withdrawn = self._reports.totals()
            counted = self._counts.now((reports, withdrawn), self._count_equal)
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
            "closed": self.closed_on,
            **self.count_invitations(),
        }

    # invitations

    def invite(self, number: int, uses: int = 1) -> list[str]:
        """Make `number` new links and return their codes; only digests are stored.

        Each link contains `uses` invitations: it admits that many reports.
        """
        if not 1 <= uses <= MOST_USES:
            raise InputError(f"A link admits from 1 to {MOST_USES:,} reports.")
        if number < 1 or number * uses > MOST_INVITATIONS:
            raise InputError(f"Make from 1 to {MOST_INVITATIONS:,} invitations at a time.")
        if self._invitations is None:
            raise InputError(
                "This survey cannot store invitations: name a folder, or another server, as 'invitations' in "
                "its settings."
            )
        end = "" if uses == 1 else f"{USES_MARK}{uses}"
        codes = [secrets.token_urlsafe(18) + end for _ in range(number)]
        self._invitations.invite(name for code in codes for name in _digests(code))
        return codes

    def exchange(self, code: str, blinded: bytes) -> None:
        """Use an invitation of a link for a token: each is valid for one element, which may be sent again."""
        if self.closed_on:
            raise Ended("The survey is closed.")
        outcome = None if self._invitations is None else self._invitations.exchange(_digests(code), blinded)
        if outcome is None:
            raise InputError("This is not an invitation to this survey.")
        if not outcome:
            raise KeySpent(_USED)

    def count_invitations(self) -> Mapping[str, int]:
        """Return the number of invitations, and of those that were exchanged for a token."""
        invited, begun = (0, 0) if self._invitations is None else self._invitations.totals()
        return {"invited": invited, "begun": begun}


def is_postgres(place: str | Path) -> bool:
    """Return True if a place is the address of a PostgreSQL server, not a folder."""
    return isinstance(place, str) and place.startswith(("postgresql://", "postgres://"))


def _folder(place: str | Path) -> Path:
    """Return a folder; create it if it does not exist."""
    folder = Path(place)
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True)
    return folder


def encode_content(codes: Sequence[int], texts: Mapping[str, str]) -> str:
    """Encode codes, and texts after them if there are any, as they are stored."""
    values: list[Any] = [*codes, dict(sorted(texts.items()))] if texts else [*codes]
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def decode_content(text: str) -> tuple[tuple[int, ...], dict[str, str]]:
    """Return the codes and the texts of a stored report.

    >>> decode_content(encode_content([0, 2], {"remarks": "None."}))
    ((0, 2), {'remarks': 'None.'})
    """
    values = json.loads(text)
    texts = values.pop() if values and isinstance(values[-1], dict) else {}
    return tuple(values), texts


def _digests(code: str) -> list[bytes]:
    """Return the digests of the invitations of a link; its code states how many there are."""
    _, mark, number = code.partition(USES_MARK)
    uses = (
        int(number) if number.isascii() and number.isdecimal() and len(number) <= len(str(MOST_USES)) else 1
    )
    names = [f"{code} {i}" for i in range(max(1, min(uses, MOST_USES)))] if mark else [code]
    return [hashlib.sha256(name.encode()).digest() for name in names]


def report_id(secret: bytes) -> bytes:
    """Return the id of the report that a withdrawal code belongs to."""
    return hashlib.sha256(b"masquerade withdrawal" + secret).digest()[:16]


def today() -> str:
    """Return the current day in UTC, the only time that is stored."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()
