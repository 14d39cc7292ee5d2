"""Release ledger: an append-only log of all data that left a party, with recipient, policy and γ.

A ledger is a text file with one release per line, as canonical JSON. Each line contains the hash of the line
before, so that edited, deleted or reordered lines are detected. Number and hash of the last line are also
stored in the state, so that missing lines at the end are detected. A release is durable when `append`
returns; only then may its bytes be sent.

The hash chain has no key: an attacker who can write to the state could remove a line and rebuild the chain.
Therefore a service signs the end with its identity, whose key is stored separately (`SignedMark`). An end
that is missing, or that a different key signed, is treated as a restore. One change cannot be detected here:
an older ledger, restored together with its older signed end. To detect it, the peers of a service store its
ends, and `check_known_end` compares them.

`ledger_totals` adds up releases.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from masquerade.core.errors import FileError, InputError, RoundAborted
from masquerade.core.util.atomic import sync_folder
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.protocols.wire.durable_store import Claim, DurableStore, Notes
from masquerade.services.common.state import DATABASE, State, lock_file, peek

FILE: Final = "releases.jsonl"
SCOPE: Final = "release ledger"
HEAD: Final = "head"
EPOCH: Final = "epoch"
RESTORED, SIGNED, AGREED = "restored", "signed from here on", "agreed to a restore"
WITNESSED: Final = "witnessed"  # notes by peer: the end of this service's ledger that the peer has signed
NOISE: Final = ("epsilon", "delta")
CLEAR: Final = "records in clear"  # kind of releases without any disguise
KEYS: Final = ("(key)",)  # in place of variables, in a release that reveals linked records but no value
ABOUT_ITSELF: Final = frozenset({RESTORED, SIGNED, AGREED})  # kinds of lines without a release
END, WITNESS = "end of a release ledger", "end of a peer's release ledger"  # labels of signatures
MOST_TEXT: Final = 500
MOST_DIGITS: Final = 4000
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
GAMMA: Final = re.compile(r"([1-9][0-9]*)/([1-9][0-9]*)")
HASH: Final = re.compile(r"[0-9a-f]{64}")


class Mark(NamedTuple):
    """The end of a ledger: number and hash of its last line."""

    number: int
    hash: str

    def encode(self) -> bytes:
        """Return the mark as bytes."""
        return f"{self.number} {self.hash}".encode()

    @classmethod
    def decode(cls, data: bytes | None) -> Mark | None:
        """Return the mark in these bytes, None for None; raise FileError if they are damaged."""
        if data is None:
            return None
        match = re.fullmatch(rb"([0-9]{1,18}) ([0-9a-f]{64})", data)
        if match is None:
            raise FileError("The stored end of the release ledger is damaged.")
        return cls(int(match[1]), match[2].decode())


START: Final = Mark(0, "0" * 64)


@dataclass(frozen=True, slots=True)
class SignedMark:
    """The end of a ledger in an epoch of its state, signed by the identity `public`.

    Ends written by the first version have no signature: epoch 0, and an empty key.
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
        """Return the end as bytes; without a signature only the mark, as the first version wrote it."""
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
        """Return the end in these bytes, None for None; raise FileError if its signature is not valid."""
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
            raise FileError("The stored end of the release ledger differs from the signed end.") from None
        return found

    def verify(self, public: bytes) -> None:
        """Raise `SealBroken` unless the given key signed this end."""
        verify_signature(public, self.signature, END, self.mark.encode(), str(self.epoch).encode())


