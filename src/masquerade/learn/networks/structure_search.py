"""Search for the structure of a Bayesian network, from any source of counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest

import numpy as np

from masquerade.core.answered_tally import ModelMissing, missing_answers_of, people_who_answered
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.links.fits import LinkTally, Places
from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.learn.networks import structural_em
from masquerade.learn.networks._candidates import Candidates, LaidOut
from masquerade.learn.networks.graph import (
    Family,
    Link,
    StructureRules,
    check_limit,
    check_rules,
    link_indices,
    order_indices,
)
from masquerade.learn.networks.hill_climbing import CandidateLink, climb
from masquerade.learn.networks.link_strength import LearnedStructure, judge_links
from masquerade.learn.networks.scores import (
    Correction,
    Likelihood,
    Penalised,
    Score,
    correction_called,
    score_called,
)

ROUNDING = 1e-9
LARGE = 1 << 14  # cells; for larger tables the number of records is queried first, since it may rule them out
MOST_TOGETHER = 1 << 25  # cells of the tables in one batch: 256 MiB
LIKELIHOOD = Likelihood()


class Judge:
    """Queries a source about links, in batches, and stores the gain of each.

    Variables and the axes of every table are sorted by name: the result does not depend on the order of the
    variables in a policy.
    """

    def __init__(self, source: Tally, score: Score, correction: Correction) -> None:
        self.source, self.score, self.correction = source, score, correction
        self.names = sorted(source.schema)
        self.sizes = [len(source.schema[name]) for name in self.names]
        # D(X, Z | J) = D(Z, X | J): one fit serves both directions, so that both are exactly equal
        self.symmetric = isinstance(score, Penalised) and isinstance(correction, Likelihood)
        self.gain: dict[CandidateLink, float] = {}
        self.family: dict[tuple[int, Family], float] = {}
        self.n, self.tie = 0, 0.0

    def learn(self, steps: Iterable[CandidateLink]) -> None:
        """Compute the gains of new links in one batch; a link that cannot gain gets its bound."""
        fresh = [step for step in dict.fromkeys(map(self.either, steps)) if step not in self.gain]
        self._count_records(fresh)
        most = self._most(fresh).tolist()
        self.gain.update({step: bound for step, bound in zip(fresh, most, strict=True) if bound <= 0})
        hopeful = [step for step, bound in zip(fresh, most, strict=True) if bound > 0]
        for asked in self._held_together(hopeful):
            found = self._gains(self._ask(asked), np.zeros(len(asked)))
            self.gain.update(zip(asked, found.tolist(), strict=True))

    def value(self, x: int, family: Family) -> float:
        """Return the score of a family relative to no parents; all links within it must be known.

        Formula: V(F) = min over z ∈ F of V(F∖z) + gain(X ← z | F∖z), V(∅) = 0. For clear counts, every order
        of the parents gives the same sum. For noisy reports it does not: a good proxy of a noisily disguised
        parent, added first, would keep its own gain in addition to the gain of that parent. With the minimum,
        a parent never adds more than its gain given all other parents.
        """
        if not family:
            return 0.0
        known = self.family.get((x, family))
        if known is None:
            rests = [(z, tuple(other for other in family if other != z)) for z in family]
            known = min(
                self.value(x, rest) + self.gain[self.either(CandidateLink(x, rest, z))] for z, rest in rests
            )
            self.family[x, family] = known
        return known

    def best(self, steps: Sequence[CandidateLink]) -> dict[int, tuple[float, int]]:
        """Return the largest gain and its parent for every child among `steps`, in one batch.

        Links that cannot win by their bound are not examined further.
        """
        self._count_records(steps)
        floor = np.full(len(self.names), -np.inf)
        judged: list[tuple[CandidateLink, float]] = []
        most = self._most(steps).tolist()
        hopeful = [step for step, bound in zip(steps, most, strict=True) if bound > self.tie]
        for some in self._held_together(hopeful):
            links = self._ask(some)
            floor = np.maximum(floor, self.tie)
            bound = self._bounds(links)
            children = np.array([step.child for step in some])
            exact = np.full(len(some), -np.inf)
            # first the most promising parent of every child, then parents that might still beat it
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

    def either(self, step: CandidateLink) -> CandidateLink:
        """Return the link under which a gain is stored; for symmetric gains, one of the two directions."""
        if self.symmetric and step.child < step.parent:
            return CandidateLink(step.parent, step.given, step.child)
        return step

    def _bounds(self, links: Candidates | LaidOut) -> Floats:
        """Return upper bounds of the gains."""
        if isinstance(links, LaidOut):
            return self._gains(links, np.full(len(links), np.inf))
        return self.correction.bounds(links, self.score)

    def _gains(self, links: Candidates | LaidOut, least: Floats) -> Floats:
        """Return the gain of each link, or a bound that is not above `least`."""
        if isinstance(links, LaidOut):
            assert isinstance(self.score, Penalised)  # noqa: S101  (other scores use tables)
            return LIKELIHOOD.penalised_gains(links, self.score, least)
        return self.correction.gains(links, self.score, least)

    def _most(self, steps: Sequence[CandidateLink]) -> Floats:
        """Return upper bounds of the gains from the numbers of records and of categories only.

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
    def _members(steps: Sequence[CandidateLink]) -> Places:
        """Return the indices of every link's variables, (given …, parent, child), padded with −1."""
        rows = [(*step.given, step.parent, step.child) for step in steps]
        return np.array([*zip_longest(*rows, fillvalue=-1)], dtype=np.int64).T

    def _sizes(self, members: Places) -> Floats:
        """Return the numbers of categories as floats: their products may overflow integers."""
        return np.array([*self.sizes, 1.0])[members]

    def _held_together(self, steps: Sequence[CandidateLink]) -> Iterator[list[CandidateLink]]:
        """Yield links in batches whose tables have at most `MOST_TOGETHER` cells, usually one batch."""
        if not steps:
            return
        some, cells = list[CandidateLink](), 0.0
        for step, own in zip(steps, self._sizes(self._members(steps)).prod(axis=1).tolist(), strict=True):
            if some and cells + own > MOST_TOGETHER:
                yield some
                some, cells = [], 0.0
            some.append(step)
            cells += own
        yield some

    def _count_records(self, steps: Sequence[CandidateLink]) -> None:
        """Query the number of records before large tables, which it may rule out."""
        if not self.symmetric or self.n or not steps:
            return
        if self._sizes(self._members(steps)).prod(axis=1).max() > LARGE:
            smallest = self.names[int(np.argmin(self.sizes))]
            [table] = self.source.answer([Query(by=[smallest])])
            self.n, self.tie = table.n, ROUNDING * table.n

    def _ask(self, steps: Sequence[CandidateLink]) -> Candidates | LaidOut:
        links = self._laid_out(steps) or self._tables(steps)
        self.n, self.tie = links.n, ROUNDING * links.n
        return links

    def _laid_out(self, steps: Sequence[CandidateLink]) -> LaidOut | None:
        """Return links that the source fits itself, without returning a table for each; None if it cannot."""
        if not self.symmetric or not isinstance(self.source, LinkTally):
            return None
        members = self._members(steps)
        batch = self.source.links(self.names, members)
        if batch is None:
            return None
        sizes = self._sizes(members)
        return LaidOut(batch, _freedom(sizes, _ends(sizes, steps)))

    def _tables(self, steps: Sequence[CandidateLink]) -> Candidates:
        subsets = [tuple(sorted((*step.given, step.parent, step.child))) for step in steps]
        unique = list(dict.fromkeys(subsets))
        queries = [Query(by=[self.names[i] for i in subset]) for subset in unique]
        tables = dict(zip(unique, self.source.answer(queries), strict=True))
        places = [
            [subset.index(v) for v in (*step.given, step.parent, step.child)]
            for step, subset in zip(steps, subsets, strict=True)
        ]
        return Candidates([tables[subset] for subset in subsets], places)


