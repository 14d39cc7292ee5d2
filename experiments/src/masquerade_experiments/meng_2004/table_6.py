"""Table 6: parameters of ASIA by a single orthogonal projection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

import masquerade as mq
from masquerade_experiments.experiment import (
    Comparison,
    Experiment,
    Row,
    Setting,
    mean_square_stderr,
)
from masquerade_experiments.meng_2004 import asia, presentation

if TYPE_CHECKING:
    import pandas as pd

PRINTED = {
    "A": "0.91 0.09",
    "T": "0.91 0.31 0.09 0.69",
    "S": "0.51 0.49",
    "L": "0.91 0.09 0.1 0.9",
    "E": "0.9 0.1 0.1 0.01 0.1 0.9 0.9 0.99",
    "X": "0.96 0.02 0.04 0.98",
    "B": "0.8 0.91 0.2 0.09",
    "D": "0.89 0.21 0.81 0.84 0.11 0.79 0.19 0.16",
}
ROUNDED = 0.005


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001
    """Return the single setting of the paper."""
    del quick
    return ({"samples": asia.SAMPLES},)


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Draw records; learn from their rotated columns, as a third party would, and from the clear columns."""
    frame = asia.network().sample(int(str(setting["samples"])), seed)
    schema = asia.network().schema
    source = mq.projection_tally(frame, asia.OWNERS, schema=schema)
    return asia.rows(source, mq.tally(frame, schema=schema))


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Compare parameters with the paper, means with the truth, and counts with clear counts."""
    found = presentation.over_runs(frame, asia.printed(PRINTED), "estimate")
    errors = asia.sampling_errors()
    found["stderr"] = [errors[label] for label in found["parameter"]] / np.sqrt(found["runs"])
    rows = [
        Comparison(
            row["parameter"],
            row["paper"],
            row["mean"],
            stderr=row["stderr"],
            paper_stderr=errors[row["parameter"]],
            reading=ROUNDED,
        )
        for row in found.to_dict("records")
    ]
    away = (frame["estimate"] - frame["true"]).abs().groupby(frame["run"]).max()
    spread = float(away.std(ddof=1)) if len(away) > 1 else float("nan")
    squares = ((found["mean"] - found["true"]) / found["stderr"]) ** 2
    return [
        *rows,
        Comparison(
            "mean square of the differences of means from Table 5, in standard errors",
            1.0,
            float(squares.mean()),
            stderr=mean_square_stderr(len(squares)),
        ),
        Comparison(
            "largest distance of a parameter from the true probability, in one sample",
            float((found["paper"] - found["true"]).abs().max()),
            float(away.mean()),
            stderr=spread / np.sqrt(len(away)),
            paper_stderr=spread,
            reading=ROUNDED,
        ),
        Comparison(
            "largest difference between a parameter learnt from rotated columns and from the clear ones",
            0.0,
            float((frame["estimate"] - frame["clear"]).abs().max()),
            rule="at most",
            kind="claim as read",
            read_as="“Virtually error-free”, read as: exactly those of the clear records.",
        ),
    ]


EXPERIMENT = Experiment(
    id="meng-2004-table-6",
    paper="Meng et al. (2004)",
    item="Table 6",
    title="Parameters of ASIA by a single orthogonal projection",
    shows=(
        "Two parties rotate their columns by one secret random matrix, and a third party learns the network "
        "from inner products. The counts are exact, so all the error left is that of 2,000 samples."
    ),
    settings=settings,
    measure=measure,
    compare=compare,
    draw=lambda frame: presentation.draw(
        frame, asia.printed(PRINTED), "estimate", "Counts through a rotation are those of the clear records"
    ),
    quick_runs=2,
    declared=(
        asia.PARAMETERS_OF_TABLE_5,
        asia.PARTIES,
        "The paper shows one sample of 2,000; we draw a new sample in every run.",
    ),
    corrected=(asia.ORDERS,),
    table=lambda frame: presentation.beside(frame, asia.printed(PRINTED), "estimate"),
)
