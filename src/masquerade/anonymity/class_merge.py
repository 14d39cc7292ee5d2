"""Merge classes that reveal too much about a sensitive column with their nearest classes.

If a requirement holds for two classes, it holds for their union. `check_whole` ensures in advance that it
holds for the whole table. Each merge reduces the number of classes by one, so merging always succeeds.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.columns import Int64
from masquerade.anonymity.lattice import Kinds
from masquerade.anonymity.requirements import ClassCells, Requirement, count_cells
from masquerade.core.errors import InputError
from masquerade.kernels.jit import compiled

NEAREST = 64  # number of nearest classes that are tried; the first whose union meets all requirements is used

Floats = NDArray[np.float64]


class SensitiveColumn(NamedTuple):
    """A sensitive column: its codes, the shares of its values in the table, and its requirements."""

    name: str
    codes: Int64
    overall: Floats
    required: tuple[Requirement, ...]


class Ladders(NamedTuple):
    """Levels of all columns as arrays over column, level and value, padded with zeros.

    `tops` are the levels at which every value is a star.
    """

    codes: NDArray[np.int64]
    loss: Floats
    tops: Int64


def check_whole(columns: Sequence[SensitiveColumn]) -> None:
    """Raise InputError if not even the whole table, as one class, meets the requirements."""
    problems = []
    for column in columns:
        rows = len(column.codes)
        one_class = count_cells(np.zeros(rows, np.int64), column.codes, np.array([rows]), column.overall)
        problems += [
            f"column {column.name!r}: the whole table is not {required}; require less, or omit it."
            for required in column.required
            if rows and not required.holds_for(one_class)[0]
        ]
    if problems:
        raise InputError(" ".join(problems))


def merge_classes(
    kinds: Kinds, kind: Int64, levels: NDArray[np.int8], groups: Int64, columns: Sequence[SensitiveColumn]
) -> NDArray[np.int8]:
    """Return the levels of every row after merging classes until all of them meet the requirements.

    Cost: O(classes · quasi-identifiers) for each class that does not meet them. Error: greedy, so not
    optimal.
    """
    count = int(groups.max(initial=-1)) + 1
    sizes = np.bincount(groups, minlength=count)
    order = np.argsort(groups, kind="stable")
    begin = np.concatenate([[0], np.cumsum(sizes)])
    some = order[begin[:-1]]  # a row of each class
    values, shown = kinds.codes[kind[some]], levels[some].astype(np.int64)
    ladders = _ladders(kinds)
    counts: dict[int, list[Int64]] = {}  # rows of every value, by column, of the classes examined so far
    is_met = np.ones(count, dtype=bool)
    for column in columns:
        cells = count_cells(groups, column.codes, sizes, column.overall)
        for required in column.required:
            is_met &= required.holds_for(cells)

    def class_counts(current: int) -> list[Int64]:
        if current not in counts:
            rows = order[begin[current] : begin[current + 1]]
            counts[current] = [np.bincount(c.codes[rows], minlength=len(c.overall)) for c in columns]
        return counts[current]

    now = np.arange(count)  # the class that each class was merged into
    alive = np.ones(count, dtype=np.bool_)
    waiting = [(int(sizes[current]), int(current)) for current in np.flatnonzero(~is_met)]
    heapq.heapify(waiting)
    added = np.empty(count)
    while waiting:
        _, current = heapq.heappop(waiting)
        if not alive[current] or is_met[current]:
            continue
        merge_costs(current, values, shown, sizes, alive, ladders, added)
        near = _lowest(added)
        together = [
            [a + b for a, b in zip(class_counts(current), class_counts(int(o)), strict=True)] for o in near
        ]
        good = _meeting(together, columns)
        best = int(np.argmax(good)) if good.any() else 0
        other = int(near[best])
        merge_into(current, other, values, shown, ladders)
        counts[current] = together[best]
        counts.pop(other, None)
        sizes[current] += sizes[other]
        alive[other], now[other], is_met[current] = False, current, good[best]
        if not is_met[current]:
            heapq.heappush(waiting, (int(sizes[current]), current))
    while (now[now] != now).any():
        now = now[now]
    found: NDArray[np.int8] = shown[now[groups]].astype(np.int8)
    return found


def _lowest(added: Floats) -> Int64:
    """Return the indices of the `NEAREST` lowest finite costs, sorted by cost."""
    near = np.argpartition(added, NEAREST)[:NEAREST] if len(added) > NEAREST else np.arange(len(added))
    near = near[np.isfinite(added[near])]
    return near[np.lexsort((near, added[near]))]


def _meeting(classes: Sequence[Sequence[Int64]], columns: Sequence[SensitiveColumn]) -> NDArray[np.bool_]:
    """Return True for every class, given by its counts, that meets all requirements."""
    good = np.ones(len(classes), dtype=bool)
    for place, column in enumerate(columns):
        table = np.stack([own[place] for own in classes])
        owner, value = np.nonzero(table)
        cells = ClassCells(owner, value, table[owner, value], table.sum(axis=1), column.overall)
        for required in column.required:
            good &= required.holds_for(cells)
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
    """Return the lowest level, from the given level on, at which two values of a column look the same."""
    while level < ladders.tops[place] and ladders.codes[place, level, a] != ladders.codes[place, level, b]:
        level += 1
    return level


@compiled
def merge_costs(  # noqa: PLR0917  (compiled: positional arguments)
    own: int,
    values: Int64,
    shown: Int64,
    sizes: Int64,
    alive: NDArray[np.bool_],
    ladders: Ladders,
    added: Floats,
) -> None:
    """Write the loss added by merging a class with each other class; infinite if they cannot be merged."""
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
def merge_into(target: int, other: int, values: Int64, levels: Int64, ladders: Ladders) -> None:
    """Raise the levels of a class to the finest levels at which it looks the same as another class."""
    for place in range(ladders.tops.size):
        level = max(levels[target, place], levels[other, place])
        levels[target, place] = level_of_both(
            place, values[target, place], values[other, place], level, ladders
        )
