"""What all agree on before a mix, records as bytes; and messages, signed by their senders."""

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
from masquerade.protocols.people.roster import Members, PersonName, aborted, check_members
from masquerade.protocols.wire.codec import U32, Blob, Key, Many, Message, OneOf, Reader, Signature, Text

MOST_ROWS = 100_000
MOST_WIDTH = 64
SUBMISSION = "submission"


@dataclass(frozen=True, slots=True)
class _InOrder(Many):
    """Entries of a mapping in the order of their names: there is no second way to write them."""

    def read(self, reader: Reader) -> Any:
        found = Many.read(self, reader)
        if list(found) != sorted(found):
            raise DecodingError("The people of a mix are listed in the order of their names.")
        return found


class MixTerms(Message, tag=b"masquerade mix terms 1", eq=False):
    """One collection: the miner, the leaders in the order in which they shuffle, and the people enrolled.

    Names go with Ed25519 identities. Every record takes `width` ciphertexts, 30 bytes each, whatever its
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
                "The miner is no leader: whoever opens the records must not be the only one to mix."
            )
        check_members({"miner": self.miner}, self.leaders, self.respondents)
        if not 1 <= self.width <= MOST_WIDTH or not 3 <= self.minimum <= MOST_ROWS:
            raise InputError(
                f"A record has 1 to {MOST_WIDTH} pieces of {PIECE} bytes; a batch at least 3 records."
            )
        object.__setattr__(self, "respondents", dict(sorted(self.respondents.items())))
        object.__setattr__(self, "leaders", dict(self.leaders))

    @cached_property
    def id(self) -> bytes:
        """Return 32 bytes that stand for all of the terms."""
        return hashlib.sha256(self.encode()).digest()

    @property
    def holders(self) -> tuple[str, ...]:
        """Return who holds a share of the key: the leaders in order, then the miner."""
        return (*self.leaders, "miner")

    def identity(self, kind: str, name: str) -> bytes | None:
        """Return whose signature a kind of message must bear, None if nobody of that name may send it."""
        if kind == SUBMISSION:
            return self.respondents.get(name)
        return self.miner if name == "miner" else self.leaders.get(name)


def record_width(policy: AnyPolicy) -> int:
    """Return how many pieces of 30 bytes the records of a policy need."""
    return -(-sum(record_sizes(policy)) // PIECE)


def packed(codes: Mapping[str, int], policy: AnyPolicy) -> bytes:
    """Return a record of report codes as bytes: as many for every variable as its codes need, big-endian."""
    fields = []
    for (name, reports), size in zip(sizes_of(policy).items(), record_sizes(policy), strict=True):
        code = codes.get(name, -1)
        if not 0 <= code < reports:
            raise InputError(f"A record has no report of {name!r}.")
        fields.append(int(code).to_bytes(size, "big"))
    return b"".join(fields)


def record_sizes(policy: AnyPolicy) -> list[int]:
    """Return how many bytes each report of a record takes."""
    return [max(1, ((size - 1).bit_length() + 7) // 8) for size in sizes_of(policy).values()]


PROTOCOL = "anonymous data collection"
LARGEST = 2**30
SHARE, SHUFFLE, ENDORSEMENT, OPENING = "key share", "shuffle", "endorsement", "opening"


class Signers(Protocol):
    """What signatures are bound to, and who may sign what."""

    @property
    def id(self) -> bytes:
        """32 bytes that stand for all of the terms."""

    def identity(self, kind: str, name: str, /) -> bytes | None:
        """Return whose signature a kind of message must bear, None if nobody of that name may send it."""


class Signed(Message, tag=b"masquerade mix signed 1"):
    """What one party says to all."""

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
    def opened(cls, data: bytes, terms: Signers, kind: str) -> Self:
        """Return the message of these bytes, of this kind and signed by its sender."""
        signed = cls.decode(data)
        identity = terms.identity(kind, signed.sender)
        if signed.kind != kind or identity is None:
            raise DecodingError(f"This is not a signed {kind} of anybody who may send one.")
        fields = (terms.id, signed.sender.encode(), signed.payload)
        verify_signature(identity, signed.signature, f"{cls.LABEL}: {kind}", *fields)
        return signed

    @classmethod
    def first(cls, messages: Sequence[bytes], terms: Signers, kind: str) -> dict[str, bytes]:
        """Return the first message of every sender; what nobody signed is nobody's and left out."""
        first: dict[str, bytes] = {}
        for data in messages:
            try:
                first.setdefault(cls.opened(data, terms, kind).sender, data)
            except (DecodingError, SealBroken):
                continue
        return first

    @classmethod
    def gathered(
        cls, messages: Sequence[bytes], terms: Signers, kind: str, senders: Sequence[str], *, spent: bool
    ) -> bytes:
        """Return the board with the message of every sender, in order; whoever is missing aborts."""
        found = cls.first(messages, terms, kind)
        missing = [name for name in senders if name not in found]
        if missing:
            raise aborted(f"No {kind} came from {', '.join(missing)}.", *missing, spent=spent)
        return Board(tuple(found[name] for name in senders)).encode()

    @classmethod
    def on_board(cls, data: bytes, terms: Signers, kind: str, *, spent: bool = False) -> list[Self]:
        """Return the messages on a board; a forged one aborts."""
        try:
            return [cls.opened(part, terms, kind) for part in Board.decode(data).parts]
        except SealBroken:
            reason = f"Some {kind} on the board was not signed by its sender."
            raise aborted(reason, "miner", spent=spent) from None


class Board(Message, tag=b"masquerade mix board 1"):
    """A list of messages that everybody sees alike."""

    parts: Annotated[tuple[Annotated[bytes, Blob(LARGEST)], ...], Many(MOST_ROWS)]


def opened_board(data: bytes, terms: MixTerms, kind: str, senders: Sequence[str]) -> list[Signed]:
    """Return the messages on a board; a forged one, or other senders than due, aborts."""
    messages = Signed.on_board(data, terms, kind)
    found = [message.sender for message in messages]
    if found != list(senders):
        missing = [name for name in senders if name not in found]
        raise aborted(f"The board has not one {kind} of each of {', '.join(senders)}, in order.", *missing)
    return messages


def transcript_for(
    terms: MixTerms, sender: str, role: str, *, roster: bytes = NOT_YET, query: bytes = NOT_YET
) -> Transcript:
    """Return where a party's proof begins."""
    return Transcript(Context(PROTOCOL, terms.id, roster, query, sender.encode(), role))


def board_hash(label: bytes, *boards: bytes) -> bytes:
    """Return the hash of boards, each with its length."""
    digest = hashlib.sha256(b"masquerade mix " + label)
    for board in boards:
        digest.update(len(board).to_bytes(8, "big") + board)
    return digest.digest()
