"""Exact counts over columns of several parties: sums of products of indicator columns that are never shown.

A helper (trusted dealer) deals correlated randomness and never sees a column, masked or not; it learns which
products are formed. It must not collude with any party: together they could unmask the other columns. Parties
multiply columns under these masks, and only sums of products are opened. Masked columns are signed by their
holder: a relay that changed a column could read the other column from the opened sum, so a changed column is
refused. The querying party sees only masked columns and the sums. Two parties need one inner product, and
each further party needs one elementwise product, whose shares are never opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Words
from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.guarantee import ANALYST, Disclosure, Guarantee
from masquerade.core.schema import Schema
from masquerade.crypto.errors import KeySpent, SealBroken
from masquerade.crypto.keys import SIGNATURE_SIZE, SigningKey, verify_signature
from masquerade.crypto.symmetric import seal, unseal
from masquerade.protocols.vertical.columns import (
    ColumnPart,
    Columns,
    OwnColumns,
    Owners,
    Products,
    product_agreement,
    shares_of,
    width,
)
from masquerade.protocols.wire import codec, session

MOST_WORDS = 2**27  # numbers of one set of columns, 1 GiB
INNER, ELEMENTWISE = 0, 1
SHOWN = "masked columns"
MOST_KEPT = 2**28  # numbers of one session, 2 GiB
_ENTRY = 256  # a stored name counts as this many numbers
_CORRECTION = b"correction"

Numbers = Annotated[Words, codec.Array("<u8", MOST_WORDS)]
Product = Annotated[int, codec.OneOf(codec.Number(1), (INNER, ELEMENTWISE))]
Sealed = Annotated[bytes, codec.Blob(8 * MOST_WORDS + 64)]
Named = Annotated[
    Columns,
    codec.Converted(
        codec.Blob(1 << 20), lambda columns: columns.id, Columns.from_name, "The name of some columns"
    ),
]


class ColumnRequest(codec.SessionMessage, tag=b"masquerade products show 1"):
    """Ask a party for some of its columns under their mask."""

    columns: Named


class MaskedColumns(codec.SessionMessage, tag=b"masquerade products shown 2", eq=False):
    """Masked columns, signed by their holder: sent on request, then delivered to the multiplying party."""

    columns: Named
    words: Numbers
    signature: codec.Signature = bytes(SIGNATURE_SIZE)

    def signed_bytes(self, roster: bytes) -> tuple[bytes, ...]:
        """Return the bytes that the signature covers: session, roster, columns, and every number."""
        words = hashlib.sha256(np.ascontiguousarray(self.words, dtype="<u8").data).digest()
        return self.session, roster, self.columns.id, words


class CorrelationRequest(codec.SessionMessage, tag=b"masquerade products correlate 1"):
    """Ask the helper for the correction that the holder of `right` needs to multiply with `left`.

    Columns are multiplied row by row and then summed (inner), or only multiplied (elementwise).
    """

    kind: Product
    left: Named
    right: Named

    @property
    def context(self) -> tuple[bytes, bytes, bytes]:
        """Return the context that keys for this pair are derived from."""
        return bytes([self.kind]), self.left.id, self.right.id

    def check(self) -> None:
        """Raise an error for a product of one party's columns, or with a product on the right."""
        left, right = self.left, self.right
        multiplied_already = {part.party for part in left.parts}
        if right.is_product or right.holder != right.parts[0].party or left.holder not in multiplied_already:
            raise InputError("The right factor must be columns of one party's variables.")
        if right.holder in multiplied_already:
            raise InputError("Products of one party's columns are computed by that party itself.")


class Correlation(codec.SessionMessage, tag=b"masquerade products correlated 1"):
    """A correction, sealed for the holder of `right`."""

    sealed: Sealed


class ProductRequest(codec.SessionMessage, tag=b"masquerade products multiply 1"):
    """Multiply `lefts`, shares of one factor, with `right`; only the holder of `right` gets corrections."""

    kind: Product
    lefts: Annotated[tuple[Named, ...], codec.Many(1000)]
    right: Named
    sealed: Annotated[tuple[Sealed, ...], codec.Many(1000)]


class SumRequest(codec.SessionMessage, tag=b"masquerade products sums 1"):
    """Ask a party for the sums of its columns."""

    names: Annotated[tuple[codec.Name, ...], codec.Many(1000)]


class OpenNumbers(codec.SessionMessage, tag=b"masquerade products opened 1", eq=False):
    """Numbers that a party opens: sums of its columns, or a share of sums of products."""

    words: Numbers


