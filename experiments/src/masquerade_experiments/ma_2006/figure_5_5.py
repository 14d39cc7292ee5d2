"""Fig. 5.5: p*, the least randomization at which a parameter's error exceeds c, against the sample size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import pi
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import masquerade as mq
from masquerade.report import ESTIMATE, MUTED, SERIES, canvas, open_frame
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting
from masquerade_experiments.ma_2006.networks import DECLARED, network
from masquerade_experiments.ma_sivakumar_2005.distance import parameter_covariance
from masquerade_experiments.ma_sivakumar_2005.runs import Measured, mean_of, number, over_runs, with_errors
from masquerade_experiments.ma_sivakumar_2005.seven_nodes import uniform_policy
from masquerade_experiments.ma_sivakumar_2005.two_models import learnt, with_miner, without_miner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

NODE = "D"
FAMILY = ("B", "C", "D")
STRUCTURE = {"B": (), "C": (), "D": ("B", "C")}
OWN = (("D",),)
SIZES = (2000, 5000, 10_000, 20_000, 50_000, 100_000)
QUICK_SIZES = (5000, 20_000)
LARGEST_P = 0.44
STEP, QUICK_STEP = 0.02, 0.04
THRESHOLDS = (0.02, 0.04)
MODELS = (
    ("error", "with a miner (Model II)", ESTIMATE),
    ("without_miner", "without one (Model I)", SERIES[1]),
)


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return one setting per number of records, each with the step between levels of p."""
    step = QUICK_STEP if quick else STEP
    return [{"n": n, "step": step} for n in (QUICK_SIZES if quick else SIZES)]


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Return, at every level of p, the mean absolute error of D's parameters in one data set.

    The error is relative to the parameters of the same records before disguise.
    """
    n, step = int(number(setting, "n")), number(setting, "step")
    drawing, disguising = np.random.default_rng(seed).spawn(2)
    clear = network().sample(n, drawing)[list(FAMILY)]
    rows: list[Row] = []
    reference = learnt(mq.tally(clear, schema=uniform_policy(FAMILY, 0.0)), STRUCTURE)[NODE].probabilities
    for p in levels(step):
        policy = uniform_policy(FAMILY, p)
        disguised = mq.simulate(clear, policy, disguising)
        miner = with_miner(disguised, policy, STRUCTURE)[NODE].probabilities
        parties = without_miner(clear, disguised, policy, STRUCTURE, OWN)[NODE].probabilities
        rows.append(
            {
                "p": p,
                "error": float(np.abs(miner - reference).mean()),
                "without_miner": float(np.abs(parties - reference).mean()),
            }
        )
    return rows


def levels(step: float) -> list[float]:
    """Return the levels of p."""
    return [round(step * k, 4) for k in range(1, round(LARGEST_P / step) + 1)]


def crossing(at: Sequence[float], errors: Floats, threshold: float) -> float:
    """Return the least p at which the error exceeds the threshold, by linear interpolation between levels.

    The error at p = 0 is 0. Return NaN if the error at the last level is below the threshold.
    """
    above = np.flatnonzero(errors > threshold)
    if not above.size:
        return float("nan")
    i = int(above[0])
    left, low = (at[i - 1], float(errors[i - 1])) if i else (0.0, 0.0)
    return left + (at[i] - left) * (threshold - low) / (float(errors[i]) - low)


def expected(p: float, n: int) -> Measured:
    """Return mean and standard deviation of the mean absolute error with a miner, by Theorem 2.

    Formula: for normal errors with deviations s and correlations r, E|x| = s√(2/π) and Cov(|x|, |y|) =
    (2/π)·s_x·s_y·(r·asin r + √(1 − r²) − 1).
    """
    channel = mq.channels.binary(str(p)).matrix
    counts = n * network().query(FAMILY).probabilities
    covariance = parameter_covariance(counts, [channel] * len(FAMILY))[::2, ::2]
    spread = np.sqrt(np.diag(covariance))
    scale = np.outer(spread, spread)
    r = np.clip(covariance / scale, -1.0, 1.0)
    between = 2 / pi * scale * (r * np.arcsin(r) + np.sqrt(1 - r**2) - 1)
    return Measured(float(spread.mean() * np.sqrt(2 / pi)), float(np.sqrt(between.mean())))


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Compare p* with Theorem 2, between sizes, and between the two models."""
    return [*with_errors([*by_theory(frame), *by_the_text(frame)]), *means_of_single_runs(frame)]


def by_theory(frame: pd.DataFrame) -> Iterator[Comparison]:
    """Compare p* with a miner with the p* of the expected errors at the same levels of p.

    An error that stays below the threshold where Theorem 2 expects a larger one differs.
    """
    for n in sorted(set(frame["n"])):
        rows = frame[frame["n"] == n]
        at = sorted(set(rows["p"]))
        theory = [expected(p, n) for p in at]
        curve = np.array([point.value for point in theory])
        for c in THRESHOLDS:
            there = crossing(at, curve, c)
            found = p_star(rows, "error", c)
            if np.isnan(there):
                continue
            error = float(np.interp(there, at, [point.stderr for point in theory]))
            slope = float(np.interp(there, at, np.gradient(curve, at)))
            yield Comparison(
                f"p* for c = {c:.0%} with {n:,} records, by Theorem 2",
                there,
                found,
                error / slope / float(np.sqrt(rows["run"].nunique())),
                kind="printed formula",
            )


