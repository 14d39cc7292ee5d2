"""Tables in PostgreSQL that do not reveal the order in which their rows arrived.

PostgreSQL stores with every row the transaction that wrote it (`xmin`) and its position (`ctid`): a reader of
the tables could sort invitations and reports by arrival and link them. So the latest rows form a pool. Each
insertion rewrites the entire pool, sorted by random keys. When it has twice `LEAST_HIDDEN` rows, all but
`LEAST_HIDDEN` of them, chosen at random, leave it. Every row thus shares its transaction with at least that
many others, or with all rows. `tidy` rewrites all rows in one transaction, so that rows that left the pool
early look like those that left it late.

The pool is emptied before it is written: a server with `wal_level = minimal` then writes none of its rows to
the write-ahead log. Columns have no planner statistics, because these contain samples of values, even of rows
that have been deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

from masquerade.core.errors import FileError, InputError
from masquerade.disguising.columns import permutation
from masquerade.sources.engines.connections import PATIENT, why_not
from masquerade.survey.collector.postgres_checks import POOL, check_address, check_server

LEAST_HIDDEN: Final = 128
# With a larger threshold, a server with `wal_level = minimal` would log small tables instead of syncing them.
_SESSION: Final = (
    "SET synchronous_commit = on; SET client_min_messages = warning; SET wal_skip_threshold = 0; "
    "SET client_encoding = 'UTF8'"
)
_LOCK: Final = 0x6D717376  # "mqsv", an advisory lock: one writer per database at a time


class PostgresTables:
    """Tables of a database, with reconnection after a failure; `?` in statements is a parameter."""

    def __init__(
        self, url: str, tables: Mapping[str, str], pools: Collection[str], accept: Collection[str]
    ) -> None:
        try:
            import psycopg  # noqa: PLC0415  (an extra)
        except ImportError:
            raise InputError(
                "store: PostgreSQL needs packages that are not installed: "
                "pip install 'masquerade[services,postgres]'."
            ) from None
        self._driver: Any = psycopg
        self._url, self._guard, self._depth = url, threading.RLock(), 0
        self._connection: Any = None
        self._pools, self._accept = frozenset(pools), frozenset(accept)
        check_address(url, self._accept)
        self.committing: Callable[[], object] = lambda: None
        self.committed: Callable[[], object] = lambda: None
        self._columns = {
            name: [column.split()[0] for column in columns.split(",")] for name, columns in tables.items()
        }
        try:
            self._make_tables(tables)
        except BaseException:
            self.close()
            raise

    def _make_tables(self, tables: Mapping[str, str]) -> None:
        with self.transaction():
            for name, columns in tables.items():
                self.run(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")
                if name in self._pools:
                    key = f"PRIMARY KEY ({self._columns[name][0]})"
                    self.run(f"CREATE TABLE IF NOT EXISTS {name}{POOL} ({key}) INHERITS ({name})")
                self._stop_statistics(name, columns)

    def _stop_statistics(self, table: str, columns: str) -> None:
        """Disable planner statistics for the columns of a table and its pool, and delete existing ones."""
        statement = (
            "SELECT 1 FROM pg_attribute WHERE attrelid IN (?::regclass, to_regclass(?)) AND attname = ? "
            "AND coalesce(attstattarget, -1) <> 0"
        )
        for name, kind in (column.split()[:2] for column in columns.split(",")):
            if self.run(statement, (table, table + POOL, name)):
                self.run(f"ALTER TABLE {table} ALTER COLUMN {name} SET STATISTICS 0")
                self.run(f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {kind}")  # deletes its statistics

    def _connect(self) -> Any:
        """Return the open connection; open it if it is missing or closed."""
        if self._connection is None or self._connection.closed:
            try:
                self._connection = self._driver.connect(self._url, autocommit=True, **PATIENT)
                self._connection.execute(_SESSION)
            except self._driver.Error as error:
                raise FileError(f"store: no connection to PostgreSQL: {why_not(error)}.") from None
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Run the block as one durable transaction; other writers wait until it ends."""
        with self._guard:
            if self._depth:
                yield self
                return
            self.run("BEGIN")
            self._depth = 1
            try:
                self.run(f"SELECT pg_advisory_xact_lock({_LOCK})")
                with self._translate_errors():  # in each transaction: settings of a running server can change
                    check_server(self._connection, self._columns, self._accept)
                yield self
                self.committing()
                self.run("COMMIT")
            except BaseException:
                with suppress(FileError):
                    if self._connection is not None and not self._connection.closed:
                        self.run("ROLLBACK")
                raise
            finally:
                self._depth = 0
            self.committed()

    def run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self._guard:
            if self._depth and (self._connection is None or self._connection.closed):
                raise FileError("store: the connection to PostgreSQL broke; nothing was stored.")
            connection = self._connect()
            with self._translate_errors():
                done = connection.execute(statement.replace("?", "%s"), list(values))
                return done.fetchall() if done.description is not None else []

    def run_all(self, statement: str, rows: Iterable[Sequence[object]]) -> int:
        """Run one statement for every row of values; return the number of rows it changed."""
        with self._guard, self._translate_errors(), self._connect().cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s"), list(rows))
            return int(cursor.rowcount)

    def value(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Return the first value of the first row, None without rows."""
        rows = self.run(statement, values)
        return rows[0][0] if rows else None

    def add(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        """Add rows to a pool: rewrite it, and move rows out of it if it is full. Needs a transaction."""
        if not rows:
            return
        names = self._columns[table]
        pool = self.run(f"SELECT {', '.join(names)} FROM {table}{POOL}")  # noqa: S608  (our own names)
        mixed: list[tuple[Any, ...]] = [*pool, *map(tuple, rows)]
        self.run(f"TRUNCATE {table}{POOL}")
        leave = len(mixed) - LEAST_HIDDEN if len(mixed) >= 2 * LEAST_HIDDEN else 0
        shuffled = [mixed[i] for i in permutation(len(mixed)).tolist()]
        for name, some in ((table, shuffled[:leave]), (f"{table}{POOL}", shuffled[leave:])):
            statement = f"COPY {name} ({', '.join(names)}) FROM STDIN"
            with (
                self._translate_errors(),
                self._connection.cursor() as cursor,
                cursor.copy(statement) as copy,
            ):
                for row in sorted(some):
                    copy.write_row(row)

    def tidy(self) -> None:
        """Rewrite all tables in one transaction: no deleted row remains, and all have the same `xmin`."""
        with self.transaction():
            for table in self._columns:
                self._rewrite(table)

    def _rewrite(self, table: str) -> None:
        """Rewrite all rows of a table in the order of keys; random rows form its pool."""
        columns, key = ", ".join(self._columns[table]), self._columns[table][0]
        self.run(f"CREATE TEMPORARY TABLE mixed ON COMMIT DROP AS SELECT {columns} FROM {table}")  # noqa: S608
        self.run(f"TRUNCATE {table}")
        if table in self._pools:
            some = f"SELECT * FROM mixed ORDER BY gen_random_uuid() LIMIT {LEAST_HIDDEN}"  # noqa: S608
            self.run(f"CREATE TEMPORARY TABLE chosen ON COMMIT DROP AS {some}")
            self.run(f"INSERT INTO {table}{POOL} ({columns}) SELECT {columns} FROM chosen ORDER BY {key}")  # noqa: S608
            self.run(f"DELETE FROM mixed WHERE {key} IN (SELECT {key} FROM chosen)")  # noqa: S608
            self.run("DROP TABLE chosen")
        self.run(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM mixed ORDER BY {key}")  # noqa: S608
        self.run("DROP TABLE mixed")

    def close(self) -> None:
        """Close the connection."""
        with self._guard:
            if self._connection is not None:
                self._connection.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Replace the driver's messages, which may quote values of a report."""
        try:
            yield
        except self._driver.Error as error:
            state = getattr(error, "sqlstate", None) or "no connection"
            reason = {"53100": "the disk is full", "42501": "not allowed"}.get(state, state)
            raise FileError(f"store: PostgreSQL cannot read or write the survey ({reason}).") from None
