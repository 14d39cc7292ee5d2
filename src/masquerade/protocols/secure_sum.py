"""Secure sum of horizontal parties: masked counts are added so that no party's counts are seen.

Every two parties share a keystream that one adds and the other subtracts. The summing party sees only the
sums, even if it colludes with all parties but two. Numbers are taken modulo 2^64, which exceeds every
possible sum.

Sequence: the parties join a session (`wire.session`: `SessionOffer`, `Advert`, `SessionRoster`,
`RosterReceipt`), the questions are proposed (`Proposal`, `SignedConsent`), and each party answers a
`CountRequest` with `MaskedCounts`.
Reference: Bonawitz et al. (2017) without dropout recovery. It stops being secure if all parties but one
collude, or if the sums of two sessions over nearly the same parties are subtracted.

With noise (`noise_shares`) each party adds a share of noise to its counts before they are masked. Records are
then protected even from all parties but one, so two parties are enough. The parties' totals are not
protected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Annotated

import numpy as np

from masquerade.channels.noise.terms import NoiseTerms
from masquerade.channels.policy import Policy
from masquerade.core.axes import Words
from masquerade.core.errors import InputError, Refusal, RoundAborted, SchemaError
from masquerade.core.guarantee import AGGREGATOR, Disclosure, Guarantee
from masquerade.core.query import Query
from masquerade.core.tally import Tally, raise_refusals
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.noise_shares import NoiseShares
from masquerade.protocols.wire.codec import SESSION_SIZE, U64, Array, SessionMessage
from masquerade.protocols.wire.session import (
    Batch,
    Member,
    Proposal,
    Questions,
    SessionOffer,
    SignedConsent,
    Transport,
    agreement_of,
    ask,
    check_names,
    convene,
    propose,
)

LEAST_PARTIES = 3
LEAST_WITH_NOISE = 2  # a party may subtract its own counts, but not the noise of the other party
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

    It learns nothing. `source` is any `Tally` with exact counts: of its clear records, or of the reports
    under `policy`, whose channels are inverted once, on the sum. `peers` are the identities of the other
    parties, known in advance; `roster` lists the required parties. `variables` are the variables that the
    party consents to; None means all. `earlier` are rosters of other sums about the same records: a roster
    that differs by fewer than three parties is refused, because the difference of two sums would be the
    counts of those few. `noise` adds this party's shares of noise; the pool must then have exactly the agreed
    number of contributors.
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
        noise: NoiseShares | None = None,
    ) -> None:
        policy = Policy.clear(source.schema) if policy is None else policy
        if noise is not None and policy.disguised:
            raise InputError(
                "Noise is for counts of clear records; disguised records are pooled without noise."
            )
        if policy.observed != source.schema:
            raise InputError("The reports that the source counts are not the reports of the policy.")
        super().__init__(
            name, identity, peers, pooling_agreement(policy, None if noise is None else noise.terms)
        )
        self._source, self._most_cells, self._noise = source, most_cells, noise
        self._consented = frozenset(source.schema if variables is None else variables)
        for variable in self._consented:
            source.schema[variable]
        self._due = None if roster is None else frozenset(roster)
        self._earlier = [frozenset(pool) for pool in earlier]
        self._last: tuple[CountRequest, MaskedCounts] | None = None
        self.handlers |= {
            Proposal: lambda it: SignedConsent(it.session, it.round, tuple(self._refusals(it.batch.queries))),
            CountRequest: self._mask_counts,
        }

    def _check_offer(self, offer: SessionOffer) -> None:
        terms = None if self._noise is None else self._noise.terms
        _check_enough(offer.roster, terms)
        if self._due is not None and frozenset(offer.roster) != self._due:
            raise InputError("The parties of the pool differ from the agreed parties.")
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
            reason = f"A batch has at most {most:,} cells; this batch has {cells:,}."
            return [Refusal("too_many_cells", reason)]
        refusal = None if self._noise is None else self._noise.refusal(queries)
        return [*([] if refusal is None else [refusal]), *self._source.check(queries)]

    def _counts(self, queries: Sequence[Query]) -> Words:
        """Return all cells of all tables, concatenated; raise an error if counts are not exact."""
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

    def _mask_counts(self, question: CountRequest) -> MaskedCounts:
        """Answer a round once; a repeated request gets the same bytes, a different one is refused."""
        if self._last is not None and question == self._last[0]:
            return self._last[1]
        if question.round != (1 if self._last is None else self._last[0].round + 1):
            raise InputError(
                f"Round {question.round} is not the next one: it was answered, or one is missing."
            )
        cells = self._counts(question.batch.queries)
        if self._noise is not None:  # noise is spent and drawn only after everything was counted
            name = question.session + question.round.to_bytes(8, "big")
            cells = cells + self._noise.draw(name, question.batch.queries, self._source.schema)
        context = (question.round.to_bytes(8, "big"), question.batch.digest)
        for peer in self.members:
            if peer != self.name:
                words = self.mask(peer, len(cells), "pooling mask", *context)
                cells = cells + words if self.name < peer else cells - words
        reply = MaskedCounts(question.session, question.round, cells)
        self._last = (question, reply)
        return reply


class MaskedSum:
    """Adds the parties' masked counts: it learns the sums over all parties, and nothing about a single party.

    It may be run by a party or an outsider. A party that does not answer aborts the round. With `noise` the
    sums carry the noise of all parties, and are signed.
    """

    def __init__(
        self,
        parties: Sequence[str],
        transport: Transport,
        policy: Policy,
        *,
        session: bytes | None = None,
        noise: NoiseTerms | None = None,
    ) -> None:
        check_names(parties)
        _check_enough(parties, noise)
        if len(parties) * LARGEST_PARTY >= 1 << MODULUS_BITS:
            raise InputError(f"The sums of {len(parties):,} parties may reach the modulus 2^{MODULUS_BITS}.")
        self.parties, self._transport, self.noise = tuple(parties), transport, noise
        self.session = os.urandom(SESSION_SIZE) if session is None else session
        self._round = 0
        convene(self.parties, transport, self.session, pooling_agreement(policy, noise))

    def totals(self, queries: Sequence[Query]) -> Words:
        """Return the sums of all cells; no party counts before all consent.

        Sums with noise may be negative: read them as signed numbers of 64 bits.
        """
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
                raise RoundAborted(
                    f"Party {party!r} sent a reply to a different request.", spent=True, culprits=(party,)
                )
            total = answer.cells if total is None else total + answer.cells
        largest = np.uint64(len(self.parties) * LARGEST_PARTY)
        size = total if total is None or self.noise is None else np.minimum(total, np.uint64(0) - total)
        if total is None or size is None or np.any(size > largest):
            raise RoundAborted(
                "The sums are larger than the parties' records allow: a party received a different request "
                "or did not follow the protocol.",
                spent=True,
            )
        return total

    def guarantee(self, names: Sequence[str]) -> Guarantee:
        """Return the disclosures: the sums, as long as two parties keep their masks secret.

        With noise, as long as no more parties collude than agreed.
        """
        colluders = len(self.parties) - 2 if self.noise is None else self.noise.colluders
        return Guarantee(
            (Disclosure(AGGREGATOR, "pooled counts over all parties", tuple(names), None),),
            (
                "X25519, HKDF-SHA-256 and AES-256 are secure, and Ed25519 identities were known in advance",
                (
                    "sums of other pools about the same records do not combine with these to the counts of "
                    "one or two parties, as those of a pool with one party more would"
                ),
                "a party may count falsely: nothing checks its numbers",
            ),
            {AGGREGATOR: "malicious", "party": "semi-honest"},
            colluders,
            dropouts=0,
        )


def pooling_agreement(policy: Policy, noise: NoiseTerms | None = None) -> bytes:
    """Return the agreement of a sum's parties: the mechanism, the largest size of a party, the noise."""
    terms = () if noise is None else ("noise", json.dumps(noise.to_dict(), sort_keys=True))
    return agreement_of("pooled counts", policy.id, str(LARGEST_PARTY), *terms)


def _check_enough(parties: Sequence[str], noise: NoiseTerms | None = None) -> None:
    if noise is not None:
        if len(parties) < LEAST_WITH_NOISE:
            raise InputError("A secure sum with noise needs at least two parties. One party uses mq.Noisy.")
        if len(parties) != noise.contributors:
            raise InputError(
                f"The noise was agreed on for {noise.contributors} parties, and the pool has {len(parties)}: "
                "fewer honest ones would add too little noise."
            )
        return
    if len(parties) < LEAST_PARTIES:
        raise InputError(
            f"A secure sum needs at least {LEAST_PARTIES} parties. Got {len(parties)} instead: of two "
            "parties, each could subtract its own counts from the sum and learn those of the other."
        )
