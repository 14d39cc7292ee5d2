"""Secrets of classes: derived from an OPRF output, and recovered from k shares.

A class is all people with the same quasi-identifier; they derive the same secret. The secret determines a
tag, the key of their sealed parts, and polynomials whose values at random positions are their shares; nobody
else can derive any of these. The derivation is SHAKE-256 (FIPS 202) over a label and the secret. It runs once
per class, and there may be a million classes. So shares are in the small field 2⁶¹ − 1 of `kernels.field61`,
three per secret, and the secrets of all classes are recovered together. The docstring of
`crypto.group.interpolate_points` compares the sharing schemes.

A recovered secret is accepted only if it gives the tag of the class, so a wrong secret never passes. k shares
drawn at random recover the secret with probability (1 − β)^k if a fraction β of the shares is bad.
"""

from __future__ import annotations

import secrets as randomness
from dataclasses import dataclass
from hashlib import shake_256
from itertools import combinations
from math import comb
from typing import Final

import numpy as np
from numpy.typing import NDArray

from masquerade.crypto.keys import KEY_SIZE
from masquerade.crypto.symmetric import Keystream
from masquerade.kernels.field61 import PRIME, Elements, decode, evaluate, fold_pairs, lagrange_at_zero

Ints = NDArray[np.int64]
LIMBS: Final = 3  # 183 bits of secret
TAG_SIZE: Final = 16
SECRET_SIZE: Final = 8 * LIMBS
DRAWS: Final = 20
_WIDE: Final = 16  # bytes reduced to one field element
_MOST_DECODED: Final = 1024  # shares beyond 4k: error correction takes quadratic time
_MOST_CHOICES, _MOST_PRODUCTS = 5000, 2_000_000  # limits of trying all choices of k shares: 40 ms per class
MOST_CHOICES_IN_ALL: Final = 1 << 20  # over all classes: an attacker can send many classes of bad shares

_keystream = Keystream()


def _prefix_of(label: bytes) -> bytes:
    return b"masquerade threshold 1\0" + bytes([len(label)]) + label


_SECRET, _TAG, _KEY, _COEFFICIENTS = map(_prefix_of, (b"secret", b"tag", b"key", b"coefficients"))


def secret_of(output: bytes) -> bytes:
    """Return the secret of a class, three field elements, from the output of the OPRF."""
    wide = shake_256(_SECRET + output).digest(_WIDE * LIMBS)
    return b"".join([element.to_bytes(8, "little") for element in _elements(wide)])


def secrets_of(outputs: list[bytes]) -> Elements:
    """Return the secrets of many classes, (classes, limbs)."""
    return _fold_elements([shake_256(_SECRET + output).digest(_WIDE * LIMBS) for output in outputs])


def tag_of(secret: bytes) -> bytes:
    """Return the 16-byte tag that identifies reports of a class."""
    return shake_256(_TAG + secret).digest(TAG_SIZE)


def key_of(secret: bytes) -> bytes:
    """Return the key of the sealed parts of a class."""
    return shake_256(_KEY + secret).digest(KEY_SIZE)


def random_place() -> int:
    """Return a random position for a share: any but 0, where the secret is."""
    return 1 + randomness.randbelow(PRIME - 1)


def share_of(secret: bytes, k: int, x: int) -> tuple[int, ...]:
    """Return the values at x of the polynomials of degree k − 1 whose values at 0 are the secret."""
    constants = [int.from_bytes(secret[at : at + 8], "little") for at in range(0, SECRET_SIZE, 8)]
    higher = _elements(_higher(secret, k))
    values = [0] * LIMBS
    for at in range(len(higher) - LIMBS, -1, -LIMBS):
        values = [(value * x + higher[at + limb]) % PRIME for limb, value in enumerate(values)]
    return tuple((value * x + constant) % PRIME for value, constant in zip(values, constants, strict=True))


def shares_at(secrets: Elements, k: int, xs: Elements, which: Ints) -> Elements:
    """Return share ``xs[i]`` of class ``which[i]`` for all i, (shares, limbs)."""
    coefficients = np.empty((len(secrets), k, LIMBS), dtype=np.uint64)
    coefficients[:, 0] = secrets
    higher = _fold_elements([_higher(secret, k) for secret in as_bytes(secrets)])
    coefficients[:, 1:] = higher.reshape(len(secrets), k - 1, LIMBS)
    return evaluate(coefficients, xs, which)


def as_bytes(secrets: Elements) -> list[bytes]:
    """Return one byte string per secret, from an array (classes, limbs)."""
    run = secrets.astype("<u8").tobytes()
    return [run[at : at + SECRET_SIZE] for at in range(0, len(run), SECRET_SIZE)]


@dataclass(frozen=True, eq=False)
class ClassShares:
    """Shares by class: class c has the shares from ``starts[c]`` to ``starts[c + 1] − 1``.

    `point` numbers the distinct x of all classes. Shares with the same number claim a value at the same x,
    not necessarily the same value.
    """

    xs: Elements
    ys: Elements
    point: Ints
    starts: Ints
    tags: list[bytes]

    @property
    def sizes(self) -> Ints:
        """Return the number of shares of each class."""
        return np.diff(self.starts)

    def draw(self, classes: Ints) -> tuple[Ints, Ints]:
        """Return positions of shares with distinct x, shuffled within each class, and the number per class.

        If several shares of a class have the same x, one of them is taken at random.
        """
        sizes = self.sizes[classes]
        order = shuffle_within(self.starts[classes], self.starts[classes + 1])
        _, first = np.unique(self.point[order], return_index=True)
        if first.size < order.size:
            heard = np.sort(first)
            which = np.repeat(np.arange(classes.size), sizes)[heard]
            order, sizes = order[heard], np.bincount(which, minlength=classes.size)
        return order, sizes