def by_the_text(frame: pd.DataFrame) -> Iterator[Comparison]:
    """Compare p* for the largest and the smallest number of records, and p* of the two models."""
    few, many = int(min(frame["n"])), int(max(frame["n"]))
    for c in THRESHOLDS:
        growth = gap(frame, c, (many, "error"), (few, "error"))
        yield Comparison(
            f"p* for c = {c:.0%}: with {many:,} records, less that with {few:,}",
            0.0,
            growth.value,
            growth.stderr,
            rule="above",
            kind="claim as read",
            read_as="“p can be closer to 0.5 if more samples are available”, read as: a larger p*.",
        )
        parties = gap(frame, c, (few, "without_miner"), (few, "error"))
        yield Comparison(
            f"p* for c = {c:.0%} with {few:,} records: without a miner, less that with one",
            0.0,
            parties.value,
            parties.stderr,
            rule="above",
            kind="claim as read",
            read_as="“Always better” without a miner (§5.6.1), read as: a larger p*.",
        )


def means_of_single_runs(frame: pd.DataFrame) -> Iterator[Comparison]:
    """Show the other reading of “obtained by averaging over ten runs”: the mean of the p* of single runs."""
    n = int(max(frame["n"]))
    rows = frame[frame["n"] == n]
    for c in THRESHOLDS:
        each = mean_of([p_star(own, "error", c) for _, own in rows.groupby("run")])
        yield Comparison(
            f"p* for c = {c:.0%} with {n:,} records, mean of the p* of single runs (not judged)",
            None,
            each.value,
            each.stderr,
        )


def gap(frame: pd.DataFrame, threshold: float, *pair: tuple[int, str]) -> Measured:
    """Return the difference of two p*, each given by a number of records and a column.

    An error that stays below the threshold counts as the largest p that is tried.
    """

    def statistic(rows: pd.DataFrame) -> float:
        found = [p_star(rows[rows["n"] == n], column, threshold) for n, column in pair]
        first, second = (LARGEST_P if np.isnan(p) else p for p in found)
        return first - second

    return over_runs(frame, statistic)


def p_star(rows: pd.DataFrame, column: str, threshold: float) -> float:
    """Return p* of one size, from the errors averaged over the runs."""
    means = rows.groupby("p")[column].mean()
    return crossing([float(p) for p in sorted(set(rows["p"]))], means.to_numpy(), threshold)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return p* for every size and threshold, with a miner, without one, and by Theorem 2."""
    rows = []
    for n in sorted(set(frame["n"])):
        at = sorted(set(frame.loc[frame["n"] == n, "p"]))
        curve = np.array([expected(p, n).value for p in at])
        for c in THRESHOLDS:
            found = {label: p_star(frame[frame["n"] == n], column, c) for column, label, _ in MODELS}
            rows.append({"records": n, "c": f"{c:.0%}", **found, "by Theorem 2": crossing(at, curve, c)})
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw p* against the number of records, with one panel per threshold."""
    figure = canvas(9.0, 3.8)
    panels = figure.subplots(1, 2, sharey=True)
    sizes = sorted(set(frame["n"]))
    at = levels(STEP)
    for axes, c in zip(panels, THRESHOLDS, strict=True):
        for column, label, colour in MODELS:
            found = [p_star(frame[frame["n"] == n], column, c) for n in sizes]
            axes.plot(sizes, found, color=colour, marker="o", markersize=4, label=label)
        curves = [np.array([expected(p, n).value for p in at]) for n in sizes]
        theory = [crossing(at, curve, c) for curve in curves]
        axes.plot(sizes, theory, ":", color=MUTED, label="with a miner, by Theorem 2")
        axes.set_xscale("log")
        axes.set_xlabel("records")
        axes.set_title(f"error of {c:.0%}", fontsize=10)
        open_frame(axes)
        axes.tick_params(which="minor", length=0)
    panels[0].set_ylabel("p*")
    figure.suptitle("Least randomization at which the parameters of node D are off by more", fontsize=11)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


SHOWS = (
    "The more records, the more randomization a given accuracy allows: p*, the least p at which the error of "
    "node D's parameters exceeds 2% or 4%, grows with the sample size, as Theorem 2 predicts. Without a "
    "miner, where D itself is not disguised, it is larger still."
)
READING = (
    "The text leaves open which parameter's error is meant and what is averaged: we take the absolute error "
    "of D's four parameters against those of the clear records, its mean over them and over ten runs, and p* "
    "on the line between neighbouring levels of p (steps of 0.02; 0.04 in the quick version). The mean of "
    "the p* of single runs is shown beside it."
)
CHOSEN = "The numbers of records are lost with the figure: we take 2,000 to 100,000."

EXPERIMENT = Experiment(
    id="ma-2006-fig-5.5",
    paper="Ma (2006)",
    item="Figure 5.5",
    title="How much randomization a required accuracy allows",
    shows=SHOWS,
    settings=settings,
    measure=measure,
    compare=compare,
    draw=draw,
    printed_runs=10,
    quick_runs=5,
    declared=(DECLARED, READING, CHOSEN),
    table=table,
)
