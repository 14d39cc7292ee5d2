"""Greedy placement of all rows under patterns, then a local search that never increases the stars.

The greedy step follows Meyerson & Williams, with patterns instead of balls. It opens the pattern with the
lowest cost per waiting row first. If fewer than k rows wait for it, rows are borrowed from groups that can
spare them. The local search dissolves some groups (the rows under one pattern), places their rows again, and
keeps the result if the cost is the same or lower. See `board` for the data structure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.board import EPSILON, Board, narrow_board, with_shown
from masquerade.anonymity.columns import Int64
from masquerade.kernels.jit import compiled

State = NDArray[np.uint64]
SCAN = 256  # number of entries examined for rows to borrow, if these have enough rows
FAR = 8 * SCAN  # largest number of entries examined
LENDERS = 512  # largest number of entries that lend rows to one pattern
TRIES = 120_000  # number of groups dissolved after which the search stops at the end of the round
# A board is searched again with costlier patterns, which takes longer the more entries there are. That
# saves 0.3% of the stars with 50,000 entries, 0.1% with 200,000 and 0.03% with a million, so large boards are
# searched less, and the largest not at all.
FULL_WIDE, MOST_WIDE = 100_000, 400_000
PATIENCE, LEAST_TRIES = 60, 2_000  # stop after this number of rounds, and of groups, without a saving
TOGETHER = 4  # largest number of groups dissolved at a time
NOISE = 1.5  # costs are raised at random by up to this share, so that different choices are tried
DETOUR, DEAR = 4, 4.0  # with probability 1/DETOUR, a pattern without stars costs up to DEAR instead of 0
LARGEST = 8  # groups larger than LARGEST times `most_rows` are not dissolved


@compiled
def draw(state: State, below: int) -> int:
    """Return the next pseudorandom number (xorshift) below a limit; a fixed seed makes it repeatable."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return int(x >> np.uint64(11)) % below


@compiled
def place(board: Board, entry: int, rows: int) -> None:
    """Show `rows` free rows of the entry's kind under its pattern. A negative number removes rows."""
    kind = board.kind[entry]
    board.shown[entry] += rows
    board.size[board.pattern[entry]] += rows
    board.free[kind] -= rows
    for other in range(board.kind_start[kind], board.kind_start[kind + 1]):
        board.waiting[board.pattern[other]] -= rows


@compiled
def entry_of(board: Board, kind: int, pattern: int) -> int:
    """Return the entry of a kind under a pattern, or -1 if the pattern does not fit."""
    for entry in range(board.kind_start[kind], board.kind_start[kind + 1]):
        if board.pattern[entry] == pattern:
            return entry
    return -1


@compiled
def price(board: Board, pattern: int | np.integer[Any], k: int) -> float:
    """Return the stars per waiting row under a pattern; borrowed rows count as if they had no stars yet."""
    cost: float = board.cost[pattern]
    waiting = board.waiting[pattern]
    return cost if board.size[pattern] > 0 or waiting >= k else cost * k / waiting


