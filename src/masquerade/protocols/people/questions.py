"""Queries of counting protocols, and the answers that follow from earlier answers.

A question is about reports, the output of a policy. Names are in the order of the schema; in messages a
variable is its index in the schema. The reader of a question knows `sizes`, the number of possible reports of
each variable in that order (the context of a message is any object with `sizes`).
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
    """A variable as its index in the schema, in two bytes."""

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
    """A count query: the number of people per combination of `columns`, among those who meet `conditions`."""

    columns: Annotated[tuple[Variable, ...], Many(MOST_VARIABLES)]
    conditions: Annotated[tuple[tuple[Variable, U32], ...], Many(MOST_VARIABLES)] = ()

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read a question in canonical form; raise DecodingError for names out of order and unknown codes."""
        question, sizes = super().read(reader), _sizes(reader)
        given = tuple(name for name, _ in question.conditions)
        if question.columns != order_variables(question.columns, sizes) or given != order_variables(
            given, sizes
        ):
            raise DecodingError("A question lists its variables once and in the order of the schema.")
        if not set(given).isdisjoint(question.columns):
            raise DecodingError("A question has a variable both as a column and as a condition.")
        if any(code >= sizes[name] for name, code in question.conditions):
            raise DecodingError("A question has a condition on a report that does not exist.")
        return question

    @classmethod
    def about(cls, columns: Iterable[str], conditions: Mapping[str, int], schema: Iterable[str]) -> Self:
        """Return the question with its names in the order of a schema."""
        pairs = tuple((name, conditions[name]) for name in order_variables(conditions, schema))
        return cls(order_variables(columns, schema), pairs)

    @property
    def names(self) -> tuple[str, ...]:
        """Return all variables of the question."""
        return (*self.columns, *[name for name, _ in self.conditions])

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """Return the shape of the table."""
        return tuple(sizes[name] for name in self.columns)

    def cells(self, sizes: Sizes) -> int:
        """Return the number of counts in the table."""
        return prod(self.shape(sizes))

    def cell(self, reports: Mapping[str, int], sizes: Sizes) -> int | None:
        """Return the index of a person's cell; None if the person does not meet the conditions."""
        if any(reports[name] != code for name, code in self.conditions):
            return None
        cell = 0
        for name in self.columns:
            cell = cell * sizes[name] + reports[name]
        return cell

    def covers(self, other: Question) -> bool:
        """Return True if the answer to this question determines the answer to the other."""
        inside = set(self.conditions)
        further = {name for name, _ in set(other.conditions) - inside}
        return inside <= set(other.conditions) and further.union(other.columns) <= set(self.columns)

    def pick_table(self, table: Counts, other: Question) -> Counts:
        """Return the table of a covered question: conditions are selected, other columns summed out."""
        import numpy as np  # noqa: PLC0415  (devices answer questions, and have no tables)

        given = dict(other.conditions)
        index: tuple[int | slice, ...] = tuple(given.get(name, slice(None)) for name in self.columns)
        left = [name for name in self.columns if name not in given]
        gone = tuple(axis for axis, name in enumerate(left) if name not in other.columns)
        return np.asarray(np.asarray(table[index]).sum(axis=gone))


def encode_questions(questions: Iterable[Question], context: object) -> bytes:
    """Return concatenated questions as bytes; the context has their `sizes`."""
    writer = Writer(context)
    for question in questions:
        question.write(writer)
    return writer.done()


def order_variables(names: Iterable[str], schema: Iterable[str]) -> tuple[str, ...]:
    """Return variables once each, in the order of the schema."""
    wanted = set(names)
    return tuple(name for name in schema if name in wanted)


def smallest_cover(wanted: Iterable[Question], sizes: Sizes) -> tuple[Question, ...]:
    """Return the questions that determine the answers to all `wanted`, without those covered by others."""
    kept: list[Question] = []
    for question in sorted(
        set(wanted), key=lambda one: (-one.cells(sizes), -len(one.columns), one.names, one.conditions)
    ):
        if not any(other.covers(question) for other in kept):
            kept.append(question)
    return tuple(kept)


def found_in(known: Mapping[Question, Counts], question: Question) -> Counts | None:
    """Return the table of a question if the table of a covering question is known."""
    if question in known:
        return known[question]
    larger = next((other for other in known if other.covers(question)), None)
    return None if larger is None else larger.pick_table(known[larger], question)


def tables_of(
    counts: Counts, questions: Sequence[Question], spans: Iterable[int], sizes: Sizes
) -> dict[Question, Counts]:
    """Split a row of counts into tables; `spans` has the number of counts of each question.

    A question may have one more count than cells: the number of people who do not meet its conditions.
    """
    found, at = {}, 0
    for question, span in zip(questions, spans, strict=True):
        found[question] = counts[at : at + question.cells(sizes)].reshape(question.shape(sizes))
        at += span
    return found


def _sizes(where: Reader | Writer) -> Sizes:
    sizes: Sizes = where.context.sizes  # type: ignore[attr-defined]  # contexts of questions have sizes
    return sizes
