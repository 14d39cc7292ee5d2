"""The database of a service: one connection, whole transactions, replies and notes; durable on return."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from masquerade.core.errors import FileError, InputError
from masquerade.crypto.errors import KeySpent

APPLICATION: Final = 0x6D617371  # "masq": tells our files from other people's SQLite files
VERSION: Final = 1
BUSY_SECONDS: Final = 10
MOST_REPLIES: Final = 100_000
MOST_REPLY_BYTES: Final = 1 << 29
MOST_LOG_BYTES: Final = 1 << 26
SCHEMA: Final = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE notes (scope TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (scope, name));
CREATE TABLE replies (
    turn INTEGER PRIMARY KEY AUTOINCREMENT, peer TEXT NOT NULL, key TEXT NOT NULL, place TEXT NOT NULL,
    body_digest BLOB NOT NULL, status INTEGER NOT NULL, size INTEGER NOT NULL, kept REAL NOT NULL, reply BLOB,
    UNIQUE (peer, key)
);
CREATE INDEX replies_in_turn ON replies (peer, turn);
CREATE INDEX replies_with_bytes ON replies (peer, turn) WHERE reply IS NOT NULL;
-- what each peer's replies take, kept by the database itself so that room is made without counting
CREATE TABLE room (peer TEXT PRIMARY KEY, number INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER reply_kept AFTER INSERT ON replies BEGIN
    INSERT OR IGNORE INTO room VALUES (new.peer, 0, 0);
    UPDATE room SET number = number + 1, bytes = bytes + new.size WHERE peer = new.peer;
END;
CREATE TRIGGER reply_emptied AFTER UPDATE OF size ON replies BEGIN
    UPDATE room SET bytes = bytes + new.size - old.size WHERE peer = new.peer;
END;
CREATE TRIGGER reply_forgotten AFTER DELETE ON replies BEGIN
    UPDATE room SET number = number - 1, bytes = bytes - old.size WHERE peer = old.peer;
END;
"""


class Store:
    """A SQLite file in WAL mode, synced at every commit, used by one thread at a time.

    `changes` numbers the commits; `committed` is told of each, after it is on the disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.RLock()
        self._depth = 0
        self.changes = 0
        self.committed: Callable[[int], None] = lambda _changes: None
        try:
            self._store = sqlite3.connect(
                path, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
            )
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def prepare(self) -> None:
        """Make the tables of a new file; refuse a file that is damaged, newer, or somebody else's."""
        try:
            version = self.value("PRAGMA user_version")
            application = self.value("PRAGMA application_id")
            empty = self.value("SELECT count(*) FROM sqlite_master") == 0
            if not empty and application != APPLICATION:
                raise FileError(f"{self._path}: is a SQLite file, but not the state of a service.")
            if version > VERSION:
                raise FileError(
                    f"{self._path}: was written by a newer masquerade (state version {version}; "
                    f"this one reads {VERSION}). Use that version."
                )
            if self.value("PRAGMA integrity_check(1)") != "ok":
                raise FileError(
                    f"{self._path}: is damaged. Restore state.sqlite from a backup, without once/."
                )
            if self.value("PRAGMA journal_mode = WAL") != "wal":
                raise FileError(f"{self._path}: this file system does not allow a write-ahead log.")
            self.run("PRAGMA synchronous = FULL")
            self.run("PRAGMA secure_delete = ON")  # what is forgotten is overwritten, not only unlinked
            self.run(f"PRAGMA journal_size_limit = {MOST_LOG_BYTES}")
            self.run("PRAGMA secure_delete = ON")  # what is deleted, pseudonyms above all, is overwritten
            if empty:
                marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}"
                self._store.executescript(f"BEGIN IMMEDIATE; {SCHEMA} {marks}; COMMIT")
            self.changes = int(self.fact("changes") or 0)
        except sqlite3.DatabaseError as error:
            raise self._failed(error) from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything inside together, durably, or nothing; inside another, be part of that."""
        with self._guard:
            if self._depth:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                return
            self.run("BEGIN IMMEDIATE")
            self._depth = 1
            try:
                yield
                changes = self.changes + 1
                self.run("INSERT OR REPLACE INTO facts (name, value) VALUES ('changes', ?)", (str(changes),))
                self.run("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error, FileError):
                    if self._store.in_transaction:
                        self.run("ROLLBACK")
                raise
            finally:
                self._depth = 0
            self.changes = changes
            self.committed(changes)

    def run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self._guard:
            try:
                return self._store.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise self._failed(error) from None

    def value(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Return the first value of the first row, None if there is none."""
        rows = self.run(statement, values)
        return rows[0][0] if rows else None

    def fact(self, name: str) -> str | None:
        """Return what the store says about itself."""
        found = self.value("SELECT value FROM facts WHERE name = ?", (name,))
        return None if found is None else str(found)

    def set_facts(self, **facts: str) -> None:
        """Change what the store says about itself."""
        with self.transaction():
            for item in facts.items():
                self.run("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", item)

    def close(self) -> None:
        """Let go of the file."""
        with self._guard:
            self._store.close()

    def _failed(self, error: sqlite3.Error) -> FileError:
        return FileError(f"{self._path}: the state cannot be read or written ({error}).")


