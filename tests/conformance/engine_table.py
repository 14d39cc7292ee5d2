"""The table of engines on docs/howto/large-data.md, computed by trying every engine.

`test_engine_table.py` compares the page with these rows; a failure shows the row that belongs there.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import duckdb
import ibis
import polars as pl
import pyarrow as pa
from pyarrow import csv, dataset, parquet
from tests.conformance.sources import SERVED, SOURCES, STARTED
from tests.table_formats import create_iceberg, name_current, write_delta

import masquerade as mq
from masquerade.core.errors import DataChanged, UnknownValue
from masquerade.sources.engines.engine import Engine

NUMBERS = count()
COLUMNS = ("engine", "same answers", "missing values", "enum", "`region=north/`", "state", "memory")
SCHEMA = {"a": ["x", "y"], "b": ["p", "q", "unknown"]}
PLAIN = mq.Policy.from_dict(
    {"masquerade": 1, "variables": {name: {"categories": labels} for name, labels in SCHEMA.items()}}
)
WITH_MISSING = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            "a": {"categories": SCHEMA["a"]},
            "b": {"categories": SCHEMA["b"], "missing": "unknown"},
        },
    }
)
TABLE = pa.table({"a": ["x", "x", "y", "x"], "b": ["p", "q", "p", "p"]})
OTHER = pa.table({"a": ["y", "y", "y", "y"], "b": ["q", "q", "q", "q"]})
HOLES = pa.table({"a": ["x", "x", "y", "x"], "b": ["p", None, "p", None]})
COUNTS = {"a": [3, 1], "b": [3, 1, 0]}


@dataclass(frozen=True)
class EngineKind:
    """How to open a table in an engine, and how to change it afterwards.

    `make` writes a table and returns what `mq.tally` takes. `change` replaces the contents behind it; without
    it the data are an object that does not change. `conformance` are sources of the conformance cases.
    """

    name: str
    conformance: tuple[str, ...]
    make: Callable[[pa.Table, Path], Any]
    change: Callable[[Any, Path], None] | None = None
    partitions: Callable[[Path], Any] | None = None
    enum: Callable[[pa.Table, Path], Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    needs: str | None = None


def coded(table: pa.Table) -> pa.Table:
    """Return the table with dictionaries for text."""
    return pa.table({name: table[name].dictionary_encode() for name in table.column_names})


def write_parquet(table: pa.Table, folder: Path) -> Path:
    parquet.write_table(table, folder / "t.parquet")
    return folder / "t.parquet"


def write_csv(table: pa.Table, folder: Path) -> Path:
    csv.write_csv(table, folder / "t.csv")
    return folder / "t.csv"


def write_zst(table: pa.Table, folder: Path) -> Path:
    write_csv(table, folder)
    path = folder / "t.csv.zst"
    path.write_bytes(pa.compress((folder / "t.csv").read_bytes(), "zstd", asbytes=True))
    return path


def write_duckdb(table: pa.Table, folder: Path, a: str = "a") -> Path:
    path = folder / "t.duckdb"
    path.unlink(missing_ok=True)
    with duckdb.connect(path) as connection:
        connection.register("given", table)
        connection.execute(f"CREATE TABLE reports AS SELECT {a} AS a, b FROM given")  # noqa: S608
    return path


def in_polars(frame: pl.DataFrame) -> Any:
    return ibis.polars.connect({"reports": frame}).table("reports")


def write_partitions(folder: Path) -> Path:
    """Write TABLE below folders of column a."""
    place = folder / f"parts{next(NUMBERS)}"
    parts = dataset.partitioning(pa.schema([("a", pa.string())]), flavor="hive")
    dataset.write_dataset(TABLE, place, format="parquet", partitioning=parts)
    return place


def in_backend(connection: Any, table: pa.Table) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fetch_arrow_table", DeprecationWarning)  # Ibis's call of DuckDB
        return connection.create_table(f"engine_{next(NUMBERS)}", table)


def insert(connection: Any, table: Any) -> None:
    """Add records to a table, by a connection of the caller."""
    sql = f"INSERT INTO {table.get_name()} VALUES ('y', 'q')"  # noqa: S608
    if connection.name == "duckdb":
        connection.con.cursor().execute(sql)
    else:
        connection.con.execute(sql)
        if connection.name == "sqlite":
            connection.con.commit()


def replace_file(write: Callable[[pa.Table, Path], Path]) -> Callable[[Any, Path], None]:
    return lambda _, folder: write(OTHER, folder) and None


def with_enum(connection: Any, table: pa.Table) -> Any:
    """Return a table of a backend whose column a has a type of the database, an enum."""
    number, plain = next(NUMBERS), in_backend(connection, table).get_name()
    for sql in (
        f"CREATE TYPE letters_{number} AS ENUM ('x', 'y')",
        f"CREATE TABLE enum_{number} AS SELECT CAST(a AS letters_{number}) AS a, b FROM {plain}",  # noqa: S608
    ):
        connection.con.execute(sql)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fetch_arrow_table", DeprecationWarning)  # as above
        return connection.table(f"enum_{number}")


def backend_kind(name: str, conformance: str, connect: Callable[[], Any], **more: Any) -> EngineKind:
    def make(table: pa.Table, folder: Path) -> Any:
        del folder
        return in_backend(connect(), table)

    def change(made: Any, folder: Path) -> None:
        del folder
        insert(made.get_backend(), made)

    return EngineKind(name, (conformance,), make, change, **more)


def new_delta(table: pa.Table, folder: Path, by: str | None = None) -> Path:
    """Write the table as the second version of a Delta table, whose first version has other records."""
    place = folder / f"delta{next(NUMBERS)}"
    options = {} if by is None else {"partition_by": [by]}
    write_delta(table.slice(0, 1), place, **options)
    return write_delta(table, place, mode="overwrite", **options)


def change_delta(made: Path, folder: Path) -> None:
    del folder
    write_delta(OTHER, made, mode="overwrite")


def new_iceberg(table: pa.Table, folder: Path, by: str | None = None) -> Path:
    """Write the table as the second snapshot of an Iceberg table, whose first snapshot has other records."""
    place = folder / f"iceberg{next(NUMBERS)}"
    STARTED[str(place)] = created = create_iceberg(table.slice(0, 1), place, by)
    created.overwrite(table)
    name_current(created)
    return place


def change_iceberg(made: Path, folder: Path) -> None:
    del folder
    STARTED[str(made)].overwrite(OTHER)
    name_current(STARTED[str(made)])


def lake_kinds(
    name: str, make: Callable[..., Path], change: Callable[[Path, Path], None], conformance: str
) -> list[EngineKind]:
    """Return a table of versions in memory and in DuckDB."""
    over = f"DuckDB over {'an' if name == 'Iceberg' else 'a'} {conformance}"
    sources = {"memory": (conformance,), "duckdb": (over, f"{over} of partitions")}
    return [
        EngineKind(
            f"{name}, in {'DuckDB' if engine == 'duckdb' else 'memory'}",
            sources[engine],
            make,
            change,
            lambda folder: make(TABLE, folder, "a"),
            options={"engine": engine},
        )
        for engine in ("memory", "duckdb")
    ]


def spark_file(table: pa.Table, folder: Path) -> Any:
    return STARTED["session"].read.parquet(str(write_parquet(table, folder)))


KINDS = (
    EngineKind(
        "a frame (pandas, Polars, Arrow)",
        ("disguised records",),
        lambda table, _: table.to_pandas(),
        enum=lambda table, _: coded(table).to_pandas(),
    ),
    EngineKind(
        "a Polars lazy frame",
        ("Polars lazy frame",),
        lambda table, folder: pl.scan_parquet(write_parquet(table, folder)).filter(pl.col("a") != "z"),
        replace_file(write_parquet),
        lambda folder: pl.scan_parquet(write_partitions(folder), hive_partitioning=True),
        lambda table, _: pl.from_arrow(table).with_columns(pl.col("a").cast(pl.Enum(["x", "y"]))).lazy(),
    ),
    EngineKind(
        "its scan of one Parquet file",
        ("lazy scan of a file",),
        lambda table, folder: pl.scan_parquet(write_parquet(table, folder), hive_partitioning=False),
        replace_file(write_parquet),
        options={"engine": "duckdb"},
        enum=lambda table, folder: pl.scan_parquet(
            write_parquet(coded(table), folder), hive_partitioning=False
        ),
    ),
    EngineKind(
        "a Dask frame",
        ("Dask frame",),
        lambda table, _: dd.from_pandas(table.to_pandas(), npartitions=2),
        enum=lambda table, _: dd.from_pandas(coded(table).to_pandas(), npartitions=2),
        partitions=lambda folder: dd.read_parquet(write_partitions(folder), index=False),
    ),
    EngineKind(
        "Ibis, Polars",
        ("Ibis table on Polars",),
        lambda table, _: in_polars(pl.from_arrow(table)),
        enum=lambda table, _: in_polars(
            pl.from_arrow(table).with_columns(pl.col("a").cast(pl.Enum(["x", "y"])))
        ),
    ),
    EngineKind(
        "a file of DuckDB (`.duckdb`)",
        ("file of DuckDB",),
        write_duckdb,
        replace_file(write_duckdb),
        enum=lambda table, folder: write_duckdb(table, folder, "CAST(a AS ENUM ('x', 'y'))"),
    ),
    EngineKind(
        "`pyarrow.dataset`",
        ("Arrow data set",),
        lambda table, folder: dataset.dataset(write_parquet(table, folder)),
        replace_file(write_parquet),
        lambda folder: dataset.dataset(write_partitions(folder), partitioning="hive"),
        lambda table, folder: dataset.dataset(write_parquet(coded(table), folder)),
    ),
    EngineKind(
        "`RecordBatchReader`",
        ("reader of record batches",),
        lambda table, _: table.to_reader(),
        enum=lambda table, _: coded(table).to_reader(),
    ),
    EngineKind(
        "Parquet, in memory",
        ("folder of partitions",),
        write_parquet,
        replace_file(write_parquet),
        write_partitions,
        lambda table, folder: write_parquet(coded(table), folder),
        {"engine": "memory"},
    ),
    EngineKind(
        "Parquet, in DuckDB",
        ("DuckDB, summed up by the engine", "DuckDB over partitions"),
        write_parquet,
        replace_file(write_parquet),
        write_partitions,
        lambda table, folder: write_parquet(coded(table), folder),
        {"engine": "duckdb"},
    ),
    *lake_kinds("Delta", new_delta, change_delta, "Delta table"),
    *lake_kinds("Iceberg", new_iceberg, change_iceberg, "Iceberg table"),
    EngineKind(
        "CSV (`.csv.zst`), in memory", ("CSV compressed by Zstandard",), write_zst, replace_file(write_zst)
    ),
    EngineKind(
        "CSV, in DuckDB",
        ("DuckDB over CSV",),
        write_csv,
        replace_file(write_csv),
        options={"engine": "duckdb"},
    ),
    backend_kind(
        "Ibis, DuckDB",
        "Ibis table on DuckDB",
        ibis.duckdb.connect,
        enum=lambda table, _: with_enum(ibis.duckdb.connect(), table),
    ),
    backend_kind("Ibis, SQLite", "Ibis table on SQLite", ibis.sqlite.connect),
    backend_kind(
        "Ibis, PostgreSQL",
        "PostgreSQL",
        lambda: STARTED["database"],
        enum=lambda table, _: with_enum(STARTED["database"], table),
        needs="database",
    ),
    EngineKind(
        "Spark",
        ("Spark",),
        spark_file,
        replace_file(write_parquet),
        lambda folder: STARTED["session"].read.parquet(str(write_partitions(folder))),
        needs="session",
    ),
)


def counts(source: Any, name: str) -> list[float]:
    [table] = source.answer([mq.Query(by=name)])
    return [float(value) for value in table.values]


def opened(data: Any, kind: EngineKind, policy: mq.Policy = PLAIN) -> Any:
    return mq.tally(data, schema=policy, **kind.options)


def answers_cell(kind: EngineKind) -> str:
    """Return "yes" if the conformance cases run over the engine."""
    tried = {source.name for source in (*SOURCES, *SERVED)}
    return "yes" if set(kind.conformance) <= tried else "not tried"


def missing_cell(kind: EngineKind, folder: Path) -> str:
    """Return what happens with missing values, with and without a category for them."""
    told = opened(kind.make(HOLES, folder), kind, WITH_MISSING)
    if counts(told, "b") != [2, 0, 2]:
        return "**wrong**"
    try:
        counts(opened(kind.make(HOLES, folder), kind), "b")
    except UnknownValue:
        return "their category, or refused"
    return "**counted**"


def enum_cell(kind: EngineKind, folder: Path) -> str:
    """Return "yes" if a column of the engine's own type of categories is counted by its labels."""
    if kind.enum is None:
        return "–"
    source = opened(kind.enum(TABLE, folder), kind)
    return "yes" if counts(source, "a") == COUNTS["a"] else "**wrong**"


