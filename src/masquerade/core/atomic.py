"""Small files written whole or not at all: under a hidden name beside their place, then moved there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO

from masquerade.core.errors import FileError


def write_whole(target: Path, content: bytes | str, *, private: bool = False) -> None:
    """Make a file hold `content`, durably; on any error what was there stays and nothing else is left.

    A `private` file is readable by its owner only, from its first byte on.
    """
    place = target.resolve()
    try:
        stream, hidden = hidden_file(place)
        try:
            with stream:
                stream.write(content.encode() if isinstance(content, str) else content)
                settle(stream, private=private)
            hidden.replace(place)
            sync_folder(place.parent)
        finally:
            hidden.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"{target}: cannot be written ({os.strerror(error.errno or 5).lower()}).") from None


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk: a file whose name is lost is lost."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def hidden_file(target: Path) -> tuple[IO[bytes], Path]:
    """Open a new file that only its owner can read, hidden next to the target."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent)
    return os.fdopen(handle, "wb"), Path(name)


def settle(stream: IO[bytes], *, private: bool = False) -> None:
    """Bring the file to the disk, with the permissions a new file would have had."""
    stream.flush()
    if not private:
        mask = os.umask(0o077)  # there is no way to read the mask but to set it
        os.umask(mask)
        os.fchmod(stream.fileno(), 0o666 & ~mask)
    os.fsync(stream.fileno())
