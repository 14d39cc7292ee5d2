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

import os
import secrets
import struct
import threading
import time
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self

from masquerade.core.atomic import sync_folder, write_whole
from masquerade.core.errors import FileError, InputError
from masquerade.core.private_file import check_own_folder
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.durable_store import Claims, DurableStore, Layout, Notes

DATABASE: Final = "state.sqlite"
ONCE: Final = "once"
SESSION: Final = "session"
INTERRUPTED: Final = "interrupted"
MOST_REPLIES: Final = 100_000
MOST_REPLY_BYTES: Final = 1 << 29
MOST_PASSING_BYTES: Final = 1 << 26  # of a peer's passing replies, the newest aside
BURNT: Final = "burnt.sqlite"
INCARNATION: Final = "incarnation"
PROGRESS: Final = "progress"
TAG: Final = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Used keys are remembered here. Never restore this folder from a backup.\n"
)
FS_IOC_GETVERSION: Final = 0x80087601  # Linux: the generation of an inode, new whenever its number is reused


class StoredReply(NamedTuple):
    """What was answered to a request, and to which body."""

    place: str
    body_digest: bytes | str
    status: int
    reply: bytes


class ReplyStore:
    """Answers that were given, by peer and idempotency key, so that a repeated request does nothing twice.

    Each peer has room for so many and so many bytes; nobody's requests push out another's. Beyond, the bytes
    of its oldest answers go, but not the fact that they were given: asked for again they are refused
    (`KeySpent`) rather than worked out a second time. Facts go, oldest first, beyond `most` alone.

    Of a `passing` reply only the fact is on the disk: its bytes are given again while the process lives and
    later ones have not taken their room. It is for what nobody can go on with after a crash.
    """

    TABLES: ClassVar[str] = """
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

    def __init__(
        self, store: DurableStore, *, most: int = MOST_REPLIES, most_bytes: int = MOST_REPLY_BYTES
    ) -> None:
        self._store, self._most, self._most_bytes = store, most, most_bytes
        self._passing: dict[str, dict[str, StoredReply]] = {}  # by peer and key, the oldest first
        self._guard = threading.Lock()

    @classmethod
    def in_memory(cls, longest: int) -> ReplyStore:
        """Return a store for a service without a state: the latest replies, until the process ends."""
        layout = Layout("a store of replies", "the replies", b"mqrp", cls.TABLES)
        return cls(DurableStore(None, layout), most=256, most_bytes=max(64 << 20, longest))

    def find(self, peer: str, key: str) -> StoredReply | None:
        """Return the answer to a peer's key, None if there was none."""
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
        """Keep an answer, or that it was given; that is on the disk when this returns: it may be sent."""
        if len(reply) > self._most_bytes:
            raise InputError(f"A reply of {len(reply)} bytes cannot be kept: at most {self._most_bytes} are.")
        with self._store.transaction():
            before = self.find(peer, key)
            if before is not None:
                if before != (place, body_digest, status, reply):
                    raise KeySpent("This request was answered before, in another way.")
                return
            kept = None if passing else bytes(reply)
            self._store.run(
                "INSERT INTO replies (peer, key, place, body_digest, status, reply, size, kept) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (peer, key, place, body_digest, status, kept, len(kept or b""), time.time()),
            )
            self._make_room(peer)
        if passing:
            self._let_pass(peer, key, StoredReply(place, body_digest, status, bytes(reply)))

    def forget(self, place: str) -> None:
        """Destroy the answers given at a place and below it; asked for again they are refused."""
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
        self._store.empty_log()  # older pages are not left in the log either

    def _let_pass(self, peer: str, key: str, given: StoredReply) -> None:
        """Have the bytes of a passing reply in memory, in place of the oldest beyond the room for them."""
        with self._guard:
            passing = self._passing.setdefault(peer, {})
            size = sum(len(it.reply) for it in passing.values())
            for oldest in list(passing):
                if size <= MOST_PASSING_BYTES:
                    break
                size -= len(passing.pop(oldest).reply)
            passing[key] = given

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

    `epoch` is the second in which this life of the state began, rising with every restore; `incarnation` is
    its random id; `restored` tells that it began just now because the state had been restored. `burnt` is
    the ledger of what may be used once.
    """

    def __init__(self, folder: Path, store: DurableStore, once: OnceFolder, lock: int) -> None:
        self.folder = folder
        self.burnt = once.burnt
        self.notes, self.replies = Notes(store), ReplyStore(store)
        self._store, self._once, self._lock = store, once, lock
        self._changes = int(self._fact("changes") or 0)
        store.committing, store.committed = self._count, self._committed
        self.incarnation, self.epoch, self.restored = self._begin()
        once.reached(self._changes)

    @classmethod
    def open(cls, folder: str | Path) -> State:
        """Open a state folder, made if it does not exist; refuse one in use, damaged, or of a newer version.

        After a restore, notes of scope "session" are found under the scope "interrupted"; of what is below a
        session ("name/…": its pseudonyms, say) only the name is left, its content is destroyed.
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
        """Do everything inside together or not at all; it is durable when the block ends.

        Other threads wait meanwhile. A transaction inside a transaction is part of the outer one. Claims in
        `burnt` are durable at once and are not undone.
        """
        return self._store.transaction()

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

    def _fact(self, name: str) -> str | None:
        found = self._store.value("SELECT value FROM facts WHERE name = ?", (name,))
        return None if found is None else str(found)

    def _set_facts(self, **facts: object) -> None:
        items = [(name, str(value)) for name, value in facts.items()]
        self._store.run_all("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", items)

    def _count(self) -> None:
        """Give the transaction that is about to end its number."""
        self._set_facts(changes=self._changes + 1)

    def _committed(self) -> None:
        self._changes += 1
        self._once.reached(self._changes)

    def _begin(self) -> tuple[str, int, bool]:
        """Return id and epoch, and whether they are new because the state was restored.

        An epoch is the second in which it began, or the one after the last known: a backup restored twice,
        even on an empty machine, does not begin the same epoch twice.
        """
        store, once = self._store, self._once
        known, last = self._fact("incarnation"), int(self._fact("epoch") or 0)
        if known is not None and known == once.incarnation and once.progress <= self._changes:
            return known, last, False
        restored = known is not None or once.existed
        epoch = max(last + 1, once.epoch + 1, int(time.time()))
        # first the file, then the database: after a crash between them they differ, and a new epoch begins
        incarnation = once.begin(epoch)
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
        return incarnation, epoch, restored


