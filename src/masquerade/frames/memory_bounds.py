"""Memory limits of Parquet and Arrow files, checked from their headers before anything is decompressed.

A compressed page or buffer of a few kilobytes can expand to gigabytes, and a file without data can claim any
number of rows. Sizes in a footer may be wrong, so the checks read the same headers as the decompressor.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from masquerade.core.errors import FileError
from masquerade.frames import thrift
from masquerade.frames.formats import Format
from masquerade.frames.parquet_footer import ColumnChunk, read_row_groups
from masquerade.frames.thrift import ThriftReader, read_varint

MOST_PAGE = 1 << 27  # most bytes of a decompressed page of a Parquet column; DuckDB writes up to 100 MB
# most bytes decompressed at a time over all columns: `MOST_HELD`, or this multiple of the file size if larger
MOST_HELD = 1 << 28
MOST_RATIO = 16
MOST_ROWS = 1 << 36  # most rows of a file, because values of some types take no space at all
MOST_IN_BATCH = (1 << 31) - 1  # most rows of an Arrow batch, as Arrow recommends
_HEADER = 1 << 24  # most bytes of a page header, the same limit as in Arrow
_FIRST = 1 << 8  # bytes of a page header that are read first
_DEEPEST = 4  # deepest nesting of structures in a page header
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
# number of the header field that describes the values of a page, by page type
_HEADER_OF_DATA = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}
# number of its subfield that names the encoding
_ENCODING = {_DATA_PAGE: 2, _DICTIONARY_PAGE: 2, _DATA_PAGE_V2: 4}
_PLAIN, _OF_DICTIONARY, _DELTA_LENGTHS, _DELTA_TEXTS = 0, (2, 8), 6, 7  # encodings of text
_MOST_LOOKED_AT = 1 << 17  # most texts of a dictionary whose longest text is searched for
_MOST_IN_BLOCK = 1 << 20  # most numbers of a block; common writers use 128
_RUN_LENGTHS = 3  # encoding of levels that starts with their length
_SHORT = 1 << 10  # total bytes of a dictionary's texts below which their lengths are not read
_WIDTH = 16  # bytes that a value takes in memory, in addition to its text
_PADDING = 100  # bytes that Arrow reads beyond a column chunk of some old writers
_LEAST_PAGE = 8  # minimum bytes of a page with its header
_TRUTH = {thrift.TRUE: True, thrift.FALSE: False}
_INTEGERS = (thrift.INT16, thrift.INT32, thrift.INT64)
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # types of an Arrow message
_BLOCK = struct.Struct("<qi4xq")  # offset of a message, bytes of its header and of its body
_BUFFER = struct.Struct("<qq")  # offset of a buffer in the body, and its length in bytes


def check_rows(path: str, kind: Format, rows: int, most: int = MOST_ROWS) -> None:
    """Raise `FileError` if a file or a batch claims more rows than the limit."""
    if not 0 <= rows <= most:
        raise FileError(f"{path}: this {kind.value} file claims {rows:,} rows; at most {most:,} are read.")


def check_parquet(path: str, source: Any, known: parquet.FileMetaData, columns: Sequence[str]) -> int:
    """Return the number of rows of these columns that may be decoded together.

    It can be far below the number of rows in a page: with a dictionary, or a prefix that texts share, a few
    bytes of a page may represent a long text in every row.

    Raises
    ------
    FileError
        If decompressed pages exceed the memory limit.
    ValueError
        If the numbers of rows and of values contradict each other.
    """
    size, names, rows = source.size(), set(columns), 0
    left = size // _LEAST_PAGE  # most pages, if no column chunks overlap
    bytes_a_row: dict[str, int] = {}
    for group_rows, chunks in read_row_groups(path, source, known):
        rows, together = rows + group_rows, 0
        for chunk in chunks:
            column = chunk.column
            if column.path.split(".")[0] not in names and column.path not in names:
                continue
            is_flat = column.max_repetition_level == 0
            if is_flat and chunk.num_values != group_rows:
                raise ValueError
            chunk_pages = _ChunkPages(source, chunk)
            left -= chunk_pages.read(path, left)
            together += chunk_pages.largest
            # a row of lists may have all values of its row group
            value_total = chunk_pages.value_bytes * (1 if is_flat else chunk.num_values)
            if not is_flat and value_total > max(MOST_HELD, MOST_RATIO * size):
                raise _too_large(path, Format.PARQUET, f"lists of {value_total / 1e6:,.0f} MB", MOST_HELD)
            bytes_a_row[column.path] = max(value_total, bytes_a_row.get(column.path, 1))
        if together > max(MOST_HELD, MOST_RATIO * size):
            raise _too_large(path, Format.PARQUET, f"pages of {together / 1e6:,.0f} MB at a time", MOST_HELD)
    if rows != known.num_rows:
        raise ValueError
    return max(1, MOST_HELD // max(1, sum(bytes_a_row.values())))


class _ChunkPages:
    """Pages of a column chunk: size of the `largest`, and the most bytes per decoded value on average."""

    def __init__(self, source: Any, chunk: ColumnChunk) -> None:
        self._source, self._chunk, self._column = source, chunk, chunk.column
        self._is_text = self._column.physical_type == "BYTE_ARRAY"
        self._longest: int | None = None  # text of the dictionary
        self.largest = 0
        self.value_bytes = _WIDTH + (0 if self._is_text else max(0, self._column.length))

    def read(self, path: str, most: int) -> int:
        """Return the number of pages; raise ValueError above `most` pages, FileError for too large a page."""
        count = 0
        for header in page_headers(self._source, self._chunk, self._source.size()):
            count += 1
            if count > most:
                raise ValueError
            if header.unpacked > MOST_PAGE:
                what = f"a page of {header.unpacked / 1e6:,.0f} MB"
                raise _too_large(path, Format.PARQUET, what, MOST_PAGE)
            self._add(header)
        return count

    def _add(self, header: PageHeader) -> None:
        """Update the limits with a page."""
        self.largest = max(self.largest, header.unpacked)
        if not self._is_text:
            return
        if header.kind == _DICTIONARY_PAGE:
            self._longest = max(self._longest or 0, self._longest_in_dictionary(header))
            return
        if header.encoding in _OF_DICTIONARY:
            text = MOST_PAGE if self._longest is None else self._longest
        elif header.encoding in (_PLAIN, _DELTA_LENGTHS):
            text = -(-header.unpacked // max(1, header.values))
        else:
            text = header.unpacked
        if header.encoding in (_DELTA_LENGTHS, _DELTA_TEXTS):
            self._check_lengths(header)
        self.value_bytes = max(self.value_bytes, _WIDTH + text)

    def _longest_in_dictionary(self, header: PageHeader) -> int:
        """Return the length of the longest text, or an upper bound; each text is preceded by its length."""
        text = max(0, header.unpacked - 4 * header.values)
        if text <= _SHORT or header.values > _MOST_LOOKED_AT:
            return text
        content, place, longest = self._content(header), 0, 0
        for _ in range(header.values):
            (length,) = struct.unpack_from("<I", content, place)
            place, longest = place + 4 + length, max(longest, length)
        return longest

    def _check_lengths(self, header: PageHeader) -> None:
        """Raise ValueError if a page has more lengths than values: Arrow decodes all of them together."""
        if 4 * header.values > MOST_PAGE or not header.has_level_lengths:
            raise ValueError
        content, place = self._content(header), 0
        if header.kind == _DATA_PAGE:  # the levels come first, each with its length
            for level in (self._column.max_repetition_level, self._column.max_definition_level):
                if level:
                    place += 4 + struct.unpack_from("<I", content, place)[0]
        try:
            # lengths of the prefixes, then of the suffixes
            for _ in range(1 if header.encoding == _DELTA_LENGTHS else 2):
                place = _skip_deltas(content, place, header.values)
        except IndexError:
            raise ValueError from None

    def _content(self, header: PageHeader) -> bytes:
        """Return the content of a page, decompressed, without levels that are stored separately."""
        packed = self._source.read_at(header.packed, header.place + header.length)[header.levels :]
        codec, size = self._chunk.compression, header.unpacked - header.levels
        if codec != "UNCOMPRESSED" and header.is_packed and size:
            name = {"LZ4": "lz4_raw"}.get(codec, codec.lower())
            packed = pa.Codec(name).decompress(packed, decompressed_size=size, asbytes=True)
        if len(packed) != size:
            raise ValueError
        return bytes(packed)


def _skip_deltas(data: bytes, place: int, most: int) -> int:
    """Return the end of delta-encoded integers; raise ValueError if there are more than `most`."""
    block, place = read_varint(data, place)
    parts, place = read_varint(data, place)
    count, place = read_varint(data, place)
    _, place = read_varint(data, place)  # the first number
    if count > most or not 0 < parts <= block <= _MOST_IN_BLOCK:
        raise ValueError
    in_part, left = block // parts, count - 1
    while left > 0:
        _, place = read_varint(data, place)  # the least difference
        widths, place = data[place : place + parts], place + parts
        used = widths[: -(-left // in_part)]
        place += sum(widths[: len(used)]) * in_part // 8
        left -= block
    if place > len(data):
        raise ValueError
    return place


def check_arrow(path: str, source: Any) -> None:
    """Raise `FileError` if a batch or a dictionary of an Arrow file decompresses to more than the limit."""
    size = left = source.size()
    for start, head, body in _blocks(source, size):
        left -= head + body
        if left < 0:  # more than the file's bytes: some messages overlap
            raise ValueError
        together = sum(
            _unpacked_size(source, start + head, length)
            for length in _packed_buffers(source, start, head, body)
        )
        if together > max(MOST_HELD, MOST_RATIO * size):
            raise _too_large(path, Format.ARROW, f"a batch of {together / 1e6:,.0f} MB", MOST_HELD)


def check_views(path: str, size: int, column: pa.Array) -> None:
    """Raise `FileError` if the texts of a column exceed the memory limit: views may share one long text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        check_views(path, size, column.dictionary)
        return
    if not (pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)):
        if pa.types.is_nested(kind) and "_view" in str(kind):
            raise FileError(f"{path}: this Arrow file has lists of views; write lists of text.")
        return
    column.validate()
    _, views, *_ = column.buffers()
    lengths = np.frombuffer(views, dtype=np.uint32)[4 * column.offset : 4 * (column.offset + len(column)) : 4]
    together = int(lengths.sum(dtype=np.uint64))
    if together > max(MOST_HELD, MOST_RATIO * size):
        raise _too_large(path, Format.ARROW, f"texts of {together / 1e6:,.0f} MB", MOST_HELD)


