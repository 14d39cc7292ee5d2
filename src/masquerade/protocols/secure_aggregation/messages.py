"""The messages of a round in order: the server's to each user, and the users' replies.

Every message names its round. User messages are signed by their identity; the signature covers the type of
message, the round, the fields, and sometimes data that the reader knows already (`about`). A field with one
item for each of several slots is a bundle: one bit per slot, then the present items. The number of slots
follows from what both sides know (`RoundContext`).

Invalid bytes raise `DecodingError`; a message from the wrong sender or at the wrong time raises
`MessageRefused`. Neither changes the state of the receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from masquerade.core.errors import InputError, MasqueradeError
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import KEY_SIZE, SIGNATURE_SIZE, AgreementKey, SigningKey, verify_signature
from masquerade.crypto.shamir import SHARE_SIZE
from masquerade.protocols.people.questions import MOST_QUESTIONS, Question
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms, RoundContext
from masquerade.protocols.secure_aggregation.masks import SEALED_SIZE
from masquerade.protocols.wire import codec
from masquerade.protocols.wire.codec import Bits, Digest, Fixed, Key, Reader, Writer

Items = tuple[bytes | None, ...]
LABEL = "aggregation message"
TAG_SIZE = 8
NONCE_SIZE = 16
MOST_ATTEMPTS = 64
LEAF_SIZE, NODE_SIZE, MOST_LEAVES = 32, 36, 1 << 16  # of the tree of survivors
ADVERT_SIZE = 2 * KEY_SIZE
SIGNED_NONCE_SIZE = NONCE_SIZE + SIGNATURE_SIZE
KINDS: dict[bytes, type[RoundMessage]] = {}


class MessageRefused(MasqueradeError):
    """Error: a message that is out of sequence, for a different round, or false."""

    def __init__(self, reason: str, culprits: Sequence[str] = ()) -> None:
        self.culprits = tuple(culprits)
        super().__init__(reason)


class Work:
    """The two expensive operations, verification and key agreement, without a cache."""

    def verify(self, identity: bytes, signature: bytes, label: str, *fields: bytes) -> None:
        """Raise `SealBroken` unless the fields were signed."""
        verify_signature(identity, signature, label, *fields)

    def agree(
        self, key: AgreementKey, other: bytes, label: str, context: bytes, size: int = KEY_SIZE
    ) -> bytes:
        """Return the secret of a pair of keys for one purpose."""
        return key.agree(other, label, context, size=size)


@dataclass(frozen=True, slots=True)
class Slots:
    """A bundle of items of one size: every user has one item per neighbour."""

    count: Callable[[Any], int]
    size: int

    def write(self, writer: Writer, value: Items) -> None:
        """Write a bit for every slot, then the items that are present."""
        Bits(self.count).write(writer, [item is not None for item in value])
        there = [item for item in value if item is not None]
        if any(len(item) != self.size for item in there):
            raise InputError(f"The items of this bundle have {self.size} bytes.")
        writer.raw(b"".join(there))

    def read(self, reader: Reader) -> Items:
        """Read the items by slot."""
        there = Bits(self.count).read(reader)
        size = self.size
        data, at, items = reader.fixed(size * sum(there)), 0, list[bytes | None]()
        for one in there:
            items.append(data[at : at + size] if one else None)
            at += size * one
        return tuple(items)


def _neighbours(context: RoundContext) -> int:
    return context.neighbours


def _nonces_size(context: RoundContext) -> int:
    return context.committee * SIGNED_NONCE_SIZE


@dataclass(frozen=True)
class RoundMessage(codec.Message):
    """A message of one round. `NAME` is part of its wire tag, which must not change with the class name."""

    NAME: ClassVar[str]
    round: Annotated[bytes, Fixed(TAG_SIZE)]

    def __init_subclass__(cls, *, name: str | None = None, eq: bool = True) -> None:
        if name is not None:
            super().__init_subclass__(tag=f"masquerade aggregation {name} 1".encode(), eq=eq)
            cls.NAME = name
            KINDS[cls.TAG] = cls

    @classmethod
    def parse(cls, data: bytes, context: RoundContext) -> Self:
        """Decode a message, which must belong to this round."""
        message = cls.decode(data, context)
        if message.round != context.tag:
            raise MessageRefused("The message belongs to a different round.")
        return message


@dataclass(frozen=True)
class UserMessage(RoundMessage):
    """A signed message of a user; `signature` covers all fields after it."""

    signature: codec.Signature

    def encode_signed(self, key: SigningKey, context: RoundContext, about: bytes = b"") -> bytes:
        """Return the signed message as bytes; `about` is signed data that the reader knows already."""
        unsigned, end = self.encode(context), self.head_size()
        signature = key.sign(LABEL, self.TAG, context.info, about, unsigned[end:])
        return unsigned[: end - SIGNATURE_SIZE] + signature + unsigned[end:]

    @classmethod
    def parse_signed(cls, data: bytes, context: RoundContext, signer: Signer, about: bytes = b"") -> Self:
        """Decode a message of this round, and verify its sender's signature."""
        message = cls.parse(data, context)
        signer.check(cls, context, data[cls.head_size() :], message.signature, about)
        return message

    @classmethod
    def head_size(cls) -> int:
        """Return the number of bytes before the signed bytes."""
        return 4 + len(cls.TAG) + TAG_SIZE + SIGNATURE_SIZE


