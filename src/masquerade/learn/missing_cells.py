"""Networks from exact tables in which answers are missing: expectation and maximisation (EM) on counts.

In linked tables of several parties, a missing answer is one more category, so the expected counts of the
answers can be computed from the table alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Literal

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, NotConverged, Refusal
from masquerade.core.query import Query
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally, check_source
from masquerade.learn.missing_errors import ObservedErrors, is_small_enough
from masquerade.learn.networks.joint_fit import JointFit, keep_inside
from masquerade.learn.networks.network import (
    BayesianNetwork,
    HasStructure,
    Structure,
    bayesian_network,
    plain_structure,
)
from masquerade.learn.networks.parameters import ConditionalTable

MOST_PRODUCTS = 1 << 24  # most cells of the table times most combinations of answers
MOST_STEPS = 2000
SETTLED = 1e-9  # largest change of a probability in the last step


def network_with_missing(
    source: Tally,
    structure: Structure | HasStructure,
    *,
    tables: Literal["families", "joint"] = "families",
    prior: float = 0.5,
) -> BayesianNetwork:
    """Estimate the parameters of a network from exact tables with missing answers, by EM.

    Parameters
    ----------
    source : Tally
        Source of exact counts, whose variables declare their missing categories.
    structure : mapping or LearnedStructure
        Parents of every node.
    tables : {"families", "joint"}, default "families"
        "families" estimates each node from the table of the node and its parents. This is unbiased if answers
        are missing completely at random, or depending on answered variables of the same family. "joint" uses
        the table of all variables and all records. This is unbiased if answers are missing depending on any
        answered variables.
    prior : float, default 0.5
        Pseudo-count added to every cell of a family.

    Returns
    -------
    BayesianNetwork
        Its standard errors are from the observed information, which accounts for the information lost by
        missing answers. With "joint" it has the covariance of all parameters, so that queries have errors
        too. If there are very many parameters and cells, errors are computed from the people who answered
        all variables of a family.

    Raises
    ------
    InputError
        If the counts are not exact, or the table of all variables is too large.
    NotConverged
        If probabilities still change after 2,000 steps.

    Notes
    -----
    Formula: the expected count of answers y is Σ t(r) P(y)/P(r) over the cells r of the table whose answers
    agree with y; then θ = (N + α)/(N₊ + α₊). Both steps are repeated. The covariance is (I + P)⁻¹ I (I + P)⁻¹
    with the observed information I and the second derivatives P of the prior.
    Reference: Dempster, Laird and Rubin (1977); Louis (1982); missing at random (Rubin 1976). Answers whose
    absence depends on themselves are not identified.
    Cost: per step, the number of cells of a table times the number of combinations of its answers.
    Error: intervals contain the truth in 95% of samples (`benchmarks/missing_networks.py`).

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"a": list("xxyy") * 25, "b": ["u", "v", "u", "?"] * 25})
    >>> schema = mq.Schema([mq.Variable("a", ["x", "y"]), mq.Variable("b", ["u", "v", "?"], missing=["?"])])
    >>> network = mq.learn.network_with_missing(mq.tally(frame, schema=schema), {"a": (), "b": ("a",)})
    >>> network["b"].probabilities.round(2).tolist()
    [[0.5, 0.5], [0.98, 0.02]]
    """
    if tables not in ("families", "joint"):
        raise InputError(f"'tables' must be 'families' or 'joint'. Got {tables!r} instead.")
    parents = plain_structure(structure)
    families = _Families(source, parents, joint=tables == "joint")
    start = bayesian_network(families, parents, prior=prior)
    joint: JointFit | None = None
    fits: dict[str, _Fit] = {}
    if families.joint is not None:
        fit = _fit(families.joint, {it.child.name: parents[it.child.name] for it in start.tables}, prior)
        joint, fits = fit.joint_fit(), dict.fromkeys(parents, fit)
    else:
        for name, table in families.tables.items():
            # a chain over the variables of the family is saturated, so EM fits their whole table
            family = (*parents[name], name)
            fits[name] = _fit(table, {each: family[:place] for place, each in enumerate(family)}, prior)
    changed = tuple(fits[table.child.name].replace_in(table) for table in start.tables)
    noted = None if start.missing is None else replace(start.missing, taken="expected")
    return BayesianNetwork(changed, noted, joint)


class _Families:
    """The tables of all families, from a single batch of queries; `joint` is the table of all variables."""

    def __init__(self, source: Tally, parents: Mapping[str, Sequence[str]], *, joint: bool) -> None:
        check_source(source)
        self.schema, self.guarantee = source.schema, source.guarantee
        families = {name: Query(by=(*parents[name], name)) for name in parents}
        for query in families.values():
            query.check(source.schema)
        self.joint: CountTable | None = None
        if joint:
            (self.joint,) = source.answer(
                [Query(by=tuple(name for name in source.schema if name in parents))]
            )
            self.tables = {name: self.joint.marginal(query.names) for name, query in families.items()}
        else:
            self.tables = dict(zip(families, source.answer([*families.values()]), strict=True))

    def check(self, queries: Iterable[Query]) -> list[Refusal]:  # noqa: ARG002
        """Return no refusals: the tables were queried in advance."""
        return []

    def answer(self, queries: Iterable[Query]) -> list[CountTable]:
        """Return the table of each family, which ends with its node."""
        return [self.tables[query.names[-1]] for query in queries]


@dataclass(frozen=True, eq=False)
class _Fit:
    """The maximum of EM on one table: `agrees` has a row per cell of `counts`, one column per combination."""

    chances: dict[str, Floats]
    places: dict[str, list[int]]
    sizes: list[int]
    agrees: Floats
    counts: Floats
    prior: float

    @property
    def joint(self) -> Floats:
        """Return the joint distribution of all variables."""
        return _joint(self.chances, self.places, self.sizes)

    @cached_property
    def observed_errors(self) -> ObservedErrors | None:
        """Return the errors by the observed information, None if its matrices would be too large."""
        if not is_small_enough(self.chances, self.agrees.shape[1], len(self.counts)):
            return None
        return ObservedErrors(
            self.chances, self.places, self.joint, self.agrees, self.counts, prior=self.prior
        )

    def replace_in(self, table: ConditionalTable) -> ConditionalTable:
        """Return `table`, which counts people who answered, with this fit's probabilities and errors."""
        name = table.child.name
        errors = table.stderr if self.observed_errors is None else self.observed_errors.tables()[name]
        return replace(table, probabilities=self.chances[name], stderr=errors, evidence=None, unbiased=None)

    def joint_fit(self) -> JointFit | None:
        """Return the fit with the covariance of all parameters, None if it is not known."""
        errors = self.observed_errors
        if errors is None or not all(np.isfinite(table).all() for table in errors.tables().values()):
            return None
        chances = self.agrees @ self.joint.ravel()
        return JointFit(
            tables={name: keep_inside(table) for name, table in self.chances.items()},
            log_likelihood=float(self.counts @ np.log(np.maximum(chances, 1e-300))),
            dimension=len(errors.covariance),
            n=float(self.counts.sum()),
            counts={},
            covariance=errors.covariance,
            has_converged=True,
        )


