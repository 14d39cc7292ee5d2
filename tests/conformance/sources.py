"""Every source of counts, one line each: name, how to make it, into how many samples it splits the records.

A new source is one more line. It gets a `Case` and answers about its disguised records, except where it is
marked as clear: then it answers about the clear records. Those of `SERVED` need a server, which the fixture
of that name puts into `STARTED`.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import ibis
import pandas as pd
import pyarrow as pa
from tests.conformance.cases import Case

import masquerade as mq
from masquerade.sources.scanned import Limits

STARTED: dict[str, Any] = {}
NUMBERS = count()
# nothing fits: tables are covered one by one, and conditions are summed up by the engine
SUMMED_UP = Limits(cells=4, bytes=4096, saving=float("inf"), weights=2)


@dataclass(frozen=True)
class Source:
    name: str
    make: Callable[[Case], mq.Tally]
    samples: int = 1
    clear: bool = False
    needs: str | None = None

    def parts(self, case: Case) -> list[tuple[pd.DataFrame, mq.Policy]]:
        """Return the records of every independent sample, and the policy they were disguised by."""
        frame = case.clear if self.clear else case.disguised
        policy = case.policy.undisguised() if self.clear else case.policy
        return [(frame.iloc[i :: self.samples], policy) for i in range(self.samples)]


def in_memory(frame: pd.DataFrame, case: Case) -> mq.Tally:
    return mq.tally(frame, case.policy)


def warmed(case: Case) -> mq.Tally:
    """Return a source that has merged equal rows, as it does after several questions."""
    source = mq.tally(case.disguised, case.policy)
    source.answer([mq.Query(by=name) for name in source.schema])
    source.answer([mq.Query(by=name) for name in source.schema])
    return source


@cache
def folder() -> Path:
    made = tempfile.mkdtemp(prefix="conformance-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def stored(frame: pd.DataFrame, suffix: str, files: int = 1) -> list[Path]:
    """Write a frame into some files, so that none has the records in their order."""
    number = next(NUMBERS)
    paths = [folder() / f"{number}-{i}.{suffix}" for i in range(files)]
    for i, path in enumerate(paths):
        part = frame.iloc[i::files]
        if suffix == "csv":
            part.to_csv(path, index=False)
        else:
            part.to_parquet(path, index=False) if suffix == "parquet" else part.to_feather(path)
    return paths


def in_duckdb(case: Case, suffix: str, files: int = 1) -> mq.Tally:
    return mq.tally(
        stored(case.disguised.reset_index(drop=True), suffix, files), case.policy, engine="duckdb"
    )


def summed_up(source: Any) -> mq.Tally:
    """Return a source of an engine that holds next to nothing itself."""
    source.limits = SUMMED_UP
    return source


def in_database(connection: Any, case: Case) -> mq.Tally:
    """Put the records into a table of an Ibis connection."""
    table = pa.Table.from_pandas(case.disguised, preserve_index=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fetch_arrow_table", DeprecationWarning)  # Ibis's call of DuckDB
        created = connection.create_table(f"reports_{next(NUMBERS)}", table)
    return mq.tally(created, case.policy)


def in_spark(case: Case) -> mq.Tally:
    table = pa.Table.from_pandas(case.disguised, preserve_index=False)
    return mq.tally(STARTED["session"].createDataFrame(table), case.policy)


SOURCES = (
    Source("clear records", lambda case: mq.tally(case.clear, schema=case.policy), clear=True),
    Source("disguised records", lambda case: mq.tally(case.disguised, case.policy)),
    Source("disguised records, equal rows merged", warmed),
    Source("cached", lambda case: mq.Cached(in_memory(case.disguised, case))),
    Source(
        "merged",
        lambda case: mq.Merged([in_memory(case.disguised.iloc[i::2], case) for i in range(2)]),
        samples=2,
    ),
    Source(
        "clear records in DuckDB",
        lambda case: mq.tally(stored(case.clear, "parquet"), schema=case.policy, engine="duckdb"),
        clear=True,
    ),
    Source("DuckDB over Parquet", lambda case: in_duckdb(case, "parquet", files=3)),
    Source("DuckDB over CSV", lambda case: in_duckdb(case, "csv", files=2)),
    Source("DuckDB, summed up by the engine", lambda case: summed_up(in_duckdb(case, "parquet"))),
    Source("DuckDB over CSV, summed up by the engine", lambda case: summed_up(in_duckdb(case, "csv"))),
    Source("Ibis table on DuckDB", lambda case: in_database(ibis.duckdb.connect(), case)),
    Source("Ibis table on SQLite", lambda case: in_database(ibis.sqlite.connect(), case)),
    Source(
        "Ibis table on SQLite, summed up by the engine",
        lambda case: summed_up(in_database(ibis.sqlite.connect(), case)),
    ),
)
SERVED = (
    Source("PostgreSQL", lambda case: in_database(STARTED["database"], case), needs="database"),
    Source(
        "PostgreSQL, summed up by the engine",
        lambda case: summed_up(in_database(STARTED["database"], case)),
        needs="database",
    ),
    Source("Spark", in_spark, needs="session"),
)
