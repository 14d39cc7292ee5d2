"""The messages of scalar products between two parties by Paillier's encryption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from masquerade.protocols.codec import Blob, Digest, Many, Message, Name, Session
from masquerade.protocols.products.messages import MOST_NAMES

MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Open(Message):
    """The evaluator opens a session under these terms."""

    TAG: ClassVar[bytes] = b"masquerade paillier open 1"
    session: Session
    terms: Digest


@dataclass(frozen=True, slots=True)
class Key(Message):
    """The owner's public key."""

    TAG: ClassVar[bytes] = b"masquerade paillier key 1"
    session: Session
    n: Annotated[bytes, Blob(2048)]


@dataclass(frozen=True, slots=True)
class Encrypt(Message):
    """Ask for the columns of some variables, encrypted."""

    TAG: ClassVar[bytes] = b"masquerade paillier encrypt 1"
    session: Session
    names: Annotated[tuple[Name, ...], Many(MOST_NAMES)]


@dataclass(frozen=True, slots=True)
class Ciphertexts(Message):
    """Ciphertexts one after the other: encrypted columns, or masked sums to be decrypted."""

    TAG: ClassVar[bytes] = b"masquerade paillier ciphertexts 1"
    session: Session
    values: Annotated[bytes, Blob(MOST_BYTES)]


@dataclass(frozen=True, slots=True)
class Plaintexts(Message):
    """Masked sums, decrypted."""

    TAG: ClassVar[bytes] = b"masquerade paillier plaintexts 1"
    session: Session
    values: Annotated[bytes, Blob(MOST_BYTES)]
