"""How much memory Parquet and Arrow files may take: read from their headers, before anything is unpacked.

A compressed page or buffer of a few kilobytes can stand for gigabytes, and a number of rows for no data at
all. Sizes in a footer may be wrong, so the headers are read that the unpacking itself goes by.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyarrow import parquet

from masquerade.core.errors import FileError
from masquerade.frames.formats import Format

MOST_PAGE = 1 << 27  # bytes of an unpacked page of a Parquet column; DuckDB writes up to 100 MB
MOST_HELD = 1 << 28  # bytes that are unpacked at a time, of all columns together
MOST_RATIO = 16  # or this many times the size of the file, if that is more
MOST_ROWS = 1 << 36  # rows of a file: some types take no space at all
MOST_IN_BATCH = (1 << 31) - 1  # rows of an Arrow batch, as Arrow advises
_HEADER = 1 << 24  # bytes of a page's header: as many as Arrow reads
_FIRST = 1 << 8  # of them that are looked at first
_DEEPEST = 4  # structures within structures of a page's header
_MOST_FIELDS = 32  # of each
_HEADER_OF_DATA = {0: 5, 3: 8}  # the field about the data of a page, by its kind: others have no values
_PADDING = 100  # bytes that Arrow reads beyond a column chunk of some old writers
_LEAST_PAGE = 8  # bytes of a page with its header
_WIDTHS = {1: 0, 2: 0, 3: 1, 7: 8}  # bytes of Thrift's booleans (said by their kind), bytes and doubles
_INTEGERS, _BINARY, _STRUCT = (4, 5, 6), 8, 12  # a page's header has no lists
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # kinds of an Arrow message
_BLOCK = struct.Struct("<qi4xq")  # where a message begins, bytes of its head and of its body
_BUFFER = struct.Struct("<qq")  # where a buffer begins in the body, and its bytes


def check_rows(path: str, kind: Format, rows: int, most: int = MOST_ROWS) -> None:
    """Raise `FileError` if a file, or a batch of it, claims more rows than any has."""
    if not 0 <= rows <= most:
        raise FileError(f"{path}: this {kind.value} file claims {rows:,} rows; at most {most:,} are read.")


def check_parquet(path: str, source: Any, known: parquet.FileMetaData, columns: Sequence[str]) -> None:
    """Raise `FileError` if the pages of these columns of a Parquet file unpack to more than is held."""
    size, names = source.size(), set(columns)
    left = size // _LEAST_PAGE  # pages, if no column chunk lies over another
    for place in range(known.num_row_groups):
        group, together = known.row_group(place), 0
        for number in range(group.num_columns):
            chunk = group.column(number)
            if chunk.path_in_schema.split(".")[0] not in names and chunk.path_in_schema not in names:
                continue
            largest = 0
            for header in page_headers(source, chunk, size):
                largest, left = max(largest, header.unpacked), left - 1
                if left < 0:
                    raise ValueError
            if largest > MOST_PAGE:
                raise _too_large(path, Format.PARQUET, f"a page of {largest / 1e6:,.0f} MB", MOST_PAGE)
            together += largest
        if together > max(MOST_HELD, MOST_RATIO * size):
            raise _too_large(path, Format.PARQUET, f"pages of {together / 1e6:,.0f} MB at a time", MOST_HELD)


def check_arrow(path: str, source: Any) -> None:
    """Raise `FileError` if a batch or a dictionary of an Arrow file unpacks to more than is held."""
    size = left = source.size()
    for start, head, body in _blocks(source, size):
        left -= head + body
        if left < 0:  # one lies over another
            raise ValueError
        together = sum(
            _unpacked_size(source, start + head, length)
            for length in _packed_buffers(source, start, head, body)
        )
        if together > max(MOST_HELD, MOST_RATIO * size):
            raise _too_large(path, Format.ARROW, f"a batch of {together / 1e6:,.0f} MB", MOST_HELD)


def _too_large(path: str, kind: Format, what: str, most: int) -> FileError:
    return FileError(
        f"{path}: this {kind.value} file unpacks to {what}; at most {most >> 20} MiB are held. Write it with "
        "fewer rows in a batch, or as .csv."
    )


class PageHeader(NamedTuple):
    """What the header of a page says: bytes unpacked and packed, values, and the bytes of the header."""

    unpacked: int
    packed: int
    values: int
    length: int


def page_headers(source: Any, chunk: Any, size: int) -> Iterator[PageHeader]:
    """Yield the headers of the pages of a column chunk, as Arrow will find them."""
    place = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < place:
        place = chunk.dictionary_page_offset
    values, end = 0, min(place + chunk.total_compressed_size + _PADDING, size)
    while values < chunk.num_values and place < end:
        header = _page_header(source, place, end)
        yield header
        values += header.values
        place += header.length + header.packed


def _page_header(source: Any, place: int, end: int) -> PageHeader:
    """Return the header of the page at a place; more of the file is read only if it is a long one."""
    read = _FIRST
    while True:
        data = source.read_at(min(read, end - place), place)
        try:
            fields, length = _structure(data, 0, _DEEPEST)
            break
        except IndexError:
            if read >= min(_HEADER, end - place):
                raise ValueError from None
            read <<= 4
    about = _HEADER_OF_DATA.get(_number(fields, 1))
    values = 0 if about is None else _number(fields.get(about), 1)
    return PageHeader(_number(fields, 2), _number(fields, 3), values, length)


def _number(fields: Any, field: int) -> int:
    """Return a number of a structure; Arrow would cut off what does not fit, and find other pages than we."""
    number = fields.get(field) if isinstance(fields, dict) else None
    if not isinstance(number, int) or not 0 <= number < 1 << 31:
        raise ValueError
    return number


def _structure(data: bytes, place: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the numbers and structures in a Thrift structure (compact protocol), and where it ends."""
    if depth == 0:
        raise ValueError
    fields, field = dict[int, Any](), 0
    for _ in range(_MOST_FIELDS):
        head, place = data[place], place + 1
        if head == 0:
            return fields, place
        if head >> 4:
            field += head >> 4
        else:
            field, place = _read_signed(data, place)
        if field in fields or not 0 < field < 1 << 15:
            raise ValueError
        fields[field], place = _value(data, place, head & 15, depth)
    raise ValueError


