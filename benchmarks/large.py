"""Count 100 million disguised rows of ten columns in Parquet, beside DuckDB's own hand-written SQL.

A 3-way table with standard errors, all 45 pair tables, a K2 structure, questions about a small table, and the
peak memory of all that in a process of its own; on the same files, in one run. Read the ratios.

    python -m benchmarks.large [--rows N] [--folder DIR] [--json FILE]
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

import duckdb
import numpy as np
from benchmarks.engine_overhead import TARGET_MS, overhead, show_overhead
from benchmarks.large_data import NAMES, PARENTS, POLICY, SIZES, write_parts
from benchmarks.timing import best_of, keep

import masquerade as mq

ROWS, PARTS = 100_000_000, 10
TRIPLE = ("education", "smoker", "illness")
PAIRS = list(combinations(NAMES, 2))
OURS, THEIRS = "masquerade", "DuckDB, by hand"
MOST_MEMORY = 4 << 30
BEGUN = time.perf_counter()


def say(text):
    """Print a line of progress with the seconds since the start."""
    print(f"[{time.perf_counter() - BEGUN:5.0f} s] {text}", file=sys.stderr, flush=True)


@dataclass
class Recording:
    """A source that remembers which tables it was asked for."""

    source: mq.Tally
    asked: dict = field(default_factory=dict)

    def __post_init__(self):
        self.schema, self.guarantee = self.source.schema, self.source.guarantee

    def check(self, queries):
        return self.source.check(queries)

    def answer(self, queries):
        self.asked |= dict.fromkeys(query.by for query in queries)
        return self.source.answer(queries)


class ByHand:
    """The SQL that somebody who knows DuckDB would write, with its results as arrays, as ours are."""

    def __init__(self, paths):
        self.connection = duckdb.connect()
        self.connection.execute("SET preserve_insertion_order = false")
        self.files = f"read_parquet([{', '.join(repr(str(path)) for path in paths)}])"

    def table(self, names):
        keys = ", ".join(names)
        query = f"SELECT {keys}, COUNT(*) AS n FROM {self.files} GROUP BY {keys}"  # noqa: S608
        return spread(names, self.connection.sql(query).fetchnumpy())

    def pairs(self):
        sets = ", ".join(f"({a}, {b})" for a, b in PAIRS)
        keys = ", ".join(NAMES)
        query = f"SELECT {keys}, COUNT(*) AS n FROM {self.files} GROUP BY GROUPING SETS ({sets})"  # noqa: S608
        found = self.connection.sql(query).fetchnumpy()
        there = {name: ~np.ma.getmaskarray(found[name]) for name in NAMES}
        both = {pair: there[pair[0]] & there[pair[1]] for pair in PAIRS}
        return [spread(pair, {k: np.asarray(found[k])[both[pair]] for k in (*pair, "n")}) for pair in PAIRS]


def spread(names, found):
    """Return grouped counts as an array."""
    table = np.zeros([SIZES[name] for name in names], dtype=np.int64)
    places = []
    for name in names:
        codes = {label: code for code, label in enumerate(POLICY.schema[name].categories)}
        places.append([codes[label] for label in found[name]])
    table[tuple(places)] = found["n"]
    return table


def opened(paths):
    """Return a source that has seen nothing yet."""
    return mq.tally([str(path) for path in paths], POLICY, engine="duckdb")


def estimated(source, tables):
    """Return estimates and their standard errors."""
    return [(table, table.stderr()) for table in source.answer([mq.Query(by=names) for names in tables])]


def answered(paths, tables):
    """Return estimates and standard errors from a source that has seen nothing yet."""
    return estimated(opened(paths), tables)


def structure(paths):
    source = Recording(opened(paths))
    return mq.learn.structure(source, NAMES, max_parents=3), list(source.asked)


def check(estimated, counted):
    """Refuse figures about estimates that do not follow from the hand-written counts."""
    for (table, errors), observed in zip(estimated, counted, strict=True):
        expected = observed.astype(float)
        for axis, name in enumerate(table.names):
            turned = np.tensordot(expected, POLICY.group(name).channel.inverse, axes=(axis, 0))
            expected = np.moveaxis(turned, -1, axis)
        assert np.allclose(table.values, expected, rtol=1e-9, atol=1e-9 * table.n), table.names
        assert np.isfinite(errors).all()


def compared(task, seconds, most):
    """Return a row: ours may take `most` times as long as theirs."""
    ratio = seconds[OURS] / seconds[THEIRS]
    return {
        "task": task,
        "seconds": seconds[OURS],
        "by_hand_seconds": seconds[THEIRS],
        "ratio": ratio,
        "most": most,
        "reached": ratio <= most,
    }


def side_by_side(paths):
    """Return the figures of every task, and how many links K2 finds as they are."""
    hand = ByHand(paths)
    found = []
    for task, most, repeats, tables, by_hand in (
        ("a 3-way table with standard errors", 1.3, 3, [TRIPLE], lambda: [hand.table(TRIPLE)]),
        ("all 45 pair tables", 1.0, 2, PAIRS, hand.pairs),
    ):
        say(f"{task}, best of {repeats}, in turns")
        results = {}
        contenders = [(OURS, partial(answered, paths, tables)), (THEIRS, by_hand)]
        seconds = best_of([(name, partial(keep_in, results, name, run)) for name, run in contenders], repeats)
        check(results[OURS], results[THEIRS])
        found.append(compared(task, seconds, most))
    say("a K2 structure")
    results = {}
    seconds = best_of([(OURS, lambda: keep_in(results, OURS, partial(structure, paths)))], 1)
    learnt, families = results[OURS]
    say(f"its {len(families)} families by one SQL query each")
    seconds |= best_of([(THEIRS, lambda: [hand.table(family) for family in families])], 1)
    found.append(compared(f"a K2 structure, {len(families)} families", seconds, 1 / 5))
    true = {(parent, child) for child, parents in PARENTS.items() for parent in parents}
    links = set(learnt.links)
    return found, {"true": len(true), "found": len(links & true), "extra": len(links - true)}


def keep_in(results, name, run):
    """Run, and keep what comes out."""
    results[name] = run()


def high_water():
    """Return the peak resident bytes of this process: since its program started, unlike getrusage."""
    (line,) = [text for text in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in text]
    return int(line.split()[1]) << 10


def alone(paths):
    """Do our three tasks and print the peak memory; this is run in a process of its own."""
    answered(paths, [TRIPLE])
    answered(paths, PAIRS)
    structure(paths)
    print(json.dumps(high_water()))


def peak(paths):
    """Return the peak memory of our three tasks in a process of their own."""
    command = [sys.executable, "-m", "benchmarks.large", "--alone", *map(str, paths)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603


def machine():
    """Return what the seconds depend on."""
    processor = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor[0] if processor else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "duckdb": version("duckdb"),
    }


def show(result):
    """Print all figures."""
    print(f"{result['rows']:,} rows × {len(NAMES)} columns, {result['bytes'] / 2**20:,.0f} MiB of Parquet")
    print(f"{'':<48}{'seconds':>10}{'by hand':>10}{'ratio':>8}{'at most':>9}")
    for row in result["tasks"]:
        mark = "" if row["reached"] else "  NOT REACHED"
        figures = (
            f"{row['seconds']:>10.2f}{row['by_hand_seconds']:>10.2f}{row['ratio']:>8.3f}{row['most']:>9.2f}"
        )
        print(f"{row['task']:<48}{figures}{mark}")
    links = result["links"]
    print(f"of {links['true']} links {links['found']} were found, and {links['extra']} more")
    memory = result["peak_bytes"]
    print(f"peak memory {memory / 2**20:,.0f} MiB{'' if memory < MOST_MEMORY else '  NOT REACHED'}")
    show_overhead(result["overhead"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--folder", type=Path, help="where the temporary files go")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--alone", nargs="+", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        alone(given.alone)
        return
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="masquerade-large-", dir=given.folder) as folder:
        say(f"writing {given.rows:,} rows into {folder}")
        start = time.perf_counter()
        paths = write_parts(folder, given.rows, PARTS, lambda path: say(f"{path.name} is written"))
        result = {
            "rows": given.rows,
            "columns": len(NAMES),
            "possible_rows": int(np.prod(list(SIZES.values()))),
            "bytes": sum(path.stat().st_size for path in paths),
            "machine": facts,
            "writing_seconds": time.perf_counter() - start,
        }
        result["tasks"], result["links"] = side_by_side(paths)
        say("peak memory of our three tasks in a process of their own")
        result["peak_bytes"] = peak(paths)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        say("questions about a small table")
        result["overhead"] = overhead(folder)
    result["overhead_most_ms"] = TARGET_MS
    result["all_seconds"] = time.perf_counter() - BEGUN
    show(result)
    keep(given.json, result)


if __name__ == "__main__":
    main()
