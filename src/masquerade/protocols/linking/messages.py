"""The messages of linking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from masquerade.crypto.keys import SIGNATURE_SIZE
from masquerade.protocols.codec import (
    MOST_PARTIES,
    U32,
    Blob,
    Digest,
    Many,
    Name,
    Names,
    SessionMessage,
    Signature,
    Struct,
)

LARGEST_SET = 1 << 29  # bytes: 16 million points, twice as many pseudonyms
LARGEST_DONE = 200
PSEUDONYM_SIZE = 16


@dataclass(frozen=True, slots=True)
class Step(Struct):
    """What a party vouches for: it was given a set with one digest and passed it on with another.

    The first step is that of the set's origin, which was given nothing.
    """

    party: Name
    size: U32
    came: Digest
    went: Digest
    signature: Signature


Steps = Annotated[tuple[Step, ...], Many(MOST_PARTIES)]


@dataclass(frozen=True, slots=True)
class LinkingOffer(SessionMessage):
    """A session is offered: who links, and how large a set may be."""

    TAG: ClassVar[bytes] = b"masquerade linking begin 1"
    roster: Names
    most: U32


@dataclass(frozen=True, slots=True)
class MaskedPoints(SessionMessage):
    """The set of `origin` under some masks, in the order that `origin` shuffled it into.

    `steps` say who put masks on, each signed; there are none where parties have no identities.
    """

    TAG: ClassVar[bytes] = b"masquerade linking points 2"
    origin: Name
    points: Annotated[bytes, Blob(LARGEST_SET)]
    steps: Steps = ()


@dataclass(frozen=True, slots=True)
class ReturnedPoints(SessionMessage):
    """A party's own set comes back with everybody else's mask on, and their signed steps."""

    TAG: ClassVar[bytes] = b"masquerade linking finish 2"
    points: Annotated[bytes, Blob(LARGEST_SET)]
    steps: Steps = ()


@dataclass(frozen=True, slots=True)
class Confirmation(SessionMessage):
    """The signed `Receipt` of every party, in the order of the roster: no set was changed on its way."""

    TAG: ClassVar[bytes] = b"masquerade linking confirm 1"
    done: Annotated[tuple[Annotated[bytes, Blob(LARGEST_DONE)], ...], Many(MOST_PARTIES)]


@dataclass(frozen=True, slots=True)
class PseudonymRequest(SessionMessage):
    """Ask for a party's pseudonyms, to find the common ones."""

    TAG: ClassVar[bytes] = b"masquerade linking compare 1"


@dataclass(frozen=True, slots=True)
class Pseudonyms(SessionMessage):
    """Sorted pseudonyms: of one party on the way up, of the common records on the way down."""

    TAG: ClassVar[bytes] = b"masquerade linking pseudonyms 1"
    values: Annotated[bytes, Blob(LARGEST_SET)]


@dataclass(frozen=True, slots=True)
class Receipt(SessionMessage):
    """A step is done; how many records it left. Signed where a party vouches that its set came back whole."""

    TAG: ClassVar[bytes] = b"masquerade linking done 2"
    records: U32
    signature: Annotated[bytes, Blob(SIGNATURE_SIZE, (0, SIGNATURE_SIZE))] = b""
