"""The messages of frequency mining, each with one canonical encoding.

What users send is `Signed` by their enrolled identity, so that whoever cheats can be named. What the miner
sends is checked by everyone and needs no signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SIGNATURE_SIZE, SigningKey, verify_signature
from masquerade.protocols.codec import Message, Reader, Writer
from masquerade.protocols.frequency.agreement import LONGEST_NAME, MOST_PROOFS, Question, Terms

HASH = 32
ROUND = 4
LARGEST = 2**26  # a user's vote of 50,000 counts, proof included, is below this
KINDS = {1: "keys", 2: "endorsement", 3: "vote", 4: "refusal"}
KEYS, ENDORSEMENT, VOTE, REFUSAL = KINDS
MOST_QUESTIONS = 65_536


@dataclass(frozen=True, slots=True)
class Signed(Message):
    """What a user says in a round: keys, an endorsement, a vote, or why not; signed."""

    TAG: ClassVar[bytes] = b"masquerade frequency signed 1"

    user: str
    kind: int
    number: int
    payload: bytes
    signature: bytes

    def write(self, writer: Writer) -> None:
        """Write the fields."""
        writer.text(self.user, LONGEST_NAME)
        writer.number(self.kind, 1)
        writer.number(self.number, ROUND)
        writer.varying(self.payload, LARGEST)
        writer.fixed(self.signature, SIGNATURE_SIZE)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields."""
        user, kind = reader.text(LONGEST_NAME), reader.number(1)
        if kind not in KINDS:
            raise DecodingError(f"A user's message is of kind 1 to {len(KINDS)}. Got {kind} instead.")
        return cls(user, kind, reader.number(ROUND), reader.varying(LARGEST), reader.fixed(SIGNATURE_SIZE))

    @classmethod
    def make(
        cls, terms: Terms, key: SigningKey, *, user: str, kind: int, number: int, payload: bytes
    ) -> Self:
        """Return a signed message."""
        signature = key.sign(_label(kind), *_fields(terms, user, number, payload))
        return cls(user, kind, number, payload, signature)

    def check(self, terms: Terms) -> None:
        """Raise `SealBroken` unless the user named signed this, under these terms."""
        if self.user not in terms.members:
            raise DecodingError("A message names a user who is not a member.")
        fields = _fields(terms, self.user, self.number, self.payload)
        verify_signature(terms.members[self.user], self.signature, _label(self.kind), *fields)


def _label(kind: int) -> str:
    return f"frequency mining: {KINDS[kind]}"


def _fields(terms: Terms, user: str, number: int, payload: bytes) -> tuple[bytes, ...]:
    return terms.id, number.to_bytes(ROUND, "big"), user.encode(), payload


@dataclass(frozen=True, slots=True)
class Invitation:
    """The miner opens a round: its number, who takes part, what is asked."""

    number: int
    users: tuple[str, ...]
    questions: tuple[Question, ...]

    def encode(self, terms: Terms) -> bytes:
        """Return the message as bytes."""
        writer = Writer()
        writer.varying(b"masquerade frequency invitation 1", 255)
        writer.fixed(terms.id, HASH)
        writer.number(self.number, ROUND)
        writer.many(self.users, MOST_PROOFS, lambda name: writer.number(terms.places[name], 4))
        writer.many(self.questions, MOST_QUESTIONS, lambda question: question.write(writer, terms))
        return writer.done()

    @classmethod
    def decode(cls, data: bytes, terms: Terms) -> Invitation:
        """Return the invitation of these bytes; other terms, unknown users or no questions are refused."""
        reader = Reader(data)
        if reader.varying(255) != b"masquerade frequency invitation 1":
            raise DecodingError("This is not an invitation.")
        if reader.fixed(HASH) != terms.id:
            raise DecodingError("The invitation is for other terms than were agreed.")
        number = reader.number(ROUND)
        places = reader.many(MOST_PROOFS, lambda: reader.number(4))
        questions = reader.many(MOST_QUESTIONS, lambda: Question.read(reader, terms))
        reader.done()
        if list(places) != sorted(set(places)) or (places and places[-1] >= len(terms.names)):
            raise DecodingError("An invitation lists members once and in order.")
        if not questions or len(set(questions)) < len(questions):
            raise DecodingError("An invitation asks at least one question, and none twice.")
        return cls(number, tuple(terms.names[place] for place in places), questions)

    def counts(self, terms: Terms) -> int:
        """Return how many frequencies are mined."""
        return sum(question.counts(terms) for question in self.questions)


@dataclass(frozen=True, slots=True)
class Gathered(Message):
    """The miner passes on what all users sent, in the order of the invitation."""

    TAG: ClassVar[bytes] = b"masquerade frequency gathered 1"

    kind: int
    number: int
    parts: tuple[bytes, ...]

    def write(self, writer: Writer) -> None:
        """Write the fields."""
        writer.number(self.kind, 1)
        writer.number(self.number, ROUND)
        writer.many(self.parts, MOST_PROOFS, lambda part: writer.varying(part, LARGEST))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields."""
        kind = reader.number(1)
        if kind not in {KEYS, ENDORSEMENT}:
            raise DecodingError("What is gathered for everyone are keys or endorsements.")
        return cls(kind, reader.number(ROUND), reader.many(MOST_PROOFS, lambda: reader.varying(LARGEST)))


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a user does not go on, and who is to blame."""

    code: str
    reason: str
    culprits: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the payload of a refusal."""
        writer = Writer()
        writer.text(self.code, 255)
        writer.text(self.reason, 4096)
        writer.many(self.culprits[:1000], 1000, lambda name: writer.text(name, LONGEST_NAME))
        return writer.done()

    @classmethod
    def decode(cls, payload: bytes) -> Objection:
        """Return the objection of a payload."""
        reader = Reader(payload)
        code, reason = reader.text(255), reader.text(4096)
        culprits = reader.many(1000, lambda: reader.text(LONGEST_NAME))
        reader.done()
        return cls(code, reason, culprits)


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


Exchange = Callable[[str, bytes], bytes | None]
"""The transport: hand a user a message and return the answer, None where none came."""