class Signer(NamedTuple):
    """The required signer of a message, and the verifier."""

    name: str
    identity: bytes
    work: Work

    @classmethod
    def at(cls, place: int, terms: AggregationTerms, work: Work) -> Self:
        """Return the signer of the messages of a user."""
        return cls(terms.roster.names[place], terms.roster.identities[place], work)

    def check(
        self, kind: type[UserMessage], context: RoundContext, fields: bytes, signature: bytes, about: bytes
    ) -> None:
        """Raise MessageRefused unless this user signed the fields."""
        try:
            self.work.verify(self.identity, signature, LABEL, kind.TAG, context.info, about, fields)
        except SealBroken:
            raise MessageRefused(
                f"The {kind.NAME} is not signed by {self.name!r}, as enrolled.", [self.name]
            ) from None


Attempt = Annotated[int, codec.Number(1, most=MOST_ATTEMPTS - 1)]
Nonce = Annotated[bytes, Fixed(NONCE_SIZE)]


class Announcement(RoundMessage, name="announcement"):
    """The server starts a round: nonce of the session, number of the round, questions."""

    nonce: Nonce
    number: codec.U32
    questions: Annotated[tuple[Question, ...], codec.Many(MOST_QUESTIONS)]


class AggregationAdvert(UserMessage, name="advert"):
    """The public keys of a round: for sealing shares, and for agreeing on masks."""

    sealing: Key
    masking: Key


class RoundCall(RoundMessage, name="call"):
    """The server calls a committee to draw the graph."""

    attempt: Attempt


class Commitment(UserMessage, name="commitment"):
    """A member of the committee commits to its nonce."""

    attempt: Attempt
    commitment: Digest


class Commitments(RoundMessage, name="commitments"):
    """The server shows the committee all commitments."""

    attempt: Attempt
    commitments: Annotated[tuple[Digest, ...], codec.Run(lambda context: context.committee)]


class Reveal(UserMessage, name="reveal"):
    """A member of the committee reveals its nonce; the signature covers all commitments."""

    attempt: Attempt
    nonce: Nonce


class Neighbours(RoundMessage, name="neighbours"):
    """The server shows the signed nonces that determine the graph, and the signed keys of neighbours."""

    attempt: Attempt
    drawn: Annotated[bytes, Fixed(_nonces_size)]
    adverts: Annotated[Items, Slots(_neighbours, ADVERT_SIZE + SIGNATURE_SIZE)]


class Shares(UserMessage, name="shares"):
    """A user's commitment to its own seed, and shares of both its seeds, sealed for every neighbour."""

    promise: Digest
    sealed_shares: Annotated[Items, Slots(_neighbours, SEALED_SIZE)]


class Delivery(RoundMessage, name="delivery"):
    """The server relays the shares that neighbours sealed for a user.

    >>> from masquerade.simulation import Aggregation, synthetic_people
    >>> people = synthetic_people(30)
    >>> population = Aggregation(people.codes, people.policy, mq.people.Parameters.of(30, dropouts="0.1"))
    >>> population.leaving = {3: mq.people.Delivery}  # one user leaves before this message
    >>> mq.people.AggregationTally(population, people.policy).answer([mq.Query(by="sex")])[0].n
    29
    """

    sealed_shares: Annotated[Items, Slots(_neighbours, SEALED_SIZE)]


class Vote(UserMessage, name="vote"):
    """A masked vote, and the neighbours whose masks it has."""

    masked_with: Annotated[list[bool], Bits(_neighbours)]
    vector: Annotated[bytes, Fixed(lambda to: to.width * to.length)]


@dataclass(frozen=True, slots=True)
class Stretch(codec.Struct):
    """Some leaves of the list, and the nodes needed to compute the root from them."""

    leaves: Annotated[tuple[Annotated[bytes, Fixed(LEAF_SIZE)], ...], codec.Many(MOST_LEAVES)]
    nodes: Annotated[tuple[Annotated[bytes, Fixed(NODE_SIZE)], ...], codec.Many(MOST_LEAVES)]


class Survivors(RoundMessage, name="survivors"):
    """The server shows a user its part of the list of voters, and the path to the root."""

    stretch: Stretch


class Endorsement(UserMessage, name="endorsement"):
    """A witness endorses the list: a signature on its root and all earlier lists."""


class Endorsements(RoundMessage, name="endorsements"):
    """The server shows the signatures of witnesses."""

    signatures: Annotated[Items, Slots(lambda context: context.witnesses, SIGNATURE_SIZE)]


class Unmasking(UserMessage, name="unmasking"):
    """One share per neighbour: of the seed of its own mask if it survived, else of its mask keys."""

    shares: Annotated[Items, Slots(_neighbours, SHARE_SIZE)]


DRAWING = (RoundCall, Commitment, Commitments, Reveal)  # bound to the session, not to a round


def kind_of(message: bytes) -> type[RoundMessage]:
    """Return the class of a message."""
    kind = KINDS.get(codec.tag_of(message))
    if kind is None:
        raise DecodingError("The message has an unknown type.")
    return kind
