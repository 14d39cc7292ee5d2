"""Calls that leave a trace: one file each, in the folder that TOY_CALLS names."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from masquerade.core.plots.style import canvas, open_frame
from masquerade_experiments.experiment import Comparison

TRACES = "TOY_CALLS"


def note(call: str) -> None:
    """Leave a trace of a call, if anybody watches."""
    if folder := os.environ.get(TRACES):
        handle, _ = tempfile.mkstemp(prefix=f"{call}.", dir=folder)
        os.close(handle)


def traces(folder: Path) -> int:
    """Return how many calls there were."""
    return len(list(folder.iterdir()))


def mean_value(frame: pd.DataFrame, paper: float | None, why: str = "") -> Sequence[Comparison]:
    """Compare the mean of `value`."""
    return [Comparison("mean value", paper, frame["value"].mean(), frame["value"].sem(), why=why)]


def points(frame: pd.DataFrame) -> Figure:
    """Draw every value."""
    figure = canvas(4, 3)
    axes = figure.subplots()
    open_frame(axes)
    axes.plot(frame["value"], "o")
    return figure
