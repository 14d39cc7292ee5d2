"""Files that contain secrets: checks that no other user could read or plant them, and file locks."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from masquerade.core.errors import FileError

HAS_MODES = os.name == "posix" and hasattr(os, "geteuid")
MOST_BYTES = 1 << 24


def read_private(path: Path, what: str) -> bytes:
    """Return the content of a secret file.

    Parameters
    ----------
    path : Path
        Path of the file.
    what : str
        What the file contains, for messages.

    Returns
    -------
    bytes
        The content.

    Raises
    ------
    FileNotFoundError
        If there is no file.
    FileError
        If it is a link, belongs to another user, can be opened by others, or is too long.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        if path.is_symlink():
            raise _link(path, what) from None
        raise
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ELOOP:
            raise _link(path, what) from None
        reason = (getattr(error, "strerror", None) or "no such file").lower()
        raise FileError(f"{path}: {what} cannot be read ({reason}).") from None
    with os.fdopen(handle, "rb") as stream:
        check_private(os.fstat(handle), path, what)
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise FileError(f"{path}: is too long for {what}.")
    return data


def check_private(status: os.stat_result, path: Path, what: str) -> None:
    """Raise FileError if a file or folder belongs to another user or others may open it (on POSIX)."""
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise FileError(f"{path}: {what} is not a file.")
    if not HAS_MODES:
        return
    if status.st_uid not in {os.geteuid(), 0}:
        raise FileError(f"{path}: {what} belongs to another user, who could have written it.")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        right = "700" if stat.S_ISDIR(status.st_mode) else "600"
        raise FileError(
            f"{path}: others may open {what} (mode {mode:03o}). If nobody did, run: chmod {right} {path}"
        )


def check_own_folder(path: Path, what: str) -> None:
    """Raise FileError if others could put files into a folder, or it is reached by another user's link."""
    if not HAS_MODES:
        return
    if path.lstat().st_uid not in {os.geteuid(), 0}:
        raise FileError(f"{path}: {what} belongs to another user, who could have put it there.")
    status = path.stat()
    if status.st_uid not in {os.geteuid(), 0}:
        raise FileError(f"{path}: {what} belongs to another user, who could change its content.")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o022:
        raise FileError(
            f"{path}: others may write to {what} (mode {mode:03o}). If nobody did, run: chmod 700 {path}"
        )


def is_safe_folder(path: Path) -> bool:
    """Return True if only its owner and root can put files into a folder, or replace the folder.

    All parent folders must belong to this user or root too. A parent that others may write to must have the
    sticky bit, as the temporary folder does, so that they cannot move files of others.
    """
    if not HAS_MODES:
        return True
    trusted = {os.geteuid(), 0}
    if path.lstat().st_uid not in trusted:  # the owner of a link can change its target
        return False
    real = path.resolve()
    status = real.stat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in trusted or status.st_mode & 0o022:
        return False
    above = (folder.stat() for folder in real.parents)
    return all(
        folder.st_uid in trusted and (not folder.st_mode & 0o022 or folder.st_mode & stat.S_ISVTX)
        for folder in above
    )


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file that is replaced atomically; no lock on systems without `fcntl`."""
    try:
        import fcntl  # noqa: PLC0415  (not on Windows)
    except ImportError:
        yield
        return
    while True:
        handle = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # the previous holder of the lock may have replaced the file
            if os.fstat(handle).st_ino == path.stat().st_ino:
                yield
                return
        finally:
            os.close(handle)


def _link(path: Path, what: str) -> FileError:
    return FileError(
        f"{path}: is a link, which another user could have created. Give the path of {what} itself."
    )


def is_file_inside(place: Path, folder: Path) -> bool:
    """Return True if a path in or below a folder is a file or does not exist; reading a pipe would block."""
    try:
        path = place.resolve()
        return path.is_relative_to(folder.resolve()) and (path.is_file() or not path.exists())
    except (OSError, RuntimeError, ValueError):  # a name too long, circular links, a null byte
        return False
