"""The first sheet of an Excel workbook, read as a stream within size limits.

A workbook is a ZIP archive of XML files (parts). A few megabytes can expand to gigabytes of cells, to an
endless row, or to a text that a million cells refer to. So sizes are checked before anything is decompressed,
and the sheet is read as a stream, one row at a time. The library openpyxl reads only small parts: the list of
sheets, and the styles, which tell dates from numbers.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any
from xml.parsers import expat

from openpyxl.reader.excel import SHARED_STRINGS, ExcelReader  # type: ignore[import-untyped]
from openpyxl.styles.stylesheet import apply_stylesheet  # type: ignore[import-untyped]
from openpyxl.utils.datetime import from_excel, from_ISO8601  # type: ignore[import-untyped]

from masquerade.core.errors import FileError

MOST_UNPACKED = 1 << 30  # most decompressed bytes of a part of the archive
MOST_RATIO = 50  # largest ratio of decompressed to compressed size, for parts above `SMALL`; real sheets: 20
SMALL = 1 << 25
MOST_HELD = 1 << 23  # most bytes of a part that is read as a whole, such as the styles
MOST_STRINGS = 1 << 20  # most texts that cells refer to
MOST_STRING_BYTES = 1 << 26  # most bytes of these texts together, as XML
MOST_COLUMNS = 1 << 14  # the limit of Excel
MOST_IN_CELL = 1 << 15
MOST_IN_ROW = 1 << 24  # characters
MOST_TEXT = 1 << 32  # most characters of a sheet; a text counts once for each cell that refers to it
MOST_DEPTH = 64
PIECE = 1 << 16
LONGEST_TOKEN = 1 << 21  # bytes of one tag
INSTEAD = "Save the sheet as .csv, which is read without such a bound."
_REFERENCE = re.compile(r"([A-Z]{1,3})([0-9]{1,18})")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

_TRUTH = {"0": False, "1": True, "false": False, "true": True}

Row = dict[int, Any]  # values of nonempty cells by column


class Archive(zipfile.ZipFile):
    """A ZIP archive whose parts are opened only if they are not too large."""

    def open(self, name: Any, mode: Any = "r", pwd: Any = None, *, force_zip64: bool = False) -> Any:
        """Open a part as a stream that ends at its stated size; raise FileError if that size is too large."""
        if mode == "r":
            part = name if isinstance(name, zipfile.ZipInfo) else self.getinfo(name)
            if part.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise ValueError
            if part.file_size > min(MOST_UNPACKED, max(SMALL, MOST_RATIO * part.compress_size)):
                raise self.too_large(
                    f"unpacks to {part.file_size / 1e6:,.0f} MB from {part.compress_size / 1e6:,.1f} MB; the "
                    f"limits are {MOST_UNPACKED >> 20:,} MiB and {MOST_RATIO} times the packed size"
                )
        return super().open(name, mode, pwd, force_zip64=force_zip64)

    def read(self, name: Any, pwd: bytes | None = None) -> bytes:
        """Return a part that is read as a whole, if it is small."""
        part = name if isinstance(name, zipfile.ZipInfo) else self.getinfo(name)
        if part.file_size > MOST_HELD:
            raise self.too_large(
                f"has {part.file_size / 1e6:,.0f} MB of styles or descriptions; at most "
                f"{MOST_HELD >> 20} MiB are read"
            )
        return super().read(name, pwd)

    def too_large(self, what: str) -> FileError:
        """Return an error about a workbook that exceeds a limit."""
        return FileError(f"{self.filename}: this workbook {what}. {INSTEAD}")


class Workbook:
    """An open workbook: `rows` yields the nonempty rows of its first sheet."""

    def __init__(self, path: str) -> None:
        self._archive = Archive(path)
        try:
            reader = ExcelReader(path, read_only=True, data_only=True, keep_links=False)
            reader.archive.close()
            reader.archive = self._archive
            reader.read_manifest()
            reader.read_workbook()
            self._book = apply_stylesheet(self._archive, reader.wb) or reader.wb
            strings = reader.package.find(SHARED_STRINGS)
            self._strings = [] if strings is None else self._texts(strings.PartName[1:])
            names = set(self._archive.namelist())
            self._sheet = next(
                rel.target
                for _, rel in reader.parser.find_sheets()
                if rel.target in names and "chartsheet" not in rel.Type
            )
        except BaseException:
            self._archive.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._archive.close()

    def rows(self, wanted: Collection[int] | None = None) -> Iterator[Row]:
        """Yield the nonempty rows from the start, with the requested columns or all."""
        chosen = None if wanted is None else frozenset(wanted)
        handler = _SheetHandler(self._value, chosen, self._archive)
        for piece in self._pieces(self._sheet, handler):
            yield from piece

    def _texts(self, name: str) -> list[str]:
        if self._archive.getinfo(name).file_size > MOST_STRING_BYTES:
            raise self._archive.too_large(f"has more than {MOST_STRING_BYTES >> 20} MiB of different texts")
        handler = _TextHandler(self._archive)
        return [text for piece in self._pieces(name, handler) for text in piece]

    def _pieces(self, name: str, handler: _Handler) -> Iterator[list[Any]]:
        """Yield the items that a handler finds in a part, piece by piece."""
        parser, fed = expat.ParserCreate(namespace_separator=" "), 0
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = handler.start, handler.end
        parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = handler.text, _refuse_declarations
        with self._archive.open(name) as stream:
            while piece := stream.read(PIECE):
                parser.Parse(piece, False)  # noqa: FBT003  (takes no names)
                fed += len(piece)
                if fed - parser.CurrentByteIndex > LONGEST_TOKEN:
                    raise self._archive.too_large("has a tag of megabytes")
                yield handler.take()
            parser.Parse(b"", True)  # noqa: FBT003
        yield handler.take()

    def _value(self, kind: str, style: int, text: str) -> Any:
        """Return the value of a cell, as openpyxl does."""
        if kind == "n":
            if not _NUMBER.fullmatch(text.strip()):
                raise ValueError
            number = float(text) if any(sign in text for sign in ".Ee") else int(text)
            if not math.isfinite(number):
                raise ValueError
            if style not in self._book._date_formats:  # noqa: SLF001  (openpyxl has no other name for them)
                return number
            timed = style in self._book._timedelta_formats  # noqa: SLF001
            try:
                return from_excel(number, self._book.epoch, timedelta=timed)
            except (OverflowError, ValueError):
                return "#VALUE!"
        if kind == "s":
            place = int(text)
            if place < 0:  # Python would index from the end
                raise ValueError
            return self._strings[place]
        if kind == "b":
            return _TRUTH[text.strip()]
        return from_ISO8601(text) if kind == "d" else text


class _Handler:
    """Collects the texts of `t` elements in XML, except phonetic guides (`rPh`)."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._depth = self._spoken = self._length = 0
        # namespace of the part: elements of other namespaces have other meanings
        self._namespace: str | None = None
        self._listens, self._parts, self._items = False, list[str](), list[Any]()

    def take(self) -> list[Any]:
        """Return the items collected since the last call."""
        items, self._items = self._items, []
        return items

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise ValueError
        namespace, _, name = tag.rpartition(" ")
        if self._namespace is None:
            self._namespace = namespace
        if namespace != self._namespace:
            return
        if name == "rPh":
            self._spoken += 1
        elif name == "t" and not self._spoken:
            self._listens = True
        else:
            self.begin(name, attributes)

    def end(self, tag: str) -> None:
        self._depth -= 1
        namespace, _, name = tag.rpartition(" ")
        if namespace != self._namespace:
            return
        if name == "rPh":
            self._spoken -= 1
        elif name in {"t", "v"}:
            self._listens = False
        else:
            self.finish(name)

    def text(self, data: str) -> None:
        if self._listens:
            self._parts.append(data)
            self._length += len(data)
            if self._length > MOST_IN_CELL:
                raise self._archive.too_large(f"has a text of more than {MOST_IN_CELL:,} characters")

    def begin(self, name: str, attributes: Mapping[str, str]) -> None:
        """Process the start of an element."""

    def finish(self, name: str) -> None:
        """Process the end of an element."""

    def _take_text(self) -> str:
        text, self._parts, self._length = "".join(self._parts), [], 0
        return text


