"""Horizontal parties: counts added up so that nobody sees another party's.

Every two parties share a keystream that one adds and the other subtracts. Whoever adds up sees the sums and
nothing else, whatever it is told by fewer than all but one of the others. The words are numbers modulo 2^64,
beyond every possible sum, so a sum is never taken for another.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Annotated

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.axes import Words
from masquerade.core.errors import InputError, Refusal, RoundAborted, SchemaError
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.query import Query
from masquerade.core.tally import Tally, raise_refusals
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.wire.codec import SESSION_SIZE, U64, Array, SessionMessage
from masquerade.protocols.wire.session import (
    Batch,
    Consent,
    Member,
    Proposal,
    Questions,
    SessionOffer,
    Transport,
    agreement_of,
    ask,
    check_names,
    convene,
    propose,
)

LEAST_PARTIES = 3
MODULUS_BITS = 64
MOST_CELLS = 2**24
LARGEST_PARTY = 2**40  # records of one party; a thousand of them stay far below 2^64


class CountRequest(SessionMessage, tag=b"masquerade pooling ask 1"):
    """Questions of a round that all parties consent to."""

    round: U64
    batch: Questions


class MaskedCounts(SessionMessage, tag=b"masquerade pooling masked 1", eq=False):
    """A party's cells plus its masks."""

    round: U64
    cells: Annotated[Words, Array("<u8", MOST_CELLS)]


class PoolingParty(Member):
    """A party that counts its own records and answers with masked cells.

    It learns nothing. `source` is any `Tally` whose counts are exact: of its clear records, or of the reports
    that disguised records hold under `policy`; whoever pools them corrects once. `peers` are the identities
    of the other parties, known beforehand; `roster` are those the pool must be of. `variables` are those the
    party consents to; None means all. `earlier` are rosters of other pools about the same records: one that
    differs by fewer than three parties is refused, since the difference of two sums would be the counts of so
    few.
    """

    def __init__(
        self,
        name: str,
        source: Tally,
        identity: SigningKey,
        peers: Mapping[str, bytes],
        *,
        policy: Policy | None = None,
        variables: Collection[str] | None = None,
        roster: Collection[str] | None = None,
        earlier: Sequence[Collection[str]] = (),
        most_cells: int | None = None,
    ) -> None:
        policy = Policy.clear(source.schema) if policy is None else policy
        if policy.observed != source.schema:
            raise InputError("The source counts other reports than the policy has.")
        super().__init__(name, identity, peers, pooling_agreement(policy))
        self._source, self._most_cells = source, most_cells
        self._consented = frozenset(source.schema if variables is None else variables)
        for variable in self._consented:
            source.schema[variable]
        self._due = None if roster is None else frozenset(roster)
        self._earlier = [frozenset(pool) for pool in earlier]
        self._last: tuple[CountRequest, MaskedCounts] | None = None
        self.handlers |= {
            Proposal: lambda it: Consent(it.session, it.round, tuple(self._refusals(it.batch.queries))),
            CountRequest: self._masked,
        }

    def _check_offer(self, offer: SessionOffer) -> None:
        _check_enough(offer.roster)
        if self._due is not None and frozenset(offer.roster) != self._due:
            raise InputError("The pool is of other parties than agreed on.")
        for roster in self._earlier:
            for gone in (roster - set(offer.roster), set(offer.roster) - roster):
                if 1 <= len(gone) < LEAST_PARTIES:
                    raise InputError(
                        f"An earlier session differs by {len(gone)} parties: the difference of the sums "
                        "would be theirs."
                    )

    def _refusals(self, queries: Sequence[Query]) -> list[Refusal]:
        schema = self._source.schema
        for query in queries:
            try:
                query.check(schema)
            except SchemaError as error:
                return [Refusal("unknown_variable", str(error), query)]
            hidden = [name for name in query.names if name not in self._consented]
            if hidden:
                reason = f"{', '.join(map(repr, hidden))} may not be counted here."
                return [Refusal("not_consented", reason, query)]
        cells = sum(prod(schema.shape(query.by)) for query in queries)
        most = self._most_cells or MOST_CELLS
        if cells > most:
            return [Refusal("too_many_cells", f"A batch has at most {most:,} cells, this one {cells:,}.")]
        return list(self._source.check(queries))

    def _counts(self, queries: Sequence[Query]) -> Words:
        """Return all cells of all tables, one after the other; counts that are not exact are refused."""
        raise_refusals(self._refusals(queries))
        cells = [np.zeros(0, dtype=np.uint64)]
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
        return np.concatenate(cells)

    def _masked(self, question: CountRequest) -> MaskedCounts:
        """Answer a round once; the same questions again get the same bytes, others are refused."""
        if self._last is not None and question == self._last[0]:
            return self._last[1]
        if question.round != (1 if self._last is None else self._last[0].round + 1):
            raise InputError(
                f"Round {question.round} is not the next one: it was answered, or one is missing."
            )
        cells = self._counts(question.batch.queries)
        context = (question.round.to_bytes(8, "big"), question.batch.digest)
        for peer in self.members:
            if peer != self.name:
                words = self.mask(peer, len(cells), "pooling mask", *context)
                cells = cells + words if self.name < peer else cells - words
        reply = MaskedCounts(question.session, question.round, cells)
        self._last = (question, reply)
        return reply


