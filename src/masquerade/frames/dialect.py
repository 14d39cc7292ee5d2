"""Dialect of a text file: separator, decimal mark and encoding, detected from a sample of the first rows.

Properties that the sample does not determine get the most common value: commas, decimal points, UTF-8.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from masquerade.core.errors import InputError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DECIMALS = {".": "decimal points", ",": "decimal commas"}
UTF8 = "utf-8"
SAMPLE = 500  # most rows of the sample
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: UTF8}
_WITH_COMMA = r"^[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?$"  # also 1.234.567,8
_COMMA_NUMBER = re.compile(_WITH_COMMA)
_COMMA_FRACTION = re.compile(r"^[+-]?[\d.]*\d,\d+$")
_POINT_FRACTION = re.compile(r"^[+-]?\d+\.(?:\d{1,2}|\d{4,})$")  # three digits may be thousands


@dataclass(frozen=True, slots=True)
class Dialect:
    r"""Format of a CSV file; None means that a property is detected.

    >>> Dialect().detect(b"name;share\nM\xfcller;0,5\nAdam;1,5\n")
    Dialect(separator=';', decimal=',', encoding='cp1252')
    """

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.separator is not None and self.separator in {"tab", "\\t"}:
            object.__setattr__(self, "separator", "\t")
        for what, given, known in (
            ("separator (--sep)", self.separator, [*SEPARATORS, "tab"]),
            ("decimal mark (--decimal)", self.decimal, DECIMALS),
        ):
            if given is not None and given not in known:
                raise InputError(f"The {what} is one of {'  '.join(known)}. Got {given!r} instead.")
        if self.separator is not None and self.separator == self.decimal:
            raise InputError("Fields and decimals cannot both be separated by commas.")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise InputError(
                    f"There is no text encoding {self.encoding!r}: use for example utf-8 or cp1252."
                ) from None

    @property
    def usual(self) -> bool:
        """Return True if this is the most common dialect."""
        return (self.separator, self.decimal, self.encoding) == (",", ".", UTF8)

    @property
    def words(self) -> str:
        """Return a description of the dialect."""
        fields = SEPARATORS.get(self.separator or "", "commas")
        letters = {UTF8: "UTF-8", "cp1252": "Windows-1252 (Latin-1)"}.get(self.encoding or "", self.encoding)
        return f"{fields} between fields, {DECIMALS[self.decimal or '.']}, {letters} text"

    def detect(self, start: bytes, *, whole: bool = True) -> Dialect:
        """Return the dialect of a file with these first bytes; `whole` states that they are all."""
        encoding = self.encoding or _encoding_of(start)
        text = start.decode(encoding, errors="replace").removeprefix("\ufeff")
        separator = self.separator or _separator_of(text, self.decimal, whole=whole)
        decimal = self.decimal
        if decimal is None:
            decimal = _decimal_of(_rows(text, separator, whole=whole)) if separator != "," else "."
        return replace(self, separator=separator, decimal=decimal, encoding=encoding)

    def comma_columns(self, start: bytes, *, whole: bool) -> frozenset[int]:
        """Return the indices of the columns in which most fields are numbers with decimal commas."""
        if self.decimal != ",":
            return frozenset()
        text = start.decode(self.encoding or UTF8, errors="replace").removeprefix("\ufeff")
        _, *rows = _rows(text, self.separator or ",", whole=whole) or [[]]
        return frozenset(place for place, column in enumerate(_columns(rows)) if _mostly_numbers(column))


def with_points(values: pa.Array) -> pa.Array:
    """Return texts with decimal commas of numbers replaced by points; other texts are unchanged.

    >>> with_points(pa.array(["1.234,5", "k. A.", None])).to_pylist()
    ['1234.5', 'k. A.', None]
    """
    import pyarrow.compute as pc  # noqa: PLC0415  (slow to import)

    numbers = pc.utf8_trim_whitespace(values)
    pointed = pc.replace_substring(pc.replace_substring(numbers, ".", ""), ",", ".")
    return pc.if_else(pc.match_substring_regex(numbers, _WITH_COMMA), pointed, values)


def _encoding_of(start: bytes) -> str:
    """Return the encoding by its byte order mark; else UTF-8 if the bytes are valid, else Windows-1252."""
    marked = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    if marked is not None:
        return marked
    try:
        codecs.getincrementaldecoder(UTF8)().decode(start)  # a character may be cut off at the end
    except UnicodeDecodeError:
        pass
    else:
        return UTF8
    if b"\0" in start:
        return UTF8  # not text at all: the reader raises the error
    try:
        start.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def _separator_of(text: str, decimal: str | None, *, whole: bool) -> str:
    """Return the separator that splits all rows of the sample into equally many fields.

    If there is none, return the separator that splits the first row into most fields.
    """
    best, most = ",", (False, 1)
    for separator in SEPARATORS:
        if separator == decimal:
            continue
        rows = _rows(text, separator, whole=whole)
        if not rows or len(rows[0]) < 2:
            continue
        even = all(len(row) == len(rows[0]) for row in rows)
        if best == "," and most[1] > 1 and (most[0] or not even):
            # commas are preferred, unless only this separator splits all rows into equally many fields
            continue
        if (even, len(rows[0])) > most:
            best, most = separator, (even, len(rows[0]))
    return best


def _decimal_of(rows: Sequence[Sequence[str]]) -> str:
    columns = [column for column in _columns(rows[1:]) if column]
    commas = any(_mostly_numbers(column) and any(map(_COMMA_FRACTION.match, column)) for column in columns)
    points = any(
        2 * sum(1 for field in column if _POINT_FRACTION.match(field)) > len(column) for column in columns
    )
    return "," if commas and not points else "."


def _mostly_numbers(column: Sequence[str]) -> bool:
    return bool(column) and 2 * sum(1 for field in column if _COMMA_NUMBER.match(field)) > len(column)


def _columns(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the nonempty fields of every column."""
    width = max(map(len, rows), default=0)
    return [[row[i].strip() for row in rows if i < len(row) and row[i].strip()] for i in range(width)]


def _rows(text: str, separator: str, *, whole: bool) -> list[list[str]]:
    """Return the first nonempty rows; unless `whole`, without the last row, which may be truncated."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            if row:
                rows.append(row)
            if len(rows) > SAMPLE:
                return rows
    except csv.Error:
        return rows
    return rows if whole or len(rows) < 2 else rows[:-1]
