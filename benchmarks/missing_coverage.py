"""Coverage of estimates from people who did not answer everything: means, medians, shares, regressions.

    python -m benchmarks.missing_coverage             2,000 runs, kept in benchmarks/results/
    python -m benchmarks.missing_coverage 100         fewer runs, printed only
    python -m benchmarks.missing_coverage 2000 twin   the small twin of a file alone; it stops and continues

Every run draws 4,000 people, disguises their answers, missing ones too, and estimates by the public
functions. The driver of missing incomes is clear in one half of the study and flipped for 25% in the other.
"answered" estimates the population of those who answered, "at random" the whole population. Next to
"answered" is the share of its intervals that contain the value of the whole population: complete cases. The
twin has 2,000 rows and 8 columns of the file in `benchmarks.missing_file`, whose 200,000 rows × 40 columns go
through all readers and engines in tests/conformance; its regression has profile intervals. The people of
every run of the twin have a seed of their own, and benchmarks/results/missing_twin.json keeps the sums of all
runs so far. The median of a whole number is itself one of few numbers, so its interval may always contain it.
2,000 runs determine a coverage of 95% to ± 0.5 points (one standard error).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is loaded; small matrices gain nothing

import numpy as np
import pandas as pd
from benchmarks import missing_file
from scipy.stats import binom, chi2, gamma

import masquerade as mq
from masquerade.stats.regression import likelihood as report_likelihood
from masquerade.stats.regression.profile import ratio_statistic
from masquerade.stats.regression.solver import maximise

RESULTS = Path(__file__).parent / "results" / "missing_coverage.json"
TWIN_SUMS = RESULTS.with_name("missing_twin.json")
TWIN_SEED, EVERY = 34, 20  # sums are written after this number of runs
CONFIRMED = 400  # coefficients, of which both ends of an interval are computed for the first two
RUNS, PEOPLE, LOWEST, HIGHEST = 2_000, 4_000, 0.93, 0.97
EDGES = np.array([0, 10, 20, 30, 40])
MIDDLES = (EDGES[:-1] + EDGES[1:]) / 2
# of the income v, given the driver a; of missing incomes; and of the three kinds of s, 3% missing
INCOME = np.array([[0.45, 0.30, 0.15, 0.10], [0.10, 0.25, 0.35, 0.30]])
LOST = np.array([0.10, 0.60])
KINDS = np.array([0.5, 0.3, 0.2])
BETA = np.array([-0.5, 1.0, 0.5])  # of y ~ x + z; x is missing for 10% or 35%, by y
GAMMA = np.array([-0.3, 0.6, 0.4, -0.4])  # of w ~ z + s; w is missing for 5% or 30%, by z
NOT_STATED = "not stated"


def expit(x):
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


def policy(driver: str | None) -> mq.Policy:
    """Return the policy; `driver` is the probability that the driver is flipped."""
    flip = {"channel": {"kind": "symmetric", "p": "0.1"}}
    yes_no = {"categories": ["no", "yes", NOT_STATED], "missing": NOT_STATED, **flip}
    return mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "a": {"categories": ["no", "yes"]}
                | ({} if driver is None else {"channel": {"kind": "binary", "p": driver}}),
                "z": {"categories": ["no", "yes"]},
                "v": {"bins": EDGES.tolist(), "missing": NOT_STATED, **flip},
                "s": {"categories": ["one", "two", "three", NOT_STATED], "missing": NOT_STATED, **flip},
                "x": yes_no,
                "y": {"categories": ["no", "yes"], **flip},
                "w": yes_no,
            },
        }
    )


def people(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return people with their missing answers."""
    a, z = rng.random(n) < 0.5, rng.random(n) < 0.5
    place = (rng.random(n)[:, None] > np.cumsum(INCOME, axis=1)[a.astype(int)]).sum(axis=1)
    s = rng.choice(3, n, p=KINDS)
    x = rng.random(n) < np.where(z, 0.6, 0.3)
    y = rng.random(n) < expit(BETA[0] + BETA[1] * x + BETA[2] * z)
    w = rng.random(n) < expit(GAMMA[0] + GAMMA[1] * z + np.array([0, *GAMMA[2:]])[s])

    def shown(values, share):
        return np.where(rng.random(n) < share, None, values.astype(object))

    def yes_no(flags):
        return np.where(flags, "yes", "no")

    return pd.DataFrame(
        {
            "a": yes_no(a),
            "z": yes_no(z),
            "v": shown(MIDDLES[place], LOST[a.astype(int)]).astype(float),
            "s": shown(np.array(["one", "two", "three"])[s], 0.03),
            "x": shown(yes_no(x), np.where(y, 0.35, 0.10)),
            "y": yes_no(y),
            "w": shown(yes_no(w), np.where(z, 0.30, 0.05)),
        }
    )


