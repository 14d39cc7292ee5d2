"""Disguise files of 2 million × 10 beside PyArrow reading and writing the same file; memory of larger ones.

    python -m benchmarks.files [--json FILE]

In turns, the least of several rounds, by the clock and by the processor time of all threads: on a machine
that others use the clock says less. PyArrow reads the whole file and writes the table as it is; a file with a
dictionary is one that Arrow reads as such. Its CSV is written by its defaults, which put every text in
quotes: ours has none where none is needed. Peak memory is that of a process of its own, for a file and for
one ten times as large.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from benchmarks.disguise_file import LABELS, NAMES, write_policy
from benchmarks.timing import json_option, keep

import masquerade as mq

ROWS, GROUP, REPEATS, LIMIT = 2_000_000, 1_000_000, 7, 1.3
MOST_GROWTH = 1.15  # of the peak memory, for ten times the rows


def table_of(rows, *, coded):
    """Return random labels, as a dictionary or as text."""
    generator = np.random.default_rng(1)
    labels = pa.array(LABELS)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(generator.integers(0, 5, rows).astype(np.int8)), labels)
        for _ in NAMES
    ]
    table = pa.table(columns, names=NAMES)
    return table if coded else table.cast(pa.schema([(name, pa.string()) for name in NAMES]))


def in_turns(runs):
    """Return the least seconds by the clock and by processor time of each (name, function)."""
    best = {}
    for _ in range(REPEATS):
        for name, run in runs:
            start = time.perf_counter(), time.process_time()
            run()
            took = time.perf_counter() - start[0], time.process_time() - start[1]
            best[name] = tuple(map(min, took, best.get(name, took)))
    return best


PEAK = """
import sys, masquerade as mq
mq.disguise_file(*sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def peak(source, target, policy):
    """Return the peak memory of a process that disguises a file, in MiB.

    The process asks itself: what its parent is told includes the parent's own memory from before the start.
    """
    command = [sys.executable, "-c", PEAK, *map(str, (source, target, policy))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return int(done.stdout) / 1024


def main():
    kept = json_option(__doc__)
    results, memory = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy = folder / "policy.yaml"
        write_policy(policy)
        text, coded = table_of(ROWS, coded=False), table_of(ROWS, coded=True)
        pq.write_table(text, folder / "text.parquet", row_group_size=GROUP)
        pq.write_table(coded, folder / "dictionary.parquet", row_group_size=GROUP)
        arrow_csv.write_csv(text, folder / "text.csv", arrow_csv.WriteOptions(quoting_style="none"))
        del text, coded

        def arrow(file, ending):
            target = folder / f"arrow.{ending}"
            if ending == "parquet":
                pq.write_table(pq.read_table(folder / file), target)
            else:
                arrow_csv.write_csv(arrow_csv.read_csv(folder / file), target)

        def ours(file, ending):
            mq.disguise_file(folder / file, folder / f"ours.{ending}", policy, overwrite=True)

        for file in ("text.parquet", "dictionary.parquet", "text.csv"):
            ending = file.partition(".")[2]
            runs = [
                ("arrow", lambda f=file, e=ending: arrow(f, e)),
                ("ours", lambda f=file, e=ending: ours(f, e)),
            ]
            best = in_turns(runs)
            results.append(
                {
                    "file": file,
                    "seconds": best["ours"][0],
                    "processor_seconds": best["ours"][1],
                    "arrow_seconds": best["arrow"][0],
                    "arrow_processor_seconds": best["arrow"][1],
                    "ratio": best["ours"][0] / best["arrow"][0],
                    "ratio_of_processor_time": best["ours"][1] / best["arrow"][1],
                    "limit": LIMIT,
                }
            )
        part = pq.read_table(folder / "text.parquet")
        with pq.ParquetWriter(folder / "large.parquet", part.schema) as writer:
            for _ in range(10):
                writer.write_table(part, row_group_size=GROUP)
        rows = 10 * len(part)
        for file, records in (("text.parquet", ROWS), ("large.parquet", rows)):
            memory.append(
                {"records": records, "peak_mib": peak(folder / file, folder / f"out-{file}", policy)}
            )
    for row in results:
        missed = "" if row["ratio"] <= LIMIT else "  LIMIT MISSED"
        print(
            f"{row['file']:<22}{row['seconds']:8.2f} s{row['ratio']:6.2f}× PyArrow by the clock"
            f"{row['ratio_of_processor_time']:6.2f}× by processor time{missed}"
        )
    for row in memory:
        print(f"{row['records']:>12,} records: {row['peak_mib']:.0f} MiB at most")
    assert memory[1]["peak_mib"] <= MOST_GROWTH * memory[0]["peak_mib"]
    keep(kept, {"rows": ROWS, "columns": len(NAMES), "results": results, "memory": memory})


if __name__ == "__main__":
    main()
