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
from masquerade.disguising.frames import refuse_disguised
from masquerade.disguising.memo import Memo
from masquerade.disguising.reports import Codes, Draws, fresh_draws, through
from masquerade.frames.encode import encode
from masquerade.frames.native import columns_of, metadata_of
from masquerade.kernels.keystream import Keystream
from masquerade.protocols.linking.messages import PSEUDONYM_SIZE
from masquerade.protocols.vertical.combining import restricted
from masquerade.protocols.vertical.messages import Cells, Column, Request
from masquerade.protocols.wire import check_session

ROWS_AT_ONCE = 1 << 20
Tags = NDArray[np.uint8]  # rows × 16 bytes


class Held(NamedTuple):
    """Cells of one party: some rows, by pseudonym, of some variables, in clear."""

    codes: Mapping[str, Codes]
    tags: Tags
    draws: Draws


@dataclass(frozen=True, slots=True)
class Block:
    """A frame of some variables of the policy, and the pseudonyms of its rows (`keys`: for a memo)."""

    frame: Any
    pseudonyms: Sequence[bytes]
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

    def receive(self, message: bytes) -> bytes:
        """Return the disguised cells that a recipient asks for."""
        request = Request.decode(message)
        check_session(request.session, self.session)
        policy = restricted(self.policy, request.names or self.policy.schema.names)
        slices = self._slices(policy)
        if request.part >= len(slices):
            raise InputError(f"There are {len(slices)} parts. Part {request.part + 1} was asked for.")
        block, rows = slices[request.part]
        self.released[request.recipient] = self.released.get(request.recipient, frozenset()) | set(
            policy.schema
        )
        return Cells(
            self.session,
            self.name,
            policy,
            request.part,
            len(slices),
            self.held[block].tags[rows].tobytes(),
            tuple(
                Column(name, packed(self._reports[block][name][rows], len(policy.observed[name])))
                for name in policy.schema
                if name in self._reports[block]
            ),
        ).encode()

    def _slices(self, policy: Policy) -> list[tuple[int, slice]]:
        """Return how the cells of some variables are cut into messages."""
        return [
            (block, slice(first, first + ROWS_AT_ONCE))
            for block, cells in enumerate(self.held)
            if any(name in cells.codes for name in policy.schema)
            for first in range(0, max(len(cells.tags), 1), ROWS_AT_ONCE)
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


def tags_of(pseudonyms: Sequence[bytes]) -> Tags:
    """Return pseudonyms as an array; one of another length is refused."""
    if any(len(pseudonym) != PSEUDONYM_SIZE for pseudonym in pseudonyms):
        raise InputError(f"A pseudonym has {PSEUDONYM_SIZE} bytes.")
    return np.frombuffer(b"".join(pseudonyms), dtype=np.uint8).reshape(-1, PSEUDONYM_SIZE)


def packed(codes: Codes, size: int) -> bytes:
    """Return codes in as many bytes each as `size` categories need, little-endian."""
    return codes.astype(width_of(size)).tobytes()


def width_of(size: int) -> np.dtype[Any]:
    """Return the type of codes of `size` categories."""
    return np.min_scalar_type(max(size - 1, 0)).newbyteorder("<")
