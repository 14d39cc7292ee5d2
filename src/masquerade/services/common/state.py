"""What a service must still know after a crash, and what it must never believe again after a restore.

A state folder belongs to one process at a time. `state.sqlite` holds stored replies and notes; whatever a
method has accepted is on the disk when it returns. The folder `once/` beside it holds what may happen only
once (burnt keys): brought back from a backup it would offer as unused what was used since, so it is excluded
from backups. An anchor in it (`services.common.anchor`) notices that either of them, or any file of them, was
put back, in whichever way: then the state was restored, and a new epoch begins: replies are forgotten, open
sessions are interrupted, burnt keys stay burnt. A snapshot of a whole disk is the one copy that cannot be
told from the original here: only a peer's receipt of the release ledger shows it.

To restore, bring back everything but `once/` into an empty folder, `state.sqlite` as SQLite's own backup
wrote it; a log (`state.sqlite-wal`) from another time would be mixed into it.
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
MOST_PASSING_BYTES: Final = 1 << 26  # of a peer's passing replies, the newest aside
BURNT: Final = "burnt.sqlite"
INCARNATION, PROGRESS = "incarnation", "progress"  # of the first version, in place of an anchor
STATE, KEYS = "state", "burnt"  # databases, as an anchor calls them
_LOOKS: Final = 20
CHANGES, EPOCH = "changes", "epoch of a state"
TAG: Final = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Used keys are remembered here. Never restore this folder from a backup.\n"
)


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
                (peer, key, place, body_digest, status, kept, len(kept or b""), 0.0),  # nobody needs a time
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
    its random id. `restored` tells that it began just now because the state had been restored, and `problem`
    what showed that. `burnt` is the ledger of what may be used once.
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

    @property
    def restored(self) -> bool:
        """Return True if the state was found to be restored since it was opened."""
        return bool(self.problem)

    def watch(self, name: str, store: DurableStore, count: Callable[[], int]) -> bool:
        """Anchor the changes of another database in the folder; False if some are missing from it now.

        `count` returns how many changes it has seen, and never falls. Where some are missing, it was put
        back: then `begin_anew`.
        """
        return self._once.watch(name, store, count)

    def begin_anew(self, problem: str) -> None:
        """Begin a new epoch because the state turned out to be restored, as `problem` says in words."""
        self.incarnation, self.epoch, self.problem = self._new_epoch(problem)

    def _count(self) -> None:
        """Give the transaction that is about to end its number."""
        self._set_facts(**{CHANGES: self._changes + 1})

    def _add_one(self) -> None:
        self._changes += 1

    def _begin(self) -> tuple[str, int, str]:
        """Return id and epoch, and the reason to take the state for restored."""
        incarnation, last = self._fact(INCARNATION), int(self._fact("epoch") or 0)
        if incarnation is None:
            return self._new_epoch("its database is missing" if self._once.used else "")
        problem = self._once.problem(incarnation, self._changes)
        return self._new_epoch(problem) if problem else (incarnation, last, "")

    def _new_epoch(self, problem: str) -> tuple[str, int, str]:
        """Begin an epoch: the second in which it begins, or the one after the last known.

        So a backup restored twice, even on an empty machine, does not begin the same epoch twice.
        """
        store, last = self._store, int(self._fact("epoch") or 0)
        epoch = max(last + 1, self._once.epoch + 1, int(time.time()))
        # first the anchor, then the database: after a crash between them they differ, and a new epoch begins
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
    """What may happen only once, kept where no backup brings it back.

    The folder holds used keys (`burnt.sqlite`) and the anchor of the state (`anchor-…`, twice). A
    CACHEDIR.TAG tells backup programs that it is not to be copied; a copy is noticed all the same.
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
        """Return True if a state has changed since this folder was made for it."""
        changed = any(step.counts.get(STATE, 0) for step in self.anchor.steps)
        claimed = "SELECT count(*) FROM claimed WHERE kind <> ?"
        return changed or (self._folder / INCARNATION).exists() or bool(self._store.value(claimed, (EPOCH,)))

    @property
    def epoch(self) -> int:
        """Return the last epoch that the folder was used in, 0 if that is not known."""
        return max([step.epoch for step in self.anchor.steps], default=self._read_first_version()[1])

    def problem(self, incarnation: str, changes: int) -> str:
        """Return the reason to take the state for restored, in words; empty if there is none."""
        if not self.anchor.untouched and self._adopt_first_version(incarnation, changes):
            return ""
        reason = self.anchor.problem(incarnation, {STATE: changes, KEYS: self._burnt()}, exact=[STATE])
        if not reason and self.burnt.find(EPOCH, incarnation.encode()) is None:
            reason = f"{BURNT} belongs to another epoch of this state"
        return reason

    def begin(self, epoch: int, changes: int) -> str:
        """Anchor a state that has seen a number of changes in a new epoch, and return the epoch's id."""
        return self._write_anchor(secrets.token_hex(16), epoch, changes)

    def _write_anchor(self, chosen: str, epoch: int, changes: int) -> str:
        last = self.anchor.last
        if self.burnt.find(EPOCH, chosen.encode()) is None:
            self.burnt.claim([Claim(EPOCH, chosen.encode())])
        # the larger number: killed before the state has the id, it is still known that there was one
        least = 0 if last is None else last.counts.get(STATE, 0)
        self.anchor.begin(chosen, epoch, {STATE: max(changes, least), KEYS: self._burnt()})
        return chosen

    def follow(self, state: DurableStore, changes: Callable[[], int]) -> None:
        """Anchor every change of the state and of the used keys from now on."""
        self.watch(STATE, state, changes)
        self.watch(KEYS, self._store, self._burnt)

    def watch(self, name: str, store: DurableStore, count: Callable[[], int]) -> bool:
        """Anchor every change of a database from now on; False if changes are missing from it now.

        `count` returns how many changes it has seen, and never falls.
        """
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
        """Anchor a state of the first version, if its own marks say that it was not put back."""
        expected, epoch, progress = self._read_first_version()
        if expected != incarnation or progress > changes:
            return False
        self._write_anchor(incarnation, epoch, changes)
        for name in (INCARNATION, PROGRESS):
            (self._folder / name).unlink()
        return True

    def _read_first_version(self) -> tuple[str | None, int, int]:
        """Return id, epoch and number of changes as the first version kept them; None, 0 and 0 without."""
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
        """Let go of the files."""
        self.burnt.close()


