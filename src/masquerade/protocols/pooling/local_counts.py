"""What a party counts on its own: exact tables of its records, or of the reports of its disguised records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, Refusal, SchemaError
from masquerade.core.query import Query
from masquerade.core.tally import Tally, raise_refusals
from masquerade.protocols.codec import Words
from masquerade.protocols.session_keys import terms_of
from masquerade.sources.records import Records

MOST_CELLS = 2**24
LARGEST_PARTY = 2**40  # records of one party; a thousand of them stay far below 2^64


class LocalCounts:
    """Exact counts of one party over the reports of a policy (over its records if that hides nothing).

    `source` is any `Tally` whose counts are exact, or disguised `Records`: then their *reports* are counted,
    and whoever pools them corrects once. `variables` are those the party consents to; None means all.
    """

    def __init__(
        self, source: Tally, variables: Collection[str] | None = None, *, most_cells: int | None = None
    ) -> None:
        self.policy, self._source = reports_of(source)
        self._most_cells = most_cells
        self.schema = self._source.schema
        consented = tuple(self.schema) if variables is None else tuple(variables)
        for name in consented:
            self.schema[name]
        self._consented = frozenset(consented)

    def refusals(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why questions are not answered."""
        for query in queries:
            try:
                query.check(self.schema)
            except SchemaError as error:
                return [Refusal("unknown_variable", str(error), query)]
            hidden = [name for name in query.names if name not in self._consented]
            if hidden:
                reason = f"{', '.join(map(repr, hidden))} may not be counted here."
                return [Refusal("not_consented", reason, query)]
        cells = sum(prod(self.schema.shape(query.by)) for query in queries)
        most = self._most_cells or MOST_CELLS
        if cells > most:
            return [Refusal("too_many_cells", f"A batch has at most {most:,} cells, this one {cells:,}.")]
        return list(self._source.check(queries))

    def counts(self, queries: Sequence[Query]) -> Words:
        """Return all cells of all tables, one after the other; counts that are not exact are refused."""
        raise_refusals(self.refusals(queries))
        cells = []
        for table in self._source.answer(queries):
            whole = np.rint(table.values)
            certain = not np.any(table.covariance.diagonal("given_records"))
            if not certain or np.any(whole != table.values) or np.any(whole < 0):
                raise InputError(
                    "Only exact counts can be pooled: give clear records, or records disguised by the pool's "
                    "policy, whose reports are then counted."
                )
            if np.any(whole > LARGEST_PARTY):
                raise InputError(f"A party has at most {LARGEST_PARTY:,} records.")
            cells.append(whole.astype(np.uint64).ravel())
        return np.concatenate(cells) if cells else np.zeros(0, dtype=np.uint64)


def reports_of(source: Tally) -> tuple[Policy, Tally]:
    """Return the policy that records went through and a source of the exact counts of their reports."""
    if isinstance(source, Records):
        if source.weighted:
            raise InputError("Records with survey weights have no exact counts to pool.")
        if source.policy.disguised:
            return source.policy, Records(
                source.codes, Policy.clear(source.policy.observed), missing=source.missing
            )
        return Policy.clear(source.schema), source
    policy = getattr(source, "policy", None)
    if isinstance(policy, Policy) and policy.disguised:
        raise InputError("Disguised records are pooled from memory: give mq.tally(…, engine='memory').")
    return Policy.clear(source.schema), source


def pooling_terms(policy: Policy) -> bytes:
    """Return what parties of a pool must agree on: the mechanism, and how large a party may be."""
    return terms_of("pooled counts", policy.id, str(LARGEST_PARTY))


def split_tables(cells: Words, shapes: Sequence[tuple[int, ...]]) -> list[Words]:
    """Return the tables that stand one after the other."""
    sizes = [prod(shape) for shape in shapes]
    if len(cells) != sum(sizes):
        raise InputError(f"The batch has {sum(sizes):,} cells. Got {len(cells):,} instead.")
    parts = np.split(cells, np.cumsum(sizes)[:-1]) if sizes else []
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
