"""Ma (2006), Fig. 3.1: average remaining uncertainty, against the probability of a change."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf, log2

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import masquerade as mq
from masquerade.report import MUTED, NAIVE, SERIES, canvas, open_frame
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting
from masquerade_experiments.ma_2006.given import number

GROUPS = ((0, 1, 2), (3, 4, 5))
CURVES = {"binary": (2, 1), "ungrouped": (6, 1), "grouped": (6, 2)}  # categories, and groups of equal size


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return the probabilities of a change."""
    steps = 20 if quick else 50
    return [{"p": round(i / steps, 4)} for i in range(steps + 1)]


def measure(setting: Setting, seed: int) -> Sequence[Row]:  # noqa: ARG001  (nothing is random)
    """Return entropies and γ of the three channels; nothing is random, all priors are uniform."""
    p = number(setting, "p")
    two, six = mq.channels.binary(p), mq.channels.symmetric(6, p)
    in_groups = mq.channels.within_groups(GROUPS, [mq.channels.symmetric(3, p)] * 2)
    return [
        {
            "binary": two.entropy(),
            "ungrouped": six.entropy(),
            "grouped": in_groups.entropy(),
            "gamma_ungrouped": finite(six.gamma),
            "gamma_grouped": finite(in_groups.gamma),
            "gamma_within_group": finite(in_groups.gamma_within),
            "k_ungrouped": six.k_anonymity().k,
            "k_grouped": in_groups.k_anonymity().k,
        }
    ]


def finite(gamma: Fraction | float) -> float | None:
    """Return γ as a number, or None if it is infinite."""
    return None if gamma == inf else float(gamma)


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Compare every point of the curves with the printed definition, and γ with the formulas in the text."""
    between = frame[(frame["p"] > 0) & (frame["p"] < 1)]
    return [
        *(
            Comparison(
                f"Conditional entropy ({curve}): largest distance from the definition in §3.1.1, all p, bits",
                0.0,
                farthest(frame[curve], [defined_entropy(*sizes, p) for p in frame["p"]]),
                kind="printed formula",
            )
            for curve, sizes in CURVES.items()
        ),
        Comparison(
            "Grouped minus ungrouped entropy, largest over p above 0, bits",
            0.0,
            float((frame["grouped"] - frame["ungrouped"])[frame["p"] > 0].max()),
            rule="below",
            kind="claim as read",
            read_as="“Less privacy is preserved on average” with groups, read as: less at every p above 0.",
        ),
        gamma_comparison(frame, "gamma_ungrouped", "γ of six categories", 6),
        gamma_comparison(frame, "gamma_within_group", "γ within a group of three", 3),
        Comparison(
            "Possible truths of a report, grouped over ungrouped: largest distance from 3/6, 0 < p < 1",
            0.0,
            farthest(between["k_grouped"] / between["k_ungrouped"], 3 / 6),
            kind="printed formula",
        ),
    ]


def farthest(ours: pd.Series, expected: float | Sequence[float]) -> float:
    """Return the largest distance of our values from the expected values."""
    return float(np.abs(ours.to_numpy(dtype=float) - np.asarray(expected)).max())


def defined_entropy(categories: int, groups: int, p: float) -> float:
    """Return H(X | report) under a uniform prior by the printed sum, from a matrix written down here."""
    size = categories // groups
    block = np.full((size, size), p / (size - 1))
    np.fill_diagonal(block, 1 - p)
    joint = np.kron(np.eye(groups), block) / categories
    posterior = joint / joint.sum(axis=0)
    there = joint > 0
    return float(-(joint[there] * np.log2(posterior[there])).sum())


def gamma_comparison(frame: pd.DataFrame, column: str, what: str, categories: int) -> Comparison:
    """Compare γ with (K − 1)(1 − p)/p at every p at which the text states it, 1 − p ≥ p/(K − 1)."""
    stated = frame[(frame["p"] > 0) & (1 - frame["p"] >= frame["p"] / (categories - 1))]
    ratio = stated[column] * stated["p"] / ((categories - 1) * (1 - stated["p"]))
    return Comparison(
        f"{what} over {categories - 1}(1 − p)/p: largest distance from 1, p to {stated['p'].max()}",
        0.0,
        farthest(ratio, 1.0),
        kind="printed formula",
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the entropies: two categories on the left, six on the right."""
    figure = canvas(8.0, 3.4)
    left, right = figure.subplots(1, 2)
    left.plot(frame["p"], frame["binary"], color=SERIES[0], lw=1.8)
    left.set_title("Two categories", loc="left")
    right.plot(frame["p"], frame["ungrouped"], color=SERIES[0], lw=1.8, label="six categories")
    right.plot(frame["p"], frame["grouped"], color=NAIVE, lw=1.8, label="in two groups of three")
    right.axhline(log2(6), color=MUTED, lw=0.8, ls="--", label="nothing known: log₂ 6")
    right.set_title("Six categories, with and without groups", loc="left")
    right.legend(loc="lower right")
    for axes, top in ((left, 1.08), (right, 2.75)):
        axes.set(
            xlabel="probability of a change p", ylabel="H(X | report) in bits", xlim=(0, 1), ylim=(0, top)
        )
        open_frame(axes)
    return figure


EXPERIMENT = Experiment(
    id="ma-2006-fig-3.1",
    paper="Ma (2006)",
    item="Figure 3.1",
    title="What stays unknown on average",
    shows=(
        "The conditional entropy of a value given its report, under a uniform prior: for a binary variable, "
        "for six categories, and for six categories that change only within two groups of three. With groups "
        "less uncertainty remains at every p. This is computed exactly, nothing is drawn at random."
    ),
    settings=settings,
    measure=measure,
    compare=compare,
    draw=draw,
    is_random=False,
    declared=("The range of p in the figure is lost: 0 to 1 is drawn.",),
    corrected=(
        (
            "The text says that grouping has the smaller γ, 2(1 − p)/p instead of 5(1 − p)/p. That is γ "
            "within a group only: a report excludes the other group for certain, so γ of the variable is "
            "infinite."
        ),
    ),
)
