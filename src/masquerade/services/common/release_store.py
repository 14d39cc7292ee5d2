"""The lines of a release ledger: written in one canonical way, read back only if every line is in order."""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

from masquerade.core.errors import FileError, InputError

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
    def decode(cls, data: bytes) -> Mark:
        """Return the mark that these bytes are."""
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
        texts: dict[str, Any] = {
            "session": self.session,
            "protocol": self.protocol,
            "recipient": self.recipient,
        }
        texts |= {"kind": self.kind, "digest": self.digest, "policy": self.policy, "draw": self.draw}
        for name, text in [*texts.items(), *(("variables", name) for name in self.variables)]:
            if text is None and name in ("policy", "digest", "draw"):
                continue
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

    @classmethod
    def restored(cls, epoch: int) -> Release:
        """Return the line that says: earlier ones may be missing, for the state was restored."""
        return cls(f"epoch {epoch}", "", "", RESTORED, (), 0, None, Fraction(1))


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

    def to_dict(self) -> dict[str, Any]:
        """Return the line's keys and values."""
        return {**_content(self.number, self.time, self.release, self.previous), "hash": self.hash}

    def line(self) -> bytes:
        """Return the line as it stands in the file."""
        return canonical(self.to_dict()) + b"\n"


def canonical(values: Mapping[str, Any]) -> bytes:
    """Return the one JSON text of these values: keys sorted, no spaces, ASCII."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _content(number: int, time: str, release: Release, previous: str) -> dict[str, Any]:
    gamma = release.gamma
    return {
        "number": number,
        "time": time,
        "session": release.session,
        "protocol": release.protocol,
        "recipient": release.recipient,
        "kind": release.kind,
        "variables": list(release.variables),
        "rows": release.rows,
        "policy": release.policy,
        "gamma": None if gamma is None else f"{gamma.numerator}/{gamma.denominator}",
        "digest": release.digest,
        "draw": release.draw,
        "previous": previous,
    }


def entry_of(release: Release, last: Mark) -> Entry:
    """Return the line that a release becomes after the last one, now."""
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    content = _content(last.number + 1, time, release, last.hash)
    return Entry(last.number + 1, time, release, last.hash, hashlib.sha256(canonical(content)).hexdigest())


def parse(path: Path, data: bytes) -> tuple[tuple[Entry, ...], int]:
    """Return the whole lines and how many bytes they take; name the first line that is not in order.

    What follows the last end of line is a line that was never finished.
    """
    whole = data.rfind(b"\n") + 1
    entries: list[Entry] = []
    last = START
    for number, line in enumerate(data[:whole].split(b"\n")[:-1], start=1):
        where = f"{path}: line {number}"
        entry = _entry(line, where)
        if entry.number != number:
            raise FileError(f"{where}: holds release {entry.number}; lines were deleted, added or reordered.")
        if (
            hashlib.sha256(canonical({k: v for k, v in entry.to_dict().items() if k != "hash"})).hexdigest()
            != entry.hash
        ):
            raise FileError(f"{where}: was edited; its hash does not fit.")
        if entry.previous != last.hash:
            raise FileError(f"{where}: does not follow the line before it; one of the two was replaced.")
        entries.append(entry)
        last = entry.mark
    return tuple(entries), whole


def check_end(path: Path, entries: Sequence[Entry], known: Mark | None) -> None:
    """Refuse a ledger that lacks the last line known, or has another in its place."""
    if known is None or known.number == 0:
        return
    if len(entries) < known.number:
        raise FileError(
            f"{path}: line {len(entries) + 1} is missing: the ledger was shortened, "
            f"{known.number} releases had been written."
        )
    if entries[known.number - 1].hash != known.hash:
        raise FileError(
            f"{path}: line {known.number}: is not the one that was written; the ledger was replaced."
        )


def _entry(line: bytes, where: str) -> Entry:
    """Return the entry that a line is, if it is written in the canonical way."""
    try:
        entry = _read(json.loads(line))
        if entry.line() == line + b"\n":
            return entry
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise FileError(f"{where}: is not a release as this ledger writes them; it was edited or damaged.")


def _read(values: Any) -> Entry:
    """Return an entry from its keys and values; ValueError, TypeError or KeyError if it is none."""
    if not isinstance(values, dict):
        raise TypeError
    number, time = values.pop("number"), values.pop("time")
    previous, own = values.pop("previous"), values.pop("hash")
    shaped = TIME.fullmatch(time) and HASH.fullmatch(previous) and HASH.fullmatch(own)
    if not shaped or type(number) is not int:
        raise ValueError
    gamma = values.pop("gamma")
    if gamma is not None and not GAMMA.fullmatch(gamma):
        raise ValueError
    release = Release(**values, gamma=None if gamma is None else Fraction(gamma))
    return Entry(number, time, release, previous, own)
