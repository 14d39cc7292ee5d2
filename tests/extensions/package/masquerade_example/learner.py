"""A learner: the most frequent category of a variable, and how sure it is that no other is as frequent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

import masquerade as mq
from masquerade.extend import VARIABLE, check_header, entry, header


@dataclass(frozen=True)
class Majority:
    """The model: the variable, its most frequent category, the chance that the second is not ahead of it."""

    target: str
    label: Any
    sure: float

    def summary(self) -> str:
        """Return the model for reading."""
        return f"{self.target}: mostly {self.label} ({self.sure:.1%} sure)"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as they are saved."""
        return {**header("majority"), "target": self.target, "label": self.label, "sure": self.sure}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Majority:
        """Read them back."""
        check_header(values, "majority")
        return cls(entry(values, "target", str), values["label"], entry(values, "sure", float))


def majority(source: mq.Tally, target: str) -> Majority:
    """Ask one table, and compare its two largest cells."""
    [table] = source.answer([mq.Query(by=target)])
    second, first = np.argsort(table.values)[-2:]
    contrast = np.zeros(table.values.shape)
    contrast[first], contrast[second] = 1, -1
    error = sqrt(table.covariance.quadratic(contrast)) or 1e-300
    lead = table.values[first] - table.values[second]
    return Majority(target, table.axes[0].categories[first], NormalDist().cdf(lead / error))


LEARNER = mq.learn.Learner(
    "majority",
    "most frequent category",
    "Find the category that most people have, and how sure that is.",
    majority,
    (mq.learn.Option("target", VARIABLE, None, "The variable."),),
    needs=(("target",),),
    model=lambda: Majority,
    asks=lambda options, names: set(names) <= {options["target"]},
    example="--target smoker",
)
