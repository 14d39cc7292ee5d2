"""Where a collector keeps reports: in no order, and with notes of how far it has got.

Times of arrival are in logs and on the network, so the order of arrival would say whose report is whose.
There is a slot for every report before it comes; it is written into one that is drawn at random, in place,
and the journal of that change is gone when the change is made. When slots run out, all reports are drawn into
twice as many. Files have no order of arrival then, but for the one report that was being written when a
process was killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import numpy as np

from masquerade.core.errors import FileError
from masquerade.crypto.class_secrets import Ints, shuffled
from masquerade.protocols.durable_store import DurableStore, Layout, Notes

FEWEST_SLOTS: Final = 1024
_TAKEN_OVER: Final = "taken over"
_COLLECTOR: Final = "collector"  # the scope of its notes
_FREE, _USED = b"\x00", b"\x01"  # what a slot begins with
_SLOTS: Final = "CREATE TABLE slots (place INTEGER PRIMARY KEY, kept BLOB NOT NULL);\n"
_REPORTS: Final = Layout(
    "the reports of an epoch",
    "the reports",
    b"mqrp",
    _SLOTS + Notes.TABLE,
    version=2,
    steps={1: _SLOTS},
    log=False,  # a write-ahead log is a list of arrivals
)


class ReportStore:
    """A collector's reports, each of `size` bytes, in no order, and notes of how far it has got.

    Every call is durable when it returns; without a path the store is in memory.
    """

    def __init__(self, size: int, path: str | Path | None = None) -> None:
        self._size = size
        self._store = DurableStore(path, _REPORTS)
        self._notes = Notes(self._store)
        if self._store.run("SELECT name FROM sqlite_master WHERE name = 'reports'"):
            with self._store.transaction():  # version 1 kept them as they came
                runs = self._store.run("SELECT run FROM reports")
                self._fill([one for (run,) in runs for one in self._split(bytes(run))])
                self._store.run("DROP TABLE reports")
        self._free = self._found_free()

    @classmethod
    def in_folder(cls, folder: Path, size: int) -> Self:
        """Open the store in a folder of its own, of reports of one size.

        What the first version kept there, a file of reports and one for each note, is taken over once and as
        a whole; a report that was cut short when the power failed is dropped.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            store, before = cls(size, folder / "reports.sqlite"), folder / "reports"
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
        new = list(self._split(reports))
        with self._store.transaction():
            if len(new) > len(self._free):
                self._fill([*self._split(self.read()), *new])
                free = self._found_free()
            else:
                free, chosen = np.split(self._free, [len(self._free) - len(new)])
                rows = [(_USED + one, place) for one, place in zip(new, chosen.tolist(), strict=True)]
                self._store.run_all("UPDATE slots SET kept = ? WHERE place = ?", rows)
        self._free = free

    def read(self) -> bytes:
        """Return all reports, in an order that tells nothing of when they came."""
        rows = self._store.run("SELECT substr(kept, 2) FROM slots WHERE substr(kept, 1, 1) = ?", (_USED,))
        return b"".join([report for (report,) in rows])

    def note(self, name: str, content: bytes) -> None:
        """Keep a note."""
        self._notes.put(_COLLECTOR, name, content)

    def noted(self, name: str) -> bytes | None:
        """Return a note, None if there is none of this name."""
        return self._notes.get(_COLLECTOR, name)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def _split(self, run: bytes) -> Iterator[bytes]:
        return (run[at : at + self._size] for at in range(0, len(run), self._size))

    def _fill(self, reports: list[bytes]) -> None:
        """Replace all slots by twice as many as there are reports, and put these into random ones."""
        slots = [_FREE + bytes(self._size)] * max(FEWEST_SLOTS, 2 * len(reports))
        for report, place in zip(reports, _random_places(len(slots))[: len(reports)].tolist(), strict=True):
            slots[place] = _USED + report
        self._store.run("DELETE FROM slots")
        self._store.run_all("INSERT INTO slots (place, kept) VALUES (?, ?)", enumerate(slots))

    def _found_free(self) -> Ints:
        """Return the free slots in an order that nobody foresees."""
        rows = self._store.run("SELECT place FROM slots WHERE substr(kept, 1, 1) = ?", (_FREE,))
        places = np.array(rows, dtype=np.int64).ravel()
        return places[_random_places(len(places))]


def _random_places(number: int) -> Ints:
    """Return the places 0 … number − 1 in random order."""
    if not number:
        return np.zeros(0, dtype=np.int64)
    return shuffled(np.zeros(1, dtype=np.int64), np.array([number], dtype=np.int64))
