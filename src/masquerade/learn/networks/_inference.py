"""Exact inference in small networks by variable elimination."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, SchemaError, did_you_mean
from masquerade.core.intervals import Interval, logit_interval
from masquerade.core.likelihood_rows import ReportFactor, ReportFactors
from masquerade.core.query import Query
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.table import cell_frame
from masquerade.core.tally import Tally
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable
from masquerade.learn.networks.graph import reachable_nodes
from masquerade.learn.networks.joint_fit import score_rows
from masquerade.learn.networks.joint_likelihood import JointLikelihood

if TYPE_CHECKING:
    import pandas as pd

    from masquerade.learn.networks.network import BayesianNetwork

MAX_CELLS = 2**22
Engine = Literal["built-in", "pyagrum"]
NO_ERRORS = (
    "The errors of a query need the covariance of all parameters: fit the network with method='likelihood', "
    "or method='composite' where only tables are known."
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Distribution(Printed):
    """A joint distribution of variables, given evidence about others.

    Attributes
    ----------
    axes : tuple of Variable
        The variables.
    probabilities : ndarray
        One axis per variable.
    evidence : tuple of (str, category)
        Observed variables, each with its category.
    stderr : ndarray or None
        Standard errors, by the delta method on the joint covariance of the parameters. None if the network
        was not fitted by its joint or composite likelihood.
    """

    axes: tuple[Variable, ...]
    probabilities: Floats
    evidence: tuple[tuple[str, Category], ...] = ()
    stderr: Floats | None = None

    def conf_int(self, level: float = 0.95) -> Interval:
        """Return confidence intervals, symmetric on the scale of the logits.

        Raises
        ------
        InputError
            If the network has no joint covariance.
        """
        if self.stderr is None:
            raise InputError(NO_ERRORS)
        return logit_interval(self.probabilities, self.stderr, level)

    def __getitem__(self, labels: Category | tuple[Category, ...]) -> float:
        """Return the probability of a category, or of one category per axis, in the order of the axes."""
        wanted = labels if isinstance(labels, tuple) else (labels,)
        if len(wanted) != len(self.axes):
            names = ", ".join(axis.name for axis in self.axes)
            raise InputError(f"The distribution is over {names}. Got {len(wanted)} categories instead.")
        return float(
            self.probabilities[tuple(axis.code(label) for axis, label in zip(self.axes, wanted, strict=True))]
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: the variables, their probability and its error, one row per combination."""
        if self.stderr is None:
            return cell_frame(self.axes, probability=self.probabilities)
        lower, upper = self.conf_int()
        return cell_frame(
            self.axes, probability=self.probabilities, stderr=self.stderr, lower=lower, upper=upper
        )

    @property
    def title(self) -> str:
        """Return P(variables | evidence) as text."""
        given = f" | {', '.join(f'{name}={label}' for name, label in self.evidence)}" if self.evidence else ""
        return f"P({', '.join(axis.name for axis in self.axes)}{given})"

    @printable
    def summary(self) -> str:
        """Return the distribution as text."""
        body = self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.6g}")
        return f"{self.title}\n{body}"

    def to_dict(self) -> dict[str, Any]:
        """Return the distribution as plain JSON values: a title, rows and notes."""
        frame = self.to_frame()
        rows = [dict(zip(frame, row, strict=True)) for row in frame.astype(object).to_numpy().tolist()]
        note = NO_ERRORS if self.stderr is None else "95% intervals; errors by the delta method"
        return {"title": self.title, "rows": rows, "notes": [note]}


@dataclass(frozen=True, slots=True, eq=False)
class _Factor:
    """A function of variables, with one axis per variable."""

    names: tuple[str, ...]
    values: Floats


def query(
    network: BayesianNetwork,
    target: str | Sequence[str],
    evidence: Mapping[str, Category] | None = None,
    *,
    engine: Engine = "built-in",
    max_cells: int = MAX_CELLS,
) -> Distribution:
    """Return P(target | evidence) of a network without negative parameters (see `project`).

    Formula: Σ over the other variables of Π_i θ_i(x_i | parents), with evidence fixed, normalised.
    Reference: Zhang & Poole (1994), variable elimination; min-fill order as in Koller & Friedman (2009) §9.4.
    Cost: exponential in the width of the network. A query that needs a factor of more than `max_cells` cells
    is refused in advance. For large networks ``engine="pyagrum"`` (the extra ``inference``) uses pyAgrum's
    lazy propagation.
    Error: the errors of the parameters are propagated by the delta method if the network was fitted with
    ``method="likelihood"`` or ``method="composite"``. Otherwise there are no standard errors.
    """
    names = (target,) if isinstance(target, str) else tuple(target)
    known = dict(evidence or {})
    schema = network.schema
    _check_names(names, known, schema.names)
    codes = {name: schema[name].code(label) for name, label in known.items()}
    if engine == "pyagrum":
        return _normalise(_by_pyagrum(network, names, codes), names, known, schema)
    if engine != "built-in":
        raise InputError(f"The engine must be 'built-in' or 'pyagrum'. Got {engine!r} instead.")
    tables = {table.child.name: table for table in network.usable("inference")}
    # the probabilities of all other nodes sum to one
    needed = reachable_nodes(network.structure, [*names, *codes])
    factors = [
        _fix_evidence(
            _Factor(tuple(axis.name for axis in tables[name].axes), tables[name].probabilities), codes
        )
        for name in schema
        if name in needed
    ]
    sizes = {name: len(schema[name]) for name in schema}
    order, largest = elimination_order([factor.names for factor in factors], names, sizes, max_cells)
    if largest > max_cells:
        raise InputError(
            f"This query needs a factor of {largest:,} cells or more; the limit is {max_cells:,}. Raise "
            "max_cells, use engine='pyagrum', or export the network: pgmpy reads the text of "
            "to_bif(), and the graph of to_networkx() contains all parameters."
        )
    found = _normalise(_multiply(_eliminate(factors, order), names), names, known, schema)
    return replace(found, stderr=_errors(network, found, codes))


def _errors(network: BayesianNetwork, found: Distribution, codes: Mapping[str, int]) -> Floats | None:
    """Return the standard errors of P(target | evidence); None without a joint covariance.

    Formula: ∂ log P(q | e) = s(q, e) − Σ_q' P(q' | e) s(q', e), where s is the score (gradient of the
    log-likelihood) of a record that reports the evidence and one cell of the target in clear.
    """
    if network.joint is None or network.joint.covariance is None:
        return None
    sizes = {name: len(network.schema[name]) for name in network.schema}
    cells = np.indices(found.probabilities.shape).reshape(len(found.axes), -1)
    seen = {axis.name: own for axis, own in zip(found.axes, cells, strict=True)}
    seen |= {name: np.full(cells.shape[1], code) for name, code in codes.items()}
    factors = tuple(ReportFactor((name,), np.eye(sizes[name]), own) for name, own in seen.items())
    reports = ReportFactors(factors, np.ones(cells.shape[1]))
    tables = network.joint.tables
    joint = JointLikelihood([reports], network.structure, sizes)
    scores = np.concatenate([score_rows(tables, families) for _, _, families in joint.scores(tables)], axis=1)
    chances = found.probabilities.ravel()
    slope = chances * (scores - (scores @ chances)[:, None])
    variance = np.einsum("pc,pq,qc->c", slope, network.joint.covariance, slope)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)).reshape(found.probabilities.shape))


def composite_log_likelihood(network: BayesianNetwork, source: Tally) -> float:
    """Return Σ over all pairs of −½ deviance of the pair's table under the network."""
    names = network.schema.names
    pairs: list[tuple[str, ...]] = [*combinations(names, 2)] or [tuple(names)]
    tables = source.answer([Query(by=pair) for pair in pairs])
    total = 0.0
    for table in tables:
        chances = query(replace(network, joint=None), table.names, None).probabilities
        total -= table.evidence.deviance(table.total * chances) / 2
    return total


