"""Files that hold secrets: read only if nobody else can have read or planted them, changed one at a time."""

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
    """Return the content of a file that `what` is secret in; `FileNotFoundError` says that there is none.

    A link, somebody else's file and one that others may open are refused.
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


def check_private(found: os.stat_result, path: Path, what: str) -> None:
    """Refuse a file or folder that is not its reader's own or that others may open, where there are modes."""
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise FileError(f"{path}: {what} is no file.")
    if not HAS_MODES:
        return
    if found.st_uid not in {os.geteuid(), 0}:
        raise FileError(f"{path}: {what} belongs to another user, who could have written it.")
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        right = "700" if stat.S_ISDIR(found.st_mode) else "600"
        raise FileError(
            f"{path}: others may open {what} (mode {mode:03o}); if none did, chmod {right} {path} closes it."
        )


def check_own_folder(path: Path, what: str) -> None:
    """Refuse a folder that others could put files into, or that another user's link leads to."""
    if not HAS_MODES:
        return
    if path.lstat().st_uid not in {os.geteuid(), 0}:
        raise FileError(f"{path}: {what} belongs to another user, who could have put it there.")
    found = path.stat()
    if found.st_uid not in {os.geteuid(), 0}:
        raise FileError(f"{path}: {what} belongs to another user, who could change what is in it.")
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o022:
        raise FileError(
            f"{path}: others may write to {what} (mode {mode:03o}); if none did, chmod 700 {path} closes it."
        )


def is_safe_folder(path: Path) -> bool:
    """Return True if nobody but its owner and root can put files into a folder, or another in its place.

    Every folder above it must be this user's or root's too; one that others may write to must at least keep
    them from moving what is not theirs, as the temporary folder does.
    """
    if not HAS_MODES:
        return True
    trusted = {os.geteuid(), 0}
    if path.lstat().st_uid not in trusted:  # also of a link, which its owner can turn
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
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from changing a file that is replaced whole; where locks are not known, do not."""
    try:
        import fcntl  # noqa: PLC0415  (not on Windows)
    except ImportError:
        yield
        return
    while True:
        handle = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # whoever had it before may have put another file in its place
            if os.fstat(handle).st_ino == path.stat().st_ino:
                yield
                return
        finally:
            os.close(handle)


def _link(path: Path, what: str) -> FileError:
    return FileError(f"{path}: is a link, which anybody could have put there; name {what} itself.")
