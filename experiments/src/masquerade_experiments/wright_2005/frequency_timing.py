"""Wright (2005): time of the frequency primitive, by the number of users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import masquerade as mq
from masquerade.core import Schema
from masquerade.simulation import Lesson, Mined, mine_frequencies
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting
from masquerade_experiments.wright_2005 import curves

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from masquerade.core import Tally

SIZES: dict[bool, dict[str, Sequence[int]]] = {
    True: {
        curves.PUBLISHED: (250, 500, 1000, 2000),
        curves.PROVED: (25, 50, 100),
        curves.PRODUCTION: (300,),
    },
    False: {
        curves.PUBLISHED: (1000, 2000, 5000, 10_000, 20_000, 50_000),
        curves.PROVED: (100, 200, 500, 1000, 2000),
        curves.PRODUCTION: (300, 1000, 3000, 10_000),
    },
}


@dataclass(frozen=True)
class OneFrequency(Lesson):
    """Counts the people with a large income, one bit per user."""

    def about(self, schema: Schema) -> tuple[str, ...]:
        """Return the single variable that is counted."""
        return (schema["income"].name,)

    def learn(self, source: Tally) -> Any:
        """Return the count."""
        return mq.learn.Tables(tuple(source.answer([mq.Query(where={"income": ">50K"})])))


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return one setting per form of the protocol and number of users."""
    return curves.settings_of(SIZES[quick])


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Count one frequency."""
    return curves.measured(setting, seed, OneFrequency("tables"), published)


def published(n: int, seed: int) -> tuple[Mined, int]:
    """Count one frequency by the printed protocol."""
    bits = np.random.default_rng(seed).integers(0, 2, n).tolist()
    found = mine_frequencies([[bit] for bit in bits])
    return found, int(found.counts != (sum(bits),))


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Check the counts, and the growth of the times with the number of users."""
    return curves.compared(frame, 1)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the curves."""
    return curves.drawn(frame, "One frequency")


EXPERIMENT = Experiment(
    id="wright-2005-frequency-timing",
    paper="Wright (2005)",
    item="Timing of the frequency primitive",
    title="Seconds to count one frequency privately, against the number of users",
    shows=(
        "Users hold one bit each and send it masked; the miner multiplies what it gets and takes a small "
        "logarithm. Its time is a straight line in the number of users; a user's time does not depend on "
        "it. Shown beside the protocol as published: with the proofs and checks that it needs against people "
        "who cheat, and secure aggregation, which people may leave."
    ),
    settings=settings,
    measure=measure,
    compare=compare,
    draw=draw,
    is_random=False,
    quick_runs=1,
    declared=curves.DECLARED,
)
