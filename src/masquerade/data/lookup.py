"""Search for data: the user's directory, the cache and the origins, with a record of what was tried.

Downloads are limited in time and size, unpacked in memory, and verified before use.
"""

from __future__ import annotations

import io
import os
import sys
import time
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from masquerade.core.errors import DataMissing, FileError, MasqueradeWarning
from masquerade.core.util.atomic import write_whole
from masquerade.data.catalogue import BNLEARN, UCI, RawFile

DIRECTORY, CACHE, OFFLINE = "MASQUERADE_DATA", "MASQUERADE_CACHE", "MASQUERADE_OFFLINE"
ORIGINS = ((UCI, "https://archive.ics.uci.edu/"), (BNLEARN, "https://www.bnlearn.com/"))
MOST_PACKED = 8 << 20  # the archives in the catalogue are all below 1 MB
BUSY = (408, 425, 429, 500, 502, 503, 504)  # temporary HTTP errors
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts of a download: seconds of silence, total seconds, tries, and seconds between them."""

    silence: float = 15.0
    whole: float = 120.0
    tries: int = 3
    pause: float = 1.0


class NotFetched(Exception):
    """A failed download: the reason, whether to try again, and whether the host was silent."""

    def __init__(self, reason: str, *, again: bool = False, silent: bool = False) -> None:
        self.again, self.silent = again, silent
        super().__init__(reason)


def fetch(file: RawFile, base: str, patience: Patience) -> tuple[bytes, str]:
    """Download a published file, and return its bytes and address.

    Raises
    ------
    NotFetched
        If no address has the file. It lists the error of every address.
    """
    reasons = []
    for address in file.addresses:
        url = base + address
        try:
            return _fetch_one(file, url, patience), url
        except NotFetched as error:
            reasons.append(f"{url} ({error})")
            if error.silent:  # the other addresses have the same host
                break
    raise NotFetched("; ".join(reasons))


def _fetch_one(file: RawFile, url: str, patience: Patience) -> bytes:
    """Download a file from one address, and try again after a temporary failure."""
    for left in reversed(range(patience.tries)):
        try:
            return _check_content(_unpack(_receive(file, url, patience), file, url), file)
        except NotFetched as error:
            if not (error.again and left):
                raise
            time.sleep(patience.pause)
    raise NotFetched("not tried")


def _receive(file: RawFile, url: str, patience: Patience) -> bytes:
    """Return the response of an address, up to the expected size."""
    most = MOST_PACKED if url.endswith((".zip", ".gz")) else file.size
    request = Request(url, headers={"User-Agent": "masquerade"})  # noqa: S310  (addresses are the catalogue's)
    try:
        with urlopen(request, timeout=patience.silence) as answer:  # noqa: S310
            expected = answer.headers.get("Content-Length")
            content = b"".join(_chunks(answer, most, time.monotonic() + patience.whole))
    except HTTPError as error:
        error.close()
        raise NotFetched(f"HTTP status {error.code}", again=error.code in BUSY) from None
    except URLError as error:
        raise NotFetched(f"no connection: {error.reason}", again=True, silent=True) from None
    except TimeoutError:
        raise NotFetched(f"silent for {patience.silence:g} s", again=True, silent=True) from None
    except (OSError, HTTPException) as error:
        raise NotFetched(f"connection lost: {type(error).__name__}", again=True) from None
    if expected and expected.isdecimal() and len(content) < int(expected):
        raise NotFetched(f"only {len(content):,} of {int(expected):,} bytes arrived", again=True)
    return content


def _chunks(answer: io.BufferedIOBase, most: int, deadline: float) -> Iterator[bytes]:
    """Yield the response in chunks, until it is too large or too slow."""
    seen = 0
    while chunk := answer.read(_CHUNK):
        seen += len(chunk)
        if seen > most:
            raise NotFetched(f"more than the expected {most:,} bytes")
        if time.monotonic() > deadline:
            raise NotFetched(f"too slow: {seen:,} bytes when time was up")
        yield chunk


def _unpack(content: bytes, file: RawFile, url: str) -> bytes:
    """Return the file inside an archive. At most one byte more than the expected size is unpacked."""
    try:
        if url.endswith(".gz"):
            return zlib.decompressobj(wbits=31).decompress(content, file.size + 1)
        if url.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open(file.name) as member:
                return member.read(file.size + 1)
    except KeyError:
        raise NotFetched(f"the archive has no {file.name}") from None
    except (zlib.error, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, OSError):
        raise NotFetched("not a readable archive") from None
    return content


def _check_content(content: bytes, file: RawFile) -> bytes:
    if fault := difference(content, file):
        raise NotFetched(f"not the file as published: {fault}")
    return content


def difference(content: bytes, file: RawFile) -> str:
    """Describe how bytes differ from the published file. "" if they are equal."""
    found = sha256(content).hexdigest()
    if found == file.sha256:
        return ""
    return f"{len(content):,} bytes with SHA-256 {found}, expected {file.size:,} with {file.sha256}"


@dataclass(frozen=True, slots=True)
class Places:
    """Places to search, in this order: directory, cache, installed packages, origins (by folder)."""

    directory: Path | None
    cache: Path
    packages: bool = True
    origins: tuple[tuple[str, str], ...] = ORIGINS
    patience: Patience = Patience()


def places(directory: str | Path | None = None) -> Places:
    """Return the places to search, from the argument and the environment."""
    given, called = (
        (directory, "'directory'") if directory is not None else (os.environ.get(DIRECTORY), DIRECTORY)
    )
    chosen = Path(given).expanduser().resolve() if given else None
    if chosen is not None and not chosen.is_dir():
        raise FileError(f"{called} must name a directory with data sets. Got {given} instead.")
    return Places(chosen, cache_directory(), origins=() if os.environ.get(OFFLINE) else ORIGINS)


def cache_directory() -> Path:
    """Return the directory of downloads: MASQUERADE_CACHE, or the platform's cache directory."""
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
    """Return the path of a file in a directory, inside its folder or directly. None if it is missing."""
    tries = (directory / file.folder / file.name, directory / file.name)
    return next((path for path in tries if path.is_file()), None)


