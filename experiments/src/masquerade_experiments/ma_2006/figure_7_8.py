"""Ma (2006), Fig. 7.8: decision trees from the disguised Adult records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from masquerade_experiments.experiment import Experiment, Row, Setting
from masquerade_experiments.ma_2006 import census, classification

STUDY = classification.Study(census.records, census.TARGET, copies=30)


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return the probabilities of a change."""
    return [{"p": p} for p in ((0.3,) if quick else (0.1, 0.2, 0.3, 0.4, 0.45))]


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Disguise the records once for each model, grow the trees and test them."""
    return classification.grown(STUDY, cast("float", setting["p"]), seed)


EXPERIMENT = Experiment(
    id="ma-2006-fig-7.8",
    paper="Ma (2006)",
    item="Figure 7.8",
    title="Decision trees for income, from disguised census records",
    shows=classification.SHOWS,
    settings=settings,
    measure=measure,
    compare=classification.comparisons,
    draw=classification.drawn,
    table=classification.averages,
    printed_runs=5,
    quick_runs=2,
    data=("adult",),
    declared=(*census.DECLARED, *classification.DECLARED),
    corrected=classification.CORRECTED,
)
