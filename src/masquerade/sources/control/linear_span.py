"""Exact span of answered sums under addition and subtraction, extended vector by vector."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from masquerade.kernels.field61 import PRIME, Elements, append_row, subtract_rows

Vector = Mapping[Any, int]


class LinearSpan:
    """The span of sparse integer vectors, by coordinate name.

    A party that knows the sums of some vectors over the same unknowns can compute another sum, by linear
    algebra alone, if and only if the span contains its vector.

    Formula: reduced row echelon form modulo p = 2⁶¹ − 1.
    Cost: rank × coordinates multiplications per vector, over the coordinates that occur in any vector.
    Error: none, except for vectors with a minor that is a multiple of p. Minors of 0/1 vectors are below p up
    to order 34 (Hadamard); beyond it, one has to be constructed on purpose.
    """

    def __init__(self) -> None:
        self._columns: dict[Hashable, int] = {}
        self._rows: Elements = np.zeros((0, 0), dtype=np.uint64)
        self._pivots: list[int] = []

    @property
    def rank(self) -> int:
        """Number of independent vectors."""
        return len(self._pivots)

    @property
    def coordinates(self) -> int:
        """Number of coordinates of all vectors."""
        return len(self._columns)

    def add(self, vector: Vector) -> bool:
        """Add a vector. Return True if it was outside the span."""
        for name in vector:
            self._columns.setdefault(name, len(self._columns))
        dense = self._dense(vector)
        first = self._reduce(dense)
        if first < 0:
            return False
        self._make_room()
        width = len(self._columns)
        append_row(self._rows[:, :width], self.rank, dense, first)
        self._pivots.append(first)
        return True

    def contains(self, vector: Vector) -> bool:
        """Return True if a vector is a linear combination of the vectors that were added."""
        if any(value % PRIME and name not in self._columns for name, value in vector.items()):
            return False
        return self._reduce(self._dense(vector)) < 0

    def copy(self) -> LinearSpan:
        """Return an independent copy."""
        other = LinearSpan()
        other._columns, other._pivots = dict(self._columns), list(self._pivots)
        other._rows = self._rows.copy()
        return other

    def _dense(self, vector: Vector) -> Elements:
        dense = np.zeros(len(self._columns), dtype=np.uint64)
        for name, value in vector.items():
            if value % PRIME:
                dense[self._columns[name]] = value % PRIME
        return dense

    def _reduce(self, dense: Elements) -> int:
        width = min(self._rows.shape[1], len(self._columns))
        used = np.array(self._pivots, dtype=np.int64)
        first = int(subtract_rows(self._rows[: self.rank, :width], used, dense[:width]))
        beyond = np.flatnonzero(dense[width:])  # coordinates that are new to all rows
        return first if first >= 0 or not beyond.size else width + int(beyond[0])

    def _make_room(self) -> None:
        rows, columns = self._rows.shape
        if self.rank < rows and len(self._columns) <= columns:
            return
        room = (max(2 * rows, self.rank + 1, 16), max(2 * columns, len(self._columns), 16))
        larger = np.zeros(room, dtype=np.uint64)
        larger[:rows, :columns] = self._rows
        self._rows = larger
