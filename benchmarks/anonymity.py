"""k-anonymity by suppression: cells hidden of the Adult data beside other packages, and a million rows.

    python -m benchmarks.anonymity [--json FILE]

The other packages need versions that masquerade does not go with: MASQUERADE_PEERS names the Python of an
environment that has them; else those that are installed beside masquerade run.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks.timing import json_option, keep

import masquerade as mq

QUASI = ["age", "sex", "race", "education", "native_country"]
SIZES = (2, 5, 10, 50)
ROWS, MOST_SECONDS, MOST_GIB, ROUNDS = 1_000_000, 8, 4, 3
BEFORE = {"seconds": 27.8, "suppressed_cells": 942_886}  # with every pattern that fits on the board


def ours(table, k):
    """Return cells hidden and seconds; the result is checked by another count."""
    start = time.perf_counter()
    result = mq.anonymity.anonymize(table, QUASI, k)
    seconds = time.perf_counter() - start
    assert result.frame.groupby(QUASI, dropna=False).size().min() >= k
    hidden = int((result.frame[QUASI].astype(str) != table[QUASI].astype(str)).to_numpy().sum())
    assert hidden == result.utility.suppressed_cells
    return {"cells": hidden, "seconds": seconds}


def peers(table):
    """Return what other packages hide, from an environment of their own if there is one."""
    python = os.environ.get("MASQUERADE_PEERS", sys.executable)
    script = Path(__file__).with_name("anonymity_peers.py")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        table[QUASI].to_csv(path, index=False)
        wanted = ",".join(map(str, SIZES))
        done = subprocess.run(  # noqa: S603
            [python, "-P", "-W", "ignore", script, path, wanted], capture_output=True, text=True, check=True
        )
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: {int(k): own for k, own in figures.items()} for name, figures in found.items()}


def people(rows, seed=1):
    """Return six quasi-identifiers that depend on one another, 0.6 distinct combinations a row."""
    draw = np.random.default_rng(seed)
    region = draw.zipf(1.3, rows) % 400
    age = np.clip(draw.normal(45, 20, rows), 0, 95).astype(int)
    education = np.clip((2 * draw.normal(0, 1, rows) + age / 12 + region % 5).astype(int), 0, 15)
    return pd.DataFrame(
        {
            "age": age,
            "sex": draw.integers(0, 2, rows),
            "race": draw.choice(6, rows, p=[0.6, 0.15, 0.12, 0.08, 0.03, 0.02]),
            "education": education,
            "region": region,
            "occupation": (3 * education + draw.integers(0, 8, rows)) % 50,
        }
    )


def million(_=None):
    """Return seconds and memory of a large table, in a process of its own; functions are compiled before."""
    table = people(ROWS)
    mq.anonymity.anonymize(table[:2000], list(table), 10)
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter(), time.process_time()
        result = mq.anonymity.anonymize(table, list(table), 10)
        took.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return {
        "rows": ROWS,
        "distinct": len(table.drop_duplicates()),
        "seconds": min(wall for wall, _ in took),
        "processor_seconds": min(processor for _, processor in took),
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "before": BEFORE,
        **result.utility.to_dict(),
    }


def show(name, figures):
    """Print a row of cells and ratios to ours."""
    cells = [figures[k].get("cells") for k in SIZES]
    print(f"{name:<24}" + "".join("         -" if own is None else f"{own:>10,}" for own in cells), end="   ")
    print(next((own["problem"] for own in figures.values() if "problem" in own), ""))


def main():
    target = json_option(__doc__)
    table = mq.data.load("adult")
    mq.anonymity.anonymize(table[:500], QUASI, 2)
    own = {k: ours(table, k) for k in SIZES}
    others = peers(table)
    print(f"{'cells hidden, k =':<24}" + "".join(f"{k:>10}" for k in SIZES))
    show("masquerade", own)
    for name, figures in others.items():
        show(name, figures)
    fewest = {
        k: min((figures[k]["cells"] for figures in others.values() if "cells" in figures[k]), default=None)
        for k in SIZES
    }
    for k, best in fewest.items():
        if best is not None:
            print(f"k = {k}: the best of the others hides {best / own[k]['cells']:.2f} times as many")
            assert own[k]["cells"] < best
    large = get_context("spawn").Pool(1).map(million, [None])[0]
    print(f"\n{ROWS:,} rows, {large['distinct']:,} distinct, 6 quasi-identifiers, k = 10")
    print(f"{large['seconds']:.1f} s, {large['gib']:.2f} GiB, {large['suppressed_cells']:,} cells hidden")
    assert large["processor_seconds"] < MOST_SECONDS  # on a machine that others use, seconds say less
    assert large["gib"] < MOST_GIB
    assert large["suppressed_cells"] <= BEFORE["suppressed_cells"]
    keep(target, {"adult": {"masquerade": own, **others}, "million": large})


if __name__ == "__main__":
    main()
