"""Common code of both panels of Ma (2006), Fig. 3.4: a distance against disguise and sample size."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

import pandas as pd
from matplotlib.axes import Axes

from masquerade.report import MUTED, SERIES, open_frame
from masquerade_experiments.experiment import Comparison
from masquerade_experiments.ma_2006.averages import Mean, mean_of, over_runs

COLOURS = (MUTED, *SERIES)


def distance(frame: pd.DataFrame, kept: float, n: int) -> Mean:
    """Return the mean distance at one setting."""
    return mean_of(frame[(frame["kept"] == kept) & (frame["n"] == n)]["distance"])


def falls_with_size(frame: pd.DataFrame, identity: str) -> Sequence[Comparison]:
    """Check that the distance falls from the smallest to the largest sample, at every level of disguise."""
    small, large = int(frame["n"].min()), int(frame["n"].max())
    return [
        difference(
            f"Distance from {large:,} minus distance from {small:,} records, values kept with {kept:g}",
            distance(frame, kept, large),
            distance(frame, kept, small),
            "“Sample size is key”, read as: the largest sample has a smaller distance than the smallest.",
            why="Where few runs carry most of a mean, more runs decide.",
            check=f"masquerade reproduce {identity} --runs 200",
        )
        for kept in sorted(frame["kept"].unique().tolist())
    ]


def traded(frame: pd.DataFrame, often: tuple[float, int], rarely: tuple[float, int]) -> Comparison:
    """Check that many strongly disguised records give no larger distance than few weakly disguised records.

    `often` and `rarely` are pairs of the probability to keep a value and the number of records.
    """
    return difference(
        f"Distance from {often[1]:,} records, values kept with {often[0]:g}, minus distance from "
        f"{rarely[1]:,}, kept with {rarely[0]:g}",
        distance(frame, *often),
        distance(frame, *rarely),
        "“Both accuracy and privacy can be achieved”, read as: many records of which many values "
        "are changed have a smaller distance than few records of which few values are changed.",
    )


def difference(
    what: str, first: Mean, second: Mean, read: str, *, why: str = "", check: str = ""
) -> Comparison:
    """Return the claim that the first distance is below the second."""
    gap, stderr = first.value - second.value, hypot(first.stderr, second.stderr)
    return Comparison(
        what, 0.0, gap, stderr, rule="below", why=why, check=check, kind="claim as read", read_as=read
    )


def curves(axes: Axes, frame: pd.DataFrame) -> None:
    """Draw mean distances with error bars of two standard errors, with one curve per sample size."""
    means = over_runs(frame, ("n", "kept"), "distance")
    sizes = sorted(means["n"].unique().tolist())
    for n, colour in zip(sizes, COLOURS[-len(sizes) :], strict=True):
        rows = means[means["n"] == n]
        axes.errorbar(
            rows["kept"],
            rows["mean"],
            2 * rows["stderr"],
            color=colour,
            lw=1.6,
            marker="o",
            ms=3.5,
            label=f"{n:,}",
        )
    axes.set(xlabel="probability to keep a value, 1 − p")
    open_frame(axes)
