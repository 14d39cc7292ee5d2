"""Where a collector keeps what must survive a restart: the reports it has taken, and how far it has got."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from masquerade.core.atomic import sync_folder, write_whole
from masquerade.core.errors import FileError


class ReportStore(Protocol):
    """A growing run of reports, and named notes."""

    def append(self, reports: bytes) -> None:
        """Keep more reports; they are safe when this returns."""

    def read(self) -> bytes:
        """Return all reports in the order received."""

    def note(self, name: str, content: bytes) -> None:
        """Keep a note; it is safe when this returns."""

    def noted(self, name: str) -> bytes | None:
        """Return a note, None if there is none of this name."""


class MemoryStore:
    """A store for tests and simulations."""

    def __init__(self) -> None:
        self._reports: list[bytes] = []
        self._notes: dict[str, bytes] = {}

    def append(self, reports: bytes) -> None:
        """Keep more reports."""
        self._reports.append(bytes(reports))

    def read(self) -> bytes:
        """Return all reports in the order received."""
        return b"".join(self._reports)

    def note(self, name: str, content: bytes) -> None:
        """Keep a note."""
        self._notes[name] = content

    def noted(self, name: str) -> bytes | None:
        """Return a note, None if there is none of this name."""
        return self._notes.get(name)


class FileStore:
    """A store in a folder of its own: one file that only grows, and a small file for each note.

    `size` is the length of a report. A report that was cut short when the power failed is dropped at the
    start.
    """

    def __init__(self, folder: str | Path, size: int) -> None:
        self._folder = Path(folder)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(self._folder / "reports", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            whole = os.fstat(self._file).st_size // size * size
            os.ftruncate(self._file, whole)
            sync_folder(self._folder)
        except OSError as error:
            raise FileError(f"{folder}: reports cannot be kept there ({error.strerror}).") from None

    def append(self, reports: bytes) -> None:
        """Keep more reports, on the disk when this returns."""
        before, left = os.fstat(self._file).st_size, memoryview(reports)
        try:
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, before)  # half a report would shift all that follow
            raise FileError(f"{self._folder}: reports cannot be kept ({error.strerror}).") from None

    def read(self) -> bytes:
        """Return all reports in the order received."""
        return (self._folder / "reports").read_bytes()

    def note(self, name: str, content: bytes) -> None:
        """Keep a note, on the disk when this returns."""
        write_whole(self._folder / f"{name}.note", content, private=True)

    def noted(self, name: str) -> bytes | None:
        """Return a note, None if there is none of this name."""
        try:
            return (self._folder / f"{name}.note").read_bytes()
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """Let go of the files."""
        os.close(self._file)