def median(shares) -> float:
    """Return the median within bins, spread evenly."""
    below = np.concatenate([[0], np.cumsum(shares)])
    return float(np.interp(0.5, below, EDGES))


def truths() -> dict[str, float]:
    """Return what is estimated, of the whole population and of those who answered."""
    whole = INCOME.mean(axis=0)
    answered = (INCOME * (1 - LOST)[:, None]).sum(axis=0) / (1 - LOST).sum()
    found = {
        "mean, answered": answered @ MIDDLES,
        "mean, at random": whole @ MIDDLES,
        "median, answered": median(answered),
        "median, at random": median(whole),
        "share of [30, 40], answered": answered[-1],
        "share of [30, 40], at random": whole[-1],
        "share of s = two, answered": KINDS[1],
    }
    found |= {f"w ~ z + s, answered: {i}": value for i, value in enumerate(GAMMA)}
    # of those who answered x the odds of y are smaller by 0.65/0.90, and nothing else changes
    shifted = BETA + np.array([np.log(0.65 / 0.90), 0, 0])
    found |= {f"y ~ x + z, answered: {i}": value for i, value in enumerate(shifted)}
    found |= {f"y ~ x + z, at random: {i}": value for i, value in enumerate(BETA)}
    return {name: float(value) for name, value in found.items()}


def estimates(source: mq.Tally, *, regressions: bool) -> dict[str, tuple[float, float, float]]:
    """Return estimates with their intervals, by name."""
    found = {}
    random = {"missing": "at-random", "given": "a"}
    for way, options in (("answered", {"missing": "answered"}), ("at random", random)):
        mean = mq.stats.mean(source, "v", **options)
        middle = mq.stats.quantile(source, "v", **options)
        shares = mq.stats.shares(source, "v", **options)
        for name, each, row in (("mean", mean, 0), ("median", middle, 0), ("share of [30, 40]", shares, 3)):
            found[f"{name}, {way}"] = each.values[row], each.lower[row], each.upper[row]
    if not regressions:
        return found
    kinds = mq.stats.shares(source, "s", missing="answered")
    found["share of s = two, answered"] = kinds.values[1], kinds.lower[1], kinds.upper[1]
    for name, fit in (
        ("w ~ z + s, answered", mq.stats.logistic(source, "w ~ z + s")),
        ("y ~ x + z, answered", mq.stats.logistic(source, "y ~ x + z")),
        (
            "y ~ x + z, at random",
            mq.stats.logistic(source, "y ~ x + z", missing="at-random", given=["y", "z"]),
        ),
    ):
        half = 1.959964 * fit.bse.to_numpy()
        for i, value in enumerate(fit.values):
            found[f"{name}: {i}"] = value, value - half[i], value + half[i]
    return found


