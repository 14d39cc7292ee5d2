"""Search for the best blocks if variables differ in their numbers of categories.

Blocks of equal size waste γ when a few variables have many categories: every block with one of them has many
classes. Here each block is as large as its number of classes allows, and blocks are weighted so that the
requested tables have the least error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.plan.variance import component_norms

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOST_CLASSES = 1024  # largest number of classes of a block
POOL = 12_000  # number of blocks to choose from
KEPT = 800  # number of heaviest blocks kept in a design
ROUNDS = 300
SHARPNESS = 4  # exponent of the power mean over tables that is minimised: close to their maximum
RESOLUTION = 100  # weights are whole numbers up to this
LIGHT = 0.02  # blocks below this share of the heaviest weight are dropped
LEAST_GAIN = 1e-5  # smallest relative decrease of the error in one round


@dataclass(frozen=True)
class BlockSearch:
    """A search for the best weights of blocks, for given tables and any γ.

    Parameters
    ----------
    sizes : tuple of int
        Number of categories of each unit.
    tables : tuple of tuples of int
        The requested tables, each as the indices of its units.
    """

    sizes: tuple[int, ...]
    tables: tuple[tuple[int, ...], ...]

    @cached_property
    def pool(self) -> NDArray[np.bool_]:
        """Blocks to choose from (blocks × units): random, of many sizes, each as full as its limit allows."""
        rng = np.random.default_rng(0)  # a plan is public and must be reproducible: the seed hides nothing
        size = np.log2(np.array(self.sizes, dtype=float))
        asked = self._asked_first(rng)
        limits = rng.uniform(1.0, math.log2(MOST_CLASSES), POOL)
        blocks = np.zeros((POOL, len(self.sizes)), dtype=bool)
        for block, limit, first in zip(blocks, limits, asked, strict=True):
            room = limit
            for unit in (*first, *rng.permutation(len(self.sizes)).tolist()):
                if not block[unit] and (size[unit] <= room + 1e-9 or unit in first):
                    block[unit] = True
                    room -= size[unit]
        classes = (blocks * size).sum(axis=1)
        fitting = blocks[classes <= math.log2(MOST_CLASSES) + 1e-9]
        return np.unique(fitting, axis=0)

    def _asked_first(self, rng: np.random.Generator) -> list[tuple[int, ...]]:
        """Return the table that each block of the pool starts with; every table starts some block."""
        turns = math.ceil(POOL / len(self.tables))
        order = np.concatenate([rng.permutation(len(self.tables)) for _ in range(turns)])[:POOL]
        return [self.tables[place] for place in order.tolist()]

    @cached_property
    def interactions(self) -> list[tuple[int, ...]]:
        """The interactions within the tables: single units, pairs and so on."""
        parts = {
            part
            for table in self.tables
            for width in range(1, len(table) + 1)
            for part in combinations(sorted(table), width)
        }
        return sorted(parts, key=lambda part: (len(part), part))

    @cached_property
    def _membership(self) -> csr_array:
        """Indicator of the interactions that each block of the pool contains (blocks × interactions)."""
        from scipy.sparse import csr_array  # noqa: PLC0415  (scipy is slow to import)

        parts = [np.flatnonzero(self.pool[:, list(part)].all(axis=1)) for part in self.interactions]
        ends = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        rows = np.concatenate(parts)
        shape = (len(self.interactions), len(self.pool))
        return csr_array((np.ones(len(rows)), rows, ends), shape=shape).T.tocsr()

    @cached_property
    def _loads(self) -> csr_array:
        """Share of each interaction in the mean cell variance of each table (tables × interactions)."""
        from scipy.sparse import csr_array  # noqa: PLC0415  (scipy is slow to import)

        place = {part: index for index, part in enumerate(self.interactions)}
        values: list[float] = []
        columns: list[int] = []
        ends = [0]
        for table in self.tables:
            cells = math.prod(self.sizes[unit] for unit in table)
            for width in range(1, len(table) + 1):
                for part in combinations(sorted(table), width):
                    columns.append(place[part])
                    values.append(math.prod(self.sizes[unit] - 1 for unit in part) / cells**2)
            ends.append(len(columns))
        return csr_array((values, columns, ends), shape=(len(self.tables), len(place)))

    @property
    def possible(self) -> bool:
        """Return True if every table is within some block."""
        return bool((self._membership.sum(axis=0) > 0).all())

    def weigh(self, gamma: float) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return the blocks to deal at γ, and their integer weights.

        Formula: blocks B with probabilities p give an interaction u the information
        I_u = Σ_{B ∋ u} p_B ((γ−1)/(γ+J_B−1))², J_B the classes of B. The mean cell variance of a table is
        Σ_u c_u/I_u; its mean power over all tables is convex in p, and is minimised by multiplicative steps.
        Reference: Silvey, Titterington & Torsney (1978) for the steps.
        Cost: ROUNDS times the number of interactions within all blocks.
        """
        kept = np.ones(len(self.pool), dtype=bool)
        for _ in range(2):  # first over all blocks, then without those of very low probability
            chances = self._weigh(kept, gamma)
            order = np.flatnonzero(kept)[np.argsort(-chances, kind="stable")]
            # keep the heaviest block of each interaction
            held = self._membership[order].tocsc()
            first = order[np.minimum.reduceat(held.indices, held.indptr[:-1])]
            heavy = order[: min(KEPT, int(np.count_nonzero(chances > LIGHT * chances.max())))]
            kept = np.zeros(len(kept), dtype=bool)
            kept[np.union1d(first, heavy)] = True
        chances = self._weigh(kept, gamma)
        weights = np.maximum(np.rint(chances / chances.max() * RESOLUTION), 1).astype(np.int64)
        return self.pool[kept], weights

    def _weigh(self, chosen: NDArray[np.bool_], gamma: float) -> Floats:
        """Return the best probabilities of the chosen blocks."""
        classes = np.exp2((self.pool[chosen] * np.log2(np.array(self.sizes, dtype=float))).sum(axis=1))
        scale = ((gamma - 1) / (gamma + classes - 1)) ** 2
        held, loads = self._membership[chosen], self._loads
        turned_held, turned_loads = held.T.tocsr(), loads.T.tocsr()
        chances = np.full(len(scale), 1 / len(scale))
        best, lowest = chances, math.inf
        for _ in range(ROUNDS):
            information = turned_held @ (chances * scale)
            errors = loads @ (1 / information)
            value = float((errors**SHARPNESS).mean()) ** (1 / SHARPNESS)
            if value < lowest:
                best, lowest, gained = chances, value, lowest - value
                if gained < LEAST_GAIN * value:
                    break
            slopes = scale * (held @ ((turned_loads @ errors ** (SHARPNESS - 1)) / information**2))
            chances = chances * slopes ** (1 / (SHARPNESS + 1))
            chances /= chances.sum()
        return best


