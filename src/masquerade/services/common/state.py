"""Durable state of a service, and detection of states that were restored from a backup.

A state folder belongs to one process at a time. `state.sqlite` contains stored replies and notes; changes are
durable when a method returns. The folder `once/` next to it contains keys that may be used only once (burnt
keys). It is excluded from backups: in a restored copy, keys that were used since would count as unused.

An anchor in `once/` (`services.common.anchor`) detects that any of these files was restored. Then a new epoch
starts: replies are deleted, open sessions are interrupted, and burnt keys stay burnt. Only a snapshot of the
whole disk cannot be detected here; a peer's receipt of the release ledger reveals it.

To restore, copy everything but `once/` into an empty folder. Take `state.sqlite` from a backup made by SQLite
itself: SQLite would apply a log (`state.sqlite-wal`) from a different time to a plain copy.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import sync_folder, write_whole
from masquerade.core.util.private_file import check_own_folder
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.wire.durable_store import Claim, Claims, DurableStore, Layout, Notes
from masquerade.services.common.anchor import Anchor, generation_of

DATABASE: Final = "state.sqlite"
ONCE: Final = "once"
SESSION: Final = "session"
INTERRUPTED: Final = "interrupted"
MOST_REPLIES: Final = 100_000
MOST_REPLY_BYTES: Final = 1 << 29
MOST_PASSING_BYTES: Final = 1 << 26  # most bytes of a peer's passing replies, not counting the newest
BURNT: Final = "burnt.sqlite"
INCARNATION, PROGRESS = "incarnation", "progress"  # files of the first version, which had no anchor
STATE, KEYS = "state", "burnt"  # names of databases in an anchor
_MOST_READS: Final = 20
CHANGES, EPOCH = "changes", "epoch of a state"
TAG: Final = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Used keys are remembered here. Never restore this folder from a backup.\n"
)


class StoredReply(NamedTuple):
    """The reply to a request, and the digest of the request's body."""

    place: str
    body_digest: bytes | str
    status: int
    reply: bytes


