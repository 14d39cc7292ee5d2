"""Presentation of the three tables of Meng et al. (2004): the true, the printed and our value in each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from masquerade.report import ESTIMATE, MUTED, NAIVE, canvas, open_frame

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def over_runs(frame: pd.DataFrame, paper: Mapping[str, float], column: str) -> pd.DataFrame:
    """Return one row per parameter: true value, printed value, our mean over runs and its deviation."""
    groups = frame.groupby("parameter", sort=False)
    found = groups.agg(
        node=("node", "first"), true=("true", "first"), mean=(column, "mean"), runs=(column, "size")
    )
    # a single run shows its own standard error; the error of a probability is at most 1
    found["deviation"] = groups[column].std(ddof=1).fillna(groups["stderr"].first()).clip(upper=1.0)
    found["paper"] = [paper[label] for label in found.index]
    return found.reset_index()


def beside(frame: pd.DataFrame, paper: Mapping[str, float], column: str) -> pd.DataFrame:
    """Return the table of the report: our first run (the paper shows a single run) and the mean over runs."""
    found = over_runs(frame, paper, column)
    one = frame[frame["run"] == frame["run"].min()].set_index("parameter")
    labels = found["parameter"].tolist()
    table = found[["parameter", "true", "paper"]].copy()
    table["ours, one run"] = one.loc[labels, column].to_numpy()
    table["its standard error"] = one.loc[labels, "stderr"].to_numpy()
    table["ours, mean"] = found["mean"]
    table["standard deviation over runs"] = found["deviation"]
    return table


def draw(frame: pd.DataFrame, paper: Mapping[str, float], column: str, title: str) -> Figure:
    """Draw every parameter: the true value, the printed value, and ours with its deviation over runs."""
    found = over_runs(frame, paper, column)
    figure = canvas(7.2, 5.6)
    axes = figure.add_subplot()
    places = np.arange(len(found))[::-1]
    axes.scatter(
        found["true"], places, marker="|", s=170, linewidths=1.6, color=MUTED, label="true", zorder=2
    )
    axes.errorbar(
        found["mean"],
        places,
        xerr=found["deviation"],
        fmt="o",
        markersize=4.5,
        capsize=2.5,
        color=ESTIMATE,
        label="ours: mean over runs ± standard deviation of one",
        zorder=3,
    )
    axes.scatter(
        found["paper"], places, marker="D", s=30, facecolors="none", edgecolors=NAIVE, label="paper", zorder=4
    )
    axes.set_yticks(places, found["parameter"])
    axes.set_xlim(-0.1, 1.1)
    axes.set_xlabel("probability of the value −1")
    axes.set_title(title, loc="left")
    open_frame(axes)
    figure.legend(loc="outside lower center", ncols=3)
    return figure
