"""The messages after the distances: signed words of people, the randomness server and the miner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from masquerade.core.errors import RoundAborted
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import KEY_SIZE, SIGNATURE_SIZE, AgreementKey, SigningKey, verify_signature
from masquerade.crypto.sealed_messages import seal, unseal
from masquerade.protocols.codec import DIGEST_SIZE, Blob, Fields, Fixed, Many, Number, Text
from masquerade.protocols.mix.agreement import LONGEST_NAME, MOST_ROWS
from masquerade.protocols.partition.agreement import PartitionTerms

AGREEMENT, NOTICES, RELEASE = "agreement", "list of notices", "release"
MINER, RANDOMNESS = "miner", "randomness server"
_LARGEST = 1 << 28
_MOST_ATTRIBUTES = 1 << 10
_SMALL = 1 << 14


@dataclass(frozen=True, slots=True)
class Word(Fields):
    """What one party says to all, signed."""

    kind: str
    sender: str
    payload: bytes
    signature: bytes

    TAG: ClassVar[bytes] = b"masquerade partition word 1"
    FIELDS: ClassVar = (
        ("kind", Text(32)),
        ("sender", Text(LONGEST_NAME)),
        ("payload", Blob(_LARGEST)),
        ("signature", Fixed(SIGNATURE_SIZE)),
    )

    @classmethod
    def signed(cls, terms: PartitionTerms, key: SigningKey, kind: str, sender: str, payload: bytes) -> Word:
        """Return a signed word."""
        return cls(kind, sender, payload, key.sign(_label(kind), terms.id, sender.encode(), payload))

    @classmethod
    def opened(cls, data: bytes, terms: PartitionTerms, kind: str) -> Word:
        """Return the word of these bytes, of this kind and signed by its sender."""
        word = cls.decode(data)
        identity = _identity(terms, kind, word.sender)
        if word.kind != kind or identity is None:
            raise DecodingError(f"This is not a signed {kind} of anybody who may send one.")
        verify_signature(identity, word.signature, _label(kind), terms.id, word.sender.encode(), word.payload)
        return word


@dataclass(frozen=True, slots=True)
class Agreement(Fields):
    """A person's word on the groups: what was seen, a key to be written to, and everybody's group."""

    view: bytes
    key: bytes
    groups: tuple[int, ...]

    TAG: ClassVar[bytes] = b"masquerade partition agreement 1"
    FIELDS: ClassVar = (
        ("view", Fixed(DIGEST_SIZE)),
        ("key", Fixed(KEY_SIZE)),
        ("groups", Many(Number(4), MOST_ROWS)),
    )


@dataclass(frozen=True, slots=True)
class Notices(Fields):
    """The randomness server's word: for each group an identity and, in a run, a notice for each attribute.

    `credentials` has one for each person, in order, sealed for that person alone by a key agreed with `key`.
    """

    agreement: bytes
    key: bytes
    identities: tuple[bytes, ...]
    notices: tuple[bytes, ...]
    credentials: tuple[bytes, ...]

    TAG: ClassVar[bytes] = b"masquerade partition notices 1"
    FIELDS: ClassVar = (
        ("agreement", Fixed(DIGEST_SIZE)),
        ("key", Fixed(KEY_SIZE)),
        ("identities", Many(Fixed(KEY_SIZE), MOST_ROWS)),
        ("notices", Many(Blob(_SMALL), MOST_ROWS * _MOST_ATTRIBUTES)),
        ("credentials", Many(Blob(_SMALL), MOST_ROWS)),
    )


@dataclass(frozen=True, slots=True)
class Bundle(Fields):
    """What goes between one person and the randomness server: one part for each attribute."""

    person: str
    parts: tuple[bytes, ...]

    TAG: ClassVar[bytes] = b"masquerade partition bundle 1"
    FIELDS: ClassVar = (("person", Text(LONGEST_NAME)), ("parts", Many(Blob(_SMALL), _MOST_ATTRIBUTES)))


@dataclass(frozen=True, slots=True)
class Closings(Fields):
    """The closing of every group and attribute, group by group."""

    parts: tuple[bytes, ...]

    TAG: ClassVar[bytes] = b"masquerade partition closings 1"
    FIELDS: ClassVar = (("parts", Many(Blob(_SMALL), MOST_ROWS * _MOST_ATTRIBUTES)),)


@dataclass(frozen=True, slots=True)
class Addressed(Fields):
    """A report with the group and attribute that it is about: what is sealed for the miner."""

    group: int
    attribute: int
    report: bytes

    TAG: ClassVar[bytes] = b"masquerade partition report 1"
    FIELDS: ClassVar = (("group", Number(4)), ("attribute", Number(4)), ("report", Blob(_SMALL)))


@dataclass(frozen=True, slots=True)
class Release(Fields):
    """The miner's word: for each group and attribute no value or one, and the hashes of all it was sent."""

    agreement: bytes
    values: tuple[tuple[bytes, ...], ...]
    receipts: tuple[bytes, ...]

    TAG: ClassVar[bytes] = b"masquerade partition release 1"
    FIELDS: ClassVar = (
        ("agreement", Fixed(DIGEST_SIZE)),
        ("values", Many(Many(Blob(_SMALL), 1), MOST_ROWS * _MOST_ATTRIBUTES)),
        ("receipts", Many(Fixed(DIGEST_SIZE), MOST_ROWS * _MOST_ATTRIBUTES)),
    )


def sealed_for(box: bytes, message: bytes, terms: PartitionTerms) -> bytes:
    """Return a message that only the owner of a box can read, and that does not say who sent it."""
    key = AgreementKey()
    return key.public + seal(key.agree(box, _label("report"), terms.id), message, terms.id)


def unsealed(box: AgreementKey, sealed: bytes, terms: PartitionTerms) -> bytes:
    """Return the message of a sealed one, or raise `SealBroken` or `DecodingError`."""
    key = box.agree(sealed[:KEY_SIZE], _label("report"), terms.id)
    return unseal(key, sealed[KEY_SIZE:], terms.id)


def word_of(data: bytes, terms: PartitionTerms, kind: str) -> bytes:
    """Return the payload of a word of the randomness server or the miner; a forged one aborts."""
    try:
        return Word.opened(data, terms, kind).payload
    except SealBroken:
        raise RoundAborted(
            f"This {kind} was not signed by its sender.", spent=True, culprits=(MINER,)
        ) from None


def first_words(terms: PartitionTerms, kind: str, messages: Sequence[bytes]) -> dict[str, bytes]:
    """Return the first word of every sender; what nobody signed is nobody's and left out."""
    first: dict[str, bytes] = {}
    for data in messages:
        try:
            first.setdefault(Word.opened(data, terms, kind).sender, data)
        except (DecodingError, SealBroken):
            continue
    return first


def _identity(terms: PartitionTerms, kind: str, sender: str) -> bytes | None:
    if kind == AGREEMENT:
        return terms.people.get(sender)
    known = {NOTICES: (RANDOMNESS, terms.randomness), RELEASE: (MINER, terms.miner)}[kind]
    return known[1] if sender == known[0] else None


def _label(kind: str) -> str:
    return f"distributed k-anonymity: {kind}"