class ReplyStore:
    """Replies by peer and idempotency key, so that a repeated request does nothing twice.

    Each peer has its own limits, so that no peer's requests displace another's. Beyond `most_bytes` the bytes
    of a peer's oldest replies are deleted, but not the fact that they were sent: a repeated request is then
    refused (`KeySpent`) rather than handled a second time. These facts are deleted only beyond `most`
    replies, the oldest first.

    A `passing` reply is useless after a crash: only the fact that it was sent is durable. Its bytes are in
    memory until later replies displace them.
    """

    TABLES: ClassVar[str] = """
CREATE TABLE replies (
    turn INTEGER PRIMARY KEY AUTOINCREMENT, peer TEXT NOT NULL, key TEXT NOT NULL, place TEXT NOT NULL,
    body_digest BLOB NOT NULL, status INTEGER NOT NULL, size INTEGER NOT NULL, kept REAL NOT NULL, reply BLOB,
    UNIQUE (peer, key)
);
CREATE INDEX replies_in_turn ON replies (peer, turn);
CREATE INDEX replies_with_bytes ON replies (peer, turn) WHERE reply IS NOT NULL;
-- number and bytes of each peer's replies, updated by triggers so that limits are checked without a scan
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

    def __init__(
        self, store: DurableStore, *, most: int = MOST_REPLIES, most_bytes: int = MOST_REPLY_BYTES
    ) -> None:
        self._store, self._most, self._most_bytes = store, most, most_bytes
        self._passing: dict[str, dict[str, StoredReply]] = {}  # replies by peer and key, the oldest first
        self._guard = threading.Lock()

    @classmethod
    def in_memory(cls, longest: int) -> ReplyStore:
        """Return a store of the latest replies in memory, for a service without a state folder."""
        layout = Layout("a store of replies", "the replies", b"mqrp", cls.TABLES)
        return cls(DurableStore(None, layout), most=256, most_bytes=max(64 << 20, longest))

    def find(self, peer: str, key: str) -> StoredReply | None:
        """Return the reply to a peer's key, None if there is none.

        Raises
        ------
        KeySpent
            If the request was answered, and the reply is no longer stored.
        """
        rows = self._store.run(
            "SELECT place, body_digest, status, reply FROM replies WHERE peer = ? AND key = ?", (peer, key)
        )
        if not rows:
            return None
        place, digest, status, reply = rows[0]
        if reply is not None:
            return StoredReply(place, digest, status, bytes(reply))
        with self._guard:
            passing = self._passing.get(peer, {}).get(key)
        if passing is None:
            raise KeySpent("This request was answered before, and the answer is no longer kept.")
        return passing

    def keep(  # noqa: PLR0917  (a row of the table)
        self,
        peer: str,
        key: str,
        place: str,
        body_digest: bytes | str,
        status: int,
        reply: bytes,
        *,
        passing: bool = False,
    ) -> None:
        """Store a reply durably before it is sent; of a `passing` reply, only the fact that it was sent.

        Parameters
        ----------
        peer, key, place : str
            Caller, idempotency key and path of the request.
        body_digest : bytes or str
            Digest of the request's body.
        status : int
            HTTP status of the reply.
        reply : bytes
            Body of the reply.
        passing : bool, optional
            Keep the bytes in memory only.

        Raises
        ------
        KeySpent
            If the key was used before, for another request or with a different reply.
        InputError
            If the reply is too long.
        """
        if len(reply) > self._most_bytes:
            raise InputError(
                f"A reply of {len(reply)} bytes cannot be stored: the limit is {self._most_bytes}."
            )
        with self._store.transaction():
            before = self.find(peer, key)
            if before is not None:
                if before != (place, body_digest, status, reply):
                    raise KeySpent("This request was answered before, with a different reply.")
                return
            kept = None if passing else bytes(reply)
            self._store.run(
                "INSERT INTO replies (peer, key, place, body_digest, status, reply, size, kept) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (peer, key, place, body_digest, status, kept, len(kept or b""), 0.0),  # `kept` is unused
            )
            self._make_room(peer)
        if passing:
            self._let_pass(peer, key, StoredReply(place, body_digest, status, bytes(reply)))

    def forget(self, place: str) -> None:
        """Delete the replies of a path and the paths below it; repeated requests are then refused."""
        below = f"{place}/"
        with self._guard:
            for peer, passing in self._passing.items():
                self._passing[peer] = {
                    key: it for key, it in passing.items() if not f"{it.place}/".startswith(below)
                }
        with self._store.transaction():
            self._store.run(
                "UPDATE replies SET reply = NULL, size = 0 "
                "WHERE reply IS NOT NULL AND (place = ? OR substr(place, 1, ?) = ?)",
                (place, len(below), below),
            )
        self._store.empty_log()  # SQLite's log would still contain the deleted pages

    def _let_pass(self, peer: str, key: str, given: StoredReply) -> None:
        """Keep the bytes of a passing reply in memory; delete the oldest beyond the limit."""
        with self._guard:
            passing = self._passing.setdefault(peer, {})
            size = sum(len(it.reply) for it in passing.values())
            for oldest in list(passing):
                if size <= MOST_PASSING_BYTES:
                    break
                size -= len(passing.pop(oldest).reply)
            passing[key] = given

    def _make_room(self, peer: str) -> None:
        """Delete a peer's oldest replies until both limits hold."""
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


LAYOUT: Final = Layout(
    "the state of a service",
    "the state",
    b"masq",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;\n"
    + Notes.TABLE
    + ReplyStore.TABLES,
    remedy="Restore state.sqlite from a backup, without once/.",
)


