"""Pooled counts as a source: any learner runs on the records of parties who never show them.

Parties pool the exact tables of their *reports*; what the policy did to them is undone once, on the sums. For
clear records reports are the records, and every table equals that of the pooled clear records exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import guarantee_of
from masquerade.core.axes import Words
from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.people.questions import Counts, Question
from masquerade.protocols.secure_sum import MOST_CELLS, MaskedSum, PoolingParty
from masquerade.sources.people.count_rounds import JointCounts
from masquerade.sources.records import Records


def _split_tables(cells: Words, shapes: Sequence[tuple[int, ...]]) -> list[Words]:
    sizes = [prod(shape) for shape in shapes]
    if len(cells) != sum(sizes):
        raise InputError(f"The batch has {sum(sizes):,} cells. Got {len(cells):,} instead.")
    parts = np.split(cells, np.cumsum(sizes)[:-1]) if sizes else []
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


class PooledTally(JointCounts):
    """A `Tally` over the records of all parties of a pool.

    Parties that disguise share one policy, the pool's. Those with another form a pool of their own, three or
    more at a time, and `Merged` adds the pools: a sum over reports of different channels has no inverse, and
    the sums of fewer than three parties would be their own.
    """

    most_cells = MOST_CELLS

    def __init__(self, pool: MaskedSum, policy: Policy) -> None:
        super().__init__(policy)
        self.guarantee = _pooled_guarantee(pool.guarantee(tuple(policy.schema)), policy)
        self._pool = pool
        (total,) = pool.totals([Query()])
        self.n = int(total)
        # the last round's tables are kept: all strata are read off the same ones
        self._last: dict[Question, Counts] = {}

    def count(self, questions: Sequence[Question]) -> list[Counts]:
        """Return tables, in one round; what meets conditions is picked from joint tables."""
        joint = [self.joint(question) for question in questions]
        asked = list(dict.fromkeys(joint))
        if any(question not in self._last for question in asked):
            totals = self._pool.totals([Query(by=question.columns) for question in asked])
            tables = _split_tables(totals, [question.shape(self.sizes) for question in asked])
            if any(int(table.sum()) != self.n for table in tables):
                raise RoundAborted("A pooled table does not add up to the number of records.", spent=True)
            self._last = {one: table.astype(np.int64) for one, table in zip(asked, tables, strict=True)}
        return [one.picked(self._last[one], wanted) for one, wanted in zip(joint, questions, strict=True)]


def _pooled_guarantee(sums: Guarantee, policy: Policy) -> Guarantee:
    """Return who learns what: sums of reports tell no more about a person than its own report would."""
    if not policy.disguised:
        return sums
    reports = guarantee_of(policy)
    disclosures = tuple(
        Disclosure(sum_.role, f"pooled counts of {item.kind}", item.variables, item.gamma)
        for sum_ in sums.disclosures
        for item in reports.disclosures
    )
    return replace(sums, disclosures=disclosures, assumptions=sums.assumptions + reports.assumptions)


def pooling_party(
    name: str, records: Tally, identity: SigningKey, peers: Mapping[str, bytes], **options: Any
) -> PoolingParty:
    """Return a party of a pool that counts its own records, in clear or by the reports that they hold."""
    policy, reports = _reports_of(records)
    return PoolingParty(name, reports, identity, peers, policy=policy, **options)


def _reports_of(records: Tally) -> tuple[Policy, Tally]:
    """Return the policy that records went through and a source of the exact counts of their reports."""
    if isinstance(records, Records):
        if records.weighted:
            raise InputError("Records with survey weights have no exact counts to pool.")
        if records.policy.disguised:
            seen = Policy.clear(records.policy.observed)
            return records.policy, Records(records.codes, seen, missing=records.missing)
    elif isinstance(policy := getattr(records, "policy", None), Policy) and policy.disguised:
        raise InputError("Disguised records are pooled from memory: give mq.tally(…, engine='memory').")
    return Policy.clear(records.schema), records
