"""How long it takes to turn labels into codes, next to pandas' own category codes.

Run: python benchmarks/encode_labels.py [--rows N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from masquerade.core.schema import Field, Variable
from masquerade.frames.label_codes import encode
from masquerade.frames.native import columns_of

SIZES = (5, 8, 12, 16, 20)


def people(rows: int) -> tuple[dict[str, Field], pd.DataFrame]:
    """Return fields and a frame of text columns with 5 to 20 categories."""
    rng = np.random.default_rng(1)
    fields, columns = {}, {}
    for size in SIZES:
        name = f"v{size}"
        labels = np.array([f"category {k}" for k in range(size)], dtype=object)
        fields[name] = Field(Variable(name, tuple(labels)))
        columns[name] = labels[rng.integers(0, size, rows)]
    return fields, pd.DataFrame(columns, dtype=object)


def interleaved(runs: dict[str, Callable[[], object]], repeats: int = 9) -> dict[str, float]:
    """Return the best time of each, measured in turns so that a busy machine disturbs all alike."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    fields, objects = people(options.rows)
    strings = objects.astype("str")
    categories = objects.astype("category")
    table = pa.table({name: pa.array(objects[name]) for name in fields})
    frames = {
        "pandas str": (strings, strings),
        "pandas object": (objects, objects),
        "pandas category": (categories, strings),
        "polars": (pl.from_arrow(table), strings),
        "arrow": (table, strings),
    }

    def ours(frame: object) -> Callable[[], object]:
        return lambda: [encode(columns_of(frame)[name], field) for name, field in fields.items()]

    def theirs(frame: pd.DataFrame) -> Callable[[], object]:
        return lambda: [frame[name].astype("category").cat.codes for name in fields]

    runs: dict[str, Callable[[], object]] = {}
    for name, (frame, reference) in frames.items():
        runs[name] = ours(frame)
        runs[f"{name}: pandas"] = theirs(reference)
    best = interleaved(runs)
    results = [
        {
            "name": name,
            "seconds": best[name],
            "pandas_seconds": best[f"{name}: pandas"],
            "ratio": best[name] / best[f"{name}: pandas"],
        }
        for name in frames
    ]
    print(f"{options.rows:,} rows, {len(SIZES)} text columns; ratio to pandas' astype('category').cat.codes")
    for result in results:
        print(f"{result['name']:<16} {result['seconds']:8.4f} s   {result['ratio']:5.2f}×")
    if options.json:
        options.json.write_text(json.dumps({"rows": options.rows, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
