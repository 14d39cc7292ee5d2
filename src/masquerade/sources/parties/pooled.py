"""Pooled counts as a source: any learner runs on the records of parties that never show them.

Parties pool the exact tables of their *reports*. The channels are inverted once, on the sums. For clear
records, reports are the records, and every table equals that of the pooled clear records exactly.

`NoisyPool` adds noise, which no party knows, to the sums of clear records. Two parties are enough for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from masquerade.channels.noise.terms import NoiseStage
from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import guarantee_of
from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.guarantee import AGGREGATOR, Disclosure, Guarantee
from masquerade.core.likelihood_rows import LikelihoodRows
from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.people.ledger import PersonLedger
from masquerade.protocols.people.questions import Counts, Question
from masquerade.protocols.secure_sum import MOST_CELLS, MaskedSum, PoolingParty
from masquerade.sources.likelihood_rows import likelihood_rows_of_joint
from masquerade.sources.noise.noisy import NoisyTally, noise_guarantee
from masquerade.sources.noise.spent_tables import Cells, split_cells
from masquerade.sources.people.count_rounds import JointCounts
from masquerade.sources.records import Records


class PooledTally(JointCounts):
    """A `Tally` over the records of all parties of a pool.

    Parties that disguise share one policy, the pool's. Those with a different policy form a separate pool of
    three or more, and `Merged` adds the pools: a sum over reports of different channels has no inverse, and
    sums of fewer than three parties would reveal their counts.
    """

    most_cells = MOST_CELLS

    def __init__(self, pool: MaskedSum, policy: Policy) -> None:
        super().__init__(policy)
        self.guarantee = _pooled_guarantee(pool.guarantee(tuple(policy.schema)), policy)
        self._pool = pool
        (total,) = pool.totals([Query()])
        self.n = int(total)
        # tables of the last round are cached: all strata use the same tables
        self._last: dict[Question, Counts] = {}

    def count(self, questions: Sequence[Question]) -> list[Counts]:
        """Return tables, in one round. Conditions are selected from joint tables."""
        joint = [self.joint(question) for question in questions]
        asked = list(dict.fromkeys(joint))
        if any(question not in self._last for question in asked):
            totals = self._pool.totals([Query(by=question.columns) for question in asked])
            tables = split_cells(totals, [question.shape(self.sizes) for question in asked])
            if any(int(table.sum()) != self.n for table in tables):
                raise RoundAborted("A pooled table does not add up to the number of records.", spent=True)
            self._last = {one: table.astype(np.int64) for one, table in zip(asked, tables, strict=True)}
        return [one.pick_table(self._last[one], wanted) for one, wanted in zip(joint, questions, strict=True)]

    def likelihood_rows(self, over: Sequence[str]) -> LikelihoodRows:
        """Return P(report | truth) of every record, from the one table that a regression needs anyway."""
        return likelihood_rows_of_joint(self, over)


def _pooled_guarantee(sums: Guarantee, policy: Policy) -> Guarantee:
    """Return the disclosures: sums of reports reveal no more about a person than the person's report."""
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
    """Return a party of a pool that counts its own records, in clear or by their reports."""
    policy, reports = _reports_of(records)
    return PoolingParty(name, reports, identity, peers, policy=policy, **options)


def _reports_of(records: Tally) -> tuple[Policy, Tally]:
    """Return the policy of the records, and a source of the exact counts of their reports."""
    if isinstance(records, Records):
        if records.weighted:
            raise InputError("Records with survey weights have no exact counts to pool.")
        if records.policy.disguised:
            seen = Policy.clear(records.policy.observed)
            return records.policy, Records(records.codes, seen, missing=records.missing)
        return records.policy, records  # its missing categories are part of what parties agree on
    if isinstance(policy := getattr(records, "policy", None), Policy) and policy.disguised:
        raise InputError("Disguised records are pooled from memory: use mq.tally(…, engine='memory').")
    return Policy.clear(records.schema), records


class NoisyPool(NoisyTally):
    """A `Tally` over the clear records of all parties of a pool whose sums carry their noise shares.

    Parameters
    ----------
    pool : MaskedSum
        The sum, with its terms of noise.
    policy : Policy
        Categories of the records; nothing is disguised.
    ledger : PersonLedger, optional
        Where the answers are stored. The parties have ledgers of their own, which limit the number of tables.
    """

    def __init__(self, pool: MaskedSum, policy: Policy, ledger: PersonLedger | None = None) -> None:
        if pool.noise is None:
            raise InputError("The parties of this pool did not agree to any noise.")
        if policy.disguised:
            raise InputError(
                "Noise is for counts of clear records; disguised records are pooled without noise."
            )
        (total,) = pool.totals([Query()])
        super().__init__(policy.schema, int(total), pool.noise, ledger)
        self._pool = pool
        names = tuple(policy.schema)
        self.guarantee = noise_guarantee(pool.guarantee(names), pool.noise, names, AGGREGATOR)

    def __repr__(self) -> str:
        """Return the number of parties and the privacy guarantee as text."""
        return f"NoisyPool({len(self._pool.parties)} parties, ε = {self.terms.epsilon:g})"

    def _prepare(self, queries: Sequence[Query]) -> None:
        del queries  # parties count when they are asked

    def _open_cells(self, prepared: None, queries: Sequence[Query], stage: NoiseStage) -> list[Cells]:
        del prepared, stage
        totals = self._pool.totals(queries).astype(np.int64)
        tables: list[Cells] = split_cells(totals, [self.schema.shape(query.by) for query in queries])
        return tables
