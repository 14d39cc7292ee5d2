"""Publication of a survey: figures and reports that change in batches until the survey is closed.

One process at a time publishes a survey. Two processes would publish different batches, and the difference
between them could be a single report: so a second collector of the same store does not start.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError
from masquerade.services.common.state import lock_file
from masquerade.sources.engines.connections import PATIENT, why_not
from masquerade.survey.collector.batches import CellPlan, Content, Counts, ReportBatches, SteppedCount
from masquerade.survey.collector.figures import FigureSource, count_quotas, figures, show_all, show_batches
from masquerade.survey.collector.store import MODES, SurveyStore, is_postgres
from masquerade.survey.forms.survey_file import Survey

LOCK: Final = "collector.lock"
_LOCK_NUMBER: Final = 0x6D717062  # "mqpb"
_TAKEN: Final = "another collector of this survey is running; only one at a time may show its figures."


class PublishingLock(Protocol):
    """A lock that gives one process the right to publish a survey."""

    def held(self) -> bool:
        """Return True if no other process can have had the lock since it was taken."""

    def close(self) -> None:
        """Release the lock."""


class FolderLock:
    """The lock of a survey in a folder: a file lock that ends with the process."""

    def __init__(self, folder: Path) -> None:
        self._handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_file(self._handle)
        except BaseException as error:
            os.close(self._handle)
            if isinstance(error, BlockingIOError):
                raise FileError(f"{folder}: {_TAKEN}") from None
            raise

    def held(self) -> bool:
        """Return True: a file lock cannot get lost."""
        return True

    def close(self) -> None:
        """Release the lock."""
        os.close(self._handle)


class PostgresLock:
    """The lock of a survey in PostgreSQL: an advisory lock on its database and schema, for one connection."""

    def __init__(self, url: str) -> None:
        import psycopg  # noqa: PLC0415  (an extra, which the store has already required)

        self._driver: Any = psycopg
        self._url = url
        self._connection = self._take()

    def _take(self) -> Any:
        try:
            connection = self._driver.connect(self._url, autocommit=True, **PATIENT)
            statement = "SELECT pg_try_advisory_lock(%s, hashtext(current_schema()))"
            taken = connection.execute(statement, (_LOCK_NUMBER,)).fetchone()[0]
        except self._driver.Error as error:
            raise FileError(f"store: no connection to PostgreSQL: {why_not(error)}.") from None
        if not taken:
            connection.close()
            raise FileError(f"store: {_TAKEN}")
        return connection

    def held(self) -> bool:
        """Return True if the connection persisted; otherwise take the lock again, or raise FileError."""
        try:
            self._connection.execute("SELECT 1")
        except self._driver.Error:
            self._connection.close()
            self._connection = self._take()
            return False
        return True

    def close(self) -> None:
        """Release the lock."""
        self._connection.close()


class Publication:
    """The published figures and reports, as of the last `advance`.

    Parameters
    ----------
    store : SurveyStore
        The store, with its versions and quotas.
    survey : Survey
        Texts of the questions.
    place : str or Path
        Folder or database of the store, which one process at a time publishes.
    batch : int
        Least number of reports by which a cell changes.
    rows : bool
        True if reports are exported while the survey is open.

    Raises
    ------
    FileError
        If another process publishes this survey.
    """

    def __init__(
        self, store: SurveyStore, survey: Survey, place: str | Path, *, batch: int, rows: bool
    ) -> None:
        self._store, self._survey = store, survey
        self._k, self._rows, self._guard = batch, rows, threading.Lock()
        self._versions: Mapping[str, Policy] = store.versions()
        self.figures_json = b""
        self.reports_json = b""
        self._lock: PublishingLock = (
            PostgresLock(str(place)) if is_postgres(place) else FolderLock(Path(place))
        )
        try:
            self._start()
            self.advance()
        except BaseException:
            self._lock.close()
            raise

    def _start(self) -> None:
        """Start from the stored reports; it is unknown which of them were published before."""
        store, k = self._store, self._k
        quotas = () if store.quotas is None else store.quotas.quotas
        plan = CellPlan(self._versions, len(MODES), quotas, joint=self._rows)
        counts, self._counted = store.counts(), store.count_reports()
        self._batches = ReportBatches(plan, k, self._counted, untouched=not counts["withdrawn"])
        self._withdrawn, self._begun = (SteppedCount(k, counts[name]) for name in ("withdrawn", "begun"))
        self._state: object = None  # what the published figures are based on; None: compute them again

    def advance(self) -> None:
        """Publish the next batch; once the survey is closed, publish everything.

        The clock calls this, never a request: the time of a change must not depend on a caller.
        """
        with self._guard:
            if not self._lock.held():
                self._start()  # another process may have published in between
            before, self._counted = self._counted, self._store.count_reports()
            closed = self._store.closed_on
            if closed is None:
                self._show_batches(before)
            elif before != self._counted or self._state != closed:
                self._encode(show_all(self._store), rows=True)
                self._state = closed

    def _show_batches(self, before: Counts) -> None:
        if before != self._counted:
            if _lacks_any(self._counted, before):  # counting withdrawals is the slowest step: skip it if none
                self._withdrawn.advance(self._store.counts()["withdrawn"])
            if self._batches.advance(self._counted):
                self._state = None
        invited = self._store.count_invitations()
        facts = {
            "batch": self._k,
            "withdrawn": self._withdrawn.shown,
            "invited": invited["invited"],
            "begun": self._begun.advance(invited["begun"]),
        }
        if facts == self._state:
            return
        quotas = self._store.quotas
        if quotas is not None:
            quotas.follow(count_quotas(self._batches, quotas, code=1))
        self._encode(show_batches(self._batches, quotas, facts), rows=self._rows)
        self._state = facts

    def _encode(self, source: FigureSource, *, rows: bool) -> None:
        values = figures(source, self._survey, self._versions, self._store.quotas)
        self.figures_json = json.dumps(values).encode()
        self.reports_json = _encode_reports(source.counts) if rows else b""

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()


def _lacks_any(counts: Counts, before: Counts) -> bool:
    """Return True if a count is smaller than before: a report was withdrawn."""
    nothing: Mapping[Content, int] = {}
    return any(
        counts.get(policy, nothing).get(content, 0) < number
        for policy, reports in before.items()
        for content, number in reports.items()
    )


def _encode_reports(counts: Counts) -> bytes:
    """Encode published reports as JSON, sorted by content so that their order reveals nothing."""
    rows = {
        policy: [[*content, number] for content, number in sorted(reports.items())]
        for policy, reports in counts.items()
    }
    return json.dumps({"reports": rows}, separators=(",", ":")).encode()
