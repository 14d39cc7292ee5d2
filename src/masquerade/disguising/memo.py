"""The keyed memo: a value of a person always gets the same report, although only a key is stored.

A report is decided by a 64-bit word. Fresh draws take the word from a keystream. The memo takes it from a
pseudo-random function of (policy, person, group, value), so a repeated release repeats the report and reveals
nothing new. The function is AES-256 on one block per (person, group, value), under a key derived by HKDF from
the memo's secret and the policy id. Persons enter as keyed BLAKE2b tags, never as plain ids. A holder of the
secret can test guesses about a value: guard the file as you guard the data.

A second memo draws new reports for all people, and the γ of both memos multiply. So a memo is created only on
explicit request. Memos of format 1 identify persons by their ids as written. Memos of format 2, the current
format, use the normal form of the ids (`person_ids`). An old memo keeps its format, because a different form
of the ids would lead to new reports for all people.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import AtomicFile, write_whole
from masquerade.core.util.json_text import parse_json
from masquerade.core.util.private_file import lock_file, read_private
from masquerade.crypto.keys import expand
from masquerade.crypto.symmetric import BlockFunction, code, same
from masquerade.disguising.person_ids import AS_WRITTEN, NORMAL, ROWS_AT_ONCE, TAG_BYTES, person_tags
from masquerade.disguising.report_draws import Codes, Draws
from masquerade.kernels.draw import report_of_word, tagged_blocks

__all__ = [
    "MOST_CODES",
    "MOST_PLACES",
    "TAG_BYTES",
    "Memo",
    "block_words",
    "chosen_draws",
    "memo_notes",
    "memo_of",
]

MOST_CODES = 2**24
MOST_PLACES = 2**16


@dataclass(frozen=True, slots=True)
class Memo:
    """A secret that determines repeated draws, and the policies it was used with.

    `releases` maps the id of every policy to the ε of a record under it, None if that is unknown or
    unbounded. `form` is the format of the file, which determines how persons are identified.
    """

    path: Path
    secret: bytes
    releases: Mapping[str, float | None] = field(default_factory=dict)
    form: int = AS_WRITTEN

    def __repr__(self) -> str:
        """Show the file, never the secret."""
        return f"Memo({str(self.path)!r}, {len(self.releases)} releases)"

    @classmethod
    def open(cls, path: str | Path, *, new: bool = False) -> Memo:
        """Read a memo file. With `new`, create a memo whose file must not exist yet; `save` writes it."""
        place = Path(path)
        if new:
            if place.exists() or place.is_symlink():
                raise FileError(
                    f"{place}: exists already, and new_memo (--new-memo) only creates a new file. Without "
                    "it, the draws of this memo are repeated."
                )
            return cls._new(place)
        try:
            return cls.load(place)
        except FileNotFoundError:
            raise FileError(
                f"{place}: there is no memo. Check the name; if these people were never disguised before, "
                "new_memo=True (--new-memo) creates one. A second memo draws new reports for all people, and "
                "the γ of both memos multiply."
            ) from None

    @classmethod
    def load(cls, path: str | Path) -> Memo:
        """Read a memo file, which must be private to its owner; raise `FileNotFoundError` if missing."""
        place = Path(path)
        try:
            values = parse_json(read_private(place, "a memo"))
            form = values["masquerade_memo"]
            secret = bytes.fromhex(values["secret"])
            releases = _releases_of(values["releases"], form)
        except FileError:
            raise
        except (InputError, AttributeError, KeyError, TypeError, ValueError):
            raise FileError(f"{place}: this is not a memo file.") from None
        if len(secret) != 32:
            raise FileError(f"{place}: this is not a memo file.")
        return cls(place, secret, releases, form)

    @classmethod
    def _new(cls, path: Path) -> Memo:
        return cls(path, secrets.token_bytes(32), {}, NORMAL)

    @classmethod
    def load_or_create(cls, path: str | Path) -> Memo:
        """Return the memo in a file, created now if missing. Concurrent callers get the same memo.

        For services only: their state records which memo drew the reports that were sent.
        """
        try:
            return cls.load(path)
        except FileNotFoundError:
            memo = cls._new(Path(path))
        try:
            memo._make()
        except FileExistsError:
            return cls.load(path)
        return memo

    @property
    def id(self) -> str:
        """Return a public name for the draws of this memo that reveals nothing about its secret."""
        return code(self.secret, b"masquerade memo id").hex()[:16]

    def save(self, policy_id: str, epsilon: float | None = None) -> Memo:
        """Write the memo with this policy among its releases: owner-readable only, durable on return.

        No report may be released before it returns. Raises `FileError` if a different memo was created at
        this path concurrently: two secrets would disguise every person twice.
        """
        with suppress(FileExistsError):
            self._make()
        try:
            with lock_file(self.path):
                found = Memo.load(self.path)
                if not same(found.secret, self.secret) or found.form != self.form:
                    raise FileError(
                        f"{self.path}: a different memo was created here concurrently. Nothing was "
                        "released. Start again, and that memo is used."
                    )
                epsilon_before = found.releases.get(policy_id)
                bound = None if epsilon == math.inf else epsilon
                releases = {**found.releases, policy_id: bound if epsilon_before is None else epsilon_before}
                memo = replace(self, releases=releases)
                if memo.text != found.text:
                    write_whole(self.path, memo.text, private=True)
        except OSError as error:
            raise FileError(f"{self.path}: the memo cannot be written ({error.strerror}).") from None
        return memo

    @property
    def text(self) -> str:
        """Return the content of the file."""
        releases = list(self.releases) if self.form == AS_WRITTEN else dict(self.releases)
        return json.dumps({"masquerade_memo": self.form, "secret": self.secret.hex(), "releases": releases})

    def _make(self) -> None:
        """Create the file; raise `FileExistsError` if it exists."""
        try:
            with AtomicFile(self.path) as file:
                file.stream.write(self.text.encode())
                file.publish(private=True, overwrite=False)
        except FileExistsError:
            raise
        except OSError as error:
            raise FileError(f"{self.path}: the memo cannot be written ({error.strerror}).") from None

    def draws(self, policy_id: str, persons: pa.ChunkedArray | pa.Array, column: str) -> Draws:
        """Return draws that depend only on this memo, the policy, the person and the value."""
        keys = expand(self.secret, b"masquerade memo\0" + policy_id.encode(), 64)
        tags = person_tags(persons, column, keys[32:], self.form)
        # AES acts as a pseudo-random function: no input block occurs for two (person, group, value)
        function = BlockFunction(keys[:32])

        def drawn(codes: Codes, channel: Channel, /, rows: NDArray[np.int64] | None, place: int) -> Codes:
            if channel.truths > MOST_CODES or place >= MOST_PLACES:
                raise InputError("A memo supports at most 2**24 categories and 2**16 channels.")
            reports = np.empty(len(codes), dtype=np.min_scalar_type(channel.reports - 1))
            for begin in range(0, len(codes), ROWS_AT_ONCE):
                some = slice(begin, begin + ROWS_AT_ONCE)
                people = tags[some] if rows is None else tags[rows[some]]
                reports[some] = _reports_of(function, people, codes[some], channel, place)
            return reports

        return drawn


def _releases_of(values: Any, form: object) -> dict[str, float | None]:
    """Return ε of each policy in a memo file; raise `ValueError` or `TypeError` for invalid content."""
    if type(form) is not int or form not in {AS_WRITTEN, NORMAL}:  # `true` would equal 1
        raise ValueError
    if form == AS_WRITTEN and isinstance(values, list):
        return {str(policy): None for policy in values}
    if form == AS_WRITTEN or not isinstance(values, dict):
        raise TypeError
    return {policy: None if epsilon is None else float(epsilon) for policy, epsilon in values.items()}


def memo_of(path: str | Path | None, person: str | None, *, new: bool = False) -> Memo | None:
    """Return the memo of a file for the persons in a column; None if neither is given."""
    if (path is None) != (person is None):
        raise InputError("A memo needs both: the file ('memo') and the column that names the person ('id').")
    if path is None:
        if new:
            raise InputError("A new memo needs a file ('memo') and the column that names the person ('id').")
        return None
    return Memo.open(path, new=new)


def memo_notes(memo: Memo | None) -> tuple[str, ...]:
    """Return notes for the user of a memo."""
    if memo is None or memo.form == NORMAL:
        return ()
    note = (
        "knows persons by their ids exactly as they are written: 1, 1.0 and 1 with a blank are three people"
    )
    return (f"{memo.path}: this memo of an earlier version {note}. Write ids as before.",)


def chosen_draws(
    memo: Memo | None, person: str | None, policy: Policy, columns: Mapping[str, Any], fresh: Draws
) -> Draws:
    """Return the function that draws reports: from the memo if there is one, otherwise fresh."""
    if memo is None or person is None:
        return fresh
    return memo.draws(policy.id, columns[person], person)


def _reports_of(
    function: BlockFunction, people: NDArray[np.uint8], codes: Codes, channel: Channel, place: int
) -> NDArray[np.int64]:
    """Return the reports of the people with these tags."""
    words = block_words(function, people, codes, place, 0)
    reports = report_of_word(codes, words, channel.draw_table)
    left = np.flatnonzero(reports < 0)
    for attempt in range(1, 256):
        if not len(left):
            break
        words = block_words(function, people[left], codes[left], place, attempt)
        reports[left] = report_of_word(codes[left], words, channel.draw_table)
        left = left[reports[left] < 0]
    return reports


def block_words(
    function: BlockFunction, people: NDArray[np.uint8], codes: Codes, place: int, attempt: int
) -> NDArray[np.uint64]:
    """Return one pseudo-random word per row: tag (10 bytes) | place (2) | code (3) | attempt (1)."""
    blocks = np.empty((len(codes), 16), dtype=np.uint8)
    tagged_blocks(np.ascontiguousarray(people), codes.astype(np.uint32), place, attempt, blocks)
    return np.frombuffer(function(blocks.reshape(-1).data), dtype="<u8")[::2].astype(np.uint64)
