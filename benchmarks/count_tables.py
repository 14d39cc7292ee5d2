"""Count tables of 10 million records of 5-category codes and time the peers.

Two tasks: one 3-way table, and all 45 pair tables of 10 columns. Every engine starts from columns that are
already in its own memory; DuckDB from a table of UTINYINT columns.

    python benchmarks/count_tables.py [--json FILE]
"""

import argparse
import json
import math
import time
from itertools import combinations
from pathlib import Path

import duckdb
import numba
import numpy as np
import polars as pl
import pyarrow as pa

from masquerade.kernels.count import count, count_many

RECORDS = 10_000_000
CATEGORIES = 5
NAMES = [f"c{i}" for i in range(10)]
TRIPLE = NAMES[:3]
PAIRS = list(combinations(NAMES, 2))
OURS = "masquerade"


@numba.njit(nogil=True)
def hand_written(a, b, c):
    table = np.zeros((CATEGORIES, CATEGORIES, CATEGORIES), dtype=np.int64)
    for i in range(a.size):
        table[a[i], b[i], c[i]] += 1
    return table


@numba.njit(nogil=True)
def hand_written_flat(a, b, c):
    table = np.zeros(CATEGORIES**3, dtype=np.int64)
    for i in range(a.size):
        table[np.int64(a[i]) * 25 + np.int64(b[i]) * 5 + np.int64(c[i])] += 1
    return table


def engines(columns):
    """Return, for each peer, a function from a tuple of column names to its counts in cell order."""
    arrow = pa.table(columns)
    frame = pl.DataFrame(columns)
    database = duckdb.connect()
    database.register("arrow_view", arrow)
    database.execute("CREATE TABLE records AS SELECT * FROM arrow_view")
    kinds = {row[1] for row in database.execute("DESCRIBE records").fetchall()}
    assert kinds == {"UTINYINT"}, kinds

    def in_duckdb(names):
        keys = ", ".join(names)
        query = f"SELECT {keys}, count(*) AS n FROM records GROUP BY {keys}"  # noqa: S608
        return database.execute(query).fetchnumpy()

    def in_polars(names):
        return frame.group_by(names).len("n").to_dict(as_series=False)

    def in_polars_lazily(pairs):
        lazy = frame.lazy()
        return [
            part.to_dict(as_series=False)
            for part in pl.collect_all([lazy.group_by(p).len("n") for p in pairs])
        ]

    def in_arrow(names):
        grouped = arrow.group_by(list(names)).aggregate([([], "count_all")])
        return grouped.rename_columns([*names, "n"]).to_pydict()

    return {
        "DuckDB": (in_duckdb, lambda pairs: [in_duckdb(p) for p in pairs]),
        "Polars": (in_polars, in_polars_lazily),
        "PyArrow": (in_arrow, lambda pairs: [in_arrow(p) for p in pairs]),
    }


def as_table(names, grouped):
    table = np.zeros((CATEGORIES,) * len(names), dtype=np.int64)
    table[tuple(np.asarray(grouped[name]) for name in names)] = grouped["n"]
    return table


def best_of(tasks, repeats):
    """Time the tasks side by side, so that a noisy minute hits everyone; keep each one's best."""
    best = dict.fromkeys(tasks, math.inf)
    for _ in range(repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def rows(task, best):
    return [{"task": task, "name": name, "seconds": s, "ratio": s / best[OURS]} for name, s in best.items()]


def three_way(columns, peers):
    arrays, sizes = [columns[name] for name in TRIPLE], [CATEGORIES] * 3
    expected = count(arrays, sizes)
    assert (hand_written(*arrays) == expected).all()
    assert (hand_written_flat(*arrays) == expected.ravel()).all()
    for one, _ in peers.values():
        assert (as_table(TRIPLE, one(TRIPLE)) == expected).all()
    tasks = {
        OURS: lambda: count(arrays, sizes),
        "hand-written Numba": lambda: hand_written(*arrays),
        "hand-written Numba, flat": lambda: hand_written_flat(*arrays),
    }
    tasks |= {name: (lambda one=one: one(TRIPLE)) for name, (one, _) in peers.items()}
    return rows("one 3-way table", best_of(tasks, 9))


def all_pairs(columns, peers):
    sizes, subsets = [CATEGORIES] * 10, list(combinations(range(10), 2))
    expected = count_many(list(columns.values()), sizes, subsets)
    for _, many in peers.values():
        for pair, found, table in zip(PAIRS, many(PAIRS), expected, strict=True):
            assert (as_table(pair, found) == table).all()
    tasks = {name: (lambda many=many: many(PAIRS)) for name, (_, many) in peers.items()}

    best = best_of(tasks, 3)
    cold = math.inf
    for _ in range(7):
        fresh = [column.copy() for column in columns.values()]
        start = time.perf_counter()
        count_many(fresh, sizes, subsets)
        cold = min(cold, time.perf_counter() - start)
    return rows("45 pair tables of 10 columns", {f"{OURS}": cold} | best)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    generator = np.random.default_rng(1)
    columns = {name: generator.integers(0, CATEGORIES, RECORDS, dtype=np.uint8) for name in NAMES}
    peers = engines(columns)
    results = three_way(columns, peers) + all_pairs(columns, peers)
    print(f"{'10M records, K = 5':<32}{'':<28}{'seconds':>9}{'ratio':>9}")
    for row in results:
        print(f"{row['task']:<32}{row['name']:<28}{row['seconds']:>9.4f}{row['ratio']:>8.1f}×")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
