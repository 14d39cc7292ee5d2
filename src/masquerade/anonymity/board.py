"""State of the search for a k-anonymous table: patterns, and the rows that are shown as each pattern.

Rows that agree in all quasi-identifiers form a kind, weighted by the number of these rows. A pattern is a
possible output for a row: a value, a generalised value or a star for every quasi-identifier. It fits the rows
that can be shown as this pattern. Patterns that fit fewer than k rows can never be used and are omitted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.columns import Int64
from masquerade.anonymity.lattice import Kinds, Node
from masquerade.kernels.jit import compiled
from masquerade.kernels.key_numbers import number_keys

Int32 = NDArray[np.int32]
Floats = NDArray[np.float64]
DEEPER = 1.0  # a kind lists patterns that cost at most this number of stars more than its cheapest pattern
EPSILON = 1e-9


class Board(NamedTuple):
    """Entries, which are pairs of a kind and a pattern that fits it, with numbers of placed and free rows.

    `kind` and `pattern` give the kind and the pattern of each entry. The entries of kind t are
    ``kind_start[t]:kind_start[t + 1]``. The entries of pattern p are ``entries[start[p]:start[p + 1]]``.
    `cost` is the number of stars per row of each pattern. `shown` is the number of rows placed in each entry,
    and `size` the number placed under each pattern. `free` is the number of rows of each kind that are not
    placed yet, and `waiting` the number of free rows that each pattern fits.
    """

    cost: NDArray[np.float64]
    pattern: Int32
    kind: Int32
    kind_start: Int64
    start: Int64
    entries: Int32
    shown: Int64
    size: Int64
    free: Int64
    waiting: Int64


def new_board(kinds: Kinds, nodes: Sequence[Node], k: int) -> Board:
    """Return a board without placed rows. Its last pattern, from the last node, has only stars.

    The entries of a kind are the pattern of only stars, and patterns that cost at most `DEEPER` stars more
    than the cheapest one that fits the kind. Most patterns cost more, but those are hardly ever used.
    Cost: O(kinds · nodes) time, 4 bytes for each kind and node, and 24 bytes for each entry.
    """
    patterns, cost, first = fitting_patterns(kinds, nodes, k)
    least = np.full(len(kinds.weights), np.inf)
    kind_start = np.zeros(least.size + 1, dtype=np.int64)
    count_entries(patterns, cost, first, least, kind_start)
    pattern, kind = (np.empty(kind_start[-1], dtype=np.int32) for _ in range(2))
    list_entries(patterns, cost, first, least, kind_start, pattern, kind)
    del patterns  # large: freed before the board is built
    return _usable(cost, pattern, kind, None, kinds.weights, k)[0]


def narrow_board(board: Board, k: int) -> tuple[Board, Int64]:
    """From a board with all rows placed, remove the entries that cost more than their kind's current entry.

    Entries of patterns in use stay, so that rows can be borrowed and whole groups can join others. Return the
    smaller board, and the indices of its entries on the given board.
    """
    weights = np.zeros(board.free.size, dtype=np.int64)
    useful = np.empty(board.pattern.size, dtype=np.bool_)
    mark_useful(board, weights, useful)
    entries = np.flatnonzero(useful)
    close = (board.pattern[entries], board.kind[entries], board.shown[entries])
    found, kept = _usable(board.cost, *close, weights, k)
    return found, entries[kept]


def with_shown(board: Board, entries: Int64, shown: Int64) -> Board:
    """Return a board with the rows placed as on a narrowed board, given its `entries` and numbers of rows."""
    every = np.zeros(board.pattern.size, dtype=np.int64)
    every[entries] = shown
    size = count_rows(board.pattern, every, np.arange(every.size, dtype=np.int32), board.size.size)
    return board._replace(shown=every, size=size)


def _usable(  # noqa: PLR0917
    cost: Floats, pattern: Int32, kind: Int32, shown: Int64 | None, weights: Int64, k: int
) -> tuple[Board, NDArray[np.bool_]]:
    """Return a board without patterns that fit fewer than k rows, and a mask of the entries kept.

    The last pattern always stays.
    """
    used = count_rows(pattern, weights, kind, cost.size) >= k
    used[-1] = True
    kept = used[pattern]
    pattern, kind = renumber_patterns(pattern[kept], used), kind[kept]
    shown = np.zeros(pattern.size, dtype=np.int64) if shown is None else shown[kept]
    start, order = np.zeros(int(used.sum()) + 1, dtype=np.int64), np.empty(pattern.size, dtype=np.int32)
    by_pattern(pattern, start, order)
    free = weights.copy()
    kind_start = np.zeros(weights.size + 1, dtype=np.int64)
    size = np.zeros(start.size - 1, dtype=np.int64)
    add_shown(pattern, kind, shown, size, free, kind_start)
    waiting = count_rows(pattern, free, kind, size.size)
    return Board(cost[used], pattern, kind, kind_start, start, order, shown, size, free, waiting), kept


def fitting_patterns(kinds: Kinds, nodes: Sequence[Node], k: int) -> tuple[Int32, Floats, Int64]:
    """Return the pattern of every kind at every node, the cost of patterns, and the first pattern of nodes.

    A pattern is -1 if it fits fewer than k rows. Patterns are numbered within their node, and the patterns of
    node i start at ``first[i]``. A kind that does not fit at a node does not fit at a finer node either.
    Therefore only kinds that fit at a node that is coarser in one column are examined. Nodes of equal height
    are processed in parallel on all cores.
    """
    places = {node: place for place, node in enumerate(nodes)}
    patterns = np.empty((len(nodes), len(kinds.weights)), dtype=np.int32)
    costs: list[Floats] = [np.zeros(0)] * len(nodes)
    columns = np.ascontiguousarray(kinds.codes.T)

    def fill(node: Node) -> Floats:
        above = [
            (costs[places[coarser]].size, places[coarser], at)
            for at, level in enumerate(node)
            if (coarser := (*node[:at], level + 1, *node[at + 1 :])) in places
        ]
        own = patterns[places[node]]
        if above:  # the coarser node with the fewest patterns leaves the fewest kinds to examine
            _, place, at = min(above)
            keys = np.empty(own.size, dtype=np.int64)
            extended_keys(patterns[place], columns[at], kinds.ladders[at].codes[node[at]], keys)
        else:
            keys = kinds.keys_at(node)
        some = number_frequent_keys(keys, kinds.weights, k, own)
        shown = zip(kinds.ladders, node, columns, strict=True)
        losses = [ladder.loss[level][column[some]] for ladder, level, column in shown if level]
        return sum(losses, start=np.zeros(some.size))

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for _, level in groupby(sorted(nodes, key=sum, reverse=True), key=sum):
            same_height = list(level)
            for node, cost in zip(same_height, pool.map(fill, same_height), strict=True):
                costs[places[node]] = cost
    first = np.concatenate([[0], np.cumsum([cost.size for cost in costs])])
    return patterns, np.concatenate(costs), first


@compiled
def extended_keys(above: Int32, column: Int64, codes: Int64, keys: Int64) -> None:
    """Write a key per kind: its pattern where one column is coarser, combined with that column's value."""
    size = codes.max() + 1
    for kind in range(above.size):
        keys[kind] = above[kind] * size + codes[column[kind]] if above[kind] >= 0 else -1


