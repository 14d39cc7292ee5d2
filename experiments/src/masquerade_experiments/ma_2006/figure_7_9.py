"""Ma (2006), Fig. 7.9: decision trees from the disguised breast-cancer records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import cast

import numpy as np
import pandas as pd

import masquerade as mq
from masquerade_experiments.experiment import Experiment, Row, Setting
from masquerade_experiments.ma_2006 import classification

THREE, TWO = (3, 6), (5,)  # the largest score of each category except the highest category


@cache
def records() -> pd.DataFrame:
    """Return the nine scores in 3, 2, 3, … categories, and the class; read once per process."""
    frame = mq.data.load("breast-cancer-wisconsin")
    scores = [name for name in frame if name not in {"sample_code_number", "class"}]
    return pd.DataFrame(
        {
            **{
                name: np.searchsorted(THREE if place % 2 == 0 else TWO, score(frame[name]))
                for place, name in enumerate(scores)
            },
            "class": frame["class"].astype(str),
        }
    )


def score(column: pd.Series[str]) -> pd.Series[int]:
    """Return scores as numbers; an unknown score counts as 1, the most frequent score."""
    return column.astype(str).replace("?", "1").astype(int)


STUDY = classification.Study(records, "class", copies=5)


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return the probabilities of a change."""
    return [{"p": p} for p in ((0.1, 0.3, 0.45) if quick else (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45))]


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Disguise the records once for each model, grow the trees and test them."""
    return classification.grown(STUDY, cast("float", setting["p"]), seed)


EXPERIMENT = Experiment(
    id="ma-2006-fig-7.9",
    paper="Ma (2006)",
    item="Figure 7.9",
    title="Decision trees for breast cancer, from disguised records",
    shows=classification.SHOWS,
    settings=settings,
    measure=measure,
    compare=classification.comparisons,
    draw=classification.drawn,
    table=classification.averages,
    printed_runs=5,
    quick_runs=3,
    data=("breast-cancer-wisconsin",),
    declared=(
        (
            "The breast-cancer records are not named: we take those of Wisconsin, whose scores and class fit "
            "the ten printed cardinalities. How scores were combined is lost: 1–3, 4–6, 7–10 for three "
            "categories and 1–5, 6–10 for two. The 16 unknown scores count as 1, the commonest."
        ),
        *classification.DECLARED,
    ),
    corrected=classification.CORRECTED,
)
