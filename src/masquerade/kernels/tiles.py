"""Rows in cache-sized tiles: checked columns, cell indices, and threads over parts of the rows."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels import cell_sums
from masquerade.kernels.cell_sums import Codes, Index

P = TypeVar("P")
T = TypeVar("T")

TILE: Final = 1 << 17
SHARE: Final = 1 << 18  # with fewer rows a second thread costs more than it saves


@dataclass(frozen=True, slots=True)
class CheckedColumns:
    """Contiguous columns of unsigned codes, and the number of codes of each."""

    columns: tuple[Codes, ...]
    sizes: tuple[int, ...]

    def index(self, used: Sequence[int], tile: slice, buffer: Index) -> Index:
        """Fill the buffer with each row's cell in a C-ordered table of the used columns."""
        index = buffer[: tile.stop - tile.start]
        if not used:
            index[:] = 0
            return index
        self._check(used[0], cell_sums.start(index, self.columns[used[0]][tile]))
        for c in used[1:]:
            self._check(c, cell_sums.fold(index, self.sizes[c], self.columns[c][tile]))
        return index

    def check(self, tile: slice) -> None:
        """Raise ValueError if a code is outside its table."""
        for c, column in enumerate(self.columns):
            self._check(c, cell_sums.largest(column[tile]))

    def check_within(self, used: Sequence[int], codes: Codes) -> None:
        """Raise ValueError if a code of the used columns (column, row) is outside its table."""
        for c, top in zip(used, codes.max(axis=1).tolist() if codes.size else (), strict=False):
            self._check(c, top)

    def _check(self, column: int, top: int) -> None:
        if top >= self.sizes[column]:
            raise ValueError(f"column {column} has the code {top}, outside 0..{self.sizes[column] - 1}")


def check_columns(columns: Sequence[Codes], sizes: Sequence[int]) -> CheckedColumns:
    """Return checked columns with their sizes; raise ValueError if compiled loops could not read them."""
    if len(columns) != len(sizes):
        raise ValueError(f"{len(columns)} columns need as many sizes, got {len(sizes)}")
    for column in columns:
        if column.dtype.kind != "u" or column.dtype.itemsize > 4:
            raise ValueError(f"codes must be unsigned and at most 32 bits wide, got {column.dtype}")
    return CheckedColumns(tuple(np.ascontiguousarray(c) for c in columns), tuple(int(s) for s in sizes))


def row_count(arrays: Sequence[NDArray[Any]]) -> int:
    """Return the common length of one-dimensional arrays."""
    if not arrays:
        raise ValueError("at least one column, factor, weight or multiplicity is needed to count rows")
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1 or arrays[0].ndim != 1:
        raise ValueError(f"columns must be one-dimensional and equally long, got shapes {sorted(shapes)}")
    return int(arrays[0].size)


def index_type(cells: int) -> type[np.uint16 | np.uint32]:
    """Return the narrowest index type for this number of cells: half the bytes, twice the speed."""
    return np.uint16 if cells <= 1 << 16 else np.uint32


def split(rows: int, parts: int) -> list[slice]:
    """Split the rows into contiguous parts of nearly equal length."""
    cuts = [rows * p // parts for p in range(parts + 1)]
    return [slice(cuts[p], cuts[p + 1]) for p in range(parts)]


def tiles(part: slice) -> Iterator[slice]:
    """Yield the tiles of a part of the rows."""
    for begin in range(part.start, part.stop, TILE):
        yield slice(begin, min(begin + TILE, part.stop))


def threads_for(rows: int) -> int:
    """Return the number of threads worth starting for this number of rows."""
    return 1 if rows < 2 * SHARE else min(os.cpu_count() or 1, rows // SHARE)


def run(work: Callable[[P], T], parts: Sequence[P]) -> list[T]:
    """Apply work to each part, on several threads if there are several parts."""
    threads = 1 if len(parts) < 2 else min(os.cpu_count() or 1, len(parts))
    if threads < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, parts))
