"""Exact and weighted tables of codes, counted tile by tile."""

import os
from collections.abc import Sequence
from itertools import zip_longest
from math import prod
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels import cell_sums
from masquerade.kernels.cell_sums import Codes
from masquerade.kernels.cover import TableBlock, cover
from masquerade.kernels.jit import expect_rows, expect_work, is_little
from masquerade.kernels.tiles import (
    SHARE,
    TILE,
    CheckedColumns,
    check_columns,
    index_type,
    row_count,
    run,
    split,
    threads_for,
    tiles,
)

Factor = tuple[Codes, NDArray[np.float64]]
Counts = NDArray[np.int64]


class WeightedTable(NamedTuple):
    """Sums over the rows of each cell: ``Σ m v w``, ``Σ m (v w)²`` and ``Σ m v² w`` of `count_weighted`."""

    firsts: NDArray[np.float64]
    squares: NDArray[np.float64]
    fixed: NDArray[np.float64]


LARGEST_TABLE: Final = 1 << 27
LARGEST_HASH: Final = 1 << 20
_SAMPLE: Final = 1 << 13
_LANED: Final = cell_sums.LANED
_COPIED: Final = 1 << 20  # with more cells, one table per thread costs more than it saves
_LONGEST_PART: Final = 1 << 31  # rows per part, so that 32-bit cells cannot overflow
_FLOAT_PARTS: Final = 8
_TOGETHER: Final = 8  # from this number of tables on, they are counted together
_FEW_CELLS: Final = 1 << 16  # so that 16 bits are enough for an index
_INDEXED: Final = 1 << 13  # rows whose index stays in the first-level cache
_SHARED: Final = 1 << 21  # from this number of rows × tables on, a second thread pays
_SORTED: Final = 32  # sorting a row takes as long as passing this number of elements through a loop
_SAVING: Final = 8  # with fewer rows per distinct row, compression does not pay


def count(columns: Sequence[Codes], sizes: Sequence[int], multiplicity: Counts | None = None) -> Counts:
    """Count rows by their codes: a table of shape ``sizes``.

    Formula: ``T[a, b, …] = Σ_i m_i 1{columns[:, i] = (a, b, …)}``.

    Cost: about half a nanosecond per row plus an eighth per column, on each core.
    """
    return count_many(columns, sizes, [tuple(range(len(columns)))], multiplicity)[0]


def count_many(
    columns: Sequence[Codes],
    sizes: Sequence[int],
    subsets: Sequence[tuple[int, ...]],
    multiplicity: Counts | None = None,
) -> list[Counts]:
    """Count one table per subset of columns, sharing passes where that pays.

    Formula: as `count`; requests are marginals of the fewer, larger tables chosen by `cover`.

    Cost: one pass over the rows in tiles; per row the cost of `count` for each table of the cover.
    """
    data = check_columns(columns, sizes)
    rows = row_count([*columns, *([] if multiplicity is None else [multiplicity])])
    for subset in subsets:
        if len(set(subset)) < len(subset):
            raise ValueError(f"a column is listed twice in {subset}")
        _cells(data, subset)
    plan = cover(data.sizes, subsets, rows)
    expect_work(rows * sum(len(block.columns) + 1 for block in plan))
    answers: dict[int, Counts] = {}
    for block, table in zip(plan, _count_blocks(data, plan, multiplicity, rows), strict=True):
        tables = _marginals(table, block.columns, [subsets[request] for request in block.requests])
        answers.update(zip(block.requests, tables, strict=True))
    return [answers[request] for request in range(len(subsets))]


def count_flat(
    columns: Sequence[Codes], sizes: Sequence[int], members: Counts, multiplicity: Counts | None = None
) -> Counts:
    """Count one table per row of `members`, which lists its columns, padded with −1; concatenate the tables.

    Cost: as `count_many`, but without Python's overhead per table if rows are too few to share passes.
    """
    cells = np.where(members >= 0, np.array(sizes)[members], 1).prod(axis=1)
    rows = row_count(columns)
    if multiplicity is None and rows <= TILE and len(members) and cells.max() <= _FEW_CELLS:
        return _count_together(check_columns(columns, sizes), members, rows)
    subsets = [tuple(c for c in row if c >= 0) for row in members.tolist()]
    tables = count_many(columns, sizes, subsets, multiplicity)
    return np.concatenate([table.ravel() for table in tables])


