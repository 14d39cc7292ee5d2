"""Messages of threshold reporting: terms of an epoch, notice and closing, requests and replies, reports.

Reports for the collector have a fixed length, so that a million can be read in one batch and no length
reveals anything::

    magic 4 | epoch 8 | k 4 | notice 8 | tag 16 | x 8 | y 24 | [shown quasi-identifier] | nonce 12, sealed
    part

The sealed part contains the unblinded element that determines the class (32 bytes), then both parts of the
row, each as its length (2 bytes) and its padded bytes. With the element the collector checks, once the class
is open, that its quasi-identifier determines the class. Numbers are little-endian.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto import symmetric
from masquerade.crypto.class_secrets import LIMBS, TAG_SIZE
from masquerade.crypto.group import Point
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.crypto.oprf import POINT_SIZE, PROOF_SIZE
from masquerade.crypto.ristretto255 import ristretto255 as group
from masquerade.crypto.symmetric import OVERHEAD
from masquerade.protocols.wire import codec

ID_SIZE: Final = 16
MOST_K: Final = 10_000
MOST_BYTES: Final = 4096
MOST_TOGETHER: Final = 64  # elements per proof; a client checks all of them
REFUSALS: Final = {
    "malformed": "The bytes are not a valid request.",
    "unknown_epoch": "The randomness server has no open epoch with this notice.",
    "epoch_closed": "The epoch is closed and its key destroyed: no request is evaluated any more.",
    "key_lost": "The randomness server was restarted and has no key for this epoch: it can only be closed.",
    "not_enrolled": "The credential was not issued by this randomness server.",
    "already_spent": "The credential was already used in this epoch.",
}
_MOST_NAME: Final = 200
_NOTICE, _CLOSING = "threshold notice", "threshold closing"

Identifier = Annotated[bytes, codec.Fixed(ID_SIZE)]
Elements = Annotated[bytes, codec.Blob(POINT_SIZE * MOST_TOGETHER)]


class ThresholdTerms(codec.Message, tag=b"threshold terms 1"):
    """Terms of an epoch.

    `k` is the least number of reports that opens a class. `quasi_size` and `sensitive_size` are the largest
    sizes of the two parts of a row in bytes; all rows are padded to them, so that lengths reveal nothing.
    With `shown`, quasi-identifiers are sent in clear, as in Wright's talk; else they open with their class.
    `form` is the digest of the `Form` of the rows, if there is one. The name of an epoch is used once.
    """

    epoch: Annotated[str, codec.Text(_MOST_NAME)]
    k: codec.U32
    quasi_size: codec.U32
    sensitive_size: codec.U32
    shown: bool = False
    form: codec.Digest = bytes(codec.DIGEST_SIZE)

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
        """Return epoch‖k, the epoch preceded by its length: the context of outputs and sealed parts."""
        writer = codec.Writer()
        writer.text(self.epoch, _MOST_NAME)
        writer.number(self.k, 4)
        return writer.done()

    def input_of(self, quasi: bytes) -> bytes:
        """Return the input of the oblivious PRF: epoch‖k‖quasi-identifier."""
        return self.context + quasi


class Notice(codec.Message, tag=b"threshold notice 1"):
    """The randomness server's signed commitment to one key for the epoch, the same for all people.

    Its digest must be published. A server that gave people different keys could distinguish them by their
    reports; clients compare the digest, reports include it, and two notices of one epoch are evidence.

    >>> import os
    >>> schema = mq.Schema({"zip": ["07029", "07030"], "ill": ["colitis", "stroke"]})
    >>> form = mq.people.Form(schema, quasi=("zip",), sensitive=("ill",))
    >>> server = mq.people.RandomnessServer(os.urandom(32), mq.people.EvaluationLedger())
    >>> notice = mq.people.Notice.decode(server.open(form.terms("spring", k=2).encode()))
    >>> len(notice.digest)
    32
    """

    terms: Annotated[ThresholdTerms, codec.Enclosed(MOST_BYTES)]
    public: Annotated[Point, codec.point_of(group)]
    signature: codec.Signature

    @classmethod
    def sign(cls, terms: ThresholdTerms, public: Point, key: SigningKey) -> Notice:
        """Sign the notice of a server's key.

        Parameters
        ----------
        terms : ThresholdTerms
            Terms of the epoch.
        public : Point
            Public key of the epoch.
        key : SigningKey
            Identity of the server.

        Returns
        -------
        Notice
        """
        return cls(terms, public, key.sign(_NOTICE, terms.encode(), public.encode()))

    def verify(self, identity: bytes) -> None:
        """Raise `SealBroken` unless the server of this identity signed it."""
        verify_signature(identity, self.signature, _NOTICE, self.terms.encode(), self.public.encode())

    @cached_property
    def digest(self) -> bytes:
        """Return the SHA-256 of the notice."""
        return hashlib.sha256(self.encode()).digest()


class Closing(codec.Message, tag=b"threshold closing 1"):
    """The server's signed statement that it destroyed the key of a notice, with the number of evaluations."""

    notice: codec.Digest
    evaluations: codec.U64
    signature: codec.Signature

    @classmethod
    def sign(cls, notice: bytes, evaluations: int, key: SigningKey) -> Closing:
        """Return the closing of the notice with this digest."""
        return cls(notice, evaluations, key.sign(_CLOSING, notice, evaluations.to_bytes(8, "big")))

    def verify(self, identity: bytes) -> None:
        """Raise `SealBroken` unless the server of this identity signed it."""
        verify_signature(identity, self.signature, _CLOSING, self.notice, self.evaluations.to_bytes(8, "big"))


