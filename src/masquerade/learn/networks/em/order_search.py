"""Search for the best structure over the orders of the variables, for a score of families."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from masquerade.learn.networks.em.completed_records import CompletedRecords
from masquerade.learn.networks.graph import Family, StructureRules

MOST_CANDIDATES = 9  # candidate parents of a variable, its present neighbours among them
FEWEST_NEW = 4  # least number of candidates that are not neighbours
MOST_GROWN = 24  # variables tried as further parents: those with the largest gains as single parents
GROWN_FROM = 2  # a family is grown from no parent, and from each of the best single parents
TRIES = 20  # changes of the best order, after each of which the search descends again
KICKS = 4  # variables that are moved in such a change
LEAST_GAIN = 1e-6


class ScoredFamily(NamedTuple):
    """Parents of a variable, as bits and as indices, with their score."""

    score: float
    bits: int
    family: Family


class OrderSearch:
    """Search for the structure with the largest sum of scores of families, over the orders of the variables.

    Given an order, the best parents of each variable are those with the largest score among its predecessors.
    A move takes a variable to another place. Moves are made until none raises the score; then `KICKS`
    variables are moved at random, `TRIES` times, from the best order.

    Parameters
    ----------
    records : CompletedRecords
        Records in which families are scored.
    rules : StructureRules
        Constraints.
    price : float
        Penalty of a parameter.
    start : sequence of families
        Present parents of every variable; they and the children stay candidates.

    Notes
    -----
    Reference: Teyssier & Koller (2005), Ordering-based search; Lee & van Beek (2017) for the moves.
    Cost: scores of up to C(`MOST_CANDIDATES`, 3) families of every variable.
    """

    def __init__(
        self, records: CompletedRecords, rules: StructureRules, price: float, start: Sequence[Family]
    ) -> None:
        self.records, self.rules, self.price = records, rules, price
        self.required = rules.start()
        self.families = [self._families(x, self._candidates(x, start)) for x in range(rules.size)]
        self.order = order_of(start)

    def score(self, x: int, family: Family) -> float:
        """Return the penalised log-likelihood of a variable given its parents."""
        return self.records.log_likelihood(x, family) - self.price * self.records.dimension(x, family)

    def best(self, generator: np.random.Generator) -> list[Family]:
        """Return the parents of every variable in the best structure found."""
        order, most = self._climb(self.order)
        for _ in range(TRIES if self.rules.size > 1 else 0):
            changed = list(order)
            for _ in range(KICKS):
                x = changed.pop(int(generator.integers(len(changed))))
                changed.insert(int(generator.integers(len(changed) + 1)), x)
            if self._total(changed) == -math.inf:  # a required link contradicts it
                continue
            changed, total = self._climb(changed)
            if total > most + LEAST_GAIN:
                order, most = changed, total
        parents: list[Family] = [()] * len(order)
        above = 0
        for x in order:
            parents[x] = self._pick(x, above).family
            above |= 1 << x
        return parents

    def _candidates(self, x: int, start: Sequence[Family]) -> list[int]:
        """Return candidate parents: present neighbours, those of grown families, and the best alone."""
        allowed = [z for z in range(self.rules.size) if z != x and (z, x) not in self.rules.forbidden]
        if not self.rules.limit:
            return []
        alone = {z: self.score(x, (z,)) for z in allowed}
        ranked = sorted(allowed, key=lambda z: (-alone[z], z))
        chosen = dict.fromkeys([*start[x], *(z for z in allowed if x in start[z])])
        most = max(MOST_CANDIDATES, len(chosen) + FEWEST_NEW)
        grown = [
            z
            for first in [(), *((z,) for z in ranked[:GROWN_FROM])]
            for z in self._grow(x, first, ranked[:MOST_GROWN])
        ]
        for z in [*grown, *ranked]:
            if len(chosen) < most:
                chosen.setdefault(z)
        return sorted(chosen)

    def _grow(self, x: int, family: Family, among: Sequence[int]) -> Family:
        """Add the best parents to a family until none raises its score, and return it."""
        while len(family) < self.rules.limit:
            grown = [tuple(sorted((*family, z))) for z in among if z not in family]
            best = max(grown, key=lambda one: self.score(x, one), default=family)
            if self.score(x, best) <= self.score(x, family):
                break
            family = best
        return family

    def _families(self, x: int, candidates: Sequence[int]) -> list[ScoredFamily]:
        """Return the families of a variable, the best first, except families with a better subset."""
        most: dict[Family, float] = {}
        found = []
        required = set(self.required[x])
        for size in range(self.rules.limit + 1):
            for family in combinations(candidates, size):
                within = max((most[family[:at] + family[at + 1 :]] for at in range(size)), default=-math.inf)
                score = self.score(x, family) if required <= set(family) else -math.inf
                if score > within:
                    found.append(ScoredFamily(score, sum(1 << z for z in family), family))
                most[family] = max(score, within)
        return sorted(found, key=lambda one: (-one.score, len(one.family), one.family))

    def _pick(self, x: int, above: int) -> ScoredFamily:
        """Return the best family of a variable among its predecessors; −∞ if required parents are missing."""
        rest = ~above
        for one in self.families[x]:
            if not one.bits & rest:
                return one
        return ScoredFamily(-math.inf, 0, ())

    def _total(self, order: Sequence[int]) -> float:
        total, above = 0.0, 0
        for x in order:
            total += self._pick(x, above).score
            above |= 1 << x
        return total

    def _climb(self, order: Sequence[int]) -> tuple[list[int], float]:
        """Return the order after moves of one variable to another place, until none raises the score."""
        order = list(order)
        is_better = True
        while is_better:
            is_better = False
            for x in list(order):
                place, target = order.index(x), self._best_place(order, x)
                if target != place:
                    order.insert(target, order.pop(place))
                    is_better = True
        return order, self._total(order)

    def _best_place(self, order: Sequence[int], x: int) -> int:
        """Return the place of a variable that raises the score most."""
        above = [0]
        for y in order:
            above.append(above[-1] | 1 << y)
        scores = [self._pick(y, above[at]).score for at, y in enumerate(order)]
        place, bit = order.index(x), 1 << x
        best, most = place, LEAST_GAIN
        change = 0.0
        for at in range(place - 1, -1, -1):
            change += self._pick(order[at], above[at] | bit).score - scores[at]
            gain = change + self._pick(x, above[at]).score - scores[place]
            if gain > most:
                best, most = at, gain
        change = 0.0
        for at in range(place + 1, len(order)):
            change += self._pick(order[at], above[at] & ~bit).score - scores[at]
            gain = change + self._pick(x, above[at + 1] & ~bit).score - scores[place]
            if gain > most:
                best, most = at, gain
        return best


def order_of(parents: Sequence[Family]) -> list[int]:
    """Return an order with parents first, by index where there is a choice."""
    order: list[int] = []
    above = 0
    while len(order) < len(parents):
        for x, family in enumerate(parents):
            if not above >> x & 1 and all(above >> z & 1 for z in family):
                order.append(x)
                above |= 1 << x
                break
        else:
            raise AssertionError("the structure has a cycle")
    return order
