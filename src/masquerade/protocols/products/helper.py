"""The helper of scalar products: deals correlated randomness and never sees a column, masked or not.

It learns which products are asked for. It must collude with nobody: with a party it could unmask the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from masquerade.core.errors import InputError
from masquerade.core.schema import Schema
from masquerade.crypto.errors import SealBroken
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.sealed_messages import seal, unseal
from masquerade.protocols.codec import Words
from masquerade.protocols.own_columns import Owners
from masquerade.protocols.products.columns import Columns, width
from masquerade.protocols.products.messages import (
    ELEMENTWISE,
    INNER,
    MOST_WORDS,
    Correlation,
    CorrelationRequest,
    product_agreement,
)
from masquerade.protocols.session import Member, Membership

CORRECTION = b"correction"


class Pair(NamedTuple):
    """Columns to be multiplied: row by row and summed (inner), or row by row alone (elementwise)."""

    kind: int
    left: Columns
    right: Columns

    @property
    def context(self) -> tuple[bytes, bytes, bytes]:
        """Return what keys for this pair, and no other, are derived from."""
        return bytes([self.kind]), self.left.id, self.right.id


class Helper(Member):
    """Deals, for columns u of one party and v of another, shares of their products, expanded from seeds.

    A mask belongs to the name of its columns and a correlation to a pair of names, so nothing is dealt for
    two things. Seeds come from key agreement: none is sent.
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
        self.handlers = {CorrelationRequest: self._correlate}

    def _correlate(self, question: CorrelationRequest) -> Correlation:
        pair = Pair(question.kind, question.left, question.right)
        check_pair(pair)
        a, b = (width(self._schema, columns.parts) for columns in (pair.left, pair.right))
        if max(a, b, a * b if pair.kind == ELEMENTWISE else 0) * self._n > MOST_WORDS:
            raise InputError(f"Columns of more than {MOST_WORDS:,} numbers are not dealt for.")
        u, v = (
            mask_of(self._membership, columns.holder, columns, self._n * lines).reshape(lines, self._n)
            for columns, lines in ((pair.left, a), (pair.right, b))
        )
        product = multiplied(pair.kind, u, v).ravel()
        own = share_of(self._membership, pair.left.holder, pair, product.size)
        return Correlation(
            question.session, sealed_for(self._membership, pair.right.holder, pair, product - own)
        )


def check_pair(pair: Pair) -> None:
    """Refuse a product that is none: of one party with itself, or with a product on the right."""
    left, right = pair.left, pair.right
    multiplied_already = {part.party for part in left.parts}
    if right.is_product or right.holder != right.parts[0].party or left.holder not in multiplied_already:
        raise InputError("Columns are multiplied with a party's own columns.")
    if right.holder in multiplied_already:
        raise InputError("A party multiplies its own columns alone.")


def multiplied(kind: int, left: Words, right: Words) -> Words:
    """Return inner products (columns × columns) or elementwise ones (columns·columns × rows), modulo 2^64."""
    if kind == INNER:
        sums = [[np.dot(x, y) for y in right] for x in left]
        return np.array(sums, dtype=np.uint64).reshape(len(left), len(right))
    return (left[:, None, :] * right[None, :, :]).reshape(len(left) * len(right), left.shape[1])


def mask_of(membership: Membership, other: str, columns: Columns, count: int) -> Words:
    """Return the mask of some columns, which their holder and the helper expand, each naming the other."""
    return membership.mask(other, count, "product mask", columns.id)


def share_of(membership: Membership, other: str, pair: Pair, count: int) -> Words:
    """Return the left holder's share of the masks' product, which it and the helper can expand."""
    return membership.mask(other, count, "product share", *pair.context)


def sealed_for(membership: Membership, other: str, pair: Pair, words: Words) -> bytes:
    """Return the right holder's share, for nobody else to read: the left one could undo masks with it."""
    key = membership.secret(other, "product seal", *pair.context)
    return seal(key, words.astype("<u8").tobytes(), CORRECTION)


def opened_from(membership: Membership, helper: str, pair: Pair, sealed: bytes, count: int) -> Words:
    """Return the right holder's share; one made for other columns, or changed, does not open."""
    data = unseal(membership.secret(helper, "product seal", *pair.context), sealed, CORRECTION)
    if len(data) != 8 * count:
        raise SealBroken("A correction of the helper has another size.")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)
