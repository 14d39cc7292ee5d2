"""Compiled loops over tiles of rows: fold columns into one cell index, then add rows to cells.

Each loop that small tables need has a twin in NumPy, which gives the same counts and sums to the last bit.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.jit import compiled, numpy_twin

Codes = NDArray[np.unsignedinteger[Any]]
Index = NDArray[np.integer[Any]]

_SPARSE: Final = 8  # with more cells per row than this, adding rows singly is faster than a full table
LANED: Final = 1 << 10  # four tables of up to this many cells fit into the first-level cache


@compiled
def start(index: Index, column: Codes) -> int:
    """Start an index with its first column; return the column's largest code."""
    top = column[0]
    for i in range(column.size):
        index[i] = column[i]
        top = max(top, column[i])
    return int(top)


@numpy_twin(start)
def _start(index: Index, column: Codes) -> int:
    index[:] = column
    return int(column.max())


@compiled
def fold(index: Index, size: int, column: Codes) -> int:
    """Append a column of ``size`` codes, ``index = index * size + column``; return its largest code."""
    top = column[0]
    for i in range(column.size):
        index[i] = index[i] * size + column[i]
        top = max(top, column[i])
    return int(top)


@numpy_twin(fold)
def _fold(index: Index, size: int, column: Codes) -> int:
    index[:] = index.astype(np.int64) * size + column
    return int(column.max())


@compiled
def add_rows(index: Index, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], d: NDArray[Any]) -> None:
    """Add each row to its cell, using four tables in rotation, which may be the same table.

    With four separate tables, consecutive rows of one cell need not wait for each other's store.
    """
    whole = index.size & ~3
    for i in range(0, whole, 4):
        a[index[i]] += 1
        b[index[i + 1]] += 1
        c[index[i + 2]] += 1
        d[index[i + 3]] += 1
    for i in range(whole, index.size):
        a[index[i]] += 1


@numpy_twin(add_rows)
def _add_rows(index: Index, a: NDArray[Any], *_lanes: NDArray[Any]) -> None:
    """Add all rows to the first table, because only the sum of the four matters."""
    if a.size > _SPARSE * index.size:
        np.add.at(a, index, 1)
    else:
        a += np.bincount(index, minlength=a.size).astype(a.dtype)


@compiled
def add_to_tables(
    columns: Codes,
    blocks: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    sizes: NDArray[np.int64],
    index: Index,
    tables: NDArray[np.uint32],
) -> None:
    """Add the rows of ``columns`` (column, row) to many small tables, as `start`, `fold`, `add_rows` do.

    Block b folds the columns ``members[b, :widths[b]]``. Its table starts at ``begins[b]``; if it has at most
    `LANED` cells, three more tables follow, which rows use in turn. Codes must be within their sizes.
    """
    members, widths, begins = blocks
    rows = columns.shape[1]
    for low in range(0, rows, index.size):
        length = min(index.size, rows - low)
        for b in range(widths.size):
            cells = 1
            for i in range(length):
                index[i] = 0
            for w in range(widths[b]):
                column = columns[members[b, w], low : low + length]
                size = sizes[members[b, w]]
                cells *= size
                if w == 0:
                    for i in range(length):
                        index[i] = column[i]
                else:
                    for i in range(length):
                        index[i] = index[i] * size + column[i]
            first = begins[b]
            lane = cells if cells <= LANED else 0
            whole = length & ~3
            for i in range(0, whole, 4):
                tables[first + index[i]] += 1
                tables[first + lane + index[i + 1]] += 1
                tables[first + 2 * lane + index[i + 2]] += 1
                tables[first + 3 * lane + index[i + 3]] += 1
            for i in range(whole, length):
                tables[first + index[i]] += 1


@numpy_twin(add_to_tables, work=lambda columns, blocks, *_: columns.shape[1] * int(blocks[1].sum()))
def _add_to_tables(
    columns: Codes,
    blocks: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    sizes: NDArray[np.int64],
    _index: Index,
    tables: NDArray[np.uint32],
) -> None:
    for members, width, begin in zip(*blocks, strict=True):
        cells, index = 1, np.zeros(columns.shape[1], dtype=np.int64)
        for member in members[:width]:
            cells *= int(sizes[member])
            index = index * int(sizes[member]) + columns[member]
        tables[begin : begin + cells] += np.bincount(index, minlength=cells).astype(np.uint32)


