"""Sets of points of ristretto255, a row of 32 bytes each: hashed to, masked and checked on all cores."""

from __future__ import annotations

import numpy as np

from masquerade.crypto import sodium_rows
from masquerade.crypto.batch_mac import Texts
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import Secret
from masquerade.crypto.sodium_rows import POINT_SIZE, Rows


def hashed(messages: Texts, domain: bytes) -> Rows:
    """Return the point of every message, different in every domain."""
    return sodium_rows.hashed_points(domain, *messages)


def masked(points: Rows, secret: Secret) -> Rows:
    """Return every point times a secret, in the same order; what is no point is a `DecodingError`.

    Cost: 60 µs of one core for a point; checking that it is one is part of that.
    """
    found = sodium_rows.multiplied_points(points, secret._encoded)  # noqa: SLF001
    if found is None:
        raise _no_point()
    return found


def decoded_set(data: bytes, most: int) -> Rows:
    """Return the rows of a message: none twice, not too many. `masked` or `check_points` look at each."""
    count, rest = divmod(len(data), POINT_SIZE)
    if rest or count > most:
        raise DecodingError(f"A set has at most {most:,} points of {POINT_SIZE} bytes.")
    points = np.frombuffer(data, np.uint8).reshape(-1, POINT_SIZE)
    words = points.view(np.uint64)
    first = np.sort(words[:, 0])
    if np.any(first[1:] == first[:-1]) and len(np.unique(words, axis=0)) < count:
        raise DecodingError("A set of points has one of them twice.")
    return points


def check_points(points: Rows) -> None:
    """Refuse a set with a row that is no canonical point, or the identity."""
    if not sodium_rows.are_points(points):
        raise _no_point()


def _no_point() -> DecodingError:
    return DecodingError("A point of ristretto255 must be canonical and not the identity.")
