"""Pseudonyms by a secret that the joiner (linker) does not have, and parts of a session by pseudonym.

The pseudonym of a key is HMAC-SHA256(secret, session ‖ normal form), cut to 16 bytes. Anyone who has the
secret and sees pseudonyms can try keys one by one. So a single party that colludes with the joiner reveals
the keys of all parties. If that is not acceptable, use PSI (`LinkingParty`).

A session is divided into parts by ranges of pseudonyms, the same at every party: part p of P has the records
whose pseudonym, read as a fraction of 1, is in [p/P, (p+1)/P). Pseudonyms are random, so parts are equally
large up to chance. All parties use the same ranges, so all cells of a record are in the same part, whichever
party holds them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Words
from masquerade.core.errors import InputError
from masquerade.core.util.scratch import MEMORY_ONLY, Scratch, release_pages
from masquerade.crypto.batch_mac import codes
from masquerade.protocols.linkage.record_keys import Key, check_count, check_repeated, forms_of
from masquerade.protocols.wire.codec import SESSION_SIZE

SECRET_SIZE = 32
PSEUDONYM_SIZE = 16
MOST_KEYED = 30_000_000  # pseudonyms in a message
ROWS_AT_ONCE = 1 << 18
SORTED_AT_ONCE = 1 << 19  # rows of a range that is sorted in memory
MOST_PARTS = 1 << 20
Tags = NDArray[np.uint8]  # rows × 16 bytes


def keyed_pseudonyms(
    keys: Sequence[Key],
    secret: bytes,
    session: bytes,
    *,
    most: int = MOST_KEYED,
    scratch: Scratch = MEMORY_ONLY,
) -> NDArray[np.uint8]:
    """Return the pseudonyms of keys as an array with 16 bytes per row, in the order of the keys.

    >>> found = keyed_pseudonyms(["Ann", "bob"], secret=bytes(32), session=bytes(16))
    >>> found.shape, bytes(found[0]) == bytes(keyed_pseudonyms([" ANN"], bytes(32), bytes(16))[0])
    ((2, 16), True)
    """
    if len(session) != SESSION_SIZE:
        raise InputError(f"A session has {SESSION_SIZE} bytes.")
    if len(secret) != SECRET_SIZE:
        raise InputError(f"A linking secret has {SECRET_SIZE} random bytes. Got {len(secret)} instead.")
    check_count(keys, most)
    found: Tags = scratch.empty((len(keys), PSEUDONYM_SIZE), np.uint8)
    for begin in range(0, len(keys), ROWS_AT_ONCE):
        forms = forms_of(keys, begin, begin + ROWS_AT_ONCE)
        found[begin : begin + ROWS_AT_ONCE] = codes(secret, session, forms, PSEUDONYM_SIZE)
        release_pages()
    check_repeated(repeated_rows(found))
    return found


def repeated_rows(rows: Tags) -> int:
    """Return the number of rows of random bytes that repeat an earlier row."""
    return sum(
        0 if _all_differ(some) else len(some) - len(np.unique(some, axis=0)) for _, some in ranges_of(rows)
    )


def _all_differ(rows: Tags) -> bool:
    """Return True if the beginnings of all rows differ; False if some agree, even if the rows differ."""
    first = np.sort(rows.view(np.uint64)[:, 0])
    return bool(np.all(first[1:] > first[:-1]))


def ranges_of(tags: Tags) -> Iterator[tuple[NDArray[np.intp], Tags]]:
    """Yield consecutive ranges of about `SORTED_AT_ONCE` pseudonyms: their rows, and the pseudonyms.

    Pseudonyms are random, so ranges are equally large up to chance. Cost: a pass over them for each range.
    """
    parts = parts_for(len(tags), SORTED_AT_ONCE)
    if parts == 1:
        yield np.arange(len(tags)), tags
        return
    for part in range(parts):
        low, high = bounds_of(part, parts)
        places, found = [], []
        for at in range(0, len(tags), ROWS_AT_ONCE):
            some = tags[at : at + ROWS_AT_ONCE]
            first = words_of(some)[0]
            inside = np.flatnonzero((low <= first) & (first <= high))
            places.append(at + inside)
            found.append(some[inside])
            release_pages()
        yield np.concatenate(places), np.concatenate(found)


def split_pseudonyms(values: bytes) -> Tags:
    """Return pseudonyms, one row per record; they must be sorted and distinct."""
    if len(values) % PSEUDONYM_SIZE:
        raise InputError(f"Pseudonyms have {PSEUDONYM_SIZE} bytes each; the last is incomplete.")
    tags = np.frombuffer(values, np.uint8).reshape(-1, PSEUDONYM_SIZE)
    if not _in_order(tags):
        raise InputError("Pseudonyms must be sorted, none twice.")
    return tags


def parts_for(rows: int, rows_at_once: int) -> int:
    """Return the number of parts for `rows` records, about `rows_at_once` in each.

    >>> parts_for(10_000_000, 1 << 18)
    39
    """
    if rows_at_once < 1:
        raise InputError(f"'rows_at_once' must be at least 1. Got {rows_at_once:,} instead.")
    return min(max(-(-rows // rows_at_once), 1), MOST_PARTS)


def most_in_part(rows: int, parts: int) -> int:
    """Return the largest plausible number of rows in one part: twice the mean, plus 1,000.

    Error: an honest part with mean m exceeds it with probability below exp(−3(m+1000)²/(8m+2000)), by
    Bernstein's inequality; the exponent is at least 1125 (m = 500), so that is below 1e-488.
    """
    return min(rows, 2 * -(-rows // parts) + 1000)


def bounds_of(part: int, parts: int) -> tuple[np.uint64, np.uint64]:
    """Return the first and the last 64-bit word with which pseudonyms of a part start."""
    first, end = (-(-(p << 64) // parts) for p in (part, part + 1))
    return np.uint64(first), np.uint64(end - 1)


def words_of(tags: Tags) -> tuple[Words, Words]:
    """Return pseudonyms as two words each, for comparisons."""
    words = np.ascontiguousarray(tags).view(">u8")
    return words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)


class SortedPseudonyms:
    """Sorted pseudonyms, and the rows of each part. If they were sorted already, no permutation is stored."""

    def __init__(self, tags: Tags) -> None:
        self._tags, self._order = tags, None if _in_order(tags) else order_of(tags)

    def rows(self, part: int, parts: int) -> NDArray[np.intp]:
        """Return the rows of a part, sorted by pseudonym."""
        (first, last), all_rows = bounds_of(part, parts), range(len(self._tags))
        begin = bisect_left(all_rows, int(first), key=self._first_word)
        end = bisect_right(all_rows, int(last), key=self._first_word)
        return np.arange(begin, end) if self._order is None else self._order[begin:end]

    def _first_word(self, place: int) -> int:
        row = place if self._order is None else self._order[place]
        return int.from_bytes(self._tags[row, :8].tobytes(), "big")


def _in_order(tags: Tags) -> bool:
    """Return True if pseudonyms are sorted; they are read in blocks."""
    for at in range(0, len(tags), ROWS_AT_ONCE):
        if not increasing(*words_of(tags[at : at + ROWS_AT_ONCE + 1])):
            return False
        release_pages()
    return True


def order_of(tags: Tags) -> NDArray[np.intp]:
    """Return the permutation that sorts pseudonyms; raise an error for a duplicate."""
    first = np.ascontiguousarray(tags).view(">u8")[:, 0].astype(np.uint64)
    order = np.argsort(first)
    runs = (first[order[at : at + ROWS_AT_ONCE + 1]] for at in range(0, len(order), ROWS_AT_ONCE))
    # the first halves may not distinguish all pseudonyms
    if not all(np.all(run[1:] > run[:-1]) for run in runs):
        first, second = words_of(tags)
        order = np.lexsort((second, first))
        if not increasing(first[order], second[order]):
            raise InputError(
                "A pseudonym occurs in two rows of a block: every pseudonym must have one record."
            )
    return order


def places_among(tags: Tags, wanted: Tags) -> NDArray[np.intp]:
    """Return the row of each pseudonym in `tags`, which are distinct; −1 if it is missing."""
    if not len(tags):
        return np.full(len(wanted), -1)
    order = order_of(tags)
    first, second = (words[order] for words in words_of(tags))
    high, low = words_of(wanted)
    at = np.searchsorted(first, high)
    while True:
        near = np.minimum(at, len(first) - 1)
        behind = (at < len(first)) & (first[near] == high) & (second[near] < low)
        if not behind.any():  # beginnings of several pseudonyms hardly ever agree
            break
        at[behind] += 1
    found = (at < len(first)) & (first[near] == high) & (second[near] == low)
    return np.where(found, order[near], -1)


def increasing(first: Words, second: Words) -> bool:
    """Return True if each pseudonym is larger than the one before it."""
    equal = first[1:] == first[:-1]
    return bool(np.all((first[1:] > first[:-1]) | (equal & (second[1:] > second[:-1]))))
