"""Means and other statistics over independent runs, with their standard errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from masquerade_experiments.experiment import Comparison, Setting

if TYPE_CHECKING:
    import pandas as pd


class Measured(NamedTuple):
    """A number and its standard error."""

    value: float
    stderr: float


def number(setting: Setting, name: str) -> float:
    """Return a number of a setting."""
    return float(cast("float", setting[name]))


def mean_of(values: ArrayLike) -> Measured:
    """Return the mean of independent values; for a single value, the standard error is nan."""
    array = np.asarray(values, dtype=float)
    spread = float(array.std(ddof=1) / np.sqrt(array.size)) if array.size > 1 else np.nan
    return Measured(float(array.mean()), spread)


def over_runs(frame: pd.DataFrame, statistic: Callable[[pd.DataFrame], float]) -> Measured:
    """Return a statistic of all runs and its jackknife standard error, omitting one run at a time."""
    runs = frame["run"].unique()
    left = np.array([statistic(frame[frame["run"] != run]) for run in runs]) if len(runs) > 1 else np.zeros(1)
    spread = np.sqrt((len(runs) - 1) * left.var()) if len(runs) > 1 else np.nan
    return Measured(statistic(frame), float(spread))


def with_errors(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Return the comparisons whose standard error is known; a single run has no standard error."""
    return [comparison for comparison in comparisons if np.isfinite(comparison.stderr)]
