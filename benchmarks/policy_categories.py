"""Seconds that `Policy.to_dict` takes for one variable of k categories, beside one row for every cell.

    python -m benchmarks.policy_categories [--sizes 50 100 200 400 1000] [--json FILE]

Before, the row of a truth was built again for each of its cells: k cells of k rows of k entries. The script
runs that way too, up to 200 categories. Exponents are slopes of log seconds on log k.
"""

import argparse
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
from benchmarks.timing import keep

import masquerade as mq

MOST_BY_CELL = 200  # the cube of this takes half a minute


def rows_by_cell(channel):
    """Return the matrix of a channel, with the row of a truth built again for each cell."""
    return [
        [str(channel.row(truth).get(report, Fraction(0))) for report in range(channel.reports)]
        for truth in range(channel.truths)
    ]


def seconds_of(run, *values):
    """Return the seconds of processor time of a call, and its result."""
    start = time.process_time()
    result = run(*values)
    return time.process_time() - start, result


def measure(size):
    """Return the seconds for a variable with `size` categories."""
    channel = mq.channels.for_gamma(size, 4)
    policy = mq.Policy.build({"a": [f"c{i}" for i in range(size)]}, {"a": channel})
    after, values = seconds_of(policy.to_dict)
    row = {"categories": size, "seconds": after}
    if size <= MOST_BY_CELL:
        row["seconds_by_cell"], rows = seconds_of(rows_by_cell, channel)
        assert rows == values["variables"]["a"]["channel"]["rows"]
    return row


def exponent_of(rows, key):
    """Return the slope of log seconds on log k."""
    points = [(row["categories"], row[key]) for row in rows if key in row]
    return float(np.polyfit(*np.log(points).T, 1)[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="*", default=[50, 100, 200, 400, 1000])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    measure(8)  # compiles and imports
    rows = []
    for size in options.sizes:
        rows.append(measure(size))
        print(rows[-1], flush=True)
    exponents = {key: exponent_of(rows, key) for key in ("seconds", "seconds_by_cell")}
    print(exponents)
    if options.json:
        keep(options.json, {"policies": rows, "exponents": exponents})


if __name__ == "__main__":
    main()
