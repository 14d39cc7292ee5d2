"""The helper (trusted dealer) of a computation on shares: it deals correlated randomness and sees no share.

Randomness is expanded from keys that the helper shares with each party, so that little is sent: only the
second party's corrections, and the corrections of shared functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.dpf import point_keys, threshold_keys
from masquerade.crypto.errors import KeySpent
from masquerade.crypto.keys import derive
from masquerade.crypto.symmetric import stream
from masquerade.protocols.mpc.engine import Deal, Words
from masquerade.protocols.mpc.masked_bits import factors, numbers, planes, words_of

Keys = Callable[[str, str, int], bytes]  # returns the key of a party, for a purpose and the number of a deal

HIGH = 4  # top bits of an index, which a product resolves; the point function resolves the others
PRODUCT, MATRIX, LOOKUP, LESS, SIGNS, MASK, COUNTS, CROSSED, SHARE = (
    "product",
    "matrix",
    "lookup",
    "less",
    "signs",
    "mask",
    "counts",
    "crossed",
    "share",
)
MOST_DEALT = 1 << 27  # numbers of one deal
MOST_PLACES, MOST_COMPARED_BITS = 24 + HIGH, 63  # bits
ARITY = {PRODUCT: 1, MATRIX: 3, LOOKUP: 3, LESS: 2, SIGNS: 2, SHARE: 2}


def ring(bits: int) -> Any:
    """Return the smallest unsigned type with at least `bits` bits."""
    return np.uint16 if bits <= 16 else np.uint32 if bits <= 32 else np.uint64


def expand_key(key: bytes, count: int, kind: Any = np.uint64) -> Words:
    """Return the uniform numbers that follow from a key."""
    size = np.dtype(kind).itemsize
    found = np.frombuffer(stream(key, size * count), dtype=np.dtype(kind).newbyteorder("<"))
    return found.astype(kind, copy=False)


def times(left: Words, right: Words) -> Words:
    """Return left (lines × records) times the transpose of right, modulo the size of their ring.

    Numbers of 16 bits are multiplied as floats: sums over 2^16 records, below 2^48, are exact.
    """
    kind = left.dtype
    out = np.zeros((len(left), len(right)), dtype=kind)
    step = 1 << 16
    for start in range(0, left.shape[1], step):
        some = slice(start, start + step)
        a, b = left[:, some], right[:, some]
        if kind == np.uint64:
            out += a @ b.T
            continue
        low_a, low_b = (x & np.array(0xFFFF, dtype=kind) for x in (a, b))
        out += _exact(low_a, low_b).astype(kind)
        if kind == np.uint32:
            high_a, high_b = (x >> np.uint32(16) for x in (a, b))
            rest = _exact(low_a, high_b) + _exact(high_a, low_b)
            out += (rest % 2**16).astype(kind) << np.uint32(16)
    return out


def _exact(a: Words, b: Words) -> NDArray[np.uint64]:
    return (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.uint64)


def held_purpose(place: int) -> str:
    """Return the purpose of a mask's key, by its index in a deal."""
    return f"held {place}"


def local_keys(secrets: Mapping[str, bytes]) -> Keys:
    """Return the keys that follow from one secret per party, for parties in one process.

    Between services, keys come from key agreement instead.
    """

    def key(party: str, purpose: str, number: int) -> bytes:
        return derive(secrets[party], "hidden " + purpose, number.to_bytes(8, "big"))

    return key


