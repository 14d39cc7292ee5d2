"""Messages as bytes: fields that are declared once, with one canonical encoding, and strict decoding.

A message is a frozen dataclass with a tag that names its type and version. The annotation of a field
determines its encoding::

    class Join(Message, tag=b"masquerade parties join 1"):
        key: Key                                        # Annotated[bytes, Fixed(32)]
        roster: Annotated[tuple[Name, ...], Many(1000)]
        limit: U32 | None = None

Annotated types contain a *kind*: an object with `write` and `read`. Tuples, mappings, optional values,
enumerations, booleans and other declared classes (`Struct`, which has no tag) need only their type.
Conditions on several fields are checked by `__post_init__`, which raises `InputError`.

Every value has exactly one encoding: bytes that decode are encoded to the same bytes again. Invalid bytes
raise `DecodingError`. Numbers are big-endian and of fixed width; byte strings of varying length are preceded
by their length, lists by their count. Some sizes follow from data that both sides have already (a roster, the
length of a batch). These data are the `context` of `encode` and `decode`: a size may be a function of it, and
a kind finds it in its writer or reader.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum, StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self, TypeVar, dataclass_transform

from masquerade.core.errors import InputError, MasqueradeError
from masquerade.core.util.bit_flags import pack_bits, unpack_bits
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import SCALAR_SIZE, Group, Point
from masquerade.crypto.keys import KEY_SIZE, SIGNATURE_SIZE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
M = TypeVar("M", bound="Message")
Size = int | Callable[[Any], int]
_LENGTH = 4
_BAD = (MasqueradeError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_LONGEST_TAG = 255

SESSION_SIZE, DIGEST_SIZE = 16, 32
MOST_PARTIES = 1000
LONGEST_NAME = 200
LONGEST_TEXT = 1 << 24


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
        """Write bytes without a length."""
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

    def done(self) -> bytes:
        """Return the message."""
        return b"".join(self._parts)


class Reader:
    """Reads the fields of a message in order; `done` raises an error if bytes remain.

    It never reads past the end, and never accepts a count above its bound or above the number of remaining
    bytes.
    """

    __slots__ = ("_at", "_data", "context")

    def __init__(self, data: bytes, context: object = None) -> None:
        self._data, self._at, self.context = bytes(data), 0, context

    @property
    def left(self) -> int:
        """Return the number of unread bytes."""
        return len(self._data) - self._at

    def number(self, size: int, most: int | None = None) -> int:
        """Read an unsigned number of `size` bytes, at most `most` if given."""
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
        data, self._at = self._data[self._at : end], end
        return data

    def count(self, most: int, unit: str) -> int:
        """Read the number of entries that follow: at most `most`, and at most the remaining bytes."""
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

    def done(self) -> None:
        """Raise DecodingError if bytes follow the last field."""
        if self.left:
            raise DecodingError(f"The message has {self.left} more bytes after its last field.")


class FieldKind(Protocol[T]):
    """Encoding of one field; a kind with `over` receives the type of its entries."""

    def write(self, writer: Writer, value: T, /) -> None:
        """Write the field."""

    def read(self, reader: Reader, /) -> T:
        """Read the field; invalid bytes raise `DecodingError`."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Exactly `size` bytes."""

    size: Size

    def write(self, writer: Writer, value: bytes) -> None:
        writer.fixed(value, _size(self.size, writer))

    def read(self, reader: Reader) -> bytes:
        return reader.fixed(_size(self.size, reader))


