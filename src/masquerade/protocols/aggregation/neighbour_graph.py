"""Who is whose neighbour: everybody below 300 users, else a Harary graph under a random permutation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from masquerade.crypto.symmetric import stream

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Users on a circle; neighbours are the k/2 next ones on either side, or all.

    `order` has the place on the roster of each position, `position` the reverse. The neighbours of a user
    have slots 0 … k−1; the share that a user deals to slot a lies at x = a + 1. `key` is what it was drawn
    from.
    """

    neighbours: int
    order: Places
    position: Places
    key: bytes = b""

    @property
    def users(self) -> int:
        """Return how many users there are."""
        return len(self.order)

    @property
    def complete(self) -> bool:
        """Tell whether all are neighbours."""
        return self.neighbours == self.users - 1

    def around(self, place: int) -> Sequence[int]:
        """Return the neighbours of a user in the order of their slots."""
        if self.complete:
            return [*range(place), *range(place + 1, self.users)]
        positions = (self.position[place] + _offsets(self.neighbours)) % self.users
        near: list[int] = self.order[positions].tolist()
        return near

    def backs(self, place: int) -> Sequence[int]:
        """Return the slots that a user has among the neighbours of each of its own neighbours."""
        if self.complete:
            return [place - 1] * place + [place] * (self.neighbours - place)
        return range(self.neighbours - 1, -1, -1)

    def witnesses(self, count: int) -> tuple[int, ...]:
        """Return who signs which users are summed: drawn with the graph, and nobody's choice."""
        return _witnesses(self.key, self.users, count)


@lru_cache(maxsize=16)
def _offsets(neighbours: int) -> Places:
    half = neighbours // 2
    return np.array([*range(-half, 0), *range(1, half + 1)])


def complete_graph(users: int) -> Graph:
    """Return the graph in which all are neighbours."""
    everyone = np.arange(users)
    return Graph(users - 1, everyone, everyone)


@lru_cache(maxsize=4)
def harary_graph(users: int, neighbours: int, drawn: bytes) -> Graph:
    """Return the graph that 32 bytes, drawn together by users, stand for."""
    order = permutation(drawn, users)
    position = np.empty_like(order)
    position[order] = np.arange(users)
    return Graph(neighbours, order, position, drawn)


@lru_cache(maxsize=64)
def permutation(key: bytes, users: int) -> Places:
    """Return the users in an order that 32 bytes decide: sorted by the words of their stream."""
    order = np.argsort(np.frombuffer(stream(key, 8 * users), dtype="<u8"), kind="stable")
    order.flags.writeable = False
    return order


@lru_cache(maxsize=16)
def _witnesses(key: bytes, users: int, count: int) -> tuple[int, ...]:
    if count == users:
        return tuple(range(users))
    drawn = hashlib.sha256(b"masquerade aggregation witnesses" + key).digest()
    return tuple(permutation(drawn, users)[:count].tolist())
