"""Files that appear complete or not at all: written under a hidden name beside their place, then moved."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import weakref
from io import BufferedWriter
from pathlib import Path
from typing import Self

from masquerade.core.errors import FileError

STREAMS = ("/dev/fd/", "/dev/std", "/proc/")  # links of the system, never to be replaced
# a folder that cannot be opened (on Windows none can) or a file system that knows no such thing
_CANNOT_BE_SYNCED = frozenset({errno.EACCES, errno.EINVAL, errno.ENOTSUP})


class AtomicFile:
    """A file on its way: write to `stream`, then `publish`; left without that, nothing of it stays.

    The hidden file is readable by its owner only, has a name that nobody can guess, and is never one that was
    there. A target that is a link is replaced itself: what it points to may belong to another user.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._known: tuple[int, int] | None = None  # what is in place once it was published
        self._hidden = target.parent / f".{target.name[:40]}.{secrets.token_hex(8)}.part"
        try:
            # Path.open takes no opener: readable by the owner only, from the start
            self.stream = open(self._hidden, "xb", opener=lambda path, flags: os.open(path, flags, 0o600))  # noqa: SIM115
        except FileExistsError:
            raise
        except BaseException:  # a signal may come when the file is there already
            self._hidden.unlink(missing_ok=True)
            raise
        # also where a signal comes just before the end of a with block
        self._discard = weakref.finalize(self, _discard, self.stream, self._hidden)

    def settle(self, *, private: bool = False) -> None:
        """Bring the content to the disk and end writing; not `private`, it may be read like any new file."""
        self.stream.flush()
        if not private and hasattr(os, "fchmod"):
            mask = os.umask(0o077)  # there is no way to read the mask but to set it
            os.umask(mask)
            os.fchmod(self.stream.fileno(), 0o666 & ~mask)
        os.fsync(self.stream.fileno())
        self.stream.close()

    def publish(self, *, private: bool = False, overwrite: bool = True) -> None:
        """Put the file in its place, durably; without `overwrite` raise `FileExistsError` if one is there."""
        if not self.stream.closed:
            self.settle(private=private)
        self._known = _identity(self._hidden.lstat())
        if overwrite:
            check_replaceable(self._target)
            self._hidden.replace(self._target)
        else:
            self._take_name()
        sync_folder(self._target.parent)

    def withdraw(self) -> None:
        """Remove the file from its place if it came there: its last step failed."""
        with contextlib.suppress(FileNotFoundError):
            if self._known == _identity(self._target.lstat()):
                self._target.unlink()
                sync_folder(self._target.parent)

    def _take_name(self) -> None:
        try:
            os.link(self._hidden, self._target)
        except FileExistsError:
            raise
        except OSError:  # a file system without links: take the name first, then put the file there
            os.close(os.open(self._target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            try:
                self._hidden.replace(self._target)
            except BaseException:
                self._target.unlink(missing_ok=True)
                raise
        else:
            self._hidden.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._discard()


def _discard(stream: BufferedWriter, path: Path) -> None:
    """Close and remove a file that is not needed any more; an error in writing its bytes does not matter."""
    try:
        with contextlib.suppress(OSError):
            stream.close()
    finally:
        path.unlink(missing_ok=True)


def write_whole(target: Path, content: bytes | str, *, private: bool = False) -> None:
    """Make a file hold `content`, durably; on any error what was there stays and nothing else is left.

    A `private` file is readable by its owner only, from its first byte on. A link is replaced by the file,
    and what it points to stays as it is.
    """
    try:
        with AtomicFile(target) as file:
            file.stream.write(content.encode() if isinstance(content, str) else content)
            file.publish(private=private)
    except OSError as error:
        raise _unwritable(target, error) from None


def write_new(target: Path, content: bytes | str, *, what: str) -> None:
    """Write a secret into a new file that only its owner can read; `what` is there is never replaced."""
    try:
        with AtomicFile(target) as file:
            file.stream.write(content.encode() if isinstance(content, str) else content)
            file.publish(private=True, overwrite=False)
    except FileExistsError:
        raise FileError(f"{target}: exists already; {what} is never overwritten.") from None
    except OSError as error:
        raise _unwritable(target, error) from None


def check_replaceable(target: Path) -> None:
    """Raise FileError if a target is there and is not a file, or is one of the system's names of streams."""
    try:
        mode = target.lstat().st_mode
    except OSError:  # nothing there: whoever writes finds out why
        return
    if stat.S_ISLNK(mode):
        stream = target.absolute().as_posix().startswith(STREAMS)
        mode = 0 if stream else target.stat().st_mode if target.exists() else stat.S_IFREG
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise FileError(f"{target}: cannot be written: this is {what}.")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where that can be done: a file whose name is lost is lost."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _CANNOT_BE_SYNCED:
            raise


def _unwritable(target: Path, error: OSError) -> FileError:
    return FileError(f"{target}: cannot be written ({os.strerror(error.errno or 5).lower()}).")
