"""Channels whose reports state which sample a person is in; the sizes of the samples are known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.estimate.inverse import generalised_map

SMALLEST_RATIO = 1e-9  # singular values below this share of the largest carry no information


@dataclass(frozen=True, eq=False)
class SampledChannel:
    """The channel from some variables to reports of people in known samples.

    A sample is a set of blocks that contain the requested variables in the same way, or a group of a survey
    design.

    Parameters
    ----------
    lump : array of int
        For every joint report (block, class), the index of its report about these variables.
    sample : array of int
        The sample of each report about these variables; −1 if no truth gives it.
    chances : array of float
        Probabilities (truths × reports), given the sample: in each sample they sum to one.
    dealt : array of int
        The sample of each block.
    shares : array of float
        Probability of being assigned to each sample.
    """

    lump: NDArray[np.int32]
    sample: NDArray[np.int32]
    chances: Floats
    dealt: NDArray[np.int32]
    shares: Floats

    @classmethod
    def of_groups(cls, matrix: Floats, groups: int) -> SampledChannel:
        """Return the channel to reports (group, answer) with the group independent of the truth."""
        answers = matrix.shape[1] // groups
        shares = matrix[0].reshape(groups, answers).sum(axis=1)
        of = np.repeat(np.arange(groups, dtype=np.int32), answers)
        sample = np.where(matrix.any(axis=0), of, -1).astype(np.int32)
        used = np.where(shares > 0, shares, 1.0)[of]
        lump = np.arange(matrix.shape[1], dtype=np.int32)
        return cls(lump, sample, matrix / used, np.arange(groups, dtype=np.int32), shares)

    def channel(self, shares: Floats) -> Floats:
        """Return the probabilities of (sample, report) for given shares of the samples."""
        scaled = self.chances * np.append(shares, 0.0)[self.sample]
        return np.asarray(scaled)

    @cached_property
    def rank(self) -> int:
        """The number of combinations of truths that the reports distinguish at the planned shares."""
        return _rank(self.channel(self.shares))

    @property
    def estimable(self) -> bool:
        """Return True if the table of all these variables can be estimated: the channel has full rank."""
        return self.rank == len(self.chances)

    @cached_property
    def inverse(self) -> Floats:
        """Return the unbiased map from reports to counts at the planned shares."""
        return generalised_map(self.channel(self.shares))

    def at_block_sizes(self, blocks: Floats) -> tuple[Floats, Floats, Floats | None]:
        """Return channel, unbiased map and sample sizes, given the number of people in each block.

        Formula: given the sizes n_T the samples are independent, and all reports went through
        A = (n_1/n·A_1, n_2/n·A_2, …). The map is W⁻¹Aᵀ(AW⁻¹Aᵀ)⁺ at uniform truths, so that the estimate of a
        parity φ is the mean over the n_u people whose block contains it: variance (f² − φ²)/n_u with
        f = (γ + J − 1)/(γ − 1) for J classes.
        If a needed sample is empty, the planned shares are used and no sizes are returned: the map is then
        unbiased over the random assignment.
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
