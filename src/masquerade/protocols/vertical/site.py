"""A site: a party whose cells leave it only through its policy, each drawn once and for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.channels.policy import Policy, check_policy
from masquerade.core.errors import InputError
from masquerade.crypto.keystream import Keystream
from masquerade.disguising.frames import refuse_disguised
from masquerade.disguising.memo import Memo
from masquerade.disguising.report_draws import Codes, Draws, fresh_draws, through
from masquerade.frames.label_codes import encode
from masquerade.frames.native import columns_of, metadata_of
from masquerade.protocols.arrow_stream import pack
from masquerade.protocols.codec import check_session, tag_of
from masquerade.protocols.vertical.fetch import Arrived, schema_of
from masquerade.protocols.vertical.joint_policy import restricted
from masquerade.protocols.vertical.messages import Announce, Cells, Described, Request, Shape
from masquerade.protocols.vertical.pseudonym_ranges import MOST_PARTS, Sorted, Tags, tags_of


class Held(NamedTuple):
    """Cells of one party: some rows, by pseudonym, of some variables, in clear."""

    codes: Mapping[str, Codes]
    tags: Tags
    draws: Draws


@dataclass(frozen=True, slots=True)
class Block:
    """A frame of some variables of the policy, and the pseudonyms of its rows (`keys`: for a memo).

    Pseudonyms are 16 bytes each: a sequence of them, or an array of bytes with a row for each.
    """

    frame: Any
    pseudonyms: Sequence[bytes] | Tags
    keys: Sequence[str] | None = None


class Site:
    """Holds clear cells and releases reports. Asked twice, or by two, it releases the very same reports.

    Use `site`; this takes coded cells and a way to draw.
    """

    def __init__(self, name: str, policy: Policy, held: Sequence[Held], session: bytes) -> None:
        check_policy(policy)
        if policy.stratum_variable is not None:
            raise InputError("A policy with strata cannot be combined with other parties' policies.")
        self.name, self.policy, self.session = name, policy, session
        self.held = tuple(held)
        for cells in self.held:
            for group in policy.groups:
                if 0 < len(set(group.names) & set(cells.codes)) < len(group.names):
                    raise InputError(
                        f"{', '.join(group.names)} are disguised together: a cell of one needs all."
                    )
        self.released: dict[str, frozenset[str]] = {}

    @cached_property
    def _reports(self) -> tuple[dict[str, Codes], ...]:
        """Draw every report of this site, once: whatever is released later comes from here."""
        return tuple(
            {
                name: column
                for place, group in enumerate(self.policy.groups)
                if group.names[0] in cells.codes
                for name, column in through(cells.codes, [group], cells.draws, None, place).items()
            }
            for cells in self.held
        )

    @cached_property
    def _sorted(self) -> tuple[Sorted, ...]:
        """Sort the pseudonyms of every block, once."""
        return tuple(Sorted(cells.tags) for cells in self.held)

    def receive(self, message: bytes) -> bytes:
        """Return what this site's cells are, or a part of them, disguised."""
        if tag_of(message) == Announce.TAG:
            announce = Announce.decode(message)
            check_session(announce.session, self.session)
            return self.described(announce.names).encode()
        request = Request.decode(message)
        check_session(request.session, self.session)
        if not request.part < request.parts <= MOST_PARTS:
            raise InputError(f"There are {request.parts} parts. Part {request.part + 1} was asked for.")
        policy = restricted(self.policy, request.names or self.policy.schema.names)
        blocks = tuple(
            packed(self._reports[block], self.held[block].tags, names, rows, policy)
            for block, names, rows in self._cut(policy, request.part, request.parts)
        )
        self.released[request.recipient] = self.released.get(request.recipient, frozenset()) | set(
            policy.schema
        )
        return Cells(self.session, self.name, policy.id, request.part, request.parts, blocks).encode()

    def described(self, names: Sequence[str] = ()) -> Described:
        """Return the policy of some variables (of all, if none is named), and the blocks that hold them."""
        policy = restricted(self.policy, names or self.policy.schema.names)
        shapes = tuple(Shape(own, len(self.held[block].tags)) for block, own in self._holding(policy))
        return Described(self.session, self.name, policy, shapes)

    def clear(self, part: int, parts: int) -> list[Arrived]:
        """Return a part of this site's cells as they are, for its own eyes."""
        return [
            Arrived(
                {name: self.held[block].codes[name][rows] for name in names},
                self.held[block].tags[rows],
            )
            for block, names, rows in self._cut(self.policy, part, parts)
        ]

    def _holding(self, policy: Policy) -> list[tuple[int, tuple[str, ...]]]:
        """Return the blocks that hold some variables, and which."""
        held = [tuple(n for n in policy.schema if n in cells.codes) for cells in self.held]
        return [(block, names) for block, names in enumerate(held) if names]

    def _cut(
        self, policy: Policy, part: int, parts: int
    ) -> list[tuple[int, tuple[str, ...], NDArray[np.intp]]]:
        """Return the blocks that hold some variables, which, and the rows of a part by pseudonym."""
        return [
            (block, names, self._sorted[block].rows(part, parts)) for block, names in self._holding(policy)
        ]


def site(
    name: str,
    blocks: Block | Sequence[Block],
    policy: Policy,
    session: bytes,
    *,
    memo: str | Path | None = None,
) -> Site:
    """Return a site from clear frames: one with all variables of the policy, or several with some cells each.

    Reports are drawn with randomness of the operating system. With a `memo` (a file) and `keys` the same
    person's same value gets the same report in every session; without one, every session is another release
    and its γ multiplies.
    """
    listed = [blocks] if isinstance(blocks, Block) else list(blocks)
    remembered = None if memo is None else Memo.open(memo)
    held = [read(block, policy, drawn_for(remembered, policy, block)) for block in listed]
    if remembered is not None:
        remembered.saved(policy.id)
    return Site(name, policy, held, session)


def read(block: Block, policy: Policy, draws: Draws) -> Held:
    """Return a block as codes; a frame that says it is disguised already is refused."""
    columns = columns_of(block.frame)
    refuse_disguised(metadata_of(columns.frame), "the frame")
    fields = [field for field in policy.fields if field.variable.name in columns]
    if not fields:
        raise InputError("A block has none of the policy's variables.")
    tags = tags_of(block.pseudonyms)
    if len(tags) != columns.rows:
        raise InputError(
            f"A block of {columns.rows:,} rows needs as many pseudonyms. Got {len(tags):,} instead."
        )
    return Held(
        {field.variable.name: encode(columns[field.variable.name], field) for field in fields}, tags, draws
    )


def drawn_for(memo: Memo | None, policy: Policy, block: Block) -> Draws:
    """Return how reports of a block are drawn."""
    if memo is None:
        return fresh_draws(Keystream())
    if block.keys is None or len(block.keys) != len(block.pseudonyms):
        raise InputError("A memo needs the key of every record of a block.")
    return memo.draws(policy.id, pa.array(block.keys, pa.string()), "keys")


def packed(
    reports: Mapping[str, Codes], tags: Tags, names: Sequence[str], rows: NDArray[np.intp], policy: Policy
) -> bytes:
    """Return some rows as an Arrow stream."""
    schema = schema_of(names, policy)
    ids = pa.Array.from_buffers(
        schema[0].type, len(rows), [None, pa.py_buffer(np.ascontiguousarray(tags[rows]))]
    )
    columns = [
        pa.array(np.ascontiguousarray(reports[name][rows]), schema.field(place).type)
        for place, name in enumerate(names, start=1)
    ]
    return pack(pa.RecordBatch.from_arrays([ids, *columns], schema=schema))
