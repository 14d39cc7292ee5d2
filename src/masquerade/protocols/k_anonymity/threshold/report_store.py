"""The file of a collector's sealed reports, without the order in which they arrived."""

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
    """A collector's reports, without the order in which they arrived, and notes on its progress.

    Reports and notes are durable before a call returns. Without a path they are kept in memory, in their
    order. `size` is the size of a report; without it, reports that arrived together are stored together.
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
        """Open the store in its own folder, for reports of one size.

        The files of the first version, one of reports and one per note, are imported once, in one
        transaction. A report that was truncated by a power failure is dropped.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            store, before = cls(folder / "reports.sqlite", size), folder / "reports"
            if before.exists():
                notes = sorted(folder.glob("*.note"))
                with store._store.transaction():
                    if store.find_note(_TAKEN_OVER) is None:
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
        """Store more reports, each at a random position in the file."""
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
        """Return all reports, in the order of their random positions."""
        if self._in_memory is not None:
            return b"".join(self._in_memory)
        with self._store.transaction():
            return b"".join([record for _, record in self._slots.load()])

    def note(self, name: str, content: bytes) -> None:
        """Store a note."""
        self._notes.put(_COLLECTOR, name, content)

    def find_note(self, name: str) -> bytes | None:
        """Return the note with this name, or None."""
        return self._notes.get(_COLLECTOR, name)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def _split(self, reports: bytes) -> list[bytes]:
        size = self._size or len(reports) or 1
        return [reports[at : at + size] for at in range(0, len(reports), size)]

    def _put(self, reports: bytes) -> None:
        """Store reports within an open transaction that has a journal."""
        records = self._split(reports)
        self._refresh()
        self._slots.make_room(len(records), max(map(len, records), default=0))
        self._slots.add(records)

    def _refresh(self) -> None:
        """Read again which slots are free, if another process has written since."""
        version = int(self._store.value("PRAGMA data_version"))
        if version != self._seen:
            self._slots.load()
            self._seen = version

    def _take_over_runs(self) -> None:
        """Move the reports of an older file, which are in the order of arrival, to random positions."""
        runs = "SELECT 1 FROM sqlite_master WHERE name = 'runs'"
        with self._store.transaction():
            if not self._store.value(runs):
                return
            self._put(b"".join([run for (run,) in self._store.run("SELECT run FROM runs")]))
            self._store.run("DROP TABLE runs")
        self._store.run("VACUUM")