def count_weighted(
    columns: Sequence[Codes],
    sizes: Sequence[int],
    factors: Sequence[Factor],
    row_weights: NDArray[np.float64] | None = None,
    multiplicity: Counts | None = None,
) -> WeightedTable:
    """Sum products of per-code factors over the rows of each cell.

    Formula: ``Σ m v w``, ``Σ m (v w)²``, ``Σ m v² w`` with ``w = Π vector[codes]`` and the row weight ``v``.

    Cost: about two nanoseconds per row plus one per factor, on each core. The order of summation depends only
    on the number of rows, so results are identical to the last bit on any number of cores.
    """
    subsets = [tuple(range(len(columns)))]
    return count_weighted_many(
        columns, sizes, subsets, factors, row_weights=row_weights, multiplicity=multiplicity
    )[0]


def count_weighted_many(
    columns: Sequence[Codes],
    sizes: Sequence[int],
    subsets: Sequence[tuple[int, ...]],
    factors: Sequence[Factor],
    *,
    row_weights: NDArray[np.float64] | None = None,
    multiplicity: Counts | None = None,
) -> list[WeightedTable]:
    """Sum the same products of factors over the cells of several tables, one per subset of columns.

    Formula: as `count_weighted`, with results that are identical to the last bit.

    Cost: as `count_weighted`; the products are computed once.
    """
    data = check_columns(columns, sizes)
    vectors = [np.ascontiguousarray(vector, dtype=np.float64) for _, vector in factors]
    multiplied = check_columns([codes for codes, _ in factors], [vector.size for vector in vectors])
    extras = [array for array in (row_weights, multiplicity) if array is not None]
    rows = row_count([*data.columns, *multiplied.columns, *extras])
    expect_rows(rows)
    cells = [_cells(data, used) for used in subsets]

    def add_up(part: slice) -> list[NDArray[np.float64]]:
        sums = [np.zeros((4 if n <= _LANED else 1, n, 3)) for n in cells]
        length = min(TILE, rows)
        buffers = {width: np.empty(length, dtype=width) for width in map(index_type, cells)}
        ones, once = np.ones(length), np.ones(length, dtype=np.int64)
        product = np.empty(length)
        for tile in tiles(part):
            multiplied.check(tile)
            product[:] = 1.0
            for codes, vector in zip(multiplied.columns, vectors, strict=True):
                cell_sums.multiply(product, codes[tile], vector)
            v = ones if row_weights is None else row_weights[tile]
            m = once if multiplicity is None else multiplicity[tile]
            for used, n, table in zip(subsets, cells, sums, strict=True):
                cell_sums.add_weighted(data.index(used, tile, buffers[index_type(n)]), product, v, m, table)
        return [np.asarray(table.sum(axis=0)) for table in sums]

    parts = 1 if sum(cells) > _COPIED else max(1, min(_FLOAT_PARTS, rows // SHARE))
    found = run(add_up, split(rows, parts))
    tables = []
    for used, n, parted in zip(subsets, cells, zip(*found, strict=True), strict=True):
        total = sum(parted, start=np.zeros((n, 3)))
        shape = [data.sizes[c] for c in used]
        tables.append(WeightedTable(*(np.ascontiguousarray(total[:, k]).reshape(shape) for k in range(3))))
    return tables


def distinct(columns: Sequence[Codes], sizes: Sequence[int]) -> tuple[list[Codes], Counts] | None:
    """Return the distinct rows in lexicographic order and their multiplicities; None if there are too many.

    Cost: as `count` if the full table is small. Otherwise a sample of rows rules out hopeless cases, and a
    hash table counts the distinct rows until compression no longer pays.
    """
    data = check_columns(columns, sizes)
    rows = row_count(data.columns)
    expect_rows(rows)
    cells = prod(data.sizes)
    limit = min(rows // _SAVING, LARGEST_HASH)
    if limit == 0 or cells > 1 << 62:
        return None
    if cells <= limit:
        table = count(data.columns, data.sizes).ravel()
        keys = np.flatnonzero(table)
        return _decode_keys(data, keys), table[keys]
    counted = None if _looks_diverse(data, rows, limit) else _count_keys(data, rows, limit)
    return counted and (_decode_keys(data, counted[0]), counted[1])


def _cells(data: CheckedColumns, used: Sequence[int]) -> int:
    cells = prod(data.sizes[c] for c in used)
    if cells > LARGEST_TABLE:
        raise ValueError(f"a table of {cells} cells is too large to count; the limit is {LARGEST_TABLE}")
    return cells


def _count_blocks(
    data: CheckedColumns, plan: Sequence[TableBlock], multiplicity: Counts | None, rows: int
) -> list[Counts]:
    shapes = [[data.sizes[c] for c in block.columns] for block in plan]
    small = [i for i, shape in enumerate(shapes) if shape and prod(shape) <= _FEW_CELLS]
    if multiplicity is not None or len(small) < _TOGETHER:
        small = []
    large = sorted({*range(len(plan))} - {*small})
    found: list[tuple[int, Counts]] = []
    if small:
        members = np.array([*zip_longest(*(plan[i].columns for i in small), fillvalue=-1)]).T
        ends = np.cumsum([prod(shapes[i]) for i in small])
        found += zip(small, np.split(_count_together(data, members, rows), ends[:-1]), strict=True)
    if large:
        found += zip(large, _count_apart(data, [plan[i] for i in large], multiplicity, rows), strict=True)
    return [table.reshape(shapes[i]) for i, table in sorted(found, key=itemgetter(0))]


def _count_apart(
    data: CheckedColumns, plan: Sequence[TableBlock], multiplicity: Counts | None, rows: int
) -> list[Counts]:
    """Count blocks in sequence, tile by tile."""
    cells = [_cells(data, block.columns) for block in plan]

    def count_part(part: slice) -> list[Counts]:
        lanes = [_empty_lanes(n, exact=multiplicity is not None) for n in cells]
        buffers = {width: np.empty(min(TILE, rows), dtype=width) for width in map(index_type, cells)}
        for tile in tiles(part):
            for block, n, tables in zip(plan, cells, lanes, strict=True):
                index = data.index(block.columns, tile, buffers[index_type(n)])
                if multiplicity is None:
                    cell_sums.add_rows(index, *tables)
                else:
                    cell_sums.add_repeated(index, multiplicity[tile], tables[0])
        return [_add_tables(tables) for tables in lanes]

    threads = threads_for(rows) if sum(cells) <= _COPIED else 1
    parts = run(count_part, split(rows, max(threads, -(-rows // _LONGEST_PART))))
    return [_add_tables(tables) for tables in zip(*parts, strict=True)]


def _count_together(data: CheckedColumns, members: Counts, rows: int) -> Counts:
    """Count many small tables in one compiled loop, concatenated; threads share the rows or the tables.

    Each row of `members` lists the columns of a table, padded with −1.
    """
    used, place = np.unique(members, return_inverse=True)
    gap = int(used[0] < 0)
    used, place = used[gap:], place.reshape(members.shape) - gap
    widths = np.count_nonzero(place >= 0, axis=1)
    sizes = np.array([data.sizes[c] for c in used])
    cells = np.where(place >= 0, sizes[place], 1).prod(axis=1)
    lanes = np.where(cells <= cell_sums.LANED, 4, 1) * cells
    begins, ends = np.cumsum(lanes) - lanes, np.cumsum(cells)
    tables = len(members)
    by_rows = max(threads_for(rows), -(-rows // _LONGEST_PART))
    by_tables = min(os.cpu_count() or 1, tables) if by_rows == 1 and rows * tables >= _SHARED else 1

    def count_part(work: tuple[slice, slice]) -> Counts:
        part, some = work
        own = begins[some] - begins[some.start]
        counted = np.zeros(lanes[some].sum(), dtype=np.uint32)
        index = np.empty(_INDEXED, dtype=np.uint16)
        for tile in tiles(part):
            codes = np.array([data.columns[c][tile] for c in used])
            data.check_within(used.tolist(), codes)
            cell_sums.add_to_tables(codes, (place[some], widths[some], own), sizes, index, counted)
        totals = np.zeros(cells[some].sum(), dtype=np.int64)
        cell_sums.add_lanes(counted, own, ends[some] - (ends[some.start] - cells[some.start]), totals)
        return totals

    counted = run(
        count_part, [(part, some) for part in split(rows, by_rows) for some in split(tables, by_tables)]
    )
    return np.concatenate(counted) if by_rows == 1 else np.asarray(np.sum(counted, axis=0))


def _empty_lanes(cells: int, *, exact: bool) -> list[NDArray[Any]]:
    if exact or cells > _COPIED:
        return [np.zeros(cells, dtype=np.int64)] * 4
    if cells > _LANED:
        return [np.zeros(cells, dtype=np.uint32)] * 4
    return [np.zeros(cells, dtype=np.uint32) for _ in range(4)]


def _add_tables(tables: Sequence[NDArray[Any]]) -> Counts:
    """Return the sum of tables; a table that serves several lanes counts once."""
    different = list({id(table): table for table in tables}.values())
    total = different[0].astype(np.int64, copy=False)
    for table in different[1:]:
        total = total + table
    return total


def _marginals(table: Counts, held: tuple[int, ...], wanted: Sequence[tuple[int, ...]]) -> list[Counts]:
    """Sum out columns one at a time, lowest first, so that requests share intermediate tables."""
    known = {held: table}
    answers = []
    for request in wanted:
        if request == held:
            answers.append(table)
            continue
        columns = held
        while len(columns) > len(request):
            gone = next(axis for axis, c in enumerate(columns) if c not in request)
            rest = columns[:gone] + columns[gone + 1 :]
            if rest not in known:
                known[rest] = known[columns].sum(axis=gone)
            columns = rest
        order = [columns.index(c) for c in request]
        answers.append(np.array(known[columns].transpose(order), dtype=np.int64, order="C"))
    return answers


def _looks_diverse(data: CheckedColumns, rows: int, limit: int) -> bool:
    """Return True if a sample suggests many more distinct rows than ``limit``.

    Formula: s draws from N equally frequent rows contain about ``s² / 2N`` repeats; fewer than a quarter of
    the repeats expected for ``N = limit`` suggest a larger N. Rows of unequal frequency repeat more often,
    which only leads to an attempt that is abandoned later.
    """
    step = -(-rows // _SAMPLE)
    sample = CheckedColumns(tuple(np.ascontiguousarray(c[::step]) for c in data.columns), data.sizes)
    size = sample.columns[0].size
    keys = sample.index(range(len(data.sizes)), slice(0, size), np.empty(size, dtype=np.int64))
    repeats = size - np.unique(keys).size
    return repeats < size * size / (2 * limit) / 4


def _count_keys(
    data: CheckedColumns, rows: int, limit: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the distinct keys in order and their counts; None if there are more than ``limit``."""
    if is_little(_SORTED * rows):
        buffer = np.empty(rows, dtype=np.int64)
        keys, counts = np.unique(
            data.index(range(len(data.sizes)), slice(0, rows), buffer), return_counts=True
        )
        if keys.size > limit:
            return None
        return keys.astype(np.int64, copy=False), counts.astype(np.int64, copy=False)
    slots = np.zeros(1 << (2 * limit - 1).bit_length(), dtype=np.int64)
    times = np.zeros(slots.size, dtype=np.int64)
    buffer = np.empty(TILE, dtype=np.int64)
    used = 0
    for tile in tiles(slice(0, rows)):
        keys = data.index(range(len(data.sizes)), tile, buffer)
        used = cell_sums.add_keys(keys, slots, times, used, limit)
        if used > limit:
            return None
    filled = np.flatnonzero(slots)
    order = filled[np.argsort(slots[filled])]
    return slots[order] - 1, times[order]


def _decode_keys(data: CheckedColumns, keys: NDArray[np.int64]) -> list[Codes]:
    """Return keys split into one column of codes per column of the data."""
    columns: list[Codes] = []
    for column, size in zip(reversed(data.columns), reversed(data.sizes), strict=True):
        keys, codes = np.divmod(keys, size)
        columns.append(codes.astype(column.dtype))
    return columns[::-1]
