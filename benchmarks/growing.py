"""Counts of a folder to which files are added: what is new, added to what was counted, beside counting anew.

A dashboard's questions (all pair tables of ten columns) are asked of a source that is refreshed when a file
arrives, and of one that is opened then. Both take turns on the same files and must say the same to the last
bit. Seconds by the clock, and of the processor, which tell more on a busy machine.

    python -m benchmarks.growing [--rows N] [--json FILE]
"""

import argparse
import json
import tempfile
import time
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
from benchmarks.large import machine
from benchmarks.large_data import NAMES, POLICY, write_parts
from benchmarks.timing import keep

import masquerade as mq

ROWS, PARTS, FIRST = 20_000_000, 20, 16  # the last four files arrive one by one
LIMIT = 0.25  # of the processor seconds of counting anew, where a seventeenth and less of the rows is new
QUESTIONS = [mq.Query(by=pair) for pair in combinations(NAMES, 2)]


def timed(run):
    """Return seconds by the clock, seconds of the processor, and what came out."""
    clock, processor = time.perf_counter(), time.process_time()
    found = run()
    return time.perf_counter() - clock, time.process_time() - processor, found


def same(tables, others):
    """Tell whether two answers agree to the last bit, standard errors included."""
    return all(
        one.n == other.n
        and np.array_equal(one.values, other.values)
        and np.array_equal(one.stderr(), other.stderr())
        for one, other in zip(tables, others, strict=True)
    )


def measured(folder, paths):
    """Let files arrive in a folder; return what each cost."""
    pattern = str(Path(folder, "*.parquet"))
    for path in paths[:FIRST]:
        path.rename(Path(folder, path.name))
    source = mq.tally(pattern, POLICY, growing=True)
    source.answer(QUESTIONS)
    found = []
    for path in paths[FIRST:]:
        path.rename(Path(folder, path.name))
        clock, processor, (source, tables) = timed(partial(refresh, source))
        anew_clock, anew, others = timed(lambda: mq.tally(pattern, POLICY, growing=True).answer(QUESTIONS))
        found.append(
            {
                "rows": tables[0].n,
                "same": same(tables, others),
                "refreshed_seconds": clock,
                "refreshed_cpu_seconds": processor,
                "anew_seconds": anew_clock,
                "anew_cpu_seconds": anew,
                "ratio_of_cpu": processor / anew,
            }
        )
        print(found[-1], flush=True)
    return found


def refresh(source):
    """Return the source of what is there now, and its answers."""
    newer = source.refresh()
    return newer, newer.answer(QUESTIONS)


def main():
    """Write the files elsewhere, then let them arrive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="masquerade-growing-") as place:
        waiting, folder = Path(place, "waiting"), Path(place, "folder")
        waiting.mkdir()
        folder.mkdir()
        arrivals = measured(folder, write_parts(waiting, given.rows, PARTS))
    kept = {
        "machine": machine(),
        "questions": len(QUESTIONS),
        "new_rows": given.rows // PARTS,
        "arrivals": arrivals,
        "median_ratio_of_cpu": float(np.median([one["ratio_of_cpu"] for one in arrivals])),
        "limit": LIMIT,
    }
    print(json.dumps(kept, indent=2))
    keep(given.json, kept)


if __name__ == "__main__":
    main()
