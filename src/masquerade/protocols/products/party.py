"""A vertical party that multiplies its columns with others' under masks; only sums of products are opened.

Masked columns are signed by their holder: whoever carries them and adds to one would read the other column
off the opened sum, so a changed one is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.crypto.errors import KeySpent, SealBroken
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.protocols.codec import Words, check_session, tag_of
from masquerade.protocols.consent import Consent, Proposal
from masquerade.protocols.products.columns import Columns, Part, held, holding, width
from masquerade.protocols.products.helper import Pair, check_pair, mask_of, multiplied, opened_from, share_of
from masquerade.protocols.products.messages import (
    ASKER,
    ELEMENTWISE,
    MOST_WORDS,
    SHOWN,
    Multiply,
    Opened,
    Show,
    Shown,
    Sums,
    product_terms,
)
from masquerade.protocols.session_keys import Join, Membership, Roster

MOST_KEPT = 2**28  # numbers of one session, 2 GiB
_ENTRY = 256  # numbers that the name of something kept counts for


class ProductParty:
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
        owners: Mapping[str, Sequence[str]],
        helper: str,
        alignment: bytes = b"",
        variables: Collection[str] | None = None,
        most_kept: int = MOST_KEPT,
    ) -> None:
        own = Schema([schema[variable] for variable in schema if variable in owners[name]])
        self.name, self._helper, self._schema = name, helper, schema
        self._own = holding(own, codes)
        self._owners = {party: frozenset(names) for party, names in owners.items()}
        self._identity, self._peers = identity, dict(peers)
        self._membership = Membership(name, identity, peers)
        self._kept, self._most_kept = 0, most_kept
        self._terms = product_terms(schema, owners, helper, self._own.n, alignment)
        self._consented = frozenset(own if variables is None else variables)
        self._products: dict[Columns, Words] = {}
        self._foreign: dict[Columns, Words] = {}
        self._handlers: dict[bytes, Callable[[bytes], bytes]] = {
            Join.TAG: lambda data: self._membership.join(Join.decode(data), self._terms).encode(),
            Roster.TAG: lambda data: self._membership.accept(Roster.decode(data)).encode(),
            Proposal.TAG: lambda data: self._consent(Proposal.decode(data)).encode(),
            Show.TAG: lambda data: self._show(Show.decode(data)).encode(),
            Shown.TAG: lambda data: self._take(Shown.decode(data)).encode(),
            Sums.TAG: lambda data: self._sums(Sums.decode(data)).encode(),
        }
        self._done: dict[tuple[int, tuple[Columns, ...], Columns], bytes] = {}

    def receive(self, message: bytes) -> bytes:
        """Return the reply to a message; a refused one changes nothing."""
        return self._handlers.get(tag_of(message), self._multiply)(message)

    def _consent(self, proposal: Proposal) -> Consent:
        check_session(proposal.session, self._membership.session)
        refusals = [
            Refusal("not_consented", f"{name!r} may not be counted here.", query)
            for query in proposal.batch.queries
            for name in self._own_names(query)
            if name not in self._consented
        ]
        return Consent(proposal.session, proposal.round, tuple(refusals))

    def _own_names(self, query: Query) -> list[str]:
        return [name for name in query.names if name in self._own.schema]

    def _show(self, question: Show) -> Shown:
        """Return columns under their mask, signed: always the same bytes for the same columns."""
        check_session(question.session, self._membership.session)
        columns = question.columns
        words = self._words(columns)
        mask = mask_of(self._membership, self._helper, columns, words.size)
        shown = Shown(question.session, columns, words.ravel() - mask)
        signature = self._identity.sign(SHOWN, *shown.signed(self._membership.roster))
        return Shown(shown.session, columns, shown.words, signature)

    def _take(self, shown: Shown) -> Opened:
        """Keep another party's masked columns; other words under the same name are refused.

        A share computed from two different versions, or from one that somebody added to, would give away what
        its mask hides.
        """
        check_session(shown.session, self._membership.session)
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
        return Opened(shown.session, np.zeros(0, dtype=np.uint64))

    def _check_signed(self, shown: Shown) -> None:
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

    def _sums(self, question: Sums) -> Opened:
        check_session(question.session, self._membership.session)
        self._check_own(question.names)
        return Opened(question.session, self._own.sums(question.names))

    def _multiply(self, message: bytes) -> bytes:
        """Return this party's share of inner products, or keep that of elementwise ones; once for a pair."""
        question = Multiply.decode(message)
        check_session(question.session, self._membership.session)
        key = (question.kind, question.lefts, question.right)
        if key in self._done:  # a correlation serves once: asked again, the party repeats itself
            return self._done[key]
        share = self._share(question)
        if question.kind == ELEMENTWISE:
            parts = (*question.lefts[0].parts, *question.right.parts)
            self._products[Columns(self.name, parts)] = share
            share = np.zeros(0, dtype=np.uint64)
        reply = Opened(question.session, share.ravel()).encode()
        self._done[key] = reply
        return reply

    def _share(self, question: Multiply) -> Words:
        lefts, right, kind = question.lefts, question.right, question.kind
        if not lefts or {left.parts for left in lefts} != {lefts[0].parts}:
            raise InputError("Shares of one product are multiplied together.")
        if lefts != held(lefts[0].parts):  # a share that counts twice would be opened by the difference
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

    def _left_share(self, question: Multiply, count: int) -> Words:
        """Return own columns times the other's masked ones, plus what the seed says."""
        mine = [left for left in question.lefts if left.holder == self.name]
        if len(mine) != 1 or question.sealed:
            raise InputError(
                "This party holds none of these columns, or a correction went to the wrong party."
            )
        pair = Pair(question.kind, mine[0], question.right)
        product = multiplied(pair.kind, self._words(mine[0]), self._known(pair.right)).ravel()
        return product + share_of(self._membership, self._helper, pair, count)

    def _right_share(self, question: Multiply, count: int) -> Words:
        """Return the sum over all left holders of masked columns times own mask, plus corrections."""
        kind, right = question.kind, question.right
        self._check_own(right.parts[0].names)
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
        self._check_own(columns.parts[0].names)
        if self._lines(columns.parts) * self._own.n > MOST_WORDS:
            raise InputError(f"A set of columns has at most {MOST_WORDS:,} numbers.")
        return self._own.indicators(columns.parts[0].names)

    def _known(self, columns: Columns) -> Words:
        if columns not in self._foreign:
            raise InputError("Masked columns that the product needs were not delivered.")
        return self._foreign[columns]

    def _check_own(self, names: Sequence[str]) -> None:
        in_order = tuple(name for name in self._own.schema if name in names)
        if not names or tuple(names) != in_order:
            raise InputError("These are not variables of this party in the order of the schema.")
        if not self._consented.issuperset(names):
            raise InputError("A variable may not be counted here.")

    def _lines(self, parts: Sequence[Part]) -> int:
        for part in parts:
            if not self._owners.get(part.party, frozenset()).issuperset(part.names):
                raise InputError("A product names variables that the party does not hold.")
        return width(self._schema, parts)


def alignment_of(pseudonyms: Sequence[bytes]) -> bytes:
    """Return the digest of an order of records: equal for all parties whose rows stand in the same order."""
    return hashlib.sha256(b"".join(pseudonyms)).digest()