class State:
    """The state of one service; `open` it, and `close` it (or use it in a with statement).

    Attributes
    ----------
    epoch : int
        Time in seconds at which the current epoch started; it increases with every restore.
    incarnation : str
        Random id of the epoch.
    restored : bool
        Whether a restore was detected since the state was opened.
    problem : str
        The reason to consider the state restored, or empty.
    notes : Notes
        Durable values by scope and name.
    replies : ReplyStore
        Stored replies.
    burnt : Claims
        Keys that may be used only once.
    """

    def __init__(self, folder: Path, store: DurableStore, once: OnceFolder, lock: int) -> None:
        self.folder = folder
        self.burnt = once.burnt
        self.notes, self.replies = Notes(store), ReplyStore(store)
        self._store, self._once, self._lock = store, once, lock
        self._changes = int(self._fact(CHANGES) or 0)
        store.committing, store.committed = self._count, self._add_one
        self.incarnation, self.epoch, self.problem = self._begin()
        once.follow(store, lambda: self._changes)

    @classmethod
    def open(cls, folder: str | Path) -> State:
        """Open a state folder; create it if it does not exist.

        After a restore, notes of scope "session" are moved to the scope "interrupted". Notes below a session
        ("name/…", such as its pseudonyms) keep only their names; their content is deleted.

        Raises
        ------
        FileError
            If the folder is in use, damaged, or of a newer version.
        """
        _unix_files()
        place = Path(folder)
        with ExitStack() as undo:
            try:
                _make_folder(place)
                lock = _lock(place)
                undo.callback(os.close, lock)
                store = DurableStore(place / DATABASE, LAYOUT)
                undo.callback(store.close)
                once = OnceFolder(place / ONCE)
                undo.callback(once.close)
                state = cls(place, store, once, lock)
            except OSError as error:
                reason = (error.strerror or "input/output error").lower()
                raise FileError(f"{place}: cannot be used as a state folder ({reason}).") from None
            undo.pop_all()
        return state

    def transaction(self) -> AbstractContextManager[object]:
        """Run the block as one transaction, which is durable when the block ends.

        Other threads wait until then. A nested transaction is part of the outer one. Claims in `burnt` are
        durable immediately and are not rolled back.
        """
        return self._store.transaction()

    def close(self) -> None:
        """Close the files, and unlock the folder."""
        self._store.close()
        self._once.close()
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fact(self, name: str) -> str | None:
        found = self._store.value("SELECT value FROM facts WHERE name = ?", (name,))
        return None if found is None else str(found)

    def _set_facts(self, **facts: object) -> None:
        items = [(name, str(value)) for name, value in facts.items()]
        self._store.run_all("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", items)

    @property
    def restored(self) -> bool:
        """Return True if a restore was detected since the state was opened."""
        return bool(self.problem)

    def watch(self, name: str, store: DurableStore, count: Callable[[], int]) -> bool:
        """Anchor the changes of another database of the folder.

        Parameters
        ----------
        name : str
            Name of the database in the anchor.
        store : DurableStore
            The database.
        count : callable
            Returns its number of changes, which must never decrease.

        Returns
        -------
        bool
            False if changes are missing: the database was restored, and the caller must call `begin_anew`.
        """
        return self._once.watch(name, store, count)

    def begin_anew(self, problem: str) -> None:
        """Start a new epoch because a restore was detected, for the reason `problem`."""
        self.incarnation, self.epoch, self.problem = self._new_epoch(problem)

    def _count(self) -> None:
        """Store the number of the transaction that is about to be committed."""
        self._set_facts(**{CHANGES: self._changes + 1})

    def _add_one(self) -> None:
        self._changes += 1

    def _begin(self) -> tuple[str, int, str]:
        """Return the id and the number of the epoch, and the reason to consider the state restored."""
        incarnation, last = self._fact(INCARNATION), int(self._fact("epoch") or 0)
        if incarnation is None:
            return self._new_epoch("its database is missing" if self._once.used else "")
        problem = self._once.problem(incarnation, self._changes)
        return self._new_epoch(problem) if problem else (incarnation, last, "")

    def _new_epoch(self, problem: str) -> tuple[str, int, str]:
        """Start an epoch, numbered by the current time in seconds, or by the last known epoch plus one.

        Thanks to the time, a backup that is restored twice, even on an empty machine, does not start the same
        epoch twice.
        """
        store, last = self._store, int(self._fact("epoch") or 0)
        epoch = max(last + 1, self._once.epoch + 1, int(time.time()))
        # the anchor first: after a crash between the two writes they differ, and a new epoch starts
        incarnation = self._once.begin(epoch, self._changes)
        with store.transaction():
            self._set_facts(incarnation=incarnation, epoch=epoch)
            store.run("DELETE FROM replies")
            store.run(
                "INSERT OR REPLACE INTO notes (scope, name, value) "
                "SELECT ?, name, CASE instr(name, '/') WHEN 0 THEN value ELSE x'' END "
                "FROM notes WHERE scope = ?",
                (INTERRUPTED, SESSION),
            )
            store.run("DELETE FROM notes WHERE scope = ?", (SESSION,))
        return incarnation, epoch, problem