@dataclass(frozen=True, slots=True)
class Blob:
    """At most `most` bytes; with `sizes`, one of these numbers of bytes."""

    most: int
    sizes: tuple[int, ...] = ()

    def write(self, writer: Writer, value: bytes) -> None:
        writer.varying(value, self.most)

    def read(self, reader: Reader) -> bytes:
        value = reader.varying(self.most)
        if self.sizes and len(value) not in self.sizes:
            raise DecodingError(f"A field has {' or '.join(map(str, self.sizes))} bytes. Got {len(value)}.")
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """An unsigned number of `size` bytes, at most `most`."""

    size: int
    most: int | None = None

    def write(self, writer: Writer, value: int) -> None:
        writer.number(value, self.size)

    def read(self, reader: Reader) -> int:
        return reader.number(self.size, self.most)


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 of at most `most` bytes."""

    most: int

    def write(self, writer: Writer, value: str) -> None:
        writer.text(value, self.most)

    def read(self, reader: Reader) -> str:
        return reader.text(self.most)


@dataclass(frozen=True, slots=True)
class OneOf:
    """A value of another kind, limited to a few values."""

    kind: FieldKind[Any]
    values: Collection[Any]

    def write(self, writer: Writer, value: Any) -> None:
        if value not in self.values:
            raise InputError(f"This field is one of {', '.join(map(repr, self.values))}.")
        self.kind.write(writer, value)

    def read(self, reader: Reader) -> Any:
        value = self.kind.read(reader)
        if value not in self.values:
            names = ", ".join(map(repr, self.values))
            raise DecodingError(f"A field of the message is one of {names}. Got {value!r} instead.")
        return value


@dataclass(frozen=True, slots=True)
class Converted:
    """A value that is sent as a value of another kind: `to` converts it, `back` converts it back.

    Only the output of `to` is accepted: a different encoding of the same value is refused.
    """

    kind: FieldKind[Any]
    to: Callable[[Any], Any]
    back: Callable[[Any], Any]
    what: str

    def write(self, writer: Writer, value: Any) -> None:
        self.kind.write(writer, self.to(value))

    def read(self, reader: Reader) -> Any:
        travelled = self.kind.read(reader)
        try:
            value = self.back(travelled)
            again = self.to(value)
        except DecodingError:
            raise
        except _BAD:
            raise DecodingError(f"{self.what} cannot be read.") from None
        if again != travelled:
            raise DecodingError(f"{self.what} is not in its canonical form.")
        return value


def point_of(group: Group) -> FieldKind[Point]:
    """Return the kind of a point of a group, never the identity."""
    return Converted(Fixed(group.point_size), lambda point: point.encode(), group.decode, "A point")


def scalar_of(group: Group) -> FieldKind[int]:
    """Return the kind of a number below a group's order."""
    return Converted(Fixed(SCALAR_SIZE), group.encode_scalar, group.decode_scalar, "A scalar")


@dataclass(frozen=True, slots=True)
class Array:
    """Numbers as one little-endian array: exactly `count`, or at most `most` after their length in bytes.

    Floating-point numbers must be finite.
    """

    dtype: str | Callable[[Any], Any]
    most: Size = 0
    count: Size | None = None

    def write(self, writer: Writer, value: NDArray[Any]) -> None:
        import numpy as np  # noqa: PLC0415  (a device's messages have no arrays)

        dtype = self._dtype(writer.context)
        data = np.ascontiguousarray(value, dtype=dtype).tobytes()
        if self.count is not None:
            writer.fixed(data, dtype.itemsize * _size(self.count, writer))
        else:
            writer.varying(data, dtype.itemsize * _size(self.most, writer))

    def read(self, reader: Reader) -> NDArray[Any]:
        import numpy as np  # noqa: PLC0415  (a device's messages have no arrays)

        dtype = self._dtype(reader.context)
        if self.count is not None:
            data = reader.fixed(dtype.itemsize * _size(self.count, reader))
        else:
            data = reader.varying(dtype.itemsize * _size(self.most, reader))
        if len(data) % dtype.itemsize:
            raise DecodingError("An array of numbers ends inside a number.")
        numbers: NDArray[Any] = np.frombuffer(data, dtype=dtype)
        if dtype.kind == "f" and not np.all(np.isfinite(numbers)):
            raise DecodingError("An array of numbers contains a number that is not finite.")
        return numbers.astype(dtype.newbyteorder("="), copy=False)

    def _dtype(self, context: object) -> np.dtype[Any]:
        import numpy as np  # noqa: PLC0415  (a device's messages have no arrays)

        found = self.dtype(context) if callable(self.dtype) else self.dtype
        return np.dtype(found).newbyteorder("<")


