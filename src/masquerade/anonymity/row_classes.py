"""Rows that agree in every quasi-identifier are one kind; what a kind becomes at each level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
LARGEST_KEY = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """The levels of one quasi-identifier: level 0 is the value itself, the last level a star for all.

    ``codes[level][value]`` is the generalised value of a value, ``loss[level][value]`` what that takes away:
    0 for the value itself, else the share of values that look the same.
    """

    codes: tuple[Int64, ...]
    loss: tuple[NDArray[np.float64], ...]

    @classmethod
    def build(cls, values: int, between: Sequence[Int64] = ()) -> Ladder:
        """Return the levels of a column with so many values: itself, those in `between`, a star.

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
    """Distinct rows in the order of their codes, how often each occurs, and the levels of every column."""

    codes: Int64
    weights: Int64
    ladders: tuple[Ladder, ...]

    @property
    def root(self) -> tuple[int, ...]:
        """Return the node at which every cell is a star."""
        return tuple(ladder.top for ladder in self.ladders)

    def at(self, node: Sequence[int]) -> list[Int64]:
        """Return the generalised columns at a node; columns of stars are left out."""
        return [
            ladder.codes[level][column]
            for ladder, level, column in zip(self.ladders, node, self.codes.T, strict=True)
            if level < ladder.top
        ]

    def sizes_at(self, node: Sequence[int]) -> list[int]:
        """Return how many codes each of those columns can have."""
        return [
            int(ladder.codes[level].max(initial=0)) + 1
            for ladder, level in zip(self.ladders, node, strict=True)
            if level < ladder.top
        ]

    def loss_at(self, node: Sequence[int]) -> NDArray[np.float64]:
        """Return what a node takes away from a row of each kind, in stars."""
        loss = np.zeros(len(self.weights))
        for ladder, level, column in zip(self.ladders, node, self.codes.T, strict=True):
            if level:
                loss += ladder.loss[level][column]
        return loss


def collapsed(codes: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the distinct rows in order, their kind for every row, and how many rows each has."""
    sizes = [int(column.max(initial=0)) + 1 for column in codes.T]
    keys = keys_of(list(codes.T), sizes, rows=len(codes))
    _, first, kind, weights = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    return codes[first], kind, weights


def keys_of(columns: Sequence[Int64], sizes: Sequence[int], *, rows: int) -> Int64:
    """Return one number for every row, equal exactly for equal rows and in their order."""
    if not columns:
        return np.zeros(rows, dtype=np.int64)

    def join(left: tuple[Int64, int], right: tuple[Int64, int]) -> tuple[Int64, int]:
        keys, largest = left
        if largest * right[1] > LARGEST_KEY:  # ranks keep the order and need less room
            keys = np.unique(keys, return_inverse=True)[1]
            largest = int(keys.max(initial=0)) + 1
        return keys * right[1] + right[0], largest * right[1]

    return reduce(join, zip(columns, sizes, strict=True))[0]
