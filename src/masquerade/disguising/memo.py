"""The keyed memo: the same person's same value always gets the same report, and nothing is stored but a key.

A report is decided by a 64-bit word. Fresh draws take the word from a keystream; the memo takes it from a
pseudo-random function of (policy, person, group, value), so a repeated release repeats the report and
teaches nothing new. The function is AES-256 on one block per (person, group, value), under a key derived
by HKDF from the memo's secret and the policy id; persons enter as keyed BLAKE2b tags, never as they are.
Whoever has the secret can test guesses about a value: guard the file as you guard the data.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Policy
from masquerade.core.atomic import AtomicFile, write_whole
from masquerade.core.errors import FileError, InputError, UnknownValue
from masquerade.core.json_text import parse_json
from masquerade.core.private_file import locked, read_private
from masquerade.crypto.code_rows import Texts, keyed_tags
from masquerade.crypto.keys import expand
from masquerade.crypto.symmetric import BlockFunction, code, same
from masquerade.disguising.report_draws import Codes, Draws
from masquerade.kernels.draw import report_of_word, tagged_blocks

FORMAT = 1
TAG_BYTES = 10
MOST_CODES = 2**24
MOST_PLACES = 2**16
ROWS_AT_ONCE = 2**18


@dataclass(frozen=True, slots=True)
class Memo:
    """A secret from which repeated draws follow, and the policies it has served."""

    path: Path
    secret: bytes
    releases: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Show the file, never the secret."""
        return f"Memo({str(self.path)!r}, {len(self.releases)} releases)"

    @classmethod
    def open(cls, path: str | Path) -> Memo:
        """Read a memo file, or think of a new secret if there is none yet; `saved` makes the file."""
        try:
            return cls.load(path)
        except FileNotFoundError:
            return cls(Path(path), secrets.token_bytes(32))

    @classmethod
    def load(cls, path: str | Path) -> Memo:
        """Read a memo file, which must be its owner's alone; `FileNotFoundError` says that there is none."""
        place = Path(path)
        try:
            values = parse_json(read_private(place, "a memo"))
            known = values["masquerade_memo"] == FORMAT
            secret = bytes.fromhex(values["secret"])
            releases = tuple(str(release) for release in values["releases"])
        except FileError:
            raise
        except (InputError, KeyError, TypeError, ValueError):
            raise FileError(f"{place}: this is not a memo file.") from None
        if not known or len(secret) != 32:
            raise FileError(f"{place}: this is not a memo file.")
        return cls(place, secret, releases)

    @classmethod
    def kept(cls, path: str | Path) -> Memo:
        """Return the memo in a file, made now if there is none: of two who make it at once, one is first."""
        memo = cls.open(path)
        try:
            memo._make()
        except FileExistsError:
            return cls.load(path)
        return memo

    @property
    def id(self) -> str:
        """Return a name for the draws of this memo, from which nothing about its secret follows."""
        return code(self.secret, b"masquerade memo id").hex()[:16]

    def saved(self, policy_id: str) -> Memo:
        """Write the memo, this policy among its releases, readable by its owner only; durable on return.

        Nothing may leave before. If somebody made another memo in this place meanwhile, that is a
        `FileError`: two secrets would disguise everybody twice.
        """
        with suppress(FileExistsError):
            self._make()
        try:
            with locked(self.path):
                found = Memo.load(self.path)
                if not same(found.secret, self.secret):
                    raise FileError(
                        f"{self.path}: another memo was made here meanwhile. Nothing was released; begin "
                        "again, and people are disguised as that memo does."
                    )
                releases = tuple(dict.fromkeys((*found.releases, policy_id)))
                if releases != found.releases:
                    write_whole(self.path, _text(self.secret, releases), private=True)
        except OSError as error:
            raise FileError(f"{self.path}: the memo cannot be written ({error.strerror}).") from None
        return Memo(self.path, self.secret, releases)

    def _make(self) -> None:
        """Make the file, unless there is one: then `FileExistsError`."""
        try:
            with AtomicFile(self.path) as file:
                file.stream.write(_text(self.secret, self.releases).encode())
                file.publish(private=True, overwrite=False)
        except FileExistsError:
            raise
        except OSError as error:
            raise FileError(f"{self.path}: the memo cannot be written ({error.strerror}).") from None

    def draws(self, policy_id: str, persons: pa.ChunkedArray | pa.Array, column: str) -> Draws:
        """Return draws that depend only on this memo, the policy, the person and the value."""
        keys = expand(self.secret, b"masquerade memo\0" + policy_id.encode(), 64)
        tags = person_tags(persons, column, keys[32:])
        # one block per (person, group, value) is a pseudo-random function; blocks never repeat
        function = BlockFunction(keys[:32])

        def drawn(codes: Codes, channel: Channel, /, rows: NDArray[np.int64] | None, place: int) -> Codes:
            if channel.truths > MOST_CODES or place >= MOST_PLACES:
                raise InputError("The memo takes at most 2**24 categories and 2**16 channels.")
            reports = np.empty(len(codes), dtype=np.min_scalar_type(channel.reports - 1))
            for begin in range(0, len(codes), ROWS_AT_ONCE):
                some = slice(begin, begin + ROWS_AT_ONCE)
                people = tags[some] if rows is None else tags[rows[some]]
                reports[some] = _reports_of(function, people, codes[some], channel, place)
            return reports

        return drawn


def _text(secret: bytes, releases: tuple[str, ...]) -> str:
    return json.dumps({"masquerade_memo": FORMAT, "secret": secret.hex(), "releases": releases})


def memo_of(path: str | Path | None, person: str | None) -> Memo | None:
    """Return the memo of a file for the persons that a column names; None if neither is given."""
    if (path is None) != (person is None):
        raise InputError("A memo needs both: the file ('memo') and the column that names the person ('id').")
    return None if path is None else Memo.open(path)


def chosen_draws(
    memo: Memo | None, person: str | None, policy: Policy, columns: Mapping[str, Any], fresh: Draws
) -> Draws:
    """Return how reports are drawn: by a memo if there is one, else fresh."""
    if memo is None or person is None:
        return fresh
    return memo.draws(policy.id, columns[person], person)


def _reports_of(
    function: BlockFunction, people: NDArray[np.uint8], codes: Codes, channel: Channel, place: int
) -> NDArray[np.int64]:
    """Return the reports of some people, who are known by their tags."""
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


def person_tags(persons: Any, column: str, key: bytes) -> NDArray[np.uint8]:
    """Return a keyed tag for every person; a missing id is refused by row."""
    missing = pc.is_null(persons, nan_is_null=pa.types.is_floating(persons.type))
    if pc.any(missing).as_py():
        row = pc.index(missing, value=True).as_py() + 1
        raise UnknownValue(column, row, "is missing: the memo needs to know whose record it is")
    tags = np.empty((len(persons), TAG_BYTES), dtype=np.uint8)
    for begin in range(0, len(persons), ROWS_AT_ONCE):
        some = persons.slice(begin, ROWS_AT_ONCE)
        tags[begin : begin + ROWS_AT_ONCE] = _tags_of(
            some.combine_chunks() if isinstance(some, pa.ChunkedArray) else some, key
        )
    return tags


def _tags_of(persons: pa.Array, key: bytes) -> NDArray[np.uint8]:
    """Return a keyed tag for every person."""
    if pa.types.is_dictionary(persons.type):
        own: NDArray[np.uint8] = _tags_of(persons.dictionary, key)[
            persons.indices.to_numpy(zero_copy_only=False)
        ]
        return own
    return keyed_tags(key, Texts.of_column(persons), TAG_BYTES)
