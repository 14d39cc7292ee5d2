"""Structural EM: improve a structure by the joint likelihood of the reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.likelihood_rows import ReportFactors
from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.learn.networks.em.completed_records import (
    CompletedRecords,
    conditional_entropy,
    smooth_tables,
)
from masquerade.learn.networks.em.link_changes import Change, JudgedChange, LinkChanges, apply_changes
from masquerade.learn.networks.em.order_search import OrderSearch
from masquerade.learn.networks.graph import Family, StructureRules
from masquerade.learn.networks.joint_fit import inner_chances
from masquerade.learn.networks.joint_likelihood import (
    JointLikelihood,
    Structure,
    dimension_of,
    is_clear,
    reports_of,
)
from masquerade.learn.networks.junction_tree import MOST_CELLS, count_cells
from masquerade.learn.networks.wide_likelihood import WideLikelihood

PRICES = (
    (0.1, 0.3, 0.5, 1.0),
    (0.3, 0.5, 0.7, 1.0),
)  # penalty of a parameter in each round of two searches, relative to BIC's: a low one lets links appear
FEWEST_RECORDS = 20_000  # equal reports that weigh more than 1/20,000 of the records are drawn in parts
DRAWN = (40_000, 120_000)  # records drawn for a search over structures, and to judge changes of links
FEWEST_DRAWS = (1, 4)  # least number of draws of the truth of each record, for both purposes
STEPS = 4  # EM steps for every structure
MOST_STEPS, SETTLED = 30, 0.3  # EM steps near the end, until one gains less in the log-likelihood
TRIED_WEAKEST = 10  # links whose removal is tried at the end
LENGTHENING, LONGEST = 1.5, 5.0  # factor by which an EM step is lengthened after a success, and its maximum
MOST_ROUNDS = 12  # largest number of rounds of changes of links
TRIED_ALONE = 3  # changes that are tried one by one if all of them together lower the BIC
LEAST_CHANCE = 1e-9
LEAST_GAIN = 0.1  # least gain of the BIC; structures that differ by less are ties, won by the earlier one
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
        self.separate = [_separate_reports(one, self.n / FEWEST_RECORDS) for one in reports]

    def fit(
        self, structure: Structure, tables: Mapping[str, Floats], steps: int, least: float = 0.0
    ) -> FittedStructure:
        """Return the structure with tables after EM steps, lengthened while the likelihood rises.

        There are `steps` steps, or fewer if a step raises the log-likelihood by less than `least`.

        Reference: Salakhutdinov & Roweis (2003), Adaptive overrelaxed bound optimization methods.
        """
        joint = JointLikelihood(self.reports, structure, self.sizes)
        safe = current = dict(tables)
        counts, most, length = dict[str, Floats](), -math.inf, 1.0
        for _ in range(steps):
            found = joint.expectation(current)
            if found.log_likelihood < most:  # too far: back to the step of EM
                current, length = safe, 1.0
                found = joint.expectation(current)
            is_settled = found.log_likelihood - most < least
            most, counts = found.log_likelihood, found.counts
            safe = smooth_tables(counts)
            current = {name: _lengthen(current[name], table, length) for name, table in safe.items()}
            length = min(length * LENGTHENING, LONGEST)
            if is_settled:
                break
        likelihood = joint.log_likelihood(current)
        if likelihood < most:
            current = safe
            likelihood = joint.log_likelihood(current)
        bic = likelihood - self.price * joint.dimension
        return FittedStructure(dict(structure), current, likelihood, bic, counts)

    def draw(self, fitted: FittedStructure, purpose: int) -> CompletedRecords:
        """Return draws of all records from their posterior distribution; the more records, the fewer draws.

        `purpose` is 0 for a search over structures, and 1 to judge changes of links.
        """
        joint = JointLikelihood(self.separate, fitted.structure, self.sizes)
        records = sum(one.records for one in self.separate)
        times = max(FEWEST_DRAWS[purpose], DRAWN[purpose] // records)
        draws = [joint.draws(fitted.tables, self.generator) for _ in range(times)]
        return CompletedRecords(self.names, self.sizes, draws)

    def search(self, fitted: FittedStructure, price: float) -> FittedStructure:
        """Return the best structure for records drawn under a fitted structure, with fitted tables."""
        drawn = self.draw(fitted, 0)
        search = OrderSearch(drawn, self.rules, price * self.price, self.families_of(fitted.structure))
        found = self.structure_of(search.best(self.generator))
        found = self.narrow(found, self.counts_of(drawn, found))
        tables = smooth_tables(self.counts_of(drawn, found))
        kept = [name for name, parents in found.items() if parents == fitted.structure[name]]
        return self.fit(found, {**tables, **{name: fitted.tables[name] for name in kept}}, STEPS)

    def settle(self, fitted: FittedStructure) -> FittedStructure:
        """Return the same structure with tables near the maximum of the likelihood.

        Structures are compared after a few EM steps, so that a link that gains nothing may be accepted for
        the steps that come with it. Near the maximum it is found out, see `prune`.
        """
        return self.fit(fitted.structure, fitted.tables, MOST_STEPS, SETTLED)

    def prune(self, fitted: FittedStructure) -> FittedStructure:
        """Remove links while the BIC of the reports rises; the weakest `TRIED_WEAKEST` links are tried."""
        refused = set[tuple[str, str]]()
        while True:
            weakest = [link for link in self.weakest(fitted.structure, fitted.counts) if link not in refused]
            for parent, child in weakest[: max(TRIED_WEAKEST - len(refused), 0)]:
                tried = self._remove(fitted, parent, child)
                if tried.bic > fitted.bic:
                    fitted = tried
                    break
                refused.add((parent, child))
            else:
                return fitted

    def _remove(self, fitted: FittedStructure, parent: str, child: str) -> FittedStructure:
        """Return the structure without a link, with fitted tables."""
        parents = fitted.structure[child]
        counts = fitted.counts[child].sum(axis=parents.index(parent))
        structure = {**fitted.structure, child: tuple(other for other in parents if other != parent)}
        tables = {**fitted.tables, **smooth_tables({child: counts})}
        return self.fit(structure, tables, MOST_STEPS, SETTLED)

    def change(self, fitted: FittedStructure) -> FittedStructure:
        """Change links while the BIC of the reports rises.

        All changes that are estimated to gain are made together if they have no variable in common. If they
        lower the BIC, the first of them are tried one by one.
        """
        refused = set[Change]()
        for _ in range(MOST_ROUNDS):
            families = self.families_of(fitted.structure)
            tables = [fitted.tables[name] for name in self.names]
            changes = LinkChanges(self.draw(fitted, 1), self.rules, self.price, families, tables)
            judged = [one for one in changes.judge() if one.change not in refused]
            together, made = apply_changes(families, judged)
            if not made:
                break
            tried = self._try(fitted, together, made)
            if tried is None:
                for one in made[:TRIED_ALONE]:
                    tried = self._try(fitted, apply_changes(families, [one])[0], [one])
                    if tried is not None:
                        break
                    refused.add(one.change)
            fitted = fitted if tried is None else tried
        return fitted

    def _try(
        self, fitted: FittedStructure, families: Sequence[Family], made: Sequence[JudgedChange]
    ) -> FittedStructure | None:
        """Return the structure after changes, or None if its BIC does not rise."""
        structure = self.structure_of(families)
        if not self.is_narrow(structure):
            return None
        changed = {self.names[x]: table for one in made for x, table in one.tables.items()}
        tried = self.fit(structure, {**fitted.tables, **changed}, STEPS)
        return tried if tried.bic > fitted.bic + LEAST_GAIN else None

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
                gain = conditional_entropy(whole.reshape(-1, size))
                gain -= conditional_entropy(without.reshape(-1, size))
                gains[parent, child] = gain - self.price * saved
        return sorted(gains, key=lambda link: (gains[link], link))

    def families_of(self, structure: Structure) -> list[Family]:
        """Return the parents by index."""
        place = {name: i for i, name in enumerate(self.names)}
        return [tuple(sorted(place[other] for other in structure[name])) for name in self.names]

    def structure_of(self, families: Sequence[Family]) -> dict[str, tuple[str, ...]]:
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

    def counts_of(self, drawn: CompletedRecords, structure: Structure) -> dict[str, Floats]:
        """Return the counts of families of drawn records."""
        families = self.families_of(structure)
        return {
            name: drawn.counts(x, family).reshape(drawn.shape(x, family))
            for x, (name, family) in enumerate(zip(self.names, families, strict=True))
        }


def _separate_reports(reports: ReportFactors, most: float) -> ReportFactors:
    """Return the same reports; reports that weigh more than `most` are divided into equal parts."""
    copies = np.ceil(reports.weights / most).astype(np.intp).clip(1)
    factors = tuple(replace(one, report=np.repeat(one.report, copies)) for one in reports.factors)
    return ReportFactors(factors, np.repeat(reports.weights / copies, copies))


def _lengthen(before: Floats, after: Floats, length: float) -> Floats:
    """Return the probabilities after a step that is `length` times as long, in logarithms."""
    if length == 1:
        return after
    logs = np.log(after) + (length - 1) * np.log(after / before)
    tables = np.maximum(np.exp(logs - logs.max(axis=-1, keepdims=True)), LEAST_CHANCE)
    return np.asarray(tables / tables.sum(axis=-1, keepdims=True))


def polish(
    source: Tally,
    start: Structure,
    rules: StructureRules,
    *,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[FittedStructure, FittedStructure]:
    """Improve a structure by structural EM; return the result and the start, with the BIC of the reports.

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
        Called with the number of steps done and the total number of steps.

    Returns
    -------
    tuple of FittedStructure
        The best structure found, and the start. The BIC of the best structure is never below the start's BIC.
    """
    sizes = {name: len(source.schema[name]) for name in source.schema}
    reports = reports_of(source, tuple(sizes))
    em = StructuralEM(reports, sizes, rules, seed)
    steps, done = 2 + sum(map(len, PRICES)), 0

    def tell() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, steps)

    if all(is_clear(one, sizes) for one in reports):  # no truth to draw: one search over orders is all
        first = em.fit(start, smooth_tables(_family_counts(source, start)), 1)
        best = em.search(first, 1.0)
        return (best if best.bic > first.bic + LEAST_GAIN else first), first
    start = em.structure_of(em.families_of(start))
    counts = _family_counts(source, start)
    narrow = em.narrow(start, counts)
    best = em.fit(narrow, inner_chances(_family_counts(source, narrow)), 2 * STEPS)
    first = best if narrow == start else em.estimate(start, inner_chances(counts))
    tell()
    fitted = best
    for prices in PRICES:
        current = fitted
        for price in prices:
            current = em.search(current, price)
            best = current if current.bic > best.bic + LEAST_GAIN else best
            tell()
    best = em.prune(em.settle(em.change(best)))
    tell()
    return (first if first.bic > best.bic else best), first


def _family_counts(source: Tally, structure: Structure) -> dict[str, Floats]:
    """Return the estimated counts of every family, none of them negative."""
    answers = source.answer([Query(by=(*parents, name)) for name, parents in structure.items()])
    return {name: np.maximum(table.values, 0.0) for name, table in zip(structure, answers, strict=True)}
