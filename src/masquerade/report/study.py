"""The study of the demo: disguise a population, and estimate its properties from the disguised records."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import PolicyPrivacy, privacy
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.query import Query
from masquerade.core.schema import Category, Variable
from masquerade.core.tally import Tally
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes, eleven_nodes_policy
from masquerade.disguising.frames import disguise
from masquerade.learn.networks.network import ConditionalTable, bayesian_network
from masquerade.sources.records import Records
from masquerade.sources.tally import tally

SEED = 2005
VAGUE = 1.0  # a probability with a larger standard error is treated as unknown
LEAST_STDERR = 1e-6  # smaller standard errors are rounding errors
COUNTS: tuple[Mapping[str, Category], ...] = (
    {"A": 1},
    {"L": 2},
    {"B": 1},
    {"C": 1},
    {"F": 1},
    {"A": 1, "T": 1},
    {"L": 1, "S": 2},
    {"E": 1, "X": 1},
    {"B": 3, "D": 1},
    {"C": 1, "G": 1},
    {"D": 1, "F": 2},
    {"E": 2, "B": 1, "D": 2},
)
PAIRS = (("A", "T"), ("E", "X"), ("B", "D"))


@dataclass(frozen=True, slots=True)
class StudyFigure:
    """One number: its label, the truth, the naive value from the disguised records, and the estimate.

    Attributes
    ----------
    naive : float, optional
        Value from the disguised records, taken at face value. None if no disguised record is in the cell.
    reliable : bool
        False if the parents' configuration is too rare for a reliable standard error.
    free : bool
        False for the last value of a row of probabilities, which follows from the others.
    """

    cell: tuple[tuple[str, Category], ...]
    truth: float
    naive: float | None
    estimate: float
    stderr: float
    reliable: bool = True
    free: bool = True

    @property
    def label(self) -> str:
        """The cell as text, such as ``A=1, T=2``."""
        return ", ".join(f"{name}={value}" for name, value in self.cell)

    @property
    def seen(self) -> bool:
        """True if the records contain any information about this number."""
        return math.isfinite(self.stderr)

    @property
    def z(self) -> float | None:
        """The error in standard errors. None without a standard error."""
        known = self.seen and self.stderr > LEAST_STDERR
        return (self.estimate - self.truth) / self.stderr if known else None


@dataclass(frozen=True, slots=True)
class NodeParameters:
    """The parameters of one node of the network."""

    name: str
    parents: tuple[str, ...]
    parameters: tuple[StudyFigure, ...]

    @property
    def label(self) -> str:
        """The table's name, such as ``P(E | T, L)``."""
        return f"P({self.name} | {', '.join(self.parents)})" if self.parents else f"P({self.name})"


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """Results of the demo. Of the clear records only counts are kept.

    `counts`, `pairs` and `cells` (all one- and two-way counts that involve a disguised variable) are compared
    with the sample's counts, so their standard errors are ``given_records``. `nodes` are compared with the
    network that the sample was drawn from, with ``population`` standard errors.
    """

    n: int
    policy: Policy
    privacy: PolicyPrivacy
    disguised: Any
    counts: tuple[StudyFigure, ...]
    pairs: tuple[tuple[StudyFigure, ...], ...]
    cells: tuple[StudyFigure, ...]
    nodes: tuple[NodeParameters, ...]

    @property
    def structure(self) -> dict[str, tuple[str, ...]]:
        """The parents of every node."""
        return {node.name: node.parents for node in self.nodes}

    @property
    def free_parameters(self) -> tuple[StudyFigure, ...]:
        """The parameters that do not follow from others."""
        return tuple(item for node in self.nodes for item in node.parameters if item.free)

    @property
    def reliable_errors(self) -> tuple[float, ...]:
        """The errors, in standard errors, of the free parameters with a reliable standard error."""
        return tuple(item.z for item in self.free_parameters if item.reliable and item.z is not None)


def run_study(n: int, seed: int = SEED) -> Study:
    """Sample `n` people, disguise them by Table 1 of the paper with OS randomness, and estimate.

    Reference: Ma & Sivakumar (2005).
    """
    if n < 1:
        raise InputError(f"The demo needs at least one person. Got n = {n} instead.")
    policy, population = eleven_nodes_policy(), eleven_nodes()
    clear = population.sample(n, seed)
    disguised = disguise(clear, policy)
    truth = tally(clear, schema=policy)
    del clear
    source = tally(disguised, policy)
    # reports taken as truths, as by an analyst who does not know of the disguise
    naive = Records(source.codes, policy.without_channels())

    singles = [(name,) for name in policy.schema]
    touched = [
        names
        for names in [*singles, *combinations(policy.schema, 2)]
        if any(name in policy.disguised for name in names)
    ]
    groups: list[tuple[str, ...]] = [*(tuple(cell) for cell in COUNTS), *PAIRS, *touched]
    tables = _compare(truth, naive, source, groups)
    counts = [
        next(row for row in rows if dict(row.cell) == dict(cell))
        for rows, cell in zip(tables, COUNTS, strict=False)
    ]
    pairs = tables[len(COUNTS) : len(COUNTS) + len(PAIRS)]
    cells = [row for rows in tables[len(COUNTS) + len(PAIRS) :] for row in rows]
    with warnings.catch_warnings():
        # the result itself marks configurations without records
        warnings.simplefilter("ignore", MasqueradeWarning)
        raw, learnt = bayesian_network(naive, ELEVEN_NODES), bayesian_network(source, ELEVEN_NODES)
    nodes = [
        NodeParameters(name, parents, tuple(_parameter_rows(population[name], raw[name], learnt[name])))
        for name, parents in population.structure.items()
    ]
    return Study(
        n, policy, privacy(policy), disguised, tuple(counts), tuple(pairs), tuple(cells), tuple(nodes)
    )


def _compare(
    truth: Tally, naive: Tally, source: Tally, groups: Sequence[tuple[str, ...]]
) -> list[tuple[StudyFigure, ...]]:
    """Query clear records, disguised records at face value, and the estimate for the same counts."""
    queries = [Query(by=names) for names in groups]
    answers = [tally.answer(queries) for tally in (truth, naive, source)]
    return [
        tuple(_rows(own.axes, true.values, raw.values, own.values, own.stderr("given_records")))
        for true, raw, own in zip(*answers, strict=True)
    ]


def _rows(axes: Sequence[Variable], *columns: NDArray[Any]) -> Iterable[StudyFigure]:
    """Yield one number per cell, from columns of values."""
    names = [axis.name for axis in axes]
    cells = product(*(axis.categories for axis in axes))
    for cell, *figures in zip(cells, *(column.ravel().tolist() for column in columns), strict=True):
        yield StudyFigure(tuple(zip(names, cell, strict=True)), *figures)


def _parameter_rows(
    truth: ConditionalTable, naive: ConditionalTable, estimate: ConditionalTable
) -> Iterable[StudyFigure]:
    shape = estimate.probabilities.shape
    free = np.broadcast_to(np.arange(shape[-1]) < shape[-1] - 1, shape)
    raw = naive.probabilities.astype(object)
    raw[~np.isfinite(naive.stderr)] = None
    return _rows(
        estimate.axes,
        truth.probabilities,
        raw,
        estimate.probabilities,
        estimate.stderr,
        np.broadcast_to(estimate.reliable[..., None], shape),
        free,
    )
