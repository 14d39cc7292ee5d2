"""What clients and the randomness server say to each other: credentials, requests, replies."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import KEY_SIZE
from masquerade.crypto.oprf import POINT_SIZE, PROOF_SIZE
from masquerade.protocols.codec import Message, Reader, Writer
from masquerade.protocols.threshold.agreement import DIGEST_SIZE

ID_SIZE: Final = 16
MOST_TOGETHER: Final = 64  # elements under one proof; a client checks all of them
_MAC_SIZE: Final = 32
REFUSALS: Final = {
    "malformed": "The request is not one: its bytes do not decode.",
    "unknown_epoch": "The randomness server has no open epoch with this notice.",
    "epoch_closed": "The epoch is closed and its key destroyed: no request is evaluated any more.",
    "key_lost": "The randomness server was restarted and has no key for this epoch: it can only be closed.",
    "not_enrolled": "The credential is not one that the randomness server gave out.",
    "already_spent": "The credential has had its one evaluation in this epoch.",
}


@dataclass(frozen=True)
class Credential(Message):
    """What a person gets at enrolment: an identifier and the key that its requests are made with."""

    TAG: ClassVar[bytes] = b"threshold credential 1"
    id: bytes
    key: bytes

    def __repr__(self) -> str:
        """Show the identifier, never the key."""
        return f"Credential({self.id.hex()})"

    def write(self, writer: Writer) -> None:
        """Write the fields in order."""
        writer.fixed(self.id, ID_SIZE)
        writer.fixed(self.key, KEY_SIZE)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields in order."""
        return cls(reader.fixed(ID_SIZE), reader.fixed(KEY_SIZE))


@dataclass(frozen=True)
class Request(Message):
    """One blinded element, for the epoch of one notice, by one credential."""

    TAG: ClassVar[bytes] = b"threshold request 1"
    notice: bytes
    credential: bytes
    element: bytes
    code: bytes

    @classmethod
    def made(cls, notice: bytes, credential: Credential, element: bytes) -> Request:
        """Return a request with its authentication code."""
        return cls(notice, credential.id, element, _code(credential.key, notice, element))

    def authentic(self, key: bytes) -> bool:
        """Tell whether the credential with this key made the request."""
        return hmac.compare_digest(self.code, _code(key, self.notice, self.element))

    def write(self, writer: Writer) -> None:
        """Write the fields in order."""
        writer.fixed(self.notice, DIGEST_SIZE)
        writer.fixed(self.credential, ID_SIZE)
        writer.fixed(self.element, POINT_SIZE)
        writer.fixed(self.code, _MAC_SIZE)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields in order; the element is decoded by whoever evaluates it."""
        sizes = (DIGEST_SIZE, ID_SIZE, POINT_SIZE, _MAC_SIZE)
        return cls(*[reader.fixed(size) for size in sizes])


@dataclass(frozen=True)
class Evaluation(Message):
    """A whole batch that one proof is about, and which place in it is the receiver's.

    The other elements belong to other people; being blinded, they are uniformly random and tell nothing.
    """

    TAG: ClassVar[bytes] = b"threshold evaluation 1"
    elements: bytes
    evaluated: bytes
    proof: bytes
    place: int

    def write(self, writer: Writer) -> None:
        """Write the fields in order."""
        writer.varying(self.elements, POINT_SIZE * MOST_TOGETHER)
        writer.varying(self.evaluated, POINT_SIZE * MOST_TOGETHER)
        writer.fixed(self.proof, PROOF_SIZE)
        writer.number(self.place, 2)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields in order."""
        elements, evaluated = (reader.varying(POINT_SIZE * MOST_TOGETHER) for _ in range(2))
        proof, place = reader.fixed(PROOF_SIZE), reader.number(2)
        if (
            len(elements) != len(evaluated)
            or len(elements) % POINT_SIZE
            or place * POINT_SIZE >= len(elements)
        ):
            raise DecodingError(
                "An evaluation has as many results as elements, and the place is one of them."
            )
        return cls(elements, evaluated, proof, place)


@dataclass(frozen=True)
class Refused(Message):
    """Why a request was not evaluated: one of `REFUSALS`."""

    TAG: ClassVar[bytes] = b"threshold refusal 1"
    reason: str

    def write(self, writer: Writer) -> None:
        """Write the fields in order."""
        writer.text(self.reason, 64)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields in order."""
        reason = reader.text(64)
        if reason not in REFUSALS:
            raise DecodingError("A refusal gives a reason that is not known.")
        return cls(reason)


def read_reply(data: bytes) -> Evaluation | Refused:
    """Return the evaluation or the refusal that a reply is."""
    tag = Reader(data).varying(255)
    return Refused.decode(data) if tag == Refused.TAG else Evaluation.decode(data)


def fingerprint(element: bytes) -> bytes:
    """Return what a ledger keeps of an element, to know a repeated request by."""
    return hashlib.sha256(element).digest()[:ID_SIZE]


def _code(key: bytes, notice: bytes, element: bytes) -> bytes:
    return hmac.digest(key, b"threshold request 1" + notice + element, "sha256")
