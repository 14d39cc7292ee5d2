"""The likelihood of all reports under a whole network, its maximum, and posterior draws of the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

import numpy as np

from masquerade.core.answered_tally import AnsweredTally
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.likelihood_rows import FactorSource, ReportFactors
from masquerade.core.tally import Tally
from masquerade.learn.networks.graph import ancestral_order
from masquerade.learn.networks.junction_tree import (
    BATCH_CELLS,
    Codes,
    JunctionTree,
    Propagation,
    Scope,
    SharedRows,
    distinct_rows,
    divide,
    largest_of,
    sum_rows,
)

Structure = Mapping[str, tuple[str, ...]]
Tables = Mapping[str, Floats]  # P(node | parents), parents as leading axes
FEWEST_SHARED = 0.25  # products are shared if there are at most this many distinct ones per record
MOST_COMBINATIONS = 256  # distinct products are not counted above this many possible ones per shared row


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """Result of an E-step: the log-likelihood, and the expected counts of a network's tables.

    Attributes
    ----------
    log_likelihood : float
        Logarithm of the likelihood of all reports.
    counts : dict of str to array
        Expected number of records in each cell of a node's table, given the reports.
    """

    log_likelihood: float
    counts: dict[str, Floats]


class ReportInference(Protocol):
    """Reports of records, with inference in networks of one structure."""

    def log_likelihood(self, tables: Tables) -> float:
        """Return the logarithm of the likelihood of the records."""

    def expectation(self, tables: Tables) -> tuple[float, dict[str, Floats]]:
        """Return the log-likelihood and the expected counts of every family."""

    def scores(self, tables: Tables) -> Iterator[tuple[Floats, Floats, dict[str, Floats]]]:
        """Yield weights, log-likelihoods and posteriors of every family's cells, batch by batch."""

    def draws(
        self, tables: Tables, generator: np.random.Generator
    ) -> Iterator[tuple[dict[str, Codes], Floats]]:
        """Yield the truth of records, drawn from its posterior distribution, and the weights."""


class JointLikelihood:
    """The likelihood of the reports of all records under networks with one structure.

    Parameters
    ----------
    reports : sequence of ReportFactors
        The reports, from a source of records.
    structure : mapping
        Parents of every node.
    sizes : mapping of str to int
        Number of categories of every node.

    Raises
    ------
    InputError
        If the cliques of the network have more than `junction_tree.MOST_CELLS` cells. Clear records have no
        such limit.

    Notes
    -----
    Formula: log L = Σ_i w_i log Σ_x Π_v θ_v(x_v | parents) Π_f P(report_if | x). Exact, by one junction tree
    for each group of records that were asked in the same way.
    Cost: O(distinct records · cells of the cliques).
    """

    def __init__(
        self, reports: Sequence[ReportFactors], structure: Structure, sizes: Mapping[str, int]
    ) -> None:
        self.structure, self.sizes = dict(structure), dict(sizes)
        self.families: dict[str, Scope] = {name: (*parents, name) for name, parents in structure.items()}
        self.reports: list[ReportInference] = [
            ClearReports(one, self.families, self.sizes)
            if is_clear(one, self.sizes)
            else DisguisedReports(one, self.families, self.sizes)
            for one in reports
        ]
        self.n = float(sum(one.weights.sum() for one in reports))

    @property
    def dimension(self) -> int:
        """Return the number of free parameters."""
        return dimension_of(self.structure, self.sizes)

    def log_likelihood(self, tables: Tables) -> float:
        """Return the logarithm of the likelihood of all reports."""
        return float(sum(placed.log_likelihood(tables) for placed in self.reports))

    def expectation(self, tables: Tables) -> Expectation:
        """Return the likelihood and the expected counts of every family."""
        total = 0.0
        counts = {name: np.zeros([self.sizes[v] for v in scope]) for name, scope in self.families.items()}
        for placed in self.reports:
            value, part_counts = placed.expectation(tables)
            total += value
            for name, table in part_counts.items():
                counts[name] += table
        return Expectation(total, counts)

    def scores(self, tables: Tables) -> Iterator[tuple[Floats, Floats, dict[str, Floats]]]:
        """Yield weights, log-likelihoods and posteriors of every family's cells, batch by batch."""
        for placed in self.reports:
            yield from placed.scores(tables)

    def draws(self, tables: Tables, generator: np.random.Generator) -> tuple[dict[str, Codes], Floats]:
        """Draw the truth of every distinct record from its posterior distribution, with the weights."""
        parts = [part for placed in self.reports for part in placed.draws(tables, generator)]
        return {name: np.concatenate([codes[name] for codes, _ in parts]) for name in self.structure}, (
            np.concatenate([weights for _, weights in parts])
        )


