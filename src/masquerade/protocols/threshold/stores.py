"""What the two servers must still know after a crash: who was evaluated for, and the reports taken.

Whatever is told to either is on the disk before the call returns. Without a place, both are in memory: for
simulations and tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from masquerade.core.errors import FileError
from masquerade.protocols.durable_store import DurableStore, Layout, Notes

_EVALUATIONS: Final = Layout(
    "the ledger of a randomness server",
    "the ledger",
    b"mqev",
    """CREATE TABLE epochs (number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL,
       notice BLOB NOT NULL, finished INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE uses (epoch INTEGER NOT NULL, credential BLOB NOT NULL,
       mark BLOB NOT NULL, PRIMARY KEY (epoch, credential)) WITHOUT ROWID;
    """,
    steps={0: ""},
    unmarked=frozenset({"epochs", "uses"}),
    log=False,
)
_REPORTS: Final = Layout(
    "the reports of an epoch",
    "the reports",
    b"mqrp",
    "CREATE TABLE reports (place INTEGER PRIMARY KEY, run BLOB NOT NULL);\n" + Notes.TABLE,
)
_COLLECTOR: Final = "collector"  # the scope of its notes
_TAKEN_OVER: Final = "taken over"


class EvaluationLedger:
    """The randomness server's memory of epochs, and of the credentials spent in each; keys never get here.

    Cost: one sync for each call of `spend`, however many uses, and about 5 µs for each use.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._store = DurableStore(path, _EVALUATIONS)

    def begin(self, epoch: str, notice: bytes) -> bool:
        """Remember a new epoch and its notice; False if the name was used before."""
        line = "INSERT OR IGNORE INTO epochs (name, notice) VALUES (?, ?)"
        return self._store.run_all(line, [(epoch, notice)]) == 1

    def notice(self, epoch: str) -> bytes | None:
        """Return the notice of an epoch, None if there was none of this name."""
        found = self._store.value("SELECT notice FROM epochs WHERE name = ?", (epoch,))
        return None if found is None else bytes(found)

    def epochs(self) -> dict[str, bytes]:
        """Return the notices of all epochs by name, in the order they began."""
        rows = self._store.run("SELECT name, notice FROM epochs ORDER BY number")
        return {str(name): bytes(notice) for name, notice in rows}

    def spend(self, epoch: str, uses: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Remember (credential, fingerprint) pairs, all at once.

        True where the credential is used for the first time in the epoch, or again with the same fingerprint.
        """
        with self._store.transaction():
            number = self._store.value("SELECT number FROM epochs WHERE name = ?", (epoch,))
            return [self._use(number, credential, mark) for credential, mark in uses]

    def spent(self, epoch: str) -> int:
        """Return how many credentials were used in an epoch."""
        query = "SELECT count(*) FROM uses WHERE epoch = (SELECT number FROM epochs WHERE name = ?)"
        return int(self._store.value(query, (epoch,)))

    def finish(self, epoch: str) -> None:
        """Remember that an epoch is closed."""
        self._store.run("UPDATE epochs SET finished = 1 WHERE name = ?", (epoch,))

    def finished(self, epoch: str) -> bool:
        """Tell whether an epoch is closed."""
        return bool(self._store.value("SELECT finished FROM epochs WHERE name = ?", (epoch,)))

    def close(self) -> None:
        """Let go of the file."""
        self._store.close()

    def _use(self, number: int, credential: bytes, mark: bytes) -> bool:
        if self._store.run_all("INSERT OR IGNORE INTO uses VALUES (?, ?, ?)", [(number, credential, mark)]):
            return True
        query = "SELECT mark FROM uses WHERE epoch = ? AND credential = ?"
        return bytes(self._store.value(query, (number, credential))) == mark


class ReportStore:
    """A collector's reports in the order received, and notes of how far it has got."""

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
