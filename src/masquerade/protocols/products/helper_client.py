"""Sums of products over any number of vertical parties, with a helper: whoever asks drives the messages.

It sees masked columns pass by and the sums, nothing else; what it changes on the way is refused. Two parties
need one inner product; each further party one elementwise product more, whose shares are never opened.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.protocols.codec import SESSION_SIZE, Words
from masquerade.protocols.own_columns import Owners
from masquerade.protocols.products.columns import Columns, Part, moments_of, shares_of, width
from masquerade.protocols.products.messages import (
    ASKER,
    ELEMENTWISE,
    INNER,
    MOST_WORDS,
    ColumnRequest,
    Correlation,
    CorrelationRequest,
    MaskedColumns,
    OpenNumbers,
    ProductRequest,
    SumRequest,
    product_agreement,
)
from masquerade.protocols.session import Transport, ask, check_names, convene, propose


class HelpedProducts:
    """Asks parties and the helper for sums of products, each once."""

    def __init__(
        self,
        owners: Owners,
        helper: str,
        transport: Transport,
        schema: Schema,
        n: int,
        *,
        alignment: bytes = b"",
    ) -> None:
        check_names((*owners, helper))
        if len(owners) < 2:
            raise InputError("Products across parties need at least two; one counts alone.")
        self.owners, self.helper, self.schema, self.n = owners, helper, schema, n
        self._transport, self.session = transport, os.urandom(SESSION_SIZE)
        agreement = product_agreement(schema, owners, helper, n, alignment)
        convene((*owners, helper), transport, self.session, agreement)
        self._shown: dict[Columns, MaskedColumns] = {}
        self._delivered: set[tuple[Columns, str]] = set()
        self._formed: set[tuple[Part, ...]] = set()
        self._known: dict[tuple[Part, ...], NDArray[np.int64]] = {}
        self._round = 0

    def refusals(self, parts: Sequence[Part]) -> list[Refusal]:
        """Return why sums over these parts are not formed."""
        formed = [parts[:-1]] if len(parts) > 2 else []
        numbers = max(
            [width(self.schema, some) for some in (*formed, *([part] for part in parts))], default=0
        )
        if numbers * self.n > MOST_WORDS:
            reason = f"{numbers:,} columns of {self.n:,} records are more than {MOST_WORDS:,} numbers."
            return [Refusal("too_many_cells", reason)]
        return []

    def propose(self, queries: Sequence[Query]) -> None:
        """Raise `QueryRefused` unless every party consents; nothing has left anybody by then."""
        self._round += 1
        propose(self._transport, tuple(self.owners), self.session, self._round, queries)

    def moments(self, parts: tuple[Part, ...]) -> NDArray[np.int64]:
        """Return the sums of products of every choice of one column, or none, of each part."""
        return moments_of(self.schema, self.n, parts, self._joint)

    def _joint(self, parts: tuple[Part, ...]) -> NDArray[np.int64]:
        """Return the sums of products of one column of each part, an axis each."""
        shape = [width(self.schema, [part]) for part in parts]
        if parts not in self._known:
            words = self._sums(parts[0]) if len(parts) == 1 else self._inner(parts)
            if words.size != int(np.prod(shape)) or np.any(words > np.uint64(self.n)):
                raise RoundAborted(
                    "A sum of products is no count: a party's share was false.",
                    spent=True,
                )
            self._known[parts] = words.astype(np.int64).reshape(shape)
        return self._known[parts]

    def _sums(self, part: Part) -> Words:
        return ask(
            self._transport, part.party, SumRequest(self.session, part.names), OpenNumbers, spent=True
        ).words

    def _inner(self, parts: tuple[Part, ...]) -> Words:
        lefts = self._shares(parts[:-1])
        shares = self._multiply(INNER, lefts, parts[-1])
        if len({share.size for share in shares}) > 1:
            raise RoundAborted("The parties' shares have different sizes.", spent=True)
        return np.asarray(sum(shares[1:], start=shares[0]))

    def _shares(self, parts: tuple[Part, ...]) -> tuple[Columns, ...]:
        """Return who holds shares of the product of some parts, forming them one part after the other."""
        for count in range(2, len(parts) + 1):
            prefix = parts[:count]
            if prefix not in self._formed:
                self._multiply(ELEMENTWISE, shares_of(prefix[:-1]), prefix[-1])
                self._formed.add(prefix)
        return shares_of(parts)

    def _multiply(self, kind: int, lefts: tuple[Columns, ...], part: Part) -> list[Words]:
        right = Columns(part.party, (part,))
        sealed = []
        for left in lefts:
            self._deliver(left, right.holder)
            self._deliver(right, left.holder)
            question = CorrelationRequest(self.session, kind, left, right)
            sealed.append(ask(self._transport, self.helper, question, Correlation, spent=True).sealed)
        shares = []
        for holder in (*(left.holder for left in lefts), right.holder):
            corrections = tuple(sealed) if holder == right.holder else ()
            request = ProductRequest(self.session, kind, lefts, right, corrections)
            shares.append(ask(self._transport, holder, request, OpenNumbers, spent=True).words)
        return shares

    def _deliver(self, columns: Columns, to: str) -> None:
        """Pass masked columns on, once to every party that needs them."""
        if (columns, to) in self._delivered:
            return
        if columns not in self._shown:
            request = ColumnRequest(self.session, columns)
            shown = ask(self._transport, columns.holder, request, MaskedColumns, spent=True)
            if shown.columns != columns:
                raise RoundAborted(
                    f"{columns.holder!r} showed other columns.", spent=True, culprits=(columns.holder,)
                )
            self._shown[columns] = shown
        ask(self._transport, to, self._shown[columns], OpenNumbers, spent=True)
        self._delivered.add((columns, to))

    def guarantee(self) -> Guarantee:
        """Return who learns what: counts for whoever asks, and nothing for the helper but the questions."""
        everything = tuple(self.schema)
        return Guarantee(
            (
                Disclosure(ASKER, "exact counts of every table asked for", everything, None),
                Disclosure(self.helper, "which products are formed, and no value", everything, Fraction(1)),
            ),
            (
                f"the helper ({self.helper}) colludes with nobody: with one party it could unmask the others",
                "X25519, HKDF, AES-256 and ChaCha20-Poly1305 are secure; identities were known beforehand",
                "Ed25519 and SHA-256 are secure: masked columns are signed",
                "parties, also one that asks, multiply indicators of their true records: nothing checks them",
                "whoever asks learns what it asks for: a table narrow enough counts a single person",
                "records were linked row by row beforehand, and their number is public",
            ),
            {ASKER: "malicious", **dict.fromkeys((self.helper, *self.owners), "semi-honest")},
            len(self.owners) - 1,
            tuple((self.helper, other) for other in (*self.owners, ASKER)),
            0,
        )
