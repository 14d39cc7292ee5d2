"""Search for the structure of a Bayesian network, from any source of counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, zip_longest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.link_fits import LinkTally, Places
from masquerade.core.query import Query
from masquerade.core.tally import Tally, check_source
from masquerade.learn.networks._candidates import Candidates, LaidOut
from masquerade.learn.networks.graph import (
    Family,
    Link,
    StructureRules,
    check_rules,
    checked_limit,
    checked_order,
    paths,
    placed,
)
from masquerade.learn.networks.link_strength import LearnedStructure, link_strengths
from masquerade.learn.networks.scores import (
    Correction,
    Likelihood,
    Penalised,
    Score,
    correction_called,
    score_called,
)

ROUNDING = 1e-9
LARGE = 1 << 14  # cells of a table that may be ruled out by the number of records
MOST_TOGETHER = 1 << 25  # cells of tables that are judged in one batch: 256 MiB
LIKELIHOOD = Likelihood()


class Step(NamedTuple):
    """A link to be judged: to `child` from `parent`, given the parents already there (all by place)."""

    child: int
    given: Family
    parent: int


class Judge:
    """Asks a source about links, a batch at a time, and keeps what each of them gains.

    Variables stand in the order of their names, whatever their order in the schema, and so do the axes of
    every table: what is learnt does not depend on how the variables of a policy are listed.
    """

    def __init__(self, source: Tally, score: Score, correction: Correction) -> None:
        self.source, self.score, self.correction = source, score, correction
        self.names = sorted(source.schema)
        self.sizes = [len(source.schema[name]) for name in self.names]
        # D(X, Z | J) is D(Z, X | J): one fit serves both directions, and both are equal to the last digit
        self.symmetric = isinstance(score, Penalised) and isinstance(correction, Likelihood)
        self.gain: dict[Step, float] = {}
        self.family: dict[tuple[int, Family], float] = {}
        self.n, self.tie = 0, 0.0

    def learn(self, steps: Iterable[Step]) -> None:
        """Judge links that are not known yet, in one batch; what cannot gain is valued at its bound."""
        fresh = [step for step in dict.fromkeys(map(self.either, steps)) if step not in self.gain]
        self._count_records(fresh)
        most = self._most(fresh).tolist()
        self.gain.update({step: bound for step, bound in zip(fresh, most, strict=True) if bound <= 0})
        hopeful = [step for step, bound in zip(fresh, most, strict=True) if bound > 0]
        for asked in self._held_together(hopeful):
            found = self._gains(self._ask(asked), np.zeros(len(asked)))
            self.gain.update(zip(asked, found.tolist(), strict=True))

    def value(self, x: int, family: Family) -> float:
        """Return what a family is worth over no parents, all links within it being known.

        Formula: V(F) = min over z ∈ F of V(F∖z) + gain(X ← z | F∖z), V(∅) = 0. Of clear counts every order of
        the parents gives the same sum. Of noisy reports it does not: a good copy of a noisily disguised
        parent, taken first, would keep its own gain beside the parent's. With the least sum, joining a
        family never brings more than the link gains given all the others.
        """
        if not family:
            return 0.0
        known = self.family.get((x, family))
        if known is None:
            rests = [(z, tuple(other for other in family if other != z)) for z in family]
            known = min(self.value(x, rest) + self.gain[self.either(Step(x, rest, z))] for z, rest in rests)
            self.family[x, family] = known
        return known

    def best(self, steps: Sequence[Step]) -> dict[int, tuple[float, int]]:
        """Return the largest gain and its parent for every child among `steps`, in one batch.

        Links that cannot win by their bound are not judged any further.
        """
        self._count_records(steps)
        floor = np.full(len(self.names), -np.inf)
        judged: list[tuple[Step, float]] = []
        most = self._most(steps).tolist()
        hopeful = [step for step, bound in zip(steps, most, strict=True) if bound > self.tie]
        for some in self._held_together(hopeful):
            links = self._ask(some)
            floor = np.maximum(floor, self.tie)
            bound = self._bounds(links)
            children = np.array([step.child for step in some])
            exact = np.full(len(some), -np.inf)
            # first the likeliest parent of every child, then whoever might still beat it
            likely = np.zeros(len(some), dtype=bool)
            likely[list({int(children[i]): int(i) for i in np.argsort(bound, kind="stable")}.values())] = True
            for turn in (likely, ~likely):
                chosen = np.flatnonzero(turn & (bound > floor[children]))
                if chosen.size:
                    least = floor[children[chosen]]
                    exact[chosen] = self._gains(links[chosen.tolist()], least)
                np.maximum.at(floor, children, exact - self.tie)
            judged += zip(some, exact.tolist(), strict=True)
        result: dict[int, tuple[float, int]] = {}
        for step, gain in sorted(judged, key=lambda pair: pair[0].parent):
            if gain > result.get(step.child, (self.tie, -1))[0] + self.tie * (step.child in result):
                result[step.child] = (gain, step.parent)
        return result

    def either(self, step: Step) -> Step:
        """Return the link, or its reverse where both gain the same and that is the one to be judged."""
        if self.symmetric and step.child < step.parent:
            return Step(step.parent, step.given, step.child)
        return step

    def _bounds(self, links: Candidates | LaidOut) -> Floats:
        """Return what each link gains at most."""
        if isinstance(links, LaidOut):
            return self._gains(links, np.full(len(links), np.inf))
        return self.correction.bounds(links, self.score)

    def _gains(self, links: Candidates | LaidOut, least: Floats) -> Floats:
        """Return what each link gains, or a bound not above `least`."""
        if isinstance(links, LaidOut):
            assert isinstance(self.score, Penalised)  # noqa: S101  (others are asked for tables)
            return LIKELIHOOD.penalised(links, self.score, least)
        return self.correction.gains(links, self.score, least)

    def _most(self, steps: Sequence[Step]) -> Floats:
        """Return what links gain at most by the number of records and of categories alone.

        The likelihood gains at most the mutual information of the most likely table, n·log min(K_x, K_z).
        """
        if not steps or not self.symmetric or not self.n or not isinstance(self.score, Penalised):
            return np.full(len(steps), np.inf)
        sizes = self._sizes(self._members(steps))
        ends = _ends(sizes, steps)
        return np.asarray(
            self.n * np.log(ends.min(axis=1)) - self.score.price(self.n) * _freedom(sizes, ends)
        )

    @staticmethod
    def _members(steps: Sequence[Step]) -> Places:
        """Return the places of every link's variables, (given …, parent, child), then −1."""
        rows = [(*step.given, step.parent, step.child) for step in steps]
        return np.array([*zip_longest(*rows, fillvalue=-1)], dtype=np.int64).T

    def _sizes(self, members: Places) -> Floats:
        """Return the numbers of categories: as floats, since their products may be beyond integers."""
        return np.array([*self.sizes, 1.0])[members]

    def _held_together(self, steps: Sequence[Step]) -> Iterator[list[Step]]:
        """Yield links in parts whose tables have at most so many cells, most often all of them at once."""
        if not steps:
            return
        some, cells = list[Step](), 0.0
        for step, own in zip(steps, self._sizes(self._members(steps)).prod(axis=1).tolist(), strict=True):
            if some and cells + own > MOST_TOGETHER:
                yield some
                some, cells = [], 0.0
            some.append(step)
            cells += own
        yield some

    def _count_records(self, steps: Sequence[Step]) -> None:
        """Ask how many records there are, before large tables that their number may rule out."""
        if not self.symmetric or self.n or not steps:
            return
        if self._sizes(self._members(steps)).prod(axis=1).max() > LARGE:
            smallest = self.names[int(np.argmin(self.sizes))]
            [table] = self.source.answer([Query(by=[smallest])])
            self.n, self.tie = table.n, ROUNDING * table.n

    def _ask(self, steps: Sequence[Step]) -> Candidates | LaidOut:
        links = self._laid_out(steps) or self._tables(steps)
        self.n, self.tie = links.n, ROUNDING * links.n
        return links

    def _laid_out(self, steps: Sequence[Step]) -> LaidOut | None:
        """Return links that the source counts and fits without a table for each, None if it does not."""
        if not self.symmetric or not isinstance(self.source, LinkTally):
            return None
        members = self._members(steps)
        batch = self.source.links(self.names, members)
        if batch is None:
            return None
        sizes = self._sizes(members)
        return LaidOut(batch, _freedom(sizes, _ends(sizes, steps)))

    def _tables(self, steps: Sequence[Step]) -> Candidates:
        subsets = [tuple(sorted((*step.given, step.parent, step.child))) for step in steps]
        unique = list(dict.fromkeys(subsets))
        queries = [Query(by=[self.names[i] for i in subset]) for subset in unique]
        tables = dict(zip(unique, self.source.answer(queries), strict=True))
        places = [
            [subset.index(v) for v in (*step.given, step.parent, step.child)]
            for step, subset in zip(steps, subsets, strict=True)
        ]
        return Candidates([tables[subset] for subset in subsets], places)