@dataclass(frozen=True, slots=True)
class Release:
    """A message to one recipient that depends on people's records.

    Parameters
    ----------
    session, protocol, recipient : str
        Session and protocol in which the message is sent, and the node that receives it.
    kind : str
        Description of the data: disguised columns, counts, parameters.
    variables : tuple of str
        Variables that the data is about.
    rows : int
        Number of records that the data is about.
    policy : str or None
        Id of the policy under which reports were drawn; None for other data.
    gamma : Fraction or None
        Largest factor by which the data can change the odds of a guess about a person; None if unbounded.
    digest : str, optional
        SHA-256 of the bytes sent, if they are known in advance.
    draw : str, optional
        Name of the random draw. Releases from the same draw, such as memoised reports that are sent again,
        reveal nothing new and are counted once.
    epsilon, delta : Fraction, optional
        Privacy parameters of noise added to a sum; `gamma` bounds everything else that the data reveals.
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
    epsilon: Fraction | None = None
    delta: Fraction | None = None

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
            if limit_gamma(self.gamma) is None:
                raise InputError(f"The gamma of a release must have fewer than {MOST_DIGITS} digits.")
        for name in NOISE:
            bound = getattr(self, name)
            if bound is not None and not (isinstance(bound, Fraction) and bound > 0):
                raise InputError(f"The {name} of a release must be a fraction above 0, or None.")
        if self.delta is not None and (self.epsilon is None or self.delta >= 1):
            raise InputError("The delta of a release must be below 1, and needs an epsilon.")


def limit_gamma(gamma: Fraction) -> Fraction | None:
    """Return γ, or None (unbounded) if it has more digits than a ledger stores."""
    return gamma if gamma.numerator.bit_length() <= 3 * MOST_DIGITS else None


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a ledger: a release, its number and time, and the hashes of the previous and of this line."""

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
        """Return the expected hash of the line, over all values but the hash."""
        content = {name: value for name, value in self.to_dict().items() if name != "hash"}
        return hashlib.sha256(canonical(content)).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the line's keys and values."""
        release = {**_plain(self.release), "previous": self.previous, "hash": self.hash}
        return {"number": self.number, "time": self.time, **release}

    def line(self) -> bytes:
        """Return the line as written in the file."""
        return canonical(self.to_dict()) + b"\n"


def canonical(values: Mapping[str, Any]) -> bytes:
    """Return the canonical JSON of values: keys sorted, no spaces, ASCII."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _plain(release: Release) -> dict[str, Any]:
    """Return the values of a line, without ε and δ if there is no noise.

    Therefore lines of earlier versions, which had no noise, keep their hashes.
    """
    values = {**asdict(release), "variables": list(release.variables), "gamma": write_bound(release.gamma)}
    noise = {name: write_bound(values.pop(name)) for name in NOISE}
    return {**values, **{name: bound for name, bound in noise.items() if bound is not None}}


def write_bound(bound: Fraction | None) -> str | None:
    """Return a bound as the ledger writes it, numerator/denominator; None if unbounded."""
    return None if bound is None else f"{bound.numerator}/{bound.denominator}"


def entry_of(release: Release, last: Mark) -> Entry:
    """Return the next line, for a release at the current time."""
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    entry = Entry(last.number + 1, time, release, last.hash, "")
    return replace(entry, hash=entry.due_hash)


def parse(path: Path, data: bytes, known: Mark | None = None) -> tuple[tuple[Entry, ...], int]:
    """Return the complete lines of a ledger, and their number of bytes.

    Bytes after the last newline are a line that was never completed, and are ignored.

    Parameters
    ----------
    path : Path
        The file, for messages.
    data : bytes
        Content of the file.
    known : Mark, optional
        An end that the ledger must contain.

    Returns
    -------
    tuple of Entry
        The lines.
    int
        Number of bytes of these lines.

    Raises
    ------
    FileError
        If lines were edited, deleted, added or reordered, or `known` is missing; it names the first such
        line.
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
            f"since {known.number} releases had been written."
        )
    if known is not None and known.number and entries[known.number - 1].hash != known.hash:
        raise FileError(
            f"{path}: line {known.number}: is not the one that was written; the ledger was replaced."
        )
    return tuple(entries), whole


