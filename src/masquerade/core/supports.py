"""Support queries: the number of records that contain all items of each of many sets.

Apriori needs thousands of supports per level. Any `Tally` answers them as ordinary queries. A faster source
implements `supports` (`SupportTally`). Learners call `query_supports`, which picks the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError, SchemaError
from masquerade.core.intervals import Interval, count_interval
from masquerade.core.linear_covariance import spread_of
from masquerade.core.query import Query
from masquerade.core.report_moments import ReportSpread, score_interval, unbiased_factor
from masquerade.core.schema import Category, Schema
from masquerade.core.tally import Merged, Tally

Item = tuple[str, Category]
Sets = NDArray[np.int32]
Parts = NDArray[np.bool_]

TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Supports:
    """A support query: the number of records that contain all items of each set.

    Attributes
    ----------
    items : tuple of (str, category)
        Items: variables with one of their categories.
    itemsets : array of int
        One row per set: ascending positions in `items`, no variable twice.
    parts : array of bool, optional
        In the shape of `itemsets`, True for the items of a subset. Then the covariance of the counts of each
        set and its subset is queried as well.
    """

    items: tuple[Item, ...]
    itemsets: Sets
    parts: Parts | None = None

    def check(self, schema: Schema) -> None:
        """Raise `InputError` if an item is not in the schema or a row is not a set of items."""
        for name, label in self.items:
            schema[name].code(label)
        if self.itemsets.ndim != 2 or self.itemsets.dtype.kind not in "iu":
            raise InputError("Itemsets must be a table of whole numbers, one row per set.")
        if self.parts is not None and (
            self.parts.shape != self.itemsets.shape or self.parts.dtype != np.bool_
        ):
            raise InputError("Parts must be True or False for each item of each set.")
        if not self.itemsets.size:
            return
        if self.itemsets.min() < 0 or self.itemsets.max() >= len(self.items):
            raise InputError(f"Itemsets must contain positions of items, 0 to {len(self.items) - 1}.")
        if np.any(self.itemsets[:, 1:] <= self.itemsets[:, :-1]):
            raise InputError("The items of a set must be in ascending order, none twice.")
        owner = np.sort(self.owners()[self.itemsets], axis=1)
        if np.any(owner[:, 1:] == owner[:, :-1]):
            raise SchemaError("An itemset has two categories of one variable.")

    def owners(self) -> NDArray[np.int64]:
        """Return a number for each item that identifies its variable."""
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(name, len(numbers)) for name, _ in self.items], dtype=np.int64)

    def query(self, row: int) -> Query:
        """Return the ordinary query for one set.

        Its conditions are all items of the set. With `parts`, its conditions are the items of the subset, and
        its table is over the variables of the other items.
        """
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
    """Estimated counts of the sets with their standard errors (population).

    Attributes
    ----------
    values : array
        Estimated counts.
    stderr : array
        Square roots of the estimated variances. Show `errors` instead.
    n : int
        Number of records.
    total : float
        Number of records, or the sum of their survey weights.
    ratio : float
        Σv²/Σv of the survey weights v; 1 without weights.
    covariance : array or None
        Covariance of each set with its subset, if queried.
    ends : pair of array or None
        Smallest and largest weight of a record in each count, if the source knows them.
    """

    values: Floats
    stderr: Floats
    n: int
    total: float
    ratio: float = 1.0
    covariance: Floats | None = None
    ends: tuple[Floats, Floats] | None = None

    @property
    def spread(self) -> ReportSpread | None:
        """Return the moments of the reports of each count; None if the source does not provide them."""
        if self.ends is None:
            return None
        return ReportSpread.of_two_kinds(self.values / max(self.n, 1), self.stderr**2, self.ends, self.n)

    @property
    def errors(self) -> Floats:
        """Return the standard errors as `CountTable.stderr` does: never 0 where nothing was observed."""
        spread, variance = self.spread, self.stderr**2 * unbiased_factor(self.n)
        return np.sqrt(variance) if spread is None else spread.standard_error(variance)

    def interval(self, level: float) -> Interval:
        """Return score intervals of the expected counts, as if reports had two values.

        Formula: `masquerade.core.report_moments.score_interval` with `ReportSpread.of_two_kinds`.
        """
        z, spread = two_sided_quantile(level), self.spread
        if spread is None:
            return count_interval(self.values, self.stderr**2, max(self.n, 1), z, self.ratio)
        return score_interval(self.values, spread, z)

    def __add__(self, other: SupportAnswer) -> SupportAnswer:
        """Return the sum with the answer from different, independent records."""
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
    """A source that answers many supports faster than query by query."""

    def supports(self, question: Supports) -> SupportAnswer:
        """Answer all sets, or raise `QueryRefused` as `answer` would."""


def query_supports(source: Tally, question: Supports) -> SupportAnswer:
    """Return the supports by the source's own method, or else by one batch of ordinary queries."""
    question.check(source.schema)
    if _answers_supports(source):
        return source.supports(question)
    if isinstance(source, Merged) and all(map(_answers_supports, source.sources)):
        answers = [query_supports(part, question) for part in source.sources]
        alike = all(part.guarantee == source.sources[0].guarantee for part in source.sources)
        return reduce(
            SupportAnswer.__add__, answers if alike or source.of == "records" else _weigh_answers(answers)
        )
    return from_tables(source, question)


def _weigh_answers(answers: Sequence[SupportAnswer]) -> list[SupportAnswer]:
    """Return the answers of samples of one population, scaled to weights proportional to their precision.

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
    """Return True if a source answers supports itself.

    Unlike `isinstance`, this checks only the name that matters: computing a guarantee may be costly.
    """
    return callable(getattr(source, "supports", None))


def from_tables(source: Tally, question: Supports) -> SupportAnswer:
    """Return supports from `Tally.answer`: the number of all records and one query per set.

    Cost: one batch; with `parts`, one table per set over the items outside its subset.
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
