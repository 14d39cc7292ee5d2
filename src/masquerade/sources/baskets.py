"""Packed baskets, disguised or clear, as a source of counts and supports."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import guarantee_of
from masquerade.core.errors import Refusal
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.supports import SupportAnswer, Supports
from masquerade.core.table import CountTable
from masquerade.core.tally import raise_refusals
from masquerade.frames.baskets import Baskets, check_baskets, sub_policy
from masquerade.kernels.bits import Words, unpack
from masquerade.sources.query_plan import QueryLayout
from masquerade.sources.records import Records
from masquerade.sources.supports import CodedColumns, Codes, answer_supports


class BasketRecords:
    """A `SupportTally` over baskets disguised by a policy, or over clear baskets without a policy.

    Only the items that a query names are unpacked, so thousands of items fit into memory.
    """

    def __init__(self, baskets: Baskets, policy: Policy | None = None) -> None:
        self.baskets = baskets
        self.policy = Policy.clear(baskets.schema) if policy is None else policy
        check_baskets(self.policy, baskets.items)
        self.schema = self.policy.schema
        self.n = baskets.n
        self._columns = _PackedColumns(baskets, QueryLayout(self.policy.groups, self.schema))

    @cached_property
    def guarantee(self) -> Guarantee:
        """Return the disclosures."""
        return guarantee_of(self.policy)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries."""
        return [refusal for query in queries for refusal in self._columns.layout.refusals(query)]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch from the queried items and the items disguised together with them."""
        raise_refusals(self.check(queries))
        touched = {name for query in queries for name in query.names} or {self.baskets.items[0]}
        part = sub_policy(self.policy, touched)
        return Records(self.baskets.codes(part.schema), part).answer(queries)

    def supports(self, question: Supports) -> SupportAnswer:
        """Answer many supports in one batch; see `masquerade.sources.supports`."""
        return answer_supports(self, [self._columns], question, self.n, None)


class _PackedColumns(CodedColumns):
    """Baskets as the columns on which supports are counted."""

    def __init__(self, baskets: Baskets, layout: QueryLayout) -> None:
        self.layout, self.rows, self.weights, self.multiplicity = layout, baskets.n, None, None
        self._words = baskets.words
        self._places = {name: place for place, name in enumerate(baskets.items)}

    def codes(self, name: str) -> Codes:
        return unpack(self._words[self._places[name]], self.rows)

    def pack(self, name: str, wanted: NDArray[np.bool_]) -> Words:
        """Return the bits of an item, inverted if absence is wanted."""
        words: Words = self._words[self._places[name]]
        if wanted[1] and not wanted[0]:
            return words
        turned: Words = ~words if wanted[0] and not wanted[1] else np.full_like(words, ~np.uint64(0))
        if self.rows % 64:
            turned[-1] &= np.uint64((1 << (self.rows % 64)) - 1)
        return turned