def _entry(line: bytes, where: str) -> Entry:
    """Return the entry of a line; raise FileError unless it is in canonical form."""
    try:
        values = json.loads(line)
        number, time = values.pop("number"), values.pop("time")
        previous, own, gamma = values.pop("previous"), values.pop("hash"), values.pop("gamma")
        shaped = TIME.fullmatch(time) and HASH.fullmatch(previous) and HASH.fullmatch(own)
        noise: dict[str, Any] = {
            name: Fraction(values.pop(name)) for name in NOISE if GAMMA.fullmatch(values.get(name, ""))
        }
        if shaped and type(number) is int and (gamma is None or GAMMA.fullmatch(gamma)):
            release = Release(**values, gamma=None if gamma is None else Fraction(gamma), **noise)
            entry = Entry(number, time, release, previous, own)
            if entry.line() == line + b"\n":
                return entry
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise FileError(f"{where}: is not a release as this ledger writes them; it was edited or damaged.")


Signer = Callable[[Mark], SignedMark]


class ReleaseLedger:
    """A ledger open for appending, by one process at a time.

    `known` is the stored end when the ledger was opened; `restored` is True if a restore was detected then.
    """

    def __init__(self, path: Path, handle: int, notes: Notes | None, signer: Signer | None = None) -> None:
        self._path, self._handle, self._notes, self._signer = path, handle, notes, signer
        self._guard, self.restored = threading.Lock(), False
        data = self._contents()
        self.known = SignedMark.decode(None if notes is None else notes.get(SCOPE, HEAD))
        known = None if self.known is None else self.known.mark
        entries, self._size = parse(path, data, known)
        self._last = entries[-1].mark if entries else START
        # a line cut short by a crash was never acknowledged, so its release was not sent
        if self._size < len(data):
            os.ftruncate(handle, self._size)
            os.fsync(handle)
        if known != self._last and signer is None:  # with a signer, `in_state` checks the stored end first
            self._note_end()

    @classmethod
    def open(
        cls, path: str | Path, *, notes: Notes | None = None, signer: Signer | None = None
    ) -> ReleaseLedger:
        """Open a ledger, create it if it does not exist, and check all lines.

        Parameters
        ----------
        path : str or Path
            The file.
        notes : Notes, optional
            Notes that store the ledger's end: a ledger that lacks this end is refused.
        signer : callable, optional
            Signs the end.

        Returns
        -------
        ReleaseLedger
            The ledger.

        Raises
        ------
        FileError
            If the file is in use, was changed, or cannot be read or written.
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
                reason = "is in use; one process at a time adds to a release ledger."
                raise FileError(f"{place}: {reason}") from None
            except OSError as error:
                raise _access_error(place, error) from None
            undo.pop_all()
        return ledger

    def append(self, release: Release) -> Entry:
        """Append a release; it is durable on return, and only then may its bytes be sent."""
        with self._guard:
            entry = entry_of(release, self._last)
            line = entry.line()
            try:
                if os.fstat(self._handle).st_size != self._size:
                    raise _change_error(self._path)
                _write(self._handle, line, self._size)
            except OSError as error:
                raise _access_error(self._path, error) from None
            self._size += len(line)
            self._last = entry.mark
            self._note_end()
            return entry

    def entries(self) -> tuple[Entry, ...]:
        """Read all releases from the file, oldest first; every line and the end are checked."""
        with self._guard:
            data = self._contents()
            entries, _ = parse(self._path, data, self._last)
            if len(data) != self._size:
                raise _change_error(self._path)
            return entries

    def _contents(self) -> bytes:
        with os.fdopen(os.dup(self._handle), "rb") as stream:
            stream.seek(0)
            return stream.read()

    @property
    def last(self) -> Mark:
        """Return the number and hash of the last line."""
        return self._last

    @property
    def end(self) -> SignedMark:
        """Return the end of the ledger, signed if it has a signer."""
        return SignedMark(self._last) if self._signer is None else self._signer(self._last)

    @property
    def doubted(self) -> bool:
        """Return True if the state was restored and its operator has not agreed to the consequences."""
        kinds = [entry.release.kind for entry in self.entries() if entry.release.kind in {RESTORED, AGREED}]
        return bool(kinds) and kinds[-1] == RESTORED

    def _note_end(self) -> None:
        if self._notes is not None:
            self._notes.put(SCOPE, HEAD, self.end.encode())

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            if self._handle >= 0:
                os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def in_state(state: State, identity: SigningKey) -> ReleaseLedger:
    """Open the ledger in a service's state folder, whose signed end is stored in the state.

    After a restore, releases since the backup may be missing: a line of kind "restored" records this. The
    state also counts as restored if the stored end is missing, is no longer signed, or is signed by a
    different identity. In a ledger of the first version, without signed ends, a line records where signing
    starts.
    """

    def sign_end(mark: Mark) -> SignedMark:
        return SignedMark.of(mark, state.epoch, identity)

    with ExitStack() as undo:
        path = state.folder / FILE
        ledger = undo.enter_context(ReleaseLedger.open(path, notes=state.notes, signer=sign_end))
        known, now = state.notes.get(SCOPE, EPOCH), str(state.epoch).encode()
        # stored outside backups: once an end was signed, an end without a signature is suspicious
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
    """Append a line which states that the state was restored, so that lines before it may be missing."""
    ledger.append(_about_itself(RESTORED, state))
    state.notes.put(SCOPE, EPOCH, str(state.epoch).encode())


def agree(ledger: ReleaseLedger, state: State, words: str) -> None:
    """Append a line with the sentence by which the operator agreed to the consequences of a restore."""
    ledger.append(replace(_about_itself(AGREED, state), protocol=words))


def _about_itself(kind: str, state: State) -> Release:
    """Return a line about the ledger itself, which is not a release."""
    return Release(f"epoch {state.epoch}", "", "", kind, (), 0, None, Fraction(1))


def check_known_end(ledger: ReleaseLedger, shown: SignedMark, identity: bytes) -> None:
    """Raise RoundAborted if a ledger lacks an end that its own identity signed: it was rolled back.

    An end of an earlier epoch may be missing if the operator agreed to a restore.
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
        "rolled back. Its operator must find out why, or agree to a restore.",
        spent=False,
    )


