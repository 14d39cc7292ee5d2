"""Records that lie in an engine (DuckDB, Spark, PostgreSQL, …) as a source of counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, SchemaError, UnknownValue, did_you_mean
from masquerade.core.schema import Field
from masquerade.core.supports import SupportAnswer, Supports, from_tables
from masquerade.frames.encode import encode
from masquerade.sources import sql
from masquerade.sources.reading import Layout
from masquerade.sources.reports import ReportTally
from masquerade.sources.scanned import Scanned, Table
from masquerade.sources.sql import Column
from masquerade.sources.supports import supports_of

MOST_PACKED: Final = 1 << 30  # bytes of packed columns for supports


class Engine(ReportTally):
    """A `Tally` over a table in an engine: records stay there, counts come back.

    Counts are exact whole numbers, as in memory. A value that no category stands for is found when its
    column is first counted. Which records are asked for is decided by the engine, so a table must not change
    while a source lives.
    """

    def __init__(
        self, table: Table, policy: Policy, fields: Sequence[Field], *, weights: str | None = None
    ) -> None:
        super().__init__(policy)
        self.table = table
        self.weighted = weights is not None
        self._weights = weights
        names = [*self.schema, *([] if weights is None else [weights])]
        check_names(table, names)
        kinds = table.kinds(names)
        disguised = bool(policy.disguised)
        self._columns = {
            field.variable.name: Column(
                field,
                kinds[field.variable.name],
                # labels of several types are released as text, whatever the file
                table.text or (disguised and field.variable.mixed),
            )
            for field in fields
        }

    def __repr__(self) -> str:
        """Show where which variables are."""
        return f"{type(self).__name__}({self.table.title}, {self.schema!r})"

    @cached_property
    def n(self) -> int:  # type: ignore[override]
        """Return the number of records."""
        return sum(part.rows for part in self._parts)

    def parts(self, questions: int) -> tuple[Scanned, ...]:  # noqa: ARG002  (each part counts its own)
        """Return the table by stratum."""
        return self._parts

    def supports(self, question: Supports) -> SupportAnswer:
        """Return how many records hold each of many sets of items: from distinct rows, if they are few."""
        question.check(self.schema)
        items = {name for name, _ in question.items}
        stores = []
        for part in self._parts:
            groups = [group.names for group in part.layout.groups if items & set(group.names)]
            stores.append(part.distinct_rows([name for names in groups for name in names]))
        packed = len(question.items) * self.n // 8
        if self.weighted or packed > MOST_PACKED or any(store is None for store in stores):
            return from_tables(self, question)
        return supports_of(self, [store for store in stores if store is not None], question, self.n, None)

    def check_once(self, name: str) -> None:
        """Refuse two records of one person."""
        check_names(self.table, [name])
        quoted = self.table.dialect.name(name)
        counted = f"COUNT(*) AS {sql.COUNT}, COUNT(DISTINCT {quoted}) AS {sql.FIRST}"
        row = self._first_row(lambda table: f"SELECT {counted} FROM {table}", [name])  # noqa: S608
        repeated = int(row[sql.COUNT]) - int(row[sql.FIRST])
        if repeated:
            raise InputError(
                f"{repeated:,} records repeat a person of column {name!r}, or name none. Count one record "
                "per person: repeated records share their draws, so standard errors would be too small."
            )

    @cached_property
    def _parts(self) -> tuple[Scanned, ...]:
        sizes = dict(zip(self.schema, self.policy.observed.shape(self.schema), strict=True))
        by = self.policy.stratum_variable
        rest: Any = {"columns": self._columns, "sizes": sizes, "weights": self._weights}
        if by is None:
            row = self._first_row(
                lambda table: sql.grouped(self.table.dialect, table, [()], only="", weights=None), []
            )
            layout = Layout(self.policy.groups, self.schema)
            return (Scanned(self.table, layout, rows=int(row[sql.COUNT]), **rest),)
        rows = self._stratum_sizes(by)
        return tuple(
            Scanned(
                self.table,
                Layout(self.policy.groups_of(label), self.schema),
                rows=rows[code],
                only=sql.only_code(self.table.dialect, by, self._columns[by], code),
                only_by=by,
                **rest,
            )
            for code, label in enumerate(self.policy.strata)
        )

    def _stratum_sizes(self, by: str) -> list[int]:
        """Return how many records every stratum has; a value that is no stratum is refused."""
        dialect, column = self.table.dialect, self._columns[by]
        batches = self.table.fetch(
            lambda table: sql.grouped(dialect, table, [(by,)], only="", weights=None), [by]
        )
        sizes = [0] * len(column.field.variable)
        for batch in batches:
            try:
                codes = encode(batch[by], column.field, text=column.text)
            except UnknownValue as error:
                raise self.table.refuse(error, column) from None
            for code, count in zip(codes.tolist(), batch[sql.COUNT].to_pylist(), strict=True):
                sizes[code] += int(count)
        return sizes

    def _first_row(self, write: Callable[[str], str], columns: Sequence[str]) -> dict[str, Any]:
        return dict(pa.Table.from_batches(list(self.table.fetch(write, columns))).to_pylist()[0])


def check_names(table: Table, wanted: Sequence[str]) -> None:
    """Refuse columns that are not there, or that an engine cannot tell from others."""
    for name in wanted:
        if name not in table.names:
            raise SchemaError(f"{table.title}: there is no column {name!r}.{did_you_mean(name, table.names)}")
        alike = [other for other in table.names if other.casefold() == name.casefold()]
        if len(alike) > 1:
            raise SchemaError(
                f"{table.title}: columns {alike[0]!r} and {alike[1]!r} differ in case only, which SQL "
                "does not see: rename one, or count in memory."
            )
