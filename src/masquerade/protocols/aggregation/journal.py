"""What a user must never forget: votes that left, lists it stood on, the report that was drawn for it.

A journal only grows. `append` returns when the entry is durable, and only then does a message leave.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from masquerade.core.errors import FileError

Entry = Mapping[str, Any]


class Journal(Protocol):
    """The seam to durable storage."""

    def append(self, entry: Entry) -> None:
        """Keep an entry; durable on return."""

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""


class MemoryJournal:
    """A journal that ends with the process: for simulations and tests."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def append(self, entry: Entry) -> None:
        """Keep an entry."""
        self._entries.append(dict(entry))

    def entries(self) -> list[Entry]:
        """Return all entries."""
        return list(self._entries)


class FileJournal:
    """An append-only file, one JSON object a line, synced line by line, readable by its owner only.

    One process at a time: the file is locked. A last line cut short by a crash was never followed by a
    message and is dropped; damage anywhere else is an error.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder = os.open(self.path.resolve().parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # a new file must itself survive
            finally:
                os.close(folder)
        except BlockingIOError:
            os.close(self._file)
            raise FileError(f"{self.path}: the journal is in use by another process.") from None
        except OSError as error:
            raise FileError(f"{self.path}: the journal cannot be opened ({error.strerror}).") from None
        self._entries = self._read()

    def append(self, entry: Entry) -> None:
        """Write an entry and wait until it is on the disk."""
        line = json.dumps(dict(entry), sort_keys=True).encode() + b"\n"
        before = os.fstat(self._file).st_size
        try:
            write_all(self._file, line)
        except OSError as error:
            os.ftruncate(self._file, before)  # half a line must not swallow the next
            raise FileError(f"{self.path}: the journal cannot be written ({error.strerror}).") from None
        self._entries.append(json.loads(line))

    def entries(self) -> list[Entry]:
        """Return all entries."""
        return list(self._entries)

    def close(self) -> None:
        """Release the file."""
        os.close(self._file)

    def _read(self) -> list[Entry]:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.ftruncate(self._file, whole)
        entries: list[Entry] = []
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            if not isinstance(entry, dict):
                raise FileError(f"{self.path}: line {number} of the journal is damaged.")
            entries.append(entry)
        return entries


def write_all(file: int, line: bytes) -> None:
    """Write a line and wait until it is on the disk; half a line is a full disk."""
    if os.write(file, line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(file)
