"""Coalitions against a secure sum: counts that colluding parties can compute from the messages of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations

import numpy as np

from masquerade.audit.findings import Audit, AuditTable, Finding
from masquerade.channels.policy import Policy
from masquerade.core.axes import Words
from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.secure_sum import LEAST_PARTIES, CountRequest, MaskedCounts, MaskedSum, PoolingParty
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.parties.pooled import pooling_party
from masquerade.sources.records import Records

MOST_PARTIES = 9
LARGEST = 1000  # most records of a party in a run
POLICY = Policy.clear(Schema({"answer": ["no", "yes"]}))
QUESTION = Query(by="answer")


@dataclass(frozen=True, slots=True)
class PoolRun:
    """One round of a secure sum: the parties with their keys, their counts, and all messages."""

    parties: dict[str, PoolingParty]
    counts: dict[str, Words]
    sent: dict[str, tuple[CountRequest, MaskedCounts]]
    total: Words
    colluders: int | None

    def unmask(self, coalition: Collection[str], other: str) -> Words:
        """Return another party's message after removing the masks that it shares with a coalition."""
        question, reply = self.sent[other]
        cells = reply.cells
        context = (question.round.to_bytes(8, "big"), question.batch.digest)
        for member in coalition:
            words = self.parties[member].mask(other, len(cells), "pooling mask", *context)
            cells = cells - words if other < member else cells + words
        return cells

    def find_exposed(self, coalition: Collection[str], *, wire: bool) -> frozenset[str] | None:
        """Return the smallest set of other parties whose summed counts a coalition can compute, or None.

        With `wire`, the coalition has all messages, like the party that computes the sum. Without it, the
        coalition has the total and its own counts.
        """
        others = [name for name in self.parties if name not in coalition]
        if not wire:
            rest = self.total - _sum([self.counts[name] for name in coalition])
            return frozenset(others) if np.array_equal(rest, self._true(others)) else None
        left = {name: self.unmask(coalition, name) for name in others}
        for some in _subsets(others):
            if np.array_equal(_sum([left[name] for name in some]), self._true(some)):
                return frozenset(some)
        return None

    def _true(self, names: Collection[str]) -> Words:
        return _sum([self.counts[name] for name in names])


def run_pool(names: Sequence[str], earlier: Sequence[Collection[str]] = ()) -> PoolRun:
    """Run a secure sum of parties with random counts; all messages are encoded as bytes."""
    generator, keys = np.random.default_rng(), {name: SigningKey() for name in names}
    public = {name: key.public for name, key in keys.items()}
    sizes = {name: int(generator.integers(2, LARGEST)) for name in names}
    codes = {name: generator.integers(0, 2, size, dtype=np.uint8) for name, size in sizes.items()}
    counts = {name: np.bincount(column, minlength=2).astype(np.uint64) for name, column in codes.items()}
    parties = {
        name: pooling_party(name, Records({"answer": column}, POLICY), keys[name], public, earlier=earlier)
        for name, column in codes.items()
    }
    sent: dict[str, tuple[CountRequest, MaskedCounts]] = {}

    def receive(name: str, message: bytes) -> bytes:
        reply = parties[name].receive(message)
        if tag_of(message) == CountRequest.TAG:
            sent[name] = (CountRequest.decode(message), MaskedCounts.decode(reply))
        return reply

    transport = LocalTransport({name: partial(receive, name) for name in names})
    pool = MaskedSum(names, transport, POLICY)
    total = pool.totals([QUESTION])
    return PoolRun(parties, counts, sent, total, pool.guarantee(["answer"]).colluders)


def audit_coalitions(parties: int = 5) -> Audit:
    """Try every coalition in a secure sum, with and without the party that computes the sum.

    Parameters
    ----------
    parties : int, optional
        Number of parties.

    Returns
    -------
    Audit
        The counts that coalitions of each size can compute.

    Raises
    ------
    InputError
        If the number of parties is outside the range that can be tried.

    Examples
    --------
    >>> found = mq.audit.audit_coalitions(parties=3)
    >>> found.contradicted, len(found.findings) > 0
    (False, True)
    """
    if isinstance(parties, bool) or not LEAST_PARTIES <= parties <= MOST_PARTIES:
        raise InputError(
            f"'parties' must be between {LEAST_PARTIES} and {MOST_PARTIES}. Got {parties} instead."
        )
    names = [f"party {number}" for number in range(1, parties + 1)]
    run = run_pool(names)
    rows, broken = [], []
    for size in range(parties):
        coalitions = list(combinations(names, size))
        for wire in (True, False):
            exposed = [run.find_exposed(coalition, wire=wire) for coalition in coalitions]
            single = sum(it is not None and len(it) == 1 for it in exposed)
            fewest = min((len(it) for it in exposed if it), default=None)
            rows.append((size, wire, len(coalitions), single, fewest))
            allowed = run.colluders is not None and size <= run.colluders
            broken += [size] if single and allowed else []
    findings = [
        Finding(
            about="a party's counts under masks",
            verdict="contradicted" if broken else "not contradicted",
            says=(
                f"of {parties} parties, {min(broken)} that collude learn the counts of one other."
                if broken
                else f"no coalition of up to {run.colluders} of {parties} parties, including the party "
                "that adds up, extracts one other party's counts from its message. All parties but one "
                "can: they subtract their own counts from the sum."
            ),
            attack="every coalition removes the masks that its members share, and tries every sum",
            assumption="one run with random counts; masks are 64-bit words, so that no sum fits by chance",
        ),
        _one_party_more(names),
    ]
    columns = (
        "colluding parties",
        "with the party that adds up",
        "coalitions",
        "learn one party's counts",
        "fewest others whose sum is learnt",
    )
    note = "A coalition always learns the sum over all other parties."
    table = AuditTable("Coalitions of a secure sum", columns, tuple(rows), note)
    return Audit(f"Coalitions of a pool of {parties} parties", tuple(findings), (table,))


def _one_party_more(names: Sequence[str]) -> Finding:
    """Try a second sum with one more party, whose counts would be the difference of the sums."""
    larger = [*names, "newcomer"]
    try:
        run_pool(larger, earlier=[names])
    except RoundAborted as refused:
        return Finding(
            about="a second pool with one more party",
            verdict="not contradicted",
            says=f"it is refused, since the difference of the two sums is the newcomer's: {refused}",
            attack="the difference of two sums",
        )
    return Finding(
        about="a second pool with one more party",
        verdict="contradicted",
        says="parties joined it: the difference of the two sums is the newcomer's counts.",
        attack="the difference of two sums",
    )


def _sum(words: Sequence[Words]) -> Words:
    rows = [np.zeros(len(POLICY.schema["answer"]), dtype=np.uint64), *words]
    return np.asarray(np.sum(rows, axis=0, dtype=np.uint64))


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    yield from chain.from_iterable(combinations(names, size) for size in range(1, len(names) + 1))
