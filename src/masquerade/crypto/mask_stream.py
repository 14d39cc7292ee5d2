"""Masks: uniform numbers that everybody with a key can repeat, and nobody else can tell from chance."""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray


class MaskStream:
    """The numbers that a key of 32 bytes stands for, one after the other (AES-256 in counter mode).

    A key serves one stream: a second thing under the same mask would give away the difference.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def numbers(self, count: int, width: np.dtype[Any] | str = "<u8") -> NDArray[Any]:
        """Return the next numbers, little-endian, of 64 bits unless said otherwise."""
        kind = np.dtype(width)
        stream = self._cipher.update(bytes(count * kind.itemsize))
        return np.frombuffer(stream, dtype=kind).astype(kind.newbyteorder("="), copy=False)


def mask_words(key: bytes, count: int) -> NDArray[np.uint64]:
    """Return the first 64-bit words of a key's stream."""
    return MaskStream(key).numbers(count)
