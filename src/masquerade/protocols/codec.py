"""Messages declared by their fields: a kind of field knows how it is written, and read strictly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, Refusal, SchemaError
from masquerade.core.query import Query
from masquerade.crypto.byte_codec import Message, Reader, Writer
from masquerade.crypto.errors import DecodingError

SESSION_SIZE = 16
DIGEST_SIZE = 32
MOST_PARTIES = 1000
LONGEST_NAME = 200
MOST_QUERIES = 100_000
LONGEST_TEXT = 1 << 24

T = TypeVar("T")
Words = NDArray[np.uint64]


class Kind(Protocol[T]):
    """How one field is written and read."""

    def write(self, writer: Writer, value: T) -> None:
        """Write the field."""

    def read(self, reader: Reader) -> T:
        """Read the field."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Exactly so many bytes."""

    size: int

    def write(self, writer: Writer, value: bytes) -> None:
        """Write the bytes."""
        writer.fixed(value, self.size)

    def read(self, reader: Reader) -> bytes:
        """Read the bytes."""
        return reader.fixed(self.size)


@dataclass(frozen=True, slots=True)
class Blob:
    """At most so many bytes."""

    most: int

    def write(self, writer: Writer, value: bytes) -> None:
        """Write the bytes with their number."""
        writer.varying(value, self.most)

    def read(self, reader: Reader) -> bytes:
        """Read the bytes."""
        return reader.varying(self.most)


@dataclass(frozen=True, slots=True)
class Number:
    """An unsigned number of so many bytes."""

    size: int

    def write(self, writer: Writer, value: int) -> None:
        """Write the number."""
        writer.number(value, self.size)

    def read(self, reader: Reader) -> int:
        """Read the number."""
        return reader.number(self.size)


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 of at most so many bytes."""

    most: int = LONGEST_NAME

    def write(self, writer: Writer, value: str) -> None:
        """Write the text."""
        writer.text(value, self.most)

    def read(self, reader: Reader) -> str:
        """Read the text."""
        return reader.text(self.most)


@dataclass(frozen=True, slots=True)
class Many(Generic[T]):
    """At most so many values of one kind."""

    kind: Kind[T]
    most: int

    def write(self, writer: Writer, value: Sequence[T]) -> None:
        """Write the values with their number."""
        writer.many(value, self.most, lambda item: self.kind.write(writer, item))

    def read(self, reader: Reader) -> tuple[T, ...]:
        """Read the values."""
        return reader.many(self.most, lambda: self.kind.read(reader))


@dataclass(frozen=True, slots=True)
class WordsOf:
    """At most so many 64-bit words, little-endian, as one array."""

    most: int

    def write(self, writer: Writer, value: Words) -> None:
        """Write the words with the number of their bytes."""
        writer.varying(np.ascontiguousarray(value, dtype="<u8").tobytes(), 8 * self.most)

    def read(self, reader: Reader) -> Words:
        """Read the words; half a word is refused."""
        data = reader.varying(8 * self.most)
        if len(data) % 8:
            raise DecodingError("An array of 64-bit words ends inside a word.")
        return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)


class Fields(Message):
    """A message that is a frozen dataclass; `FIELDS` lists its fields and their kinds in order."""

    FIELDS: ClassVar[tuple[tuple[str, Kind[Any]], ...]]

    def write(self, writer: Writer) -> None:
        """Write every field."""
        for name, kind in self.FIELDS:
            kind.write(writer, getattr(self, name))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read every field."""
        return cls(**{name: kind.read(reader) for name, kind in cls.FIELDS})


SESSION = ("session", Fixed(SESSION_SIZE))


def tag_of(message: bytes) -> bytes:
    """Return the tag that says what kind of message this is."""
    return Reader(message[:300]).varying(255)


@dataclass(frozen=True, slots=True)
class Batch:
    """Questions as one canonical text; its digest is what everybody must have been asked.

    >>> Batch((Query(by="sex"),)).text
    '[[["sex"],[]]]'
    """

    queries: tuple[Query, ...]

    @property
    def text(self) -> str:
        """Return the questions as JSON."""
        return json.dumps(
            [[query.by, query.where] for query in self.queries], ensure_ascii=False, separators=(",", ":")
        )

    @property
    def digest(self) -> bytes:
        """Return the sha256 of the text."""
        return hashlib.sha256(self.text.encode()).digest()


@dataclass(frozen=True, slots=True)
class BatchOf:
    """A batch of questions."""

    def write(self, writer: Writer, value: Batch) -> None:
        """Write the canonical text."""
        writer.text(value.text, LONGEST_TEXT)

    def read(self, reader: Reader) -> Batch:
        """Read a batch; one that is not in its canonical form is refused."""
        text = reader.text(LONGEST_TEXT)
        try:
            listed = json.loads(text)
            queries = tuple(
                Query(by=tuple(by), where=[(name, label) for name, label in where]) for by, where in listed
            )
        except (TypeError, ValueError, SchemaError, RecursionError):
            raise DecodingError("A batch of questions is not a list of [by, where].") from None
        batch = Batch(queries)
        if len(queries) > MOST_QUERIES or batch.text != text:
            raise DecodingError("A batch of questions is too long or not in its canonical form.")
        return batch


@dataclass(frozen=True, slots=True)
class Refusals:
    """Refusals as one canonical text, each a code and a reason."""

    def write(self, writer: Writer, value: Sequence[Refusal]) -> None:
        """Write codes and reasons."""
        Many(Text(LONGEST_TEXT), 2 * MOST_QUERIES).write(
            writer, [text for item in value for text in (item.code, item.reason)]
        )

    def read(self, reader: Reader) -> tuple[Refusal, ...]:
        """Read codes and reasons."""
        texts = Many(Text(LONGEST_TEXT), 2 * MOST_QUERIES).read(reader)
        if len(texts) % 2:
            raise DecodingError("A refusal is a code and a reason.")
        return tuple(Refusal(code, reason) for code, reason in zip(texts[::2], texts[1::2], strict=True))


def check_session(session: bytes, due: bytes) -> None:
    """Refuse a message of another session."""
    if session != due:
        raise InputError("The message belongs to another session.")