class MaskedSum:
    """Adds up what parties send: learns the sums over all parties, and nothing about one of them.

    Whoever runs it may be a party or an outsider. A party that does not answer aborts the round.
    """

    def __init__(
        self, parties: Sequence[str], transport: Transport, policy: Policy, *, session: bytes | None = None
    ) -> None:
        check_names(parties)
        _check_enough(parties)
        if len(parties) * LARGEST_PARTY >= 1 << MODULUS_BITS:
            raise InputError(f"The sums of {len(parties):,} parties may reach the modulus 2^{MODULUS_BITS}.")
        self.parties, self._transport = tuple(parties), transport
        self.session = os.urandom(SESSION_SIZE) if session is None else session
        self._round = 0
        convene(self.parties, transport, self.session, pooling_agreement(policy))

    def totals(self, queries: Sequence[Query]) -> Words:
        """Return the sums of all cells; no party counts before all consent."""
        following = self._round + 1
        propose(self._transport, self.parties, self.session, following, queries)
        self._round = following
        question = CountRequest(self.session, following, Batch(tuple(queries)))
        total: Words | None = None
        for party in self.parties:
            answer = ask(self._transport, party, question, MaskedCounts, spent=True)
            if (answer.session, answer.round) != (self.session, following) or (
                total is not None and len(answer.cells) != len(total)
            ):
                raise RoundAborted(f"Party {party!r} answered something else.", spent=True, culprits=(party,))
            total = answer.cells if total is None else total + answer.cells
        if total is None or np.any(total > np.uint64(len(self.parties) * LARGEST_PARTY)):
            raise RoundAborted(
                "The sums are beyond what the parties can hold: one of them was asked something else or did "
                "not keep to the protocol.",
                spent=True,
            )
        return total

    def guarantee(self, names: Sequence[str]) -> Guarantee:
        """Return who learns what: the sums, as long as two parties keep their masks to themselves."""
        return Guarantee(
            (Disclosure("whoever adds up", "pooled counts over all parties", tuple(names), None),),
            (
                "X25519, HKDF-SHA-256 and AES-256 are secure, and Ed25519 identities were known beforehand",
                (
                    "sums of other pools about the same records do not combine with these to the counts of "
                    "one or two parties, as those of a pool with one party more would"
                ),
                "a party may count falsely: nothing checks its numbers",
            ),
            {"whoever adds up": "malicious", "party": "semi-honest"},
            len(self.parties) - 2,
            dropouts=0,
        )


def pooling_agreement(policy: Policy) -> bytes:
    """Return what parties of a pool must agree on: the mechanism, and how large a party may be."""
    return agreement_of("pooled counts", policy.id, str(LARGEST_PARTY))


def _check_enough(parties: Sequence[str]) -> None:
    if len(parties) < LEAST_PARTIES:
        raise InputError(
            f"A secure sum needs at least {LEAST_PARTIES} parties, here are {len(parties)}: with two, each "
            "subtracts its own counts from the sum and has the other's."
        )
