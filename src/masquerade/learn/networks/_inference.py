"""Exact inference in small networks by variable elimination."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, SchemaError, did_you_mean
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.table import cell_frame
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable
from masquerade.learn.networks.graph import reached

if TYPE_CHECKING:
    import pandas as pd

    from masquerade.learn.networks.network import BayesianNetwork

MAX_CELLS = 2**22
Engine = Literal["built-in", "pyagrum"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Distribution(Printed):
    """A joint distribution of some variables, given what is known of others."""

    axes: tuple[Variable, ...]
    probabilities: Floats
    evidence: tuple[tuple[str, Category], ...] = ()

    def __getitem__(self, labels: Category | tuple[Category, ...]) -> float:
        """Return the probability of a category (of one category each, in the order of the axes)."""
        wanted = labels if isinstance(labels, tuple) else (labels,)
        if len(wanted) != len(self.axes):
            names = ", ".join(axis.name for axis in self.axes)
            raise InputError(f"The distribution is over {names}. Got {len(wanted)} categories instead.")
        return float(
            self.probabilities[tuple(axis.code(label) for axis, label in zip(self.axes, wanted, strict=True))]
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: the variables and their probability, one row per combination."""
        return cell_frame(self.axes, probability=self.probabilities)

    @printable
    def summary(self) -> str:
        """Return the distribution as text."""
        given = f" | {', '.join(f'{name}={label}' for name, label in self.evidence)}" if self.evidence else ""
        body = self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.6g}")
        return f"P({', '.join(axis.name for axis in self.axes)}{given})\n{body}"


@dataclass(frozen=True, slots=True, eq=False)
class _Factor:
    """A function of some variables, one axis each."""

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
    """Return P(target | evidence) of a network without negative parameters (see `projected`).

    Formula: Σ over the other variables of Π_i θ_i(x_i | parents), with evidence fixed, normalised.
    Reference: Zhang & Poole (1994), variable elimination; min-fill order as in Koller & Friedman (2009) §9.4.
    Cost: exponential in the width of the network: refused, before any work, beyond `max_cells` in one factor.
    For large networks ``engine="pyagrum"`` (the extra ``inference``) asks pyAgrum's lazy propagation instead.
    Error: none beyond rounding; that of the parameters is not carried over.
    """
    names = (target,) if isinstance(target, str) else tuple(target)
    known = dict(evidence or {})
    schema = network.schema
    _check_names(names, known, schema.names)
    codes = {name: schema[name].code(label) for name, label in known.items()}
    if engine == "pyagrum":
        return _normalised(_by_pyagrum(network, names, codes), names, known, schema)
    if engine != "built-in":
        raise InputError(f"The engine must be 'built-in' or 'pyagrum'. Got {engine!r} instead.")
    tables = {table.child.name: table for table in network.usable("inference")}
    # of all others the probabilities sum to one
    needed = reached(network.structure, [*names, *codes])
    factors = [
        _sliced(_Factor(tuple(axis.name for axis in tables[name].axes), tables[name].probabilities), codes)
        for name in schema
        if name in needed
    ]
    sizes = {name: len(schema[name]) for name in schema}
    order, largest = elimination_order([factor.names for factor in factors], names, sizes, max_cells)
    if largest > max_cells:
        raise InputError(
            f"This question needs a factor of {largest:,} cells or more; the limit is {max_cells:,}. Raise "
            "max_cells, ask with engine='pyagrum', or take the network elsewhere: pgmpy reads to_bif(), and "
            "to_networkx() carries all parameters."
        )
    return _normalised(_multiplied(_eliminated(factors, order), names), names, known, schema)


def posteriors(
    network: BayesianNetwork,
    target: str,
    likelihoods: Mapping[tuple[str, ...], Floats],
    *,
    max_cells: int = MAX_CELLS,
) -> Floats:
    """Return P(target | virtual evidence) for many records at once, a row each.

    `likelihoods` give for a variable, or for several that were disguised together, P(what was seen |
    categories), records × categories of each: the column of a channel for a disguised report. A variable left
    out was not seen at all.

    Formula: as `query`, with a factor λ(x) more for all that was seen.
    Reference: Pearl (1988) §2.2.2 for virtual evidence.
    Cost: records times that of one query; refused, before any work, beyond `max_cells` in one factor.
    """
    schema = network.schema
    _check_names((target,), {}, schema.names)
    rows = {len(values) for values in likelihoods.values()}
    for names, values in likelihoods.items():
        _check_names(names, {}, schema.names)
        if values.shape[1:] != schema.shape(names) or len(rows) != 1:
            raise InputError(f"The likelihoods of {', '.join(names)} must be records × their categories.")
    tables = {table.child.name: table for table in network.usable("inference")}
    needed = reached(network.structure, [target, *(name for names in likelihoods for name in names)])
    fixed = [
        _Factor(tuple(axis.name for axis in tables[name].axes), tables[name].probabilities[None])
        for name in schema
        if name in needed
    ]
    sizes = {name: len(schema[name]) for name in schema}
    # what nothing links to the target tells nothing about it
    linked = _linked(target, [*(factor.names for factor in fixed), *likelihoods])
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
        joint = _batch(_eliminated([*fixed, *seen], order, _batch), (target,))
        parts.append(np.broadcast_to(joint, (min(step, n - begin), sizes[target])))
    found = np.concatenate(parts)
    total = found.sum(axis=1, keepdims=True)
    if not np.all(total > 0):
        raise InputError("Some evidence has probability 0 under the network: nothing can be said given it.")
    return np.asarray(found / total)


