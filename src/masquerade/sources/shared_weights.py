"""Plans whose records have almost the same weights: conditions that differ become axes of one table.

A tree asks for the same table under conditions that differ in one or two variables. The weights of the other
conditions are multiplied once, and the table is counted together with the reports of the variables that
differ. Each plan's sums follow from this table, as marginals follow from a joint table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from masquerade.core.axes import Floats
from masquerade.kernels.count import WeightedTable
from masquerade.sources.query_plan import Factor, QueryPlan

FEWEST_SHARED = 2  # a condition becomes an axis if at least this many plans share their other conditions
Columns = tuple[str, ...]


class WeightedPass(NamedTuple):
    """One table to count: its columns, the conditions kept as weights, and the columns of opened conditions.

    A kept condition is given by the number of its factor.
    """

    columns: Columns
    kept: tuple[int, ...]
    opened: tuple[Columns, ...]

    @property
    def all_columns(self) -> Columns:
        """Return the columns of the table: those of the plan, then those of the opened conditions."""
        return (*self.columns, *(name for columns in self.opened for name in columns))


class SharedWeights:
    """The passes over the records that plans with conditions need, as few as possible.

    Passes are found in rounds. Each round opens one condition of every plan: the condition whose omission
    leaves the largest number of plans with equal weights. A round divides the number of passes by at most a
    variable's number of categories.

    Parameters
    ----------
    plans : sequence of QueryPlan
        Plans of queries about the same records.
    most : int
        Most cells of a table with opened conditions.
    """

    def __init__(self, plans: Sequence[QueryPlan], most: int) -> None:
        numbers: dict[tuple[Columns, object], int] = {}
        self.plans = plans
        self.factors: list[Factor] = []
        self._numbers: list[tuple[int, ...]] = []
        for plan in plans:
            own = []
            for factor in plan.factors:
                number = numbers.setdefault((factor.columns, factor.given), len(self.factors))
                if number == len(self.factors):
                    self.factors.append(factor)
                own.append(number)
            self._numbers.append(tuple(own))
        self._cells = {factor.columns: prod(factor.sizes) for factor in self.factors}
        self.passes = self._find_passes(most)

    def groups(self) -> Iterator[tuple[list[WeightedPass], list[Factor], list[int]]]:
        """Yield passes whose records have equal weights, the factors of the weights, and the plan numbers."""
        members: dict[tuple[int, ...], list[int]] = {}
        for i, one in enumerate(self.passes):
            members.setdefault(one.kept, []).append(i)
        for kept, served in members.items():
            different = list(dict.fromkeys(self.passes[i] for i in served))
            yield different, [self.factors[number] for number in kept], served

    def sums(self, i: int, table: WeightedTable) -> tuple[Floats, Floats, Floats]:
        """Return the sums of plan number `i` from the table of its pass."""
        plan, one = self.plans[i], self.passes[i]
        opened = {
            factor.columns: factor
            for number, factor in zip(self._numbers[i], plan.factors, strict=True)
            if number not in one.kept
        }
        factors = [opened[columns] for columns in one.opened]
        shape = (*plan.observed_shape, *(prod(factor.sizes) for factor in factors))
        firsts, squares, fixed = (np.asarray(sums).reshape(shape) for sums in table)
        for factor in reversed(factors):
            firsts, squares = firsts @ factor.vector, squares @ factor.vector**2
            fixed = fixed @ factor.vector
        return plan.lump(np.asarray(firsts)), plan.lump(np.asarray(squares)), plan.lump(np.asarray(fixed))

    def _find_passes(self, most: int) -> list[WeightedPass]:
        passes = [
            WeightedPass(plan.columns, own, ()) for plan, own in zip(self.plans, self._numbers, strict=True)
        ]
        cells = {plan.columns: prod(plan.observed_shape) for plan in self.plans}
        replaced = {one: one for one in passes}
        open_passes = list(replaced)
        while open_passes:
            wider = {one: self._open(one, most // max(cells[one.columns], 1)) for one in open_passes}
            shared = Counter(new for options in wider.values() for new in options)
            choice: dict[WeightedPass, WeightedPass] = {}
            for one, options in wider.items():
                best = max(options, key=shared.__getitem__, default=None)
                if best is not None and shared[best] >= FEWEST_SHARED:
                    choice[one] = best
            replaced = {one: choice.get(now, now) for one, now in replaced.items()}
            open_passes = list(dict.fromkeys(choice.values()))
        return [replaced[one] for one in passes]

    def _open(self, one: WeightedPass, most: int) -> list[WeightedPass]:
        """Return the passes with one more condition opened, if their tables are not too large.

        `most` limits the product of the numbers of cells of the opened conditions.
        """
        room = most // prod([self._cells[columns] for columns in one.opened])
        return [
            WeightedPass(
                one.columns,
                one.kept[:place] + one.kept[place + 1 :],
                tuple(sorted((*one.opened, self.factors[number].columns))),
            )
            for place, number in enumerate(one.kept)
            if self._cells[self.factors[number].columns] <= room
        ]
