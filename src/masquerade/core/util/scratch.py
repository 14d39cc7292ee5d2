"""Room for long columns: files without a name, which nobody else can open and nothing leaves behind."""

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

IN_MEMORY = 1 << 20  # bytes of a column that are held


_MAPPED: WeakSet[mmap.mmap] = WeakSet()
_GUARD = threading.Lock()


def _mapped(file: IO[bytes], size: int) -> mmap.mmap:
    found = mmap.mmap(file.fileno(), size)
    with _GUARD:
        _MAPPED.add(found)
    return found


def let_go() -> None:
    """Hold no page of any of these files in memory; whoever looks at one again gets it again.

    Loops over long columns say so after every part, so that what a process holds does not grow with them.
    """
    with _GUARD:
        for mapped in _MAPPED:
            mapped.madvise(mmap.MADV_DONTNEED)


class Scratch:
    """Arrays in memory while they are short; longer ones are mapped from files of a folder.

    Such a file has no name, is its owner's alone (mode 0600), and is gone with the last array over it or with
    the process, however that ended: there is nothing to be removed after a crash. The system takes pages of
    it back whenever it needs memory. Without a folder everything is in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def empty(self, shape: Sequence[int], kind: DTypeLike) -> NDArray[Any]:
        """Return an array to be filled."""
        size = prod(shape) * np.dtype(kind).itemsize
        if self.folder is None or size <= IN_MEMORY:
            return np.empty(tuple(shape), kind)
        try:
            with self.file() as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)  # a disk that is full says so now, not later
                else:
                    file.truncate(size)
                return np.frombuffer(_mapped(file, size), kind).reshape(tuple(shape))
        except OSError as error:
            raise self.full(error) from None

    def column(self) -> GrowingColumn:
        """Return a column that is filled piece by piece."""
        return GrowingColumn(self)

    def kept(self, data: bytes) -> memoryview:
        """Return the same bytes; long ones lie in a file, and in memory only while somebody looks at them."""
        if self.folder is None:
            return memoryview(data)
        column = self.column()
        column.append(np.frombuffer(data, np.uint8))
        return column.array().data

    def file(self) -> IO[bytes]:
        """Open a file without a name."""
        return tempfile.TemporaryFile(dir=self.folder)

    def full(self, error: OSError) -> FileError:
        """Return the error that there is no room."""
        return FileError(f"{self.folder}: there is no room for long columns ({error.strerror}).")


HELD = Scratch()


class GrowingColumn:
    """A column that comes in pieces of one type, of rows of one shape."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch, self._held, self._none = scratch, list[NDArray[Any]](), np.empty(0, np.uint8)
        self._open = ExitStack()
        self._file: IO[bytes] | None = None
        self.rows, self._bytes, self._kept = 0, 0, 0

    def append(self, piece: NDArray[Any]) -> None:
        """Add rows."""
        if not self.rows:
            self._none = piece[:0]
        elif piece.dtype != self._none.dtype:
            raise TypeError(f"Pieces of a column are of one type: {self._none.dtype}. Got {piece.dtype}.")
        self._held.append(piece)
        self.rows += len(piece)
        self._bytes += piece.nbytes
        self._kept += piece.nbytes
        if self._scratch.folder is not None and self._kept > IN_MEMORY:
            self._write()

    def array(self) -> NDArray[Any]:
        """Return the whole column; nothing is added afterwards."""
        if self._file is None:
            whole = np.concatenate([self._none, *self._held])
            self._held.clear()
            return whole
        with self._open:
            self._write()
            try:
                self._file.flush()
                mapped = _mapped(self._file, self._bytes)
            except OSError as error:
                raise self._scratch.full(error) from None
        return np.frombuffer(mapped, self._none.dtype).reshape(self.rows, *self._none.shape[1:])

    def _write(self) -> None:
        """Write what is held."""
        try:
            if self._file is None:
                self._file = self._open.enter_context(self._scratch.file())
            for piece in self._held:
                self._file.write(np.ascontiguousarray(piece).data)
        except OSError as error:
            self._open.close()
            raise self._scratch.full(error) from None
        self._held.clear()
        self._kept = 0
