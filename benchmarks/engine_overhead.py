"""What a question costs beside its scan: small tables in DuckDB, one question at a time.

Every pair of ten columns is asked for on its own, then every one of them under a condition, of a source that
has not seen the columns before and of one that has; beside it the same counts by hand-written SQL.

    python -m benchmarks.engine_overhead [--json FILE]
"""

import statistics
import tempfile
import time
from itertools import combinations
from pathlib import Path

import duckdb
from benchmarks.large_data import NAMES, POLICY, write_parts
from benchmarks.timing import json_option, keep

import masquerade as mq

RECORDS, REPEATS = 10_000, 5
TARGET_MS = 6.0  # the median of a question, at most
PAIRS = list(combinations(NAMES, 2))
CONDITIONED = [mq.Query(by=name, where={other: POLICY.schema[other].categories[0]}) for name, other in PAIRS]


def each(ask, questions):
    """Return the milliseconds that every question takes."""
    found = []
    for question in questions:
        start = time.perf_counter()
        ask(question)
        found.append(1000 * (time.perf_counter() - start))
    return found


def by_hand(paths):
    """Return a function that counts by SQL."""
    connection = duckdb.connect()
    table = f"read_parquet([{', '.join(repr(str(path)) for path in paths)}])"

    def ask(names):
        keys = ", ".join(names)
        return connection.sql(f"SELECT {keys}, COUNT(*) FROM {table} GROUP BY {keys}").fetchnumpy()  # noqa: S608

    return ask


def measured(paths):
    """Return the milliseconds per question of everybody, from several rounds that take turns."""
    rounds = {name: [] for name in ("new source, first question", "pairs", "conditions", "DuckDB, by hand")}
    for _ in range(REPEATS):
        source = mq.tally(paths, POLICY, engine="duckdb")

        def ask(query, source=source):
            source.answer([query])[0].stderr()

        first, *rest = each(ask, [mq.Query(by=pair) for pair in PAIRS])
        rounds["new source, first question"].append(first)
        rounds["pairs"] += rest
        rounds["conditions"] += each(ask, CONDITIONED)
        rounds["DuckDB, by hand"] += each(by_hand(paths), PAIRS)[1:]
    return [
        {"name": name, "records": RECORDS, "questions": len(all_), "median_ms": statistics.median(all_),
         "most_ms": max(all_)}
        for name, all_ in rounds.items()
    ]  # fmt: skip


def overhead(folder):
    """Return the figures of a small table that is written into a folder."""
    return measured(write_parts(Path(folder), RECORDS, parts=1))


def show_overhead(results):
    """Print them."""
    print(f"{'questions one at a time, 10,000 records':<58}{'median ms':>10}{'most':>9}")
    for row in results:
        print(f"{row['name']:<58}{row['median_ms']:>10.2f}{row['most_ms']:>9.1f}")


def main():
    kept = json_option(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        results = overhead(folder)
    show_overhead(results)
    keep(kept, results)


if __name__ == "__main__":
    main()
