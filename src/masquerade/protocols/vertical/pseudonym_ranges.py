"""How a session is cut into parts: by ranges of pseudonyms, the same ones at every party.

Part p of P has the records whose pseudonym, read as a fraction of 1, lies in [p/P, (p+1)/P). Pseudonyms are
random, so parts are equally large up to chance; and since the ranges agree, a part of all parties joins to
whole records whatever cell is where.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError

ROWS_AT_ONCE = 1 << 18
MOST_PARTS = 1 << 20
Tags = NDArray[np.uint8]  # rows × 16 bytes
Words = NDArray[np.uint64]


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
    """Pseudonyms in order: which rows are in a part."""

    def __init__(self, tags: Tags) -> None:
        first, second = words_of(tags)
        self.order: NDArray[np.intp] = np.argsort(first)
        self._first = first[self.order]
        if not np.all(self._first[1:] > self._first[:-1]):  # the first halves alone do not tell all apart
            self.order = np.lexsort((second, first))
            self._first = first[self.order]
            if not increasing(self._first, second[self.order]):
                raise InputError("A pseudonym names two rows of a block: a pseudonym names one record.")

    def rows(self, part: int, parts: int) -> NDArray[np.intp]:
        """Return the rows of a part, by pseudonym."""
        first, last = bounds_of(part, parts)
        begin = np.searchsorted(self._first, first, side="left")
        return self.order[begin : np.searchsorted(self._first, last, side="right")]


def increasing(first: Words, second: Words) -> bool:
    """Tell whether each of some pseudonyms is larger than the one before it."""
    equal = first[1:] == first[:-1]
    return bool(np.all((first[1:] > first[:-1]) | (equal & (second[1:] > second[:-1]))))