def posteriors(
    network: BayesianNetwork,
    target: str,
    likelihoods: Mapping[tuple[str, ...], Floats],
    *,
    max_cells: int = MAX_CELLS,
) -> Floats:
    """Return P(target | virtual evidence) for many records, one row per record.

    `likelihoods` contains, for a variable or for variables that were disguised together, P(observation |
    categories) as records × categories: for a disguised report, a column of the channel. A variable that is
    omitted was not observed.

    Formula: as `query`, with an additional factor λ(x) for every observation.
    Reference: Pearl (1988) §2.2.2 for virtual evidence.
    Cost: the cost of one query, times the number of records. A factor of more than `max_cells` cells raises
    InputError before anything is computed.
    """
    schema = network.schema
    _check_names((target,), {}, schema.names)
    rows = {len(values) for values in likelihoods.values()}
    for names, values in likelihoods.items():
        _check_names(names, {}, schema.names)
        if values.shape[1:] != schema.shape(names) or len(rows) != 1:
            raise InputError(f"The likelihoods of {', '.join(names)} must be records × their categories.")
    tables = {table.child.name: table for table in network.usable("inference")}
    needed = reachable_nodes(network.structure, [target, *(name for names in likelihoods for name in names)])
    fixed = [
        _Factor(tuple(axis.name for axis in tables[name].axes), tables[name].probabilities[None])
        for name in schema
        if name in needed
    ]
    sizes = {name: len(schema[name]) for name in schema}
    # variables that no factor links to the target are irrelevant
    linked = _linked_variables(target, [*(factor.names for factor in fixed), *likelihoods])
    fixed = [factor for factor in fixed if linked.issuperset(factor.names)]
    likelihoods = {names: values for names, values in likelihoods.items() if linked.issuperset(names)}
    scopes = [*(factor.names for factor in fixed), *likelihoods]
    order, largest = elimination_order(scopes, (target,), sizes, max_cells)
    if largest > max_cells:
        raise InputError(f"Inference needs a factor of {largest:,} cells; the limit is {max_cells:,}.")
    n = rows.pop() if rows else 1
    step = max(1, MAX_CELLS // largest)
    parts = []
    for begin in range(0, n, step):
        seen = [_Factor(names, values[begin : begin + step]) for names, values in likelihoods.items()]
        joint = _batch(_eliminate([*fixed, *seen], order, _batch), (target,))
        parts.append(np.broadcast_to(joint, (min(step, n - begin), sizes[target])))
    found = np.concatenate(parts)
    total = found.sum(axis=1, keepdims=True)
    if not np.all(total > 0):
        raise InputError("Some evidence has probability 0 under the network: the query has no answer.")
    return np.asarray(found / total)


def _linked_variables(target: str, scopes: Sequence[Sequence[str]]) -> set[str]:
    """Return the variables that factors link to the target, directly or through others."""
    found, waiting = {target}, list(scopes)
    while True:
        near = [scope for scope in waiting if not found.isdisjoint(scope)]
        if not near:
            return found
        waiting = [scope for scope in waiting if found.isdisjoint(scope)]
        found = found.union(*near)


def _batch(factors: Iterable[_Factor], names: Sequence[str]) -> Floats:
    """Return the product of factors whose first axis is the records, up to a constant per record."""
    product_: Floats = np.ones((1,) * (len(names) + 1))
    for factor in factors:
        order = sorted(range(len(factor.names)), key=lambda i: names.index(factor.names[i]))
        sizes = dict(zip(factor.names, factor.values.shape[1:], strict=True))
        shape = [len(factor.values), *(sizes.get(name, 1) for name in names)]
        moved = factor.values.transpose(0, *(i + 1 for i in order))
        product_ = product_ * moved.reshape(shape)
    largest = product_.max(axis=tuple(range(1, product_.ndim)), keepdims=True)
    return product_ / np.where(largest > 0, largest, 1.0)


def _normalise(
    joint: Floats, names: Sequence[str], known: Mapping[str, Category], schema: Schema
) -> Distribution:
    """Return a distribution that sums to one; raise InputError for impossible evidence."""
    total = float(joint.sum())
    if not total > 0:
        raise InputError("The evidence has probability 0 under the network: the query has no answer.")
    return Distribution(tuple(schema[name] for name in names), joint / total, tuple(known.items()))


def _by_pyagrum(network: BayesianNetwork, names: Sequence[str], codes: Mapping[str, int]) -> Floats:
    """Return P(names | evidence codes) by pyAgrum's lazy propagation."""
    try:
        with warnings.catch_warnings():
            # its wrapper warns about deprecated types, and crashes if warnings are errors
            warnings.simplefilter("ignore", DeprecationWarning)
            pyagrum: Any = import_module("pyagrum")
    except ImportError:
        raise InputError("engine='pyagrum' needs pyAgrum: pip install 'masquerade[inference]'.") from None
    model = pyagrum.BayesNet()
    schema = network.schema
    for name in schema:
        model.add(pyagrum.RangeVariable(name, "", 0, len(schema[name]) - 1))
    tables = {table.child.name: table for table in network.usable("inference")}
    for table in tables.values():
        for parent in table.parents:
            model.addArc(parent.name, table.child.name)
    for name, table in tables.items():
        cpt = model.cpt(name)
        places = [axis.name for axis in table.axes]
        # in pyAgrum the node comes first; its arrays list the axes in the reverse order of `names`
        order = [places.index(other) for other in reversed(cpt.names)]
        cpt[:] = np.ascontiguousarray(table.probabilities.transpose(order))
    engine = pyagrum.LazyPropagation(model)
    engine.setEvidence(dict(codes))
    engine.addJointTarget(set(names))
    engine.makeInference()
    found = engine.jointPosterior(set(names))
    array: Floats = np.asarray(found.toarray(), dtype=np.float64)
    return array.transpose([list(reversed(found.names)).index(name) for name in names])


def _check_names(names: Sequence[str], known: Mapping[str, Category], nodes: Sequence[str]) -> None:
    """Raise an error for targets and evidence that are not nodes, or are named twice."""
    if not names:
        raise InputError("A query needs at least one target.")
    for name in (*names, *known):
        if name not in nodes:
            raise SchemaError(f"There is no node {name!r} in the network.{did_you_mean(name, nodes)}")
        if name in names and (name in known or names.count(name) > 1):
            raise InputError(f"{name!r} is named twice among target and evidence.")


def _fix_evidence(factor: _Factor, codes: Mapping[str, int]) -> _Factor:
    index = tuple(codes.get(name, slice(None)) for name in factor.names)
    return _Factor(tuple(name for name in factor.names if name not in codes), factor.values[index])


def elimination_order(
    scopes: Sequence[Sequence[str]], keep: Sequence[str], sizes: Mapping[str, int], limit: int = MAX_CELLS
) -> tuple[list[str], int]:
    """Return the order in which to sum variables out, and the cells of the largest factor.

    The next variable is the one whose elimination adds the fewest links among its neighbours (min-fill). Ties
    go to the smallest factor, then to the first variable. The search stops once a factor is larger than
    `limit`.
    """
    near: dict[str, set[str]] = {name: set() for scope in scopes for name in scope}
    for a, b in (pair for scope in scopes for pair in combinations(scope, 2)):
        near[a].add(b)
        near[b].add(a)
    place = {name: i for i, name in enumerate(sizes)}
    order: list[str] = []
    largest = prod(sizes[name] for name in keep)

    def cost(name: str) -> tuple[int, int, int]:
        missing = sum(b not in near[a] for a, b in combinations(near[name], 2))
        return missing, cells(name), place[name]

    def cells(name: str) -> int:
        return sizes[name] * prod(sizes[other] for other in near[name])

    # only costs that the removal of a variable can change are computed again
    costs = {name: cost(name) for name in near if name not in keep}
    while costs and largest <= limit:
        name = min(costs, key=costs.__getitem__)
        largest = max(largest, cells(name))
        order.append(name)
        around = near.pop(name)
        del costs[name]
        for other in around:
            near[other] |= around - {other}
            near[other].discard(name)
        for other in around.union(*(near[one] for one in around)) & costs.keys():
            costs[other] = cost(other)
    return order, largest


def _eliminate(
    factors: Sequence[_Factor],
    order: Iterable[str],
    multiply: Callable[[Sequence[_Factor], Sequence[str]], Floats] | None = None,
) -> list[_Factor]:
    """Return the remaining factors after summing variables out in sequence."""
    product_ = multiply or _multiply
    left = list(factors)
    for name in order:
        touched = [factor for factor in left if name in factor.names]
        names = tuple(dict.fromkeys(other for factor in touched for other in factor.names if other != name))
        summed: Floats = np.asarray(product_(touched, (*names, name)).sum(axis=-1))
        left = [*(factor for factor in left if name not in factor.names), _Factor(names, summed)]
    return left


def _multiply(factors: Iterable[_Factor], names: Sequence[str]) -> Floats:
    """Return the product of factors, up to a constant, as an array with the axes `names`.

    `names` must include all variables of the factors. The largest entry is rescaled to one, since the product
    of thousands of small factors would underflow.
    """
    product_: Floats = np.ones((1,) * len(names))
    for factor in factors:
        order = sorted(range(len(factor.names)), key=lambda i: names.index(factor.names[i]))
        sizes = dict(zip(factor.names, factor.values.shape, strict=True))
        shape = [sizes.get(name, 1) for name in names]
        product_ = product_ * factor.values.transpose(order).reshape(shape)
        product_ = product_ / (product_.max() or 1.0)
    return product_
