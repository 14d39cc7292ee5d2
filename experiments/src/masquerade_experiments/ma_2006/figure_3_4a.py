"""Ma (2006), Fig. 3.4a: accuracy of a joint distribution against disguise and sample size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import masquerade as mq
from masquerade.report import canvas
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting
from masquerade_experiments.ma_2006 import table_2_1
from masquerade_experiments.ma_2006.given import number, whole
from masquerade_experiments.ma_2006.trade_off import curves, distance, falls_with_size, traded

ID = "ma-2006-fig-3.4a"
KEPT = (0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)
OFTEN = 0.65  # probability to keep a value that we count as "privacy"
ACCURATE = 0.05  # distance in bits that we count as "accuracy"
SIZES = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return the probabilities to keep a value and the sample sizes."""
    kept, sizes = (KEPT[::2] + KEPT[-1:], SIZES[::5]) if quick else (KEPT, SIZES)
    return [{"kept": share, "n": n} for share in kept for n in sizes]


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Return the distance of the estimated distribution from the true one, in bits."""
    generator = np.random.default_rng(seed)
    clear = table_2_1.sample(whole(setting, "n"), generator)
    policy = table_2_1.policy(round(1 - number(setting, "kept"), 6))
    source = mq.tally(mq.simulate(clear, policy, seed=generator), policy)
    (table,) = source.answer([mq.Query(by=table_2_1.NAMES)])
    return [{"distance": relative_entropy(table.nonnegative("mle").values)}]


def relative_entropy(counts: np.ndarray) -> float:
    """Return KL(true, estimated) in bits; one extra record, spread over all cells, keeps it finite."""
    estimated = (counts + 1 / counts.size) / (counts.sum() + 1)
    true = table_2_1.PMF
    there = true > 0
    return float((true[there] * np.log2(true[there] / estimated[there])).sum())


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Check that distances fall with the sample size, and that larger samples make up for more disguise."""
    most_records = distance(frame, OFTEN, SIZES[-1])
    return [
        *falls_with_size(frame, ID),
        traded(frame, often=(OFTEN, SIZES[-1]), rarely=(0.95, SIZES[0])),
        Comparison(
            f"Distance from {SIZES[-1]:,} records, values kept with {OFTEN:g}, bits",
            ACCURATE,
            most_records.value,
            most_records.stderr,
            rule="below",
            kind="claim as read",
            read_as=f"“Both accuracy and privacy can be achieved”, read as: less than {ACCURATE} bits.",
        ),
    ]


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the distance against the probability to keep a value, with one curve per sample size."""
    figure = canvas(6.6, 4.0)
    axes = figure.subplots()
    curves(axes, frame)
    axes.set_yscale("log")
    axes.set(ylabel="KL(true, estimated) in bits")
    axes.set_title("Accuracy of 25 joint probabilities", loc="left")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", title="records")
    return figure


EXPERIMENT = Experiment(
    id=ID,
    paper="Ma (2006)",
    item="Figure 3.4a",
    title="Accuracy against privacy: a joint distribution",
    shows=(
        "The joint distribution of Table 2.1 is estimated by maximum likelihood from 1,000 to 32,000 "
        "disguised records whose values are each kept with probability 0.25 to 0.95. More records make up "
        "for more disguise."
    ),
    settings=settings,
    measure=measure,
    compare=compare,
    draw=draw,
    quick_runs=4,
    declared=(
        (
            "Which sample sizes between 1,000 and 32,000 and which probabilities were used is lost: "
            "doublings, and steps of 0.1."
        ),
        (
            "The order of the arguments of the distance is not printed: true first, since some true "
            "probabilities are 0. One record is spread over all cells of the estimate, since the most likely "
            "count of a cell may be 0 and the distance then infinite."
        ),
    ),
    corrected=table_2_1.CORRECTED,
)
