"""Neighbour graph of the users of secure aggregation, its random choice, and the survivor list of a round.

Below 300 users all are neighbours. Otherwise the graph is a Harary graph under a random permutation, which
the server cannot influence: a committee of users commits to nonces and then reveals them. The committee of
each attempt is derived from the session's id. Each member reveals its nonce only after it has seen and signed
all commitments. If a member does not reveal, a new attempt with a new committee starts. There are at most 64
attempts, so that members who withhold nonces choose among 64 graphs, not among 2^colluders. Every user checks
the nonces and signatures of the committee, about 2 kB for any number of users.

The list of survivors is a hash tree (Merkle tree) with counts: each user sees the part around its position,
and all users sign the same root. A leaf has 256 users in the order of the circle, one bit each. An inner node
has the hashes and the counts of its two children; a last node without a sibling moves up unchanged. So the
root determines the list and the number of survivors. A user receives the leaves with its neighbours and their
paths: O(log n) bytes instead of n bits. Every honest user of a leaf detects a wrong count of that leaf and
aborts. There is no leaf without users, in which a wrong count would remain undetected.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from masquerade.core.util.bit_flags import pack_bits, unpack_bits
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.symmetric import stream
from masquerade.protocols.secure_aggregation import messages as wire
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms, RoundContext

Places = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Users on a circle; the neighbours of a user are the k/2 nearest users on either side, or all users.

    `order` maps positions on the circle to indices in the roster, `position` is the inverse. The neighbours
    of a user have slots 0 … k−1; slot a gets the user's share at x = a + 1. The graph is derived from `key`.
    """

    neighbours: int
    order: Places
    position: Places
    key: bytes = b""

    @property
    def users(self) -> int:
        """Return the number of users."""
        return len(self.order)

    @property
    def complete(self) -> bool:
        """Return True if all users are neighbours."""
        return self.neighbours == self.users - 1

    def around(self, place: int) -> Sequence[int]:
        """Return the neighbours of a user in the order of their slots."""
        if self.complete:
            return [*range(place), *range(place + 1, self.users)]
        half, centre, users = self.neighbours // 2, self.position[place], self.users
        places = [self.order[(centre + offset) % users] for offset in range(-half, half + 1)]
        return [*places[:half], *places[half + 1 :]]

    def backs(self, place: int) -> Sequence[int]:
        """Return, for each neighbour of a user, the user's slot among the neighbours of that neighbour."""
        if self.complete:
            return [place - 1] * place + [place] * (self.neighbours - place)
        return range(self.neighbours - 1, -1, -1)

    def witnesses(self, count: int) -> tuple[int, ...]:
        """Return the users, drawn with the graph, who sign the list of summed users."""
        return _witnesses(self.key, self.users, count)


@lru_cache(maxsize=16)
def complete_graph(users: int) -> Graph:
    """Return the graph in which all are neighbours."""
    everyone = tuple(range(users))
    return Graph(users - 1, everyone, everyone)


@lru_cache(maxsize=4)
def harary_graph(users: int, neighbours: int, drawn: bytes) -> Graph:
    """Return the Harary graph derived from 32 bytes that users drew together."""
    order = permutation(drawn, users)
    position = [0] * users
    for at, place in enumerate(order):
        position[place] = at
    return Graph(neighbours, order, tuple(position), drawn)


@lru_cache(maxsize=64)
def permutation(key: bytes, users: int) -> Places:
    """Return the permutation of users derived from a 32-byte key: sorted by 64-bit words of its stream."""
    words = struct.unpack(f"<{users}Q", stream(key, 8 * users))
    return tuple(sorted(range(users), key=words.__getitem__))


@lru_cache(maxsize=16)
def _witnesses(key: bytes, users: int, count: int) -> tuple[int, ...]:
    if count == users:
        return tuple(range(users))
    drawn = hashlib.sha256(b"masquerade aggregation witnesses" + key).digest()
    return permutation(drawn, users)[:count]


def members(context: RoundContext, attempt: int, terms: AggregationTerms) -> list[int]:
    """Return the committee of an attempt, determined by the session's id."""
    key = _bound(b"committee", context, attempt)
    return list(permutation(key, terms.parameters.users)[: terms.parameters.committee])


def commitment_to(context: RoundContext, attempt: int, place: int, nonce: bytes) -> bytes:
    """Return the hash by which a member of a committee fixes its nonce before seeing those of others."""
    return _bound(b"nonce", context, attempt, place.to_bytes(4, "big"), nonce)


def commitments_hash(context: RoundContext, attempt: int, commitments: Sequence[bytes]) -> bytes:
    """Return the hash of all commitments of a committee."""
    return _bound(b"commitments", context, attempt, *commitments)


def drawn_graph(
    context: RoundContext, attempt: int, nonces: Sequence[bytes], terms: AggregationTerms
) -> Graph:
    """Return the graph derived from the nonces, which is unpredictable if one member is honest."""
    key = _bound(b"graph", context, attempt, *nonces)
    return harary_graph(terms.parameters.users, terms.parameters.neighbours, key)


