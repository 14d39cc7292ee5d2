"""One state of a database table for the lifetime of a source, despite concurrent writes.

PostgreSQL and DuckDB keep a snapshot for a read-only transaction. It is opened next to the caller's
connection, which stays free to write. In SQLite a snapshot would block writers, so the columns are copied
once to a temporary table. For other databases, and for tables that only the caller's connection sees, no
state can be kept. Every scan then at least checks the number of records (`engine_cache`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from typing import Any, Final
from uuid import uuid4
from weakref import finalize

from masquerade.core.errors import DataChanged
from masquerade.core.util.processes import ResourceOwner
from masquerade.frames.file_state import FileState

TEXT: Final = re.compile(r"'((?:[^']|'')*)'")  # string literals of SQL
LASTING: Final = {"repeatable read", "serializable"}


class Snapshot:
    """A `relation` of an Ibis backend, read in one state if possible."""

    def __init__(self, backend: Any, table: Any, relation: str) -> None:
        self.relation, owner = relation, ResourceOwner("A snapshot", "Open it again.")
        self._connection: Any = getattr(backend, "con", None)
        self._id, self._files = "", Files([])
        if backend.name == "postgres":
            self._keep_postgres(table, owner)
        elif backend.name == "duckdb":
            own = _duckdb(backend, table)
            if own is None:
                self._files = Files(_paths_behind(backend, table))
            else:
                self._connection = own
                finalize(self, _close, own, owner)
        elif backend.name == "sqlite":
            copy = f"temp.masquerade_{uuid4().hex}"
            backend.con.execute(f"CREATE TEMP TABLE {copy} AS SELECT * FROM {relation}")  # noqa: S608
            self.relation = copy
            finalize(self, _drop, backend.con, copy, owner)

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Yield the connection to read from. Changed files of a view raise `DataChanged`."""
        self._files.check()
        if self._id:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{self._id}'")
                yield self._connection
        else:
            yield self._connection
        self._files.check()

    def _keep_postgres(self, table: Any, owner: ResourceOwner) -> None:
        """Keep a snapshot in one connection and read it in another, so that no table stays locked."""
        pair = _postgres(self._connection, table)
        if pair is None:
            return
        keeper, reader = pair
        for own in pair:
            finalize(self, _close, own, owner)
        with suppress(keeper.Error):  # without exported snapshots, totals are compared instead
            (self._id,) = keeper.execute("SELECT pg_export_snapshot()").fetchone()
            self._connection = reader


class Files:
    """Files that a relation reads, by path or pattern."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._names = self._list_paths()
        self._state = FileState.of(self._names)

    def check(self) -> None:
        """Raise DataChanged if files changed, were added or were deleted."""
        if self._list_paths() != self._names:
            raise DataChanged(" or ".join(self._patterns), self._state.since)
        self._state.check()

    def _list_paths(self) -> list[str]:
        return sorted({name for pattern in self._patterns for name in glob(pattern, recursive=True)})  # noqa: PTH207


def _tables(table: Any) -> list[Any]:
    from ibis.expr.operations import DatabaseTable  # type: ignore[import-untyped]  # noqa: PLC0415

    return list(table.op().find(DatabaseTable))


def _postgres(theirs: Any, table: Any) -> tuple[Any, Any] | None:
    """Return two connections that see the same as the caller's. None if that is impossible or unnecessary."""
    import psycopg  # noqa: PLC0415

    idle = theirs.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    names = [
        ".".join(_quote(part) for part in (op.namespace.database, op.name) if part) for op in _tables(table)
    ]
    seen = (
        "SELECT current_user, ARRAY(SELECT c.oid FROM unnest(%s::text[]) AS name JOIN pg_catalog.pg_class c "
        "ON c.oid = to_regclass(name) WHERE c.relpersistence <> 't'), "
        "current_setting('transaction_isolation'), current_setting('search_path')"
    )
    user, tables, isolation, path = theirs.execute(seen, [names]).fetchone()
    if not theirs.autocommit and isolation in LASTING:
        return None  # the connection already reads one state
    if idle and not theirs.autocommit:
        theirs.rollback()  # end the transaction that this query started
    if not idle or len(tables) < len(names):
        return None  # uncommitted changes, or a temporary table, that only this connection sees
    settings = {**theirs.info.get_parameters(), "password": theirs.info.password or None}
    own = []
    try:
        for _ in range(2):
            own.append(psycopg.connect(**{key: text for key, text in settings.items() if text is not None}))
            own[-1].execute("SELECT set_config('search_path', %s, false)", [path])
            same: Any = own[-1].execute(seen, [names]).fetchone()
            own[-1].commit()
            own[-1].isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            own[-1].read_only = True
            if same[:2] != (user, tables):
                raise psycopg.Error  # noqa: TRY301  (handled below)
    except psycopg.Error:
        for connection in own:
            connection.close()
        return None
    keeper, reader = own
    return keeper, reader


def _duckdb(backend: Any, table: Any) -> Any | None:
    """Return a cursor with its own transaction. None unless the relation reads stored tables only."""
    sql = "SELECT database_name, schema_name, table_name FROM duckdb_tables() WHERE NOT temporary"
    stored = set(backend.con.cursor().execute(sql).fetchall())
    used = {(op.namespace.catalog, op.namespace.database, op.name) for op in _tables(table)}
    if not used or not used <= stored:
        return None
    own = backend.con.cursor()
    own.execute("BEGIN TRANSACTION READ ONLY")
    own.execute("SELECT 1 FROM " + ", ".join(".".join(map(_quote, parts)) for parts in used) + " LIMIT 0")  # noqa: S608
    return own


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _paths_behind(backend: Any, table: Any) -> list[str]:
    """Return the paths and patterns in the views of an expression."""
    views = backend.con.execute("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal").fetchall()
    used = {op.name for op in _tables(table)}
    texts = [text.replace("''", "'") for name, sql in views if name in used for text in TEXT.findall(sql)]
    return [text for text in dict.fromkeys(texts) if glob(text, recursive=True)]  # noqa: PTH207


def _close(connection: Any, owner: ResourceOwner) -> None:
    with suppress(Exception):
        if owner.is_here:  # a forked copy would close the parent's connection
            connection.close()


def _drop(connection: Any, table: str, owner: ResourceOwner) -> None:
    if not owner.is_here:
        return
    with suppress(Exception):  # already closed, or of another thread: the table ends with the connection
        connection.execute(f"DROP TABLE IF EXISTS {table}")
