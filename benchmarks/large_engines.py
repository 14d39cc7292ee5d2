"""The same counts in memory, DuckDB, Spark and PostgreSQL: seconds and bytes for the docs' sizing table.

Spark runs as a master and two workers of one core each, PostgreSQL with little memory (64 MB of buffers);
the helpers of the tests start both, and end them with this script.

    python -m benchmarks.large_engines [--rows N] [--json FILE]
"""

import argparse
import io
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import ibis
import psycopg
import pyarrow.csv as pc
import pyarrow.parquet as pq
from benchmarks.large import TRIPLE, estimated, machine
from benchmarks.large_data import NAMES, POLICY, write_parts
from benchmarks.timing import keep
from tests.servers.postgres import postgres_server
from tests.servers.spark import spark_cluster

import masquerade as mq

ROWS, PARTS = 20_000_000, 10


@contextmanager
def in_memory(paths):
    yield lambda: mq.tally([str(path) for path in paths], POLICY, engine="memory"), size_of(paths)


@contextmanager
def in_duckdb(paths):
    yield lambda: mq.tally([str(path) for path in paths], POLICY, engine="duckdb"), size_of(paths)


@contextmanager
def in_spark(paths):
    with spark_cluster() as cluster:
        frame = cluster.session.read.parquet(*map(str, paths))
        frame.limit(1).toArrow()  # Spark compiles and warms up once, not once a question
        yield lambda: mq.tally(frame, POLICY), size_of(paths)


@contextmanager
def in_postgres(paths):
    with postgres_server() as server, psycopg.connect(server.url) as connection:
        kinds = ", ".join(f"{name} text" for name in NAMES)
        connection.execute(f"CREATE TABLE people ({kinds})")
        with connection.cursor().copy("COPY people FROM STDIN (FORMAT csv)") as copy:
            for path in paths:
                for batch in pq.ParquetFile(path).iter_batches(1 << 18):
                    text = io.BytesIO()
                    pc.write_csv(batch, text, pc.WriteOptions(include_header=False))
                    copy.write(text.getvalue())
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE people")
        (stored,) = connection.execute("SELECT pg_table_size('people')").fetchone()
        table = ibis.postgres.from_connection(connection).table("people")
        yield lambda: mq.tally(table, POLICY), stored


ENGINES = {
    "memory": in_memory,
    "DuckDB": in_duckdb,
    "Spark, 2 workers of 1 core": in_spark,
    "PostgreSQL": in_postgres,
}


def size_of(paths):
    return sum(path.stat().st_size for path in paths)


def timed(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measured(name, paths, rows):
    """Return the seconds of a 3-way table and of a K2 structure, each from a new source."""
    with ENGINES[name](paths) as (opened, stored):
        table = timed(lambda: estimated(opened(), [TRIPLE]))
        structure = timed(lambda: mq.learn.structure(opened(), NAMES, max_parents=3))
    return {
        "engine": name,
        "rows": rows,
        "columns": len(NAMES),
        "bytes": stored,
        "table_seconds": table,
        "structure_seconds": structure,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = []
    print(f"{'engine':<28}{'rows':>13}{'MiB':>8}{'3-way s':>10}{'K2 s':>8}", flush=True)
    with tempfile.TemporaryDirectory(prefix="masquerade-large-") as folder:
        paths = write_parts(folder, given.rows, PARTS)
        for name in ENGINES:
            row = measured(name, paths, given.rows)
            results.append(row)
            figures = (
                f"{row['bytes'] / 2**20:>8,.0f}{row['table_seconds']:>10.2f}{row['structure_seconds']:>8.1f}"
            )
            print(f"{name:<28}{given.rows:>13,}{figures}", flush=True)
    keep(given.json, {"machine": machine(), "engines": results})


if __name__ == "__main__":
    main()
