"""Kinds of rows, the lattice of generalisation levels, and the choice of nodes to search.

Rows that agree in every quasi-identifier are one kind. A node is a choice of one level per quasi-identifier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.columns import Int64, row_keys
from masquerade.anonymity.suppression import lean_cover, partition

Node = tuple[int, ...]  # a level of generalisation for every quasi-identifier
MOST_ENTRIES = 64_000_000  # kinds times nodes: 4 bytes each, and 24 bytes for each entry kept
BLOCK = 256  # number of rows of a block, whose pairs are compared
BLOCKS = 48  # number of blocks examined


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """Levels of one quasi-identifier: level 0 is the value itself, the last level a star for all values.

    ``codes[level][value]`` is the generalised value; ``loss[level][value]`` is the information lost: 0 for
    the value itself, otherwise the share of values with the same generalised value.
    """

    codes: tuple[Int64, ...]
    loss: tuple[NDArray[np.float64], ...]

    @classmethod
    def build(cls, values: int, between: Sequence[Int64] = ()) -> Ladder:
        """Return the levels of a column: its values, the levels in `between`, and a star.

        >>> Ladder.build(3, [np.array([0, 0, 1])]).loss[1].round(2).tolist()
        [0.67, 0.67, 0.33]
        """
        codes = (np.arange(values), *between, np.zeros(values, dtype=np.int64))
        loss = [np.zeros(values)]
        loss += [np.bincount(level, minlength=1)[level] / max(values, 1) for level in codes[1:]]
        return cls(codes, tuple(loss))

    @property
    def top(self) -> int:
        """Return the level of the star."""
        return len(self.codes) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """Sorted distinct rows, the number of rows of each, and the levels of every column."""

    codes: Int64
    weights: Int64
    ladders: tuple[Ladder, ...]

    @property
    def root(self) -> tuple[int, ...]:
        """Return the node at which every cell is a star."""
        return tuple(ladder.top for ladder in self.ladders)

    def keys_at(self, node: Sequence[int]) -> Int64:
        """Return one number per kind; kinds with the same number look the same at a node."""
        shown = [
            (ladder.codes[level], column)
            for ladder, level, column in zip(self.ladders, node, self.codes.T, strict=True)
            if level < ladder.top
        ]
        sizes = [int(codes.max(initial=0)) + 1 for codes, _ in shown]
        return row_keys([codes[column] for codes, column in shown], sizes, rows=len(self.weights))

    def loss_at(self, node: Sequence[int]) -> NDArray[np.float64]:
        """Return the loss of a row of each kind at a node, in stars."""
        loss = np.zeros(len(self.weights))
        for ladder, level, column in zip(self.ladders, node, self.codes.T, strict=True):
            if level:
                loss += ladder.loss[level][column]
        return loss


def nodes_for(kinds: Kinds, k: int) -> list[Node]:
    """Return the nodes to search; at the last node, every cell is a star.

    With few quasi-identifiers, these are all combinations of levels. With many, the algorithm of Meyerson &
    Williams groups blocks of similar rows. The nodes of these groups are chosen, frequent nodes first, then
    nodes that differ from them by one level in one column.
    """
    levels = [range(ladder.top + 1) for ladder in kinds.ladders]
    count = prod(map(len, levels))
    if count * len(kinds.weights) <= MOST_ENTRIES:
        return sorted(product(*levels), key=lambda node: (node == kinds.root, sum(node), node))
    seen: Counter[Node] = Counter()
    every = list(blocks(kinds.codes, BLOCK))
    for block in every[:: max(len(every) // BLOCKS, 1)]:
        rows = np.repeat(block, np.minimum(kinds.weights[block], k))[: 4 * BLOCK]
        if len(rows) >= k:
            groups = partition(kinds.codes[rows], k, lean_cover)
            for node in finest_nodes(kinds, rows, groups):
                seen[tuple(map(int, node))] += 1
    seen[tuple(0 for _ in levels)] += 1
    beside: Counter[Node] = Counter()
    for node, times in seen.items():
        for place, top in enumerate(kinds.root):  # neighbours: one level up or down in one column
            for level in (node[place] - 1, node[place] + 1):
                if 0 <= level <= top:
                    beside[*node[:place], level, *node[place + 1 :]] += times
    usable = max(MOST_ENTRIES // max(len(kinds.weights), 1) - 1, 1)
    ranked = sorted(beside | seen, key=lambda node: (node not in seen, -seen[node], -beside[node], node))
    chosen = [node for node in ranked if node != kinds.root][:usable]
    return [*sorted(chosen, key=lambda node: (sum(node), node)), kinds.root]


def blocks(codes: Int64, most: int) -> Iterator[Int64]:
    """Yield blocks of rows, split at the median of the column with most values, as in Mondrian."""
    waiting = [np.arange(len(codes))]
    while waiting:
        rows = waiting.pop()
        if len(rows) <= most:
            yield rows
            continue
        own = codes[rows]
        column = int(np.argmax([len(np.unique(values)) for values in own.T]))
        order = np.argsort(own[:, column], kind="stable")
        half = len(rows) // 2
        waiting += [rows[order[half:]], rows[order[:half]]]


def finest_nodes(kinds: Kinds, members: Int64, groups: NDArray[np.intp]) -> NDArray[np.int8]:
    """Return, for every group, the lowest level of each column at which its members agree.

    `members` are kinds; `groups` has the group of each member, numbered from 0.
    """
    count = int(groups.max(initial=-1)) + 1
    nodes = np.empty((count, len(kinds.ladders)), dtype=np.int8)
    for place, ladder in enumerate(kinds.ladders):
        nodes[:, place] = ladder.top
        for level in range(ladder.top - 1, -1, -1):
            words = ladder.codes[level][kinds.codes[members, place]]
            lowest = np.full(count, np.iinfo(np.int64).max)
            highest = np.full(count, -1)
            np.minimum.at(lowest, groups, words)
            np.maximum.at(highest, groups, words)
            nodes[lowest == highest, place] = level
    return nodes