@compiled
def number_frequent_keys(keys: Int64, weights: Int64, k: int, ids: Int32) -> Int32:
    """Assign numbers to keys whose kinds have a total weight of at least k; return a kind for each number.

    The number of every kind's key is written to `ids`, or -1 if the weight is less than k.
    """
    total = np.zeros(number_keys(keys, ids), np.int64)
    for kind in range(keys.size):
        if ids[kind] >= 0:
            total[ids[kind]] += weights[kind]
    number = np.full(total.size, -1, np.int32)
    some = np.empty(total.size, np.int32)
    found = 0
    for kind in range(keys.size):
        own = ids[kind]
        if own >= 0 and total[own] >= k:
            if number[own] < 0:
                number[own], some[found] = found, kind
                found += 1
            ids[kind] = number[own]
        else:
            ids[kind] = -1
    return some[:found]


@compiled
def count_entries(patterns: Int32, cost: Floats, first: Int64, least: Floats, kind_start: Int64) -> None:
    """Write the cost of the cheapest pattern to `least`, and the first entry to `kind_start`, by kind."""
    nodes, kinds = patterns.shape
    for node in range(nodes):
        for kind in range(kinds):
            if patterns[node, kind] >= 0:
                least[kind] = min(least[kind], cost[first[node] + patterns[node, kind]])
    for node in range(nodes):
        for kind in range(kinds):
            if patterns[node, kind] >= 0:
                dear = cost[first[node] + patterns[node, kind]] > least[kind] + DEEPER
                kind_start[kind + 1] += node == nodes - 1 or not dear
    for kind in range(kinds):
        kind_start[kind + 1] += kind_start[kind]


