"""Zhan et al. (2004), Fig. 1: naive Bayes from the first 10,000 Adult records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import cast

import pandas as pd

import masquerade as mq
from masquerade_experiments.experiment import Experiment, Row, Setting
from masquerade_experiments.zhan_2004 import classifiers, presentation
from masquerade_experiments.zhan_2004.halves import binary_records

FIRST = 10_000


@cache
def records() -> pd.DataFrame:
    """Return the first 10,000 records of the file as binary records; read once per process."""
    return binary_records(mq.data.load("adult").iloc[:FIRST], "income")


STUDY = classifiers.Study(records, "income")


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return the probabilities of a true report."""
    return [{"theta": theta} for theta in (classifiers.QUICK_THETAS if quick else classifiers.THETAS)]


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Disguise the records once, learn from them and test the classifier."""
    return classifiers.learnt(STUDY, cast("float", setting["theta"]), seed)


EXPERIMENT = Experiment(
    id="zhan-2004-fig-1",
    paper="Zhan et al. (2004)",
    item="Figure 1",
    title="Naive Bayes for income, from census records reported whole or reversed",
    shows=presentation.SHOWS,
    settings=settings,
    measure=measure,
    compare=presentation.comparisons,
    draw=presentation.drawn,
    table=presentation.averages,
    printed_runs=100,
    quick_runs=4,
    data=("adult",),
    declared=(
        "All 14 attributes are used; an unknown value is a value like any other.",
        *presentation.DECLARED,
        (
            "Cut at the middle of the range, the classifier from clear records would be right less often "
            "than a rule that always names the commoner class; therefore the median is shown."
        ),
    ),
    corrected=presentation.CORRECTED,
)
