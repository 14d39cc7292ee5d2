"""The fields that messages are made of: bytes, numbers, texts, points, arrays; written and read strictly.

Numbers are big-endian and of fixed width; byte strings of varying length carry their length; lists carry
their count. A `Reader` never reads past the end, never trusts a count beyond its bound or beyond the bytes
that are there, and refuses what is left over, always by `DecodingError`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, MasqueradeError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import SCALAR_SIZE, Group, Point

T = TypeVar("T")
U = TypeVar("U")
Size = int | Callable[[Any], int]
_LENGTH = 4


class Writer:
    """Collects the fields of a message; `done` returns its bytes."""

    __slots__ = ("_parts", "context")

    def __init__(self, context: object = None) -> None:
        self.context = context
        self._parts: list[bytes] = []

    def number(self, value: int, size: int) -> None:
        """Write an unsigned number in `size` bytes."""
        if not 0 <= value < 1 << 8 * size:
            raise InputError(f"A number of {size} bytes must be at least 0 and below 2^{8 * size}.")
        self._parts.append(value.to_bytes(size, "big"))

    def raw(self, value: bytes) -> None:
        """Write bytes as they are."""
        self._parts.append(bytes(value))

    def fixed(self, value: bytes, size: int) -> None:
        """Write exactly `size` bytes."""
        if len(value) != size:
            raise InputError(f"This field has {size} bytes. Got {len(value)} instead.")
        self.raw(value)

    def varying(self, value: bytes, most: int) -> None:
        """Write at most `most` bytes, preceded by their number."""
        if len(value) > most:
            raise InputError(f"This field has at most {most} bytes. Got {len(value)} instead.")
        self.number(len(value), _LENGTH)
        self.raw(value)

    def text(self, value: str, most: int) -> None:
        """Write text as UTF-8 of at most `most` bytes."""
        try:
            encoded = value.encode()
        except UnicodeEncodeError as error:
            raise InputError("A text field must be valid Unicode.") from error
        self.varying(encoded, most)

    def many(self, values: Iterable[T], most: int, write: Callable[[T], None]) -> None:
        """Write at most `most` values, preceded by their number."""
        listed = list(values)
        if len(listed) > most:
            raise InputError(f"This list has at most {most} entries. Got {len(listed)} instead.")
        self.number(len(listed), _LENGTH)
        for value in listed:
            write(value)

    def point(self, value: Point) -> None:
        """Write a point, which must not be the identity."""
        self.raw(value.encode())

    def scalar(self, value: int, group: Group) -> None:
        """Write a number below the group's order."""
        self.raw(group.encode_scalar(value))

    def done(self) -> bytes:
        """Return the message."""
        return b"".join(self._parts)


