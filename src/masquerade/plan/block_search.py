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
from itertools import combinations, combinations_with_replacement, groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.plan.variance import component_norms, single_variances

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
        Number of categories of each unit. A unit is a variable, or several variables that are always dealt
        together.
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
        smallest, log_sizes = float(size.min()), size.tolist()
        blocks = np.zeros((POOL, len(self.sizes)), dtype=bool)
        for block, limit, first in zip(blocks, limits.tolist(), asked, strict=True):
            room, units = limit, dict.fromkeys(first)
            for unit in units:
                room -= log_sizes[unit]
            for unit in rng.permutation(len(self.sizes)).tolist():
                if smallest > room + 1e-9:
                    break  # no further unit fits
                if unit not in units and log_sizes[unit] <= room + 1e-9:
                    units[unit] = None
                    room -= log_sizes[unit]
            block[list(units)] = True
        classes = (blocks * size).sum(axis=1)
        fitting = blocks[classes <= math.log2(MOST_CLASSES) + 1e-9]
        packed = np.packbits(fitting, axis=1)  # in the same order as the rows, and faster to sort
        _, kept = np.unique(packed.view(f"S{packed.shape[1]}").ravel(), return_index=True)
        return np.asarray(fitting[kept])

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

        parts, counts = [], []
        for prefix, group in groupby(self.interactions, key=lambda part: part[:-1]):
            blocks = np.flatnonzero(self.pool[:, list(prefix)].all(axis=1))
            held = self.pool[blocks][:, [part[-1] for part in group]]
            counts.append(np.count_nonzero(held, axis=0))
            parts.append(blocks[held.T.nonzero()[1]])
        ends = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
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
        if not self._pairs_possible:
            return False
        if max(map(len, self.tables)) <= 2:
            return True
        return bool((self._membership.sum(axis=0) > 0).all())

    @cached_property
    def _pairs_possible(self) -> bool:
        """Return True if the two units of every pair within a table are within some block."""
        from scipy.sparse import csr_array  # noqa: PLC0415  (scipy is slow to import)

        held = csr_array(self.pool.astype(np.int32))
        first, second = (held.T @ held).nonzero()  # a unit is paired with itself too
        known = np.unique(first.astype(np.int64) * len(self.sizes) + second)
        for width in {len(table) for table in self.tables}:
            members = np.array([table for table in self.tables if len(table) == width])
            for i, j in combinations_with_replacement(range(width), 2):
                asked = members[:, i] * len(self.sizes) + members[:, j]
                if not np.isin(asked, known).all():
                    return False
        return True

    def weigh(self, gamma: float) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return the blocks to deal at γ, and their integer weights.

        Formula: blocks B with probabilities p give an interaction u the information
        I_u = Σ_{B ∋ u} p_B ((γ−1)/(γ+J_B−1))², J_B the classes of B. The mean cell variance of a table is
        Σ_u c_u/I_u, c_u = Π_{i ∈ u} (K_i − 1) / (number of cells)². The power mean of these variances over
        all tables (exponent SHARPNESS) is convex in p, and is minimised by multiplicative steps.
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
    def _class_codes(self) -> tuple[list[int], NDArray[np.int64]]:
        """The numbers of classes that occur, and the index of each block's number."""
        numbers, codes = np.unique(self.classes, return_inverse=True)
        return numbers.tolist(), codes

    @cached_property
    def _squared_scales(self) -> dict[int, float]:
        """The squared scale of a block, by its number of classes."""
        return {
            number: ((self.gamma - 1) / (self.gamma + number - 1)) ** 2 for number in self._class_codes[0]
        }

    @cached_property
    def _rows(self) -> list[NDArray[np.int64]]:
        """The blocks that contain each variable."""
        return [np.flatnonzero(column) for column in self.blocks.T]

    @cached_property
    def _within(self) -> dict[tuple[str, ...], dict[int, float]]:
        """Results of `holding` for the interactions that several tables share."""
        return {}

    @cached_property
    def _column(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.sizes)}

    def holding(self, names: Sequence[str]) -> dict[int, float]:
        """Return the probability of blocks with all of these variables, by their number of classes."""
        columns = [self._column[name] for name in names]
        held = self._rows[columns[0]]
        for column in columns[1:]:
            held = held[self.blocks[held, column]]
        numbers, codes = self._class_codes
        codes = codes[held]
        counts = np.bincount(codes, minlength=len(numbers)).tolist()
        chances = np.bincount(codes, self.chances[held], minlength=len(numbers)).tolist()
        return {
            number: chance for number, chance, count in zip(numbers, chances, counts, strict=True) if count
        }

    def _holding_within(self, names: tuple[str, ...]) -> dict[int, float]:
        """Return `holding`, stored for the next table that contains these variables."""
        if names not in self._within:
            self._within[names] = self.holding(names)
        return self._within[names]

    def variance(self, table: Sequence[str], shares: Mapping[str, Floats]) -> float:
        """Return the summed variance of a table's cells for one record; infinite if it is not estimable."""
        sizes = [self.sizes[name] for name in table]
        norms = component_norms(sizes, [shares[name] for name in table])
        joint, total = math.prod(sizes), 0.0
        for part, norm in norms.items():
            freedom = math.prod(sizes[i] - 1 for i in part)
            names = tuple(table[i] for i in part)
            holding = self._holding_within(names) if len(part) < len(table) else self.holding(names)
            if not holding:
                return math.inf
            squares = self._squared_scales
            information = sum(chance * squares[number] for number, chance in holding.items())
            for number, chance in holding.items():
                weight = chance * squares[number] / information
                total += weight**2 * (freedom / (joint * squares[number]) - norm) / chance
        return total

    def largest_variance(self, name: str, shares: Floats) -> float:
        """Return the largest variance of a variable's categories for one record, see `single_variances`."""
        squares = self._squared_scales
        holding = [(chance, squares[number] ** 0.5) for number, chance in self.holding([name]).items()]
        return float(single_variances(holding, shares).max())