class _TextHandler(_Handler):
    """Collects the texts that cells refer to."""

    _count = 0

    def finish(self, name: str) -> None:
        if name == "si":
            self._count += 1
            if self._count > MOST_STRINGS:
                raise self._archive.too_large(f"has more than {MOST_STRINGS:,} different texts")
            self._items.append(self._take_text().replace("x005F_", ""))


class _SheetHandler(_Handler):
    """Collects the rows of a sheet; refuses rows or cells out of order, which programs read differently."""

    def __init__(
        self, value_of: Callable[[str, int, str], Any], wanted: frozenset[int] | None, archive: Archive
    ) -> None:
        super().__init__(archive)
        self._value_of, self._wanted = value_of, wanted
        self._row: Row = {}
        self._column, self._kind, self._style = -1, "n", 0
        self._in_row = self._total = 0
        self._number, self._in_cell, self._has_value = 0, False, False
        self._inside = False  # True inside a row
        self._filled = False  # True if any cell has a value: then the row is a record, whatever was requested

    def begin(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "c":
            self._start_cell(attributes)
        elif name in {"v", "is"}:
            if self._has_value:
                raise ValueError
            self._has_value = self._in_cell
            self._listens = name == "v" and self._kind != "inlineStr"
        elif name == "row":
            number = int(attributes.get("r", self._number + 1))
            if self._inside or number <= self._number:
                raise ValueError
            self._inside, self._number, self._column = True, number, -1
        elif name == "sheetData" and self._number:
            raise ValueError

    def _start_cell(self, attributes: Mapping[str, str]) -> None:
        reference = attributes.get("r")
        number, column = self._number, self._column + 1
        if reference is not None:
            number, column = _place_of(reference)
        if self._in_cell or not self._inside or number != self._number or column <= self._column:
            raise ValueError
        if column >= MOST_COLUMNS:
            raise self._archive.too_large(f"has more than {MOST_COLUMNS:,} columns")
        self._column, self._in_cell, self._has_value = column, True, False
        self._kind, self._style = attributes.get("t", "n"), int(attributes.get("s", "0"))

    def finish(self, name: str) -> None:
        if name == "c":
            self._in_cell = self._has_value = False
            text = self._take_text()
            self._filled |= bool(text)
            if text and (self._wanted is None or self._column in self._wanted):
                value = self._value_of("str" if self._kind == "inlineStr" else self._kind, self._style, text)
                self._row[self._column] = value
                self._count_text(len(value) if isinstance(value, str) else 8)
        elif name == "row":
            if self._filled:
                self._items.append(self._row)
            self._row, self._in_row, self._filled, self._inside = {}, 0, False, False

    def _count_text(self, length: int) -> None:
        self._in_row += length
        self._total += length
        if self._in_row > MOST_IN_ROW:
            raise self._archive.too_large(f"has a row of more than {MOST_IN_ROW:,} characters")
        if self._total > MOST_TEXT:
            raise self._archive.too_large(f"has more than {MOST_TEXT:,} characters in its cells")


def _place_of(reference: str) -> tuple[int, int]:
    """Return the row number (from 1) and column number (from 0) of a reference like BC7."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise ValueError
    number = 0
    for letter in match.group(1):
        number = 26 * number + ord(letter) - ord("A") + 1
    return int(match.group(2)), number - 1


def _refuse_declarations(*_: object) -> None:
    raise ValueError("a workbook must not declare entities")