def _too_large(path: str, kind: Format, what: str, most: int) -> FileError:
    return FileError(
        f"{path}: this {kind.value} file unpacks to {what}; at most {most >> 20} MiB are held. Write it with "
        "fewer rows in a batch, or as .csv."
    )


class PageHeader(NamedTuple):
    """A page header: its position and length, decompressed and compressed bytes of the page, and its values.

    In a dictionary page, which has no rows, `values` is the number of its texts. `levels` is the number of
    bytes of uncompressed levels. `has_level_lengths` is False if levels do not start with their length.
    """

    unpacked: int
    packed: int
    values: int
    length: int
    place: int
    kind: int
    encoding: int | None
    levels: int
    is_packed: bool
    has_level_lengths: bool


def page_headers(source: Any, chunk: Any, size: int) -> Iterator[PageHeader]:
    """Yield the page headers of a column chunk, at the same positions where Arrow reads them."""
    place = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < place:
        place = chunk.dictionary_page_offset
    values, end = 0, min(place + chunk.total_compressed_size + _PADDING, size)
    while values < chunk.num_values and place < end:
        header = _page_header(source, place, end)
        yield header
        values += 0 if header.kind == _DICTIONARY_PAGE else header.values
        place += header.length + header.packed


def _page_header(source: Any, place: int, end: int) -> PageHeader:
    """Return the header of the page at a position; more bytes are read only if the header is long."""
    read = _FIRST
    while True:
        data = source.read_at(min(read, end - place), place)
        try:
            reader = ThriftReader(data)
            fields, length = _structure(reader, _DEEPEST), reader.place
            break
        except IndexError:
            if read >= min(_HEADER, end - place):
                raise ValueError from None
            read <<= 4
    kind = _number(fields, 1)
    about = fields.get(_HEADER_OF_DATA[kind]) if kind in _HEADER_OF_DATA else None
    unpacked, packed = _number(fields, 2), _number(fields, 3)
    values, encoding, levels, is_packed, has_lengths = 0, None, 0, True, True
    if kind in _HEADER_OF_DATA:  # else the page has no values
        values, encoding = _number(about, 1), _number(about, _ENCODING[kind])
    if kind == _DATA_PAGE:
        has_lengths = _number(about, 3) == _number(about, 4) == _RUN_LENGTHS
    elif kind == _DATA_PAGE_V2:
        levels, is_packed = (
            _number(about, 5) + _number(about, 6),
            about is not None and about.get(7) is not False,
        )
        if levels > min(unpacked, packed):
            raise ValueError
    return PageHeader(unpacked, packed, values, length, place, kind, encoding, levels, is_packed, has_lengths)


