"""Columns as an Arrow IPC stream: one batch of exactly the expected columns, decoded strictly.

Every Arrow library can write and read these bytes. Received bytes are parsed here: every offset is checked
against its bounds, and the claimed size of a compressed buffer is compared with the expected size before it
is decompressed. Arrow's own reader never sees untrusted bytes.

Reference: Arrow columnar format 1.5, "Serialization and Interprocess Communication (IPC)"; FlatBuffers
internals, "Tables".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyarrow import ipc

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError

_CONTINUED = b"\xff\xff\xff\xff"
_END = _CONTINUED + bytes(4)
_LARGEST_METADATA = 1 << 22
_ALIGNED = 64  # writers may pad a buffer to a multiple of this size
_INT, _FIXED_SIZE_BINARY = 2, 15  # members of the union of types
_SCHEMA, _RECORD_BATCH = 1, 3  # members of the union of headers
_VERSION = 4  # format V5
_ZSTD, _BY_BUFFER = 1, 0


def column(name: str, kind: pa.DataType) -> pa.Field:
    """Return a column that has no missing values."""
    return pa.field(name, kind, nullable=False)


def pack(batch: pa.RecordBatch) -> bytes:
    """Return a record batch as an Arrow IPC stream, its buffers compressed.

    >>> schema = pa.schema([column("a", pa.uint8())])
    >>> data = pack(pa.record_batch([pa.array([3, 1], pa.uint8())], schema=schema))
    >>> unpack(data, most_bytes=100, most_rows=2, schema=schema)["a"].to_pylist()
    [3, 1]
    """
    for field in batch.schema:
        _width(field)
    sink = pa.BufferOutputStream()
    options = ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)
    with ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def unpack(data: bytes, *, most_bytes: int, most_rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return the only batch of a stream; raise `DecodingError` for any other content.

    The batch has the columns of `schema` and no other ones, no missing values, at most `most_rows` rows, and
    at most `most_bytes` bytes once decompressed.
    """
    head, at, body = _message(data, 0, _SCHEMA)
    if body:
        raise DecodingError("The schema message of an Arrow stream must not have a body.")
    _check_schema(head, schema)
    head, at, size = _message(data, at, _RECORD_BATCH)
    if data[at + size :] != _END:
        raise DecodingError("An Arrow stream must have one batch and end after it.")
    rows = head.number(0, 8)
    if not 0 <= rows <= most_rows:
        raise DecodingError(f"A batch has at most {most_rows:,} rows. The stream announces {rows:,}.")
    places = _places(head, rows, schema, memoryview(data)[at : at + size])
    if sum(place.size for place in places) > most_bytes:
        raise DecodingError(f"A batch takes at most {most_bytes:,} bytes. The stream announces more.")
    codec = _codec(head)
    arrays = [
        pa.Array.from_buffers(field.type, rows, [None, place.content(codec)])
        for field, place in zip(schema, places, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Place(NamedTuple):
    """Position and actual or claimed size of a column's values in the body."""

    stored: memoryview
    size: int
    compressed: bool

    @classmethod
    def of(cls, stored: memoryview, *, prefixed: bool) -> _Place:
        """Return the position of a buffer. A prefix has its decompressed size, −1 if it is not compressed."""
        claimed = int.from_bytes(stored[:8], "little", signed=True) if prefixed else -1
        values = stored[8:] if prefixed else stored
        return cls(values, len(values) if claimed == -1 else claimed, claimed != -1)

    def content(self, codec: pa.Codec | None) -> pa.Buffer:
        """Return the values, decompressed into exactly the announced size."""
        if codec is None or not self.compressed:
            return pa.py_buffer(bytes(self.stored[: self.size]))  # a copy: aligned, whatever the offset was
        try:
            return codec.decompress(pa.py_buffer(self.stored), self.size)
        except (pa.ArrowException, OSError, ValueError):
            raise DecodingError("A column of an Arrow stream cannot be decompressed.") from None


def _message(data: bytes, at: int, kind: int) -> tuple[_Table, int, int]:
    """Return the header of a message, and the start and size of its body; all are within the data."""
    size = int.from_bytes(data[at + 4 : at + 8], "little")
    begin, end = at + 8, at + 8 + size
    if data[at : at + 4] != _CONTINUED or size % 8 or not 8 <= size <= _LARGEST_METADATA or end > len(data):
        raise DecodingError("An Arrow stream lacks an expected message.")
    metadata = data[begin:end]
    message = _Table(metadata, _read(metadata, 0, 4))
    body = message.number(3, 8)
    if message.number(0, 2) != _VERSION or message.number(1, 1) != kind or message.has(4):
        raise DecodingError("An Arrow stream has a message of an unexpected kind or version.")
    if not 0 <= body <= len(data) - end:
        raise DecodingError("An Arrow stream ends inside a message.")
    return message.table(2), end, body


def _check_schema(head: _Table, schema: pa.Schema) -> None:
    fields = head.tables(1, len(schema))
    if head.number(0, 2) != 0 or head.has(2) or len(fields) != len(schema):
        raise DecodingError("An Arrow stream has unexpected columns.")
    for field, due in zip(fields, schema, strict=True):
        kind, width = field.number(2, 1), field.table(3)
        if kind == _INT:
            found = ("int" if width.number(1, 1) else "uint", width.number(0, 4) // 8)
        else:
            found = ("binary" if kind == _FIXED_SIZE_BINARY else "other", width.number(0, 4))
        extra = field.has(4) or field.has(6) or bool(field.tables(5, 0)) or field.number(1, 1)
        if extra or found != _width(due) or field.text(0) != due.name.encode():
            raise DecodingError(f"An Arrow stream lacks column {due.name!r} at its position.")


def _places(head: _Table, rows: int, schema: pa.Schema, body: memoryview) -> list[_Place]:
    """Return the positions of the columns; a validity buffer must be empty, and nothing may overlap."""
    nodes, buffers = head.pairs(1, len(schema)), head.pairs(2, 2 * len(schema))
    if any(node != (rows, 0) for node in nodes) or head.has(4):
        raise DecodingError("A column of an Arrow stream has the wrong number of rows, or missing values.")
    places, reached = [], 0
    for field, validity, (offset, length) in zip(schema, buffers[::2], buffers[1::2], strict=True):
        if validity[1] != 0 or not reached <= offset <= offset + length <= len(body):
            raise DecodingError("A column of an Arrow stream lies outside its message.")
        reached = offset + length
        place = _Place.of(body[offset:reached], prefixed=head.has(3) and length > 0)
        due = rows * _width(field)[1]
        if not due <= place.size < due + _ALIGNED:
            raise DecodingError("A column of an Arrow stream does not have the size of its rows.")
        places.append(place)
    return places


def _codec(head: _Table) -> pa.Codec | None:
    if not head.has(3):
        return None
    compression = head.table(3)
    if (compression.number(0, 1), compression.number(1, 1)) != (_ZSTD, _BY_BUFFER):
        raise DecodingError("An Arrow stream must be compressed by zstd, buffer by buffer.")
    return pa.Codec("zstd")


def _width(field: pa.Field) -> tuple[str, int]:
    """Return the type of a column's values and their size in bytes; other types are not supported."""
    kind = field.type
    if field.nullable or not (pa.types.is_integer(kind) or pa.types.is_fixed_size_binary(kind)):
        raise InputError(
            f"Column {field.name!r} must contain whole numbers or fixed bytes, without missing values."
        )
    if pa.types.is_fixed_size_binary(kind):
        return "binary", kind.byte_width
    return "int" if pa.types.is_signed_integer(kind) else "uint", kind.bit_width // 8


def _read(data: bytes, at: int, size: int) -> int:
    """Return a signed little-endian number; nothing is read outside the data."""
    if not 0 <= at <= len(data) - size:
        raise DecodingError("The metadata of an Arrow stream points outside itself.")
    return int.from_bytes(data[at : at + size], "little", signed=size > 1)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a FlatBuffer: fields by their number, found through the table's list of offsets."""

    data: bytes
    at: int

    def _field(self, number: int) -> int:
        """Return the position of a field; 0 if it is absent."""
        offsets = self.at - _read(self.data, self.at, 4)
        size = _read(self.data, offsets, 2)
        place = 4 + 2 * number
        if size < 4 or place + 2 > size:
            return 0
        relative = _read(self.data, offsets + place, 2)
        return self.at + relative if relative > 0 else 0

    def has(self, number: int) -> bool:
        """Return True if a field is present."""
        return self._field(number) != 0

    def number(self, number: int, size: int) -> int:
        """Return a number of `size` bytes; 0 if the field is absent."""
        at = self._field(number)
        return _read(self.data, at, size) if at else 0

    def _behind(self, number: int) -> int:
        """Return the target of a field's offset."""
        at = self._field(number)
        if not at:
            raise DecodingError("The metadata of an Arrow stream lacks a field.")
        return at + (_read(self.data, at, 4) & 0xFFFFFFFF)

    def table(self, number: int) -> _Table:
        """Return the table that a field points to."""
        return _Table(self.data, self._behind(number))

    def _vector(self, number: int, count: int) -> int:
        """Return the position of a vector's entries; it must have `count` of them."""
        at = self._behind(number)
        if _read(self.data, at, 4) != count:
            raise DecodingError("An Arrow stream has an unexpected number of columns.")
        return at + 4

    def tables(self, number: int, count: int) -> list[_Table]:
        """Return a vector of `count` tables; an absent vector is empty."""
        if count == 0 and not self.has(number):
            return []
        first = self._vector(number, count)
        places = range(first, first + 4 * count, 4)
        return [_Table(self.data, at + (_read(self.data, at, 4) & 0xFFFFFFFF)) for at in places]

    def pairs(self, number: int, count: int) -> list[tuple[int, int]]:
        """Return a vector of `count` pairs of 64-bit numbers."""
        first = self._vector(number, count) if count else 0
        places = range(first, first + 16 * count, 16)
        return [(_read(self.data, at, 8), _read(self.data, at + 8, 8)) for at in places]

    def text(self, number: int) -> bytes:
        """Return the bytes of a text."""
        at = self._behind(number)
        size = _read(self.data, at, 4)
        if not 0 <= size <= len(self.data) - at - 4:
            raise DecodingError("The metadata of an Arrow stream points outside itself.")
        return self.data[at + 4 : at + 4 + size]
