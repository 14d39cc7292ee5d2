"""The list of survivors as a tree of hashes with counts: a user sees its own stretch, all sign the same root.

A leaf holds 256 users in the order of the circle, one bit each; a node holds the hashes and the counts of
its two children. So the root fixes the list and the number of survivors, and a user who is shown the leaves
with its neighbours and their paths receives O(log n) bytes instead of n bits. A count that a leaf does not
have is noticed by every honest user of that leaf, none of whom then signs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from masquerade.crypto.errors import DecodingError
from masquerade.protocols.aggregation.graph import Graph
from masquerade.protocols.aggregation.messages import pieces, unpack_bits

LEAF_BITS = 256
LEAF_SIZE = LEAF_BITS // 8
COUNT_SIZE = 4
NODE_SIZE = 32 + COUNT_SIZE


@dataclass(frozen=True, slots=True)
class Root:
    """What survivors sign: the hash of the whole list, and how many are on it."""

    hash: bytes
    count: int

    def encode(self) -> bytes:
        """Return 36 bytes."""
        return self.hash + self.count.to_bytes(COUNT_SIZE, "big")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a user was shown: the root, the bits of all positions (only its leaves' are known), its leaves."""

    root: Root
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
            below = self._levels[-1]
            self._levels.append([parent(below[i], below[i + 1]) for i in range(0, len(below), 2)])

    @property
    def root(self) -> Root:
        """Return hash and count of the whole."""
        return decode_root(self._levels[-1][0])

    def shown(self, leaves: Sequence[int]) -> bytes:
        """Return leaves, and the nodes that lead from them to the root."""
        needed = needed_nodes(leaves, len(self._levels) - 1)
        nodes = [self._levels[height][index] for height, index in needed]
        return b"".join([self._leaves[leaf] for leaf in leaves] + nodes)


def needed_nodes(leaves: Sequence[int], depth: int) -> list[tuple[int, int]]:
    """Return height and index of the nodes that cannot be computed from leaves, from below to above."""
    known, needed = set(leaves), []
    for height in range(depth):
        needed += [(height, index) for index in sorted({index ^ 1 for index in known} - known)]
        known = {index >> 1 for index in known}
    return needed


def shown_size(leaves: Sequence[int], users: int) -> int:
    """Return how many bytes it takes to show leaves."""
    return LEAF_SIZE * len(leaves) + NODE_SIZE * len(needed_nodes(leaves, depth_of(users)))


def read_shown(data: bytes, leaves: Sequence[int], users: int) -> Shown:
    """Return what leaves and their way to the root say."""
    size = shown_size(leaves, users)
    if len(data) != size:
        raise DecodingError(f"The list of survivors has {size} bytes. Got {len(data)} instead.")
    end = LEAF_SIZE * len(leaves)
    bits = np.zeros(leaves_of(users) * LEAF_BITS, dtype=bool)
    level: dict[int, bytes] = {}
    for leaf, part in zip(leaves, pieces(data[:end], LEAF_SIZE), strict=True):
        bits[leaf * LEAF_BITS : (leaf + 1) * LEAF_BITS] = unpack_bits(part, LEAF_BITS)
        level[leaf] = leaf_node(part)
    depth = depth_of(users)
    given = dict(zip(needed_nodes(leaves, depth), pieces(data[end:], NODE_SIZE), strict=True))
    for height in range(depth):
        level |= {index: node for (at, index), node in given.items() if at == height}
        level = {index >> 1: parent(level[index & ~1], level[index | 1]) for index in level}
    if bits[users:].any():
        raise DecodingError("The list of survivors names users that do not exist.")
    return Shown(decode_root(level[0]), bits[:users], data[:end])


def leaves_near(graph: Graph, place: int) -> list[int]:
    """Return the leaves that hold a user and its neighbours."""
    if graph.complete:
        return list(range(-(-graph.users // LEAF_BITS)))
    half = graph.neighbours // 2
    centre = int(graph.position[place])
    return sorted({(centre + offset) % graph.users // LEAF_BITS for offset in range(-half, half + 1)})


def leaves_of(users: int) -> int:
    """Return the number of leaves, a power of two."""
    return int(1 << (max(-(-users // LEAF_BITS), 1) - 1).bit_length())


def depth_of(users: int) -> int:
    """Return the number of levels below the root."""
    return (leaves_of(users) - 1).bit_length()


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
    """Return the number of survivors below a node."""
    return int.from_bytes(node[32:], "big")


def decode_root(node: bytes) -> Root:
    """Return hash and count of the topmost node."""
    return Root(node[:32], count_of(node))
