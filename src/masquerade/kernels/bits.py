"""Support counts of itemsets on packed bits with shared prefixes, and sums of products of weights."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.jit import compiled
from masquerade.kernels.tiles import run, split

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Sets = NDArray[np.int32]

_TILE: Final = 512  # words: a prefix of 4 kB stays in the first-level cache
_WORK: Final = 1 << 22  # with fewer words × sets a second thread costs more than it saves


def pack(column: NDArray[Any], wanted: NDArray[np.bool_]) -> Words:
    """Return one bit per row, set if the row's code is wanted; the last word is padded with zeros.

    Cost: per row, one byte is read and one bit is written.
    """
    codes = np.flatnonzero(wanted)
    hit = column == codes[0] if len(codes) == 1 else wanted[column]
    return _pad(np.packbits(hit, bitorder="little"))


def _pad(octets: NDArray[np.uint8]) -> Words:
    buffer = np.zeros(-(-octets.size // 8) * 8, dtype=np.uint8)
    buffer[: octets.size] = octets
    return buffer.view(np.uint64)


def unpack(words: Words, rows: int) -> NDArray[np.uint8]:
    """Return the bits of the first rows as codes 0 and 1."""
    return np.unpackbits(words.view(np.uint8), count=rows, bitorder="little")


def count_ones(words: Words) -> int:
    """Return the number of bits that are set."""
    return int(np.bitwise_count(words).sum(dtype=np.int64))


def count_sets(columns: Words, sets: Sets, threads: int) -> Ints:
    """Count the rows in which all columns of a set are 1; `columns` are rows of packed words.

    Formula: popcount(c₁ ∧ … ∧ c_k) for each set; sets in lexicographic order share their prefixes.
    Cost: one AND and one popcount per word for the last item, and one AND per prefix.
    """
    words = columns.shape[1]
    parts = min(threads, max(1, words * len(sets) // _WORK), max(1, words // _TILE))

    def count_part(part: slice) -> Ints:
        counts = np.zeros(len(sets), dtype=np.int64)
        _count(columns, sets, part.start, part.stop, counts)
        return counts

    return np.asarray(np.sum(run(count_part, split(words, parts)), axis=0))


@compiled
def _ones(word: np.uint64) -> np.uint64:
    """Return the number of set bits, in a form that compilers turn into one instruction."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@compiled
def _meet(before: Words, column: Words, target: Words) -> None:
    for i in range(target.size):
        target[i] = before[i] & column[i]


@compiled
def _count_met(before: Words, column: Words) -> np.int64:
    ones = np.uint64(0)
    for i in range(column.size):
        ones += _ones(before[i] & column[i])
    return np.int64(ones)


@compiled
def _count(columns: Words, sets: Sets, first: int, last: int, counts: Ints) -> None:
    size = sets.shape[1]
    prefix = np.full((size, _TILE), ~np.uint64(0), dtype=np.uint64)  # row k: AND of the first k items
    for begin in range(first, last, _TILE):
        end = min(begin + _TILE, last)
        length = end - begin
        for row in range(sets.shape[0]):
            same = 0
            if row > 0:
                while same < size - 1 and sets[row, same] == sets[row - 1, same]:
                    same += 1
            for k in range(same, size - 1):
                column = columns[sets[row, k], begin:end]
                _meet(prefix[k, :length], column, prefix[k + 1, :length])
            counts[row] += _count_met(prefix[size - 1, :length], columns[sets[row, size - 1], begin:end])


@compiled
def weigh(weights: Floats, sets: Sets, root: Floats, times: Floats, sums: Floats) -> None:
    """Add Σ m·w and Σ m·w² over the rows of a tile to the sums of each set, with w = root·Π weights[member].

    m is the row's multiplicity in `times`. Sets list members in order, padded with −1; sets in lexicographic
    order share prefixes.
    """
    size = sets.shape[1]
    prefix = np.empty((size + 1, root.size))
    prefix[0] = root
    for row in range(sets.shape[0]):
        same = 0
        if row > 0:
            while same < size and sets[row, same] == sets[row - 1, same]:
                same += 1
        length = same
        for place in range(same, size):
            if sets[row, place] < 0:
                break
            column, before, target = weights[sets[row, place]], prefix[place], prefix[place + 1]
            for i in range(root.size):
                target[i] = before[i] * column[i]
            length = place + 1
        while length > 0 and sets[row, length - 1] < 0:
            length -= 1
        product = prefix[length]
        first, second = 0.0, 0.0
        for i in range(root.size):
            repeated = times[i] * product[i]
            first += repeated
            second += repeated * product[i]
        sums[row, 0] += first
        sums[row, 1] += second
