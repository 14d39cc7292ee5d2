"""Tables that callers hold in an engine: Spark data frames and Ibis tables of any backend."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from masquerade.core.errors import EngineError, UnknownValue
from masquerade.sources.scanned import Table
from masquerade.sources.sql import Column, Dialect

SPARK: Final = Dialect(quote="`", backslash_escapes=True)
POSTGRES: Final = Dialect(double="DOUBLE PRECISION")
PLAIN: Final = Dialect(grouping_sets=False)  # what every engine understands
DIALECTS: Final = {"duckdb": Dialect(), "postgres": POSTGRES, "pyspark": SPARK, "databricks": SPARK}
TITLES: Final = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "pyspark": "Spark", "sqlite": "SQLite"}
ROWS: Final = 1 << 16
PATIENCE: Final = 0.2

Watch = Callable[[float | None], None]


def table_of(data: Any, *, watch: Watch | None = None) -> Table | None:
    """Return what a caller gave as an engine's table; None if it is none."""
    home = type(data).__module__.split(".")[0]
    if home == "pyspark" and hasattr(data, "sparkSession"):
        return SparkFrame(data, watch=watch)
    if home == "ibis" and hasattr(data, "get_backend"):
        return IbisTable(data, watch=watch)
    return None


class SparkFrame:
    """A Spark data frame; SQL runs on its cluster, only counts come to this process."""

    dialect, title, text = SPARK, "Spark", False

    def __init__(self, frame: Any, *, watch: Watch | None = None) -> None:
        self._frame, self._session, self._watch = frame, frame.sparkSession, watch
        self.names: tuple[str, ...] = tuple(frame.columns)

    def kinds(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        """Return the types of columns."""
        with told(self.title):
            quoted = [self.dialect.name(name) for name in names]
            schema = self._frame.select(*quoted).limit(0).toArrow().schema
        return dict(zip(names, schema.types, strict=True))

    def fetch(self, write: Callable[[str], str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Run SQL on the cluster."""
        del columns  # Spark finds out itself
        view = f"masquerade_{uuid4().hex}"
        with told(self.title), watching(self._watch, self._progress):
            self._frame.createOrReplaceTempView(view)
            try:
                result = self._session.sql(write(view)).toArrow()
            finally:
                self._session.catalog.dropTempView(view)
        yield from batches_of(result)

    def refuse(self, error: UnknownValue, column: Column) -> UnknownValue:
        """Return the error about a value: records of a cluster have no order."""
        del column
        return without_row(error)

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


class IbisTable:
    """An Ibis table or expression; its own backend runs the SQL."""

    text = False

    def __init__(self, table: Any, *, watch: Watch | None = None) -> None:
        self._table, self._backend, self._watch = table, table.get_backend(), watch
        self.dialect = DIALECTS.get(self._backend.name, PLAIN)
        self.title = TITLES.get(self._backend.name, f"{self._backend.name} (Ibis)")
        self.names: tuple[str, ...] = tuple(table.columns)
        with told(self.title):
            self._relation = f"({self._backend.compile(table)}) AS masquerade_reports"

    def kinds(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        """Return the types of columns."""
        schema = self._table.schema().to_pyarrow()
        return {name: schema.field(name).type for name in names}

    def fetch(self, write: Callable[[str], str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Run SQL in the backend."""
        del columns  # the backend finds out itself
        with told(self.title), watching(self._watch, lambda: None):
            result = self._backend.raw_sql(write(self._relation))
            if hasattr(result, "toArrow"):
                yield from batches_of(result.toArrow())
            elif hasattr(result, "to_arrow_table"):
                yield from batches_of(result.to_arrow_table())
            else:
                yield from fetched(result)

    def refuse(self, error: UnknownValue, column: Column) -> UnknownValue:
        """Return the error about a value: rows of a database have no order."""
        del column
        return without_row(error)


def fetched(cursor: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a database cursor, and close it."""
    try:
        names = [column[0] for column in cursor.description]
        rows = cursor.fetchmany(ROWS)
        if not rows:
            yield pa.RecordBatch.from_arrays([pa.nulls(0)] * len(names), names)
        while rows:
            columns = zip(*rows, strict=True)
            yield pa.RecordBatch.from_arrays([array_of(list(column)) for column in columns], names)
            rows = cursor.fetchmany(ROWS)
    finally:
        cursor.close()


def array_of(values: list[Any]) -> pa.Array:
    """Return values as an array; sums of whole numbers may come as decimals."""
    array = pa.array(values)
    return array.cast(pa.float64()) if pa.types.is_decimal(array.type) else array


def batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """Return the batches of a table, at least one, which then says what the columns are."""
    return table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]


def without_row(error: UnknownValue) -> UnknownValue:
    """Return the error about a value that stands at no row in particular."""
    return UnknownValue(error.column, None, error.problem)


@contextmanager
def told(title: str) -> Iterator[None]:
    """Turn whatever goes wrong in an engine into one line; its own words may quote data or credentials."""
    try:
        yield
    except EngineError:
        raise
    except Exception as error:  # noqa: BLE001  (drivers have trees of their own)
        kind = type(error).__name__
        lost = kind in {"OperationalError", "InterfaceError", "AdminShutdown", "Py4JNetworkError"}
        what = "the connection was lost" if lost else "the engine failed"
        raise EngineError(f"{title}: {what} ({kind}); nothing was answered.") from None


@contextmanager
def watching(watch: Watch | None, progress: Callable[[], float | None]) -> Iterator[None]:
    """Tell a watcher how far a scan is while it runs."""
    if watch is None:
        yield
        return
    done = threading.Event()

    def look() -> None:
        while not done.wait(PATIENCE):
            watch(progress())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