class OnceFolder:
    """What may happen only once, kept where no backup brings it back.

    The folder holds used keys (`burnt.sqlite`), a random id of the state beside it (`incarnation`, None where
    it is missing or damaged) and how many changes that state has seen (`progress`). It says by a
    CACHEDIR.TAG, which backup programs know, that it is not to be copied; and the id counts only in the very
    files it was made for (inodes and their generations), so that a copy is noticed all the same.
    """

    def __init__(self, folder: Path) -> None:
        _make_folder(folder)
        if not (folder / "CACHEDIR.TAG").exists():
            write_whole(folder / "CACHEDIR.TAG", TAG)
        self._folder = folder
        self.existed = (folder / INCARNATION).exists()
        emptied = any(not it.exists() or it.stat().st_size == 0 for it in (folder / BURNT, folder / PROGRESS))
        self.burnt = Claims.open(folder / BURNT)
        self.incarnation, self.epoch = self._read()
        if emptied:  # what was burnt, or how far it had come, is lost: this is not the folder it was
            self.incarnation = None
        self._progress = os.open(folder / PROGRESS, os.O_RDWR | os.O_CREAT, 0o600)

    def begin(self, epoch: int) -> str:
        """Write a new id for a new epoch and return it, bound to the files of this folder."""
        if os.fstat(self._progress).st_size != 8:  # before the id: one without the other is a restore
            os.pwrite(self._progress, bytes(8), 0)
            os.fsync(self._progress)
        chosen = secrets.token_hex(16)
        write_whole(self._folder / INCARNATION, f"{chosen} {epoch}\n", private=True)
        self.incarnation, self.epoch = self._bound(chosen), epoch
        return self.incarnation

    def _read(self) -> tuple[str | None, int]:
        """Return the id bound to the files, and its epoch; None and 0 if it is not there or damaged."""
        try:
            chosen, epoch = (self._folder / INCARNATION).read_text("ascii").split()
            return self._bound(chosen), int(epoch)
        except (FileNotFoundError, ValueError):
            return None, 0

    def _bound(self, chosen: str) -> str:
        marker = _body(self._folder / INCARNATION, written_to=False)
        return f"{chosen}/{marker}/{_body(self._folder / BURNT, written_to=True)}"

    @property
    def progress(self) -> int:
        """Return how many changes the state had seen when it was last heard of; 0 if that is not known."""
        found = os.pread(self._progress, 8, 0)
        return int.from_bytes(found, "big") if len(found) == 8 else 0

    def reached(self, changes: int) -> None:
        """Remember the number of changes.

        Not synced: it outlives the process, and after a power failure an older number only means that less
        is noticed. A failure is nothing to report, for the change itself was made.
        """
        with suppress(OSError):
            os.pwrite(self._progress, changes.to_bytes(8, "big"), 0)

    def close(self) -> None:
        """Let go of the files."""
        self.burnt.close()
        if self._progress >= 0:
            os.close(self._progress)
        self._progress = -1


