"""Coverage of 95% intervals of statistics on counts with noise: six statistics at three levels of ε.

    python -m benchmarks.noise_coverage [--runs 2000] [--json FILE]

Each run draws 20,000 records of a known population, adds noise to five tables through `mq.Noisy` and computes
all statistics by the public functions. To be reached: coverage from .93 to .97 for each statistic and ε, as
the mean over its cells.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import masquerade as mq
from masquerade.core.linear_covariance import LinearCovariance
from masquerade.estimate.evidence import ReportEvidence

EPSILONS = (0.1, 1.0, 3.0)
RECORDS = 20_000
RUNS = 2_000
TABLES = 5
COVERAGE = (0.93, 0.97)
KEPT = Path(__file__).parent / "results" / "noise_coverage.json"
TREATED = np.array([0.45, 0.55])
OLD = np.array([0.3, 0.4, 0.3])
# logit P(outcome = yes) = −0.8 + 0.6·treated + (0, 0.3, 0.7) by age
COEFFICIENTS = {"Intercept": -0.8, "treated[T.yes]": 0.6, "age[T.middle]": 0.3, "age[T.old]": 0.7}
HAZARDS = np.array([0.10, 0.15, 0.20, 0.25])
CENSORED = 0.1  # at each time, of those without an event


def chances() -> np.ndarray:
    """Return P(outcome = yes | treated, age)."""
    treated, age = np.array([0, 0.6]), np.array([0, 0.3, 0.7])
    return 1 / (1 + np.exp(0.8 - treated[:, None] - age))


def cells() -> np.ndarray:
    """Return the probabilities of all cells: treated, age, outcome, time, event."""
    yes = chances()
    people = TREATED[:, None, None] * OLD[None, :, None] * np.stack([1 - yes, yes], axis=2)
    times, open_ = np.zeros((len(HAZARDS), 2)), 1.0
    for step, hazard in enumerate(HAZARDS):
        leaving = 1.0 if step == len(HAZARDS) - 1 else CENSORED
        times[step] = open_ * (1 - hazard) * leaving, open_ * hazard
        open_ *= (1 - hazard) * (1 - leaving)
    return np.multiply.outer(people, times)


class Population:
    """Exact counts of drawn records, held as one table of all variables."""

    def __init__(self, counts: np.ndarray) -> None:
        self.schema, self.guarantee = SCHEMA, mq.Guarantee(())
        values, names = counts.astype(float), tuple(SCHEMA)
        evidence = ReportEvidence.clear(values, LinearCovariance.clear(values, RECORDS, names))
        self._table = mq.CountTable(SCHEMA.variables, values, RECORDS, evidence)

    def check(self, queries: Sequence[mq.Query]) -> list[mq.Refusal]:
        """Return no refusals."""
        del queries
        return []

    def answer(self, queries: Sequence[mq.Query]) -> list[mq.CountTable]:
        """Return slices and margins of the table."""
        return [self._table.select(dict(query.where)).marginal(query.by) for query in queries]


SCHEMA = mq.Schema(
    {
        "treated": ["no", "yes"],
        "age": ["young", "middle", "old"],
        "outcome": ["no", "yes"],
        "time": [1, 2, 3, 4],
        "event": ["no", "yes"],
    }
)


def truths() -> dict[str, np.ndarray]:
    """Return the true values of all statistics, in the order of their rows."""
    yes = chances() @ OLD
    joint = np.stack([TREATED * (1 - yes), TREATED * yes], axis=1)
    rows = np.stack([1 - yes, yes], axis=1)
    return {
        "counts": (RECORDS * joint).ravel(),
        "shares": rows.ravel(),
        "conditional probabilities": rows.ravel(),
        "odds ratio": np.array([yes[1] * (1 - yes[0]) / (yes[0] * (1 - yes[1]))]),
        "survival curve": np.cumprod(1 - HAZARDS),
        "logistic regression": np.array(list(COEFFICIENTS.values())),
    }


def intervals(source: mq.Tally) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the bounds of all intervals of one run."""
    [table] = source.answer([mq.Query(by=("treated", "outcome"))])
    counts = table.conf_int()
    network = mq.learn.bayesian_network(source, {"treated": (), "outcome": ("treated",)})
    rows = network.tables[1].to_frame()
    frames = {
        "shares": mq.stats.shares(source, "outcome", by="treated").to_frame(),
        "conditional probabilities": rows,
        "odds ratio": mq.stats.odds_ratio(source, "outcome", "treated").to_frame(),
        "survival curve": mq.stats.survival(source, "time", "event").to_frame(),
        "logistic regression": mq.stats.logistic(source, "outcome ~ treated + age").to_frame(),
    }
    bounds = {name: (frame["lower"].to_numpy(), frame["upper"].to_numpy()) for name, frame in frames.items()}
    return {"counts": (np.ravel(counts[0]), np.ravel(counts[1])), **bounds}


def study(epsilon: float, runs: int, seed: int) -> dict[str, float]:
    """Return the coverage of each statistic at one ε."""
    rng, expected, probabilities = np.random.default_rng(seed), truths(), cells()
    hits = {name: np.zeros(len(value)) for name, value in expected.items()}
    for _ in range(runs):
        drawn = rng.multinomial(RECORDS, probabilities.ravel()).reshape(probabilities.shape)
        source = mq.Noisy(Population(drawn), epsilon=epsilon, tables=TABLES)
        source.answer(
            [
                mq.Query(by=("treated", "outcome")),
                mq.Query(by=("treated", "age", "outcome")),
                mq.Query(by=("time", "event")),
            ]
        )
        for name, (lower, upper) in intervals(source).items():
            hits[name] += (lower <= expected[name]) & (expected[name] <= upper)
    return {name: float(np.mean(value) / runs) for name, value in hits.items()}


def main() -> None:
    """Run the study and keep its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--epsilon", type=float, action="append", help="only this level; may be repeated")
    options = parser.parse_args()
    results, started = {}, time.time()
    for place, epsilon in enumerate(EPSILONS):
        if options.epsilon and epsilon not in options.epsilon:
            continue
        results[str(epsilon)] = study(epsilon, options.runs, place)
        print(epsilon, {name: round(value, 4) for name, value in results[str(epsilon)].items()}, flush=True)
    kept = {
        "records": RECORDS,
        "runs": options.runs,
        "tables": TABLES,
        "delta": 1e-6,
        "seconds": round(time.time() - started),
        "coverage": results,
    }
    path = options.json or (KEPT if options.runs == RUNS and not options.epsilon else None)
    if path is not None:
        path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
