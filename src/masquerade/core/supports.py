"""Many supports as one question: how many records hold all items of each of these sets?

Apriori needs thousands of supports a level. Any `Tally` answers them as ordinary queries; a source that can
do better offers `supports` itself (`SupportTally`). Learners call `ask` and never know which it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.covariance import spread_of
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError, SchemaError
from masquerade.core.intervals import Interval, count_interval
from masquerade.core.query import Query
from masquerade.core.report_moments import Spread, score_interval, unbiased_factor
from masquerade.core.schema import Category, Schema
from masquerade.core.tally import Merged, Tally

Item = tuple[str, Category]
Sets = NDArray[np.int32]
Parts = NDArray[np.bool_]

TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Supports:
    """How many records hold all items of each set?

    An item is a variable with one of its categories. `itemsets` has one row per set: places in `items`,
    ascending, no variable twice. With `parts` (True where an item belongs to the part), the covariance of
    the count of each set with the count of its part is asked for as well.
    """

    items: tuple[Item, ...]
    itemsets: Sets
    parts: Parts | None = None

    def check(self, schema: Schema) -> None:
        """Raise an `InputError` if an item is not in the schema or a row is no set of items."""
        for name, label in self.items:
            schema[name].code(label)
        if self.itemsets.ndim != 2 or self.itemsets.dtype.kind not in "iu":
            raise InputError("Itemsets must be a table of whole numbers, one row per set.")
        if self.parts is not None and (
            self.parts.shape != self.itemsets.shape or self.parts.dtype != np.bool_
        ):
            raise InputError("Parts must mark true or false every item of every set.")
        if not self.itemsets.size:
            return
        if self.itemsets.min() < 0 or self.itemsets.max() >= len(self.items):
            raise InputError(f"Itemsets must hold places of items, 0 to {len(self.items) - 1}.")
        if np.any(self.itemsets[:, 1:] <= self.itemsets[:, :-1]):
            raise InputError("The items of a set must be in ascending order, none twice.")
        owner = np.sort(self.owners()[self.itemsets], axis=1)
        if np.any(owner[:, 1:] == owner[:, :-1]):
            raise SchemaError("An itemset has two categories of one variable.")

    def owners(self) -> NDArray[np.int64]:
        """Return, for every item, a number that stands for its variable."""
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(name, len(numbers)) for name, _ in self.items], dtype=np.int64)

    def query(self, row: int) -> Query:
        """Return the ordinary query for one set: all conditions, or those of its part, by the others."""
        held = [self.items[place] for place in self.itemsets[row]]
        if self.parts is None:
            return Query(where=held)
        inside = self.parts[row]
        return Query(
            by=[name for (name, _), given in zip(held, inside, strict=True) if not given],
            where=[item for item, given in zip(held, inside, strict=True) if given],
        )


@dataclass(frozen=True, slots=True, eq=False)
class SupportAnswer:
    """Estimated counts of the sets, their standard errors (population), and what they are shares of.

    `stderr` is the root of the variance that was seen (`errors` is to be shown). `total` is the number of
    records, or their summed survey weights; `ratio` is Σv²/Σv of those weights v (1 without). `covariance` is
    that of each set with its part, if parts were asked for. `ends` are the least and the most that a record
    can count for each set, if the source knows.
    """

    values: Floats
    stderr: Floats
    n: int
    total: float
    ratio: float = 1.0
    covariance: Floats | None = None
    ends: tuple[Floats, Floats] | None = None

    @property
    def spread(self) -> Spread | None:
        """Return how the reports scatter behind every count; None if the source does not tell."""
        if self.ends is None:
            return None
        return Spread.of_two_kinds(self.values / max(self.n, 1), self.stderr**2, self.ends, self.n)

    @property
    def errors(self) -> Floats:
        """Return the standard errors, as `CountTable.stderr` gives them: never 0 where nothing was seen."""
        spread, variance = self.spread, self.stderr**2 * unbiased_factor(self.n)
        return np.sqrt(variance) if spread is None else spread.standard_error(variance)

    def interval(self, level: float) -> Interval:
        """Return score intervals of the expected counts, as if reports were of two kinds.

        Formula: `masquerade.core.report_moments.score_interval` with `Spread.of_two_kinds`.
        """
        z, spread = two_sided_quantile(level), self.spread
        if spread is None:
            return count_interval(self.values, self.stderr**2, max(self.n, 1), z, self.ratio)
        return score_interval(self.values, spread, z)

    def __add__(self, other: SupportAnswer) -> SupportAnswer:
        """Pool with the answer from other, independent records."""
        total = self.total + other.total
        weighted = self.ratio * self.total + other.ratio * other.total
        both = self.covariance is not None and other.covariance is not None
        ends = None
        if self.ends is not None and other.ends is not None:
            ends = np.minimum(self.ends[0], other.ends[0]), np.maximum(self.ends[1], other.ends[1])
        return SupportAnswer(
            self.values + other.values,
            np.hypot(self.stderr, other.stderr),
            self.n + other.n,
            total,
            weighted / total if total > 0 else 1.0,
            np.add(self.covariance, other.covariance) if both else None,  # type: ignore[arg-type]
            ends,
        )


@runtime_checkable
class SupportTally(Tally, Protocol):
    """A source that answers many supports at once, faster than query by query."""

    def supports(self, question: Supports) -> SupportAnswer:
        """Answer all sets, or refuse (`QueryRefused`) as `answer` would."""


def ask(source: Tally, question: Supports) -> SupportAnswer:
    """Ask a source for supports: its own way if it has one, else one batch of ordinary queries."""
    question.check(source.schema)
    if _answers_supports(source):
        return source.supports(question)
    if isinstance(source, Merged) and all(map(_answers_supports, source.sources)):
        answers = [ask(part, question) for part in source.sources]
        alike = all(part.guarantee == source.sources[0].guarantee for part in source.sources)
        return reduce(
            SupportAnswer.__add__, answers if alike or source.of == "records" else _weighed(answers)
        )
    return from_tables(source, question)


def _weighed(answers: Sequence[SupportAnswer]) -> list[SupportAnswer]:
    """Return the answers of samples of one population, scaled so that each adds what its precision is worth.

    Formula: n·w_i/n_i times each, w_i ∝ 1/Σ Var(N̂_i/n_i) over the sets, Σ w_i = 1.
    """
    seen = [answer for answer in answers if answer.n > 0]
    if not seen:
        return list(answers)
    precision = np.array([answer.n**2 / max(float(np.sum(answer.stderr**2)), TINY) for answer in seen])
    n = sum(answer.n for answer in seen)
    return [
        replace(
            answer,
            values=factor * answer.values,
            stderr=factor * answer.stderr,
            total=factor * answer.total,
            ratio=factor * answer.ratio,
            covariance=None if answer.covariance is None else factor**2 * answer.covariance,
        )
        for answer, factor in zip(
            seen,
            [n * share / answer.n for share, answer in zip(precision / precision.sum(), seen, strict=True)],
            strict=True,
        )
    ]


def _answers_supports(source: Tally) -> TypeGuard[SupportTally]:
    """Tell whether a source answers supports itself.

    Unlike `isinstance`, this looks at the one name that matters: a guarantee may be costly to work out.
    """
    return callable(getattr(source, "supports", None))


def from_tables(source: Tally, question: Supports) -> SupportAnswer:
    """Answer supports through `Tally.answer`: the number of all records and one query per set.

    Cost: one batch; with parts, a table over the items outside the part per set.
    """
    queries = [question.query(row) for row in range(len(question.itemsets))]
    everyone, *tables = source.answer([Query(), *queries])
    counts, variances, covariances, ends = [], [], [], []
    for row, table in enumerate(tables):
        labels: dict[str, Category] = dict(question.items[place] for place in question.itemsets[row].tolist())
        cell = tuple(axis.code(labels[axis.name]) for axis in table.axes)
        counts.append(table.values[cell])
        variance = table.covariance.quadratic
        one, whole = np.zeros(table.values.shape), np.ones(table.values.shape)
        one[cell] = 1.0
        variances.append(variance(one) if cell else float(table.covariance.diagonal()))
        if question.parts is not None:  # the covariance with the sum of all cells, from three variances
            covariances.append((variance(one + whole) - variance(one) - variance(whole)) / 2)
        spread = spread_of(table.covariance)
        if spread is not None:
            ends.append((spread.low[cell], spread.high[cell]))
    total = everyone.total
    squares = float(everyone.covariance.diagonal()) + total**2 / max(everyone.n, 1)
    low, high = np.array(ends, dtype=float).reshape(-1, 2).T
    return SupportAnswer(
        np.array(counts, dtype=float),
        np.sqrt(np.maximum(np.array(variances, dtype=float), 0.0)),
        everyone.n,
        total,
        squares / total if total > 0 else 1.0,
        None if question.parts is None else np.array(covariances, dtype=float),
        (low, high) if len(ends) == len(tables) else None,
    )