class Credential(codec.Message, tag=b"threshold credential 1"):
    """A person's credential: an identifier, and the key that authenticates requests."""

    id: Identifier
    key: codec.Key

    def __repr__(self) -> str:
        """Return the identifier, never the key."""
        return f"Credential({self.id.hex()})"


class Request(codec.Message, tag=b"threshold request 1"):
    """A request: one blinded element, for the epoch of one notice, with one credential.

    The evaluating server decodes the element.
    """

    notice: codec.Digest
    credential: Identifier
    element: Annotated[bytes, codec.Fixed(POINT_SIZE)]
    code: codec.Digest

    @classmethod
    def make(cls, notice: bytes, credential: Credential, element: bytes) -> Request:
        """Return a request with its authentication code."""
        return cls(notice, credential.id, element, _code(credential.key, notice, element))

    def authentic(self, key: bytes) -> bool:
        """Return True if the credential with this key made the request."""
        return symmetric.same(self.code, _code(key, self.notice, self.element))

    @property
    def fingerprint(self) -> bytes:
        """Return the fingerprint of the element by which a ledger recognises a repeated request."""
        return hashlib.sha256(self.element).digest()[:ID_SIZE]


class Evaluation(codec.Message, tag=b"threshold evaluation 1"):
    """Evaluations of a batch with one proof, and the receiver's index in the batch.

    The other elements belong to other people; they are blinded, so they are uniformly random and reveal
    nothing.
    """

    elements: Elements
    evaluated: Elements
    proof: Annotated[bytes, codec.Fixed(PROOF_SIZE)]
    place: codec.U16

    def __post_init__(self) -> None:
        size = len(self.elements)
        if size != len(self.evaluated) or size % POINT_SIZE or self.place * POINT_SIZE >= size:
            raise InputError("An evaluation must have as many results as elements, and a valid index.")


class EvaluationRefusal(codec.Message, tag=b"threshold refusal 1"):
    """The reason why a request was not evaluated: one of `REFUSALS`."""

    reason: Annotated[str, codec.OneOf(codec.Text(64), REFUSALS)]


def read_reply(data: bytes) -> Evaluation | EvaluationRefusal:
    """Decode a reply: an evaluation or a refusal."""
    kind = EvaluationRefusal if codec.tag_of(data) == EvaluationRefusal.TAG else Evaluation
    return kind.decode(data)


def _code(key: bytes, notice: bytes, element: bytes) -> bytes:
    return symmetric.code(key, b"threshold request 1" + notice + element)


MAGIC: Final = int.from_bytes(b"mqt1", "little")
LENGTH: Final = 2
_SHORT: Final = 8