def peek(folder: str | Path, scope: str, name: str) -> bytes | None:
    """Return a note of a state, even while a service has it open; None if there is none."""
    return Notes.peek(Path(folder) / DATABASE, scope, name)


def peek_claims(folder: str | Path, kind: str) -> list[bytes]:
    """Return what is claimed once and for good in a state folder, oldest first, even while it is in use."""
    file = Path(folder) / ONCE / BURNT
    return Claims.peek(file, kind) if file.is_file() else []


def _unix_files() -> Any:
    """Return the module of locks and controls of files, which Windows lacks."""
    try:
        import fcntl  # noqa: PLC0415  (the only part of a service that is not everywhere)
    except ImportError:
        raise FileError("Services need Linux or macOS; people's devices and the library do not.") from None
    return fcntl


def lock_file(handle: int) -> None:
    """Take an open file for this process; `BlockingIOError` if another has it."""
    calls = _unix_files()
    calls.flock(handle, calls.LOCK_EX | calls.LOCK_NB)


def _lock(folder: Path) -> int:
    """Take the folder for this process, or say who has it."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        lock_file(handle)
    except BlockingIOError:
        holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        os.close(handle)
        by = f" by process {holder}" if holder.isdigit() else ""
        raise FileError(f"{folder}: is in use{by}; one process at a time has a state folder.") from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def _body(path: Path, *, written_to: bool) -> str:
    """Return what tells a file from its copies: its inode and that inode's generation.

    Where a file system has no generations, the time of the last change of an inode stands in, for a file that
    is never written to; it cannot be set, but changing owner or mode changes it, which looks like a restore.
    """
    with path.open("rb") as stream:
        found = os.fstat(stream.fileno())
        with suppress(OSError):
            told = _unix_files().ioctl(stream.fileno(), FS_IOC_GETVERSION, b"\0" * 8)
            return f"{found.st_ino}.{struct.unpack('=I4x', told)[0]}"
        return f"{found.st_ino}" if written_to else f"{found.st_ino}.{found.st_ctime_ns}"


def _make_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter, unless it is there and nobody else can write to it."""
    if folder.is_dir():
        check_own_folder(folder, "a state folder")
        return
    folder.mkdir(mode=0o700)
    sync_folder(folder.absolute().parent)
