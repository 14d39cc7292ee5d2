"""Durable state in one SQLite file: atomic transactions, synced before a method returns.

Every component with durable state (a service's state, a device's ledger, a server's spent credentials) is a
`DurableStore` with a `Layout`. The layout defines the type of the file, its version, its tables and the
conversion from earlier versions. A new file is readable by its owner only. A file that is damaged, newer or
of another type is refused and left unchanged. An older file is converted in one transaction. Errors of a
file are raised as `FileError`.

Two types of table are enough for most components. `Notes` are named values that may change. `Claims` are
facts that are recorded once, in order: keys used, credentials spent, epochs started, messages sent. A
component that needs other tables (for example for stored replies) defines them in its layout and runs SQL
through `run`::

    LEDGER = Layout("a ledger of votes", "the ledger", b"mqvt", Claims.TABLE)
    claims = Claims(DurableStore(path, LEDGER))
    claims.claim([Claim("key", name)])     # durable when this returns, KeySpent the second time

Any number of threads may use one store; their transactions run in sequence. Several processes may share a
file. Where a write-ahead log is impossible, or no further files may exist next to the file, the layout needs
`log=False`. With it, `overwriting` changes content in place, without a journal: see `slot_table`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self

from masquerade.core.errors import FileError
from masquerade.core.util.atomic import sync_folder
from masquerade.core.util.processes import ResourceOwner
from masquerade.crypto.errors import KeySpent

BUSY_SECONDS: Final = 10
MOST_LOG_BYTES: Final = 1 << 26
_MEMORY: Final = ":memory:"


@dataclass(frozen=True)
class Layout:
    """Type of a file: its description, its identifier in the header and its tables.

    `what` and `brief` name it in errors ("the state of a service", "the state"). `mark` is four letters in
    the file's header that distinguish it from other SQLite files. `tables` is the SQL that makes a new file
    of this `version`; `steps[n]` is the SQL, or the function, that converts version n to version n + 1. Files
    of the first release had no mark: they are recognised by having exactly the tables `unmarked`, and count
    as version 0. `remedy` states what to do about a damaged file.
    """

    what: str
    brief: str
    mark: bytes
    tables: str
    version: int = 1
    steps: Mapping[int, str | Callable[[DurableStore], object]] = field(default_factory=dict)
    unmarked: frozenset[str] = frozenset()
    log: bool = True
    remedy: str = ""

    @property
    def application(self) -> int:
        """Return the mark as the integer in SQLite's header."""
        return int.from_bytes(self.mark, "big")


