"""Sets of points under masks: hash to the group, multiply by one secret, on as many threads as help."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import Point, Secret
from masquerade.crypto.ristretto255 import ristretto255

POINT_SIZE = ristretto255.point_size
_CHUNK = 512
_WORKERS = min(os.cpu_count() or 1, 16)

S = TypeVar("S")
T = TypeVar("T")


def hashed(messages: Sequence[bytes], domain: bytes) -> list[Point]:
    """Return the point of every message, different in every domain."""
    return _spread(messages, lambda some: [ristretto255.hash_to_group(one, domain) for one in some])


def masked(points: Sequence[Point], secret: Secret) -> list[Point]:
    """Return every point times a secret, in the same order."""
    return _spread(points, lambda some: [ristretto255.multiply(point, secret) for point in some])


def decoded_set(data: bytes, most: int) -> list[Point]:
    """Return the points of a message: each canonical and not the identity, none twice, not too many."""
    count, rest = divmod(len(data), POINT_SIZE)
    if rest or count > most:
        raise DecodingError(f"A set has at most {most:,} points of {POINT_SIZE} bytes.")
    encodings = [data[at : at + POINT_SIZE] for at in range(0, len(data), POINT_SIZE)]
    if len(set(encodings)) < count:
        raise DecodingError("A set of points has one of them twice.")
    return _spread(encodings, lambda some: [ristretto255.decode(encoding) for encoding in some])


def encoded_set(points: Sequence[Point]) -> bytes:
    """Return points one after the other."""
    return b"".join([point.encode() for point in points])


def quotient(over: Secret, under: Secret) -> Secret:
    """Return over/under: takes the mask `under` off and puts `over` on."""
    order = ristretto255.order
    return ristretto255.secret(over.reveal() * pow(under.reveal(), -1, order) % order)


def _spread(items: Sequence[S], work: Callable[[Sequence[S]], list[T]]) -> list[T]:
    """Do work on chunks in threads: libsodium runs outside the interpreter's lock."""
    chunks = [items[at : at + _CHUNK] for at in range(0, len(items), _CHUNK)]
    if len(chunks) <= 1:
        return work(items)
    with ThreadPoolExecutor(_WORKERS) as pool:
        return [result for results in pool.map(work, chunks) for result in results]
