"""A key holder: blinds, shuffles, checks the others, and opens its part; bytes in, bytes out."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import ClassVar

from masquerade.core.errors import InputError
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.mix.messages import Signed, board_hash
from masquerade.protocols.mix.roles import Leader, Rows
from masquerade.protocols.partition.agreement import PartitionTerms
from masquerade.protocols.partition.comparison import (
    check_cost,
    checked_mixing,
    mix_pairs,
    mixing_place,
    quotients,
)


class KeyHolder(Leader):
    """Blinds and shuffles the comparisons. Learns what everybody learns, and no other holder's order.

    One honest key holder is enough: it opens nothing until it has checked what all others did, and all have
    signed that. The first key holder also passes sealed reports on, in an order of its own.
    """

    WORDS: ClassVar[tuple[str, str]] = "mixed", "mixings"

    def __init__(
        self, name: str, identity: SigningKey, terms: PartitionTerms, *, accept_cost: bool = False
    ) -> None:
        if name not in terms.holders:
            raise InputError(f"{name!r} is not a key holder of these terms.")
        check_cost(len(terms.people), len(terms.attributes), len(terms.holders), accept_cost=accept_cost)
        super().__init__(name, identity, terms.mix)
        self._passed = False

    def _first_rows(self, batch: bytes) -> Rows:
        return quotients(self._rows_of(batch))

    def _checked(self, batch: bytes, rows: Rows, signed: Signed) -> Rows:
        return checked_mixing(self.terms, self.key, board_hash(b"batch", batch), rows, signed)

    def _made(self, batch: bytes, rows: Rows) -> tuple[bytes, Rows]:
        where = mixing_place(self.terms, self.key, board_hash(b"batch", batch), self.name)
        return mix_pairs(rows, self.key.point, where)

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