class OnceFolder:
    """Keys that may be used only once, kept outside backups.

    The folder contains used keys (`burnt.sqlite`) and the anchor of the state (two files `anchor-…`). A
    CACHEDIR.TAG asks backup programs to skip it; if it is restored nevertheless, the anchor detects that.
    """

    def __init__(self, folder: Path) -> None:
        _make_folder(folder)
        if not (folder / "CACHEDIR.TAG").exists():
            write_whole(folder / "CACHEDIR.TAG", TAG)
        self._folder, self.anchor = folder, Anchor(folder)
        self._store = DurableStore(folder / BURNT, Claims.ALONE)
        self.burnt = Claims(self._store)

    @property
    def used(self) -> bool:
        """Return True if the state has changed since this folder was created for it."""
        changed = any(step.counts.get(STATE, 0) for step in self.anchor.steps)
        claimed = "SELECT count(*) FROM claimed WHERE kind <> ?"
        return changed or (self._folder / INCARNATION).exists() or bool(self._store.value(claimed, (EPOCH,)))

    @property
    def epoch(self) -> int:
        """Return the last epoch in which the folder was used, 0 if it is unknown."""
        return max([step.epoch for step in self.anchor.steps], default=self._read_first_version()[1])

    def problem(self, incarnation: str, changes: int) -> str:
        """Return the reason to consider the state restored, as text; empty if there is none."""
        if not self.anchor.untouched and self._adopt_first_version(incarnation, changes):
            return ""
        reason = self.anchor.problem(incarnation, {STATE: changes, KEYS: self._burnt()}, exact=[STATE])
        if not reason and self.burnt.find(EPOCH, incarnation.encode()) is None:
            reason = f"{BURNT} belongs to another epoch of this state"
        return reason

    def begin(self, epoch: int, changes: int) -> str:
        """Anchor a state with the given number of changes in a new epoch, and return the epoch's id."""
        return self._write_anchor(secrets.token_hex(16), epoch, changes)

    def _write_anchor(self, chosen: str, epoch: int, changes: int) -> str:
        last = self.anchor.last
        if self.burnt.find(EPOCH, chosen.encode()) is None:
            self.burnt.claim([Claim(EPOCH, chosen.encode())])
        # the larger number, so that the folder still counts as used after a crash before the state has the id
        least = 0 if last is None else last.counts.get(STATE, 0)
        self.anchor.begin(chosen, epoch, {STATE: max(changes, least), KEYS: self._burnt()})
        return chosen

    def follow(self, state: DurableStore, changes: Callable[[], int]) -> None:
        """Anchor every change of the state and of the used keys from now on."""
        self.watch(STATE, state, changes)
        self.watch(KEYS, self._store, self._burnt)

    def watch(self, name: str, store: DurableStore, count: Callable[[], int]) -> bool:
        """Anchor every change of a database from now on; as `State.watch`."""
        last = self.anchor.last
        is_complete = last is None or count() >= last.counts.get(name, 0)
        before, after = store.committing, store.committed

        def committing() -> None:
            self.anchor.catch_up()
            before()

        def committed() -> None:
            after()
            self.anchor.advance(name, count())

        store.committing, store.committed = committing, committed
        self.anchor.advance(name, count())
        return is_complete

    def _burnt(self) -> int:
        return int(self._store.value("SELECT max(place) FROM claimed") or 0)

    def _adopt_first_version(self, incarnation: str, changes: int) -> bool:
        """Anchor a state of the first version, unless its files show that it was restored."""
        expected, epoch, progress = self._read_first_version()
        if expected != incarnation or progress > changes:
            return False
        self._write_anchor(incarnation, epoch, changes)
        for name in (INCARNATION, PROGRESS):
            (self._folder / name).unlink()
        return True

    def _read_first_version(self) -> tuple[str | None, int, int]:
        """Return id, epoch and number of changes of the first version; None, 0 and 0 without its files."""
        try:
            chosen, epoch = (self._folder / INCARNATION).read_text("ascii").split()
            progress = (self._folder / PROGRESS).read_bytes()
            marks = [_body(self._folder / INCARNATION, written_to=False)]
            marks.append(_body(self._folder / BURNT, written_to=True))
            bound_id = "/".join([chosen, *marks]) if len(progress) == 8 else None
            return bound_id, int(epoch), int.from_bytes(progress, "big")
        except (FileNotFoundError, ValueError):
            return None, 0, 0

    def close(self) -> None:
        """Close the files."""
        self.burnt.close()


