"""Sources over columns of several parties: a query is answered from the full table of its variables.

A source of exact counts from sums of products reveals these counts, and is named accordingly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from math import prod

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.guarantee import Guarantee
from masquerade.core.likelihood_rows import LikelihoodRows
from masquerade.core.linear_covariance import LinearCovariance
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import raise_refusals
from masquerade.estimate.evidence import ReportEvidence
from masquerade.protocols.vertical.columns import ColumnPart, Products, check_owners, counts_from
from masquerade.sources.likelihood_rows import likelihood_rows_of_counts

MOST_CELLS = 2**20


class WholeTables(ABC):
    """A `Tally` that computes the full table of a query's variables once, and reads every answer from it."""

    def __init__(self, schema: Schema, n: int, guarantee: Guarantee) -> None:
        self.schema, self.n, self.guarantee = schema, n, guarantee
        self._tables: dict[frozenset[str], CountTable] = {}

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries, without side effects."""
        for query in queries:
            query.check(self.schema)
        return [refusal for query in queries for refusal in self._refusals(query)]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch. Known tables are not requested again."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.check(queries))
        new = [query for query in queries if frozenset(query.names) not in self._tables]
        if new:
            self._propose(new)
        for names in dict.fromkeys(frozenset(query.names) for query in new):
            self._tables[names] = self._full_table(names)
        return [
            self._tables[frozenset(query.names)].select(dict(query.where)).marginal(query.by)
            for query in queries
        ]

    def likelihood_rows(self, over: Sequence[str]) -> LikelihoodRows:
        """Return one row per record, generated from the exact table of some variables."""

        def count(names: tuple[str, ...]) -> Floats:
            (table,) = self.answer([Query(by=names)])
            return np.asarray(table.values)

        return likelihood_rows_of_counts(self.schema, Policy.clear(self.schema), over, count)

    @abstractmethod
    def _refusals(self, query: Query) -> list[Refusal]:
        """Return the refusals of one query."""

    @abstractmethod
    def _full_table(self, names: frozenset[str]) -> CountTable:
        """Return the table of some variables."""

    @abstractmethod
    def _propose(self, queries: Sequence[Query]) -> None:
        """Raise `QueryRefused` unless all parties whose consent is needed agree."""

    def _exact(self, names: Sequence[str], counts: Floats) -> CountTable:
        axes = tuple(self.schema[name] for name in names)
        evidence = ReportEvidence.clear(counts, LinearCovariance.clear(counts, self.n, tuple(names)))
        return CountTable(axes, counts, self.n, evidence)


class OpenedFamilies(WholeTables):
    """A `Tally` over a few tables that were opened on purpose, and no others.

    `tables` are exact counts by their variables, one axis per variable.
    """

    def __init__(
        self, schema: Schema, n: int, guarantee: Guarantee, tables: Mapping[tuple[str, ...], Floats]
    ) -> None:
        super().__init__(schema, n, guarantee)
        self._opened = {frozenset(names): (names, counts) for names, counts in tables.items()}

    def _refusals(self, query: Query) -> list[Refusal]:
        if frozenset(query.names) in self._opened:
            return []
        names = ", ".join(query.names)
        return [Refusal("not_opened", f"The counts of {names} were not opened: only agreed counts are.")]

    def _full_table(self, names: frozenset[str]) -> CountTable:
        listed, counts = self._opened[names]
        ordered = [name for name in self.schema if name in names]
        axes = [listed.index(name) for name in ordered]
        return self._exact(ordered, np.transpose(np.asarray(counts, dtype=np.float64), axes))

    def _propose(self, queries: Sequence[Query]) -> None:
        """Do nothing: the tables were agreed on before they were opened."""


class RevealedVerticalCounts(WholeTables):
    """A `Tally` over columns of several parties with exact counts, revealed to the caller.

    Every table equals that of the joined clear records, including standard errors, so K2 and other learners
    find the same models. Each queried table is disclosed in full, including small cells.
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

    def _parts(self, asked: Collection[str]) -> tuple[ColumnPart, ...]:
        parts = [
            ColumnPart(party, tuple(name for name in self.schema if name in names and name in asked))
            for party, names in self._products.owners.items()
        ]
        return tuple(part for part in parts if part.names)

    def _full_table(self, names: frozenset[str]) -> CountTable:
        parts = self._parts(names)
        counts = counts_from(self._products.moments(parts))
        if np.any(counts < 0) or int(counts.sum()) != self.n:
            raise RoundAborted(
                "Sums of products do not form a table: a party sent false numbers.", spent=True
            )
        ordered = [name for part in parts for name in part.names]
        return self._exact(ordered, counts.reshape(self.schema.shape(ordered)).astype(np.float64))
