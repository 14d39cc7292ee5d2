"""A vertical party that multiplies its columns with others' under masks; only sums of products are opened.

Masked columns are signed by their holder: whoever carries them and adds to one would read the other column
off the opened sum, so a changed one is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.schema import Schema
from masquerade.crypto.errors import KeySpent, SealBroken
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.protocols.codec import Words
from masquerade.protocols.own_columns import OwnColumns, Owners
from masquerade.protocols.products.columns import Columns, Part, shares_of, width
from masquerade.protocols.products.helper import Pair, check_pair, mask_of, multiplied, opened_from, share_of
from masquerade.protocols.products.messages import (
    ASKER,
    ELEMENTWISE,
    MOST_WORDS,
    SHOWN,
    ColumnRequest,
    MaskedColumns,
    OpenNumbers,
    ProductRequest,
    SumRequest,
    product_agreement,
)
from masquerade.protocols.session import Consent, Member, Proposal

MOST_KEPT = 2**28  # numbers of one session, 2 GiB
_ENTRY = 256  # numbers that the name of something kept counts for


class ProductParty(Member):
    """Holds some columns of all records. It sees others' columns only under the helper's masks.

    `schema` lists all variables and `owners` who holds which; `codes` are this party's, in the order of the
    records that all agreed on (`alignment` is its digest). `variables` are those it consents to. `most_kept`
    caps how many numbers it keeps in a session: others' masked columns and its shares.
    """

    def __init__(
        self,
        name: str,
        codes: Mapping[str, NDArray[Any]],
        identity: SigningKey,
        peers: Mapping[str, bytes],
        *,
        schema: Schema,
        owners: Owners,
        helper: str,
        alignment: bytes = b"",
        variables: Collection[str] | None = None,
        most_kept: int = MOST_KEPT,
    ) -> None:
        self._own = OwnColumns.of(name, codes, schema, owners, variables)
        agreement = product_agreement(schema, owners, helper, self._own.n, alignment)
        super().__init__(name, identity, peers, agreement)
        self._helper, self._schema = helper, schema
        self._owners = {party: frozenset(names) for party, names in owners.items()}
        self._identity, self._peers = identity, dict(peers)
        self._kept, self._most_kept = 0, most_kept
        self._products: dict[Columns, Words] = {}
        self._foreign: dict[Columns, Words] = {}
        self._done: dict[tuple[int, tuple[Columns, ...], Columns], OpenNumbers] = {}
        self.handlers = {
            Proposal: lambda it: Consent(it.session, it.round, self._own.refusals(it.batch.queries)),
            ColumnRequest: self._show,
            MaskedColumns: self._take,
            SumRequest: self._sums,
            ProductRequest: self._multiply,
        }

    def _show(self, question: ColumnRequest) -> MaskedColumns:
        """Return columns under their mask, signed: always the same bytes for the same columns."""
        columns = question.columns
        words = self._words(columns)
        mask = mask_of(self._membership, self._helper, columns, words.size)
        shown = MaskedColumns(question.session, columns, words.ravel() - mask)
        signature = self._identity.sign(SHOWN, *shown.signed(self._membership.roster))
        return MaskedColumns(shown.session, columns, shown.words, signature)

    def _take(self, shown: MaskedColumns) -> OpenNumbers:
        """Keep another party's masked columns; other words under the same name are refused.

        A share computed from two different versions, or from one that somebody added to, would give away what
        its mask hides.
        """
        columns = shown.columns
        holders = self._owners.keys() & set(self._membership.members) - {self.name}
        if columns.holder not in holders:
            raise InputError("Masked columns come from another party of the session.")
        lines = self._lines(columns.parts)
        if shown.words.size != lines * self._own.n:
            raise InputError(
                f"These columns have {lines * self._own.n:,} numbers. Got {shown.words.size:,} instead."
            )
        self._check_signed(shown)
        before = self._foreign.get(columns)
        if before is None:
            self._check_room(shown.words.size)
            self._kept += shown.words.size + _ENTRY
            self._foreign[columns] = shown.words.reshape(lines, self._own.n)
        elif not np.array_equal(before.ravel(), shown.words):
            raise KeySpent("These columns were shown already, with other numbers: a mask serves once.")
        return OpenNumbers(shown.session, np.zeros(0, dtype=np.uint64))

    def _check_signed(self, shown: MaskedColumns) -> None:
        holder = shown.columns.holder
        try:
            signed = shown.signed(self._membership.roster)
            verify_signature(self._peers[holder], shown.signature, SHOWN, *signed)
        except SealBroken:
            raise RoundAborted(
                f"Masked columns of {holder!r} are not as it signed them: they were changed on the way.",
                spent=True,
                culprits=(ASKER,),
            ) from None

    def _check_room(self, numbers: int) -> None:
        if self._kept + numbers + _ENTRY > self._most_kept:
            raise InputError(
                f"This party keeps at most {self._most_kept:,} numbers in a session and has {self._kept:,}: "
                "ask for fewer or narrower tables, or begin another session."
            )

    def _sums(self, question: SumRequest) -> OpenNumbers:
        self._own.check(question.names)
        return OpenNumbers(question.session, self._own.counts(question.names)[1:].astype(np.uint64))

    def _multiply(self, question: ProductRequest) -> OpenNumbers:
        """Return this party's share of inner products, or keep that of elementwise ones; once for a pair."""
        key = (question.kind, question.lefts, question.right)
        if key not in self._done:  # a correlation serves once: asked again, the party repeats itself
            share = self._share(question)
            if question.kind == ELEMENTWISE:
                parts = (*question.lefts[0].parts, *question.right.parts)
                self._products[Columns(self.name, parts)] = share
                share = np.zeros(0, dtype=np.uint64)
            self._done[key] = OpenNumbers(question.session, share.ravel())
        return self._done[key]

    def _share(self, question: ProductRequest) -> Words:
        lefts, right, kind = question.lefts, question.right, question.kind
        if not lefts or {left.parts for left in lefts} != {lefts[0].parts}:
            raise InputError("Shares of one product are multiplied together.")
        if lefts != shares_of(lefts[0].parts):  # a share that counts twice would be opened by the difference
            raise InputError("All holders of a product take part in multiplying it, each once and in order.")
        for left in lefts:
            check_pair(Pair(kind, left, right))
        lines = self._lines(lefts[0].parts) * self._lines(right.parts)
        count = lines * (self._own.n if kind == ELEMENTWISE else 1)
        if count > MOST_WORDS:
            raise InputError(f"A product has at most {MOST_WORDS:,} numbers.")
        self._check_room(count)
        share = (self._right_share if self.name == right.holder else self._left_share)(question, count)
        self._kept += count + _ENTRY
        return share.reshape(lines, self._own.n if kind == ELEMENTWISE else 1)

    def _left_share(self, question: ProductRequest, count: int) -> Words:
        """Return own columns times the other's masked ones, plus what the seed says."""
        mine = [left for left in question.lefts if left.holder == self.name]
        if len(mine) != 1 or question.sealed:
            raise InputError(
                "This party holds none of these columns, or a correction went to the wrong party."
            )
        pair = Pair(question.kind, mine[0], question.right)
        product = multiplied(pair.kind, self._words(mine[0]), self._known(pair.right)).ravel()
        return product + share_of(self._membership, self._helper, pair, count)

    def _right_share(self, question: ProductRequest, count: int) -> Words:
        """Return the sum over all left holders of masked columns times own mask, plus corrections."""
        kind, right = question.kind, question.right
        self._own.check(right.parts[0].names)
        if len(question.sealed) != len(question.lefts):
            raise InputError("Every left part of a product has a correction.")
        lines = self._lines(right.parts)
        mask = mask_of(self._membership, self._helper, right, lines * self._own.n).reshape(lines, self._own.n)
        total = np.zeros(count, dtype=np.uint64)
        for left, sealed in zip(question.lefts, question.sealed, strict=True):
            correction = opened_from(self._membership, self._helper, Pair(kind, left, right), sealed, count)
            total += multiplied(kind, self._known(left), mask).ravel() + correction
        return total

    def _words(self, columns: Columns) -> Words:
        """Return columns that this party holds, in clear: its own or its share of a product."""
        if columns.holder != self.name:
            raise InputError("These columns belong to another party.")
        if columns.is_product:
            if columns not in self._products:
                raise InputError("This product was not formed yet.")
            return self._products[columns]
        if columns.parts[0].party != self.name:
            raise InputError("These columns belong to another party.")
        self._own.check(columns.parts[0].names)
        if self._lines(columns.parts) * self._own.n > MOST_WORDS:
            raise InputError(f"A set of columns has at most {MOST_WORDS:,} numbers.")
        return self._own.indicators(columns.parts[0].names)

    def _known(self, columns: Columns) -> Words:
        if columns not in self._foreign:
            raise InputError("Masked columns that the product needs were not delivered.")
        return self._foreign[columns]

    def _lines(self, parts: Sequence[Part]) -> int:
        for part in parts:
            if not self._owners.get(part.party, frozenset()).issuperset(part.names):
                raise InputError("A product names variables that the party does not hold.")
        return width(self._schema, parts)