def peek(folder: str | Path, scope: str, name: str) -> bytes | None:
    """Return a note of a state that a service may have open, None if there is none."""
    return Notes.peek(Path(folder) / DATABASE, scope, name)


def peek_problem(folder: str | Path) -> str | None:
    """Return the reason to consider a state restored; a service may have the state open.

    The result is empty if there is no such reason, and None if it is unknown: the folder is of the first
    version.
    """
    place = Path(folder)
    if (place / ONCE / INCARNATION).exists():
        return None
    reason = ""
    for _ in range(_MOST_READS):  # a service may change its files while they are read in sequence
        anchor = Anchor(place / ONCE)
        reason = _compare_files(place, anchor)
        if not reason or Anchor(place / ONCE).last == anchor.last:
            break
    return reason


def _compare_files(place: Path, anchor: Anchor) -> str:
    """Return the reason to consider a state restored, from its files alone; empty if there is none."""
    facts = {
        name: DurableStore.peek(place / DATABASE, "SELECT value FROM facts WHERE name = ?", (name,))
        for name in (INCARNATION, CHANGES)
    }
    incarnation = str(facts[INCARNATION][0][0]) if facts[INCARNATION] else ""
    burnt = place / ONCE / BURNT
    most, epochs = (
        DurableStore.peek(burnt, *question)
        for question in (
            ("SELECT max(place) FROM claimed",),
            ("SELECT 1 FROM claimed WHERE kind = ? AND name = ?", (EPOCH, incarnation.encode())),
        )
    )
    counts = {STATE: int(facts[CHANGES][0][0]) if facts[CHANGES] else 0, KEYS: most[0][0] or 0 if most else 0}
    reason = anchor.problem(incarnation, counts, exact=[STATE])
    return reason or ("" if epochs else f"{BURNT} belongs to another epoch of this state")


def peek_claims(folder: str | Path, kind: str) -> list[bytes]:
    """Return the burnt keys of a kind in a state folder, oldest first; a service may have it open."""
    file = Path(folder) / ONCE / BURNT
    return Claims.peek(file, kind) if file.is_file() else []


def _unix_files() -> Any:
    """Return the module `fcntl`; raise FileError on Windows, which lacks it."""
    try:
        import fcntl  # noqa: PLC0415  (not on Windows)
    except ImportError:
        raise FileError("Services need Linux or macOS; people's devices and the library do not.") from None
    return fcntl


def lock_file(handle: int) -> None:
    """Lock an open file for this process; raise BlockingIOError if another process has it."""
    calls = _unix_files()
    calls.flock(handle, calls.LOCK_EX | calls.LOCK_NB)


def _lock(folder: Path) -> int:
    """Lock the folder for this process; raise FileError with the id of the process that has it."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        lock_file(handle)
    except BlockingIOError:
        holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        os.close(handle)
        by = f" by process {holder}" if holder.isdigit() else ""
        raise FileError(f"{folder}: is in use{by}; one process at a time can use a state folder.") from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def _body(path: Path, *, written_to: bool) -> str:
    """Return the identity of a file by which the first version detected copies: inode and generation.

    On file systems without generations, the change time of the inode is used instead if the file is never
    written to. This time cannot be set, but changing owner or mode changes it, which looks like a restore.
    """
    with path.open("rb") as stream:
        inode, generation = os.fstat(stream.fileno()), generation_of(stream.fileno())
        if generation is not None:
            return f"{inode.st_ino}.{generation}"
        return f"{inode.st_ino}" if written_to else f"{inode.st_ino}.{inode.st_ctime_ns}"


def _make_folder(folder: Path) -> None:
    """Create a folder that only its owner can enter; if it exists, check that only the owner can write."""
    if folder.is_dir():
        check_own_folder(folder, "a state folder")
        return
    folder.mkdir(mode=0o700)
    sync_folder(folder.absolute().parent)
