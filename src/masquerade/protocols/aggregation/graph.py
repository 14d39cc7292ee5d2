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
    have slots 0 … k−1; the share that a user deals to slot a lies at x = a + 1.
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
        positions = (self.position[place] + offsets(self.neighbours)) % self.users
        near: list[int] = self.order[positions].tolist()
        return near

    def backs(self, place: int) -> Sequence[int]:
        """Return the slots that a user has among the neighbours of each of its own neighbours."""
        if self.complete:
            return [place - 1] * place + [place] * (self.neighbours - place)
        return range(self.neighbours - 1, -1, -1)


@lru_cache(maxsize=16)
def offsets(neighbours: int) -> Places:
    """Return how far neighbours are on the circle, slot by slot."""
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
    """Return the users in an order that 32 bytes decide: sorted by words of AES-256 in counter mode."""
    order = np.argsort(np.frombuffer(stream(key, 8 * users), dtype="<u8"), kind="stable")
    order.flags.writeable = False
    return order


def committee(info: bytes, attempt: int, users: int, size: int) -> list[int]:
    """Return who draws the graph of a round, in order: nobody's choice once the session has its name."""
    key = hashlib.sha256(b"masquerade aggregation committee" + info + bytes([attempt])).digest()
    chosen: list[int] = permutation(key, users)[:size].tolist()
    return chosen


def commitments_hash(info: bytes, attempt: int, commitments: Sequence[bytes]) -> bytes:
    """Return the hash of all commitments of a committee."""
    head = b"masquerade aggregation commitments" + info + bytes([attempt])
    return hashlib.sha256(head + b"".join(commitments)).digest()


def commitment(info: bytes, attempt: int, place: int, nonce: bytes) -> bytes:
    """Return the hash by which a member of a committee fixes its nonce before seeing those of others."""
    head = b"masquerade aggregation nonce" + info + bytes([attempt]) + place.to_bytes(4, "big")
    return hashlib.sha256(head + nonce).digest()


def drawn_key(info: bytes, attempt: int, nonces: Sequence[bytes]) -> bytes:
    """Return the 32 bytes that decide the graph: unpredictable while one member is honest."""
    head = b"masquerade aggregation graph" + info + bytes([attempt])
    return hashlib.sha256(head + b"".join(nonces)).digest()
