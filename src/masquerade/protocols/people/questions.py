"""What people are asked to count, and what follows from what they have been asked before.

A question is about reports, which are what a policy makes of records. Names stand in the order of the
schema; on the wire a variable is its place there. Whoever reads a question knows `sizes`: how many reports
each variable has, in that order (the context of a message is anything that has them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Annotated, Self, TypeAlias

from masquerade.crypto.errors import DecodingError
from masquerade.protocols.wire.codec import U32, Many, Reader, Struct, Writer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Sizes = Mapping[str, int]
Counts: TypeAlias = "NDArray[np.int64]"
MOST_QUESTIONS = 1 << 16
MOST_VARIABLES = 255


@dataclass(frozen=True, slots=True)
class _Place:
    """A variable by its place in the schema, in two bytes."""

    def write(self, writer: Writer, value: str) -> None:
        writer.number(list(_sizes(writer)).index(value), 2)

    def read(self, reader: Reader) -> str:
        names = list(_sizes(reader))
        place = reader.number(2)
        if place >= len(names):
            raise DecodingError("A question names a variable that the terms do not have.")
        return names[place]


Variable = Annotated[str, _Place()]


@dataclass(frozen=True)
class Question(Struct):
    """How many people's reports have each combination of `columns`, among those that meet `conditions`?"""

    columns: Annotated[tuple[Variable, ...], Many(MOST_VARIABLES)]
    conditions: Annotated[tuple[tuple[Variable, U32], ...], Many(MOST_VARIABLES)] = ()

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read a question; names out of order and unknown codes are refused: there is one spelling only."""
        question, sizes = super().read(reader), _sizes(reader)
        given = tuple(name for name, _ in question.conditions)
        if question.columns != ordered(question.columns, sizes) or given != ordered(given, sizes):
            raise DecodingError("A question lists its variables once and in the order of the schema.")
        if not set(given).isdisjoint(question.columns):
            raise DecodingError("A question has a variable both as a column and as a condition.")
        if any(code >= sizes[name] for name, code in question.conditions):
            raise DecodingError("A question has a condition on a report that does not exist.")
        return question

    @classmethod
    def about(cls, columns: Iterable[str], conditions: Mapping[str, int], schema: Iterable[str]) -> Self:
        """Return the question with its names in the order of a schema."""
        pairs = tuple((name, conditions[name]) for name in ordered(conditions, schema))
        return cls(ordered(columns, schema), pairs)

    @property
    def names(self) -> tuple[str, ...]:
        """Return every variable touched."""
        return (*self.columns, *[name for name, _ in self.conditions])

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """Return the shape of the table."""
        return tuple(sizes[name] for name in self.columns)

    def cells(self, sizes: Sizes) -> int:
        """Return how many counts the table has."""
        return prod(self.shape(sizes))

    def cell(self, reports: Mapping[str, int], sizes: Sizes) -> int | None:
        """Return which cell a person is in; None for one who does not meet the conditions."""
        if any(reports[name] != code for name, code in self.conditions):
            return None
        cell = 0
        for name in self.columns:
            cell = cell * sizes[name] + reports[name]
        return cell

    def covers(self, other: Question) -> bool:
        """Tell whether the answer to the other question follows from that to this one."""
        inside = set(self.conditions)
        further = {name for name, _ in set(other.conditions) - inside}
        return inside <= set(other.conditions) and further.union(other.columns) <= set(self.columns)

    def picked(self, table: Counts, other: Question) -> Counts:
        """Return the table of a question that this one covers: conditions picked, the rest summed out."""
        import numpy as np  # noqa: PLC0415  (devices answer questions, and have no tables)

        given = dict(other.conditions)
        index: tuple[int | slice, ...] = tuple(given.get(name, slice(None)) for name in self.columns)
        left = [name for name in self.columns if name not in given]
        gone = tuple(axis for axis, name in enumerate(left) if name not in other.columns)
        return np.asarray(np.asarray(table[index]).sum(axis=gone))


def written(questions: Iterable[Question], context: object) -> bytes:
    """Return questions as bytes, one after the other; the context has their `sizes`."""
    writer = Writer(context)
    for question in questions:
        question.write(writer)
    return writer.done()


def ordered(names: Iterable[str], schema: Iterable[str]) -> tuple[str, ...]:
    """Return variables once each, in the order of the schema."""
    wanted = set(names)
    return tuple(name for name in schema if name in wanted)


def smallest_cover(wanted: Iterable[Question], sizes: Sizes) -> tuple[Question, ...]:
    """Return the questions from which all wanted ones can be answered, those that others cover left out."""
    kept: list[Question] = []
    for question in sorted(
        set(wanted), key=lambda one: (-one.cells(sizes), -len(one.columns), one.names, one.conditions)
    ):
        if not any(other.covers(question) for other in kept):
            kept.append(question)
    return tuple(kept)


def found_in(known: Mapping[Question, Counts], question: Question) -> Counts | None:
    """Return the table of a question if that of one that covers it is known."""
    if question in known:
        return known[question]
    larger = next((other for other in known if other.covers(question)), None)
    return None if larger is None else larger.picked(known[larger], question)


def tables_of(
    counts: Counts, questions: Sequence[Question], spans: Iterable[int], sizes: Sizes
) -> dict[Question, Counts]:
    """Return the tables that one row of counts is made of; `spans` says how many counts each question has.

    A question may have more counts than cells: what is left over counts nobody who was asked for.
    """
    found, at = {}, 0
    for question, span in zip(questions, spans, strict=True):
        found[question] = counts[at : at + question.cells(sizes)].reshape(question.shape(sizes))
        at += span
    return found


def _sizes(where: Reader | Writer) -> Sizes:
    sizes: Sizes = where.context.sizes  # type: ignore[attr-defined]  # what reads and writes questions has sizes
    return sizes
