"""What everybody agrees on before anything is counted, and the messages.

What users send is `Signed` by their enrolled identity, so that whoever cheats can be named. What the miner
sends is checked by everyone and needs no signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Annotated, Self

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.protocols.frequency_mining.ballots import counts_of
from masquerade.protocols.people.history import tolerated
from masquerade.protocols.people.questions import MOST_QUESTIONS, Question
from masquerade.protocols.people.report_form import AnyPolicy, bounded_in, sizes_of
from masquerade.protocols.people.roster import Members, PersonName, Roster
from masquerade.protocols.wire.codec import U32, Blob, Digest, Many, Message, Reader, Signature, Text, Writer

MOST_PROOFS = 50_000  # users times counts: every user checks that many pairs of keys
FEWEST = 3  # with two, each learns the other's answer from the count
MINER = "miner"


class Enrolment(Message, tag=b"masquerade frequency terms 1"):
    """What a person keeps of the terms agreed to, the policy by its id."""

    epoch: Annotated[str, Text(4096)]
    policy: Annotated[str, Text(255)]
    minimum: U32
    members: Annotated[Members, Many(MOST_PROOFS)]


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of one epoch: who is enrolled, how records are disguised, how few may be counted together.

    `members` are the names of all people enrolled with their Ed25519 identities; that each is one person is
    an assumption of everything that follows. Within an epoch a record does not change and no question is
    voted on twice. A person who is given new terms, with a new `epoch`, agrees to be counted anew; not that
    clear counts of the two epochs differ by few people, which takes a word of its own (`User`).

    The miner chooses who is counted, at least `minimum` people: so that two honest ones are among any of
    them, at most `colluders` = minimum − 2 may collude with it.
    """

    epoch: str
    policy: AnyPolicy
    members: Mapping[str, bytes]
    minimum: int = 10
    roster: Roster = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.members) > MOST_PROOFS:
            raise InputError(
                f"At most {MOST_PROOFS:,} members can be counted in this mode. Got {len(self.members):,}."
            )
        if not self.epoch or self.minimum < FEWEST:
            raise InputError(f"Terms need an epoch and a minimum roster of at least {FEWEST}.")
        roster = Roster(dict(sorted(self.members.items())))
        object.__setattr__(self, "roster", roster)
        object.__setattr__(self, "members", roster)

    @cached_property
    def id(self) -> bytes:
        """Return 32 bytes that stand for all of the terms; every signature and proof is bound to them."""
        return hashlib.sha256(self.encoded).digest()

    @cached_property
    def encoded(self) -> bytes:
        """Return all of the terms as bytes, the policy by its id."""
        return Enrolment(self.epoch, self.policy.id, self.minimum, self.members).encode()

    @property
    def colluders(self) -> int:
        """Return how many users may collude with the miner."""
        return tolerated(self.minimum)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return how many reports each variable has."""
        return sizes_of(self.policy)

    @cached_property
    def bounded(self) -> frozenset[str]:
        """Return the variables whose reports tell a bounded amount, even if seen as they are."""
        return bounded_in(self.policy)

    def asks_clear(self, questions: Sequence[Question]) -> bool:
        """Tell whether any question is about a variable that is not disguised."""
        return any(name not in self.bounded for question in questions for name in question.names)


HASH = 32
ROUND = 4
LARGEST = 2**26  # a user's vote of 50,000 counts, proof included, is below this


class Step(IntEnum):
    """What a user says in a round."""

    KEYS = 1
    ENDORSEMENT = 2
    VOTE = 3
    REFUSAL = 4


class Signed(Message, tag=b"masquerade frequency signed 1"):
    """What a user says in a round: keys, an endorsement, a vote, or why not; signed."""

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


class Invitation(Message, tag=b"masquerade frequency invitation 1"):
    """The miner opens a round: its number, who takes part, what is asked; read by whoever has the terms."""

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


class Gathered(Message, tag=b"masquerade frequency gathered 1"):
    """The miner passes on what all users sent, in the order of the invitation."""

    step: Step
    number: U32
    parts: Annotated[tuple[Annotated[bytes, Blob(LARGEST)], ...], Many(MOST_PROOFS)]

    def __post_init__(self) -> None:
        if self.step not in {Step.KEYS, Step.ENDORSEMENT}:
            raise InputError("What is gathered for everyone are keys or endorsements.")


class ShownVotes(Message, tag=b"masquerade frequency shown votes 1"):
    """The miner shows signed votes of a round that are not valid: whoever cast them cheated."""

    number: U32
    votes: Annotated[tuple[Annotated[bytes, Blob(LARGEST)], ...], Many(MOST_PROOFS)]


class Objection(Message, tag=b"masquerade frequency objection 2"):
    """Why a user does not go on, and who is to blame: the payload of a refusal.

    `about` is the SHA-256 of the message that it refuses: shown in a later round, it stops nothing.
    """

    about: Digest
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
