"""Ma (2006), Fig. 3.2: how far a report can raise a belief, for several γ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import masquerade as mq
from masquerade.report import MUTED, SERIES, canvas, open_frame
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting
from masquerade_experiments.ma_2006.given import whole

GAMMAS = (2, 5, 9, 19, 49)
BELIEFS = tuple(i / 100 for i in range(1, 100))


def settings(quick: bool) -> Sequence[Setting]:  # noqa: ARG001, FBT001  (the contract of experiments)
    """Return the values of γ."""
    return [{"gamma": gamma} for gamma in GAMMAS]


def measure(setting: Setting, seed: int) -> Sequence[Row]:  # noqa: ARG001  (nothing is random)
    """Return the bound ρ2* for every prior belief ρ1, and the posterior after a report that attains γ."""
    channel = mq.channels.for_gamma(2, whole(setting, "gamma"))
    policy = mq.Policy.build({"x": ["yes", "no"]}, {"x": channel})
    (figures,) = mq.privacy(policy, beliefs=BELIEFS).variables
    before = np.array(BELIEFS)
    yes, no = channel.matrix[:, 0]  # probability of the report "yes" given each truth
    reached = before * yes / (before * yes + (1 - before) * no)
    return [
        {"belief": belief, "bound": bound, "reached": float(posterior)}
        for (belief, bound), posterior in zip(figures.breach, reached, strict=True)
    ]


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Check the text's equation for every pair, that the bound is attained, and the known pair of γ = 19."""
    odds = frame["bound"] * (1 - frame["belief"]) / (frame["belief"] * (1 - frame["bound"]))
    known = frame[(frame["gamma"] == 19) & (frame["belief"] == 0.05)]["bound"].iloc[0]
    return [
        Comparison(
            "ρ2*(1 − ρ1)/(ρ1(1 − ρ2*)) over γ, farthest from 1",
            1.0,
            float(farthest(odds / frame["gamma"])),
            kind="printed formula",
        ),
        Comparison(
            "Posterior of a binary report over ρ2*, farthest from 1",
            1.0,
            float(farthest(frame["reached"] / frame["bound"])),
            kind="printed formula",
        ),
        Comparison("ρ2* at γ = 19 and ρ1 = 0.05", 0.5, float(known), kind="printed formula"),
    ]


def farthest(ratios: pd.Series[float]) -> float:
    """Return the ratio that is farthest from 1."""
    return float(ratios.iloc[int((ratios - 1).abs().to_numpy().argmax())])


def draw(frame: pd.DataFrame) -> Figure:
    """Draw ρ2* against ρ1, with one curve per γ."""
    figure = canvas(5.6, 4.2)
    axes = figure.subplots()
    for colour, (gamma, rows) in zip(SERIES, reversed(list(frame.groupby("gamma"))), strict=True):
        axes.plot(rows["belief"], rows["bound"], color=colour, lw=1.8, label=f"γ = {gamma}")
    axes.plot([0, 1], [0, 1], color=MUTED, lw=0.8, ls="--", label="γ = 1: nothing learnt")
    axes.plot(0.05, 0.5, "o", ms=7, mfc="none", color=MUTED, label="5% → 50%, γ = 19")
    axes.set(xlabel="belief before the report, ρ1", ylabel="largest belief after it, ρ2*")
    axes.set(xlim=(0, 1), ylim=(0, 1.01))
    axes.set_title("How far one report can raise a belief", loc="left")
    open_frame(axes)
    axes.legend(loc="lower right")
    return figure


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return ρ2* for some prior beliefs, with one column per γ."""
    some = frame[frame["belief"].isin([0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9])]
    wide = some.pivot_table(index="belief", columns="gamma", values="bound").round(3)
    return wide.rename(columns=lambda gamma: f"γ = {gamma}").rename_axis(columns=None).reset_index()


EXPERIMENT = Experiment(
    id="ma-2006-fig-3.2",
    paper="Ma (2006)",
    item="Figure 3.2",
    title="How far a report can raise a belief",
    shows=(
        "Anyone who believes a property with probability ρ1 can believe it with at most ρ2* after seeing a "
        "report from a channel with amplification γ. The bound is attained by binary randomized response."
    ),
    settings=settings,
    measure=measure,
    compare=compare,
    draw=draw,
    is_random=False,
    declared=("The values of γ in the figure are lost: 2, 5, 9, 19 and 49 are drawn.",),
    corrected=(
        (
            "The text's downward breach lets the posterior of X ≠ k′ reach ρ1; it must reach 1 − ρ1. The "
            "curves do not depend on it."
        ),
    ),
    table=table,
)
