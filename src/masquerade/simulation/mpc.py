"""Simulated MPC: several owners learn a structure, a tree or clusters on shares and see no counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.guarantee import Guarantee
from masquerade.core.schema import Schema
from masquerade.learn.classifiers.label_tree import LabelNode, LabelTree
from masquerade.learn.classifiers.prediction_rows import chosen_features
from masquerade.learn.clusters import Clusters, Lattice, column_numbers, known_clusters
from masquerade.learn.networks.graph import check_limit
from masquerade.learn.networks.score_tables import ScoreTables
from masquerade.learn.networks.scores import score_called
from masquerade.protocols.mpc.dealer import Dealer, local_keys
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.mpc.engine import Cost, Steps, run
from masquerade.protocols.mpc.family_counts import HiddenColumns
from masquerade.protocols.mpc.guarantee import (
    clusters_guarantee,
    structure_guarantee,
    structure_guarantee_without_dealer,
    tree_guarantee,
)
from masquerade.protocols.mpc.k_means import Lloyd, clusters
from masquerade.protocols.mpc.structure import Search, parents
from masquerade.protocols.mpc.tree import Growth, tree
from masquerade.simulation.mpyc_parties import learn_structure

HELPER = "helper"
Engine = Literal["dealer", "mpyc"]
T = TypeVar("T")
M = TypeVar("M", Clusters, LabelTree)


@dataclass(frozen=True)
class HiddenStructureResult:
    """A structure learnt on shares, with cost and guarantee."""

    structure: dict[str, tuple[str, ...]]
    score: str
    n: int
    owners: dict[str, tuple[str, ...]]
    cost: Cost
    seconds: float
    bits_told: int
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "structure": {name: list(given) for name, given in self.structure.items()},
            "score": self.score,
            "n": self.n,
            "owners": {owner: list(names) for owner, names in self.owners.items()},
            "cost": {**asdict(self.cost), "seconds": self.seconds},
            "bits_told_at_most": self.bits_told,
            "guarantee": self.guarantee.to_dict(),
        }


def hidden_structure(
    codes: Mapping[str, NDArray[Any]],
    schema: Schema,
    owners: Mapping[str, Sequence[str]],
    order: Sequence[str],
    *,
    max_parents: int = 3,
    score: str = "k2",
    hide_order: bool = False,
    engine: Engine = "dealer",
) -> HiddenStructureResult:
    """Learn a structure by K2 on columns of several owners, who see only the structure.

    The result equals `mq.learn.structure` with the same order and score on the joined records, up to ties
    within 2⁻²⁰ nats per cell.

    Parameters
    ----------
    codes : mapping of str to array
        All columns, as category codes. Rows are the same people in every column.
    schema : Schema
        Variables of the columns.
    owners : mapping of str to sequence of str
        Variables of each owner.
    order : sequence of str
        All variables, parents before children.
    max_parents : int, optional
        Largest number of parents of a variable.
    score : str, optional
        Score of a structure.
    hide_order : bool, optional
        Hide the order in which parents are added.
    engine : {"dealer", "mpyc"}, optional
        With ``dealer`` the first two owners compute and a dealer supplies randomness. With ``mpyc`` three or
        more owners compute in separate processes, without a dealer.

    Returns
    -------
    HiddenStructureResult
        Parents of every variable, with cost and guarantee.

    Raises
    ------
    InputError
        If owners or order do not name every variable once.

    Notes
    -----
    Formula: shares modulo 2^64; see `protocols.mpc.structure`.
    Reference: Wright & Yang (2004); Yang & Wright (2006); Boyle, Gilboa & Ishai (2016).
    Cost: about fifteen rounds for each number of parents. `cost` has the bytes.
    """
    held = [name for names in owners.values() for name in names]
    _check(schema, held, order, owners)
    n = len(next(iter(codes.values())))
    search = Search.in_order(order, check_limit(max_parents), hide_order=hide_order)
    tables = ScoreTables.of(score, n)
    holder = {name: owner for owner, of in owners.items() for name in of}
    sizes = {name: len(schema[name]) for name in schema}
    if engine == "mpyc":
        found, cost, seconds = learn_structure(
            codes, sizes, owners, order, max_parents=max_parents, score=score, hide_order=hide_order
        )
        guarantee = structure_guarantee_without_dealer(tuple(owners), tuple(schema), search)
    else:

        def program(engine: HelpedEngine) -> Steps[Any]:
            own = {name: np.asarray(codes[name]) for name in owners[engine.name]}
            return parents(engine, HiddenColumns(sizes, holder, own, n), search, tables)

        found, cost, seconds = _compute(tuple(owners), n, program)
        guarantee = structure_guarantee(tuple(owners), tuple(schema), search, helper=HELPER)
    return HiddenStructureResult(
        {name: tuple(other for other in schema if other in found[name]) for name in schema},
        score_called(score).name,
        n,
        {owner: tuple(of) for owner, of in owners.items()},
        cost,
        seconds,
        search.bits_told,
        guarantee,
    )


@dataclass(frozen=True)
class HiddenModel(Generic[M]):
    """A model learnt on shares, with cost and guarantee."""

    model: M
    n: int
    owners: tuple[str, ...]
    cost: Cost
    seconds: float
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "model": self.model.to_dict(),
            "n": self.n,
            "owners": list(self.owners),
            "cost": {**asdict(self.cost), "seconds": self.seconds},
            "guarantee": self.guarantee.to_dict(),
        }


def hidden_tree(
    codes: Mapping[str, NDArray[Any]],
    schema: Schema,
    owners: Mapping[str, Sequence[str]],
    target: str,
    *,
    max_depth: int | None = None,
    min_records: float = 1.0,
) -> HiddenModel[LabelTree]:
    """Grow a tree by ID3 on columns of several owners, who see splits and classes of leaves.

    The result equals that of `mq.learn.decision_tree` on the joined records without a significance test,
    except that it has no counts (`LabelTree.of`).

    Parameters
    ----------
    codes : mapping of str to array
        All columns, as category codes. Rows are the same people in every column.
    schema : Schema
        Variables of the columns.
    owners : mapping of str to sequence of str
        Variables of each owner.
    target : str
        Variable to predict.
    max_depth : int, optional
        Largest depth of the tree.
    min_records : float, optional
        Least number of records in at least two branches of a split.

    Returns
    -------
    HiddenModel
        The tree, with cost and guarantee.

    Raises
    ------
    InputError
        If owners do not name every variable once.

    Notes
    -----
    Formula: shares modulo 2^64; see `protocols.mpc.tree`.
    Reference: Quinlan (1986).
    Cost: about twenty rounds per level.
    """
    _check(schema, [name for names in owners.values() for name in names], tuple(schema), owners)
    n = len(next(iter(codes.values())))
    features = tuple(name for name in schema if name in chosen_features(schema, target, None))
    growth = Growth.of(target, features, max_depth, min_records)
    holder = {name: owner for owner, of in owners.items() for name in of}
    sizes = {name: len(schema[name]) for name in schema}

    def program(engine: HelpedEngine) -> Steps[Any]:
        own = {name: np.asarray(codes[name]) for name in owners[engine.name]}
        return tree(engine, HiddenColumns(sizes, holder, own, n), growth)

    found, cost, seconds = _compute(tuple(owners), n, program)
    nodes = tuple(LabelNode(node.feature, node.branches, node.label) for node in found)
    model = LabelTree(schema[target], tuple(schema[name] for name in features), nodes, n)
    guarantee = tree_guarantee(tuple(owners), sizes, growth, helper=HELPER)
    return HiddenModel(model, n, tuple(owners), cost, seconds, guarantee)


def hidden_clusters(
    codes: Mapping[str, NDArray[Any]],
    schema: Schema,
    holder: NDArray[Any],
    owners: Sequence[str],
    k: int,
    *,
    start: Any = None,
    least_size: int = 10,
    steps: int = 30,
    hide_steps: bool = False,
) -> HiddenModel[Clusters]:
    """Cluster records whose cells are held by several owners, who see centres and sizes.

    From the same start `mq.learn.k_means` finds the same clusters; see `protocols.mpc.k_means.Lloyd`.

    Parameters
    ----------
    codes : mapping of str to array
        All columns, as category codes. Categories must be numbers.
    schema : Schema
        Variables of the columns.
    holder : array of int
        Index of the owner of each cell: records × columns.
    owners : sequence of str
        Names of the owners.
    k : int
        Number of clusters.
    start : array, optional
        First centres. Without it, random records, which no owner learns.
    least_size : int, optional
        Smallest cluster whose centre is opened.
    steps : int, optional
        Largest number of steps.
    hide_steps : bool, optional
        Open only the final centres.

    Returns
    -------
    HiddenModel
        The clusters, with cost and guarantee.

    Raises
    ------
    InputError
        If there are fewer than two owners or the arguments do not fit the columns.

    Notes
    -----
    Formula: shares modulo 2^64; see `protocols.mpc.k_means`.
    Reference: Lloyd (1982); Jagannathan & Wright (2005).
    Cost: about ten rounds per step, about thirty with hidden steps.
    """
    if len(owners) < 2:
        raise InputError("Clusters on shares need at least two owners. A single owner needs no shares.")
    names = tuple(schema)
    numbers = column_numbers(schema, names)
    lattice, n = Lattice.of(numbers), len(holder)
    table = lattice.to_units(np.stack([numbers[at][codes[name]] for at, name in enumerate(names)], axis=1))
    first = None if start is None else lattice.centres(start, k)
    plan = Lloyd(n, k, lattice.most, first, least_size, steps, hide_steps)

    def program(engine: HelpedEngine) -> Steps[Any]:
        return clusters(engine, np.where(holder == list(owners).index(engine.name), table, 0), plan)

    found, cost, seconds = _compute(tuple(owners), n, program)
    model = known_clusters(names, lattice, found.centres(), found.sizes, n, least=least_size)
    guarantee = clusters_guarantee(tuple(owners), names, plan, helper=HELPER)
    return HiddenModel(model, n, tuple(owners), cost, seconds, guarantee)


def _compute(
    owners: tuple[str, ...], n: int, program: Callable[[HelpedEngine], Steps[T]]
) -> tuple[T, Cost, float]:
    """Run a program of all owners in this process. Return the result, the cost and the seconds."""
    keys, cost = local_keys({owner: os.urandom(32) for owner in owners}), Cost()
    engines = [HelpedEngine(owner, owners, partial(keys, owner), n) for owner in owners]
    start = time.perf_counter()
    found = run({engine.name: program(engine) for engine in engines}, Dealer(owners, keys), cost)
    return found, cost, round(time.perf_counter() - start, 3)


def _check(
    schema: Schema, held: Sequence[str], order: Sequence[str], owners: Mapping[str, Sequence[str]]
) -> None:
    """Raise InputError if owners or order do not name every variable exactly once."""
    faults = []
    if len(owners) < 2:
        faults.append("Hidden counts need at least two owners. A single owner needs no shares.")
    for what, listed in (("owners", held), ("order", order)):
        unknown = [name for name in listed if name not in schema]
        missing = [name for name in schema if name not in listed]
        twice = sorted({name for name in listed if list(listed).count(name) > 1})
        faults += [f"{what}: {name!r} is not a variable.{did_you_mean(name, schema)}" for name in unknown]
        if missing:
            faults.append(f"{what}: these variables are missing: {', '.join(map(repr, missing))}.")
        if twice:
            faults.append(f"{what}: these names occur more than once: {', '.join(map(repr, twice))}.")
    if faults:
        raise InputError(" ".join(faults))