@compiled
def find_lenders(  # noqa: PLR0917  (compiled: positional arguments)
    board: Board, pattern: int, need: int, k: int, state: State, lender: Int64, lent: Int64
) -> tuple[int, float]:
    """Find rows to lend to a pattern, the cheapest first, in groups of more than k rows.

    Return the number of lenders and the stars added; entries and rows are written to `lender` and `lent`. The
    number is -1 if the entries examined have too few rows.
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
    """Move rows of an entry to another pattern; return their new entry."""
    target = entry_of(board, board.kind[entry], pattern)
    board.shown[entry] -= rows
    board.size[board.pattern[entry]] -= rows
    board.shown[target] += rows
    board.size[pattern] += rows
    return target


def fewest_stars(board: Board, k: int) -> Board:
    """Return a board with all rows placed, at least k under each pattern in use, and few stars.

    Cost: up to about 30 µs for each of `TRIES` groups, twice on boards with few entries.
    Error: a local optimum; the greedy start alone has a few percent more stars.
    """
    state = np.array([0x9E3779B97F4A7C15], dtype=np.uint64)
    start_greedily(board, k, state)
    place_the_rest(board, k)
    close, entries = narrow_board(board, k)
    search_locally(close, k, state)
    board = with_shown(board, entries, close.shown)
    search_locally(board, k, state, wide_tries(board.pattern.size))
    return board


def wide_tries(entries: int) -> int:
    """Return the number of groups to dissolve on a board with costlier patterns."""
    share = (MOST_WIDE - entries) / (MOST_WIDE - FULL_WIDE)
    return int(TRIES * min(max(share, 0.0), 1.0))


def search_locally(board: Board, k: int, state: State, most: int = TRIES) -> None:
    """Dissolve groups and place their rows again until nothing more is saved, or `most` groups were tried."""
    work = new_buffers(board, k)
    idle, tries, done = 0, 0, 0
    while done < most:
        groups = np.flatnonzero((board.size > 0) & (board.cost > 0))
        if not groups.size or (idle >= PATIENCE and tries >= LEAST_TRIES):
            return
        saved = improve(board, work, groups, k, state) > EPSILON
        done += groups.size
        idle, tries = (0, 0) if saved else (idle + 1, tries + groups.size)


@compiled
def sift(prices: NDArray[np.float64], heap: Int64, size: int, at: int) -> None:
    """Move an item of a binary heap down to its position."""
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
    """Open patterns by increasing cost until no waiting row can be placed in this way."""
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
            prices[pattern] = price(board, pattern, k)  # other patterns took some of its rows: reinsert it
        else:
            open_pattern(board, pattern, k, state, lender, lent)
            size -= 1
            heap[0] = heap[size]
        sift(prices, heap, size, 0)


@compiled
def open_pattern(  # noqa: PLR0917  (compiled: positional arguments)
    board: Board, pattern: int, k: int, state: State, lender: Int64, lent: Int64
) -> None:
    """Place all rows that wait for a pattern, if with borrowed rows there are at least k."""
    waiting = board.waiting[pattern]
    need = k - board.size[pattern] - waiting
    lenders = 0
    if waiting > 0 and need > 0:
        lenders, _ = find_lenders(board, pattern, need, k, state, lender, lent)
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
    """Place the remaining rows under the cheapest open pattern, or under only stars.

    If fewer than k rows have only stars, the groups whose rows need the fewest additional stars join them.
    """
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


class SearchBuffers(NamedTuple):
    """Preallocated arrays for one step: groups, lenders, moves, freed kinds and candidate patterns."""

    most_rows: int
    chosen: Int64
    lender: Int64
    lent: Int64
    entry: Int64
    moved: Int64
    freed: Int64
    candidates: Int64
    marked: NDArray[np.bool_]


def new_buffers(board: Board, k: int) -> SearchBuffers:
    """Return buffers for groups of about k rows."""
    most_rows = max(8 * k, 64)
    rows = (LARGEST + 1) * most_rows
    return SearchBuffers(
        most_rows,
        np.empty(TOGETHER, np.int64),
        np.empty(LENDERS, np.int64),
        np.empty(LENDERS, np.int64),
        np.empty(4 * rows + 2 * LENDERS, np.int64),
        np.empty(4 * rows + 2 * LENDERS, np.int64),
        np.empty(rows, np.int64),
        np.empty(1 << 17, np.int64),
        np.zeros(board.cost.size, np.bool_),
    )


@compiled
def improve(board: Board, work: SearchBuffers, groups: Int64, k: int, state: State) -> float:
    """Dissolve every group once, with some neighbours, and place the rows again; return the stars saved.

    A result with more stars is undone. A result with equally many stars is kept, since it may lead to a
    better result.
    """
    saved = 0.0
    for i in range(groups.size - 1, 0, -1):
        j = draw(state, i + 1)
        groups[i], groups[j] = groups[j], groups[i]
    for first in groups:
        if 0 < board.size[first] <= LARGEST * work.most_rows:
            count = neighbours(board, work, first, state)
            before, kinds, fitting = dissolve(board, work, count)
            after, logged = place_freed(board, work, before, kinds, fitting, k, state)
            if after <= before + EPSILON:
                saved += before - after
            else:
                undo(board, work, kinds, logged)
    return saved


@compiled
def neighbours(board: Board, work: SearchBuffers, first: int, state: State) -> int:
    """Choose groups with rows similar to the rows of the first group; return the number of groups."""
    work.chosen[0] = first
    count, rows = 1, board.size[first]
    target = 1 + draw(state, work.chosen.size)
    for _ in range(32):
        if count >= target:
            break
        other = relative(board, work.chosen[draw(state, count)], state)
        for entry in range(board.kind_start[other], board.kind_start[other + 1]):
            pattern = board.pattern[entry]
            small = board.cost[pattern] > 0 or board.size[pattern] < work.most_rows // 4
            if not (board.shown[entry] > 0 and small and rows + board.size[pattern] <= work.most_rows):
                continue
            if count < target and not np.any(work.chosen[:count] == pattern):
                work.chosen[count] = pattern
                rows += board.size[pattern]
                count += 1
    return count


@compiled
def relative(board: Board, group: int, state: State) -> int:
    """Return a kind that shares a pattern with a row of the group."""
    low, width = board.start[group], board.start[group + 1] - board.start[group]
    at = draw(state, width)
    for _ in range(min(width, 2000)):  # skip entries without rows in the group
        if board.shown[board.entries[low + at]] > 0:
            break
        at = (at + 1) % width
    kind = board.kind[board.entries[low + at]]
    begin, end = board.kind_start[kind], board.kind_start[kind + 1]
    common = board.pattern[begin + draw(state, end - begin)]
    low, width = board.start[common], board.start[common + 1] - board.start[common]
    return int(board.kind[board.entries[low + draw(state, width)]])


@compiled
def dissolve(board: Board, work: SearchBuffers, count: int) -> tuple[float, int, int]:
    """Free the rows of the chosen groups; return their stars, their kinds and the number of candidates."""
    before, kinds, fitting = 0.0, 0, 0
    for pattern in work.chosen[:count]:
        before += board.cost[pattern] * board.size[pattern]
        for at in range(board.start[pattern], board.start[pattern + 1]):
            entry = board.entries[at]
            if board.shown[entry] == 0:
                continue
            kind = board.kind[entry]
            work.entry[kinds], work.moved[kinds] = entry, -board.shown[entry]
            place(board, entry, -board.shown[entry])
            work.freed[kinds] = kind
            kinds += 1
            for other in range(board.kind_start[kind], board.kind_start[kind + 1]):
                own = board.pattern[other]
                if not work.marked[own] and fitting < work.candidates.size:
                    work.marked[own] = True
                    work.candidates[fitting] = own
                    fitting += 1
    for pattern in work.candidates[:fitting]:
        work.marked[pattern] = False
    return before, kinds, fitting


@compiled
def place_freed(  # noqa: PLR0917  (compiled: positional arguments)
    board: Board, work: SearchBuffers, before: float, kinds: int, fitting: int, k: int, state: State
) -> tuple[float, int]:
    """Place the freed rows greedily, by costs with noise; return the stars and the number of moves.

    The stars are infinite if a row could not be placed, or if there are more stars than before.
    """
    after, logged, waiting = 0.0, kinds, kinds
    while waiting > 0 and after <= before + EPSILON:
        best, fitting = cheapest(board, work, fitting, k, state)
        if best < 0:
            break
        pattern = work.candidates[best]
        need = k - board.size[pattern] - board.waiting[pattern]
        lenders, extra = 0, 0.0
        if need > 0:
            lenders, extra = find_lenders(board, pattern, need, k, state, work.lender, work.lent)
        if lenders < 0 or logged + waiting + 2 * lenders > work.entry.size:
            fitting -= 1
            work.candidates[best] = work.candidates[fitting]
            continue
        after += board.waiting[pattern] * board.cost[pattern] + extra
        for kind in work.freed[:kinds]:
            entry = entry_of(board, kind, pattern) if board.free[kind] > 0 else -1
            if entry >= 0:
                work.entry[logged], work.moved[logged] = entry, board.free[kind]
                place(board, entry, board.free[kind])
                logged, waiting = logged + 1, waiting - 1
        for i in range(lenders):
            work.entry[logged], work.moved[logged] = work.lender[i], -work.lent[i]
            work.entry[logged + 1] = lend(board, work.lender[i], pattern, work.lent[i])
            work.moved[logged + 1] = work.lent[i]
            logged += 2
    for kind in work.freed[:kinds]:
        if board.free[kind] > 0:
            return np.inf, logged
    return after, logged


@compiled
def cheapest(board: Board, work: SearchBuffers, fitting: int, k: int, state: State) -> tuple[int, int]:
    """Return the index of the cheapest candidate, -1 if there is none, and the number of candidates left.

    Candidates that no row waits for are dropped.
    """
    best, least = -1, np.inf
    at = 0
    while at < fitting:
        pattern = work.candidates[at]
        if board.waiting[pattern] == 0:
            fitting -= 1
            work.candidates[at] = work.candidates[fitting]
            continue
        cost = price(board, pattern, k) * (1.0 + NOISE * draw(state, 1024) / 1024.0)
        if cost == 0.0 and draw(state, DETOUR) == 0:
            cost = DEAR * draw(state, 1024) / 1024.0
        if cost < least:
            best, least = at, cost
        at += 1
    return best, fitting


@compiled
def undo(board: Board, work: SearchBuffers, kinds: int, logged: int) -> None:
    """Undo all moves, so that every row is placed as before."""
    for i in range(logged):
        board.shown[work.entry[i]] -= work.moved[i]
        board.size[board.pattern[work.entry[i]]] -= work.moved[i]
    for kind in work.freed[:kinds]:
        left = board.free[kind]
        board.free[kind] = 0
        for entry in range(board.kind_start[kind], board.kind_start[kind + 1]):
            board.waiting[board.pattern[entry]] -= left