class Study:
    """Runs with one policy: what was estimated, and how often intervals contained the truth."""

    def __init__(self, driver: str | None) -> None:
        self.policy, self.targets = policy(driver), truths()
        self.regressions = driver is None  # they do not read the driver: once is enough
        self.values: dict[str, list[float]] = defaultdict(list)
        self.inside: dict[str, list[bool]] = defaultdict(list)
        self.complete: dict[str, list[bool]] = defaultdict(list)

    def run(self, rng: np.random.Generator) -> None:
        """Draw people, disguise them and estimate."""
        source = mq.tally(mq.disguise(people(PEOPLE, rng), self.policy), self.policy)
        for name, (value, lower, upper) in estimates(source, regressions=self.regressions).items():
            self.values[name].append(value)
            self.inside[name].append(bool(lower <= self.targets[name] <= upper))
            other = name.replace(", answered", ", at random")
            if other in self.targets and other != name:
                self.complete[name].append(bool(lower <= self.targets[other] <= upper))

    def results(self) -> dict[str, dict[str, float]]:
        """Return coverage and bias, and how often complete cases contain the whole population's value."""
        return {
            name: {
                "truth": self.targets[name],
                "coverage": float(np.mean(self.inside[name])),
                "bias": float(np.mean(values) - self.targets[name]),
                "spread": float(np.std(values)),
                **({"whole population": float(np.mean(self.complete[name]))} if self.complete[name] else {}),
            }
            for name, values in self.values.items()
        }


class TwinStudy(Study):
    """Runs on a small twin of the file of `benchmarks.missing_file`."""

    ROWS, COLUMNS, GAMMA = 2_000, 8, 9
    PARTS = ("estimates", "regression")

    def __init__(self, part: str) -> None:
        super().__init__(None)
        self.part, self.ratios = part, 0
        self.policy, self.targets = missing_file.policy_of(self.COLUMNS, self.GAMMA), self.truths()

    def truths(self) -> dict[str, float]:
        """Return the values of the population: missing values depend on nothing."""
        edges = np.array(missing_file.EDGES)
        below = gamma.cdf(edges, 2.0, scale=8.0)
        below[-1] = 1.0  # larger numbers are cut to the last edge
        shares, middles = np.diff(below), (edges[:-1] + edges[1:]) / 2
        found = {"mean of v1": shares @ middles, "median of v1": np.interp(0.5, below, edges)}
        for place in (0, 6):
            chance = missing_file.whole_chance(place, self.COLUMNS)
            found |= {f"mean of v{place}": 4 * chance, f"median of v{place}": binom.median(4, chance)}
        chances = binom.pmf(np.arange(5), 4, missing_file.whole_chance(0, self.COLUMNS))
        first, slope = missing_file.LOGIT
        found["share of north in v2"] = chances @ expit(first + slope * np.arange(5))
        found |= {"v2 ~ v0: intercept": first, "v2 ~ v0: slope": slope}
        return {name: float(value) for name, value in found.items()}

    def run(self, rng: np.random.Generator) -> None:
        """Draw a file, disguise it and estimate."""
        drawn = missing_file.people(self.ROWS, self.COLUMNS, rng)
        source = mq.tally(mq.disguise(drawn, self.policy), self.policy)
        if self.part == "regression":
            self.fit(source)
            return
        found = {}
        for name in ("v0", "v1", "v6"):
            for title, each in (
                ("mean", mq.stats.mean(source, name)),
                ("median", mq.stats.quantile(source, name)),
            ):
                found[f"{title} of {name}"] = each.values[0], each.lower[0], each.upper[0]
        shares = mq.stats.shares(source, "v2", missing="answered")
        found["share of north in v2"] = shares.values[0], shares.lower[0], shares.upper[0]
        for name, (value, lower, upper) in found.items():
            self.values[name].append(value)
            self.inside[name].append(bool(lower <= self.targets[name] <= upper))

    def fit(self, source: mq.Tally) -> None:
        """Fit the regression, and note whether the intervals of its coefficients contain the truth."""
        fit = mq.stats.logistic(source, "v2[north] ~ v0")
        for place, title in enumerate(("intercept", "slope")):
            name = f"v2 ~ v0: {title}"
            self.values[name].append(float(fit.values[place]))
            self.inside[name].append(self.is_inside(fit, place, self.targets[name]))

    def is_inside(self, fit: mq.stats.Regression, place: int, truth: float) -> bool:
        """Return True if the profile interval of a coefficient contains the truth.

        By definition it does so if the likelihood ratio of the truth is within its threshold, which takes a
        tenth of the time that both ends of the interval take. Some runs compute the ends to confirm that.
        """
        made = fit.fit
        likelihood, best, fixed = made.problem.likelihood, made.solution, {place: truth}
        most = chi2.ppf(0.95, 1)
        near = maximise(likelihood, best.beta, fixed)  # other starts can only lower the ratio
        inside = bool(
            2 * (best.value - near.value) <= most
            or ratio_statistic(likelihood, best, fixed, made.problem.starts) <= most
        )
        self.ratios += 1
        if self.ratios % CONFIRMED in {1, 2}:  # both coefficients of every 200th run
            lower, upper = fit.conf_int().to_numpy()[place]
            assert (lower <= truth <= upper) == inside
        return inside


