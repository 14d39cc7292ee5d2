"""Files as streams of record batches: memory does not grow with the file."""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

import pyarrow as pa
from pyarrow import ipc, parquet

from masquerade.core.errors import FileError, SchemaError, did_you_mean
from masquerade.frames.csv_stream import CsvStream, read_sidecar
from masquerade.frames.formats import STREAM, Format, format_of, unreadable
from masquerade.frames.metadata import schema_metadata

ROWS = 1 << 18
_BUFFER = 1 << 20  # bytes of a Parquet column chunk held at a time, however large its row group


class Reader(Protocol):
    """One opened file."""

    names: tuple[str, ...]
    metadata: dict[str, str]
    total_rows: int | None

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of at most about `rows` rows of these columns, in this order."""


class Batches:
    """Record batches of one file, or of several one after the other; a context manager and iterator.

    `names` are the columns of every batch, in order, `file_names` all that the first file has, in its
    own; `text` says that all are text (CSV). `file` and
    `rows_before` locate the batch yielded last: its file, and the data rows before it in that file.
    """

    def __init__(self, paths: Sequence[str], columns: Sequence[str] | None, rows: int) -> None:
        self.paths = tuple(paths)
        self.total_bytes = _total_bytes(paths)
        self.file, self.rows_before = paths[0], 0
        self._rows, self._started = rows, False
        self._done_bytes, self._current = 0, 0.0
        # The first file stays open (standard input cannot be opened twice), the others are looked at only.
        self._stack = ExitStack()
        try:
            self._first: Reader = _open(paths[0], self._stack)
            self.names = tuple(self._first.names if columns is None else columns)
            self.file_names = tuple(self._first.names)
            self.metadata = self._first.metadata
            self.text = format_of(paths[0]) is Format.CSV
            self.total_rows = self._check_all()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        """Return the batches themselves."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self._stack.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches, once."""
        if self._started:
            raise RuntimeError("The batches of a file can be read once; open it again.")
        self._started = True
        for place, path in enumerate(self.paths):
            size = 0 if path == STREAM else Path(path).stat().st_size
            with self._stack if place == 0 else ExitStack() as stack:
                reader = self._first if place == 0 else _open(path, stack)
                yield from self._read(path, reader, size)
            self._done_bytes += size
            self._current = 0.0

    @property
    def bytes_read(self) -> int:
        """Return about how many bytes have been read, for a progress bar."""
        return self._done_bytes + int(self._current)

    def _read(self, path: str, reader: Reader, size: int) -> Iterator[pa.RecordBatch]:
        self.file, done = path, 0
        for batch in reader.batches(self.names, self._rows):
            self.rows_before = done
            done += len(batch)
            if reader.total_rows is None:
                self._current = float(getattr(reader, "bytes_read", 0))
            else:
                self._current = size * done / max(reader.total_rows, 1)
            yield batch

    def _check_all(self) -> int | None:
        """Return the number of rows, if known, after checking that the files fit together."""
        _check_columns(self.paths[0], self._first, self.names)
        total = self._first.total_rows
        for path in self.paths[1:]:
            if (format_of(path) is Format.CSV) is not self.text:
                raise FileError(f"{path}: CSV files and other files cannot be read as one.")
            with ExitStack() as stack:
                reader = _open(path, stack)
                _check_columns(path, reader, self.names)
                if reader.metadata != self.metadata:
                    raise FileError(f"{path}: was not disguised as {self.paths[0]} was; read them apart.")
                total = None if total is None or reader.total_rows is None else total + reader.total_rows
        return total


def open_batches(
    path: str | Path | Sequence[str | Path], columns: Sequence[str] | None = None, *, rows: int = ROWS
) -> Batches:
    """Open a CSV, Parquet or Arrow file, several of them, or a pattern like ``people/*.parquet``.

    Only the wanted columns are read. ``-`` is a CSV on standard input. A file that cannot be read is
    a `FileError`, a column that is not there a `SchemaError`.
    """
    given = [path] if isinstance(path, (str, Path)) else list(path)
    paths = [found for one in given for found in _expanded(str(one))]
    if not paths:
        raise FileError("No file to read was given.")
    return Batches(paths, columns, rows)


