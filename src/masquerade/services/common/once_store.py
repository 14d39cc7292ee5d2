"""What may happen only once, kept where no backup brings it back.

The folder holds used keys (`burnt.sqlite`), a random id of the state beside it (`incarnation`) and how many
changes that state has seen (`progress`). It says by a CACHEDIR.TAG, which backup programs know, that it is
not to be copied; and the id counts only in the very files it was made for (inodes and their generations), so
that a copy is noticed all the same.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from masquerade.core.atomic import sync_folder, write_whole
from masquerade.protocols.people.ledger import FileLedger

BURNT: Final = "burnt.sqlite"
INCARNATION: Final = "incarnation"
PROGRESS: Final = "progress"
TAG: Final = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Used keys are remembered here. Never restore this folder from a backup.\n"
)
FS_IOC_GETVERSION: Final = 0x80087601  # Linux: the generation of an inode, new whenever its number is reused


class Once:
    """The folder, open; `incarnation` is None where the id is missing or damaged."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        if not (folder / "CACHEDIR.TAG").exists():
            write_whole(folder / "CACHEDIR.TAG", TAG)
        self._folder = folder
        self.existed = (folder / INCARNATION).exists()
        emptied = not (folder / BURNT).exists() or (folder / BURNT).stat().st_size == 0
        new_file(folder / BURNT)
        sync_folder(folder)
        self.burnt = FileLedger(folder / BURNT)
        self.incarnation, self.epoch = self._read()
        if emptied:  # what was burnt is lost, so this is not the folder it was
            self.incarnation = None
        self._progress = os.open(folder / PROGRESS, os.O_RDWR | os.O_CREAT, 0o600)

    def begin(self, epoch: int) -> str:
        """Write a new id for a new epoch and return it, bound to the files of this folder."""
        chosen = secrets.token_hex(16)
        write_whole(self._folder / INCARNATION, f"{chosen} {epoch}\n", private=True)
        sync_folder(self._folder)
        self.incarnation, self.epoch = self._bound(chosen), epoch
        return self.incarnation

    def _read(self) -> tuple[str | None, int]:
        """Return the id bound to the files, and its epoch; None and 0 if it is not there or damaged."""
        try:
            chosen, epoch = (self._folder / INCARNATION).read_text("ascii").split()
            return self._bound(chosen), int(epoch)
        except (FileNotFoundError, ValueError):
            return None, 0

    def _bound(self, chosen: str) -> str:
        marker = _body(self._folder / INCARNATION, written_to=False)
        return f"{chosen}/{marker}/{_body(self._folder / BURNT, written_to=True)}"

    @property
    def progress(self) -> int:
        """Return how many changes the state had seen when it was last heard of; 0 if that is not known."""
        found = os.pread(self._progress, 8, 0)
        return int.from_bytes(found, "big") if len(found) == 8 else 0

    def reached(self, changes: int) -> None:
        """Remember the number of changes.

        Not synced: it outlives the process, and after a power failure an older number only means that less
        is noticed. A failure is nothing to report, for the change itself was made.
        """
        with suppress(OSError):
            os.pwrite(self._progress, changes.to_bytes(8, "big"), 0)

    def close(self) -> None:
        """Let go of the files."""
        self.burnt.close()
        if self._progress >= 0:
            os.close(self._progress)
        self._progress = -1


def _body(path: Path, *, written_to: bool) -> str:
    """Return what tells a file from its copies: its inode and that inode's generation.

    Where a file system has no generations, the time of the last change of an inode stands in, for a file that
    is never written to; it cannot be set, but changing owner or mode changes it, which looks like a restore.
    """
    with path.open("rb") as stream:
        found = os.fstat(stream.fileno())
        with suppress(OSError):
            told = fcntl.ioctl(stream.fileno(), FS_IOC_GETVERSION, b"\0" * 8)
            return f"{found.st_ino}.{struct.unpack('=I4x', told)[0]}"
        return f"{found.st_ino}" if written_to else f"{found.st_ino}.{found.st_ctime_ns}"


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter, unless it is there."""
    if not folder.is_dir():
        folder.mkdir(mode=0o700)
        sync_folder(folder.absolute().parent)


def new_file(path: Path) -> None:
    """Make an empty file that only its owner can read, unless it is there."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
