"""Marks of few distinct values written to the many rows that have them."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.jit import compiled

_UNSIGNED: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}  # by bytes
_FEW: Final = 1 << 14  # below this many rows NumPy takes less time than loading what was compiled


def spread(
    indices: NDArray[np.integer[Any]],
    table: NDArray[np.integer[Any]],
    out: NDArray[np.integer[Any]],
) -> None:
    """Write ``table[indices]`` to ``out``; an index outside the table is an `IndexError`.

    Cost: one pass; NumPy's own would first widen every index to eight bytes.
    """
    if not indices.size:
        return
    places = indices.view(_UNSIGNED[indices.itemsize])  # a negative index is a large number
    last = int(places.max())
    if last >= min(table.size, np.iinfo(indices.dtype).max + 1):
        raise IndexError(f"an index lies outside 0..{table.size - 1}")
    if np.array_equal(table[: last + 1], np.arange(last + 1)):
        # Most often: categories stand in the same order on both sides. Bytes are copied, whatever their sign.
        same = places.itemsize == out.itemsize
        out.view(places.dtype if same else out.dtype)[:] = places
    elif places.size < _FEW:
        out[:] = table[places]
    elif places.itemsize == table.itemsize == out.itemsize == places.strides[0] == out.strides[0] == 1:
        _spread_pairs(places, table.view(np.uint8)[:256], out.view(np.uint8))
    else:
        _spread(places, table, out)


def narrowed(codes: NDArray[np.unsignedinteger[Any]]) -> tuple[NDArray[np.unsignedinteger[Any]], int]:
    """Return codes in the narrowest type that holds them, and the largest.

    Cost: one pass if all are below 256, as most often; a second one if not.
    """
    small = np.empty(codes.size, dtype=np.uint8)
    largest = int(_narrowed(codes, small)) if codes.size else 0
    return (small if largest < 1 << 8 else codes.astype(np.min_scalar_type(largest))), largest


def _spread_pairs(places: NDArray[np.uint8], table: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Do the same for bytes, two at a time: half as many looks into a table of all pairs.

    A pair is one number in the table and in the rows alike, whichever of its bytes the machine puts first.
    """
    single = np.zeros(256, dtype=np.uint16)
    single[: table.size] = table
    pairs = (single[:, None] << 8 | single).ravel()
    even = places.size // 2 * 2
    _spread(places[:even].view(np.uint16), pairs, out[:even].view(np.uint16))
    out[even:] = table[places[even:]]


@compiled
def rows_with(codes: NDArray[np.unsignedinteger[Any]], row: NDArray[np.int64]) -> None:
    """Write to ``row[code]`` the last row that has the code; codes that nobody has keep what is there."""
    for i in range(codes.size):
        row[codes[i]] = i


@compiled
def _spread(
    indices: NDArray[np.integer[Any]],
    table: NDArray[np.integer[Any]],
    out: NDArray[np.integer[Any]],
) -> None:
    for i in range(indices.size):
        out[i] = table[indices[i]]


@compiled
def _narrowed(codes: NDArray[np.unsignedinteger[Any]], out: NDArray[np.uint8]) -> int:
    """Write the lowest byte of every code and return the largest code."""
    largest: int = codes[0]
    for i in range(codes.size):
        largest = max(largest, codes[i])
        out[i] = np.uint8(codes[i])
    return largest
