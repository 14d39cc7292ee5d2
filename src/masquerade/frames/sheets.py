"""Tables of spreadsheets (Excel) and statistics programs (SPSS, Stata, SAS), as text like a CSV.

A value that has a label in the file is read as its label, and texts are written as labelled codes where the
program knows such. The libraries that read them are an extra: pip install 'masquerade[files]'.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.formatting import category_text
from masquerade.frames.cell_text import cell_text
from masquerade.frames.formats import Format, damaged, unreadable
from masquerade.frames.metadata import description_of
from masquerade.frames.statistics_process import StatisticsFile

VALUES_AT_ONCE = 1 << 20  # cells of a sheet that are held at a time
TEXT_AT_ONCE = 1 << 25  # characters of them
MOST_EXCEL_ROWS = (1 << 20) - 1  # beside the names
_LIBRARY = {Format.EXCEL: "openpyxl"}
_READERS = {".sav": "sav", ".zsav": "sav", ".dta": "dta", ".sas7bdat": "sas7bdat", ".xpt": "xport"}


class Sheet:
    """A sheet of texts: `batches` yields rows of some columns, from the start; empty cells are null."""

    schema: pa.Schema | None = None  # everything is text
    total_rows: int | None = None

    def __init__(self, path: str, kind: Format, names: Sequence[object], metadata: dict[str, str]) -> None:
        self.path, self.kind, self.metadata = path, kind, metadata
        self.names = tuple(str(name).strip() for name in names)
        twice = next((name for name, times in Counter(self.names).items() if times > 1), None)
        if twice is not None:
            raise FileError(f"{path}: two columns are called {twice!r}.")
        if not self.names:
            raise FileError(f"{path}: the first row of the sheet holds no names.")

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield at most `rows` rows at a time."""
        try:
            for part in self._parts(columns, rows):
                texts = [pa.array(map(cell_text, part[name]), pa.string()) for name in columns]
                yield pa.RecordBatch.from_arrays(texts, names=list(columns))
        except FileError:
            raise
        except OSError as error:
            raise unreadable(self.path, error) from None
        except Exception:  # noqa: BLE001  (a library's own, which may quote data)
            failed = True
        else:
            failed = False
        if failed:
            raise damaged(self.path, self.kind)

    def _parts(self, columns: Sequence[str], rows: int) -> Iterator[Mapping[str, Sequence[Any]]]:
        raise NotImplementedError


class _Excel(Sheet):
    """The first sheet of a workbook; formulas count as the values that they had when it was saved."""

    def __init__(self, path: str, metadata: dict[str, str], stack: ExitStack) -> None:
        _library(Format.EXCEL, path)
        from masquerade.frames.workbook import Workbook  # noqa: PLC0415  (needs the library)

        self._book = _opened(path, Format.EXCEL, lambda: Workbook(path))
        stack.callback(self._book.close)
        first = _opened(path, Format.EXCEL, lambda: next(self._book.rows(), {}))
        names = [first.get(place) for place in range(max(first, default=-1) + 1)]
        if any(name is None for name in names):
            raise FileError(f"{path}: a column of the first sheet has no name.")
        super().__init__(path, Format.EXCEL, names, metadata)

    def _parts(self, columns: Sequence[str], rows: int) -> Iterator[Mapping[str, Sequence[Any]]]:
        places = [self.names.index(name) for name in columns]
        filled = self._book.rows(range(len(self.names)))
        next(filled, None)
        for some in _in_parts(filled, rows_at_once(len(self.names), rows)):
            yield {
                name: [row.get(place) for row in some] for name, place in zip(columns, places, strict=True)
            }


def _in_parts(rows: Iterator[Mapping[int, Any]], most: int) -> Iterator[list[Mapping[int, Any]]]:
    """Yield rows in lists, each of at most `most` rows and a bounded text: cells may share one long text."""
    some: list[Mapping[int, Any]] = []
    length = 0
    for row in rows:
        some.append(row)
        length += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(some) >= most or length >= TEXT_AT_ONCE:
            yield some
            some, length = [], 0
    if some:
        yield some


