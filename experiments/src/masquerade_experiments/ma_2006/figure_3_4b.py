"""Ma (2006), Fig. 3.4b: accuracy of a reconstructed density against disguise and sample size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import masquerade as mq
from masquerade.report import canvas
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting
from masquerade_experiments.ma_2006 import two_triangles
from masquerade_experiments.ma_2006.given import number, whole
from masquerade_experiments.ma_2006.trade_off import curves, falls_with_size, traded

ID = "ma-2006-fig-3.4b"
KEPT = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SIZES = (25_000, 50_000, 100_000, 200_000, 400_000)
LEAST_SHARE = 0.015  # least share of the records in each group: 1,500 of 100,000


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return the probabilities to keep a value and the sample sizes."""
    kept, sizes = ((0.1, 0.3, 0.6, 1.0), (SIZES[0], SIZES[3])) if quick else (KEPT, SIZES)
    return [{"kept": share, "n": n} for share in kept for n in sizes]


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Return the distance of the reconstructed density from the true one."""
    generator = np.random.default_rng(seed)
    n = whole(setting, "n")
    values = two_triangles.sample(n, generator)
    bins = mq.anonymity.mgas(values, round(LEAST_SHARE * n), two_triangles.LEAST_WIDTH)
    policy = two_triangles.policy(bins, round(1 - number(setting, "kept"), 6))
    source = mq.tally(mq.simulate(pd.DataFrame({"x": values}), policy, seed=generator), policy)
    found = mq.learn.reconstructed_density(source, "x", nonnegative="mle")
    return [{"distance": two_triangles.distance_to_truth(found.edges, found.values), "groups": len(bins)}]


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Check that distances fall with the sample size, and that larger samples make up for more disguise."""
    return [*falls_with_size(frame, ID), traded(frame, often=(0.3, SIZES[3]), rarely=(0.6, SIZES[0]))]


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the distance against the probability to keep a value, with one curve per sample size."""
    figure = canvas(6.6, 4.0)
    axes = figure.subplots()
    curves(axes, frame)
    axes.set(ylabel="∫ |true − reconstructed density|", ylim=(0, None))
    axes.set_title("Accuracy of a reconstructed density", loc="left")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", title="records")
    return figure


EXPERIMENT = Experiment(
    id=ID,
    paper="Ma (2006)",
    item="Figure 3.4b",
    title="Accuracy against privacy: a density",
    shows=(
        "The density of two triangles is grouped by MGAS, disguised and reconstructed by maximum likelihood "
        "from 25,000 to 400,000 records, each kept in its group with probability 0.1 to 1. More records make "
        "up for more disguise; what remains without disguise is the coarseness of the groups."
    ),
    settings=settings,
    measure=measure,
    compare=compare,
    draw=draw,
    quick_runs=3,
    declared=(
        *two_triangles.DECLARED,
        (
            "What MGAS requires at sample sizes other than 100,000 is not printed: 1.5% of the records in "
            "every group, and a width of 0.25. With 1,500 records for all sizes the smallest sample would "
            "make about ten groups, and a value kept with probability 0.1 among ten groups tells nothing."
        ),
        "Which sample sizes between 25,000 and 400,000 were used is lost: doublings.",
    ),
    corrected=("The density estimate in the text lacks the division by the width of the group.",),
)
