"""Where data are looked for: a directory of the user's, the cache, the addresses of the origins."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from masquerade.core.errors import FileError
from masquerade.data.catalogue_types import BNLEARN, UCI, RawFile

DIRECTORY, CACHE, OFFLINE = "MASQUERADE_DATA", "MASQUERADE_CACHE", "MASQUERADE_OFFLINE"
ORIGINS = ((UCI, "https://archive.ics.uci.edu/"), (BNLEARN, "https://www.bnlearn.com/"))


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an origin is waited for: seconds of silence, seconds in all, tries, seconds between them."""

    silence: float = 15.0
    whole: float = 120.0
    tries: int = 3
    pause: float = 1.0


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look, in this order: directory, cache, installed packages, origins (by folder)."""

    directory: Path | None
    cache: Path
    packages: bool = True
    origins: tuple[tuple[str, str], ...] = ORIGINS
    patience: Patience = Patience()


def places(directory: str | Path | None = None) -> Places:
    """Return where to look, as the caller and the environment say."""
    given, called = (
        (directory, "'directory'") if directory is not None else (os.environ.get(DIRECTORY), DIRECTORY)
    )
    chosen = Path(given).expanduser().resolve() if given else None
    if chosen is not None and not chosen.is_dir():
        raise FileError(f"{called} must name a directory with data sets; {given} is none.")
    return Places(chosen, cache_directory(), origins=() if os.environ.get(OFFLINE) else ORIGINS)


def cache_directory() -> Path:
    """Return where downloads are kept: MASQUERADE_CACHE, or the platform's place for such files."""
    if own := os.environ.get(CACHE):
        return Path(own).expanduser().resolve()
    home = Path.home()
    if sys.platform == "darwin":
        base = home / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "masquerade" / "data"


def within(directory: Path, file: RawFile) -> Path | None:
    """Return where a file lies in a directory: in its folder, or flat."""
    tries = (directory / file.folder / file.name, directory / file.name)
    return next((path for path in tries if path.is_file()), None)


def verified(path: Path, file: RawFile) -> bytes:
    """Return what a file holds, if it is the published one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}).") from None
    if fault := difference(content, file):
        raise FileError(f"{path}: not the file as published: {fault}.")
    return content


def difference(content: bytes, file: RawFile) -> str:
    """Say how bytes differ from the published file; nothing if they are it."""
    found = sha256(content).hexdigest()
    if found == file.sha256:
        return ""
    return f"{len(content):,} bytes with SHA-256 {found}, expected {file.size:,} with {file.sha256}"
