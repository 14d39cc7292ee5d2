"""The count interface: every privacy technology answers count queries, and every learner asks them."""

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
from masquerade.core.likelihood_rows import (
    FactorSource,
    LikelihoodRows,
    LikelihoodSource,
    ReportFactors,
    join_rows,
)
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable

DISAGREEMENT = 1e-6  # below this p-value, warn that sources do not look like samples of one population


@runtime_checkable
class Tally(Protocol):
    """A source of counts. Any class with these four members works with all statistics and learners.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> isinstance(source, mq.Tally)
    True
    >>> list(source.schema), source.check([mq.Query(by="pills")])
    (['exams', 'year', 'pills', 'sleep'], [])
    """

    @property
    def schema(self) -> Schema:
        """The variables that can be queried."""

    @property
    def guarantee(self) -> Guarantee:
        """The privacy guarantee of the answers, computed by the source."""

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries; an empty list if all are allowed. Has no side effects."""

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch in one scan or network round.

        Parameters
        ----------
        queries : sequence of Query
            Queries of one batch.

        Returns
        -------
        list of CountTable
            One table per query.

        Raises
        ------
        QueryRefused
            If any query is refused; then none is answered.
        """


@runtime_checkable
class RecordTally(Tally, Protocol):
    """A source that holds records: it can average functions of the true values. For testing models only."""

    def expect(
        self, f: Callable[[NDArray[np.intp]], NDArray[Any]], over: Sequence[str]
    ) -> tuple[float, float]:
        """Return the mean over the true records of f(category codes of `over`), and its standard error."""


class Merged:
    """Several sources with one schema about different people, combined into one source.

    Parameters
    ----------
    sources : sequence of Tally
        Sources with equal schemas.
    of : {"population", "records"}, default "population"
        "population": the sources are samples of one population. Counts of equally disguised sources add up,
        others are weighted by their precision through the joint likelihood, and a warning is raised if they
        do not look like samples of one population. "records": the unbiased counts of all sources add up,
        whatever the populations.

    Raises
    ------
    InputError
        If there is no source or the schemas differ.

    Examples
    --------
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
            raise InputError(
                f"The 'of' parameter of Merged() must be 'population' or 'records'. Got {of!r} instead."
            )
        self.of = of
        self.sources = tuple(sources)
        self.schema = sources[0].schema
        self.guarantee = reduce(Guarantee.combine_disjoint, [source.guarantee for source in sources])
        if all(isinstance(source, LikelihoodSource) for source in sources):
            self.likelihood_rows = self._join_likelihood_rows
        if all(isinstance(source, FactorSource) for source in sources):
            self.report_factors = self._join_report_factors

    def select(self, names: Iterable[str]) -> Selected:
        """Return a source with only the named variables."""
        return Selected(self, names)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of all sources."""
        return [refusal for source in self.sources for refusal in source.check(queries)]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Combine the answers of all sources; no source is queried unless all agree."""
        raise_refusals(self.check(queries))
        answers = [source.answer(queries) for source in self.sources]
        combine = pool_tables if self.of == "population" else add_tables
        return [combine(tables) for tables in zip(*answers, strict=True)]

    def _join_likelihood_rows(self, over: Sequence[str]) -> LikelihoodRows:
        """Return the chances of the reports of all sources' records, in the order of the sources."""
        sizes = {variable.name: len(variable) for variable in self.schema.variables}
        parts = [s.likelihood_rows(over) for s in self.sources if isinstance(s, LikelihoodSource)]
        return join_rows(parts, sizes)

    def _join_report_factors(self, over: Sequence[str]) -> tuple[ReportFactors, ...]:
        """Return the chances of the reports of all sources' records, factor by factor."""
        sources = [source for source in self.sources if isinstance(source, FactorSource)]
        return tuple(found for source in sources for found in source.report_factors(over))


def add_tables(tables: Sequence[CountTable]) -> CountTable:
    """Return the sum of tables about different records, of any populations."""
    return reduce(CountTable.__add__, tables)


def pool_tables(tables: Sequence[CountTable]) -> CountTable:
    """Return the table of all records, given tables of samples of one population."""
    first = tables[0]
    samples = [Sample(table.values, table.evidence, table.n) for table in tables]
    if any(table.axes != first.axes or table.adjusted for table in tables):
        raise InputError("Only unbiased tables over the same variables can be pooled.")
    pool = first.evidence.pool(samples)
    if pool.agreement < DISAGREEMENT:
        warn(
            f"The sources do not look like samples of one population (by {', '.join(first.names)}, "
            f"p = {pool.agreement:.1g}). Merged(sources, of='records') counts all their records instead.",
            UserWarning,
            stacklevel=3,
        )
    return CountTable(first.axes, pool.values, sum(table.n for table in tables), pool.evidence)


class Cached:
    """A source that stores its answers and never sends the same query twice.

    Parameters
    ----------
    source : Tally
        Source to query.

    Examples
    --------
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
        if isinstance(source, LikelihoodSource):
            self.likelihood_rows = source.likelihood_rows
        if isinstance(source, FactorSource):
            self.report_factors = source.report_factors

    def select(self, names: Iterable[str]) -> Selected:
        """Return a source with only the named variables."""
        return Selected(self, names)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries that have not been answered yet."""
        return self.source.check(self._open(queries))

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer from the stored tables and query the rest as one batch."""
        missing = self._open(queries)
        if missing:
            self._answers.update(zip(missing, self.source.answer(missing), strict=True))
        return [self._answers[query] for query in queries]

    def _open(self, queries: Sequence[Query]) -> list[Query]:
        return [query for query in dict.fromkeys(queries) if query not in self._answers]


class Selected:
    """Some variables of a source, as a source of its own: learners see no others.

    The guarantee stays that of the whole source. Further abilities of the source pass through (`ABILITIES`).
    """

    ABILITIES = frozenset(
        {
            "expect",
            "indicators",
            "likelihood_rows",
            "links",
            "mean",
            "misfit",
            "missing",
            "n",
            "policy",
            "posterior",
            "report_factors",
            "supports",
            "survey_design",
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
        """Return the selected variables and the source."""
        return f"Selected({', '.join(self.schema)}; of {self.source!r})"

    def __getattr__(self, name: str) -> Any:
        if name in self.ABILITIES and "source" in self.__dict__:
            return getattr(self.source, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def select(self, names: Iterable[str]) -> Selected:
        """Return a source with fewer of the variables."""
        chosen = (names,) if isinstance(names, str) else tuple(names)
        for name in chosen:
            self.schema[name]
        return Selected(self.source, chosen)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of the source; raise `SchemaError` for a variable that was not selected."""
        for query in queries:
            query.check(self.schema)
        return self.source.check(queries)

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer as the source does; raise `SchemaError` for a variable that was not selected."""
        for query in queries:
            query.check(self.schema)
        return self.source.answer(queries)


def check_source(source: object) -> None:
    """Raise InputError if an object, for example a frame, is not a source of counts."""
    if not isinstance(source, Tally):
        raise InputError(
            f"A {type(source).__name__} is not a source of counts. Use mq.tally(frame, policy) for disguised "
            "records, mq.tally(frame) for clear ones."
        )


def raise_refusals(refusals: Sequence[Refusal]) -> None:
    """Raise `QueryRefused` if there are refusals.

    Parameters
    ----------
    refusals : sequence of Refusal
        Refusals of a batch of queries.

    Raises
    ------
    QueryRefused
        If there is at least one.
    """
    if refusals:
        raise QueryRefused(refusals)
