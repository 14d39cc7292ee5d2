"""The waist: every privacy technology is a way to answer counting questions, every learner asks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable


@runtime_checkable
class Tally(Protocol):
    """A source of counts. Implement these four names and every learner runs on it."""

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
    """Several sources of different records with one schema, answered as one: tables add."""

    def __init__(self, sources: Sequence[Tally]) -> None:
        if not sources:
            raise InputError("Merged() needs at least one source.")
        if any(source.schema != sources[0].schema for source in sources):
            raise InputError("Sources can be merged only if they have the same schema.")
        self.sources = tuple(sources)
        self.schema = sources[0].schema
        self.guarantee = reduce(Guarantee.beside, [source.guarantee for source in sources])

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of all sources."""
        return [refusal for source in self.sources for refusal in source.check(queries)]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Add the answers of all sources; none is asked unless all agree."""
        raise_refusals(self.check(queries))
        answers = [source.answer(queries) for source in self.sources]
        return [reduce(CountTable.__add__, tables) for tables in zip(*answers, strict=True)]


class Cached:
    """A source that never asks the same question twice: what was answered is kept."""

    def __init__(self, source: Tally) -> None:
        self.source = source
        self.schema = source.schema
        self.guarantee = source.guarantee
        self._answers: dict[Query, CountTable] = {}

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


def raise_refusals(refusals: Sequence[Refusal]) -> None:
    """Raise `QueryRefused` if there is any refusal."""
    if refusals:
        raise QueryRefused(refusals)
