"""Changes of single families, judged by the likelihood of the reports through reweighted draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from masquerade.core.axes import Floats
from masquerade.learn.networks.em.completed_records import CompletedRecords, smooth_rows
from masquerade.learn.networks.graph import Family, StructureRules, paths
from masquerade.learn.networks.junction_tree import Codes

MOST_JUDGED = 250  # changes whose gain is computed from the weights of draws, those with the largest bounds
MOST_INFORMATION = 10.0  # assumed bound of the gain for the reports, relative to the gain for drawn records
LEAST_GAIN = 1.0  # least gain of the BIC for which a change is tried
LEAST_CHANCE = 1e-5
LONGEST_STEP = 20.0  # longest step of the tables, relative to the step of EM
NEWTON_STEPS = 4

Change = tuple[tuple[int, Family], ...]  # variables with their new parents: two if a link is reversed


class JudgedChange(NamedTuple):
    """A change of families, its estimated gain of the BIC of the reports, and its tables by variable."""

    gain: float
    change: Change
    tables: dict[int, Floats]


class LinkChanges:
    """Additions, removals, replacements and reversals of links of one structure, with their gains.

    Parameters
    ----------
    records : CompletedRecords
        Records drawn from their posterior distribution under the structure.
    rules : StructureRules
        Constraints.
    price : float
        Penalty of a parameter.
    parents : sequence of families
        The structure.
    tables : sequence of arrays
        P(variable | parents) of every variable, from which the records were drawn.

    Notes
    -----
    Formula: a change of tables from θ to θ' raises the log-likelihood of a report by log E[θ'(x) / θ(x)], the
    expectation over its posterior distribution, here over its draws. The new tables are those of one step of
    EM, and of a second step that is lengthened until the likelihood is largest along it. The complete data
    likelihood of `CompletedRecords` underestimates the gain of additions and overestimates the loss from
    removals, because the draws follow the present structure.
    Cost: about ten passes over the drawn records for each change that is judged.
    """

    def __init__(
        self,
        records: CompletedRecords,
        rules: StructureRules,
        price: float,
        parents: Sequence[Family],
        tables: Sequence[Floats],
    ) -> None:
        self.records, self.rules, self.price = records, rules, price
        self.parents, self.tables = list(parents), list(tables)
        self._shape = (records.draws, len(records.weights))
        self._inverses: dict[int, Floats] = {}

    def judge(self) -> list[JudgedChange]:
        """Return the changes that are estimated to gain at least `LEAST_GAIN`, the largest gain first."""
        hopeful = []
        for change in self.changes():
            bound = self._promise(change) - self._cost(change)
            if bound > 0:
                hopeful.append((-bound, change))
        judged = [self._judge_change(change) for _, change in sorted(hopeful)[:MOST_JUDGED]]
        found = [one for one in judged if one.gain > LEAST_GAIN]
        return sorted(found, key=lambda one: (-one.gain, one.change))

    def changes(self) -> Iterator[Change]:
        """Yield all changes that the rules allow and that close no cycle."""
        reach = paths(self.parents)
        nodes = range(self.rules.size)
        for x in nodes:
            family = self.parents[x]
            new = [
                z
                for z in nodes
                if z != x and z not in family and (z, x) not in self.rules.forbidden and not reach[x, z]
            ]
            if len(family) < self.rules.limit:
                yield from (((x, _with(family, z)),) for z in new)
            for z in family:
                if (z, x) in self.rules.required:
                    continue
                rest = tuple(other for other in family if other != z)
                yield ((x, rest),)
                yield from (((x, _with(rest, other)),) for other in new)
                if (
                    (x, z) not in self.rules.forbidden
                    and len(self.parents[z]) < self.rules.limit
                    and not any(z in self.parents[y] and reach[y, x] for y in nodes if y != x)
                ):
                    yield ((x, rest), (z, _with(self.parents[z], x)))

    def gain(self, change: Change) -> tuple[float, dict[int, Floats]]:
        """Return the estimated gain of the log-likelihood of the reports, and the tables of a change."""
        records = self.records
        cells = {x: records.cells(x, family).reshape(self._shape) for x, family in change}
        families = dict(change)
        tables = {x: smooth_rows(records.counts(x, family)) for x, family in change}
        weights, value = self._reweigh(tables, cells)
        weighted = (weights * records.weights).ravel()
        moved = {x: smooth_rows(records.count(cells[x].ravel(), x, family, weighted)) for x, family in change}
        slope = -float(len(change)) * np.ones(self._shape[1])
        for x, table in moved.items():
            slope += np.einsum("dr,dr->r", weights, np.take((table / tables[x]).ravel(), cells[x]))
        step = _longest_step(slope, records.weights)
        stepped = {}
        for x, table in tables.items():
            raised = np.maximum(table + step * (moved[x] - table), LEAST_CHANCE)
            stepped[x] = raised / raised.sum(axis=1, keepdims=True)
        _, after = self._reweigh(stepped, cells)
        if after > value:
            tables, value = stepped, after
        shaped = {x: table.reshape(records.shape(x, families[x])) for x, table in tables.items()}
        return value, shaped

    def _judge_change(self, change: Change) -> JudgedChange:
        """Return a change with its estimated gain and its new tables."""
        value, tables = self.gain(change)
        return JudgedChange(value - self._cost(change), change, tables)

    def _reweigh(self, tables: Mapping[int, Floats], cells: Mapping[int, Codes]) -> tuple[Floats, float]:
        """Return the weight of each draw under new tables, and the gain of the log-likelihood."""
        ratios = np.ones(self._shape)
        for x, table in tables.items():
            ratios *= np.take(table.ravel(), cells[x])
            ratios *= self._inverse(x)
        sums = ratios.sum(axis=0)
        ratios /= sums
        return ratios, float(self.records.weights @ np.log(sums / self._shape[0]))

    def _inverse(self, x: int) -> Floats:
        """Return 1 / P(variable | parents) of every draw."""
        inverse = self._inverses.get(x)
        if inverse is None:
            if len(self._inverses) > 1:  # `changes` yields them variable by variable
                self._inverses.pop(next(iter(self._inverses)))
            cells = self.records.cells(x, self.parents[x])
            inverse = self._inverses[x] = np.take(1 / self.tables[x].ravel(), cells).reshape(self._shape)
        return inverse

    def _promise(self, change: Change) -> float:
        """Return a bound of the gain of the log-likelihood, from the gain for the drawn records."""
        gain = sum(
            self.records.log_likelihood(x, family) - self.records.log_likelihood(x, self.parents[x])
            for x, family in change
        )
        return gain * MOST_INFORMATION if gain > 0 else gain / MOST_INFORMATION

    def _cost(self, change: Change) -> float:
        """Return the change of the penalty."""
        added = sum(
            self.records.dimension(x, family) - self.records.dimension(x, self.parents[x])
            for x, family in change
        )
        return self.price * added


def _with(family: Family, z: int) -> Family:
    return tuple(sorted((*family, z)))


def _longest_step(slope: Floats, weights: Floats) -> float:
    """Return the t that maximises Σ w log(1 + t·slope), at most `LONGEST_STEP`."""
    most = min(LONGEST_STEP, 0.95 / max(-float(slope.min()), 1e-9))
    step = min(1.0, most)
    for _ in range(NEWTON_STEPS):
        each = slope / (1 + step * slope)
        weighted = weights * each
        step = min(max(step + float(weighted.sum()) / max(float(weighted @ each), 1e-300), 0.0), most)
    return step


def apply_changes(
    parents: Sequence[Family], judged: Sequence[JudgedChange]
) -> tuple[list[Family], list[JudgedChange]]:
    """Make changes, the largest gain first, except if they share a variable with others or close a cycle."""
    families, touched = list(parents), set[int]()
    made: list[JudgedChange] = []
    for one in judged:
        about = {x for x, _ in one.change}
        about |= {z for x, family in one.change for z in (*family, *parents[x])}
        if about & touched:
            continue
        after = list(families)
        for x, family in one.change:
            after[x] = family
        if is_acyclic(after):
            families, made = after, [*made, one]
            touched |= about
    return families, made


def is_acyclic(parents: Sequence[Family]) -> bool:
    """Return True if no path leads from a node to itself."""
    left = {x: set(family) for x, family in enumerate(parents)}
    while free := [x for x, family in left.items() if not family]:
        for x in free:
            del left[x]
        for family in left.values():
            family.difference_update(free)
    return not left
