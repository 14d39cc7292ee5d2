"""Votes and masks as vectors of numbers modulo 2^b, b a width that numpy adds at full speed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.keys import AgreementKey, derive
from masquerade.crypto.symmetric import stream

Ring = NDArray[np.unsignedinteger[Any]]
AT_ONCE = 256
_WIDTHS = tuple(np.dtype(name) for name in ("<u1", "<u2", "<u4", "<u8"))


def ring(users: int, most: int = 1) -> np.dtype[Any]:
    """Return the narrowest numbers in which a sum over all users, each at most `most`, does not wrap."""
    for width in _WIDTHS:
        if users * most < 1 << 8 * width.itemsize:
            return width
    raise InputError("Sums that need more than 64 bits are not supported.")


def mask(key: bytes, length: int, width: np.dtype[Any]) -> Ring:
    """Return the mask that a single-use key of 32 bytes stands for (AES-256 in counter mode)."""
    return np.frombuffer(stream(key, length * width.itemsize), dtype=width)


def total(vectors: Iterable[Ring], length: int, width: np.dtype[Any]) -> Ring:
    """Return the sum of many vectors, some hundreds at a time so that they stay in the cache."""
    result = np.zeros(length, dtype=width)
    several = iter(vectors)
    while part := list(islice(several, AT_ONCE)):
        result += np.sum(part, axis=0, dtype=width)
    return result


def own_mask_key(seed: bytes, info: bytes) -> bytes:
    """Return the key of a user's own mask."""
    return derive(seed, "aggregation own mask", info)


def mask_key_pair(seed: bytes, info: bytes) -> AgreementKey:
    """Return the key pair whose agreements are the masks between neighbours."""
    return AgreementKey.from_seed(derive(seed, "aggregation mask key", info))
