"""Files read by an embedded DuckDB, out of core: no server, nothing to set up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from masquerade.core.errors import EngineError, FileError, InputError, UnknownValue
from masquerade.frames.files import open_batches
from masquerade.frames.formats import Format, format_of
from masquerade.sources.chunks import first_unknown
from masquerade.sources.sql import Column, Dialect
from masquerade.sources.tables import Watch, watching, without_row

BATCH = 1 << 18
MEMORY = "2GB"  # beyond it DuckDB writes to its own private folder


class DuckFiles:
    """Parquet, CSV or Arrow files as one table of DuckDB.

    Parquet is read by DuckDB itself, on all cores; CSV and Arrow files pass through our own readers, so
    that they mean the same as in memory. `watch` is told the share of a scan that is done.
    """

    dialect = Dialect()

    def __init__(self, data: Any, *, watch: Watch | None = None) -> None:
        import duckdb  # noqa: PLC0415

        if data == "-":
            raise InputError("Standard input can be read once only: write it to a file, or count in memory.")
        with open_batches(data, None) as batches:
            self.paths, self.text, self.names = batches.paths, batches.text, batches.file_names
        self._data, self._watch = data, watch
        self._spill = TemporaryDirectory(prefix="masquerade-")  # private, and gone with this object
        self._failed = duckdb.Error
        self._connection = duckdb.connect()
        for setting, value in {
            "temp_directory": self._spill.name,
            "memory_limit": MEMORY,
            "preserve_insertion_order": False,
            "enable_progress_bar": watch is not None,
            "enable_progress_bar_print": False,
        }.items():
            self._connection.execute(f"SET {setting} = {self.dialect.label(value)}")
        files = "1 file" if len(self.paths) == 1 else f"{len(self.paths):,} files"
        self.title = f"DuckDB over {files}"

    def kinds(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        """Return the types of columns."""
        chosen = ", ".join(self.dialect.name(name) for name in names)
        (batch,) = self.fetch(lambda table: f"SELECT {chosen} FROM {table} LIMIT 0", names)  # noqa: S608
        return dict(zip(names, batch.schema.types, strict=True))

    def fetch(self, write: Callable[[str], str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Run SQL over the files; only the columns that it needs are read."""
        with self._relation(columns) as (table, raised), watching(self._watch, self._progress):
            try:
                reader: Any = self._connection.sql(write(table)).to_arrow_reader(BATCH)
                empty = True
                for batch in reader:
                    empty = False
                    yield batch
                if empty:
                    yield pa.RecordBatch.from_pylist([], schema=reader.schema)
            except self._failed as error:
                if raised:
                    raise raised[0] from None
                raise self._failure(error) from None

    def refuse(self, error: UnknownValue, column: Column) -> UnknownValue:
        """Return the error about a value with its file and row, which only reading in order can tell."""
        return first_unknown(self._data, without_row(error), column.field, text=column.text)

    @contextmanager
    def _relation(self, columns: Sequence[str]) -> Iterator[tuple[str, list[Exception]]]:
        raised: list[Exception] = []
        if format_of(self.paths[0]) is Format.PARQUET:
            listed = ", ".join(self.dialect.label(path) for path in self.paths)
            yield f"read_parquet([{listed}])", raised
            return
        with open_batches(self._data, list(columns) or list(self.names[:1])) as batches:
            self._connection.register("reports_", reader_of(batches.names, iter(batches), raised))
            try:
                yield "reports_", raised
            finally:
                self._connection.unregister("reports_")

    def _progress(self) -> float | None:
        share = self._connection.query_progress() / 100
        return share if 0 <= share <= 1 else None

    def _failure(self, error: Exception) -> Exception:
        """Return what went wrong, without values of the data, which a message of DuckDB may quote."""
        kind = type(error).__name__.removesuffix("Exception")
        if kind in {"IO", "InvalidInput", "HTTP"}:
            return FileError(f"{self.title}: a file cannot be read (missing, truncated or damaged).")
        if kind == "OutOfMemory":
            return EngineError(
                f"{self.title}: more than {MEMORY} of memory are needed; ask for less at once."
            )
        return EngineError(f"{self.title} failed ({kind}).")


def reader_of(
    names: Sequence[str], batches: Iterator[pa.RecordBatch], raised: list[Exception]
) -> pa.RecordBatchReader:
    """Return batches as a reader; an error of ours is kept, since DuckDB would wrap it in its own."""
    first = next(batches, None)

    def guarded() -> Iterator[pa.RecordBatch]:
        try:
            if first is not None:
                yield first
            yield from batches
        except Exception as error:
            raised.append(error)
            raise

    schema = pa.schema([(name, pa.string()) for name in names]) if first is None else first.schema
    return pa.RecordBatchReader.from_batches(schema, guarded())
