"""What a collector shows of a survey: figures and reports that move in batches, until it is closed.

One process at a time publishes a survey. Two would move at different reports, and the difference of what they
show could be a single one: so a second collector of the same store does not start.
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
from masquerade.services.survey.batches import Batches, CellPlan, SteppedCount
from masquerade.services.survey.figures import figures, show_all, show_batches
from masquerade.services.survey.store import MODES, SurveyStore, is_postgres
from masquerade.sources.connections import PATIENT, why_not
from masquerade.survey.survey_file import Survey

LOCK: Final = "collector.lock"
_LOCK_NUMBER: Final = 0x6D717062  # "mqpb"
_TAKEN: Final = "another collector of this survey is running; one at a time shows its figures."


class Turn(Protocol):
    """The right to publish a survey, which one process has."""

    def held(self) -> bool:
        """Return True if no other process can have had it since it was taken."""

    def close(self) -> None:
        """Give it back."""


class FolderTurn:
    """The right to publish a survey that is kept in a folder: a lock that ends with the process."""

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
        """Return True: the lock lasts."""
        return True

    def close(self) -> None:
        """Give it back."""
        os.close(self._handle)


class PostgresTurn:
    """The right to publish a survey in PostgreSQL: a lock of its database and schema, for one connection."""

    def __init__(self, url: str) -> None:
        import psycopg  # noqa: PLC0415  (an extra, which the store has asked for)

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
        """Return True if the connection lasted; after a break take the lock again, or raise FileError."""
        try:
            self._connection.execute("SELECT 1")
        except self._driver.Error:
            self._connection.close()
            self._connection = self._take()
            return False
        return True

    def close(self) -> None:
        """Give it back."""
        self._connection.close()


class Publication:
    """Figures and reports that are shown, as of the last `advance`.

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
        self.shown: bytes = b""
        self.reports: bytes = b""
        self._turn: Turn = PostgresTurn(str(place)) if is_postgres(place) else FolderTurn(Path(place))
        try:
            self._start()
            self.advance()
        except BaseException:
            self._turn.close()
            raise

    def _start(self) -> None:
        """Begin with reports of which it is not known what was shown before."""
        store, k = self._store, self._k
        quotas = () if store.quotas is None else store.quotas.quotas
        plan = CellPlan(self._versions, len(MODES), quotas, joint=self._rows)
        counts, self._counted = store.counts(), store.counted()
        self._batches = Batches(plan, k, self._counted, untouched=not counts["withdrawn"])
        self._withdrawn, self._begun = (SteppedCount(k, counts[name]) for name in ("withdrawn", "begun"))
        self._state: object = None  # of what is shown; None: it is to be computed again

    def advance(self) -> None:
        """Publish what makes whole batches by now; once the survey is closed, everything.

        It is called by the clock, never by a request.
        """
        with self._guard:
            if not self._turn.held():
                self._start()  # another process may have published in between
            counted = self._store.counted()
            changed, self._counted = counted != self._counted, counted
            closed = self._store.closed
            if closed is None:
                self._show_batches(changed=changed)
            elif changed or self._state != closed:
                self._show_all()
                self._state = closed

    def _show_batches(self, *, changed: bool) -> None:
        if changed:
            self._withdrawn.advance(self._store.counts()["withdrawn"])
            if self._batches.advance(self._counted):
                self._state = None
        invited = self._store.invited()
        facts = {
            "batch": self._k,
            "withdrawn": self._withdrawn.shown,
            "invited": invited["invited"],
            "begun": self._begun.advance(invited["begun"]),
        }
        if facts == self._state:
            return
        shown = show_batches(self._batches, self._versions, self._store.quotas, facts)
        found = figures(shown, self._survey, self._versions, self._store.quotas)
        if self._store.quotas is not None:
            self._store.quotas.follow(shown.quotas)
        self.shown = json.dumps(found).encode()
        self.reports = _written(shown.counts) if self._rows else b""
        self._state = facts

    def _show_all(self) -> None:
        shown = show_all(self._store)
        found = figures(shown, self._survey, self._versions, self._store.quotas)
        self.shown, self.reports = json.dumps(found).encode(), _written(shown.counts)

    def close(self) -> None:
        """Let another process publish."""
        self._turn.close()


def _written(counts: Mapping[str, Mapping[tuple[int, tuple[int, ...]], int]]) -> bytes:
    """Return reports as a running collector gives them, in an order that says nothing."""
    rows = {
        name: [[*content, number] for content, number in sorted(own.items())] for name, own in counts.items()
    }
    return json.dumps({"reports": rows}, separators=(",", ":")).encode()
