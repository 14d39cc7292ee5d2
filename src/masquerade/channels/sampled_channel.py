"""What reports that name their sample tell: samples whose sizes are known before anybody reports."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.estimate.inverse import generalised_map

SMALLEST_RATIO = 1e-9  # singular values further apart than this tell nothing


@dataclass(frozen=True, eq=False)
class SampledChannel:
    """What the reports of people who were dealt blocks, or groups of a survey design, tell about variables.

    Blocks that share the asked variables, and how they ask for them, are one sample. `lump` gives for every
    joint report (block, class) its report about these variables; `chances` (truths × such reports) add up to
    one over every sample; `sample` names the sample of a report (−1: no truth gives it), `dealt` that of a
    block, and `shares` are the probabilities of being dealt into each sample.
    """

    lump: NDArray[np.int32]
    sample: NDArray[np.int32]
    chances: Floats
    dealt: NDArray[np.int32]
    shares: Floats

    @classmethod
    def of_groups(cls, matrix: Floats, groups: int) -> SampledChannel:
        """Return the channel to reports (group, answer), where the group is dealt whatever the truth is."""
        answers = matrix.shape[1] // groups
        shares = matrix[0].reshape(groups, answers).sum(axis=1)
        of = np.repeat(np.arange(groups, dtype=np.int32), answers)
        sample = np.where(matrix.any(axis=0), of, -1).astype(np.int32)
        used = np.where(shares > 0, shares, 1.0)[of]
        lump = np.arange(matrix.shape[1], dtype=np.int32)
        return cls(lump, sample, matrix / used, np.arange(groups, dtype=np.int32), shares)

    def channel(self, shares: Floats) -> Floats:
        """Return the chances of reports that name their sample too, where so many are in each."""
        scaled = self.chances * np.append(shares, 0.0)[self.sample]
        return np.asarray(scaled)

    @cached_property
    def rank(self) -> int:
        """How many combinations of truths the reports tell apart, where people are dealt as planned."""
        return _rank(self.channel(self.shares))

    @property
    def estimable(self) -> bool:
        """Tell whether the table of all these variables follows from the reports: by the channel's rank."""
        return self.rank == len(self.chances)

    @cached_property
    def inverse(self) -> Floats:
        """Return the unbiased map where records are dealt into samples as planned."""
        return generalised_map(self.channel(self.shares))

    def settled(self, blocks: Floats) -> tuple[Floats, Floats, Floats | None]:
        """Return channel, unbiased map and sizes of the samples, given how many were dealt each block.

        Formula: given the sizes n_T the samples are independent, and the reports of all went through
        A = (n_1/n·A_1, n_2/n·A_2, …); the map is W⁻¹Aᵀ(AW⁻¹Aᵀ)⁺ at even truths, so that a parity is the mean
        over all that were dealt it: variance (f² − φ²)/n_u, f = (γ + J − 1)/(γ − 1).
        Where a sample that is needed has nobody, the planned shares are used, and no sizes are returned: the
        map is then unbiased over the deal.
        """
        sizes = np.bincount(self.dealt, weights=blocks, minlength=len(self.shares)).astype(np.float64)
        total = float(sizes.sum())
        if total <= 0:
            return self.channel(self.shares), self.inverse, None
        used = self.channel(sizes / total)
        if _rank(used) < self.rank:
            return self.channel(self.shares), self.inverse, None
        return used, generalised_map(used), sizes


def _rank(matrix: NDArray[Any]) -> int:
    singular = np.linalg.svd(matrix, compute_uv=False)
    return int(np.count_nonzero(singular > SMALLEST_RATIO * singular[0]))