class ProductHelper(session.Member):
    """Deals randomness for the products of two parties' columns, expanded from seeds.

    A mask belongs to one name of columns, and a correlation to one pair of names, so no randomness is used
    twice. Seeds come from key agreement and are never sent.
    """

    def __init__(
        self,
        name: str,
        identity: SigningKey,
        peers: Mapping[str, bytes],
        *,
        schema: Schema,
        owners: Owners,
        n: int,
        alignment: bytes = b"",
    ) -> None:
        super().__init__(name, identity, peers, product_agreement(schema, owners, name, n, alignment))
        self._schema, self._n = schema, n
        self.handlers |= {CorrelationRequest: self._correlate}

    def _correlate(self, pair: CorrelationRequest) -> Correlation:
        pair.check()
        a, b = (width(self._schema, columns.parts) for columns in (pair.left, pair.right))
        if max(a, b, a * b if pair.kind == ELEMENTWISE else 0) * self._n > MOST_WORDS:
            raise InputError(f"The helper deals for columns of at most {MOST_WORDS:,} numbers.")
        u, v = (
            _mask(self, columns.holder, columns, (lines, self._n))
            for columns, lines in ((pair.left, a), (pair.right, b))
        )
        product = _multiply_words(pair.kind, u, v).ravel()
        rest = product - _left_mask(self, pair.left.holder, pair, product.size)
        # sealed: the left holder could remove masks with it
        key = self.secret(pair.right.holder, "product seal", *pair.context)
        return Correlation(pair.session, seal(key, rest.astype("<u8").tobytes(), _CORRECTION))


def _multiply_words(kind: int, left: Words, right: Words) -> Words:
    """Return inner products (columns × columns) or elementwise ones (columns·columns × rows), modulo 2^64."""
    if kind == INNER:
        sums = [[np.dot(x, y) for y in right] for x in left]
        return np.array(sums, dtype=np.uint64).reshape(len(left), len(right))
    return (left[:, None, :] * right[None, :, :]).reshape(len(left) * len(right), left.shape[1])


def _mask(member: session.Member, other: str, columns: Columns, shape: tuple[int, int]) -> Words:
    """Return the mask of some columns, which their holder and the helper can compute."""
    return member.mask(other, prod(shape), "product mask", columns.id).reshape(shape)


def _left_mask(member: session.Member, other: str, pair: CorrelationRequest, count: int) -> Words:
    """Return the left holder's share of the masks' product, which it and the helper can compute."""
    return member.mask(other, count, "product share", *pair.context)


