"""Zhan et al. (2004), Fig. 2: naive Bayes from the breast-cancer records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import cast

import pandas as pd

import masquerade as mq
from masquerade_experiments.experiment import Experiment, Row, Setting
from masquerade_experiments.zhan_2004 import classifiers, presentation
from masquerade_experiments.zhan_2004.halves import binary_records


@cache
def records() -> pd.DataFrame:
    """Return the nine scores and the class as binary records; read once per process."""
    frame = mq.data.load("breast-cancer-wisconsin").drop(columns="sample_code_number")
    known = frame["bare_nuclei"].astype(str).replace("?", "1").astype(int)
    return binary_records(frame.assign(bare_nuclei=known), "class")


STUDY = classifiers.Study(records, "class")


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return the probabilities of a true report."""
    return [{"theta": theta} for theta in (classifiers.QUICK_THETAS if quick else classifiers.THETAS)]


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Disguise the records once, learn from them and test the classifier."""
    return classifiers.learnt(STUDY, cast("float", setting["theta"]), seed)


EXPERIMENT = Experiment(
    id="zhan-2004-fig-2",
    paper="Zhan et al. (2004)",
    item="Figure 2",
    title="Naive Bayes for breast cancer, from records reported whole or reversed",
    shows=presentation.SHOWS,
    settings=settings,
    measure=measure,
    compare=presentation.comparisons,
    draw=presentation.drawn,
    table=presentation.averages,
    printed_runs=100,
    quick_runs=20,
    data=("breast-cancer-wisconsin",),
    declared=(
        (
            "The 699 records of Wisconsin are used; their sample numbers are no attribute. The 16 unknown "
            "scores count as 1, the commonest."
        ),
        *presentation.DECLARED,
    ),
    corrected=presentation.CORRECTED,
)
