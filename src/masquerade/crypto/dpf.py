"""Distributed point functions (DPF) and distributed comparison functions (DCF).

Two keys, each of which looks random, expand to additive shares modulo 2^64 of ``payload`` where ``x`` equals
the secret point (`PointKeys`; Boyle, Gilboa & Ishai 2016) or is below it (`ThresholdKeys`; Boyle, Chandran,
Gilboa, Gupta, Ishai, Kumar & Rathee 2021), and of zero elsewhere. A key is used for one query only: a party
that sees two values masked by one point learns their difference. Keys come in batches, and each step is one
pass over the batch.

A node of the trees has 16 bytes and a bit. Its children and outputs are ``AES(x) ⊕ x`` with a fixed, public
key at distinct inputs (Matyas, Meyer & Oseas), which are pseudorandom if AES with that key behaves like a
random permutation (Guo, Katz, Wang & Yu 2020).

>>> shares = point_keys(points=[5], payloads=[7], bits=3, roots=fresh_roots(1))
>>> (shares[0].expand() + shares[1].expand()).tolist()
[[0, 0, 0, 0, 0, 7, 0, 0]]
>>> below = threshold_keys(points=[5, 5], payloads=[1, 1], bits=3, roots=fresh_roots(2))
>>> (below[0].evaluate([4, 5]) + below[1].evaluate([4, 5])).tolist()
[1, 0]
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.symmetric import BlockFunction, Keystream
from masquerade.kernels import node_tree

MOST_BITS = 63  # of the domain of a comparison function
MOST_POINT_BITS = 24  # of the domain of a point function, whose expansion has 2^bits numbers
LEFT, RIGHT, LEFT_VALUE, RIGHT_VALUE = range(4)
LEAF = LEFT_VALUE

Words = NDArray[np.uint64]
Bits = NDArray[np.uint8]

_permutation = BlockFunction(hashlib.sha256(b"masquerade function shares 1").digest())
_ONE = np.uint64(1)
_AT_ONCE = 1 << 16  # values expanded in one batch


def fresh_roots(count: int) -> tuple[Words, Words]:
    """Return random roots of ``count`` pairs of keys, 16 bytes each, for both holders."""
    draw = Keystream()
    first, second = (draw(16 * count).view("<u8").astype(np.uint64).reshape(count, 2) for _ in range(2))
    return first, second


def _hash(nodes: Words, purpose: int | Words) -> Words:
    """Return 16 pseudorandom bytes per node (two words on the last axis) for one of four purposes."""
    tweaked = nodes.copy()
    tweaked[..., 0] ^= np.asarray(purpose, dtype=np.uint64)
    return _encrypt(tweaked) ^ tweaked


def _encrypt(blocks: Words) -> Words:
    """Return blocks of two words encrypted under the fixed key."""
    data = bytearray(_permutation(blocks.astype("<u8", copy=False).tobytes()))
    return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False).reshape(blocks.shape)


def _node(words: Words) -> tuple[Words, Bits]:
    """Split 16 bytes into a node and its bit; nodes are multiples of four, so that purposes never collide."""
    bit = (words[..., 0] & _ONE).astype(np.uint8)
    words[..., 0] &= ~np.uint64(3)
    return words, bit


def _negate_where(words: Words, negative: Any) -> Words:
    return np.where(np.asarray(negative, dtype=bool), np.uint64(0) - words, words)


def _bit(points: Words, level: int, bits: int) -> Bits:
    """Return the bit of each point that selects the child at a level; the highest bit is at the root."""
    return ((points >> np.uint64(bits - 1 - level)) & _ONE).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class _Keys:
    """Common part of both types of keys: a root per key, and corrections per level, equal for both holders.

    `party` is 0 or 1. `nodes` and `flags` correct the nodes and their bits (left, right).
    """

    party: int
    bits: int
    roots: Words  # (keys, 2)
    nodes: Words  # (levels, keys, 2)
    flags: Bits  # (levels, keys, 2)

    def __len__(self) -> int:
        return len(self.roots)

    def encode_shared(self) -> bytes:
        """Return the part that both holders receive from the dealer: all but the root, concatenated."""
        parts = [getattr(self, field.name) for field in fields(self)[3:]]
        return b"".join(
            part.astype("<u8" if part.dtype == np.uint64 else np.uint8).tobytes() for part in parts
        )

    @classmethod
    def read(cls, data: bytes, party: int, bits: int, roots: Words) -> Self:
        """Return a holder's keys from its roots and the bytes of `encode_shared`."""
        parts: list[Any] = []
        at = 0
        for shape, kind in cls._shapes(bits, len(roots)):
            size = int(np.prod(shape)) * np.dtype(kind).itemsize
            if at + size > len(data):
                raise DecodingError("Keys of shared functions have the wrong length.")
            part = np.frombuffer(data[at : at + size], dtype=kind).reshape(shape)
            parts.append(part.astype(np.uint64) if kind == "<u8" else part)
            at += size
        if at != len(data):
            raise DecodingError("Keys of shared functions have the wrong length.")
        if any(part.dtype == np.uint8 and np.any(part > 1) for part in parts):
            raise DecodingError("A correction is not a bit.")
        return cls(party, bits, _node(roots.copy())[0], *parts)

    @classmethod
    def _shapes(cls, bits: int, count: int) -> list[tuple[tuple[int, ...], str]]:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class PointKeys(_Keys):
    """One holder's keys for functions that are zero except at one point."""

    leaves: Words  # (keys, 2): one leaf for two neighbouring values

    @classmethod
    def size(cls, bits: int, count: int) -> int:
        """Return the number of bytes of `encode_shared`."""
        return sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in cls._shapes(bits, count))

    @classmethod
    def _shapes(cls, bits: int, count: int) -> list[tuple[tuple[int, ...], str]]:
        return [((bits - 1, count, 2), "<u8"), ((bits - 1, count, 2), "u1"), ((count, 2), "<u8")]

    def some(self, which: slice) -> PointKeys:
        """Return a slice of the keys."""
        parts = (self.roots[which], self.nodes[:, which], self.flags[:, which], self.leaves[which])
        return PointKeys(self.party, self.bits, *parts)

    def expand(self) -> Words:
        """Return this holder's share of all values, keys × 2^bits."""
        out = np.empty((len(self), 1 << self.bits), dtype=np.uint64)
        some = max(_AT_ONCE >> self.bits, 1)  # a batch that fits into a processor's cache
        for start in range(0, len(self), some):
            out[start : start + some] = self._expand_slice(slice(start, start + some))
        return out

    def _expand_slice(self, some: slice) -> Words:
        nodes = self.roots[some][:, None, :].copy()
        flags = np.full(nodes.shape[:2], self.party, dtype=np.uint8)
        for correction, flag in zip(self.nodes[:, some], self.flags[:, some], strict=True):
            both = node_tree.twice(nodes)
            nodes, flags = node_tree.correct_children(both, _encrypt(both), flags, correction, flag)
        nodes[..., 0] ^= np.uint64(LEAF)
        return node_tree.leaf_values(nodes, _encrypt(nodes), flags, self.leaves[some], self.party)


