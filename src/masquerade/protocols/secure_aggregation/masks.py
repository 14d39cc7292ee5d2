"""Votes and masks as vectors of numbers modulo 2^b (b is 8, 16, 32 or 64), added without NumPy.

A mask is the stream of a single-use key. The keys follow from two seeds of a user, of which neighbours hold
shares: one seed for the user's own mask, one for the key pair by which it agrees on masks with neighbours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

from masquerade.core.errors import InputError
from masquerade.crypto.keys import KEY_SIZE, AgreementKey, derive
from masquerade.crypto.shamir import SHARE_SIZE
from masquerade.crypto.symmetric import TAG_SIZE, seal_once, stream, unseal_once

SEALING, MASKING = "aggregation sealed shares", "aggregation pair mask"
SEALED_SIZE = 2 * SHARE_SIZE + TAG_SIZE
WIDTHS = (1, 2, 4, 8)


def ring(users: int, most: int = 1) -> int:
    """Return the number of bytes that can hold a sum of at most `most` per user."""
    for width in WIDTHS:
        if users * most < 1 << 8 * width:
            return width
    raise InputError("Sums that need more than 64 bits are not supported.")


def mask(key: bytes, length: int, width: int) -> bytes:
    """Return the mask that follows from a single-use key of 32 bytes."""
    return stream(key, length * width)


def total(added: Iterable[bytes], taken: Iterable[bytes], length: int, width: int) -> bytes:
    """Return the sum of some vectors minus the sum of others, modulo 2^(8·width), little-endian.

    Numbers at even and at odd indices are added separately, each half as one long integer with space for
    carries between its numbers: about ten operations on long integers per vector, whatever its length.
    """
    even, room = _every_second(length, width)
    bits, borrow = 8 * width, even + even // ((1 << 8 * width) - 1)  # 2^bits in every second number
    sums = [0, 0]
    signed = chain(((1, one) for one in added), ((-1, one) for one in taken))
    for number, (sign, vector) in enumerate(signed, start=1):
        whole = int.from_bytes(vector, "little")
        for half in (0, 1):
            part = (whole >> bits * half) & even
            sums[half] += part if sign > 0 else borrow - part
        if number % room == 0:
            sums = [one & even for one in sums]
    first, second = (one & even for one in sums)
    return ((first | second << bits) & ((1 << bits * length) - 1)).to_bytes(length * width, "little")


@lru_cache(maxsize=16)
def _every_second(length: int, width: int) -> tuple[int, int]:
    """Return all ones in every second number, and the number of vectors that can be added before overflow."""
    pair = (1 << 8 * width) - 1
    ones = ((1 << 16 * width * -(-length // 2)) - 1) // ((1 << 16 * width) - 1)
    return pair * ones, min((1 << 8 * width) - 2, 1 << 16)


def own_mask_key(seed: bytes, info: bytes) -> bytes:
    """Return the key of a user's own mask."""
    return derive(seed, "aggregation own mask", info)


def mask_key_pair(seed: bytes, info: bytes) -> AgreementKey:
    """Return the key pair by which a user agrees on masks with neighbours."""
    return AgreementKey.from_seed(derive(seed, "aggregation mask key", info))


def seed_promise(seed: bytes, info: bytes) -> bytes:
    """Return the hash by which a user commits to the seed of its own mask, to detect wrong shares."""
    return hashlib.sha256(b"masquerade aggregation own seed" + info + seed).digest()


def seal_shares(secret: bytes, sender: int, receiver: int, both: bytes, info: bytes) -> bytes:
    """Return two shares sealed for a neighbour, by a fresh key for every round and direction."""
    return seal_once(_one_way(secret, sender, receiver), both, info)


def open_shares(secret: bytes, sender: int, receiver: int, sealed: bytes, info: bytes) -> bytes:
    """Return the two shares that a neighbour sealed; raise `SealBroken` if they do not open."""
    return unseal_once(_one_way(secret, sender, receiver), sealed, info)


def _one_way(secret: bytes, sender: int, receiver: int) -> bytes:
    """Return the half of a pair's secret for one direction."""
    return secret[:KEY_SIZE] if sender < receiver else secret[KEY_SIZE:]
