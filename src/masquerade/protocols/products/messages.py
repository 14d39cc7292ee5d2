"""The messages of scalar products with a helper."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.schema import Schema
from masquerade.crypto.byte_codec import Reader, Writer
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SIGNATURE_SIZE
from masquerade.protocols.codec import (
    SESSION,
    Blob,
    Fields,
    Fixed,
    Many,
    Number,
    Text,
    Words,
    WordsOf,
)
from masquerade.protocols.products.columns import Columns, Part
from masquerade.protocols.session_keys import terms_of

MOST_WORDS = 2**27  # of one set of columns, 1 GiB
MOST_NAMES = 1000
INNER, ELEMENTWISE = 0, 1
ASKER = "whoever asks"
SHOWN = "masked columns"


class ColumnsOf:
    """The name of some columns, in its one canonical form."""

    def write(self, writer: Writer, value: Columns) -> None:
        """Write the name."""
        writer.varying(value.id, 1 << 20)

    def read(self, reader: Reader) -> Columns:
        """Read the name."""
        data = reader.varying(1 << 20)
        try:
            holder, parts = json.loads(data)
            columns = Columns(holder, tuple(Part(party, tuple(names)) for party, names in parts))
            texts = [holder, *(text for part in columns.parts for text in (part.party, *part.names))]
            plain = all(isinstance(text, str) for text in texts) and all(part.names for part in columns.parts)
        except (TypeError, ValueError, RecursionError):
            raise DecodingError("The name of some columns cannot be read.") from None
        if not plain or not columns.parts or columns.id != data:
            raise DecodingError("The name of some columns is not in its canonical form.")
        return columns


@dataclass(frozen=True, slots=True)
class Show(Fields):
    """Ask a party for some of its columns, masked."""

    session: bytes
    columns: Columns

    TAG: ClassVar[bytes] = b"masquerade products show 1"
    FIELDS: ClassVar = (SESSION, ("columns", ColumnsOf()))


@dataclass(frozen=True, slots=True, eq=False)
class Shown(Fields):
    """Masked columns, signed by their holder: the reply to `Show`, then delivered to whoever multiplies."""

    session: bytes
    columns: Columns
    words: Words
    signature: bytes = bytes(SIGNATURE_SIZE)

    TAG: ClassVar[bytes] = b"masquerade products shown 2"
    FIELDS: ClassVar = (
        SESSION,
        ("columns", ColumnsOf()),
        ("words", WordsOf(MOST_WORDS)),
        ("signature", Fixed(SIGNATURE_SIZE)),
    )

    def signed(self, roster: bytes) -> tuple[bytes, ...]:
        """Return what the signature covers: session and roster, which columns these are, and every number."""
        words = hashlib.sha256(np.ascontiguousarray(self.words, dtype="<u8").data).digest()
        return self.session, roster, self.columns.id, words


@dataclass(frozen=True, slots=True)
class Correlate(Fields):
    """Ask the helper for what the holder of `right` needs to multiply with `left`."""

    session: bytes
    kind: int
    left: Columns
    right: Columns

    TAG: ClassVar[bytes] = b"masquerade products correlate 1"
    FIELDS: ClassVar = (SESSION, ("kind", Number(1)), ("left", ColumnsOf()), ("right", ColumnsOf()))


@dataclass(frozen=True, slots=True)
class Correlated(Fields):
    """A correction, sealed for the holder of `right`."""

    session: bytes
    sealed: bytes

    TAG: ClassVar[bytes] = b"masquerade products correlated 1"
    FIELDS: ClassVar = (SESSION, ("sealed", Blob(8 * MOST_WORDS + 64)))


@dataclass(frozen=True, slots=True)
class Multiply(Fields):
    """Multiply `lefts`, shares of one thing, with `right`; corrections go to the holder of `right` only."""

    session: bytes
    kind: int
    lefts: tuple[Columns, ...]
    right: Columns
    sealed: tuple[bytes, ...]

    TAG: ClassVar[bytes] = b"masquerade products multiply 1"
    FIELDS: ClassVar = (
        SESSION,
        ("kind", Number(1)),
        ("lefts", Many(ColumnsOf(), MOST_NAMES)),
        ("right", ColumnsOf()),
        ("sealed", Many(Blob(8 * MOST_WORDS + 64), MOST_NAMES)),
    )


@dataclass(frozen=True, slots=True)
class Sums(Fields):
    """Ask a party for the sums of its own columns."""

    session: bytes
    names: tuple[str, ...]

    TAG: ClassVar[bytes] = b"masquerade products sums 1"
    FIELDS: ClassVar = (SESSION, ("names", Many(Text(), MOST_NAMES)))


@dataclass(frozen=True, slots=True, eq=False)
class Opened(Fields):
    """Numbers that a party gives away: sums of own columns, or a share of sums of products."""

    session: bytes
    words: Words

    TAG: ClassVar[bytes] = b"masquerade products opened 1"
    FIELDS: ClassVar = (SESSION, ("words", WordsOf(MOST_WORDS)))


def product_terms(
    schema: Schema, owners: Mapping[str, Sequence[str]], helper: str, n: int, alignment: bytes
) -> bytes:
    """Return what all must agree on: variables, who holds them, who helps, which records in which order."""
    shared = json.dumps({party: list(names) for party, names in owners.items()}, sort_keys=True)
    return terms_of("vertical counts", Policy.clear(schema).id, shared, helper, str(n), alignment.hex())
