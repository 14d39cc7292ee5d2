"""The board of the search: which kinds of rows may be shown under which patterns, and who is.

Rows that agree in all quasi-identifiers are one kind with a weight. A pattern is what can be shown of a row:
a value, a generalised value or a star for every quasi-identifier. Patterns that fit fewer than k rows can
never be used and are left out.
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
DEEPER = 1.0  # stars beyond the cheapest pattern of a kind, up to which others are listed for it
EPSILON = 1e-9


class Board(NamedTuple):
    """Kinds and patterns that fit, and who is shown how; an entry is a kind under a pattern.

    Entries of kind t are ``kind_start[t]:kind_start[t + 1]``; those of pattern p are ``entries`` at
    ``start[p]:start[p + 1]``. `shown` counts rows by entry, `size` by pattern, `free` those of a kind that
    are not placed yet, and `waiting` those that a pattern would fit.
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
    """Return a board on which nobody is placed yet; its last pattern is the last node's, of stars alone.

    A kind is listed under what costs at most `DEEPER` stars more than the cheapest pattern that fits it and
    k rows, and under stars alone: what is dearer is hardly ever shown, and is most of what there is.
    Cost: O(kinds · nodes) time and 4 bytes for each; 24 for each entry.
    """
    patterns, cost, first = fitting_patterns(kinds, nodes, k)
    least = np.full(len(kinds.weights), np.inf)
    kind_start = np.zeros(least.size + 1, dtype=np.int64)
    count_entries(patterns, cost, first, least, kind_start)
    pattern, kind = (np.empty(kind_start[-1], dtype=np.int32) for _ in range(2))
    list_entries(patterns, cost, first, least, kind_start, pattern, kind)
    del patterns
    return _usable(cost, pattern, kind, None, kinds.weights, k)[0]


def narrowed(board: Board, k: int) -> tuple[Board, Int64]:
    """Return a board on which all rows are placed without what is dearer than how a kind is shown.

    Patterns that are in use stay, so that rows can be borrowed and whole groups join others. Returned as well
    is which entries of the board these are.
    """
    weights = np.zeros(board.free.size, dtype=np.int64)
    useful = np.empty(board.pattern.size, dtype=np.bool_)
    mark_useful(board, weights, useful)
    entries = np.flatnonzero(useful)
    close = (board.pattern[entries], board.kind[entries], board.shown[entries])
    found, kept = _usable(board.cost, *close, weights, k)
    return found, entries[kept]


def with_shown(board: Board, entries: Int64, shown: Int64) -> Board:
    """Return the board with rows placed as on a narrower one that has these entries."""
    every = np.zeros(board.pattern.size, dtype=np.int64)
    every[entries] = shown
    size = summed(board.pattern, every, np.arange(every.size, dtype=np.int32), board.size.size)
    return board._replace(shown=every, size=size)


def _usable(  # noqa: PLR0917
    cost: Floats, pattern: Int32, kind: Int32, shown: Int64 | None, weights: Int64, k: int
) -> tuple[Board, NDArray[np.bool_]]:
    """Return a board of these entries without patterns that fit fewer than k rows, and which were kept.

    The last pattern stays.
    """
    used = summed(pattern, weights, kind, cost.size) >= k
    used[-1] = True
    kept = used[pattern]
    pattern, kind = renumbered(pattern[kept], used), kind[kept]
    shown = np.zeros(pattern.size, dtype=np.int64) if shown is None else shown[kept]
    start, order = np.zeros(int(used.sum()) + 1, dtype=np.int64), np.empty(pattern.size, dtype=np.int32)
    by_pattern(pattern, start, order)
    free = weights.copy()
    kind_start = np.zeros(weights.size + 1, dtype=np.int64)
    size = np.zeros(start.size - 1, dtype=np.int64)
    add_shown(pattern, kind, shown, size, free, kind_start)
    waiting = summed(pattern, free, kind, size.size)
    return Board(cost[used], pattern, kind, kind_start, start, order, shown, size, free, waiting), kept


