"""The local search of a suppression: dissolve some groups, place their rows anew, keep what is no worse."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.board import Board, Int64
from masquerade.anonymity.board_moves import LENDERS, State, borrowed, draw, entry_of, lend, place, price
from masquerade.kernels.jit import compiled

TOGETHER = 4  # groups dissolved at a time, at most
NOISE = 1.5  # prices are raised at random by up to this share, so that other choices are tried
DETOUR, DEAR = 4, 4.0  # one in so many times, a pattern without stars is not free but costs up to this
LARGEST = 8  # a group of more than so many times `most_rows` is left alone
EPSILON = 1e-9


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