def recover_secrets(shares: ClassShares, k: int) -> tuple[Elements, NDArray[np.bool_]]:
    """Return the secrets of classes with at least k distinct x each, (classes, limbs), and flags of success.

    Formula: `lagrange_at_zero` on k shares drawn at random, up to 20 times. If no draw succeeds and the class
    is small, all choices of k shares are tried, so that k good shares are always found. In a large class,
    `decode` is used on m ≤ 4k + 1024 shares; it finds the polynomial if at most (m − k)/2 of them are bad. A
    class with exactly k shares is tried once. The number of choices over all classes is limited, which
    suffices for about 200 classes with 5000 choices each. Classes are processed in random order; beyond the
    limit, `decode` is used.
    """
    secrets = np.zeros((len(shares.tags), LIMBS), dtype=np.uint64)
    found = np.zeros(len(shares.tags), dtype=np.bool_)
    for attempt in range(DRAWS):
        left = np.flatnonzero(~found & ((shares.sizes > k) | (attempt == 0)))
        if not left.size:
            break
        order, sizes = shares.draw(left)
        drawn = order[((np.cumsum(sizes) - sizes)[:, None] + np.arange(k)).ravel()]
        values = lagrange_at_zero(
            shares.xs[drawn], shares.ys[drawn], np.arange(0, drawn.size, k, dtype=np.int64), k
        )
        wanted = [shares.tags[c] for c in left.tolist()]
        fits = [tag_of(secret) == tag for secret, tag in zip(as_bytes(values), wanted, strict=True)]
        found[left[fits]] = True
        secrets[left[fits]] = values[fits]
    left, choices = np.flatnonzero(~found & (shares.sizes > k)), 0
    for c in left[shuffle_within(np.zeros(1, dtype=np.int64), np.array([left.size]))]:
        number = _number_of_choices(shares.sizes[c], k)
        tried = 0 < number <= MOST_CHOICES_IN_ALL - choices
        choices += number if tried else 0
        for secret in _all_choices(shares, c, k) if tried else _decode_class(shares, c, k):
            if tag_of(as_bytes(secret[None])[0]) == shares.tags[c]:
                found[c], secrets[c] = True, secret
                break
    return secrets, found


def shuffle_within(starts: Ints, ends: Ints) -> Ints:
    """Return the positions of all classes, class by class, in unpredictable order within each class."""
    sizes = ends - starts
    which = np.repeat(np.arange(starts.size), sizes)
    places = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(starts, sizes)
    # sort keys: the class number in the high bits and at least 32 random bits below it, so that one sort
    # keeps the order of the classes and shuffles each
    below = np.uint64(64 - max(int(starts.size - 1).bit_length(), 1))
    random = _keystream(8 * places.size).view(np.uint64) & ((np.uint64(1) << below) - np.uint64(1))
    shuffle: Ints = places[np.argsort((which.astype(np.uint64) << below) | random)]
    return shuffle


def _number_of_choices(size: np.int64, k: int) -> int:
    """Return the number of choices of k shares of a class, or 0 if there are too many to try."""
    choices = comb(int(size), k)
    return choices if choices <= _MOST_CHOICES and choices * k * k <= _MOST_PRODUCTS else 0


def _all_choices(shares: ClassShares, c: np.int64, k: int) -> Elements:
    """Return the secrets of all choices of k shares of a class with distinct x, (choices, limbs)."""
    places = range(shares.starts[c], shares.starts[c + 1])
    chosen = np.array(list(combinations(places, k)), dtype=np.int64)
    points = shares.point[chosen]  # ascending, so equal points are adjacent
    chosen = chosen[(points[:, 1:] != points[:, :-1]).all(axis=1)].ravel()
    starts = np.arange(0, chosen.size, k, dtype=np.int64)
    return lagrange_at_zero(shares.xs[chosen], shares.ys[chosen], starts, k)


def _decode_class(shares: ClassShares, c: np.int64, k: int) -> Elements:
    """Return the secret after error correction, (1, limbs), or an empty array, (0, limbs)."""
    order = shares.draw(np.array([c]))[0][: 4 * k + _MOST_DECODED]
    secret = np.empty((1, LIMBS), dtype=np.uint64)
    for limb in range(LIMBS):
        found, coefficients = decode(shares.xs[order], shares.ys[order, limb].copy(), k)
        if not found:
            return secret[:0]
        secret[0, limb] = coefficients[0]
    return secret


def _higher(secret: bytes, k: int) -> bytes:
    """Return the bytes of the coefficients of x¹ … x^(k−1), all limbs of x¹ first."""
    return shake_256(_COEFFICIENTS + secret).digest(_WIDE * LIMBS * (k - 1))


def _elements(wide: bytes) -> list[int]:
    return [int.from_bytes(wide[at : at + _WIDE], "little") % PRIME for at in range(0, len(wide), _WIDE)]


def _fold_elements(wide: list[bytes]) -> Elements:
    """Return `_elements` of many byte strings as an array, (elements / limbs, limbs)."""
    words = np.frombuffer(b"".join(wide), dtype="<u8").astype(np.uint64)
    return fold_pairs(words[::2].copy(), words[1::2].copy()).reshape(-1, LIMBS)
