"""Messages as bytes: declared by their fields, each with one canonical encoding, read strictly.

A message is a frozen dataclass with a `TAG` that names its kind and version; the annotation of a field says
how it is written and read::

    @dataclass(frozen=True, slots=True)
    class Join(Message):
        TAG: ClassVar[bytes] = b"masquerade parties join 1"
        key: Key                                        # Annotated[bytes, Fixed(32)]
        roster: Annotated[tuple[Name, ...], Many(1000)]
        limit: U32 | None = None

Annotated types carry a *kind*, anything with `write` and `read`. Tuples, mappings, optional values,
enumerations, truth values and other declared classes (`Struct`, which has no tag) need no more than their
types. What no single field can tell, `__post_init__` refuses by `InputError`.

No field can be written in two ways: what decodes encodes to the same bytes, and whatever else is wrong is a
`DecodingError`. Some sizes follow from what both sides know already (a roster, the length of a batch). That
is the `context` that `encode` and `decode` are given: a size may be a function of it, and a kind finds it in
its writer or reader.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum, StrEnum
from typing import (
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import KEY_SIZE, SIGNATURE_SIZE
from masquerade.protocols.field_kinds import (
    Array,
    Bits,
    Blob,
    Converted,
    Fixed,
    Kind,
    Number,
    OneOf,
    PointOf,
    Reader,
    Rest,
    ScalarOf,
    Size,
    Text,
    Writer,
    size_of,
)

__all__ = [
    "DIGEST_SIZE",
    "LONGEST_NAME",
    "LONGEST_TEXT",
    "MOST_PARTIES",
    "SESSION_SIZE",
    "U8",
    "U16",
    "U32",
    "U64",
    "Array",
    "Bits",
    "Blob",
    "Bundle",
    "Converted",
    "Digest",
    "Enclosed",
    "Fixed",
    "Key",
    "Kind",
    "LongText",
    "Many",
    "Message",
    "Name",
    "Names",
    "Number",
    "OneOf",
    "PointOf",
    "Reader",
    "Rest",
    "Run",
    "ScalarOf",
    "SessionMessage",
    "Signature",
    "Size",
    "Struct",
    "Text",
    "Words",
    "Writer",
    "check_session",
    "decoded",
    "kind_of",
    "kinds_of",
    "tag_of",
]

T = TypeVar("T")
M = TypeVar("M", bound="Message")
Words = NDArray[np.uint64]
_LONGEST_TAG = 255

SESSION_SIZE = 16
DIGEST_SIZE = 32
MOST_PARTIES = 1000
LONGEST_NAME = 200
LONGEST_TEXT = 1 << 24


@dataclass(frozen=True, slots=True)
class Many:
    """At most so many entries of a tuple or a mapping, with their number; what they are, its type says.

    The entries of a mapping are pairs in its own order, none of them twice.
    """

    most: int
    kind: Kind[Any] | None = None
    mapped: bool = False

    def over(self, hint: Any) -> Many:
        """Return this kind for the entries of a type."""
        if issubclass(get_origin(hint) or object, Mapping):
            return replace(self, kind=_Row(tuple(map(kind_of, get_args(hint)))), mapped=True)
        return replace(self, kind=kind_of(_entry(hint)))

    def write(self, writer: Writer, value: Any) -> None:
        """Write the entries with their number."""
        entries = value.items() if self.mapped else value
        writer.many(entries, self.most, lambda entry: _given(self.kind).write(writer, entry))

    def read(self, reader: Reader) -> Any:
        """Read the entries."""
        entries = reader.many(self.most, lambda: _given(self.kind).read(reader))
        if not self.mapped:
            return entries
        if len(found := dict(entries)) < len(entries):
            raise DecodingError("A mapping of the message has an entry twice.")
        return found


@dataclass(frozen=True, slots=True)
class Run:
    """Exactly so many entries of a tuple, one after the other, where both sides know how many."""

    count: Size
    kind: Kind[Any] | None = None

    def over(self, hint: Any) -> Run:
        """Return this kind for the entries of a type."""
        return replace(self, kind=kind_of(_entry(hint)))

    def write(self, writer: Writer, value: Sequence[Any]) -> None:
        """Write the entries."""
        if len(value) != size_of(self.count, writer.context):
            raise InputError(
                f"This list has {size_of(self.count, writer.context)} entries. Got {len(value)}."
            )
        for entry in value:
            _given(self.kind).write(writer, entry)

    def read(self, reader: Reader) -> tuple[Any, ...]:
        """Read the entries."""
        count = size_of(self.count, reader.context)
        if count > reader.left:
            raise DecodingError(f"The message needs {count} entries and has {reader.left} bytes left.")
        return tuple([_given(self.kind).read(reader) for _ in range(count)])


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bit for every slot, then the entries of the slots that have one: a tuple of values and None."""

    slots: Size
    kind: Kind[Any] | None = None

    def over(self, hint: Any) -> Bundle:
        """Return this kind for the entries of a type."""
        kind = kind_of(_entry(hint))
        return replace(self, kind=kind.kind if isinstance(kind, _Maybe) else kind)

    def write(self, writer: Writer, value: Sequence[Any]) -> None:
        """Write bits and entries."""
        if len(value) != size_of(self.slots, writer.context):
            raise InputError(
                f"This bundle has {size_of(self.slots, writer.context)} slots. Got {len(value)}."
            )
        Bits(len(value)).write(writer, [entry is not None for entry in value])
        for entry in value:
            if entry is not None:
                _given(self.kind).write(writer, entry)

    def read(self, reader: Reader) -> tuple[Any, ...]:
        """Read bits and entries."""
        there: list[bool] = Bits(self.slots).read(reader).tolist()
        return tuple([_given(self.kind).read(reader) if one else None for one in there])


