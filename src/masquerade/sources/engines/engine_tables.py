"""Tables of callers in an engine: Spark data frames and Ibis tables of any backend.

Engines and drivers return Arrow batches with types that do not depend on the values.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from glob import escape
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa

from masquerade.core.errors import EngineError, InputError, MasqueradeError, UnknownValue
from masquerade.core.util.processes import ResourceOwner
from masquerade.frames.metadata import INCOMPLETE
from masquerade.frames.streams import is_ibis_on_polars
from masquerade.sources.engines.snapshot import Files, Snapshot
from masquerade.sources.engines.sql import EngineColumn, SqlDialect, sum_type

DUCKDB: Final = SqlDialect(try_cast="TRY_CAST")
POSTGRES: Final = SqlDialect(
    text_start="E'", escapes=(("\\", "\\\\"), ("'", "''")), double="DOUBLE PRECISION"
)
BACKSLASHES: Final = (("\\", "\\\\"), ("'", "\\'"))
# Spark replaces ${name} by a setting, even inside a string or a quoted name
SPARK: Final = SqlDialect(
    quote="`",
    escapes=(*BACKSLASHES, ("$", "\\u0024")),
    try_cast="TRY_CAST",
    substituted="${",
    zoned="TIMESTAMP",
)
DIALECTS: Final = {"duckdb": DUCKDB, "postgres": POSTGRES, "pyspark": SPARK, "databricks": SPARK}
TITLES: Final = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "pyspark": "Spark", "sqlite": "SQLite"}
PATIENCE: Final = 0.2
OPEN_THERE: Final = "Open the source where it is used: mq.tally(…) inside the function that runs there."
ROWS: Final = 1 << 16  # rows of a cursor in one batch
LOST: Final = {"OperationalError", "InterfaceError", "AdminShutdown", "CrashShutdown", "Py4JNetworkError"}

Watch = Callable[[float | None], None]


class Table(Protocol):
    """A table in an engine that runs SQL over it."""

    @property
    def dialect(self) -> SqlDialect:
        """SQL dialect of the engine."""

    @property
    def title(self) -> str:
        """Name of the engine for logs and messages, without credentials."""

    @property
    def text(self) -> bool:
        """True if all columns are text, as in a CSV file."""

    @property
    def names(self) -> Sequence[str]:
        """The columns."""

    def kinds(self, names: Sequence[str]) -> Mapping[str, pa.DataType]:
        """Return the types of columns."""

    def policies(self, names: Sequence[str]) -> set[str]:
        """Return the policies named in the metadata of columns."""

    def fetch(self, write: Callable[[str], str], columns: Sequence[str]) -> Generator[pa.RecordBatch]:
        """Run the SQL that `write` returns for the table's name, which reads these columns.

        Yields at least one batch, possibly empty.
        """

    def refuse(self, error: UnknownValue, column: EngineColumn) -> UnknownValue:
        """Return the error about a value, with its position if it can be found."""


class TableGrowth(NamedTuple):
    """The present state of a table, and its rows that are new since an earlier state."""

    whole: Table
    new: Table


@runtime_checkable
class Growing(Protocol):
    """A table that can be checked for new rows."""

    def newer(self) -> TableGrowth | None:
        """Return the present state, None if nothing is new. Changed or deleted rows raise `DataChanged`."""


def table_of(data: Any, *, watch: Watch | None = None) -> Table | None:
    """Return the caller's data as an engine's table, or None for data of other types."""
    home = type(data).__module__.split(".")[0]
    if home == "pyspark" and hasattr(data, "sparkSession"):
        return SparkFrame(data, watch=watch)
    if home == "ibis" and hasattr(data, "get_backend") and not is_ibis_on_polars(data):
        return IbisTable(data, watch=watch)
    return None


class _Unordered:
    """Common behaviour of remote tables: columns have types, rows have no order."""

    text = False

    def policies(self, names: Sequence[str]) -> set[str]:
        """Return no policies: a database has no metadata of columns."""
        del names
        return set()

    def refuse(self, error: UnknownValue, column: EngineColumn) -> UnknownValue:
        """Return the error about a value, without a row."""
        del column
        return without_row(error)


class SparkFrame(_Unordered):
    """A Spark data frame. SQL runs on its cluster, and only counts reach this process."""

    dialect, title = SPARK, "Spark"

    def __init__(self, frame: Any, *, watch: Watch | None = None) -> None:
        self._owner = ResourceOwner("A source over Spark", OPEN_THERE)
        self._frame, self._session, self._watch = frame, frame.sparkSession, watch
        self.names: tuple[str, ...] = tuple(frame.columns)
        with translate_engine_errors(self.title):
            self._files = Files(_local(frame.inputFiles()))

    def kinds(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        """Return the types of columns."""
        with translate_engine_errors(self.title):
            quoted = [self.dialect.name(name) for name in names]
            schema = self._frame.select(*quoted).limit(0).toArrow().schema
        return dict(zip(names, map(_readable, schema.types), strict=True))

    def policies(self, names: Sequence[str]) -> set[str]:
        """Return the policies named in the metadata of columns."""
        marks = [field.metadata.get("masquerade", {}) for field in self._frame.schema if field.name in names]
        return {mark["policy"] for mark in marks if "policy" in mark}

    def missing(self) -> str | None:
        """Return the missing records stated in the metadata of columns, or None."""
        marks = [field.metadata.get("masquerade", {}) for field in self._frame.schema]
        return "; ".join(dict.fromkeys(mark[INCOMPLETE] for mark in marks if INCOMPLETE in mark)) or None

    def fetch(self, write: Callable[[str], str], columns: Sequence[str]) -> Generator[pa.RecordBatch]:
        """Run SQL on the cluster."""
        del columns  # Spark determines them itself
        self._owner.check()
        view = f"masquerade_{uuid4().hex}"
        self._files.check()
        with translate_engine_errors(self.title), watching(self._watch, self._progress):
            self._frame.createOrReplaceTempView(view)
            try:
                result = self._session.sql(write(view)).toArrow()
            finally:
                self._session.catalog.dropTempView(view)
        self._files.check()
        yield from _batches_of(result)

    def _progress(self) -> float | None:
        context = getattr(self._session, "sparkContext", None)
        if context is None:
            return None
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        known = [stage for stage in stages if stage]
        tasks = sum(stage.numTasks for stage in known)
        return sum(stage.numCompletedTasks for stage in known) / tasks if tasks else None


def _local(addresses: Sequence[str]) -> list[str]:
    """Return the local files among those that Spark reads. A cluster checks the others."""
    parts = [urlsplit(address) for address in addresses]
    return [escape(unquote(part.path)) for part in parts if part.scheme == "file" and not part.netloc]


class IbisTable(_Unordered):
    """An Ibis table or expression. Its backend runs the SQL, over one state (`snapshot`)."""

    def __init__(self, table: Any, *, watch: Watch | None = None) -> None:
        _check_stored(table)
        backend = table.get_backend()
        self.title = TITLES.get(backend.name, f"{backend.name} (Ibis)")
        self._owner = ResourceOwner(
            f"A source over a connection to {self.title}", OPEN_THERE, thread=backend.name == "sqlite"
        )
        self._table, self._backend, self._watch = table, backend, watch
        self.dialect = dialect_of(self._backend, self.title)
        self.names: tuple[str, ...] = tuple(table.columns)
        with translate_engine_errors(self.title):
            relation = f"({self._backend.compile(table)}) AS masquerade_reports"
            self._snapshot = Snapshot(self._backend, table, relation)

    def reopen(self) -> IbisTable:
        """Return the same table in its present state."""
        return IbisTable(self._table, watch=self._watch)

    def kinds(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        """Return the types of columns."""
        with translate_engine_errors(self.title):
            schema = self._table.schema()
            return {name: _readable(schema[name].to_pyarrow()) for name in names}

    def fetch(self, write: Callable[[str], str], columns: Sequence[str]) -> Generator[pa.RecordBatch]:
        """Run SQL in the backend."""
        self._owner.check()
        kinds = self.kinds(columns)
        with (
            translate_engine_errors(self.title),
            watching(self._watch, lambda: None),
            self._snapshot.reading() as connection,
        ):
            query = write(self._snapshot.relation)
            if self._backend.name == "duckdb":
                yield from _batches_of(connection.sql(query).to_arrow_table())
            elif self._backend.name == "postgres":
                with connection.cursor() as cursor:
                    yield from _fetch_batches(cursor, cursor.stream(query, size=_streamed_at_once()), kinds)
            else:
                result = self._backend.raw_sql(query)
                if hasattr(result, "toArrow"):
                    yield from _batches_of(result.toArrow())
                else:
                    with closing(result) as cursor:
                        yield from _fetch_batches(cursor, iter(cursor), kinds)


def _check_stored(table: Any) -> None:
    """Raise InputError for an expression over frames in memory."""
    from ibis.expr.operations import InMemoryTable  # type: ignore[import-untyped]  # noqa: PLC0415

    if table.op().find(InMemoryTable):
        raise InputError("An Ibis memtable is in memory: pass the frame itself, or create a table from it.")


def dialect_of(backend: Any, title: str) -> SqlDialect:
    """Return the SQL dialect of a backend. For an unknown backend, only standard SQL is used."""
    known = DIALECTS.get(backend.name)
    if known is not None:
        return known
    quote, end = backend.dialect.IDENTIFIER_START, backend.dialect.IDENTIFIER_END
    if quote != end:
        raise InputError(f"{title} cannot count records: export them to Parquet.")
    backslash = "\\" in backend.dialect.tokenizer_class.STRING_ESCAPES
    escapes = BACKSLASHES if backslash else SqlDialect().escapes
    return SqlDialect(quote=quote, escapes=escapes, grouping_sets=False, knows_nan=False)


def without_row(error: UnknownValue) -> UnknownValue:
    """Return the error about a value without its row."""
    return UnknownValue(error.column, None, error.problem)


@contextmanager
def translate_engine_errors(title: str) -> Iterator[None]:
    """Convert any engine error to one line, since the engine's message may quote data or credentials."""
    try:
        with _silence_drivers():
            yield
    except MasqueradeError:
        raise
    except Exception as error:  # noqa: BLE001  (every driver has its own exceptions)
        kind, home = type(error).__name__, type(error).__module__.split(".")[0]
        lost = kind in LOST and home in {"psycopg", "py4j"}
        what = "the connection was lost" if lost else "the engine failed"
        raise EngineError(f"{title}: {what} ({kind}); nothing was answered.") from None