class Dealer:
    """The helper: it deals once per number, from keys that it shares with each party; it knows no share."""

    def __init__(self, parties: Sequence[str], keys: Keys) -> None:
        if len(parties) < 2:
            raise InputError("Secrets are shared between two parties at least.")
        self._parties, self._keys = tuple(parties), keys
        self._next = 0
        self._masks: dict[tuple[int, int], tuple[int, tuple[int, int], Any]] = {}
        self._kinds: dict[str, Callable[..., tuple[bytes, ...]]] = {
            PRODUCT: self._product,
            MATRIX: self._matrix,
            LOOKUP: self._lookup,
            LESS: self._less,
            SIGNS: self._signs,
            MASK: self._mask,
            COUNTS: self._counts,
            CROSSED: self._cross,
            SHARE: self._share,
        }

    def deal(self, deal: Deal) -> Mapping[str, bytes]:
        """Return every party's part of a deal; the same deal number is never used again."""
        if deal.kind not in self._kinds:
            raise InputError(f"There is no deal of type {deal.kind!r}.")
        if deal.number != self._next:
            raise KeySpent("Randomness is dealt once, in order.")
        self._check(deal)
        self._next += 1
        return dict(zip(self._parties, self._kinds[deal.kind](deal, *deal.sizes), strict=False))

    def _check(self, deal: Deal) -> None:
        """Raise an error for sizes that are invalid or larger than a round allows."""
        kind, sizes = deal.kind, deal.sizes
        if kind in (COUNTS, CROSSED):
            fits = bool(sizes) and len(sizes) % 4 == 0
            numbers = (
                sum(self._cells(kind, sizes[at : at + 4]) for at in range(0, len(sizes), 4)) if fits else 0
            )
        elif kind == MASK:
            fits = len(sizes) > 3 and len(sizes) % 2 == 0 and sizes[0] in (16, 32, 64)
            numbers = sizes[1] * max(sizes[3::2], default=0) if fits else 0
        else:
            fits = len(sizes) == ARITY[kind] and min(sizes) >= 0
            numbers = self._numbers(kind, sizes) if fits else 0
        if not fits:
            raise InputError(f"A deal for {kind!r} has the wrong sizes.")
        if numbers > MOST_DEALT:
            raise InputError(f"At most {MOST_DEALT:,} numbers are dealt at once.")

    def _cells(self, kind: str, names: Sequence[int]) -> int:
        """Return the number of products for a pair of masks."""
        shapes = [self._masks.get((names[at], names[at + 1])) for at in (0, 2)]
        if shapes[0] is None or shapes[1] is None:
            raise InputError("No numbers were masked under this name.")
        (_, (left, records), _), (_, (right, others), _) = shapes[0], shapes[1]
        if records != others:
            raise InputError("Masks of different numbers of records cannot be multiplied.")
        return left * right * (records if kind == CROSSED else 1)

    @staticmethod
    def _numbers(kind: str, sizes: Sequence[int]) -> int:
        if kind == LOOKUP:
            count, bits, high = sizes
            if not 1 <= high < bits <= MOST_PLACES:
                raise InputError(f"A table of 2^{bits} entries is too large for a lookup.")
            return count << high
        compared = kind in (LESS, SIGNS)
        if compared and not 1 <= sizes[1] <= MOST_COMPARED_BITS:
            raise InputError(f"Numbers of {sizes[1]} bits cannot be compared.")
        if kind == MATRIX:
            rows, left, right = sizes
            return max(rows * left, rows * right, left * right)
        return sizes[1] if kind == SHARE else sizes[0] * (64 if compared else 1)

    def _draw(self, party: int, purpose: str, number: int, count: int, kind: Any = np.uint64) -> Words:
        return expand_key(self._keys(self._parties[party], purpose, number), count, kind)

    def _sum(self, purpose: str, number: int, count: int, kind: Any = np.uint64) -> Words:
        return self._draw(0, purpose, number, count, kind) + self._draw(1, purpose, number, count, kind)

    def _rest(self, deal: Deal, purpose: str, values: Words) -> bytes:
        """Return the second party's correction to the first party's draw."""
        rest = values.ravel() - self._draw(0, purpose, deal.number, values.size, values.dtype)
        return rest.astype(rest.dtype.newbyteorder("<")).tobytes()

    def _planes(self, purpose: str, number: int, shape: tuple[int, int]) -> Words:
        """Return bits of which both parties draw a random share."""
        first, second = (self._draw(party, purpose, number, prod(shape)) for party in (0, 1))
        return (first ^ second).reshape(shape)

    def _other_bits(self, deal: Deal, purpose: str, bits: Words) -> bytes:
        """Return the second party's share of given bits; the first party's share is drawn."""
        rest = bits.ravel() ^ self._draw(0, purpose, deal.number, bits.size)
        return rest.astype("<u8", copy=False).tobytes()

    def _roots(self, deal: Deal, count: int) -> tuple[Words, Words]:
        first, second = (self._draw(party, "roots", deal.number, 2 * count) for party in (0, 1))
        return first.reshape(count, 2), second.reshape(count, 2)

    def _product(self, deal: Deal, count: int) -> tuple[bytes, ...]:
        x, y = (self._sum(purpose, deal.number, count) for purpose in ("first", "second"))
        return b"", self._rest(deal, "product", x * y)

    def _matrix(self, deal: Deal, rows: int, left: int, right: int) -> tuple[bytes, ...]:
        x = self._sum("first", deal.number, left * rows).reshape(left, rows)
        y = self._sum("second", deal.number, right * rows).reshape(right, rows)
        return b"", self._rest(deal, "product", times(x, y))

    def _lookup(self, deal: Deal, count: int, bits: int, high: int) -> tuple[bytes, ...]:
        low, wide = bits - high, 1 << high
        place = self._sum("place", deal.number, count) & np.uint64((1 << bits) - 1)
        roots = self._roots(deal, count)
        first, _ = point_keys(place & np.uint64((1 << low) - 1), np.ones(count, dtype=np.int64), low, roots)
        units = np.zeros((count, wide), dtype=np.uint64)
        units[np.arange(count), (place >> np.uint64(low)).astype(np.int64)] = 1
        mask = self._sum("mask", deal.number, count * wide).reshape(count, wide)
        shared = first.encode_shared()
        rest = self._rest(deal, "unit", units) + self._rest(deal, "product", (units * mask).sum(axis=1))
        return shared, shared + rest

    def _less(self, deal: Deal, count: int, bits: int) -> tuple[bytes, ...]:
        mask = self._sum("place", deal.number, count)
        below = mask & np.uint64((1 << bits) - 1)
        top = (mask >> np.uint64(bits)) & np.uint64(1)
        roots = self._roots(deal, count)
        first, _ = threshold_keys(below, np.uint64(1) - np.uint64(2) * top, bits, roots)
        shared = first.encode_shared()
        return shared, shared + self._rest(deal, "top", top)

    def _signs(self, deal: Deal, count: int, bits: int) -> tuple[bytes, ...]:
        number, words = deal.number, words_of(count)
        lefts, of_left = factors(bits)
        left = self._planes("left", number, (lefts, words))
        right = self._planes("right", number, (of_left.size, words))
        flip = self._planes("flip", number, (1, words))
        rest = self._other_bits(deal, "bits", planes(self._sum("place", number, count), bits + 1))
        rest += self._other_bits(deal, "products", left[of_left] & right)
        return b"", rest + self._rest(deal, "flipped", numbers(flip[0], count))

    def _mask(self, deal: Deal, bits: int, records: int, *facts: int) -> tuple[bytes, ...]:
        """Store which masks cover which numbers; an owner that does not compute gets both parties' keys."""
        keys = [b""] * len(self._parties)
        for place, (owner, lines) in enumerate(zip(facts[::2], facts[1::2], strict=True)):
            self._masks[deal.number, place] = (owner, (lines, records), ring(bits))
            if 1 < owner < len(self._parties):
                for party in (0, 1):
                    keys[owner] += self._keys(self._parties[party], held_purpose(place), deal.number)
        return tuple(keys)

    def _require_mask(self, number: int, place: int) -> Words:
        if (number, place) not in self._masks:
            raise InputError("No numbers were masked under this name.")
        owner, shape, kind = self._masks[number, place]
        holders = (owner,) if owner < 2 else (0, 1)
        drawn = [self._draw(party, held_purpose(place), number, prod(shape), kind) for party in holders]
        return np.asarray(sum(drawn[1:], start=drawn[0])).reshape(shape)

    def _pairs(self, names: Sequence[int]) -> Iterator[tuple[Words, Words]]:
        """Yield the masks of pairs; consecutive pairs with the same left mask draw it once."""
        last: tuple[tuple[int, int], Words] | None = None
        for number, place, *right in np.reshape(names, (-1, 4)).tolist():
            if last is None or last[0] != (number, place):
                last = ((number, place), self._require_mask(number, place))
            yield last[1], self._require_mask(*right)

    def _counts(self, deal: Deal, *names: int) -> tuple[bytes, ...]:
        parts = [times(left, right).ravel() for left, right in self._pairs(names)]
        return b"", self._rest(deal, "product", np.concatenate(parts))

    def _cross(self, deal: Deal, *names: int) -> tuple[bytes, ...]:
        parts = [(x[:, None, :] * y[None, :, :]).ravel() for x, y in self._pairs(names)]
        return b"", self._rest(deal, "product", np.concatenate(parts))

    def _share(self, deal: Deal, owner: int, count: int) -> tuple[bytes, ...]:
        del count
        keys = b"".join(self._keys(self._parties[party], "share", deal.number) for party in (0, 1))
        return tuple(keys if party == owner else b"" for party in range(len(self._parties)))
