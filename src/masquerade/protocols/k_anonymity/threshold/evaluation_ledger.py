"""Ledger of the credentials that a randomness server has served per epoch, without their order."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from masquerade.core.errors import InputError
from masquerade.protocols.wire.durable_store import DurableStore, Layout
from masquerade.protocols.wire.slot_table import SlotTable

_HEAD: Final = struct.Struct(">QB")  # number of the epoch, length of the credential
_EVALUATIONS: Final = Layout(
    "the ledger of a randomness server",
    "the ledger",
    b"mqev",
    """CREATE TABLE epochs (number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL,
       notice BLOB NOT NULL, finished INTEGER NOT NULL DEFAULT 0);
    """
    + SlotTable.table("slots"),
    version=2,
    steps={0: "", 1: "ALTER TABLE uses RENAME TO earlier_uses;\n" + SlotTable.table("slots")},
    unmarked=frozenset({"epochs", "uses"}),
    log=False,
)


class EvaluationLedger:
    """Durable record of a randomness server's epochs and of the credentials spent in each; it has no keys.

    Changes are durable before a call returns; without a path they are in memory. The file does not reveal the
    order of requests. Cost: one sync for each call of `spend`, whatever the number of uses, and 15 to 50 µs
    for each use, more if the file has to grow.

    >>> import os
    >>> server = mq.people.RandomnessServer(os.urandom(32), mq.people.EvaluationLedger())
    >>> len(server.identity)
    32
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.store = self._store = DurableStore(path, _EVALUATIONS)
        self._slots = SlotTable(self._store, "slots")
        self._marks: dict[tuple[int, bytes], bytes] = {}  # by number of the epoch and credential
        self._spent: Counter[int] = Counter()  # by number of the epoch
        self._seen: int | None = None
        try:
            self._take_over_uses()
        except BaseException:
            self._store.close()
            raise

    def changes(self) -> int:
        """Return the number of epochs, closed epochs and spent credentials; it never decreases."""
        epochs = "SELECT count(*) + coalesce(sum(finished), 0) FROM epochs"
        if self._seen is None:
            with self._store.transaction():
                self._refresh()
        return int(self._store.value(epochs)) + self._spent.total()

    def begin(self, epoch: str, notice: bytes) -> bool:
        """Record a new epoch and its notice.

        Parameters
        ----------
        epoch : str
            Name of the epoch.
        notice : bytes
            The encoded notice.

        Returns
        -------
        bool
            False if the name was used before.
        """
        line = "INSERT OR IGNORE INTO epochs (name, notice) VALUES (?, ?)"
        with self._store.transaction():
            return self._store.run_all(line, [(epoch, notice)]) == 1

    def notice(self, epoch: str) -> bytes | None:
        """Return the notice of an epoch, or None if the epoch is unknown."""
        found = self._store.value("SELECT notice FROM epochs WHERE name = ?", (epoch,))
        return None if found is None else bytes(found)

    def epochs(self) -> dict[str, bytes]:
        """Return the notices of all epochs by name, oldest first."""
        rows = self._store.run("SELECT name, notice FROM epochs ORDER BY number")
        return {str(name): bytes(notice) for name, notice in rows}

    def spend(self, epoch: str, uses: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Record the use of credentials, in one transaction.

        Parameters
        ----------
        epoch : str
            Name of the epoch.
        uses : sequence of (bytes, bytes)
            Credential and fingerprint of each request.

        Returns
        -------
        list of bool
            True if the credential is used for the first time in the epoch, or again with the same
            fingerprint.
        """
        number = self._number(epoch)
        if not number:
            raise InputError(f"There has been no epoch {epoch!r}.")
        try:
            while True:
                with self._store.overwriting():
                    self._refresh()
                    new = self._first_of(number, uses)
                    records = [_record(*key, mark) for key, mark in new.items()]
                    longest = max(map(len, records), default=0)
                    room = not records or self._slots.has_room(len(records), longest)
                    if room:
                        self._slots.add(records)
                        self._marks |= new
                        self._spent[number] += len(new)
                        allowed = [self._marks[number, credential] == mark for credential, mark in uses]
                if room:  # and durable
                    return allowed
                with self._store.transaction():
                    self._refresh()
                    self._slots.make_room(len(records), longest)
        except BaseException:
            self._seen = None  # memory may differ from the file
            raise

    def count_spent(self, epoch: str) -> int:
        """Return the number of credentials that were used in an epoch."""
        with self._store.transaction():
            self._refresh()
            return self._spent[self._number(epoch)]

    def finish(self, epoch: str) -> None:
        """Record that an epoch is closed."""
        with self._store.transaction():
            self._store.run("UPDATE epochs SET finished = 1 WHERE name = ?", (epoch,))

    def finished(self, epoch: str) -> bool:
        """Return True if an epoch is closed."""
        return bool(self._store.value("SELECT finished FROM epochs WHERE name = ?", (epoch,)))

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def _number(self, epoch: str) -> int:
        return int(self._store.value("SELECT number FROM epochs WHERE name = ?", (epoch,)) or 0)

    def _first_of(self, number: int, uses: Sequence[tuple[bytes, bytes]]) -> dict[tuple[int, bytes], bytes]:
        """Return the fingerprints of credentials not yet used in the epoch, the first of each credential."""
        new: dict[tuple[int, bytes], bytes] = {}
        for credential, mark in uses:
            if (number, credential) not in self._marks:
                new.setdefault((number, credential), mark)
        return new

    def _refresh(self) -> None:
        """Read all uses again if another process has written since the last call."""
        version = int(self._store.value("PRAGMA data_version"))
        if version != self._seen:
            self._marks = dict(_use(record) for _, record in self._slots.load())
            self._spent = Counter(number for number, _ in self._marks)
            self._seen = version

    def _take_over_uses(self) -> None:
        """Move the uses of an older file, whose row order was the order of requests, to random slots."""
        earlier = "SELECT 1 FROM sqlite_master WHERE name = 'earlier_uses'"
        with self._store.transaction():
            if not self._store.value(earlier):
                return
            rows = self._store.run("SELECT epoch, credential, mark FROM earlier_uses")
            records = [_record(number, bytes(credential), bytes(mark)) for number, credential, mark in rows]
            self._slots.load()
            if records:
                self._slots.make_room(len(records), max(map(len, records)))
                self._slots.add(records)
            self._store.run("DROP TABLE earlier_uses")
        self._store.run("VACUUM")


def _record(number: int, credential: bytes, mark: bytes) -> bytes:
    """Return a use as it is stored in the file."""
    return _HEAD.pack(number, len(credential)) + credential + mark


def _use(record: bytes) -> tuple[tuple[int, bytes], bytes]:
    """Return the epoch and credential of a use, and its fingerprint."""
    number, length = _HEAD.unpack_from(record)
    end = _HEAD.size + length
    return (number, record[_HEAD.size : end]), record[end:]
