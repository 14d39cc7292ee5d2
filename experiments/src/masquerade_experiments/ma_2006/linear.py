"""Common code of the classification experiments of Ma (2006), chapter 6: three learning methods, one test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import masquerade as mq
from masquerade.report import ESTIMATE, MUTED, NAIVE, canvas, open_frame
from masquerade_experiments.experiment import Comparison, Row
from masquerade_experiments.ma_2006.averages import Mean, calibration, mean_of, over_runs, pooled_calibration

WAYS = {
    "ours": ("estimated from disguised records", ESTIMATE, "o"),
    "direct": ("disguised records taken as they are", NAIVE, "s"),
    "clear": ("learnt from clear records", MUTED, "D"),
}


def accuracies(
    clear: pd.DataFrame,
    policy: mq.Policy,
    target: str,
    generator: np.random.Generator,
    scores: Mapping[str, Sequence[float]] | None = None,
) -> Row:
    """Disguise clear records, learn in three ways, and test each classifier on the clear records.

    `ours` minimises the expected cost (the pocket algorithm over the most likely counts), `direct` treats
    reports as truths, and `clear` learns from the clear records.
    """
    disguised = mq.simulate(clear, policy, seed=generator)
    steps_seed = int(generator.integers(2**31))
    truth = mq.tally(clear, schema=policy)
    sources: dict[str, mq.Tally] = {
        "ours": mq.tally(disguised, policy),
        "direct": mq.tally(pd.DataFrame(dict(disguised)), schema=policy.schema),
        "clear": truth,
    }
    found: dict[str, float] = {}
    for way, source in sources.items():
        model = mq.learn.linear_classifier(source, target, scores=scores, counts="mle", seed=steps_seed)
        found[way] = mq.evaluate.accuracy(model, truth).value
    (classes,) = truth.answer([mq.Query(by=(target,))])
    pair = mq.Query(by=(next(name for name in policy.schema if name != target), target))
    (estimated,), (counted,) = (source.answer([pair]) for source in (sources["ours"], truth))
    checked = calibration(estimated, counted.values)
    return {
        **found,
        "larger_class": float(classes.values.max() / classes.total),
        "error_ratio": checked.ratio,
        "error_ratio_stderr": checked.stderr,
    }


def as_claimed(frame: pd.DataFrame, p: float) -> Comparison:
    """Compare the errors of the counts of a feature and the class with the variances of Theorem 2."""
    checked = pooled_calibration(frame[frame["p"] == p])
    return Comparison(
        f"Squared error of the counts of the first feature and the class over Theorem 2's variance, p = {p}",
        1.0,
        checked.ratio,
        checked.stderr,
        kind="printed formula",
    )


def lost(frame: pd.DataFrame, p: float, against: str = "clear") -> Mean:
    """Return the accuracy of another method minus ours, run by run."""
    rows = frame[frame["p"] == p]
    return mean_of(rows[against] - rows["ours"])


def above_no_learning(frame: pd.DataFrame, p: float) -> Comparison:
    """Compare our accuracy with always predicting the larger class, run by run."""
    rows = frame[frame["p"] == p]
    gain = mean_of(rows["ours"] - rows["larger_class"])
    return Comparison(
        f"Accuracy at p = {p} minus that of always naming the larger class",
        0.0,
        gain.value,
        gain.stderr,
        rule="above",
        kind="claim as read",
        read_as="“Reasonable”, read as: better than always naming the larger class.",
    )


def beside_direct(frame: pd.DataFrame, p: float) -> Comparison:
    """Compare our accuracy, run by run, with the accuracy if reports are treated as truths."""
    loss = lost(frame, p, "direct")
    return Comparison(
        f"Accuracy at p = {p} minus that of learning directly from the reports",
        0.0,
        -loss.value,
        loss.stderr,
        rule="above",
        kind="claim as read",
        read_as="Both are drawn “for the purpose of comparison”, read as: the proposed method is better.",
    )


def draw_accuracies(frame: pd.DataFrame, title: str) -> Figure:
    """Draw mean accuracies against p with bars of one standard deviation of a run, as the paper does."""
    figure = canvas(6.4, 4.0)
    axes = figure.subplots()
    for way, (label, colour, marker) in WAYS.items():
        means = over_runs(frame, ("p",), way)
        axes.errorbar(
            means["p"],
            means["mean"],
            means["spread"],
            color=colour,
            lw=1.6,
            ls="--" if way == "clear" else "-",
            marker=marker,
            ms=4.5,
            capsize=3,
            label=label,
        )
    axes.axhline(frame["larger_class"].mean(), color=MUTED, lw=0.8, ls=":", label="always the larger class")
    axes.set(xlabel="randomization parameter p", ylabel="accuracy on clear records")
    axes.set_title(title, loc="left")
    open_frame(axes)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return mean accuracies and the standard deviation of a run, with one row per p."""
    columns: dict[str, pd.Series[float]] = {}
    for way in WAYS:
        means = over_runs(frame, ("p",), way)
        columns |= {"p": means["p"], way: means["mean"].round(4), f"{way} ± sd": means["spread"].round(4)}
    return pd.DataFrame(columns)