def _read_verified(path: Path, file: RawFile) -> bytes:
    """Return the content of a file if it equals the published one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}).") from None
    if fault := difference(content, file):
        raise FileError(f"{path}: not the file as published: {fault}.")
    return content


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A published file: its bytes, and the place that has it. `path` is set if it is on disk."""

    file: RawFile
    content: bytes
    kind: str
    place: str
    path: Path | None = None


@dataclass(slots=True)
class DataSearch:
    """Search for `name`: the places to search, and those that did not have it."""

    name: str
    where: Places
    tried: list[str] = field(default_factory=list)

    def on_disk(self, file: RawFile) -> FoundFile | None:
        """Return a file from the directory or the cache. A wrong file in the user's directory is an error."""
        if self.where.directory is None:
            self.note(f"a directory: neither 'directory' nor {DIRECTORY} is set")
        elif path := within(self.where.directory, file):
            return FoundFile(file, _read_verified(path, file), "directory", str(path), path)
        else:
            self.note(f"the directory {self.where.directory}: it has no {file.place} and no {file.name}")
        if path := within(self.where.cache, file):
            try:
                return FoundFile(file, _read_verified(path, file), "cache", str(path), path)
            except FileError as error:  # the cached file is damaged: fetch it again
                self.note(f"the cache: {error}".removesuffix("."))
        else:
            self.note(f"the cache {self.where.cache} ({CACHE}): it has no {file.place}")
        return None

    def at_origin(self, file: RawFile) -> FoundFile | None:
        """Download a file from its origin, and store it in the cache."""
        base = dict(self.where.origins).get(file.folder)
        if not file.addresses:
            self.note(f"a download: {file.name} has no address")
        elif base is None:
            self.note(f"a download: switched off by {OFFLINE}")
        else:
            try:
                content, url = fetch(file, base, self.where.patience)
            except NotFetched as error:
                self.note(f"a download: {error}")
            else:
                return FoundFile(file, content, "download", url, self.keep(file, content))
        return None

    def keep(self, file: RawFile, content: bytes) -> Path | None:
        """Store a verified file in the cache. Warn if that fails."""
        target = self.where.cache / file.folder / file.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, content)
        except (OSError, FileError):
            warnings.warn(
                f"{target.parent} is not writable, so {file.name} will be downloaded each time: "
                f"set {CACHE} to another directory.",
                MasqueradeWarning,
                stacklevel=2,
            )
            return None
        return target

    def note(self, reason: str) -> None:
        """Record a place that does not have the data."""
        if reason not in self.tried:
            self.tried.append(reason)

    def missing(self, files: Sequence[RawFile], packages: Sequence[str]) -> DataMissing:
        """Return the error that lists all places tried, and what to do."""
        names = " and ".join(file.name for file in files)
        ways = [f"put {names} as published into a directory and name it in {DIRECTORY}"]
        if packages:
            ways.append(f"install {' or '.join(packages)} in a version that includes it")
        if all(file.addresses for file in files):
            ways.append("load it once with access to its origin")
        return DataMissing(self.name, self.tried, f"To get it: {'; or '.join(ways)}.")