class ProductParty(session.Member):
    """Holds some columns of all records. It sees other parties' columns only under the helper's masks.

    `schema` lists all variables, `owners` the variables of each owner. `codes` are this party's columns, in
    the agreed order of records (`alignment` is its digest). `variables` are the variables that it consents
    to. `most_kept` limits the numbers stored in a session: other parties' masked columns, and this party's
    shares.
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
        self._kept, self._most_kept = 0, most_kept
        self._products: dict[Columns, Words] = {}
        self._foreign: dict[Columns, Words] = {}
        self._done: dict[tuple[int, tuple[Columns, ...], Columns], OpenNumbers] = {}
        self.handlers |= {
            session.Proposal: lambda it: session.SignedConsent(
                it.session, it.round, self._own.refusals(it.batch.queries)
            ),
            ColumnRequest: self._show,
            MaskedColumns: self._take,
            SumRequest: self._sums,
            ProductRequest: self._multiply,
        }

    def _show(self, question: ColumnRequest) -> MaskedColumns:
        """Return signed columns under their mask, the same bytes for the same columns."""
        columns = question.columns
        words = self._words(columns)
        mask = _mask(self, self._helper, columns, (len(words), self._own.n))
        shown = MaskedColumns(question.session, columns, (words - mask).ravel())
        return replace(shown, signature=self._identity.sign(SHOWN, *shown.signed_bytes(self.roster)))

    def _take(self, shown: MaskedColumns) -> OpenNumbers:
        """Store another party's masked columns; different numbers under the same name are refused.

        A share computed from two versions, or from one that a relay changed, would reveal what its mask
        hides.
        """
        columns = shown.columns
        holders = self._owners.keys() & set(self.members) - {self.name}
        if columns.holder not in holders:
            raise InputError("Masked columns must come from another party of the session.")
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
            raise KeySpent(
                "These columns were shown already, with other numbers: a mask may be used only once."
            )
        return OpenNumbers(shown.session, np.zeros(0, dtype=np.uint64))

    def _check_signed(self, shown: MaskedColumns) -> None:
        holder = shown.columns.holder
        try:
            signed = shown.signed_bytes(self.roster)
            verify_signature(self._peers[holder], shown.signature, SHOWN, *signed)
        except SealBroken:
            reason = f"Masked columns of {holder!r} do not match its signature: they were changed on the way."
            raise RoundAborted(reason, spent=True, culprits=(ANALYST,)) from None

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
        """Return this party's share of inner products, or store its share of elementwise products, once."""
        key = (question.kind, question.lefts, question.right)
        if key not in self._done:  # a correlation is used once: a repeated request gets the same answer
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
            raise InputError("The left factors must be shares of one product.")
        # a share that was counted twice would be revealed by the difference
        if lefts != shares_of(lefts[0].parts):
            raise InputError("All holders of a product must be listed, each once and in order.")
        for left in lefts:
            CorrelationRequest(question.session, kind, left, right).check()
        lines = self._lines(lefts[0].parts) * self._lines(right.parts)
        count = lines * (self._own.n if kind == ELEMENTWISE else 1)
        if count > MOST_WORDS:
            raise InputError(f"A product has at most {MOST_WORDS:,} numbers.")
        self._check_room(count)
        share = (self._right_share if self.name == right.holder else self._left_share)(question, count)
        self._kept += count + _ENTRY
        return share.reshape(lines, self._own.n if kind == ELEMENTWISE else 1)

    def _left_share(self, question: ProductRequest, count: int) -> Words:
        """Return own columns times the masked columns, plus the share from the seed."""
        mine = [left for left in question.lefts if left.holder == self.name]
        if len(mine) != 1 or question.sealed:
            raise InputError(
                "This party holds none of these columns, or a correction went to the wrong party."
            )
        pair = CorrelationRequest(question.session, question.kind, mine[0], question.right)
        product = _multiply_words(pair.kind, self._words(pair.left), self._foreign_words(pair.right)).ravel()
        return product + _left_mask(self, self._helper, pair, count)

    def _right_share(self, question: ProductRequest, count: int) -> Words:
        """Return the sum over all left holders of masked columns times this mask, plus corrections."""
        kind, right = question.kind, question.right
        self._own.check(right.parts[0].names)
        if len(question.sealed) != len(question.lefts):
            raise InputError("Every left factor of a product needs a correction.")
        mask = _mask(self, self._helper, right, (self._lines(right.parts), self._own.n))
        total = np.zeros(count, dtype=np.uint64)
        for left, sealed in zip(question.lefts, question.sealed, strict=True):
            pair = CorrelationRequest(question.session, kind, left, right)
            key = self.secret(self._helper, "product seal", *pair.context)
            # a correction that was changed, or made for other columns, does not open
            correction = unseal(key, sealed, _CORRECTION)
            if len(correction) != 8 * count:
                raise SealBroken("A correction from the helper has the wrong size.")
            total += _multiply_words(kind, self._foreign_words(left), mask).ravel() + np.frombuffer(
                correction, "<u8"
            )
        return total

    def _words(self, columns: Columns) -> Words:
        """Return clear columns of this party: its variables, or its share of a product."""
        if columns.holder != self.name:
            raise InputError("These columns belong to another party.")
        if columns.is_product:
            if columns not in self._products:
                raise InputError("This product has not been computed yet.")
            return self._products[columns]
        if columns.parts[0].party != self.name:
            raise InputError("These columns belong to another party.")
        self._own.check(columns.parts[0].names)
        if self._lines(columns.parts) * self._own.n > MOST_WORDS:
            raise InputError(f"A set of columns has at most {MOST_WORDS:,} numbers.")
        return self._own.indicators(columns.parts[0].names)

    def _foreign_words(self, columns: Columns) -> Words:
        if columns not in self._foreign:
            raise InputError("Masked columns that the product needs were not delivered.")
        return self._foreign[columns]

    def _lines(self, parts: Sequence[ColumnPart]) -> int:
        for part in parts:
            if not self._owners.get(part.party, frozenset()).issuperset(part.names):
                raise InputError("A product names variables that the party does not hold.")
        return width(self._schema, parts)


