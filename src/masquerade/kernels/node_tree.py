"""Binary trees of 16-byte nodes for distributed point functions, expanded level by level."""

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.jit import compiled

Words = NDArray[np.uint64]
Bits = NDArray[np.uint8]


@compiled
def twice(nodes: Words) -> Words:
    """Return the inputs of both children of each node, side by side."""
    keys, count = nodes.shape[:2]
    both = np.empty((keys, 2 * count, 2), dtype=np.uint64)
    for key in range(keys):
        for at in range(count):
            for side in range(2):
                both[key, 2 * at + side, 0] = nodes[key, at, 0] ^ np.uint64(side)
                both[key, 2 * at + side, 1] = nodes[key, at, 1]
    return both


@compiled
def correct_children(
    made_of: Words, encrypted: Words, flags: Bits, correction: Words, flag: Bits
) -> tuple[Words, Bits]:
    """Return the nodes and bits of the children, corrected below nodes whose bit in `flags` is set.

    A child is its input (`made_of`) XOR its encrypted input, which is overwritten.
    """
    keys, count = made_of.shape[:2]
    bits = np.empty((keys, count), dtype=np.uint8)
    for key in range(keys):
        for at in range(count):
            on = flags[key, at // 2]
            low = encrypted[key, at, 0] ^ made_of[key, at, 0]
            bits[key, at] = np.uint8(low & np.uint64(1)) ^ (on & flag[key, at % 2])
            mask = np.uint64(0) - np.uint64(on)
            encrypted[key, at, 0] = (low & ~np.uint64(3)) ^ (mask & correction[key, 0])
            encrypted[key, at, 1] ^= made_of[key, at, 1] ^ (mask & correction[key, 1])
    return encrypted, bits


@compiled
def leaf_values(made_of: Words, encrypted: Words, flags: Bits, leaves: Words, party: int) -> Words:
    """Return this party's shares of the values of all leaves, two per leaf."""
    keys, count = made_of.shape[:2]
    values = np.empty((keys, 2 * count), dtype=np.uint64)
    for key in range(keys):
        for at in range(count):
            for side in range(2):
                value = encrypted[key, at, side] ^ made_of[key, at, side]
                value += np.uint64(flags[key, at]) * leaves[key, side]
                values[key, 2 * at + side] = np.uint64(0) - value if party else value
    return values


@compiled
def windows(units: Words, tables: Words, which: NDArray[np.int64], at: NDArray[np.int64], out: Words) -> None:
    """Write sums of windows of cyclic tables, weighted by shares of unit vectors.

    ``out[i, j]`` is the sum over ``k`` of ``units[i, k] · table[at[i] − j·width − k]`` for table number
    ``which[i]``.
    """
    lines, width = units.shape
    size = tables.shape[1]
    for i in range(lines):
        table = tables[which[i]]
        for j in range(out.shape[1]):
            place = (at[i] - j * width) % size
            total = np.uint64(0)
            first = min(place + 1, width)
            for k in range(first):
                total += units[i, k] * table[place - k]
            for k in range(first, width):
                total += units[i, k] * table[place - k + size]
            out[i, j] = total
