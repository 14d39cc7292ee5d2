"""Everything that follows from a quasi-identifier's output: secret, tag, polynomials, key of the sealed part.

People with the same quasi-identifier derive the same of all these; nobody else can derive any. The derivation
is SHAKE-256 (FIPS 202) over a label and the secret: it runs once for each class, of which there may be a
million.
"""

from __future__ import annotations

from hashlib import shake_256
from typing import Final

import numpy as np

from masquerade.crypto.keys import KEY_SIZE
from masquerade.kernels.field61 import PRIME, Elements, fold_pairs

LIMBS: Final = 3  # 183 bits of secret
TAG_SIZE: Final = 16
SECRET_SIZE: Final = 8 * LIMBS
_WIDE: Final = 16  # bytes that are reduced to an element


def _labelled(label: bytes) -> bytes:
    return b"masquerade threshold 1\0" + bytes([len(label)]) + label


_SECRET, _TAG, _KEY, _COEFFICIENTS = map(_labelled, (b"secret", b"tag", b"key", b"coefficients"))


def secret_of(output: bytes) -> bytes:
    """Return the secret of a class, three elements of the field, from what the oblivious function gave."""
    wide = shake_256(_SECRET + output).digest(_WIDE * LIMBS)
    return b"".join([element.to_bytes(8, "little") for element in _elements(wide)])


def secrets_of(outputs: list[bytes]) -> Elements:
    """Return the secrets of many classes at once, (classes, limbs)."""
    return _folded([shake_256(_SECRET + output).digest(_WIDE * LIMBS) for output in outputs]).reshape(
        -1, LIMBS
    )


def tag_of(secret: bytes) -> bytes:
    """Return the 16 bytes that reports of a class are recognised by."""
    return shake_256(_TAG + secret).digest(TAG_SIZE)


def key_of(secret: bytes) -> bytes:
    """Return the key that the sealed parts of a class are sealed with."""
    return shake_256(_KEY + secret).digest(KEY_SIZE)


def share_of(secret: bytes, k: int, x: int) -> tuple[int, ...]:
    """Return the values at x of the polynomials of degree k − 1 whose values at 0 are the secret."""
    constants = [int.from_bytes(secret[at : at + 8], "little") for at in range(0, SECRET_SIZE, 8)]
    higher = _elements(_higher(secret, k))
    values = [0] * LIMBS
    for at in range(len(higher) - LIMBS, -1, -LIMBS):
        values = [(value * x + higher[at + limb]) % PRIME for limb, value in enumerate(values)]
    return tuple((value * x + constant) % PRIME for value, constant in zip(values, constants, strict=True))


def polynomials_of(secrets: Elements, k: int) -> Elements:
    """Return the coefficients of many classes at once, (classes, k, limbs), from (classes, limbs)."""
    coefficients = np.empty((len(secrets), k, LIMBS), dtype=np.uint64)
    coefficients[:, 0] = secrets
    run = b"".join([_higher(secret, k) for secret in as_bytes(secrets)])
    words = np.frombuffer(run, dtype="<u8").astype(np.uint64)
    coefficients[:, 1:] = fold_pairs(words[::2].copy(), words[1::2].copy()).reshape(
        len(secrets), k - 1, LIMBS
    )
    return coefficients


def as_bytes(secrets: Elements) -> list[bytes]:
    """Return secrets (classes, limbs) as bytes, one by one."""
    run = secrets.astype("<u8").tobytes()
    return [run[at : at + SECRET_SIZE] for at in range(0, len(run), SECRET_SIZE)]


def _higher(secret: bytes, k: int) -> bytes:
    """Return what the coefficients of x¹ … x^(k−1) are reduced from, all limbs of x¹ first."""
    return shake_256(_COEFFICIENTS + secret).digest(_WIDE * LIMBS * (k - 1))


def _elements(wide: bytes) -> list[int]:
    return [int.from_bytes(wide[at : at + _WIDE], "little") % PRIME for at in range(0, len(wide), _WIDE)]


def _folded(wide: list[bytes]) -> Elements:
    words = np.frombuffer(b"".join(wide), dtype="<u8").astype(np.uint64)
    return fold_pairs(words[::2].copy(), words[1::2].copy())