@dataclass(frozen=True, slots=True)
class Enclosed:
    """A whole message inside another one, tag and all, of at most so many bytes."""

    most: int
    message: type[Message] | None = None

    def over(self, hint: Any) -> Enclosed:
        """Return this kind for messages of a type."""
        return replace(self, message=hint)

    def write(self, writer: Writer, value: Message) -> None:
        """Write the message with its length."""
        writer.varying(value.encode(writer.context), self.most)

    def read(self, reader: Reader) -> Message:
        """Read the message."""
        return _given(self.message).decode(reader.varying(self.most), reader.context)


@dataclass(frozen=True, slots=True)
class _Enumerated:
    """A member of an enumeration: of numbers in one byte, of texts by its text."""

    members: type[Any]

    def write(self, writer: Writer, value: IntEnum | StrEnum) -> None:
        if isinstance(value, IntEnum):
            writer.number(value, 1)
        else:
            writer.text(value, _LONGEST_TAG)

    def read(self, reader: Reader) -> IntEnum | StrEnum:
        value = reader.number(1) if issubclass(self.members, IntEnum) else reader.text(_LONGEST_TAG)
        try:
            member: IntEnum | StrEnum = self.members(value)
        except ValueError:
            names = ", ".join(str(one.value) for one in self.members)
            raise DecodingError(f"A field of the message is one of {names}. Got {value!r} instead.") from None
        return member


class _Truth:
    """A truth value in one byte."""

    def write(self, writer: Writer, value: bool) -> None:  # noqa: FBT001
        writer.number(value, 1)

    def read(self, reader: Reader) -> bool:
        return bool(reader.number(1, most=1))


@dataclass(frozen=True, slots=True)
class _Maybe:
    """A byte that tells whether a value follows, then that value."""

    kind: Kind[Any]

    def write(self, writer: Writer, value: Any) -> None:
        writer.number(value is not None, 1)
        if value is not None:
            self.kind.write(writer, value)

    def read(self, reader: Reader) -> Any:
        return self.kind.read(reader) if reader.number(1, most=1) else None


