"""Exact counts over vertical parties as a source: a mode that reveals counts, and is named for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

import numpy as np

from masquerade.core.errors import Refusal, RoundAborted
from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.protocols.columns import Part, Products, check_owners, counts_from
from masquerade.sources.whole_tables import WholeTables

MOST_CELLS = 2**20


class RevealedVerticalCounts(WholeTables):
    """A `Tally` over columns of several parties whose counts are exact, and revealed to whoever asks.

    Every table equals that of the joined clear records, standard errors included, so K2 and other learners
    find what they would find there. Each table asked for is disclosed whole, small cells too.
    """

    def __init__(self, products: Products) -> None:
        check_owners(products.owners, products.schema, receiver="")
        super().__init__(products.schema, products.n, products.guarantee())
        self._products = products

    def _propose(self, queries: Sequence[Query]) -> None:
        self._products.propose(queries)

    def _refusals(self, query: Query) -> list[Refusal]:
        cells = prod(self.schema.shape(query.names))
        if cells > MOST_CELLS:
            reason = f"The question has {cells:,} cells, conditions included (at most {MOST_CELLS:,})."
            return [Refusal("too_many_cells", reason, query)]
        found = self._products.refusals(self._parts(query.names))
        return [Refusal(item.code, item.reason, query) for item in found]

    def _parts(self, asked: Collection[str]) -> tuple[Part, ...]:
        parts = [
            Part(party, tuple(name for name in self.schema if name in names and name in asked))
            for party, names in self._products.owners.items()
        ]
        return tuple(part for part in parts if part.names)

    def _whole(self, names: frozenset[str]) -> CountTable:
        parts = self._parts(names)
        counts = counts_from(self._products.moments(parts))
        if np.any(counts < 0) or int(counts.sum()) != self.n:
            raise RoundAborted(
                "Sums of products do not make a table: a party's numbers were false.", spent=True
            )
        ordered = [name for part in parts for name in part.names]
        return self._exact(ordered, counts.reshape(self.schema.shape(ordered)).astype(np.float64))
