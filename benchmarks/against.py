"""Compare two checkouts: is anything slower than it was?

python -m benchmarks.against OLD [NEW] [--only NAME ...] [--repeats N] [--json FILE]

Both run the same operations (`benchmarks/operations.py`), each in a process of its own, taking turns, in
processor seconds, the least of several: so a busy machine hits both, and hardly either. NEW is the checkout
of this file unless another is named. The exit status is 1 if an operation takes over 5% more than it did.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.operations import OPERATIONS
from benchmarks.timing import keep

HERE = Path(__file__).resolve().parent
MOST = 1.05


class Checkout:
    """A version of the library that answers in a process of its own."""

    def __init__(self, root):
        root = Path(root).resolve()
        paths = [str(root / "src"), str(root), str(root / "experiments" / "src")]
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-W", "ignore", str(HERE / "operations.py")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def seconds(self, operation):
        """Return the processor seconds of every figure of an operation."""
        self.process.stdin.write(operation + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{operation} fails in {self.process.args}")
        return dict(json.loads(line))


def compared(old, new, operation, repeats):
    """Return the least seconds of both for every figure; the first call compiles and counts for nothing."""
    best = {}
    for turn in range(repeats + 1):
        both = [checkout.seconds(operation) for checkout in (old, new)]
        for title in both[0].keys() & both[1].keys() if turn else ():
            before = best.get(title, (math.inf, math.inf))
            best[title] = tuple(min(a, found[title]) for a, found in zip(before, both, strict=True))
    return {title: best[title] for title in both[0] if title in best}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=HERE.parent)
    parser.add_argument("--only", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    old, new = Checkout(options.old), Checkout(options.new)
    results = []
    print(f"{'processor seconds':<58}{'old':>10}{'new':>10}{'ratio':>8}")
    for operation in options.only:
        for title, (before, after) in compared(old, new, operation, options.repeats).items():
            results.append({"name": title, "old": before, "new": after, "ratio": after / before})
            mark = "  SLOWER" if after > MOST * before else ""
            print(f"{title:<58}{before:>10.4f}{after:>10.4f}{after / before:>7.2f}×{mark}", flush=True)
    keep(options.json, results)
    sys.exit(any(row["ratio"] > MOST for row in results))


if __name__ == "__main__":
    main()
