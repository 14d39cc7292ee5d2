"""What is learnt in a simulation, and how the answers behind it compare with those of clear records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from masquerade.core.errors import InputError, Refusal
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.learn.bayes import naive_bayes
from masquerade.learn.network import bayesian_network
from masquerade.learn.rules import association_rules
from masquerade.learn.structure_search import structure
from masquerade.learn.tree import decision_tree

Kind = Literal["naive-bayes", "tree", "rules", "parameters", "structure", "tables"]
LESSONS: tuple[Kind, ...] = get_args(Kind)
DEEPEST, LONGEST, MOST_PARENTS = 3, 3, 2
DUST = 1e-6  # counts are whole: less than this is rounding


@dataclass(frozen=True, slots=True)
class Lesson:
    """What to learn, about which variables.

    `target` is needed for classifiers; `features` are all other variables unless given; `parents` is the
    network whose parameters are learnt (without it, `target` is the parent of all features).
    """

    kind: Kind
    target: str | None = None
    features: tuple[str, ...] | None = None
    parents: Mapping[str, Sequence[str]] | None = None

    def about(self, schema: Schema) -> tuple[str, ...]:
        """Return the variables that are asked about, in the order of the schema; unknown ones are refused."""
        if self.kind not in LESSONS:
            raise InputError(f"What to learn must be one of {', '.join(LESSONS)}. Got {self.kind!r} instead.")
        if self.target is not None:
            schema[self.target]
        for name in self.features or ():
            schema[name]
        if self.target is None and (self.kind in {"naive-bayes", "tree"} or self._plain_network):
            raise InputError(f"{self.kind} needs a target: the variable to predict.")
        if self.parents is not None:
            named = {*self.parents, *(name for parents in self.parents.values() for name in parents)}
        else:
            named = {*(schema if self.features is None else self.features)}
            named |= set() if self.target is None else {self.target}
        return tuple(name for name in schema if name in named)

    @property
    def _plain_network(self) -> bool:
        return self.kind == "parameters" and self.parents is None

    def learn(self, source: Tally) -> Any:
        """Return the model: something with `summary` and `to_dict`."""
        names = tuple(source.schema)
        others = tuple(name for name in names if name != self.target)
        if self.kind == "naive-bayes":
            return naive_bayes(source, str(self.target), others)
        if self.kind == "tree":
            return decision_tree(source, str(self.target), others, max_depth=DEEPEST)
        if self.kind == "rules":
            return association_rules(source, 0.1, 0.6, max_len=LONGEST)
        if self.kind == "parameters":
            plain = {name: () if name == self.target else (str(self.target),) for name in names}
            return bayesian_network(source, plain if self.parents is None else dict(self.parents))
        if self.kind == "structure":
            return structure(source, max_parents=MOST_PARENTS)
        wanted = [(name,) if self.target is None else (self.target, name) for name in others]
        return Tables(tuple(source.answer([Query(by=names) for names in wanted])))


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Some tables of counts, as they are."""

    tables: tuple[CountTable, ...]

    def summary(self) -> str:
        """Return the tables one below the other."""
        return "\n\n".join(table.summary() for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "tables": [
                {
                    "variables": list(table.names),
                    "categories": [list(axis.categories) for axis in table.axes],
                    "counts": table.values.tolist(),
                    "stderr": table.stderr().tolist(),
                    "n": table.n,
                }
                for table in self.tables
            ]
        }


@dataclass(eq=False)
class Heard:
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
class Compared:
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


def compared(heard: Heard, lesson: Lesson, model: Any, clear: Tally) -> Compared:
    """Ask clear records the same, and learn the same from them."""
    queries = list(heard.said)
    counts = differing = 0
    largest, where, errors = 0.0, "", None
    for query, truth in zip(queries, clear.answer(queries), strict=True):
        ours = heard.said[query]
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
    same = bool(model.to_dict() == lesson.learn(Heard(clear, heard.names)).to_dict())
    return Compared(counts, differing, largest, where, errors, same)


def cell_name(table: CountTable, query: Query, cell: Sequence[Any]) -> str:
    """Return a cell in words, such as ``income=>50K, sex=male``."""
    pairs = [(axis.name, axis.categories[int(code)]) for axis, code in zip(table.axes, cell, strict=True)]
    return ", ".join(f"{name}={label}" for name, label in [*pairs, *query.where]) or "all"
