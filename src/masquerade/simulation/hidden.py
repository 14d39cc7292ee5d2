"""Owners who learn the structure of a network over all their columns, and nobody any count."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.guarantee import Guarantee
from masquerade.core.schema import Schema
from masquerade.learn.graph import checked_limit
from masquerade.learn.score_tables import ScoreTables
from masquerade.learn.scores import score_called
from masquerade.protocols.hidden.dealer import Dealer, local_keys
from masquerade.protocols.hidden.engine import Cost, run
from masquerade.protocols.hidden.family_counts import HiddenColumns
from masquerade.protocols.hidden.guarantee import structure_guarantee
from masquerade.protocols.hidden.helped_engine import HelpedEngine
from masquerade.protocols.hidden.structure import Search, parents

HELPER = "helper"


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
) -> HiddenStructure:
    """Return the structure that K2 finds over columns of several owners, who see only the structure.

    `codes` are all columns, row by row the same people; `owners` says who holds which, the first two compute
    and a helper deals. `order` lists all variables, parents before children. What is found equals
    `mq.learn.structure` with the same order and score on the joined records, up to ties within 2⁻²⁰ of a nat
    for every cell.

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
    keys = local_keys({owner: os.urandom(32) for owner in owners})
    programs = {}
    for owner, of in owners.items():
        engine = HelpedEngine(owner, tuple(owners), _own_keys(keys, owner), n)
        columns = HiddenColumns(sizes, holder, {name: np.asarray(codes[name]) for name in of}, n)
        programs[owner] = parents(engine, columns, search, tables)
    cost = Cost()
    start = time.perf_counter()
    found = run(programs, Dealer(tuple(owners), keys), cost)
    return HiddenStructure(
        {name: tuple(other for other in schema if other in found[name]) for name in schema},
        score_called(score).name,
        n,
        {owner: tuple(of) for owner, of in owners.items()},
        cost,
        round(time.perf_counter() - start, 3),
        search.bits_told,
        structure_guarantee(tuple(owners), tuple(schema), search, helper=HELPER),
    )


def _own_keys(keys: Any, owner: str) -> Any:
    return lambda purpose, number: keys(owner, purpose, number)


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
