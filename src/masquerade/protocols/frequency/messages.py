"""The messages of frequency mining.

What users send is `Signed` by their enrolled identity, so that whoever cheats can be named. What the miner
sends is checked by everyone and needs no signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar, Self

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.protocols.codec import U32, Blob, Digest, Many, Message, Reader, Signature, Text, Writer
from masquerade.protocols.frequency.agreement import MOST_PROOFS, Terms
from masquerade.protocols.frequency.ballots import counts_of
from masquerade.protocols.people.questions import MOST_QUESTIONS, Question
from masquerade.protocols.people.roster import PersonName

HASH = 32
ROUND = 4
LARGEST = 2**26  # a user's vote of 50,000 counts, proof included, is below this


class Step(IntEnum):
    """What a user says in a round."""

    KEYS = 1
    ENDORSEMENT = 2
    VOTE = 3
    REFUSAL = 4


@dataclass(frozen=True, slots=True)
class Signed(Message):
    """What a user says in a round: keys, an endorsement, a vote, or why not; signed."""

    TAG: ClassVar[bytes] = b"masquerade frequency signed 1"
    user: PersonName
    step: Step
    number: U32
    payload: Annotated[bytes, Blob(LARGEST)]
    signature: Signature

    @classmethod
    def make(
        cls, terms: Terms, key: SigningKey, *, user: str, step: Step, number: int, payload: bytes
    ) -> Self:
        """Return a signed message."""
        signature = key.sign(_label(step), *_fields(terms, user, number, payload))
        return cls(user, step, number, payload, signature)

    def check(self, terms: Terms) -> None:
        """Raise `SealBroken` unless the user named signed this, under these terms."""
        if self.user not in terms.members:
            raise DecodingError("A message names a user who is not a member.")
        fields = _fields(terms, self.user, self.number, self.payload)
        verify_signature(terms.members[self.user], self.signature, _label(self.step), *fields)


def _label(step: Step) -> str:
    return f"frequency mining: {step.name.lower()}"


def _fields(terms: Terms, user: str, number: int, payload: bytes) -> tuple[bytes, ...]:
    return terms.id, number.to_bytes(ROUND, "big"), user.encode(), payload


class _MemberPlace:
    """A member by the place among all of them; the context are the terms."""

    def write(self, writer: Writer, value: str) -> None:
        writer.number(_terms(writer).roster.places[value], 4)

    def read(self, reader: Reader) -> str:
        names, place = _terms(reader).roster.names, reader.number(4)
        if place >= len(names):
            raise DecodingError("An invitation lists members once and in order.")
        return names[place]


@dataclass(frozen=True)
class Invitation(Message):
    """The miner opens a round: its number, who takes part, what is asked; read by whoever has the terms."""

    TAG: ClassVar[bytes] = b"masquerade frequency invitation 1"
    terms: Digest
    number: U32
    users: Annotated[tuple[Annotated[str, _MemberPlace()], ...], Many(MOST_PROOFS)]
    questions: Annotated[tuple[Question, ...], Many(MOST_QUESTIONS)]

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read an invitation; other terms, unknown users, no or impossible questions are refused."""
        asked, terms = super().read(reader), _terms(reader)
        if asked.terms != terms.id:
            raise DecodingError("The invitation is for other terms than were agreed.")
        places = [terms.roster.places[user] for user in asked.users]
        if places != sorted(set(places)):
            raise DecodingError("An invitation lists members once and in order.")
        if not asked.questions or len(set(asked.questions)) < len(asked.questions):
            raise DecodingError("An invitation asks at least one question, and none twice.")
        if any(not one.names or counts_of(one, terms.sizes) > MOST_PROOFS for one in asked.questions):
            raise DecodingError("A question has no variables, or more cells than could ever be counted.")
        return asked

    def counts(self, terms: Terms) -> int:
        """Return how many frequencies are mined."""
        return sum(counts_of(question, terms.sizes) for question in self.questions)


@dataclass(frozen=True)
class Gathered(Message):
    """The miner passes on what all users sent, in the order of the invitation."""

    TAG: ClassVar[bytes] = b"masquerade frequency gathered 1"
    step: Step
    number: U32
    parts: Annotated[tuple[Annotated[bytes, Blob(LARGEST)], ...], Many(MOST_PROOFS)]

    def __post_init__(self) -> None:
        if self.step not in {Step.KEYS, Step.ENDORSEMENT}:
            raise InputError("What is gathered for everyone are keys or endorsements.")


@dataclass(frozen=True, slots=True)
class Objection(Message):
    """Why a user does not go on, and who is to blame: the payload of a refusal."""

    TAG: ClassVar[bytes] = b"masquerade frequency objection 1"
    code: Annotated[str, Text(255)]
    reason: Annotated[str, Text(4096)]
    culprits: Annotated[tuple[PersonName, ...], Many(1000)] = ()


def roster_hash(terms: Terms, invitation: bytes, payloads: Sequence[bytes]) -> bytes:
    """Return the hash that everyone signs: the terms, the round, what is asked, and all keys in order."""
    digest = hashlib.sha256(b"masquerade frequency roster 1" + terms.id)
    for part in (invitation, *payloads):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def bounded(data: bytes, most: int = MOST_PROOFS * 1024) -> bytes:
    """Refuse a message beyond any that this protocol has, before it is read."""
    if len(data) > most:
        raise DecodingError(f"A message has at most {most:,} bytes. Got {len(data):,} instead.")
    return data


def _terms(where: Reader | Writer) -> Terms:
    if not isinstance(where.context, Terms):
        raise InputError("An invitation is written and read under terms.")
    return where.context


Exchange = Callable[[str, bytes], bytes | None]
"""The transport: hand a user a message and return the answer, None where none came."""
