"""Owners who learn a structure, a tree or clusters over all their records, and nobody any count."""

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
from masquerade.learn.networks.graph import checked_limit
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
class HiddenStructure:
    """A structure that was learnt on shares, what learning it cost, and who learnt what."""

    structure: dict[str, tuple[str, ...]]
    score: str
    n: int
    owners: dict[str, tuple[str, ...]]
    cost: Cost
    seconds: float
    bits_told: int
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
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
) -> HiddenStructure:
    """Return the structure that K2 finds over columns of several owners, who see only the structure.

    `codes` are all columns, row by row the same people; `owners` says who holds which. With the engine
    ``dealer`` the first two owners compute and a helper deals randomness; with ``mpyc`` three owners or more
    compute in processes of their own, without a dealer. `order` lists all variables, parents before children.
    The result equals `mq.learn.structure` with the same order and score on the joined records, up to ties
    within 2⁻²⁰ of a nat for every cell.

    Formula: shares modulo 2^64; see `protocols.hidden.structure`.
    Reference: Wright & Yang (2004); Yang & Wright (2006); Boyle, Gilboa & Ishai (2016).
    Cost: some fifteen rounds for every number of parents; bytes as `cost` says.
    """
    held = [name for names in owners.values() for name in names]
    _check(schema, held, order, owners)
    n = len(next(iter(codes.values())))
    search = Search.in_order(order, checked_limit(max_parents), hide_order=hide_order)
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

        found, cost, seconds = _computed(tuple(owners), n, program)
        guarantee = structure_guarantee(tuple(owners), tuple(schema), search, helper=HELPER)
    return HiddenStructure(
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
    """A model that was learnt on shares, what learning it cost, and who learnt what."""

    model: M
    n: int
    owners: tuple[str, ...]
    cost: Cost
    seconds: float
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
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
    """Return the tree that ID3 grows over columns of several owners, who see splits and leaves' classes.

    `codes` and `owners` as for `hidden_structure`. What is found equals `mq.learn.decision_tree` without a
    test of significance on the joined records: `LabelTree.of` is what is left of that without its counts.

    Formula: shares modulo 2^64; see `protocols.hidden.tree`.
    Reference: Quinlan (1986).
    Cost: some twenty rounds for every level.
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

    found, cost, seconds = _computed(tuple(owners), n, program)
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
    """Return clusters of records whose cells lie with several owners, who see centres and sizes.

    `codes` are all columns, whose categories are numbers; `holder` (records × columns) says by number which
    of the `owners` has a cell. Without `start` the first centres are records that nobody knows. From the same
    centres `mq.learn.k_means` comes to the same clusters; see `protocols.hidden.k_means.Lloyd` for the rest.

    Formula: shares modulo 2^64; see `protocols.hidden.k_means`.
    Reference: Lloyd (1982); Jagannathan & Wright (2005).
    Cost: some ten rounds for every step, with hidden steps some thirty.
    """
    if len(owners) < 2:
        raise InputError("Clusters on shares need two owners at least; one computes alone.")
    names = tuple(schema)
    numbers = column_numbers(schema, names)
    lattice, n = Lattice.of(numbers), len(holder)
    table = lattice.whole(np.stack([numbers[at][codes[name]] for at, name in enumerate(names)], axis=1))
    first = None if start is None else lattice.centres(start, k)
    plan = Lloyd(n, k, lattice.most, first, least_size, steps, hide_steps)

    def program(engine: HelpedEngine) -> Steps[Any]:
        return clusters(engine, np.where(holder == list(owners).index(engine.name), table, 0), plan)

    found, cost, seconds = _computed(tuple(owners), n, program)
    model = known_clusters(names, lattice, found.centres(), found.sizes, n, least=least_size)
    guarantee = clusters_guarantee(tuple(owners), names, plan, helper=HELPER)
    return HiddenModel(model, n, tuple(owners), cost, seconds, guarantee)


def _computed(
    owners: tuple[str, ...], n: int, program: Callable[[HelpedEngine], Steps[T]]
) -> tuple[T, Cost, float]:
    """Run a program by all owners in this process; return what they find, what it cost, and its seconds."""
    keys, cost = local_keys({owner: os.urandom(32) for owner in owners}), Cost()
    engines = [HelpedEngine(owner, owners, partial(keys, owner), n) for owner in owners]
    start = time.perf_counter()
    found = run({engine.name: program(engine) for engine in engines}, Dealer(owners, keys), cost)
    return found, cost, round(time.perf_counter() - start, 3)


def _check(
    schema: Schema, held: Sequence[str], order: Sequence[str], owners: Mapping[str, Sequence[str]]
) -> None:
    """Refuse owners and orders that do not name every variable once, all at once."""
    faults = []
    if len(owners) < 2:
        faults.append("Hidden counts need two owners at least; one counts alone.")
    for what, given in (("Among the owners", held), ("In the order", order)):
        unknown = [name for name in given if name not in schema]
        missing = [name for name in schema if name not in given]
        twice = sorted({name for name in given if list(given).count(name) > 1})
        faults += [f"{what} {name!r} is no variable.{did_you_mean(name, schema)}" for name in unknown]
        if missing:
            faults.append(f"{what} {', '.join(map(repr, missing))} is missing.")
        if twice:
            faults.append(f"{what} {', '.join(map(repr, twice))} stands twice.")
    if faults:
        raise InputError(" ".join(faults))
