"""The file of a collector's sealed reports, without the order in which they came."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from masquerade.core.errors import FileError
from masquerade.protocols.wire.durable_store import DurableStore, Layout, Notes
from masquerade.protocols.wire.slot_table import SlotTable

_TAKEN_OVER: Final = "taken over"  # a note
_REPORTS: Final = Layout(
    "the reports of an epoch",
    "the reports",
    b"mqrp",
    SlotTable.table("slots") + Notes.TABLE,
    version=2,
    steps={1: "ALTER TABLE reports RENAME TO runs;\n" + SlotTable.table("slots")},
    log=False,
)
_COLLECTOR: Final = "collector"  # the scope of its notes


class ReportStore:
    """A collector's reports, without the order in which they came, and notes of how far it has got.

    Reports and notes are durable before a call returns. Without a path they are in memory, where the order
    stays. `size` is the size of a report; without it, reports that came together stay together.
    """

    def __init__(self, path: str | Path | None = None, size: int | None = None) -> None:
        self._store, self._size = DurableStore(path, _REPORTS), size
        self._notes, self._slots = Notes(self._store), SlotTable(self._store, "slots")
        self._seen: int | None = None
        self._in_memory: list[bytes] | None = [] if path is None else None
        try:
            self._take_over_runs()
        except BaseException:
            self._store.close()
            raise

    @classmethod
    def in_folder(cls, folder: Path, size: int) -> Self:
        """Open the store in a folder of its own, of reports of one size.

        What the first version kept there, a file of reports and one for each note, is taken over once and as
        a whole; a report that was cut short when the power failed is dropped.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            store, before = cls(folder / "reports.sqlite", size), folder / "reports"
            if before.exists():
                notes = sorted(folder.glob("*.note"))
                with store._store.transaction():
                    if store.noted(_TAKEN_OVER) is None:
                        run = before.read_bytes()
                        store._put(run[: len(run) // size * size])
                        for note in notes:
                            store.note(note.stem, note.read_bytes())
                        store.note(_TAKEN_OVER, b"")
                for file in (before, *notes):
                    file.unlink()
        except OSError as error:
            raise FileError(f"{folder}: reports cannot be kept there ({error.strerror}).") from None
        return store

    def append(self, reports: bytes) -> None:
        """Keep more reports, each at a random place of the file."""
        if self._in_memory is not None:
            self._in_memory.append(bytes(reports))
            return
        records = self._split(reports)
        longest = max(map(len, records), default=0)
        try:
            while True:
                with self._store.overwriting():
                    self._refresh()
                    if self._slots.has_room(len(records), longest):
                        self._slots.add(records)
                        return
                with self._store.transaction():
                    self._refresh()
                    self._slots.make_room(len(records), longest)
        except BaseException:
            self._seen = None
            raise

    def read(self) -> bytes:
        """Return all reports, in the order of their places, which are random."""
        if self._in_memory is not None:
            return b"".join(self._in_memory)
        with self._store.transaction():
            return b"".join([record for _, record in self._slots.load()])

    def note(self, name: str, content: bytes) -> None:
        """Keep a note."""
        self._notes.put(_COLLECTOR, name, content)

    def noted(self, name: str) -> bytes | None:
        """Return a note, None if there is none of this name."""
        return self._notes.get(_COLLECTOR, name)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def _split(self, reports: bytes) -> list[bytes]:
        size = self._size or len(reports) or 1
        return [reports[at : at + size] for at in range(0, len(reports), size)]

    def _put(self, reports: bytes) -> None:
        """Keep reports within a transaction that is open, and has a journal."""
        records = self._split(reports)
        self._refresh()
        self._slots.make_room(len(records), max(map(len, records), default=0))
        self._slots.add(records)

    def _refresh(self) -> None:
        """Learn which slots are free, unless nobody else has written since."""
        version = int(self._store.value("PRAGMA data_version"))
        if version != self._seen:
            self._slots.load()
            self._seen = version

    def _take_over_runs(self) -> None:
        """Bring reports of an older file, which kept them in the order received, to random places."""
        runs = "SELECT 1 FROM sqlite_master WHERE name = 'runs'"
        with self._store.transaction():
            if not self._store.value(runs):
                return
            self._put(b"".join([run for (run,) in self._store.run("SELECT run FROM runs")]))
            self._store.run("DROP TABLE runs")
        self._store.run("VACUUM")
