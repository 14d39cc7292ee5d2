"""MACs of many texts with one key: `symmetric.code` and keyed BLAKE2b without one call per text.

Short texts are hashed in batches. Longer texts are hashed by libsodium if it is installed
(masquerade[crypto]), and by Python's slower standard library otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto import batch_hash
from masquerade.crypto.symmetric import coder

DIGEST = 32  # bytes of a MAC
MOST_KEY = 64  # bytes: one block of SHA-256, and the maximum of BLAKE2b


class Texts(NamedTuple):
    """Concatenated texts: row i is from ``offsets[i]`` to ``offsets[i + 1]``."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.signedinteger[Any]]

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> Self:
        """Concatenate texts."""
        listed = list(texts)
        offsets = np.zeros(len(listed) + 1, np.int64)
        np.cumsum([len(text) for text in listed], out=offsets[1:])
        return cls(np.frombuffer(b"".join(listed), np.uint8), offsets)

    @classmethod
    def of_column(cls, column: pa.Array) -> Self:
        """Return the texts of a column that has no missing values; Arrow casts other types to text."""
        if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
            column = column.cast(pa.string())
        wide = pa.types.is_large_string(column.type)
        _, offsets, data = column.buffers()
        if offsets is None or not len(column):
            return cls.of([])
        bytes_of = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        places: NDArray[Any] = np.frombuffer(offsets, np.int64 if wide else np.int32)
        return cls(bytes_of, places[column.offset : column.offset + len(column) + 1])

    def within(self, least: int, most: int) -> bool:
        """Return True if all lengths are between `least` and `most` bytes."""
        lengths = np.diff(self.offsets)
        return not len(lengths) or bool(least <= lengths.min() and lengths.max() <= most)

    def rows(self) -> Iterator[bytes]:
        """Yield each text."""
        data = self.data.tobytes()
        for begin, end in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            yield data[begin:end]


def codes(key: bytes, prefix: bytes, texts: Texts, size: int) -> NDArray[np.uint8]:
    """Return the first `size` bytes of the MAC (`symmetric.code`) of prefix and text, one row per text."""
    _check(key)
    if size <= DIGEST and texts.within(0, batch_hash.LONGEST - len(prefix)):
        return batch_hash.hmac_sha256(key, prefix, *texts, size)
    try:
        from masquerade.crypto import sodium_rows  # noqa: PLC0415  (an extra)
    except ImportError:
        digest = coder(key)
        return _join_rows((digest(prefix + text)[:size] for text in texts.rows()), size)
    return sodium_rows.hmac_sha256(key, prefix, *texts, size)


def keyed_tags(key: bytes, texts: Texts, size: int) -> NDArray[np.uint8]:
    """Return the keyed BLAKE2b (RFC 7693) of each text, `size` bytes long, one row per text."""
    _check(key)
    if texts.within(1, batch_hash.LONGEST_TAGGED):
        return batch_hash.keyed_blake2b(key, *texts, size)
    try:
        from masquerade.crypto import sodium_rows  # noqa: PLC0415  (an extra)
    except ImportError:
        tags = (hashlib.blake2b(text, key=key, digest_size=size).digest() for text in texts.rows())
        return _join_rows(tags, size)
    return sodium_rows.keyed_blake2b(key, *texts, size)


def _check(key: bytes) -> None:
    if not 1 <= len(key) <= MOST_KEY:
        raise InputError(f"A MAC key has from 1 to {MOST_KEY} bytes. Got {len(key)} instead.")


def _join_rows(rows: Iterable[bytes], size: int) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray().join(rows), np.uint8).reshape(-1, size)
