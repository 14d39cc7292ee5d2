"""Look up the entries of a small table for many rows: ``out = table[indices]``."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.jit import compiled, expect_rows, numpy_twin

_UNSIGNED: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}  # by bytes


def spread(
    indices: NDArray[np.integer[Any]],
    table: NDArray[np.integer[Any]],
    out: NDArray[np.integer[Any]],
) -> None:
    """Write ``table[indices]`` to ``out``; raise IndexError if an index is outside the table.

    Cost: one pass; NumPy would first widen each index to eight bytes.
    """
    if not indices.size:
        return
    expect_rows(indices.size)
    places = indices.view(_UNSIGNED[indices.itemsize])  # negative indices become large numbers
    last = int(places.max())
    if last >= min(table.size, np.iinfo(indices.dtype).max + 1):
        raise IndexError(f"an index is outside 0..{table.size - 1}")
    if np.array_equal(table[: last + 1], np.arange(last + 1)):
        # the most common case, the same order on both sides: copy the bytes, whatever their sign
        same = places.itemsize == out.itemsize
        out.view(places.dtype if same else out.dtype)[:] = places
    elif places.itemsize == table.itemsize == out.itemsize == places.strides[0] == out.strides[0] == 1:
        _spread_pairs(places, table.view(np.uint8)[:256], out.view(np.uint8))
    else:
        _spread(places, table, out)


def narrow_codes(codes: NDArray[np.unsignedinteger[Any]]) -> tuple[NDArray[np.unsignedinteger[Any]], int]:
    """Return codes in the narrowest type that fits, and the largest code.

    Cost: one pass if all are below 256, the most common case; otherwise two.
    """
    small = np.empty(codes.size, dtype=np.uint8)
    largest = int(_narrow(codes, small)) if codes.size else 0
    return (small if largest < 1 << 8 else codes.astype(np.min_scalar_type(largest))), largest


def _spread_pairs(places: NDArray[np.uint8], table: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Write ``table[indices]`` for bytes, two at a time: half as many lookups, in a table of all pairs.

    A pair is one number both in the table and in the rows, so the byte order of the machine does not matter.
    """
    single = np.zeros(256, dtype=np.uint16)
    single[: table.size] = table
    pairs = (single[:, None] << 8 | single).ravel()
    even = places.size // 2 * 2
    _spread(places[:even].view(np.uint16), pairs, out[:even].view(np.uint16))
    out[even:] = table[places[even:]]


@compiled
def rows_with(codes: NDArray[np.unsignedinteger[Any]], row: NDArray[np.int64]) -> None:
    """Write the last row with each code to ``row[code]``; codes that do not occur keep their entry."""
    for i in range(codes.size):
        row[codes[i]] = i


@numpy_twin(rows_with)
def _rows_with(codes: NDArray[np.unsignedinteger[Any]], row: NDArray[np.int64]) -> None:
    row[codes] = np.arange(codes.size)


@compiled
def _spread(
    indices: NDArray[np.integer[Any]],
    table: NDArray[np.integer[Any]],
    out: NDArray[np.integer[Any]],
) -> None:
    for i in range(indices.size):
        out[i] = table[indices[i]]


@numpy_twin(_spread)
def _spread_few(
    indices: NDArray[np.integer[Any]], table: NDArray[np.integer[Any]], out: NDArray[np.integer[Any]]
) -> None:
    out[:] = table[indices]


@compiled
def _narrow(codes: NDArray[np.unsignedinteger[Any]], out: NDArray[np.uint8]) -> int:
    """Write the lowest byte of each code and return the largest code."""
    largest: int = codes[0]
    for i in range(codes.size):
        largest = max(largest, codes[i])
        out[i] = np.uint8(codes[i])
    return largest


@numpy_twin(_narrow)
def _narrow_few(codes: NDArray[np.unsignedinteger[Any]], out: NDArray[np.uint8]) -> int:
    out[:] = codes
    return int(codes.max())
