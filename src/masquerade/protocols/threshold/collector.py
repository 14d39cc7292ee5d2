"""The collector (the talk's miner): it takes reports, then opens the classes that reached its k.

It waits until the randomness server has signed that the epoch's key is destroyed, takes reports, and opens
once: opened twice, with one report more the second time, the difference would be one person's row.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final, Self

from masquerade.core.errors import FileError, InputError, QueryRefused, Refusal
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.protocols.durable_store import DurableStore, Notes
from masquerade.protocols.durable_store import Layout as StoreLayout
from masquerade.protocols.threshold.class_opening import Opening, Readable, open_reports
from masquerade.protocols.threshold.messages import Closing, Notice
from masquerade.protocols.threshold.report_layout import Layout

_CLOSING, _OPENED, _TAKEN_OVER = "closing", "opened", "taken over"  # notes
_REPORTS: Final = StoreLayout(
    "the reports of an epoch",
    "the reports",
    b"mqrp",
    "CREATE TABLE reports (place INTEGER PRIMARY KEY, run BLOB NOT NULL);\n" + Notes.TABLE,
)
_COLLECTOR: Final = "collector"  # the scope of its notes


class ReportStore:
    """A collector's reports in the order received, and notes of how far it has got.

    What it is told is on the disk before the call returns; without a path it is in memory.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._store = DurableStore(path, _REPORTS)
        self._notes = Notes(self._store)

    @classmethod
    def in_folder(cls, folder: Path, size: int) -> Self:
        """Open the store in a folder of its own, of reports of one size.

        What the first version kept there, a file of reports and one for each note, is taken over once and as
        a whole; a report that was cut short when the power failed is dropped.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            store, before = cls(folder / "reports.sqlite"), folder / "reports"
            if before.exists():
                notes = sorted(folder.glob("*.note"))
                with store._store.transaction():
                    if store.noted(_TAKEN_OVER) is None:
                        run = before.read_bytes()
                        store.append(run[: len(run) // size * size])
                        for note in notes:
                            store.note(note.stem, note.read_bytes())
                        store.note(_TAKEN_OVER, b"")
                for file in (before, *notes):
                    file.unlink()
        except OSError as error:
            raise FileError(f"{folder}: reports cannot be kept there ({error.strerror}).") from None
        return store

    def append(self, reports: bytes) -> None:
        """Keep more reports."""
        self._store.run("INSERT INTO reports (run) VALUES (?)", (reports,))

    def read(self) -> bytes:
        """Return all reports in the order received."""
        return b"".join([run for (run,) in self._store.run("SELECT run FROM reports ORDER BY place")])

    def note(self, name: str, content: bytes) -> None:
        """Keep a note."""
        self._notes.put(_COLLECTOR, name, content)

    def noted(self, name: str) -> bytes | None:
        """Return a note, None if there is none of this name."""
        return self._notes.get(_COLLECTOR, name)

    def close(self) -> None:
        """Let go of the file."""
        self._store.close()


class Collector:
    """Takes the reports of one epoch. *Waiting* → `begin` → *taking* → `open_classes` → *done*.

    `k` is the collector's own: a notice with another is refused, and so are reports made for another.
    """

    def __init__(self, notice: bytes, *, identity: bytes, k: int, store: ReportStore | None = None) -> None:
        self._notice, self._identity = Notice.decode(notice), identity
        self._notice.verify(identity)
        if self._notice.terms.k != k:
            raise InputError(
                f"This collector opens classes of {k}; the notice says k = {self._notice.terms.k}."
            )
        self.layout = Layout.of(self._notice)
        self._store = ReportStore() if store is None else store
        self._lock = threading.RLock()

    @property
    def state(self) -> str:
        """Return "waiting", "taking" or "done"."""
        if self._store.noted(_OPENED) is not None:
            return "done"
        return "waiting" if self._store.noted(_CLOSING) is None else "taking"

    def begin(self, closing: bytes) -> None:
        """Start taking reports, on the server's signed word that the key of this epoch is destroyed."""
        said = Closing.decode(closing)
        said.verify(self._identity)
        if said.notice != self._notice.digest:
            raise SealBroken("The closing is of another epoch, or of another key than the notice's.")
        with self._lock:
            if self._store.noted(_CLOSING) is None:
                self._store.note(_CLOSING, closing)

    def take(self, reports: bytes) -> int:
        """Keep one report, or a run of them, and return how many; safe on the disk when this returns.

        Whether a report is good shows when classes are opened: a bad one is named then and harms no other.
        """
        if not reports or len(reports) % self.layout.size:
            raise DecodingError(f"A report has {self.layout.size} bytes. Got {len(reports):,} bytes instead.")
        with self._lock:
            if self.state == "waiting":
                reason = "The randomness server has not said that the key of this epoch is destroyed."
                raise QueryRefused([Refusal("epoch_open", reason)])
            if self.state == "done":
                raise QueryRefused([Refusal("already_opened", "The classes of this epoch have been opened.")])
            self._store.append(reports)
        return len(reports) // self.layout.size

    def open_classes(self, readable: Readable | None = None) -> Opening:
        """Take no more reports, and return the rows of the classes that reached k.

        `readable` is `Form.readable` where rows were filled in on a form. Called again, it opens the same.
        """
        with self._lock:
            if self.state == "waiting":
                raise QueryRefused(
                    [Refusal("epoch_open", "No report has been taken: the epoch is still open.")]
                )
            if self.state == "taking":
                self._store.note(_OPENED, b"\x01")
            return open_reports(self.layout, self._store.read(), readable)
