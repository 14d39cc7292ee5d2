"""Bayesian-network parameters from any source of counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.schema import Schema, Variable
from masquerade.core.table import CountTable, Interval
from masquerade.core.tally import Tally

if TYPE_CHECKING:
    import pandas as pd

Structure = Mapping[str, Sequence[str]]
FEWEST_SIGMAS = 5.0
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class ConditionalTable:
    """P(child | parents) with standard errors; parents are the leading axes, the child is the last.

    `reliable` is False where the parents' configuration is so rare that its count is less than five
    standard errors: there the delta method is not to be trusted. An unseen configuration has a uniform
    row and an infinite standard error.
    """

    child: Variable
    parents: tuple[Variable, ...]
    probabilities: Floats
    stderr: Floats
    reliable: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

    def conf_int(self, level: float = 0.95) -> Interval:
        """Return normal confidence intervals of the parameters."""
        half = NormalDist().inv_cdf(0.5 + level / 2) * self.stderr
        return Interval(self.probabilities - half, self.probabilities + half)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: parents, child, probability, stderr, reliable; one row per parameter."""
        import pandas as pd  # noqa: PLC0415  (learners load pandas only when a frame is asked for)

        axes = (*self.parents, self.child)
        cells = list(product(*(axis.categories for axis in axes)))
        frame = pd.DataFrame({axis.name: [cell[i] for cell in cells] for i, axis in enumerate(axes)})
        frame["probability"] = self.probabilities.ravel()
        frame["stderr"] = self.stderr.ravel()
        frame["reliable"] = np.repeat(self.reliable.ravel(), len(self.child))
        return frame


@dataclass(frozen=True, slots=True, eq=False)
class BayesianNetwork:
    """A directed acyclic graph over variables with a conditional table for each."""

    tables: tuple[ConditionalTable, ...]

    def __getitem__(self, name: str) -> ConditionalTable:
        """Return the conditional table of a variable."""
        found = [table for table in self.tables if table.child.name == name]
        if not found:
            raise InputError(f"There is no node {name!r} in the network.")
        return found[0]

    @property
    def schema(self) -> Schema:
        """Return the variables, in the order of the tables."""
        return Schema(table.child for table in self.tables)

    @property
    def structure(self) -> dict[str, tuple[str, ...]]:
        """Return the parents of every node."""
        return {table.child.name: tuple(parent.name for parent in table.parents) for table in self.tables}

    def sample_codes(
        self, n: int, seed: int | np.random.Generator
    ) -> dict[str, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
        """Return n simulated records as category codes, parents before children."""
        generator = np.random.default_rng(seed)
        drawn: dict[str, np.ndarray[tuple[int], np.dtype[np.uint8]]] = {}
        for name in ancestral_order(self.structure):
            table = self[name]
            if np.any(table.probabilities < 0):
                raise InputError(f"Node {name!r} has negative estimates: project the counts before sampling.")
            steps = np.cumsum(table.probabilities, axis=-1)[..., :-1]
            given = steps[tuple(drawn[parent.name] for parent in table.parents)]
            drawn[name] = (generator.random(n)[:, None] >= given).sum(axis=1).astype(np.uint8)
        return {table.child.name: drawn[table.child.name] for table in self.tables}

    def sample(self, n: int, seed: int | np.random.Generator) -> pd.DataFrame:
        """Return n simulated records as a pandas frame of labels."""
        import pandas as pd  # noqa: PLC0415  (learners load pandas only when a frame is asked for)

        codes = self.sample_codes(n, seed)
        return pd.DataFrame(
            {name: np.array(self.schema[name].categories)[column] for name, column in codes.items()}
        )

    def summary(self) -> str:
        """Return every parameter with its standard error."""
        blocks = []
        for table in self.tables:
            given = f" | {', '.join(parent.name for parent in table.parents)}" if table.parents else ""
            frame = table.to_frame().to_string(index=False, float_format=lambda x: f"{x:.4f}")
            blocks.append(f"P({table.child.name}{given})\n{frame}")
        return "\n\n".join(blocks)


def bayesian_network(source: Tally, structure: Structure) -> BayesianNetwork:
    """Return the maximum-likelihood parameters of a network with the given parents, from counts alone.

    Formula: θ_ijk = N̂_ijk/N̂_ij; Var θ ≈ (Var N̂_ijk − 2θ Cov(N̂_ijk, N̂_ij) + θ² Var N̂_ij)/N̂_ij².
    Reference: Ma & Sivakumar (2005) §5; the delta method for a ratio of dependent normals.
    Cost: one batch of one question per node.
    Error: first order in 1/n; flagged where N̂_ij is below five standard errors.
    """
    structure = {
        name: (parents,) if isinstance(parents, str) else parents for name, parents in structure.items()
    }
    ancestral_order(structure)
    queries = [Query(by=(*structure[name], name)) for name in structure]
    for query in queries:
        query.check(source.schema)
    return BayesianNetwork(tuple(conditional_table(table) for table in source.answer(queries)))


def conditional_table(counts: CountTable) -> ConditionalTable:
    """Return P(last axis | the others) with standard errors."""
    child = counts.axes[-1]
    covariance = counts.within((child.name,))
    total = counts.values.sum(axis=-1)
    total_variance = covariance.sum(axis=(-2, -1))
    seen = total > ROUNDING * counts.n
    safe = np.where(seen, total, 1.0)[..., None]
    ratio = np.where(seen[..., None], counts.values / safe, 1 / len(child))
    variance = (
        np.diagonal(covariance, axis1=-2, axis2=-1)
        - 2 * ratio * covariance.sum(axis=-1)
        + ratio**2 * total_variance[..., None]
    ) / safe**2
    stderr = np.where(seen[..., None], np.sqrt(np.maximum(variance, 0.0)), np.inf)
    reliable = seen & (total >= FEWEST_SIGMAS * np.sqrt(np.maximum(total_variance, 0.0)))
    return ConditionalTable(child, counts.axes[:-1], ratio, stderr, reliable)


def known_network(
    schema: Schema, structure: Structure, probabilities: Mapping[str, Floats]
) -> BayesianNetwork:
    """Return the network with given parameters (standard errors zero): a population to sample from."""
    tables = []
    for name, parents in structure.items():
        axes = (*parents, name)
        values = np.asarray(probabilities[name], dtype=float)
        if values.shape != schema.shape(axes) or not np.allclose(values.sum(axis=-1), 1):
            raise InputError(
                f"The parameters of {name!r} must be rows over {' × '.join(axes)} that sum to 1."
            )
        tables.append(
            ConditionalTable(
                schema[name],
                tuple(schema[parent] for parent in parents),
                values,
                np.zeros_like(values),
                np.ones(values.shape[:-1], dtype=bool),
            )
        )
    return BayesianNetwork(tuple(tables))


def ancestral_order(structure: Structure) -> list[str]:
    """Return the nodes with parents first; a cycle or an unknown parent is an `InputError`."""
    order: list[str] = []
    open_nodes = dict(structure)
    for name, parents in structure.items():
        for parent in parents:
            if parent not in structure:
                raise InputError(f"Node {name!r} has a parent {parent!r} that is no node of the structure.")
    while open_nodes:
        ready = [name for name, parents in open_nodes.items() if all(parent in order for parent in parents)]
        if not ready:
            raise InputError(f"The structure has a cycle among {', '.join(open_nodes)}.")
        order += ready
        for name in ready:
            del open_nodes[name]
    return order
