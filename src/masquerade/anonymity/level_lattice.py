"""Which combinations of levels are worth a look: all of them, or those that occur in parts of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.board import Node
from masquerade.anonymity.cover import lean_cover, partition
from masquerade.anonymity.row_classes import Kinds

Int64 = NDArray[np.int64]

MOST_ENTRIES = 64_000_000  # kinds times nodes: about 24 bytes each
BLOCK = 256  # rows compared pair by pair
BLOCKS = 48


def nodes_for(kinds: Kinds, k: int) -> list[Node]:
    """Return the nodes to search, the one of stars alone last.

    With few quasi-identifiers these are all combinations of levels. With many, Meyerson & Williams's
    algorithm runs inside blocks of similar rows, and the nodes of the groups that it finds are taken,
    frequent ones first, then those one level away from them.
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
        beside.update(dict.fromkeys(one_level_away(node, kinds.root), times))
    usable = max(MOST_ENTRIES // max(len(kinds.weights), 1) - 1, 1)
    ranked = sorted(beside | seen, key=lambda node: (node not in seen, -seen[node], -beside[node], node))
    chosen = [node for node in ranked if node != kinds.root][:usable]
    return [*sorted(chosen, key=lambda node: (sum(node), node)), kinds.root]


def one_level_away(node: Node, root: Node) -> Iterator[Node]:
    """Yield the nodes that differ from one by a level in a column."""
    for place, level in enumerate(node):
        for other in (level - 1, level + 1):
            if 0 <= other <= root[place]:
                yield (*node[:place], other, *node[place + 1 :])


def blocks(codes: Int64, most: int) -> Iterator[Int64]:
    """Yield the rows in blocks, halved at the median of the column with most values, as Mondrian does."""
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
    """Return for every group the lowest level of each column at which its members agree.

    `members` are kinds, `groups` their group, numbered from 0.
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