def _fit(table: CountTable, parents: Mapping[str, Sequence[str]], prior: float) -> _Fit:
    """Return the parameters of a network over the variables of a table with missing answers."""
    if np.any(table.covariance.diagonal("given_records")) or np.any(table.values < 0):
        raise InputError(
            "EM on tables needs exact counts, and these are estimates. For disguised records use "
            "bayesian_network(source, structure, method='likelihood')."
        )
    axes = table.axes
    sizes = [len(axis.answered_codes) for axis in axes]
    seen = np.argwhere(table.values > 0)
    if len(seen) * prod(sizes) > MOST_PRODUCTS:
        listed = ", ".join(axis.name for axis in axes)
        raise InputError(f"The table of {listed} is too large for EM: use tables='families'.")
    counts = table.values[tuple(seen.T)]
    agrees = np.ones((len(seen), *sizes), dtype=bool)
    for place, axis in enumerate(axes):
        shape = [1] * len(axes)
        shape[place] = sizes[place]
        agrees &= _agreement(axis)[seen[:, place]].reshape(len(seen), *shape)
    flat = agrees.reshape(len(seen), -1).astype(float)
    names = [axis.name for axis in axes]
    # in the order of the structure, which is the order of the tables of a network
    places = {name: [names.index(it) for it in (*parents[name], name)] for name in parents}
    chances = {name: np.full([sizes[at] for at in it], 1 / sizes[it[-1]]) for name, it in places.items()}
    for _ in range(MOST_STEPS):
        joint = _joint(chances, places, sizes).ravel()
        expected = (counts / np.maximum(flat @ joint, 1e-300)) @ flat * joint
        new = {name: _conditional(expected.reshape(sizes), it, prior) for name, it in places.items()}
        change = max(float(np.abs(new[name] - chances[name]).max()) for name in places)
        chances = new
        if change < SETTLED:
            return _Fit(chances, places, sizes, flat, counts, prior)
    raise NotConverged(f"EM on tables with missing answers still changes after {MOST_STEPS:,} steps.")


def _agreement(axis: Variable) -> Floats:
    """Return, for each category of a variable, the answers that it agrees with: itself, or all if missing."""
    answered = list(axis.answered_codes)
    result = np.ones((len(axis.categories), len(answered)), dtype=bool)
    result[answered] = np.eye(len(answered), dtype=bool)
    return result


def _joint(chances: Mapping[str, Floats], places: Mapping[str, Sequence[int]], sizes: list[int]) -> Floats:
    """Return the joint distribution of all variables."""
    joint = np.ones(sizes)
    for name, axes in places.items():
        shape = [size if at in axes else 1 for at, size in enumerate(sizes)]
        joint = joint * chances[name].transpose(np.argsort(axes)).reshape(shape)
    return joint


def _conditional(expected: Floats, places: list[int], prior: float) -> Floats:
    """Return P(last | others) of the axes `places` from expected counts."""
    others = tuple(axis for axis in range(expected.ndim) if axis not in places)
    table = expected.sum(axis=others).transpose(np.argsort(np.argsort(places))) + prior
    sums = table.sum(axis=-1, keepdims=True)
    # a row without records and without a prior is uniform, as in networks learned from counts
    return np.asarray(np.where(sums > 0, table, 1 / table.shape[-1]) / np.where(sums > 0, sums, 1))