def _number(fields: Any, field: int) -> int:
    """Return a number in a structure; raise ValueError if it is out of range: Arrow would truncate it."""
    number = fields.get(field) if isinstance(fields, dict) else None
    if type(number) is not int or not 0 <= number < 1 << 31:
        raise ValueError
    return number


def _structure(reader: ThriftReader, depth: int) -> dict[int, Any]:
    """Return the fields of a page's header that are numbers or structures."""
    if depth == 0:
        raise ValueError
    fields = dict[int, Any]()
    for field, kind in reader.fields():
        if kind in _TRUTH:
            fields[field] = _TRUTH[kind]
        elif kind in _INTEGERS:
            fields[field] = reader.read_signed()
        elif kind == thrift.STRUCT:
            fields[field] = _structure(reader, depth - 1)
        else:
            reader.skip(kind)
    return fields


class _Table:
    """A flatbuffer table: the positions of its fields."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - self._number("i", place)

    def _number(self, kind: str, place: int) -> int:
        if place < 0:
            raise ValueError
        number: int = struct.unpack_from(f"<{kind}", self._data, place)[0]
        return number

    def place(self, field: int) -> int | None:
        """Return the position of a field; None if it is missing."""
        entry = 4 + 2 * field
        if entry >= self._number("H", self._fields):
            return None
        offset = self._number("H", self._fields + entry)
        return self._place + offset if offset else None

    def byte(self, field: int) -> int:
        place = self.place(field)
        return 0 if place is None else self._number("B", place)

    def table(self, field: int) -> _Table | None:
        place = self.place(field)
        return None if place is None else _Table(self._data, place + self._number("I", place))

    def structures(self, field: int, form: struct.Struct) -> list[tuple[int, ...]]:
        place = self.place(field)
        if place is None:
            return []
        place += self._number("I", place)
        count, start = self._number("I", place), place + 4
        if start + count * form.size > len(self._data):
            raise ValueError
        return [form.unpack_from(self._data, start + i * form.size) for i in range(count)]


def _root(data: bytes) -> _Table:
    return _Table(data, struct.unpack_from("<I", data)[0])


def _blocks(source: Any, size: int) -> Iterator[tuple[int, ...]]:
    """Yield the positions of the dictionaries and batches of an Arrow file, according to its footer."""
    length = struct.unpack("<i", source.read_at(4, size - 10))[0]
    if not 0 < length <= size - 10:
        raise ValueError
    footer = _root(source.read_at(length, size - 10 - length))
    for field in (2, 3):
        yield from footer.structures(field, _BLOCK)


def _packed_buffers(source: Any, start: int, head: int, body: int) -> Iterator[int]:
    """Yield the positions of the compressed buffers in the body of a message."""
    if start < 0 or head < 8 or body < 0 or start + head > source.size():
        raise ValueError
    data = source.read_at(head, start)
    message = _root(data[8:] if data[:4] == b"\xff\xff\xff\xff" else data[4:])
    batch = message.table(2)
    if batch is not None and message.byte(1) == _DICTIONARY_BATCH:
        batch = batch.table(1)
    elif message.byte(1) != _RECORD_BATCH:
        raise ValueError
    if batch is None:
        raise ValueError
    if batch.place(3) is not None:
        yield from (place for place, length in batch.structures(2, _BUFFER) if length > 0)


def _unpacked_size(source: Any, body: int, place: int) -> int:
    """Return the decompressed size that a buffer states; 0 if it is not compressed (stated as −1)."""
    return max(0, int(struct.unpack("<q", source.read_at(8, body + place))[0]))
