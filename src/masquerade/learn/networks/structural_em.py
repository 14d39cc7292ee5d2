"""Structural EM: improve a structure by the joint likelihood of the reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.likelihood_rows import ReportFactors
from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.learn.networks.graph import Family, StructureRules
from masquerade.learn.networks.hill_climbing import CandidateLink, Climber, apply_move, climb
from masquerade.learn.networks.joint_fit import inner_chances
from masquerade.learn.networks.joint_likelihood import (
    JointLikelihood,
    Structure,
    dimension_of,
    is_clear,
    reports_of,
)
from masquerade.learn.networks.junction_tree import MOST_CELLS, Codes, count_cells
from masquerade.learn.networks.wide_likelihood import WideLikelihood

PRICES = (
    0.3,
    0.5,
    0.7,
    1.0,
    1.0,
)  # penalty of a parameter in each round, relative to BIC's: a low penalty lets links appear
DRAWS = 2  # draws of the truth of every record, in each round
STEPS = 4  # EM steps for every structure
FURTHER = 2.0  # most that later EM steps are assumed to gain, relative to the gain of the last step
MOST_CHANGES = (12, 16)  # links whose addition or reversal, and whose removal, is tried at the end
CHANGE_PRICE = (
    0.3  # penalty, relative to BIC's, to rank additions; low, because missing links appear too weak
)
TABU = 10
LEAST_GAIN = 0.1  # least gain of the BIC; structures that differ by less are ties, won by the earlier one
PRIOR = 0.05  # records added to a row of a table, in proportion to the node's shares, to avoid zeros
MOST_WORK = 1 << 28  # distinct records times cells of all cliques: about 3 s for one pass


@dataclass(frozen=True, slots=True, eq=False)
class FittedStructure:
    """A structure with fitted tables and the BIC of the reports.

    `counts` are expected counts of the families, one EM step before the tables. `stderr` is the standard
    error of the BIC, 0 if it is exact.
    """

    structure: dict[str, tuple[str, ...]]
    tables: dict[str, Floats]
    log_likelihood: float
    bic: float
    counts: dict[str, Floats]
    stderr: float = 0.0

    @property
    def links(self) -> int:
        """Return the number of links."""
        return sum(map(len, self.structure.values()))


class DrawnRecords:
    """Families judged on records that were drawn from their posterior distribution."""

    tie = 1e-9

    def __init__(
        self,
        names: Sequence[str],
        sizes: Mapping[str, int],
        draws: Sequence[tuple[dict[str, Codes], Floats]],
        price: float,
    ) -> None:
        self.names, self.sizes, self.price = list(names), [sizes[name] for name in names], price
        self.columns = [np.concatenate([codes[name] for codes, _ in draws]) for name in names]
        self.weights = np.concatenate([weights for _, weights in draws]) / len(draws)
        self._kept: dict[tuple[int, Family], float] = {}
        self._joint: dict[Family, tuple[Codes, int]] = {}

    def learn(self, steps: Iterable[CandidateLink]) -> None:
        """Do nothing: families are counted when they are asked for."""

    def value(self, x: int, family: Family) -> float:
        """Return the penalised log-likelihood of a family."""
        found = self._kept.get((x, family))
        if found is None:
            index, width = self._index(family)
            size = self.sizes[x]
            counts = np.bincount(index * size + self.columns[x], self.weights, minlength=width * size)
            found = _entropy(counts.reshape(width, size).astype(np.float64)) - self.price * width * (size - 1)
            self._kept[x, family] = found
        return found

    def _index(self, family: Family) -> tuple[Codes, int]:
        if family not in self._joint:
            if len(self._joint) > 64:
                self._joint.clear()
            index, width = np.zeros(len(self.weights), dtype=np.intp), 1
            for parent in family:
                index = index * self.sizes[parent] + self.columns[parent]
                width *= self.sizes[parent]
            self._joint[family] = index, width
        return self._joint[family]


def _entropy(table: Floats) -> float:
    """Return Σ N log(N / row total)."""
    rows = table.sum(axis=1, keepdims=True)
    seen = table > 0
    return float(np.sum(table[seen] * np.log(table[seen] / np.broadcast_to(rows, table.shape)[seen])))


def smooth_tables(counts: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return P(node | parents) from counts; `PRIOR` records keep all probabilities above 0."""
    tables = {}
    for name, table in counts.items():
        shares = table.reshape(-1, table.shape[-1]).sum(axis=0)
        base = (shares + PRIOR) / (shares.sum() + PRIOR * len(shares))
        tables[name] = (table + PRIOR * base) / (table.sum(axis=-1, keepdims=True) + PRIOR)
    return tables