@dataclass(frozen=True, eq=False)
class ThresholdKeys(_Keys):
    """One holder's keys for functions that are a payload below a point, and zero from the point on."""

    values: Words  # (levels, keys)
    last: Words  # (keys,)

    @classmethod
    def size(cls, bits: int, count: int) -> int:
        """Return the number of bytes of `encode_shared`."""
        return sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in cls._shapes(bits, count))

    @classmethod
    def _shapes(cls, bits: int, count: int) -> list[tuple[tuple[int, ...], str]]:
        return [
            ((bits, count, 2), "<u8"),
            ((bits, count, 2), "u1"),
            ((bits, count), "<u8"),
            ((count,), "<u8"),
        ]

    def evaluate(self, at: ArrayLike) -> Words:
        """Return this holder's share of function i at ``at[i]``, for all i."""
        where = _within(at, self.bits, len(self))
        nodes, flags = self.roots, np.full(len(self), self.party, dtype=np.uint8)
        total = np.zeros(len(self), dtype=np.uint64)
        each = np.arange(len(self))
        for level in range(self.bits):
            side = _bit(where, level, self.bits)
            value = _hash(nodes, side.astype(np.uint64) + np.uint64(LEFT_VALUE))[:, 0]
            on = flags.astype(np.uint64)
            total += value + on * self.values[level]
            words, bit = _node(_hash(nodes, side.astype(np.uint64)))
            nodes = words ^ ((np.uint64(0) - on)[:, None] & self.nodes[level])
            flags = bit ^ (flags & self.flags[level, each, side])
        total += _hash(nodes, LEAF)[:, 0] + flags.astype(np.uint64) * self.last
        return _negate_where(total, self.party)


def point_keys(
    points: ArrayLike, payloads: ArrayLike, bits: int, roots: tuple[Words, Words]
) -> tuple[PointKeys, PointKeys]:
    """Return both holders' keys for functions on 0 … 2^bits − 1 that are ``payloads`` at ``points``."""
    if not 1 <= bits <= MOST_POINT_BITS:
        raise InputError(f"Points have from 1 to {MOST_POINT_BITS} bits. Got {bits} instead.")
    tree = _Tree(points, bits, roots, bits - 1)
    for level in range(bits - 1):
        tree.descend(level)
    leaf = np.zeros((len(tree.points), 2), dtype=np.uint64)
    leaf[np.arange(len(leaf)), _bit(tree.points, bits - 1, bits)] = _payloads(payloads, len(leaf))
    first, second = (_hash(nodes, LEAF) for nodes in tree.at)
    leaves = _negate_where(leaf - first + second, tree.flags[1][:, None])
    return _pair(PointKeys, bits, tree, leaves)


