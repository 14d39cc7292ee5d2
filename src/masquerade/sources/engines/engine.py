"""Records in an engine (DuckDB, Spark, PostgreSQL, …) as a source of counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import isfinite
from typing import Any, Final, Self

import pyarrow as pa

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, PolicyMismatch, SchemaError, UnknownValue, did_you_mean
from masquerade.core.likelihood_rows import LikelihoodRows, ReportFactors
from masquerade.core.schema import Field
from masquerade.core.supports import SupportAnswer, Supports, from_tables
from masquerade.core.util.formatting import printable
from masquerade.core.util.processes import ForkSafeLock
from masquerade.frames.label_codes import kind_of
from masquerade.sources.engines import sql
from masquerade.sources.engines.coded_rows import codes_of
from masquerade.sources.engines.engine_cache import EngineLimits, Scanned
from masquerade.sources.engines.engine_tables import Growing, Table, TableGrowth
from masquerade.sources.engines.sql import EngineColumn
from masquerade.sources.likelihood_rows import likelihood_rows_of_engine
from masquerade.sources.query_plan import QueryLayout, layouts_of
from masquerade.sources.report_factors import report_factors_of_engine
from masquerade.sources.report_tally import Missing, ReportTally
from masquerade.sources.supports import supports_of, weighs_items

MOST_PACKED: Final = 1 << 30  # most bytes of packed columns for supports
MOST_SPREAD: Final = 1 << 28  # most records whose codes of one column are repeated before packing


class Engine(ReportTally):
    """A `Tally` over a table in an engine: records stay there, only counts are fetched.

    Counts are exact integers, as in memory. A value that is not a category is detected when its column is
    first counted. All answers are about one state of the table: if it changes and the engine keeps no earlier
    state, the next scan raises `DataChanged`. `limits` bound the fetched data and may be set before the first
    query. Threads may share a source, and use the engine in turn. A source over files may be pickled and
    forked: the other process opens them itself. A source over a connection may not.
    """

    def __init__(
        self,
        table: Table,
        policy: Policy,
        fields: Sequence[Field],
        *,
        weights: str | None = None,
        released: bool | None = None,
        missing: Missing | None = None,
    ) -> None:
        super().__init__(policy, missing)
        self.table, self._fields, self._released = table, fields, released
        self._person: str | None = None
        self._turns = ForkSafeLock()
        self.weighted = weights is not None
        self.limits = EngineLimits()
        self._weights = weights
        names = [*policy.observed, *([] if weights is None else [weights])]
        _check_names(table, names)
        for origin in table.policies(policy.observed.names):
            check_same(origin, policy)
        kinds = table.kinds(names)
        self._weights_kind = None if weights is None else kinds[weights]
        as_released = bool(policy.disguised) if released is None else released
        self._columns = {
            field.variable.name: EngineColumn(
                field,
                kinds[field.variable.name],
                # labels of mixed types are released as text in all file formats
                table.text or (as_released and field.variable.mixed),
            )
            for field in fields
        }

    @printable
    def __repr__(self) -> str:
        """Return the table and the variables as text."""
        return f"{type(self).__name__}({self.table.title}, {self.schema!r})"

    @cached_property
    def n(self) -> int:  # type: ignore[override]
        """Return the number of records."""
        with self._turns:
            return sum(part.rows for part in self._parts)

    def layouts(self) -> Sequence[QueryLayout]:
        """Return the layouts, without querying the engine."""
        return self._layouts

    def parts(self, questions: int) -> tuple[Scanned, ...]:  # noqa: ARG002  (each part counts its own)
        """Return the table by stratum."""
        with self._turns:
            return self._parts

    def supports(self, question: Supports) -> SupportAnswer:
        """Return the number of records with each of many sets of items, from distinct rows if few exist."""
        self.check_complete()
        question.check(self.schema)
        items = {name for name, _ in question.items}
        if self.weighted or not all(weighs_items(layout, items) for layout in self._layouts):
            return from_tables(self, question)
        stores = []
        for part in self.parts(1):
            groups = [group.names for group in part.layout.groups if items & set(group.names)]
            stores.append(part.distinct_rows([name for names in groups for name in names]))
        fits = len(question.items) * self.n <= MOST_PACKED * 8 and self.n <= MOST_SPREAD
        if not fits or any(store is None for store in stores):
            return from_tables(self, question)
        return supports_of(self, [store for store in stores if store is not None], question, self.n, None)

    def likelihood_rows(self, over: Sequence[str]) -> LikelihoodRows:
        """Return P(report | truth) of every record, for the truths of the named variables, unordered.

        See `masquerade.sources.likelihood_rows`: regressions maximise the likelihood of the reports.
        """
        self.check_complete()
        return likelihood_rows_of_engine(self, over)

    def report_factors(self, over: Sequence[str]) -> tuple[ReportFactors, ...]:
        """Return P(report | truth) of the records as products of factors, for the likelihood of a network.

        See `masquerade.sources.report_factors`.
        """
        self.check_complete()
        return report_factors_of_engine(self, over)

    def refresh(self) -> Self:
        """Return a source about the present records, or this source if there are no new ones.

        For data opened as `growing`: only new records are scanned, and added to the counts. This source
        continues to answer about its own state.

        Raises
        ------
        DataChanged
            If records changed or were deleted.
        """
        if not isinstance(self.table, Growing):
            raise InputError(
                f"{self.table.title}: this source answers about one state of its data. Open files with "
                "growing=True, or a table with growing= and the column that numbers its rows."
            )
        with self._turns:
            return self._refresh(self.table.newer())

    def _refresh(self, growth: TableGrowth | None) -> Self:
        if growth is None:
            return self
        whole, more = (
            type(self)(
                table,
                self.policy,
                self._fields,
                weights=self._weights,
                released=self._released,
                missing=self.missing,
            )
            for table in growth
        )
        more.limits = self.limits
        whole.take_over(self, more)
        return whole

    def take_over(self, old: Engine, more: Engine) -> None:
        """Start with the counts of an earlier state of the table, and add the records of `more`."""
        self.limits, self._layouts, self.unmarked = old.limits, old._layouts, old.unmarked
        self._looked = {*old._looked}
        if old._person is not None:
            self.check_once(old._person)
        if "_parts" in old.__dict__:  # otherwise nothing was counted yet
            rows = [known.rows + new.rows for known, new in zip(old._parts, more._parts, strict=True)]
            self._parts = self._scan_strata(rows)
            for part, known, new in zip(self._parts, old._parts, more._parts, strict=True):
                part.take_over(known, new)

    def check_once(self, name: str) -> None:
        """Raise InputError if a person has two records."""
        self._person = name
        _check_names(self.table, [name])
        row = self._first_row(lambda table: sql.persons(self.table.dialect, table, name), [name])
        different = int(row[sql.FIRST]) + int(row[sql.SECOND] or 0)
        refuse_repeated(int(row[sql.COUNT]) - different, name)

    @cached_property
    def _layouts(self) -> tuple[QueryLayout, ...]:
        return layouts_of(self.policy)

    @cached_property
    def _parts(self) -> tuple[Scanned, ...]:
        by = self.policy.stratum_variable
        rows = self._checked_weights()
        return self._scan_strata([rows] if by is None else self._stratum_sizes(by))

    def _scan_strata(self, known_rows: Sequence[int | None]) -> tuple[Scanned, ...]:
        """Return the table by stratum, with the known numbers of records."""
        observed = self.policy.observed
        sizes = dict(zip(observed, observed.shape(observed), strict=True))
        by = self.policy.stratum_variable
        scanned = partial(
            Scanned,
            self.table,
            columns=self._columns,
            sizes=sizes,
            limits=self.limits,
            weights=self._weights,
            turns=self._turns,
        )
        if by is None:
            return (scanned(self._layouts[0], known_rows=known_rows[0]),)
        return tuple(
            scanned(
                layout,
                known_rows=rows,
                only=sql.only_code(self.table.dialect, by, self._columns[by], code),
                only_by=by,
            )
            for code, (layout, rows) in enumerate(zip(self._layouts, known_rows, strict=True))
        )

    def _checked_weights(self) -> int | None:
        """Validate the survey weights, and return their number."""
        name, kind = self._weights, self._weights_kind
        if name is None or kind is None:
            return None
        dialect = self.table.dialect
        is_text = kind_of(kind) == "text"
        is_number = kind_of(kind) in {"whole", "number"} or pa.types.is_decimal(kind)
        no_numbers = InputError(f"Column {name!r} contains survey weights and must be numeric.")
        if not (is_number or (is_text and dialect.try_cast)):
            raise no_numbers
        row = self._first_row(
            lambda table: sql.checked_weights(dialect, table, name, is_text=is_text), [name]
        )
        rows, given, read = (int(row[key]) for key in (sql.COUNT, f"{sql.COUNT}_given", sql.UNREAD))
        if given < rows:
            raise UnknownValue(name, None, "is missing")
        if read < given:
            raise no_numbers
        least, total = (0.0 if row[key] is None else float(row[key]) for key in (sql.FIRST, sql.SECOND))
        if not (least >= 0 and isfinite(total)):
            raise InputError(f"Survey weights must be {rows:,} finite numbers of at least 0.")
        return rows

    def _stratum_sizes(self, by: str) -> list[int]:
        """Return the number of records of every stratum. An unknown stratum is an error."""
        dialect, column = self.table.dialect, self._columns[by]
        sizes = [0] * len(column.field.variable)
        for batch in self.table.fetch(lambda table: sql.select_grouped(dialect, table, [(by,)]), [by]):
            try:
                codes = codes_of(batch[by], column)
            except UnknownValue as error:
                raise self.table.refuse(error, column) from None
            for code, count in zip(codes.tolist(), batch[sql.COUNT].to_pylist(), strict=True):
                sizes[code] += int(count)
        return sizes

    def _first_row(self, write: Callable[[str], str], columns: Sequence[str]) -> dict[str, Any]:
        return dict(pa.Table.from_batches(list(self.table.fetch(write, columns))).to_pylist()[0])


def _check_names(table: Table, wanted: Sequence[str]) -> None:
    """Raise SchemaError if columns are missing, or an engine cannot distinguish them."""
    for name in wanted:
        if name not in table.names:
            raise SchemaError(f"{table.title}: unknown column {name!r}.{did_you_mean(name, table.names)}")
        problem = table.dialect.problem_of(name)
        if problem is not None:
            raise SchemaError(f"{table.title}: column {name!r} {problem}: rename it, or count in memory.")
        alike = [other for other in table.names if other.casefold() == name.casefold()]
        if len(alike) > 1:
            raise SchemaError(
                f"{table.title}: columns {alike[0]!r} and {alike[1]!r} differ only in case, which SQL "
                "ignores: rename one, or count in memory."
            )


def check_same(origin: str, policy: Policy) -> None:
    """Raise PolicyMismatch if records were disguised under a different policy."""
    if origin != policy.id:
        raise PolicyMismatch(
            f"The records were disguised under policy {origin[:12]}…, this one is {policy.id[:12]}…: "
            "estimates would be wrong."
        )


def refuse_repeated(repeated: int, name: str) -> None:
    """Raise InputError if persons have several records."""
    if repeated:
        raise InputError(
            f"{repeated:,} records repeat a person of column {name!r}. Count one record per person: "
            "repeated records share their draws, so standard errors would be too small."
        )
