"""Choose few tables to count such that all requested tables are marginals of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import log2, prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

# nanoseconds, measured on a 2.6 GHz EPYC; only their ratios matter
_FOLD: Final = 0.08
_MERGE: Final = 4.0
_MARGINAL: Final = 0.3
_GREEDY_STEP: Final = 30_000.0
_SCATTER_KNOTS: Final = ((0, 0.33), (12, 0.35), (14, 0.48), (17, 1.0), (19, 1.4), (21, 4.0), (27, 10.0))
_CAPS: Final = (1 << 10, 1 << 12, 1 << 14, 1 << 17)


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table to count, over ascending columns, and the requests that it answers."""

    columns: tuple[int, ...]
    requests: tuple[int, ...]


def cover(sizes: Sequence[int], subsets: Sequence[tuple[int, ...]], rows: int) -> list[TableBlock]:
    """Return blocks of columns, each subset contained in one of them, at the lowest modelled cost.

    Formula: cost = Σ over blocks of rows · (fold · columns + scatter(cells)) + cells · (merge + requests).

    Cost: for R subsets, at most R² greedy steps with each of a few limits on the size of a block. The limits
    are tried only if that can pay.
    """
    separate = _assign([tuple(sorted(subset)) for subset in _maximal(subsets)], subsets)
    direct = _cost(sizes, separate, rows)
    if len(_CAPS) * len(separate) * _GREEDY_STEP > direct:
        return separate
    plans = [separate, *(_assign(_greedy(sizes, subsets, cap), subsets) for cap in _CAPS)]
    return min(plans, key=lambda plan: _cost(sizes, plan, rows))


def cover_within(sizes: Sequence[int], subsets: Sequence[tuple[int, ...]], cap: int) -> list[TableBlock]:
    """Return few, large blocks that cover all subsets, for sources where another table is expensive.

    A block has more than `cap` cells only if one of the subsets has.

    Cost: at most R² greedy steps for R subsets.
    """
    return _assign(_greedy(sizes, subsets, cap), subsets)


@lru_cache(maxsize=4096)
def scatter_cost(cells: int) -> float:
    """Return the nanoseconds needed to add one row to a table of this many cells."""
    bits = log2(max(cells, 1))
    for (left, low), (right, high) in pairwise(_SCATTER_KNOTS):
        if bits <= right:
            return low + (high - low) * (bits - left) / (right - left)
    return _SCATTER_KNOTS[-1][1]


def _cost(sizes: Sequence[int], plan: Sequence[TableBlock], rows: int) -> float:
    total = 0.0
    for block in plan:
        cells = prod(sizes[c] for c in block.columns)
        total += rows * (_FOLD * len(block.columns) + scatter_cost(cells))
        total += cells * (_MERGE + _MARGINAL * len(block.requests))
    return total


def _maximal(subsets: Sequence[tuple[int, ...]]) -> list[frozenset[int]]:
    largest: list[frozenset[int]] = []
    larger, size = 0, -1
    for subset in sorted({frozenset(s) for s in subsets}, key=lambda s: (-len(s), sorted(s))):
        if len(subset) != size:  # different sets of one size never contain each other
            larger, size = len(largest), len(subset)
        if not any(subset <= other for other in largest[:larger]):
            largest.append(subset)
    return largest


def _assign(blocks: Sequence[tuple[int, ...]], subsets: Sequence[tuple[int, ...]]) -> list[TableBlock]:
    """Assign each request to the smallest block that contains it."""
    contents = [frozenset(columns) for columns in blocks]
    exact = {content: b for b, content in enumerate(contents)}
    requests: list[list[int]] = [[] for _ in blocks]
    for number, subset in enumerate(subsets):
        same = exact.get(frozenset(subset))
        if same is not None:
            requests[same].append(number)
            continue
        holders = [b for b, content in enumerate(contents) if content.issuperset(subset)]
        requests[min(holders, key=lambda b: len(contents[b]))].append(number)
    return [TableBlock(c, tuple(r)) for c, r in zip(blocks, requests, strict=True) if r]


def _greedy(sizes: Sequence[int], subsets: Sequence[tuple[int, ...]], cap: int) -> list[tuple[int, ...]]:
    wanted = np.zeros((len(subsets), len(sizes)), dtype=np.bool_)
    for number, subset in enumerate(subsets):
        wanted[number, list(subset)] = True
    wanted = wanted[np.argsort(-wanted.sum(axis=1), kind="stable")]
    blocks = []
    while wanted.size and len(wanted):
        inside = _grow(wanted[0].copy(), wanted, np.maximum(sizes, 1), cap)
        blocks.append(tuple(int(c) for c in np.flatnonzero(inside)))
        wanted = wanted[(wanted & ~inside).any(axis=1)]
    return blocks


def _grow(
    inside: NDArray[np.bool_], wanted: NDArray[np.bool_], sizes: NDArray[np.int64], cap: int
) -> NDArray[np.bool_]:
    """Repeatedly add the column that completes the most requests per bit of table size, up to `cap` cells."""
    cells = float(np.prod(sizes[inside], dtype=np.float64))
    bits = np.log2(np.maximum(sizes, 2))
    while True:
        missing = wanted & ~inside
        lacking = missing.sum(axis=1)
        # a request that lacks one column counts fully, requests that lack more count less and less
        gain = 16.0 ** -np.maximum(lacking - 1, 0) @ missing / bits
        gain[cells * sizes > cap] = 0
        best = int(np.argmax(gain))
        if gain[best] == 0:
            return inside
        inside[best] = True
        cells *= float(sizes[best])
