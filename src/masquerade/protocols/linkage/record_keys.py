"""Keys that identify the people of records, normalised column by column.

Spellings of the same key have the same normal form; different keys never do. Columns of millions of keys are
normalised without one Python object per key, except for keys that are not plain ASCII.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import pyarrow as pa

from masquerade.core.errors import InputError
from masquerade.crypto.batch_mac import Texts
from masquerade.kernels.key_texts import ascii_forms, merge_rows

LONGEST_KEY = 1024
KEYS_AT_ONCE = 1 << 16
LENGTH = 2  # bytes before every part of a normal form
Key = str | int | tuple[str | int, ...]


def normal_form(key: Key) -> bytes:
    """Return the normal form of a key: a text, a whole number, or a tuple of these.

    A text is converted to Unicode NFC, stripped of white space at both ends, runs of white space become one
    space, case is folded, and NFC is applied again. A whole number equals its decimal digits. Any other
    difference makes keys different: leading zeros, hyphens, accents, abbreviations.

    >>> normal_form("  Ana  MÜLLER ") == normal_form("ana müller")
    True
    >>> normal_form(("müller", 1970)) == normal_form("müller 1970")
    False
    """
    parts = key if isinstance(key, tuple) else (key,)
    encoded = b"".join(len(part).to_bytes(2, "big") + part for part in map(_part, parts))
    if not parts or len(encoded) > LONGEST_KEY:
        raise InputError(f"A key has at least one part and at most {LONGEST_KEY} bytes.")
    return encoded


def _part(part: object) -> bytes:
    if isinstance(part, bool) or not isinstance(part, (str, int)):
        raise InputError("A key must be a text, a whole number, or a tuple of these.")
    folded = " ".join(unicodedata.normalize("NFC", str(part)).split()).casefold()
    try:
        text = unicodedata.normalize("NFC", folded).encode()
    except UnicodeEncodeError:
        raise InputError("A key is not valid Unicode.") from None
    if not text or len(text) > LONGEST_KEY:
        raise InputError(f"A key, and every part of it, has from 1 to {LONGEST_KEY} bytes.")
    return text


@dataclass(frozen=True, slots=True, eq=False)
class KeyColumn(Sequence[Key]):
    """Keys in an Arrow column, converted to Python values only on access."""

    column: pa.Array

    def __len__(self) -> int:
        return len(self.column)

    @overload
    def __getitem__(self, place: int) -> Key: ...
    @overload
    def __getitem__(self, place: slice) -> list[Key]: ...
    def __getitem__(self, place: int | slice) -> Key | list[Key]:
        found: Any = self.column[place]
        key: Key | list[Key] = found.to_pylist() if isinstance(place, slice) else found.as_py()
        return key

    def __iter__(self) -> Iterator[Key]:
        for begin in range(0, len(self), KEYS_AT_ONCE):
            yield from self[begin : begin + KEYS_AT_ONCE]

    def forms(self, begin: int, end: int, *, lead: int = LENGTH) -> Texts:
        """Return the normal forms of the keys from `begin` to `end`; `lead=0` omits the length prefix."""
        column = self.column[begin:end]
        if pa.types.is_integer(column.type) and not column.null_count:
            column = column.cast(pa.string())
        if not is_text(column.type) or column.null_count:
            return Texts.of(normal_form(key)[LENGTH - lead :] for key in column.to_pylist())
        texts = Texts.of_column(column)
        room = int(texts.offsets[-1] - texts.offsets[0]) + lead * len(column)
        out, ends = np.empty(room, np.uint8), np.zeros(len(column) + 1, np.int64)
        left = np.empty(len(column), np.int64)
        others = left[
            : ascii_forms((texts.data, texts.offsets), lead, LONGEST_KEY - LENGTH, (out, ends), left)
        ]
        if not len(others):
            return Texts(out[: ends[-1]], ends)
        rest = column.take(pa.array(others)).to_pylist()
        more = Texts.of(normal_form(key)[LENGTH - lead :] for key in rest)
        whole, places = np.empty(int(ends[-1]) + more.data.size, np.uint8), np.zeros_like(ends)
        merge_rows((out, ends), (more.data, more.offsets), others, (whole, places))
        return Texts(whole, places)


def is_text(kind: pa.DataType) -> bool:
    """Return True if a column has Arrow's type string or large_string."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def forms_of(keys: Sequence[Key], begin: int, end: int) -> Texts:
    """Return the normal forms of the keys from `begin` to `end`."""
    if isinstance(keys, KeyColumn):
        return keys.forms(begin, end)
    return Texts.of(map(normal_form, keys[begin:end]))


def check_count(keys: Sequence[Key], most: int) -> None:
    """Raise InputError for too many keys."""
    if len(keys) > most:
        raise InputError(f"At most {most:,} keys are linked in a session. Got {len(keys):,} instead.")


def check_repeated(repeated: int) -> None:
    """Raise InputError if a key names several records."""
    if repeated:
        raise InputError(
            f"{repeated:,} records share their key with another record (after normalising): every record "
            "needs its own key."
        )