def inspect(place: str | Path) -> tuple[tuple[Entry, ...], SignedMark | None]:
    """Return the checked releases of a ledger file or state folder, and the stored end of the ledger.

    The signature of the end is checked with the key stored next to it; the caller must check whose key this
    is. A service may have the ledger open: nothing is locked or changed.
    """
    path = Path(place)
    file = path / FILE if path.is_dir() else path
    # the end is read first: lines appended in between make the ledger longer, never shorter
    end = SignedMark.decode(peek(file.parent, SCOPE, HEAD) if file.name == FILE else None)
    known = None if end is None else end.mark
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        if known is not None and known.number:
            raise FileError(f"{file}: is missing, with {known.number} releases.") from None
        raise FileError(f"{file}: there is no release ledger here.") from None
    except OSError as error:
        raise _access_error(file, error) from None
    entries, whole = parse(file, data, known)
    if known is None and whole < len(data):
        raise FileError(f"{file}: line {len(entries) + 1} is cut short.")
    return entries, end


def peek_receipts(folder: Path) -> list[str]:
    """Return the names of peers whose receipts a state folder contains."""
    question = "SELECT name FROM notes WHERE scope = ? ORDER BY name"
    return [str(name) for (name,) in DurableStore.peek(folder / DATABASE, question, (WITNESSED,))]


def _write(handle: int, line: bytes, size: int) -> None:
    """Append a line durably, or leave the file unchanged."""
    try:
        written = 0
        while written < len(line):
            written += os.write(handle, line[written:])
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        os.fsync(handle)
        raise


def _change_error(path: Path) -> FileError:
    return FileError(f"{path}: was changed by another process while it was open.")


def _access_error(path: Path, error: OSError) -> FileError:
    reason = (error.strerror or "input/output error").lower()
    return FileError(f"{path}: the release ledger cannot be read or written ({reason}).")
