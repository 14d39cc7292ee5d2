"""Peak memory and time of one question about two of ten columns, by everything that `mq.tally` reads.

    python -m benchmarks.engine_memory [--rows 5000000] [--repeats 3] [--json FILE]

Each run is a process of its own, which reports the peak of its memory (VmHWM, which Linux starts again with
each program). The repeats run in turns, and their median is kept. DuckDB and Polars by hand, and the packages
that are loaded and count nothing, are in the same run. `auto` decides where to count.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.large_data import write_parts
from benchmarks.timing import keep
from pyarrow import parquet
from tests.table_formats import create_iceberg, write_delta

LIMIT = 1.3  # peak memory of a lazy scan over that of DuckDB
COLUMNS = ("age", "smoker")
OPENED = {  # how each names its data
    "DuckDB": "data = 'd.parquet'; options = {'engine': 'duckdb'}",
    "auto": "data = 'd.parquet'",
    "in memory": "data = 'd.parquet'; options = {'engine': 'memory'}",
    "Polars lazy scan": "import polars; data = polars.scan_parquet('d.parquet')",
    "Polars lazy frame with a filter": (
        "import polars; data = polars.scan_parquet('d.parquet').filter(polars.col('age') != 'x')"
    ),
    "Polars lazy scan of four files": "import polars; data = polars.scan_parquet('parts/*.parquet')",
    "pyarrow.dataset": "from pyarrow import dataset; data = dataset.dataset('d.parquet')",
    "Dask frame of four files": (
        "import dask.dataframe; data = dask.dataframe.read_parquet('parts', index=False)"
    ),
    "Delta, auto": "data = 'delta'",
    "Delta, DuckDB": "data = 'delta'; options = {'engine': 'duckdb'}",
    "Iceberg, auto": "data = 'iceberg'",
    "Iceberg, DuckDB": "data = 'iceberg'; options = {'engine': 'duckdb'}",
}
BY_HAND = {
    "DuckDB by hand": (
        "import duckdb\nduckdb.sql(\"SELECT age, smoker, count(*) FROM 'd.parquet' GROUP BY ALL\").fetchall()"
    ),
    "Polars by hand": (
        "import polars\n"
        "asked = polars.scan_parquet('d.parquet').group_by('age', 'smoker').len()\n"
        "asked.collect(engine='streaming')"
    ),
    "Polars by hand, all columns in batches": (
        "import polars\n"
        "sum(len(part) for part in polars.scan_parquet('d.parquet').collect_batches(chunk_size=1 << 17))"
    ),
    "packages loaded": "import masquerade, polars, pyarrow.parquet; masquerade.tally",
}
START = "import time; start = time.perf_counter(); options = {}\n"
ASK = """
import masquerade as mq
from benchmarks.large_data import POLICY
mq.tally(data, POLICY, **options).answer([mq.Query(by=('age', 'smoker'))])[0].stderr()
"""
END = """
seconds = time.perf_counter() - start
peak = next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM'))
print(seconds, peak / 1024)
"""


def write(folder, rows):
    """Write the same records as one file, as four, as a Delta and as an Iceberg table."""
    (folder / "parts").mkdir()
    write_parts(folder / "parts", rows, 4)
    table = parquet.read_table(folder / "parts", partitioning=None)
    parquet.write_table(table, folder / "d.parquet", row_group_size=1 << 20)
    table = table.replace_schema_metadata(None)
    write_delta(table, folder / "delta")
    create_iceberg(table, folder / "iceberg")


def measured(program, folder):
    """Return the seconds and the peak of one run."""
    paths = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    done = subprocess.run(  # noqa: S603  (our own program)
        [sys.executable, "-W", "ignore", "-c", START + program + END],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(map(float, done.stdout.split()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    programs = {name: f"{line}\n{ASK}" for name, line in OPENED.items()} | BY_HAND
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        writer = multiprocessing.get_context("spawn").Process(target=write, args=(folder, given.rows))
        writer.start()
        writer.join()
        if writer.exitcode:
            sys.exit("the files could not be written")
        runs = {name: [] for name in programs}
        for _ in range(given.repeats):
            for name, program in programs.items():
                runs[name].append(measured(program, folder))
    found = {
        name: {"seconds": statistics.median(s for s, _ in some), "MiB": statistics.median(m for _, m in some)}
        for name, some in runs.items()
    }
    beside = found["DuckDB"]["MiB"]
    for name, one in found.items():
        one["ratio to DuckDB"] = one["MiB"] / beside
        print(f"{name:<42}{one['seconds']:>8.2f} s{one['MiB']:>8.0f} MiB{one['ratio to DuckDB']:>7.2f}×")
    load = os.getloadavg()[0]
    keep(given.json, {"rows": given.rows, "columns": 10, "asked": COLUMNS, "load": load, "runs": found})
    scans = [
        found[name]["ratio to DuckDB"]
        for name in found
        if name.startswith("Polars lazy scan") and "four" not in name
    ]
    if max(scans) > LIMIT:
        sys.exit(f"a lazy scan takes more than {LIMIT} times the memory of DuckDB")


if __name__ == "__main__":
    main()