class Notes:
    """Small things to remember, by scope and name."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, scope: str, name: str, value: bytes) -> None:
        """Keep a note, in place of one of the same name."""
        with self._store.transaction():
            self._store.run(
                "INSERT OR REPLACE INTO notes (scope, name, value) VALUES (?, ?, ?)",
                (scope, name, bytes(value)),
            )

    def get(self, scope: str, name: str) -> bytes | None:
        """Return a note, None if there is none."""
        found = self._store.value("SELECT value FROM notes WHERE scope = ? AND name = ?", (scope, name))
        return None if found is None else bytes(found)

    def delete(self, scope: str, name: str) -> bool:
        """Remove a note; return whether it was there."""
        with self._store.transaction():
            there = self.get(scope, name) is not None
            self._store.run("DELETE FROM notes WHERE scope = ? AND name = ?", (scope, name))
            return there

    def names(self, scope: str) -> list[str]:
        """Return the names of the notes of a scope, sorted."""
        rows = self._store.run("SELECT name FROM notes WHERE scope = ? ORDER BY name", (scope,))
        return [str(name) for (name,) in rows]


class StoredReply(NamedTuple):
    """What was answered to a request, and to which body."""

    place: str
    body_digest: bytes | str
    status: int
    reply: bytes


class Replies:
    """Answers that were given, by peer and idempotency key, so that a repeated request does nothing twice.

    Each peer has room for so many and so many bytes; nobody's requests push out another's. Beyond, the bytes
    of its oldest answers go, but not the fact that they were given: asked for again they are refused
    (`KeySpent`) rather than worked out a second time. Facts go, oldest first, beyond `most` alone.
    """

    def __init__(self, store: Store, *, most: int = MOST_REPLIES, most_bytes: int = MOST_REPLY_BYTES) -> None:
        self._store, self._most, self._most_bytes = store, most, most_bytes

    def find(self, peer: str, key: str) -> StoredReply | None:
        """Return the answer to a peer's key, None if there was none."""
        rows = self._store.run(
            "SELECT place, body_digest, status, reply FROM replies WHERE peer = ? AND key = ?", (peer, key)
        )
        if not rows:
            return None
        place, digest, status, reply = rows[0]
        if reply is None:
            raise KeySpent("This request was answered before, and the answer is no longer kept.")
        return StoredReply(place, digest, status, bytes(reply))

    def keep(  # noqa: PLR0917  (a row of the table)
        self, peer: str, key: str, place: str, body_digest: bytes | str, status: int, reply: bytes
    ) -> None:
        """Keep an answer; it is on the disk when this returns, so that it may be sent."""
        if len(reply) > self._most_bytes:
            raise InputError(f"A reply of {len(reply)} bytes cannot be kept: at most {self._most_bytes} are.")
        with self._store.transaction():
            before = self.find(peer, key)
            if before is not None:
                if before != (place, body_digest, status, reply):
                    raise KeySpent("This request was answered before, in another way.")
                return
            self._store.run(
                "INSERT INTO replies (peer, key, place, body_digest, status, reply, size, kept) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (peer, key, place, body_digest, status, bytes(reply), len(reply), time.time()),
            )
            self._make_room(peer)

    def forget(self, place: str) -> None:
        """Destroy the answers given at a place and below it; asked for again they are refused."""
        below = f"{place}/"
        with self._store.transaction():
            self._store.run(
                "UPDATE replies SET reply = NULL, size = 0 "
                "WHERE reply IS NOT NULL AND (place = ? OR substr(place, 1, ?) = ?)",
                (place, len(below), below),
            )
        self._store.run("PRAGMA wal_checkpoint(TRUNCATE)")  # older pages are not left in the log either

    def forget_older_than(self, seconds: float) -> int:
        """Forget answers given longer ago than this, wholly; return how many."""
        with self._store.transaction():
            limit = time.time() - seconds
            number = self._store.value("SELECT count(*) FROM replies WHERE kept < ?", (limit,))
            self._store.run("DELETE FROM replies WHERE kept < ?", (limit,))
            return int(number)

    def _make_room(self, peer: str) -> None:
        """Bring a peer's replies within both bounds; the oldest give way."""
        number, size = self._store.run("SELECT number, bytes FROM room WHERE peer = ?", (peer,))[0]
        if number > self._most:
            self._store.run(
                "DELETE FROM replies WHERE turn IN "
                "(SELECT turn FROM replies WHERE peer = ? ORDER BY turn LIMIT ?)",
                (peer, number - self._most),
            )
        while size > self._most_bytes:
            turn, freed = self._store.run(
                "SELECT turn, size FROM replies WHERE peer = ? AND reply IS NOT NULL ORDER BY turn LIMIT 1",
                (peer,),
            )[0]
            self._store.run("UPDATE replies SET reply = NULL, size = 0 WHERE turn = ?", (turn,))
            size -= freed