@dataclass(frozen=True)
class ListedDeal:
    """Class response with explicit blocks; the counterpart of `variance.BlockDeal`.

    Parameters
    ----------
    sizes : mapping of str to int
        Number of categories of each variable, in the order of the columns of `blocks`.
    blocks : array of bool
        The variables of each block (blocks × variables).
    weights : array of int
        Relative frequency with which each block is dealt.
    gamma : float
    """

    sizes: Mapping[str, int]
    blocks: NDArray[np.bool_]
    weights: NDArray[np.int64]
    gamma: float

    @cached_property
    def classes(self) -> NDArray[np.int64]:
        """Number of classes of each block."""
        sizes = np.array(list(self.sizes.values()), dtype=np.int64)
        return np.asarray(np.where(self.blocks, sizes, 1).prod(axis=1), dtype=np.int64)

    @cached_property
    def chances(self) -> Floats:
        """Probability of each block."""
        return np.asarray(self.weights / self.weights.sum())

    @cached_property
    def _column(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.sizes)}

    def holding(self, names: Sequence[str]) -> dict[int, float]:
        """Return the probability of blocks with all of these variables, by their number of classes."""
        held = self.blocks[:, [self._column[name] for name in names]].all(axis=1)
        numbers, places = np.unique(self.classes[held], return_inverse=True)
        return dict(zip(numbers.tolist(), np.bincount(places, self.chances[held]).tolist(), strict=True))

    def variance(self, table: Sequence[str], shares: Mapping[str, Floats]) -> float:
        """Return the summed variance of a table's cells for one record; infinite if it is not estimable."""
        sizes = [self.sizes[name] for name in table]
        norms = component_norms(sizes, [shares[name] for name in table])
        joint, total = math.prod(sizes), 0.0
        for part, norm in norms.items():
            freedom = math.prod(sizes[i] - 1 for i in part)
            holding = self.holding([table[i] for i in part])
            if not holding:
                return math.inf
            scales = {number: (self.gamma - 1) / (self.gamma + number - 1) for number in holding}
            information = sum(chance * scales[number] ** 2 for number, chance in holding.items())
            for number, chance in holding.items():
                weight = chance * scales[number] ** 2 / information
                total += weight**2 * (freedom / (joint * scales[number] ** 2) - norm) / chance
        return total
