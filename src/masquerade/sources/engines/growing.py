"""Growing tables: files that arrive in a folder, rows that are added to a database table.

A source over a growing table answers from one state of the table, like every source. `newer` returns the next
state and the new rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import pyarrow as pa

from masquerade.core.errors import DataChanged, InputError, SchemaError, UnknownValue, did_you_mean
from masquerade.frames.file_reader import Batches, open_batches
from masquerade.frames.table_formats.partitions import expand_pattern
from masquerade.sources.engines import sql
from masquerade.sources.engines.duckdb_files import DuckFiles
from masquerade.sources.engines.engine_tables import IbisTable, Table, TableGrowth, Watch
from masquerade.sources.engines.sql import EngineColumn


class GrowingFiles(DuckFiles):
    """Files that match patterns. New files may arrive; existing files must not change."""

    def __init__(self, files: Batches, patterns: Sequence[str] = (), *, watch: Watch | None = None) -> None:
        super().__init__(files, watch=watch)
        self._patterns = tuple(patterns or files.given)

    def newer(self) -> TableGrowth | None:
        """Return all files, and the new ones."""
        self._state.check()
        known = {*self.paths}
        arrived = [
            path for pattern in self._patterns for path in expand_pattern(pattern) if path not in known
        ]
        if not arrived:
            return None
        with open_batches([self.paths[0], *arrived], [], dialect=self._written):
            pass  # raises an error if a file has another type or was disguised differently
        with open_batches(arrived, [], dialect=self._written) as files:
            new = GrowingFiles(files.tell_missing(self._missing), self._patterns, watch=self._watch)
        return TableGrowth(self.join(new), new)


class NumberedRows:
    """The rows of a table whose number, or arrival time, is above `low` and at most `high`."""

    def __init__(self, table: IbisTable, column: str, low: Any, high: Any, rows: int) -> None:
        self._table, self._column = table, column
        self._low, self._high, self._rows = low, high, rows
        self.dialect, self.title, self.text, self.names = table.dialect, table.title, table.text, table.names

    @classmethod
    def of(cls, table: IbisTable, column: str) -> Self:
        """Return the rows of a table up to the highest number."""
        if column not in table.names:
            raise SchemaError(f"{table.title}: unknown column {column!r}.{did_you_mean(column, table.names)}")
        kind = table.kinds([column])[column]
        if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
            raise InputError(
                f"{table.title}: later rows must have higher integers or times in column {column!r}."
            )
        high, rows, _ = _looked_at(table, column, None)
        return cls(table, column, None, high, rows)

    def newer(self) -> TableGrowth | None:
        """Return the rows up to the present highest number, and those above the last one."""
        table = self._table.reopen()
        high, rows, before = _looked_at(table, self._column, self._high)
        if before != self._rows:
            raise DataChanged(self.title)
        if rows == self._rows:
            return None
        whole, new = (
            NumberedRows(table, self._column, low, high, number)
            for low, number in ((None, rows), (self._high, rows - self._rows))
        )
        return TableGrowth(whole, new)

    def kinds(self, names: Sequence[str]) -> Mapping[str, pa.DataType]:
        """Return the types of columns."""
        return self._table.kinds(names)

    def policies(self, names: Sequence[str]) -> set[str]:
        """Return the policies named in the metadata of columns."""
        return self._table.policies(names)

    def fetch(self, write: Callable[[str], str], columns: Sequence[str]) -> Generator[pa.RecordBatch]:
        """Run SQL over these rows of the table."""
        column, ends = self._column, (_literal(self, self._low), _literal(self, self._high))
        used = list(dict.fromkeys([*columns, column]))
        return self._table.fetch(
            lambda table: write(sql.between(self.dialect, table, used, column, ends)), used
        )

    def refuse(self, error: UnknownValue, column: EngineColumn) -> UnknownValue:
        """Return the error about a value, with its position if it can be found."""
        return self._table.refuse(error, column)


def _looked_at(table: Table, column: str, last: Any) -> tuple[Any, int, int]:
    """Return the highest number of a row, the number of rows, and the number of rows up to `last`."""
    literal = _literal(table, last)
    fetched = table.fetch(lambda name: sql.select_numbered(table.dialect, name, column, literal), [column])
    row: dict[str, Any] = pa.Table.from_batches(list(fetched)).to_pylist()[0]
    rows = int(row[sql.COUNT])
    if int(row[f"{sql.COUNT}_given"]) < rows:
        raise UnknownValue(column, None, "is missing")
    return row[column], rows, int(row[f"{sql.COUNT}_before"] or 0)


def _literal(table: Table | NumberedRows, value: Any) -> str | None:
    """Return a number or time as an SQL literal, or None."""
    return (
        None if value is None else table.dialect.moment(value) if isinstance(value, datetime) else repr(value)
    )
