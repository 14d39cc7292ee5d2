"""Parse untrusted Thrift structures (compact protocol) within limits.

Parquet describes files and pages in this format. Truncated data raises `IndexError`, other invalid data
`ValueError`.
"""

from __future__ import annotations

from collections.abc import Iterator

TRUE, FALSE, BYTE, INT16, INT32, INT64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
MOST_FIELDS = 32  # most fields of a structure
_DEEPEST = 16  # nesting of structures and lists
_WIDTHS = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8}  # bytes of an element of a list
_INTEGERS = (INT16, INT32, INT64)


class ThriftReader:
    """Reads values in sequence; `place` is the position of the next one."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self._data, self.place = data, place

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the type of each field; the caller reads or skips its value."""
        field = seen = 0
        for _ in range(MOST_FIELDS + 1):
            head = self._data[self.place]
            self.place += 1
            if head == 0:
                return
            field = field + (head >> 4) if head >> 4 else self.read_signed()
            # some readers let a second value of a field replace the first, others append it
            if not 0 < field < 1 << 15 or seen >> field & 1:
                raise ValueError
            seen |= 1 << field
            yield field, head & 15
        raise ValueError

    def read_list(self) -> tuple[int, int]:
        """Return the number of elements of a list and their type; the caller reads or skips each."""
        head = self._data[self.place]
        self.place += 1
        return self.read_varint() if head >> 4 == 15 else head >> 4, head & 15

    def read_varint(self) -> int:
        """Return an unsigned number."""
        number, self.place = read_varint(self._data, self.place)
        return number

    def read_signed(self) -> int:
        """Return a signed number of at most 64 bits."""
        number = self.read_varint()
        return (number >> 1) ^ -(number & 1)

    def skip(self, kind: int, depth: int = _DEEPEST) -> None:
        """Pass over the value of a field."""
        if kind not in (TRUE, FALSE):  # the type is the value
            self._skip_element(kind, depth)

    def _skip_element(self, kind: int, depth: int) -> None:
        """Pass over an element of a list."""
        if depth == 0:
            raise ValueError
        if kind in _INTEGERS:
            self.read_varint()
        elif kind in _WIDTHS:
            self.place += _WIDTHS[kind]
        elif kind == BINARY:
            length = self.read_varint()
            self.place += length
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth - 1)
        elif kind in (LIST, SET):
            count, inner = self.read_list()
            self._skip_elements(count, (inner,), depth - 1)
        elif kind == MAP:
            count = self.read_varint()
            if count:
                kinds = self._data[self.place]
                self.place += 1
                self._skip_elements(count, (kinds >> 4, kinds & 15), depth - 1)
        else:
            raise ValueError

    def _skip_elements(self, count: int, kinds: tuple[int, ...], depth: int) -> None:
        """Pass over `count` elements of these types each."""
        if count > len(self._data):
            raise ValueError
        for _ in range(count):
            for kind in kinds:
                self._skip_element(kind, depth)


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Return an unsigned number of at most 64 bits, and the position after it."""
    byte = data[place]
    if byte < 128:
        return byte, place + 1
    number = byte & 127
    for shift in range(7, 70, 7):
        place += 1
        byte = data[place]
        number |= (byte & 127) << shift
        if byte < 128:
            if number >> 64:
                break
            return number, place + 1
    raise ValueError
