"""Read files as streams of record batches in constant memory; each file is opened once.

CSV files and sheets are read as text. No error message quotes a row.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import secrets
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Self

import pyarrow as pa
from pyarrow import csv as arrow_csv

from masquerade.core.errors import FileError, InputError, SchemaError, did_you_mean
from masquerade.frames.arrow_readers import ArrowReader, ParquetReader, slice_batch, unique_names
from masquerade.frames.baskets import BasketReader
from masquerade.frames.cores import ahead
from masquerade.frames.dialect import UTF8, Dialect, with_points
from masquerade.frames.file_state import FileState
from masquerade.frames.formats import (
    DATABASES,
    STREAM,
    Format,
    format_of,
    is_compressed,
    unreadable,
)
from masquerade.frames.json_lines import JsonLines
from masquerade.frames.metadata import MEMO, POLICY_TEXT, read_sidecar, stdin_metadata
from masquerade.frames.sheets import TextSheet, sheet_of
from masquerade.frames.table_formats.partitions import (
    Partitions,
    expand_pattern,
    partitions_of,
    refuse_folder,
    snapshot_of,
)
from masquerade.frames.table_formats.snapshot import TableVersion

ROWS = 1 << 18
BLOCK = 2 << 20  # most bytes of a CSV row
MOST_OPEN = 64  # most files of a list that stay open until they are read; the others are opened again
_BAD_ROW = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


TableFolder = Partitions | TableVersion  # files that form one table


class Batches:
    """Record batches of one file, or of several files in sequence; a context manager.

    `given` are the paths and patterns that matched the files at `paths`. `names` are the columns of every
    batch, in order. `file_names` are all columns of the first file, in the file's order. If `text` is True,
    all columns are text (CSV); otherwise `schemas` has the types of every file. `file` and `rows_before`
    locate the last batch: its file, and the number of data rows before it in that file. `snapshot` is the
    version of a Delta or Iceberg table; `table` adds columns of a table that its files lack. Files can be
    read again from the start, standard input cannot. `state` describes the files when they were opened: if
    one has changed since, `DataChanged` is raised after reading.
    """

    def __init__(
        self,
        given: Sequence[str] | TableFolder,
        columns: Sequence[str] | None,
        rows: int,
        dialect: Dialect | None = None,
    ) -> None:
        self.table: TableFolder | None
        if isinstance(given, TableFolder):
            self.table, paths, given = given, list(given.paths), given.given
        elif snapshot := snapshot_of(given):
            self.table, paths = snapshot, list(snapshot.paths)
        else:
            paths = [found for one in given for found in expand_pattern(one)]
            if not paths:
                raise FileError("No file to read was given.")
            self.table = partitions_of(given, paths)
        self.snapshot = self.table if isinstance(self.table, TableVersion) else None
        self.given, self.paths, self.dialect = tuple(given), tuple(paths), dialect or Dialect()
        self.total_bytes = _total_bytes(paths)
        self.state = FileState.of(paths)
        self.file, self.rows_before = paths[0], 0
        self.text, self._rows, self._started = True, rows, False
        self._done_bytes, self._current = 0, 0.0
        self._coded: frozenset[str] = frozenset()
        self.missing_texts: dict[str, list[str]] = {}
        self._names: list[tuple[str, ...]] = []
        self.missing_kinds: dict[str, list[str]] = {}  # labels of values that files mark as missing
        self.notes: list[str] = []  # notes on files in an unusual format
        self.schemas: list[pa.Schema | None] = []
        self._stack, self._kept = ExitStack(), dict[str, _Reader]()
        try:
            self.total_rows = self._look(columns)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        """Return the batches themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._stack.close()

    def select(self, columns: Sequence[str], *, coded: Collection[str] = ()) -> Self:
        """Select the columns to read; raise SchemaError if a file lacks one.

        Text columns in `coded` are read as a dictionary if the file has one: repeated values are not copied.
        """
        for path, names in zip(self.paths, self._names, strict=True):
            _check_columns(path, names, columns)
        self.names, self._coded = tuple(columns), frozenset(coded)
        return self

    def tell_missing(self, missing: Mapping[str, Iterable[str]]) -> Self:
        """Set the missing values, by column, that are read as text; other missing values are empty cells.

        Files of statistics programs can mark several kinds of missing values, by label or code: see
        `label_codes.missing_texts`.
        """
        self.missing_texts = {name: sorted(texts) for name, texts in missing.items()}
        return self

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches, from the start."""
        if self._started and STREAM in self.paths:
            raise InputError("Standard input can be read once only: write it to a file.")
        self._started, self._done_bytes = True, 0
        for path in self.paths:
            size = 0 if path == STREAM else Path(path).stat().st_size
            with ExitStack() as stack:
                yield from self._read(path, self._kept.get(path) or _open(path, stack, self.dialect), size)
            self._done_bytes += size
            self._current = 0.0
        self.state.check()

    @property
    def bytes_read(self) -> int:
        """Return the approximate number of bytes read so far, for a progress bar."""
        return self._done_bytes + int(self._current)

    def _read(self, path: str, reader: _Reader, size: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one file, with the columns of its folders, and update the progress."""
        self.file, done = path, 0
        if isinstance(reader, ParquetReader):
            reader.coded = self._coded
        if isinstance(reader, TextSheet):
            reader.missing_texts = self.missing_texts
        added = self.table
        wanted = self.names if added is None else added.file_columns(path, self.names, reader.names)
        for batch in reader.batches(wanted, self._rows):
            self.rows_before = done
            done += len(batch)
            if isinstance(reader, _Csv):
                self._current = float(reader.bytes_read)
            elif reader.total_rows is not None:
                self._current = size * done / max(reader.total_rows, 1)
            yield batch if added is None else added.add_to(batch, path, self.names)

    def _look(self, columns: Sequence[str] | None) -> int | None:
        """Return the number of rows, if known, after checking that the files are compatible."""
        total: int | None = 0
        for place, path in enumerate(self.paths):
            with ExitStack() as stack:
                reader = self._kept.get(path) or _open(path, stack, self.dialect)
                names, schema = reader.names, reader.schema
                if self.table is not None:
                    names, schema = self.table.extend(path, names, schema)
                if place and (reader.schema is None) is not self.text:
                    raise FileError(f"{path}: CSV files and other files cannot be read as one.")
                if place == 0:
                    self.file_names, self.metadata = names, reader.metadata
                    self.text = reader.schema is None
                    self.names = tuple(names if columns is None else columns)
                _check_columns(path, names, self.names)
                if _without_memo(reader.metadata) != _without_memo(self.metadata):
                    raise FileError(
                        f"{path}: was not disguised as {self.paths[0]} was; read them separately."
                    )
                if len(self._kept) < MOST_OPEN:
                    self._kept[path] = reader
                    self._stack.enter_context(stack.pop_all())
            self._take_notes(path, reader)
            self._names.append(names)
            self.schemas.append(schema)
            total = None if total is None or reader.total_rows is None else total + reader.total_rows
        if self.snapshot is not None:
            self.notes.append(f"{self.snapshot.title}: this version is read.")
            if self.snapshot.is_plain:
                self.table = None
        return total

    def _take_notes(self, path: str, reader: _Reader) -> None:
        if isinstance(reader, _Csv) and not reader.dialect.usual:
            self.notes.append(f"{path}: read with {reader.dialect.words}.")
        if isinstance(reader, BasketReader):
            self.notes.append(f"{path}: {reader.words}.")
        if isinstance(reader, TextSheet):
            self.missing_kinds |= reader.missing_kinds

    @property
    def same(self) -> TableFolder | tuple[str, ...]:
        """Return the argument of `open_batches` that reads the same files again, and no later ones."""
        return tuple(self.paths) if self.table is None else self.table


