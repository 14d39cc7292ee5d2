"""Records whose truth was drawn from its posterior distribution, as data for a structure search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from masquerade.core.axes import Floats
from masquerade.learn.networks.graph import Family
from masquerade.learn.networks.junction_tree import Codes

PRIOR = 0.05  # records added to a row of a table, in proportion to the node's shares, to avoid zeros
MOST_KEPT = 8_000_000  # row numbers of drawn records that are kept, for all sets of parents: 64 MB


class CompletedRecords:
    """Families of variables, counted in records that were drawn from their posterior distribution.

    Parameters
    ----------
    names : sequence of str
        Variables.
    sizes : mapping of str to int
        Number of categories of every variable.
    draws : sequence of (mapping of str to codes, weights)
        Draws of the truth of all records, each with the same records in the same order.
    """

    def __init__(
        self,
        names: Sequence[str],
        sizes: Mapping[str, int],
        draws: Sequence[tuple[Mapping[str, Codes], Floats]],
    ) -> None:
        self.names, self.sizes = list(names), [sizes[name] for name in names]
        self.columns = [
            np.concatenate([codes[name] for codes, _ in draws]).astype(np.min_scalar_type(size))
            for name, size in zip(self.names, self.sizes, strict=True)
        ]
        self.draws, self.weights = len(draws), draws[0][1]
        self.repeated = np.tile(self.weights, self.draws) / self.draws
        self._is_even = bool(np.all(self.weights == self.weights[:1]))
        self._sums: dict[Family, float] = {}
        self._indices: dict[Family, Codes] = {}

    def log_likelihood(self, x: int, family: Family) -> float:
        """Return the largest log-likelihood of a variable given its parents.

        It is the difference of two sums over cells: of the variable with its parents, and of the parents.
        Each sum belongs to a set of variables, so that all families of this set share it.
        """
        return self._sum_logs(tuple(sorted((*family, x)))) - self._sum_logs(family)

    def dimension(self, x: int, family: Family) -> int:
        """Return the number of free parameters of a variable given its parents."""
        dimension = self.sizes[x] - 1
        for parent in family:
            dimension *= self.sizes[parent]
        return dimension

    def counts(self, x: int, family: Family, weights: Floats | None = None) -> Floats:
        """Return the number of records in each row of parents and each category of a variable."""
        return self.count(self.cells(x, family), x, family, self.repeated if weights is None else weights)

    def count(self, cells: Codes, x: int, family: Family, weights: Floats) -> Floats:
        """Return the weights in each cell of a family's table."""
        size = self.sizes[x]
        width = int(np.prod([self.sizes[parent] for parent in family], dtype=np.int64))
        found = np.bincount(cells, weights, minlength=width * size)
        return found.reshape(width, size).astype(np.float64, copy=False)

    def cells(self, x: int, family: Family) -> Codes:
        """Return the cell of each drawn record in the table of a variable given its parents."""
        cells = self._rows(family) * self.sizes[x]
        cells += self.columns[x]
        return cells

    def shape(self, x: int, family: Family) -> list[int]:
        """Return the shape of a family's table, parents as leading axes."""
        return [self.sizes[other] for other in (*family, x)]

    def _sum_logs(self, variables: Family) -> float:
        """Return Σ N log N over the cells of the table of some variables."""
        value = self._sums.get(variables)
        if value is None:
            if not variables:
                table = self.repeated.sum(keepdims=True)
            elif self._is_even:  # counting is three times as fast as adding weights
                *first, last = variables
                table = np.bincount(self.cells(last, tuple(first))) * self.repeated[0]
            else:
                *first, last = variables
                table = np.bincount(self.cells(last, tuple(first)), self.repeated)
            seen = table[table > 0]
            value = self._sums[variables] = float(np.sum(seen * np.log(seen)))
        return value

    def _rows(self, family: Family) -> Codes:
        """Return the row of each drawn record in tables of variables with these parents."""
        rows = self._indices.get(family)
        if rows is None:
            if (len(self._indices) + 1) * len(self.repeated) > MOST_KEPT:
                self._indices.clear()
            if family:
                rows = self._rows(family[:-1]) * self.sizes[family[-1]]
                rows += self.columns[family[-1]]
            else:
                rows = np.zeros(len(self.repeated), dtype=np.intp)
            self._indices[family] = rows
        return rows


def conditional_entropy(table: Floats) -> float:
    """Return Σ N log(N / row total)."""
    rows = table.sum(axis=1, keepdims=True)
    seen = table > 0
    return float(np.sum(table[seen] * np.log(table[seen] / np.broadcast_to(rows, table.shape)[seen])))


def smooth_rows(counts: Floats) -> Floats:
    """Return rows of probabilities from counts; `PRIOR` records keep all of them above 0."""
    shares = counts.sum(axis=0)
    base = (shares + PRIOR) / (shares.sum() + PRIOR * len(shares))
    return np.asarray((counts + PRIOR * base) / (counts.sum(axis=1, keepdims=True) + PRIOR))


def smooth_tables(counts: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return P(node | parents) from counts; `PRIOR` records keep all probabilities above 0."""
    return {
        name: smooth_rows(table.reshape(-1, table.shape[-1])).reshape(table.shape)
        for name, table in counts.items()
    }
