"""What the benchmarks share: side-by-side timing, one kind of table, JSON beside it."""

import argparse
import json
import math
import time
from pathlib import Path


def best_of(contenders, repeats):
    """Return the best seconds of each (name, function), in turns, so that a noisy minute hits everyone."""
    best = dict.fromkeys((name for name, _ in contenders), math.inf)
    for _ in range(repeats):
        for name, run in contenders:
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def rows(best, ours="masquerade"):
    """Return one row per contender with its ratio to ours."""
    return [
        {"name": name, "seconds": seconds, "ratio": seconds / best[ours]} for name, seconds in best.items()
    ]


def show(title, results):
    """Print a table of seconds and ratios."""
    print(f"{title:<58}{'seconds':>10}{'ratio':>9}")
    for row in results:
        print(f"{row['name']:<58}{row['seconds']:>10.4f}{row['ratio']:>8.2f}×")


def json_option(description):
    """Return the file that results are to be kept in, if any."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path)
    return parser.parse_args().json


def keep(path, results):
    """Write results beside the script that produced them."""
    if path:
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
