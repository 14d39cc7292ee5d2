"""Ma (2006), Fig. 7.4: frequent itemsets of the Mushroom records from disguised items."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import cast

import pandas as pd

import masquerade as mq
from masquerade_experiments.experiment import Experiment, Row, Setting
from masquerade_experiments.ma_2006 import itemsets

VARIABLES = (
    "class",
    "cap_surface",
    "bruises",
    "gill_attachment",
    "gill_spacing",
    "gill_size",
    "stalk_shape",
    "stalk_surface_above_ring",
    "ring_number",
)
GROUPS = (3,) * 4 + (2,) * 2 + (1,) * 7


@cache
def records() -> pd.DataFrame:
    """Return the nine variables; read once per process."""
    return mq.data.load("mushroom")[list(VARIABLES)]


STUDY = itemsets.Study(records, GROUPS, longest=7)


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return the probabilities of a change."""
    return [{"p": p} for p in ((0.3, 0.45) if quick else (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45))]


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Disguise all items once and search for frequent itemsets."""
    return itemsets.mined(STUDY, cast("float", setting["p"]), seed)


EXPERIMENT = Experiment(
    id="ma-2006-fig-7.4",
    paper="Ma (2006)",
    item="Figure 7.4",
    title="Frequent itemsets of mushrooms, from disguised items",
    shows=itemsets.SHOWS,
    settings=settings,
    measure=measure,
    compare=itemsets.comparisons,
    draw=itemsets.drawn,
    table=itemsets.averages,
    quick_runs=3,
    data=("mushroom",),
    declared=(
        (
            "The paper does not say which nine variables were selected. These have the printed 23 "
            "categories in all: class, cap surface, bruises, gill attachment, gill spacing, gill size, "
            "stalk shape, stalk surface above the ring, ring number."
        ),
        *itemsets.DECLARED,
    ),
    corrected=(
        *itemsets.CORRECTED,
        (
            "The text varies p up to 0.5. There a single item is reported as a coin toss, its channel has "
            "no inverse, and nothing can be estimated: the last point shown is 0.45."
        ),
    ),
)