@dataclass(frozen=True, slots=True)
class Bits:
    """Exactly `count` bits, the first one highest, padded with zeros."""

    count: Size

    def write(self, writer: Writer, value: Sequence[bool]) -> None:
        count = _size(self.count, writer)
        writer.fixed(pack_bits(value), -(-count // 8))

    def read(self, reader: Reader) -> list[bool]:
        count = _size(self.count, reader)
        bits = unpack_bits(reader.fixed(-(-count // 8)))
        if any(bits[count:]):
            raise DecodingError("The bits after the last one must be zero.")
        return bits[:count]


@dataclass(frozen=True, slots=True)
class Many:
    """At most `most` entries of a tuple or mapping, preceded by their number; the annotation has their type.

    The entries of a mapping are pairs in its own order, without duplicates.
    """

    most: int
    kind: Any = None
    mapped: bool = False

    def over(self, hint: Any) -> Many:
        if issubclass(typing.get_origin(hint) or object, Mapping):
            return replace(self, kind=_Row(tuple(map(kind_of, typing.get_args(hint)))), mapped=True)
        return replace(self, kind=kind_of(_entry(hint)))

    def write(self, writer: Writer, value: Any) -> None:
        if len(value) > self.most:
            raise InputError(f"This list has at most {self.most} entries. Got {len(value)} instead.")
        writer.number(len(value), _LENGTH)
        for entry in value.items() if self.mapped else value:
            self.kind.write(writer, entry)

    def read(self, reader: Reader) -> Any:
        entries = tuple([self.kind.read(reader) for _ in range(reader.count(self.most, "entries"))])
        if not self.mapped:
            return entries
        if len(found := dict(entries)) < len(entries):
            raise DecodingError("A mapping of the message has an entry twice.")
        return found


@dataclass(frozen=True, slots=True)
class Run:
    """Exactly `count` entries of a tuple; both sides know their number."""

    count: Size
    kind: Any = None

    def over(self, hint: Any) -> Run:
        return replace(self, kind=kind_of(_entry(hint)))

    def write(self, writer: Writer, value: Sequence[Any]) -> None:
        count = _size(self.count, writer)
        if len(value) != count:
            raise InputError(f"This list has {count} entries. Got {len(value)}.")
        for entry in value:
            self.kind.write(writer, entry)

    def read(self, reader: Reader) -> tuple[Any, ...]:
        count = _size(self.count, reader)
        if count > reader.left:
            raise DecodingError(f"The message needs {count} entries and has {reader.left} bytes left.")
        return tuple([self.kind.read(reader) for _ in range(count)])


@dataclass(frozen=True, slots=True)
class Enclosed:
    """A complete message inside another message, with its tag, of at most `most` bytes."""

    most: int
    message: Any = None

    def over(self, hint: Any) -> Enclosed:
        return replace(self, message=hint)

    def write(self, writer: Writer, value: Message) -> None:
        writer.varying(value.encode(writer.context), self.most)

    def read(self, reader: Reader) -> Any:
        return self.message.decode(reader.varying(self.most), reader.context)


def _enumerate(members: Any) -> FieldKind[Any]:
    """Return the kind of an enumeration's members: a number in one byte, or a text."""
    kind = Number(1) if issubclass(members, IntEnum) else Text(_LONGEST_TAG)
    few = OneOf(kind, [one.value for one in members])
    return Converted(few, lambda member: member.value, members, "A member of an enumeration")


@dataclass(frozen=True, slots=True)
class _Maybe:
    """A byte that states whether a value follows, then that value."""

    kind: FieldKind[Any]

    def write(self, writer: Writer, value: Any) -> None:
        writer.number(value is not None, 1)
        if value is not None:
            self.kind.write(writer, value)

    def read(self, reader: Reader) -> Any:
        return self.kind.read(reader) if reader.number(1, most=1) else None


@dataclass(frozen=True, slots=True)
class _Row:
    """Values of given kinds, in sequence."""

    kinds: tuple[FieldKind[Any], ...]

    def write(self, writer: Writer, value: Sequence[Any]) -> None:
        for kind, part in zip(self.kinds, value, strict=True):
            kind.write(writer, part)

    def read(self, reader: Reader) -> tuple[Any, ...]:
        return tuple([kind.read(reader) for kind in self.kinds])


@dataclass(frozen=True, slots=True)
class _Inline:
    """The fields of another declared class, in place."""

    declared: type[Struct]

    def write(self, writer: Writer, value: Struct) -> None:
        value.write(writer)

    def read(self, reader: Reader) -> Struct:
        return self.declared.read(reader)


class Struct:
    """A frozen dataclass whose fields are encoded in the order of their declaration."""

    def write(self, writer: Writer) -> None:
        """Write the fields in order."""
        for name, kind in _kinds_of(type(self)):  # type: ignore[arg-type]
            kind.write(writer, getattr(self, name))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields in order; invalid bytes raise `DecodingError`."""
        kinds = _kinds_of(cls)  # type: ignore[arg-type]
        return cls(**{name: kind.read(reader) for name, kind in kinds})


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Message(Struct):
    """A message of a protocol: a tag that names its type and version, then its fields."""

    TAG: ClassVar[bytes]

    def __init_subclass__(cls, *, tag: bytes = b"", eq: bool = True) -> None:
        if tag:
            cls.TAG = tag
            dataclass(frozen=True, eq=eq)(cls)

    def encode(self, context: object = None) -> bytes:
        """Return the message as bytes; sizes follow from `context`, which the reader has already."""
        writer = Writer(context)
        writer.varying(self.TAG, _LONGEST_TAG)
        self.write(writer)
        return writer.done()

    @classmethod
    def decode(cls, data: bytes, context: object = None) -> Self:
        """Return the message in these bytes; raise DecodingError if any bytes remain."""
        return cls.read_whole(Reader(data, context))

    @classmethod
    def read_whole(cls, reader: Reader) -> Self:
        """Return the message in the remaining bytes of a reader."""
        if reader.varying(_LONGEST_TAG) != cls.TAG:
            raise DecodingError(f"This is not a message of type {cls.TAG.decode()!r}.")
        try:
            message = cls.read(reader)
        except DecodingError:
            raise
        except InputError as error:  # the class of a field refuses its value
            raise DecodingError(str(error)) from error
        reader.done()
        return message


@dataclass(frozen=True, slots=True)
class SessionMessage(Message):
    """A message of one session, whose id is the first field."""

    session: Annotated[bytes, Fixed(SESSION_SIZE)]


def tag_of(message: bytes) -> bytes:
    """Return the tag of a message, which names its type."""
    return Reader(message[: _LENGTH + _LONGEST_TAG]).varying(_LONGEST_TAG)


def decode_any(message: bytes, kinds: Iterable[type[M]]) -> M:
    """Return a message of one of the given types, according to its tag."""
    tag = tag_of(message)
    for kind in kinds:
        if tag == kind.TAG:
            return kind.decode(message)
    raise DecodingError("This type of message is not accepted here.")


def kind_of(hint: Any) -> FieldKind[Any]:
    """Return the encoding of values of an annotated type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        kinds = [item for item in hint.__metadata__ if hasattr(item, "read") and hasattr(item, "write")]
        if not kinds:
            return kind_of(inner[0])
        over = getattr(kinds[-1], "over", None)
        return over(inner[0]) if over else kinds[-1]  # type: ignore[no-any-return]
    if len(inner) == 2 and type(None) in inner:
        return _Maybe(kind_of(inner[inner[0] is type(None)]))
    if origin is tuple and Ellipsis not in inner:
        return _Row(tuple(map(kind_of, inner)))
    for declared, kind in _BY_TYPE.items():
        if isinstance(hint, type) and issubclass(hint, declared):
            return kind(hint)
    raise TypeError(f"{hint} has no encoding: annotate it with a field type")


_BY_TYPE: dict[type, Callable[[Any], FieldKind[Any]]] = {
    Struct: _Inline,
    IntEnum: _enumerate,
    StrEnum: _enumerate,
    bool: lambda _: Converted(Number(1, most=1), int, bool, "A truth value"),
}


@cache
def _kinds_of(declared: type[Any]) -> tuple[tuple[str, FieldKind[Any]], ...]:
    hints = typing.get_type_hints(declared, include_extras=True)
    return tuple((item.name, kind_of(hints[item.name])) for item in fields(declared))


def _entry(hint: Any) -> Any:
    """Return the type of the entries of a tuple of any length."""
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is not tuple or len(inner) != 2 or inner[1] is not Ellipsis:
        raise TypeError(f"{hint} is not a tuple of variable length")
    return inner[0]


def _size(size: Size, at: Writer | Reader) -> int:
    return size(at.context) if callable(size) else size


U16 = Annotated[int, Number(2)]
U32 = Annotated[int, Number(4)]
U64 = Annotated[int, Number(8)]
Digest = Annotated[bytes, Fixed(DIGEST_SIZE)]
Key = Annotated[bytes, Fixed(KEY_SIZE)]
Signature = Annotated[bytes, Fixed(SIGNATURE_SIZE)]
Name = Annotated[str, Text(LONGEST_NAME)]
Names = Annotated[tuple[Name, ...], Many(MOST_PARTIES)]
