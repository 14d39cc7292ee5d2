"""The likelihood of reports under networks that are too wide for exact inference, with its error."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import MasqueradeWarning
from masquerade.core.likelihood_rows import ReportFactors
from masquerade.core.tally import Tally
from masquerade.learn.networks.joint_likelihood import (
    JointLikelihood,
    Structure,
    Tables,
    dimension_of,
    draw_codes,
    is_clear,
    reports_of,
)
from masquerade.learn.networks.junction_tree import MOST_CELLS, Codes, count_cells

DRAWS = 32  # number of draws of the truth of every record
MODEL_RECORDS = 50_000  # records drawn from the network in order to choose the links to omit
NARROW_CELLS = 1 << 13  # most cells of all cliques of the narrower network, for one record
PRIOR = 0.5  # records added to every row of the narrower network's tables


@dataclass(frozen=True, slots=True)
class NetworkLikelihood:
    """The likelihood of all reports of a source under a network.

    Attributes
    ----------
    value : float
        Logarithm of the likelihood.
    stderr : float
        Standard error of the value; 0 if it is exact.
    n : float
        Number of records, or the sum of their weights.
    dimension : int
        Number of free parameters of the network.
    """

    value: float
    stderr: float
    n: float
    dimension: int


def report_likelihood(source: Tally, structure: Structure, tables: Tables) -> NetworkLikelihood:
    """Return the likelihood of all reports of a source: exact, or an estimate with a warning.

    Raises
    ------
    InputError
        If the source has tables only, and no reports of records.
    """
    sizes = {name: len(source.schema[name]) for name in structure}
    reports = reports_of(source, tuple(structure))
    n = float(sum(one.weights.sum() for one in reports))
    wide = WideLikelihood(reports, structure, sizes)
    value, stderr = 0.0, 0.0
    if wide.is_needed():
        value, stderr = wide.estimate(tables)
        warnings.warn(
            f"The network is too wide for its exact likelihood: the logarithm is estimated from {DRAWS} "
            f"draws of every record, with a standard error of {stderr:.2g}.",
            MasqueradeWarning,
            stacklevel=4,
        )
    else:
        value = JointLikelihood(reports, structure, sizes).log_likelihood(tables)
    return NetworkLikelihood(value, stderr, n, dimension_of(structure, sizes))


class WideLikelihood:
    """The likelihood of the reports of all records under a network that is too wide for exact inference.

    The weakest links are omitted until exact inference is possible. The truth of every record is drawn from
    its posterior distribution under this narrower network, independently, and weighted.

    Parameters
    ----------
    reports : sequence of ReportFactors
        The reports, from a source of records.
    structure : mapping
        Parents of every node.
    sizes : mapping of str to int
        Number of categories of every node.
    seed : int, default 0
        Seed of the draws.

    Notes
    -----
    Formula: P(report) = P'(report) · E'[Π_v θ_v(x) / θ'_v(x) | report], where ' is the narrower network. The
    logarithm of a mean of m draws is too small by about c²/2m, c the coefficient of variation of the weights:
    this is added.
    Reference: importance sampling, Koller & Friedman (2009) §12.2.
    Cost: `DRAWS` draws of all records.
    Error: √(Σ c²/m) of the sum over the records.
    """

    def __init__(
        self,
        reports: Sequence[ReportFactors],
        structure: Structure,
        sizes: Mapping[str, int],
        seed: int = 0,
    ) -> None:
        self.reports, self.structure, self.sizes = list(reports), dict(structure), dict(sizes)
        self.seed = seed
        self.n = float(sum(one.weights.sum() for one in reports))

    def is_needed(self) -> bool:
        """Return True if exact inference would need more than `MOST_CELLS` cells."""
        disguised = [one for one in self.reports if not is_clear(one, self.sizes)]
        return any(self._cells_of(one, self.structure) > MOST_CELLS for one in disguised)

    def estimate(self, tables: Tables) -> tuple[float, float]:
        """Return the estimated logarithm of the likelihood of all reports and its standard error."""
        generator = np.random.default_rng(self.seed)
        narrow, fitted = self._narrower(tables, generator)
        changed = [name for name in self.structure if narrow[name] != self.structure[name]]
        joint = JointLikelihood(self.reports, narrow, self.sizes)
        base = joint.log_likelihood(fitted)
        records = sum(one.records for one in self.reports)
        logs, multiplicity = np.empty((DRAWS, records)), np.empty(records)
        for draw in range(DRAWS):
            codes, multiplicity = joint.draws(fitted, generator)
            logs[draw] = sum(
                _log_chances(tables[name], codes, (*self.structure[name], name))
                - _log_chances(fitted[name], codes, (*narrow[name], name))
                for name in changed
            )
        top = logs.max(axis=0)
        top = np.where(np.isfinite(top), top, 0.0)
        weights = np.exp(logs - top)
        mean = weights.mean(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            variation = np.where(mean > 0, weights.var(axis=0, ddof=1) / mean**2, 0.0) / DRAWS
            value = top + np.log(mean) + variation / 2
        return base + float(multiplicity @ value), float(np.sqrt(multiplicity**2 @ variation))

    def _narrower(
        self, tables: Tables, generator: np.random.Generator
    ) -> tuple[dict[str, tuple[str, ...]], dict[str, Floats]]:
        """Return the structure without its weakest links, and tables from records drawn from the network."""
        codes = draw_codes(self.structure, tables, MODEL_RECORDS, generator)
        narrow = {name: tuple(parents) for name, parents in self.structure.items()}
        counts = {name: _count(codes, (*narrow[name], name), self.sizes) for name in narrow}
        gains = {
            (parent, name): _loss(counts[name], at)
            for name, parents in narrow.items()
            for at, parent in enumerate(parents)
        }
        while self._cells(narrow) > NARROW_CELLS and gains:
            parent, child = min(gains, key=lambda link: (gains[link], link))
            narrow[child] = tuple(other for other in narrow[child] if other != parent)
            counts[child] = _count(codes, (*narrow[child], child), self.sizes)
            del gains[parent, child]
            gains |= {(other, child): _loss(counts[child], at) for at, other in enumerate(narrow[child])}
        fitted = {
            name: (counts[name] + PRIOR) / (counts[name] + PRIOR).sum(axis=-1, keepdims=True)
            if narrow[name] != self.structure[name]
            else np.asarray(tables[name])
            for name in narrow
        }
        return narrow, fitted

    def _cells(self, structure: Structure) -> int:
        """Return the number of cells of the cliques, the largest over all groups of records."""
        return max(self._cells_of(one, structure) for one in self.reports)

    def _cells_of(self, reports: ReportFactors, structure: Structure) -> int:
        families = [(*parents, name) for name, parents in structure.items()]
        return count_cells([*families, *(factor.names for factor in reports.factors)], self.sizes)


def _count(codes: Mapping[str, Codes], scope: Sequence[str], sizes: Mapping[str, int]) -> Floats:
    shape = tuple(sizes[name] for name in scope)
    index = np.ravel_multi_index([codes[name] for name in scope], shape)
    return np.bincount(index, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)


def _loss(counts: Floats, at: int) -> float:
    """Return the log-likelihood lost without the link from the parent at axis `at`."""

    def fit(table: Floats) -> float:
        rows = table.sum(axis=-1, keepdims=True)
        seen = table > 0
        return float(np.sum(table[seen] * np.log((table / np.where(rows > 0, rows, 1.0))[seen])))

    return fit(counts) - fit(counts.sum(axis=at))


def _log_chances(table: Floats, codes: Mapping[str, Codes], scope: Sequence[str]) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(table[tuple(codes[name] for name in scope)]))
