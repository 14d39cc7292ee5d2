"""Marks of few distinct values written to the many rows that have them."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.jit import compiled

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
    last = int(indices.max())
    if indices.min() < 0 or last >= table.size:
        raise IndexError(f"an index lies outside 0..{table.size - 1}")
    if np.array_equal(table[: last + 1], np.arange(last + 1)):
        out[:] = indices  # most often: categories stand in the same order on both sides
    elif indices.size < _FEW:
        out[:] = table[indices]
    elif table.size <= 256 and indices.dtype.itemsize == 1:
        _spread(indices.view(np.uint8), table, out)  # not negative: the same numbers
    else:
        _spread(indices, table, out)


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