def _ends(sizes: Floats, steps: Sequence[CandidateLink]) -> Floats:
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
    missing: ModelMissing = "answered",
    polish: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> LearnedStructure:
    """Learn the structure of a Bayesian network from counts.

    With an `order`, the search is K2: parents are added to each variable, the largest gain first, until no
    parent has a gain. Without it, the search is hill climbing: each move adds, removes or reverses the link
    with the largest gain.

    Parameters
    ----------
    source : Tally
        Source of counts.
    order : sequence of str, optional
        All variables, parents before children.
    max_parents : int, default 3
        Maximum number of parents of a node.
    score : {"bic", "aic", "k2", "bdeu"} or Score
        Score of a structure.
    correction : Correction or str
        How gains account for noise: `Likelihood()` (the default), `DesignEffect()`, `Constant(c)` and
        `Eta(η)` of Ma (2006), or `Uncorrected()`; or as in the command: "likelihood", "design-effect",
        "constant:4", "eta:0.99", "none".
    required : iterable of (str, str), optional
        Links (parent, child) that must be present.
    forbidden : iterable of (str, str), optional
        Links that must be absent.
    tabu : int, default 10
        Number of consecutive moves without a gain that hill climbing tolerates. The last `tabu` structures
        are not revisited.
    restarts : int, default 0
        Number of restarts of hill climbing, each from a randomly changed copy of the best structure.
    seed : int, default 0
        Seed of the restarts, and of the draws of `polish`.
    polish : bool, default False
        Improve the structure by structural EM: it is scored by the joint likelihood of all reports (BIC), and
        this score never gets worse. This needs a source with the reports of each record, and takes longer.
    progress : callable, optional
        Called with the number of completed steps of `polish` and the total number of steps.
    missing : {"answered", "category"}, default "answered"
        Count only the people who answered all variables of a table ("answered"), or treat missing answers as
        a category.

    Returns
    -------
    LearnedStructure
        The structure with the strength of its links.

    Raises
    ------
    InputError
        If an option is not valid, or the source has no records.
    QueryRefused
        If the source refuses a query.

    Notes
    -----
    Formula: the gain of a link is the increase of the log-likelihood of the reports about its variables, less
    a penalty (`Likelihood`). The sum of the gains over a network is a composite score. It equals the
    penalised log-likelihood, up to a constant, for clear records but not for disguised records. Hill climbing
    needs a score of whole families: see `Judge.value`. `polish` uses the joint likelihood (Friedman 1997).
    Reference: Cooper & Herskovits (1992); Ma (2006) §5.5; Haberman (1974) for the likelihood.
    Cost: K2 makes one batch of queries per number of parents, hill climbing one per move; then one for the
    strengths.
    Error: every link has its strength, see `link_strength.Strength`. Gains within 1e-9·n are ties, resolved
    by name: the order of the variables in the schema has no effect.

    Examples
    --------
    >>> found = mq.learn.structure(mq.tally(mq.data.students()))
    >>> print(found.summary())
    4 nodes, 3 links by hill climbing, score bic, likelihood
    link                   X²      df     p-value
    pills → sleep        77.8     1.0     1.2e-18
    exams → pills        29.3     1.0     6.2e-08
    exams → year         16.0     2.0     0.00034
    p-values are for links chosen in advance: they only rank links, and are not probabilities
    counts do not tell the direction of exams – year, exams – pills, pills – sleep
    """
    source = people_who_answered(source, missing)
    correction = correction_called(correction)
    parents = search_structure(
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
    ordered = None if order is None else tuple(order)
    bic = None
    if polish:
        if score_called(score).name != "bic":
            raise InputError("Polishing judges structures by BIC: omit the score.")
        rules = _rules(source, max_parents, required, forbidden, ordered)
        parents, bic = _polish(source, parents, rules, seed, progress)
    strengths, copies = judge_links(source, parents)
    return LearnedStructure(
        parents,
        strengths,
        score_called(score).name,
        correction.to_dict(),
        ordered,
        missing_answers_of(source),
        bic,
        copies,
    )


def _rules(
    source: Tally,
    max_parents: int,
    required: Iterable[Link],
    forbidden: Iterable[Link],
    order: tuple[str, ...] | None,
) -> StructureRules:
    """Return the constraints, by index of the variables sorted by name.

    An order forbids links from later to earlier variables.
    """
    names = sorted(source.schema)
    banned = set(link_indices(forbidden, names))
    if order is not None:
        banned |= {(names.index(z), names.index(x)) for i, x in enumerate(order) for z in order[i + 1 :]}
    return StructureRules(
        len(names), max_parents, frozenset(link_indices(required, names)), frozenset(banned)
    )


def _polish(
    source: Tally,
    parents: dict[str, tuple[str, ...]],
    rules: StructureRules,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[dict[str, tuple[str, ...]], tuple[float, float]]:
    """Return the structure after structural EM, in the order of the schema, and the BIC before and after."""
    found, first = structural_em.polish(source, parents, rules, seed=seed, progress=progress)
    schema = source.schema
    ordered = {name: tuple(other for other in schema if other in found.structure[name]) for name in schema}
    return ordered, (first.bic, found.bic)


def search_structure(
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
    missing: ModelMissing = "answered",
) -> dict[str, tuple[str, ...]]:
    """Return the structure that `structure` finds, without the strengths of links."""
    source = people_who_answered(source, missing)
    judge = Judge(source, score_called(score), correction_called(correction))
    names = judge.names
    rules = StructureRules(
        len(names),
        check_limit(max_parents),
        frozenset(link_indices(required, names)),
        frozenset(link_indices(forbidden, names)),
    )
    check_rules(rules, names)
    if order is None:
        parents = climb(judge, rules, tabu=tabu, restarts=restarts, generator=np.random.default_rng(seed))
    else:
        parents = k2(judge, rules, order_indices(order, names, rules))
    families = {name: {names[z] for z in family} for name, family in zip(names, parents, strict=True)}
    schema = source.schema
    return {name: tuple(other for other in schema if other in families[name]) for name in schema}


def k2(judge: Judge, rules: StructureRules, order: Sequence[int]) -> list[Family]:
    """Add to every node the best earlier parent until none gains; all nodes proceed in one batch."""
    parents = rules.start()
    growing = list(order)
    while growing:
        steps = [
            CandidateLink(x, parents[x], z)
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
