"""The board of a suppression: which kinds of rows may be shown under which patterns, and moves on it.

Rows that agree in all quasi-identifiers are one kind with a weight. A pattern is what can be shown of a row:
a value, a generalised value or a star for every quasi-identifier. Patterns that fit fewer than k rows can
never be used and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.lattice import Kinds, Node, keys_of
from masquerade.kernels.jit import compiled

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
State = NDArray[np.uint64]
SCAN = 256  # entries looked at for rows to borrow, before what was found is taken
FAR = 8 * SCAN  # and at most, if that is not enough
LENDERS = 512


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
    """Return a board on which nobody is placed yet; its last pattern is the last node's.

    Cost: O(kinds · nodes) time; 24 bytes for each kind and node whose pattern fits k rows.
    """
    total = len(kinds.weights)
    patterns = np.empty((len(nodes), total), dtype=np.int32)
    costs: list[NDArray[np.float64]] = []
    found = 0
    for place, node in enumerate(nodes):
        own = patterns[place]
        keys = keys_of(kinds.at(node), kinds.sizes_at(node), rows=total)
        count = frequent(keys, kinds.weights, k, own)
        fits = own >= 0
        cost = np.zeros(count)
        cost[own[fits]] = kinds.loss_at(node)[fits]
        own[fits] += found
        costs.append(cost)
        found += count
    entries = int((patterns >= 0).sum())
    kind_start, pattern = np.empty(total + 1, dtype=np.int64), np.empty(entries, dtype=np.int32)
    by_kind(patterns, kind_start, pattern)
    del patterns
    kind = np.repeat(np.arange(total, dtype=np.int32), np.diff(kind_start))
    start, order = np.zeros(found + 1, dtype=np.int64), np.empty(entries, dtype=np.int32)
    by_pattern(pattern, start, order)
    waiting = np.add.reduceat(kinds.weights[kind[order]], start[:-1]) if found else np.zeros(0, np.int64)
    return Board(
        np.concatenate(costs),
        pattern,
        kind,
        kind_start,
        start,
        order,
        np.zeros(entries, dtype=np.int64),
        np.zeros(found, dtype=np.int64),
        kinds.weights.copy(),
        waiting,
    )


@compiled
def frequent(keys: Int64, weights: Int64, k: int, ids: Int32) -> int:
    """Return how many keys have weights that sum to k; write their numbers to `ids`, -1 for others."""
    bits = 1
    while (1 << bits) < 2 * keys.size + 2:
        bits += 1
    slots = 1 << bits
    held = np.full(slots, -1, np.int64)
    total = np.zeros(slots, np.int64)
    for t in range(keys.size):
        # Fibonacci hashing: the upper bits of a product with 2^64 / golden ratio
        slot = (keys[t] * -7046029254386353131 >> (64 - bits)) & (slots - 1)
        while held[slot] not in (-1, keys[t]):
            slot = (slot + 1) & (slots - 1)
        held[slot] = keys[t]
        total[slot] += weights[t]
        ids[t] = slot
    number = np.full(slots, -1, np.int32)
    found = 0
    for t in range(keys.size):
        slot = ids[t]
        if total[slot] >= k and number[slot] < 0:
            number[slot] = found
            found += 1
        ids[t] = number[slot]
    return found


@compiled
def by_kind(patterns: Int32, kind_start: Int64, pattern: Int32) -> None:
    """List the patterns that fit, kind by kind."""
    entry = 0
    for t in range(patterns.shape[1]):
        kind_start[t] = entry
        for node in range(patterns.shape[0]):
            if patterns[node, t] >= 0:
                pattern[entry] = patterns[node, t]
                entry += 1
    kind_start[patterns.shape[1]] = entry


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


@compiled
def draw(state: State, below: int) -> int:
    """Return the next of a fixed sequence of numbers (xorshift): the search is repeatable, not secret."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return int(x >> np.uint64(11)) % below


@compiled
def place(board: Board, entry: int, rows: int) -> None:
    """Show so many free rows of the entry's kind under its pattern; a negative number takes them away."""
    kind = board.kind[entry]
    board.shown[entry] += rows
    board.size[board.pattern[entry]] += rows
    board.free[kind] -= rows
    for other in range(board.kind_start[kind], board.kind_start[kind + 1]):
        board.waiting[board.pattern[other]] -= rows


@compiled
def entry_of(board: Board, kind: int, pattern: int) -> int:
    """Return the entry of a kind under a pattern, -1 if it does not fit."""
    for entry in range(board.kind_start[kind], board.kind_start[kind + 1]):
        if board.pattern[entry] == pattern:
            return entry
    return -1


@compiled
def price(board: Board, pattern: int | np.integer[Any], k: int) -> float:
    """Return the stars that a waiting row costs under a pattern, if borrowed rows had none before."""
    cost: float = board.cost[pattern]
    waiting = board.waiting[pattern]
    return cost if board.size[pattern] > 0 or waiting >= k else cost * k / waiting


@compiled
def borrowed(  # noqa: PLR0917  (compiled: arguments by place)
    board: Board, pattern: int, need: int, k: int, state: State, lender: Int64, lent: Int64
) -> tuple[int, float]:
    """Find rows that groups of more than k can lend a pattern, the cheapest first.

    Returns how many lenders (their entries and rows are written to `lender` and `lent`) and the stars this
    adds; -1 lenders if there are not enough rows among those looked at.
    """
    low, count = board.start[pattern], board.start[pattern + 1] - board.start[pattern]
    first = draw(state, count)
    found, spare = 0, 0
    for step in range(min(count, FAR)):
        if found == lender.size or (step >= SCAN and spare >= need):
            break
        kind = board.kind[board.entries[low + (first + step) % count]]
        for entry in range(board.kind_start[kind], board.kind_start[kind + 1]):
            own = board.pattern[entry]
            if board.shown[entry] and own != pattern and board.size[own] > k and found < lender.size:
                lender[found] = entry
                spare += min(board.shown[entry], board.size[own] - k)
                found += 1
    extra, used = 0.0, 0
    while need > 0 and used < found:
        best = used
        for other in range(used + 1, found):
            if board.cost[board.pattern[lender[other]]] > board.cost[board.pattern[lender[best]]]:
                best = other
        lender[used], lender[best] = lender[best], lender[used]
        own = board.pattern[lender[used]]
        lent[used] = min(board.shown[lender[used]], board.size[own] - k, need)
        board.size[own] -= lent[used]  # several lenders may share a group
        need -= lent[used]
        extra += lent[used] * (board.cost[pattern] - board.cost[own])
        used += 1
    for i in range(used):
        board.size[board.pattern[lender[i]]] += lent[i]
    return (used, extra) if need == 0 else (-1, np.inf)


@compiled
def lend(board: Board, entry: int, pattern: int, rows: int) -> int:
    """Move rows of an entry to another pattern; return the entry where they are now."""
    target = entry_of(board, board.kind[entry], pattern)
    board.shown[entry] -= rows
    board.size[board.pattern[entry]] -= rows
    board.shown[target] += rows
    board.size[pattern] += rows
    return target
