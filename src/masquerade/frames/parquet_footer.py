"""Parse the footer of an untrusted Parquet file: its row groups and their column chunks.

If the description of a column chunk contradicts the schema, `RowGroupMetaData.column` of pyarrow ends the
process, since the C++ exception is not caught. So this method is never called.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from pyarrow import parquet

from masquerade.core.errors import FileError
from masquerade.frames import thrift
from masquerade.frames.thrift import ThriftReader

_TYPES = (
    "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY",
)  # fmt: skip
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4_HADOOP", "ZSTD", "LZ4")
_END = struct.Struct("<I4s")  # the footer's length, and the magic bytes of a file with a clear footer
_MARK = b"PAR1"
_ROW_GROUPS = 4  # field of the footer
_COLUMNS, _ROWS = 1, 3  # fields of a row group
_META_DATA, _ENCRYPTION = 3, 8  # fields of a column chunk
_NUMBERS = {  # numeric fields of the metadata of a column chunk
    1: thrift.INT32, 4: thrift.INT32, 5: thrift.INT64, 6: thrift.INT64, 7: thrift.INT64, 9: thrift.INT64,
    11: thrift.INT64,
}  # fmt: skip
_TYPE, _CODEC, _VALUES, _UNPACKED, _PACKED, _FIRST_PAGE, _DICTIONARY = _NUMBERS
_SIZE_STATISTICS = 16
_TEXT_BYTES, _REPETITIONS, _DEFINITIONS = 1, 2, 3  # fields of the size statistics


class ColumnChunk(NamedTuple):
    """Description of a column chunk; fields are named as in pyarrow, and `column` is the schema's column."""

    column: Any
    compression: str
    num_values: int
    total_uncompressed_size: int
    total_compressed_size: int
    data_page_offset: int
    dictionary_page_offset: int
    has_dictionary_page: bool


def read_row_groups(
    path: str, source: Any, metadata: parquet.FileMetaData
) -> Iterator[tuple[int, list[ColumnChunk]]]:
    """Yield the number of rows and the column chunks of each row group.

    Raises
    ------
    FileError
        If columns are encrypted.
    ValueError
        If the footer is damaged or contradicts the schema.
    """
    size = source.size()
    length, mark = _END.unpack(source.read_at(_END.size, size - _END.size))
    if mark != _MARK or length > size - _END.size:
        raise ValueError
    reader = ThriftReader(source.read_at(length, size - _END.size - length))
    columns = [metadata.schema.column(number) for number in range(len(metadata.schema))]
    try:
        count = 0
        for field, kind in reader.fields():
            if field != _ROW_GROUPS:
                reader.skip(kind)
                continue
            for _ in range(_count(reader, kind, thrift.STRUCT)):
                yield _read_row_group(path, reader, columns)
                count += 1
    except IndexError:
        raise ValueError from None
    if count != metadata.num_row_groups:
        raise ValueError


def _read_row_group(path: str, reader: ThriftReader, columns: list[Any]) -> tuple[int, list[ColumnChunk]]:
    chunks: list[ColumnChunk] = []
    rows = -1
    for field, kind in reader.fields():
        if field == _COLUMNS:
            if _count(reader, kind, thrift.STRUCT) != len(columns):
                raise ValueError
            chunks = [_read_chunk(path, reader, column) for column in columns]
        elif field == _ROWS:
            rows = _number(reader, kind, thrift.INT64)
        else:
            reader.skip(kind)
    if rows < 0 or len(chunks) != len(columns):
        raise ValueError
    return rows, chunks


def _read_chunk(path: str, reader: ThriftReader, column: Any) -> ColumnChunk:
    """Return a column chunk; raise FileError if it is encrypted, ValueError if it has no description."""
    chunk = None
    for field, kind in reader.fields():
        if field == _ENCRYPTION:
            raise FileError(
                f"{path}: columns of this Parquet file are encrypted. Write it without encryption."
            )
        if field == _META_DATA and kind == thrift.STRUCT:
            chunk = _read_description(reader, column)
        else:
            reader.skip(kind)
    if chunk is None:
        raise ValueError
    return chunk


def _read_description(reader: ThriftReader, column: Any) -> ColumnChunk:
    """Return the description of a column chunk; raise ValueError if it contradicts the schema."""
    numbers = dict[int, int]()
    for field, kind in reader.fields():
        if field in _NUMBERS:
            numbers[field] = _number(reader, kind, _NUMBERS[field])
        elif field == _SIZE_STATISTICS:
            _check_size_statistics(reader, kind, column)
        else:
            reader.skip(kind)
    dictionary = numbers.pop(_DICTIONARY, None)
    if len(numbers) != len(_NUMBERS) - 1 or numbers[_CODEC] >= len(_CODECS):
        raise ValueError
    if numbers[_TYPE] >= len(_TYPES) or _TYPES[numbers[_TYPE]] != column.physical_type:
        raise ValueError
    return ColumnChunk(
        column,
        _CODECS[numbers[_CODEC]],
        numbers[_VALUES],
        numbers[_UNPACKED],
        numbers[_PACKED],
        numbers[_FIRST_PAGE],
        dictionary or 0,
        dictionary is not None,
    )


def _check_size_statistics(reader: ThriftReader, kind: int, column: Any) -> None:
    """Raise `ValueError`, as Arrow does, if histograms of levels contradict the column."""
    if kind != thrift.STRUCT:
        raise ValueError
    levels = {_REPETITIONS: column.max_repetition_level, _DEFINITIONS: column.max_definition_level}
    for field, inner in reader.fields():
        if field in levels:
            count = _count(reader, inner, thrift.INT64)
            if count not in (0, levels[field] + 1):
                raise ValueError
            for _ in range(count):
                reader.read_varint()
        else:
            if field == _TEXT_BYTES and column.physical_type != "BYTE_ARRAY":
                raise ValueError
            reader.skip(inner)


def _number(reader: ThriftReader, kind: int, expected: int) -> int:
    """Return a number; raise ValueError if it is negative, of a wrong type, or too long for Arrow."""
    number = reader.read_signed() if kind == expected else -1
    if number < 0 or (expected == thrift.INT32 and number >= 1 << 31):
        raise ValueError
    return number


def _count(reader: ThriftReader, kind: int, expected: int) -> int:
    """Return the number of elements of a list that has this type of elements."""
    count, inner = reader.read_list() if kind == thrift.LIST else (0, -1)
    if inner != expected and count:
        raise ValueError
    return count
