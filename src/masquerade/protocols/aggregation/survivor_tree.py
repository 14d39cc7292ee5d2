"""The list of survivors as a tree of hashes with counts: a user sees its own stretch, all sign the same root.

A leaf holds 256 users in the order of the circle, one bit each; a node holds the hashes and the counts of
its two children, and a last one without a sibling goes up as it is. So the root fixes the list and the number
of survivors, and a user who is shown the leaves with its neighbours and their paths receives O(log n) bytes
instead of n bits. A count that a leaf does not have is noticed by every honest user of that leaf, none of
whom then goes on; there is no leaf without users, whose count nobody would notice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from masquerade.crypto.errors import DecodingError
from masquerade.protocols.aggregation.neighbour_graph import Graph
from masquerade.protocols.codec import Fixed, Many, Struct

LEAF_BITS = 256
LEAF_SIZE = LEAF_BITS // 8
COUNT_SIZE = 4
NODE_SIZE = 32 + COUNT_SIZE
MOST_LEAVES = 1 << 16


@dataclass(frozen=True, slots=True)
class Stretch(Struct):
    """Some leaves of the list, and the nodes that lead from them to the root."""

    leaves: Annotated[tuple[Annotated[bytes, Fixed(LEAF_SIZE)], ...], Many(MOST_LEAVES)]
    nodes: Annotated[tuple[Annotated[bytes, Fixed(NODE_SIZE)], ...], Many(MOST_LEAVES)]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a user was shown: the root, the bits of all positions (only its leaves' are known), its leaves."""

    root: bytes
    bits: NDArray[np.bool_]
    leaves: bytes


class SurvivorTree:
    """The server's side: the whole list, by position on the circle."""

    def __init__(self, surviving: NDArray[np.bool_]) -> None:
        padded = np.zeros(leaves_of(len(surviving)) * LEAF_BITS, dtype=bool)
        padded[: len(surviving)] = surviving
        data = np.packbits(padded).tobytes()
        self._leaves = [data[at : at + LEAF_SIZE] for at in range(0, len(data), LEAF_SIZE)]
        self._levels = [[leaf_node(leaf) for leaf in self._leaves]]
        while len(self._levels[-1]) > 1:
            self._levels.append(_above(self._levels[-1]))
        self.root = self._levels[-1][0]  # what survivors sign: hash and count of the whole

    def shown(self, leaves: Sequence[int]) -> Stretch:
        """Return leaves, and the nodes that lead from them to the root."""
        needed = needed_nodes(leaves, len(self._leaves))
        nodes = tuple(self._levels[height][index] for height, index in needed)
        return Stretch(tuple(self._leaves[leaf] for leaf in leaves), nodes)


def needed_nodes(leaves: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Return height and index of the nodes that cannot be computed from some of `count` leaves, bottom up."""
    known, needed, height = set(leaves), [], 0
    while count > 1:
        siblings = {index ^ 1 for index in known} - known
        needed += [(height, index) for index in sorted(siblings) if index < count]
        known, count, height = {index >> 1 for index in known}, -(-count // 2), height + 1
    return needed


def read_shown(stretch: Stretch, leaves: Sequence[int], users: int) -> Shown:
    """Return what leaves and their way to the root say."""
    needed = needed_nodes(leaves, leaves_of(users))
    if (len(stretch.leaves), len(stretch.nodes)) != (len(leaves), len(needed)):
        raise DecodingError(f"The list of survivors has {len(leaves)} leaves and {len(needed)} nodes here.")
    bits = np.zeros(leaves_of(users) * LEAF_BITS, dtype=bool)
    level: dict[int, bytes] = {}
    for leaf, part in zip(leaves, stretch.leaves, strict=True):
        bits[leaf * LEAF_BITS : (leaf + 1) * LEAF_BITS] = np.unpackbits(np.frombuffer(part, dtype=np.uint8))
        level[leaf] = leaf_node(part)
    given = dict(zip(needed, stretch.nodes, strict=True))
    count, height = leaves_of(users), 0
    while count > 1:
        level |= {index: node for (at, index), node in given.items() if at == height}
        level = {
            index >> 1: parent(level[index & ~1], level[index | 1]) if index | 1 < count else level[index]
            for index in level
        }
        count, height = -(-count // 2), height + 1
    if bits[users:].any():
        raise DecodingError("The list of survivors names users that do not exist.")
    return Shown(level[0], bits[:users], b"".join(stretch.leaves))


def leaves_near(graph: Graph, place: int) -> list[int]:
    """Return the leaves that hold a user and its neighbours."""
    if graph.complete:
        return list(range(leaves_of(graph.users)))
    half = graph.neighbours // 2
    centre = int(graph.position[place])
    return sorted({(centre + offset) % graph.users // LEAF_BITS for offset in range(-half, half + 1)})


def leaves_of(users: int) -> int:
    """Return the number of leaves."""
    return -(-users // LEAF_BITS)


def leaf_node(leaf: bytes) -> bytes:
    """Return hash and count of a leaf."""
    digest = hashlib.sha256(b"masquerade aggregation survivors leaf" + leaf).digest()
    return digest + int.from_bytes(leaf, "big").bit_count().to_bytes(COUNT_SIZE, "big")


def parent(left: bytes, right: bytes) -> bytes:
    """Return hash and count of a node above two others."""
    count = count_of(left) + count_of(right)
    if count >> 8 * COUNT_SIZE:
        raise DecodingError("The list of survivors counts more users than there can be.")
    digest = hashlib.sha256(b"masquerade aggregation survivors node" + left + right).digest()
    return digest + count.to_bytes(COUNT_SIZE, "big")


def count_of(node: bytes) -> int:
    """Return the number of survivors below a node, the root say."""
    return int.from_bytes(node[32:], "big")


def _above(below: Sequence[bytes]) -> list[bytes]:
    """Return the nodes above others; the last one without a sibling goes up as it is."""
    whole = len(below) & ~1
    return [parent(below[i], below[i + 1]) for i in range(0, whole, 2)] + list(below[whole:])
