"""The messages of scalar products with a helper."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.schema import Schema
from masquerade.crypto.keys import SIGNATURE_SIZE
from masquerade.protocols.codec import (
    Array,
    Blob,
    Converted,
    Many,
    Message,
    Name,
    Number,
    OneOf,
    Session,
    Signature,
    Words,
)
from masquerade.protocols.products.columns import Columns
from masquerade.protocols.session_keys import terms_of

MOST_WORDS = 2**27  # of one set of columns, 1 GiB
MOST_NAMES = 1000
INNER, ELEMENTWISE = 0, 1
ASKER = "whoever asks"
SHOWN = "masked columns"

Numbers = Annotated[Words, Array("<u8", MOST_WORDS)]
Product = Annotated[int, OneOf(Number(1), (INNER, ELEMENTWISE))]
Sealed = Annotated[bytes, Blob(8 * MOST_WORDS + 64)]
Named = Annotated[
    Columns, Converted(Blob(1 << 20), lambda columns: columns.id, Columns.named, "The name of some columns")
]


@dataclass(frozen=True, slots=True)
class Show(Message):
    """Ask a party for some of its columns, masked."""

    TAG: ClassVar[bytes] = b"masquerade products show 1"
    session: Session
    columns: Named


@dataclass(frozen=True, slots=True, eq=False)
class Shown(Message):
    """Masked columns, signed by their holder: the reply to `Show`, then delivered to whoever multiplies."""

    TAG: ClassVar[bytes] = b"masquerade products shown 2"
    session: Session
    columns: Named
    words: Numbers
    signature: Signature = bytes(SIGNATURE_SIZE)

    def signed(self, roster: bytes) -> tuple[bytes, ...]:
        """Return what the signature covers: session and roster, which columns these are, and every number."""
        words = hashlib.sha256(np.ascontiguousarray(self.words, dtype="<u8").data).digest()
        return self.session, roster, self.columns.id, words


@dataclass(frozen=True, slots=True)
class Correlate(Message):
    """Ask the helper for what the holder of `right` needs to multiply with `left`."""

    TAG: ClassVar[bytes] = b"masquerade products correlate 1"
    session: Session
    kind: Product
    left: Named
    right: Named


@dataclass(frozen=True, slots=True)
class Correlated(Message):
    """A correction, sealed for the holder of `right`."""

    TAG: ClassVar[bytes] = b"masquerade products correlated 1"
    session: Session
    sealed: Sealed


@dataclass(frozen=True, slots=True)
class Multiply(Message):
    """Multiply `lefts`, shares of one thing, with `right`; corrections go to the holder of `right` only."""

    TAG: ClassVar[bytes] = b"masquerade products multiply 1"
    session: Session
    kind: Product
    lefts: Annotated[tuple[Named, ...], Many(MOST_NAMES)]
    right: Named
    sealed: Annotated[tuple[Sealed, ...], Many(MOST_NAMES)]


@dataclass(frozen=True, slots=True)
class Sums(Message):
    """Ask a party for the sums of its own columns."""

    TAG: ClassVar[bytes] = b"masquerade products sums 1"
    session: Session
    names: Annotated[tuple[Name, ...], Many(MOST_NAMES)]


@dataclass(frozen=True, slots=True, eq=False)
class Opened(Message):
    """Numbers that a party gives away: sums of own columns, or a share of sums of products."""

    TAG: ClassVar[bytes] = b"masquerade products opened 1"
    session: Session
    words: Numbers


def product_terms(
    schema: Schema, owners: Mapping[str, Sequence[str]], helper: str, n: int, alignment: bytes
) -> bytes:
    """Return what all must agree on: variables, who holds them, who helps, which records in which order."""
    shared = json.dumps({party: list(names) for party, names in owners.items()}, sort_keys=True)
    return terms_of("vertical counts", Policy.clear(schema).id, shared, helper, str(n), alignment.hex())
