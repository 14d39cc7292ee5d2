"""The messages of linking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from masquerade.crypto.byte_codec import Reader, Writer
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SIGNATURE_SIZE
from masquerade.protocols.codec import (
    DIGEST_SIZE,
    LONGEST_NAME,
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
LARGEST_DONE = 200
PSEUDONYM_SIZE = 16


@dataclass(frozen=True, slots=True)
class Step:
    """What a party vouches for: it was given a set with one digest and passed it on with another.

    The first step is that of the set's origin, which was given nothing.
    """

    party: str
    size: int
    came: bytes
    went: bytes
    signature: bytes

    def write(self, writer: Writer) -> None:
        """Write the step."""
        writer.text(self.party, LONGEST_NAME)
        writer.number(self.size, 4)
        writer.fixed(self.came, DIGEST_SIZE)
        writer.fixed(self.went, DIGEST_SIZE)
        writer.fixed(self.signature, SIGNATURE_SIZE)


class StepOf:
    """How a step is written and read."""

    def write(self, writer: Writer, value: Step) -> None:
        """Write the step."""
        value.write(writer)

    def read(self, reader: Reader) -> Step:
        """Read the step."""
        return Step(
            reader.text(LONGEST_NAME),
            reader.number(4),
            reader.fixed(DIGEST_SIZE),
            reader.fixed(DIGEST_SIZE),
            reader.fixed(SIGNATURE_SIZE),
        )


class SignatureOf:
    """A signature, or none where parties have no identities."""

    def write(self, writer: Writer, value: bytes) -> None:
        """Write the signature with its length."""
        writer.varying(value, SIGNATURE_SIZE)

    def read(self, reader: Reader) -> bytes:
        """Read a whole signature or none."""
        value = reader.varying(SIGNATURE_SIZE)
        if len(value) not in {0, SIGNATURE_SIZE}:
            raise DecodingError(f"A signature has {SIGNATURE_SIZE} bytes, or none where nobody signs.")
        return value


STEPS = ("steps", Many(StepOf(), MOST_PARTIES))


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
    """The set of `origin` under some masks, in the order that `origin` shuffled it into.

    `steps` say who put masks on, each signed; there are none where parties have no identities.
    """

    session: bytes
    origin: str
    points: bytes
    steps: tuple[Step, ...] = ()

    TAG: ClassVar[bytes] = b"masquerade linking points 2"
    FIELDS: ClassVar = (SESSION, ("origin", Text()), ("points", Blob(LARGEST_SET)), STEPS)


@dataclass(frozen=True, slots=True)
class Finish(Fields):
    """A party's own set comes back with everybody else's mask on, and their signed steps."""

    session: bytes
    points: bytes
    steps: tuple[Step, ...] = ()

    TAG: ClassVar[bytes] = b"masquerade linking finish 2"
    FIELDS: ClassVar = (SESSION, ("points", Blob(LARGEST_SET)), STEPS)


@dataclass(frozen=True, slots=True)
class Confirm(Fields):
    """The signed `Done` of every party, in the order of the roster: no set was changed on its way."""

    session: bytes
    done: tuple[bytes, ...]

    TAG: ClassVar[bytes] = b"masquerade linking confirm 1"
    FIELDS: ClassVar = (SESSION, ("done", Many(Blob(LARGEST_DONE), MOST_PARTIES)))


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
    """A step is done; how many records it left. Signed where a party vouches that its set came back whole."""

    session: bytes
    records: int
    signature: bytes = b""

    TAG: ClassVar[bytes] = b"masquerade linking done 2"
    FIELDS: ClassVar = (SESSION, ("records", Number(4)), ("signature", SignatureOf()))
