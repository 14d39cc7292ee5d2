"""Sources over columns of several parties: a question is answered from the whole table of its variables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from masquerade.core.axes import AxisMap, AxisMaps, Floats
from masquerade.core.covariance import LinearCovariance, Part
from masquerade.core.errors import InputError, Refusal
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import raise_refusals
from masquerade.estimate.evidence import ReportEvidence


class WholeTables(ABC):
    """A `Tally` that forms the table of all variables of a question once, and reads every answer off it."""

    def __init__(self, schema: Schema, n: int, guarantee: Guarantee) -> None:
        self.schema, self.n, self.guarantee = schema, n, guarantee
        self._tables: dict[frozenset[str], CountTable] = {}

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why queries would be refused. Pure."""
        for query in queries:
            query.check(self.schema)
        return [refusal for query in queries for refusal in self._refusals(query)]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch; what was asked once is not asked again."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.check(queries))
        new = [query for query in queries if frozenset(query.names) not in self._tables]
        if new:
            self._propose(new)
        for names in dict.fromkeys(frozenset(query.names) for query in new):
            self._tables[names] = self._whole(names)
        return [
            self._tables[frozenset(query.names)].select(dict(query.where)).marginal(query.by)
            for query in queries
        ]

    @abstractmethod
    def _refusals(self, query: Query) -> list[Refusal]:
        """Return why one query would be refused."""

    @abstractmethod
    def _whole(self, names: frozenset[str]) -> CountTable:
        """Return the table of some variables."""

    @abstractmethod
    def _propose(self, queries: Sequence[Query]) -> None:
        """Raise `QueryRefused` unless everybody consents whose consent is asked for."""

    def _exact(self, names: Sequence[str], counts: Floats) -> CountTable:
        axes = tuple(self.schema[name] for name in names)
        evidence = ReportEvidence.clear(counts, clear_covariance(counts, self.n, tuple(names)))
        return CountTable(axes, counts, self.n, evidence)


def clear_covariance(values: Floats, n: int, names: tuple[str, ...]) -> LinearCovariance:
    """Return the covariance of counts of clear records."""
    maps = AxisMaps(values.shape, tuple(AxisMap((axis,), None) for axis in range(values.ndim)))
    return LinearCovariance((Part(values, maps),), values, values, n, names)
