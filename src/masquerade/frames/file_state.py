"""The state in which files were opened: whoever reads them again finds out whether they are the same.

A file is known by its place on the disk, its size, the time of its last change and a hash of its first and
last bytes (in a Parquet file those say what all the others are). What is said next to it belongs to it.
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
    """What files were like at one time; None for one that was not there."""

    since: datetime
    marks: tuple[tuple[str, _Mark], ...]

    @classmethod
    def of(cls, paths: Sequence[str | Path]) -> Self:
        """Return what files, and what is said next to them, are like now; streams have no state."""
        known = dict.fromkeys(str(path) for path in paths if str(path) != STREAM)
        places = [*known, *(str(beside) for path in known for beside in sidecars_of(path))]
        return cls(datetime.now().astimezone(), tuple((place, _mark(place)) for place in places))

    def joined(self, later: FileState) -> FileState:
        """Return the state of these files and of others that were opened later."""
        return FileState(later.since, (*self.marks, *later.marks))

    def check(self) -> None:
        """Refuse files that are not what they were; one that is gone is a `FileError`."""
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
    except OSError:  # whoever reads it says why it cannot be read
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, edges.digest()
