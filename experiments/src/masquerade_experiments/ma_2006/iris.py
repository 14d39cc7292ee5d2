"""Ma (2006), §6.3: the iris data repeated with noise, grouped by MGAS and disguised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import masquerade as mq

if TYPE_CHECKING:
    from masquerade.anonymity import Bins

FEATURES = ("sepal_length", "sepal_width", "petal_length", "petal_width")
TARGET = "virginica"
REPEATS = 100
NOISE = 0.2
K_MIN, LEAST_WIDTH = 500, 0.3

DECLARED = (
    "The parameters of MGAS are not printed: at least 500 records and a width of 0.3 in every group.",
)


@dataclass(frozen=True, slots=True)
class Grouped:
    """Clear records and the groups of every feature."""

    records: pd.DataFrame
    bins: dict[str, Bins]

    def policy(self, p: float) -> mq.Policy:
        """Return the disguise of the grouped features; the class is not disguised."""
        features = {
            name: {"bins": bins.policy_bins(), "channel": {"kind": "symmetric", "p": str(p)}}
            for name, bins in self.bins.items()
        }
        return mq.Policy.from_dict(
            {"masquerade": 1, "variables": {**features, TARGET: {"categories": ["no", "yes"]}}}
        )

    @property
    def means(self) -> dict[str, list[float]]:
        """Return the mean of every group, which the classifier uses."""
        return {name: bins.means.tolist() for name, bins in self.bins.items()}


def sample(generator: np.random.Generator) -> Grouped:
    """Return the iris data, repeated 100 times with uniform noise on all features, and MGAS's groups."""
    known = pd.concat([mq.data.load("iris")] * REPEATS, ignore_index=True)
    records = known[list(FEATURES)] + generator.uniform(-NOISE, NOISE, (len(known), len(FEATURES)))
    records[TARGET] = np.where(known["class"] == "Iris-virginica", "yes", "no")
    return Grouped(records, {name: mq.anonymity.mgas(records[name], K_MIN, LEAST_WIDTH) for name in FEATURES})
