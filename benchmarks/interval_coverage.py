"""How often 95% intervals of counts hold the truth: 500 random policies, lopsided ones among them.

Reports are drawn from a random truth behind a random policy of one to three variables (symmetric, random,
rectangular, and binary channels as lopsided as p1 = 0.95, p2 = 0); every cell of the table is one case. Cases
are told apart by the expected number of reports that decide, n·(Σq(a − ā)²)²/Σq(a − ā)⁴, a being what a
report weighs for the cell. To be reached: 0.94 to 0.965 on average at 30 or more, no case below 0.93.

    python -m benchmarks.interval_coverage [--policies 500] [--runs 5000] [--json FILE]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from benchmarks.timing import keep

from masquerade.core.axes import Floats
from masquerade.core.report_moments import ReportSpread, score_interval
from masquerade.estimate.inverse import unbiased_map

Z = NormalDist().inv_cdf(0.975)
BINS = (0, 1, 3, 10, 30, 100, inf)
LEAST, MOST = 0.94, 0.965
WORST = 0.93


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of one policy: the reports that decide, and how often intervals hold."""

    decisive: float
    records: float
    population: float
    plain: float
    given: float
    exact: float


def random_channel(generator: np.random.Generator, size: int) -> Floats:
    """Return a channel of `size` truths: symmetric, lopsided if binary, any, up to two reports more."""
    kind = int(generator.integers(4))
    if size == 2 and kind < 2:
        hidden, false = (
            generator.choice([0.95, 0.8, 0.5, 0.3, 0.99]),
            generator.choice([0, 0, 0.01, 0.05, 0.3]),
        )
        return np.array([[1 - false, false], [hidden, 1 - hidden]])
    if kind == 2:
        p = float(generator.choice([0.05, 0.1, 0.2, 0.3]))
        return (1 - p - p / (size - 1)) * np.eye(size) + p / (size - 1)
    weights = generator.gamma(0.3, size=(size, size + int(generator.integers(0, 3))))
    weights[:, :size] += np.eye(size) * generator.choice([0.2, 1.0, 5.0])
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def random_policy(generator: np.random.Generator) -> Floats:
    """Return the joint channel of one to three variables that can be undone."""
    while True:
        kind = int(generator.integers(5))
        sizes = [(2,), (int(generator.integers(3, 7)),), (2, 2), (2, 3), (2, 2, 2)][kind]
        channel = reduce(np.kron, [random_channel(generator, size) for size in sizes])
        if np.linalg.cond(channel) <= 1e4:
            return np.asarray(channel)


def cases_of(generator: np.random.Generator, runs: int) -> list[Case]:
    """Return the coverage of every cell of a random policy and truth."""
    channel = random_policy(generator)
    n = int(generator.choice([200, 1000, 5000]))
    truth = generator.dirichlet(np.full(len(channel), generator.choice([0.2, 1.0, 3.0])))
    records = generator.multinomial(n, truth)
    maps = unbiased_map(channel)
    samples = generator.multinomial(n, truth @ channel, size=runs).astype(float)
    again = sum(
        generator.multinomial(count, row, size=runs) for count, row in zip(records, channel, strict=True)
    )
    found = []
    for cell, share in enumerate(truth):
        weights = maps[:, cell]
        gaps = weights - share
        moments = [float(truth @ channel @ gaps**power) for power in (2, 4)]
        spread, values = spread_of(samples, weights, n)
        fixed, fixed_values = spread_of(np.asarray(again, dtype=float), weights, n)
        found.append(
            Case(
                n * moments[0] ** 2 / max(moments[1], 1e-300),
                n * share,
                held(score_interval(values, spread, Z), n * share),
                float(np.mean(np.abs(values - n * share) <= Z * np.sqrt(spread.variance))),
                held(score_interval(fixed_values, fixed, Z, given=True), float(records[cell])),
                float(np.mean(spread.decisive < 10)),
            )
        )
    return found


def spread_of(samples: Floats, weights: Floats, n: int) -> tuple[ReportSpread, Floats]:
    """Return how reports scatter behind one cell, in every sample, and its estimates."""
    values = samples @ weights
    sums = [samples @ weights**power for power in (2, 3, 4)]
    ends = [(np.full(len(values), weights.min()), np.full(len(values), weights.max()))]
    return ReportSpread.of(values, sums, ends, given=sums[0] - values, n=n), values


def held(interval: Any, truth: float) -> float:
    """Return the share of the intervals that hold the truth."""
    slack = 1e-9 * max(truth, 1.0)
    return float(np.mean((interval.lower <= truth + slack) & (truth - slack <= interval.upper)))


def summary_of(cases: list[Case], low: float, high: float, name: str) -> dict[str, Any]:
    """Return mean, least and most coverage of the cases in a bin."""
    shares = [getattr(case, name) for case in cases if low <= case.decisive < high]
    return {
        "name": f"{name}, {low:g} to {high:g} decisive reports",
        "cells": len(shares),
        "mean": round(float(np.mean(shares)), 4),
        "least": round(float(np.min(shares)), 4),
        "first_percentile": round(float(np.quantile(shares, 0.01)), 4),
        "last_percentile": round(float(np.quantile(shares, 0.99)), 4),
        "most": round(float(np.max(shares)), 4),
    }


def study(policies: int, runs: int, seed: int) -> list[dict[str, Any]]:
    """Return the coverage by the number of decisive reports, of all kinds of intervals."""
    generator = np.random.default_rng(seed)
    cases = [case for _ in range(policies) for case in cases_of(generator, runs)]
    bins = list(pairwise(BINS))
    return [summary_of(cases, *ends, name) for name in ("population", "given", "plain") for ends in bins]


def missed(row: dict[str, Any], runs: int) -> bool:
    """Tell whether a row of the default intervals is out of what is stated, beyond what chance does."""
    if not row["name"].startswith("population"):
        return False
    chance = 4.5 * (WORST * (1 - WORST) / runs) ** 0.5
    many = row["name"].split(", ")[1].startswith(("30 ", "100 "))
    return row["least"] < WORST - chance or (many and not LEAST <= row["mean"] <= MOST)


def main() -> None:
    """Run the study, print and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", type=int, default=500)
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = study(options.policies, options.runs, seed=1)
    for row in rows:
        mark = "  MISSED" if missed(row, options.runs) else ""
        print(
            f"{row['name']:<50} {row['cells']:>5} cells: mean {row['mean']:.4f}, least {row['least']:.4f}, "
            f"1% {row['first_percentile']:.4f}, 99% {row['last_percentile']:.4f}, "
            f"most {row['most']:.4f}{mark}"
        )
    keep(options.json, rows)


if __name__ == "__main__":
    main()