def _ends(sizes: Floats, steps: Sequence[Step]) -> Floats:
    """Return the numbers of categories of every link's parent and child."""
    at = [[len(step.given), len(step.given) + 1] for step in steps]
    return np.take_along_axis(sizes, np.array(at), axis=1)


def _freedom(sizes: Floats, ends: Floats) -> Floats:
    """Return the degrees of freedom that links add: J(K_z − 1)(K_x − 1)."""
    return np.asarray(sizes.prod(axis=1) / ends.prod(axis=1) * (ends - 1).prod(axis=1))


def structure(
    source: Tally,
    order: Sequence[str] | None = None,
    *,
    max_parents: int = 3,
    score: Score | str = "bic",
    correction: Correction | str = LIKELIHOOD,
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

    Formula: the gain of a link is that of the likelihood of the reports, less a price (`Likelihood`); other
    rules for `correction` are `DesignEffect()`, the papers' `Constant(c)` and `Eta(η)`, and `Uncorrected()`,
    or as the command takes them: "design-effect", "constant:4", "eta:0.99", "none".
    Climbing needs a score of whole families: see `Judge.value`.
    Reference: Cooper & Herskovits (1992); Ma (2006) §5.5; Haberman (1974) for the likelihood.
    Cost: K2 asks one batch for every number of parents, climbing one a move; then one for the strengths.
    Error: every link comes with its strength, see `link_strength.Strength`. Gains equal within 1e-9·n are
    ties, settled by the names: the order of the variables in the schema changes nothing.

    >>> found = mq.learn.structure(mq.tally(mq.data.students()))
    >>> print(found.summary())
    4 nodes, 3 links by hill climbing, score bic, likelihood
    link             deviance      df     p-value
    pills → sleep        74.2     1.0     1.2e-18
    exams → pills        30.1     1.0     6.2e-08
    exams → year         16.1     2.0     0.00034
    p-values are those of links chosen beforehand: they rank links, they are no probabilities
    counts do not tell the direction of exams – year, exams – pills, pills – sleep
    """
    check_source(source)
    correction = correction_called(correction)
    found = searched(
        source,
        order,
        max_parents=max_parents,
        score=score,
        correction=correction,
        required=required,
        forbidden=forbidden,
        tabu=tabu,
        restarts=restarts,
        seed=seed,
    )
    strengths = link_strengths(source, found)
    ordered = None if order is None else tuple(order)
    return LearnedStructure(found, strengths, score_called(score).name, correction.to_dict(), ordered)


def searched(
    source: Tally,
    order: Sequence[str] | None = None,
    *,
    max_parents: int = 3,
    score: Score | str = "bic",
    correction: Correction | str = LIKELIHOOD,
    required: Iterable[Link] = (),
    forbidden: Iterable[Link] = (),
    tabu: int = 10,
    restarts: int = 0,
    seed: int = 0,
) -> dict[str, tuple[str, ...]]:
    """Return what `structure` finds, without the strengths of links."""
    check_source(source)
    judge = Judge(source, score_called(score), correction_called(correction))
    names = judge.names
    rules = StructureRules(
        len(names),
        checked_limit(max_parents),
        frozenset(placed(required, names)),
        frozenset(placed(forbidden, names)),
    )
    check_rules(rules, names)
    if order is None:
        parents = climb(judge, rules, tabu=tabu, restarts=restarts, generator=np.random.default_rng(seed))
    else:
        parents = k2(judge, rules, checked_order(order, names, rules))
    families = {name: {names[z] for z in family} for name, family in zip(names, parents, strict=True)}
    schema = source.schema
    return {name: tuple(other for other in schema if other in families[name]) for name in schema}


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
            gain = self.judge.value(x, family) - self.judge.value(x, self.parents[x])
            (self.drop if z in self.parents[x] else self.add)[z, x] = gain

    def total(self) -> float:
        """Return the score of the structure over that of no links."""
        return sum(self.judge.value(x, family) for x, family in enumerate(self.parents))

    def moves(self) -> Floats:
        """Return the gain of every move: (remove, add, turn) × parent × child, −∞ where not allowed."""
        size = self.rules.size
        reach = paths(self.parents)
        drop = np.where(self.free, self.drop, -np.inf)
        add = np.where(reach.T, -np.inf, self.add)
        # a link can be turned if it is the only path from its parent to its child
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
    """Return the links within a family and all families that it contains."""
    return [
        Step(x, tuple(other for other in some if other != z), z)
        for size in range(1, len(family) + 1)
        for some in combinations(family, size)
        for z in some
    ]
