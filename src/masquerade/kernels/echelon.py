"""Reduced row echelon form modulo 2⁶¹ − 1, kept up to date one row at a time."""

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.field61 import Elements, inverse, mul, sub
from masquerade.kernels.jit import compiled

_ZERO = np.uint64(0)


@compiled
def subtract_rows(rows: Elements, pivots: NDArray[np.int64], vector: Elements) -> int:
    """Take from a vector, in place, what the rows span; return its first column that is left, −1 if none.

    Every row has 1 in its pivot column, and no other row has anything there, so that one pass suffices.
    """
    for r in range(pivots.size):
        factor = vector[pivots[r]]
        if factor != _ZERO:
            row = rows[r]
            for c in range(vector.size):
                if row[c] != _ZERO:
                    vector[c] = sub(vector[c], mul(factor, row[c]))
    for c in range(vector.size):
        if vector[c] != _ZERO:
            return c
    return -1


@compiled
def append_row(rows: Elements, rank: int, vector: Elements, pivot: int) -> None:
    """Put what `subtract_rows` left of a vector below the first `rank` rows, and clear its pivot there."""
    lead = inverse(vector[pivot])
    last = rows[rank]
    for c in range(vector.size):
        last[c] = mul(lead, vector[c]) if vector[c] != _ZERO else _ZERO
    for r in range(rank):
        row = rows[r]
        factor = row[pivot]
        if factor != _ZERO:
            for c in range(vector.size):
                if last[c] != _ZERO:
                    row[c] = sub(row[c], mul(factor, last[c]))