def partition_cell(kind: EngineKind, folder: Path) -> str:
    """Return "column" if the keys of folders are counted as a column."""
    if kind.partitions is None:
        return "–"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The inplace keyword", DeprecationWarning)  # Dask's call of pandas
        source = opened(kind.partitions(folder), kind)
        is_right = [counts(source, name) for name in COUNTS] == list(COUNTS.values())
    return "a column" if is_right else "**wrong**"


def state_cell(kind: EngineKind, folder: Path) -> str:
    """Return whether a change between two questions is kept out, or ends the source."""
    made = kind.make(TABLE, folder)
    source = opened(made, kind)
    if counts(source, "a") != COUNTS["a"]:
        return "**wrong**"
    if kind.change is None:
        return "kept"
    kind.change(made, folder)
    try:
        same = counts(source, "b") == COUNTS["b"]
    except DataChanged:
        return "`DataChanged`"
    return "kept" if same else "**mixed**"


def memory_cell(kind: EngineKind, folder: Path) -> str:
    """Return what the source holds."""
    source = opened(kind.make(TABLE, folder), kind)
    return "distinct rows, 1 GiB at most" if isinstance(source, Engine) else "a byte a value"


def row_of(kind: EngineKind) -> str:
    """Return the row of an engine, from new data for every cell."""
    cells = [kind.name, answers_cell(kind)]
    for cell in (missing_cell, enum_cell, partition_cell, state_cell, memory_cell):
        with tempfile.TemporaryDirectory() as place:
            cells.append(cell(kind, Path(place)))
    return f"| {' | '.join(cells)} |"
