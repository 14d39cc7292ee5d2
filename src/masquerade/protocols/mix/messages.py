"""The messages of the mix: everything is signed by its sender, and lists of such are passed on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol, Self

from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.crypto.proofs import NOT_YET, Context, Transcript
from masquerade.protocols.codec import Blob, Many, Message, OneOf, Signature, Text
from masquerade.protocols.mix.agreement import MOST_ROWS, SUBMISSION, MixTerms
from masquerade.protocols.people.roster import PersonName, aborted

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


@dataclass(frozen=True, slots=True)
class Signed(Message):
    """What one party says to all."""

    TAG: ClassVar[bytes] = b"masquerade mix signed 1"
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


@dataclass(frozen=True, slots=True)
class Board(Message):
    """A list of messages that everybody sees alike."""

    TAG: ClassVar[bytes] = b"masquerade mix board 1"
    parts: Annotated[tuple[Annotated[bytes, Blob(LARGEST)], ...], Many(MOST_ROWS)]


def opened_board(
    data: bytes, terms: MixTerms, kind: str, senders: Sequence[str] | None = None
) -> list[Signed]:
    """Return the messages on a board; a forged one, or other senders than due, aborts."""
    messages = []
    for part in Board.decode(data).parts:
        try:
            messages.append(Signed.opened(part, terms, kind))
        except SealBroken:
            raise aborted(f"A {kind} on the board was not signed by its sender.", "miner") from None
    found = [message.sender for message in messages]
    if senders is not None and found != list(senders):
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
