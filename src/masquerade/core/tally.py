"""The waist: every privacy technology is a way to answer counting questions, every learner asks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Literal, Protocol, runtime_checkable
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.core.evidence import Sample
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable

DISAGREEMENT = 1e-6  # p-value below which sources are told not to look like samples of one population


@runtime_checkable
class Tally(Protocol):
    """A source of counts. Implement these four names and every learner runs on it.

    >>> source = mq.tally(mq.data.students())
    >>> isinstance(source, mq.Tally)
    True
    >>> list(source.schema), source.check([mq.Query(by="pills")])
    (['exams', 'year', 'pills', 'sleep'], [])
    """

    @property
    def schema(self) -> Schema:
        """The variables that can be asked about."""

    @property
    def guarantee(self) -> Guarantee:
        """Who learns what, under which assumption: computed, never typed in."""

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why queries would be refused; [] when all are allowed. Pure: asks nothing of anybody."""

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch in one scan or one network round; all or nothing (`QueryRefused`)."""


@runtime_checkable
class RecordTally(Tally, Protocol):
    """A source that holds records: it can average any function of the truths. For testing models only."""

    def expect(
        self, f: Callable[[NDArray[np.intp]], NDArray[Any]], over: Sequence[str]
    ) -> tuple[float, float]:
        """Return the mean over the true records of f(category codes of `over`), and its standard error."""


class Merged:
    """Several sources of different people with one schema, answered as one.

    Of one ``population`` they are samples: those that were disguised in the same way add, others are weighed
    by how much they tell, through their joint likelihood; a warning says if they do not look like samples of
    one population. ``records`` adds the unbiased counts of every source instead, whoever the people are.

    >>> students = mq.data.students()
    >>> both = mq.Merged([mq.tally(students[::2]), mq.tally(students[1::2])], of="records")
    >>> both.answer([mq.Query(by="pills")])[0].values.tolist()
    [474.0, 126.0]
    """

    def __init__(self, sources: Sequence[Tally], of: Literal["population", "records"] = "population") -> None:
        if not sources:
            raise InputError("Merged() needs at least one source.")
        if any(source.schema != sources[0].schema for source in sources):
            raise InputError("Sources can be merged only if they have the same schema.")
        if of not in ("population", "records"):
            raise InputError(f"Merged() is of one 'population' or of 'records'. Got {of!r} instead.")
        self.of = of
        self.sources = tuple(sources)
        self.schema = sources[0].schema
        self.guarantee = reduce(Guarantee.beside, [source.guarantee for source in sources])

    def select(self, names: Iterable[str]) -> Selected:
        """Return some variables as a source of their own."""
        return Selected(self, names)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of all sources."""
        return [refusal for source in self.sources for refusal in source.check(queries)]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Pool the answers of all sources; none is asked unless all agree."""
        raise_refusals(self.check(queries))
        answers = [source.answer(queries) for source in self.sources]
        together = pooled if self.of == "population" else added
        return [together(tables) for tables in zip(*answers, strict=True)]


def added(tables: Sequence[CountTable]) -> CountTable:
    """Return the sum of the tables of different records, whoever they are about."""
    return reduce(CountTable.__add__, tables)


def pooled(tables: Sequence[CountTable]) -> CountTable:
    """Return the table of all records, if those of each table are a sample of one population."""
    first = tables[0]
    samples = [Sample(table.values, table.evidence, table.n) for table in tables]
    if any(table.axes != first.axes or table.adjusted for table in tables):
        raise InputError("Only unbiased tables over the same variables can be pooled.")
    found = first.evidence.pooled(samples)
    if found.agreement < DISAGREEMENT:
        warn(
            f"The sources do not look like samples of one population (by {', '.join(first.names)}, "
            f"p = {found.agreement:.1g}): Merged(sources, of='records') counts all their records instead.",
            UserWarning,
            stacklevel=3,
        )
    return CountTable(first.axes, found.values, sum(table.n for table in tables), found.evidence)


class Cached:
    """A source that never asks the same question twice: what was answered is kept.

    >>> source = mq.Cached(mq.tally(mq.data.students()))
    >>> question = mq.Query(by="pills")
    >>> source.answer([question])[0] is source.answer([question])[0]
    True
    """

    def __init__(self, source: Tally) -> None:
        self.source = source
        self.schema = source.schema
        self.guarantee = source.guarantee
        self._answers: dict[Query, CountTable] = {}

    def select(self, names: Iterable[str]) -> Selected:
        """Return some variables as a source of their own."""
        return Selected(self, names)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals for questions not answered yet."""
        return self.source.check(self._open(queries))

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer from what is known and ask the rest as one batch."""
        asked = self._open(queries)
        if asked:
            self._answers.update(zip(asked, self.source.answer(asked), strict=True))
        return [self._answers[query] for query in queries]

    def _open(self, queries: Sequence[Query]) -> list[Query]:
        return [query for query in dict.fromkeys(queries) if query not in self._answers]


class Selected:
    """Some variables of a source, as a source of its own: learners see no others.

    What is revealed stays that of the whole. Abilities that some sources have beside the four names of a
    `Tally` pass through.
    """

    ABILITIES = frozenset(
        {
            "expect",
            "indicators",
            "links",
            "mean",
            "misfit",
            "missing",
            "n",
            "policy",
            "posterior",
            "supports",
            "weighted",
        }
    )

    def __init__(self, source: Tally, names: Iterable[str]) -> None:
        check_source(source)
        chosen = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
        if not chosen:
            raise InputError("A selection needs at least one variable.")
        self.source = source
        self.schema = Schema(source.schema[name] for name in chosen)
        self.guarantee = source.guarantee

    def __repr__(self) -> str:
        """Show the selection, and of what."""
        return f"Selected({', '.join(self.schema)}; of {self.source!r})"

    def __getattr__(self, name: str) -> Any:
        if name in self.ABILITIES and "source" in self.__dict__:
            return getattr(self.source, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def select(self, names: Iterable[str]) -> Selected:
        """Return fewer of them."""
        chosen = (names,) if isinstance(names, str) else tuple(names)
        for name in chosen:
            self.schema[name]
        return Selected(self.source, chosen)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of the source; a variable that was not selected is an error."""
        for query in queries:
            query.check(self.schema)
        return self.source.check(queries)

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer as the source does."""
        for query in queries:
            query.check(self.schema)
        return self.source.answer(queries)


def check_source(source: object) -> None:
    """Refuse a frame, or anything else that answers no counts, where a source is due."""
    if not isinstance(source, Tally):
        raise InputError(
            f"A {type(source).__name__} is no source of counts: mq.tally(frame, policy) makes one of "
            "disguised records, mq.tally(frame) of clear ones."
        )


def raise_refusals(refusals: Sequence[Refusal]) -> None:
    """Raise `QueryRefused` if there is any refusal."""
    if refusals:
        raise QueryRefused(refusals)
