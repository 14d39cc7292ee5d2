"""Exact counts over vertical parties as a source: a mode that reveals counts, and is named for it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import raise_refusals
from masquerade.protocols.own_columns import Owners, check_owners
from masquerade.protocols.products.columns import Part, counts_from
from masquerade.sources.projection import exact, laid_out, table_of

MOST_CELLS = 2**20


class Products(Protocol):
    """A way to form sums of products of several parties' columns."""

    @property
    def owners(self) -> Owners:
        """Who holds which variables."""

    @property
    def schema(self) -> Schema:
        """All variables."""

    @property
    def n(self) -> int:
        """The number of records."""

    def refusals(self, parts: Sequence[Part]) -> list[Refusal]:
        """Return why sums over these parts are not formed; pure."""

    def propose(self, queries: Sequence[Query]) -> None:
        """Raise `QueryRefused` unless every party consents."""

    def moments(self, parts: tuple[Part, ...]) -> NDArray[np.int64]:
        """Return the sums of products of every choice of one column, or none, of each part."""

    def guarantee(self) -> Guarantee:
        """Return who learns what."""


class RevealedVerticalCounts:
    """A `Tally` over columns of several parties whose counts are exact, and revealed to whoever asks.

    Every table equals that of the joined clear records, standard errors included, so K2 and other learners
    find what they would find there. Each table asked for is disclosed whole, small cells too.
    """

    def __init__(self, products: Products) -> None:
        check_owners(products.owners, products.schema, receiver="")
        self._products = products
        self.schema, self.n = products.schema, products.n
        self.guarantee = products.guarantee()
        self._tables: dict[frozenset[str], CountTable] = {}

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why queries would be refused: too many cells, or columns too large to be masked."""
        refusals = []
        for query in queries:
            query.check(self.schema)
            cells = prod(self.schema.shape(query.names))
            if cells > MOST_CELLS:
                reason = f"The question has {cells:,} cells, conditions included (at most {MOST_CELLS:,})."
                refusals.append(Refusal("too_many_cells", reason, query))
            else:
                refusals += [
                    Refusal(item.code, item.reason, query)
                    for item in self._products.refusals(self._parts(query))
                ]
        return refusals

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch; what was revealed once is not asked again."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.check(queries))
        new = [query for query in queries if frozenset(query.names) not in self._tables]
        if new:
            self._products.propose(new)
        for query in new:
            self._tables.setdefault(frozenset(query.names), self._whole(query))
        return [laid_out(self._tables[frozenset(query.names)], query) for query in queries]

    def _parts(self, query: Query) -> tuple[Part, ...]:
        parts = [
            Part(party, tuple(name for name in self.schema if name in names and name in query.names))
            for party, names in self._products.owners.items()
        ]
        return tuple(part for part in parts if part.names)

    def _whole(self, query: Query) -> CountTable:
        parts = self._parts(query)
        counts = counts_from(self._products.moments(parts))
        if np.any(counts < 0) or int(counts.sum()) != self.n:
            raise RoundAborted(
                "Sums of products do not make a table: a party's numbers were false.", spent=True
            )
        axes = tuple(self.schema[name] for part in parts for name in part.names)
        values = counts.reshape([len(axis) for axis in axes]).astype(np.float64)
        names = tuple(axis.name for axis in axes)
        return table_of(axes, values, self.n, exact(values, self.n, names), is_exact=True)
