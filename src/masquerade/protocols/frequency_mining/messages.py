"""Terms that all roles agree on before anything is counted, and the messages.

Users sign their messages with their enrolled identity (`SignedMiningMessage`), so that a cheater can be
named. Messages of the miner need no signature, because all users check them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Self

from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit
from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.protocols.frequency_mining.ballots import counts_of
from masquerade.protocols.frequency_mining.vote_noise import VoteNoise
from masquerade.protocols.people.history import most_colluders
from masquerade.protocols.people.questions import MOST_QUESTIONS, Question
from masquerade.protocols.people.report_form import AnyPolicy, bounded_in, sizes_of
from masquerade.protocols.people.roster import Members, PersonName, Roster
from masquerade.protocols.wire.codec import U32, Blob, Digest, Many, Message, Reader, Signature, Text, Writer

if TYPE_CHECKING:
    from masquerade.channels.noise.redraws import RedrawTerms

MOST_PROOFS = 50_000  # users times counts: every user checks that many pairs of keys
FEWEST = 3  # with two, each learns the other's answer from the count
MINER = "miner"


class Enrolment(Message, tag=b"masquerade frequency terms 1"):
    """The part of the terms that a person stores: the policy is given by its id."""

    epoch: Annotated[str, Text(4096)]
    policy: Annotated[str, Text(255)]
    minimum: U32
    members: Annotated[Members, Many(MOST_PROOFS)]


@dataclass(frozen=True, eq=False)
class FrequencyTerms:
    """The terms of one epoch: who is enrolled, how records are disguised, how few may be counted together.

    `members` are the names of all enrolled people with their Ed25519 identities. It is assumed throughout
    that each member is one person. Within an epoch a record does not change, and no question is voted on
    twice. A person who accepts new terms, with a new `epoch`, agrees to be counted again. Clear counts of the
    two epochs may still not differ by few people: that needs a separate agreement (`MiningUser`).

    `limit` is chosen by each reader of the terms, and is not part of the agreement. Variables whose reports
    reveal more than this limit count as clear. People use the limit of their own device. A miner expects the
    default limit.

    The miner chooses who is counted, at least `minimum` people. At most `colluders` = minimum − 2 users may
    collude with it, so that any choice includes two honest users.

    With `noise`, users redraw their answers for each table, and ε and δ bound all tables of the epoch
    together. All variables are clear then, and `colluders` is the number that the noise allows for.
    """

    epoch: str
    policy: AnyPolicy
    members: Mapping[str, bytes]
    minimum: int = 10
    limit: PrivacyLimit = DEFAULT_LIMIT
    noise: VoteNoise | None = None
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
        if self.noise is not None:
            if self.policy.disguised:
                raise InputError(
                    "Votes on clear records are redrawn, and this policy disguises variables: choose either "
                    "noise or a disguise."
                )
            _ = self.redraws  # raises an error if `minimum` users cannot add this noise

    @cached_property
    def id(self) -> bytes:
        """Return 32 bytes that identify the terms; every signature and proof is bound to them."""
        return hashlib.sha256(self.encoding).digest()

    @cached_property
    def encoding(self) -> bytes:
        """Return all of the terms as bytes, the policy by its id."""
        encoded = Enrolment(self.epoch, self.policy.id, self.minimum, self.members).encode()
        return encoded if self.noise is None else encoded + self.noise.encode()

    @cached_property
    def redraws(self) -> RedrawTerms | None:
        """Return the accountant's terms, None without noise. Only `minimum` users are sure to be counted."""
        return None if self.noise is None else self.noise.terms(self.minimum, self.sizes)

    @property
    def colluders(self) -> int:
        """Return the number of users who may collude with the miner."""
        return most_colluders(self.minimum) if self.noise is None else self.noise.colluders

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return the number of possible reports of each variable."""
        return sizes_of(self.policy)

    @cached_property
    def bounded_variables(self) -> frozenset[str]:
        """Return the variables whose reports stay within the limit, even if each report is seen."""
        return bounded_in(self.policy, self.limit)

    def asks_clear(self, questions: Sequence[Question]) -> bool:
        """Return True if differences of counts need protection.

        That is so if a question is about a variable that is not disguised within the limit. With noise no
        protection is needed, because every table has independent noise.
        """
        return self.noise is None and any(
            name not in self.bounded_variables for question in questions for name in question.names
        )


HASH = 32
ROUND = 4
LARGEST = 2**26  # a user's vote of 50,000 counts, proof included, is below this


class MiningStep(IntEnum):
    """The types of messages that a user sends in a round."""

    KEYS = 1
    ENDORSEMENT = 2
    VOTE = 3
    REFUSAL = 4


class SignedMiningMessage(Message, tag=b"masquerade frequency signed 1"):
    """A signed message of a user in a round: keys, an endorsement, a vote, or a refusal."""

    user: PersonName
    step: MiningStep
    number: U32
    payload: Annotated[bytes, Blob(LARGEST)]
    signature: Signature

    @classmethod
    def make(
        cls,
        terms: FrequencyTerms,
        key: SigningKey,
        *,
        user: str,
        step: MiningStep,
        number: int,
        payload: bytes,
    ) -> Self:
        """Return a signed message."""
        signature = key.sign(_label(step), *_fields(terms, user, number, payload))
        return cls(user, step, number, payload, signature)

    def check(self, terms: FrequencyTerms) -> None:
        """Raise `SealBroken` unless the named user signed this, under these terms."""
        if self.user not in terms.members:
            raise DecodingError("A message names a user who is not a member.")
        fields = _fields(terms, self.user, self.number, self.payload)
        verify_signature(terms.members[self.user], self.signature, _label(self.step), *fields)


def _label(step: MiningStep) -> str:
    return f"frequency mining: {step.name.lower()}"


def _fields(terms: FrequencyTerms, user: str, number: int, payload: bytes) -> tuple[bytes, ...]:
    return terms.id, number.to_bytes(ROUND, "big"), user.encode(), payload


class _MemberPlace:
    """A member, encoded as an index into the members of the terms, which are the context."""

    def write(self, writer: Writer, value: str) -> None:
        writer.number(_terms(writer).roster.places[value], 4)

    def read(self, reader: Reader) -> str:
        names, place = _terms(reader).roster.names, reader.number(4)
        if place >= len(names):
            raise DecodingError("An invitation lists members once and in order.")
        return names[place]


class Invitation(Message, tag=b"masquerade frequency invitation 1"):
    """The miner's opening of a round: its number, users and questions; reading it needs the terms."""

    terms: Digest
    number: U32
    users: Annotated[tuple[Annotated[str, _MemberPlace()], ...], Many(MOST_PROOFS)]
    questions: Annotated[tuple[Question, ...], Many(MOST_QUESTIONS)]

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read an invitation; raise DecodingError if its terms, users or questions are not valid."""
        asked, terms = super().read(reader), _terms(reader)
        if asked.terms != terms.id:
            raise DecodingError("The terms of the invitation differ from the agreed terms.")
        places = [terms.roster.places[user] for user in asked.users]
        if places != sorted(set(places)):
            raise DecodingError("An invitation lists members once and in order.")
        if not asked.questions or len(set(asked.questions)) < len(asked.questions):
            raise DecodingError("An invitation must have at least one question, and none twice.")
        if any(not one.names or counts_of(one, terms.sizes) > MOST_PROOFS for one in asked.questions):
            raise DecodingError("A question has no variables, or more cells than could ever be counted.")
        return asked

    def counts(self, terms: FrequencyTerms) -> int:
        """Return the number of frequencies that are mined."""
        return sum(counts_of(question, terms.sizes) for question in self.questions)


class Gathered(Message, tag=b"masquerade frequency gathered 1"):
    """The messages of all users, relayed by the miner in the order of the invitation."""

    step: MiningStep
    number: U32
    parts: Annotated[tuple[Annotated[bytes, Blob(LARGEST)], ...], Many(MOST_PROOFS)]

    def __post_init__(self) -> None:
        if self.step not in {MiningStep.KEYS, MiningStep.ENDORSEMENT}:
            raise InputError("Only keys or endorsements are gathered.")


class ShownVotes(Message, tag=b"masquerade frequency shown votes 1"):
    """Signed votes of a round that are not valid, from the miner: evidence that their users cheated."""

    number: U32
    votes: Annotated[tuple[Annotated[bytes, Blob(LARGEST)], ...], Many(MOST_PROOFS)]


class Objection(Message, tag=b"masquerade frequency objection 2"):
    """The reason why a user does not continue, and the parties to blame: the payload of a refusal.

    `about` is the SHA-256 of the refused message, so that the objection has no effect in a later round.
    """

    about: Digest
    code: Annotated[str, Text(255)]
    reason: Annotated[str, Text(4096)]
    culprits: Annotated[tuple[PersonName, ...], Many(1000)] = ()


def roster_hash(terms: FrequencyTerms, invitation: bytes, payloads: Sequence[bytes]) -> bytes:
    """Return the hash that all users sign: of the terms, the round, the questions, and all keys in order."""
    digest = hashlib.sha256(b"masquerade frequency roster 1" + terms.id)
    for part in (invitation, *payloads):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def check_length(data: bytes, most: int = MOST_PROOFS * 1024) -> bytes:
    """Return a message; raise DecodingError if it is longer than any of this protocol."""
    if len(data) > most:
        raise DecodingError(f"A message has at most {most:,} bytes. Got {len(data):,} instead.")
    return data


def _terms(where: Reader | Writer) -> FrequencyTerms:
    if not isinstance(where.context, FrequencyTerms):
        raise InputError("The context of an invitation must be the terms.")
    return where.context


Exchange = Callable[[str, bytes], bytes | None]
"""The transport: deliver a message to a user and return the answer, None without an answer."""
