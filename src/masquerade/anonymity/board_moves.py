"""Moves on a board: place rows under a pattern, and borrow rows from groups that can spare them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.board import Board, Int64
from masquerade.kernels.jit import compiled

SCAN = 256  # entries looked at for rows to borrow, before what was found is taken
FAR = 8 * SCAN  # and at most, if that is not enough
LENDERS = 512

State = NDArray[np.uint64]


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
