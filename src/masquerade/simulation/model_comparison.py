"""What is learnt in a simulation, and how the answers behind it compare with those of clear records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from masquerade.core.errors import InputError, Refusal
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.learn.catalogue import learner

# people are few here, and every count costs: models are kept small
LIMITS: Mapping[str, Any] = {"max_depth": 3, "max_len": 3, "max_parents": 2, "min_support": 0.1}
DUST = 1e-6  # counts are whole: less than this is rounding


@dataclass(frozen=True, slots=True)
class Lesson:
    """What to learn, by its name in the catalogue of learners, and about which variables.

    `target` is needed for classifiers; `features` are all other variables unless given; `parents` is the
    network whose parameters are learnt (without it, `target` is the parent of all features).
    """

    name: str
    target: str | None = None
    features: tuple[str, ...] | None = None
    parents: Mapping[str, Sequence[str]] | None = None

    def about(self, schema: Schema) -> tuple[str, ...]:
        """Return the variables that are asked about, in the order of the schema; unknown ones are refused."""
        needed = {option for options in learner(self.name).needs for option in options}
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
        """Return the model: something with `summary` and `to_dict`."""
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
        return entry.learnt(source, {o.name: told[o.name] for o in entry.options if o.name in told})


@dataclass(eq=False)
class RecordedTally:
    """A source that remembers what it was asked and what it said; `names` are all it lets be asked."""

    source: Tally
    names: Sequence[str]
    said: dict[Query, CountTable] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """Return the variables that may be asked about."""
        return Schema([self.source.schema[name] for name in self.names])

    @property
    def guarantee(self) -> Guarantee:
        """Return that of the source."""
        return self.source.guarantee

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return what the source says."""
        return self.source.check(queries)

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Return what the source says, and remember it."""
        tables = self.source.answer(queries)
        self.said.update(zip(queries, tables, strict=True))
        return tables


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answers of a protocol beside those of the clear records of the same people.

    `largest` is the largest difference of a count, `where` it is; `errors` is the largest difference in
    standard errors of the disguise, None without one. `same_model` tells whether the models are equal, figure
    by figure.
    """

    counts: int
    differing: int
    largest: float
    where: str
    errors: float | None
    same_model: bool

    @property
    def equal(self) -> bool:
        """Tell whether nothing differs."""
        return self.differing == 0 and self.same_model

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"equal": self.equal, **asdict(self)}


def compare(asked: RecordedTally, lesson: Lesson, model: Any, clear: Tally) -> Comparison:
    """Ask clear records the same, and learn the same from them."""
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
            largest, where = float(gap[cell]), cell_name(ours, query, cell)
        stderr = ours.stderr("given_records")
        noisy = stderr > DUST
        if noisy.any():
            errors = max(errors or 0.0, float((np.abs(gap[noisy]) / stderr[noisy]).max()))
    same = bool(model.to_dict() == lesson.learn(RecordedTally(clear, asked.names)).to_dict())
    return Comparison(counts, differing, largest, where, errors, same)


def cell_name(table: CountTable, query: Query, cell: Sequence[Any]) -> str:
    """Return a cell in words, such as ``income=>50K, sex=male``."""
    pairs = [(axis.name, axis.categories[int(code)]) for axis, code in zip(table.axes, cell, strict=True)]
    return ", ".join(f"{name}={label}" for name, label in [*pairs, *query.where]) or "all"
