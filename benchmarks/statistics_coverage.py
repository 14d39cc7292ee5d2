"""How often the intervals and tests of `masquerade.stats` hold what they say: simulated reports, many runs.

    python -m benchmarks.statistics_coverage           the whole study, kept in benchmarks/results/
    python -m benchmarks.statistics_coverage effects   a part of it

Every run draws the table of reports from its exact distribution and goes through the public functions; no
record is made. Tests run short versions (tests/statistical/test_statistics.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import masquerade as mq
from masquerade.core.axes import AxisMap, AxisMaps
from masquerade.core.evidence import TableReduction
from masquerade.core.linear_covariance import CovariancePart, LinearCovariance
from masquerade.core.table import CountTable
from masquerade.estimate.evidence import ReportEvidence
from masquerade.estimate.reports import Reports
from masquerade.sources.records import Records
from masquerade.stats.regression.families import Mean
from masquerade.stats.regression.formula import Formula, cells_of
from masquerade.stats.regression.score_fit import regression_of

RESULTS = Path(__file__).parent / "results" / "statistics_coverage.json"


def symmetric(size: int, p: float) -> np.ndarray:
    """Return the probabilities of a symmetric channel."""
    return (1 - p - p / (size - 1)) * np.eye(size) + p / (size - 1)


class Survey:
    """A population over variables, each behind its channel (None: clear), from which tables are drawn."""

    def __init__(self, truth, axes: dict[str, Sequence], channels: Sequence[np.ndarray | None]):
        self.truth = np.asarray(truth, dtype=float) / np.sum(truth)
        self.axes = tuple(mq.Variable(name, tuple(labels)) for name, labels in axes.items())
        self.channels = tuple(channels)
        reports = self.truth
        for axis, channel in enumerate(channels):
            if channel is not None:
                reports = np.moveaxis(np.tensordot(reports, channel, axes=(axis, 0)), -1, axis)
        self.reports = reports
        inverses = [None if channel is None else np.linalg.inv(channel) for channel in channels]
        self.maps = AxisMaps(self.truth.shape, tuple(AxisMap((i,), G) for i, G in enumerate(inverses)))

    def table(self, n: int, generator: np.random.Generator) -> CountTable:
        """Return the table of n records drawn anew."""
        observed = generator.multinomial(n, self.reports.ravel()).reshape(self.reports.shape).astype(float)
        return self.table_of(observed)

    def table_of(self, observed) -> CountTable:
        """Return the table that reports give."""
        observed = np.asarray(observed, dtype=float)
        values, n = self.maps.apply(observed), int(observed.sum())
        names = tuple(axis.name for axis in self.axes)
        covariance = LinearCovariance((CovariancePart(observed, self.maps),), values, values, n, names)
        whole = TableReduction.none(values.ndim)
        reports = Reports(observed, self.channels, self.truth.shape, whole)
        return CountTable(self.axes, values, n, ReportEvidence.of([reports], values, covariance))


def held(estimates, truth) -> np.ndarray:
    """Tell which intervals hold the truth."""
    return (estimates.lower <= truth) & (truth <= estimates.upper)


BINARY = {"x": ("a", "b"), "y": ("yes", "no")}


def effects(runs: int, seed: int = 1) -> list[dict]:
    """Odds ratio, risk difference and ratio, both variables disguised (methods: .94 to .96)."""
    truth = np.array([[0.3, 0.2], [0.15, 0.35]])
    rows = []
    for p in (0.1, 0.2, 0.3):
        survey = Survey(truth, BINARY, [symmetric(2, p)] * 2)
        generator = np.random.default_rng([seed, int(100 * p)])
        share = truth[:, 0] / truth.sum(axis=1)
        odds = share / (1 - share)
        exact = {
            "odds ratio": (mq.stats.odds_ratio, odds[1] / odds[0]),
            "difference": (mq.stats.difference, share[1] - share[0]),
            "ratio": (mq.stats.ratio, share[1] / share[0]),
        }
        found = {name: [] for name in exact}
        for _ in range(runs):
            table = survey.table(10_000, generator)
            for name, (verb, value) in exact.items():
                found[name].append(held(verb(table, "y", "x"), value)[0])
        rows += [
            {"study": "effects", "name": f"{name}, p = {p}", "runs": runs, "coverage": float(np.mean(kept))}
            for name, kept in found.items()
        ]
    return rows


def rare(runs: int, seed: int = 2) -> list[dict]:
    """Shares and their differences where the prevalence is next to nothing."""
    rows = []
    for p, prevalence, n in ((0.0, 0.005, 1000), (0.0, 0.002, 2000), (0.1, 0.005, 2000), (0.2, 0.01, 5000)):
        truth = 0.5 * np.array([[prevalence, 1 - prevalence], [2 * prevalence, 1 - 2 * prevalence]])
        survey = Survey(truth, BINARY, [None, symmetric(2, p) if p else None])
        generator = np.random.default_rng([seed, int(1e4 * prevalence), int(100 * p)])
        kept = {"share": [], "difference": [], "odds ratio": [], "ratio": []}
        for _ in range(runs):
            table = survey.table(n, generator)
            kept["share"].append(held(mq.stats.shares(table, "y", by="x"), truth.ravel() * 2)[0])
            kept["difference"].append(held(mq.stats.difference(table, "y", "x"), prevalence)[0])
            kept["ratio"].append(held(mq.stats.ratio(table, "y", "x"), 2.0)[0])
            odds = (2 * prevalence / (1 - 2 * prevalence)) / (prevalence / (1 - prevalence))
            kept["odds ratio"].append(held(mq.stats.odds_ratio(table, "y", "x"), odds)[0])
        rows += [
            {
                "study": "rare",
                "name": f"{name}, prevalence {prevalence}, p = {p}, n = {n}",
                "runs": runs,
                "coverage": float(np.mean(values)),
            }
            for name, values in kept.items()
        ]
    return rows


def survey(runs: int, seed: int = 3) -> list[dict]:
    """22% against 10% with only the answer disguised at ε = 1.5, n = 3,000; and 16% in both groups."""
    flip = float(1 / (1 + np.exp(1.5)))
    rows = []
    for name, shares in (("22% against 10%", (0.10, 0.22)), ("no difference", (0.16, 0.16))):
        truth = 0.5 * np.array([[share, 1 - share] for share in shares])
        people = Survey(truth, BINARY, [None, symmetric(2, flip)])
        generator = np.random.default_rng([seed, int(100 * shares[1])])
        rejected = np.zeros((runs, 5), dtype=bool)
        for run in range(runs):
            table = people.table(3000, generator)
            gap, odds = mq.stats.difference(table, "y", "x"), mq.stats.odds_ratio(table, "y", "x")
            test = mq.stats.independence(table, "x", "y")
            rejected[run] = (
                gap.p_values[0] < 0.05,
                not gap.lower[0] <= 0 <= gap.upper[0],
                odds.p_values[0] < 0.05,
                not odds.lower[0] <= 1 <= odds.upper[0],
                test.p_value < 0.05,
            )
        words = ("difference, p", "difference, interval", "odds ratio, p", "odds ratio, interval", "test")
        rows += [
            {"study": "survey", "name": f"{name}: {word}", "runs": runs, "rejected": float(share)}
            for word, share in zip(words, rejected.mean(axis=0), strict=True)
        ]
        agree = float(np.mean(rejected.all(axis=1) | ~rejected.any(axis=1)))
        rows.append({"study": "survey", "name": f"{name}: all agree", "runs": runs, "share": agree})
    return rows


BETA = np.array([-1.0, 1.0, 0.5, -0.7])
COVARIATES = {"x1": ("a", "b"), "x2": ("u", "v", "w"), "y": ("yes", "no")}


def regressed() -> tuple[Survey, np.ndarray]:
    """Return people whose answer depends on two covariates, all three behind channels."""
    rows = np.array([[1, a, c == 1, c == 2] for a in (0, 1) for c in (0, 1, 2)], dtype=float)
    mean = 1 / (1 + np.exp(-rows @ BETA))
    weight = np.outer([0.6, 0.4], [0.5, 0.3, 0.2]).ravel()
    truth = (weight[:, None] * np.stack([mean, 1 - mean], axis=1)).reshape(2, 3, 2)
    channels = [symmetric(2, 0.15), symmetric(3, 0.2), symmetric(2, 0.2)]
    return Survey(truth, COVARIATES, channels), rows


def regression(runs: int, seed: int = 4, n: int = 20_000) -> list[dict]:
    """Logistic regression with outcome and covariates disguised; naive takes reports for the truth."""
    people, _ = regressed()
    family = Mean("logistic", np.array([1.0, 0.0]))
    formula = Formula.of("y ~ x1 + x2")
    cells = cells_of(formula, mq.Schema(people.axes), None, None)
    as_truth = Survey(people.reports, COVARIATES, [None] * 3)
    generator = np.random.default_rng(seed)
    found = {"ours": [], "naive": []}
    for _ in range(runs):
        observed = generator.multinomial(n, people.reports.ravel()).reshape(people.reports.shape)
        for name, survey in (("ours", people), ("naive", as_truth)):
            fit = regression_of(survey.table_of(observed), cells, family, kind="logistic")
            found[name].append((fit.values, fit.bse.to_numpy()))
    rows = []
    for name, fits in found.items():
        values, errors = (np.array(part) for part in zip(*fits, strict=True))
        kept = np.abs(values - BETA) <= 1.959964 * errors
        rows += [
            {
                "study": "regression",
                "name": f"{name}: {term}",
                "runs": runs,
                "truth": float(BETA[i]),
                "mean": float(values[:, i].mean()),
                "sd": float(values[:, i].std()),
                "stderr": float(errors[:, i].mean()),
                "coverage": float(kept[:, i].mean()),
            }
            for i, term in enumerate(cells.terms)
        ]
    return rows


def imputation(runs: int, seed: int = 5) -> list[dict]:
    """Log odds ratio from 20 imputations and from the table: both variables with p = 0.25, n = 3,000."""
    generator = np.random.default_rng(seed)
    kept = {"20 imputations": [], "table": []}
    for run in range(runs):
        source, exact = two_disguised(generator)
        found = mq.stats.impute(source, m=20, seed=run).pool(log_odds).conf_int()
        kept["20 imputations"].append(found["lower"].iloc[0] <= exact <= found["upper"].iloc[0])
        kept["table"].append(held(mq.stats.odds_ratio(source, "y", "x"), np.exp(exact))[0])
    return [
        {"study": "imputation", "name": name, "runs": runs, "coverage": float(np.mean(each))}
        for name, each in kept.items()
    ]


def two_disguised(generator) -> tuple[Records, float]:
    """Return 3,000 records of two disguised variables, and the log odds ratio of their population."""
    truth, change = np.array([[0.3, 0.2], [0.15, 0.35]]), symmetric(2, 0.25)
    policy = mq.Policy.build(BINARY, {name: mq.channels.binary("1/4") for name in BINARY})
    reports = np.einsum("ij,ik,jl->kl", truth, change, change)
    codes = np.repeat(np.arange(4), generator.multinomial(3000, reports.ravel()))
    source = Records({"x": (codes // 2).astype(np.uint8), "y": (codes % 2).astype(np.uint8)}, policy)
    return source, float(np.log(truth[1, 0] * truth[0, 1] / truth[1, 1] / truth[0, 0]))


def log_odds(frame) -> tuple[float, float]:
    """Return the log odds ratio of a frame of clear records and its variance."""
    yes, b = frame["y"] == "yes", frame["x"] == "b"
    cells = np.array(
        [[(b & yes).sum(), (b & ~yes).sum()], [(~b & yes).sum(), (~b & ~yes).sum()]], dtype=float
    )
    return float(np.log(cells[0, 0] * cells[1, 1] / cells[0, 1] / cells[1, 0])), float((1 / cells).sum())


STUDIES = {
    "regression": (regression, 4000),
    "effects": (effects, 4000),
    "rare": (rare, 4000),
    "survey": (survey, 2000),
    "imputation": (imputation, 600),
}


def main(names: Sequence[str]) -> None:
    """Run studies and keep their figures."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    for name in names or STUDIES:
        study, runs = STUDIES[name]
        rows = study(runs)
        kept = [row for row in kept if row["study"] != name] + rows
        for row in rows:
            print(row)
        kept.sort(key=lambda row: list(STUDIES).index(row["study"]))
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
