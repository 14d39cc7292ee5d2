"""Scores of links by the marginal likelihood of the observations, with Dirichlet priors on the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.evidence import Evidence

Prior = Callable[[int], float]


@runtime_checkable
class MarginalEvidence(Protocol):
    """Evidence whose class computes the marginal likelihood of the observations."""

    @classmethod
    def marginal_gains(
        cls, batch: Sequence[Evidence], places: Sequence[Sequence[int]], prior: Prior
    ) -> Floats:
        """Return the gains of links as `marginal_gains` does."""


def marginal_gains(evidences: Sequence[Evidence], places: Sequence[Sequence[int]], prior: Prior) -> Floats:
    """Return the gain in log marginal likelihood of the observations that each link brings.

    Parameters
    ----------
    evidences : sequence of Evidence
        One per link.
    places : sequence of sequence of int
        Axes of each table for (other parents …, new parent, child).
    prior : callable
        Maps the number of cells of a family to the pseudo-count of one cell.

    Returns
    -------
    array
        Gains; NaN where the evidence has no marginal likelihood.
    """
    gains = np.full(len(evidences), np.nan)
    kinds: dict[type, list[int]] = {}
    for i, evidence in enumerate(evidences):
        kinds.setdefault(type(evidence), []).append(i)
    for members in kinds.values():
        first = evidences[members[0]]
        if isinstance(first, MarginalEvidence):
            batch = [evidences[i] for i in members]
            gains[members] = first.marginal_gains(batch, [places[i] for i in members], prior)
    return gains
