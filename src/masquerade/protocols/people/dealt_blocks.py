"""Variables that are dealt in blocks, as a person's device has them: the blocks and their channels.

A device draws a block first, whatever its record says, and then a report of the record's class in that block.
It draws with the same random words, derived from the same secret, as the library (`disguising.report_draws`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Annotated

from masquerade.core.errors import PolicyError
from masquerade.core.record_gamma import Gamma, RecordPart
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.people.channel_rows import (
    MOST_LABELS,
    MOST_VARIABLES,
    Row,
    VariableName,
    Weight,
    gamma_of_rows,
    join_codes,
)
from masquerade.protocols.wire.codec import U32, Many, Struct

if TYPE_CHECKING:
    from masquerade.channels.policy import Group

MOST_BLOCKS, MOST_CLASSES, MOST_CHANNELS = 1 << 14, 1 << 9, 64
DEALING = 1 << 15  # marks the place of the draw that deals a block, as in the library
Draw = Callable[[Row, int, int], int]  # of a row, the code of its truth, and the place of the draw


@dataclass(frozen=True)
class BlockForm(Struct):
    """A block: its variables by index, its weight in the dealing, and whether it reports differences."""

    members: Annotated[tuple[U32, ...], Many(MOST_VARIABLES)]
    weight: Weight
    differences: bool

    def classes(self, sizes: Sequence[int]) -> int:
        """Return the number of classes that a record can be in."""
        if self.differences:
            return 1 << (len(self.members) - 1)
        return prod(sizes[one] for one in self.members)

    def class_of(self, codes: Sequence[int], sizes: Sequence[int]) -> int:
        """Return the class of a record, by the codes of all variables."""
        values = [codes[one] for one in self.members]
        if self.differences:
            return join_codes([code ^ values[0] for code in values[1:]], [2] * (len(values) - 1))
        return join_codes(values, [sizes[one] for one in self.members])


@dataclass(frozen=True)
class ClassChannel(Struct):
    """The channel of all blocks with one number of classes."""

    classes: U32
    rows: Annotated[tuple[Row, ...], Many(MOST_LABELS)]


@dataclass(frozen=True)
class DealtForm(Struct):
    """The blocks of a group of variables, and the channel for every number of classes."""

    names: Annotated[tuple[VariableName, ...], Many(MOST_VARIABLES)]
    sizes: Annotated[tuple[U32, ...], Many(MOST_VARIABLES)]
    blocks: Annotated[tuple[BlockForm, ...], Many(MOST_BLOCKS)]
    channels: Annotated[tuple[ClassChannel, ...], Many(MOST_CHANNELS)]

    @classmethod
    def of(cls, group: Group) -> DealtForm:
        """Return the form of a group that is dealt in blocks.

        Parameters
        ----------
        group : Group
            A group of a policy whose channel is a `ClassResponse`.

        Raises
        ------
        PolicyError
            If there are more blocks or classes than a device can draw from.
        """
        response = group.response
        if response is None or response.blocks > MOST_BLOCKS or response.classes > MOST_CLASSES:
            raise PolicyError(
                f"{', '.join(group.names)}: a device draws from at most {MOST_BLOCKS:,} blocks of "
                f"{MOST_CLASSES:,} classes. Lower 'k', or ask about fewer variables."
            )
        members = [[one for one in row if one < len(group.names)] for row in response.by_cells.tolist()]
        blocks = [(row, False) for row in members] + [(row, True) for row in response.by_difference.tolist()]
        weights = response.dealing.weights[0].tolist()
        channels = []
        for size in sorted(set(response.block_classes.tolist())):
            channel = response.channel_of(size)
            pairs = zip(channel.outcomes.tolist(), channel.weights.tolist(), strict=True)
            rows = tuple(tuple(one for one in zip(*pair, strict=True) if one[1]) for pair in pairs)
            channels.append(ClassChannel(size, rows))
        listed = [
            BlockForm(tuple(row), weight, kind) for (row, kind), weight in zip(blocks, weights, strict=True)
        ]
        return cls(group.names, group.sizes, tuple(listed), tuple(channels))

    def check(self, names: Sequence[str], sizes: Sequence[int], report_sizes: Sequence[int]) -> None:
        """Raise DecodingError if blocks and channels do not match these variables and reports."""
        channels = {one.classes: one.rows for one in self.channels}
        if (self.names, self.sizes) != (tuple(names), tuple(sizes)) or len(report_sizes) != 2:
            raise DecodingError(
                "Blocks consist of variables of their group, and are reported by two numbers."
            )
        if not 1 <= sum(block.weight for block in self.blocks) <= 1 << 62:
            raise DecodingError("The weights of blocks are out of range.")
        for block in self.blocks:
            chosen = block.members
            fits = chosen and list(chosen) == sorted(set(chosen)) and chosen[-1] < len(sizes)
            if not fits or (block.differences and any(sizes[one] != 2 for one in chosen)):
                raise DecodingError(
                    "A block must list variables of its group, in order, and a block of differences only "
                    "variables with two categories."
                )
            if block.classes(sizes) not in channels:
                raise DecodingError("A block has no channel.")
        for classes, rows in channels.items():
            totals = [sum(weight for _, weight in row) for row in rows]
            if (
                len(rows) != classes
                or classes > report_sizes[1]
                or not all(1 <= total <= 1 << 62 for total in totals)
                or any(report >= classes for row in rows for report, _ in row)
            ):
                raise DecodingError("The channel of a block does not match the block's classes.")
        if len(channels) < len(self.channels) or len(self.blocks) != report_sizes[0]:
            raise DecodingError("The blocks do not match their reports.")

    @cached_property
    def gamma(self) -> Gamma:
        """Return γ of what is reported: the block is drawn whatever the record says, and reveals nothing."""
        return max((gamma_of_rows(one.rows) for one in self.channels), default=Fraction(1))

    @property
    def part(self) -> RecordPart:
        """Return these variables as a part of the record, with its γ."""
        return RecordPart(self.names, self.sizes, self.gamma)

    def draw(self, codes: Sequence[int], place: int, draw: Draw) -> list[int]:
        """Return the block and the reported class of a record.

        Parameters
        ----------
        codes : sequence of int
            The codes of the group's variables.
        place : int
            Index of the group.
        draw : callable
            Draws a report from a row, by the code of its truth and the place of the draw.
        """
        number = draw(tuple((i, block.weight) for i, block in enumerate(self.blocks)), 0, place | DEALING)
        block = self.blocks[number]
        rows = next(one.rows for one in self.channels if one.classes == block.classes(self.sizes))
        truth = block.class_of(codes, self.sizes)
        return [number, draw(rows[truth], truth, place)]
