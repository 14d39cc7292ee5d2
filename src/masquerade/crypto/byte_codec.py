"""Messages as bytes: one canonical encoding each, read strictly.

Numbers are big-endian and of fixed width; byte strings of varying length carry their length; lists carry
their count. A `Reader` never reads past the end, never trusts a count beyond its bound, and refuses what is
left over, always by `DecodingError`. No field can be written in two ways: what decodes encodes to the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Self, TypeVar

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import SCALAR_SIZE, Group, Point

T = TypeVar("T")
_LENGTH = 4


class Writer:
    """Collects the fields of a message; `done` returns its bytes."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def number(self, value: int, size: int) -> None:
        """Write an unsigned number in `size` bytes."""
        if not 0 <= value < 1 << 8 * size:
            raise InputError(f"A number of {size} bytes must be at least 0 and below 2^{8 * size}.")
        self._parts.append(value.to_bytes(size, "big"))

    def fixed(self, value: bytes, size: int) -> None:
        """Write exactly `size` bytes."""
        if len(value) != size:
            raise InputError(f"This field has {size} bytes. Got {len(value)} instead.")
        self._parts.append(bytes(value))

    def varying(self, value: bytes, most: int) -> None:
        """Write at most `most` bytes, preceded by their number."""
        if len(value) > most:
            raise InputError(f"This field has at most {most} bytes. Got {len(value)} instead.")
        self.number(len(value), _LENGTH)
        self._parts.append(bytes(value))

    def text(self, value: str, most: int) -> None:
        """Write text as UTF-8 of at most `most` bytes."""
        try:
            encoded = value.encode()
        except UnicodeEncodeError as error:
            raise InputError("A text field must be valid Unicode.") from error
        self.varying(encoded, most)

    def point(self, value: Point) -> None:
        """Write a point, which must not be the identity."""
        self._parts.append(value.encode())

    def scalar(self, value: int, group: Group) -> None:
        """Write a number below the group's order."""
        self._parts.append(group.encode_scalar(value))

    def many(self, values: Iterable[T], most: int, write: Callable[[T], None]) -> None:
        """Write at most `most` values, preceded by their number."""
        listed = list(values)
        if len(listed) > most:
            raise InputError(f"This list has at most {most} entries. Got {len(listed)} instead.")
        self.number(len(listed), _LENGTH)
        for value in listed:
            write(value)

    def done(self) -> bytes:
        """Return the message."""
        return b"".join(self._parts)


class Reader:
    """Reads the fields of a message in order; `done` refuses bytes left over."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data, self._at = bytes(data), 0

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

    def varying(self, most: int) -> bytes:
        """Read a byte string of at most `most` bytes."""
        return self.fixed(self._count(most, "bytes"))

    def text(self, most: int) -> str:
        """Read UTF-8 text of at most `most` bytes."""
        try:
            return self.varying(most).decode()
        except UnicodeDecodeError:
            raise DecodingError("A text field is not valid UTF-8.") from None

    def point(self, group: Group) -> Point:
        """Read a point."""
        return group.decode(self.fixed(group.point_size))

    def scalar(self, group: Group) -> int:
        """Read a number below the group's order."""
        return group.decode_scalar(self.fixed(SCALAR_SIZE))

    def many(self, most: int, read: Callable[[], T]) -> tuple[T, ...]:
        """Read a list of at most `most` values."""
        return tuple([read() for _ in range(self._count(most, "entries"))])

    def done(self) -> None:
        """Refuse bytes after the last field."""
        left = len(self._data) - self._at
        if left:
            raise DecodingError(f"The message goes on for {left} bytes after its last field.")

    def _count(self, most: int, unit: str) -> int:
        count = self.number(_LENGTH)
        if count > most:
            raise DecodingError(f"A field has at most {most} {unit}. The message announces {count}.")
        return count


class Message(ABC):
    """A message of a protocol: a tag that names its kind and version, then its fields.

    A subclass sets `TAG` and says how its fields are written and read; `encode` and `decode` do the rest.
    """

    TAG: ClassVar[bytes]

    @abstractmethod
    def write(self, writer: Writer) -> None:
        """Write the fields in order."""

    @classmethod
    @abstractmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields in order; whatever is wrong with them is a `DecodingError`."""

    def encode(self) -> bytes:
        """Return the message as bytes."""
        writer = Writer()
        writer.varying(self.TAG, 255)
        self.write(writer)
        return writer.done()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the message that these bytes are, all of them and nothing else."""
        reader = Reader(data)
        if reader.varying(255) != cls.TAG:
            raise DecodingError(f"This is not a message of the kind {cls.TAG.decode()!r}.")
        try:
            message = cls.read(reader)
        except DecodingError:
            raise
        except InputError as error:  # a field that its own class refuses
            raise DecodingError(str(error)) from error
        reader.done()
        return message
