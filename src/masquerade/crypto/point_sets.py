"""Sets of ristretto255 points, 32 bytes per row: hash texts to points, mask and check them, on all cores."""

from __future__ import annotations

import numpy as np

from masquerade.crypto import sodium_rows
from masquerade.crypto.batch_mac import Texts
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import Secret
from masquerade.crypto.sodium_rows import POINT_SIZE, Rows


def hash_to_points(messages: Texts, domain: bytes) -> Rows:
    """Return the point of each message; different domains give different points."""
    return sodium_rows.hashed_points(domain, *messages)


def mask_points(points: Rows, secret: Secret) -> Rows:
    """Return each point times a secret, in the same order; raise DecodingError if a row is not a point.

    Cost: 60 µs of one core per point, including the check.
    """
    products = sodium_rows.multiplied_points(points, secret._encoding)  # noqa: SLF001
    if products is None:
        raise _invalid_point()
    return products


def decode_set(data: bytes, most: int) -> Rows:
    """Return the rows of a message after checking that they are distinct and at most `most`.

    Whether each row is a point is checked by `mask_points` or `check_points`.
    """
    count, rest = divmod(len(data), POINT_SIZE)
    if rest or count > most:
        raise DecodingError(f"A set has at most {most:,} points of {POINT_SIZE} bytes.")
    points = np.frombuffer(data, np.uint8).reshape(-1, POINT_SIZE)
    words = points.view(np.uint64)
    first = np.sort(words[:, 0])
    if np.any(first[1:] == first[:-1]) and len(np.unique(words, axis=0)) < count:
        raise DecodingError("A set of points contains a point twice.")
    return points


def check_points(points: Rows) -> None:
    """Raise DecodingError if a row is not a canonical point or is the identity."""
    if not sodium_rows.are_points(points):
        raise _invalid_point()


def _invalid_point() -> DecodingError:
    return DecodingError("A point of ristretto255 must be canonical and not the identity.")
