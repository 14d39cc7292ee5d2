"""How often the intervals of a classifier's test hold, where the class is rare and the records are disguised.

    python -m benchmarks.classifier_tests            the whole study, kept in benchmarks/results/
    python -m benchmarks.classifier_tests 100        fewer runs of each setting, nothing is kept

A class has a prevalence of 2% or 20%. A naive Bayes model predicts it from three features of 4, 3 and 2
categories; some records are predicted to be of the rare class. Every run draws the reports of 20,000 people
from their exact distribution: the class alone is disguised, or the features, too, each category kept with
90%. `mq.evaluate.performance` tests the model on them, and each interval contains the truth, which follows
from the distribution, or does not. Limits and numbers of runs were fixed before the first run: 2,000 runs,
coverage from 0.93 to 0.97. An interval that ends at a bound of [0, 1] can hold more often: what lies beyond
the bound is no error. All runs are computed together; `check_against_product` shows that the numbers are
those of `mq.evaluate.performance`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

import masquerade as mq
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.intervals import RatioErrors, keep_inside
from masquerade.core.report_moments import ReportSpread, ShareSpread, score_interval, share_interval
from masquerade.learn.classifiers.outcomes import equal_bins
from masquerade.sources.records import Records

RESULTS = Path(__file__).parent / "results" / "classifier_tests.json"
RUNS, PEOPLE, LEVEL = 2000, 20_000, 0.95
BAND = (0.93, 0.97)
PREVALENCES = (0.02, 0.2)
KEPT = 0.9
SCHEMA = {"a": ["0", "1", "2", "3"], "b": ["low", "middle", "high"], "c": ["no", "yes"], "ill": ["no", "yes"]}
# P(feature | class): rows are the classes
FEATURES = {
    "a": np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.15, 0.25, 0.5]]),
    "b": np.array([[0.6, 0.3, 0.1], [0.15, 0.25, 0.6]]),
    "c": np.array([[0.85, 0.15], [0.35, 0.65]]),
}
THRESHOLDS = (0.02, 0.05, 0.2, 0.5)
BINS = 4
SOME = 0.05  # share of runs in which an interval ends at a bound


def population(prevalence: float) -> np.ndarray:
    """Return P(a, b, c, ill) of a population in which the features depend on each other, too."""
    prior = np.array([1 - prevalence, prevalence])
    joint = np.einsum("d,da,db,dc->abcd", prior, *(FEATURES[name] for name in "abc"))
    tilt = 1 + 0.3 * np.subtract.outer(np.arange(4) / 3 - 0.5, np.arange(3) / 2 - 0.5)[:, :, None, None]
    return joint * tilt / (joint * tilt).sum()


def model_of(prevalence: float) -> mq.learn.NaiveBayes:
    """Return naive Bayes, learned from the rounded expected records of a hundred thousand people."""
    counts = np.rint(100_000 * population(prevalence)).astype(int)
    codes = np.repeat(np.indices(counts.shape).reshape(4, -1), counts.ravel(), axis=1)
    policy = mq.Policy.build(SCHEMA, {})
    source = Records(dict(zip(SCHEMA, codes.astype(np.uint8), strict=True)), policy)
    return mq.learn.naive_bayes(source, "ill", alpha=0.5)


def policy_of(disguised: tuple[str, ...]) -> mq.Policy:
    """Return the policy that keeps each category of the disguised variables with 90%."""
    channels = {name: mq.channels.symmetric(len(SCHEMA[name]), 1 - KEPT) for name in disguised}
    return mq.Policy.build(SCHEMA, channels)


def reports_of(joint: np.ndarray, disguised: tuple[str, ...]) -> np.ndarray:
    """Return the distribution of the reports."""
    for axis, name in enumerate(SCHEMA):
        if name in disguised:
            matrix = policy_of(disguised).group(name).matrix_channel.matrix
            joint = np.moveaxis(np.tensordot(joint, matrix, axes=(axis, 0)), -1, axis)
    return joint


class Truth:
    """The measures of the model in the population."""

    def __init__(self, model: mq.learn.NaiveBayes, joint: np.ndarray) -> None:
        cells = np.indices(joint.shape[:-1]).reshape(3, -1)
        rows = {name: np.array(SCHEMA[name])[cells[i]] for i, name in enumerate("abc")}
        self.score = model.predict_proba(rows)[:, 1]
        self.says = (model.predict(rows) == "yes").astype(float)
        self.no, self.yes = joint.reshape(-1, 2).T

    def measures(self) -> dict[str, float]:
        """Return the measures of the predicted class."""
        yes, no, says = self.yes, self.no, self.says
        right = float(yes @ says + no @ (1 - says))
        sensitivity, specificity = yes @ says / yes.sum(), no @ (1 - says) / no.sum()
        order = np.sign(np.subtract.outer(self.score, self.score).round(12))
        return {
            "prevalence": yes.sum(),
            "accuracy": right,
            "accuracy above trivial": right - no.sum(),
            "balanced accuracy": (sensitivity + specificity) / 2,
            "sensitivity": sensitivity,
            "specificity": specificity,
            "positive predictive value": yes @ says / ((yes + no) @ says),
            "negative predictive value": no @ (1 - says) / ((yes + no) @ (1 - says)),
            "AUC": float(yes @ (order + 1) @ no) / 2 / (yes.sum() * no.sum()),
            "observed minus predicted": yes.sum() - (yes + no) @ self.score,
        }

    def confusion(self) -> np.ndarray:
        """Return the shares, rows true, columns predicted."""
        return np.array([[self.no @ (1 - self.says), self.no @ self.says],
                         [self.yes @ (1 - self.says), self.yes @ self.says]])  # fmt: skip

    def at_threshold(self, threshold: float) -> dict[str, float]:
        """Return the measures if all with at least this probability are selected."""
        flag = (self.score >= threshold).astype(float)
        yes, no = self.yes, self.no
        return {
            "selected": (yes + no) @ flag,
            "sensitivity": yes @ flag / yes.sum(),
            "specificity": no @ (1 - flag) / no.sum(),
            "positive predictive value": yes @ flag / ((yes + no) @ flag),
            "negative predictive value": no @ (1 - flag) / ((yes + no) @ (1 - flag)),
        }

    def share_between(self, low: float, high: float) -> float:
        """Return the share of the class among those with a probability in a range."""
        inside = (self.score >= low - 1e-9) & (self.score <= high + 1e-9)
        return float(self.yes[inside].sum() / (self.yes + self.no)[inside].sum())


class Runs:
    """The reports of many runs, one row each, and sums of the estimated truths with their intervals."""

    def __init__(self, reports: np.ndarray, policy: mq.Policy) -> None:
        self.reports, self.n = reports.astype(float), float(PEOPLE)
        self.inverses = [np.linalg.inv(policy.group(name).matrix_channel.matrix) for name in SCHEMA]
        self.truths = self.gains(np.eye(reports.shape[1]))  # of each cell of truths, one row each
        self.counts = self.reports @ self.truths.T

    def gains(self, weights: np.ndarray) -> np.ndarray:
        """Return what each report adds to a weighted sum of the truths; weights have one row per sum."""
        shape = tuple(len(labels) for labels in SCHEMA.values())
        result = weights.reshape(-1, *shape)
        for axis, inverse in enumerate(self.inverses, start=1):
            result = np.moveaxis(np.tensordot(result, inverse, axes=(axis, 1)), -1, axis)
        return result.reshape(len(weights), -1)

    def sums(self, gains: np.ndarray, power: int) -> np.ndarray:
        """Return Σ gainᵏ over the reports of each run."""
        return np.einsum("rm,rm->r", self.reports, np.broadcast_to(gains, self.reports.shape) ** power)

    def ratio(self, part: np.ndarray, whole: np.ndarray, value: np.ndarray | None = None) -> Intervals:
        """Return ratios with their intervals, as `Outcomes.ratio_figure` does."""
        a, w = self.gains(np.atleast_2d(part)), self.gains(np.atleast_2d(whole))
        total = self.sums(w, 1)
        share = self.sums(a, 1) / total if value is None else value
        b = a - share[:, None] * w
        whole_variance = self.sums(w, 2) - total**2 / self.n
        variance = np.maximum(self.sums(b, 2) - self.sums(b, 1) ** 2 / self.n, 0.0)
        product = np.einsum("rm,rm->r", self.reports, b * w) - self.sums(b, 1) * total / self.n
        errors = RatioErrors(
            (np.sqrt(variance) / total)[:, None], (product + share * whole_variance)[:, None], whole_variance
        )
        spread = ShareSpread(
            self.sums(b, 3)[:, None],
            self.sums(b, 4)[:, None],
            np.einsum("rm,rm->r", self.reports, b**2 * w)[:, None],
            np.broadcast_to(b.max(axis=1), total.shape)[:, None],
            np.broadcast_to(b.min(axis=1), total.shape)[:, None],
        )
        z = two_sided_quantile(LEVEL)
        limits = share_interval(share[:, None], errors, total, z, n=self.n, spread=spread)
        inside = keep_inside(share[:, None], limits.lower, limits.upper)
        return Intervals(share, inside.lower[:, 0], inside.upper[:, 0])

    def sum(self, value: np.ndarray, slopes: np.ndarray, *, inside: bool = True) -> Intervals:
        """Return measures with the intervals that follow from their slopes, as `Outcomes.sum_figure` does."""
        g = self.gains(slopes)
        centre = np.einsum("rm,rm->r", self.reports, g)
        ends = [(g.min(axis=1), g.max(axis=1))]
        powers = [self.sums(g, k) for k in (2, 3, 4)]
        spread = ReportSpread.of(centre, powers, ends, given=np.zeros_like(centre), n=self.n)
        gaps = score_interval(np.zeros_like(centre), spread, two_sided_quantile(LEVEL))
        lower, upper = value + gaps.lower, value + gaps.upper
        return Intervals(value, *(keep_inside(value, lower, upper) if inside else (lower, upper)))

    def mean(self, weights: np.ndarray, *, inside: bool = True) -> Intervals:
        """Return the mean of a weight over all records."""
        value = self.counts @ weights / self.n
        return self.sum(value, (weights[None, :] - value[:, None]) / self.n, inside=inside)


class Intervals(NamedTuple):
    """Estimates with their intervals, one per run."""

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


Figures = dict[str, tuple[Intervals, np.ndarray | float]]  # intervals and the true value, by name


def all_intervals(truth: Truth, runs: Runs) -> Figures:
    """Return every figure of `mq.evaluate.performance` in every run, and its true value."""
    own, says = np.tile([0.0, 1.0], len(truth.score)), np.repeat(truth.says, 2)
    rest, score = 1 - own, np.repeat(truth.score, 2)
    right, expected = says * own + (1 - says) * rest, truth.measures()
    yes, no = runs.counts @ own, runs.counts @ rest
    recall = runs.counts @ (says * own) / yes, runs.counts @ ((1 - says) * rest) / no
    slopes = own * (says - recall[0][:, None]) / yes[:, None] / 2
    slopes = slopes + rest * (1 - says - recall[1][:, None]) / no[:, None] / 2
    order = np.sign(np.subtract.outer(score, score).round(12))
    below = runs.counts @ (rest[:, None] * (order.T + 1) / 2)  # records of "no" below each cell's score
    above = runs.counts @ (own[:, None] * (order + 1) / 2)  # records of "yes" above each cell's score
    area = np.einsum("rc,rc->r", runs.counts * own, below) / (yes * no)
    part = own * below / no[:, None] + rest * (above - (area * yes)[:, None]) / no[:, None]
    figures: Figures = {
        "prevalence": (runs.mean(own), expected["prevalence"]),
        "accuracy": (runs.mean(right), expected["accuracy"]),
        "accuracy above trivial": (runs.mean(right - rest, inside=False), expected["accuracy above trivial"]),
        "balanced accuracy": (runs.sum((recall[0] + recall[1]) / 2, slopes), expected["balanced accuracy"]),
        "AUC": (runs.ratio(part, own, area), expected["AUC"]),
        "observed minus predicted": (
            runs.mean(own - score, inside=False),
            expected["observed minus predicted"],
        ),
    }
    for i, true in enumerate((rest, own)):
        for j, predicted in enumerate((1 - says, says)):
            name = f"share: true {SCHEMA['ill'][i]}, predicted {SCHEMA['ill'][j]}"
            figures[name] = runs.mean(true * predicted), truth.confusion()[i, j]
    for flag, wanted, start in [
        (says, expected, ""),
        *((1.0 * (score >= t), truth.at_threshold(t), f"threshold {t:g}: ") for t in THRESHOLDS),
    ]:
        parts = {
            "selected": (flag, np.ones_like(flag)),
            "sensitivity": (flag * own, own),
            "specificity": ((1 - flag) * rest, rest),
            "positive predictive value": (flag * own, flag),
            "negative predictive value": ((1 - flag) * rest, 1 - flag),
        }
        for name, (above_line, below_line) in parts.items():
            if name in wanted:
                figures[start + name] = runs.ratio(above_line, below_line), wanted[name]
    return figures | _calibration(truth, runs, own)


def _calibration(
    truth: Truth, runs: Runs, own: np.ndarray
) -> dict[str, tuple[Intervals, np.ndarray | float]]:
    """Return the calibration: bins with about equal estimated numbers of records, in each run its own."""
    levels, place = np.unique(np.round(truth.score, 12), return_inverse=True)
    by_level = np.zeros((len(runs.counts), len(levels)))
    np.add.at(by_level.T, np.repeat(place, 2), runs.counts.T)
    bins = np.stack([equal_bins(row, BINS) for row in by_level])
    figures: Figures = {}
    shares_of = truth.yes, truth.yes + truth.no
    for label in range(BINS):
        inside = np.repeat((bins == label)[:, place], 2, axis=1).astype(float)
        cells = inside[:, ::2]
        figures[f"calibration: bin {label + 1}"] = (
            runs.ratio(inside * own, inside),
            (cells @ shares_of[0]) / (cells @ shares_of[1]),
        )
    return figures


class Coverage(NamedTuple):
    """Share of runs in which an interval contains the truth, and in which it ends at 0 or 1."""

    holds: float
    at_bound: float


def study(prevalence: float, disguised: tuple[str, ...], runs: int, seed: int) -> dict[str, Coverage]:
    """Return the coverage of each interval."""
    joint, model = population(prevalence), model_of(prevalence)
    law, draw = reports_of(joint, disguised), np.random.default_rng(seed)
    drawn = draw.multinomial(PEOPLE, law.ravel(), size=runs)
    figures = all_intervals(Truth(model, joint), Runs(drawn, policy_of(disguised)))
    return {
        name: Coverage(
            float(np.mean((figure.lower <= wanted) & (wanted <= figure.upper))),
            float(np.mean((figure.lower == 0) | (figure.upper == 1))),
        )
        for name, (figure, wanted) in figures.items()
    }


def outside_band(coverage: Mapping[str, Coverage]) -> dict[str, Coverage]:
    """Return the intervals that hold too rarely or too often.

    An interval that ends at 0 or 1 may hold up to the one-sided 0.975, with four binomial errors.
    """
    most = 1 - (1 - LEVEL) / 2 + 4 * np.sqrt(0.975 * 0.025 / RUNS)
    return {
        name: one
        for name, one in coverage.items()
        if not BAND[0] <= one.holds <= (most if one.at_bound > SOME else BAND[1])
    }


def check_against_product(prevalence: float, disguised: tuple[str, ...], runs: int, seed: int) -> float:
    """Return the largest difference of any estimate or limit from `mq.evaluate.performance`."""
    joint, model, policy = population(prevalence), model_of(prevalence), policy_of(disguised)
    law, draw = reports_of(joint, disguised), np.random.default_rng(seed)
    drawn = draw.multinomial(PEOPLE, law.ravel(), size=runs)
    figures = all_intervals(Truth(model, joint), Runs(drawn, policy))
    cells = np.indices(law.shape).reshape(4, -1).astype(np.uint8)
    largest = 0.0
    for run, counts in enumerate(drawn):
        codes = dict(zip(SCHEMA, np.repeat(cells, counts, axis=1), strict=True))
        result = mq.evaluate.performance(
            model, Records(codes, policy), positive="yes", thresholds=THRESHOLDS, bins=BINS, level=LEVEL
        )
        rows = [(name, i, result) for i, name in enumerate(result.measures)]
        curve, bins, matrix = result.curve, result.calibration, result.confusion
        rows += [
            (f"threshold {curve.thresholds[i]:g}: {name}", i, curve) for i, name in enumerate(curve.measures)
        ]
        compared = [(name, part.values[i], part.lower[i], part.upper[i]) for name, i, part in rows]
        compared += [
            (f"calibration: bin {i + 1}", bins.observed[i], bins.lower[i], bins.upper[i])
            for i in range(len(bins.observed))
        ]
        compared += [
            (
                f"share: true {a}, predicted {b}",
                *(part[i, j] for part in (matrix.shares, matrix.lower, matrix.upper)),
            )
            for i, a in enumerate(SCHEMA["ill"])
            for j, b in enumerate(SCHEMA["ill"])
        ]
        for name, *numbers in compared:
            figure, _ = figures[name]
            gaps = [abs(number - part[run]) for number, part in zip(numbers, figure, strict=True)]
            largest = max([largest, *gaps])
    return largest


def main(runs: int = RUNS) -> None:
    """Run all settings; print each coverage outside the band, and keep the whole study."""
    settings = {"the class is disguised": ("ill",), "class and features are disguised": tuple(SCHEMA)}
    kept = {"runs": runs, "people": PEOPLE, "level": LEVEL, "band": BAND, "settings": []}
    for number, prevalence in enumerate(PREVALENCES):
        for title, disguised in settings.items():
            seed = 38_000 + 10 * number + len(disguised)
            coverage = study(prevalence, disguised, runs, seed)
            holds = [one.holds for one in coverage.values()]
            above = sum(value > BAND[1] for value in holds)
            print(
                f"{prevalence:.0%}, {title}: {len(coverage)} intervals hold in {min(holds):.3f} to "
                f"{max(holds):.3f}, {above} above {BAND[1]} at a bound; outside: {outside_band(coverage)}"
            )
            setting = {"prevalence": prevalence, "disguised": disguised, "setting": title, "seed": seed}
            kept["settings"].append(setting | {"coverage": coverage})
    if runs == RUNS:
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
