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
from masquerade.protocols.session_keys import agreement_of

MOST_CELLS = 2**24
LARGEST_PARTY = 2**40  # records of one party; a thousand of them stay far below 2^64


class LocalCounts:
    """Exact counts of one party over the reports of a policy (over its records if that hides nothing).

    `source` is any `Tally` whose counts are exact: of clear records, or of the reports that disguised records
    hold, under the `policy` they went through; whoever pools them corrects once. `variables` are those the
    party consents to; None means all.
    """

    def __init__(
        self,
        source: Tally,
        policy: Policy | None = None,
        variables: Collection[str] | None = None,
        *,
        most_cells: int | None = None,
    ) -> None:
        self.policy, self._source = Policy.clear(source.schema) if policy is None else policy, source
        if self.policy.observed != source.schema:
            raise InputError("The source counts other reports than the policy has.")
        self._most_cells = most_cells
        self.schema = source.schema
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


def pooling_agreement(policy: Policy) -> bytes:
    """Return what parties of a pool must agree on: the mechanism, and how large a party may be."""
    return agreement_of("pooled counts", policy.id, str(LARGEST_PARTY))
