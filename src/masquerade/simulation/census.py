"""Counting people by a protocol, learning a model, and comparing both with clear records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from masquerade.core.errors import InputError, Refusal
from masquerade.core.guarantee import Adversary, Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.learn.catalogue import learner
from masquerade.simulation import aggregation, frequency, mixnet
from masquerade.simulation.costs import Counted, Culprit, PopulationCost, Result
from masquerade.simulation.people import People, Trouble

Protocol = Literal["frequency", "aggregation", "mix"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

# models are kept small, since there are few people and every count is expensive
LIMITS: Mapping[str, Any] = {"max_depth": 3, "max_len": 3, "max_parents": 2, "min_support": 0.1}
DUST = 1e-6  # counts are integers: smaller differences are rounding


@dataclass(frozen=True, slots=True)
class Lesson:
    """A learner, by its name in the catalogue, and its variables.

    Attributes
    ----------
    name : str
        Name of the learner.
    target : str, optional
        Variable to predict. Required by classifiers.
    features : tuple of str, optional
        Other variables. Without it, all of them.
    parents : mapping, optional
        Network whose parameters are learnt. Without it, `target` is the parent of all features.
    """

    name: str
    target: str | None = None
    features: tuple[str, ...] | None = None
    parents: Mapping[str, Sequence[str]] | None = None

    def about(self, schema: Schema) -> tuple[str, ...]:
        """Return the variables that are queried, in the order of the schema.

        Raises
        ------
        InputError
            If a variable is unknown, or a target is missing.
        """
        needed = {option for options in learner(self.name).needs for option in options}
        if any(option.name == "time" for option in learner(self.name).options):
            raise InputError(f"{self.name} needs times of events, which these records do not have.")
        if self.target is not None:
            schema[self.target]
        for name in self.features or ():
            schema[name]
        star = "structure" in needed and self.parents is None
        if self.target is None and ("target" in needed or star):
            raise InputError(f"{self.name} needs a target: the variable to predict.")
        if self.parents is not None:
            named = {*self.parents, *(name for parents in self.parents.values() for name in parents)}
        else:
            named = {*(schema if self.features is None else self.features)}
            named |= set() if self.target is None else {self.target}
        return tuple(name for name in schema if name in named)

    def learn(self, source: Tally) -> Any:
        """Learn the model: an object with `summary` and `to_dict`."""
        entry, target = learner(self.name), self.target
        others = tuple(name for name in source.schema if name != target)
        star = {name: () if name == target else (target,) for name in source.schema}
        told = {
            "target": target,
            "features": others,
            "structure": star if self.parents is None else dict(self.parents),
            "tables": [(name,) if target is None else (target, name) for name in others],
            **LIMITS,
        }
        if entry.name == "k-means":  # categories of synthetic people are ordered
            places = {name: list(range(len(source.schema[name]))) for name in others}
            told |= {"k": 2, "names": others, "scores": places}
        if entry.name == "logistic" and target is not None:
            told["category"] = str(source.schema[target].categories[-1])
        return entry.fit(source, {o.name: told[o.name] for o in entry.options if o.name in told})


class _RecordedTally:
    """A source that records its queries and answers. Only the variables in `names` may be queried."""

    def __init__(self, source: Tally, names: Sequence[str]) -> None:
        self.source, self.names, self.said = source, names, dict[Query, CountTable]()
        self.schema, self.guarantee = Schema([source.schema[name] for name in names]), source.guarantee

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        return self.source.check(queries)

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        tables = self.source.answer(queries)
        self.said.update(zip(queries, tables, strict=True))
        return tables


@dataclass(frozen=True, slots=True)
class CensusComparison:
    """Answers of a protocol compared with those of the clear records of the same people.

    Attributes
    ----------
    largest : float
        Largest difference of a count.
    where : str
        Cell with the largest difference.
    errors : float, optional
        Largest difference in standard errors of the disguise. None without a disguise.
    same_model : bool
        True if all numbers of the models are equal.
    """

    counts: int
    differing: int
    largest: float
    where: str
    errors: float | None
    same_model: bool

    @property
    def equal(self) -> bool:
        """True if nothing differs."""
        return self.differing == 0 and self.same_model

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"equal": self.equal, **asdict(self)}


def _compare(asked: _RecordedTally, lesson: Lesson, model: Any, clear: Tally) -> CensusComparison:
    """Send the same queries to clear records, learn the same model from them, and compare."""
    queries = list(asked.said)
    counts = differing = 0
    largest, where, errors = 0.0, "", None
    for query, truth in zip(queries, clear.answer(queries), strict=True):
        ours = asked.said[query]
        gap = ours.values - truth.values
        off = np.abs(gap) > DUST
        counts, differing = counts + gap.size, differing + int(off.sum())
        if gap.size and np.abs(gap).max() > abs(largest):
            cell = np.unravel_index(int(np.abs(gap).argmax()), gap.shape)
            largest, where = float(gap[cell]), _cell_name(ours, query, cell)
        stderr = ours.stderr("given_records")
        noisy = stderr > DUST
        if noisy.any():
            errors = max(errors or 0.0, float((np.abs(gap[noisy]) / stderr[noisy]).max()))
    same = bool(model.to_dict() == lesson.learn(_RecordedTally(clear, asked.names)).to_dict())
    return CensusComparison(counts, differing, largest, where, errors, same)


def _cell_name(table: CountTable, query: Query, cell: Sequence[Any]) -> str:
    """Return a cell as text, such as ``income=>50K, sex=male``."""
    pairs = [(axis.name, axis.categories[int(code)]) for axis, code in zip(table.axes, cell, strict=True)]
    return ", ".join(f"{name}={label}" for name, label in [*pairs, *query.where]) or "all"


@dataclass(frozen=True, slots=True, eq=False)
class Census(Result):
    """Result of counting people: who was counted, left or cheated, the comparison, costs and the model."""

    protocol: Protocol
    n: int
    counted: int
    left: int
    caught: tuple[Culprit, ...]
    notes: tuple[str, ...]
    compared: CensusComparison
    cost: PopulationCost
    guarantee: Guarantee
    model: Any


def users(
    people: People,
    lesson: Lesson,
    protocol: Protocol = "aggregation",
    *,
    trouble: Trouble | None = None,
    colluders: float | str = "0.1",
    server: Adversary = "malicious",
    leaders: int = 2,
) -> Census:
    """Count people by a protocol, every message encoded as bytes, and learn a model from the counts.

    Parameters
    ----------
    people : People
        Records of the people, and the policy that disguises them.
    lesson : Lesson
        Model to learn.
    protocol : {"aggregation", "frequency", "mix"}, optional
        Secure aggregation, frequency mining or a mixnet.
    trouble : Trouble, optional
        Shares of the people who leave or cheat.
    colluders : float or str, optional
        Share of users that may collude, for secure aggregation.
    server : {"malicious", "semi-honest"}, optional
        Adversary model of the server, for secure aggregation.
    leaders : int, optional
        Number of mix servers, for a mixnet.

    Returns
    -------
    Census
        Results and costs, compared with the clear records of the people who were counted.

    Raises
    ------
    InputError
        If the protocol is unknown or the lesson does not fit the people.
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"The protocol must be one of {', '.join(PROTOCOLS)}. Got {protocol!r} instead.")
    names, asked = lesson.about(people.policy.schema), list[_RecordedTally]()
    given = trouble or Trouble()

    def learn(source: Tally) -> Any:
        asked.append(_RecordedTally(source, names))
        return lesson.learn(asked[-1])

    found: Counted
    if protocol == "frequency":
        found = frequency.count(people, learn, given)
    elif protocol == "aggregation":
        found = aggregation.count(people, learn, given, colluders=colluders, server=server)
    else:
        found = mixnet.count(people, learn, given, leaders=leaders)
    clear = people[list(found.counted)].in_the_open()
    return Census(
        protocol,
        len(people),
        len(found.counted),
        len(given.among(len(people))[0]),
        found.culprits,
        found.notes,
        _compare(asked[-1], lesson, found.model, clear),
        found.cost,
        asked[-1].guarantee,
        found.model,
    )
