"""Records of any type as binary records, divided for training and testing (§4.2)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Cut = Literal["median", "midrange"]
Bits = NDArray[np.int64]


def binary_records(records: pd.DataFrame, target: str, cut: Cut = "median") -> pd.DataFrame:
    """Return every attribute as 0 or 1, and the target as the index of its label when sorted."""
    columns = {name: halves(ranks(records[name]), cut) for name in records if name != target}
    return pd.DataFrame({**columns, target: pd.Categorical(records[target]).codes.astype(np.int64)})


def ranks(column: pd.Series[str]) -> NDArray[np.float64]:
    """Return numbers unchanged, and labels as their positions in alphabetical order."""
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(dtype=float)
    return pd.Categorical(column).codes.astype(float)


def halves(values: NDArray[np.float64], cut: Cut) -> Bits:
    """Return 1 for values above the cut.

    ``median`` cuts between two adjacent values so that the halves differ least in size (the lower of two
    equally good cuts); ``midrange`` cuts halfway between the smallest and the largest value.

    >>> halves(np.array([1.0, 1.0, 1.0, 2.0, 9.0]), "median").tolist()
    [0, 0, 0, 1, 1]
    >>> halves(np.array([1.0, 1.0, 1.0, 2.0, 9.0]), "midrange").tolist()
    [0, 0, 0, 0, 1]
    """
    if cut == "midrange":
        return np.asarray(values > (values.min() + values.max()) / 2, dtype=np.int64)
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) == 1:
        return np.zeros(len(values), dtype=np.int64)
    below = np.cumsum(counts)[:-1]
    return np.asarray(values > distinct[np.argmin(np.abs(2 * below - len(values)))], dtype=np.int64)


def divided(records: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two thirds for training and every third record for testing."""
    third = np.arange(len(records)) % 3 == 2
    return records[~third].reset_index(drop=True), records[third].reset_index(drop=True)
