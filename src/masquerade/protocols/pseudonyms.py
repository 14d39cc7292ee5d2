"""Keys of records in normal form, pseudonyms by a secret that no joiner has, and parts cut by pseudonyms.

Two spellings of the same key link, two keys never do. The pseudonym of a key is HMAC-SHA256(secret, session ‖
normal form), cut to 16 bytes. Whoever has the secret and sees pseudonyms can try keys one by one, so one
party that helps the joiner opens the keys of all: where that is not acceptable, link privately
(`LinkingParty`).

A session is cut into parts by ranges of pseudonyms, the same ones at every party: part p of P has the records
whose pseudonym, read as a fraction of 1, lies in [p/P, (p+1)/P). Pseudonyms are random, so parts are equally
large up to chance; and since the ranges agree, a part of all parties joins to whole records whatever cell is
where.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.symmetric import coder
from masquerade.protocols.codec import SESSION_SIZE, Words

LONGEST_KEY = 1024
SECRET_SIZE = 32
PSEUDONYM_SIZE = 16
MOST_KEYED = 30_000_000  # pseudonyms in a message
_AT_ONCE = 1 << 16
ROWS_AT_ONCE = 1 << 18
MOST_PARTS = 1 << 20
Tags = NDArray[np.uint8]  # rows × 16 bytes
Key = str | int | tuple[str | int, ...]


def normal_form(key: Key) -> bytes:
    """Return the bytes that stand for a key: a text, a whole number, or several of them together.

    A text is brought to Unicode NFC, stripped of white space at both ends, runs of white space inside become
    one space, upper and lower case are folded, and NFC is applied again; a whole number stands for its
    decimal digits. What differs after that is different: leading zeros, hyphens, accents, abbreviations.

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
        raise InputError("A key is a text or a whole number, or several of these in a tuple.")
    folded = " ".join(unicodedata.normalize("NFC", str(part)).split()).casefold()
    try:
        text = unicodedata.normalize("NFC", folded).encode()
    except UnicodeEncodeError:
        raise InputError("A key is not valid Unicode.") from None
    if not text or len(text) > LONGEST_KEY:
        raise InputError(f"A key, and every part of it, has from 1 to {LONGEST_KEY} bytes.")
    return text


def normal_forms(keys: Sequence[Key], most: int) -> list[bytes]:
    """Return all keys in normal form; two records with one key are refused, and so are too many."""
    _check_count(keys, most)
    forms = [normal_form(key) for key in keys]
    _check_repeated(len(forms) - len(set(forms)))
    return forms


