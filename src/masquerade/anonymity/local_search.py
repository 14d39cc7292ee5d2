"""Few stars: a greedy placing of all rows, then a local search that never adds any.

The greedy step is Meyerson & Williams's, with patterns in place of balls: the pattern that costs its waiting
rows least comes first, and rows that are missing to k are borrowed from groups that can spare them. The local
search dissolves some groups, places their rows anew, and keeps what is no worse.
All of it happens on a board, see `board`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.board import EPSILON, Board, narrowed, with_shown
from masquerade.anonymity.columns import Int64
from masquerade.kernels.jit import compiled

State = NDArray[np.uint64]
SCAN = 256  # entries looked at for rows to borrow, before what was found is taken
FAR = 8 * SCAN  # and at most, if that is not enough
LENDERS = 512
TRIES = 120_000  # groups dissolved, to the end of a round over all of them
MOST_WIDE = 2_000_000  # entries of a board that is searched again with dearer patterns, for the last percent
PATIENCE, LEAST_TRIES = 60, 2_000  # rounds, and groups dissolved, without saving a star
TOGETHER = 4  # groups dissolved at a time, at most
NOISE = 1.5  # prices are raised at random by up to this share, so that other choices are tried
DETOUR, DEAR = 4, 4.0  # one in so many times, a pattern without stars is not free but costs up to this
LARGEST = 8  # a group of more than so many times `most_rows` is left alone


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


def fewest_stars(board: Board, k: int) -> Board:
    """Return a board with all rows under patterns that each show at least k of them, with few stars.

    Cost: up to about 30 µs for each of `TRIES`.
    Error: a local optimum; the greedy start alone needs some percent more stars.
    """
    state = np.array([0x9E3779B97F4A7C15], dtype=np.uint64)
    start_greedily(board, k, state)
    place_the_rest(board, k)
    close, entries = narrowed(board, k)
    search(close, k, state)
    board = with_shown(board, entries, close.shown)
    if board.pattern.size <= MOST_WIDE:
        search(board, k, state)
    return board


def search(board: Board, k: int, state: State) -> None:
    """Dissolve groups and place their rows anew, until that saves no star for long, or often enough."""
    desk = new_desk(board, k)
    idle, tries, done = 0, 0, 0
    while done < TRIES:
        groups = np.flatnonzero((board.size > 0) & (board.cost > 0))
        if not groups.size or (idle >= PATIENCE and tries >= LEAST_TRIES):
            return
        saved = improve(board, desk, groups, k, state) > EPSILON
        done += groups.size
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


class Desk(NamedTuple):
    """Room for one attempt: groups, rows to borrow, moves, kinds set free and patterns that fit them."""

    most_rows: int
    chosen: Int64
    lender: Int64
    lent: Int64
    entry: Int64
    moved: Int64
    freed: Int64
    candidates: Int64
    marked: NDArray[np.bool_]


def new_desk(board: Board, k: int) -> Desk:
    """Return a desk for groups of about k rows."""
    most_rows = max(8 * k, 64)
    rows = (LARGEST + 1) * most_rows
    return Desk(
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
def improve(board: Board, desk: Desk, groups: Int64, k: int, state: State) -> float:
    """Dissolve every group once, with some neighbours, and place the rows anew; return the stars saved.

    What would need more stars is undone; what needs as many is kept, since it may lead on.
    """
    saved = 0.0
    for i in range(groups.size - 1, 0, -1):
        j = draw(state, i + 1)
        groups[i], groups[j] = groups[j], groups[i]
    for first in groups:
        if 0 < board.size[first] <= LARGEST * desk.most_rows:
            count = neighbours(board, desk, first, state)
            before, kinds, fitting = dissolve(board, desk, count)
            after, logged = place_anew(board, desk, before, kinds, fitting, k, state)
            if after <= before + EPSILON:
                saved += before - after
            else:
                undo(board, desk, kinds, logged)
    return saved


@compiled
def neighbours(board: Board, desk: Desk, first: int, state: State) -> int:
    """Choose groups whose rows have something in common with those of the first; return how many."""
    desk.chosen[0] = first
    count, rows = 1, board.size[first]
    wanted = 1 + draw(state, desk.chosen.size)
    for _ in range(32):
        if count >= wanted:
            break
        other = relative(board, desk.chosen[draw(state, count)], state)
        for entry in range(board.kind_start[other], board.kind_start[other + 1]):
            pattern = board.pattern[entry]
            small = board.cost[pattern] > 0 or board.size[pattern] < desk.most_rows // 4
            if not (board.shown[entry] > 0 and small and rows + board.size[pattern] <= desk.most_rows):
                continue
            if count < wanted and not np.any(desk.chosen[:count] == pattern):
                desk.chosen[count] = pattern
                rows += board.size[pattern]
                count += 1
    return count


@compiled
def relative(board: Board, group: int, state: State) -> int:
    """Return a kind that fits some pattern of a row of the group."""
    low, width = board.start[group], board.start[group + 1] - board.start[group]
    at = draw(state, width)
    for _ in range(min(width, 2000)):  # until a row that is in the group
        if board.shown[board.entries[low + at]] > 0:
            break
        at = (at + 1) % width
    kind = board.kind[board.entries[low + at]]
    begin, end = board.kind_start[kind], board.kind_start[kind + 1]
    common = board.pattern[begin + draw(state, end - begin)]
    low, width = board.start[common], board.start[common + 1] - board.start[common]
    return int(board.kind[board.entries[low + draw(state, width)]])


@compiled
def dissolve(board: Board, desk: Desk, count: int) -> tuple[float, int, int]:
    """Set the rows of the chosen groups free; return their stars, kinds and how many patterns fit them."""
    before, kinds, fitting = 0.0, 0, 0
    for pattern in desk.chosen[:count]:
        before += board.cost[pattern] * board.size[pattern]
        for at in range(board.start[pattern], board.start[pattern + 1]):
            entry = board.entries[at]
            if board.shown[entry] == 0:
                continue
            kind = board.kind[entry]
            desk.entry[kinds], desk.moved[kinds] = entry, -board.shown[entry]
            place(board, entry, -board.shown[entry])
            desk.freed[kinds] = kind
            kinds += 1
            for other in range(board.kind_start[kind], board.kind_start[kind + 1]):
                own = board.pattern[other]
                if not desk.marked[own] and fitting < desk.candidates.size:
                    desk.marked[own] = True
                    desk.candidates[fitting] = own
                    fitting += 1
    for pattern in desk.candidates[:fitting]:
        desk.marked[pattern] = False
    return before, kinds, fitting


@compiled
def place_anew(  # noqa: PLR0917  (compiled: arguments by place)
    board: Board, desk: Desk, before: float, kinds: int, fitting: int, k: int, state: State
) -> tuple[float, int]:
    """Place what was set free greedily, by prices with noise; return the stars, and how many moves.

    The stars are infinite if somebody found no place, or if there are more than before.
    """
    after, logged, waiting = 0.0, kinds, kinds
    while waiting > 0 and after <= before + EPSILON:
        best, fitting = cheapest(board, desk, fitting, k, state)
        if best < 0:
            break
        pattern = desk.candidates[best]
        need = k - board.size[pattern] - board.waiting[pattern]
        lenders, extra = 0, 0.0
        if need > 0:
            lenders, extra = borrowed(board, pattern, need, k, state, desk.lender, desk.lent)
        if lenders < 0 or logged + waiting + 2 * lenders > desk.entry.size:
            fitting -= 1
            desk.candidates[best] = desk.candidates[fitting]
            continue
        after += board.waiting[pattern] * board.cost[pattern] + extra
        for kind in desk.freed[:kinds]:
            entry = entry_of(board, kind, pattern) if board.free[kind] > 0 else -1
            if entry >= 0:
                desk.entry[logged], desk.moved[logged] = entry, board.free[kind]
                place(board, entry, board.free[kind])
                logged, waiting = logged + 1, waiting - 1
        for i in range(lenders):
            desk.entry[logged], desk.moved[logged] = desk.lender[i], -desk.lent[i]
            desk.entry[logged + 1] = lend(board, desk.lender[i], pattern, desk.lent[i])
            desk.moved[logged + 1] = desk.lent[i]
            logged += 2
    for kind in desk.freed[:kinds]:
        if board.free[kind] > 0:
            return np.inf, logged
    return after, logged


@compiled
def cheapest(board: Board, desk: Desk, fitting: int, k: int, state: State) -> tuple[int, int]:
    """Return where the candidate with the lowest price is, -1 if nobody waits for any; drop those."""
    best, least = -1, np.inf
    at = 0
    while at < fitting:
        pattern = desk.candidates[at]
        if board.waiting[pattern] == 0:
            fitting -= 1
            desk.candidates[at] = desk.candidates[fitting]
            continue
        asked = price(board, pattern, k) * (1.0 + NOISE * draw(state, 1024) / 1024.0)
        if asked == 0.0 and draw(state, DETOUR) == 0:
            asked = DEAR * draw(state, 1024) / 1024.0
        if asked < least:
            best, least = at, asked
        at += 1
    return best, fitting


@compiled
def undo(board: Board, desk: Desk, kinds: int, logged: int) -> None:
    """Take back all moves; nobody is free any more."""
    for i in range(logged):
        board.shown[desk.entry[i]] -= desk.moved[i]
        board.size[board.pattern[desk.entry[i]]] -= desk.moved[i]
    for kind in desk.freed[:kinds]:
        left = board.free[kind]
        board.free[kind] = 0
        for entry in range(board.kind_start[kind], board.kind_start[kind + 1]):
            board.waiting[board.pattern[entry]] -= left
