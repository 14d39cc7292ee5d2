"""Cells as they arrive from a party: announced, fetched part by part, and checked against both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.errors import DecodingError
from masquerade.disguising.report_draws import Codes
from masquerade.protocols.arrow_stream import column, unpack
from masquerade.protocols.linking.messages import PSEUDONYM_SIZE
from masquerade.protocols.transport import Transport, ask
from masquerade.protocols.vertical.messages import (
    Announce,
    Cells,
    Described,
    Request,
    Shape,
    check_policy_id,
)
from masquerade.protocols.vertical.pseudonym_ranges import Tags, bounds_of, increasing, most_in_part, words_of

PSEUDONYM = "pseudonym"


class Arrived(NamedTuple):
    """Some rows of some columns, sorted by pseudonym."""

    codes: Mapping[str, Codes]
    tags: Tags


def schema_of(names: Sequence[str], policy: Policy) -> pa.Schema:
    """Return the columns of a block: the pseudonym first, then codes in as few bytes as they need."""
    kinds = [pa.from_numpy_dtype(np.min_scalar_type(max(len(policy.observed[n]) - 1, 0))) for n in names]
    return pa.schema(
        [
            column(PSEUDONYM, pa.binary(PSEUDONYM_SIZE)),
            *(column(name, kind) for name, kind in zip(names, kinds, strict=True)),
        ]
    )


class Room(NamedTuple):
    """How much a recipient takes of one party: rows in all, and bytes of a block once decompressed."""

    rows: int = 1 << 31
    bytes: int = 1 << 30


class Giver:
    """A party that sends cells to a recipient: what it announced, and its parts as they are asked for.

    `agreed` is the id of the policy expected, of the named variables where only some are asked for.
    """

    def __init__(
        self, transport: Transport, party: str, announce: Announce, agreed: str, room: Room | None = None
    ) -> None:
        self.party, self._transport, self._announce = party, transport, announce
        self._room = room or Room()
        found = ask(transport, party, announce, Described, spent=True)
        if (found.session, found.party) != (announce.session, party):
            raise InputError(f"Party {party!r} answered for another session or party.")
        check_policy_id(party, found.policy.id, agreed)
        self.policy, self.shapes = found.policy, found.shapes
        for shape in self.shapes:
            check_shape(party, shape, self.policy)
            if shape.rows > self._room.rows:
                raise InputError(
                    f"Party {party!r} announced {shape.rows:,} rows; at most {self._room.rows:,} are taken."
                )

    def fetch(self, part: int, parts: int) -> list[Arrived]:
        """Return a part of the party's cells: of this session, policy and part, every code a report."""
        asked = Request(self._announce.session, self._announce.recipient, self._announce.names, part, parts)
        cells = ask(self._transport, self.party, asked, Cells, spent=True)
        due = (asked.session, self.party, part, parts)
        if (cells.session, cells.party, cells.part, cells.parts) != due:
            raise InputError(f"Party {self.party!r} sent cells of another session, party or part.")
        check_policy_id(self.party, cells.policy_id, self.policy.id)
        if len(cells.blocks) != len(self.shapes):
            raise InputError(f"Party {self.party!r} sent other blocks than it announced.")
        return [
            self._arrived(block, shape, part, parts)
            for block, shape in zip(cells.blocks, self.shapes, strict=True)
        ]

    def _arrived(self, block: bytes, shape: Shape, part: int, parts: int) -> Arrived:
        schema = schema_of(shape.names, self.policy)
        rows = most_in_part(shape.rows, parts)
        width = sum(field.type.bit_width // 8 for field in schema)
        size = min(rows * width + 64 * len(schema), self._room.bytes)
        try:
            batch = unpack(block, most_bytes=size, most_rows=rows, schema=schema)
        except DecodingError as error:
            raise RoundAborted(
                f"Party {self.party!r} sent a block that cannot be read: {error}",
                spent=True,
                culprits=(self.party,),
            ) from None
        tags = np.frombuffer(batch.column(0).buffers()[1], np.uint8, PSEUDONYM_SIZE * len(batch))
        arrived = Arrived(
            {name: batch.column(place).to_numpy() for place, name in enumerate(shape.names, start=1)},
            tags.reshape(-1, PSEUDONYM_SIZE),
        )
        self._check(arrived, part, parts)
        return arrived

    def _check(self, arrived: Arrived, part: int, parts: int) -> None:
        first, second = words_of(arrived.tags)
        if not increasing(first, second):
            raise InputError(f"Party {self.party!r} sent pseudonyms that are not sorted, or one twice.")
        low, high = bounds_of(part, parts)
        if len(first) and not low <= first[0] <= first[-1] <= high:
            raise InputError(f"Party {self.party!r} sent a record that belongs to another part.")
        for name, codes in arrived.codes.items():
            if len(codes) and int(codes.max()) >= len(self.policy.observed[name]):
                raise InputError(f"Party {self.party!r}: column {name!r} has a code that is no report.")


def check_shape(party: str, shape: Shape, policy: Policy) -> None:
    """Refuse a block without variables, with unknown ones, or with one twice."""
    if not shape.names or len(set(shape.names)) < len(shape.names):
        raise InputError(f"Party {party!r} announced a block without variables, or with one twice.")
    for name in shape.names:
        policy.schema[name]