def _expanded(path: str) -> list[str]:
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


def _check_columns(path: str, reader: Reader, wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in reader.names:
            raise SchemaError(f"{path}: there is no column {name!r}.{did_you_mean(name, reader.names)}")


def _open(path: str, stack: ExitStack) -> Reader:
    """Open one file; `stack` closes it."""
    if path == STREAM:
        return _Csv(path, sys.stdin.buffer, {})
    if Path(path).is_dir():
        raise FileError(f"{path}: this is a directory, not a file (try {path.rstrip('/')}/*.parquet).")
    kind = format_of(path)
    try:
        stream = stack.enter_context(Path(path).open("rb"))  # noqa: SIM115 - the stack closes it
    except OSError as error:
        raise unreadable(path, error) from None
    if kind is Format.CSV:
        return _Csv(path, stream, read_sidecar(path))
    if Path(path).stat().st_size == 0:
        raise FileError(f"{path}: the file is empty.")
    return (_Parquet if kind is Format.PARQUET else _Arrow)(path, stack)


class _Csv:
    """A CSV file or stream."""

    total_rows: int | None = None

    def __init__(self, path: str, stream: IO[bytes], metadata: dict[str, str]) -> None:
        self._stream, self.metadata = CsvStream(path, stream), metadata
        self.names = self._stream.names

    @property
    def bytes_read(self) -> int:
        return self._stream.bytes_read

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        for batch in self._stream.batches(columns):
            yield from _sliced(batch, rows)


class _Parquet:
    """A Parquet file, read a few rows at a time even within one huge row group."""

    def __init__(self, path: str, stack: ExitStack) -> None:
        self._path = path
        try:
            source = stack.enter_context(pa.OSFile(path))
            self._file = stack.enter_context(
                parquet.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER)
            )
            schema = self._file.schema_arrow
        except (pa.ArrowException, OSError):
            raise _damaged(path, Format.PARQUET) from None
        self.names, self.metadata = _unique(path, schema), schema_metadata(schema)
        self.total_rows: int | None = self._file.metadata.num_rows

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._file.iter_batches(batch_size=rows, columns=list(columns)):
                yield batch.select(list(columns))
        except (pa.ArrowException, OSError):
            raise _damaged(self._path, Format.PARQUET) from None


class _Arrow:
    """An Arrow IPC file; read, not mapped, so that pages of a large file do not stay in memory."""

    def __init__(self, path: str, stack: ExitStack) -> None:
        self._path = path
        try:
            self._source = stack.enter_context(pa.OSFile(path))
            file = ipc.open_file(self._source)
            schema = file.schema
            self.total_rows: int | None = file.count_rows() if hasattr(file, "count_rows") else None
        except (pa.ArrowException, OSError):
            raise _damaged(path, Format.ARROW) from None
        self.names, self.metadata = _unique(path, schema), schema_metadata(schema)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        wanted = ipc.IpcReadOptions(included_fields=[self.names.index(name) for name in columns])
        try:
            file = ipc.open_file(self._source, options=wanted)
            for place in range(file.num_record_batches):
                yield from _sliced(file.get_batch(place).select(list(columns)), rows)
        except (pa.ArrowException, OSError):
            raise _damaged(self._path, Format.ARROW) from None


def _sliced(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)


def _unique(path: str, schema: pa.Schema) -> tuple[str, ...]:
    twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
    if twice is not None:
        raise FileError(f"{path}: two columns are called {twice!r}.")
    return tuple(schema.names)


def _damaged(path: str, kind: Format) -> FileError:
    return FileError(
        f"{path}: this is not a readable {kind.value} file (truncated, damaged, or of another kind)."
    )
