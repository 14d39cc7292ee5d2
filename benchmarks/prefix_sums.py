"""Cumulative counts at ε = 1: variances of optimal channels beside published ones, of 8 to 128 categories.

    python -m benchmarks.prefix_sums [--sizes 8 16 32 128] [--json FILE]

Σ of the queries' variances for one record: the average over the truths that a record may have, and the worst.
Published: McKenna, Maity, Mazumdar & Miklau (2020), their code's average for 8 to 32 categories and
the worst of its documentation for 128.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from benchmarks.timing import keep

import masquerade as mq

PUBLISHED = {"average": {8: 27.84, 16: 89.61, 32: 252.6}, "worst": {128: 1910.87}}


def measured(size):
    """Return the figures of the design for so many categories, from its exact channel."""
    began = time.process_time()
    design = mq.channels.optimal_design(size, epsilon=1, queries="cumulative")
    seconds = time.process_time() - began
    rows = np.tri(size)
    gains = (design.channel.inverse @ rows.T) ** 2
    spread = design.channel.matrix @ gains.sum(1) - (rows**2).sum(0)
    return {
        "categories": size,
        "average": float(spread.mean()),
        "worst": float(spread.max()),
        "gap": design.gap,
        "gamma": float(design.channel.gamma),
        "reports": design.channel.reports,
        "seconds": seconds,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="*", default=[8, 16, 32, 128])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        rows.append(measured(size))
        print(
            f"{size} categories: average variance {rows[-1]['average']:.2f}, worst {rows[-1]['worst']:.2f}, "
            f"gap {rows[-1]['gap']}, {rows[-1]['reports']} reports, {rows[-1]['seconds']:.0f} s",
            flush=True,
        )
        if options.json:
            keep(options.json, {"designs": rows, "published": PUBLISHED})


if __name__ == "__main__":
    main()
