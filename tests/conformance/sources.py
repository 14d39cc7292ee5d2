"""Every source of counts, one line each: name, how to make it, into how many samples it splits the records.

A new source is one more line. It gets a `Case` and answers about its disguised records, except where it is
marked as clear: then it answers about the clear records. Those of `SERVED` need a server, which the fixture
of that name puts into `STARTED`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dask.dataframe as dd
import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from pyarrow import dataset
from tests.conformance.cases import RECORDS, Case
from tests.conformance.people import FEW, SOME, by_aggregation, by_frequency_mining
from tests.table_formats import create_iceberg, name_current, write_delta

import masquerade as mq
from masquerade.crypto.keys import SigningKey
from masquerade.disguising.report_draws import DEALING
from masquerade.interop import dap_cell, from_dap, to_dap
from masquerade.protocols.secure_sum import MaskedSum
from masquerade.protocols.vertical.disguised_cells import ClearCells, Site
from masquerade.protocols.vertical.scalar_products import HelpedProducts, ProductHelper, ProductParty
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.engines.engine_cache import EngineLimits
from masquerade.sources.parties.joined import JoiningMiner
from masquerade.sources.parties.pooled import PooledTally, pooling_party
from masquerade.sources.parties.products import RevealedVerticalCounts

STARTED: dict[str, Any] = {}
NUMBERS = count()
# nothing fits: tables are covered one by one, and conditions are summed up by the engine
SUMMED_UP = EngineLimits(cells=4, bytes=4096, saving=float("inf"), weights=2)
NO_STRATA = frozenset({"strata"})  # a party's channels would depend on another party's column


@dataclass(frozen=True)
class Source:
    name: str
    make: Callable[[Case], mq.Tally]
    samples: int = 1
    clear: bool = False
    needs: str | None = None
    without: frozenset[str] = frozenset()  # cases that it refuses
    records: int = RECORDS  # people are costly: a source of them holds the first few records

    def parts(self, case: Case) -> list[tuple[pd.DataFrame, mq.Policy]]:
        """Return the records of every independent sample, and the policy they were disguised by."""
        frame = (case.clear if self.clear else case.disguised).iloc[: self.records]
        policy = case.policy.without_channels() if self.clear else case.policy
        return [(frame.iloc[i :: self.samples], policy) for i in range(self.samples)]


def in_memory(frame: pd.DataFrame, case: Case) -> mq.Tally:
    return mq.tally(frame, case.policy)


def warmed(case: Case) -> mq.Tally:
    """Return a source that has merged equal rows, as it does after several questions."""
    source = mq.tally(case.disguised, case.policy)
    source.answer([mq.Query(by=name) for name in source.schema])
    source.answer([mq.Query(by=name) for name in source.schema])
    return source


def record_batches(case: Case) -> pa.RecordBatchReader:
    return pa.Table.from_pandas(case.disguised, preserve_index=False).to_reader(max_chunksize=1000)


def on_polars(case: Case) -> Any:
    return ibis.polars.connect({"reports": pl.from_pandas(case.disguised)}).table("reports")


def duckdb_file(case: Case) -> Path:
    path, reports = folder() / f"{next(NUMBERS)}.duckdb", pa.Table.from_pandas(case.disguised)
    with duckdb.connect(path) as connection:
        connection.register("given", reports)
        connection.execute("CREATE TABLE reports AS FROM given")
    return path


def data_set(case: Case) -> Any:
    place = folder() / f"{next(NUMBERS)}"
    place.mkdir()
    for part in range(2):
        case.disguised.iloc[part::2].to_parquet(place / f"{part}.parquet", index=False)
    return dataset.dataset(place)


def partitioned(case: Case) -> Path:
    """Write the records below folders of their first column, as Spark and DuckDB do."""
    place = folder() / f"{next(NUMBERS)}"
    name = case.disguised.columns[0]
    for value, rows in case.disguised.groupby(name, observed=True, sort=False):
        inner = place / f"{quote(str(name), safe='')}={quote(str(value), safe='')}"
        inner.mkdir(parents=True)
        rows.drop(columns=name).to_parquet(inner / "part-0.parquet", index=False)
    return place


def stored_scan(case: Case) -> Any:
    """Return a lazy scan of a file, which is read as the file itself."""
    path = folder() / f"{next(NUMBERS)}.parquet"
    case.disguised.to_parquet(path, index=False)
    return pl.scan_parquet(path)


def in_dask(case: Case) -> Any:
    return dd.from_pandas(case.disguised.reset_index(drop=True), npartitions=3)


def in_delta(case: Case, *, by: bool = False) -> Path:
    """Write the records after others, which are deleted, and in two commits."""
    table = pa.Table.from_pandas(case.disguised, preserve_index=False)
    place, name = folder() / f"{next(NUMBERS)}", table.column_names[0]
    columns = {"partition_by": [name]} if by else {}
    write_delta(table.slice(0, 100), place, **columns)
    write_delta(table.slice(0, 500), place, mode="overwrite", **columns)
    return write_delta(table.slice(500), place, mode="append", **columns)


def in_iceberg(case: Case, *, by: bool = False) -> Path:
    """Write the records after others, which are deleted, and in two commits."""
    table = pa.Table.from_pandas(case.disguised, preserve_index=False)
    place = folder() / f"{next(NUMBERS)}"
    created = create_iceberg(table.slice(0, 100), place, table.column_names[0] if by else None)
    created.overwrite(table.slice(0, 500))
    created.append(table.slice(500))
    name_current(created)
    return place


def compressed(case: Case) -> Path:
    path = folder() / f"{next(NUMBERS)}.csv.zst"
    path.write_bytes(pa.compress(case.disguised.to_csv(index=False).encode(), "zstd", asbytes=True))
    return path


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


def arriving(case: Case) -> mq.Tally:
    """Return a source that has answered about the first files when the others arrive."""
    paths = stored(case.disguised.reset_index(drop=True), "parquet", files=3)
    place = folder() / f"arriving-{next(NUMBERS)}"
    place.mkdir()
    paths[0].rename(place / "0.parquet")
    source = mq.tally(place / "*.parquet", case.policy, growing=True)
    queries = [mq.Query(by=name) for name in source.schema]
    source.answer([query for query in queries if not source.check([query])])
    for number, path in enumerate(paths[1:], 1):
        path.rename(place / f"{number}.parquet")
        source = source.refresh()
    return source


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


def collected_by_dap(case: Case) -> mq.Tally:
    """Return what a collector of DAP gets where every record's report is the number of its cell."""
    task = to_dap(case.policy)
    cells = [dap_cell(case.policy, row) for row in case.disguised.to_dict("records")]
    counts = np.bincount(cells, minlength=task["length"]).tolist()
    told = {"masquerade_dap": 1, "vdaf": task["vdaf"], "policy": case.policy.id}
    return from_dap(told | {"report_count": len(cells), "counts": counts}, case.policy)


