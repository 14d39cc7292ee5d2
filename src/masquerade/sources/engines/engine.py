"""Records that lie in an engine (DuckDB, Spark, PostgreSQL, …) as a source of counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import isfinite
from typing import Any, Final, Self

import pyarrow as pa

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, PolicyMismatch, SchemaError, UnknownValue, did_you_mean
from masquerade.core.schema import Field
from masquerade.core.supports import SupportAnswer, Supports, from_tables
from masquerade.core.util.formatting import printable
from masquerade.core.util.processes import Turns
from masquerade.frames.label_codes import kind_of
from masquerade.sources.engines import sql
from masquerade.sources.engines.coded_rows import codes_of
from masquerade.sources.engines.engine_cache import Limits, Scanned
from masquerade.sources.engines.engine_tables import Growing, Growth, Table
from masquerade.sources.engines.sql import Column
from masquerade.sources.query_plan import Layout, layouts_of
from masquerade.sources.report_tally import Missing, ReportTally
from masquerade.sources.supports import supports_of, weighs_items

MOST_PACKED: Final = 1 << 30  # bytes of packed columns for supports
MOST_SPREAD: Final = 1 << 28  # records whose codes of one column are spread out before packing


class Engine(ReportTally):
    """A `Tally` over a table in an engine: records stay there, counts come back.

    Counts are exact whole numbers, as in memory. A value that no category stands for is found when its
    column is first counted. All answers are about one state of the table: if it changes and the engine keeps
    no earlier state, the next scan is a `DataChanged`. `limits` say how much is fetched; they may be set
    before the first question. Threads may share a source, and take turns in the engine. A source over files
    may be pickled and forked: the other process opens them itself. One over a connection may not.
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
        self._turns = Turns()
        self.weighted = weights is not None
        self.limits = Limits()
        self._weights = weights
        names = [*policy.observed, *([] if weights is None else [weights])]
        _check_names(table, names)
        for origin in table.policies(policy.observed.names):
            check_same(origin, policy)
        kinds = table.kinds(names)
        self._weights_kind = None if weights is None else kinds[weights]
        as_released = bool(policy.disguised) if released is None else released
        self._columns = {
            field.variable.name: Column(
                field,
                kinds[field.variable.name],
                # labels of several types are released as text, whatever the file
                table.text or (as_released and field.variable.mixed),
            )
            for field in fields
        }

    @printable
    def __repr__(self) -> str:
        """Show where which variables are."""
        return f"{type(self).__name__}({self.table.title}, {self.schema!r})"

    @cached_property
    def n(self) -> int:  # type: ignore[override]
        """Return the number of records."""
        with self._turns:
            return sum(part.rows for part in self._parts)

    def layouts(self) -> Sequence[Layout]:
        """Return how questions are read off reports; nothing is asked of the engine."""
        return self._layouts

    def parts(self, questions: int) -> tuple[Scanned, ...]:  # noqa: ARG002  (each part counts its own)
        """Return the table by stratum."""
        with self._turns:
            return self._parts

    def supports(self, question: Supports) -> SupportAnswer:
        """Return how many records hold each of many sets of items: from distinct rows, if they are few."""
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

    def refreshed(self) -> Self:
        """Return a source about the records that are there now, itself if none came.

        For data that were opened as `growing`: only what is new is scanned, and added to what was counted.
        This source goes on to answer about its own state. Records that changed or went are a `DataChanged`.
        """
        if not isinstance(self.table, Growing):
            raise InputError(
                f"{self.table.title}: this source answers about one state of its data. Open files with "
                "growing=True, or a table with growing= and the column that numbers its rows."
            )
        with self._turns:
            return self._refreshed(self.table.newer())

    def _refreshed(self, growth: Growth | None) -> Self:
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
        """Begin with what an earlier state of the table has counted, and add the records of `more` to it."""
        self.limits, self._layouts, self.unmarked = old.limits, old._layouts, old.unmarked
        self._looked = {*old._looked}
        if old._person is not None:
            self.check_once(old._person)
        if "_parts" in old.__dict__:  # else nothing was counted yet
            rows = [known.rows + new.rows for known, new in zip(old._parts, more._parts, strict=True)]
            self._parts = self._scanned(rows)
            for part, known, new in zip(self._parts, old._parts, more._parts, strict=True):
                part.take_over(known, new)

    def check_once(self, name: str) -> None:
        """Refuse two records of one person."""
        self._person = name
        _check_names(self.table, [name])
        row = self._first_row(lambda table: sql.persons(self.table.dialect, table, name), [name])
        different = int(row[sql.FIRST]) + int(row[sql.SECOND] or 0)
        refuse_repeated(int(row[sql.COUNT]) - different, name)

    @cached_property
    def _layouts(self) -> tuple[Layout, ...]:
        return layouts_of(self.policy)

    @cached_property
    def _parts(self) -> tuple[Scanned, ...]:
        by = self.policy.stratum_variable
        rows = self._checked_weights()
        return self._scanned([rows] if by is None else self._stratum_sizes(by))

    def _scanned(self, known_rows: Sequence[int | None]) -> tuple[Scanned, ...]:
        """Return the table by stratum, each of so many records."""
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
        """Refuse survey weights that are none; return how many there are."""
        name, kind = self._weights, self._weights_kind
        if name is None or kind is None:
            return None
        dialect = self.table.dialect
        is_text = kind_of(kind) == "text"
        is_number = kind_of(kind) in {"whole", "number"} or pa.types.is_decimal(kind)
        no_numbers = InputError(f"Column {name!r} holds survey weights and must be numbers.")
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
            raise InputError(f"Survey weights must be {rows:,} finite numbers, none negative.")
        return rows

    def _stratum_sizes(self, by: str) -> list[int]:
        """Return how many records every stratum has; a value that is no stratum is refused."""
        dialect, column = self.table.dialect, self._columns[by]
        sizes = [0] * len(column.field.variable)
        for batch in self.table.fetch(lambda table: sql.grouped(dialect, table, [(by,)]), [by]):
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
    """Refuse columns that are not there, or that an engine cannot tell from others."""
    for name in wanted:
        if name not in table.names:
            raise SchemaError(f"{table.title}: there is no column {name!r}.{did_you_mean(name, table.names)}")
        problem = table.dialect.problem_of(name)
        if problem is not None:
            raise SchemaError(f"{table.title}: column {name!r} {problem}: rename it, or count in memory.")
        alike = [other for other in table.names if other.casefold() == name.casefold()]
        if len(alike) > 1:
            raise SchemaError(
                f"{table.title}: columns {alike[0]!r} and {alike[1]!r} differ in case only, which SQL "
                "does not see: rename one, or count in memory."
            )


def check_same(origin: str, policy: Policy) -> None:
    """Refuse records that were disguised under another policy than this one."""
    if origin != policy.id:
        raise PolicyMismatch(
            f"The records were disguised under policy {origin[:12]}…, this one is {policy.id[:12]}…: "
            "estimates would be wrong."
        )


def refuse_repeated(repeated: int, name: str) -> None:
    """Refuse records of a person who has others; a column names the persons."""
    if repeated:
        raise InputError(
            f"{repeated:,} records repeat a person of column {name!r}. Count one record per person: "
            "repeated records share their draws, so standard errors would be too small."
        )
