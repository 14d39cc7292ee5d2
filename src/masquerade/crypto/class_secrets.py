"""Secrets of classes: everything that follows from an oblivious function's output, and back from k shares.

People with the same quasi-identifier derive the same secret, and from it a tag, the key of their sealed
parts, and polynomials whose values at places of their own are their shares; nobody else can derive any. The
derivation is SHAKE-256 (FIPS 202) over a label and the secret: it runs once for each class, of which there
may be a million. So the shares lie in the small field 2⁶¹ − 1 of `kernels.field61`, three of them for a
secret, and secrets of all classes are recovered at once; `crypto.group` says which code is for what.

A recovered secret is accepted only if the tag of the class follows from it, so a wrong one never passes; bad
shares cost draws. With a share β of bad ones a draw succeeds with probability (1 − β)^k.
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
_WIDE: Final = 16  # bytes that are reduced to an element
_MOST_DECODED: Final = 1024  # shares beyond 4k: error correction takes time with their square
_MOST_CHOICES, _MOST_PRODUCTS = 5000, 2_000_000  # of k shares, and in all of them: some 40 ms a class
MOST_CHOICES_IN_ALL: Final = 1 << 20  # of all classes: anybody can make up classes of bad shares, and many

_keystream = Keystream()


def _labelled(label: bytes) -> bytes:
    return b"masquerade threshold 1\0" + bytes([len(label)]) + label


_SECRET, _TAG, _KEY, _COEFFICIENTS = map(_labelled, (b"secret", b"tag", b"key", b"coefficients"))


def secret_of(output: bytes) -> bytes:
    """Return the secret of a class, three elements of the field, from what the oblivious function gave."""
    wide = shake_256(_SECRET + output).digest(_WIDE * LIMBS)
    return b"".join([element.to_bytes(8, "little") for element in _elements(wide)])


def secrets_of(outputs: list[bytes]) -> Elements:
    """Return the secrets of many classes at once, (classes, limbs)."""
    return _folded([shake_256(_SECRET + output).digest(_WIDE * LIMBS) for output in outputs])


def tag_of(secret: bytes) -> bytes:
    """Return the 16 bytes that reports of a class are recognised by."""
    return shake_256(_TAG + secret).digest(TAG_SIZE)


def key_of(secret: bytes) -> bytes:
    """Return the key that the sealed parts of a class are sealed with."""
    return shake_256(_KEY + secret).digest(KEY_SIZE)


def random_place() -> int:
    """Return where a share is to lie: anywhere but at 0, where the secret is."""
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
    """Return share ``xs[i]`` of class ``which[i]`` for all i at once, (shares, limbs)."""
    coefficients = np.empty((len(secrets), k, LIMBS), dtype=np.uint64)
    coefficients[:, 0] = secrets
    higher = _folded([_higher(secret, k) for secret in as_bytes(secrets)])
    coefficients[:, 1:] = higher.reshape(len(secrets), k - 1, LIMBS)
    return evaluate(coefficients, xs, which)


def as_bytes(secrets: Elements) -> list[bytes]:
    """Return secrets (classes, limbs) as bytes, one by one."""
    run = secrets.astype("<u8").tobytes()
    return [run[at : at + SECRET_SIZE] for at in range(0, len(run), SECRET_SIZE)]


@dataclass(frozen=True, eq=False)
class Shares:
    """Shares by class: class c has those from ``starts[c]`` to ``starts[c + 1] − 1``.

    `point` numbers the distinct x of all classes: shares with the same number say something about the same x,
    and not always the same thing.
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

    def drawn(self, classes: Ints) -> tuple[Ints, Ints]:
        """Return the places of shares with distinct x, class by class in random order, and how many of each.

        Where several speak about one x, chance decides which is heard.
        """
        sizes = self.sizes[classes]
        order = shuffled(self.starts[classes], self.starts[classes + 1])
        _, first = np.unique(self.point[order], return_index=True)
        if first.size < order.size:
            heard = np.sort(first)
            which = np.repeat(np.arange(classes.size), sizes)[heard]
            order, sizes = order[heard], np.bincount(which, minlength=classes.size)
        return order, sizes