class _NoScore:
    """Scores of 0, to list the moves that are allowed by rules and close no cycle."""

    tie = 0.0

    def learn(self, steps: Iterable[CandidateLink]) -> None:
        """Do nothing."""

    def value(self, x: int, family: Family) -> float:
        """Return 0."""
        del x, family
        return 0.0


class StructuralEM:
    """Search over structures by drawing the truth, and judge them by the BIC of the reports.

    Parameters
    ----------
    reports : sequence of ReportFactors
        Reports of the records.
    sizes : mapping of str to int
        Number of categories of every variable.
    rules : StructureRules
        Constraints, by the index of the variables sorted by name.
    seed : int
        Seed of the draws.

    Notes
    -----
    Reference: Friedman (1997), Learning belief networks in the presence of missing values. The expectation is
    replaced by exact draws from the posterior distribution of the truth.
    """

    def __init__(
        self, reports: Sequence[ReportFactors], sizes: Mapping[str, int], rules: StructureRules, seed: int = 0
    ) -> None:
        self.reports, self.sizes, self.rules = reports, dict(sizes), rules
        self.names = sorted(sizes)
        self.generator = np.random.default_rng(seed)
        self.n = float(sum(one.weights.sum() for one in reports))
        self.price = math.log(self.n) / 2

    def fit(
        self, structure: Structure, tables: Mapping[str, Floats], steps: int, least: float = -math.inf
    ) -> FittedStructure:
        """Return the structure with tables after `steps` EM steps, fewer if its BIC cannot reach `least`."""
        joint = JointLikelihood(self.reports, structure, self.sizes)
        price = self.price * joint.dimension
        current, counts, before = dict(tables), dict[str, Floats](), math.inf
        for _ in range(steps):
            expected = joint.expectation(current)
            current, counts = smooth_tables(expected.counts), expected.counts
            value = expected.log_likelihood - price
            if value + FURTHER * max(value - before, 0.0) < least and before < math.inf:
                return FittedStructure(dict(structure), current, expected.log_likelihood, value, counts)
            before = value
        likelihood = joint.log_likelihood(current)
        return FittedStructure(dict(structure), current, likelihood, likelihood - price, counts)

    def draw(self, fitted: FittedStructure, times: int, price: float) -> DrawnRecords:
        """Return records drawn from their posterior distribution under a fitted structure."""
        joint = JointLikelihood(self.reports, fitted.structure, self.sizes)
        draws = [joint.draws(fitted.tables, self.generator) for _ in range(times)]
        return DrawnRecords(self.names, self.sizes, draws, price)

    def search(self, drawn: DrawnRecords, start: Structure, tabu: int) -> dict[str, tuple[str, ...]]:
        """Return the best structure for drawn records, by hill climbing from `start`."""
        best = climb(drawn, self.rules, tabu=tabu, generator=self.generator, start=self._families(start))
        return self._structure(best)

    def narrow(self, structure: Structure, counts: Mapping[str, Floats]) -> dict[str, tuple[str, ...]]:
        """Remove the weakest links by their counts until exact inference takes `MOST_WORK` at most."""
        structure, counts = dict(structure), dict(counts)
        while not self.is_narrow(structure):
            weakest = self.weakest(structure, counts)
            if not weakest:
                break
            parent, child = weakest[0]
            counts[child] = counts[child].sum(axis=structure[child].index(parent))
            structure[child] = tuple(other for other in structure[child] if other != parent)
        return structure

    def is_narrow(self, structure: Structure) -> bool:
        """Return True if exact inference takes `MOST_WORK` at most."""
        families = [(*parents, name) for name, parents in structure.items()]
        work = 0
        for one in self.reports:
            if not is_clear(one, self.sizes):
                scopes = [*families, *(factor.names for factor in one.factors)]
                cells = count_cells(scopes, self.sizes)
                if cells > MOST_CELLS:
                    return False
                work += cells * one.records
        return work <= MOST_WORK

    def change(self, fitted: FittedStructure, tell: Callable[[], object]) -> FittedStructure:
        """Make single changes of links, the most promising first, where the BIC of the reports rises.

        Additions and reversals are ranked by records that are drawn from their posterior distribution,
        removals by expected counts. Each is judged by the likelihood of the reports.
        """
        additions, removals = MOST_CHANGES
        drawn = self.draw(fitted, DRAWS, CHANGE_PRICE * self.price)
        for move in self._moves(drawn, fitted.structure, additions):
            fitted = self._try(fitted, move, drawn)
            tell()
        for parent, child in self.weakest(fitted.structure, fitted.counts)[:removals]:
            at = fitted.structure[child].index(parent)
            fewer = {
                **fitted.structure,
                child: tuple(other for other in fitted.structure[child] if other != parent),
            }
            start = smooth_tables({child: fitted.counts[child].sum(axis=at)})
            fitted = self._better(fitted, fewer, {**fitted.tables, **start})
            tell()
        return fitted

    def _moves(self, drawn: DrawnRecords, structure: Structure, most: int) -> list[tuple[int, int, int]]:
        """Return additions and reversals of links with the largest gains for drawn records."""
        gains = Climber(drawn, self.rules, self._families(structure)).moves()[1:]
        order = np.argsort(-gains, axis=None, kind="stable")[:most]
        places = np.argwhere(np.isfinite(gains))
        allowed = {tuple(place) for place in places.tolist()}
        chosen = [tuple(int(one) for one in np.unravel_index(int(at), gains.shape)) for at in order]
        return [(kind + 1, z, x) for kind, z, x in chosen if (kind, z, x) in allowed]

    def _try(
        self, fitted: FittedStructure, move: tuple[int, int, int], drawn: DrawnRecords
    ) -> FittedStructure:
        """Return the better of a structure and of the same after a move; earlier moves may forbid it."""
        families = self._families(fitted.structure)
        if not np.isfinite(Climber(_NoScore(), self.rules, families).moves()[move]):
            return fitted
        moved = self._structure(apply_move(families, move))
        changed = {name: parents for name, parents in moved.items() if parents != fitted.structure[name]}
        if not self.is_narrow(moved):
            return fitted
        return self._better(fitted, moved, {**fitted.tables, **self.tables_of(drawn, changed)})

    def _better(
        self, fitted: FittedStructure, structure: Structure, tables: Mapping[str, Floats]
    ) -> FittedStructure:
        tried = self.fit(structure, tables, STEPS, least=fitted.bic + LEAST_GAIN)
        return tried if tried.bic > fitted.bic + LEAST_GAIN else fitted

    def weakest(self, structure: Structure, counts: Mapping[str, Floats]) -> list[tuple[str, str]]:
        """Return links, the weakest first, by their gain in log-likelihood minus their penalty."""
        place = {name: i for i, name in enumerate(self.names)}
        gains = {}
        for child, parents in structure.items():
            whole = counts[child]
            size = whole.shape[-1]
            for at, parent in enumerate(parents):
                if (place[parent], place[child]) in self.rules.required:
                    continue
                without = whole.sum(axis=at)
                saved = (whole.size - without.size) // size * (size - 1)
                gain = _entropy(whole.reshape(-1, size)) - _entropy(without.reshape(-1, size))
                gains[parent, child] = gain - self.price * saved
        return sorted(gains, key=lambda link: (gains[link], link))

    def _families(self, structure: Structure) -> list[Family]:
        """Return the parents by index."""
        place = {name: i for i, name in enumerate(self.names)}
        return [tuple(sorted(place[other] for other in structure[name])) for name in self.names]

    def _structure(self, families: Sequence[Family]) -> dict[str, tuple[str, ...]]:
        """Return the parents by name."""
        return {
            name: tuple(self.names[z] for z in family)
            for name, family in zip(self.names, families, strict=True)
        }

    def estimate(self, structure: Structure, tables: Mapping[str, Floats]) -> FittedStructure:
        """Return a structure that is too wide to fit, with the estimated BIC of given tables."""
        value, stderr = WideLikelihood(self.reports, structure, self.sizes).estimate(tables)
        price = self.price * dimension_of(structure, self.sizes)
        return FittedStructure(dict(structure), dict(tables), value, value - price, {}, stderr)

    def tables_of(self, drawn: DrawnRecords, structure: Structure) -> dict[str, Floats]:
        """Return tables estimated from drawn records."""
        return smooth_tables(self.counts_of(drawn, structure))

    def counts_of(self, drawn: DrawnRecords, structure: Structure) -> dict[str, Floats]:
        """Return the counts of families of drawn records."""
        place = {name: i for i, name in enumerate(self.names)}
        counts = {}
        for name, parents in structure.items():
            index = np.zeros(len(drawn.weights), dtype=np.intp)
            for other in (*parents, name):
                index = index * self.sizes[other] + drawn.columns[place[other]]
            shape = [self.sizes[other] for other in (*parents, name)]
            found = np.bincount(index, drawn.weights, minlength=int(np.prod(shape)))
            counts[name] = found.reshape(shape).astype(np.float64)
        return counts