def pooled(case: Case) -> mq.Tally:
    """Spread the records over three parties that pool their counts."""
    identities = {name: SigningKey() for name in ("east", "north", "west")}
    public = {name: key.public for name, key in identities.items()}
    parties = {
        name: pooling_party(name, mq.tally(case.disguised.iloc[i::3], case.policy), key, public)
        for i, (name, key) in enumerate(identities.items())
    }
    transport = LocalTransport({name: party.receive for name, party in parties.items()})
    return PooledTally(MaskedSum(tuple(parties), transport, case.policy), case.policy)


def mined(case: Case, kept: Path | None = None, **options: Any) -> mq.Tally:
    """Scatter the cells over two parties that send them to a miner; their draws are those of the case."""
    policy, session = case.policy, bytes(16)
    clear = mq.tally(case.clear, schema=policy).codes
    reports = mq.tally(case.disguised, policy).codes
    tags = np.frombuffer(os.urandom(16 * len(case.clear)), dtype=np.uint8).reshape(-1, 16)

    def held(groups: Sequence[Any], rows: slice) -> ClearCells:
        def drawn(*drawing: Any) -> Any:
            *_, some, place = drawing
            group = policy.groups[place & ~DEALING]
            columns = [reports[name][rows] for name in group.reports]
            if group.response is not None:
                return columns[0] if place & DEALING else columns[1][some]
            return np.ravel_multi_index(columns, group.report_sizes)

        names = [name for group in groups for name in group.names]
        return ClearCells({name: clear[name][rows] for name in names}, tags[rows], drawn)

    half = len(case.clear) // 2
    first, second = policy.groups[::2], policy.groups[1::2]
    cells = {
        "u": [held(first, slice(None)), held(second, slice(half, None))],
        "v": [held(second, slice(half))],
    }
    sites = {name: Site(name, policy, blocks, session) for name, blocks in cells.items()}
    transport = LocalTransport({name: place.receive for name, place in sites.items()})
    return JoiningMiner(dict.fromkeys(sites, policy.id), session).records(transport, kept, **options)


