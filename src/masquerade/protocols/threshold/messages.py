"""What servers and clients say to each other: terms of an epoch, its notice and closing, requests, replies.

Reports for the collector have a layout of their own (`report_layout`), since they come by the million.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Final

from masquerade.core.errors import InputError
from masquerade.crypto import symmetric
from masquerade.crypto.group import Point
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.crypto.oprf import POINT_SIZE, PROOF_SIZE
from masquerade.crypto.ristretto255 import ristretto255 as group
from masquerade.protocols.codec import (
    DIGEST_SIZE,
    U16,
    U32,
    U64,
    Blob,
    Digest,
    Enclosed,
    Fixed,
    Key,
    Message,
    OneOf,
    Signature,
    Text,
    Writer,
    point_of,
    tag_of,
)

ID_SIZE: Final = 16
MOST_K: Final = 10_000
MOST_BYTES: Final = 4096
MOST_TOGETHER: Final = 64  # elements under one proof; a client checks all of them
REFUSALS: Final = {
    "malformed": "The request is not one: its bytes do not decode.",
    "unknown_epoch": "The randomness server has no open epoch with this notice.",
    "epoch_closed": "The epoch is closed and its key destroyed: no request is evaluated any more.",
    "key_lost": "The randomness server was restarted and has no key for this epoch: it can only be closed.",
    "not_enrolled": "The credential is not one that the randomness server gave out.",
    "already_spent": "The credential has had its one evaluation in this epoch.",
}
_MOST_NAME: Final = 200
_NOTICE, _CLOSING = "threshold notice", "threshold closing"

Identifier = Annotated[bytes, Fixed(ID_SIZE)]
Elements = Annotated[bytes, Blob(POINT_SIZE * MOST_TOGETHER)]


@dataclass(frozen=True)
class Terms(Message):
    """How an epoch is run.

    `k` is the least number of reports that opens a class; `quasi_size` and `sensitive_size` are the most
    bytes of the two parts of a row, to which all are padded, so that lengths tell nothing. With `shown`,
    quasi-identifiers travel in clear as in the talk; otherwise they open with their class. `form` is the
    digest of the `Form` that rows are filled in on, if any. The name of an epoch is used once.
    """

    TAG: ClassVar[bytes] = b"threshold terms 1"
    epoch: Annotated[str, Text(_MOST_NAME)]
    k: U32
    quasi_size: U32
    sensitive_size: U32
    shown: bool = False
    form: Digest = bytes(DIGEST_SIZE)

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
    terms: Annotated[Terms, Enclosed(MOST_BYTES)]
    public: Annotated[Point, point_of(group)]
    signature: Signature

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


@dataclass(frozen=True)
class Closing(Message):
    """The server's signed word that it has destroyed the key of a notice, after so many evaluations."""

    TAG: ClassVar[bytes] = b"threshold closing 1"
    notice: Digest
    evaluations: U64
    signature: Signature

    @classmethod
    def signed(cls, notice: bytes, evaluations: int, key: SigningKey) -> Closing:
        """Return the closing of the notice with this digest."""
        return cls(notice, evaluations, key.sign(_CLOSING, notice, evaluations.to_bytes(8, "big")))

    def verify(self, identity: bytes) -> None:
        """Raise `SealBroken` unless the server of this identity signed it."""
        verify_signature(identity, self.signature, _CLOSING, self.notice, self.evaluations.to_bytes(8, "big"))


@dataclass(frozen=True)
class Credential(Message):
    """What a person gets at enrolment: an identifier and the key that its requests are made with."""

    TAG: ClassVar[bytes] = b"threshold credential 1"
    id: Identifier
    key: Key

    def __repr__(self) -> str:
        """Show the identifier, never the key."""
        return f"Credential({self.id.hex()})"


@dataclass(frozen=True)
class Request(Message):
    """One blinded element, for the epoch of one notice, by one credential.

    The element is decoded by whoever evaluates it.
    """

    TAG: ClassVar[bytes] = b"threshold request 1"
    notice: Digest
    credential: Identifier
    element: Annotated[bytes, Fixed(POINT_SIZE)]
    code: Digest

    @classmethod
    def made(cls, notice: bytes, credential: Credential, element: bytes) -> Request:
        """Return a request with its authentication code."""
        return cls(notice, credential.id, element, _code(credential.key, notice, element))

    def authentic(self, key: bytes) -> bool:
        """Tell whether the credential with this key made the request."""
        return symmetric.same(self.code, _code(key, self.notice, self.element))

    @property
    def fingerprint(self) -> bytes:
        """Return what a ledger keeps of the element, to know a repeated request by."""
        return hashlib.sha256(self.element).digest()[:ID_SIZE]


@dataclass(frozen=True)
class Evaluation(Message):
    """A whole batch that one proof is about, and which place in it is the receiver's.

    The other elements belong to other people; being blinded, they are uniformly random and tell nothing.
    """

    TAG: ClassVar[bytes] = b"threshold evaluation 1"
    elements: Elements
    evaluated: Elements
    proof: Annotated[bytes, Fixed(PROOF_SIZE)]
    place: U16

    def __post_init__(self) -> None:
        size = len(self.elements)
        if size != len(self.evaluated) or size % POINT_SIZE or self.place * POINT_SIZE >= size:
            raise InputError("An evaluation has as many results as elements, and the place is one of them.")


@dataclass(frozen=True)
class EvaluationRefusal(Message):
    """Why a request was not evaluated: one of `REFUSALS`."""

    TAG: ClassVar[bytes] = b"threshold refusal 1"
    reason: Annotated[str, OneOf(Text(64), REFUSALS)]


def read_reply(data: bytes) -> Evaluation | EvaluationRefusal:
    """Return the evaluation or the refusal that a reply is."""
    kind = EvaluationRefusal if tag_of(data) == EvaluationRefusal.TAG else Evaluation
    return kind.decode(data)


def _code(key: bytes, notice: bytes, element: bytes) -> bytes:
    return symmetric.code(key, b"threshold request 1" + notice + element)
