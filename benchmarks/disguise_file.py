"""Disguise a file of 20 million records and 10 variables: seconds and peak memory of the whole process.

python -m benchmarks.disguise_file [--json FILE]
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.timing import json_option, keep

import masquerade as mq

RECORDS, BATCH = 20_000_000, 1_000_000
LABELS = ["never", "rarely", "monthly", "weekly", "daily"]
NAMES = [f"question {i}" for i in range(10)]


def write_records(path, records):
    """Write random labels, batch by batch."""
    generator = np.random.default_rng(1)
    schema = pa.schema([(name, pa.string()) for name in NAMES])
    labels = pa.array(LABELS)
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(records // BATCH):
            columns = [labels.take(pa.array(generator.integers(0, 5, BATCH))) for _ in NAMES]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def write_policy(path):
    """Write a policy that disguises all ten."""
    channel = {"kind": "symmetric", "p": "0.4"}
    variables = {name: {"categories": LABELS, "channel": channel} for name in NAMES}
    mq.Policy.from_dict({"masquerade": 1, "variables": variables}).save(path)


def measure(folder, target):
    """Run the command and return its seconds and peak resident memory."""
    command = [
        sys.executable, "-m", "masquerade", "disguise", str(folder / "clear.parquet"),
        "--policy", str(folder / "policy.yaml"), "--out", str(folder / target),
    ]  # fmt: skip
    start = time.perf_counter()
    process = subprocess.Popen(command, env=os.environ)  # noqa: S603
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return {
        "target": target,
        "records": RECORDS,
        "seconds": time.perf_counter() - start,
        "peak_mib": usage.ru_maxrss / 1024,
    }


def main():
    kept = json_option(__doc__)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_records(folder / "clear.parquet", RECORDS)
        write_policy(folder / "policy.yaml")
        results = [measure(folder, "disguised.parquet"), measure(folder, "disguised.csv")]
    for row in results:
        print(f"20M × 10 to {row['target']:<20}{row['seconds']:8.1f} s{row['peak_mib']:10.0f} MiB peak")
    keep(kept, results)


if __name__ == "__main__":
    main()