def products(case: Case) -> mq.Tally:
    """Give every second variable to another party; a helper helps them to multiply."""
    names = case.policy.schema.names
    owners = {"x": names[::2], "y": names[1::2]}
    identities = {name: SigningKey() for name in (*owners, "helper")}
    public = {name: key.public for name, key in identities.items()}
    codes, schema = mq.tally(case.clear, schema=case.policy).codes, case.policy.schema
    roles: dict[str, Any] = {
        party: ProductParty(
            party,
            {name: codes[name] for name in own},
            identities[party],
            public,
            helper="helper",
            schema=schema,
            owners=owners,
        )
        for party, own in owners.items()
    }
    n = len(case.clear)
    roles["helper"] = ProductHelper("helper", identities["helper"], public, n=n, schema=schema, owners=owners)
    transport = LocalTransport({name: role.receive for name, role in roles.items()})
    return RevealedVerticalCounts(HelpedProducts(owners, "helper", transport, schema, n))


SOURCES = (
    Source("clear records", lambda case: mq.tally(case.clear, schema=case.policy), clear=True),
    Source("disguised records", lambda case: mq.tally(case.disguised, case.policy)),
    Source("disguised records, equal rows merged", warmed),
    Source("Polars lazy frame", lambda case: mq.tally(pl.from_pandas(case.disguised).lazy(), case.policy)),
    Source("Ibis table on Polars", lambda case: mq.tally(on_polars(case), case.policy)),
    Source("file of DuckDB", lambda case: mq.tally(duckdb_file(case), case.policy)),
    Source("Arrow data set", lambda case: mq.tally(data_set(case), case.policy)),
    Source("reader of record batches", lambda case: mq.tally(record_batches(case), case.policy)),
    Source("folder of partitions", lambda case: mq.tally(partitioned(case), case.policy, engine="memory")),
    Source("DuckDB over partitions", lambda case: mq.tally(partitioned(case), case.policy, engine="duckdb")),
    Source("CSV compressed by Zstandard", lambda case: mq.tally(compressed(case), case.policy)),
    Source("lazy scan of a file", lambda case: mq.tally(stored_scan(case), case.policy)),
    Source("Dask frame", lambda case: mq.tally(in_dask(case), case.policy)),
    Source("Delta table", lambda case: mq.tally(in_delta(case), case.policy)),
    Source("DuckDB over a Delta table", lambda case: mq.tally(in_delta(case), case.policy, engine="duckdb")),
    Source(
        "DuckDB over a Delta table of partitions",
        lambda case: mq.tally(in_delta(case, by=True), case.policy, engine="duckdb"),
    ),
    Source("Iceberg table", lambda case: mq.tally(in_iceberg(case), case.policy)),
    Source(
        "DuckDB over an Iceberg table", lambda case: mq.tally(in_iceberg(case), case.policy, engine="duckdb")
    ),
    Source(
        "DuckDB over an Iceberg table of partitions",
        lambda case: mq.tally(in_iceberg(case, by=True), case.policy, engine="duckdb"),
    ),
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
    Source("DuckDB over Parquet, files arriving", arriving),
    Source("DuckDB over CSV", lambda case: in_duckdb(case, "csv", files=2)),
    Source("DuckDB, summed up by the engine", lambda case: summed_up(in_duckdb(case, "parquet"))),
    Source("DuckDB over CSV, summed up by the engine", lambda case: summed_up(in_duckdb(case, "csv"))),
    Source("Ibis table on DuckDB", lambda case: in_database(ibis.duckdb.connect(), case)),
    Source("Ibis table on SQLite", lambda case: in_database(ibis.sqlite.connect(), case)),
    Source(
        "Ibis table on SQLite, summed up by the engine",
        lambda case: summed_up(in_database(ibis.sqlite.connect(), case)),
    ),
    Source(
        "controlled clear records",
        lambda case: mq.Controlled(mq.tally(case.clear, schema=case.policy), mq.Rules(most_variables=5)),
        clear=True,
    ),
    Source("a histogram of DAP", collected_by_dap),
    Source("pooled parties", pooled),
    Source("vertical parties and a miner", mined, without=NO_STRATA),
    Source(
        "vertical parties and a miner, part by part",
        lambda case: mined(case, folder() / str(next(NUMBERS)), rows_at_once=len(case.clear) // 3),
        without=NO_STRATA,
    ),
    Source("scalar products of vertical parties", products, clear=True),
)
PEOPLE = (
    # so few people are not dealt every block
    Source(
        "frequency mining",
        lambda case: by_frequency_mining(case)[1],
        records=FEW,
        without=frozenset({"blocks"}),
    ),
    Source("secure aggregation", lambda case: by_aggregation(case)[1], records=SOME),
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