def _value(data: bytes, place: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a value of a structure, if it is a number or a structure, and where it ends."""
    if kind in _WIDTHS:
        return None, place + _WIDTHS[kind]
    if kind in _INTEGERS:
        return _read_signed(data, place)
    if kind == _BINARY:
        length, place = _varint(data, place)
        return None, place + length
    if kind == _STRUCT:
        return _structure(data, place, depth - 1)
    raise ValueError


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte, place = data[place], place + 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, place
        if shift > 63:
            raise ValueError


def _read_signed(data: bytes, place: int) -> tuple[int, int]:
    number, place = _varint(data, place)
    return (number >> 1) ^ -(number & 1), place


class _Table:
    """A table of a flatbuffer: where its fields lie."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - self._number("i", place)

    def _number(self, kind: str, place: int) -> int:
        if place < 0:
            raise ValueError
        number: int = struct.unpack_from(f"<{kind}", self._data, place)[0]
        return number

    def place(self, field: int) -> int | None:
        """Return the place of a field, None if it is not there."""
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
    """Yield where the dictionaries and batches of an Arrow file lie, as its footer says."""
    length = struct.unpack("<i", source.read_at(4, size - 10))[0]
    if not 0 < length <= size - 10:
        raise ValueError
    footer = _root(source.read_at(length, size - 10 - length))
    for field in (2, 3):
        yield from footer.structures(field, _BLOCK)


def _packed_buffers(source: Any, start: int, head: int, body: int) -> Iterator[int]:
    """Yield where the compressed buffers of a message lie in its body."""
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
    """Return the size that a buffer says it unpacks to: 0 of one that is not packed (which says -1)."""
    return max(0, int(struct.unpack("<q", source.read_at(8, body + place))[0]))