def fitting_patterns(kinds: Kinds, nodes: Sequence[Node], k: int) -> tuple[Int32, Floats, Int64]:
    """Return the pattern of every kind at every node, -1 where fewer than k rows fit, and what patterns cost.

    Patterns are numbered within their node; before those of node i there are ``first[i]`` others. What does
    not fit at a node does not fit at a finer one, so only kinds are looked at that fit where a column is
    coarser. Nodes of equal height run on all cores.
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
        if above:  # the one with the fewest patterns is left by the fewest kinds
            _, place, at = min(above)
            keys = np.empty(own.size, dtype=np.int64)
            extended_keys(patterns[place], columns[at], kinds.ladders[at].codes[node[at]], keys)
        else:
            keys = kinds.keys_at(node)
        some = frequent(keys, kinds.weights, k, own)
        shown = zip(kinds.ladders, node, columns, strict=True)
        losses = [ladder.loss[level][column[some]] for ladder, level, column in shown if level]
        return sum(losses, start=np.zeros(some.size))

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for _, level in groupby(sorted(nodes, key=sum, reverse=True), key=sum):
            alike = list(level)
            for node, cost in zip(alike, pool.map(fill, alike), strict=True):
                costs[places[node]] = cost
    first = np.concatenate([[0], np.cumsum([cost.size for cost in costs])])
    return patterns, np.concatenate(costs), first


@compiled
def extended_keys(above: Int32, column: Int64, codes: Int64, keys: Int64) -> None:
    """Write a key for every kind from its pattern where one column is coarser, and that column's value."""
    size = codes.max() + 1
    for kind in range(above.size):
        keys[kind] = above[kind] * size + codes[column[kind]] if above[kind] >= 0 else -1


@compiled
def frequent(keys: Int64, weights: Int64, k: int, ids: Int32) -> Int32:
    """Write numbers of keys whose weights sum to k to `ids`, -1 for others; return a kind of each."""
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
    """Write what the cheapest pattern of every kind costs, and where the entries of every kind begin."""
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
def list_entries(  # noqa: PLR0917  (compiled: arguments by place)
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
    """Mark entries no dearer than how their kind is shown, and patterns in use; write the rows of kinds."""
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
def summed(pattern: Int32, rows: Int64, kind: Int32, patterns: int) -> Int64:
    """Return how many rows the kinds under every pattern have."""
    total = np.zeros(patterns, np.int64)
    for entry in range(pattern.size):
        total[pattern[entry]] += rows[kind[entry]]
    return total


@compiled
def renumbered(pattern: Int32, used: NDArray[np.bool_]) -> Int32:
    """Return the patterns of entries, numbered without those not used."""
    number = np.cumsum(used) - 1
    for entry in range(pattern.size):
        pattern[entry] = number[pattern[entry]]
    return pattern


@compiled
def add_shown(  # noqa: PLR0917  (compiled: arguments by place)
    pattern: Int32, kind: Int32, shown: Int64, size: Int64, free: Int64, kind_start: Int64
) -> None:
    """Write how many rows patterns show and kinds have left, and where the entries of every kind begin."""
    for entry in range(pattern.size):
        size[pattern[entry]] += shown[entry]
        free[kind[entry]] -= shown[entry]
        kind_start[kind[entry] + 1] += 1
    for t in range(free.size):
        kind_start[t + 1] += kind_start[t]


@compiled
def by_pattern(pattern: Int32, start: Int64, order: Int32) -> None:
    """List the entries, pattern by pattern."""
    for entry in range(pattern.size):
        start[pattern[entry] + 1] += 1
    for p in range(start.size - 1):
        start[p + 1] += start[p]
    place = start[:-1].copy()
    for entry in range(pattern.size):
        order[place[pattern[entry]]] = entry
        place[pattern[entry]] += 1
