"""Opened rows as a source of counts, which says that rows are missing, and not at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.errors import Refusal
from masquerade.core.query import Query
from masquerade.core.supports import SupportAnswer, Supports
from masquerade.core.table import CountTable
from masquerade.core.tally import raise_refusals
from masquerade.protocols.threshold.form import Form
from masquerade.protocols.threshold.guarantees import production_guarantee
from masquerade.protocols.threshold.outcome import Opening
from masquerade.sources.records import Records

if TYPE_CHECKING:
    import pandas as pd


class OpenedRows(Records):
    """A `Tally` over the rows that opened, exact about those, silent about the others.

    Rows of classes below k are missing, and not at random: rare combinations are missing altogether, so
    counts are too small and associations with rare values are lost. Standard errors, which speak of a
    population, would pretend otherwise; since learners build on them, every question is refused with the code
    ``incomplete`` until the caller accepts that answers are about the opened rows only (`accept_incomplete`).
    `counts` gives plain counts of the opened rows, without standard errors, whether accepted or not.
    """

    def __init__(self, opening: Opening, form: Form, *, accept_incomplete: bool = False) -> None:
        super().__init__(form.codes(opening), Policy.clear(form.schema))
        self.opening, self.form, self.accepted = opening, form, accept_incomplete
        promised = production_guarantee(opening.terms, form)
        self.guarantee = replace(promised, assumptions=(*promised.assumptions, self.incompleteness))

    @property
    def incompleteness(self) -> str:
        """Return in words what is missing."""
        missing, received = self.opening.received - self.n, self.opening.received
        return (
            f"answers are about the {self.n:,} rows that opened; {missing:,} of {received:,} reports did not "
            "open, and rare quasi-identifiers are missing most"
        )

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why queries would be refused: rows are missing, unless that is accepted."""
        return [*[refusal for query in queries for refusal in self._refusals(query)], *super().check(queries)]

    def counts(self, query: Query) -> NDArray[np.int64]:
        """Return how many opened rows there are of each combination: exact, without standard errors."""
        (table,) = self._complete().answer([query])
        return np.rint(table.values).astype(np.int64)

    def supports(self, question: Supports) -> SupportAnswer:
        """Return how many opened rows hold each of many sets of items; refused like any question."""
        raise_refusals(self._refusals(None))
        return super().supports(question)

    def expect(
        self, f: Callable[[NDArray[np.intp]], NDArray[Any]], over: Sequence[str], *, seed: int = 0
    ) -> tuple[float, float]:
        """Return the mean of a function over the opened rows, and its standard error; refused likewise."""
        raise_refusals(self._refusals(None))
        return super().expect(f, over, seed=seed)

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch about the opened rows."""
        return super().answer(queries)

    def to_frame(self) -> pd.DataFrame:
        """Return the opened rows as a pandas frame of labels, class by class."""
        import pandas as pd  # noqa: PLC0415  (a frame is asked for here)

        return pd.DataFrame({name: self.schema.decode(name, self.codes[name]) for name in self.schema})

    def _refusals(self, query: Query | None) -> list[Refusal]:
        if self.accepted:
            return []
        reason = (
            f"Rows are missing, not at random: {self.incompleteness}. Say accept_incomplete=True to go on."
        )
        return [Refusal("incomplete", reason, query)]

    def _complete(self) -> Records:
        return Records(self.codes, self.policy)


def tally_opened(opening: Opening, form: Form, *, accept_incomplete: bool = False) -> OpenedRows:
    """Return the opened rows as a source for every learner, once their incompleteness is accepted."""
    return OpenedRows(opening, form, accept_incomplete=accept_incomplete)
