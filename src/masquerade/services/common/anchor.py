"""Detect that a state folder, or a single file in it, was restored from a copy.

A restore brings back the bytes of files and, if it runs as root, nearly all of their metadata. It cannot
bring back an inode's change time (ctime): the kernel sets it to the present at every change of the inode, and
no call sets it to anything else. An `Anchor` is a pair of empty files that use this. Their names contain all
of their information:

- the number of the step, the id and the epoch of the state, the number of changes of each database,
- a digest of inode, generation, change time and name of the other file.

A step renames the older file, which thereby becomes the newer one and gets a new change time. So the newer
file always describes the older one, which has not changed since. A restore adds files with earlier names, or
replaces the two files, whose inodes and change times then differ from those in the newer name. Databases that
are restored without the anchor have fewer changes than it states. Only a copy of the whole disk, taken below
the file system (a snapshot of a disk, volume or virtual machine), restores all of this.

A rename is atomic: a process that is killed at any moment leaves the pair of one step or of the next, and
databases that are at most one change ahead of it. The files are empty, so there is no content to sync. A
power failure may undo the last renames: then databases are further ahead, and the boot id shows that the
machine has restarted. Times are only compared for equality, so the clock may be set to anything. A restore
within the same clock tick as the step (milliseconds; a second on ext4 with inodes of 128 bytes) may go
undetected.

Reading the files changes nothing. Operations that change an inode look like a restore: `chmod`, `chown`, hard
links (`cp -al`), extended attributes.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, Self

from masquerade.core.errors import FileError

PREFIX: Final = "anchor-"
ALONE: Final = "0" * 16  # in place of a digest: the first file describes no other file
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
FS_IOC_GETVERSION: Final = 0x80087601  # Linux: the generation of an inode, new whenever its number is reused
_NAME: Final = re.compile(
    r"anchor-([0-9a-f]{1,15})-([0-9a-f]{16})-([0-9a-f]{1,12})-([0-9a-f]{8})"
    r"-((?:[a-z0-9]{1,20}\.[0-9a-f]{1,15})(?:_[a-z0-9]{1,20}\.[0-9a-f]{1,15}){0,4})-([0-9a-f]{16})"
)


class AnchorStep(NamedTuple):
    """One step of an anchor: the information in the name of its newer file.

    `state` and `boot` are digests of the state's id and of the boot id. `counts` has the number of changes of
    each database by name, and `other` is the digest of the older file.
    """

    number: int
    state: str
    epoch: int
    boot: str
    counts: Mapping[str, int]
    other: str = ALONE

    @property
    def name(self) -> str:
        """Return the name of the newer file of this step."""
        counts = "_".join(f"{name}.{count:x}" for name, count in self.counts.items())
        return f"{PREFIX}{self.number:x}-{self.state}-{self.epoch:x}-{self.boot}-{counts}-{self.other}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the step of a file's name, None if the name is not valid."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        counts = dict(item.split(".") for item in match[5].split("_"))
        changes = {label: int(count, 16) for label, count in counts.items()}
        return cls(int(match[1], 16), match[2], int(match[3], 16), match[4], changes, match[6])


class Anchor:
    """The anchor in a folder; `last` is the last step, None if no file has a valid name.

    `untouched` is True if there are exactly two files, as the last step left them. Only one process takes
    steps, in any of its threads; other processes may read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock, self._behind = folder, threading.Lock(), False
        names = _names(folder)
        steps = sorted(filter(None, map(AnchorStep.parse, names)), key=lambda step: step.number)
        self.exists, self.last = bool(names), steps[-1] if steps else None
        self.steps, self._counts = steps, dict(steps[-1].counts) if steps else {}
        self.untouched = len(steps) == len(names) and self._fits(steps)

    def _fits(self, steps: list[AnchorStep]) -> bool:
        """Return True if `steps` are the two files of one step."""
        paired = len(steps) == 2 and steps[0].number + 1 == steps[1].number
        return paired and steps[1].other == self._digest_of(steps[0])

    def _digest_of(self, step: AnchorStep) -> str:
        """Return the digest of the file named by a step, empty if the file does not exist."""
        with suppress(OSError):
            handle = os.open(self._folder / step.name, os.O_RDONLY)
            try:
                inode = os.fstat(handle)
                return _digest(f"{inode.st_ino} {generation_of(handle)} {inode.st_ctime_ns} {step.name}")
            finally:
                os.close(handle)
        return ""

    def begin(self, incarnation: str, epoch: int, counts: Mapping[str, int]) -> None:
        """Anchor a state with a new id: write two new files, then remove all others."""
        with self._lock:
            before, number = _names(self._folder), 0 if self.last is None else self.last.number + 1
            self._counts = dict(counts)
            try:
                for at in (number, number + 1):
                    other = ALONE if at == number else self._digest_of(self.steps[-1])
                    step = self._next(at, _digest(incarnation), epoch, other)
                    os.close(os.open(self._folder / step.name, os.O_RDONLY | os.O_CREAT, 0o600))
                    self.steps = [*self.steps, step][-2:]
                for name in before:
                    (self._folder / name).unlink(missing_ok=True)
            except OSError as error:
                raise self._write_error(error) from None
            self.last, self.exists, self.untouched = self.steps[-1], True, True

    def advance(self, name: str, changes: int) -> None:
        """Take a step that states a new number of changes of a database."""
        with self._lock:
            self._counts[name] = changes
            self._step()

    def catch_up(self) -> None:
        """Repeat the step that failed after the last change, so that no database is two changes ahead."""
        if self._behind:
            with self._lock:
                self._step()

    def _step(self) -> None:
        if self.last is None:
            return
        self._behind = True
        try:
            older, newer = self.steps
            step = self._next(newer.number + 1, newer.state, newer.epoch, self._digest_of(newer))
            (self._folder / older.name).rename(self._folder / step.name)
        except OSError as error:
            raise self._write_error(error) from None
        self.steps, self.last, self._behind = [newer, step], step, False

    def _next(self, number: int, state: str, epoch: int, other: str) -> AnchorStep:
        return AnchorStep(number, state, epoch, _digest(boot_id())[:8], dict(self._counts), other)

    def _write_error(self, error: OSError) -> FileError:
        reason = (error.strerror or "input/output error").lower()
        return FileError(f"{self._folder}: the anchor of the state cannot be written ({reason}).")

    def problem(self, incarnation: str, counts: Mapping[str, int], exact: Iterable[str] = ()) -> str:
        """Return the reason to consider the state restored, as text; empty if there is none.

        Parameters
        ----------
        incarnation : str
            Id of the state.
        counts : mapping
            Current numbers of changes of databases.
        exact : iterable of str, optional
            Databases in which each transaction is one change. They are at most one change ahead of the
            anchor, unless the machine has restarted.

        Returns
        -------
        str
            The reason.
        """
        if not self.exists:
            return "the anchor is missing"
        last = self.last
        if last is None or not self.untouched:
            return "the files of the anchor were copied, replaced or added to"
        if last.state != _digest(incarnation):
            return "the anchor belongs to another state, or to another epoch of it"
        for name, least in last.counts.items():
            if counts.get(name, least) < least:
                return f"{least - counts[name]:,} of {least:,} changes of the database {name!r} are missing"
        ahead = [name for name in exact if counts[name] > last.counts.get(name, 0) + 1]
        if ahead and boot_id() and last.boot == _digest(boot_id())[:8]:
            return f"the anchor is older than the database {ahead[0]!r}"
        return ""


def generation_of(handle: int) -> int | None:
    """Return the generation of an open file's inode, None if the file system has no generations."""
    try:
        import fcntl  # noqa: PLC0415  (not on Windows)

        reply = fcntl.ioctl(handle, FS_IOC_GETVERSION, b"\0" * 8)
    except (ImportError, OSError):
        return None
    return int(struct.unpack("=I4x", reply)[0])


@cache
def boot_id() -> str:
    """Return the boot id of the machine, empty if the system has none."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


def _names(folder: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return [entry.name for entry in os.scandir(folder) if entry.name.startswith(PREFIX)]
    return []


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
