"""Records in memory, clear or disguised, as a source of counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.link_fits import Places
from masquerade.core.query import Query
from masquerade.core.supports import SupportAnswer, Supports, from_tables
from masquerade.core.util.formatting import printable
from masquerade.estimate.links import PackedLinks
from masquerade.sources.expectation import Grouped, Mean, Told, expect, indicators_of, mean_of, told_counts
from masquerade.sources.imputation import imputed
from masquerade.sources.query_plan import MOST_CELLS, layouts_of
from masquerade.sources.record_store import Codes, Store
from masquerade.sources.report_tally import Missing, ReportTally
from masquerade.sources.supports import supports_of, weighs_items


class Records(ReportTally):
    """A `Tally` over coded records that were disguised by a policy (by none: clear records).

    `codes` are report codes by variable. With `weights`, records count for their survey weight and
    `CountTable.n` stays the number of records. Equal rows are merged once several questions are asked.
    """

    def __init__(
        self,
        codes: Mapping[str, Codes],
        policy: Policy,
        weights: Floats | None = None,
        *,
        missing: Missing | None = None,
    ) -> None:
        super().__init__(policy, missing)
        self.codes, self.weights = codes, weights
        lengths = {len(column) for column in codes.values()}
        if set(codes) != set(policy.observed) or len(lengths) != 1:
            raise InputError("Records need one column of codes, equally long, for every report.")
        self.n = lengths.pop()
        self.weighted = weights is not None
        if weights is not None:
            _check_weights(weights, self.n)
        self._asked = 0
        self._stores = self._split()

    @printable
    def __repr__(self) -> str:
        """Show how many records of which variables."""
        return f"{type(self).__name__}({self.n:,} records, {self.schema!r})"

    def parts(self, questions: int) -> tuple[Store, ...]:
        """Return the records by stratum; equal rows are merged when enough has been asked."""
        before, self._asked = self._asked, self._asked + questions
        self._stores = tuple(
            store.compressed() if before < store.worth_merging <= self._asked else store
            for store in self._stores
        )
        return self._stores

    def supports(self, question: Supports) -> SupportAnswer:
        """Return how many records hold each of many sets of items: thousands of counts as one question."""
        self.check_complete()
        question.check(self.schema)
        items = {name for name, _ in question.items}
        if not all(weighs_items(store.layout, items) for store in self._stores):
            return from_tables(self, question)
        return supports_of(self, self._stores, question, self.n, self.weights)

    def links(self, names: Sequence[str], members: Places) -> PackedLinks | None:
        """Return links with their tables of reports, counted and to be fitted together: see `LinkTally`.

        None where records have weights or strata, variables were reported jointly, or a table is refused.
        """
        if len(self._stores) != 1 or self.weighted or not self.n or self.check([]):
            return None
        layout = self._stores[0].layout.links(tuple(names))
        if layout is None or layout.cells[members].prod(axis=1).max(initial=0) > MOST_CELLS:
            return None
        if self.unmarked:
            asked = [names[place] for place in np.unique(members) if place >= 0]
            self.answer([Query(by=(name,)) for name in asked if name not in self._looked])
        subsets, of = layout.subsets(members)
        [store] = self.parts(len(subsets))
        reports = [store.layout.report_of(name) for name in names]
        return layout.batch(members, subsets, of, store.count_flat(reports, subsets), self.n)

    def expect(
        self, f: Callable[[NDArray[np.intp]], NDArray[Any]], over: Sequence[str], *, seed: int = 0
    ) -> tuple[float, float]:
        """Return the mean over the true records of a function of their codes, and its standard error.

        See `masquerade.sources.expectation`; for evaluation, never for learning.
        """
        self.check_complete()
        return expect(self, f, over, seed=seed)

    def mean(
        self, f: Callable[[NDArray[np.intp]], NDArray[Any]], over: Sequence[str], *, seed: int = 0
    ) -> Mean:
        """Return the same as `expect`, and how the records scatter behind it."""
        self.check_complete()
        return mean_of(self, f, over, seed=seed)

    def told(self, over: Sequence[str], grouped: Grouped, shape: tuple[int, int]) -> Told | None:
        """Return counts of groups of truths by the last variable, and their error; None if truths are many.

        See `masquerade.sources.expectation`; for evaluation, never for learning.
        """
        self.check_complete()
        return told_counts(self, over, grouped, shape)

    def indicators(self, over: Sequence[str]) -> Floats:
        """Return for every record what it adds to each cell of `over`: unbiased, (records, cells in C order).

        See `masquerade.sources.expectation`: for statistics of clear columns beside disguised ones.
        """
        self.check_complete()
        return indicators_of(self, over)

    def imputed(
        self, over: Sequence[str], m: int, *, prior: float = 0.5, seed: int = 0
    ) -> list[dict[str, NDArray[np.intp]]]:
        """Return category codes of some variables for every record, drawn m times from what reports tell.

        See `masquerade.sources.imputation`; `mq.stats.impute` makes frames of them.
        """
        self.check_complete()
        return imputed(self, over, m, prior=prior, seed=seed)

    def _split(self) -> tuple[Store, ...]:
        observed = self.policy.observed
        sizes = dict(zip(observed, observed.shape(observed), strict=True))
        by = self.policy.stratum_variable
        layouts = layouts_of(self.policy)
        if by is None:
            return (Store(layouts[0], self.codes, sizes, self.n, None, self.weights),)
        stores = []
        for code, layout in enumerate(layouts):
            rows = np.flatnonzero(self.codes[by] == code)
            columns = {name: np.ascontiguousarray(column[rows]) for name, column in self.codes.items()}
            weights = None if self.weights is None else self.weights[rows]
            stores.append(Store(layout, columns, sizes, len(rows), None, weights))
        return tuple(stores)


def _check_weights(weights: Floats, rows: int) -> None:
    if weights.shape != (rows,) or not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise InputError(f"Survey weights must be {rows:,} finite numbers, none negative.")
