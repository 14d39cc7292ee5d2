"""Ma (2006), Fig. 3.1: average remaining uncertainty, against the probability of a change."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf, log2

import pandas as pd
from matplotlib.figure import Figure

import masquerade as mq
from masquerade.report import MUTED, NAIVE, SERIES, canvas, open_frame
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting
from masquerade_experiments.ma_2006.given import number

GROUPS = ((0, 1, 2), (3, 4, 5))
SHOWN = 0.3  # probability of a change at which γ is compared


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
    """Check the ends of the curves, their order, and γ by the formulas in the text."""
    even = frame[frame["p"] == 0.5]["binary"].iloc[0]
    shown = frame[frame["p"] == SHOWN].iloc[0]
    return [
        Comparison(
            "Conditional entropy of a binary variable at p = 0.5, bits",
            1.0,
            float(even),
            kind="printed formula",
        ),
        Comparison(
            "Conditional entropy without disguise, bits",
            0.0,
            float(frame["ungrouped"].iloc[0]),
            kind="printed formula",
        ),
        Comparison(
            "Largest conditional entropy of six categories, at p = 5/6, bits (by the nearest p here)",
            most_unknown(frame),
            float(frame["ungrouped"].max()),
            kind="printed formula",
        ),
        Comparison(
            "Grouped minus ungrouped entropy, largest over p above 0, bits",
            0.0,
            float((frame["grouped"] - frame["ungrouped"])[frame["p"] > 0].max()),
            rule="below",
            kind="claim as read",
            read_as="Grouping has the smaller entropy, read as: at every p above 0.",
        ),
        Comparison(
            f"γ of six categories at p = {SHOWN}, 5(1 − p)/p",
            5 * (1 - SHOWN) / SHOWN,
            float(shown["gamma_ungrouped"]),
            kind="printed formula",
        ),
        Comparison(
            f"γ within a group of three at p = {SHOWN}, 2(1 − p)/p",
            2 * (1 - SHOWN) / SHOWN,
            float(shown["gamma_within_group"]),
            kind="printed formula",
        ),
        Comparison(
            f"Possible truths of a report at p = {SHOWN}: grouped over ungrouped",
            3 / 6,
            float(shown["k_grouped"] / shown["k_ungrouped"]),
            kind="printed formula",
        ),
    ]


def most_unknown(frame: pd.DataFrame) -> float:
    """Return the largest entropy of six categories by its formula, −(1 − p)log₂(1 − p) − p·log₂(p/5)."""

    def entropy(p: float) -> float:
        return -sum(weight * log2(share) for weight, share in ((1 - p, 1 - p), (p, p / 5)) if weight > 0)

    return max(entropy(float(p)) for p in frame["p"])


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
        "less stays unknown at every p. This is computed exactly, nothing is drawn at random."
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
