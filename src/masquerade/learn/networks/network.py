"""Bayesian networks: parameters from any source of counts, sampling, inference and files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from masquerade.core.answered_tally import (
    MissingAnswers,
    ModelMissing,
    missing_answers_of,
    people_who_answered,
)
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.query import Query
from masquerade.core.schema import Category, Schema
from masquerade.core.tally import Tally
from masquerade.core.util.display import Printed, html_of
from masquerade.core.util.formatting import printable
from masquerade.learn import model_file
from masquerade.learn.classifiers.prediction_rows import labels_of
from masquerade.learn.networks import joint_fit
from masquerade.learn.networks.composite_fit import fit_composite
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
from masquerade.learn.networks.wide_likelihood import NetworkLikelihood, report_likelihood

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
]

Structure = Mapping[str, Sequence[str]]
Codes = NDArray[np.unsignedinteger[Any]]
KIND = "bayesian_network"
LARGEST_BYTE = 256
KNOWN_ROW_SUM_ERROR = 1e-5  # published tables are printed to a few digits


class HasStructure(Protocol):
    """A result with a structure, such as the result of a structure learner."""

    @property
    def structure(self) -> Structure:
        """Return the parents of every node."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BayesianNetwork(Printed):
    """A directed acyclic graph over variables with a conditional table for each.

    Attributes
    ----------
    tables : tuple of ConditionalTable
        One table per variable.
    missing : MissingAnswers or None
        Shares of missing answers, and how they were treated.
    joint : JointFit or None
        Maximum of the joint or composite likelihood, with the covariance of all parameters, for a network
        fitted with ``method="likelihood"`` or ``"composite"``. Files contain it for up to 300 parameters.

    Examples
    --------
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
    missing: MissingAnswers | None = None
    joint: joint_fit.JointFit | None = None

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

    def log_likelihood(self, source: Tally) -> float:
        """Compute the logarithm of the likelihood of all reports of a source under the network.

        Parameters
        ----------
        source : Tally
            A source that knows the reports of each record.

        Returns
        -------
        float
            Σ over the records of log P(report). A record of survey weight w counts as w records.

        Raises
        ------
        InputError
            If the source has tables only, and no reports of records, or if a parameter is negative.

        Notes
        -----
        Formula: P(report) = Σ_x Π_v θ_v(x_v | parents) · P(report | x), exactly, by a junction tree. Beyond
        2¹⁸ cells of its cliques, it is estimated from independent draws, and a `MasqueradeWarning` states the
        standard error: see `wide_likelihood.WideLikelihood`.
        """
        return self._value_of(source).value

    def bic(self, source: Tally) -> float:
        """Compute log L − ½ log n · (free parameters) of the reports of a source; larger is better.

        Parameters
        ----------
        source : Tally
            A source that knows the reports of each record.

        Returns
        -------
        float
            The Bayesian information criterion, on the scale of the log-likelihood.
        """
        likelihood = self._value_of(source)
        return likelihood.value - math.log(likelihood.n) / 2 * likelihood.dimension

    def aic(self, source: Tally) -> float:
        """Compute log L − (free parameters) of the reports of a source; larger is better.

        Parameters
        ----------
        source : Tally
            A source that knows the reports of each record.

        Returns
        -------
        float
            Akaike's information criterion, on the scale of the log-likelihood.
        """
        likelihood = self._value_of(source)
        return likelihood.value - likelihood.dimension

    def composite_log_likelihood(self, source: Tally) -> float:
        """Compute the composite log-likelihood of all pairs of variables, for any source of tables.

        This is not the likelihood of the reports: each pair is scored as if it were reported alone. Compare
        networks by it only if a source has tables only, so that `log_likelihood` is not available.

        Parameters
        ----------
        source : Tally
            Any source of counts.

        Returns
        -------
        float
            Σ over the pairs of the log-likelihood of their reports under the network, minus the
            log-likelihood under the best table of the pair; at most 0.

        Notes
        -----
        Reference: Lindsay (1988); Varin, Reid & Firth (2011).
        Cost: one batch with one query per pair.

        Examples
        --------
        >>> source = mq.tally(mq.data.students())
        >>> links = {"exams": (), "pills": ("exams",), "sleep": ("pills",)}
        >>> linked = mq.learn.bayesian_network(source, links)
        >>> empty = mq.learn.bayesian_network(source, dict.fromkeys(links, ()))
        >>> linked.composite_log_likelihood(source) > empty.composite_log_likelihood(source)
        True
        """
        from masquerade.learn.networks._inference import composite_log_likelihood  # noqa: PLC0415  (as for `query`)

        return composite_log_likelihood(self, source)

    def _value_of(self, source: Tally) -> NetworkLikelihood:
        tables = {table.child.name: table.probabilities for table in self.usable("a likelihood")}
        return report_likelihood(source, self.structure, tables)

    def project(self) -> BayesianNetwork:
        """Return the network without negative parameters, for sampling, inference and export.

        Negative estimates are set to zero and their rows rescaled, which introduces a bias. Standard errors
        and intervals remain those of the unbiased estimates.
        """
        return BayesianNetwork(tuple(table.project() for table in self.tables), self.missing, self.joint)

    def usable(self, purpose: str) -> tuple[ConditionalTable, ...]:
        """Return the tables; raise InputError if a parameter is negative."""
        for table in self.tables:
            if np.any(table.probabilities < 0):
                raise InputError(
                    f"Node {table.child.name!r} has negative estimates: use network.project() for {purpose}."
                )
        return self.tables

    def sample_codes(self, n: int, seed: int | np.random.Generator) -> dict[str, Codes]:
        """Sample records as category codes.

        Parameters
        ----------
        n : int
            Number of records.
        seed : int or numpy.random.Generator
            Seed or generator.

        Returns
        -------
        dict of str to ndarray
            Codes by variable.

        Raises
        ------
        InputError
            If a parameter is negative: use `project` first.
        """
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
        """Sample records as a pandas frame of labels.

        Parameters
        ----------
        n : int
            Number of records.
        seed : int or numpy.random.Generator
            Seed or generator.

        Returns
        -------
        pandas.DataFrame
            One column per variable.

        Raises
        ------
        InputError
            If a parameter is negative: use `project` first.
        """
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
        """Compute P(target | evidence) exactly.

        Parameters
        ----------
        target : str or sequence of str
            Variables of the distribution.
        evidence : mapping of str to category, optional
            Known categories of other variables.
        engine : {"built-in", "pyagrum"}
            Variable elimination, or pyAgrum's lazy propagation for large networks.

        Returns
        -------
        Distribution
            Joint distribution of the target.

        Raises
        ------
        InputError
            If a parameter is negative, the evidence is impossible, or the network is too wide for the engine.
        """
        from masquerade.learn.networks._inference import query  # noqa: PLC0415  (most networks are never queried)

        return query(self, target, evidence, engine=engine)

    def posteriors(self, target: str, likelihoods: Mapping[tuple[str, ...], Floats]) -> Floats:
        """Compute P(target | virtual evidence) for many records.

        Parameters
        ----------
        target : str
            Variable to predict.
        likelihoods : mapping of tuple of str to ndarray
            P(observation | categories) of observed variables, alone or together: records × categories of
            each.

        Returns
        -------
        ndarray
            One row per record, one column per category of the target.

        Raises
        ------
        InputError
            If a parameter is negative, a shape is not valid, or the network is too wide.
        """
        from masquerade.learn.networks._inference import posteriors  # noqa: PLC0415  (most networks are never queried)

        return posteriors(self, target, likelihoods)

    def to_networkx(self) -> nx.DiGraph[str]:
        """Return a networkx.DiGraph; `categories`, `parents`, `probabilities`, `stderr` are attributes.

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
        """Return the network as BIF text, for bnlearn, pgmpy and pyAgrum; no parameter may be negative."""
        return bif.format_bif(self.usable("BIF"))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the network, parents above children, and return the axes.

        Below the name of a node are its number of categories and the largest standard error among its
        reliable rows. A dashed frame marks a node with unreliable rows.
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
        parts = [*(table.summary() for table in self.tables), *model_file.missing_lines(self.missing)]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        """Return the HTML view of a notebook: one table per node."""
        note = "".join(f"<p>{escape(line)}</p>" for line in model_file.missing_lines(self.missing))
        return "".join(html_of(table) for table in self.tables) + note

    def to_dict(self) -> dict[str, Any]:
        """Return the network as plain JSON values."""
        nodes = [table_values(table) for table in self.tables]
        ends = {**joint_fit.fit_values(self.joint), **model_file.missing_values(self.missing)}
        return {**model_file.header(KIND), "nodes": nodes, **ends}

    @classmethod
    def from_dict(cls, values: Any) -> BayesianNetwork:
        """Return the network that `to_dict` described; raise InputError if the values are not valid."""
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
        tables = tuple(
            table_of(node, schema[name], tuple(schema[parent] for parent in structure[name]))
            for name, node in zip(schema, nodes, strict=True)
        )
        return cls(tables, model_file.missing_of(values), joint_fit.fit_of(values, tables))


