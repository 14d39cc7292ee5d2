"""Reports and invitations of a survey in two SQLite files, neither of which keeps the order of arrival.

`reports.sqlite` has one slot per report (`SlotTable`): id, token and codes in one record in a random slot.
Only the id and the token of a withdrawn report remain. Reports per day are counted in another table. Ids and
tokens are looked up in memory: an index in the file would be filled in the order of arrival.

`invitations.sqlite` has one row per invitation as soon as it is made, in the order of digests. The element
that an invitation is exchanged for overwrites bytes of that row, and moves none.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from masquerade.core.errors import FileError, InputError
from masquerade.protocols.wire.durable_store import DurableStore, Layout
from masquerade.protocols.wire.slot_table import SlotTable

Key = tuple[str, int, str]  # policy, mode, codes as text
ID_BYTES: Final = 16
_KEPT, _WITHDRAWN = 1, 2
_HEAD: Final = struct.Struct(
    f">BB{ID_BYTES}s{ID_BYTES}sBH"
)  # state, has token, id, token, mode, policy's bytes
_DAY: Final = struct.Struct(">10sQ")
_CHECK_BYTES: Final = 8
_UNUSED: Final = bytes(32 + _CHECK_BYTES)


class NewReport(NamedTuple):
    """A report as it is stored: `content` is its policy, its mode and its codes as text."""

    id: bytes
    token: bytes | None
    content: Key


def _make_report_tables(store: DurableStore) -> None:
    """Convert a file of version 1, with rows in the order of arrival, to slots at random places."""
    tokens = {bytes(name): bytes(token) for token, name in store.run("SELECT token, id FROM spent")}
    days: Counter[str] = Counter()
    records = []
    for name, policy, mode, day, codes in store.run("SELECT id, policy, mode, day, codes FROM reports"):
        days[str(day)] += 1
        content = (str(policy), int(mode), str(codes))
        records.append(_encode(NewReport(bytes(name), tokens.get(bytes(name)), content)))
    for (name,) in store.run("SELECT id FROM withdrawn"):
        records.append(_encode_withdrawn(bytes(name), tokens.get(bytes(name))))
    for table in ("reports", "spent", "withdrawn"):
        store.run(f"DROP TABLE {table}")
    store.run_script(_SLOTS)
    for name, rows in (("slots", records), ("days", [_encode_day(*entry) for entry in days.items()])):
        slots = SlotTable(store, name)
        slots.make_room(len(rows), max(map(len, rows), default=0))
        slots.add(rows)


def _make_invitation_tables(store: DurableStore) -> None:
    """Convert a file of version 1, with exchanges in order of arrival, to rows in the order of digests."""
    exchanged = {bytes(name): bytes(value) for name, value in store.run("SELECT * FROM exchanged")}
    digests = sorted(bytes(name) for (name,) in store.run("SELECT digest FROM invitations"))
    for table in ("exchanged", "invitations"):
        store.run(f"DROP TABLE {table}")
    store.run_script(_INVITATIONS)
    rows = [(name, _mark_of(exchanged[name]) if name in exchanged else _UNUSED) for name in digests]
    store.run_all("INSERT INTO invitations (digest, used_for) VALUES (?, ?)", rows)


_SLOTS: Final = SlotTable.table("slots") + SlotTable.table("days")
_INVITATIONS: Final = (
    "CREATE TABLE invitations (place INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, "
    "used_for BLOB NOT NULL);\n"
)
REPORTS: Final = Layout(
    "the reports of a survey",
    "the reports",
    b"mqsv",
    _SLOTS + "CREATE TABLE versions (policy TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;\n"
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;\n",
    version=2,
    steps={1: _make_report_tables},
    log=False,
)
INVITATIONS: Final = Layout(
    "the invitations of a survey",
    "the invitations",
    b"mqsi",
    _INVITATIONS,
    version=2,
    steps={1: _make_invitation_tables},
    log=False,
)


class _SurveyFile(DurableStore):
    """One of the two files; opening it removes traces of an older layout and of deleted rows."""

    def __init__(self, path: Path, layout: Layout) -> None:
        super().__init__(path, layout)
        self.tidy()

    def tidy(self) -> None:
        """Rewrite the file if it has free pages, which still contain deleted rows."""
        if self.value("PRAGMA freelist_count"):
            self.run("VACUUM")


class FileReports(_SurveyFile):
    """The reports of a survey in a file."""

    def __init__(self, folder: Path) -> None:
        self._slots, self._day_slots = SlotTable(self, "slots"), SlotTable(self, "days")
        self._places: dict[bytes, int] = {}
        self._withdrawn: dict[bytes, int] = {}
        self._spent: dict[bytes, bytes] = {}
        self._days: dict[str, tuple[int, int]] = {}
        self._seen: int | None = None
        super().__init__(folder / "reports.sqlite", REPORTS)

    @contextmanager
    def adding(self, reports: Sequence[NewReport]) -> Iterator[None]:
        """Open a transaction in which these reports can be looked up and stored."""
        longest = max((len(_encode(report)) for report in reports), default=0)
        with self._guard, self._reload_on_failure():
            while True:
                with self.overwriting():
                    self._refresh()
                    if self._has_room(len(reports), longest):
                        yield
                        return
                with self.transaction():
                    self._refresh()
                    self._slots.make_room(len(reports), longest)
                    self._day_slots.make_room(1, _DAY.size)
                    self._seen = None  # the slots of records have changed

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Open a transaction that reads the current state of the file."""
        with self._guard, self._reload_on_failure(), self.transaction():
            self._refresh()
            yield

    @contextmanager
    def removing(self) -> Iterator[None]:
        """Open a transaction in which one report can be withdrawn, or all reports deleted."""
        with self._guard, self._reload_on_failure(), self.overwriting():
            self._refresh()
            yield

    def make_room(self, longest: Key) -> None:
        """Make slots that are large enough for reports of this length."""
        with self.adding([NewReport(bytes(ID_BYTES), bytes(ID_BYTES), longest)]):
            pass

    def find_contents(self, ids: Iterable[bytes]) -> dict[bytes, Key]:
        """Return the contents of the reports with these ids."""
        return {name: _decode(self._slots.read(self._places[name])) for name in ids if name in self._places}

    def find_withdrawn(self, ids: Iterable[bytes]) -> Collection[bytes]:
        """Return the ids whose reports were withdrawn."""
        return {name for name in ids if name in self._withdrawn}

    def find_spent(self, tokens: Iterable[bytes]) -> Mapping[bytes, bytes]:
        """Return the ids of the reports that were sent with these tokens."""
        return {digest: self._spent[digest] for digest in tokens if digest in self._spent}

    def insert(self, reports: Sequence[NewReport], day: str) -> None:
        """Store reports at random places; `adding` has made room."""
        places = self._slots.add([_encode(report) for report in reports])
        for report, place in zip(reports, places, strict=True):
            self._places[report.id] = place
            if report.token is not None:
                self._spent[report.token] = report.id
        self._count(day)

    def remove(self, name: bytes) -> Key | None:
        """Delete a report except its id and token; return its content, or None if the id is unknown."""
        if name not in self._places:
            return None
        place = self._places.pop(name)
        record = self._slots.read(place)
        _, has_token, _, token, *_ = _HEAD.unpack_from(record)
        self._slots.replace([(place, _encode_withdrawn(name, token if has_token else None))])
        self._withdrawn[name] = place
        return _decode(record)

    def clear(self) -> int:
        """Delete all reports; return their number."""
        number = len(self._places)
        self._slots.clear()
        self._day_slots.clear()
        self._seen = None
        return number

    def totals(self) -> tuple[int, int]:
        """Return the number of reports, and of withdrawn reports."""
        return len(self._places), len(self._withdrawn)

    def rows(self) -> Iterator[tuple[bytes, Key]]:
        """Yield id and content of every report."""
        for _, record in self._load():
            state, _, name, *_ = _HEAD.unpack_from(record)
            if state == _KEPT:
                yield name, _decode(record)

    def count_equal(self) -> dict[Key, int]:
        """Return the number of reports of each content."""
        return dict(Counter(content for _, content in self.rows()))

    def days(self) -> dict[str, int]:
        """Return the number of reports that arrived on each day."""
        return {day: number for day, (_, number) in sorted(self._days.items()) if number}

    @contextmanager
    def _reload_on_failure(self) -> Iterator[None]:
        """Read the file again after a failure: memory may be ahead of it."""
        try:
            yield
        except BaseException:
            self._seen = None
            raise

    def _load(self) -> list[tuple[int, bytes]]:
        """Return place and content of every record; raise FileError if one does not have a valid form."""
        records = self._slots.load()
        if not all(_is_whole(record) for _, record in records):
            raise FileError(f"{self.path}: is damaged: a record is not a report.")
        return records

    def _has_room(self, number: int, longest: int) -> bool:
        return self._slots.has_room(number, longest) and self._day_slots.has_room(1, _DAY.size)

    def _refresh(self) -> None:
        """Read the file if another process changed it; call this within a transaction."""
        version = int(self.value("PRAGMA data_version"))
        if version == self._seen:
            return
        self._places, self._withdrawn, self._spent = {}, {}, {}
        for place, record in self._load():
            state, has_token, name, token, *_ = _HEAD.unpack_from(record)
            (self._places if state == _KEPT else self._withdrawn)[name] = place
            if has_token:
                self._spent[token] = name
        self._days = {}
        for place, record in self._day_slots.load():
            if len(record) != _DAY.size or not record[:10].isascii():
                raise FileError(f"{self.path}: is damaged: a record is not a day.")
            day, number = _DAY.unpack(record)
            self._days[day.decode("ascii")] = (place, number)
        self._seen = version

    def _count(self, day: str) -> None:
        """Count the reports of a day; after a crash, uncounted reports go to the day of the next write."""
        arrived = len(self._places) + len(self._withdrawn)
        place, _ = self._days.get(day, (0, 0))
        number = max(0, arrived - sum(count for other, (_, count) in self._days.items() if other != day))
        record = _encode_day(day, number)
        if place:
            self._day_slots.replace([(place, record)])
        else:
            [place] = self._day_slots.add([record])
        self._days[day] = (place, number)


