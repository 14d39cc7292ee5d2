"""The messages after the distances: signed words of people, the randomness server and the miner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from masquerade.crypto.errors import SealBroken
from masquerade.crypto.keys import KEY_SIZE, AgreementKey
from masquerade.crypto.sealed_messages import seal, unseal
from masquerade.protocols.codec import U32, Blob, Digest, Key, Many, Message, OneOf, Text
from masquerade.protocols.mix.agreement import MOST_ROWS
from masquerade.protocols.mix.messages import Signed, aborted
from masquerade.protocols.partition.agreement import (
    AGREEMENT,
    MINER,
    NOTICES,
    RELEASE,
    PartitionTerms,
)
from masquerade.protocols.people.roster import PersonName

PROTOCOL = "distributed k-anonymity"
_MOST_ATTRIBUTES = 1 << 10
_SMALL = 1 << 14
_MOST_PARTS = MOST_ROWS * _MOST_ATTRIBUTES

Part = Annotated[bytes, Blob(_SMALL)]
Parts = Annotated[tuple[Part, ...], Many(_MOST_PARTS)]


@dataclass(frozen=True, slots=True)
class Word(Signed):
    """What one party says to all, signed."""

    TAG: ClassVar[bytes] = b"masquerade partition word 1"
    LABEL: ClassVar[str] = PROTOCOL
    kind: Annotated[str, OneOf(Text(32), (AGREEMENT, NOTICES, RELEASE))]
    payload: Annotated[bytes, Blob(1 << 28)]


@dataclass(frozen=True, slots=True)
class GroupVote(Message):
    """A person's word on the groups: what was seen, a key to be written to, and everybody's group."""

    TAG: ClassVar[bytes] = b"masquerade partition agreement 1"
    view: Digest
    key: Key
    groups: Annotated[tuple[U32, ...], Many(MOST_ROWS)]


@dataclass(frozen=True, slots=True)
class Notices(Message):
    """The randomness server's word: for each group an identity and, in a run, a notice for each attribute.

    `credentials` has one for each person, in order, sealed for that person alone by a key agreed with `key`.
    """

    TAG: ClassVar[bytes] = b"masquerade partition notices 1"
    agreement: Digest
    key: Key
    identities: Annotated[tuple[Key, ...], Many(MOST_ROWS)]
    notices: Parts
    credentials: Annotated[tuple[Part, ...], Many(MOST_ROWS)]


@dataclass(frozen=True, slots=True)
class Bundle(Message):
    """What goes between one person and the randomness server: one part for each attribute."""

    TAG: ClassVar[bytes] = b"masquerade partition bundle 1"
    person: PersonName
    parts: Annotated[tuple[Part, ...], Many(_MOST_ATTRIBUTES)]


@dataclass(frozen=True, slots=True)
class Closings(Message):
    """The closing of every group and attribute, group by group."""

    TAG: ClassVar[bytes] = b"masquerade partition closings 1"
    parts: Parts


@dataclass(frozen=True, slots=True)
class AddressedReport(Message):
    """A report with the group and attribute that it is about: what is sealed for the miner."""

    TAG: ClassVar[bytes] = b"masquerade partition report 1"
    group: U32
    attribute: U32
    report: Part


@dataclass(frozen=True, slots=True)
class Release(Message):
    """The miner's word: for each group and attribute no value or one, and the hashes of all it was sent."""

    TAG: ClassVar[bytes] = b"masquerade partition release 1"
    agreement: Digest
    values: Annotated[tuple[Annotated[tuple[Part, ...], Many(1)], ...], Many(_MOST_PARTS)]
    receipts: Annotated[tuple[Digest, ...], Many(_MOST_PARTS)]


def sealed_for(box: bytes, message: bytes, terms: PartitionTerms) -> bytes:
    """Return a message that only the owner of a box can read, and that does not say who sent it."""
    key = AgreementKey()
    return key.public + seal(key.agree(box, f"{PROTOCOL}: report", terms.id), message, terms.id)


def unsealed(box: AgreementKey, sealed: bytes, terms: PartitionTerms) -> bytes:
    """Return the message of a sealed one, or raise `SealBroken` or `DecodingError`."""
    key = box.agree(sealed[:KEY_SIZE], f"{PROTOCOL}: report", terms.id)
    return unseal(key, sealed[KEY_SIZE:], terms.id)


def word_of(data: bytes, terms: PartitionTerms, kind: str) -> bytes:
    """Return the payload of a word of the randomness server or the miner; a forged one aborts."""
    try:
        return Word.opened(data, terms, kind).payload
    except SealBroken:
        raise aborted(f"This {kind} was not signed by its sender.", MINER, spent=True) from None
