"""Records that arrive in batches: lazy frames, Dask frames, Arrow data sets and readers, files of DuckDB.

Only the requested columns are read, batch by batch. This package holds one batch at a time; the underlying
library may buffer more. pandas and Polars are never imported here, DuckDB for its own files only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from masquerade.core.errors import FileError, InputError, SchemaError, UnknownValue, did_you_mean
from masquerade.frames.formats import DATABASES
from masquerade.frames.metadata import is_dask_frame, is_polars_lazy, metadata_of, schema_metadata
from masquerade.frames.native import columns_of
from masquerade.frames.table_formats.delta import is_delta
from masquerade.frames.table_formats.iceberg import is_iceberg
from masquerade.frames.table_formats.snapshot import FIELD_ID

ROWS: Final = 1 << 17  # rows of a batch
_SCAN: Final = re.compile(
    r"Parquet SCAN \[([^\n]+)\]\nPROJECT (?:\*|\d+)/\d+ COLUMNS(?:\nESTIMATED ROWS: \d+)?"
)


class BatchStream:
    """Columns by name, read from the start in batches.

    `title` names the data in messages. `again` is False if the data can be read only once.
    """

    def __init__(
        self,
        title: str,
        names: Sequence[str],
        metadata: dict[str, str],
        read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]],
        *,
        again: bool = True,
    ) -> None:
        if len(set(names)) < len(names):
            twice = next(name for name in names if list(names).count(name) > 1)
            raise InputError(f"The {title} has two columns called {twice!r}.")
        self.title, self.names, self.metadata, self.again = title, tuple(names), metadata, again
        self._read, self._started = read, False

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the requested columns; raise SchemaError if one is missing."""
        for name in columns:
            if name not in self.names:
                raise SchemaError(
                    f"There is no column {name!r} in the {self.title}.{did_you_mean(name, self.names)}"
                )
        if self._started and not self.again:
            raise InputError(f"A {self.title} can be read once only: collect it, or write it to a file.")
        self._started = True
        try:
            for batch in self._read(columns):
                batch.validate(full=True)
                yield batch
        except (pa.ArrowException, OSError):
            failed = True  # their messages may quote data
        else:
            failed = False
        if failed:
            raise FileError(f"The {self.title} cannot be read to its end (damaged, or no longer there).")


def stream_of(data: Any) -> BatchStream | None:
    """Return the caller's data as a stream of batches; None if they have another type."""
    if isinstance(data, BatchStream):
        return data
    if is_ibis_on_polars(data):
        data = data.get_backend().compile(data)
    openers = (
        (_is_streamed, _of_lazy_frame),
        (is_dask_frame, _of_dask_frame),
        (is_duckdb_file, _of_duckdb_file),
        (_is_reader, _of_reader),
        (_is_dataset, _of_dataset),
    )
    return next((opener(data) for is_kind, opener in openers if is_kind(data)), None)


def scanned_files(data: Any) -> list[Path] | None:
    """Return the Parquet files that a Polars lazy frame scans, if it does nothing else; None otherwise.

    The files themselves are read with a fraction of the memory, and changes of them are noticed. A plan does
    not show deletion files and renamed columns of Delta and Iceberg: their files are left to Polars.
    """
    match = _SCAN.fullmatch(data.explain()) if is_polars_lazy(data) else None
    if match is None:
        return None
    paths = [Path(path) for path in match[1].split(", ")]  # an abbreviated list has a part that is no file
    if not all(path.is_file() for path in paths) or any(map(_is_versioned, paths)):
        return None
    polars = sys.modules["polars"]
    try:
        footers = [parquet.ParquetFile(path) for path in paths]
        has_ids = any(FIELD_ID in (field.metadata or {}) for one in footers for field in one.schema_arrow)
        rows = sum(one.metadata.num_rows for one in footers)
    except (pa.ArrowException, OSError, ValueError):
        return None  # Polars says what is wrong
    plain = polars.scan_parquet(paths, hive_partitioning=False, glob=False).collect_schema()
    if has_ids or plain != data.collect_schema() or data.select(polars.len()).collect().item() != rows:
        return None
    return paths


def _is_versioned(path: Path) -> bool:
    """Return True for a file in the folder of a Delta or Iceberg table."""
    return any(is_delta(folder) or is_iceberg(folder) for folder in path.absolute().parents)