def checked_graph(
    shown: wire.Neighbours, context: RoundContext, terms: AggregationTerms, work: wire.Work
) -> Graph:
    """Return the graph that a committee drew, after checking the nonce and signature of each member."""
    attempt, opening = shown.attempt, context.opening
    places, size = members(context, attempt, terms), wire.SIGNED_NONCE_SIZE
    pieces = [shown.drawn[at : at + size] for at in range(0, len(shown.drawn), size)]
    nonces = [piece[: wire.NONCE_SIZE] for piece in pieces]
    hashes = [commitment_to(context, attempt, *one) for one in zip(places, nonces, strict=True)]
    about = commitments_hash(context, attempt, hashes)
    for place, piece in zip(places, pieces, strict=True):
        fields = bytes([attempt]) + piece[: wire.NONCE_SIZE]
        wire.Signer.at(place, terms, work).check(
            wire.Reveal, opening, fields, piece[wire.NONCE_SIZE :], about
        )
    return drawn_graph(context, attempt, nonces, terms)


def _bound(what: bytes, context: RoundContext, attempt: int, *parts: bytes) -> bytes:
    """Return a hash that is bound to the session and the attempt."""
    head = b"masquerade aggregation " + what + context.opening.info + bytes([attempt])
    return hashlib.sha256(head + b"".join(parts)).digest()


LEAF_BITS = 8 * wire.LEAF_SIZE
COUNT_SIZE = wire.NODE_SIZE - 32


@dataclass(frozen=True, slots=True)
class ShownNode:
    """Part of the survivor list that is shown to a user: the root, the bits and the leaves.

    `bits` has one bit per position; only those in the leaves are known.
    """

    root: bytes
    bits: list[bool]
    leaves: bytes


class SurvivorTree:
    """The complete survivor list of the server, by position on the circle."""

    def __init__(self, surviving: Sequence[bool]) -> None:
        data = pack_bits(surviving).ljust(leaves_of(len(surviving)) * wire.LEAF_SIZE, b"\0")
        self._leaves = [data[at : at + wire.LEAF_SIZE] for at in range(0, len(data), wire.LEAF_SIZE)]
        self._levels = [[leaf_node(leaf) for leaf in self._leaves]]
        while len(below := self._levels[-1]) > 1:
            whole = len(below) & ~1  # a last node without a sibling moves up unchanged
            above = [parent(below[i], below[i + 1]) for i in range(0, whole, 2)]
            self._levels.append(above + below[whole:])
        self.root = self._levels[-1][0]  # hash and count of the whole list, signed by survivors

    def show_leaves(self, leaves: Sequence[int]) -> wire.Stretch:
        """Return leaves, and the nodes needed to compute the root from them."""
        needed = needed_nodes(leaves, len(self._leaves))
        nodes = tuple(self._levels[height][index] for height, index in needed)
        return wire.Stretch(tuple(self._leaves[leaf] for leaf in leaves), nodes)


def needed_nodes(leaves: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Return height and index of the nodes that cannot be computed from some of `count` leaves, bottom up."""
    known, needed, height = set(leaves), [], 0
    while count > 1:
        siblings = {index ^ 1 for index in known} - known
        needed += [(height, index) for index in sorted(siblings) if index < count]
        known, count, height = {index >> 1 for index in known}, -(-count // 2), height + 1
    return needed


def read_shown(stretch: wire.Stretch, leaves: Sequence[int], users: int) -> ShownNode:
    """Return the contents of the shown leaves and their path to the root."""
    needed = needed_nodes(leaves, leaves_of(users))
    if (len(stretch.leaves), len(stretch.nodes)) != (len(leaves), len(needed)):
        raise DecodingError(f"The list of survivors needs {len(leaves)} leaves and {len(needed)} nodes here.")
    bits = [False] * (leaves_of(users) * LEAF_BITS)
    level: dict[int, bytes] = {}
    for leaf, part in zip(leaves, stretch.leaves, strict=True):
        bits[leaf * LEAF_BITS : (leaf + 1) * LEAF_BITS] = unpack_bits(part)
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
    if any(bits[users:]):
        raise DecodingError("The list of survivors names users that do not exist.")
    return ShownNode(level[0], bits[:users], b"".join(stretch.leaves))


def leaves_near(graph: Graph, place: int) -> list[int]:
    """Return the leaves that contain a user and its neighbours."""
    if graph.complete:
        return list(range(leaves_of(graph.users)))
    half = graph.neighbours // 2
    centre = graph.position[place]
    return sorted({(centre + offset) % graph.users // LEAF_BITS for offset in range(-half, half + 1)})


def leaves_of(users: int) -> int:
    """Return the number of leaves."""
    return -(-users // LEAF_BITS)


def leaf_node(leaf: bytes) -> bytes:
    """Return hash and count of a leaf."""
    digest = hashlib.sha256(b"masquerade aggregation survivors leaf" + leaf).digest()
    return digest + int.from_bytes(leaf, "big").bit_count().to_bytes(COUNT_SIZE, "big")


def parent(left: bytes, right: bytes) -> bytes:
    """Return the hash and count of the parent of two nodes."""
    count = count_of(left) + count_of(right)
    if count >> 8 * COUNT_SIZE:
        raise DecodingError("The list of survivors counts more users than are enrolled.")
    digest = hashlib.sha256(b"masquerade aggregation survivors node" + left + right).digest()
    return digest + count.to_bytes(COUNT_SIZE, "big")


def count_of(node: bytes) -> int:
    """Return the number of survivors below a node, for example the root."""
    return int.from_bytes(node[32:], "big")
