"""How often profile intervals of regressions hold, and how often likelihood-ratio tests find an effect.

    python -m benchmarks.regression_study             2,000 runs a setting, kept in benchmarks/results/
    python -m benchmarks.regression_study 200         fewer runs
    python -m benchmarks.regression_study 200 rare    one setting

Settings and seeds are fixed in advance. Settings take turns, so that a study that is stopped early has some
runs of each: the file states how many. A fit without a certificate (a finite maximum) is counted, and its
test and interval count like all others. "Answered" is the share of runs with a p-value and an interval, whose
ends may be infinite. A coverage or power over 2,000 runs has a standard error of at most 0.005 or 0.011.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import masquerade as mq

RESULTS = Path(__file__).parent / "results" / "regression_study.json"
RUNS, SEED = 2000, 20
BLOCK = 100  # runs of a setting at a time
SLOW = {"six categories, disguised groups": 20}  # and of one that takes five times as long
YES = ["yes", "no"]
C = mq.channels


def expit(u):
    """Return the inverse of the logit."""
    return 1 / (1 + np.exp(-u))


def answers(truth):
    """Return yes or no."""
    return np.where(truth, "yes", "no")


def yes_no(n: int, beta: tuple[float, float], channel) -> Callable:
    """Return a setting with one clear continuous covariate."""
    policy = mq.Policy.build({"y": YES}, {"y": channel})

    def run(draw: np.random.Generator):
        x = draw.standard_normal(n)
        truth = pd.DataFrame({"y": answers(draw.random(n) < expit(beta[0] + beta[1] * x))})
        source = mq.tally(mq.simulate(truth, policy, seed=int(draw.integers(1 << 30))), policy)
        return mq.stats.logistic(source, "y ~ x", covariates=pd.DataFrame({"x": x})), {"x": beta[1]}

    return run


def list_experiment(n: int, first: float, second: float) -> Callable:
    """Return a list experiment of three items in two groups."""
    policy = mq.Policy.build(
        {"items": [0, 1, 2, 3], "x": YES, "g": [0, 1]}, {("items", "x"): C.list_experiment(3)}
    )
    slope = np.log(second / (1 - second)) - np.log(first / (1 - first))

    def run(draw: np.random.Generator):
        g = draw.integers(0, 2, n)
        x = draw.random(n) < np.where(g, second, first)
        truth = pd.DataFrame({"items": draw.binomial(3, 0.5, n), "x": answers(x), "g": g})
        source = mq.tally(mq.simulate(truth, policy, seed=int(draw.integers(1 << 30))), policy)
        return mq.stats.logistic(source, "x ~ g", items="multinomial"), {"g": slope}

    return run


def cheater_detection(n: int, *, is_continuous: bool) -> Callable:
    """Return cheater detection with a binary or a continuous covariate."""
    policy = mq.Policy.build({"x": ["yes", "no", "cheat"]}, {"x": C.cheater_detection([0.2, 0.8])})

    def run(draw: np.random.Generator):
        z = draw.standard_normal(n) if is_continuous else draw.integers(0, 2, n).astype(float)
        cheat = draw.random(n) < expit(-1.5)
        truth = np.where(cheat, "cheat", answers(draw.random(n) < expit(-1 + 0.7 * z)))
        reports = mq.simulate(pd.DataFrame({"x": truth}), policy, seed=int(draw.integers(1 << 30)))
        source = mq.tally(reports, policy)
        fit = mq.stats.logistic(source, "x[yes] ~ z", covariates=pd.DataFrame({"z": z}), among=YES)
        return fit, {"z": 0.7}

    return run


def categories(n: int) -> Callable:
    """Return a multinomial outcome of six categories."""
    names = [f"k{i}" for i in range(6)]
    policy = mq.Policy.build({"y": names}, {"y": C.symmetric(6, "3/10")})
    slopes = np.array([0, 0.6, -0.4, 0.3, 0, -0.2])

    def run(draw: np.random.Generator):
        x = draw.standard_normal(n)
        u = np.where(np.arange(6), -0.5, 0) + np.outer(x, slopes)
        shares = np.exp(u) / np.exp(u).sum(axis=1, keepdims=True)
        truth = np.minimum((draw.random(n)[:, None] > shares.cumsum(axis=1)).sum(axis=1), 5)
        reports = mq.simulate(
            pd.DataFrame({"y": np.array(names)[truth]}), policy, seed=int(draw.integers(1 << 30))
        )
        fit = mq.stats.multinomial(mq.tally(reports, policy), "y ~ x", covariates=pd.DataFrame({"x": x}))
        return fit, {"k1: x": 0.6}

    return run


def categories_by_group(n: int) -> Callable:
    """Return a multinomial outcome of six categories in two groups, all disguised; some cells are small."""
    policy = mq.Policy.build(
        {"y": list(range(6)), "g": ["a", "b"]}, {"y": C.symmetric(6, "1/5"), "g": C.binary("1/5")}
    )
    first = np.array([0.5, 0.25, 0.12, 0.07, 0.04, 0.02])
    second = np.array([0.25, 0.25, 0.2, 0.15, 0.1, 0.05])
    slopes = np.log(second / second[0]) - np.log(first / first[0])

    def run(draw: np.random.Generator):
        g = draw.random(n) < 0.4
        y = np.where(g, draw.choice(6, n, p=second), draw.choice(6, n, p=first))
        truth = pd.DataFrame({"y": y, "g": np.where(g, "b", "a")})
        source = mq.tally(mq.simulate(truth, policy, seed=int(draw.integers(1 << 30))), policy)
        return mq.stats.multinomial(source, "y ~ g"), {f"{k}: g[T.b]": slopes[k] for k in (1, 3, 5)}

    return run


def all_disguised(n: int) -> Callable:
    """Return an outcome and two covariates that are all disguised."""
    variables = {"y": YES, "g": ["a", "b"], "z": [0, 1, 2]}
    channels = {"y": C.binary("1/5"), "g": C.binary("3/20"), "z": C.symmetric(3, "1/5")}
    policy = mq.Policy.build(variables, channels)

    def run(draw: np.random.Generator):
        g, z = draw.random(n) < 0.3, draw.choice(3, n, p=[0.6, 0.3, 0.1])
        y = draw.random(n) < expit(-2.5 + 0.8 * g + 0.4 * z)
        truth = pd.DataFrame({"y": answers(y), "g": np.where(g, "b", "a"), "z": z})
        source = mq.tally(mq.simulate(truth, policy, seed=int(draw.integers(1 << 30))), policy)
        return mq.stats.logistic(source, "y ~ g + z"), {"g[T.b]": 0.8}

    return run


SETTINGS = {
    "rare": yes_no(2000, (-3.0, 0.7), C.forced_response("1/6", "1/6")),
    "warner": yes_no(1000, (-2.0, 1.0), C.warner("0.75")),
    "few yes": yes_no(400, (-3.0, 1.0), C.warner("0.75")),
    "list": list_experiment(1200, 0.07, 0.25),
    "list, 4,800 people": list_experiment(4800, 0.07, 0.25),
    "list, no effect": list_experiment(1200, 0.15, 0.15),
    "cheaters, two groups": cheater_detection(1500, is_continuous=False),
    "cheaters, continuous": cheater_detection(1500, is_continuous=True),
    "six categories": categories(800),
    "six categories, disguised groups": categories_by_group(800),
    "all disguised": all_disguised(1500),
}

TITLES = {
    "rare": "forced response 1/6, 2,000 people, 6% yes",
    "warner": "Warner 0.75, 1,000 people, 16% yes",
    "few yes": "Warner 0.75, 400 people, 7% yes",
    "list": "list of three, 1,200 people, 7% and 25% yes",
    "list, 4,800 people": "the same, 4,800 people",
    "list, no effect": "list of three, 1,200 people, 15% yes in both groups",
    "cheaters, two groups": "cheater detection, 1,500 people, two groups",
    "cheaters, continuous": "cheater detection, 1,500 people, continuous covariate",
    "six categories": "six categories, 800 people",
    "six categories, disguised groups": "six categories, 800 people, two groups, all disguised",
    "all disguised": "yes/no and two covariates, all disguised, 1,500 people",
}

# seeds are numbered by this list: new settings go to its end
ORDER = (
    "rare",
    "warner",
    "few yes",
    "list",
    "list, no effect",
    "cheaters, two groups",
    "cheaters, continuous",
    "six categories",
    "all disguised",
    "six categories, disguised groups",
    "list, 4,800 people",
)


# what an earlier program found in 200 runs (100 of the last): power, and fits without a certificate
EARLIER = {
    "rare": (200, 0.82, 0.0),
    "warner": (200, 0.975, 0.0),
    "few yes": (200, None, 0.07),
    "list": (200, 0.54, 0.06),
    "cheaters, two groups": (200, 0.605, 0.0),
    "cheaters, continuous": (200, 0.995, 0.0),
    "six categories": (200, 0.915, 0.0),
    "all disguised": (200, 0.27, 0.0),
    "six categories, disguised groups": (100, None, 0.18),
}
BAND = (0.93, 0.97)
FEW_YES = ("few yes", "list")  # settings with few true yeses, in which intervals are too short


class Study:
    """The runs of one setting; they may be added in blocks."""

    def __init__(self, name: str) -> None:
        self.run = SETTINGS[name]
        self.draw = np.random.default_rng([SEED, ORDER.index(name)])
        self.rows: list[list[tuple[bool, bool, bool, float]]] = []
        self.truths: dict[str, float] = {}
        self.certified, self.seconds = 0, 0.0

    def add(self, runs: int) -> None:
        """Simulate and fit some more samples."""
        begin = time.process_time()
        for _ in range(runs):
            fit, self.truths = self.run(self.draw)
            self.certified += bool(fit.certificate)
            row = []
            for term, truth in self.truths.items():
                place = fit.terms.index(term)
                lower, upper = fit.profile(term)
                p = fit.fit.test_terms([place])[2]
                is_answered = 0 <= p <= 1 and lower < upper
                row.append((lower <= truth <= upper, p < 0.05, is_answered, fit.values[place]))
            self.rows.append(row)
        self.seconds += time.process_time() - begin

    def result(self) -> dict[str, object]:
        """Return coverage, power and the share of certified fits."""
        runs = len(self.rows)
        covered, rejected, answered, values = np.array(self.rows, dtype=float).transpose(2, 1, 0)

        def show(each: np.ndarray, digits: int = 4) -> object:
            found = [round(float(one), digits) for one in each]
            return found if len(found) > 1 else found[0]

        return {
            "runs": runs,
            "terms": list(self.truths),
            "truth": show(np.array(list(self.truths.values())), 3),
            "median": show(np.median(values, axis=1), 3),
            "coverage": show(covered.mean(axis=1)),
            "rejected": show(rejected.mean(axis=1)),
            "answered": show(answered.mean(axis=1)),
            "not certified": round(1 - self.certified / runs, 4),
            "seconds a run": round(self.seconds / runs, 3),
        }


def show_numbers(each: object, digits: int = 3) -> str:
    """Return a number, or several, as text."""
    numbers = each if isinstance(each, list) else [each]
    return ", ".join(f"{number:.{digits}f}" for number in numbers)


def table_of(kept: dict[str, dict[str, object]]) -> str:
    """Return the figures as the Markdown table of docs/howto/regression.md."""
    lines = [
        "| setting | runs | true coefficient | p < 0.05 | coverage | not certified |",
        "|---|---|---|---|---|---|",
    ]
    for name in SETTINGS:
        row = kept[name]
        texts = [show_numbers(row["truth"], 2), *(show_numbers(row[key]) for key in ("rejected", "coverage"))]
        lines.append(
            f"| {TITLES[name]} | {row['runs']:,} | {' | '.join(texts)} | {row['not certified']:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the settings by turns, block by block, and keep the figures so far."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    names = sys.argv[2:] or list(SETTINGS)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    studies = {name: Study(name) for name in names}
    while studies:
        for name, study in list(studies.items()):
            left = runs - len(study.rows)
            study.add(min(left, SLOW.get(name, BLOCK)))
            kept[name] = study.result()
            print(name, kept[name], flush=True)
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
            if len(study.rows) == runs:
                del studies[name]
    print(table_of(kept))


if __name__ == "__main__":
    main()
