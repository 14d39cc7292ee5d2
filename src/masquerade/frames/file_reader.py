"""Files as streams of record batches: memory does not grow with the file, and each is opened once.

CSV and sheets come as text; no error ever quotes a row.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import re
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import ipc, parquet

from masquerade.core.errors import FileError, InputError, SchemaError, did_you_mean
from masquerade.core.util.json_text import parse_json, read_text
from masquerade.frames.baskets import BasketReader
from masquerade.frames.cores import ahead
from masquerade.frames.dialect import UTF8, Dialect, with_points
from masquerade.frames.file_state import FileState
from masquerade.frames.formats import (
    STREAM,
    Format,
    damaged,
    format_of,
    is_compressed,
    sidecars_of,
    unreadable,
)
from masquerade.frames.memory_bounds import MOST_IN_BATCH, check_arrow, check_parquet, check_rows
from masquerade.frames.metadata import MEMO, POLICY_TEXT, schema_metadata
from masquerade.frames.sheets import Sheet, sheet_of

ROWS = 1 << 18
BLOCK = 2 << 20  # bytes: a row of a CSV may not be longer
MOST_OPEN = 64  # files of a list that stay open until they are read; the others are opened again for that
MOST_SIDECAR = 1 << 22  # bytes of what is said next to a CSV
_BUFFER = 1 << 20  # bytes of a Parquet column chunk held at a time, however large its row group
_LEAST_OF_TEXT = 4  # bytes that a value takes in a Parquet column without a dictionary
_LEAST_GROUP = 1 << 16  # rows of a row group that is worth a batch of its own
_BAD_ROW = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")
# a name that is no UTF-8, a size beyond all memory
_UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError, struct.error)
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


class Batches:
    """Record batches of one file, or of several one after the other; a context manager.

    `given` are the paths and patterns that stand for the files at `paths`. `names` are the columns of every
    batch, in order, `file_names` all that the first file has, in its own;
    `text` says that all are text (CSV), else `schemas` has the types of every file. `file` and `rows_before`
    locate the batch yielded last: its file, and the data rows before it in that file. Files can be read
    again from their start, standard input cannot. A file that changed since it was opened, its `state`, is a
    `DataChanged` once it was read.
    """

    def __init__(
        self, given: Sequence[str], columns: Sequence[str] | None, rows: int, dialect: Dialect | None = None
    ) -> None:
        paths = [found for one in given for found in expanded(one)]
        if not paths:
            raise FileError("No file to read was given.")
        self.given, self.paths, self.dialect = tuple(given), tuple(paths), dialect or Dialect()
        self.total_bytes = _total_bytes(paths)
        self.state = FileState.of(paths)
        self.file, self.rows_before = paths[0], 0
        self.text, self._rows, self._started = True, rows, False
        self._done_bytes, self._current = 0, 0.0
        self._coded: frozenset[str] = frozenset()
        self._names: list[tuple[str, ...]] = []
        self.notes: list[str] = []  # of files that are not written as most are
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
        """Let these columns be read from now on; a file that lacks one is a `SchemaError`.

        Text among `coded` comes as a dictionary where the file has one: values that repeat are not copied.
        """
        for path, names in zip(self.paths, self._names, strict=True):
            _check_columns(path, names, columns)
        self.names, self._coded = tuple(columns), frozenset(coded)
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
        """Return about how many bytes have been read, for a progress bar."""
        return self._done_bytes + int(self._current)

    def _read(self, path: str, reader: _Reader, size: int) -> Iterator[pa.RecordBatch]:
        self.file, done = path, 0
        if isinstance(reader, _Parquet):
            reader.coded = self._coded
        for batch in reader.batches(self.names, self._rows):
            self.rows_before = done
            done += len(batch)
            if isinstance(reader, _Csv):
                self._current = float(reader.bytes_read)
            elif reader.total_rows is not None:
                self._current = size * done / max(reader.total_rows, 1)
            yield batch

    def _look(self, columns: Sequence[str] | None) -> int | None:
        """Return the number of rows, if known, after checking that the files fit together."""
        total: int | None = 0
        for place, path in enumerate(self.paths):
            with ExitStack() as stack:
                reader = self._kept.get(path) or _open(path, stack, self.dialect)
                if place and (reader.schema is None) is not self.text:
                    raise FileError(f"{path}: CSV files and other files cannot be read as one.")
                if place == 0:
                    self.file_names, self.metadata = reader.names, reader.metadata
                    self.text = reader.schema is None
                    self.names = tuple(reader.names if columns is None else columns)
                _check_columns(path, reader.names, self.names)
                if _without_memo(reader.metadata) != _without_memo(self.metadata):
                    raise FileError(f"{path}: was not disguised as {self.paths[0]} was; read them apart.")
                if len(self._kept) < MOST_OPEN:
                    self._kept[path] = reader
                    self._stack.enter_context(stack.pop_all())
            if isinstance(reader, _Csv) and not reader.dialect.usual:
                self.notes.append(f"{path}: read with {reader.dialect.words}.")
            if isinstance(reader, BasketReader):
                self.notes.append(f"{path}: {reader.words}.")
            self._names.append(reader.names)
            self.schemas.append(reader.schema)
            total = None if total is None or reader.total_rows is None else total + reader.total_rows
        return total


def open_batches(
    path: str | Path | Sequence[str | Path],
    columns: Sequence[str] | None = None,
    *,
    rows: int = ROWS,
    dialect: Dialect | None = None,
) -> Batches:
    """Open a file of any kind that `formats` lists, several, or a pattern like ``people/*.parquet``.

    Only the wanted columns are read. ``-`` is a CSV on standard input. How a CSV is written is found by
    looking, as far as `dialect` does not say. A file that cannot be read is a `FileError`, a column that is
    not there a `SchemaError`.
    """
    given = [path] if isinstance(path, (str, Path)) else list(path)
    return Batches([str(one) for one in given], columns, rows, dialect)


def _without_memo(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return what must be the same of files read as one: memos and spellings of the policy may differ."""
    return {key: text for key, text in metadata.items() if key not in {MEMO, POLICY_TEXT}}


def expanded(path: str) -> list[str]:
    """Return the files that a path or a pattern stands for, in the order of their names."""
    if not glob.has_magic(path) or Path(path).exists():
        return [path]
    # Unlike Path.glob this passes over hidden files, such as those still being written.
    found = sorted(glob.glob(path, recursive=True))  # noqa: PTH207
    if not found:
        raise FileError(f"{path}: no file has such a name.")
    return found


def _total_bytes(paths: Sequence[str]) -> int | None:
    """Return the size of all files, None when it cannot be known."""
    if STREAM in paths:
        return None
    try:
        return sum(Path(path).stat().st_size for path in paths)
    except OSError as error:
        raise unreadable(error.filename or paths[0], error) from None


def _check_columns(path: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    if format_of(path) is Format.BASKETS:  # no basket need hold an item
        return
    for name in wanted:
        if name not in names:
            raise SchemaError(f"{path}: there is no column {name!r}.{did_you_mean(name, names)}")


def _open(path: str, stack: ExitStack, dialect: Dialect) -> _Reader:
    if path == STREAM:
        return _Csv(path, sys.stdin.buffer, _said_of_input(), dialect)
    if Path(path).is_dir():
        raise FileError(f"{path}: this is a directory, not a file (try {path.rstrip('/')}/*.parquet).")
    kind = format_of(path)
    if kind is Format.BASKETS:
        return BasketReader(path, _read_sidecar(path))
    if kind.sheet:
        return sheet_of(path, kind, _read_sidecar(path), stack)
    try:
        if kind is Format.CSV:
            stream = stack.enter_context(Path(path).open("rb"))  # noqa: SIM115  (the stack closes it)
            return _Csv(path, stream, _read_sidecar(path), dialect)
        source = stack.enter_context(pa.OSFile(path))
    except OSError as error:
        raise unreadable(path, error) from None
    if source.size() == 0:
        raise FileError(f"{path}: the file is empty.")
    return (_Parquet if kind is Format.PARQUET else _Arrow)(path, source, stack)


class _Counted(io.RawIOBase):
    """A binary stream that counts the bytes read from it, and leaves closing to its owner."""

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
    """The bytes already read, then the rest of the stream."""

    def __init__(self, start: bytes, rest: IO[bytes]) -> None:
        super().__init__()
        self._start, self._rest = io.BytesIO(start), rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._start.read(size) or self._rest.read(size)


class _Csv:
    """A CSV file or stream; `bytes_read` counts the (compressed) file's bytes.

    As with the other readers, `batches` yields at most about `rows` rows of the columns, in this order, from
    the start.
    """

    schema: pa.Schema | None = None  # everything is text
    total_rows: int | None = None

    def __init__(self, path: str, stream: IO[bytes], metadata: dict[str, str], dialect: Dialect) -> None:
        self._path, self._stream, self.metadata = path, stream, metadata
        self._begin()
        whole = len(self._start) < BLOCK
        # what we wrote ourselves says so, and is not looked at
        asked = replace(dialect, decimal=".", encoding=UTF8) if "policy" in metadata else dialect
        self.dialect = asked.found(self._start, whole=whole)
        self.names = _names(path, self._start, self.dialect, whole=whole)
        commas = self.dialect.comma_columns(self._start, whole=whole)
        self._commas = {self.names[place] for place in commas if place < len(self.names)}

    @property
    def bytes_read(self) -> int:
        return self._counted.count

    def _begin(self) -> None:
        """Read the first bytes, which hold the names."""
        self._counted, self._fresh = _Counted(self._stream), True
        plain: Any = self._counted
        if is_compressed(self._path):
            plain = gzip.GzipFile(fileobj=io.BufferedReader(self._counted, BLOCK))
        self._plain: IO[bytes] = plain
        try:
            self._start = self._plain.read(BLOCK)
        except _DAMAGED:
            raise FileError(f"{self._path}: the compressed file is truncated or damaged.") from None
        except OSError as error:
            raise unreadable(self._path, error) from None
        if not self._start.strip():
            raise FileError(f"{self._path}: the file is empty; a first row with the names was expected.")

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of the wanted columns, every one as text, empty fields as null."""
        if not self._fresh:
            self._stream.seek(0)
            self._begin()
        self._fresh = False
        done, failure = 0, ""
        try:
            reader = arrow_csv.open_csv(
                _Rejoined(self._start, self._plain),
                # One thread: only then does Arrow know the number of a bad row.
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
                done += len(batch)
                yield from _sliced(self._pointed(batch), rows)
        except (pa.ArrowException, UnicodeError, *_DAMAGED) as error:
            failure = _failure(error, done, self.dialect.encoding)
        except OSError as error:
            raise unreadable(self._path, error) from None
        if failure:  # raised out here, so that Arrow's error, which quotes the row, is not its context
            raise FileError(f"{self._path}: {failure}.")

    def _pointed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch whose numbers have decimal points."""
        for name in self._commas.intersection(batch.schema.names):
            place = batch.schema.names.index(name)
            batch = batch.set_column(place, name, with_points(batch.column(place)))
        return batch


class _Parquet:
    """A Parquet file, read a few rows at a time even within one huge row group.

    Columns of `coded` that the file holds as a dictionary are read as one.
    """

    def __init__(self, path: str, source: Any, stack: ExitStack) -> None:
        self._path, self._source = path, source
        self.coded: frozenset[str] = frozenset()
        try:
            self._file = stack.enter_context(
                parquet.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER)
            )
            self.schema: pa.Schema = self._file.schema_arrow
            names = list(self.schema.names)
        except _UNREADABLE:
            raise damaged(path, Format.PARQUET) from None
        self.names, self.metadata = _unique(path, names), schema_metadata(self.schema)
        self.total_rows: int | None = self._file.metadata.num_rows
        check_rows(path, Format.PARQUET, self._file.metadata.num_rows)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        try:
            check_parquet(self._path, self._source, self._file.metadata, columns)
            file = self._with_dictionaries([name for name in columns if name in self.coded])
            for batch in file.iter_batches(batch_size=rows, columns=list(columns)):
                yield _whole(batch.select(list(columns)), decoded=True)
        except FileError:
            raise
        except _UNREADABLE:
            raise damaged(self._path, Format.PARQUET) from None

    def _with_dictionaries(self, names: Sequence[str]) -> parquet.ParquetFile:
        """Return the file such that text comes as a dictionary where all its row groups have a small one.

        Text without a dictionary takes four bytes a value at least, so what takes fewer has one, and no
        group of rows has more distinct values than that: a dictionary made while reading could grow. Batches
        with dictionaries end where a row group does, so that small groups are read without.
        """
        known = self._file.metadata
        places = {known.schema.column(i).path: i for i in range(known.num_columns)}
        groups = [known.row_group(i) for i in range(known.num_row_groups)]
        if any(group.num_rows < _LEAST_GROUP for group in groups[:-1]):
            return self._file
        small = [
            name
            for name in names
            if pa.types.is_string(self.schema.field(name).type)
            and all(
                group.column(places[name]).total_uncompressed_size < _LEAST_OF_TEXT * group.num_rows
                for group in groups
                if name in places
            )
        ]
        if not small or not groups:
            return self._file
        return parquet.ParquetFile(
            self._source, metadata=known, read_dictionary=small, pre_buffer=False, buffer_size=_BUFFER
        )


class _Arrow:
    """An Arrow IPC file; read, not mapped, so that pages of a large file do not stay in memory."""

    def __init__(self, path: str, source: Any, stack: ExitStack) -> None:
        del stack  # the file is closed by whoever opened it
        self._path, self._source = path, source
        try:
            check_arrow(path, self._source)
            file = ipc.open_file(self._source)
            self.schema: pa.Schema = file.schema
            self.total_rows: int | None = file.count_rows() if hasattr(file, "count_rows") else None
            names = list(self.schema.names)
            check_rows(path, Format.ARROW, self.total_rows or 0)
        except FileError:
            raise
        except _UNREADABLE:
            raise damaged(path, Format.ARROW) from None
        self.names, self.metadata = _unique(path, names), schema_metadata(self.schema)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        wanted = ipc.IpcReadOptions(included_fields=[self.names.index(name) for name in columns])
        try:
            file = ipc.open_file(self._source, options=wanted)
            for place in range(file.num_record_batches):
                batch = _whole(file.get_batch(place).select(list(columns)))
                check_rows(self._path, Format.ARROW, len(batch), MOST_IN_BATCH)
                yield from _sliced(batch, rows)
        except FileError:
            raise
        except _UNREADABLE:
            raise damaged(self._path, Format.ARROW) from None


_Reader = _Csv | _Parquet | _Arrow | Sheet | BasketReader


def _whole(batch: pa.RecordBatch, *, decoded: bool = False) -> pa.RecordBatch:
    """Return a batch whose offsets, indices and text are in order: Arrow takes them on trust, and crashes.

    Offsets that a decoder made are in order, and ASCII is text: such columns need no look at every value.
    """
    for column in batch.columns:
        column.validate(full=not (decoded and _is_ascii(column)))
    return batch


def _is_ascii(column: pa.Array) -> bool:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    *_, text = column.buffers()
    return text is None or bool(np.frombuffer(text, dtype=np.uint8).max(initial=0) < 128)


def _sliced(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)


def _unique(path: str, names: Sequence[str]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise FileError(f"{path}: two columns are called {twice!r}.")
    return tuple(names)


def _names(path: str, start: bytes, dialect: Dialect, *, whole: bool) -> tuple[str, ...]:
    """Return the names in the first row of a CSV that starts like this; `whole` if that is all of it."""
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
    return _unique(path, names)


def _letters(encoding: str | None) -> str:
    return "UTF-8" if encoding in {None, UTF8} else f"{encoding}"


def _failure(error: Exception, done: int, encoding: str | None) -> str:
    """Return what is wrong in words of ours: Arrow quotes the row, so only numbers are taken from it."""
    if isinstance(error, _DAMAGED):
        return f"the compressed file is truncated or damaged after data row {done}"
    # Arrow's handler of such rows is not asked: it fails aloud, with a byte of the row, if that is no UTF-8
    if found := _BAD_ROW.match(str(error)):
        number, expected, actual = found.groups()
        where = f"data row {int(number) - 1}" if number else f"a row after data row {done}"  # 1: names
        return f"{where} has {actual} field{'' if actual == '1' else 's'}, the first row has {expected}"
    if "UTF8" in str(error) or isinstance(error, UnicodeError):
        return f"the file is not {_letters(encoding)} text after data row {done}: give its --encoding"
    if "straddling" in str(error):
        return (
            f"a row after data row {done} is longer than {BLOCK:,} bytes, the most that a row of a CSV may "
            "have, or a quotation mark is left open in it"
        )
    return f"the file cannot be read as CSV after data row {done} (is a quotation mark left open?)"


def _said_of_input() -> dict[str, str]:
    """Return what is said next to the file that standard input was redirected from; a pipe says nothing."""
    try:
        given = Path(f"/proc/self/fd/{sys.stdin.buffer.fileno()}").readlink()
    except (OSError, ValueError):  # no file at all, or a system that does not tell
        return {}
    return _read_sidecar(given) if given.is_file() else {}


def _read_sidecar(path: str | Path) -> dict[str, str]:
    """Return the metadata kept next to a CSV (or to what it links to, or was compressed from)."""
    sidecar = next((found for found in sidecars_of(path) if found.exists()), None)
    if sidecar is None:
        return {}
    try:
        found = parse_json(read_text(sidecar, most=MOST_SIDECAR), most=MOST_SIDECAR)
    except FileError:
        raise
    except InputError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise FileError(f"{sidecar}: this is not the metadata that masquerade writes next to a CSV file.")
    return found
