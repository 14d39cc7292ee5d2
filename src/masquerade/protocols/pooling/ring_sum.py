"""Secure sum around a ring, as the dissertation describes it: cheap, and open to neighbours who collude.

The first party adds random numbers to its counts and passes them on; everybody adds its own; the first takes
the random numbers off again. Whoever stands before and after a party learn its counts if they compare notes,
so `MaskedSum` is what to use; this one is here to be compared with.

Reference: Ma (2006), section 1.2.2, with the modulus above the largest sum (there it equals it, and a sum of
n would be read as 0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, QueryRefused, RoundAborted
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.crypto.keystream import Keystream
from masquerade.protocols.codec import U64, Array, Digest, SessionMessage, Words, check_session
from masquerade.protocols.consent import Batch, Questions
from masquerade.protocols.pooling.local_counts import MOST_CELLS, LocalCounts, pooling_agreement
from masquerade.protocols.pooling.masked_sum import LEAST_PARTIES, OTHER_POOLS, too_few
from masquerade.protocols.session_keys import check_names
from masquerade.protocols.transport import Transport


@dataclass(frozen=True, slots=True, eq=False)
class RunningSums(SessionMessage):
    """Running sums on their way around the ring, modulo a power of two."""

    TAG: ClassVar[bytes] = b"masquerade pooling ring 1"
    agreement: Digest
    round: U64
    batch: Questions
    cells: Annotated[Words, Array("<u8", MOST_CELLS)]


class OutgoingMessage(NamedTuple):
    """A message, and whom it goes to."""

    party: str
    message: bytes


class RingParty:
    """A party of the ring; `ring` names all in order, and the first one starts and learns the sums.

    `bits` says that sums are modulo 2^bits; `largest` is the number of records that a party may have at most.
    """

    def __init__(
        self,
        name: str,
        ring: Sequence[str],
        source: Tally,
        session: bytes,
        *,
        policy: Policy | None = None,
        bits: int = 64,
        largest: int = 2**40,
    ) -> None:
        check_names(ring)
        if len(ring) < LEAST_PARTIES:
            raise InputError(too_few(len(ring)))
        if name not in ring:
            raise InputError(f"Party {name!r} is not in the ring.")
        if not 1 <= bits <= 64 or len(ring) * largest >= 1 << bits:
            raise InputError(
                f"The modulus 2^{bits} must be at most 2^64 and above the largest sum, {len(ring)} × "
                f"{largest:,}."
            )
        self.name, self.ring, self.session = name, tuple(ring), session
        self.counts, self._largest = LocalCounts(source, policy), largest
        self.agreement = pooling_agreement(self.counts.policy)
        self._kept = np.uint64((1 << bits) - 1)
        self._round, self._random, self._asked = 0, np.zeros(0, dtype=np.uint64), Batch(())
        self.sums: Words | None = None

    @property
    def successor(self) -> str:
        """Return whom this party sends to."""
        return self.ring[(self.ring.index(self.name) + 1) % len(self.ring)]

    def begin(self, queries: Sequence[Query]) -> OutgoingMessage:
        """Start a round: the first party's counts under fresh random numbers."""
        if self.name != self.ring[0]:
            raise InputError(f"The round is started by {self.ring[0]!r}.")
        self._asked = Batch(tuple(queries))
        own = self._own(self._asked)
        self._random = Keystream()(8 * len(own)).view(np.uint64) & self._kept
        self._round, self.sums = self._round + 1, None
        return self._pass(self._round, self._asked, own + self._random)

    def receive(self, message: bytes) -> OutgoingMessage | None:
        """Add own counts and pass on; the first party takes the random numbers off instead and is done."""
        passed = RunningSums.decode(message)
        check_session(passed.session, self.session)
        if passed.agreement != self.agreement:
            raise InputError("The ring pools under another policy or schema.")
        if np.any(passed.cells > self._kept):
            raise InputError("A running sum is beyond the modulus.")
        if self.name == self.ring[0]:
            self._finish(passed)
            return None
        if passed.round != self._round + 1:
            raise InputError(f"Round {passed.round} is not the next one: it was answered, or one is missing.")
        own = self._own(passed.batch)
        if len(own) != len(passed.cells):
            raise InputError(f"The batch has {len(own):,} cells. Got {len(passed.cells):,} instead.")
        self._round = passed.round
        return self._pass(passed.round, passed.batch, own + passed.cells)

    def _finish(self, passed: RunningSums) -> None:
        if (passed.round, passed.batch) != (self._round, self._asked) or self.sums is not None:
            raise InputError("The sums belong to another round.")
        if len(passed.cells) != len(self._random):
            raise InputError("The sums have another number of cells than was asked.")
        self.sums = (passed.cells - self._random) & self._kept

    def _own(self, batch: Batch) -> Words:
        own = self.counts.counts(batch.queries)
        if np.any(own > np.uint64(self._largest)):
            raise InputError(f"A party of this ring has at most {self._largest:,} records.")
        return own

    def _pass(self, number: int, batch: Batch, cells: Words) -> OutgoingMessage:
        message = RunningSums(self.session, self.agreement, number, batch, cells & self._kept)
        return OutgoingMessage(self.successor, message.encode())


class RingSumOpenToNeighbours:
    """The sums that the first of a ring gets: a party's counts are open to its two neighbours together."""

    def __init__(self, first: RingParty, transport: Transport) -> None:
        self.first, self._transport = first, transport
        self.parties = first.ring

    def totals(self, queries: Sequence[Query]) -> Words:
        """Return the sums of all cells; a party that refuses aborts the round."""
        refusals = self.first.counts.refusals(queries)
        if refusals:
            raise QueryRefused(refusals)
        outgoing = self.first.begin(queries)
        self._transport.exchange(outgoing.party, outgoing.message)
        if self.first.sums is None:
            raise RoundAborted("The running sums did not come back around the ring.", spent=True)
        return self.first.sums

    def guarantee(self, names: Sequence[str]) -> Guarantee:
        """Return who learns what: two neighbours together learn everything about the party between them."""
        ring = self.parties
        coalitions = tuple((ring[i - 2], ring[i]) for i in range(len(ring)))
        return Guarantee(
            (Disclosure(ring[0], "pooled counts over all parties", tuple(names), None),),
            (
                "messages between neighbours are seen by nobody else",
                "no two neighbours of a party compare what they saw",
                OTHER_POOLS,
            ),
            {"party": "semi-honest"},
            1,
            coalitions,
            0,
        )


def forwarding(party: RingParty, transport: Transport) -> Callable[[bytes], bytes]:
    """Return a party as a function for a transport: what it passes on goes straight to its successor.

    The reply is empty: sums that travelled back would tell a party what those after it added.
    """

    def receive(message: bytes) -> bytes:
        outgoing = party.receive(message)
        if outgoing is not None:
            transport.exchange(outgoing.party, outgoing.message)
        return b""

    return receive