def peek(folder: str | Path, scope: str, name: str) -> bytes | None:
    """Return a note of a state, even while a service has it open; None if there is none."""
    return Notes.peek(Path(folder) / DATABASE, scope, name)


def peek_problem(folder: str | Path) -> str | None:
    """Return the reason to take a state for restored, in words, even while a service has it open.

    Empty if there is none; None where that cannot be seen, as the folder is of the first version.
    """
    place = Path(folder)
    if (place / ONCE / INCARNATION).exists():
        return None
    reason = ""
    for _ in range(_LOOKS):  # a service may make changes while its files are read one after the other
        anchor = Anchor(place / ONCE)
        reason = _compare_files(place, anchor)
        if not reason or Anchor(place / ONCE).last == anchor.last:
            break
    return reason


def _compare_files(place: Path, anchor: Anchor) -> str:
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
    """Return by what the first version told a file from its copies: its inode and that inode's generation.

    Where a file system has no generations, the time of the last change of an inode stands in, for a file that
    is never written to; it cannot be set, but changing owner or mode changes it, which looks like a restore.
    """
    with path.open("rb") as stream:
        inode, generation = os.fstat(stream.fileno()), generation_of(stream.fileno())
        if generation is not None:
            return f"{inode.st_ino}.{generation}"
        return f"{inode.st_ino}" if written_to else f"{inode.st_ino}.{inode.st_ctime_ns}"


def _make_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter, unless it is there and nobody else can write to it."""
    if folder.is_dir():
        check_own_folder(folder, "a state folder")
        return
    folder.mkdir(mode=0o700)
    sync_folder(folder.absolute().parent)
