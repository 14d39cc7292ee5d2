"""Bounds of a cell, given other cells and that no count is negative."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, NotConverged

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOST_ATOMS = 10_000
_SLACK = 1e-6


class CellInterval(NamedTuple):
    """The smallest and the largest possible integer of a cell."""

    lower: int
    upper: int

    @property
    def width(self) -> int:
        """Difference of the bounds."""
        return self.upper - self.lower


class CellBounds:
    """Bounds of sets of atoms, given sets with known counts.

    `known` are the sets, each a 0/1 vector over all atoms, and `counts` their numbers of people.

    Formula: min and max of Σ_{i∈S} x_i subject to A x = b, x ≥ 0, rounded inwards: counts are integers.
    Reference: Dobra and Fienberg, Bounds for cell entries in contingency tables given marginal totals, PNAS
    97 (2000); the linear programme is solved by HiGHS.
    Cost: two linear programmes per cell.
    Error: bounds of the linear programme contain those over integer tables, and may be wider.
    """

    def __init__(self, known: Sequence[NDArray[np.bool_]], counts: Sequence[float]) -> None:
        from scipy.sparse import csr_array  # noqa: PLC0415  (scipy is slow to import)

        if not known or len(known) != len(counts):
            raise InputError("Bounds need at least one known set, and a count for each.")
        self._atoms = len(known[0])
        if self._atoms > MOST_ATOMS:
            raise InputError(f"Bounds need at most {MOST_ATOMS:,} atoms. Got {self._atoms:,} instead.")
        self._known: csr_array = csr_array(np.array(known, dtype=np.float64))
        self._counts = np.asarray(counts, dtype=np.float64)

    def interval(self, members: NDArray[np.bool_]) -> CellInterval:
        """Return the bounds of the count of a set."""
        weights = members.astype(np.float64)
        return CellInterval(ceil(self._least(weights) - _SLACK), floor(-self._least(-weights) + _SLACK))

    def _least(self, weights: Floats) -> float:
        from scipy.optimize import linprog  # noqa: PLC0415  (scipy is slow to import)

        found = linprog(weights, A_eq=self._known, b_eq=self._counts, bounds=(0, None), method="highs")
        if found.status != 0:
            raise NotConverged(f"The linear programme for a cell's bounds was not solved ({found.message}).")
        return float(found.fun)
