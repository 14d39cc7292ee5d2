"""Records in memory, clear or disguised, as a source of counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.likelihood_rows import LikelihoodRows, ReportFactors
from masquerade.core.links.fits import Places
from masquerade.core.query import Query
from masquerade.core.schema import Category
from masquerade.core.supports import SupportAnswer, Supports, from_tables
from masquerade.core.util.formatting import printable
from masquerade.estimate.links import PackedLinks
from masquerade.sources.expectation import (
    CountsAndError,
    GroupOf,
    RecordMean,
    count_possible_truths,
    expect,
    indicators_of,
    mean_of,
)
from masquerade.sources.imputation import impute_codes
from masquerade.sources.late_codes import Codes, LateCodes
from masquerade.sources.likelihood_rows import likelihood_rows_of
from masquerade.sources.query_plan import MOST_CELLS, layouts_of
from masquerade.sources.record_store import Store
from masquerade.sources.report_factors import report_factors_of
from masquerade.sources.report_tally import Missing, ReportTally
from masquerade.sources.supports import supports_of, weighs_items

WORTH_READING = 64  # after this number of queries, unused columns are read too, to merge equal rows
MOST_REPEATED = 1 << 28  # most records that rows with counts may represent


class Records(ReportTally):
    """A `Tally` over coded records disguised by a policy, or over clear records without a policy.

    `codes` are report codes by variable. With `weights`, records count with their survey weight, and
    `CountTable.n` stays the number of records. Equal rows are merged after several queries.
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
        lengths = {codes.rows} if isinstance(codes, LateCodes) else {len(one) for one in codes.values()}
        if set(codes) != set(policy.observed) or len(lengths) != 1:
            raise InputError("Records need one column of codes per report, all of equal length.")
        self.n = lengths.pop()
        self.weighted = weights is not None
        if weights is not None:
            _check_weights(weights, self.n)
        self._asked, self._tried = 0, set[int]()
        self._stores = self._split()

    @printable
    def __repr__(self) -> str:
        """Return the number of records and the variables as text."""
        return f"{type(self).__name__}({self.n:,} records, {self.schema!r})"

    def parts(self, questions: int) -> tuple[Store, ...]:
        """Return the records by stratum. Equal rows are merged after enough queries."""
        self._asked += questions
        self._stores = tuple(self._merge(place, store) for place, store in enumerate(self._stores))
        return self._stores

    def _merge(self, place: int, store: Store) -> Store:
        """Return a store with equal rows merged, if it is time to try that for the first time."""
        worth = store.worth_merging if store.is_complete else max(store.worth_merging, WORTH_READING)
        if place in self._tried or self._asked < worth:
            return store
        self._tried.add(place)
        return store.compress()

    def supports(self, question: Supports) -> SupportAnswer:
        """Return the number of records with each of many sets of items, as one query."""
        self.check_complete()
        question.check(self.schema)
        items = {name for name, _ in question.items}
        if not all(weighs_items(store.layout, items) for store in self._stores):
            return from_tables(self, question)
        return supports_of(self, self._stores, question, self.n, self.weights)

    def links(self, names: Sequence[str], members: Places) -> PackedLinks | None:
        """Return links with their counted tables of reports, to be fitted together: see `LinkTally`.

        None if records have weights or strata, variables were reported jointly, or a table is refused.
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
        """Return the mean of a function of the true records' codes, and its standard error.

        For evaluation, never for learning; see `masquerade.sources.expectation`.
        """
        self.check_complete()
        return expect(self, f, over, seed=seed)

    def mean(
        self, f: Callable[[NDArray[np.intp]], NDArray[Any]], over: Sequence[str], *, seed: int = 0
    ) -> RecordMean:
        """Return the same mean as `expect`, with the moments of the records' contributions."""
        self.check_complete()
        return mean_of(self, f, over, seed=seed)

    def group_counts(
        self, over: Sequence[str], group_of: GroupOf, shape: tuple[int, int]
    ) -> CountsAndError | None:
        """Return counts of groups of truths by the last variable, with their error.

        None if there are too many truths.

        For evaluation, never for learning; see `masquerade.sources.expectation`.
        """
        self.check_complete()
        return count_possible_truths(self, over, group_of, shape)

    def indicators(self, over: Sequence[str]) -> Floats:
        """Return each record's unbiased contribution to each cell of `over`: (records, cells in C order).

        For statistics of clear columns together with disguised ones; see `masquerade.sources.expectation`.
        """
        self.check_complete()
        return indicators_of(self, over)

    def likelihood_rows(self, over: Sequence[str]) -> LikelihoodRows:
        """Return P(report | truth) of every record, for the truths of the named variables.

        See `masquerade.sources.likelihood_rows`: regressions compute the likelihood of the reports
        from these probabilities and maximise it.
        """
        self.check_complete()
        return likelihood_rows_of(self, over)

    def report_factors(self, over: Sequence[str]) -> tuple[ReportFactors, ...]:
        """Return P(report | truth) of the records as products of factors, for the likelihood of a network.

        See `masquerade.sources.report_factors`.
        """
        self.check_complete()
        return report_factors_of(self, over)

    def impute(
        self, over: Sequence[str], m: int, *, prior: float = 0.5, seed: int = 0
    ) -> list[dict[str, NDArray[np.intp]]]:
        """Draw category codes of the variables `over` for every record, `m` times, from their posterior.

        See `masquerade.sources.imputation`. `mq.stats.impute` converts them to frames.
        """
        self.check_complete()
        return impute_codes(self, over, m, prior=prior, seed=seed)

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
            _check_labels(self.policy, self.policy.strata[code], columns)
            weights = None if self.weights is None else self.weights[rows]
            stores.append(Store(layout, columns, sizes, len(rows), None, weights))
        return tuple(stores)


def _check_labels(policy: Policy, stratum: Category, columns: Mapping[str, Codes]) -> None:
    """Raise InputError if a stratum has a report with the label of a different stratum's design."""
    for group in policy.groups_of(stratum):
        if len(group.names) > 1 or group.own_report or group.response is not None:
            continue
        channel = group.matrix_channel
        used = np.unique(channel.outcomes[channel.weights > 0])
        if len(used) < channel.reports and not np.isin(columns[group.names[0]], used).all():
            raise InputError(
                f"{group.names[0]}: a report where {policy.stratum_variable} = {stratum} has a label of a "
                "different design. Check the column that names the design."
            )


def _check_weights(weights: Floats, rows: int) -> None:
    if weights.shape != (rows,) or not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise InputError(f"Survey weights must be {rows:,} finite numbers of at least 0.")


def whole_numbers(values: Floats, name: str) -> NDArray[np.int64]:
    """Return the counts of rows. Raise InputError unless they are whole numbers, not too many in all."""
    if not np.all(np.isfinite(values) & (values >= 0) & (values == np.round(values))):
        raise InputError(
            f"Column {name!r} of counts must have whole numbers of at least 0. Numbers with decimals are "
            "survey weights: pass them as 'weights'."
        )
    if values.sum() > MOST_REPEATED:
        raise InputError(
            f"Column {name!r} counts more than {MOST_REPEATED:,} records: split them over several files."
        )
    return values.astype(np.int64)
