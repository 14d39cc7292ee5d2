"""A synthetic file with missing values in all columns, and the policy that reads it.

`benchmarks.missing_coverage` studies a small twin of it, and `tests/conformance/test_missing_values.py` sends
200,000 rows × 40 columns through all file formats, frames and engines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import masquerade as mq

EDGES = [0, 10, 20, 40, 80]
LABELS = ["north", "south", "west"]
NOT_STATED = "not stated"
LOGIT = (-0.6, 0.4)  # of "north" given the whole number two columns before


def people(rows: int, columns: int, generator: np.random.Generator) -> pd.DataFrame:
    """Return whole numbers, decimals and texts in turn, with 3% to 30% of a column missing."""
    result: dict[str, Any] = {}
    whole = np.zeros(rows, dtype=int)
    for place in range(columns):
        kind, share = place % 3, missing_share(place, columns)
        if kind == 0:
            whole = generator.binomial(4, whole_chance(place, columns), rows)
            values: Any = pd.Series(whole, dtype="Int64")
        elif kind == 1:
            values = pd.Series(np.round(generator.gamma(2.0, 8.0, rows).clip(0, 80), 2), dtype="Float64")
        else:
            is_north = generator.random(rows) < 1 / (1 + np.exp(-LOGIT[0] - LOGIT[1] * whole))
            others = generator.choice(LABELS[1:], rows, p=[0.6, 0.4])
            values = pd.Series(np.where(is_north, LABELS[0], others), dtype="string")
        values[generator.random(rows) < share] = pd.NA
        result[f"v{place}"] = values
    return pd.DataFrame(result)


def missing_share(place: int, columns: int) -> float:
    """Return the share of missing values of a column."""
    return 0.03 + 0.27 * place / (columns - 1)


def whole_chance(place: int, columns: int) -> float:
    """Return the chance of a binomial column of whole numbers."""
    return 0.2 + 0.5 * place / columns


def policy_of(columns: int, gamma: int | None = None) -> mq.Policy:
    """Return the policy of these columns, with a channel of this γ for each."""
    entries: list[dict[str, Any]] = [
        {"categories": [0, 1, 2, 3, 4, NOT_STATED]},
        {"bins": EDGES},
        {"categories": [*LABELS, NOT_STATED]},
    ]
    channel = {} if gamma is None else {"channel": {"kind": "for_gamma", "gamma": gamma}}
    variables = {
        f"v{place}": entries[place % 3] | {"missing": NOT_STATED} | channel for place in range(columns)
    }
    return mq.Policy.from_dict({"masquerade": 1, "variables": variables})