def _is_streamed(data: Any) -> bool:
    return is_polars_lazy(data) and hasattr(data, "collect_batches")


def _is_reader(data: Any) -> bool:
    """Return True for a reader of record batches, of PyArrow or of arro3, which deltalake uses."""
    is_arro3 = type(data).__module__.startswith("arro3.") and type(data).__name__ == "RecordBatchReader"
    return is_arro3 or isinstance(data, pa.RecordBatchReader)


def _is_dataset(data: Any) -> bool:
    return type(data).__module__.startswith("pyarrow._dataset") and hasattr(data, "to_batches")


def is_ibis_on_polars(data: Any) -> bool:
    """Return True for an Ibis table of the Polars backend, which compiles to a lazy frame."""
    if type(data).__module__.split(".")[0] != "ibis" or not hasattr(data, "get_backend"):
        return False
    return bool(data.get_backend().name == "polars")


def is_duckdb_file(data: Any) -> bool:
    """Return True for the path of a database of DuckDB."""
    return isinstance(data, (str, Path)) and Path(data).suffix in DATABASES


def _of_reader(data: Any) -> BatchStream:
    reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
    return BatchStream(
        "reader of record batches",
        reader.schema.names,
        schema_metadata(reader.schema),
        lambda columns: (batch.select(list(columns)) for batch in reader),
        again=False,
    )


def _of_duckdb_file(database: str | Path) -> BatchStream:
    """Return the only table of a database; if there are several, raise an error that names them."""
    import duckdb  # noqa: PLC0415  (large)

    path = Path(database)

    def connect() -> Any:
        if not path.is_file():
            raise FileError(f"{path}: there is no such file.")
        try:
            return duckdb.connect(path, read_only=True, config={"enable_external_access": False})
        except duckdb.Error:
            failed = FileError(f"{path}: is not a database that DuckDB can open, or is being written.")
        raise failed

    with connect() as connection:
        listed = "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal ORDER BY ALL"
        tables = connection.execute(listed).fetchall()
        if len(tables) != 1:
            names = ", ".join(repr(table) for _, table in tables) or "none"
            raise FileError(
                f"{path}: only a database with one table is read directly; this one has: {names}. Pass one: "
                f"ibis.duckdb.connect({str(path)!r}, read_only=True).table(…)."
            )
        place = ".".join(_quote(part) for part in tables[0])
        described = connection.execute(f"DESCRIBE {place}").fetchall()

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with connect() as connection:
            chosen = ", ".join(map(_quote, columns))
            yield from connection.sql(f"SELECT {chosen} FROM {place}").to_arrow_reader(ROWS)  # noqa: S608

    return BatchStream("table of DuckDB", [row[0] for row in described], {}, read)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _of_dataset(data: Any) -> BatchStream:
    schema = data.schema if hasattr(data, "scanner") else data.projected_schema

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if not columns:
            return
        if not hasattr(data, "scanner"):  # a scanner already has its columns and batch size
            yield from (batch.select(list(columns)) for batch in data.to_batches())
            return
        # read few batches ahead: the default is 16 batches per column
        yield from data.to_batches(
            columns=list(columns), batch_size=ROWS, batch_readahead=2, fragment_readahead=1
        )

    return BatchStream("data set", schema.names, schema_metadata(schema), read)


def _of_dask_frame(data: Any) -> BatchStream:
    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if not columns:
            return
        before = 0
        for part in data[list(columns)].partitions:  # one at a time
            frame = part.compute()
            try:
                arrays = [columns_of(frame)[name] for name in columns]
            except UnknownValue as error:
                raise error.shift_rows(before, None) from None
            yield from pa.table(arrays, names=list(columns)).to_batches(ROWS)
            before += len(frame)

    names = [name for name in data.columns if isinstance(name, str)]
    return BatchStream("Dask frame", names, metadata_of(data._meta), read)  # noqa: SLF001  (Dask's description)


def _of_lazy_frame(data: Any) -> BatchStream:
    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if not columns:
            return
        for part in data.select(list(columns)).collect_batches(chunk_size=ROWS, maintain_order=True):
            yield from part.to_arrow().to_batches()

    return BatchStream("lazy frame", data.collect_schema().names(), {}, read)
