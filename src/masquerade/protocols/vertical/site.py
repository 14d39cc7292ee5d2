"""A site: a party whose cells leave it only through its policy, each drawn once and for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.channels.policy import Policy, check_policy
from masquerade.core.errors import InputError
from masquerade.disguising.report_draws import Codes, Draws, through
from masquerade.protocols.arrow_stream import pack
from masquerade.protocols.codec import tag_of
from masquerade.protocols.linking.messages import PSEUDONYM_SIZE
from masquerade.protocols.session import check_session
from masquerade.protocols.vertical.cell_supplier import ReceivedCells, schema_of
from masquerade.protocols.vertical.joint_policy import restricted
from masquerade.protocols.vertical.messages import (
    BlockShape,
    CellDescription,
    CellRequest,
    Cells,
    DescriptionRequest,
)
from masquerade.protocols.vertical.pseudonym_ranges import MOST_PARTS, SortedPseudonyms, Tags


class ClearCells(NamedTuple):
    """Cells of one party: some rows, by pseudonym, of some variables, in clear."""

    codes: Mapping[str, Codes]
    tags: Tags
    draws: Draws


class Site:
    """Holds clear cells and releases reports. Asked twice, or by two, it releases the very same reports.

    `cells` are its cells in clear, block by block, each with the way in which their reports are drawn.
    """

    def __init__(self, name: str, policy: Policy, cells: Sequence[ClearCells], session: bytes) -> None:
        check_policy(policy)
        if policy.stratum_variable is not None:
            raise InputError("A policy with strata cannot be combined with other parties' policies.")
        self.name, self.policy, self.session = name, policy, session
        self.cells = tuple(cells)
        for block in self.cells:
            _check_tags(block)
            for group in policy.groups:
                if 0 < len(set(group.names) & set(block.codes)) < len(group.names):
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
            for cells in self.cells
        )

    @cached_property
    def _sorted(self) -> tuple[SortedPseudonyms, ...]:
        """Sort the pseudonyms of every block, once."""
        return tuple(SortedPseudonyms(cells.tags) for cells in self.cells)

    def receive(self, message: bytes) -> bytes:
        """Return what this site's cells are, or a part of them, disguised."""
        if tag_of(message) == DescriptionRequest.TAG:
            announce = DescriptionRequest.decode(message)
            check_session(announce.session, self.session)
            return self.described(announce.names).encode()
        request = CellRequest.decode(message)
        check_session(request.session, self.session)
        if not request.part < request.parts <= MOST_PARTS:
            raise InputError(f"There are {request.parts} parts. Part {request.part + 1} was asked for.")
        policy = restricted(self.policy, request.names or self.policy.schema.names)
        blocks = tuple(
            _packed(self._reports[block], self.cells[block].tags, names, rows, policy)
            for block, names, rows in self._cut(policy, request.part, request.parts)
        )
        self.released[request.recipient] = self.released.get(request.recipient, frozenset()) | set(
            policy.schema
        )
        return Cells(self.session, self.name, policy.id, request.part, request.parts, blocks).encode()

    def described(self, names: Sequence[str] = ()) -> CellDescription:
        """Return the policy of some variables (of all, if none is named), and the blocks that hold them."""
        policy = restricted(self.policy, names or self.policy.schema.names)
        shapes = tuple(BlockShape(own, len(self.cells[block].tags)) for block, own in self._holding(policy))
        return CellDescription(self.session, self.name, policy, shapes)

    def clear(self, part: int, parts: int) -> list[ReceivedCells]:
        """Return a part of this site's cells as they are, for its own eyes."""
        return [
            ReceivedCells(
                {name: self.cells[block].codes[name][rows] for name in names},
                self.cells[block].tags[rows],
            )
            for block, names, rows in self._cut(self.policy, part, parts)
        ]

    def _holding(self, policy: Policy) -> list[tuple[int, tuple[str, ...]]]:
        """Return the blocks that hold some variables, and which."""
        held = [tuple(n for n in policy.schema if n in cells.codes) for cells in self.cells]
        return [(block, names) for block, names in enumerate(held) if names]

    def _cut(
        self, policy: Policy, part: int, parts: int
    ) -> list[tuple[int, tuple[str, ...], NDArray[np.intp]]]:
        """Return the blocks that hold some variables, which, and the rows of a part by pseudonym."""
        return [
            (block, names, self._sorted[block].rows(part, parts)) for block, names in self._holding(policy)
        ]


def _packed(
    reports: Mapping[str, Codes], tags: Tags, names: Sequence[str], rows: NDArray[np.intp], policy: Policy
) -> bytes:
    schema = schema_of(names, policy)
    ids = pa.Array.from_buffers(
        schema[0].type, len(rows), [None, pa.py_buffer(np.ascontiguousarray(tags[rows]))]
    )
    columns = [
        pa.array(np.ascontiguousarray(reports[name][rows]), schema.field(place).type)
        for place, name in enumerate(names, start=1)
    ]
    return pack(pa.RecordBatch.from_arrays([ids, *columns], schema=schema))


def _check_tags(cells: ClearCells) -> None:
    tags = cells.tags
    if tags.dtype != np.uint8 or tags.ndim != 2 or tags.shape[1] != PSEUDONYM_SIZE:
        raise InputError(f"A pseudonym has {PSEUDONYM_SIZE} bytes.")
    for rows in map(len, cells.codes.values()):
        if rows != len(tags):
            raise InputError(f"A block of {rows:,} rows needs as many pseudonyms. Got {len(tags):,} instead.")
