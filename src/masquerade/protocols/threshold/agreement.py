"""What an epoch is about, said once for everybody: its terms, the server's notice and its closing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Self

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import Point
from masquerade.crypto.keys import SIGNATURE_SIZE, SigningKey, verify_signature
from masquerade.crypto.ristretto255 import ristretto255 as group
from masquerade.protocols.codec import Message, Reader, Writer

DIGEST_SIZE: Final = 32
MOST_K: Final = 10_000
MOST_BYTES: Final = 4096
_MOST_NAME: Final = 200
_NOTICE, _CLOSING = "threshold notice", "threshold closing"


@dataclass(frozen=True)
class Terms(Message):
    """How an epoch is run.

    `k` is the least number of reports that opens a class; `quasi_size` and `sensitive_size` are the most
    bytes of the two parts of a row, to which all are padded, so that lengths tell nothing. With `shown`,
    quasi-identifiers travel in clear as in the talk; otherwise they open with their class. `form` is the
    digest of the `Form` that rows are filled in on, if any. The name of an epoch is used once.
    """

    TAG: ClassVar[bytes] = b"threshold terms 1"
    epoch: str
    k: int
    quasi_size: int
    sensitive_size: int
    shown: bool = False
    form: bytes = bytes(DIGEST_SIZE)

    def __post_init__(self) -> None:
        if not self.epoch or len(self.epoch.encode()) > _MOST_NAME:
            raise InputError(f"An epoch has a name of 1 to {_MOST_NAME} bytes.")
        if not 2 <= self.k <= MOST_K:
            raise InputError(f"'k' must be from 2 to {MOST_K:,}. Got {self.k} instead.")
        for name in ("quasi_size", "sensitive_size"):
            if not 1 <= getattr(self, name) <= MOST_BYTES:
                raise InputError(
                    f"'{name}' must be from 1 to {MOST_BYTES:,} bytes. Got {getattr(self, name)}."
                )

    def write(self, writer: Writer) -> None:
        """Write the fields in order."""
        writer.text(self.epoch, _MOST_NAME)
        writer.number(self.k, 4)
        writer.number(self.quasi_size, 4)
        writer.number(self.sensitive_size, 4)
        writer.number(self.shown, 1)
        writer.fixed(self.form, DIGEST_SIZE)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields in order."""
        epoch = reader.text(_MOST_NAME)
        k, quasi_size, sensitive_size, shown = (reader.number(size) for size in (4, 4, 4, 1))
        if shown > 1:
            raise DecodingError("Quasi-identifiers are shown (1) or not (0).")
        return cls(epoch, k, quasi_size, sensitive_size, bool(shown), reader.fixed(DIGEST_SIZE))

    @cached_property
    def context(self) -> bytes:
        """Return epoch‖k, the epoch with its length: what outputs and sealed parts are bound to."""
        writer = Writer()
        writer.text(self.epoch, _MOST_NAME)
        writer.number(self.k, 4)
        return writer.done()

    def input_of(self, quasi: bytes) -> bytes:
        """Return what the oblivious function is asked for: epoch‖k‖quasi-identifier."""
        return self.context + quasi


@dataclass(frozen=True)
class Notice(Message):
    """The randomness server's commitment to one key for the epoch, signed, the same for everybody.

    Its digest belongs in a public place. A server that gave people different keys could tell them apart by
    their reports; clients compare the digest, reports carry it, and two notices of one epoch are evidence.
    """

    TAG: ClassVar[bytes] = b"threshold notice 1"
    terms: Terms
    public: Point
    signature: bytes

    @classmethod
    def signed(cls, terms: Terms, public: Point, key: SigningKey) -> Notice:
        """Return the notice of a server's key."""
        return cls(terms, public, key.sign(_NOTICE, terms.encode(), public.encode()))

    def verify(self, identity: bytes) -> None:
        """Raise `SealBroken` unless the server of this identity signed it."""
        verify_signature(identity, self.signature, _NOTICE, self.terms.encode(), self.public.encode())

    @cached_property
    def digest(self) -> bytes:
        """Return the SHA-256 of the notice."""
        return hashlib.sha256(self.encode()).digest()

    def write(self, writer: Writer) -> None:
        """Write the fields in order."""
        writer.varying(self.terms.encode(), MOST_BYTES)
        writer.point(self.public)
        writer.fixed(self.signature, SIGNATURE_SIZE)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields in order."""
        terms = Terms.decode(reader.varying(MOST_BYTES))
        return cls(terms, reader.point(group), reader.fixed(SIGNATURE_SIZE))


@dataclass(frozen=True)
class Closing(Message):
    """The server's signed word that it has destroyed the key of a notice, after so many evaluations."""

    TAG: ClassVar[bytes] = b"threshold closing 1"
    notice: bytes
    evaluations: int
    signature: bytes

    @classmethod
    def signed(cls, notice: bytes, evaluations: int, key: SigningKey) -> Closing:
        """Return the closing of the notice with this digest."""
        return cls(notice, evaluations, key.sign(_CLOSING, notice, evaluations.to_bytes(8, "big")))

    def verify(self, identity: bytes) -> None:
        """Raise `SealBroken` unless the server of this identity signed it."""
        verify_signature(identity, self.signature, _CLOSING, self.notice, self.evaluations.to_bytes(8, "big"))

    def write(self, writer: Writer) -> None:
        """Write the fields in order."""
        writer.fixed(self.notice, DIGEST_SIZE)
        writer.number(self.evaluations, 8)
        writer.fixed(self.signature, SIGNATURE_SIZE)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields in order."""
        return cls(reader.fixed(DIGEST_SIZE), reader.number(8), reader.fixed(SIGNATURE_SIZE))


def equivocates(first: Notice, second: Notice, identity: bytes) -> bool:
    """Tell whether a server signed two different notices for one epoch: evidence that anybody can check."""
    first.verify(identity)
    second.verify(identity)
    return first.terms.epoch == second.terms.epoch and first.digest != second.digest
