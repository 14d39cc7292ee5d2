"""The messages of vertical and arbitrary partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, PolicyMismatch
from masquerade.crypto.encoding import Reader, Writer
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.wire import LONGEST_TEXT, SESSION, Blob, Fields, Kind, Many, Number, Text

MOST_NAMES = 10_000
LARGEST_COLUMN = 1 << 30


@dataclass(frozen=True, slots=True)
class Request(Fields):
    """Ask a site for a part of the disguised cells of some variables (of all, if none is named)."""

    session: bytes
    recipient: str
    names: tuple[str, ...]
    part: int

    TAG: ClassVar[bytes] = b"masquerade vertical request 1"
    FIELDS: ClassVar = (
        SESSION,
        ("recipient", Text()),
        ("names", Many(Text(), MOST_NAMES)),
        ("part", Number(4)),
    )


@dataclass(frozen=True, slots=True)
class Column:
    """Report codes of one variable, in as many bytes each as its categories need."""

    name: str
    codes: bytes


class ColumnOf:
    """A column as a field."""

    def write(self, writer: Writer, value: Column) -> None:
        """Write name and codes."""
        writer.text(value.name, LONGEST_TEXT)
        writer.varying(value.codes, LARGEST_COLUMN)

    def read(self, reader: Reader) -> Column:
        """Read name and codes."""
        return Column(reader.text(LONGEST_TEXT), reader.varying(LARGEST_COLUMN))


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
class Cells(Fields):
    """Disguised cells: rows by pseudonym, columns of some variables, and the policy they went through."""

    session: bytes
    party: str
    policy: Policy
    part: int
    parts: int
    pseudonyms: bytes
    columns: tuple[Column, ...]

    TAG: ClassVar[bytes] = b"masquerade vertical cells 1"
    FIELDS: ClassVar[tuple[tuple[str, Kind[Any]], ...]] = (
        SESSION,
        ("party", Text()),
        ("policy", PolicyText()),
        ("part", Number(4)),
        ("parts", Number(4)),
        ("pseudonyms", Blob(LARGEST_COLUMN)),
        ("columns", Many(ColumnOf(), MOST_NAMES)),
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


def check_policy_id(party: str, policy: Policy, agreed: str) -> None:
    """Refuse cells that went through another policy than the one agreed on."""
    if policy.id != agreed:
        raise PolicyMismatch(
            f"Party {party!r} disguised under policy {policy.id[:12]}…, agreed was {agreed[:12]}…: estimates "
            "would be wrong."
        )