def recover_secrets(shares: Shares, k: int) -> tuple[Elements, NDArray[np.bool_]]:
    """Return the secrets of classes with at least k distinct x each, (classes, limbs), and which were found.

    Formula: `lagrange_at_zero` on k shares drawn at random, up to 20 times; then all choices of k shares if
    they are few, so that k good shares of a small class are always found; else `decode` on up to 4k + 1024
    shares, which finds the polynomial if at most (m − k)/2 of these m shares are bad. A class with exactly k
    shares has nothing to spare: it is tried once. Choices are tried of some 200 classes that take the most of
    them, drawn at random, or of more that take fewer; where there are more still, the others are decoded.
    """
    secrets = np.zeros((len(shares.tags), LIMBS), dtype=np.uint64)
    found = np.zeros(len(shares.tags), dtype=np.bool_)
    for attempt in range(DRAWS):
        left = np.flatnonzero(~found & ((shares.sizes > k) | (attempt == 0)))
        if not left.size:
            break
        order, sizes = shares.drawn(left)
        drawn = order[((np.cumsum(sizes) - sizes)[:, None] + np.arange(k)).ravel()]
        values = lagrange_at_zero(
            shares.xs[drawn], shares.ys[drawn], np.arange(0, drawn.size, k, dtype=np.int64), k
        )
        wanted = [shares.tags[c] for c in left.tolist()]
        fits = [tag_of(secret) == tag for secret, tag in zip(as_bytes(values), wanted, strict=True)]
        found[left[fits]] = True
        secrets[left[fits]] = values[fits]
    left, choices = np.flatnonzero(~found & (shares.sizes > k)), 0
    for c in left[shuffled(np.zeros(1, dtype=np.int64), np.array([left.size]))]:
        number = _few(shares.sizes[c], k)
        tried = 0 < number <= MOST_CHOICES_IN_ALL - choices
        choices += number if tried else 0
        for secret in _all_choices(shares, c, k) if tried else _corrected(shares, c, k):
            if tag_of(as_bytes(secret[None])[0]) == shares.tags[c]:
                found[c], secrets[c] = True, secret
                break
    return secrets, found


def shuffled(starts: Ints, ends: Ints) -> Ints:
    """Return the places of all classes, class by class, each in an order nobody could foresee."""
    sizes = ends - starts
    which = np.repeat(np.arange(starts.size), sizes)
    places = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(starts, sizes)
    # at least 32 random bits below the number of the class, so that one sort does both
    below = np.uint64(64 - max(int(starts.size - 1).bit_length(), 1))
    random = _keystream(8 * places.size).view(np.uint64) & ((np.uint64(1) << below) - np.uint64(1))
    shuffle: Ints = places[np.argsort((which.astype(np.uint64) << below) | random)]
    return shuffle


def _few(size: np.int64, k: int) -> int:
    """Return the number of choices of k shares of a class, 0 where it is large."""
    choices = comb(int(size), k)
    return choices if choices <= _MOST_CHOICES and choices * k * k <= _MOST_PRODUCTS else 0


def _all_choices(shares: Shares, c: np.int64, k: int) -> Elements:
    """Return what every k shares of a class with distinct x give, (choices, limbs)."""
    places = range(shares.starts[c], shares.starts[c + 1])
    chosen = np.array(list(combinations(places, k)), dtype=np.int64)
    points = shares.point[chosen]  # ascending, so equal ones stand side by side
    chosen = chosen[(points[:, 1:] != points[:, :-1]).all(axis=1)].ravel()
    starts = np.arange(0, chosen.size, k, dtype=np.int64)
    return lagrange_at_zero(shares.xs[chosen], shares.ys[chosen], starts, k)


def _corrected(shares: Shares, c: np.int64, k: int) -> Elements:
    """Return the secret after error correction, (1, limbs), or nothing, (0, limbs)."""
    order = shares.drawn(np.array([c]))[0][: 4 * k + _MOST_DECODED]
    secret = np.empty((1, LIMBS), dtype=np.uint64)
    for limb in range(LIMBS):
        found, coefficients = decode(shares.xs[order], shares.ys[order, limb].copy(), k)
        if not found:
            return secret[:0]
        secret[0, limb] = coefficients[0]
    return secret


def _higher(secret: bytes, k: int) -> bytes:
    """Return what the coefficients of x¹ … x^(k−1) are reduced from, all limbs of x¹ first."""
    return shake_256(_COEFFICIENTS + secret).digest(_WIDE * LIMBS * (k - 1))


def _elements(wide: bytes) -> list[int]:
    return [int.from_bytes(wide[at : at + _WIDE], "little") % PRIME for at in range(0, len(wide), _WIDE)]


def _folded(wide: list[bytes]) -> Elements:
    """Return what `_elements` returns, for many and as an array, (elements / limbs, limbs)."""
    words = np.frombuffer(b"".join(wide), dtype="<u8").astype(np.uint64)
    return fold_pairs(words[::2].copy(), words[1::2].copy()).reshape(-1, LIMBS)