@dataclass(frozen=True)
class ReportLayout:
    """Positions of all fields in the reports of one epoch."""

    terms: ThresholdTerms
    notice: bytes

    @classmethod
    def of(cls, notice: Notice) -> ReportLayout:
        """Return the layout of the reports under a notice."""
        return cls(notice.terms, notice.digest)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Return the fields as a NumPy dtype."""
        fields: list[tuple[Any, ...]] = [("magic", "<u4"), ("epoch", "<u8"), ("k", "<u4"), ("notice", "<u8")]
        fields += [("tag", "<u8", TAG_SIZE // 8), ("x", "<u8"), ("y", "<u8", LIMBS)]
        if self.terms.shown:
            fields.append(("quasi", "u1", LENGTH + self.terms.quasi_size))
        return np.dtype([*fields, ("sealed", "u1", OVERHEAD + self.plain_size)])

    @property
    def size(self) -> int:
        """Return the number of bytes of a report."""
        return int(self.dtype.itemsize)

    @property
    def plain_size(self) -> int:
        """Return the number of bytes of the sealed part before it is sealed."""
        return POINT_SIZE + 2 * LENGTH + self.terms.quasi_size + self.terms.sensitive_size

    @cached_property
    def header(self) -> tuple[int, int, int, int]:
        """Return magic, epoch, k and notice as in every report of this epoch."""
        epoch = hashlib.sha256(self.terms.epoch.encode()).digest()[:_SHORT]
        short = int.from_bytes(self.notice[:_SHORT], "little")
        return MAGIC, int.from_bytes(epoch, "little"), self.terms.k, short

    def bound_to(self, tag: bytes) -> bytes:
        """Return the associated data of a sealed part: epoch‖k‖notice‖tag."""
        return self.terms.context + self.notice + tag

    def plain(self, unblinded: bytes, quasi: bytes, sensitive: bytes) -> bytes:
        """Return the content of the sealed part."""
        return unblinded + self.padded_quasi(quasi) + _pad(sensitive, self.terms.sensitive_size, "sensitive")

    def padded_quasi(self, quasi: bytes) -> bytes:
        """Return a quasi-identifier padded to full length, preceded by its length."""
        return _pad(quasi, self.terms.quasi_size, "quasi")

    def report(self, tag: bytes, x: int, y: tuple[int, ...], quasi: bytes, sealed: bytes) -> bytes:
        """Return a report."""
        record = np.zeros((), dtype=self.dtype)
        for name, value in zip(("magic", "epoch", "k", "notice"), self.header, strict=True):
            record[name] = value
        record["tag"], record["x"], record["y"] = np.frombuffer(tag, "<u8"), x, y
        if self.terms.shown:
            record["quasi"] = np.frombuffer(self.padded_quasi(quasi), np.uint8)
        record["sealed"] = np.frombuffer(sealed, np.uint8)
        return record.tobytes()

    def read(self, reports: bytes) -> NDArray[Any]:
        """Return concatenated reports as an array of records."""
        return np.frombuffer(reports, dtype=self.dtype)


@dataclass(frozen=True, eq=False)
class Rows:
    """The opened sealed parts of many reports: matrices of bytes, one row per report."""

    origin: NDArray[np.uint8]  # element and padded quasi-identifier
    quasi: NDArray[np.uint8]
    quasi_length: NDArray[np.int64]
    sensitive: NDArray[np.uint8]
    sensitive_length: NDArray[np.int64]

    @classmethod
    def of(cls, layout: ReportLayout, plain: bytes) -> Rows:
        """Split concatenated opened parts into their fields."""
        whole = np.frombuffer(plain, np.uint8).reshape(-1, layout.plain_size)
        middle = POINT_SIZE + LENGTH + layout.terms.quasi_size
        return cls(
            whole[:, :middle],
            whole[:, POINT_SIZE + LENGTH : middle],
            _lengths(whole[:, POINT_SIZE:]),
            whole[:, middle + LENGTH :],
            _lengths(whole[:, middle:]),
        )

    def well_formed(self) -> NDArray[np.bool_]:
        """Return True for rows with valid padding."""
        return _padding_is_zero(self.quasi, self.quasi_length) & _padding_is_zero(
            self.sensitive, self.sensitive_length
        )


def _pad(value: bytes, size: int, name: str) -> bytes:
    if len(value) > size:
        raise InputError(f"The {name} part of a row has at most {size} bytes here. Got {len(value)} instead.")
    return len(value).to_bytes(LENGTH, "little") + value + bytes(size - len(value))


def _lengths(part: NDArray[np.uint8]) -> NDArray[np.int64]:
    return part[:, 0].astype(np.int64) + 256 * part[:, 1].astype(np.int64)


def _padding_is_zero(part: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    width = part.shape[1]
    padding = np.arange(width) >= lengths[:, None]
    clean: NDArray[np.bool_] = ~(padding & (part != 0)).any(axis=1) & (lengths <= width)
    return clean