@dataclass(frozen=True, slots=True)
class _Row:
    """Values of given kinds, one after the other."""

    kinds: tuple[Kind[Any], ...]

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
    """Fields that are written and read as they are declared; a frozen dataclass."""

    def write(self, writer: Writer) -> None:
        """Write the fields in order."""
        for name, kind in kinds_of(type(self)):
            kind.write(writer, getattr(self, name))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields in order; whatever is wrong with them is a `DecodingError`."""
        return cls(**{name: kind.read(reader) for name, kind in kinds_of(cls)})


class Message(Struct):
    """A message of a protocol: a tag that names its kind and version, then its fields."""

    TAG: ClassVar[bytes]

    def encode(self, context: object = None) -> bytes:
        """Return the message as bytes; `context` is what sizes follow from, known to the reader already."""
        writer = Writer(context)
        self.write_head(writer)
        self.write(writer)
        return writer.done()

    @classmethod
    def decode(cls, data: bytes, context: object = None) -> Self:
        """Return the message that these bytes are, all of them and nothing else."""
        return cls.read_whole(Reader(data, context))

    @classmethod
    def read_whole(cls, reader: Reader) -> Self:
        """Return the message that a reader holds, to its end."""
        cls.read_head(reader)
        try:
            message = cls.read(reader)
        except DecodingError:
            raise
        except InputError as error:  # a field that its own class refuses
            raise DecodingError(str(error)) from error
        reader.done()
        return message

    @classmethod
    def write_head(cls, writer: Writer) -> None:
        """Write what a message begins with: its tag."""
        writer.varying(cls.TAG, _LONGEST_TAG)

    @classmethod
    def read_head(cls, reader: Reader) -> None:
        """Refuse a message that does not begin so."""
        if reader.varying(_LONGEST_TAG) != cls.TAG:
            raise DecodingError(f"This is not a message of the kind {cls.TAG.decode()!r}.")


@dataclass(frozen=True, slots=True)
class SessionMessage(Message):
    """A message of one session, which it names first."""

    session: Annotated[bytes, Fixed(SESSION_SIZE)]


def tag_of(message: bytes) -> bytes:
    """Return the tag that says what kind of message this is."""
    return Reader(message[: 4 + _LONGEST_TAG]).varying(_LONGEST_TAG)


def decoded(message: bytes, kinds: Iterable[type[M]]) -> M:
    """Return a message that is of one of some kinds, told by its tag."""
    tag = tag_of(message)
    for kind in kinds:
        if tag == kind.TAG:
            return kind.decode(message)
    raise DecodingError("This is not a message of a kind that is taken here.")


def kinds_of(declared: type[Any]) -> tuple[tuple[str, Kind[Any]], ...]:
    """Return the fields of a declared class with their kinds, in order."""
    if declared not in _DECLARED:
        hints = get_type_hints(declared, include_extras=True)
        _DECLARED[declared] = tuple((item.name, kind_of(hints[item.name])) for item in fields(declared))
    return _DECLARED[declared]


_DECLARED: dict[type, tuple[tuple[str, Kind[Any]], ...]] = {}


def kind_of(hint: Any) -> Kind[Any]:
    """Return how values of an annotated type are written and read."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kinds = [item for item in hint.__metadata__ if hasattr(item, "read") and hasattr(item, "write")]
        if not kinds:
            return kind_of(inner[0])
        over = getattr(kinds[-1], "over", None)
        return over(inner[0]) if over else kinds[-1]  # type: ignore[no-any-return]
    if origin in {Union, types.UnionType} and len(inner) == 2 and type(None) in inner:
        return _Maybe(kind_of(inner[inner[0] is type(None)]))
    if origin is tuple and Ellipsis not in inner:
        return _Row(tuple(map(kind_of, inner)))
    for declared, kind in _BY_TYPE.items():
        if isinstance(hint, type) and issubclass(hint, declared):
            return kind(hint)
    raise TypeError(f"{hint} says not how it is written: annotate it with a kind")


_BY_TYPE: dict[type, Callable[[Any], Kind[Any]]] = {
    Struct: _Inline,
    IntEnum: _Enumerated,
    StrEnum: _Enumerated,
    bool: lambda _: _Truth(),
}


def _entry(hint: Any) -> Any:
    """Return what the entries of a tuple of any length are."""
    inner = get_args(hint)
    if get_origin(hint) is not tuple or len(inner) != 2 or inner[1] is not Ellipsis:
        raise TypeError(f"{hint} is no tuple of any length")
    return inner[0]


def _given(part: T | None) -> T:
    if part is None:
        raise TypeError("this kind is told by the annotation of a field what its entries are")
    return part


U8 = Annotated[int, Number(1)]
U16 = Annotated[int, Number(2)]
U32 = Annotated[int, Number(4)]
U64 = Annotated[int, Number(8)]
Digest = Annotated[bytes, Fixed(DIGEST_SIZE)]
Key = Annotated[bytes, Fixed(KEY_SIZE)]
Signature = Annotated[bytes, Fixed(SIGNATURE_SIZE)]
Name = Annotated[str, Text(LONGEST_NAME)]
LongText = Annotated[str, Text(LONGEST_TEXT)]
Names = Annotated[tuple[Name, ...], Many(MOST_PARTIES)]


def check_session(session: bytes, due: bytes) -> None:
    """Refuse a message of another session."""
    if session != due:
        raise InputError("The message belongs to another session.")
