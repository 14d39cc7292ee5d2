"""A published file from its origin: bounded in time and size, unpacked in memory, verified before use."""

from __future__ import annotations

import io
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from masquerade.data.catalogue import RawFile

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
            return checked(_unpacked(_received(file, url, patience), file, url), file)
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
    except (zlib.error, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError):
        raise NotFetched("not an archive that can be read") from None
    return content


def checked(content: bytes, file: RawFile) -> bytes:
    """Return the content, if it is the published file."""
    if fault := difference(content, file):
        raise NotFetched(f"not the file as published: {fault}")
    return content


def difference(content: bytes, file: RawFile) -> str:
    """Say how bytes differ from the published file; nothing if they are it."""
    found = sha256(content).hexdigest()
    if found == file.sha256:
        return ""
    return f"{len(content):,} bytes with SHA-256 {found}, expected {file.size:,} with {file.sha256}"