def polish(
    source: Tally,
    start: Structure,
    rules: StructureRules,
    *,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[FittedStructure, FittedStructure]:
    """Improve a structure by structural EM; return it and the start, each with the BIC of the reports.

    Parameters
    ----------
    source : Tally
        A source with the reports of each record.
    start : mapping of str to tuple of str
        Parents of every node.
    rules : StructureRules
        Constraints, by the index of the variables sorted by name.
    seed : int, default 0
        Seed of the draws.
    progress : callable, optional
        Called with the number of steps done and of all steps.

    Returns
    -------
    tuple of FittedStructure
        The best structure found, and the start. The BIC of the best structure is never below the start's BIC.
    """
    sizes = {name: len(source.schema[name]) for name in source.schema}
    reports = reports_of(source, tuple(sizes))
    em = StructuralEM(reports, sizes, rules, seed)
    steps, done = 1 + len(PRICES) + sum(MOST_CHANGES), 0

    def tell() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(min(done, steps), steps)

    counts = _family_counts(source, start)
    if all(is_clear(one, sizes) for one in reports):  # the search has maximised this BIC already
        first = em.fit(start, smooth_tables(counts), 1)
        return first, first
    narrow = em.narrow(start, counts)
    best = current = em.fit(narrow, inner_chances(_family_counts(source, narrow)), 2 * STEPS)
    first = best if narrow == dict(start) else em.estimate(start, inner_chances(counts))
    tell()
    for price in PRICES:
        drawn = em.draw(current, DRAWS, price * em.price)
        found = em.search(drawn, current.structure, TABU)
        found = em.narrow(found, em.counts_of(drawn, found))
        current = em.fit(found, em.tables_of(drawn, found), STEPS)
        best = current if current.bic > best.bic + LEAST_GAIN else best
        tell()
    best = em.change(best, tell)
    return (first if first.bic > best.bic else best), first


def _family_counts(source: Tally, structure: Structure) -> dict[str, Floats]:
    """Return the estimated counts of every family, none of them negative."""
    answers = source.answer([Query(by=(*parents, name)) for name, parents in structure.items()])
    return {name: np.maximum(table.values, 0.0) for name, table in zip(structure, answers, strict=True)}