def continue_twin(part: str, runs: int, sums_file: Path = TWIN_SUMS) -> dict[str, dict[str, float]]:
    """Run a part of the twin until there are `runs` runs in all; return coverage and bias of each estimate.

    The file has for each part the number of runs and, for each estimate, the number of intervals that contain
    the truth, the sum of the errors and the sum of their squares.
    """
    whole = json.loads(sums_file.read_text()) if sums_file.exists() else {}
    kept = whole.setdefault(part, {"runs": 0, "sums": {}})
    study = TwinStudy(part)
    report_likelihood.CHUNK = 1 << 18  # 24 kinds of rows at a time instead of 22 and 2
    while kept["runs"] < runs:
        study.values.clear()
        study.inside.clear()
        last = min(kept["runs"] + EVERY, runs)
        for place in range(kept["runs"], last):
            study.run(np.random.default_rng([TWIN_SEED, place]))
        for name, values in study.values.items():
            errors = np.array(values) - study.targets[name]
            added = [sum(study.inside[name]), float(errors.sum()), float((errors**2).sum())]
            before = kept["sums"].get(name, [0, 0.0, 0.0])
            kept["sums"][name] = [one + more for one, more in zip(before, added, strict=True)]
        kept["runs"] = last
        sums_file.write_text(json.dumps(whole, indent=2) + "\n")
    done = kept["runs"]
    return {
        name: {
            "truth": study.targets[name],
            "runs": done,
            "coverage": inside / done,
            "bias": first / done,
            "spread": float(np.sqrt(max(second / done - (first / done) ** 2, 0.0))),
        }
        for name, (inside, first, second) in kept["sums"].items()
    }


def main() -> None:
    """Run the study, keep its results every 100 runs, and print them at the end."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    rng, begun = np.random.default_rng(1), time.perf_counter()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if sys.argv[2:] == ["twin"]:
        for part in TwinStudy.PARTS:
            rows = continue_twin(part, runs)
            show(f"twin of the file, {part}", rows)
            if runs >= RUNS:
                kept["twin of the file"] = kept.get("twin of the file", {}) | rows
                RESULTS.write_text(json.dumps(kept, indent=2) + "\n")
        return
    studies = {"driver clear": Study(None), "driver flipped 25%": Study("0.25")}
    for done in range(1, runs + 1):
        for study in studies.values():
            study.run(rng)
        if runs >= RUNS and (done % 100 == 0 or done == runs):
            found = {title: study.results() for title, study in studies.items()}
            kept |= {"runs": done, "people": PEOPLE, "seconds": round(time.perf_counter() - begun), **found}
            RESULTS.write_text(json.dumps(kept, indent=2) + "\n")
    for title, study in studies.items():
        show(title, study.results())


def show(title: str, rows: dict[str, dict[str, float]]) -> None:
    """Print the results of a study, and the estimates whose coverage is outside the limits."""
    for name, row in rows.items():
        print(f"{title}  {name:<32} {'  '.join(f'{key} {value:.4f}' for key, value in row.items())}")
    outside = [name for name, row in rows.items() if not LOWEST <= row["coverage"] <= HIGHEST]
    print(f"{title}: coverage outside {LOWEST}–{HIGHEST}: {', '.join(outside) or 'none'}")


if __name__ == "__main__":
    main()
