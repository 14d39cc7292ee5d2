"""Votes and masks as vectors of numbers modulo 2^b, b a width that numpy adds at full speed.

A mask is the stream of a key that is used once; the keys follow from two seeds of a user, of which neighbours
hold shares: one for the mask of its own, one for the pair of keys that it agrees on masks with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.keys import KEY_SIZE, AgreementKey, derive
from masquerade.crypto.seed_shares import SHARE_SIZE
from masquerade.crypto.symmetric import TAG_SIZE, seal_once, stream, unseal_once

Ring = NDArray[np.unsignedinteger[Any]]
AT_ONCE = 256
SEALING, MASKING = "aggregation sealed shares", "aggregation pair mask"
SEALED_SIZE = 2 * SHARE_SIZE + TAG_SIZE
_WIDTHS = tuple(np.dtype(name) for name in ("<u1", "<u2", "<u4", "<u8"))


def ring(users: int, most: int = 1) -> np.dtype[Any]:
    """Return the narrowest numbers in which a sum over all users, each at most `most`, does not wrap."""
    for width in _WIDTHS:
        if users * most < 1 << 8 * width.itemsize:
            return width
    raise InputError("Sums that need more than 64 bits are not supported.")


def mask(key: bytes, length: int, width: np.dtype[Any]) -> Ring:
    """Return the mask that a single-use key of 32 bytes stands for."""
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


def seed_promise(seed: bytes, info: bytes) -> bytes:
    """Return the hash by which a user fixes the seed of its own mask, so that wrong shares are noticed."""
    return hashlib.sha256(b"masquerade aggregation own seed" + info + seed).digest()


def seal_shares(secret: bytes, sender: int, receiver: int, both: bytes, info: bytes) -> bytes:
    """Return two shares sealed for a neighbour: keys are fresh in every round and for every direction."""
    return seal_once(_one_way(secret, sender, receiver), both, info)


def open_shares(secret: bytes, sender: int, receiver: int, sealed: bytes, info: bytes) -> bytes:
    """Return the two shares that a neighbour sealed, or raise `SealBroken`."""
    return unseal_once(_one_way(secret, sender, receiver), sealed, info)


def _one_way(secret: bytes, sender: int, receiver: int) -> bytes:
    """Return the half of a pair's secret that serves one direction."""
    return secret[:KEY_SIZE] if sender < receiver else secret[KEY_SIZE:]
