"""Bayesian networks: parameters from any source of counts, and what can be done with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.query import Query
from masquerade.core.schema import Category, Schema
from masquerade.core.tally import Tally, check_source
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.display import Printed, html_of
from masquerade.core.util.formatting import printable
from masquerade.core.util.json_text import read_text
from masquerade.learn import model_file
from masquerade.learn.classifiers.prediction_rows import labels_of
from masquerade.learn.networks.files import bif
from masquerade.learn.networks.graph import ancestral_order, to_networkx
from masquerade.learn.networks.network_plot import Box, network_plot
from masquerade.learn.networks.parameters import (
    ConditionalTable,
    check_prior,
    check_rows,
    conditional_table,
    table_of,
    table_values,
    warn_of_unseen,
    weight_ratio,
)

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    from matplotlib.axes import Axes

    from masquerade.learn.networks._inference import Distribution, Engine

__all__ = [
    "BayesianNetwork",
    "ConditionalTable",
    "bayesian_network",
    "known_network",
    "parse_bif",
    "read_bif",
    "write_bif",
]

Structure = Mapping[str, Sequence[str]]
Codes = NDArray[np.unsignedinteger[Any]]
KIND = "bayesian_network"
LARGEST_BYTE = 256
KNOWN_ROW_SUM_ERROR = 1e-5  # published tables are printed to a few digits

MOST_BIF = 1 << 26  # bytes


class HasStructure(Protocol):
    """What a structure learner returns: the parents of every node, and more."""

    @property
    def structure(self) -> Structure:
        """Return the parents of every node."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BayesianNetwork(Printed):
    """A directed acyclic graph over variables with a conditional table for each.

    >>> source = mq.tally(mq.data.students())
    >>> network = mq.learn.bayesian_network(source, {"exams": (), "pills": ("exams",), "sleep": ("pills",)})
    >>> network["pills"].probabilities.tolist()
    [[0.88, 0.12], [0.7, 0.3]]
    >>> network.query("pills", {"sleep": "bad"})
    P(pills | sleep=bad)
    pills  probability
       no     0.584158
      yes     0.415842
    """

    tables: tuple[ConditionalTable, ...]

    def __getitem__(self, name: str) -> ConditionalTable:
        """Return the conditional table of a variable."""
        for table in self.tables:
            if table.child.name == name:
                return table
        raise InputError(f"There is no node {name!r} in the network.{did_you_mean(name, self.structure)}")

    @property
    def schema(self) -> Schema:
        """Return the variables, in the order of the tables."""
        return Schema(table.child for table in self.tables)

    @property
    def structure(self) -> dict[str, tuple[str, ...]]:
        """Return the parents of every node."""
        return {table.child.name: tuple(parent.name for parent in table.parents) for table in self.tables}

    def projected(self) -> BayesianNetwork:
        """Return the network without negative parameters, for sampling, inference and export.

        Negative estimates are set to zero and their rows rescaled: a biased step of its own. Standard errors
        and intervals stay those of the unbiased estimates.
        """
        return BayesianNetwork(tuple(table.projected() for table in self.tables))

    def usable(self, purpose: str) -> tuple[ConditionalTable, ...]:
        """Return the tables if none has a negative parameter; else refuse, and say what to do."""
        for table in self.tables:
            if np.any(table.probabilities < 0):
                raise InputError(
                    f"Node {table.child.name!r} has negative estimates: "
                    f"use network.projected() for {purpose}."
                )
        return self.tables

    def sample_codes(self, n: int, seed: int | np.random.Generator) -> dict[str, Codes]:
        """Return n simulated records as category codes, parents before children."""
        generator = np.random.default_rng(seed)
        by_name = {table.child.name: table for table in self.usable("sampling")}
        drawn: dict[str, Codes] = {}
        for name in ancestral_order(self.structure):
            table = by_name[name]
            steps = np.cumsum(table.probabilities, axis=-1)[..., :-1]
            given = steps[tuple(drawn[parent.name] for parent in table.parents)]
            kind = np.uint8 if len(table.child) <= LARGEST_BYTE else np.uint16
            drawn[name] = (generator.random(n)[:, None] >= given).sum(axis=1).astype(kind)
        return {table.child.name: drawn[table.child.name] for table in self.tables}

    def sample(self, n: int, seed: int | np.random.Generator) -> pd.DataFrame:
        """Return n simulated records as a pandas frame of labels."""
        import pandas as pd  # noqa: PLC0415  (learners load pandas only when a frame is asked for)

        codes = self.sample_codes(n, seed)
        return pd.DataFrame(
            {table.child.name: labels_of(table.child, codes[table.child.name]) for table in self.tables}
        )

    def query(
        self,
        target: str | Sequence[str],
        evidence: Mapping[str, Category] | None = None,
        *,
        engine: Engine = "built-in",
    ) -> Distribution:
        """Return P(target | evidence), exactly; see `masquerade.learn.networks._inference.query`."""
        from masquerade.learn.networks._inference import query  # noqa: PLC0415  (most networks are never queried)

        return query(self, target, evidence, engine=engine)

    def posteriors(self, target: str, likelihoods: Mapping[tuple[str, ...], Floats]) -> Floats:
        """Return P(target | virtual evidence), a row for every record.

        `likelihoods` are P(what was seen | categories) of variables seen, alone or together, records ×
        categories of each; see `masquerade.learn.networks._inference.posteriors`.
        """
        from masquerade.learn.networks._inference import posteriors  # noqa: PLC0415  (most networks are never queried)

        return posteriors(self, target, likelihoods)

    def to_networkx(self) -> nx.DiGraph[str]:
        """Return a networkx.DiGraph; nodes carry `categories`, `parents`, `probabilities` and `stderr`.

        The arrays have the parents as leading axes, in the order of `parents`, and the node last.
        """
        graph: nx.DiGraph[str] = to_networkx(self.structure)
        for table in self.tables:
            graph.nodes[table.child.name].update(
                categories=table.child.categories,
                parents=tuple(parent.name for parent in table.parents),
                probabilities=table.probabilities,
                stderr=table.stderr,
            )
        return graph

    def to_bif(self) -> str:
        """Return the network as BIF text, for bnlearn, pgmpy and pyAgrum; negative parameters are refused."""
        return bif.format_bif(self.usable("BIF"))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the network, parents above children, and return the axes.

        Under the name of a node stand its number of categories and the largest standard error among its
        reliable rows; a dashed frame marks a node with rows that are not reliable.
        """
        boxes, known = {}, False
        for table in self.tables:
            text = f"{len(table.child)} categories"
            if table.evidence is not None and table.reliable.any():
                known = True
                text += f", ±{table.stderr[table.reliable].max():.2g}"
            boxes[table.child.name] = Box(table.child.name, text, doubtful=not table.reliable.all())
        doubtful = any(box.doubtful for box in boxes.values())
        notes = ["±: largest standard error of a probability"] if known else []
        notes += ["dashed: has parameters from too few records"] if doubtful else []
        note = "; ".join(notes)
        return network_plot(self.structure, boxes, ax, note=note)

    @printable
    def summary(self) -> str:
        """Return every parameter with its standard error."""
        return "\n\n".join(table.summary() for table in self.tables)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a table for every node."""
        return "".join(html_of(table) for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """Return the network as plain JSON values."""
        return {**model_file.header(KIND), "nodes": [table_values(table) for table in self.tables]}

    @classmethod
    def from_dict(cls, values: Any) -> BayesianNetwork:
        """Return the network that `to_dict` described; anything else is an `InputError`."""
        model_file.check_header(values, KIND)
        nodes = model_file.entry(values, "nodes", list)
        if not all(isinstance(node, Mapping) for node in nodes):
            raise InputError("a node must be an object.")
        schema = Schema(model_file.variable_of(node.get("variable")) for node in nodes)
        structure: dict[str, tuple[str, ...]] = {}
        for name, node in zip(schema, nodes, strict=True):
            parents = model_file.entry(node, "parents", list)
            if not all(isinstance(parent, str) for parent in parents):
                raise InputError(f"node {name!r}: the parents must be names.")
            structure[name] = tuple(parents)
        ancestral_order(structure)
        return cls(
            tuple(
                table_of(node, schema[name], tuple(schema[parent] for parent in structure[name]))
                for name, node in zip(schema, nodes, strict=True)
            )
        )


def bayesian_network(
    source: Tally,
    structure: Structure | HasStructure,
    *,
    prior: float = 0.0,
    equivalent_size: float | None = None,
    nonnegative: bool = False,
) -> BayesianNetwork:
    """Return the parameters of a network with the given parents, from counts alone.

    Maximum likelihood by default; maximum a posteriori with `prior` added to every cell, or with the
    `equivalent_size` of a BDeu prior spread evenly over the cells of each table. A configuration of the
    parents that no record seems to have (an estimated number of zero or less) gets a uniform row with
    infinite standard errors, and one `MasqueradeWarning` counts them. Estimates may be negative;
    `nonnegative` returns the network `projected`, for use. Sources alone decide how variables were disguised:
    each by itself, parents together, a node with its parents or with others.

    Formula: θ_ijk = (α_ijk + N̂_ijk)/(α_ij + N̂_ij); Var θ ≈ (Var N̂_ijk − 2θ Cov(N̂_ijk, N̂_ij)
    + θ² Var N̂_ij)/(α_ij + N̂_ij)².
    Reference: Ma & Sivakumar (2005) §5; the delta method for a ratio of dependent normals.
    Cost: one batch of one question per node.
    Error: first order in 1/n; flagged where N̂_ij is below five standard errors or below 25 records.

    >>> source = mq.tally(mq.data.students())
    >>> network = mq.learn.bayesian_network(source, {"exams": (), "pills": ("exams",), "sleep": ("pills",)})
    >>> print(network["pills"].summary())
    P(pills | exams)
    exams pills  probability  stderr  lower  upper  reliable
      few    no       0.8800  0.0188 0.8383 0.9120      True
      few   yes       0.1200  0.0188 0.0880 0.1617      True
     many    no       0.7000  0.0265 0.6459 0.7491      True
     many   yes       0.3000  0.0265 0.2509 0.3541      True
    """
    check_source(source)
    parents = _plain_structure(structure)
    check_prior(prior, equivalent_size)
    queries = [Query(by=(*parents[name], name)) for name in parents]
    for query in queries:
        query.check(source.schema)
    answers = source.answer(queries)
    smallest = min(answers, key=lambda table: table.values.size)
    sampling = weight_ratio(smallest)
    tables = tuple(
        conditional_table(
            counts, prior if equivalent_size is None else equivalent_size / counts.values.size, sampling
        )
        for counts in answers
    )
    warn_of_unseen(tables)
    network = BayesianNetwork(tables)
    return network.projected() if nonnegative else network


def _plain_structure(structure: Structure | HasStructure) -> dict[str, tuple[str, ...]]:
    """Return the parents of every node as tuples, of a mapping or of what a structure learner returned."""
    given = structure if isinstance(structure, Mapping) else getattr(structure, "structure", None)
    if not isinstance(given, Mapping) or not given:
        raise InputError("A structure is a mapping from every node to its parents, with at least one node.")
    plain = {
        name: (parents,) if isinstance(parents, str) else tuple(parents) for name, parents in given.items()
    }
    ancestral_order(plain)
    return plain


def known_network(
    schema: Schema, structure: Structure, probabilities: Mapping[str, Floats]
) -> BayesianNetwork:
    """Return the network with given parameters (standard errors zero): a population to sample from.

    >>> schema = mq.Schema({"exams": ["few", "many"], "pills": ["yes", "no"]})
    >>> chances = {"exams": [0.5, 0.5], "pills": [[0.12, 0.88], [0.3, 0.7]]}
    >>> network = mq.learn.known_network(schema, {"exams": (), "pills": ("exams",)}, chances)
    >>> network.sample(1000, seed=1).shape
    (1000, 2)
    """
    tables = []
    ancestral_order(structure)
    for name, parents in structure.items():
        axes = (*parents, name)
        values = np.asarray(probabilities[name], dtype=float)
        if values.shape != schema.shape(axes) or not np.all(np.isfinite(values)):
            raise InputError(
                f"The parameters of {name!r} must be rows over {' × '.join(axes)} that sum to 1."
            )
        check_rows(name, values, KNOWN_ROW_SUM_ERROR)
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


def parse_bif(text: str, schema: Schema | None = None) -> BayesianNetwork:
    """Return the network that BIF text describes; what is wrong is named by its line.

    With a `schema`, a category is the one of its variable that is written like it (so 1 and not "1").
    """
    return known_network(*bif.parse_bif(text, schema))


def read_bif(path: str | Path, schema: Schema | None = None) -> BayesianNetwork:
    """Return the network in a BIF file; see `parse_bif`.

    >>> mq.learn.write_bif(mq.data.seven_nodes(), "seven.bif")
    >>> mq.learn.read_bif("seven.bif").structure["D"]
    ('B', 'C')
    """
    text = read_text(Path(path), most=MOST_BIF)
    try:
        return parse_bif(text, schema)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def write_bif(network: BayesianNetwork, path: str | Path, name: str = "unknown") -> None:
    """Write a network as a BIF file, whole or not at all.

    >>> mq.learn.write_bif(mq.data.seven_nodes(), "seven.bif", name="seven")
    >>> mq.learn.read_bif("seven.bif").schema.names
    ('A', 'G', 'B', 'C', 'D', 'E', 'F')
    """
    write_whole(Path(path), bif.format_bif(network.usable("BIF"), name))
