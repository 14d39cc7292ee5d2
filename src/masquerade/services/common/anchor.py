"""Notice a state folder that was put back: copied, overwritten in place, or one of its files alone.

A restore brings back the bytes of files and, if it runs as root, nearly all of their metadata. It cannot
bring back an inode's change time (ctime): the kernel sets it to the present at every write, and no call sets
it to anything else. An `Anchor` is a pair of small files that use this. Each step writes a new file over the
older of the two, and the new one contains

- the number of the step, the id and epoch of the state, and how many changes each database has seen,
- inode, generation and change time of the other file, and the SHA-256 of its content.

So at every moment the newer file describes the older one, which nothing has touched since. A restore that
touches the older file changes its change time. A restore that touches the newer one alone makes it the older
one, whose change time then differs from what the other file says. Databases that are put back without the
anchor have seen fewer changes than it says. Only a copy of the whole disk, taken below the file system
(snapshot of a disk, volume or virtual machine), brings all of this back.

A file becomes the newer one by `rename`, which happens or does not. A process that is killed at any moment
leaves either the old pair or the new one, and a database that is at most one change ahead. Times are compared
for equality alone, so the clock may be set to anything. After a power failure databases may be further ahead,
as the last renames may be lost: then the machine has started again, which its boot id shows.

Reading changes nothing here. What changes an inode does: `chmod`, `chown`, hard links (`cp -al`), extended
attributes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from masquerade.core.errors import FileError
from masquerade.core.json_text import parse_json

FILES: Final = ("anchor.0", "anchor.1")
NEW: Final = "anchor.new"  # on its way; one that is left behind by a crash is written over
MISSING: Final = "-"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
MOST_BYTES: Final = 1 << 16
FS_IOC_GETVERSION: Final = 0x80087601  # Linux: the generation of an inode, new whenever its number is reused


@dataclass(frozen=True, slots=True)
class AnchorStep:
    """Content of an anchor's newer file; `counts` are the changes of each database by its name."""

    step: int
    incarnation: str
    epoch: int
    counts: Mapping[str, int] = field(default_factory=dict)
    boot: str = ""
    other: str = MISSING
    other_digest: str = MISSING

    def encode(self) -> bytes:
        """Return the content of the file."""
        return json.dumps(asdict(self), sort_keys=True).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """Return the step in a file, None if there is none."""
        try:
            values = parse_json(data)
            found = cls(**values) if isinstance(values, dict) else None
        except (ValueError, TypeError, RecursionError):
            return None
        if found is None or not all(map(isinstance, _values(found), (int, str, int, dict, str, str, str))):
            return None
        whole = all(isinstance(name, str) and type(it) is int for name, it in found.counts.items())
        return found if whole else None


def _values(step: AnchorStep) -> list[Any]:
    return [getattr(step, name) for name in AnchorStep.__slots__]


class Anchor:
    """The anchor in a folder: `last` is the last step, None where there is none that can be read.

    `untouched` is False if the two files are not as the last step left them. Steps are taken by one process
    at a time, in any of its threads.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        contents = [_content(folder / name) for name in FILES]
        self.exists = any(content is not None for content in contents)
        steps = [None if content is None else AnchorStep.decode(content) for content in contents]
        valid = [step for at, step in enumerate(steps) if step is not None and step.step % 2 == at]
        self.last = max(valid, key=lambda step: step.step, default=None)
        self.untouched = self.last is not None and self._fits(self.last, contents)
        self._counts = {} if self.last is None else dict(self.last.counts)
        self._behind = False
        newer = 0 if self.last is None else self.last.step % 2
        self._described = _described(folder / FILES[newer], contents[newer])

    def _fits(self, last: AnchorStep, contents: list[bytes | None]) -> bool:
        """Return True if the older file is the one that the newer file describes."""
        older = (last.step + 1) % 2
        return (last.other, last.other_digest) == _described(self._folder / FILES[older], contents[older])

    def begin(self, incarnation: str, epoch: int, counts: Mapping[str, int]) -> None:
        """Describe a state of another id; both files are written, so that nothing earlier is left."""
        with self._lock:
            self._counts = dict(counts)
            for _ in FILES:
                self._step(incarnation, epoch)
            self.untouched = True

    def reached(self, name: str, changes: int) -> None:
        """Take the step to a number of changes of a database; it is on the disk when this returns."""
        with self._lock:
            self._counts[name] = changes
            if self.last is not None:
                self._step(self.last.incarnation, self.last.epoch)

    def catch_up(self) -> None:
        """Take the step that failed after the last change: no database is ever two changes ahead."""
        with self._lock:
            if self._behind and self.last is not None:
                self._step(self.last.incarnation, self.last.epoch)

    def _step(self, incarnation: str, epoch: int) -> None:
        number = 0 if self.last is None else self.last.step + 1
        step = AnchorStep(number, incarnation, epoch, dict(self._counts), boot_id(), *self._described)
        new, place = self._folder / NEW, self._folder / FILES[number % 2]
        self._behind = True
        try:
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                _write(handle, step.encode())  # before its name: else a power failure may leave it empty
                new.rename(place)
                # as it is now, not as it is at the next step: who touches it in between is noticed
                self.last, self._described = step, (_identity(handle), _digest(step.encode()))
            finally:
                os.close(handle)
        except OSError as error:
            reason = (error.strerror or "input/output error").lower()
            raise FileError(f"{place}: the anchor of the state cannot be written ({reason}).") from None
        self._behind = False

    def problem(self, incarnation: str | None, counts: Mapping[str, int]) -> str:
        """Return why this is not the state that it was, in words; empty if it is.

        `counts` are the changes of databases as they are now; only "state" counts whole transactions.
        """
        if not self.exists:
            return "its anchor is missing"
        last = self.last
        if last is None or not self.untouched:
            return "the files of its anchor were copied, replaced or written to"
        if last.incarnation != incarnation:
            return "its anchor belongs to another state, or to another epoch of it"
        for name, known in last.counts.items():
            if name in counts and counts[name] < known:
                return f"of {known:,} changes of {name} that were made, {known - counts[name]:,} are missing"
        ahead = counts.get("state", 0) - last.counts.get("state", 0)
        if ahead > 1 and last.boot and last.boot == boot_id():
            return f"its anchor is {ahead:,} changes older than its database"
        return ""


def boot_id() -> str:
    """Return the id of this start of the machine, empty where the system has none."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


def generation_of(handle: int) -> int | None:
    """Return the generation of an open file's inode, None where the file system has none."""
    try:
        import fcntl  # noqa: PLC0415  (not on Windows)

        told = fcntl.ioctl(handle, FS_IOC_GETVERSION, b"\0" * 8)
    except (ImportError, OSError):
        return None
    return int(struct.unpack("=I4x", told)[0])


def _identity(handle: int) -> str:
    """Return what no restore brings back of an open file: inode, its generation, its change time."""
    found = os.fstat(handle)
    return f"{found.st_ino}.{generation_of(handle)}.{found.st_ctime_ns}"


def _write(handle: int, content: bytes) -> None:
    """Write the whole content, durably."""
    if os.write(handle, content) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(handle)


def _described(path: Path, content: bytes | None) -> tuple[str, str]:
    """Return identity and digest of a file whose content is known."""
    with suppress(OSError), path.open("rb") as stream:
        return _identity(stream.fileno()), _digest(content or b"")
    return MISSING, MISSING


def _content(path: Path) -> bytes | None:
    try:
        with path.open("rb") as stream:
            return stream.read(MOST_BYTES)
    except OSError:
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
