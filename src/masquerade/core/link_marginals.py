"""Many links judged by the marginal likelihood of what was observed, under Dirichlet priors of the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.evidence import Evidence

Prior = Callable[[int], float]


@runtime_checkable
class MarginalEvidence(Protocol):
    """Evidence whose kind knows the marginal likelihood of what was observed."""

    @classmethod
    def marginal_gains(
        cls, batch: Sequence[Evidence], places: Sequence[Sequence[int]], prior: Prior
    ) -> Floats:
        """Judge links as `marginal_gains` does."""


def marginal_gains(evidences: Sequence[Evidence], places: Sequence[Sequence[int]], prior: Prior) -> Floats:
    """Return by how much each link raises the log marginal likelihood of what was observed.

    `places[i]` are the axes of table i for (the parents already there …, the new parent, the child); `prior`
    gives the pseudo-count of a cell among so many of a family. NaN where the evidence has no such likelihood.
    """
    found = np.full(len(evidences), np.nan)
    kinds: dict[type, list[int]] = {}
    for i, evidence in enumerate(evidences):
        kinds.setdefault(type(evidence), []).append(i)
    for members in kinds.values():
        first = evidences[members[0]]
        if isinstance(first, MarginalEvidence):
            batch = [evidences[i] for i in members]
            found[members] = first.marginal_gains(batch, [places[i] for i in members], prior)
    return found
