"""A K2 structure from 20 million disguised records in Spark, beside one GROUPING SETS query for each batch.

The structure asks its source a few batches of tables; whoever writes SQL by hand would send each batch as one
query. Both run on the same files in the same session (a master and two workers of one core each), taking
turns: read the ratio. Ours includes opening the source, the estimates and the strengths of links.

    python -m benchmarks.spark_structure [--rows N] [--turns N] [--json FILE]
"""

import argparse
import json
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.large import machine
from benchmarks.large_data import NAMES, POLICY, write_parts
from benchmarks.timing import keep
from tests.servers.spark import spark_cluster

import masquerade as mq

ROWS, PARTS, TURNS = 20_000_000, 10, 2
LIMIT = 1.5  # times the seconds of one grouping-sets query for each batch


class Noted:
    """A source that notes which tables every batch asks for, and how long its answers take."""

    def __init__(self, source):
        self.source, self.schema, self.guarantee = source, source.schema, source.guarantee
        self.batches, self.seconds = [], 0.0

    def check(self, queries):
        return self.source.check(queries)

    def answer(self, queries):
        self.batches.append([tuple(query.by) for query in queries])
        start = time.perf_counter()
        found = self.source.answer(queries)
        self.seconds += time.perf_counter() - start
        return found


def learnt(frame):
    source = Noted(mq.tally(frame, POLICY))
    return source, mq.learn.structure(source, NAMES, max_parents=3)


def by_hand(session, frame, batches):
    """Run one query for every batch and fetch its rows."""
    frame.createOrReplaceTempView("people")
    rows = 0
    for batch in batches:
        sets = ", ".join(f"({', '.join(columns)})" for columns in dict.fromkeys(batch))
        used = ", ".join(dict.fromkeys(name for columns in batch for name in columns))
        counted = f"SELECT {used}, GROUPING_ID() AS cell_set, COUNT(*) AS n FROM people"  # noqa: S608
        rows += len(session.sql(f"{counted} GROUP BY GROUPING SETS ({sets})").toArrow())
    return rows


def timed(run):
    start = time.perf_counter()
    found = run()
    return time.perf_counter() - start, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="masquerade-spark-") as folder, spark_cluster() as cluster:
        paths = write_parts(folder, given.rows, PARTS)
        frame = cluster.session.read.parquet(*map(str, paths))
        frame.limit(1).toArrow()  # Spark compiles and warms up once
        ours, theirs, scans = [], [], []
        for _ in range(given.turns):
            seconds, (source, found) = timed(lambda: learnt(frame))
            ours.append(seconds)
            scans.append(source.seconds)
            batches = source.batches
            seconds, rows = timed(partial(by_hand, cluster.session, frame, batches))
            theirs.append(seconds)
            print(f"ours {ours[-1]:.1f} s (answers {scans[-1]:.1f}), by hand {theirs[-1]:.1f} s", flush=True)
    kept = {
        "machine": machine(),
        "rows": given.rows,
        "columns": len(NAMES),
        "links": len(found.links),
        "batches": [len(batch) for batch in batches],
        "rows_fetched_by_hand": rows,
        "ours_seconds": min(ours),
        "of_which_answers": min(scans),
        "by_hand_seconds": min(theirs),
        "ratio": min(ours) / min(theirs),
        "limit": LIMIT,
    }
    print(json.dumps(kept, indent=2))
    keep(given.json, kept)


if __name__ == "__main__":
    main()
