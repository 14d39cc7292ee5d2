"""A key holder: blinds, shuffles, checks the others, and opens its part; bytes in, bytes out."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.elgamal import Row
from masquerade.crypto.errors import KeySpent
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.mix.key_holder import Holder
from masquerade.protocols.mix.messages import (
    ENDORSEMENT,
    SHUFFLE,
    Board,
    board_hash,
    opened_board,
)
from masquerade.protocols.mix.roles import check_endorsed
from masquerade.protocols.partition.agreement import PartitionTerms
from masquerade.protocols.partition.comparison import (
    check_cost,
    checked_mixing,
    mix_pairs,
    mixing_place,
    quotients,
)
from masquerade.protocols.partition.messages import MINER


class _MixedBatch(NamedTuple):
    """A batch, the mixings that it went through, and what came out."""

    batch: bytes
    mixings: tuple[bytes, ...]
    rows: tuple[Row, ...]


class KeyHolder(Holder):
    """Blinds and shuffles the comparisons. Learns what everybody learns, and no other holder's order.

    One honest key holder is enough: it opens nothing until it has checked what all others did, and all have
    signed that. The first key holder also passes sealed reports on, in an order of its own.
    """

    def __init__(
        self, name: str, identity: SigningKey, terms: PartitionTerms, *, accept_cost: bool = False
    ) -> None:
        if name not in terms.holders:
            raise InputError(f"{name!r} is not a key holder of these terms.")
        check_cost(len(terms.people), len(terms.attributes), len(terms.holders), accept_cost=accept_cost)
        super().__init__(name, identity, terms.mix)
        self._place = list(terms.holders).index(name)
        self._mine: _MixedBatch | None = None
        self._endorsed: _MixedBatch | None = None
        self._passed = False

    def mix(self, batch: bytes, before: bytes) -> bytes:
        """Return the pairs of a batch, after the mixings `before`, blinded and shuffled; all is checked."""
        if self._mine is not None:
            raise KeySpent(f"{self.name} has mixed in this session already.")
        done = opened_board(before, self.terms, SHUFFLE, tuple(self.terms.leaders)[: self._place])
        rows, digest = quotients(self._rows_of(batch)), board_hash(b"batch", batch)
        for signed in done:
            rows = checked_mixing(self.terms, self.key, digest, rows, signed)
        message, out = mix_pairs(rows, self.key.point, mixing_place(self.terms, self.key, digest, self.name))
        own = self._signed(SHUFFLE, message)
        self._mine = _MixedBatch(batch, (*Board.decode(before).parts, own), out)
        return own

    def endorse(self, batch: bytes, mixings: bytes) -> bytes:
        """Return a signature of the batch and all mixings, after checking those not checked yet."""
        if self._endorsed is not None:
            raise KeySpent(f"{self.name} has endorsed the mixings of this session already.")
        signed = opened_board(mixings, self.terms, SHUFFLE, tuple(self.terms.leaders))
        parts, mine = Board.decode(mixings).parts, self._mine
        if mine is None or mine.batch != batch or mine.mixings != parts[: len(mine.mixings)]:
            raise RoundAborted("The board is not the one that I mixed.", spent=False, culprits=(MINER,))
        rows, digest = mine.rows, board_hash(b"batch", batch)
        for later in signed[len(mine.mixings) :]:
            rows = checked_mixing(self.terms, self.key, digest, rows, later)
        self._endorsed = _MixedBatch(batch, parts, rows)
        return self._signed(ENDORSEMENT, board_hash(b"mixed", batch, mixings))

    def open(self, endorsements: bytes) -> bytes:
        """Return this holder's part of opening the distances, once all have signed the same mixings."""
        if self._endorsed is None:
            raise InputError("The mixings come before their endorsements.")
        done = self._endorsed
        mixed = board_hash(b"mixed", done.batch, Board(done.mixings).encode())
        check_endorsed(self.terms, endorsements, mixed)
        return self._opening(done.rows, mixed)

    def pass_on(self, sealed: Sequence[bytes]) -> list[bytes]:
        """Return sealed reports in another order, once: so that the miner cannot tell who sent which."""
        if self._place != 0 or self._passed:
            raise InputError("Reports are passed on by the first key holder, all at once.")
        if len({len(one) for one in sealed}) > 1:
            raise InputError("Sealed reports have one length: another would tell who sent it.")
        self._passed = True
        order = list(sealed)
        secrets.SystemRandom().shuffle(order)
        return order
