"""The state in which files were opened, to detect changes when they are read again.

A file is identified by its inode, size, time of last change, and a hash of its first and last bytes (the last
bytes of a Parquet file describe all others). The sidecar of a file is checked, too.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from masquerade.core.errors import DataChanged
from masquerade.frames.formats import STREAM, sidecars_of, unreadable

EDGE = 1 << 12  # bytes at either end that are hashed

_Mark = tuple[int, int, int, int, bytes] | None


@dataclass(frozen=True, slots=True)
class FileState:
    """State of files at one time: a mark for each file, None for a missing file or a pipe."""

    since: datetime
    marks: tuple[tuple[str, _Mark], ...]

    @classmethod
    def of(cls, paths: Sequence[str | Path]) -> Self:
        """Return the current state of files and their sidecars; streams have no state."""
        known = dict.fromkeys(str(path) for path in paths if str(path) != STREAM)
        places = [*known, *(str(beside) for path in known for beside in sidecars_of(path))]
        return cls(datetime.now().astimezone(), tuple((place, _mark(place)) for place in places))

    def join(self, later: FileState) -> FileState:
        """Return the state of these files and of others that were opened later."""
        return FileState(later.since, (*self.marks, *later.marks))

    def check(self) -> None:
        """Raise an error if a file has changed; a missing file raises `FileError`."""
        for place, mark in self.marks:
            if _mark(place) != mark:
                try:
                    Path(place).stat()
                except OSError as error:
                    raise unreadable(place, error) from None
                raise DataChanged(place, self.since)


def _mark(place: str) -> _Mark:
    try:
        if not Path(place).is_file():  # a pipe has no state, and must not be opened twice
            return None
        with os.fdopen(os.open(place, os.O_RDONLY), "rb") as file:
            found = os.fstat(file.fileno())
            edges = hashlib.sha256(file.read(EDGE))
            file.seek(max(found.st_size - EDGE, 0))
            edges.update(file.read(EDGE))
    except OSError:  # the reader of the file raises the error
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, edges.digest()
