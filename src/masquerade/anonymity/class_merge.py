"""Classes that tell too much of a sensitive column are put together with others, the nearest first.

What is required of classes holds for two of them together if it holds for both, and for the table as a whole
(which is checked before), so this ends: each step leaves one class fewer.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.columns import Int64
from masquerade.anonymity.lattice import Kinds
from masquerade.anonymity.requirements import ClassCells, Requirement, cells_of
from masquerade.core.errors import InputError
from masquerade.kernels.jit import compiled

NEAREST = 64  # classes of which one is taken that mends the other, if there is one

Floats = NDArray[np.float64]


class SensitiveColumn(NamedTuple):
    """The codes of a sensitive column, their shares in the table, and what is required of its classes."""

    name: str
    codes: Int64
    overall: Floats
    required: tuple[Requirement, ...]


class Ladders(NamedTuple):
    """The levels of all columns in two tables: of column, level and value, the last level repeated."""

    codes: NDArray[np.int64]
    loss: Floats
    tops: Int64


def check_whole(columns: Sequence[SensitiveColumn]) -> None:
    """Refuse what not even the table as one class would meet."""
    problems = []
    for column in columns:
        rows = len(column.codes)
        whole = cells_of(np.zeros(rows, np.int64), column.codes, np.array([rows]), column.overall)
        problems += [
            f"column {column.name!r}: the whole table is not {required}; require less, or leave it out."
            for required in column.required
            if rows and not required.met(whole)[0]
        ]
    if problems:
        raise InputError(" ".join(problems))


def merged_levels(
    kinds: Kinds, kind: Int64, levels: NDArray[np.int8], groups: Int64, columns: Sequence[SensitiveColumn]
) -> NDArray[np.int8]:
    """Return how every row is shown after classes were put together until all of them meet what is required.

    Cost: O(classes · quasi-identifiers) for each class that does not. Error: greedy, no optimum.
    """
    count = int(groups.max(initial=-1)) + 1
    sizes = np.bincount(groups, minlength=count)
    order = np.argsort(groups, kind="stable")
    begin = np.concatenate([[0], np.cumsum(sizes)])
    some = order[begin[:-1]]  # a row of each class
    values, shown = kinds.codes[kind[some]], levels[some].astype(np.int64)
    ladders = _ladders(kinds)
    counts: dict[int, list[Int64]] = {}  # of classes that were looked at: by column, rows of every value
    met = np.ones(count, dtype=bool)
    for column in columns:
        cells = cells_of(groups, column.codes, sizes, column.overall)
        for required in column.required:
            met &= required.met(cells)

    def counted(own: int) -> list[Int64]:
        if own not in counts:
            rows = order[begin[own] : begin[own + 1]]
            counts[own] = [np.bincount(c.codes[rows], minlength=len(c.overall)) for c in columns]
        return counts[own]

    now = np.arange(count)  # where a class went
    alive = np.ones(count, dtype=np.bool_)
    waiting = [(int(sizes[own]), int(own)) for own in np.flatnonzero(~met)]
    heapq.heapify(waiting)
    added = np.empty(count)
    while waiting:
        _, own = heapq.heappop(waiting)
        if not alive[own] or met[own]:
            continue
        costs_of_joining(own, values, shown, sizes, alive, ladders, added)
        near = _lowest(added)
        together = [[a + b for a, b in zip(counted(own), counted(int(o)), strict=True)] for o in near]
        good = _meeting(together, columns)
        best = int(np.argmax(good)) if good.any() else 0
        other = int(near[best])
        join(own, other, values, shown, ladders)
        counts[own] = together[best]
        counts.pop(other, None)
        sizes[own] += sizes[other]
        alive[other], now[other], met[own] = False, own, good[best]
        if not met[own]:
            heapq.heappush(waiting, (int(sizes[own]), own))
    while (now[now] != now).any():
        now = now[now]
    found: NDArray[np.int8] = shown[now[groups]].astype(np.int8)
    return found


def _lowest(added: Floats) -> Int64:
    """Return the places of the lowest costs, in their order."""
    near = np.argpartition(added, NEAREST)[:NEAREST] if len(added) > NEAREST else np.arange(len(added))
    near = near[np.isfinite(added[near])]
    return near[np.lexsort((near, added[near]))]


def _meeting(classes: Sequence[Sequence[Int64]], columns: Sequence[SensitiveColumn]) -> NDArray[np.bool_]:
    """Tell for classes, given by their counts, whether all that is required holds."""
    good = np.ones(len(classes), dtype=bool)
    for place, column in enumerate(columns):
        table = np.stack([own[place] for own in classes])
        owner, value = np.nonzero(table)
        cells = ClassCells(owner, value, table[owner, value], table.sum(axis=1), column.overall)
        for required in column.required:
            good &= required.met(cells)
    return good


def _ladders(kinds: Kinds) -> Ladders:
    tops = np.array(kinds.root, dtype=np.int64)
    most = max((len(ladder.codes[0]) for ladder in kinds.ladders), default=0)
    shape = (len(tops), int(tops.max(initial=0)) + 1, most)
    codes, loss = np.zeros(shape, dtype=np.int64), np.zeros(shape)
    for place, ladder in enumerate(kinds.ladders):
        for level, (words, losses) in enumerate(zip(ladder.codes, ladder.loss, strict=True)):
            codes[place, level, : len(words)] = words
            loss[place, level, : len(losses)] = losses
    return Ladders(codes, loss, tops)


@compiled
def level_of_both(place: int, a: int, b: int, level: int, ladders: Ladders) -> int:
    """Return the lowest level, from the given one, at which two values of a column look alike."""
    while level < ladders.tops[place] and ladders.codes[place, level, a] != ladders.codes[place, level, b]:
        level += 1
    return level


@compiled
def costs_of_joining(  # noqa: PLR0917  (compiled: arguments by place)
    own: int,
    values: Int64,
    shown: Int64,
    sizes: Int64,
    alive: NDArray[np.bool_],
    ladders: Ladders,
    added: Floats,
) -> None:
    """Write the loss that is added if a class is put together with each other one, infinite for none."""
    for other in range(sizes.size):
        added[other] = np.inf
        if other == own or not alive[other]:
            continue
        total = 0.0
        for place in range(ladders.tops.size):
            a, b = values[own, place], values[other, place]
            low, high = shown[own, place], shown[other, place]
            level = level_of_both(place, a, b, max(low, high), ladders)
            loss = ladders.loss[place, level, a]
            total += sizes[own] * (loss - ladders.loss[place, low, a])
            total += sizes[other] * (loss - ladders.loss[place, high, b])
        added[other] = total


@compiled
def join(own: int, other: int, values: Int64, shown: Int64, ladders: Ladders) -> None:
    """Show a class as fine as it and another one look alike."""
    for place in range(ladders.tops.size):
        level = max(shown[own, place], shown[other, place])
        shown[own, place] = level_of_both(place, values[own, place], values[other, place], level, ladders)
