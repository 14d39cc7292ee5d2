"""What the randomness server must remember even if it is restarted: epochs, and who has been served in each.

Whatever is told to a ledger is on the disk before the call returns. Keys are never told to it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from masquerade.core.errors import FileError


class Ledger(Protocol):
    """A memory of epochs and spent credentials."""

    def begin(self, epoch: str, notice: bytes) -> bool:
        """Remember a new epoch and its notice; False if the name was used before."""

    def notice(self, epoch: str) -> bytes | None:
        """Return the notice of an epoch, None if there was none of this name."""

    def epochs(self) -> tuple[str, ...]:
        """Return the names of all epochs, in the order they began."""

    def spend(self, epoch: str, uses: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Remember (credential, fingerprint) pairs, all at once.

        True where the credential is used for the first time in the epoch, or again with the same fingerprint.
        """

    def spent(self, epoch: str) -> int:
        """Return how many credentials were used in an epoch."""

    def finish(self, epoch: str) -> None:
        """Remember that an epoch is closed."""

    def finished(self, epoch: str) -> bool:
        """Tell whether an epoch is closed."""


class MemoryLedger:
    """A ledger for tests and simulations: it forgets everything with its process."""

    def __init__(self) -> None:
        self._notices: dict[str, bytes] = {}
        self._uses: dict[str, dict[bytes, bytes]] = {}
        self._finished: set[str] = set()

    def begin(self, epoch: str, notice: bytes) -> bool:
        """Remember a new epoch and its notice; False if the name was used before."""
        if epoch in self._notices:
            return False
        self._notices[epoch], self._uses[epoch] = notice, {}
        return True

    def notice(self, epoch: str) -> bytes | None:
        """Return the notice of an epoch, None if there was none of this name."""
        return self._notices.get(epoch)

    def epochs(self) -> tuple[str, ...]:
        """Return the names of all epochs, in the order they began."""
        return tuple(self._notices)

    def spend(self, epoch: str, uses: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Remember uses; True where a credential is new or repeats itself."""
        known = self._uses[epoch]
        return [known.setdefault(credential, mark) == mark for credential, mark in uses]

    def spent(self, epoch: str) -> int:
        """Return how many credentials were used in an epoch."""
        return len(self._uses.get(epoch, ()))

    def finish(self, epoch: str) -> None:
        """Remember that an epoch is closed."""
        self._finished.add(epoch)

    def finished(self, epoch: str) -> bool:
        """Tell whether an epoch is closed."""
        return epoch in self._finished


class SqliteLedger:
    """A ledger in an SQLite file that only its owner can read, synced at every call.

    Cost: one sync for each call of `spend`, however many uses, and about 5 µs for each use.
    """

    def __init__(self, path: str | Path) -> None:
        place = Path(path)
        try:
            os.close(os.open(place, os.O_CREAT | os.O_RDWR, 0o600))
            self._database = sqlite3.connect(place, isolation_level=None, check_same_thread=False)
            self._lock = threading.RLock()
            for line in _TABLES:
                self._database.execute(line)
        except (OSError, sqlite3.Error) as error:
            raise FileError(f"{place}: the ledger cannot be opened ({error}).") from None

    def begin(self, epoch: str, notice: bytes) -> bool:
        """Remember a new epoch and its notice; False if the name was used before."""
        found = self._run("INSERT OR IGNORE INTO epochs (name, notice) VALUES (?, ?)", epoch, notice)
        return found.rowcount == 1

    def notice(self, epoch: str) -> bytes | None:
        """Return the notice of an epoch, None if there was none of this name."""
        row = self._run("SELECT notice FROM epochs WHERE name = ?", epoch).fetchone()
        return None if row is None else bytes(row[0])

    def epochs(self) -> tuple[str, ...]:
        """Return the names of all epochs, in the order they began."""
        return tuple(str(row[0]) for row in self._run("SELECT name FROM epochs ORDER BY number"))

    def spend(self, epoch: str, uses: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Remember uses, on the disk when this returns; True where a credential is new or repeats itself."""
        with self._lock:
            self._run("BEGIN IMMEDIATE")
            try:
                number = self._run("SELECT number FROM epochs WHERE name = ?", epoch).fetchone()[0]
                allowed = [self._use(number, credential, mark) for credential, mark in uses]
                self._run("COMMIT")
            except BaseException:
                self._run("ROLLBACK")
                raise
            return allowed

    def spent(self, epoch: str) -> int:
        """Return how many credentials were used in an epoch."""
        query = "SELECT count(*) FROM uses WHERE epoch = (SELECT number FROM epochs WHERE name = ?)"
        return int(self._run(query, epoch).fetchone()[0])

    def finish(self, epoch: str) -> None:
        """Remember that an epoch is closed."""
        self._run("UPDATE epochs SET finished = 1 WHERE name = ?", epoch)

    def finished(self, epoch: str) -> bool:
        """Tell whether an epoch is closed."""
        row = self._run("SELECT finished FROM epochs WHERE name = ?", epoch).fetchone()
        return row is not None and bool(row[0])

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def _use(self, number: int, credential: bytes, mark: bytes) -> bool:
        new = self._run("INSERT OR IGNORE INTO uses VALUES (?, ?, ?)", number, credential, mark)
        if new.rowcount:
            return True
        known = self._run("SELECT mark FROM uses WHERE epoch = ? AND credential = ?", number, credential)
        return bytes(known.fetchone()[0]) == mark

    def _run(self, line: str, *values: str | bytes | int) -> sqlite3.Cursor:
        with self._lock:
            return self._database.execute(line, values)


_TABLES = (
    "PRAGMA synchronous = EXTRA",
    """CREATE TABLE IF NOT EXISTS epochs (number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL,
       notice BLOB NOT NULL, finished INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE IF NOT EXISTS uses (epoch INTEGER NOT NULL, credential BLOB NOT NULL,
       mark BLOB NOT NULL, PRIMARY KEY (epoch, credential)) WITHOUT ROWID""",
)
