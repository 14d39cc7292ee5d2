"""The messages of scalar products between two parties by Paillier's encryption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from masquerade.protocols.codec import DIGEST_SIZE, SESSION, Blob, Fields, Fixed, Many, Text
from masquerade.protocols.products.messages import MOST_NAMES

MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Open(Fields):
    """The evaluator opens a session under these terms."""

    session: bytes
    terms: bytes

    TAG: ClassVar[bytes] = b"masquerade paillier open 1"
    FIELDS: ClassVar = (SESSION, ("terms", Fixed(DIGEST_SIZE)))


@dataclass(frozen=True, slots=True)
class Key(Fields):
    """The owner's public key."""

    session: bytes
    n: bytes

    TAG: ClassVar[bytes] = b"masquerade paillier key 1"
    FIELDS: ClassVar = (SESSION, ("n", Blob(2048)))


@dataclass(frozen=True, slots=True)
class Encrypt(Fields):
    """Ask for the columns of some variables, encrypted."""

    session: bytes
    names: tuple[str, ...]

    TAG: ClassVar[bytes] = b"masquerade paillier encrypt 1"
    FIELDS: ClassVar = (SESSION, ("names", Many(Text(), MOST_NAMES)))


@dataclass(frozen=True, slots=True)
class Ciphertexts(Fields):
    """Ciphertexts one after the other: encrypted columns, or masked sums to be decrypted."""

    session: bytes
    values: bytes

    TAG: ClassVar[bytes] = b"masquerade paillier ciphertexts 1"
    FIELDS: ClassVar = (SESSION, ("values", Blob(MOST_BYTES)))


@dataclass(frozen=True, slots=True)
class Plaintexts(Fields):
    """Masked sums, decrypted."""

    session: bytes
    values: bytes

    TAG: ClassVar[bytes] = b"masquerade paillier plaintexts 1"
    FIELDS: ClassVar = (SESSION, ("values", Blob(MOST_BYTES)))
