"""Tables of spreadsheets (Excel) and statistics programs (SPSS, Stata, SAS), as text like a CSV.

A value that has a label in the file is read as its label, and texts are written as labelled codes if the
format supports labels. The libraries that read these files are an extra: pip install 'masquerade[files]'.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from string import ascii_lowercase
from textwrap import wrap
from typing import IO, Any

import pyarrow as pa

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.formatting import category_text
from masquerade.core.util.frame_marks import DISGUISED, DISGUISED_VALUE
from masquerade.frames.cell_text import cell_text
from masquerade.frames.formats import Format, damage_error, sidecar_of, unreadable
from masquerade.frames.metadata import description_of, missing_of, schema_metadata
from masquerade.frames.statistics_process import StatisticsFile, check_transport

VALUES_AT_ONCE = 1 << 20  # most cells of a sheet in memory
TEXT_AT_ONCE = 1 << 25  # most characters of these cells
MOST_EXCEL_ROWS = (1 << 20) - 1  # most rows of an Excel sheet below the row of names
_LIBRARY = {Format.EXCEL: "openpyxl"}
_LONGEST_VALUE_LABEL = 120  # bytes of the label of a value in SPSS
_FILE_LABEL = "Disguised: do not tabulate as it is"  # SAS takes 40 characters
_LABELLED = (Format.SPSS, Format.STATA)  # formats that label values
_READERS = {".sav": "sav", ".zsav": "sav", ".dta": "dta", ".sas7bdat": "sas7bdat", ".xpt": "xport"}


class TextSheet:
    """A sheet as text: `batches` yields rows of some columns, from the start; empty cells are null.

    `missing_kinds` has, by column, the labels of values that the file marks as missing. `missing_texts` has
    the labels among them that are read as text; the others are read as empty cells.
    """

    schema: pa.Schema | None = None  # everything is text
    total_rows: int | None = None
    missing_kinds: Mapping[str, list[str]] = {}
    missing_texts: Mapping[str, Sequence[str]] = {}

    def __init__(self, path: str, kind: Format, names: Sequence[object], metadata: dict[str, str]) -> None:
        self.path, self.kind, self.metadata = path, kind, metadata
        self.names = tuple(str(name).strip() for name in names)
        twice = next((name for name, times in Counter(self.names).items() if times > 1), None)
        if twice is not None:
            raise FileError(f"{path}: two columns are called {twice!r}.")
        if not self.names:
            raise FileError(f"{path}: the first row of the sheet has no names.")

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
        except Exception:  # noqa: BLE001  (errors of the library may quote data)
            failed = True
        else:
            failed = False
        if failed:
            raise damage_error(self.path, self.kind)

    def _parts(self, columns: Sequence[str], rows: int) -> Iterator[Mapping[str, Sequence[Any]]]:
        raise NotImplementedError


class _Excel(TextSheet):
    """The first sheet of a workbook; a formula has the value stored when the workbook was saved."""

    def __init__(self, path: str, metadata: dict[str, str], stack: ExitStack) -> None:
        _library(Format.EXCEL, path)
        from masquerade.frames.workbook import Workbook  # noqa: PLC0415  (needs the library)

        self._book = _open_workbook(path, Format.EXCEL, lambda: Workbook(path))
        stack.callback(self._book.close)
        first = _open_workbook(path, Format.EXCEL, lambda: next(self._book.rows(), {}))
        names = [first.get(place) for place in range(max(first, default=-1) + 1)]
        if any(name is None for name in names):
            raise FileError(f"{path}: a column of the first sheet has no name.")
        super().__init__(path, Format.EXCEL, names, metadata)

    def _parts(self, columns: Sequence[str], rows: int) -> Iterator[Mapping[str, Sequence[Any]]]:
        places = [self.names.index(name) for name in columns]
        filled = self._book.rows(range(len(self.names)))
        next(filled, None)  # the row of names
        for some in _in_parts(filled, rows_at_once(len(self.names), rows)):
            yield {
                name: [row.get(place) for row in some] for name, place in zip(columns, places, strict=True)
            }


def _in_parts(rows: Iterator[Mapping[int, Any]], most: int) -> Iterator[list[Mapping[int, Any]]]:
    """Yield lists of at most `most` rows with a bounded amount of text: cells may share one long text."""
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


class _Statistics(TextSheet):
    """A table of SPSS, Stata or SAS: labels replace codes, and missing values are empty cells."""

    def __init__(self, path: str, kind: Format, metadata: dict[str, str]) -> None:
        ending = Path(path).suffix.lower()
        if find_spec("pyreadstat") is None:
            raise _library_missing("pyreadstat", kind, path)
        if ending == ".xpt":
            check_transport(path)
        catalogue = Path(path).with_suffix(".sas7bcat")
        labels = catalogue if ending == ".sas7bdat" and catalogue.exists() else None
        self._file = StatisticsFile(path, kind, _READERS[ending], labels)
        about = self._file.describe()
        super().__init__(path, kind, about["names"], metadata)
        self.total_rows = about["rows"]
        self._given = dict(zip(self.names, about["names"], strict=True))
        self._widths = dict(zip(self.names, about["widths"], strict=True))
        stripped = dict(zip(about["names"], self.names, strict=True))
        self.missing_kinds = {stripped[name]: labels for name, labels in about["missing"].items()}

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield at most `rows` rows at a time."""
        width = sum(max(self._widths[name], 8) for name in columns)
        most = max(1, min(rows_at_once(len(columns), rows), 8 * TEXT_AT_ONCE // max(width, 1)))
        texts = {self._given[name]: list(self.missing_texts.get(name, ())) for name in columns}
        kinds = {name: listed for name, listed in texts.items() if listed}
        for batch in self._file.batches(list(texts), most, kinds):
            yield batch.rename_columns(list(columns))


def rows_at_once(columns: int, most: int) -> int:
    """Return the number of rows per batch: fewer for a wide sheet."""
    return max(1, min(most, VALUES_AT_ONCE // max(columns, 1)))


def sheet_of(path: str, kind: Format, metadata: dict[str, str], stack: ExitStack) -> TextSheet:
    """Open a sheet."""
    if not Path(path).is_file():
        raise unreadable(path, FileNotFoundError(2, "no such file"))
    return _Excel(path, metadata, stack) if kind is Format.EXCEL else _Statistics(path, kind, metadata)


class SheetSink:
    """Collects batches and writes them as one sheet when it is closed.

    Labels and notes state which columns are `disguised`, since tabulating these columns gives wrong shares.
    """

    def __init__(
        self,
        kind: Format,
        stream: IO[bytes],
        schema: pa.Schema,
        name: str,
        disguised: Collection[str] = (),
    ) -> None:
        self._disguised = frozenset(disguised)
        self._kind, self._stream, self._schema, self._name = kind, stream, schema, name
        self._library, self._parts = _library(kind, name), list[pa.RecordBatch]()
        if name.lower().endswith(".sas7bdat"):
            raise FileError(f"{name}: only SAS itself writes .sas7bdat; write .xpt, which SAS reads.")

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Store a batch until the sheet is written."""
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
                f"{self._name}: a sheet can have {MOST_EXCEL_ROWS:,} rows; write a .csv or .parquet."
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
        if self._disguised:
            about = book.create_sheet("about")  # readers take the first sheet
            for line in self._notes():
                about.append([line])
        book.save(self._stream)

    def _notes(self) -> list[str]:
        """Return notes on the disguised columns, for readers of the file."""
        policy = schema_metadata(self._schema).get("policy", "")
        named = [name for name in self._schema.names if name in self._disguised]
        return [
            DISGUISED,
            f"Values of {', '.join(named)} were drawn at random. Their shares are not the shares of answers.",
            f"Policy (sha256): {policy}",
            f"The policy is in {sidecar_of(Path(self._name).name)}. Estimates: masquerade estimate.",
        ]

    def _value_label(self, name: str, label: str) -> str:
        """Return the label of a value; in a disguised column it ends with a warning if the format permits."""
        marked = f"{label}{DISGUISED_VALUE}"
        fits = self._kind is Format.STATA or len(marked.encode()) <= _LONGEST_VALUE_LABEL
        return marked if name in self._disguised and fits else label

    def _columns(
        self, table: pa.Table
    ) -> tuple[dict[str, Any], dict[str, dict[Any, str]], dict[str, list[Any]]]:
        """Return the values of every column, the labels of its values, and the codes of missing values."""
        columns: dict[str, Any] = {}
        labels: dict[str, dict[Any, str]] = {}
        absent: dict[str, list[Any]] = {}
        labelled = self._kind in _LABELLED
        for name in table.column_names:
            values, field = table.column(name), self._schema.field(name)
            if pa.types.is_boolean(values.type):
                texts = [None if value is None else category_text(value) for value in values.to_pylist()]
                values = pa.chunked_array([texts], pa.string())
            columns[name] = values.to_pandas()
            if labelled and pa.types.is_string(values.type):
                ordered = description_of(field)[1] or _distinct(values)
                codes, marked = code_labels(ordered, missing_of(field), self._kind)
                labels[name] = {code: self._value_label(name, label) for label, code in codes.items()}
                absent |= {name: marked} if marked else {}
                columns[name] = [codes.get(value) for value in values.to_pylist()]
            elif labelled and name in self._disguised and pa.types.is_integer(values.type):
                labels[name] = {one: self._value_label(name, str(one)) for one in _distinct(values)}
        return columns, labels, absent

    def _label(self, name: str) -> str | None:
        """Return the label of a column; the label of a disguised column starts with a warning."""
        described, _ = description_of(self._schema.field(name))
        label = f"{DISGUISED} {described}".strip() if name in self._disguised else described
        return _short(label, self._kind) or None

    def _write_statistics(self, table: pa.Table, path: str) -> None:
        """Write a table as a file of SPSS, Stata or SAS, with labels and warnings about disguised columns."""
        writer = getattr(self._library, f"write_{_READERS[Path(path).suffix]}")
        columns, labels, absent = self._columns(table)
        frame = import_module("pandas").DataFrame(columns)
        for name in absent if self._kind is Format.STATA else ():
            # numbers and letters (kinds of missing values) in one column: its empty cells must be NaN
            frame[name] = frame[name].astype(object).where(frame[name].notna(), float("nan"))
        more: dict[str, Any] = {"variable_value_labels": labels} if self._kind in _LABELLED else {}
        if absent:
            more["missing_ranges" if self._kind is Format.SPSS else "missing_user_values"] = absent
        about = [self._label(name) for name in frame]
        more |= {"column_labels": about} if any(about) else {}
        if self._disguised:
            more["file_label"] = _FILE_LABEL
            more |= {"note": _lines(self._notes())} if self._kind is Format.SPSS else {}
        more |= {"compress": True} if path.endswith(".zsav") else {}
        try:
            writer(frame, path, **more)
        except Exception:  # noqa: BLE001  (errors of the library may quote data)
            failed = True
        else:
            failed = False
        if failed:
            raise FileError(
                f"{self._name}: {self._kind.value} cannot hold these columns (are the names plain letters "
                "and digits, and not too long?); write a .csv or .parquet."
            )


def _distinct(values: pa.ChunkedArray) -> list[Any]:
    return sorted({one for one in values.unique().to_pylist() if one is not None})


def code_labels(
    labels: Sequence[str], missing: Sequence[str], kind: Format
) -> tuple[dict[str, int | str], list[Any]]:
    """Return the code of each label in a file of SPSS or Stata, and the codes that are missing values.

    Stata marks missing values by letters. SPSS marks at most three codes or a range, so missing values get
    the last codes.
    """
    absent = [label for label in labels if label in missing]
    answers = [label for label in labels if label not in absent]
    codes: dict[str, int | str] = {label: code for code, label in enumerate(answers, start=1)}
    if kind is Format.STATA and len(absent) <= len(ascii_lowercase):
        codes |= dict(zip(absent, ascii_lowercase, strict=False))
        return codes, [codes[label] for label in absent]
    first = len(answers) + 1
    codes |= {label: code for code, label in enumerate(absent, start=first)}
    return codes, [{"lo": first, "hi": len(codes)}] if absent and kind is Format.SPSS else []


def _lines(notes: Sequence[str]) -> list[str]:
    """Return notes in lines of 80 bytes, the limit of SPSS."""
    return [line for note in notes for line in wrap(note, 80 // max(1, _widest(note)))]


def _widest(text: str) -> int:
    return max((len(one.encode()) for one in text), default=1)


def _short(label: str, kind: Format) -> str:
    """Return a label, truncated to the limit of the program: 80 characters in Stata, 256 bytes in SPSS."""
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


def _open_workbook(path: str, kind: Format, read: Any) -> Any:
    found = None
    try:
        found = read()
    except FileError:
        raise
    except OSError as error:
        if error.errno:
            raise unreadable(path, error) from None
    except Exception:  # noqa: BLE001  (errors of the library may quote data)
        found = None
    if found is None:
        raise damage_error(path, kind)
    return found
