"""Replies that were given, kept so that a repeated request does nothing twice."""

from __future__ import annotations

import time
from typing import ClassVar, Final, NamedTuple

from masquerade.core.errors import InputError
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.durable_store import DurableStore, Layout

MOST_REPLIES: Final = 100_000
MOST_REPLY_BYTES: Final = 1 << 29


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
        self._store.empty_log()  # older pages are not left in the log either

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
