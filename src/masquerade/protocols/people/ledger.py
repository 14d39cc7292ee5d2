"""What a person's device must never forget: keys burnt, votes that left, rosters signed.

A ledger only grows. Whatever is claimed is on the disk before the message that depends on it leaves, and what
has been claimed once cannot be claimed again, not even by a second process or after a crash.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from masquerade.core.errors import FileError
from masquerade.crypto.errors import KeySpent


class Entry(NamedTuple):
    """One fact: of some kind, under a name that occurs once in that kind."""

    kind: str
    name: bytes
    value: bytes = b""


class Ledger(Protocol):
    """Where facts are kept. Two implementations follow; a device may bring its own."""

    def claim(self, entries: Sequence[Entry]) -> None:
        """Record all entries durably, or none and raise `KeySpent` because one is there already."""

    def find(self, kind: str, name: bytes) -> bytes | None:
        """Return the value of an entry, None if there is none."""

    def values(self, kind: str, prefix: bytes) -> list[bytes]:
        """Return the values of the entries of a kind whose name begins like this, oldest first."""


class MemoryLedger:
    """A ledger that ends with its process: for simulations and tests."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, bytes], bytes] = {}
        self._lock = threading.Lock()

    def claim(self, entries: Sequence[Entry]) -> None:
        """Record all entries, or none and raise `KeySpent`."""
        with self._lock:
            names = [(entry.kind, entry.name) for entry in entries]
            if len(set(names)) < len(names) or any(name in self._entries for name in names):
                raise KeySpent("This was used already: it left this device, or was about to.")
            self._entries |= {(entry.kind, entry.name): entry.value for entry in entries}

    def find(self, kind: str, name: bytes) -> bytes | None:
        """Return the value of an entry, None if there is none."""
        return self._entries.get((kind, name))

    def values(self, kind: str, prefix: bytes) -> list[bytes]:
        """Return the values of a kind whose name begins like this, oldest first."""
        return [v for (k, name), v in list(self._entries.items()) if k == kind and name.startswith(prefix)]


class FileLedger:
    """A ledger in a SQLite file, readable by its owner only; several processes may share it.

    What `claim` wrote is synced before it returns, the folder of a new file included.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            self._store = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            self._store.execute("PRAGMA synchronous = EXTRA")
            self._store.execute(
                "CREATE TABLE IF NOT EXISTS claimed (place INTEGER PRIMARY KEY AUTOINCREMENT, "
                "kind TEXT NOT NULL, name BLOB NOT NULL, value BLOB NOT NULL, UNIQUE (kind, name))"
            )
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from None
        self._lock = threading.Lock()

    def claim(self, entries: Sequence[Entry]) -> None:
        """Record all entries durably, or none and raise `KeySpent`."""
        with self._lock:
            try:
                self._store.execute("BEGIN IMMEDIATE")
                try:
                    self._store.executemany(
                        "INSERT INTO claimed (kind, name, value) VALUES (?, ?, ?)",
                        [tuple(e) for e in entries],
                    )
                    self._store.execute("COMMIT")
                except BaseException:
                    self._store.execute("ROLLBACK")
                    raise
            except sqlite3.IntegrityError:
                raise KeySpent("This was used already: it left this device, or was about to.") from None
            except sqlite3.Error as error:
                raise self._failed(error) from None

    def find(self, kind: str, name: bytes) -> bytes | None:
        """Return the value of an entry, None if there is none."""
        rows = self._read("SELECT value FROM claimed WHERE kind = ? AND name = ?", (kind, name))
        return bytes(rows[0][0]) if rows else None

    def values(self, kind: str, prefix: bytes) -> list[bytes]:
        """Return the values of a kind whose name begins like this, oldest first."""
        rows = self._read(
            "SELECT value FROM claimed WHERE kind = ? AND substr(name, 1, ?) = ? ORDER BY place",
            (kind, len(prefix), prefix),
        )
        return [bytes(row[0]) for row in rows]

    def close(self) -> None:
        """Let go of the file."""
        self._store.close()

    def _read(self, question: str, values: tuple[object, ...]) -> list[tuple[bytes]]:
        with self._lock:
            try:
                return self._store.execute(question, values).fetchall()
            except sqlite3.Error as error:
                raise self._failed(error) from None

    def _failed(self, error: sqlite3.Error | OSError) -> FileError:
        reason = error.strerror if isinstance(error, OSError) else error
        return FileError(f"{self._path}: the ledger cannot be read or written ({reason}).")