class Reader:
    """Reads the fields of a message in order; `done` refuses bytes left over."""

    __slots__ = ("_at", "_data", "context")

    def __init__(self, data: bytes, context: object = None) -> None:
        self._data, self._at, self.context = bytes(data), 0, context

    @property
    def left(self) -> int:
        """Return how many bytes are not read yet."""
        return len(self._data) - self._at

    def number(self, size: int, most: int | None = None) -> int:
        """Read an unsigned number of `size` bytes, at most `most` where that is less than they could hold."""
        value = int.from_bytes(self.fixed(size), "big")
        if most is not None and value > most:
            raise DecodingError(f"A number of the message must be at most {most}.")
        return value

    def fixed(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
        end = self._at + size
        if end > len(self._data):
            raise DecodingError(
                f"The message ends at byte {len(self._data)}, inside a field up to byte {end}."
            )
        field, self._at = self._data[self._at : end], end
        return field

    def count(self, most: int, unit: str) -> int:
        """Read how many follow: at most `most`, and no more than there are bytes left."""
        count = self.number(_LENGTH)
        if count > most:
            raise DecodingError(f"A field has at most {most} {unit}. The message announces {count}.")
        if count > self.left:
            raise DecodingError(f"The message announces {count} {unit} and has {self.left} bytes left.")
        return count

    def varying(self, most: int) -> bytes:
        """Read a byte string of at most `most` bytes."""
        return self.fixed(self.count(most, "bytes"))

    def text(self, most: int) -> str:
        """Read UTF-8 text of at most `most` bytes."""
        try:
            return self.varying(most).decode()
        except UnicodeDecodeError:
            raise DecodingError("A text field is not valid UTF-8.") from None

    def many(self, most: int, read: Callable[[], T]) -> tuple[T, ...]:
        """Read a list of at most `most` values, each at least a byte."""
        return tuple([read() for _ in range(self.count(most, "entries"))])

    def point(self, group: Group) -> Point:
        """Read a point."""
        return group.decode(self.fixed(group.point_size))

    def scalar(self, group: Group) -> int:
        """Read a number below the group's order."""
        return group.decode_scalar(self.fixed(SCALAR_SIZE))

    def done(self) -> None:
        """Refuse bytes after the last field."""
        if self.left:
            raise DecodingError(f"The message goes on for {self.left} bytes after its last field.")


class Kind(Protocol[T]):
    """How one field is written and read."""

    def write(self, writer: Writer, value: T, /) -> None:
        """Write the field."""

    def read(self, reader: Reader, /) -> T:
        """Read the field; whatever is wrong with it is a `DecodingError`."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Exactly so many bytes."""

    size: Size

    def write(self, writer: Writer, value: bytes) -> None:
        """Write the bytes."""
        writer.fixed(value, size_of(self.size, writer.context))

    def read(self, reader: Reader) -> bytes:
        """Read the bytes."""
        return reader.fixed(size_of(self.size, reader.context))


@dataclass(frozen=True, slots=True)
class Blob:
    """At most so many bytes; where `sizes` are given, one of these numbers of bytes."""

    most: int
    sizes: tuple[int, ...] = ()

    def write(self, writer: Writer, value: bytes) -> None:
        """Write the bytes with their number."""
        writer.varying(value, self.most)

    def read(self, reader: Reader) -> bytes:
        """Read the bytes."""
        value = reader.varying(self.most)
        if self.sizes and len(value) not in self.sizes:
            raise DecodingError(f"A field has {' or '.join(map(str, self.sizes))} bytes. Got {len(value)}.")
        return value


@dataclass(frozen=True, slots=True)
class Rest:
    """All bytes that are left, at most so many: the last field of a message."""

    most: int

    def write(self, writer: Writer, value: bytes) -> None:
        """Write the bytes."""
        if len(value) > self.most:
            raise InputError(f"This field has at most {self.most} bytes. Got {len(value)} instead.")
        writer.raw(value)

    def read(self, reader: Reader) -> bytes:
        """Read the bytes."""
        if reader.left > self.most:
            raise DecodingError(f"A field has at most {self.most} bytes. Got {reader.left} instead.")
        return reader.fixed(reader.left)


@dataclass(frozen=True, slots=True)
class Number:
    """An unsigned number of so many bytes, from `least` to `most`."""

    size: int
    least: Size = 0
    most: Size | None = None

    def write(self, writer: Writer, value: int) -> None:
        """Write the number."""
        writer.number(value, self.size)

    def read(self, reader: Reader) -> int:
        """Read the number."""
        most = None if self.most is None else size_of(self.most, reader.context)
        value, least = reader.number(self.size, most), size_of(self.least, reader.context)
        if value < least:
            raise DecodingError(f"A number of the message must be at least {least}.")
        return value


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 of at most so many bytes."""

    most: int

    def write(self, writer: Writer, value: str) -> None:
        """Write the text."""
        writer.text(value, self.most)

    def read(self, reader: Reader) -> str:
        """Read the text."""
        return reader.text(self.most)


@dataclass(frozen=True, slots=True)
class OneOf(Generic[T]):
    """A value of another kind that is one of a few."""

    kind: Kind[T]
    values: Collection[T]

    def write(self, writer: Writer, value: T) -> None:
        """Write the value."""
        if value not in self.values:
            raise InputError(f"This field is one of {', '.join(map(repr, self.values))}.")
        self.kind.write(writer, value)

    def read(self, reader: Reader) -> T:
        """Read the value."""
        value = self.kind.read(reader)
        if value not in self.values:
            raise DecodingError(f"A field of the message is one of {', '.join(map(repr, self.values))}.")
        return value


@dataclass(frozen=True, slots=True)
class Converted(Generic[T, U]):
    """A value that travels as one of another kind: `to` makes that, `back` undoes it, strictly.

    Only what `to` writes is read: another spelling of the same value is refused.
    """

    kind: Kind[U]
    to: Callable[[T], U]
    back: Callable[[U], T]
    what: str

    def write(self, writer: Writer, value: T) -> None:
        """Write what the value becomes."""
        self.kind.write(writer, self.to(value))

    def read(self, reader: Reader) -> T:
        """Read a value back."""
        travelled = self.kind.read(reader)
        try:
            value = self.back(travelled)
            again = self.to(value)
        except DecodingError:
            raise
        except (
            MasqueradeError,
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ):
            raise DecodingError(f"{self.what} cannot be read.") from None
        if again != travelled:
            raise DecodingError(f"{self.what} is not in its canonical form.")
        return value


@dataclass(frozen=True, slots=True)
class PointOf:
    """A point of a group, never the identity."""

    group: Group

    def write(self, writer: Writer, value: Point) -> None:
        """Write the point."""
        writer.point(value)

    def read(self, reader: Reader) -> Point:
        """Read the point."""
        return reader.point(self.group)


@dataclass(frozen=True, slots=True)
class ScalarOf:
    """A number below a group's order."""

    group: Group

    def write(self, writer: Writer, value: int) -> None:
        """Write the number."""
        writer.scalar(value, self.group)

    def read(self, reader: Reader) -> int:
        """Read the number."""
        return reader.scalar(self.group)


@dataclass(frozen=True, slots=True)
class Array:
    """Numbers as one little-endian array: at most `most` with the number of their bytes, or exactly `count`.

    Floating-point numbers must be finite.
    """

    dtype: str | Callable[[Any], Any]
    most: Size | None = None
    count: Size | None = None

    def write(self, writer: Writer, value: NDArray[Any]) -> None:
        """Write the numbers."""
        dtype = self._dtype(writer.context)
        data = np.ascontiguousarray(value, dtype=dtype).tobytes()
        if self.count is not None:
            writer.fixed(data, dtype.itemsize * size_of(self.count, writer.context))
        else:
            writer.varying(data, dtype.itemsize * size_of(self.most or 0, writer.context))

    def read(self, reader: Reader) -> NDArray[Any]:
        """Read the numbers; half a number, or one that is none, is refused."""
        dtype = self._dtype(reader.context)
        if self.count is not None:
            data = reader.fixed(dtype.itemsize * size_of(self.count, reader.context))
        else:
            data = reader.varying(dtype.itemsize * size_of(self.most or 0, reader.context))
        if len(data) % dtype.itemsize:
            raise DecodingError("An array of numbers ends inside a number.")
        numbers: NDArray[Any] = np.frombuffer(data, dtype=dtype)
        if dtype.kind == "f" and not np.all(np.isfinite(numbers)):
            raise DecodingError("An array of numbers holds one that is not finite.")
        return numbers.astype(dtype.newbyteorder("="), copy=False)

    def _dtype(self, context: object) -> np.dtype[Any]:
        found = self.dtype(context) if callable(self.dtype) else self.dtype
        return np.dtype(found).newbyteorder("<")


@dataclass(frozen=True, slots=True)
class Bits:
    """Exactly so many bits, the first one highest, padded with zeros."""

    count: Size

    def write(self, writer: Writer, value: Sequence[bool] | NDArray[np.bool_]) -> None:
        """Write the bits."""
        count = size_of(self.count, writer.context)
        writer.fixed(np.packbits(np.asarray(value, dtype=bool)).tobytes(), -(-count // 8))

    def read(self, reader: Reader) -> NDArray[np.bool_]:
        """Read the bits."""
        count = size_of(self.count, reader.context)
        bits = np.unpackbits(np.frombuffer(reader.fixed(-(-count // 8)), dtype=np.uint8)).astype(bool)
        if bits[count:].any():
            raise DecodingError("The bits after the last one must be zero.")
        return bits[:count]


def size_of(size: Size, context: object) -> int:
    """Return a size, which may follow from the context."""
    return size(context) if callable(size) else size
