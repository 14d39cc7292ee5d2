"""Scratch space for long columns: anonymous temporary files that vanish with the process."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

import numpy as np
from numpy.typing import DTypeLike, NDArray

from masquerade.core.errors import FileError

IN_MEMORY = 1 << 20  # columns up to this number of bytes stay in memory


_MAPPED: WeakSet[mmap.mmap] = WeakSet()
_GUARD = threading.Lock()


def _map_file(file: IO[bytes], size: int) -> mmap.mmap:
    mapped = mmap.mmap(file.fileno(), size)
    with _GUARD:
        _MAPPED.add(mapped)
    return mapped


def release_pages() -> None:
    """Release the memory pages of all mapped files; the system reads them again on access.

    Loops over long columns call it after each chunk, so that the memory of the process does not grow with
    them.
    """
    with _GUARD:
        for mapped in _MAPPED:
            mapped.madvise(mmap.MADV_DONTNEED)


class Scratch:
    """Arrays in memory while they are short; longer ones are mapped from files in a folder.

    Such a file has no name and mode 0600. It disappears with the last array that uses it or with the process,
    even after a crash, so there is nothing to clean up. The system reclaims its pages when it needs memory.
    Without a folder all arrays are in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def empty(self, shape: Sequence[int], kind: DTypeLike) -> NDArray[Any]:
        """Return an uninitialized array."""
        size = prod(shape) * np.dtype(kind).itemsize
        if self.folder is None or size <= IN_MEMORY:
            return np.empty(tuple(shape), kind)
        try:
            with self.file() as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)  # a full disk fails here, not on access
                else:
                    file.truncate(size)
                return np.frombuffer(_map_file(file, size), kind).reshape(tuple(shape))
        except OSError as error:
            raise self.disk_full_error(error) from None

    def column(self) -> GrowingColumn:
        """Return a column that is filled in pieces."""
        return GrowingColumn(self)

    def store(self, data: bytes) -> memoryview:
        """Return a view of a copy of the bytes; long ones are stored in a file instead of memory."""
        if self.folder is None:
            return memoryview(data)
        column = self.column()
        column.append(np.frombuffer(data, np.uint8))
        return column.array().data

    def file(self) -> IO[bytes]:
        """Open an anonymous temporary file."""
        return tempfile.TemporaryFile(dir=self.folder)

    def disk_full_error(self, error: OSError) -> FileError:
        """Return the error that the folder has no space left."""
        return FileError(f"{self.folder}: no space for long columns ({error.strerror}).")


MEMORY_ONLY = Scratch()


class GrowingColumn:
    """A column that arrives in pieces of one type and row shape."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch, self._held, self._none = scratch, list[NDArray[Any]](), np.empty(0, np.uint8)
        self._open = ExitStack()
        self._file: IO[bytes] | None = None
        self.rows, self._bytes, self._kept = 0, 0, 0

    def append(self, piece: NDArray[Any]) -> None:
        """Append rows."""
        if not self.rows:
            self._none = piece[:0]
        elif piece.dtype != self._none.dtype:
            raise TypeError(f"Pieces of a column must have one type, {self._none.dtype}. Got {piece.dtype}.")
        self._held.append(piece)
        self.rows += len(piece)
        self._bytes += piece.nbytes
        self._kept += piece.nbytes
        if self._scratch.folder is not None and self._kept > IN_MEMORY:
            self._write()

    def array(self) -> NDArray[Any]:
        """Return the whole column. Nothing can be appended afterwards."""
        if self._file is None:
            column = np.concatenate([self._none, *self._held])
            self._held.clear()
            return column
        with self._open:
            self._write()
            try:
                self._file.flush()
                mapped = _map_file(self._file, self._bytes)
            except OSError as error:
                raise self._scratch.disk_full_error(error) from None
        return np.frombuffer(mapped, self._none.dtype).reshape(self.rows, *self._none.shape[1:])

    def _write(self) -> None:
        """Write the pieces in memory to the file."""
        try:
            if self._file is None:
                self._file = self._open.enter_context(self._scratch.file())
            for piece in self._held:
                self._file.write(np.ascontiguousarray(piece).data)
        except OSError as error:
            self._open.close()
            raise self._scratch.disk_full_error(error) from None
        self._held.clear()
        self._kept = 0