@contextmanager
def _silence_drivers() -> Iterator[None]:
    """Keep drivers from logging error messages, which quote data or addresses."""

    def nothing(record: object) -> bool:  # one filter per scan: threads end at different times
        del record
        return False

    loggers = [logging.getLogger("psycopg")]
    if "pyspark.logger" in sys.modules:
        from pyspark.logger import PySparkLogger  # noqa: PLC0415

        loggers += [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    for logger in loggers:
        logger.addFilter(nothing)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(nothing)


@contextmanager
def watching(watch: Watch | None, progress: Callable[[], float | None]) -> Iterator[None]:
    """Report the progress of a scan to a watcher while it runs."""
    if watch is None:
        yield
        return
    done = threading.Event()

    def look() -> None:
        while not done.wait(PATIENCE):
            share = None
            with suppress(Exception):  # a failing scan raises its own error
                share = progress()
            watch(share)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _streamed_at_once() -> int:
    """Return the number of rows that PostgreSQL's client fetches at a time, to bound memory."""
    from psycopg import capabilities  # noqa: PLC0415

    return 1000 if capabilities.has_stream_chunked() else 1


def _fetch_batches(
    cursor: Any, rows: Iterator[Any], kinds: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a database cursor as batches with types that do not depend on the values."""
    some = list(islice(rows, ROWS))
    names = [column[0] for column in cursor.description]
    types = [kinds.get(name) or sum_type(name) for name in names]
    while True:
        columns = zip(*some, strict=True) if some else [()] * len(names)
        arrays = [array_of(values, kind) for values, kind in zip(columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names)
        some = list(islice(rows, ROWS))
        if not some:
            return


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an array. Sums may be decimals, booleans 0 and 1."""
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else float(value) for value in values], kind)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return pa.array(values).cast(kind)
    return pa.array(values, kind)


def _readable(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column is fetched as: decimals are read as floats."""
    return pa.float64() if pa.types.is_decimal(kind) else kind


def _batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """Return the batches of a table, at least one, which defines the columns."""
    table = table.cast(pa.schema([(field.name, _readable(field.type)) for field in table.schema]))
    return table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
