"""Terms of a mix, which all parties agree on in advance; records as bytes; and signed messages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Protocol, Self

from masquerade.core.errors import InputError
from masquerade.crypto.elgamal import PIECE
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.crypto.proofs import NOT_YET, Context, Transcript
from masquerade.protocols.people.report_form import AnyPolicy, sizes_of
from masquerade.protocols.people.roster import Members, PersonName, abort_round, check_members
from masquerade.protocols.wire.codec import U32, Blob, Key, Many, Message, OneOf, Reader, Signature, Text

MOST_ROWS = 100_000
MOST_WIDTH = 64
SUBMISSION = "submission"


@dataclass(frozen=True, slots=True)
class _InOrder(Many):
    """Entries of a mapping in the order of their names, so that the encoding is unique."""

    def read(self, reader: Reader) -> Any:
        found = Many.read(self, reader)
        if list(found) != sorted(found):
            raise DecodingError("The people of a mix must be sorted by name.")
        return found


class MixTerms(Message, tag=b"masquerade mix terms 1", eq=False):
    """One collection: the miner, the leaders in the order in which they shuffle, and the people enrolled.

    Every name has an Ed25519 identity. Every record takes `width` ciphertexts, 30 bytes each, whatever its
    length. Fewer than `minimum` records are never opened: they would not hide each other.
    """

    session: Annotated[str, Text(4096)]
    width: U32 = field(default=1, kw_only=True)
    minimum: U32 = field(default=10, kw_only=True)
    miner: Key
    leaders: Annotated[Members, Many(MOST_ROWS)]
    respondents: Annotated[Members, _InOrder(MOST_ROWS)]

    def __post_init__(self) -> None:
        if not self.session or not self.leaders:
            raise InputError("A mix needs a session name and at least one leader.")
        if "miner" in self.leaders:
            raise InputError(
                "The miner cannot be a leader: a party that opens records must not be the only mix server."
            )
        check_members({"miner": self.miner}, self.leaders, self.respondents)
        # of two records, each sender would know the other's
        if not 1 <= self.width <= MOST_WIDTH or not 3 <= self.minimum <= MOST_ROWS:
            raise InputError(
                f"A record has 1 to {MOST_WIDTH} pieces of {PIECE} bytes; a batch at least 3 records."
            )
        object.__setattr__(self, "respondents", dict(sorted(self.respondents.items())))
        object.__setattr__(self, "leaders", dict(self.leaders))

    @cached_property
    def id(self) -> bytes:
        """Return 32 bytes that identify the terms."""
        return hashlib.sha256(self.encode()).digest()

    @property
    def holders(self) -> tuple[str, ...]:
        """Return the holders of shares of the key: the leaders in order, then the miner."""
        return (*self.leaders, "miner")

    def identity(self, kind: str, name: str) -> bytes | None:
        """Return the identity that must sign a type of message, None if that name may not send it."""
        if kind == SUBMISSION:
            return self.respondents.get(name)
        return self.miner if name == "miner" else self.leaders.get(name)


def record_width(policy: AnyPolicy) -> int:
    """Return the number of 30-byte pieces that the records of a policy need."""
    return -(-sum(record_sizes(policy)) // PIECE)


def pack_record(codes: Mapping[str, int], policy: AnyPolicy) -> bytes:
    """Return a record of report codes as bytes, big-endian, each as wide as its variable needs."""
    fields = []
    for (name, reports), size in zip(sizes_of(policy).items(), record_sizes(policy), strict=True):
        code = codes.get(name, -1)
        if not 0 <= code < reports:
            raise InputError(f"A record has no report of {name!r}.")
        fields.append(int(code).to_bytes(size, "big"))
    return b"".join(fields)


def record_sizes(policy: AnyPolicy) -> list[int]:
    """Return the number of bytes of each report of a record."""
    return [max(1, ((size - 1).bit_length() + 7) // 8) for size in sizes_of(policy).values()]


PROTOCOL = "anonymous data collection"
LARGEST = 2**30
SHARE, SHUFFLE, ENDORSEMENT, OPENING = "key share", "shuffle", "endorsement", "opening"


class Signers(Protocol):
    """The context of signatures, and the identities that may sign each type of message."""

    @property
    def id(self) -> bytes:
        """32 bytes that identify the terms."""

    def identity(self, kind: str, name: str, /) -> bytes | None:
        """Return the identity that must sign a type of message, None if that name may not send it."""


class SignedMixMessage(Message, tag=b"masquerade mix signed 1"):
    """A message of one party to all, signed."""

    LABEL: ClassVar[str] = PROTOCOL
    kind: Annotated[str, OneOf(Text(32), (SHARE, SUBMISSION, SHUFFLE, ENDORSEMENT, OPENING))]
    sender: PersonName
    payload: Annotated[bytes, Blob(LARGEST)]
    signature: Signature

    @classmethod
    def make(cls, terms: Signers, key: SigningKey, kind: str, sender: str, payload: bytes) -> Self:
        """Return a signed message."""
        signature = key.sign(f"{cls.LABEL}: {kind}", terms.id, sender.encode(), payload)
        return cls(kind, sender, payload, signature)

    @classmethod
    def parse(cls, data: bytes, terms: Signers, kind: str) -> Self:
        """Decode a message of this kind, signed by its sender."""
        signed = cls.decode(data)
        identity = terms.identity(kind, signed.sender)
        if signed.kind != kind or identity is None:
            raise DecodingError(f"This is not a {kind} signed by a party that may send one.")
        fields = (terms.id, signed.sender.encode(), signed.payload)
        verify_signature(identity, signed.signature, f"{cls.LABEL}: {kind}", *fields)
        return signed

    @classmethod
    def first(cls, messages: Sequence[bytes], terms: Signers, kind: str) -> dict[str, bytes]:
        """Return the first message of every sender; messages without a valid signature are omitted."""
        first: dict[str, bytes] = {}
        for data in messages:
            try:
                first.setdefault(cls.parse(data, terms, kind).sender, data)
            except (DecodingError, SealBroken):
                continue
        return first

    @classmethod
    def gather(
        cls, messages: Sequence[bytes], terms: Signers, kind: str, senders: Sequence[str], *, spent: bool
    ) -> bytes:
        """Return the board with the message of every sender, in order; a missing sender aborts."""
        found = cls.first(messages, terms, kind)
        missing = [name for name in senders if name not in found]
        if missing:
            raise abort_round(f"No {kind} came from {', '.join(missing)}.", *missing, spent=spent)
        return MixBoard(tuple(found[name] for name in senders)).encode()

    @classmethod
    def on_board(cls, data: bytes, terms: Signers, kind: str, *, spent: bool = False) -> list[Self]:
        """Return the messages on a board; a forged message aborts the round."""
        try:
            return [cls.parse(part, terms, kind) for part in MixBoard.decode(data).parts]
        except SealBroken:
            reason = f"Some {kind} on the board was not signed by its sender."
            raise abort_round(reason, "miner", spent=spent) from None


class MixBoard(Message, tag=b"masquerade mix board 1"):
    """A published list of messages, the same for all readers."""

    parts: Annotated[tuple[Annotated[bytes, Blob(LARGEST)], ...], Many(MOST_ROWS)]


def opened_board(data: bytes, terms: MixTerms, kind: str, senders: Sequence[str]) -> list[SignedMixMessage]:
    """Return the messages on a board; a forged message, or any other list of senders, aborts the round."""
    messages = SignedMixMessage.on_board(data, terms, kind)
    found = [message.sender for message in messages]
    if found != list(senders):
        missing = [name for name in senders if name not in found]
        raise abort_round(
            f"The board must have one {kind} from each of {', '.join(senders)}, in order.", *missing
        )
    return messages


def transcript_for(
    terms: MixTerms, sender: str, role: str, *, roster: bytes = NOT_YET, query: bytes = NOT_YET
) -> Transcript:
    """Return the transcript that a party's proof starts from."""
    return Transcript(Context(PROTOCOL, terms.id, roster, query, sender.encode(), role))


def board_hash(label: bytes, *boards: bytes) -> bytes:
    """Return the hash of boards, each with its length."""
    digest = hashlib.sha256(b"masquerade mix " + label)
    for board in boards:
        digest.update(len(board).to_bytes(8, "big") + board)
    return digest.digest()