class FileInvitations(_SurveyFile):
    """The invitations to a survey in a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "invitations.sqlite", INVITATIONS)

    def invite(self, digests: Iterable[bytes]) -> None:
        """Store new invitations."""
        with self.transaction():
            rows = [(name, _UNUSED) for name in sorted(digests)]
            self.run_all("INSERT INTO invitations (digest, used_for) VALUES (?, ?)", rows)

    def exchange(self, names: Sequence[bytes], blinded: bytes) -> bool | None:
        """Exchange one of a link's invitations for an element, or find the earlier exchange for this element.

        Returns None if the invitations are unknown, and False if all were used for other elements. The
        invitation is chosen at random: used in sequence, invitations would show the order of arrival.
        """
        holes = ", ".join("?" * len(names))
        with self.overwriting():
            statement = f"SELECT digest, used_for FROM invitations WHERE digest IN ({holes})"  # noqa: S608
            before = {bytes(name): bytes(mark) for name, mark in self.run(statement, names)}
            if not before:
                return None
            mark = _mark_of(blinded)
            if mark in before.values():
                return True
            unused = [name for name, one in before.items() if not _is_mark(one)]
            if not unused:
                return False
            self.run("UPDATE invitations SET used_for = ? WHERE digest = ?", (mark, secrets.choice(unused)))
            return True

    def totals(self) -> tuple[int, int]:
        """Return the number of invitations, and of used invitations."""
        [(number, used)] = self.run("SELECT count(*), total(used_for <> ?) FROM invitations", (_UNUSED,))
        return int(number), int(used)

    def clear(self) -> None:
        """Delete every invitation."""
        with self.transaction():
            self.run("DELETE FROM invitations")


def _encode(report: NewReport) -> bytes:
    policy, mode, codes = report.content
    name = policy.encode()
    token = report.token or bytes(ID_BYTES)
    if len(report.id) != ID_BYTES or len(token) != ID_BYTES:
        raise InputError(f"The id of a report and the digest of a token must have {ID_BYTES} bytes.")
    head = _HEAD.pack(_KEPT, report.token is not None, report.id, token, mode, len(name))
    return head + name + codes.encode()


def _encode_withdrawn(name: bytes, token: bytes | None) -> bytes:
    return _HEAD.pack(_WITHDRAWN, token is not None, name, token or bytes(ID_BYTES), 0, 0)


def _decode(record: bytes) -> Key:
    *_, mode, length = _HEAD.unpack_from(record)
    end = _HEAD.size + length
    return record[_HEAD.size : end].decode(), mode, record[end:].decode()


def _is_whole(record: bytes) -> bool:
    """Return True if a record has the form of a report, or of a withdrawn report."""
    if len(record) < _HEAD.size:
        return False
    state, *_, length = _HEAD.unpack_from(record)
    return state in {_KEPT, _WITHDRAWN} and _HEAD.size + length <= len(record)


def _encode_day(day: str, number: int) -> bytes:
    return _DAY.pack(day.encode("ascii"), number)


def _mark_of(blinded: bytes) -> bytes:
    """Return the digest of a blinded element, and its checksum."""
    digest = hashlib.sha256(b"masquerade blinded element" + blinded).digest()
    return digest + _check(digest)


def _is_mark(value: bytes) -> bool:
    """Return True if an invitation was used; a half-written mark does not count."""
    return value[-_CHECK_BYTES:] == _check(value[:-_CHECK_BYTES])


def _check(digest: bytes) -> bytes:
    return hashlib.blake2b(digest, digest_size=_CHECK_BYTES).digest()
