"""Files read by an embedded DuckDB, out of core, without a server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from glob import has_magic
from pathlib import Path
from typing import Any, Final, Self
from weakref import finalize

import pyarrow as pa

from masquerade.core.errors import (
    EngineError,
    FileError,
    InputError,
    MasqueradeError,
    SchemaError,
    UnknownValue,
)
from masquerade.core.util.formatting import counted
from masquerade.core.util.processes import ResourceOwner
from masquerade.frames.file_reader import Batches, open_batches
from masquerade.frames.formats import STREAM, Format, format_of, unreadable
from masquerade.frames.label_codes import encode, kind_words
from masquerade.sources.engines.engine_tables import DUCKDB, Watch, watching, without_row
from masquerade.sources.engines.sql import EngineColumn

BATCH = 1 << 18
LEFT_BEHIND: Final[
    list[object]
] = []  # connections inherited from a parent process: closing one would wait for its threads
# optimizers that use the statistics in a file instead of its rows: statistics omit NaN, and may be wrong
BY_STATISTICS: Final = "filter_pushdown,statistics_propagation"
MEMORY = "2GB"  # beyond this DuckDB writes to its own private folder


class DuckFiles:
    """Parquet, CSV or Arrow files as one table of DuckDB.

    DuckDB itself reads Parquet, on all cores. CSV and Arrow files, and Parquet files with different column
    types, are read by the package's own readers, so that they mean the same as in memory. `watch` is called
    with the completed share of a scan.
    """

    dialect = DUCKDB

    def __init__(self, data: Any, *, watch: Watch | None = None) -> None:
        given = data.paths if isinstance(data, Batches) else data
        if STREAM in (given if isinstance(given, (list, tuple)) else [given]):
            raise InputError("Standard input can only be read once: write it to a file, or count in memory.")
        with nullcontext(data) if isinstance(data, Batches) else open_batches(data, []) as files:
            self.paths, self.text, self.names = files.paths, files.text, files.file_names
            self._written, self._state = files.dialect, files.state
            self._given = files.same  # the files of now, whatever is added to a folder
            self._missing = files.missing_texts
            self._types = _types_in([schema for schema in files.schemas if schema is not None])
        self._watch = watch
        self._connect()

    def join(self, more: DuckFiles) -> Self:
        """Return these files and others of the same type as one table, without opening these again."""
        whole = type(self).__new__(type(self))  # without __init__, which would open these files again
        whole.__dict__.update(self.__dict__)
        whole.take(more)
        return whole

    def take(self, more: DuckFiles) -> None:
        """Add other files."""
        if not isinstance(self._given, tuple) or not isinstance(more._given, tuple):
            raise InputError("Folders of partitions cannot grow: pass a pattern of their files.")
        self.paths = self._given = (*self.paths, *more.paths)
        self._state = self._state.join(more._state)
        self._types = {
            name: [*types, *more._types[name]] for name, types in self._types.items() if name in more._types
        }
        self._connect()

    def _connect(self) -> None:
        import duckdb  # noqa: PLC0415

        self._owner = ResourceOwner("A connection to DuckDB", "Open the files again.")
        self._spill = tempfile.mkdtemp(prefix="masquerade-")  # private, removed with this object
        finalize(self, _remove, self._spill, self._owner)
        self._failed = duckdb.Error
        self._connection = duckdb.connect()
        for setting, value in {
            "temp_directory": self._spill,
            "memory_limit": MEMORY,
            "preserve_insertion_order": False,
            "enable_progress_bar": self._watch is not None,
            "enable_progress_bar_print": False,
            "disabled_optimizers": BY_STATISTICS,
        }.items():
            self._connection.execute(f"SET {setting} = {self.dialect.label(value)}")
        self._parquet = (
            self._list_files()
            if isinstance(self._given, tuple) and all(format_of(p) is Format.PARQUET for p in self.paths)
            else None  # columns that files lack are added by the package's own readers
        )
        self.title = f"DuckDB over {counted(len(self.paths), 'file')}"

    def __getstate__(self) -> dict[str, Any]:
        """Return the files and their state, from which another process opens them again."""
        gone = dict.fromkeys(("_connection", "_failed", "_owner", "_spill", "_watch"))
        return {**self.__dict__, **gone}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the files."""
        self.__dict__.update(state)
        self._connect()

    def kinds(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        """Return the types of columns."""
        if self.text:
            return dict.fromkeys(names, pa.string())
        chosen = ", ".join(self.dialect.name(name) for name in names)
        (batch,) = self.fetch(lambda table: f"SELECT {chosen} FROM {table} LIMIT 0", names)  # noqa: S608
        return dict(zip(names, batch.schema.types, strict=True))

    def policies(self, names: Sequence[str]) -> set[str]:
        """Return no policies: the metadata of files are checked before they are opened."""
        del names
        return set()

    def fetch(self, write: Callable[[str], str], columns: Sequence[str]) -> Generator[pa.RecordBatch]:
        """Run SQL over the files, reading only the columns that it needs."""
        if not self._owner.is_here:
            LEFT_BEHIND.append(self._connection)
            self._connect()
        self._state.check()
        with self._relation(columns) as (table, raised), watching(self._watch, self._progress):
            try:
                reader: Any = self._connection.sql(write(table)).to_arrow_reader(BATCH)
                with closing(reader):
                    empty = True
                    for batch in reader:
                        empty = False
                        yield batch
                    if empty:
                        yield pa.RecordBatch.from_pylist([], schema=reader.schema)
                self._state.check()
            except (self._failed, pa.ArrowException, OSError) as error:
                self._state.check()  # changed files explain the failure
                if raised and isinstance(raised[0], MasqueradeError):
                    raise raised[0] from None
                raise self._failure(error) from None

    def refuse(self, error: UnknownValue, column: EngineColumn) -> UnknownValue:
        """Return the error about a value with its file and row, found by reading in order."""
        name = column.field.variable.name
        with open_batches(self._given, [name], dialect=self._written) as files:
            for batch in files.tell_missing(self._missing):
                try:
                    encode(batch[name], column.field, text=column.text)
                except UnknownValue as found:
                    return found.shift_rows(files.rows_before, files.file)
        return without_row(error)

    @contextmanager
    def _relation(self, columns: Sequence[str]) -> Iterator[tuple[str, list[Exception]]]:
        raised: list[Exception] = []
        used = list(columns) or list(self.names[:1])
        if not self.text and not self._types.keys() >= set(used):
            open_batches(
                self._given, used, dialect=self._written
            )  # raises an error that names the file and the missing column
        types = {name: _common_type(name, self._types[name], self.paths) for name in used if not self.text}
        alike = all(len(set(self._types[name])) == 1 for name in types)
        if self._parquet is not None and alike:
            yield self._parquet, raised
            return
        schema = pa.schema([(name, types.get(name, pa.string())) for name in used])
        with open_batches(self._given, used, dialect=self._written) as batches:
            read = iter(batches.tell_missing(self._missing))
            self._connection.register("reports_", _reader_of(schema, read, raised))
            try:
                yield "reports_", raised
            finally:
                self._connection.unregister("reports_")

    def _list_files(self) -> str:
        """Return the table of Parquet files, each taken literally by name, with any special characters."""
        places = [str(Path(path).absolute()) for path in self.paths]
        for number, place in enumerate(places):
            if has_magic(place):  # DuckDB would treat it as a pattern
                link = Path(self._spill, f"{number}.parquet")
                link.symlink_to(place)
                places[number] = str(link)
        listed = ", ".join(self.dialect.label(place) for place in places)
        return f"read_parquet([{listed}], hive_partitioning = false)"  # folder names are not columns

    def _progress(self) -> float | None:
        share = self._connection.query_progress() / 100
        return share if 0 <= share <= 1 else None

    def _failure(self, error: Exception) -> Exception:
        """Return the error without values of the data, which DuckDB's message may quote."""
        kind = type(error).__name__.removesuffix("Exception")
        if kind in {"IO", "InvalidInput", "HTTP"}:
            return self._unreadable()
        if kind == "OutOfMemory":
            return EngineError(
                f"{self.title}: the query needs more than {MEMORY} of memory: query less at a time."
            )
        return EngineError(f"{self.title} failed ({kind}).")

    def _unreadable(self) -> FileError:
        """Return the error that names the unreadable file, since DuckDB's message may quote data."""
        for path in self.paths:
            try:
                with open_batches([path]) as batches:
                    for _ in batches:
                        pass
            except FileError as error:
                return error
            except OSError as error:
                return unreadable(path, error)
        return FileError(f"{self.title}: a file cannot be read (missing, truncated or damaged).")


def _remove(folder: str, owner: ResourceOwner) -> None:
    """Remove a folder, unless it belongs to the parent process."""
    if owner.is_here:
        shutil.rmtree(folder, ignore_errors=True)


def _types_in(schemas: Sequence[pa.Schema]) -> Mapping[str, list[pa.DataType]]:
    """Return the types of columns in each file. Empty for a column that a file lacks."""
    found: dict[str, list[pa.DataType]] = {}
    for schema in schemas:
        for field in schema:
            found.setdefault(field.name, []).append(field.type)
    return {name: types for name, types in found.items() if len(types) == len(schemas)}


def _common_type(name: str, types: Sequence[pa.DataType], paths: Sequence[str]) -> pa.DataType:
    """Return a type that represents a column of all files exactly.

    Labels of different types have no common type.
    """
    if len(set(types)) == 1:
        return types[0]
    words = ["" if pa.types.is_null(kind) else kind_words(kind) for kind in types]
    known = dict.fromkeys(filter(None, words))
    shared = {
        frozenset({"text"}): pa.large_string(),
        frozenset({"whole numbers"}): pa.int64(),
        frozenset({"numbers"}): pa.float64(),
        frozenset({"whole numbers", "numbers"}): pa.float64(),
        frozenset({"true/false"}): pa.bool_(),
        frozenset(): pa.null(),
    }
    found = shared.get(frozenset(known))
    if found is None:
        first, *others = (words.index(word) for word in known)
        if not others:
            return types[first]
        other = others[0]
        raise SchemaError(
            f"{paths[other]}: column {name!r} holds {words[other]}, in {paths[first]} it holds "
            f"{words[first]}: use the same type in both."
        )
    return found


def _reader_of(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], raised: list[Exception]
) -> pa.RecordBatchReader:
    """Return batches as a reader. Errors are also appended to `raised`, since DuckDB would wrap them."""

    def guarded() -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                yield batch if batch.schema.equals(schema) else batch.cast(schema)
        except Exception as error:
            raised.append(error)
            raise

    return pa.RecordBatchReader.from_batches(schema, guarded())