@compiled
def add_lanes(
    tables: NDArray[np.uint32],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> None:
    """Add tables filled by `add_to_tables` to totals; the totals of block b end at ``ends[b]``."""
    first = 0
    for b in range(ends.size):
        cells = ends[b] - first
        for lane in range(4 if cells <= LANED else 1):
            begin = begins[b] + lane * cells
            for i in range(cells):
                totals[first + i] += tables[begin + i]
        first = ends[b]


@numpy_twin(add_lanes)
def _add_lanes(
    tables: NDArray[np.uint32],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> None:
    first = 0
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        cells = end - first
        lanes = 4 if cells <= LANED else 1
        totals[first:end] += (
            tables[begin : begin + lanes * cells].reshape(lanes, cells).sum(axis=0, dtype=np.int64)
        )
        first = end


@compiled
def lay_out(
    counts: NDArray[np.int64],
    begins: NDArray[np.int64],
    shapes: NDArray[np.int64],
    strides: NDArray[np.int64],
    tables: NDArray[np.float64],
) -> None:
    """Copy concatenated tables with their axes reordered.

    Table t starts at ``begins[t]`` of the counts; its axis a has ``shapes[t, a]`` cells, ``strides[t, a]``
    apart. Axes that a table lacks have one cell each.
    """
    axes = shapes.shape[1]
    place = np.zeros(axes, dtype=np.int64)
    filled = 0
    for t in range(shapes.shape[0]):
        cells = 1
        for a in range(axes):
            cells *= shapes[t, a]
            place[a] = 0
        at = begins[t]
        for i in range(filled, filled + cells):
            tables[i] = counts[at]
            a = axes - 1
            while a >= 0:
                place[a] += 1
                at += strides[t, a]
                if place[a] < shapes[t, a]:
                    break
                at -= place[a] * strides[t, a]
                place[a] = 0
                a -= 1
        filled += cells


@compiled
def add_repeated(index: Index, multiplicity: NDArray[np.int64], table: NDArray[np.int64]) -> None:
    """Add each row to its cell with its multiplicity."""
    for i in range(index.size):
        table[index[i]] += multiplicity[i]


@numpy_twin(add_repeated)
def _add_repeated(index: Index, multiplicity: NDArray[np.int64], table: NDArray[np.int64]) -> None:
    np.add.at(table, index, multiplicity)


@compiled
def multiply(product: NDArray[np.float64], codes: Codes, vector: NDArray[np.float64]) -> None:
    """Multiply each row's product by its code's entry of ``vector``."""
    for i in range(codes.size):
        product[i] *= vector[codes[i]]


@numpy_twin(multiply)
def _multiply(product: NDArray[np.float64], codes: Codes, vector: NDArray[np.float64]) -> None:
    product[: codes.size] *= vector[codes]


@compiled
def largest(column: Codes) -> int:
    """Return the largest code of a nonempty column."""
    top = column[0]
    for i in range(column.size):
        top = max(top, column[i])
    return int(top)


@numpy_twin(largest)
def _largest(column: Codes) -> int:
    return int(column.max())


@compiled
def add_weighted(
    index: Index,
    product: NDArray[np.float64],
    weights: NDArray[np.float64],
    multiplicity: NDArray[np.int64],
    sums: NDArray[np.float64],
) -> None:
    """Add ``m v w``, ``m (v w)²`` and ``m v² w`` to ``sums[lane, cell]``.

    m is the row's multiplicity, v its weight and w its product of factors. The number of lanes must be a
    power of two.
    """
    lanes = sums.shape[0] - 1
    for i in range(index.size):
        v, w = weights[i], product[i]
        weighted = v * w
        repeated = multiplicity[i] * weighted
        cell = sums[i & lanes, index[i]]
        cell[0] += repeated
        cell[1] += repeated * weighted
        cell[2] += repeated * v


@numpy_twin(add_weighted)
def _add_weighted(
    index: Index,
    product: NDArray[np.float64],
    weights: NDArray[np.float64],
    multiplicity: NDArray[np.int64],
    sums: NDArray[np.float64],
) -> None:
    lanes, rows = sums.shape[0], index.size
    v = weights[:rows]
    weighted = v * product[:rows]
    repeated = multiplicity[:rows] * weighted
    terms = repeated, repeated * weighted, repeated * v
    for lane in range(lanes):
        for place, values in enumerate(terms):  # `add.at` adds row after row, in the order of the loop
            np.add.at(sums[lane, :, place], index[lane::lanes], values[lane::lanes])


@compiled
def add_keys(
    keys: Index,
    slots: NDArray[np.int64],
    tally: NDArray[np.int64],
    used: int,
    limit: int,
) -> int:
    """Count keys in an open-addressing table with a power-of-two number of slots.

    Return the number of used slots, or a number above ``limit`` as soon as more would be needed.
    """
    mask = np.uint64(slots.size - 1)
    for i in range(keys.size):
        stored = keys[i] + 1  # 0 marks an empty slot
        # Fibonacci hashing: the high bits of a product with 2^64/φ mix every bit of the key.
        slot = ((np.uint64(stored) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
        while slots[slot] != stored and slots[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] == 0:
            used += 1
            if used > limit:
                return used
            slots[slot] = stored
        tally[slot] += 1
    return used