def _linked(target: str, scopes: Sequence[Sequence[str]]) -> set[str]:
    """Return the variables that factors link to the target, directly or through others."""
    found, waiting = {target}, list(scopes)
    while True:
        near = [scope for scope in waiting if not found.isdisjoint(scope)]
        if not near:
            return found
        waiting = [scope for scope in waiting if found.isdisjoint(scope)]
        found = found.union(*near)


def _batch(factors: Iterable[_Factor], names: Sequence[str]) -> Floats:
    """Return the product of factors whose first axis is the records, each record up to a constant."""
    product_: Floats = np.ones((1,) * (len(names) + 1))
    for factor in factors:
        order = sorted(range(len(factor.names)), key=lambda i: names.index(factor.names[i]))
        sizes = dict(zip(factor.names, factor.values.shape[1:], strict=True))
        shape = [len(factor.values), *(sizes.get(name, 1) for name in names)]
        moved = factor.values.transpose(0, *(i + 1 for i in order))
        product_ = product_ * moved.reshape(shape)
    largest = product_.max(axis=tuple(range(1, product_.ndim)), keepdims=True)
    return product_ / np.where(largest > 0, largest, 1.0)


def _normalised(
    joint: Floats, names: Sequence[str], known: Mapping[str, Category], schema: Schema
) -> Distribution:
    """Return a distribution that sums to one; impossible evidence is an `InputError`."""
    total = float(joint.sum())
    if not total > 0:
        raise InputError("The evidence has probability 0 under the network: nothing can be said given it.")
    return Distribution(tuple(schema[name] for name in names), joint / total, tuple(known.items()))


def _by_pyagrum(network: BayesianNetwork, names: Sequence[str], codes: Mapping[str, int]) -> Floats:
    """Return P(names | evidence codes) by pyAgrum's lazy propagation."""
    try:
        with warnings.catch_warnings():
            # its wrapper warns of deprecated types, and crashes where warnings are errors
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
        # pyAgrum keeps the variable first; its arrays list the axes in the reverse order of `names`
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
    """Refuse targets and evidence that are no nodes, or are named twice."""
    if not names:
        raise InputError("A query needs at least one target.")
    for name in (*names, *known):
        if name not in nodes:
            raise SchemaError(f"There is no node {name!r} in the network.{did_you_mean(name, nodes)}")
        if name in names and (name in known or names.count(name) > 1):
            raise InputError(f"{name!r} is named twice among target and evidence.")


def _sliced(factor: _Factor, codes: Mapping[str, int]) -> _Factor:
    index = tuple(codes.get(name, slice(None)) for name in factor.names)
    return _Factor(tuple(name for name in factor.names if name not in codes), factor.values[index])


def elimination_order(
    scopes: Sequence[Sequence[str]], keep: Sequence[str], sizes: Mapping[str, int], limit: int = MAX_CELLS
) -> tuple[list[str], int]:
    """Return in which order to sum variables out, and the cells of the largest factor on the way.

    Each time the variable goes whose neighbours lack the fewest links among them; of equal ones that with the
    smallest factor, then the first. Once a factor is larger than `limit` there is no point in going on.
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

    # what the removal of a variable cannot have changed need not be worked out again
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


def _eliminated(
    factors: Sequence[_Factor],
    order: Iterable[str],
    multiply: Callable[[Sequence[_Factor], Sequence[str]], Floats] | None = None,
) -> list[_Factor]:
    """Return the factors that are left when variables are summed out, one after the other."""
    product_ = multiply or _multiplied
    left = list(factors)
    for name in order:
        touched = [factor for factor in left if name in factor.names]
        names = tuple(dict.fromkeys(other for factor in touched for other in factor.names if other != name))
        summed: Floats = np.asarray(product_(touched, (*names, name)).sum(axis=-1))
        left = [*(factor for factor in left if name not in factor.names), _Factor(names, summed)]
    return left


def _multiplied(factors: Iterable[_Factor], names: Sequence[str]) -> Floats:
    """Return the product of factors, up to a constant, as an array over `names`, which cover their variables.

    The largest entry is kept at one: thousands of small factors would underflow.
    """
    product_: Floats = np.ones((1,) * len(names))
    for factor in factors:
        order = sorted(range(len(factor.names)), key=lambda i: names.index(factor.names[i]))
        sizes = dict(zip(factor.names, factor.values.shape, strict=True))
        shape = [sizes.get(name, 1) for name in names]
        product_ = product_ * factor.values.transpose(order).reshape(shape)
        product_ = product_ / (product_.max() or 1.0)
    return product_
