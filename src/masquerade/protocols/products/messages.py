"""The messages of scalar products: with a helper, and between two parties by Paillier's encryption."""

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
    Digest,
    Many,
    Name,
    Number,
    OneOf,
    SessionMessage,
    Signature,
    Words,
)
from masquerade.protocols.products.columns import Columns
from masquerade.protocols.session import agreement_of

MOST_WORDS = 2**27  # of one set of columns, 1 GiB
MOST_NAMES = 1000
MOST_BYTES = 1 << 30  # of ciphertexts in a message
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
class ColumnRequest(SessionMessage):
    """Ask a party for some of its columns, masked."""

    TAG: ClassVar[bytes] = b"masquerade products show 1"
    columns: Named


@dataclass(frozen=True, slots=True, eq=False)
class MaskedColumns(SessionMessage):
    """Masked columns, signed by their holder: sent when asked for, then delivered to whoever multiplies."""

    TAG: ClassVar[bytes] = b"masquerade products shown 2"
    columns: Named
    words: Numbers
    signature: Signature = bytes(SIGNATURE_SIZE)

    def signed(self, roster: bytes) -> tuple[bytes, ...]:
        """Return what the signature covers: session and roster, which columns these are, and every number."""
        words = hashlib.sha256(np.ascontiguousarray(self.words, dtype="<u8").data).digest()
        return self.session, roster, self.columns.id, words


@dataclass(frozen=True, slots=True)
class CorrelationRequest(SessionMessage):
    """Ask the helper for what the holder of `right` needs to multiply with `left`."""

    TAG: ClassVar[bytes] = b"masquerade products correlate 1"
    kind: Product
    left: Named
    right: Named


@dataclass(frozen=True, slots=True)
class Correlation(SessionMessage):
    """A correction, sealed for the holder of `right`."""

    TAG: ClassVar[bytes] = b"masquerade products correlated 1"
    sealed: Sealed


@dataclass(frozen=True, slots=True)
class ProductRequest(SessionMessage):
    """Multiply `lefts`, shares of one thing, with `right`; corrections go to the holder of `right` only."""

    TAG: ClassVar[bytes] = b"masquerade products multiply 1"
    kind: Product
    lefts: Annotated[tuple[Named, ...], Many(MOST_NAMES)]
    right: Named
    sealed: Annotated[tuple[Sealed, ...], Many(MOST_NAMES)]


@dataclass(frozen=True, slots=True)
class SumRequest(SessionMessage):
    """Ask a party for the sums of its own columns."""

    TAG: ClassVar[bytes] = b"masquerade products sums 1"
    names: Annotated[tuple[Name, ...], Many(MOST_NAMES)]


@dataclass(frozen=True, slots=True, eq=False)
class OpenNumbers(SessionMessage):
    """Numbers that a party gives away: sums of own columns, or a share of sums of products."""

    TAG: ClassVar[bytes] = b"masquerade products opened 1"
    words: Numbers


@dataclass(frozen=True, slots=True)
class SessionOpening(SessionMessage):
    """The evaluator opens a session under this agreement."""

    TAG: ClassVar[bytes] = b"masquerade paillier open 1"
    agreement: Digest


@dataclass(frozen=True, slots=True)
class PaillierModulus(SessionMessage):
    """The owner's public key."""

    TAG: ClassVar[bytes] = b"masquerade paillier key 1"
    n: Annotated[bytes, Blob(2048)]


@dataclass(frozen=True, slots=True)
class EncryptionRequest(SessionMessage):
    """Ask for the columns of some variables, encrypted."""

    TAG: ClassVar[bytes] = b"masquerade paillier encrypt 1"
    names: Annotated[tuple[Name, ...], Many(MOST_NAMES)]


@dataclass(frozen=True, slots=True)
class Ciphertexts(SessionMessage):
    """Ciphertexts one after the other: encrypted columns, or masked sums to be decrypted."""

    TAG: ClassVar[bytes] = b"masquerade paillier ciphertexts 1"
    values: Annotated[bytes, Blob(MOST_BYTES)]


@dataclass(frozen=True, slots=True)
class Plaintexts(SessionMessage):
    """Masked sums, decrypted."""

    TAG: ClassVar[bytes] = b"masquerade paillier plaintexts 1"
    values: Annotated[bytes, Blob(MOST_BYTES)]


def product_agreement(
    schema: Schema, owners: Mapping[str, Sequence[str]], helper: str, n: int, alignment: bytes
) -> bytes:
    """Return what all must agree on: variables, who holds them, who helps, which records in which order."""
    shared = json.dumps({party: list(names) for party, names in owners.items()}, sort_keys=True)
    return agreement_of("vertical counts", Policy.clear(schema).id, shared, helper, str(n), alignment.hex())
