"""What left this party: to whom, under which policy, for how much γ. Only ever added to.

A ledger is a text file, one release a line, as canonical JSON. Every line holds the hash of the line before,
so that editing, deleting or reordering lines shows; how far the ledger had come (number and hash of its last
line) is kept elsewhere too, so that a missing end shows. A release is on the disk before `append` returns,
and only then may its bytes be sent.

The chain itself has no key: whoever can write to the state could build it anew without a line. Therefore a
service signs the end with its identity, whose key lies elsewhere (`SignedMark`); an end that is missing, or
that another key signed, is a restore. An older end with its old signature, put back together with the older
ledger, is the one change that cannot be seen here: those with whom a service has sessions keep its ends, and
`check_known_end` compares them.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from masquerade.core.errors import FileError, InputError, RoundAborted
from masquerade.core.util.atomic import sync_folder
from masquerade.core.util.formatting import counted, gamma_words
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.protocols.wire.durable_store import Claim, DurableStore, Notes
from masquerade.services.common.state import DATABASE, State, lock_file, peek

FILE: Final = "releases.jsonl"
SCOPE: Final = "release ledger"
HEAD: Final = "head"
EPOCH: Final = "epoch"
RESTORED, SIGNED, AGREED = "restored", "signed from here on", "agreed to a restore"
WITNESSED: Final = "witnessed"  # notes by peer: the end of our ledger that it has seen and signed
ABOUT_ITSELF: Final = frozenset({RESTORED, SIGNED, AGREED})  # lines with which nothing leaves
END, WITNESS = "end of a release ledger", "end of a peer's release ledger"  # what signatures are about
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
class SignedMark:
    """The end of a ledger in an epoch of its state, signed by the identity `public`.

    Ends of versions before this one have no signature: epoch 0, and nobody.
    """

    mark: Mark
    epoch: int = 0
    public: bytes = b""
    signature: bytes = b""

    @classmethod
    def of(cls, mark: Mark, epoch: int, key: SigningKey) -> SignedMark:
        """Sign an end."""
        return cls(mark, epoch, key.public, key.sign(END, mark.encode(), str(epoch).encode()))

    def encode(self) -> bytes:
        """Return it as bytes; without a signature it is the mark alone, as earlier versions wrote it."""
        if not self.signature:
            return self.mark.encode()
        return b"%s %d %s %s" % (
            self.mark.encode(),
            self.epoch,
            self.public.hex().encode(),
            self.signature.hex().encode(),
        )

    @classmethod
    def decode(cls, data: bytes | None) -> SignedMark | None:
        """Return the end that these bytes are, if there are any; a signature that does not fit is refused."""
        if data is None:
            return None
        parts = bytes(data).split(b" ")
        mark = Mark.decode(b" ".join(parts[:2]))
        if mark is None or len(parts) == 2:
            return None if mark is None else cls(mark)
        try:
            epoch, public, signature = parts[2:]
            found = cls(mark, int(epoch), *(bytes.fromhex(it.decode("ascii")) for it in (public, signature)))
            found.verify(found.public)
        except (ValueError, DecodingError, SealBroken):
            raise FileError(
                "The remembered end of the release ledger is not the one that was signed."
            ) from None
        return found

    def verify(self, public: bytes) -> None:
        """Raise `SealBroken` unless the owner of a key signed this end."""
        verify_signature(public, self.signature, END, self.mark.encode(), str(self.epoch).encode())


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


Signer = Callable[[Mark], SignedMark]


class ReleaseLedger:
    """A ledger open for adding, by one process at a time; `known` is the end that was remembered.

    `restored` tells that it was found, when it was opened, to come from a backup.
    """

    def __init__(self, path: Path, handle: int, notes: Notes | None, signer: Signer | None = None) -> None:
        self._path, self._handle, self._notes, self._signer = path, handle, notes, signer
        self._guard, self.restored = threading.Lock(), False
        data = self._contents()
        self.known = SignedMark.decode(None if notes is None else notes.get(SCOPE, HEAD))
        known = None if self.known is None else self.known.mark
        entries, self._size = parse(path, data, known)
        self._last = entries[-1].mark if entries else START
        # a line cut short by a crash was never acknowledged, so nothing left under it
        if self._size < len(data):
            os.ftruncate(handle, self._size)
            os.fsync(handle)
        if known != self._last and signer is None:  # who signs looks at the remembered end first
            self._note_end()

    @classmethod
    def open(
        cls, path: str | Path, *, notes: Notes | None = None, signer: Signer | None = None
    ) -> ReleaseLedger:
        """Open a ledger, made if it does not exist, and check all of it.

        With `notes`, which remember its end, a ledger that is shorter than it was, or another, is refused;
        the `signer` signs that end.
        """
        place = Path(path)
        with ExitStack() as undo:
            try:
                handle = os.open(place, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
                undo.callback(os.close, handle)
                lock_file(handle)
                sync_folder(place.absolute().parent)
                ledger = cls(place, handle, notes, signer)
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

    @property
    def end(self) -> SignedMark:
        """Return how far the ledger has come, signed where it has a signer."""
        return SignedMark(self._last) if self._signer is None else self._signer(self._last)

    @property
    def doubted(self) -> bool:
        """Tell whether the state was restored, and its operator has not agreed to what that gives away."""
        kinds = [entry.release.kind for entry in self.entries() if entry.release.kind in {RESTORED, AGREED}]
        return bool(kinds) and kinds[-1] == RESTORED

    def _note_end(self) -> None:
        if self._notes is not None:
            self._notes.put(SCOPE, HEAD, self.end.encode())

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


def in_state(state: State, identity: SigningKey) -> ReleaseLedger:
    """Open the ledger of a service, which lies in its state folder and whose end the state remembers, signed.

    After a restore, releases made since the backup may be missing from it: a line of kind "restored" says so.
    So it does where the remembered end is missing, lacks the signature it had, or is another identity's. In
    a ledger of an earlier version, whose end nobody signed, a line says where signing begins.
    """

    def signed(mark: Mark) -> SignedMark:
        return SignedMark.of(mark, state.epoch, identity)

    with ExitStack() as undo:
        ledger = undo.enter_context(ReleaseLedger.open(state.folder / FILE, notes=state.notes, signer=signed))
        known, now = state.notes.get(SCOPE, EPOCH), str(state.epoch).encode()
        # kept where no backup brings it back: an end that was signed once is never again without a signature
        signed_before = state.burnt.find(SCOPE, SIGNED.encode()) is not None
        end, empty = ledger.known, not ledger.entries()
        unsigned = end is not None and not end.signature
        restored = state.restored or known not in (None, now)
        restored |= end is None and (signed_before or known is not None or not empty)
        restored |= end is not None and bool(end.signature) and end.public != identity.public
        restored |= unsigned and signed_before
        ledger.restored = restored
        if restored:
            note_restored(ledger, state)
        elif unsigned and not empty:
            ledger.append(_about_itself(SIGNED, state))
        else:
            state.notes.put(SCOPE, HEAD, ledger.end.encode())
        state.notes.put(SCOPE, EPOCH, now)
        if not signed_before:
            state.burnt.claim([Claim(SCOPE, SIGNED.encode())])
        undo.pop_all()
    return ledger


def note_restored(ledger: ReleaseLedger, state: State) -> None:
    """Write down that the state was restored in its present epoch: earlier lines may be missing."""
    ledger.append(_about_itself(RESTORED, state))
    state.notes.put(SCOPE, EPOCH, str(state.epoch).encode())


def agree(ledger: ReleaseLedger, state: State, words: str) -> None:
    """Write down that the operator agreed, in these words, to what a restore gives away."""
    ledger.append(replace(_about_itself(AGREED, state), protocol=words))


def _about_itself(kind: str, state: State) -> Release:
    """Return a line with which nothing leaves."""
    return Release(f"epoch {state.epoch}", "", "", kind, (), 0, None, Fraction(1))


def check_known_end(ledger: ReleaseLedger, shown: SignedMark, identity: bytes) -> None:
    """Refuse a ledger that lacks an end which its own identity signed: somebody rolled it back.

    An end of an epoch before the present one may be missing where the operator agreed to a restore.
    """
    shown.verify(identity)
    number, entries = shown.mark.number, ledger.entries()
    if number == 0 or (number <= len(entries) and entries[number - 1].hash == shown.mark.hash):
        return
    agreed = [entry.release.session for entry in entries if entry.release.kind == AGREED]
    if any(shown.epoch < int(epoch.removeprefix("epoch ")) for epoch in agreed):
        return
    raise RoundAborted(
        f"The release ledger here lacks line {number:,}, which this node signed and others have seen: it was "
        "rolled back. Its operator finds out why, or agrees to a restore.",
        spent=False,
    )


def inspect(place: str | Path) -> tuple[tuple[Entry, ...], SignedMark | None]:
    """Return the releases in a ledger file or a state folder, checked, and the end that the state remembers.

    A signature under that end is checked with the key that is named there: whose key it is, the caller knows.

    A service may be adding to it meanwhile; nothing is locked or changed.
    """
    path = Path(place)
    file = path / FILE if path.is_dir() else path
    # the end first: what is added after it was asked for makes the ledger longer, never shorter
    end = SignedMark.decode(peek(file.parent, SCOPE, HEAD) if file.name == FILE else None)
    known = None if end is None else end.mark
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
    return entries, end


def peek_receipts(folder: Path) -> list[str]:
    """Return the names of the peers that hold a receipt of a ledger's end, as its state folder says."""
    question = "SELECT name FROM notes WHERE scope = ? ORDER BY name"
    return [str(name) for (name,) in DurableStore.peek(folder / DATABASE, question, (WITNESSED,))]


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
    for release in (entry.release for entry in entries if entry.release.kind not in ABOUT_ITSELF):
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
        if entry.release.kind == AGREED:
            lines.append(f"The operator agreed at {entry.time}: {entry.release.protocol}.")
        if entry.release.kind == SIGNED:
            lines.append(
                f"From release {entry.number} on, at {entry.time}, the end is signed; before, it was not."
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
