"""A source of counts: one table that an office has published as CSV, every cell with its standard error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

import masquerade as mq
from masquerade.extend import Disclosure, GaussianEvidence, IndependentCovariance, InputError


class Published:
    """A `Tally` over a table and nothing else: what is asked must be a part of it."""

    def __init__(self, frame: pd.DataFrame, schema: mq.Schema) -> None:
        self.schema = schema
        cells = pd.MultiIndex.from_product([own.categories for own in schema.variables], names=list(schema))
        told = frame.set_index(list(schema)).reindex(cells)
        shape = schema.shape(tuple(schema))
        counts, errors = (told[name].to_numpy(float).reshape(shape) for name in ("count", "stderr"))
        covariance = IndependentCovariance(errors**2, names=tuple(schema))
        evidence = GaussianEvidence.of(counts, covariance)
        self._table = mq.CountTable(schema.variables, counts, round(counts.sum()), evidence)
        self.guarantee = mq.Guarantee((Disclosure("everybody", "published counts", tuple(schema), None),))

    def check(self, queries: Sequence[mq.Query]) -> list[mq.Refusal]:
        """Refuse nothing: every question about the variables of the table can be answered."""
        for query in queries:
            query.check(self.schema)
        return []

    def answer(self, queries: Sequence[mq.Query]) -> list[mq.CountTable]:
        """Return slices and margins of the table."""
        self.check(queries)
        return [self._table.select(dict(query.where)).marginal(query.by) for query in queries]


def opened(data: str, policy: mq.Policy | None = None, *, schema: Any = None, **others: Any) -> Published:
    """Return the table in ``published:counts.csv``; `mq.tally` calls this with what it was given."""
    if policy is not None or any(others.values()):
        raise InputError("A published table is counted as it is: give its 'schema' alone.")
    known = schema.schema if isinstance(schema, mq.Policy) else schema
    return Published(pd.read_csv(data.partition(":")[2]), known)