@compiled
def list_entries(  # noqa: PLR0917  (compiled: positional arguments)
    patterns: Int32, cost: Floats, first: Int64, least: Floats, kind_start: Int64, pattern: Int32, kind: Int32
) -> None:
    """List the entries that `count_entries` counted, kind by kind."""
    nodes, kinds = patterns.shape
    at = kind_start[:-1].copy()
    for node in range(nodes):
        for own in range(kinds):
            if patterns[node, own] >= 0:
                number = first[node] + patterns[node, own]
                if node == nodes - 1 or cost[number] <= least[own] + DEEPER:
                    pattern[at[own]], kind[at[own]] = number, own
                    at[own] += 1


@compiled
def mark_useful(board: Board, weights: Int64, useful: NDArray[np.bool_]) -> None:
    """Mark entries whose pattern is used, or that cost at most as much as a used entry of the same kind.

    Also write the number of placed rows of each kind to `weights`.
    """
    last = board.cost.size - 1
    for kind in range(weights.size):
        dearest = 0.0
        for entry in range(board.kind_start[kind], board.kind_start[kind + 1]):
            if board.shown[entry] > 0:
                weights[kind] += board.shown[entry]
                dearest = max(dearest, board.cost[board.pattern[entry]])
        for entry in range(board.kind_start[kind], board.kind_start[kind + 1]):
            own = board.pattern[entry]
            useful[entry] = board.cost[own] <= dearest + EPSILON or board.size[own] > 0 or own == last


@compiled
def count_rows(pattern: Int32, rows: Int64, kind: Int32, patterns: int) -> Int64:
    """Return the number of rows of the kinds under each pattern."""
    total = np.zeros(patterns, np.int64)
    for entry in range(pattern.size):
        total[pattern[entry]] += rows[kind[entry]]
    return total


@compiled
def renumber_patterns(pattern: Int32, used: NDArray[np.bool_]) -> Int32:
    """Renumber the patterns of entries so that unused patterns have no number."""
    number = np.cumsum(used) - 1
    for entry in range(pattern.size):
        pattern[entry] = number[pattern[entry]]
    return pattern


@compiled
def add_shown(  # noqa: PLR0917  (compiled: positional arguments)
    pattern: Int32, kind: Int32, shown: Int64, size: Int64, free: Int64, kind_start: Int64
) -> None:
    """Write placed rows by pattern (`size`), free rows by kind (`free`), and each kind's first entry."""
    for entry in range(pattern.size):
        size[pattern[entry]] += shown[entry]
        free[kind[entry]] -= shown[entry]
        kind_start[kind[entry] + 1] += 1
    for t in range(free.size):
        kind_start[t + 1] += kind_start[t]


@compiled
def by_pattern(pattern: Int32, start: Int64, order: Int32) -> None:
    """List the entries, sorted by pattern."""
    for entry in range(pattern.size):
        start[pattern[entry] + 1] += 1
    for p in range(start.size - 1):
        start[p + 1] += start[p]
    place = start[:-1].copy()
    for entry in range(pattern.size):
        order[place[pattern[entry]]] = entry
        place[pattern[entry]] += 1
