"""Search for the structure of a Bayesian network, from any source of counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.learn.graph import (
    Family,
    Link,
    StructureRules,
    check_rules,
    checked_limit,
    checked_order,
    paths,
    placed,
)
from masquerade.learn.link_strength import LearnedStructure, link_strengths
from masquerade.learn.scores import (
    Candidates,
    Correction,
    DesignEffect,
    Penalised,
    Score,
    candidates,
    gains,
    score_called,
)

ROUNDING = 1e-9
DESIGN_EFFECT = DesignEffect()


class Step(NamedTuple):
    """A link to be judged: to `child` from `parent`, given the parents already there (all by place)."""

    child: int
    given: Family
    parent: int


@dataclass(slots=True)
class Judge:
    """Asks a source about links, a batch at a time, and keeps what each of them gains."""

    source: Tally
    names: Sequence[str]
    score: Score
    correction: Correction
    known: dict[Step, float] = field(default_factory=dict)
    tie: float = 0.0

    def learn(self, steps: Iterable[Step]) -> None:
        """Judge links that are not known yet, in one batch."""
        fresh = [step for step in dict.fromkeys(steps) if step not in self.known]
        for members, links in self._ask(fresh):
            found = gains(links, self.score, self.correction.factors(links), self.correction)
            self.known.update(zip((fresh[i] for i in members), found.tolist(), strict=True))

    def best(self, steps: Sequence[Step]) -> dict[int, tuple[float, int]]:
        """Return the largest gain and its parent for every child among `steps`, in one batch.

        A design effect is at least 1, so a penalised score gains at most what it would gain at 1: links that
        cannot win are spared their covariance. (No such bound holds for Bayesian scores.)
        """
        if not steps:
            return {}
        groups = self._ask(steps)
        bound = np.full(len(steps), np.inf)
        if isinstance(self.correction, DesignEffect) and isinstance(self.score, Penalised):
            for members, links in groups:
                bound[members] = gains(links, self.score, np.ones(len(links)), self.correction)
        children = np.array([step.child for step in steps])
        exact = np.full(len(steps), -np.inf)
        floor = np.full(len(self.names), self.tie)
        # first the likeliest parent of every child, then whoever might still beat it
        likely = np.zeros(len(steps), dtype=bool)
        likely[list({int(children[i]): int(i) for i in np.argsort(bound, kind="stable")}.values())] = True
        for turn in (likely, ~likely):
            chosen = turn & (bound > floor[children])
            for members, links in groups:
                picked = np.flatnonzero(chosen[members])
                if picked.size:
                    some = links[picked.tolist()]
                    exact[np.asarray(members)[picked]] = gains(
                        some, self.score, self.correction.factors(some), self.correction
                    )
            np.maximum.at(floor, children, exact - self.tie)
        result: dict[int, tuple[float, int]] = {}
        for step, gain in sorted(zip(steps, exact.tolist(), strict=True), key=lambda pair: pair[0].parent):
            if gain > result.get(step.child, (self.tie, -1))[0] + self.tie * (step.child in result):
                result[step.child] = (gain, step.parent)
        return result

    def _ask(self, steps: Sequence[Step]) -> list[tuple[list[int], Candidates]]:
        """Return the links, those of one shape together, with their places among `steps`."""
        if not steps:
            return []
        subsets = [tuple(sorted((*step.given, step.parent, step.child))) for step in steps]
        unique = list(dict.fromkeys(subsets))
        queries = [Query(by=[self.names[i] for i in subset]) for subset in unique]
        tables = dict(zip(unique, self.source.answer(queries), strict=True))
        self.tie = ROUNDING * next(iter(tables.values())).n
        shapes: dict[tuple[int, int, int], list[int]] = {}
        places = []
        for i, (step, subset) in enumerate(zip(steps, subsets, strict=True)):
            places.append([subset.index(v) for v in (*step.given, step.parent, step.child)])
            shape = tables[subset].values.shape
            z, x = places[-1][-2:]
            cells = tables[subset].values.size
            shapes.setdefault((cells, shape[z], shape[x]), []).append(i)
        return [
            (members, candidates([tables[subsets[i]] for i in members], [places[i] for i in members]))
            for members in shapes.values()
        ]


def structure(
    source: Tally,
    order: Sequence[str] | None = None,
    *,
    max_parents: int = 3,
    score: Score | str = "bic",
    correction: Correction = DESIGN_EFFECT,
    required: Iterable[Link] = (),
    forbidden: Iterable[Link] = (),
    tabu: int = 10,
    restarts: int = 0,
    seed: int = 0,
) -> LearnedStructure:
    """Return the structure of a Bayesian network that the counts of a source speak for.

    With an `order` (parents before children), K2: to every variable the parent that gains most is added
    until none gains. Without, hill climbing: the link added, removed or turned that gains most, going on
    through worse structures for `tabu` moves without returning to the last `tabu` ones, `restarts` times
    again from a random change of the best. Links are (parent, child) pairs.

    Formula: gains as in `scores.gains`, corrected for the noise of the counts by `correction`
    (`DesignEffect()`; the papers' `Constant(c)` and `Eta(η)`; `Uncorrected()`). Climbing needs a score of
    whole families: the sum of the gains of their parents in the order of the schema.
    Reference: Cooper & Herskovits (1992); Ma (2006) §5.5; Rao & Scott (1984) for the correction.
    Cost: K2 asks one batch for every number of parents, climbing one a move; then one for the strengths.
    Error: every link comes with its strength, see `strength.Strength`. Gains equal within 1e-9·n are ties,
    settled by the order of the schema.
    """
    names = source.schema.names
    rules = StructureRules(
        len(names),
        checked_limit(max_parents),
        frozenset(placed(required, names)),
        frozenset(placed(forbidden, names)),
    )
    check_rules(rules, names)
    judge = Judge(source, names, score_called(score), correction)
    if order is None:
        parents = climb(judge, rules, tabu=tabu, restarts=restarts, generator=np.random.default_rng(seed))
    else:
        parents = k2(judge, rules, checked_order(order, names, rules))
    found = {name: tuple(names[z] for z in family) for name, family in zip(names, parents, strict=True)}
    return LearnedStructure(
        found,
        link_strengths(source, found),
        judge.score.name,
        correction.to_dict(),
        None if order is None else tuple(order),
    )


def k2(judge: Judge, rules: StructureRules, order: Sequence[int]) -> list[Family]:
    """Add to every node the best earlier parent until none gains; all nodes take their step together."""
    parents = rules.start()
    growing = list(order)
    while growing:
        steps = [
            Step(x, parents[x], z)
            for x in growing
            if len(parents[x]) < rules.limit
            for z in order[: order.index(x)]
            if z not in parents[x] and (z, x) not in rules.forbidden
        ]
        best = judge.best(steps)
        for x, (_, z) in best.items():
            parents[x] = tuple(sorted((*parents[x], z)))
        growing = [x for x in growing if x in best]
    return parents


class Climber:
    """A structure on its way, with what every legal move would gain."""

    def __init__(self, judge: Judge, rules: StructureRules, parents: Sequence[Family]) -> None:
        self.judge, self.rules = judge, rules
        self.parents = list(parents)
        self.drop = np.full((rules.size, rules.size), -np.inf)
        self.add = np.full((rules.size, rules.size), -np.inf)
        self.free = np.ones((rules.size, rules.size), dtype=bool)
        for link in rules.required:
            self.free[link] = False
        self.refresh(range(rules.size))

    def refresh(self, nodes: Iterable[int]) -> None:
        """Find out what adding or removing a parent of the nodes gains, in one batch."""
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
            gain = self.value(x, family) - self.value(x, self.parents[x])
            (self.drop if z in self.parents[x] else self.add)[z, x] = gain

    def value(self, x: int, family: Family) -> float:
        """Return the score of a family over that of no parents."""
        return sum(self.judge.known[step] for step in steps_of(x, family))

    def total(self) -> float:
        """Return the score of the structure over that of no links."""
        return sum(self.value(x, family) for x, family in enumerate(self.parents))

    def moves(self) -> Floats:
        """Return the gain of every move: (remove, add, turn) × parent × child, −∞ where not allowed."""
        size = self.rules.size
        linked = np.zeros((size, size))
        for x, family in enumerate(self.parents):
            linked[list(family), x] = 1.0
        reach = paths(linked)
        drop = np.where(self.free, self.drop, -np.inf)
        add = np.where(reach.T > 0, -np.inf, self.add)
        # a link can be turned if it is the only path from its parent to its child
        only = (linked > 0) & (linked @ reach == 1)
        turn = np.where(only & self.free, self.drop, -np.inf) + np.where(only, self.add.T, -np.inf)
        return np.stack([drop, add, turn])

    def apply(self, move: tuple[int, int, int]) -> None:
        """Make a move."""
        self.parents = moved(self.parents, move)
        self.refresh([move[2]] if move[0] < 2 else [move[1], move[2]])


def climb(
    judge: Judge, rules: StructureRules, *, tabu: int, restarts: int, generator: np.random.Generator
) -> list[Family]:
    """Make the best move that does not return to a recent structure, until too many brought nothing new.

    Then start again from a random change of the best structure, as often as told.
    """
    best, most = rules.start(), -np.inf
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
    """Return the move that gains most, at least `least`, and leads to no recent structure."""
    gain = climber.moves()
    while True:
        largest = gain.max(initial=-np.inf)
        if largest <= least:
            return None
        first = np.flatnonzero(gain.ravel() >= largest - climber.judge.tie)[0]
        move = as_move(np.array(np.unravel_index(first, gain.shape)))
        if tuple(moved(climber.parents, move)) not in recent:
            return move
        gain[move] = -np.inf


def as_move(place: NDArray[np.intp]) -> tuple[int, int, int]:
    """Return (remove 0, add 1 or turn 2; parent; child)."""
    kind, z, x = (int(value) for value in place)
    return kind, z, x


def moved(parents: Sequence[Family], move: tuple[int, int, int]) -> list[Family]:
    """Return the parents after a move."""
    kind, z, x = move
    after = list(parents)
    after[x] = (
        tuple(sorted((*after[x], z))) if kind == 1 else tuple(other for other in after[x] if other != z)
    )
    if kind == 2:
        after[z] = tuple(sorted((*after[z], x)))
    return after


def steps_of(x: int, family: Family) -> list[Step]:
    """Return the links that make up a family, its parents in order."""
    return [Step(x, family[:i], z) for i, z in enumerate(family)]
