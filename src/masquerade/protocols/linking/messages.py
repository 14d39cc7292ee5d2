"""The messages of linking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from masquerade.protocols.wire import (
    DIGEST_SIZE,
    MOST_PARTIES,
    SESSION,
    Blob,
    Fields,
    Fixed,
    Many,
    Number,
    Text,
)

LARGEST_SET = 1 << 29  # bytes: 16 million points, twice as many pseudonyms
PSEUDONYM_SIZE = 16


@dataclass(frozen=True, slots=True)
class Begin(Fields):
    """A session is offered: who links, and how large a set may be."""

    session: bytes
    roster: tuple[str, ...]
    most: int

    TAG: ClassVar[bytes] = b"masquerade linking begin 1"
    FIELDS: ClassVar = (SESSION, ("roster", Many(Text(), MOST_PARTIES)), ("most", Number(4)))


@dataclass(frozen=True, slots=True)
class BeginKeyed(Fields):
    """A session by a shared secret is offered: who links, and how large a set may be."""

    session: bytes
    roster: tuple[str, ...]
    most: int

    TAG: ClassVar[bytes] = b"masquerade linking keyed 1"
    FIELDS: ClassVar = (SESSION, ("roster", Many(Text(), MOST_PARTIES)), ("most", Number(4)))


@dataclass(frozen=True, slots=True)
class Named(Fields):
    """Records have pseudonyms: how many, and what only those with the same secret can say."""

    session: bytes
    records: int
    proof: bytes

    TAG: ClassVar[bytes] = b"masquerade linking named 1"
    FIELDS: ClassVar = (SESSION, ("records", Number(4)), ("proof", Fixed(DIGEST_SIZE)))


@dataclass(frozen=True, slots=True)
class Points(Fields):
    """The set of `origin` under some masks, in the order that `origin` shuffled it into."""

    session: bytes
    origin: str
    points: bytes

    TAG: ClassVar[bytes] = b"masquerade linking points 1"
    FIELDS: ClassVar = (SESSION, ("origin", Text()), ("points", Blob(LARGEST_SET)))


@dataclass(frozen=True, slots=True)
class Finish(Fields):
    """A party's own set comes back with everybody else's mask on."""

    session: bytes
    points: bytes

    TAG: ClassVar[bytes] = b"masquerade linking finish 1"
    FIELDS: ClassVar = (SESSION, ("points", Blob(LARGEST_SET)))


@dataclass(frozen=True, slots=True)
class Compare(Fields):
    """Ask for a party's pseudonyms, to find the common ones."""

    session: bytes

    TAG: ClassVar[bytes] = b"masquerade linking compare 1"
    FIELDS: ClassVar = (SESSION,)


@dataclass(frozen=True, slots=True)
class Pseudonyms(Fields):
    """Sorted pseudonyms: of one party on the way up, of the common records on the way down."""

    session: bytes
    values: bytes

    TAG: ClassVar[bytes] = b"masquerade linking pseudonyms 1"
    FIELDS: ClassVar = (SESSION, ("values", Blob(LARGEST_SET)))


@dataclass(frozen=True, slots=True)
class Done(Fields):
    """A step is done; how many records it left."""

    session: bytes
    records: int

    TAG: ClassVar[bytes] = b"masquerade linking done 1"
    FIELDS: ClassVar = (SESSION, ("records", Number(4)))
