"""Rows as 64-bit keys: judged by a sample, counted in a hash table, and decoded again."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels import tally
from masquerade.kernels.tally import Codes
from masquerade.kernels.tiles import TILE, Coded, tiles

LARGEST_HASH: Final = 1 << 20
_SAMPLE: Final = 1 << 13


def looks_diverse(data: Coded, rows: int, limit: int) -> bool:
    """Judge from a sample whether there are many more distinct rows than ``limit``.

    Formula: s rows drawn from N equally frequent ones repeat about ``s² / 2N`` times; fewer than a quarter
    of what ``N = limit`` would give is taken as a sign of more. Skewed rows repeat more often, which only
    leads to an attempt that is given up later.
    """
    step = -(-rows // _SAMPLE)
    sample = Coded(tuple(np.ascontiguousarray(c[::step]) for c in data.columns), data.sizes)
    size = sample.columns[0].size
    keys = sample.index(range(len(data.sizes)), slice(0, size), np.empty(size, dtype=np.int64))
    repeats = size - np.unique(keys).size
    return repeats < size * size / (2 * limit) / 4


def count_keys(data: Coded, rows: int, limit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the distinct keys in order and their counts, or None if there are more than ``limit``."""
    slots = np.zeros(1 << (2 * limit - 1).bit_length(), dtype=np.int64)
    times = np.zeros(slots.size, dtype=np.int64)
    buffer = np.empty(TILE, dtype=np.int64)
    used = 0
    for tile in tiles(slice(0, rows)):
        keys = data.index(range(len(data.sizes)), tile, buffer)
        used = tally.add_keys(keys, slots, times, used, limit)
        if used > limit:
            return None
    filled = np.flatnonzero(slots)
    order = filled[np.argsort(slots[filled])]
    return slots[order] - 1, times[order]


def decoded(data: Coded, keys: NDArray[np.int64]) -> list[Codes]:
    """Take keys apart into a column of codes for each of the data's columns."""
    columns: list[Codes] = []
    for column, size in zip(reversed(data.columns), reversed(data.sizes), strict=True):
        keys, codes = np.divmod(keys, size)
        columns.append(codes.astype(column.dtype))
    return columns[::-1]
