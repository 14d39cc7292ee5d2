"""The messages of vertical and arbitrary partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, PolicyMismatch
from masquerade.crypto.byte_codec import Reader, Writer
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.codec import LONGEST_TEXT, SESSION, Blob, Fields, Kind, Many, Number, Text

MOST_NAMES = 10_000
MOST_BLOCKS = 1000
LARGEST_BLOCK = 1 << 30


@dataclass(frozen=True, slots=True)
class Announce(Fields):
    """Ask a site what its cells of some variables (of all, if none is named) are: their policy and number."""

    session: bytes
    recipient: str
    names: tuple[str, ...]

    TAG: ClassVar[bytes] = b"masquerade vertical announce 1"
    FIELDS: ClassVar = (SESSION, ("recipient", Text()), ("names", Many(Text(), MOST_NAMES)))


@dataclass(frozen=True, slots=True)
class Request(Fields):
    """Ask a site for the disguised cells of some variables, as announced, in one of some parts."""

    session: bytes
    recipient: str
    names: tuple[str, ...]
    part: int
    parts: int

    TAG: ClassVar[bytes] = b"masquerade vertical request 2"
    FIELDS: ClassVar = (
        SESSION,
        ("recipient", Text()),
        ("names", Many(Text(), MOST_NAMES)),
        ("part", Number(4)),
        ("parts", Number(4)),
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """A block of cells: so many rows of these variables."""

    names: tuple[str, ...]
    rows: int


class ShapeOf:
    """A shape as a field."""

    def write(self, writer: Writer, value: Shape) -> None:
        """Write names and rows."""
        Many(Text(), MOST_NAMES).write(writer, value.names)
        writer.number(value.rows, 8)

    def read(self, reader: Reader) -> Shape:
        """Read names and rows."""
        return Shape(Many(Text(), MOST_NAMES).read(reader), reader.number(8))


class PolicyText:
    """A policy as a field: its plain values as JSON; what does not describe a policy does not decode."""

    def write(self, writer: Writer, value: Policy) -> None:
        """Write the policy."""
        writer.text(json.dumps(value.to_dict(), ensure_ascii=False, separators=(",", ":")), LONGEST_TEXT)

    def read(self, reader: Reader) -> Policy:
        """Read the policy."""
        text = reader.text(LONGEST_TEXT)
        try:
            return Policy.from_dict(json.loads(text))
        except (ValueError, TypeError, RecursionError):
            raise DecodingError("The message carries no policy that can be read.") from None


@dataclass(frozen=True, slots=True)
class Described(Fields):
    """What a site's cells are: the policy they go through, and the blocks they come in."""

    session: bytes
    party: str
    policy: Policy
    shapes: tuple[Shape, ...]

    TAG: ClassVar[bytes] = b"masquerade vertical described 1"
    FIELDS: ClassVar[tuple[tuple[str, Kind[Any]], ...]] = (
        SESSION,
        ("party", Text()),
        ("policy", PolicyText()),
        ("shapes", Many(ShapeOf(), MOST_BLOCKS)),
    )


@dataclass(frozen=True, slots=True)
class Cells(Fields):
    """Disguised cells of one part, block by block: each an Arrow stream of pseudonyms and report codes."""

    session: bytes
    party: str
    policy_id: str
    part: int
    parts: int
    blocks: tuple[bytes, ...]

    TAG: ClassVar[bytes] = b"masquerade vertical cells 2"
    FIELDS: ClassVar = (
        SESSION,
        ("party", Text()),
        ("policy_id", Text()),
        ("part", Number(4)),
        ("parts", Number(4)),
        ("blocks", Many(Blob(LARGEST_BLOCK), MOST_BLOCKS)),
    )


@dataclass(frozen=True, slots=True)
class Parameters(Fields):
    """What a party learnt about its own nodes, for everybody: plain values by node, as JSON."""

    session: bytes
    party: str
    nodes: str

    TAG: ClassVar[bytes] = b"masquerade vertical parameters 1"
    FIELDS: ClassVar = (SESSION, ("party", Text()), ("nodes", Text(LONGEST_TEXT)))

    @classmethod
    def of(cls, session: bytes, party: str, nodes: Mapping[str, Any]) -> Parameters:
        """Return the message with a party's nodes."""
        return cls(session, party, json.dumps(dict(nodes), ensure_ascii=False, separators=(",", ":")))

    def values(self) -> dict[str, Any]:
        """Return the plain values by node."""
        try:
            values = json.loads(self.nodes)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise InputError(f"Party {self.party!r} sent parameters that are no object of nodes.")
        return values


def check_policy_id(party: str, found: str, agreed: str) -> None:
    """Refuse cells that went through another policy than the one agreed on."""
    if found != agreed:
        raise PolicyMismatch(
            f"Party {party!r} disguised under policy {found[:12]}…, agreed was {agreed[:12]}…: estimates "
            "would be wrong."
        )
