"""ElGamal encryption on secp256k1 under a joint key of several holders, and records encoded as points.

A ciphertext of M is (a, b) = (r·G, M + r·K), where K = Σ s·G and each holder knows one secret s. Adding an
encryption of zero re-randomizes the ciphertext; subtracting s·a for every holder from b decrypts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import Point, Secret
from masquerade.crypto.secp256k1 import secp256k1

POINT = secp256k1.point_size
PIECE = 30  # bytes of a record per ciphertext; the two other bytes of x are a counter and the length


class Ciphertext(NamedTuple):
    """An encrypted point."""

    a: Point
    b: Point


Row = tuple[Ciphertext, ...]  # an encrypted record: one ciphertext per piece


def encrypt(message: Point, key: Point, randomness: Secret) -> Ciphertext:
    """Return a ciphertext of a point."""
    return Ciphertext(secp256k1.multiply_generator(randomness), message + secp256k1.multiply(key, randomness))


def rerandomize(old: Ciphertext, key: Point, randomness: Secret) -> Ciphertext:
    """Return a new ciphertext of the same point that cannot be linked to the old one without the key."""
    return Ciphertext(
        old.a + secp256k1.multiply_generator(randomness), old.b + secp256k1.multiply(key, randomness)
    )


def encode_rows(rows: Sequence[Row]) -> bytes:
    """Return rows as concatenated points."""
    return b"".join([point.encode() for row in rows for pair in row for point in pair])


def decode_rows(data: bytes, width: int) -> tuple[Row, ...]:
    """Return the rows of concatenated points, each decoded strictly."""
    size = 2 * POINT * width
    if len(data) % size:
        raise DecodingError(f"Rows of {width} ciphertexts have {size} bytes each; the last is incomplete.")
    points = decode_points(data)
    pairs = [Ciphertext(points[at], points[at + 1]) for at in range(0, len(points), 2)]
    return tuple([tuple(pairs[at : at + width]) for at in range(0, len(pairs), width)])


def decode_points(data: bytes) -> tuple[Point, ...]:
    """Return the points of concatenated encodings."""
    if len(data) % POINT:
        raise DecodingError(f"Points have {POINT} bytes each; the last is incomplete.")
    return tuple([secp256k1.decode(data[at : at + POINT]) for at in range(0, len(data), POINT)])


def embed_piece(piece: bytes) -> Point:
    """Return the point that encodes at most 30 bytes, with the first counter that gives an x on the curve.

    The running time depends on the piece, so only its owner may observe it.
    """
    if len(piece) > PIECE:
        raise InputError(f"A piece of a record has at most {PIECE} bytes. Got {len(piece)} instead.")
    rest = bytes([len(piece)]) + piece.ljust(PIECE, b"\0")
    for counter in range(256):  # each counter succeeds with probability one half
        try:
            return secp256k1.decode(b"\x02" + bytes([counter]) + rest)
        except DecodingError:
            continue
    raise InputError("No point was found for this piece of a record.")


def extract_piece(point: Point) -> bytes:
    """Return the bytes that a point encodes; raise DecodingError if `embed_piece` never returns it."""
    x = point.hash_bytes[2:]
    piece = x[1 : 1 + x[0]]
    if x[0] > PIECE or embed_piece(piece) != point:
        raise DecodingError("A point does not encode a piece of a record.")
    return piece


def pieces_of(record: bytes, width: int) -> tuple[bytes, ...]:
    """Split a record into `width` pieces: full pieces, then a partial piece, then empty pieces."""
    if len(record) > width * PIECE:
        raise InputError(f"A record has at most {width * PIECE} bytes here. Got {len(record)} instead.")
    return tuple(record[at : at + PIECE] for at in range(0, width * PIECE, PIECE))


def record_of(points: Sequence[Point]) -> bytes:
    """Return the record of decrypted pieces."""
    pieces = tuple(extract_piece(point) for point in points)
    record = b"".join(pieces)
    if pieces_of(record, len(pieces)) != pieces:
        raise DecodingError("The pieces of a record are not filled in order.")
    return record
