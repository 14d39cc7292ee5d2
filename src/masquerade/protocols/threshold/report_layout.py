"""Reports as bytes of one fixed length, so that a million are read at once and no length tells anything.

::

    magic 4 | epoch 8 | k 4 | notice 8 | tag 16 | x 8 | y 24 | [shown quasi-identifier] | nonce 12, sealed
    part

The sealed part holds the unblinded element that the class follows from (32), then both parts of the row, each
as its length (2) and its padded bytes. The element lets the collector check, once the class is open, that the
quasi-identifier inside is the one that the class follows from. Numbers are little-endian.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.class_secrets import LIMBS, TAG_SIZE
from masquerade.crypto.oprf import POINT_SIZE
from masquerade.crypto.symmetric import OVERHEAD
from masquerade.protocols.threshold.messages import Notice, Terms

MAGIC: Final = int.from_bytes(b"mqt1", "little")
LENGTH: Final = 2
_SHORT: Final = 8


@dataclass(frozen=True)
class Layout:
    """Where everything stands in the reports of one epoch."""

    terms: Terms
    notice: bytes

    @classmethod
    def of(cls, notice: Notice) -> Layout:
        """Return the layout that follows from a notice."""
        return cls(notice.terms, notice.digest)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Return the fields as NumPy reads them."""
        fields: list[tuple[Any, ...]] = [("magic", "<u4"), ("epoch", "<u8"), ("k", "<u4"), ("notice", "<u8")]
        fields += [("tag", "<u8", TAG_SIZE // 8), ("x", "<u8"), ("y", "<u8", LIMBS)]
        if self.terms.shown:
            fields.append(("quasi", "u1", LENGTH + self.terms.quasi_size))
        return np.dtype([*fields, ("sealed", "u1", OVERHEAD + self.plain_size)])

    @property
    def size(self) -> int:
        """Return the bytes of a report."""
        return int(self.dtype.itemsize)

    @property
    def plain_size(self) -> int:
        """Return the bytes of the sealed part before it is sealed."""
        return POINT_SIZE + 2 * LENGTH + self.terms.quasi_size + self.terms.sensitive_size

    @cached_property
    def header(self) -> tuple[int, int, int, int]:
        """Return magic, epoch, k and notice as the reports of this epoch carry them."""
        epoch = hashlib.sha256(self.terms.epoch.encode()).digest()[:_SHORT]
        short = int.from_bytes(self.notice[:_SHORT], "little")
        return MAGIC, int.from_bytes(epoch, "little"), self.terms.k, short

    def bound_to(self, tag: bytes) -> bytes:
        """Return what a sealed part is bound to: epoch‖k‖notice‖tag."""
        return self.terms.context + self.notice + tag

    def plain(self, unblinded: bytes, quasi: bytes, sensitive: bytes) -> bytes:
        """Return the content of the sealed part."""
        return (
            unblinded + self.padded_quasi(quasi) + _padded(sensitive, self.terms.sensitive_size, "sensitive")
        )

    def padded_quasi(self, quasi: bytes) -> bytes:
        """Return a quasi-identifier at its full length, its own length first."""
        return _padded(quasi, self.terms.quasi_size, "quasi")

    def report(self, tag: bytes, x: int, y: tuple[int, ...], quasi: bytes, sealed: bytes) -> bytes:
        """Return a report."""
        record = np.zeros((), dtype=self.dtype)
        for name, value in zip(("magic", "epoch", "k", "notice"), self.header, strict=True):
            record[name] = value
        record["tag"], record["x"], record["y"] = np.frombuffer(tag, "<u8"), x, y
        if self.terms.shown:
            record["quasi"] = np.frombuffer(self.padded_quasi(quasi), np.uint8)
        record["sealed"] = np.frombuffer(sealed, np.uint8)
        return record.tobytes()

    def read(self, reports: bytes) -> NDArray[Any]:
        """Return a run of reports as an array of records."""
        return np.frombuffer(reports, dtype=self.dtype)


@dataclass(frozen=True, eq=False)
class Rows:
    """The sealed parts of many reports, opened: matrices of bytes, one row a report."""

    origin: NDArray[np.uint8]  # element and padded quasi-identifier
    quasi: NDArray[np.uint8]
    quasi_length: NDArray[np.int64]
    sensitive: NDArray[np.uint8]
    sensitive_length: NDArray[np.int64]

    @classmethod
    def of(cls, layout: Layout, plain: bytes) -> Rows:
        """Take a run of opened parts into its pieces."""
        whole = np.frombuffer(plain, np.uint8).reshape(-1, layout.plain_size)
        middle = POINT_SIZE + LENGTH + layout.terms.quasi_size
        return cls(
            whole[:, :middle],
            whole[:, POINT_SIZE + LENGTH : middle],
            _lengths(whole[:, POINT_SIZE:]),
            whole[:, middle + LENGTH :],
            _lengths(whole[:, middle:]),
        )

    def well_formed(self) -> NDArray[np.bool_]:
        """Tell which rows are padded as they must be."""
        return _padding_is_zero(self.quasi, self.quasi_length) & _padding_is_zero(
            self.sensitive, self.sensitive_length
        )


def _padded(value: bytes, size: int, name: str) -> bytes:
    if len(value) > size:
        raise InputError(f"The {name} part of a row has at most {size} bytes here. Got {len(value)} instead.")
    return len(value).to_bytes(LENGTH, "little") + value + bytes(size - len(value))


def _lengths(part: NDArray[np.uint8]) -> NDArray[np.int64]:
    return part[:, 0].astype(np.int64) + 256 * part[:, 1].astype(np.int64)


def _padding_is_zero(part: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    width = part.shape[1]
    padding = np.arange(width) >= lengths[:, None]
    clean: NDArray[np.bool_] = ~(padding & (part != 0)).any(axis=1) & (lengths <= width)
    return clean