class _Statistics(Sheet):
    """A table of SPSS, Stata or SAS, whose missing values are empty and whose labels replace codes."""

    def __init__(self, path: str, kind: Format, metadata: dict[str, str]) -> None:
        ending = Path(path).suffix.lower()
        if find_spec("pyreadstat") is None:
            raise _library_missing("pyreadstat", kind, path)
        catalogue = Path(path).with_suffix(".sas7bcat")
        labels = catalogue if ending == ".sas7bdat" and catalogue.exists() else None
        self._file = StatisticsFile(path, kind, _READERS[ending], labels)
        about = self._file.describe()
        super().__init__(path, kind, about["names"], metadata)
        self.total_rows = about["rows"]
        self._given = dict(zip(self.names, about["names"], strict=True))
        self._widths = dict(zip(self.names, about["widths"], strict=True))

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield at most `rows` rows at a time."""
        width = sum(max(self._widths[name], 8) for name in columns)
        most = max(1, min(rows_at_once(len(columns), rows), 8 * TEXT_AT_ONCE // max(width, 1)))
        for batch in self._file.batches([self._given[name] for name in columns], most):
            yield batch.rename_columns(list(columns))


def rows_at_once(columns: int, most: int) -> int:
    """Return the number of rows that are held at a time: fewer of a wide sheet."""
    return max(1, min(most, VALUES_AT_ONCE // max(columns, 1)))


def sheet_of(path: str, kind: Format, metadata: dict[str, str], stack: ExitStack) -> Sheet:
    """Open a sheet."""
    if not Path(path).is_file():
        raise unreadable(path, FileNotFoundError(2, "no such file"))
    return _Excel(path, metadata, stack) if kind is Format.EXCEL else _Statistics(path, kind, metadata)


class SheetSink:
    """Takes batches and writes them as one sheet in the end."""

    def __init__(self, kind: Format, stream: IO[bytes], schema: pa.Schema, name: str) -> None:
        self._kind, self._stream, self._schema, self._name = kind, stream, schema, name
        self._library, self._parts = _library(kind, name), list[pa.RecordBatch]()
        if name.lower().endswith(".sas7bdat"):
            raise FileError(f"{name}: only SAS itself writes .sas7bdat; write .xpt, which SAS reads.")

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Keep a batch."""
        self._parts.append(batch)

    def close(self) -> None:
        """Write the sheet."""
        table = pa.Table.from_batches(self._parts, self._schema)
        if self._kind is Format.EXCEL:
            self._write_excel(table)
            return
        with tempfile.TemporaryDirectory(prefix="masquerade-") as folder:
            made = Path(folder) / f"sheet{Path(self._name).suffix.lower()}"
            self._write_statistics(table, str(made))
            with made.open("rb") as content:
                shutil.copyfileobj(content, self._stream)

    def _write_excel(self, table: pa.Table) -> None:
        if len(table) > MOST_EXCEL_ROWS:
            raise FileError(
                f"{self._name}: a sheet holds {MOST_EXCEL_ROWS:,} rows; write a .csv or .parquet."
            )
        book = self._library.Workbook(write_only=True)
        sheet = book.create_sheet("data")
        cell = import_module("openpyxl.cell").WriteOnlyCell

        def written(value: Any) -> Any:
            if not (isinstance(value, str) and value.startswith("=")):
                return value
            made = cell(sheet, value)
            made.data_type = "s"  # text, not a formula
            return made

        sheet.append([written(name) for name in table.column_names])
        for batch in table.to_batches():
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                sheet.append([written(value) for value in row])
        book.save(self._stream)

    def _write_statistics(self, table: pa.Table, path: str) -> None:
        writer = getattr(self._library, f"write_{_READERS[Path(path).suffix]}")
        labelled = self._kind in {Format.SPSS, Format.STATA}
        columns, labels, about = {}, {}, {}
        for name in table.column_names:
            values = table.column(name)
            if pa.types.is_boolean(values.type):
                values = pa.chunked_array(
                    [[None if v is None else category_text(v) for v in values.to_pylist()]]
                )
            if labelled and pa.types.is_string(values.type):
                about[name], ordered = description_of(self._schema.field(name))
                known = ordered or sorted({one for one in values.unique().to_pylist() if one is not None})
                labels[name] = dict(enumerate(known, start=1))
                codes = {label: code for code, label in labels[name].items()}
                values = pa.chunked_array([[codes.get(value) for value in values.to_pylist()]], pa.int32())
            columns[name] = values
        frame = pa.table(columns).to_pandas()
        more: dict[str, Any] = {"variable_value_labels": labels} if labelled else {}
        if any(about.values()):
            more["column_labels"] = [_short(about.get(name, ""), self._kind) or None for name in frame]
        more |= {"compress": True} if path.endswith(".zsav") else {}
        try:
            writer(frame, path, **more)
        except Exception:  # noqa: BLE001  (a library's own, which may quote data)
            failed = True
        else:
            failed = False
        if failed:
            raise FileError(
                f"{self._name}: {self._kind.value} cannot hold these columns (are the names plain letters "
                "and digits, and not too long?); write a .csv or .parquet."
            )


def _short(label: str, kind: Format) -> str:
    """Return as much of a label as a program takes: 80 characters in Stata, 256 bytes in SPSS."""
    if kind is Format.STATA:
        return label[:80]
    return label.encode()[:250].decode(errors="ignore")


def _library(kind: Format, path: str) -> Any:
    name = _LIBRARY.get(kind, "pyreadstat")
    try:
        return import_module(name)
    except ImportError:
        raise _library_missing(name, kind, path) from None


def _library_missing(name: str, kind: Format, path: str) -> InputError:
    return InputError(f"{path}: {kind.value} files need {name}: pip install 'masquerade[files]'")


def _opened(path: str, kind: Format, read: Any) -> Any:
    found = None
    try:
        found = read()
    except FileError:
        raise
    except OSError as error:
        if error.errno:
            raise unreadable(path, error) from None
    except Exception:  # noqa: BLE001  (a library's own, which may quote data)
        found = None
    if found is None:
        raise damaged(path, kind)
    return found
