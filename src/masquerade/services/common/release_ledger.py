"""What left this party: to whom, under which policy, for how much γ. Only ever added to.

A ledger is a text file, one release a line, as canonical JSON. Every line holds the hash of the line before,
so that editing, deleting or reordering lines shows; how far the ledger had come (number and hash of its last
line) is kept elsewhere too, so that a missing end shows. A release is on the disk before `append` returns,
and only then may its bytes be sent.

How the γ of releases add up. Towards one recipient, and for one set of variables, the γ of all releases
multiply: a belief about a person's values can shift by every one of them. A release of the same kind, from a
draw that this recipient has already seen for these variables, tells nothing new and does not multiply; that
is why disguises are memoised. A release without a `draw` counts each time. One unbounded release leaves the
product unbounded. What a recipient can learn about a whole record is bounded by the product over all its sets
of variables (`total`); recipients who put together what they have are bounded by the product over all of
them, each draw counted once. The ledger does not know whether two releases are about the same
people and takes it that they are, so every figure is an upper bound.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from masquerade.core.atomic import sync_folder
from masquerade.core.errors import FileError, InputError
from masquerade.core.words import counted, gamma_words
from masquerade.protocols.durable_store import Notes
from masquerade.services.common.state import State, lock_file, peek

FILE: Final = "releases.jsonl"
SCOPE: Final = "release ledger"
HEAD: Final = "head"
EPOCH: Final = "epoch"
RESTORED: Final = "restored"
MOST_TEXT: Final = 500
MOST_DIGITS: Final = 4000
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
GAMMA: Final = re.compile(r"([1-9][0-9]*)/([1-9][0-9]*)")
HASH: Final = re.compile(r"[0-9a-f]{64}")


class Mark(NamedTuple):
    """How far a ledger has come: the number of its last line, and that line's hash."""

    number: int
    hash: str

    def encode(self) -> bytes:
        """Return the mark as bytes."""
        return f"{self.number} {self.hash}".encode()

    @classmethod
    def decode(cls, data: bytes | None) -> Mark | None:
        """Return the mark that these bytes are, if there are any."""
        if data is None:
            return None
        match = re.fullmatch(rb"([0-9]{1,18}) ([0-9a-f]{64})", data)
        if match is None:
            raise FileError("The remembered end of the release ledger is damaged.")
        return cls(int(match[1]), match[2].decode())


START: Final = Mark(0, "0" * 64)


@dataclass(frozen=True, slots=True)
class Release:
    """Something that leaves: a message to one recipient that depends on people's records.

    `kind` says what it is (disguised columns, counts, parameters); `rows` how many records it is about;
    `gamma` bounds how far a belief about a person can shift by it, None where there is no bound; `digest` is
    the SHA-256 of the bytes sent, if they are known beforehand. `draw` names the random draw behind it: what
    is sent again from the same draw, as memoised disguises are, tells nothing new and is counted once.
    """

    session: str
    protocol: str
    recipient: str
    kind: str
    variables: tuple[str, ...]
    rows: int
    policy: str | None
    gamma: Fraction | None
    digest: str | None = None
    draw: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", tuple(self.variables))
        needed = [(name, getattr(self, name)) for name in ("session", "protocol", "recipient", "kind")]
        optional = [(name, getattr(self, name) or "") for name in ("policy", "digest", "draw")]
        for name, text in [*needed, *optional, *(("variables", name) for name in self.variables)]:
            if not isinstance(text, str) or len(text) > MOST_TEXT or not text.isprintable():
                raise InputError(
                    f"The {name} of a release must be one line of at most {MOST_TEXT} characters."
                )
        object.__setattr__(self, "rows", operator.index(self.rows))
        if self.rows < 0:
            raise InputError("The rows of a release must be 0 or more.")
        if self.gamma is not None:
            if not isinstance(self.gamma, (Fraction, int)) or self.gamma < 1:
                raise InputError(
                    "The gamma of a release must be a fraction of at least 1, or None if unbounded."
                )
            object.__setattr__(self, "gamma", Fraction(self.gamma))
            if self.gamma.numerator.bit_length() > 3 * MOST_DIGITS:
                raise InputError(f"The gamma of a release must have fewer than {MOST_DIGITS} digits.")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a ledger: a release, its number and time, the hash of the line before and its own."""

    number: int
    time: str
    release: Release
    previous: str
    hash: str

    @property
    def mark(self) -> Mark:
        """Return the end of a ledger whose last line this is."""
        return Mark(self.number, self.hash)

    @property
    def due_hash(self) -> str:
        """Return the hash that the line must have: of all of it but that."""
        content = {name: value for name, value in self.to_dict().items() if name != "hash"}
        return hashlib.sha256(canonical(content)).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the line's keys and values."""
        release = {**_plain(self.release), "previous": self.previous, "hash": self.hash}
        return {"number": self.number, "time": self.time, **release}

    def line(self) -> bytes:
        """Return the line as it stands in the file."""
        return canonical(self.to_dict()) + b"\n"


