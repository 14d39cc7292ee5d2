"""What left this party: to whom, under which policy, for how much γ. Only ever added to.

A ledger is a text file, one release a line, as canonical JSON. Every line holds the hash of the line before,
so that editing, deleting or reordering lines shows; how far the ledger had come (number and hash of its last
line) is kept elsewhere too, so that a missing end shows. A release is on the disk before `append` returns,
and only then may its bytes be sent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol, Self

from masquerade.core.atomic import sync_folder
from masquerade.core.errors import FileError
from masquerade.protocols.durable_store import Notes
from masquerade.services.common.release_spending import Spent, spending, summary
from masquerade.services.common.release_store import START, Entry, Mark, Release, check_end, entry_of, parse
from masquerade.services.common.state import State, lock_file, peek

__all__ = [
    "FILE",
    "Entry",
    "Head",
    "Mark",
    "NoteHead",
    "Release",
    "ReleaseLedger",
    "Spent",
    "in_state",
    "inspect",
]

FILE: Final = "releases.jsonl"
SCOPE: Final = "release ledger"
HEAD: Final = "head"
EPOCH: Final = "epoch"


class Head(Protocol):
    """Where it is kept how far a ledger has come; beside the ledger, not in it."""

    def get(self) -> Mark | None:
        """Return the number and hash of the last line known, None if none is."""

    def set(self, mark: Mark) -> None:
        """Remember the last line, durably."""


class NoteHead:
    """The end of a ledger, kept in the notes of a state."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def get(self) -> Mark | None:
        """Return the number and hash of the last line known, None if none is."""
        found = self._notes.get(SCOPE, HEAD)
        return None if found is None else Mark.decode(found)

    def set(self, mark: Mark) -> None:
        """Remember the last line, durably."""
        self._notes.put(SCOPE, HEAD, mark.encode())


class ReleaseLedger:
    """A ledger open for adding, by one process at a time."""

    def __init__(self, path: Path, handle: int, head: Head | None) -> None:
        self._path, self._handle, self._head = path, handle, head
        self._guard = threading.Lock()
        known = None if head is None else head.get()
        data = _contents(handle)
        entries, whole = parse(path, data)
        check_end(path, entries, known)
        self._last = entries[-1].mark if entries else START
        self._size = whole
        if whole < len(
            data
        ):  # a line cut short by a crash: it was never acknowledged, so nothing left under it
            os.ftruncate(handle, whole)
            os.fsync(handle)
        if head is not None and known != self._last:
            head.set(self._last)

    @classmethod
    def open(cls, path: str | Path, *, head: Head | None = None) -> ReleaseLedger:
        """Open a ledger, made if it does not exist, and check all of it.

        With `head`, a ledger that is shorter than it was, or another one, is refused.
        """
        place = Path(path)
        try:
            handle = os.open(place, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise _failed(place, error) from None
        try:
            lock_file(handle)
            sync_folder(place.absolute().parent)
            return cls(place, handle, head)
        except BlockingIOError:
            os.close(handle)
            raise FileError(f"{place}: is in use; one process at a time adds to a release ledger.") from None
        except OSError as error:
            os.close(handle)
            raise _failed(place, error) from None
        except BaseException:
            os.close(handle)
            raise

    def append(self, release: Release) -> Entry:
        """Write a release down; it is on the disk when this returns, and its bytes may be sent."""
        with self._guard:
            entry = entry_of(release, self._last)
            line = entry.line()
            try:
                if os.fstat(self._handle).st_size != self._size:
                    raise _touched(self._path)
                _write(self._handle, line, self._size)
            except OSError as error:
                raise _failed(self._path, error) from None
            self._size += len(line)
            self._last = entry.mark
            if self._head is not None:
                self._head.set(self._last)
            return entry

    def entries(self) -> tuple[Entry, ...]:
        """Return all releases, oldest first, read from the disk and checked."""
        with self._guard:
            entries, _ = parse(self._path, _contents(self._handle))
            return entries

    def verify(self) -> Mark:
        """Check every line and the end, from the disk; return the end, or name the first wrong line."""
        with self._guard:
            data = _contents(self._handle)
            entries, _ = parse(self._path, data)
            check_end(self._path, entries, self._last)
            if len(data) != self._size:
                raise _touched(self._path)
            return self._last

    def spent(self, *, policy: str | None = None, recipient: str | None = None) -> tuple[Spent, ...]:
        """Return the γ spent (see `release_spending`), under one policy or towards one recipient."""
        return spending(self.entries(), policy=policy, recipient=recipient)

    def summary(self) -> str:
        """Return what left, and what it may have given away, for reading."""
        return summary(self.entries())

    def close(self) -> None:
        """Let go of the file."""
        with self._guard:
            if self._handle >= 0:
                os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def in_state(state: State) -> ReleaseLedger:
    """Open the ledger of a service, which lies in its state folder and whose end the state remembers.

    After a restore, releases made since the backup may be missing from it: a line of kind "restored" says so.
    """
    ledger = ReleaseLedger.open(state.folder / FILE, head=NoteHead(state.notes))
    try:
        known, now = state.notes.get(SCOPE, EPOCH), str(state.epoch).encode()
        if known != now:
            if known is not None or state.restored:
                ledger.append(Release.restored(state.epoch))
            state.notes.put(SCOPE, EPOCH, now)
    except BaseException:
        ledger.close()
        raise
    return ledger


def inspect(place: str | Path) -> tuple[tuple[Entry, ...], Mark | None]:
    """Return the releases in a ledger file or a state folder, checked, and the end that the state remembers.

    A service may be adding to it meanwhile; nothing is locked or changed.
    """
    path = Path(place)
    file = path / FILE if path.is_dir() else path
    # the end first: what is added after it was asked for makes the ledger longer, never shorter
    found = peek(file.parent, SCOPE, HEAD) if file.name == FILE else None
    known = None if found is None else Mark.decode(found)
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        if known is not None and known.number:
            raise FileError(f"{file}: is gone, with {known.number} releases in it.") from None
        raise FileError(f"{file}: there is no release ledger here.") from None
    except OSError as error:
        raise _failed(file, error) from None
    entries, whole = parse(file, data)
    check_end(file, entries, known)
    if known is None and whole < len(data):
        raise FileError(f"{file}: line {len(entries) + 1} is cut short.")
    return entries, known


def _contents(handle: int) -> bytes:
    return b"".join(_pieces(handle))


def _pieces(handle: int) -> Iterator[bytes]:
    at = 0
    while piece := os.pread(handle, 1 << 20, at):
        at += len(piece)
        yield piece


def _write(handle: int, line: bytes, size: int) -> None:
    """Add a whole line, durably, or nothing."""
    try:
        written = 0
        while written < len(line):
            written += os.write(handle, line[written:])
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        os.fsync(handle)
        raise


def _touched(path: Path) -> FileError:
    return FileError(f"{path}: was changed by somebody else while it was open.")


def _failed(path: Path, error: OSError) -> FileError:
    reason = (error.strerror or "input/output error").lower()
    return FileError(f"{path}: the release ledger cannot be read or written ({reason}).")