def threshold_keys(
    points: ArrayLike, payloads: ArrayLike, bits: int, roots: tuple[Words, Words]
) -> tuple[ThresholdKeys, ThresholdKeys]:
    """Return both holders' keys for functions on 0 … 2^bits − 1 that are ``payloads`` below ``points``."""
    if not 1 <= bits <= MOST_BITS:
        raise InputError(f"Thresholds have from 1 to {MOST_BITS} bits. Got {bits} instead.")
    tree = _Tree(points, bits, roots, bits)
    payload = _payloads(payloads, len(tree.points))
    so_far = np.zeros(len(payload), dtype=np.uint64)
    values = np.empty((bits, len(payload)), dtype=np.uint64)
    for level in range(bits):
        keep = _bit(tree.points, level, bits).astype(np.uint64)
        path, off_path = (
            [_hash(nodes, np.uint64(LEFT_VALUE) + side)[:, 0] for nodes in tree.at]
            for side in (keep, _ONE - keep)
        )
        negative = tree.flags[1]
        # where the path goes right, values on the left are below the point and get the payload
        value = _negate_where(off_path[1] - off_path[0] - so_far + payload * keep, negative)
        so_far = so_far - path[1] + path[0] + _negate_where(value, negative)
        values[level] = value
        tree.descend(level)
    ends = [_hash(nodes, LEAF)[:, 0] for nodes in tree.at]
    last = _negate_where(ends[1] - ends[0] - so_far, tree.flags[1])
    return _pair(ThresholdKeys, bits, tree, values, last)


class _Tree:
    """Both holders' paths down to the secret points, and the corrections on the way."""

    def __init__(self, points: ArrayLike, bits: int, roots: tuple[Words, Words], levels: int) -> None:
        count = len(roots[0])
        self.points, self.bits = _within(points, bits, count), bits
        self.roots = [_node(root.copy())[0] for root in roots]
        self.at = list(self.roots)
        self.flags = [np.zeros(count, dtype=np.uint8), np.ones(count, dtype=np.uint8)]
        self.corrections = np.empty((levels, count, 2), dtype=np.uint64)
        self.corrected = np.empty((levels, count, 2), dtype=np.uint8)

    def descend(self, level: int) -> None:
        """Go one level down: both holders' nodes become equal off the path and stay different on it."""
        keep = _bit(self.points, level, self.bits)
        each = np.arange(len(keep))
        sides = [[_node(_hash(nodes, side)) for side in (LEFT, RIGHT)] for nodes in self.at]
        words = [np.stack([side[0] for side in two], axis=1) for two in sides]  # keys × side × 2
        flags = [np.stack([side[1] for side in two], axis=1) for two in sides]  # keys × side
        correction = words[0][each, 1 - keep] ^ words[1][each, 1 - keep]
        corrected = flags[0] ^ flags[1]
        corrected[:, LEFT] ^= keep ^ 1
        corrected[:, RIGHT] ^= keep
        for party in (0, 1):
            on = (np.uint64(0) - self.flags[party].astype(np.uint64))[:, None]
            self.at[party] = words[party][each, keep] ^ (on & correction)
            self.flags[party] = flags[party][each, keep] ^ (self.flags[party] & corrected[each, keep])
        self.corrections[level], self.corrected[level] = correction, corrected


def _pair(kind: Any, bits: int, tree: _Tree, *rest: Words) -> tuple[Any, Any]:
    first, second = (
        kind(party, bits, tree.roots[party], tree.corrections, tree.corrected, *rest) for party in (0, 1)
    )
    return first, second


def _within(points: ArrayLike, bits: int, count: int) -> Words:
    found = np.asarray(points)
    if found.shape != (count,):
        raise InputError(f"There are {count} keys for {found.size} points.")
    if found.size and (int(found.min()) < 0 or int(found.max()) >> bits):
        raise InputError(f"Points must be from 0 to 2^{bits} − 1.")
    return found.astype(np.uint64)


def _payloads(payloads: ArrayLike, count: int) -> Words:
    found = np.asarray(payloads)
    if found.dtype != np.uint64:
        found = found.astype(np.int64).astype(np.uint64)
    if found.shape != (count,):
        raise InputError(f"There are {count} keys for {found.size} payloads.")
    return found


__all__: Sequence[str] = (
    "PointKeys",
    "ThresholdKeys",
    "fresh_roots",
    "point_keys",
    "threshold_keys",
)
