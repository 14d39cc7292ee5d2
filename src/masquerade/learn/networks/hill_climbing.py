"""Hill climbing over structures, for any score of families."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.learn.networks.graph import Family, StructureRules, paths


class CandidateLink(NamedTuple):
    """A candidate link from `parent` to `child`, given the existing parents (all by index)."""

    child: int
    given: Family
    parent: int


class StructureScore(Protocol):
    """Scores of a node with its parents, which add up to the score of a structure."""

    @property
    def tie(self) -> float:
        """Return the difference up to which two scores are equal."""

    def learn(self, steps: Iterable[CandidateLink]) -> None:
        """Prepare the scores of families that differ by these links, in one batch."""

    def value(self, x: int, family: Family) -> float:
        """Return the score of a family."""


class Climber:
    """A structure during hill climbing, with the gain of every legal move."""

    def __init__(self, judge: StructureScore, rules: StructureRules, parents: Sequence[Family]) -> None:
        self.judge, self.rules = judge, rules
        self.parents = list(parents)
        self.drop = np.full((rules.size, rules.size), -np.inf)
        self.add = np.full((rules.size, rules.size), -np.inf)
        self.free = np.ones((rules.size, rules.size), dtype=bool)
        for link in rules.required:
            self.free[link] = False
        self.refresh(range(rules.size))

    def refresh(self, nodes: Iterable[int]) -> None:
        """Compute the gains of adding or removing a parent of the nodes, in one batch."""
        changes: list[tuple[int, int, Family]] = []
        for x in nodes:
            family = self.parents[x]
            self.drop[:, x] = self.add[:, x] = -np.inf
            changes += [(z, x, tuple(other for other in family if other != z)) for z in family]
            if len(family) < self.rules.limit:
                changes += [
                    (z, x, tuple(sorted((*family, z))))
                    for z in range(self.rules.size)
                    if z != x and z not in family and (z, x) not in self.rules.forbidden
                ]
        families = [(x, family) for _, x, family in changes] + [(x, self.parents[x]) for x in nodes]
        self.judge.learn(step for x, family in families for step in steps_of(x, family))
        for z, x, family in changes:
            gain = self.judge.value(x, family) - self.judge.value(x, self.parents[x])
            (self.drop if z in self.parents[x] else self.add)[z, x] = gain

    def total(self) -> float:
        """Return the score of the structure relative to no links."""
        return sum(self.judge.value(x, family) for x, family in enumerate(self.parents))

    def moves(self) -> Floats:
        """Return the gain of every move: (remove, add, reverse) × parent × child, −∞ where not allowed."""
        size = self.rules.size
        reach = paths(self.parents)
        drop = np.where(self.free, self.drop, -np.inf)
        add = np.where(reach.T, -np.inf, self.add)
        # a link can be reversed if it is the only path from its parent to its child
        only = np.zeros((size, size), dtype=bool)
        children: list[list[int]] = [[] for _ in range(size)]
        for x, family in enumerate(self.parents):
            for z in family:
                children[z].append(x)
        for x, family in enumerate(self.parents):
            for z in family:
                only[z, x] = np.count_nonzero(reach[children[z], x]) == 1
        turn = np.where(only & self.free, self.drop, -np.inf) + np.where(only, self.add.T, -np.inf)
        return np.stack([drop, add, turn])

    def apply(self, move: tuple[int, int, int]) -> None:
        """Make a move."""
        self.parents = apply_move(self.parents, move)
        self.refresh([move[2]] if move[0] < 2 else [move[1], move[2]])


def climb(
    judge: StructureScore,
    rules: StructureRules,
    *,
    tabu: int,
    restarts: int = 0,
    generator: np.random.Generator,
    start: Sequence[Family] | None = None,
) -> list[Family]:
    """Climb by the best moves until more than `tabu` in a row bring no gain; revisit no recent structure.

    Then restart from a random change of the best structure, `restarts` times. The climb begins at `start`, or
    with the required links alone.
    """
    best, most = rules.start() if start is None else list(start), -np.inf
    for attempt in range(restarts + 1):
        climber = Climber(judge, rules, best)
        for _ in range(rules.size // 2 + 1 if attempt else 0):
            allowed = np.argwhere(np.isfinite(climber.moves()))
            if len(allowed):
                climber.apply(as_move(allowed[generator.integers(len(allowed))]))
        recent: deque[tuple[Family, ...]] = deque(maxlen=max(tabu, 1))
        peak, idle = -np.inf, -1
        while idle <= tabu:
            total = climber.total()
            peak, idle = (total, 0) if total > peak + judge.tie else (peak, idle + 1)
            if total > most + judge.tie:
                best, most = list(climber.parents), total
            recent.append(tuple(climber.parents))
            move = next_move(climber, recent, least=-np.inf if tabu else judge.tie)
            if move is None:
                break
            climber.apply(move)
    return best


def next_move(
    climber: Climber, recent: Iterable[tuple[Family, ...]], least: float
) -> tuple[int, int, int] | None:
    """Return the move with the largest gain, above `least`, that does not lead to a recent structure."""
    gain = climber.moves()
    while True:
        largest = gain.max(initial=-np.inf)
        if largest <= least:
            return None
        first = np.flatnonzero(gain.ravel() >= largest - climber.judge.tie)[0]
        move = as_move(np.array(np.unravel_index(first, gain.shape)))
        if tuple(apply_move(climber.parents, move)) not in recent:
            return move
        gain[move] = -np.inf


def as_move(place: NDArray[np.intp]) -> tuple[int, int, int]:
    """Return (remove 0, add 1 or reverse 2; parent; child)."""
    kind, z, x = (int(value) for value in place)
    return kind, z, x


def apply_move(parents: Sequence[Family], move: tuple[int, int, int]) -> list[Family]:
    """Return the parents after a move."""
    kind, z, x = move
    after = list(parents)
    after[x] = (
        tuple(sorted((*after[x], z))) if kind == 1 else tuple(other for other in after[x] if other != z)
    )
    if kind == 2:
        after[z] = tuple(sorted((*after[z], x)))
    return after


def steps_of(x: int, family: Family) -> list[CandidateLink]:
    """Return the candidate links within a family and all of its subsets."""
    return [
        CandidateLink(x, tuple(other for other in some if other != z), z)
        for size in range(1, len(family) + 1)
        for some in combinations(family, size)
        for z in some
    ]