def keyed_pseudonyms(
    keys: Sequence[Key], secret: bytes, session: bytes, *, most: int = MOST_KEYED
) -> NDArray[np.uint8]:
    """Return the pseudonyms of keys as an array, 16 bytes a row, in the order of the keys.

    >>> found = keyed_pseudonyms(["Ann", "bob"], secret=bytes(32), session=bytes(16))
    >>> found.shape, bytes(found[0]) == bytes(keyed_pseudonyms([" ANN"], bytes(32), bytes(16))[0])
    ((2, 16), True)
    """
    if len(session) != SESSION_SIZE:
        raise InputError(f"A session has {SESSION_SIZE} bytes.")
    if len(secret) != SECRET_SIZE:
        raise InputError(f"A linking secret has {SECRET_SIZE} random bytes. Got {len(secret)} instead.")
    _check_count(keys, most)
    digest = coder(secret)
    found = np.empty((len(keys), PSEUDONYM_SIZE), dtype=np.uint8)
    for begin in range(0, len(keys), _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        cut = b"".join([digest(session + normal_form(key))[:PSEUDONYM_SIZE] for key in keys[some]])
        found[some] = np.frombuffer(cut, dtype=np.uint8).reshape(-1, PSEUDONYM_SIZE)
    first = np.sort(found.view(np.uint64)[:, 0])
    if not np.all(first[1:] > first[:-1]):  # halves that agree do not yet mean that keys do
        _check_repeated(len(found) - len(np.unique(found, axis=0)))
    return found


def _check_count(keys: Sequence[Key], most: int) -> None:
    if len(keys) > most:
        raise InputError(f"At most {most:,} keys are linked in a session. Got {len(keys):,} instead.")


def _check_repeated(repeated: int) -> None:
    if repeated:
        raise InputError(
            f"{repeated:,} records have a key that another record has too (after normalising): a key must "
            "name one record."
        )


def split_pseudonyms(values: bytes) -> list[bytes]:
    """Return pseudonyms; they must be sorted, none twice."""
    if len(values) % PSEUDONYM_SIZE:
        raise InputError(f"Pseudonyms have {PSEUDONYM_SIZE} bytes each; the last is incomplete.")
    listed = [values[at : at + PSEUDONYM_SIZE] for at in range(0, len(values), PSEUDONYM_SIZE)]
    if any(first >= second for first, second in pairwise(listed)):
        raise InputError("Pseudonyms must be sorted, none twice.")
    return listed


def parts_for(rows: int, rows_at_once: int) -> int:
    """Return into how many parts so many records are cut.

    >>> parts_for(10_000_000, 1 << 18)
    39
    """
    if rows_at_once < 1:
        raise InputError(f"A part has at least one row. Got {rows_at_once:,} rows at once instead.")
    return min(max(-(-rows // rows_at_once), 1), MOST_PARTS)


def most_in_part(rows: int, parts: int) -> int:
    """Return how many of some rows one part can have: more than twice the mean, plus 1,000, is no chance.

    Error: an honest part with mean m has that many with probability below exp(−3(m+1000)²/(8m+2000)), by
    Bernstein's inequality; the exponent is 1125 at least (m = 500), so that is below 1e-488.
    """
    return min(rows, 2 * -(-rows // parts) + 1000)


def bounds_of(part: int, parts: int) -> tuple[np.uint64, np.uint64]:
    """Return the first and the last word that a pseudonym of a part begins with."""
    first, end = (-(-(p << 64) // parts) for p in (part, part + 1))
    return np.uint64(first), np.uint64(end - 1)


def words_of(tags: Tags) -> tuple[Words, Words]:
    """Return pseudonyms as two words each, to be compared."""
    words = np.ascontiguousarray(tags).view(">u8")
    return words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)


class SortedPseudonyms:
    """Pseudonyms in order: which rows are in a part. Of those that came in order nothing more is held."""

    def __init__(self, tags: Tags) -> None:
        self._tags, self._order = tags, None if _in_order(tags) else order_of(tags)

    def rows(self, part: int, parts: int) -> NDArray[np.intp]:
        """Return the rows of a part, by pseudonym."""
        (first, last), all_rows = bounds_of(part, parts), range(len(self._tags))
        begin = bisect_left(all_rows, int(first), key=self._first_word)
        end = bisect_right(all_rows, int(last), key=self._first_word)
        return np.arange(begin, end) if self._order is None else self._order[begin:end]

    def _first_word(self, place: int) -> int:
        row = place if self._order is None else self._order[place]
        return int.from_bytes(self._tags[row, :8].tobytes(), "big")


def _in_order(tags: Tags) -> bool:
    """Tell whether pseudonyms come in order, looking at some at a time."""
    cuts = range(0, len(tags), ROWS_AT_ONCE)
    return all(increasing(*words_of(tags[at : at + ROWS_AT_ONCE + 1])) for at in cuts)


def order_of(tags: Tags) -> NDArray[np.intp]:
    """Return the order that sorts pseudonyms; one that stands there twice is refused."""
    first = np.ascontiguousarray(tags).view(">u8")[:, 0].astype(np.uint64)
    order = np.argsort(first)
    runs = (first[order[at : at + ROWS_AT_ONCE + 1]] for at in range(0, len(order), ROWS_AT_ONCE))
    if not all(np.all(run[1:] > run[:-1]) for run in runs):  # the first halves alone do not tell all apart
        first, second = words_of(tags)
        order = np.lexsort((second, first))
        if not increasing(first[order], second[order]):
            raise InputError("A pseudonym names two rows of a block: a pseudonym names one record.")
    return order


def increasing(first: Words, second: Words) -> bool:
    """Tell whether each of some pseudonyms is larger than the one before it."""
    equal = first[1:] == first[:-1]
    return bool(np.all((first[1:] > first[:-1]) | (equal & (second[1:] > second[:-1]))))
