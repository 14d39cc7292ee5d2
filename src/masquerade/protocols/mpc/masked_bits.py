"""Signs of many differences, from the bits of their masks: a few bytes per number, one round per halving.

A difference of b bits is opened under a mask, modulo 2^(b+1). Its sign is the sum modulo 2 of three bits: the
top bits of the opened number and of the mask, and a borrow, which is 1 if the mask is larger in the lower
bits. Parties have shares of the mask's bits: bits whose sum modulo 2 is the bit of the mask.
Neighbouring bits are combined, the higher bit first, until one is left (as Catrina & de Hoogh 2010 compare
with a public number).

A plane contains the bits at one position of many numbers, packed into words, so that one operation handles 64
numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

PER_WORD = 64
Planes = NDArray[np.unsignedinteger[Any]]  # planes × words


def words_of(count: int) -> int:
    """Return the number of words of a plane of `count` numbers."""
    return -(-count // PER_WORD)


def planes(values: Planes, bits: int) -> Planes:
    """Return the lowest bits of numbers, one plane per bit, the lowest first, padded with zeros."""
    found = np.zeros((bits, 8 * words_of(values.size)), dtype=np.uint8)
    one = np.uint64(1)
    for place in range(bits):
        packed = np.packbits((values >> np.uint64(place)) & one != 0, bitorder="little")
        found[place, : packed.size] = packed
    return found.view("<u8").astype(np.uint64, copy=False)


def numbers(plane: Planes, count: int) -> NDArray[np.uint64]:
    """Return the bits of a plane as numbers 0 and 1."""
    octets = plane.astype("<u8", copy=False).view(np.uint8)
    return np.unpackbits(octets, count=count, bitorder="little").astype(np.uint64)


class Halving(NamedTuple):
    """One round: pairs of neighbours are combined by products of these planes.

    Factors are multiplied under random masks from the dealer. `left` and `right` select the masks of this
    round's left and right factors from the masks of all rounds. A left factor belongs to one or two right
    factors; `of_left` has the index of the left factor of each right factor, within the round.
    """

    pairs: int
    left: slice
    right: slice
    of_left: NDArray[np.int64]


def halvings(bits: int) -> list[Halving]:
    """Return the rounds that reduce `bits` bits to one; the lowest group needs no equality bit."""
    found, left, right = [], 0, 0
    while bits > 1:
        pairs = bits // 2
        of_left = np.concatenate([np.arange(pairs), np.arange(1, pairs)])
        found.append(Halving(pairs, slice(left, left + pairs), slice(right, right + of_left.size), of_left))
        left, right, bits = left + pairs, right + of_left.size, bits - pairs
    return found


def factors(bits: int) -> tuple[int, NDArray[np.int64]]:
    """Return the number of left factors of all rounds, and the left factor of each right one."""
    rounds = halvings(bits)
    every = [one.left.start + one.of_left for one in rounds]
    return max(bits - 1, 0), np.concatenate([*every, np.zeros(0, dtype=np.int64)]).astype(np.int64)


class Groups:
    """Shares of groups of neighbouring bits, the lowest first.

    For each group, `larger` is 1 if the mask is larger than the opened number in these bits, `equal` is 1 if
    both are equal.
    """

    def __init__(self, mask: Planes, opened: Planes, *, first: bool) -> None:
        """Compare shares of a mask's bits with public bits; the first party adds the public part."""
        self.larger = mask & ~opened
        self.equal = mask ^ ~opened if first else mask

    def factors(self, pairs: int) -> tuple[Planes, Planes]:
        """Return the factors needed to combine pairs of neighbours."""
        end = 2 * pairs
        return self.equal[1:end:2], np.concatenate([self.larger[0:end:2], self.equal[2:end:2]])

    def join(self, pairs: int, products: Planes) -> None:
        """Combine pairs of neighbours, given the products of `factors`."""
        end = 2 * pairs
        joined = self.larger[1:end:2] ^ products[:pairs]
        lowest = np.zeros_like(joined[:1])  # no lower group exists that could decide
        self.larger = np.concatenate([joined, self.larger[end:]])
        self.equal = np.concatenate([lowest, products[pairs:], self.equal[end:]])
