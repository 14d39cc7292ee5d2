"""Few stars: a greedy placing of all rows, then a local search that never adds any.

The greedy step is Meyerson & Williams's, with patterns in place of balls: the pattern that costs its waiting
rows least comes first, and rows that are missing to k are borrowed from groups that can spare them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.board import Board, Int64
from masquerade.anonymity.board_moves import LENDERS, State, borrowed, entry_of, lend, place, price
from masquerade.anonymity.local_search import EPSILON, improve, new_desk
from masquerade.kernels.jit import compiled

WORK = 6_000_000  # groups dissolved times patterns that fit a kind of row, in all
FEWEST_ROUNDS = 3  # over all groups, whatever the work
PATIENCE, LEAST_TRIES = 60, 2_000  # rounds, and groups dissolved, without saving a star


def fewest_stars(board: Board, k: int) -> None:
    """Place all rows under patterns that each show at least k of them, with few stars.

    Cost: about 1 µs for each of `WORK`, or `FEWEST_ROUNDS` over all groups.
    Error: a local optimum; the greedy start alone needs some percent more stars.
    """
    state = np.array([0x9E3779B97F4A7C15], dtype=np.uint64)
    start_greedily(board, k, state)
    place_the_rest(board, k)
    desk = new_desk(board, k)
    fits = board.pattern.size / max(board.free.size, 1)
    work, idle, tries, done = 0.0, 0, 0, 0
    while True:
        groups = np.flatnonzero((board.size > 0) & (board.cost > 0))
        idle_long = idle >= PATIENCE and tries >= LEAST_TRIES
        if not groups.size or idle_long or (work >= WORK and done >= FEWEST_ROUNDS):
            return
        saved = improve(board, desk, groups, k, state) > EPSILON
        work, done = work + groups.size * fits, done + 1
        idle, tries = (0, 0) if saved else (idle + 1, tries + groups.size)


@compiled
def sift(prices: NDArray[np.float64], heap: Int64, size: int, at: int) -> None:
    """Let an item of a binary heap sink to its place."""
    item = heap[at]
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and prices[heap[below + 1]] < prices[heap[below]]:
            below += 1
        if prices[heap[below]] >= prices[item]:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = item


@compiled
def start_greedily(board: Board, k: int, state: State) -> None:
    """Open patterns in the order of their price until nobody waits who can be placed so."""
    prices = np.full(board.cost.size, np.inf)
    heap = np.flatnonzero(board.waiting > 0)
    size = heap.size
    for pattern in heap:
        prices[pattern] = price(board, pattern, k)
    for at in range(size // 2 - 1, -1, -1):
        sift(prices, heap, size, at)
    lender, lent = np.empty(LENDERS, np.int64), np.empty(LENDERS, np.int64)
    while size > 0:
        pattern = heap[0]
        if board.waiting[pattern] > 0 and price(board, pattern, k) > prices[pattern] + EPSILON:
            prices[pattern] = price(board, pattern, k)  # others were faster: it has to queue again
        else:
            open_pattern(board, pattern, k, state, lender, lent)
            size -= 1
            heap[0] = heap[size]
        sift(prices, heap, size, 0)


@compiled
def open_pattern(  # noqa: PLR0917  (compiled: arguments by place)
    board: Board, pattern: int, k: int, state: State, lender: Int64, lent: Int64
) -> None:
    """Show all rows under a pattern that wait for it, if that makes k with what can be borrowed."""
    waiting = board.waiting[pattern]
    need = k - board.size[pattern] - waiting
    lenders = 0
    if waiting > 0 and need > 0:
        lenders, _ = borrowed(board, pattern, need, k, state, lender, lent)
    if waiting == 0 or lenders < 0:
        return
    for at in range(board.start[pattern], board.start[pattern + 1]):
        entry = board.entries[at]
        if board.free[board.kind[entry]] > 0:
            place(board, entry, board.free[board.kind[entry]])
    for i in range(lenders):
        lend(board, lender[i], pattern, lent[i])


@compiled
def place_the_rest(board: Board, k: int) -> None:
    """Place who is left under the cheapest open pattern, or all under stars, whole groups with them."""
    root = board.cost.size - 1
    for kind in range(board.free.size):
        if board.free[kind] == 0:
            continue
        best = entry_of(board, kind, root)
        for entry in range(board.kind_start[kind], board.kind_start[kind + 1]):
            own, other = board.pattern[entry], board.pattern[best]
            if board.size[own] >= k and (board.size[other] < k or board.cost[own] < board.cost[other]):
                best = entry
        place(board, best, board.free[kind])
    while 0 < board.size[root] < k:
        best, least = -1, np.inf
        for pattern in range(root):
            added = (board.cost[root] - board.cost[pattern]) * board.size[pattern]
            if board.size[pattern] > 0 and added < least:
                best, least = pattern, added
        for at in range(board.start[best], board.start[best + 1]):
            if board.shown[board.entries[at]] > 0:
                lend(board, board.entries[at], root, board.shown[board.entries[at]])
