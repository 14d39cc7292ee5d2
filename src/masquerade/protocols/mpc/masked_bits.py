"""Signs of many differences by the bits of their masks: a few bytes each, and a round for every halving.

A difference of so many bits is opened under a mask, modulo one bit more. Its sign is the top bit of what was
opened, of the mask, and the borrow between them; and there is a borrow where the mask is larger in the bits
below. Parties have shares of the mask's bits, each share a bit that is added modulo 2. Neighbouring bits
join, the higher one deciding, until one is left (as Catrina & de Hoogh 2010 compare with a public number).

Bits of one place of many numbers are a plane, packed into words: what is done with one is done with 64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

PER_WORD = 64
Planes = NDArray[np.unsignedinteger[Any]]  # planes × words


def words_of(count: int) -> int:
    """Return how many words a plane of so many numbers has."""
    return -(-count // PER_WORD)


def planes(values: Planes, bits: int) -> Planes:
    """Return the lowest bits of numbers, a plane each, the lowest first; the last word ends in zeros."""
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
    """One round: so many pairs of neighbours join, which takes products of these planes.

    `left` and `right` are where the masks of its factors stand among all; a left one belongs to one right one
    or to two, `of_left` says to which place among those of the round.
    """

    pairs: int
    left: slice
    right: slice
    of_left: NDArray[np.int64]


def halvings(bits: int) -> list[Halving]:
    """Return the rounds in which so many bits become one; the lowest group needs no mark of equality."""
    found, left, right = [], 0, 0
    while bits > 1:
        pairs = bits // 2
        of_left = np.concatenate([np.arange(pairs), np.arange(1, pairs)])
        found.append(Halving(pairs, slice(left, left + pairs), slice(right, right + of_left.size), of_left))
        left, right, bits = left + pairs, right + of_left.size, bits - pairs
    return found


def factors(bits: int) -> tuple[int, NDArray[np.int64]]:
    """Return how many left factors all rounds have, and of each right one the left one that it goes with."""
    rounds = halvings(bits)
    every = [one.left.start + one.of_left for one in rounds]
    return max(bits - 1, 0), np.concatenate([*every, np.zeros(0, dtype=np.int64)]).astype(np.int64)


class Groups:
    """Shares of groups of neighbouring bits, the lowest first.

    `larger` tells of each whether the mask is larger there than what was opened, `equal` whether it is equal.
    """

    def __init__(self, mask: Planes, opened: Planes, *, first: bool) -> None:
        """Compare shares of a mask's bits with bits that all know; the first party adds what all know."""
        self.larger = mask & ~opened
        self.equal = mask ^ ~opened if first else mask

    def wanted(self, pairs: int) -> tuple[Planes, Planes]:
        """Return the factors that joining pairs of neighbours takes."""
        end = 2 * pairs
        return self.equal[1:end:2], np.concatenate([self.larger[0:end:2], self.equal[2:end:2]])

    def join(self, pairs: int, products: Planes) -> None:
        """Take the products of the factors that were wanted."""
        end = 2 * pairs
        joined = self.larger[1:end:2] ^ products[:pairs]
        lowest = np.zeros_like(joined[:1])  # nothing is below it that could decide
        self.larger = np.concatenate([joined, self.larger[end:]])
        self.equal = np.concatenate([lowest, products[pairs:], self.equal[end:]])
