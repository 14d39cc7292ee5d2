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
import pyarrow.compute as pc

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


def cells(codes, counts):
    """Scatter the counts of packed codes into a flat table."""
    table = np.zeros(CATEGORIES**2, dtype=np.int64)
    table[np.asarray(codes)] = counts
    return table.reshape(CATEGORIES, CATEGORIES)


def as_table(names, grouped):
    """Scatter grouped counts into a table."""
    table = np.zeros((CATEGORIES,) * len(names), dtype=np.int64)
    table[tuple(np.asarray(grouped[name]) for name in names)] = grouped["n"]
    return table


class Peers:
    """The engines, each holding the columns in its own memory, each written two ways where that may help."""

    def __init__(self, columns):
        self.columns = columns
        self.arrow = pa.table(columns)
        self.frame = pl.DataFrame(columns)
        self.database = duckdb.connect()
        self.database.register("arrow_view", self.arrow)
        self.database.execute("CREATE TABLE records AS SELECT * FROM arrow_view")
        kinds = {row[1] for row in self.database.execute("DESCRIBE records").fetchall()}
        assert kinds == {"UTINYINT"}, kinds

    def duckdb(self, names):
        keys = ", ".join(names)
        query = f"SELECT {keys}, count(*) AS n FROM records GROUP BY {keys}"  # noqa: S608
        return as_table(names, self.database.execute(query).fetchnumpy())

    def duckdb_grouping_sets(self, pairs):
        sets = ", ".join(f"({a}, {b})" for a, b in pairs)
        query = f"SELECT {', '.join(NAMES)}, count(*) AS n FROM records GROUP BY GROUPING SETS ({sets})"  # noqa: S608
        found = self.database.execute(query).fetchnumpy()
        present = {name: ~np.ma.getmaskarray(found[name]) for name in NAMES}
        tables = []
        for a, b in pairs:
            both = present[a] & present[b]
            tables.append(as_table((a, b), {key: np.asarray(found[key])[both] for key in (a, b, "n")}))
        return tables

    def polars(self, names):
        return as_table(names, self.frame.group_by(names).len("n").to_dict(as_series=False))

    def polars_packed(self, pairs):
        lazy = self.frame.lazy()
        packed = [
            lazy.select((pl.col(a) * CATEGORIES + pl.col(b)).alias("code")).group_by("code").len("n")
            for a, b in pairs
        ]
        return [cells(part["code"], part["n"]) for part in pl.collect_all(packed)]

    def pyarrow(self, names):
        grouped = self.arrow.group_by(list(names)).aggregate([([], "count_all")])
        return as_table(names, grouped.rename_columns([*names, "n"]).to_pydict())

    def pyarrow_packed(self, pair):
        high = pc.multiply(self.arrow[pair[0]], pa.scalar(CATEGORIES, pa.uint8()))
        counted = pc.value_counts(pc.add(high, self.arrow[pair[1]]))
        return cells(counted.field("values"), counted.field("counts"))

    def numpy_packed(self, pair):
        codes = self.columns[pair[0]] * np.uint8(CATEGORIES) + self.columns[pair[1]]
        return np.bincount(codes, minlength=CATEGORIES**2).reshape(CATEGORIES, CATEGORIES)


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
    tasks = {
        OURS: lambda: count(arrays, sizes),
        "hand-written Numba": lambda: hand_written(*arrays),
        "hand-written Numba, flat": lambda: hand_written_flat(*arrays),
        "DuckDB": lambda: peers.duckdb(TRIPLE),
        "Polars": lambda: peers.polars(TRIPLE),
        "PyArrow": lambda: peers.pyarrow(TRIPLE),
    }
    expected = tasks[OURS]().ravel()
    for name, task in tasks.items():
        assert (task().ravel() == expected).all(), name
    return rows("one 3-way table", best_of(tasks, 9))


def all_pairs(columns, peers):
    sizes, subsets = [CATEGORIES] * 10, list(combinations(range(10), 2))
    spare = iter([[column.copy() for column in columns.values()] for _ in range(6)])
    tasks = {
        OURS: lambda: count_many(next(spare), sizes, subsets),  # columns it has never seen
        "DuckDB": lambda: [peers.duckdb(pair) for pair in PAIRS],
        "DuckDB, grouping sets": lambda: peers.duckdb_grouping_sets(PAIRS),
        "Polars": lambda: [peers.polars(pair) for pair in PAIRS],
        "Polars, packed codes": lambda: peers.polars_packed(PAIRS),
        "PyArrow": lambda: [peers.pyarrow(pair) for pair in PAIRS],
        "PyArrow, packed codes": lambda: [peers.pyarrow_packed(pair) for pair in PAIRS],
        "NumPy bincount, packed codes": lambda: [peers.numpy_packed(pair) for pair in PAIRS],
    }
    expected = tasks[OURS]()
    for name, task in tasks.items():
        if name != OURS:
            assert all((a == b).all() for a, b in zip(task(), expected, strict=True)), name
    return rows("45 pair tables of 10 columns", best_of(tasks, 5))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    generator = np.random.default_rng(1)
    columns = {name: generator.integers(0, CATEGORIES, RECORDS, dtype=np.uint8) for name in NAMES}
    peers = Peers(columns)
    results = three_way(columns, peers) + all_pairs(columns, peers)
    print(f"{'10M records, K = 5':<32}{'':<30}{'seconds':>9}{'ratio':>9}")
    for row in results:
        print(f"{row['task']:<32}{row['name']:<30}{row['seconds']:>9.4f}{row['ratio']:>8.1f}×")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
