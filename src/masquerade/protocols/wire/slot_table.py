"""Records of equal size at random positions of an SQLite table, which does not show their order of arrival.

SQLite writes rows into a page in sequence, whatever their keys are: the bytes of a page, of an index and of a
write-ahead log show which row was written first, and two tables that grow together can be joined by this
order. A `SlotTable` has all its rows from the start. A row (slot) is a number and a blob of fixed size, free
or used. A record overwrites the blob of a random free slot with the same number of bytes: SQLite then changes
only these bytes of the file. There is no index, and no journal (`DurableStore.overwriting`). If too few slots
are free, or a record is too long, the table is written again with more or larger slots, all records at new
random positions.

A blob starts with a checksum. After a power failure, a partly written record counts as a free slot.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Final

from masquerade.core.errors import FileError, InputError
from masquerade.protocols.wire.durable_store import DurableStore

FIRST_SLOTS: Final = 1024
_GROWTH: Final = 4  # 10,000 records in a burst are moved at most twice, most of them once
MOST_RECORD_BYTES: Final = 1 << 24
_STEP: Final = 32  # sizes are multiples of this number, so that a slightly longer record needs no new table
_CHECK_BYTES: Final = 8
_EMPTY: Final = bytes(_CHECK_BYTES)
_LENGTH: Final = struct.Struct(">I")
_AT_ONCE: Final = 10_000  # rows per read
_chance: Final = secrets.SystemRandom()


class SlotTable:
    """The slots of one table of an open file.

    `load` reads all records. Call it first, and again after a failed transaction or a transaction of another
    process. All methods are called within a transaction of the store.
    """

    def __init__(self, store: DurableStore, name: str) -> None:
        self._store, self._name = store, name
        self._size, self._slots = 0, 0
        self._free: list[int] = []

    @staticmethod
    def table(name: str) -> str:
        """Return the SQL that makes the table, which has no slots yet."""
        return f"CREATE TABLE {name} (place INTEGER PRIMARY KEY, content BLOB NOT NULL);\n"

    def load(self) -> list[tuple[int, bytes]]:
        """Return the position and content of every record, and note the free slots."""
        records: list[tuple[int, bytes]] = []
        self._free, self._slots, self._size = [], 0, 0
        for place, content in self._rows():
            if (
                place != self._slots + 1
                or len(content) % _STEP
                or len(content) != (self._size or len(content))
            ):
                raise FileError(f"{self._store.path}: is damaged: its slots are not of one size.")
            self._size, self._slots = len(content), self._slots + 1
            record = _record_in(content)
            if record is None:
                self._free.append(place)
            else:
                records.append((place, record))
        return records

    def read(self, place: int) -> bytes:
        """Return one record."""
        content = self._store.value(f"SELECT content FROM {self._name} WHERE place = ?", (place,))  # noqa: S608
        record = _record_in(content) if isinstance(content, bytes) else None
        if record is None:
            raise InputError("this slot is free")
        return record

    def has_room(self, number: int, longest: int) -> bool:
        """Return True if `number` further records of at most `longest` bytes fit."""
        return number <= len(self._free) and _size_for(longest) <= self._size

    def make_room(self, number: int, longest: int) -> None:
        """Write a larger table if records do not fit; this needs a transaction with a journal."""
        if self.has_room(number, longest):
            return
        records = [record for _, record in self.load()]
        slots = max(FIRST_SLOTS, self._slots)
        while slots < len(records) + number:
            slots *= _GROWTH
        size = max(_size_for(longest), self._size)
        at = dict(zip(_chance.sample(range(1, slots + 1), len(records)), records, strict=True))
        name, empty = self._name, bytes(size)
        self._store.run(f"DELETE FROM {name}")  # noqa: S608  (our own names)
        self._store.run_all(
            f"INSERT INTO {name} VALUES (?, ?)",  # noqa: S608
            ((i, _content_of(at[i], size) if i in at else empty) for i in range(1, slots + 1)),
        )
        self._size, self._slots = size, slots
        self._free = [i for i in range(1, slots + 1) if i not in at]

    def add(self, records: Sequence[bytes]) -> list[int]:
        """Write records into random free slots; return their positions."""
        places = []
        for _ in records:
            i = secrets.randbelow(len(self._free))
            self._free[i], self._free[-1] = self._free[-1], self._free[i]
            places.append(self._free.pop())
        self.replace(zip(places, records, strict=True))
        return places

    def replace(self, records: Iterable[tuple[int, bytes]]) -> None:
        """Overwrite the records in some slots."""
        rows = [(_content_of(record, self._size), place) for place, record in records]
        self._store.run_all(f"UPDATE {self._name} SET content = ? WHERE place = ?", rows)  # noqa: S608

    def clear(self) -> None:
        """Overwrite every slot with zeros."""
        self._store.run(f"UPDATE {self._name} SET content = ?", (bytes(self._size),))  # noqa: S608
        self._free = list(range(1, self._slots + 1))

    def _rows(self) -> Iterator[tuple[int, bytes]]:
        """Yield all slots, read in portions: two copies of the table may not fit into memory."""
        last, rows = 0, [(0, b"")]
        while rows:
            rows = self._store.run(
                f"SELECT place, content FROM {self._name} WHERE place > ? ORDER BY place LIMIT {_AT_ONCE}",  # noqa: S608
                (last,),
            )
            for place, content in rows:
                if not isinstance(content, bytes):  # if the header of a row is damaged, its type may change
                    raise FileError(f"{self._store.path}: is damaged: a slot does not contain bytes.")
                yield int(place), content
            last = rows[-1][0] if rows else 0


def _size_for(longest: int) -> int:
    """Return the size of slots for records of up to `longest` bytes."""
    if longest > MOST_RECORD_BYTES:
        raise InputError(f"A record has at most {MOST_RECORD_BYTES:,} bytes.")
    return -(-(_CHECK_BYTES + _LENGTH.size + longest) // _STEP) * _STEP


def _content_of(record: bytes, size: int) -> bytes:
    """Return the content of a slot: checksum, length, record, zeros."""
    body = (_LENGTH.pack(len(record)) + record).ljust(size - _CHECK_BYTES, b"\0")
    return blake2b(body, digest_size=_CHECK_BYTES).digest() + body


def _record_in(content: bytes) -> bytes | None:
    """Return the record in a slot, None if the slot is free."""
    if content.startswith(_EMPTY):
        return None
    check, body = content[:_CHECK_BYTES], content[_CHECK_BYTES:]
    if blake2b(body, digest_size=_CHECK_BYTES).digest() != check:
        return None
    (length,) = _LENGTH.unpack_from(body)
    return body[_LENGTH.size : _LENGTH.size + length]
