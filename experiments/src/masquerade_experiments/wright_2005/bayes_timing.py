"""Wright (2005): time to learn a naive Bayes classifier, by the number of users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from masquerade.simulation import PEOPLE, Lesson, Mined, mine_frequencies, synthetic_people
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting
from masquerade_experiments.wright_2005 import curves

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TARGET = "income"
FEATURES = tuple(name for name in PEOPLE if name != TARGET)
CLASSES = len(PEOPLE[TARGET])
COUNTS = CLASSES * sum(PEOPLE.shape(FEATURES))
SIZES: dict[bool, dict[str, Sequence[int]]] = {
    True: {curves.PUBLISHED: (25, 50, 100, 200), curves.PROVED: (10, 15), curves.PRODUCTION: (300,)},
    False: {
        curves.PUBLISHED: (100, 200, 500, 1000, 2000),
        curves.PROVED: (25, 50, 100, 200, 400),
        curves.PRODUCTION: (300, 1000, 3000, 10_000),
    },
}


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return one setting per form of the protocol and number of users."""
    return curves.settings_of(SIZES[quick])


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Learn a classifier of income from six features."""
    return curves.measured(setting, seed, Lesson("naive-bayes", TARGET, FEATURES), published)


def published(n: int, seed: int) -> tuple[Mined, int]:
    """Count every value of every feature in every class by the printed protocol, one bit each."""
    people = synthetic_people(n, seed=seed % 2**32).codes
    columns = [
        np.eye(CLASSES * len(PEOPLE[name]), dtype=np.int64)[
            people[TARGET].astype(np.int64) * len(PEOPLE[name]) + people[name]
        ]
        for name in FEATURES
    ]
    bits = np.hstack(columns)
    found = mine_frequencies(bits.tolist())
    return found, int(np.count_nonzero(np.array(found.counts) != bits.sum(axis=0)))


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Check the counts, and the growth of the times with the number of users."""
    return curves.compared(frame, COUNTS)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the curves."""
    return curves.drawn(frame, "Naive Bayes")


EXPERIMENT = Experiment(
    id="wright-2005-bayes-timing",
    paper="Wright (2005)",
    item="Timing of the naive Bayes classifier",
    title="Seconds to learn a naive Bayes classifier privately, against the number of users",
    shows=(
        "A naive Bayes classifier needs one frequency for every value of every feature in every class, all "
        f"in one round: {COUNTS} for the synthetic people used here. Times are those of the primitive, "
        "multiplied by this number; the shapes are the same."
    ),
    settings=settings,
    measure=measure,
    compare=compare,
    draw=draw,
    is_random=False,
    quick_runs=1,
    declared=(
        (
            f"The talk does not say which data were classified. Here: {len(FEATURES)} features of made-up "
            "people in the manner of the Adult census extract, two classes."
        ),
        *curves.DECLARED,
    ),
)
