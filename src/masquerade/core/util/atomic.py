"""Atomic file writes: a hidden temporary file in the same folder is written, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from io import BufferedWriter
from pathlib import Path
from typing import Self

from masquerade.core.errors import FileError

STREAMS = ("/dev/fd/", "/dev/std", "/proc/")  # system links, which must not be replaced
# opening a folder can fail (it always does on Windows), and some file systems cannot fsync a folder
_CANNOT_BE_SYNCED = frozenset({errno.EACCES, errno.EINVAL, errno.ENOTSUP})


class AtomicFile:
    """A file being written. Write to `stream`, then call `publish`; without it, nothing is left on disk.

    The temporary file is readable by its owner only, has an unguessable name, and never replaces an existing
    file. A target that is a link is itself replaced, because what it points to may belong to another user.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._known: tuple[int, int] | None = None  # identity of the published file
        self._hidden = target.parent / f".{target.name[:40]}.{secrets.token_hex(8)}.part"
        try:
            # open() with an opener, which Path.open lacks: readable by the owner only, from the start
            self.stream = open(self._hidden, "xb", opener=lambda path, flags: os.open(path, flags, 0o600))  # noqa: SIM115
        except FileExistsError:
            raise
        except BaseException:  # a signal may arrive when the file already exists
            self._hidden.unlink(missing_ok=True)
            raise
        # a finalizer also runs if a signal arrives just before the end of a with block
        self._discard = weakref.finalize(self, _discard, self.stream, self._hidden)

    def settle(self, *, private: bool = False) -> None:
        """Sync the content to disk and close the file; unless `private`, give it the mode of any new file."""
        self.stream.flush()
        if not private and hasattr(os, "fchmod"):
            mask = os.umask(0o077)  # the mask can only be read by setting it
            os.umask(mask)
            os.fchmod(self.stream.fileno(), 0o666 & ~mask)
        os.fsync(self.stream.fileno())
        self.stream.close()

    def publish(self, *, private: bool = False, overwrite: bool = True) -> None:
        """Move the file to its target, durably.

        Parameters
        ----------
        private : bool, default False
            Keep the file readable by its owner only.
        overwrite : bool, default True
            Replace an existing file.

        Raises
        ------
        FileExistsError
            If the target exists and `overwrite` is False.
        FileError
            If the target is a directory or special file.
        """
        if not self.stream.closed:
            self.settle(private=private)
        self._known = _identity(self._hidden.lstat())
        if overwrite:
            check_replaceable(self._target)
            self._hidden.replace(self._target)
        else:
            self._take_name()
        sync_folder(self._target.parent)
        paths = _published.get()
        if paths is not None:
            paths.append(self._target)

    def withdraw(self) -> None:
        """Remove the published file again, after a later step failed."""
        with contextlib.suppress(FileNotFoundError):
            if self._known == _identity(self._target.lstat()):
                self._target.unlink()
                sync_folder(self._target.parent)

    def _take_name(self) -> None:
        try:
            os.link(self._hidden, self._target)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: create the name first, then replace it
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


_published: ContextVar[list[Path] | None] = ContextVar("published", default=None)


@contextlib.contextmanager
def record_published() -> Iterator[list[Path]]:
    """Yield a list that receives the path of every file that is completely written within the context."""
    paths: list[Path] = []
    token = _published.set(paths)
    try:
        yield paths
    finally:
        _published.reset(token)


def _discard(stream: BufferedWriter, path: Path) -> None:
    """Close and remove a temporary file; errors in flushing it do not matter."""
    try:
        with contextlib.suppress(OSError):
            stream.close()
    finally:
        path.unlink(missing_ok=True)


def write_whole(target: Path, content: bytes | str, *, private: bool = False) -> None:
    """Write a file atomically and durably; on any error the previous file stays and nothing else remains.

    Parameters
    ----------
    target : Path
        Path of the file. A link is replaced by the file; what it points to stays unchanged.
    content : bytes or str
        New content; text is encoded as UTF-8.
    private : bool, default False
        Make the file readable by its owner only, from the first byte.

    Raises
    ------
    FileError
        If the file cannot be written.
    """
    try:
        with AtomicFile(target) as file:
            file.stream.write(content.encode() if isinstance(content, str) else content)
            file.publish(private=private)
    except OSError as error:
        raise _unwritable(target, error) from None


def write_new(target: Path, content: bytes | str, *, what: str) -> None:
    """Write a secret into a new file that only its owner can read.

    Parameters
    ----------
    target : Path
        Path of the file.
    content : bytes or str
        Content; text is encoded as UTF-8.
    what : str
        What the file contains, for messages.

    Raises
    ------
    FileError
        If the file exists already, which is never overwritten, or cannot be written.
    """
    try:
        with AtomicFile(target) as file:
            file.stream.write(content.encode() if isinstance(content, str) else content)
            file.publish(private=True, overwrite=False)
    except FileExistsError:
        raise FileError(f"{target}: exists already; {what} is never overwritten.") from None
    except OSError as error:
        raise _unwritable(target, error) from None


def check_replaceable(target: Path) -> None:
    """Raise FileError if a target exists and is not a regular file, or is a link to a system stream."""
    try:
        mode = target.lstat().st_mode
    except OSError:  # nothing there; other problems are found on writing
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
    """Sync the entries of a folder to disk where possible, because a file whose name is lost is lost."""
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