class DurableStore:
    """An open file with a given layout, synced at every commit; `close` it, or use a with statement.

    Without a path the store is in memory, for simulations and tests. `committing` is called as the last step
    inside every outer transaction, `committed` once the transaction is durable. `changed_rows` is the number
    of rows that transactions have changed since the file was opened.
    """

    def __init__(self, path: str | Path | None, layout: Layout) -> None:
        self.path, self.layout = Path(_MEMORY if path is None else path), layout
        self._on_disk = path is not None
        self.committing: Callable[[], object] = lambda: None
        self.committed: Callable[[], object] = lambda: None
        self._owner = ResourceOwner(
            f"{self.path}: this open file", "Open the file again after a fork: SQLite requires it."
        )
        self._guard = threading.RLock()
        self._depth = self.changed_rows = 0
        try:
            if self._on_disk:
                _new_file(self.path)
            self._store = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
            )
        except (sqlite3.Error, OSError) as error:
            raise self._translate_error(error) from None
        try:
            self._prepare()
        except BaseException:
            self._store.close()
            raise

    def _prepare(self) -> None:
        """Create the tables of a new file or convert an older file; raise FileError for any other file."""
        found = self._version()
        if self.value("PRAGMA integrity_check(1)") != "ok":
            raise FileError(f"{self.path}: is damaged. {self.layout.remedy}".strip())
        mode = "memory" if not self._on_disk else "wal" if self.layout.log else "delete"
        if self.value(f"PRAGMA journal_mode = {mode}") != mode:
            raise FileError(f"{self.path}: this file system does not allow a write-ahead log.")
        self.run(f"PRAGMA synchronous = {'FULL' if self.layout.log else 'EXTRA'}")
        self.run("PRAGMA temp_store = MEMORY")  # no copy of any row in a temporary file
        self.run("PRAGMA secure_delete = ON")  # deleted content, such as pseudonyms, is overwritten
        self.run(f"PRAGMA journal_size_limit = {MOST_LOG_BYTES}")
        if found != self.layout.version:
            self._update()

    def _update(self) -> None:
        """Create or convert the tables and set the mark and version of the file, in one transaction."""
        layout = self.layout
        with self.transaction():
            found = self._version()  # read again: another process may have converted the file
            for step in [layout.tables] if found is None else map(self._step, range(found, layout.version)):
                if callable(step):
                    step(self)
                else:
                    self.run_script(step)
            self.run(f"PRAGMA application_id = {layout.application}")
            self.run(f"PRAGMA user_version = {layout.version}")

    def _step(self, version: int) -> str | Callable[[DurableStore], object]:
        if version not in self.layout.steps:
            raise FileError(
                f"{self.path}: holds {self.layout.what} of version {version}, which this version of "
                "masquerade no longer reads. Use an earlier version."
            )
        return self.layout.steps[version]

    def _version(self) -> int | None:
        """Return the version of the file, None if it is empty.

        Raise FileError if the file has a different layout or a newer version.
        """
        tables = {str(name) for (name,) in self.run("SELECT name FROM sqlite_master WHERE type = 'table'")}
        version, application = self.value("PRAGMA user_version"), self.value("PRAGMA application_id")
        if not tables:
            return None
        if application == version == 0 and tables - {"sqlite_sequence"} == self.layout.unmarked:
            return 0
        if application != self.layout.application:
            raise FileError(f"{self.path}: is a SQLite file, but not {self.layout.what}.")
        if version > self.layout.version:
            raise FileError(
                f"{self.path}: was written by a newer masquerade ({self.layout.brief.removeprefix('the ')} "
                f"version {version}; this one reads {self.layout.version}). Use that version."
            )
        return int(version)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Run a block as one atomic, durable transaction; other threads and processes wait.

        If a nested transaction fails, only that transaction is rolled back. Otherwise it becomes durable
        with the outer transaction.
        """
        with self._guard:
            outer = self._depth == 0
            self.run("BEGIN IMMEDIATE" if outer else f"SAVEPOINT inner{self._depth}")
            before = self._store.total_changes
            self._depth += 1
            try:
                yield self
                if outer:
                    self.committing()
                self.run("COMMIT" if outer else f"RELEASE inner{self._depth - 1}")
            except BaseException:
                with suppress(FileError):  # SQLite may have rolled back already, for example on a full disk
                    if self._store.in_transaction:
                        self.run("ROLLBACK" if outer else f"ROLLBACK TO inner{self._depth - 1}")
                        if not outer:
                            self.run(f"RELEASE inner{self._depth - 1}")
                raise
            finally:
                self._depth -= 1
            if outer:
                self.changed_rows += self._store.total_changes - before
                self.committed()

    @contextmanager
    def overwriting(self) -> Iterator[Self]:
        """Run a transaction that only overwrites content with content of the same length, without a journal.

        No copy of the earlier content is left in another file. After a crash during the transaction, some
        rows may be new, others old, and one row partly written. So each row must be meaningful without the
        others, and a partly written row must be detectable (both hold for `slot_table`). The tables'
        structure does not change, so it cannot be damaged.
        """
        with self._guard:
            if self.layout.log or self._depth:
                raise RuntimeError("content is overwritten in a file without a log, in its own transaction")
            if self._on_disk:
                self.run("PRAGMA journal_mode = MEMORY")
            try:
                with self.transaction():
                    yield self
            finally:
                if self._on_disk:
                    self.run("PRAGMA journal_mode = DELETE")

    def run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        self._owner.check()
        with self._guard:
            try:
                return self._store.execute(statement, values).fetchall()
            except (sqlite3.Error, UnicodeDecodeError) as error:
                raise self._translate_error(error) from None

    def run_script(self, script: str) -> None:
        """Run statements in sequence, within the transaction that is open."""
        for statement in _statements(script):
            self.run(statement)

    def run_all(self, statement: str, rows: Iterable[Sequence[object]]) -> int:
        """Run one statement for every row of values; return the number of rows changed."""
        self._owner.check()
        with self._guard:
            try:
                return self._store.executemany(statement, rows).rowcount
            except (sqlite3.Error, UnicodeDecodeError) as error:
                raise self._translate_error(error) from None

    def value(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Return the first value of the first row, or None without rows."""
        rows = self.run(statement, values)
        return rows[0][0] if rows else None

    def empty_log(self) -> None:
        """Write the log into the file and empty it, so that it contains no deleted content."""
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")

    @staticmethod
    def peek(path: Path, question: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return rows of a file, even while a service has it open; an empty list if there is no file."""
        if not path.is_file():
            return []
        # if none of these exists, no process has it open: it is read as immutable, without write permission
        open_somewhere = any(path.with_name(path.name + end).exists() for end in ("-wal", "-shm", "-journal"))
        address = f"{path.absolute().as_uri()}?{'mode=ro' if open_somewhere else 'immutable=1'}"
        try:
            with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as store:
                return store.execute(question, values).fetchall()
        except sqlite3.Error as error:
            raise FileError(f"{path}: cannot be read ({error}).") from None

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _translate_error(self, error: sqlite3.Error | OSError | UnicodeDecodeError) -> FileError:
        reason: object = error
        if isinstance(error, OSError):
            reason = (error.strerror or "input/output error").lower()
        elif isinstance(error, UnicodeDecodeError):  # its message would quote content of the file
            reason = "a text in it is damaged"
        return FileError(f"{self.path}: {self.layout.brief} cannot be read or written ({reason}).")


class Notes:
    """Small values by scope and name, which may be replaced."""

    TABLE: ClassVar[str] = (
        "CREATE TABLE notes (scope TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, "
        "PRIMARY KEY (scope, name));\n"
    )

    def __init__(self, store: DurableStore) -> None:
        self._store = store

    def put(self, scope: str, name: str, value: bytes) -> None:
        """Store a note; it replaces a note of the same name."""
        with self._store.transaction():
            self._store.run(
                "INSERT OR REPLACE INTO notes (scope, name, value) VALUES (?, ?, ?)",
                (scope, name, bytes(value)),
            )

    def get(self, scope: str, name: str) -> bytes | None:
        """Return a note, or None if it does not exist."""
        found = self._store.value("SELECT value FROM notes WHERE scope = ? AND name = ?", (scope, name))
        return None if found is None else bytes(found)

    def delete(self, scope: str, name: str) -> bool:
        """Delete a note; return True if it existed."""
        with self._store.transaction():
            there = self.get(scope, name) is not None
            self._store.run("DELETE FROM notes WHERE scope = ? AND name = ?", (scope, name))
            return there

    def names(self, scope: str) -> list[str]:
        """Return the names of the notes of a scope, sorted."""
        rows = self._store.run("SELECT name FROM notes WHERE scope = ? ORDER BY name", (scope,))
        return [str(name) for (name,) in rows]

    @staticmethod
    def peek(path: Path, scope: str, name: str) -> bytes | None:
        """Return a note of a file, even while a service has it open; None if it does not exist."""
        question = "SELECT value FROM notes WHERE scope = ? AND name = ?"
        rows = DurableStore.peek(path, question, (scope, name))
        return bytes(rows[0][0]) if rows else None


class Claim(NamedTuple):
    """A fact of a given kind; its name is unique within the kind."""

    kind: str
    name: bytes
    value: bytes = b""


class Claims:
    """Facts that are recorded once and never change; they are durable before a method returns.

    Cost: one sync per call, however many claims, and about 5 µs per claim.
    """

    TABLE: ClassVar[str] = (
        "CREATE TABLE claimed (place INTEGER PRIMARY KEY AUTOINCREMENT, "
        "kind TEXT NOT NULL, name BLOB NOT NULL, value BLOB NOT NULL, UNIQUE (kind, name));\n"
    )
    ALONE: ClassVar[Layout] = Layout(
        "a ledger of claims",
        "the ledger",
        b"mqcl",
        TABLE,
        steps={0: ""},
        unmarked=frozenset({"claimed"}),
        log=False,
    )
    SPENT: ClassVar[str] = "This was used already: it was sent by this device, or was about to be sent."

    def __init__(self, store: DurableStore) -> None:
        self._store = store

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a file that holds claims and nothing else; several processes may share it."""
        return cls(DurableStore(path, cls.ALONE))

    def claim(self, claims: Sequence[tuple[str, bytes, bytes]]) -> None:
        """Record all claims durably; if any of them exists already, record none and raise `KeySpent`."""
        with self._store.transaction():
            done = self._store.run_all(
                "INSERT INTO claimed (kind, name, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", claims
            )
            if done < len(claims):
                raise KeySpent(self.SPENT)

    def find(self, kind: str, name: bytes) -> bytes | None:
        """Return the value of a claim, or None if it does not exist."""
        found = self._store.value("SELECT value FROM claimed WHERE kind = ? AND name = ?", (kind, name))
        return None if found is None else bytes(found)

    def values(self, kind: str, prefix: bytes = b"") -> list[bytes]:
        """Return the values of the claims of a kind whose names start with `prefix`, oldest first."""
        rows = self._store.run(
            "SELECT value FROM claimed WHERE kind = ? AND substr(name, 1, ?) = ? ORDER BY place",
            (kind, len(prefix), prefix),
        )
        return [bytes(value) for (value,) in rows]

    @staticmethod
    def peek(path: Path, kind: str) -> list[bytes]:
        """Return the values of a kind in a file, oldest first, even while a service has it open."""
        rows = DurableStore.peek(path, "SELECT value FROM claimed WHERE kind = ? ORDER BY place", (kind,))
        return [bytes(value) for (value,) in rows]

    def close(self) -> None:
        """Close the file."""
        self._store.close()


def _new_file(path: Path) -> None:
    """Create an empty file readable by its owner only, unless it exists; sync its directory entry."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:  # do not open it here: closing it would release this process's locks on it
        if path.stat().st_size:
            return
    sync_folder(path.absolute().parent)


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script; a trigger is one statement."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