def dimension_of(structure: Structure, sizes: Mapping[str, int]) -> int:
    """Return the number of free parameters of a network."""
    return sum(
        (sizes[name] - 1) * prod(sizes[parent] for parent in parents) for name, parents in structure.items()
    )


def draw_codes(
    structure: Structure, tables: Tables, records: int, generator: np.random.Generator
) -> dict[str, Codes]:
    """Return the codes of records drawn from a network."""
    drawn: dict[str, Codes] = {}
    for name in ancestral_order(structure):
        rows = tables[name][tuple(drawn[parent] for parent in structure[name])]
        drawn[name] = draw_categories(np.broadcast_to(rows, (records, rows.shape[-1])), generator)
    return drawn


def draw_categories(chances: Floats, generator: np.random.Generator) -> Codes:
    """Return one category drawn from each row of probabilities."""
    steps = np.cumsum(chances, axis=-1)[:, :-1]
    return np.asarray((generator.random(len(chances))[:, None] >= steps).sum(axis=-1), dtype=np.intp)


def is_clear(reports: ReportFactors, sizes: Mapping[str, int]) -> bool:
    """Return True if the reports show the truth of every variable."""
    clear = {
        factor.names[0]
        for factor in reports.factors
        if len(factor.names) == 1
        and factor.chances.shape == (sizes[factor.names[0]],) * 2
        and np.array_equal(factor.chances, np.eye(len(factor.chances)))
    }
    return clear == set(sizes)


