"""A K2 structure from 20 million disguised records in Spark, beside one GROUPING SETS query for each batch.

The structure asks its source a few batches of tables; whoever writes SQL by hand would send each batch as one
query. Both run on the same files in the same session (a master and two workers of one core each): read the
ratio. Ours includes opening the source, the estimates and the strengths of links. Queries by hand that take
longer than ours took are stopped then: so much is shown.

    python -m benchmarks.spark_structure [--rows N] [--json FILE]
"""

import argparse
import json
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from benchmarks.large import machine
from benchmarks.large_data import NAMES, POLICY, write_parts
from benchmarks.timing import keep
from tests.servers.spark import spark_cluster

import masquerade as mq

ROWS, PARTS = 20_000_000, 10
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
    for done, batch in enumerate(batches):
        print(f"by hand: {done} of {len(batches)} queries", flush=True)
        sets = ", ".join(f"({', '.join(columns)})" for columns in dict.fromkeys(batch))
        used = ", ".join(dict.fromkeys(name for columns in batch for name in columns))
        counted = f"SELECT {used}, GROUPING_ID() AS cell_set, COUNT(*) AS n FROM people"  # noqa: S608
        rows += len(session.sql(f"{counted} GROUP BY GROUPING SETS ({sets})").toArrow())
    return rows


def stopped_after(limit, session, run):
    """Return the seconds that something took, and whether it came to its end before it was stopped."""
    start = time.perf_counter()
    thread = threading.Thread(target=suppressed, args=[run], daemon=True)
    thread.start()
    thread.join(limit)
    seconds, finished = time.perf_counter() - start, not thread.is_alive()
    if not finished:
        session.sparkContext.cancelAllJobs()
        thread.join()
    return seconds, finished


def suppressed(run):
    """Run what may be cancelled."""
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    with suppress(PySparkException, Py4JError):
        run()


def timed(run):
    start = time.perf_counter()
    found = run()
    return time.perf_counter() - start, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="masquerade-spark-") as folder, spark_cluster() as cluster:
        paths = write_parts(folder, given.rows, PARTS)
        frame = cluster.session.read.parquet(*map(str, paths))
        frame.limit(1).toArrow()  # Spark compiles and warms up once
        ours, (source, found) = timed(lambda: learnt(frame))
        batches = source.batches
        print(f"ours {ours:.1f} s, of which answers {source.seconds:.1f}", flush=True)
        theirs, finished = stopped_after(
            ours, cluster.session, partial(by_hand, cluster.session, frame, batches)
        )
        print(f"by hand {theirs:.1f} s{'' if finished else ', and stopped'}", flush=True)
    kept = {
        "machine": machine(),
        "rows": given.rows,
        "columns": len(NAMES),
        "links": len(found.links),
        "batches": [len(batch) for batch in batches],
        "ours_seconds": ours,
        "of_which_answers": source.seconds,
        "by_hand_seconds": theirs,
        "by_hand_finished": finished,
        "ratio_at_most": ours / theirs,
        "limit": LIMIT,
    }
    print(json.dumps(kept, indent=2))
    keep(given.json, kept)


if __name__ == "__main__":
    main()
