"""Second moments of channels in closed form, from which a plan computes variances.

For a linear estimate of shares, the variances of a table's cells sum to (t − ‖θ‖²)/n, where t is the summed
second moment of one record's contribution. Reference: Agrawal & Haritsa (2005) for the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations

import numpy as np

from masquerade.channels.block_designs import best_subset_size, subset_second_moment
from masquerade.channels.channel import Channel
from masquerade.core.axes import Floats


def best_moment(categories: int, gamma: float) -> float:
    """Return the least t of any channel over equally likely categories."""
    return (
        1.0
        if categories == 1
        else subset_second_moment(categories, gamma, best_subset_size(categories, gamma))
    )


def moment_slope(categories: int, gamma: float, size: int) -> float:
    """Return the derivative of `subset_second_moment` by ε = ln γ."""
    share = size / categories
    main = subset_second_moment(categories, gamma, size) - 1 / categories
    return gamma * main * (2 * share / (1 + (gamma - 1) * share) - 2 / (gamma - 1))


@dataclass(frozen=True, slots=True)
class AxisMoments:
    """Second moments of one variable's channel by cell, their sum (`total`), and the expected shares."""

    cells: Floats
    shares: Floats

    @property
    def total(self) -> float:
        """Return t, the sum over the cells."""
        return float(self.cells.sum())


def axis_moments(channel: Channel, shares: Floats) -> AxisMoments:
    """Return the second moments of a disguised variable, for the linear map that estimates use."""
    if channel.is_identity:
        return AxisMoments(shares.copy(), shares)
    inverse = channel.inverse
    return AxisMoments(np.asarray((shares @ channel.matrix) @ inverse**2), shares)


def component_norms(sizes: Sequence[int], shares: Sequence[Floats]) -> dict[tuple[int, ...], float]:
    """Return ‖θ_u‖² for every interaction u, where θ_u is its component of a product distribution.

    Formula: the product of ‖θ_i − 1/K_i‖² over i in u and of 1/K_i over the other variables.
    """
    centred = [float(((share - 1 / size) ** 2).sum()) for size, share in zip(sizes, shares, strict=True)]
    return {
        subset: math.prod(centred[i] if i in subset else 1 / size for i, size in enumerate(sizes))
        for subset in _subsets(len(sizes))
    }


@lru_cache(maxsize=256)
def _subsets(size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(chain.from_iterable(combinations(range(size), width) for width in range(1, size + 1)))


def single_variances(holding: Sequence[tuple[float, float]], shares: Floats) -> Floats:
    """Return the variance for one record of each category's estimated share, of a variable dealt in blocks.

    Parameters
    ----------
    holding : sequence of (float, float)
        Probability and scale a of the blocks that contain the variable.
    shares : array
        Shares θ of its K categories.

    Returns
    -------
    array

    Notes
    -----
    Formula: Σ_i w_i² λ_i (1 − λ_i) / (a_i² q_i), where λ_i = a_i θ + (1 − a_i)/K is the share of a category
    in the reports of blocks i, q_i is their probability, and w_i ∝ q_i a_i² weights their estimates.
    """
    information = sum(chance * scale**2 for chance, scale in holding)
    total = np.zeros(len(shares))
    for chance, scale in holding:
        reported = scale * shares + (1 - scale) / len(shares)
        total += (chance * scale / information) ** 2 * reported * (1 - reported) / chance
    return total


@dataclass(frozen=True)
class BlockDeal:
    """Class response: each record gets k variables (probability `cells`) or differences of k + 1 binary ones.

    Formula: an interaction u of a table is estimated from all blocks that contain it, conditional on the
    number of records in each block. Each block has its scale a = (γ−1)/(γ+J−1), where J is its number of
    classes. If all blocks have J classes, the variance is (dim_u/(a²·cells) − ‖θ_u‖²)/(n·q_u), where dim_u is
    the product of K_i − 1 over i in u, cells is the number of cells of the table, and q_u is the probability
    of a block that contains u.
    """

    sizes: Mapping[str, int]
    k: int
    gamma: float
    cells: float = 1.0

    def variance(self, table: Sequence[str], shares: Mapping[str, Floats]) -> float:
        """Return the summed variance of a table's cells for one record; infinite if it is not estimable."""
        sizes = [self.sizes[name] for name in table]
        norms = component_norms(sizes, [shares[name] for name in table])
        joint = math.prod(sizes)
        total = 0.0
        for part, norm in norms.items():
            freedom = math.prod(sizes[i] - 1 for i in part)
            holding = list(self._holding([table[i] for i in part]))
            if not holding:
                return math.inf
            information = sum(chance * scale**2 for chance, scale in holding)
            for chance, scale in holding:
                weight = chance * scale**2 / information
                total += weight**2 * (freedom / (joint * scale**2) - norm) / chance
        return total

    def largest_variance(self, name: str, shares: Floats) -> float:
        """Return the largest variance of a variable's categories for one record, see `single_variances`."""
        return float(single_variances(list(self._holding([name])), shares).max())

    def chance(self, table: Sequence[str]) -> float:
        """Return the probability that a record is dealt a block of cells with all of these variables."""
        d, width = len(self.sizes), len(table)
        return (
            self.cells * math.comb(d - width, self.k - width) / math.comb(d, self.k)
            if width <= self.k
            else 0.0
        )

    def _holding(self, part: Sequence[str]) -> Iterator[tuple[float, float]]:
        """Yield (probability, scale a) of the blocks that contain an interaction, by number of classes."""
        d, width = len(self.sizes), len(part)
        if width <= self.k and self.cells > 0:
            for classes, ways in self.completions(tuple(part)).items():
                yield self.cells * ways / math.comb(d, self.k), self._scale(classes)
        if self.cells < 1 and width % 2 == 0 and width <= self.k + 1:
            ways = math.comb(d - width, self.k + 1 - width)
            yield (1 - self.cells) * ways / math.comb(d, self.k + 1), self._scale(2**self.k)

    def _scale(self, classes: int) -> float:
        return (self.gamma - 1) / (self.gamma + classes - 1)

    def completions(self, part: tuple[str, ...]) -> dict[int, int]:
        """Return the number of blocks with these variables, by their number of classes."""
        counts = _remaining(
            tuple(sorted(self.sizes.values())), tuple(sorted(self.sizes[n] for n in part)), self.k
        )
        return dict(counts)


@lru_cache(maxsize=4096)
def _remaining(sizes: tuple[int, ...], chosen: tuple[int, ...], k: int) -> tuple[tuple[int, int], ...]:
    """Return (classes, number) of the blocks of k variables that include variables of sizes `chosen`."""
    rest = list(sizes)
    for size in chosen:
        rest.remove(size)
    ways: dict[tuple[int, int], int] = {(0, math.prod(chosen)): 1}
    for size in rest:
        for (taken, classes), count in list(ways.items()):
            if taken < k - len(chosen):
                key = (taken + 1, classes * size)
                ways[key] = ways.get(key, 0) + count
    found = {classes: count for (taken, classes), count in ways.items() if taken == k - len(chosen)}
    return tuple(sorted(found.items()))
