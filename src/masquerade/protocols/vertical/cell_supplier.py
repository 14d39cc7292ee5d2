"""Cells that others supply: announced, fetched part by part, checked, joined row by row on their pseudonyms.

Pseudonyms live as long as a part is joined, and are destroyed in the joining.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, PolicyMismatch, RoundAborted
from masquerade.core.schema import Schema
from masquerade.crypto.errors import DecodingError
from masquerade.disguising.columns import permutation
from masquerade.disguising.report_draws import Codes
from masquerade.protocols.arrow_stream import column, unpack
from masquerade.protocols.linking.messages import PSEUDONYM_SIZE
from masquerade.protocols.session import Transport, ask
from masquerade.protocols.vertical.messages import (
    BlockShape,
    CellDescription,
    CellRequest,
    Cells,
    DescriptionRequest,
)
from masquerade.protocols.vertical.pseudonym_ranges import Tags, bounds_of, increasing, most_in_part, words_of

PSEUDONYM = "pseudonym"


class ReceivedCells(NamedTuple):
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


class Supplier(Protocol):
    """Whoever gives cells: another party, or this one in clear."""

    @property
    def policy(self) -> Policy:
        """What its cells went through."""

    @property
    def shapes(self) -> Sequence[BlockShape]:
        """The blocks they come in."""

    def fetch(self, part: int, parts: int) -> list[ReceivedCells]:
        """Return one part of them."""


class Room(NamedTuple):
    """How much a recipient takes of one party: rows in all, and bytes of a block once decompressed."""

    rows: int = 1 << 31
    bytes: int = 1 << 30


class CellSupplier:
    """A party that sends cells to a recipient: what it announced, and its parts as they are asked for.

    `agreed` is the id of the policy expected, of the named variables where only some are asked for.
    """

    def __init__(
        self,
        transport: Transport,
        party: str,
        announce: DescriptionRequest,
        agreed: str,
        room: Room | None = None,
    ) -> None:
        self.party, self._transport, self._announce = party, transport, announce
        self._room = room or Room()
        found = ask(transport, party, announce, CellDescription, spent=True)
        if (found.session, found.party) != (announce.session, party):
            raise InputError(f"Party {party!r} answered for another session or party.")
        _check_policy(party, found.policy.id, agreed)
        self.policy, self.shapes = found.policy, found.shapes
        for shape in self.shapes:
            _check_shape(party, shape, self.policy)
            if shape.rows > self._room.rows:
                raise InputError(
                    f"Party {party!r} announced {shape.rows:,} rows; at most {self._room.rows:,} are taken."
                )

    def fetch(self, part: int, parts: int) -> list[ReceivedCells]:
        """Return a part of the party's cells: of this session, policy and part, every code a report."""
        asked = CellRequest(
            self._announce.session, self._announce.recipient, self._announce.names, part, parts
        )
        cells = ask(self._transport, self.party, asked, Cells, spent=True)
        due = (asked.session, self.party, part, parts)
        if (cells.session, cells.party, cells.part, cells.parts) != due:
            raise InputError(f"Party {self.party!r} sent cells of another session, party or part.")
        _check_policy(self.party, cells.policy_id, self.policy.id)
        if len(cells.blocks) != len(self.shapes):
            raise InputError(f"Party {self.party!r} sent other blocks than it announced.")
        return [
            self._arrived(block, shape, part, parts)
            for block, shape in zip(cells.blocks, self.shapes, strict=True)
        ]

    def _arrived(self, block: bytes, shape: BlockShape, part: int, parts: int) -> ReceivedCells:
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
        arrived = ReceivedCells(
            {name: batch.column(place).to_numpy() for place, name in enumerate(shape.names, start=1)},
            tags.reshape(-1, PSEUDONYM_SIZE),
        )
        self._check(arrived, part, parts)
        return arrived

    def _check(self, arrived: ReceivedCells, part: int, parts: int) -> None:
        first, second = words_of(arrived.tags)
        if not increasing(first, second):
            raise InputError(f"Party {self.party!r} sent pseudonyms that are not sorted, or one twice.")
        low, high = bounds_of(part, parts)
        if len(first) and not low <= first[0] <= first[-1] <= high:
            raise InputError(f"Party {self.party!r} sent a record that belongs to another part.")
        for name, codes in arrived.codes.items():
            if len(codes) and int(codes.max()) >= len(self.policy.observed[name]):
                raise InputError(f"Party {self.party!r}: column {name!r} has a code that is no report.")


def rows_of(schema: Schema, shapes: Iterable[BlockShape]) -> int:
    """Return how many records were announced; every variable must have a cell for each of them."""
    found = dict.fromkeys(schema, 0)
    announced: set[str] = set()
    for shape in shapes:
        for name in shape.names:
            found[name] += shape.rows
            announced.add(name)
    for name in schema:
        if name not in announced:
            raise InputError(f"No party sent {name!r}.")
    rows = found[schema.names[0]]
    for name, count in found.items():
        if count != rows:
            raise InputError(
                f"There are {count:,} cells of {name!r}, and {rows:,} of {schema.names[0]!r}: every record "
                "needs every cell, once."
            )
    return rows


def joined(schema: Schema, blocks: Sequence[ReceivedCells]) -> dict[str, Codes]:
    """Return one column of codes for every variable, rows in a fresh random order.

    A cell that two blocks hold, and a record that lacks a cell, is refused: nobody guesses which is right.
    """
    reference: Tags | None = None
    orders: dict[tuple[int, ...], NDArray[np.intp] | None] = {}
    columns: dict[str, Codes] = {}
    for name in schema:
        holders = tuple(i for i, block in enumerate(blocks) if name in block.codes)
        if holders not in orders:
            tags, orders[holders] = _merged([blocks[i].tags for i in holders], name)
            reference = tags if reference is None else reference
            if not np.array_equal(tags, reference):
                raise InputError(
                    f"The cells of {name!r} are for {len(tags):,} records, others for {len(reference):,} "
                    "or for other ones: every record needs every cell."
                )
        order = orders[holders]
        column = np.concatenate([blocks[i].codes[name] for i in holders])
        columns[name] = column if order is None else column[order]
    mixed = permutation(0 if reference is None else len(reference))
    return {name: np.ascontiguousarray(column[mixed]) for name, column in columns.items()}


def _merged(tags: Sequence[Tags], name: str) -> tuple[Tags, NDArray[np.intp] | None]:
    """Return sorted pseudonyms of several blocks as one sorted list, and the order that sorts them."""
    if len(tags) == 1:
        return tags[0], None
    together = np.concatenate(tags)
    first, second = words_of(together)
    order = np.lexsort((second, first))
    if not increasing(first[order], second[order]):
        raise InputError(f"Cells of {name!r} came twice for one record.")
    return together[order], order


def _check_policy(party: str, found: str, agreed: str) -> None:
    if found != agreed:
        raise PolicyMismatch(
            f"Party {party!r} disguised under policy {found[:12]}…, agreed was {agreed[:12]}…: estimates "
            "would be wrong."
        )


def _check_shape(party: str, shape: BlockShape, policy: Policy) -> None:
    if not shape.names or len(set(shape.names)) < len(shape.names):
        raise InputError(f"Party {party!r} announced a block without variables, or with one twice.")
    for name in shape.names:
        policy.schema[name]