class ClearReports:
    """Clear records: their likelihood is a product over the families, even in wide networks."""

    def __init__(
        self, reports: ReportFactors, families: Mapping[str, Scope], sizes: Mapping[str, int]
    ) -> None:
        self.weights, self.families, self.sizes = reports.weights, families, sizes
        self.codes = {factor.names[0]: factor.report for factor in reports.factors}

    def _cells(self, name: str) -> tuple[Codes, ...]:
        return tuple(self.codes[other] for other in self.families[name])

    def _logs(self, tables: Tables) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(sum(np.log(tables[name][self._cells(name)]) for name in self.families))

    def log_likelihood(self, tables: Tables) -> float:
        """Return the logarithm of the likelihood of the records."""
        return float(self.weights @ self._logs(tables))

    def expectation(self, tables: Tables) -> tuple[float, dict[str, Floats]]:
        """Return the log-likelihood and the counts of every family."""
        counts = {}
        for name, scope in self.families.items():
            shape = tuple(self.sizes[other] for other in scope)
            index = np.ravel_multi_index(self._cells(name), shape)
            cells = np.bincount(index, self.weights, minlength=prod(shape))
            counts[name] = cells.reshape(shape).astype(np.float64)
        return self.log_likelihood(tables), counts

    def scores(self, tables: Tables) -> Iterator[tuple[Floats, Floats, dict[str, Floats]]]:
        """Yield weights, log-likelihoods and indicators of every family's cells, batch by batch."""
        logs = self._logs(tables)
        shapes = {name: tuple(self.sizes[other] for other in scope) for name, scope in self.families.items()}
        batch = max(1, BATCH_CELLS // max(map(prod, shapes.values())))
        for begin in range(0, len(logs), batch):
            some = slice(begin, begin + batch)
            size = len(logs[some])
            cells = {name: np.zeros((*shape, size)) for name, shape in shapes.items()}
            for name, table in cells.items():
                table[(*(codes[some] for codes in self._cells(name)), np.arange(size))] = 1.0
            yield self.weights[some], logs[some], cells

    def draws(
        self, tables: Tables, generator: np.random.Generator
    ) -> Iterator[tuple[dict[str, Codes], Floats]]:
        """Yield the records: there is nothing to draw."""
        del tables, generator
        yield dict(self.codes), self.weights


def joint_likelihood_of(source: Tally, structure: Structure) -> JointLikelihood:
    """Return the likelihood of the reports of a source under networks with one structure.

    Raises
    ------
    InputError
        If the source has tables only, and no reports of records, or if the network is too wide.
    """
    sizes = {name: len(source.schema[name]) for name in structure}
    return JointLikelihood(reports_of(source, tuple(structure)), structure, sizes)


def reports_of(source: Tally, names: Sequence[str]) -> tuple[ReportFactors, ...]:
    """Return P(report | truth) of all reports of a source; raise InputError if it has tables only."""
    if isinstance(source, FactorSource):
        return source.report_factors(names)
    if isinstance(source, AnsweredTally):
        raise InputError(
            "The joint likelihood needs all people, and some answers are missing: use missing='category'."
        )
    raise InputError(
        "This source has tables, but not the reports of each record, which a joint likelihood needs. Without "
        "polish=True a structure is found by the composite score of its tables. For parameters use "
        "method='composite', the composite likelihood of pairs and families, or method='counts', each table "
        "by itself."
    )


class DisguisedReports:
    """Reports whose factors are assigned to cliques of a junction tree.

    Where the reports of a clique and of all cliques below it take few distinct values, products are computed
    once for each of these instead of for each record.
    """

    def __init__(
        self, reports: ReportFactors, families: Mapping[str, Scope], sizes: Mapping[str, int]
    ) -> None:
        self.reports = reports
        scopes = [*families.values(), *(factor.names for factor in reports.factors)]
        self.tree = JunctionTree(scopes, sizes)
        self.families = {name: (scope, self.tree.home(scope)) for name, scope in families.items()}
        self.factors = [(factor, self.tree.home(factor.names)) for factor in reports.factors]
        self.rows = self._distinct()

    def _distinct(self) -> dict[int, tuple[Codes, Codes]]:
        """Return, for cliques with few distinct reports, the row of each record and a record for each row."""
        shared_rows: dict[int, tuple[Codes, Codes]] = {}
        for i, one in enumerate(self.tree.cliques):
            if not all(child in shared_rows for child in one.children):
                continue
            codes = [(factor.report, len(factor.chances)) for factor, home in self.factors if home == i]
            codes += [(shared_rows[child][0], len(shared_rows[child][1])) for child in one.children]
            most = FEWEST_SHARED * self.reports.records
            if np.prod([float(size) for _, size in codes]) > MOST_COMBINATIONS * max(most, 1.0):
                continue
            member, rows = distinct_rows(codes, self.reports.records)
            if rows <= most:
                first = np.empty(rows, dtype=np.intp)
                first[member] = np.arange(len(member))
                shared_rows[i] = member, first
        return shared_rows

    def log_likelihood(self, tables: Tables) -> float:
        """Return the logarithm of the likelihood of the records."""
        passes = self._batches(tables, self._share(tables))
        return float(sum(weights @ passed.log_likelihood for weights, passed in passes))

    def scores(self, tables: Tables) -> Iterator[tuple[Floats, Floats, dict[str, Floats]]]:
        """Yield weights, log-likelihoods and posteriors of every family's cells, batch by batch."""
        for weights, passed in self._batches(tables, self._share(tables)):
            yield weights, passed.log_likelihood, dict(self.family_tables(passed.beliefs()))

    def draws(
        self, tables: Tables, generator: np.random.Generator
    ) -> Iterator[tuple[dict[str, Codes], Floats]]:
        """Yield the truth of records, drawn from its posterior distribution, and the weights."""
        for weights, passed in self._batches(tables, self._share(tables)):
            yield passed.sample(generator), weights

    def expectation(self, tables: Tables) -> tuple[float, dict[str, Floats]]:
        """Return the log-likelihood and the expected counts of every family."""
        shared = self._share(tables)
        total = 0.0
        sums: list[Floats] = []
        ratios: dict[int, Floats] = {}
        for weights, passed in self._batches(tables, shared):
            total += float(weights @ passed.log_likelihood)
            part, rest = passed.sum_beliefs(weights)
            sums = part if not sums else [a + b for a, b in zip(sums, part, strict=True)]
            ratios = {i: ratio + ratios[i] if i in ratios else ratio for i, ratio in rest.items()}
        cliques = self.tree.cliques
        for i in range(len(cliques) - 1, -1, -1):
            if i not in shared or i not in ratios:
                continue
            rows = shared[i]
            ratio = self.tree.spread(ratios[i], cliques[i].separator, i, batch=True)
            belief = rows.product * ratio
            sums[i] = belief.sum(axis=-1)
            for child in cliques[i].children:
                below, at = shared[child], shared[child].member[self.rows[i][1]]
                marginal = belief.sum(axis=self.tree.outside(child, i))
                ratio_below = divide(marginal, np.take(below.sums, at, axis=-1))
                ratios[child] = sum_rows(ratio_below, at, below.product.shape[-1])
        return total, dict(self.family_tables(sums))

    def _multiply_tables(self, tables: Tables) -> list[Floats]:
        """Return the product of the tables in each clique, with an axis of length 1 for the records."""
        tree = self.tree
        fixed: list[Floats] = [np.ones((1,) * (len(one.names) + 1)) for one in tree.cliques]
        for name, (scope, home) in self.families.items():
            fixed[home] = fixed[home] * tree.spread(tables[name], scope, home, batch=False)
        return [
            np.broadcast_to(table, (*[tree.sizes[name] for name in one.names], 1))
            for table, one in zip(fixed, tree.cliques, strict=True)
        ]

    def _share(self, tables: Tables) -> dict[int, SharedRows]:
        """Return the products of the cliques with few distinct reports."""
        tree, fixed = self.tree, self._multiply_tables(tables)
        shared: dict[int, SharedRows] = {}
        for i, (member, first) in self.rows.items():
            product = np.broadcast_to(fixed[i], (*fixed[i].shape[:-1], len(first)))
            log_scale = np.zeros(len(first))
            for factor, home in self.factors:
                if home == i:
                    seen = np.moveaxis(factor.chances[factor.report[first]], 0, -1)
                    product = product * tree.spread(seen, factor.names, i, batch=True)
            for child in tree.cliques[i].children:
                below = shared[child]
                at = below.member[first]
                scale = largest_of(below.sums)
                log_scale = log_scale + (below.log_scale + np.log(scale))[at]
                message = np.take(below.sums / scale, at, axis=-1)
                product = product * tree.spread(message, tree.cliques[child].separator, i, batch=True)
            shared[i] = SharedRows(member, product, product.sum(axis=tree.outside(i)), log_scale)
        return shared

    def _batches(
        self, tables: Tables, shared: Mapping[int, SharedRows]
    ) -> Iterator[tuple[Floats, Propagation]]:
        """Yield the weights and the messages of each batch of records."""
        tree, weights, full = self.tree, self.reports.weights, self._multiply_tables(tables)
        open_factors = [(factor, home) for factor, home in self.factors if home not in shared]
        turned = [np.ascontiguousarray(np.moveaxis(factor.chances, 0, -1)) for factor, _ in open_factors]
        cells = [size for i, size in enumerate(tree.cells) if i not in shared]
        batch = max(1, BATCH_CELLS // max(cells, default=1))
        for begin in range(0, len(weights), batch):
            some = slice(begin, begin + batch)
            potentials = list(full)
            for (factor, home), chances in zip(open_factors, turned, strict=True):
                seen = np.take(chances, factor.report[some], axis=-1)
                potentials[home] = potentials[home] * tree.spread(seen, factor.names, home, batch=True)
            rows = {i: replace(one, member=one.member[some]) for i, one in shared.items()}
            yield weights[some], Propagation(tree, potentials, len(weights[some]), rows)

    def family_tables(self, cliques: Sequence[Floats]) -> Iterator[tuple[str, Floats]]:
        """Yield the table of every family from tables of the cliques, with or without an axis of records."""
        if not cliques:
            return
        for name, (scope, home) in self.families.items():
            names = self.tree.cliques[home].names
            table = cliques[home]
            extra = table.ndim - len(names)
            rest = tuple(place for place, other in enumerate(names) if other not in scope)
            summed = table.sum(axis=rest) if rest else table
            left = [other for other in names if other in scope]
            order = [left.index(other) for other in scope]
            yield name, summed.transpose(*order, *range(len(scope), len(scope) + extra))
