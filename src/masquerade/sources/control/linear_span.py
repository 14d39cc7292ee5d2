"""What follows from answered sums by adding and subtracting: an exact span, grown vector by vector."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from masquerade.kernels.echelon import append_row, subtract_rows
from masquerade.kernels.field61 import PRIME, Elements

Vector = Mapping[Any, int]


class LinearSpan:
    """The span of sparse vectors of whole numbers, by name of coordinate.

    Whoever knows the sums of some vectors over the same unknowns knows that of another one, by linear algebra
    alone, if and only if the span contains it.

    Formula: reduced row echelon form modulo p = 2⁶¹ − 1.
    Cost: rank × coordinates products for a vector; coordinates are those that some vector has touched.
    Error: none, but for vectors of which a minor is a multiple of p; minors of 0/1 vectors are below p up to
    order 34 (Hadamard), and beyond it one has to be constructed for the purpose.
    """

    def __init__(self) -> None:
        self._columns: dict[Hashable, int] = {}
        self._rows: Elements = np.zeros((0, 0), dtype=np.uint64)
        self._pivots: list[int] = []

    @property
    def rank(self) -> int:
        """Return how many independent vectors were added."""
        return len(self._pivots)

    @property
    def coordinates(self) -> int:
        """Return how many coordinates the vectors have touched."""
        return len(self._columns)

    def add(self, vector: Vector) -> bool:
        """Add a vector; return whether it was outside the span."""
        for name in vector:
            self._columns.setdefault(name, len(self._columns))
        dense = self._dense(vector)
        first = self._reduced(dense)
        if first < 0:
            return False
        self._make_room()
        width = len(self._columns)
        append_row(self._rows[:, :width], self.rank, dense, first)
        self._pivots.append(first)
        return True

    def contains(self, vector: Vector) -> bool:
        """Tell whether a vector is a combination of those added."""
        if any(value % PRIME and name not in self._columns for name, value in vector.items()):
            return False
        return self._reduced(self._dense(vector)) < 0

    def copy(self) -> LinearSpan:
        """Return a span of its own with the same vectors."""
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

    def _reduced(self, dense: Elements) -> int:
        width = min(self._rows.shape[1], len(self._columns))
        used = np.array(self._pivots, dtype=np.int64)
        first = int(subtract_rows(self._rows[: self.rank, :width], used, dense[:width]))
        beyond = np.flatnonzero(dense[width:])  # coordinates that no row has yet
        return first if first >= 0 or not beyond.size else width + int(beyond[0])

    def _make_room(self) -> None:
        rows, columns = self._rows.shape
        if self.rank < rows and len(self._columns) <= columns:
            return
        room = (max(2 * rows, self.rank + 1, 16), max(2 * columns, len(self._columns), 16))
        larger = np.zeros(room, dtype=np.uint64)
        larger[:rows, :columns] = self._rows
        self._rows = larger
