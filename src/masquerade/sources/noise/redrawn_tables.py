"""Counts of redrawn answers made consistent, with the covariance that redraws have.

A table of K cells whose answers are redrawn with probability f has the unbiased counts (y − f·n/K)/(1 − f).
Their errors are not equal over cells: more people in a cell mean more who were drawn out of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from masquerade.channels.noise.redraws import RedrawTerms
from masquerade.core.axes import Floats
from masquerade.core.covariance import BlockCovariance, Kind, check_kind, reduce_cells
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.estimate.gaussian import onto_simplex
from masquerade.sources.noise.contrasts import NoisyTable, TableFusion, subsets
from masquerade.sources.noise.spent_tables import Cells


@dataclass(frozen=True, slots=True)
class LinearNoise(BlockCovariance):
    """Covariance RᵀR of noise, equal for every `kind`; `rows` is R, of shape (rows, *shape of the table)."""

    rows: Floats
    names: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the table."""
        return self.rows.shape[1:]

    def within(self, axes: Sequence[int | str], kind: Kind = "population") -> Floats:
        """Return the covariance blocks of cells that differ only along `axes`."""
        check_kind(kind)
        inner = self.positions(axes)
        blocks = np.stack([self.in_blocks(row, inner) for row in self.rows])
        return np.asarray(np.einsum("r...i,r...j->...ij", blocks, blocks))

    def between(self, first: Floats, second: Floats, kind: Kind = "population") -> Floats:
        """Return the covariances of sums of cells, for all pairs of weights along the first axes."""
        check_kind(kind)
        flat = self.rows.reshape(len(self.rows), -1)
        a, b = (np.asarray(w, dtype=float).reshape(len(w), -1) @ flat.T for w in (first, second))
        return np.asarray(a @ b.T)

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> LinearNoise:
        """Return the covariance of the table summed or sliced to the axes `keep`."""
        names = tuple(self.names[axis] for axis in keep) if self.names else ()
        return LinearNoise(np.stack([reduce_cells(row, keep, at) for row in self.rows]), names)


class RedrawnTables(TableFusion):
    """Consistent tables from all answers of one set of people, which were redrawn for each table.

    Formula: contrasts as in `TableFusion`, weighted as if errors were equal over cells, so values are
    unbiased. The covariance is that of this linear combination: a table has D = diag(n·r + f(1 − f)·N)/(1 −
    f)² up to terms that its fixed total removes, with r = f/K and the consistent counts N; negative
    counts are replaced by 0.

    Parameters
    ----------
    schema : Schema
        Order and categories of the variables.
    n : int
        Number of people, which is public.
    counts : mapping of Query to array of int64
        Counts of redrawn answers, by query.
    terms : RedrawTerms
        Terms of the redraws.
    """

    def __init__(self, schema: Schema, n: int, counts: Mapping[Query, Cells], terms: RedrawTerms) -> None:
        self._rate = float(terms.rate)
        self._drawn = [self._estimate(query, cells, n) for query, cells in counts.items()]
        self._spreads: dict[tuple[str, ...], Floats] = {}
        super().__init__(schema, n, self._drawn)

    def _estimate(self, query: Query, counts: Cells, n: int) -> NoisyTable:
        """Return unbiased counts; their variance is the mean over the cells."""
        lies = self._rate * counts.size
        values = (counts - n * self._rate) / (1 - lies)
        return NoisyTable(query.by, values, n * self._rate * (2 - lies) / (1 - lies) ** 2)

    def covariance(self, names: tuple[str, ...]) -> LinearNoise:
        """Return the covariance of the noise of the consistent table."""
        shape = self._schema.shape(names)
        rows = [
            self._influence(names, table) * self._deviations(table)
            for table in self._drawn
            if not set(names).isdisjoint(table.names)
        ]
        found = np.concatenate(rows, axis=1) if rows else np.zeros((math.prod(shape), 1))
        if found.shape[1] > len(found):  # no more rows than cells: RᵀR stays the same
            found = np.asarray(np.linalg.qr(found.T, mode="r")).T
        return LinearNoise(np.ascontiguousarray(found.T).reshape(-1, *shape), names)

    def _deviations(self, table: NoisyTable) -> Floats:
        """Return the standard deviations of the cells of a table as drawn."""
        if table.names not in self._spreads:
            values = self.values(table.names)
            likely = onto_simplex(values, float(self._n)) if (values < 0).any() else values
            lies = self._rate * values.size
            variances = (self._n * self._rate + lies * (1 - lies) * likely) / (1 - lies) ** 2
            self._spreads[table.names] = np.sqrt(variances).ravel()
        return self._spreads[table.names]

    def _influence(self, names: tuple[str, ...], table: NoisyTable) -> Floats:
        """Return the effect of each cell of a table (columns) on each cell of the consistent table (rows)."""
        shape, drawn = self._schema.shape(names), self._schema.shape(table.names)
        shared = [name for name in names if name in table.names]
        result = np.zeros((*shape, *drawn))
        for chosen in subsets(range(len(shared))):
            if not chosen:
                continue  # the total is public
            some = tuple(shared[place] for place in chosen)
            cells = math.prod(self._schema.shape(some))
            weight = cells / (math.prod(drawn) * table.variance) / self._contrast(some)[1]
            part = np.full((1,) * result.ndim, weight * cells / math.prod(shape))
            for name in some:
                size = len(self._schema[name])
                sizes = [1] * result.ndim
                sizes[names.index(name)] = sizes[len(names) + table.names.index(name)] = size
                own = np.eye(size) - 1 / size
                part = part * own.reshape(sizes)
            result += part
        return result.reshape(math.prod(shape), math.prod(drawn))