def open_batches(
    path: str | Path | Sequence[str | Path] | TableFolder,
    columns: Sequence[str] | None = None,
    *,
    rows: int = ROWS,
    dialect: Dialect | None = None,
) -> Batches:
    """Open one or several files of any supported format, or a pattern like ``people/*.parquet``.

    A folder is one table: of partitions (``region=north/``), or the newest version of a Delta or Iceberg
    table.
    Only the requested columns are read. ``-`` is a CSV on standard input. Properties of a CSV that `dialect`
    does not specify are detected. Raises `FileError` if a file cannot be read, and `SchemaError` if a column
    is missing.
    """
    if isinstance(path, TableFolder):
        return Batches(path, columns, rows, dialect)
    given = [path] if isinstance(path, (str, Path)) else list(path)
    return Batches([str(one) for one in given], columns, rows, dialect)


def _without_memo(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata that files read together must share; memos and policy texts may differ."""
    return {key: text for key, text in metadata.items() if key not in {MEMO, POLICY_TEXT}}


def _total_bytes(paths: Sequence[str]) -> int | None:
    """Return the size of all files; None if it is unknown."""
    if STREAM in paths:
        return None
    try:
        return sum(Path(path).stat().st_size for path in paths)
    except OSError as error:
        raise unreadable(error.filename or paths[0], error) from None


def _check_columns(path: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    if format_of(path) is Format.BASKETS:  # an item need not occur in any basket
        return
    for name in wanted:
        if name not in names:
            raise SchemaError(f"{path}: there is no column {name!r}.{did_you_mean(name, names)}")


def _open(path: str, stack: ExitStack, dialect: Dialect) -> _Reader:
    if path == STREAM:
        return _Csv(path, sys.stdin.buffer, stdin_metadata(), dialect)
    if Path(path).is_dir():
        raise refuse_folder(path)
    if Path(path).suffix in DATABASES:
        raise FileError(
            f"{path}: a database of DuckDB is counted (estimate, stats, learn, mq.tally), and not read as a "
            "file here. Write its table to a file before: COPY name_of_table TO 'people.parquet'."
        )
    kind = format_of(path)
    if kind is Format.BASKETS:
        return BasketReader(path, read_sidecar(path))
    if kind is Format.JSON_LINES:
        return JsonLines(path, read_sidecar(path), stack)
    if kind.sheet:
        return sheet_of(path, kind, read_sidecar(path), stack)
    try:
        if kind is Format.CSV:
            stream = stack.enter_context(Path(path).open("rb"))  # noqa: SIM115  (the stack closes it)
            return _Csv(path, stream, read_sidecar(path), dialect)
        source = stack.enter_context(pa.OSFile(path))
    except OSError as error:
        raise unreadable(path, error) from None
    if source.size() == 0:
        raise FileError(f"{path}: the file is empty.")
    return (ParquetReader if kind is Format.PARQUET else ArrowReader)(path, source, stack)


class _Counted(io.RawIOBase):
    """A binary stream that counts the bytes read from it. Closing it does not close the source."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream, self.count = stream, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.count += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Rejoined(io.RawIOBase):
    """The bytes already read, then the rest of the stream, then a final sentinel row on its own line.

    `line_ends` are the bytes that end a line in the encoding of the stream.
    """

    def __init__(self, start: bytes, rest: IO[bytes], last_row: bytes, line_ends: Sequence[bytes]) -> None:
        super().__init__()
        self._start, self._rest, self._tail = io.BytesIO(start), rest, b""
        self._last_row: bytes | None = last_row
        self._line_ends = tuple(line_ends)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._start.read(size) or self._rest.read(size)
        if data or size == 0 or self._last_row is None:
            self._tail = (self._tail + data)[-8:]
            return data
        row, self._last_row = self._last_row, None
        return row if self._tail.endswith(self._line_ends) else self._line_ends[0] + row


class _Csv:
    """A CSV file or stream; `bytes_read` counts the bytes of the file, before decompression.

    As in the other readers, `batches` yields the requested columns in the given order, from the start, in
    batches of about `rows` rows at most.
    """

    schema: pa.Schema | None = None  # everything is text
    total_rows: int | None = None

    def __init__(self, path: str, stream: IO[bytes], metadata: dict[str, str], dialect: Dialect) -> None:
        self._path, self._stream, self.metadata = path, stream, metadata
        self._begin()
        whole = len(self._start) < BLOCK
        # a file written by masquerade has a known dialect, which is not detected
        asked = replace(dialect, decimal=".", encoding=UTF8) if "policy" in metadata else dialect
        self.dialect = asked.detect(self._start, whole=whole)
        self.names = _names(path, self._start, self.dialect, whole=whole)
        commas = self.dialect.comma_columns(self._start, whole=whole)
        self._commas = {self.names[place] for place in commas if place < len(self.names)}

    @property
    def bytes_read(self) -> int:
        return self._counted.count

    def _begin(self) -> None:
        """Read the first bytes, which contain the column names."""
        self._counted, self._fresh = _Counted(self._stream), True
        plain: Any = self._counted
        if str(self._path).lower().endswith(".zst"):
            plain = pa.CompressedInputStream(pa.PythonFile(self._counted, mode="r"), "zstd")
        elif is_compressed(self._path):
            plain = gzip.GzipFile(fileobj=io.BufferedReader(self._counted, BLOCK))
        self._plain: IO[bytes] = plain
        try:
            self._start = self._plain.read(BLOCK)
        except OSError as error:
            if error.errno:
                raise unreadable(self._path, error) from None
            raise FileError(f"{self._path}: the compressed file is truncated or damaged.") from None
        except _DAMAGED:
            raise FileError(f"{self._path}: the compressed file is truncated or damaged.") from None
        if not self._start.strip():
            raise FileError(f"{self._path}: the file is empty; a first row with the names was expected.")

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of the requested columns, all as text, empty fields as null."""
        if not self._fresh:
            self._stream.seek(0)
            self._begin()
        self._fresh = False
        done, failure, is_whole = 0, "", False
        # Arrow reads an unclosed quotation mark as one field up to the end of the file, so all later rows
        # would be lost silently. A sentinel row at the end would be lost too, which reveals the problem.
        mark = secrets.token_hex(16)
        row, *line_ends = self._encode(
            (self.dialect.separator or ",").join([mark] * len(self.names)), "\n", "\r"
        )
        try:
            reader = arrow_csv.open_csv(
                _Rejoined(self._start, self._plain, row, line_ends),
                # Arrow reports the number of a bad row only if one thread reads the file.
                read_options=arrow_csv.ReadOptions(
                    use_threads=False, block_size=BLOCK, encoding=self.dialect.encoding
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self.dialect.separator,
                    newlines_in_values=True,
                    # In a file of one column an empty line is a missing value.
                    ignore_empty_lines=len(self.names) > 1,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.string()),
                    include_columns=list(columns),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                ),
            )
            for batch in ahead(iter(reader)):
                is_last = len(batch) > 0 and batch.column(0)[-1].as_py() == mark
                is_whole |= is_last
                records = batch.slice(0, len(batch) - is_last)
                done += len(records)
                yield from slice_batch(self._use_points(records), rows)
            if not is_whole:
                failure = f"a quotation mark is left open after data row {max(0, done - 1)}"
        except (pa.ArrowException, UnicodeError, *_DAMAGED) as error:
            failure = _failure(error, done, self.dialect.encoding)
        except OSError as error:
            if error.errno or not is_compressed(self._path):
                raise unreadable(self._path, error) from None
            failure = f"the compressed file is truncated or damaged after data row {done}"
        if failure:  # raised here, because otherwise the context would be Arrow's error, which quotes the row
            raise FileError(f"{self._path}: {failure}.")

    def _encode(self, *texts: str) -> list[bytes]:
        """Return texts in the encoding of the file, without byte order marks."""
        encoding = codecs.lookup(self.dialect.encoding or UTF8).name
        if encoding in {"utf-16", "utf-32"}:
            encoding += "-be" if self._start.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)) else "-le"
        before = "".encode(encoding)
        return [text.encode(encoding).removeprefix(before) for text in texts]

    def _use_points(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch whose numbers have decimal points."""
        for name in self._commas.intersection(batch.schema.names):
            place = batch.schema.names.index(name)
            batch = batch.set_column(place, name, with_points(batch.column(place)))
        return batch


_Reader = _Csv | ParquetReader | ArrowReader | TextSheet | BasketReader


def _names(path: str, start: bytes, dialect: Dialect, *, whole: bool) -> tuple[str, ...]:
    """Return the names in the first row of a CSV; `whole` states that `start` is the entire file."""
    text = start.decode(dialect.encoding or UTF8, errors="replace").removeprefix("\ufeff")
    lines = io.StringIO(text, newline="")
    rows = csv.reader(lines, delimiter=dialect.separator or ",")
    try:
        # Empty lines before the names are skipped, as Arrow does.
        names = next((tuple(row) for row in rows if row), ())
    except csv.Error:
        names = ()
    if not whole and lines.tell() == len(text) and not text.endswith(("\n", "\r")):
        raise FileError(
            f"{path}: the first row is longer than {BLOCK:,} bytes, the most that a row of a CSV may have, "
            "or a quotation mark is left open in it. Leave columns out, or write the records as .parquet."
        )
    if not names:
        raise FileError(f"{path}: the first row cannot be read as names.")
    if any("\ufffd" in name for name in names):
        raise FileError(f"{path}: the file is not {_letters(dialect.encoding)} text.")
    return unique_names(path, names)


def _letters(encoding: str | None) -> str:
    return "UTF-8" if encoding in {None, UTF8} else f"{encoding}"


def _failure(error: Exception, done: int, encoding: str | None) -> str:
    """Describe an error without the row, which Arrow quotes: only numbers are taken from its message."""
    if isinstance(error, _DAMAGED):
        return f"the compressed file is truncated or damaged after data row {done}"
    # Arrow's own handler of bad rows is not used: it prints a byte of the row if that is not UTF-8
    if found := _BAD_ROW.match(str(error)):
        number, expected, actual = found.groups()
        # minus 1 for the row of names
        where = f"data row {int(number) - 1}" if number else f"a row after data row {done}"
        return f"{where} has {actual} field{'' if actual == '1' else 's'}, the first row has {expected}"
    if "UTF8" in str(error) or isinstance(error, UnicodeError):
        return f"the file is not {_letters(encoding)} text after data row {done}: give its --encoding"
    if "straddling" in str(error):
        return (
            f"a row after data row {done} is longer than {BLOCK:,} bytes, the most that a row of a CSV may "
            "have, or a quotation mark is left open in it"
        )
    return f"the file cannot be read as CSV after data row {done} (is a quotation mark left open?)"