class HelpedProducts(Products):
    """Requests sums of products from parties and the helper, every sum once.

    `known_beforehand` states that no query depends on an earlier answer. Otherwise the helper, which sees the
    queries, learns intermediate results from them, such as the winners of a search.
    """

    def __init__(
        self,
        owners: Owners,
        helper: str,
        transport: session.Transport,
        schema: Schema,
        n: int,
        *,
        alignment: bytes = b"",
        known_beforehand: bool = False,
    ) -> None:
        session.check_names((*owners, helper))
        if len(owners) < 2:
            raise InputError(
                "Products across parties need at least two parties; a single party counts by itself."
            )
        super().__init__(owners, schema, n, transport, tuple(owners))
        self.helper, self._known_beforehand = helper, known_beforehand
        agreement = product_agreement(schema, owners, helper, n, alignment)
        session.convene((*owners, helper), transport, self.session, agreement)
        self._shown: dict[Columns, MaskedColumns] = {}
        self._delivered: set[tuple[Columns, str]] = set()
        self._formed: set[tuple[ColumnPart, ...]] = set()

    def refusals(self, parts: Sequence[ColumnPart]) -> list[Refusal]:
        """Return the reasons why sums over these parts are refused."""
        formed = [parts[:-1]] if len(parts) > 2 else []
        numbers = max(
            [width(self.schema, some) for some in (*formed, *([part] for part in parts))], default=0
        )
        if numbers * self.n > MOST_WORDS:
            reason = f"{numbers:,} columns of {self.n:,} records are more than {MOST_WORDS:,} numbers."
            return [Refusal("too_many_cells", reason)]
        return []

    def _joint(self, parts: tuple[ColumnPart, ...]) -> NDArray[np.int64]:
        shape = [width(self.schema, [part]) for part in parts]
        if parts not in self._known:
            if len(parts) > 1:
                words = self._inner(parts)
            else:
                question = SumRequest(self.session, parts[0].names)
                words = session.ask(self._transport, parts[0].party, question, OpenNumbers, spent=True).words
            if words.size != int(np.prod(shape)) or np.any(words > np.uint64(self.n)):
                raise RoundAborted("A sum of products is not a count: a party's share was false.", spent=True)
            self._known[parts] = words.astype(np.int64).reshape(shape)
        return self._known[parts]

    def _inner(self, parts: tuple[ColumnPart, ...]) -> Words:
        lefts = self._shares(parts[:-1])
        shares = self._multiply(INNER, lefts, parts[-1])
        if len({share.size for share in shares}) > 1:
            raise RoundAborted("The parties' shares have different sizes.", spent=True)
        return np.asarray(sum(shares[1:], start=shares[0]))

    def _shares(self, parts: tuple[ColumnPart, ...]) -> tuple[Columns, ...]:
        """Return the holders of shares of the product of some parts, computed one part at a time."""
        for count in range(2, len(parts) + 1):
            prefix = parts[:count]
            if prefix not in self._formed:
                self._multiply(ELEMENTWISE, shares_of(prefix[:-1]), prefix[-1])
                self._formed.add(prefix)
        return shares_of(parts)

    def _multiply(self, kind: int, lefts: tuple[Columns, ...], part: ColumnPart) -> list[Words]:
        right = Columns(part.party, (part,))
        sealed = []
        for left in lefts:
            self._deliver(left, right.holder)
            self._deliver(right, left.holder)
            question = CorrelationRequest(self.session, kind, left, right)
            sealed.append(session.ask(self._transport, self.helper, question, Correlation, spent=True).sealed)
        shares = []
        for holder in (*(left.holder for left in lefts), right.holder):
            corrections = tuple(sealed) if holder == right.holder else ()
            request = ProductRequest(self.session, kind, lefts, right, corrections)
            shares.append(session.ask(self._transport, holder, request, OpenNumbers, spent=True).words)
        return shares

    def _deliver(self, columns: Columns, to: str) -> None:
        """Deliver masked columns, once to every party that needs them."""
        if (columns, to) in self._delivered:
            return
        if columns not in self._shown:
            request = ColumnRequest(self.session, columns)
            shown = session.ask(self._transport, columns.holder, request, MaskedColumns, spent=True)
            if shown.columns != columns:
                reason = f"{columns.holder!r} sent different columns."
                raise RoundAborted(reason, spent=True, culprits=(columns.holder,))
            self._shown[columns] = shown
        session.ask(self._transport, to, self._shown[columns], OpenNumbers, spent=True)
        self._delivered.add((columns, to))

    def guarantee(self) -> Guarantee:
        """Return the disclosures: the counts to the querying party, and the queries to the helper."""
        everything = tuple(self.schema)
        asked, bound = "which products are formed, and no value", Fraction(1)
        if not self._known_beforehand:
            asked = "which products are formed, which tells what a search found, and no other value"
        return Guarantee(
            (
                Disclosure(ANALYST, "exact counts of every table asked for", everything, None),
                Disclosure(self.helper, asked, everything, bound if self._known_beforehand else None),
            ),
            (
                f"the helper ({self.helper}) colludes with nobody: with one party it could unmask the others",
                "X25519, HKDF, AES-256 and ChaCha20-Poly1305 are secure; identities were known in advance",
                "Ed25519 and SHA-256 are secure: masked columns are signed",
                (
                    "all parties, also the analyst's, multiply indicators of their true records, which are "
                    "not verified"
                ),
                "the analyst learns what it asks for: a table narrow enough counts a single person",
                "records were linked row by row in advance, and their number is public",
            ),
            {ANALYST: "malicious", **dict.fromkeys((self.helper, *self.owners), "semi-honest")},
            len(self.owners) - 1,
            tuple((self.helper, other) for other in (*self.owners, ANALYST)),
            0,
        )