def bayesian_network(
    source: Tally,
    structure: Structure | HasStructure,
    *,
    prior: float = 0.0,
    equivalent_size: float | None = None,
    nonnegative: bool = False,
    missing: ModelMissing = "answered",
    method: Literal["counts", "likelihood", "composite"] = "counts",
) -> BayesianNetwork:
    """Estimate the parameters of a network with a given structure, from counts.

    By default every table is estimated by itself, from the counts of its family; for clear records this is
    maximum likelihood. With `prior` or `equivalent_size` it is maximum a posteriori. A configuration of the
    parents without records (an estimated number of zero or less) gets a uniform row with infinite standard
    errors, and a `MasqueradeWarning` counts such rows. Estimates may be negative. The source accounts for the
    disguise, whichever variables were disguised together.

    With ``method="likelihood"`` all tables together maximise the likelihood of the reports. For disguised
    records the errors are smaller, no estimate is negative, and queries have standard errors. Sources with
    tables only can use ``method="composite"``, the composite likelihood of all pairs and larger families,
    each scored as if reported alone. Its errors are mostly between the other two; queries have errors, too.

    Parameters
    ----------
    source : Tally
        Source of counts.
    structure : mapping or LearnedStructure
        Parents of every node, or the result of a structure learner.
    prior : float, default 0.0
        Pseudo-count added to every cell.
    equivalent_size : float, optional
        Equivalent sample size of a BDeu prior, spread evenly over the cells of each table; instead of
        `prior`.
    nonnegative : bool, default False
        Return the network without negative parameters: see `BayesianNetwork.project`.
    missing : {"answered", "category"}, default "answered"
        Estimate each table from the people who answered the node and its parents, which is right if missing
        answers depend on the parents alone; or count missing answers as categories.
    method : {"counts", "likelihood", "composite"}
        "counts" gives unbiased estimates family by family. "likelihood" maximises the joint likelihood, and
        needs a source with the reports of each record. "composite" maximises the pairwise composite
        likelihood, with sandwich errors, for any source of counts of reports: see `fit_composite`.

    Returns
    -------
    BayesianNetwork
        The network with standard errors.

    Raises
    ------
    InputError
        If the structure has a cycle or an unknown parent, or the prior is not valid.
    QueryRefused
        If the source refuses a query.

    Notes
    -----
    Formula: θ_ijk = (α_ijk + N̂_ijk)/(α_ij + N̂_ij); Var θ ≈ (Var N̂_ijk − 2θ Cov(N̂_ijk, N̂_ij) + θ² Var
    N̂_ij)/(α_ij + N̂_ij)².
    Reference: Ma & Sivakumar (2005) §5; the delta method for a ratio of dependent normals.
    Cost: one batch with one query per node; one more with one query per pair for ``method="composite"``.
    Error: first order in 1/n; flagged where N̂_ij is below five standard errors or below 25 records.

    Examples
    --------
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
    source = people_who_answered(source, missing)
    parents = plain_structure(structure)
    check_prior(prior, equivalent_size)
    if method not in ("counts", "likelihood", "composite"):
        raise InputError(f"The method must be 'counts', 'likelihood' or 'composite'. Got {method!r} instead.")
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
    network = BayesianNetwork(tables, missing_answers_of(source))
    if method != "counts":
        if prior or equivalent_size is not None:
            raise InputError(f"The {method} method takes no prior: omit prior and equivalent_size.")
        fit = (
            joint_fit.fit_jointly(source, tables)
            if method == "likelihood"
            else fit_composite(source, parents, dict(zip(parents, answers, strict=True)))
        )
        joint_fit.warn_of_step(fit)
        return BayesianNetwork(joint_fit.fitted_tables(fit, tables), network.missing, fit)
    return network.project() if nonnegative else network


def plain_structure(structure: Structure | HasStructure) -> dict[str, tuple[str, ...]]:
    """Return the parents of every node as tuples, from a mapping or a structure learner's result."""
    given = structure if isinstance(structure, Mapping) else getattr(structure, "structure", None)
    if not isinstance(given, Mapping) or not given:
        raise InputError("A structure must map every node to its parents, with at least one node.")
    plain = {
        name: (parents,) if isinstance(parents, str) else tuple(parents) for name, parents in given.items()
    }
    ancestral_order(plain)
    return plain


def known_network(
    schema: Schema, structure: Structure, probabilities: Mapping[str, Floats]
) -> BayesianNetwork:
    """Return a network with known parameters, such as a population to sample from.

    Parameters
    ----------
    schema : Schema
        The variables.
    structure : mapping of str to sequence of str
        Parents of every node.
    probabilities : mapping of str to array_like
        P(node | parents) with the parents as leading axes.

    Returns
    -------
    BayesianNetwork
        The network, with standard errors of zero.

    Raises
    ------
    InputError
        If a shape is not valid or rows do not sum to 1.

    Examples
    --------
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