def canonical(values: Mapping[str, Any]) -> bytes:
    """Return the one JSON text of these values: keys sorted, no spaces, ASCII."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _plain(item: Release | Spent) -> dict[str, Any]:
    gamma = None if item.gamma is None else f"{item.gamma.numerator}/{item.gamma.denominator}"
    return {**asdict(item), "variables": list(item.variables), "gamma": gamma}


def entry_of(release: Release, last: Mark) -> Entry:
    """Return the line that a release becomes after the last one, now."""
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    entry = Entry(last.number + 1, time, release, last.hash, "")
    return replace(entry, hash=entry.due_hash)


def parse(path: Path, data: bytes, known: Mark | None = None) -> tuple[tuple[Entry, ...], int]:
    """Return the whole lines and how many bytes they take; name the first line that is not in order.

    What follows the last end of line is a line that was never finished. A ledger that lacks the last line
    that is `known`, or has another in its place, is refused.
    """
    whole = data.rfind(b"\n") + 1
    entries: list[Entry] = []
    last = START
    for number, line in enumerate(data[:whole].split(b"\n")[:-1], start=1):
        where = f"{path}: line {number}"
        entry = _entry(line, where)
        if entry.number != number:
            raise FileError(f"{where}: holds release {entry.number}; lines were deleted, added or reordered.")
        if entry.hash != entry.due_hash:
            raise FileError(f"{where}: was edited; its hash does not fit.")
        if entry.previous != last.hash:
            raise FileError(f"{where}: does not follow the line before it; one of the two was replaced.")
        entries.append(entry)
        last = entry.mark
    if known is not None and len(entries) < known.number:
        raise FileError(
            f"{path}: line {len(entries) + 1} is missing: the ledger was shortened, "
            f"{known.number} releases had been written."
        )
    if known is not None and known.number and entries[known.number - 1].hash != known.hash:
        raise FileError(
            f"{path}: line {known.number}: is not the one that was written; the ledger was replaced."
        )
    return tuple(entries), whole


def _entry(line: bytes, where: str) -> Entry:
    """Return the entry that a line is, if it is written in the canonical way."""
    try:
        values = json.loads(line)
        number, time = values.pop("number"), values.pop("time")
        previous, own, gamma = values.pop("previous"), values.pop("hash"), values.pop("gamma")
        shaped = TIME.fullmatch(time) and HASH.fullmatch(previous) and HASH.fullmatch(own)
        if shaped and type(number) is int and (gamma is None or GAMMA.fullmatch(gamma)):
            release = Release(**values, gamma=None if gamma is None else Fraction(gamma))
            entry = Entry(number, time, release, previous, own)
            if entry.line() == line + b"\n":
                return entry
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise FileError(f"{where}: is not a release as this ledger writes them; it was edited or damaged.")


class ReleaseLedger:
    """A ledger open for adding, by one process at a time."""

    def __init__(self, path: Path, handle: int, notes: Notes | None) -> None:
        self._path, self._handle, self._notes = path, handle, notes
        self._guard = threading.Lock()
        data = self._contents()
        known = Mark.decode(None if notes is None else notes.get(SCOPE, HEAD))
        entries, self._size = parse(path, data, known)
        self._last = entries[-1].mark if entries else START
        # a line cut short by a crash was never acknowledged, so nothing left under it
        if self._size < len(data):
            os.ftruncate(handle, self._size)
            os.fsync(handle)
        if known != self._last:
            self._note_end()

    @classmethod
    def open(cls, path: str | Path, *, notes: Notes | None = None) -> ReleaseLedger:
        """Open a ledger, made if it does not exist, and check all of it.

        With `notes`, which remember its end, a ledger that is shorter than it was, or another, is refused.
        """
        place = Path(path)
        with ExitStack() as undo:
            try:
                handle = os.open(place, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
                undo.callback(os.close, handle)
                lock_file(handle)
                sync_folder(place.absolute().parent)
                ledger = cls(place, handle, notes)
            except BlockingIOError:
                told = "is in use; one process at a time adds to a release ledger."
                raise FileError(f"{place}: {told}") from None
            except OSError as error:
                raise _failed(place, error) from None
            undo.pop_all()
        return ledger

    def append(self, release: Release) -> Entry:
        """Write a release down; it is on the disk when this returns, and its bytes may be sent."""
        with self._guard:
            entry = entry_of(release, self._last)
            line = entry.line()
            try:
                if os.fstat(self._handle).st_size != self._size:
                    raise _touched(self._path)
                _write(self._handle, line, self._size)
            except OSError as error:
                raise _failed(self._path, error) from None
            self._size += len(line)
            self._last = entry.mark
            self._note_end()
            return entry

    def entries(self) -> tuple[Entry, ...]:
        """Return all releases, oldest first, read from the disk; every line and the end are checked."""
        with self._guard:
            data = self._contents()
            entries, _ = parse(self._path, data, self._last)
            if len(data) != self._size:
                raise _touched(self._path)
            return entries

    def _contents(self) -> bytes:
        with os.fdopen(os.dup(self._handle), "rb") as stream:
            stream.seek(0)
            return stream.read()

    def _note_end(self) -> None:
        if self._notes is not None:
            self._notes.put(SCOPE, HEAD, self._last.encode())

    def close(self) -> None:
        """Let go of the file."""
        with self._guard:
            if self._handle >= 0:
                os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def in_state(state: State) -> ReleaseLedger:
    """Open the ledger of a service, which lies in its state folder and whose end the state remembers.

    After a restore, releases made since the backup may be missing from it: a line of kind "restored" says so.
    """
    with ExitStack() as undo:
        ledger = undo.enter_context(ReleaseLedger.open(state.folder / FILE, notes=state.notes))
        known, now = state.notes.get(SCOPE, EPOCH), str(state.epoch).encode()
        if known != now:
            if known is not None or state.restored:
                # earlier lines may be missing
                gone = Release(f"epoch {state.epoch}", "", "", RESTORED, (), 0, None, Fraction(1))
                ledger.append(gone)
            state.notes.put(SCOPE, EPOCH, now)
        undo.pop_all()
    return ledger


def inspect(place: str | Path) -> tuple[tuple[Entry, ...], Mark | None]:
    """Return the releases in a ledger file or a state folder, checked, and the end that the state remembers.

    A service may be adding to it meanwhile; nothing is locked or changed.
    """
    path = Path(place)
    file = path / FILE if path.is_dir() else path
    # the end first: what is added after it was asked for makes the ledger longer, never shorter
    known = Mark.decode(peek(file.parent, SCOPE, HEAD) if file.name == FILE else None)
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        if known is not None and known.number:
            raise FileError(f"{file}: is gone, with {known.number} releases in it.") from None
        raise FileError(f"{file}: there is no release ledger here.") from None
    except OSError as error:
        raise _failed(file, error) from None
    entries, whole = parse(file, data, known)
    if known is None and whole < len(data):
        raise FileError(f"{file}: line {len(entries) + 1} is cut short.")
    return entries, known


def _write(handle: int, line: bytes, size: int) -> None:
    """Add a whole line, durably, or nothing."""
    try:
        written = 0
        while written < len(line):
            written += os.write(handle, line[written:])
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        os.fsync(handle)
        raise


def _touched(path: Path) -> FileError:
    return FileError(f"{path}: was changed by somebody else while it was open.")


def _failed(path: Path, error: OSError) -> FileError:
    reason = (error.strerror or "input/output error").lower()
    return FileError(f"{path}: the release ledger cannot be read or written ({reason}).")


@dataclass(frozen=True, slots=True)
class Spent:
    """What one recipient was told about one set of variables: γ None means without bound."""

    recipient: str
    variables: tuple[str, ...]
    gamma: Fraction | None
    releases: int
    repeats: int

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return _plain(self)


def spending(entries: Iterable[Entry]) -> tuple[Spent, ...]:
    """Return the γ spent by recipient and set of variables."""
    groups: dict[tuple[str, tuple[str, ...]], list[Release]] = {}
    for release in (entry.release for entry in entries if entry.release.kind != RESTORED):
        groups.setdefault((release.recipient, tuple(sorted(set(release.variables)))), []).append(release)
    return tuple(_spent(who, variables, group) for (who, variables), group in groups.items())


def total(spent: Iterable[Spent]) -> Fraction | None:
    """Return the product: what bounds a belief about a whole record; None if there is no bound."""
    return _product(item.gamma for item in spent)


def summary(entries: Sequence[Entry]) -> str:
    """Return what left, to whom and what it may have given away, in sentences."""
    lines = []
    spent = spending(entries)
    for who in dict.fromkeys(item.recipient for item in spent):
        mine = [item for item in spent if item.recipient == who]
        lines.append(f"{who}: a belief about a person can have shifted by {_shifted(total(mine))} in all.")
        lines += [
            f"- {', '.join(i.variables) or 'no variable'}: {_shifted(i.gamma)}, "
            f"{counted(i.releases, 'release')}{f', {i.repeats} of them the same again' if i.repeats else ''}."
            for i in mine
        ]
    for entry in entries:
        if entry.release.kind == RESTORED:
            lines.append(
                f"Restored from a backup at {entry.time}, before release {entry.number}: "
                "what left between the backup and then may be missing here."
            )
    return "\n".join(lines) or "Nothing has left."


def _shifted(gamma: Fraction | None) -> str:
    return "any factor (no bound on γ)" if gamma is None else gamma_words(gamma)


def _spent(recipient: str, variables: tuple[str, ...], releases: Sequence[Release]) -> Spent:
    draws: dict[object, list[Release]] = {}
    for i, release in enumerate(releases):
        draws.setdefault((release.kind, i if release.draw is None else release.draw), []).append(release)
    # one draw has one γ; should a ledger say two, the larger holds
    gammas = [
        None if any(it.gamma is None for it in same) else max(it.gamma or Fraction(1) for it in same)
        for same in draws.values()
    ]
    return Spent(recipient, variables, _product(gammas), len(releases), len(releases) - len(draws))


def _product(gammas: Iterable[Fraction | None]) -> Fraction | None:
    result = Fraction(1)
    for gamma in gammas:
        if gamma is None:
            return None
        result *= gamma
    return result
