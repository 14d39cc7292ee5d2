"""Tables in PostgreSQL, without the order in which their rows came.

PostgreSQL marks every row with the transaction that wrote it (`xmin`) and lays it where it was written
(`ctid`): whoever reads the tables could put invitations and reports in the order of their coming, and join
them. So the latest rows are a pool. Whoever adds to it writes all of it again, in the order of random keys;
when it has grown to twice `LEAST_HIDDEN` rows, all but `LEAST_HIDDEN`, chosen at random, leave it. Every row
shares its transaction with at least that many others, or with all there are. `tidy` writes all rows again in
one transaction: rows that left the pool early then look like those that left it late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

from masquerade.core.errors import FileError, InputError
from masquerade.disguising.columns import permutation
from masquerade.sources.engines.connections import PATIENT, why_not
from masquerade.survey.collector.postgres_checks import check_server

LEAST_HIDDEN: Final = 128
POOL: Final = "_pool"
_LOCK: Final = 0x6D717376  # "mqsv": writers of one database take turns


class PostgresTables:
    """A connection that is opened again when it breaks; statements have `?` where values go."""

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
        self.committing: Callable[[], object] = lambda: None
        self.committed: Callable[[], object] = lambda: None
        self._columns = {
            name: [column.split()[0] for column in columns.split(",")] for name, columns in tables.items()
        }
        with self.transaction():
            for name, columns in tables.items():
                self.run(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")
                if name in pools:
                    key = f"PRIMARY KEY ({self._columns[name][0]})"
                    self.run(f"CREATE TABLE IF NOT EXISTS {name}{POOL} ({key}) INHERITS ({name})")

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = self._driver.connect(self._url, autocommit=True, **PATIENT)
                self._connection.execute("SET synchronous_commit = on; SET client_min_messages = warning")
                check_server(self._connection, self._accept)
            except self._driver.Error as error:
                raise FileError(f"store: no connection to PostgreSQL: {why_not(error)}.") from None
            except FileError:
                self._connection.close()
                raise
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Do everything inside together, durably, or nothing; other writers wait meanwhile."""
        with self._guard:
            if self._depth:
                yield self
                return
            self.run("BEGIN")
            self._depth = 1
            try:
                self.run(f"SELECT pg_advisory_xact_lock({_LOCK})")
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
                raise FileError("store: PostgreSQL broke off; nothing was kept.")
            connection = self._connected()
            with self._told():
                done = connection.execute(statement.replace("?", "%s"), list(values))
                return done.fetchall() if done.description is not None else []

    def run_all(self, statement: str, rows: Iterable[Sequence[object]]) -> int:
        """Run one statement for every row of values; return how many rows it changed."""
        with self._guard, self._told(), self._connected().cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s"), list(rows))
            return int(cursor.rowcount)

    def value(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Return the first value of the first row, None if there is none."""
        rows = self.run(statement, values)
        return rows[0][0] if rows else None

    def add(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        """Within a transaction: add rows to a pool, write it again, and let some leave it."""
        if not rows:
            return
        names = self._columns[table]
        marks = ", ".join("?" * len(names))
        self.run_all(f"INSERT INTO {table}{POOL} ({', '.join(names)}) VALUES ({marks})", rows)  # noqa: S608
        self._mingle(table)

    def _mingle(self, table: str) -> None:
        names = self._columns[table]
        rows = self.run(f"SELECT {', '.join(names)} FROM {table}{POOL}")  # noqa: S608  (our own names)
        self.run(f"TRUNCATE {table}{POOL}")
        leave = len(rows) - LEAST_HIDDEN if len(rows) >= 2 * LEAST_HIDDEN else 0
        dealt = [rows[i] for i in permutation(len(rows)).tolist()]
        for name, some in ((table, dealt[:leave]), (f"{table}{POOL}", dealt[leave:])):
            statement = f"COPY {name} ({', '.join(names)}) FROM STDIN"
            with self._told(), self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                for row in sorted(some):
                    copy.write_row(row)

    def tidy(self) -> None:
        """Write all tables again: nothing deleted is left in them, and all rows are of one transaction."""
        with self.transaction():
            for table in self._columns:
                self._rewrite(table)

    def _rewrite(self, table: str) -> None:
        """Write all rows of a table again, in the order of keys; some, chosen at random, are its pool."""
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
        """Let go of the connection."""
        with self._guard:
            if self._connection is not None:
                self._connection.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say what failed in words of our own: a driver's may quote what was to be kept."""
        try:
            yield
        except self._driver.Error as error:
            state = getattr(error, "sqlstate", None) or "no connection"
            reason = {"53100": "the disk is full", "42501": "not allowed"}.get(state, state)
            raise FileError(f"store: PostgreSQL cannot read or write the survey ({reason}).") from None
