"""The messages of vertical and arbitrary partitions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, ClassVar

from masquerade.channels.policy import Policy
from masquerade.protocols.codec import (
    LONGEST_TEXT,
    U32,
    U64,
    Blob,
    Converted,
    Many,
    Name,
    SessionMessage,
    Struct,
    Text,
)

MOST_NAMES = 10_000
MOST_BLOCKS = 1000
LARGEST_BLOCK = 1 << 30

Variables = Annotated[tuple[Name, ...], Many(MOST_NAMES)]
PolicyText = Annotated[
    Policy,
    Converted(
        Text(LONGEST_TEXT),
        lambda policy: json.dumps(policy.to_dict(), ensure_ascii=False, separators=(",", ":")),
        lambda text: Policy.from_dict(json.loads(text)),
        "A policy",
    ),
]


@dataclass(frozen=True, slots=True)
class DescriptionRequest(SessionMessage):
    """Ask a site what its cells of some variables (of all, if none is named) are: their policy and number."""

    TAG: ClassVar[bytes] = b"masquerade vertical announce 1"
    recipient: Name
    names: Variables


@dataclass(frozen=True, slots=True)
class CellRequest(SessionMessage):
    """Ask a site for the disguised cells of some variables, as announced, in one of some parts."""

    TAG: ClassVar[bytes] = b"masquerade vertical request 2"
    recipient: Name
    names: Variables
    part: U32
    parts: U32


@dataclass(frozen=True, slots=True)
class BlockShape(Struct):
    """A block of cells: so many rows of these variables."""

    names: Variables
    rows: U64


@dataclass(frozen=True, slots=True)
class CellDescription(SessionMessage):
    """What a site's cells are: the policy they go through, and the blocks they come in."""

    TAG: ClassVar[bytes] = b"masquerade vertical described 1"
    party: Name
    policy: PolicyText
    shapes: Annotated[tuple[BlockShape, ...], Many(MOST_BLOCKS)]


@dataclass(frozen=True, slots=True)
class Cells(SessionMessage):
    """Disguised cells of one part, block by block: each an Arrow stream of pseudonyms and report codes."""

    TAG: ClassVar[bytes] = b"masquerade vertical cells 2"
    party: Name
    policy_id: Name
    part: U32
    parts: U32
    blocks: Annotated[tuple[Annotated[bytes, Blob(LARGEST_BLOCK)], ...], Many(MOST_BLOCKS)]
