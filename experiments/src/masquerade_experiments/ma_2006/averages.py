"""Means over runs with their standard errors, and comparisons of claimed with observed variances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import masquerade as mq


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over runs: `stderr` is its standard error, `spread` the standard deviation of one run."""

    value: float
    stderr: float
    spread: float


def mean_of(values: pd.Series[float]) -> Mean:
    """Return the mean of one number per run; for a single run, the standard error is nan."""
    spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Mean(float(values.mean()), spread / len(values) ** 0.5, spread)


def over_runs(frame: pd.DataFrame, by: Sequence[str], column: str) -> pd.DataFrame:
    """Return mean, stderr and spread of a column over the runs of every setting, in the settings' order."""
    rows = [
        {
            **dict(zip(by, key, strict=True)),
            "mean": found.value,
            "stderr": found.stderr,
            "spread": found.spread,
        }
        for key, group in frame.groupby(list(by))
        for found in [mean_of(group[column])]
    ]
    return pd.DataFrame(rows)


def first_run(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first run, for plots of a single run."""
    return pd.DataFrame(frame[frame["run"] == frame["run"].min()])


def per_run(frame: pd.DataFrame, column: str) -> pd.Series[float]:
    """Return, once per run, a number that every row of the run repeats."""
    return frame.groupby("run")[column].first()


@dataclass(frozen=True, slots=True)
class Calibration:
    """Squared errors of estimated counts over their claimed variances: 1 on average if the claim is true."""

    ratio: float
    stderr: float


def calibration(table: mq.CountTable, clear: NDArray[np.float64]) -> Calibration:
    """Compare estimated counts with the true counts of the same records.

    Formula: ratio = ‖N̂ − N‖²/tr C with C the covariance given the records; for nearly normal errors the
    variance of ‖N̂ − N‖² is 2·tr C², so the standard error is √(2·tr C²)/tr C.
    Reference: Ma (2006), Theorem 2, for C.
    """
    covariance = table.covariance.dense(kind="given_records")
    claimed = float(np.trace(covariance))
    squared = float(((table.estimate - clear) ** 2).sum())
    if claimed <= 0:  # a table that claims no error is right only if it has none
        return Calibration(math.inf if squared else 1.0, 0.0)
    return Calibration(squared / claimed, float(np.sqrt(2 * (covariance**2).sum())) / claimed)


def pooled_calibration(frame: pd.DataFrame, by: Sequence[str] = ("run",)) -> Calibration:
    """Return the mean of the runs' calibrations; rows repeat `error_ratio` and `error_ratio_stderr`."""
    once = frame.drop_duplicates(list(by))
    stderr = float(np.sqrt((once["error_ratio_stderr"] ** 2).sum())) / len(once)
    return Calibration(float(once["error_ratio"].mean()), stderr)
