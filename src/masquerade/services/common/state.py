"""What a service must still know after a crash, and what it must never believe again after a restore.

A state folder belongs to one process at a time. `state.sqlite` holds stored replies and notes; whatever a
method has accepted is on the disk when it returns. The folder `once/` beside it holds what may happen only
once (burnt keys): brought back from a backup it would offer as unused what was used since, so it is excluded
from backups. Where the two do not agree — `once/` is missing, another's or a copy, or has seen more changes
than `state.sqlite` — the state was restored, and a new epoch begins: replies are forgotten, open sessions
are interrupted, burnt keys stay burnt. A snapshot of a whole disk is the one copy that cannot be told from
the original: do not roll a service back that way.

To restore, bring back everything but `once/` into an empty folder, `state.sqlite` as SQLite's own backup
wrote it; a log (`state.sqlite-wal`) from another time would be mixed into it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, Self

from masquerade.core.atomic import sync_folder
from masquerade.core.errors import FileError
from masquerade.services.common.database import Notes, Replies, Store, StoredReply
from masquerade.services.common.once_store import Once, make_folder, new_file

__all__ = ["INTERRUPTED", "SESSION", "Notes", "Replies", "State", "StoredReply", "peek"]

DATABASE: Final = "state.sqlite"
ONCE: Final = "once"
SESSION: Final = "session"
INTERRUPTED: Final = "interrupted"


class State:
    """The state of one service; `open` it, and `close` it (or use it in a with statement).

    `epoch` is the second in which this life of the state began, rising with every restore; `incarnation` is
    its random id; `restored` tells that it began just now because the state had been restored. `burnt` is
    the ledger of what may be used once.
    """

    def __init__(self, folder: Path, store: Store, once: Once, lock: int) -> None:
        self.folder = folder
        self.burnt = once.burnt
        self.notes, self.replies = Notes(store), Replies(store)
        self._store, self._once, self._lock = store, once, lock
        self.incarnation, self.epoch, self.restored = self._begin()
        store.committed = once.reached
        once.reached(store.changes)

    @classmethod
    def open(cls, folder: str | Path) -> State:
        """Open a state folder, made if it does not exist; refuse one in use, damaged, or of a newer version.

        After a restore, notes of scope "session" are found under the scope "interrupted"; of what is below a
        session ("name/…": its pseudonyms, say) only the name is left, its content is destroyed.
        """
        place = Path(folder)
        with ExitStack() as undo:
            try:
                make_folder(place)
                lock = _lock(place)
                undo.callback(os.close, lock)
                new_file(place / DATABASE)
                sync_folder(place)
                store = Store(place / DATABASE)
                undo.callback(store.close)
                store.prepare()
                once = Once(place / ONCE)
                undo.callback(once.close)
                state = cls(place, store, once, lock)
            except OSError as error:
                reason = (error.strerror or "input/output error").lower()
                raise FileError(f"{place}: cannot be used as a state folder ({reason}).") from None
            undo.pop_all()
        return state

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Do everything inside together or not at all; it is durable when the block ends.

        Other threads wait meanwhile. A transaction inside a transaction is part of the outer one. Claims in
        `burnt` are durable at once and are not undone.
        """
        with self._store.transaction():
            yield self

    def close(self) -> None:
        """Let go of the folder."""
        self._store.close()
        self._once.close()
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> tuple[str, int, bool]:
        """Return id and epoch, and whether they are new because the state was restored.

        An epoch is the second in which it began, or the one after the last known: a backup restored twice,
        even on an empty machine, does not begin the same epoch twice.
        """
        store, once = self._store, self._once
        known, last = store.fact("incarnation"), int(store.fact("epoch") or 0)
        if known is not None and known == once.incarnation and once.progress <= store.changes:
            return known, last, False
        restored = known is not None or once.existed
        epoch = max(last + 1, once.epoch + 1, int(time.time()))
        # first the file, then the database: after a crash between them they differ, and a new epoch begins
        incarnation = once.begin(epoch)
        with store.transaction():
            store.set_facts(incarnation=incarnation, epoch=str(epoch))
            store.run("DELETE FROM replies")
            store.run(
                "INSERT OR REPLACE INTO notes (scope, name, value) "
                "SELECT ?, name, CASE instr(name, '/') WHEN 0 THEN value ELSE x'' END "
                "FROM notes WHERE scope = ?",
                (INTERRUPTED, SESSION),
            )
            store.run("DELETE FROM notes WHERE scope = ?", (SESSION,))
        return incarnation, epoch, restored


def peek(folder: str | Path, scope: str, name: str) -> bytes | None:
    """Return a note of a state, even while a service has it open; None if there is none."""
    path = Path(folder) / DATABASE
    if not path.is_file():
        return None
    # without these files nobody has it open, and it can be read as it lies, by whoever may read it
    open_somewhere = any(path.with_name(DATABASE + end).exists() for end in ("-wal", "-shm"))
    address = f"{path.absolute().as_uri()}?{'mode=ro' if open_somewhere else 'immutable=1'}"
    question = "SELECT value FROM notes WHERE scope = ? AND name = ?"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=10)) as store:
            rows = store.execute(question, (scope, name)).fetchall()
    except sqlite3.Error as error:
        raise FileError(f"{path}: the state cannot be read ({error}).") from None
    return bytes(rows[0][0]) if rows else None


def _lock(folder: Path) -> int:
    """Take the folder for this process, or say who has it."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        os.close(handle)
        by = f" by process {holder}" if holder.isdigit() else ""
        raise FileError(f"{folder}: is in use{by}; one process at a time has a state folder.") from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle
