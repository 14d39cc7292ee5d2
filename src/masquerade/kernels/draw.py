"""Draw reports with exact rational probabilities from uniform bytes."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.jit import compiled, expect_rows, numpy_twin

Bytes = Callable[[int], NDArray[np.uint8]]
Integers = NDArray[np.integer[Any]]
Intervals = tuple[NDArray[np.int32], NDArray[np.uint64], NDArray[np.int32], NDArray[np.int32]]

UNDECIDED: Final = 65535
_LARGEST_TOTAL: Final = 1 << 62
_CHUNK: Final = 1 << 19
_LINEAR: Final = 8
_SHARE: Final = 1 << 19  # with fewer codes, a second thread costs more than it saves
_LARGEST_SCREEN: Final = 1 << 18  # most entries of `first`: a larger table does not fit into the cache
_MOST_STARTS: Final = 1 << 12  # most rows of `start`
_NARROW: Final = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.int32))


@dataclass(frozen=True, slots=True)
class DrawTable:
    """Intervals of 64-bit words for each report, by true code.

    K is the number of true codes, and S the largest number of outcomes of a code.

    Attributes
    ----------
    outcomes
        ``(K, S)`` possible reports of each code, padded on the right.
    last
        ``(K, S)`` last word of each outcome's interval, padded with the row's last value.
    support
        ``(K,)`` number of outcomes of each row.
    first
        ``(K, 256)`` report that a word's top byte alone determines, or ``UNDECIDED``; ``(0, 256)`` if a
        lookup by top byte does not pay off.
    reports
        Number of report codes, M.
    start
        ``(K, 257)`` number of intervals that end before each top byte, where the search for a word starts;
        ``(0, 257)`` if there are too many rows.
    """

    outcomes: NDArray[np.int32]
    last: NDArray[np.uint64]
    support: NDArray[np.int32]
    first: NDArray[np.uint16]
    reports: int
    start: NDArray[np.int32]

    @property
    def intervals(self) -> Intervals:
        """The arrays that map a full word to a report."""
        return self.outcomes, self.last, self.support, self.start


def draw_table(outcomes: Integers, weights: Integers, reports: int) -> DrawTable:
    """Return the intervals of 64-bit words that map code ``l`` to ``outcomes[l, j]``.

    Formula: outcome j has ``w_j q`` consecutive words, ``q = floor(2^64 / D)``, ``D = Σ w_j``; words from ``D
    q`` on are rejected, so an accepted word gives j with probability exactly ``w_j / D``.

    Cost: O(K S) memory, O(K (S + 256 log S)) time.
    """
    _check_weights(outcomes, weights, reports)
    order = np.argsort(weights == 0, axis=1, kind="stable")
    packed = np.take_along_axis(weights, order, axis=1).astype(np.int64)
    codes = np.take_along_axis(outcomes, order, axis=1).astype(np.int32)
    cumulated = np.cumsum(packed, axis=1)
    support = np.count_nonzero(packed, axis=1).astype(np.int32)
    # modulo 2^64 on purpose: only D·q = 2^64 wraps to 0, and subtracting 1 gives 2^64 − 1
    q = np.array([((1 << 64) // int(total)) % (1 << 64) for total in cumulated[:, -1]], dtype=np.uint64)
    last = cumulated.astype(np.uint64) * q[:, None] - np.uint64(1)
    first = _first_bytes(codes, last, support, reports)
    return DrawTable(codes, last, support, first, reports, _starts(last, support))


def draw(codes: Integers, table: DrawTable, fresh: Bytes) -> NDArray[np.unsignedinteger[Any]]:
    """Draw one report per code.

    Formula: report ~ ``w[code] / D[code]``, exactly, if ``fresh`` yields independent uniform bytes.

    Cost: about one byte and one table lookup per code where the top byte decides, else one word and a binary
    search. A thread-local source (`Keystream`) is called from several threads, any other source from this
    thread only, in order.
    """
    codes = _checked_codes(codes, table)
    expect_rows(codes.size)
    reports = np.empty(codes.size, dtype=np.min_scalar_type(table.reports - 1))
    shared = isinstance(fresh, threading.local)
    threads = min(os.cpu_count() or 1, codes.size // _SHARE) if shared else 1
    if threads < 2:
        _fill(codes, table, fresh, reports)
        return reports
    cuts = [codes.size * t // threads for t in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        parts = [slice(a, b) for a, b in pairwise(cuts)]
        list(pool.map(lambda part: _fill(codes[part], table, fresh, reports[part]), parts))
    return reports


def report_of_word(codes: Integers, words: NDArray[np.uint64], table: DrawTable) -> NDArray[np.int64]:
    """Return the report that each word gives for its code; −1 if the word is rejected."""
    codes = _checked_codes(codes, table)
    words = np.ascontiguousarray(words, dtype=np.uint64)
    if words.shape != codes.shape:
        raise ValueError(f"{codes.size} codes need as many words, got shape {words.shape}")
    reports = np.full(codes.size, -1, dtype=np.int64)
    _settle(codes, np.arange(codes.size, dtype=np.int64), words, table.intervals, reports)
    return reports


@compiled
def tagged_blocks(
    tags: NDArray[np.uint8], codes: NDArray[np.uint32], place: int, attempt: int, blocks: NDArray[np.uint8]
) -> None:
    """Write one block per row: tag (10 bytes) | place (2, high first) | code (3, low first) | attempt (1)."""
    for row in range(len(codes)):
        for i in range(10):
            blocks[row, i] = tags[row, i]
        blocks[row, 10], blocks[row, 11] = place >> 8, place & 255
        for i in range(3):
            blocks[row, 12 + i] = (codes[row] >> np.uint32(8 * i)) & 255
        blocks[row, 15] = attempt


@numpy_twin(tagged_blocks)
def _tagged_few(
    tags: NDArray[np.uint8], codes: NDArray[np.uint32], place: int, attempt: int, blocks: NDArray[np.uint8]
) -> None:
    blocks[:, :10] = tags[:, :10]
    blocks[:, 10], blocks[:, 11], blocks[:, 15] = place >> 8, place & 255, attempt
    for i in range(3):
        blocks[:, 12 + i] = (codes >> np.uint32(8 * i)) & np.uint32(255)


def _check_weights(outcomes: Integers, weights: Integers, reports: int) -> None:
    if weights.ndim != 2 or weights.size == 0 or outcomes.shape != weights.shape:
        raise ValueError(
            f"outcomes and weights must both be K by S, got {outcomes.shape} and {weights.shape}"
        )
    if weights.min() < 0:
        raise ValueError("a weight is negative")
    # compare a float total first, because the integer total could wrap around
    if weights.sum(axis=1, dtype=np.float64).max() > 1.5 * _LARGEST_TOTAL:
        raise ValueError("the weights of a row add up to more than 2^62")
    totals = weights.sum(axis=1, dtype=np.int64)
    if totals.min() < 1 or totals.max() > _LARGEST_TOTAL:
        raise ValueError("the weights of each row must add up to a number from 1 to 2^62")
    possible = outcomes[weights > 0]
    if possible.min() < 0 or possible.max() >= reports:
        raise ValueError(f"an outcome is outside 0..{reports - 1}")


def _checked_codes(codes: Integers, table: DrawTable) -> Integers:
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise ValueError(f"codes must be one-dimensional integers, got {codes.dtype} of shape {codes.shape}")
    rows = table.support.size
    if codes.size and (int(codes.max()) >= rows or int(codes.min()) < 0):
        raise ValueError(f"a code is outside 0..{rows - 1}")
    return np.ascontiguousarray(codes, dtype=codes.dtype if codes.dtype in _NARROW else np.int32)


def _first_bytes(
    outcomes: NDArray[np.int32], last: NDArray[np.uint64], support: NDArray[np.int32], reports: int
) -> NDArray[np.uint16]:
    nothing = np.empty((0, 256), dtype=np.uint16)
    if reports > UNDECIDED or support.size * 256 > _LARGEST_SCREEN:
        return nothing
    lowest = np.arange(256, dtype=np.uint64) << np.uint64(56)
    highest = lowest + np.uint64((1 << 56) - 1)
    first = np.full((support.size, 256), UNDECIDED, dtype=np.uint16)
    for row, size in enumerate(support):
        ends = last[row, :size]
        start, stop = np.searchsorted(ends, lowest), np.searchsorted(ends, highest)
        decided = (start == stop) & (stop < size)
        first[row, decided] = outcomes[row, start[decided]]
    return nothing if np.mean(first == UNDECIDED) > 0.9 else first


def _starts(last: NDArray[np.uint64], support: NDArray[np.int32]) -> NDArray[np.int32]:
    if support.size > _MOST_STARTS:
        return np.empty((0, 257), dtype=np.int32)
    lowest = np.arange(256, dtype=np.uint64) << np.uint64(56)
    start = np.empty((support.size, 257), dtype=np.int32)
    for row, size in enumerate(support):
        start[row, :256] = np.searchsorted(last[row, :size], lowest)
        start[row, 256] = size
    return start


def _fill(codes: Integers, table: DrawTable, fresh: Bytes, reports: NDArray[np.unsignedinteger[Any]]) -> None:
    undecided = np.empty(min(_CHUNK, codes.size), dtype=np.int64)
    for start in range(0, codes.size, _CHUNK):
        chunk, target = codes[start : start + _CHUNK], reports[start : start + _CHUNK]
        if table.first.size:
            top = fresh(chunk.size)
            waiting = undecided[: _screen(chunk, top, table.first, target, undecided)]
            words = _words(fresh, waiting.size)
            _complete(words, top, waiting)
        else:
            waiting = np.arange(chunk.size, dtype=np.int64)
            words = _words(fresh, waiting.size)
        while waiting.size:
            waiting = waiting[: _settle(chunk, waiting, words, table.intervals, target)]
            words = _words(fresh, waiting.size)


def _words(fresh: Bytes, n: int) -> NDArray[np.uint64]:
    return fresh(8 * n).view(np.uint64)


@compiled
def _screen(
    codes: Integers,
    top: NDArray[np.uint8],
    first: NDArray[np.uint16],
    reports: Integers,
    waiting: NDArray[np.int64],
) -> int:
    """Decide reports by top bytes; list undecided rows in ``waiting`` and return their number."""
    left = 0
    for i in range(codes.size):
        report = first[codes[i], top[i]]
        reports[i] = report
        if report == UNDECIDED:
            waiting[left] = i
            left += 1
    return left


@numpy_twin(_screen)
def _screen_few(
    codes: Integers,
    top: NDArray[np.uint8],
    first: NDArray[np.uint16],
    reports: Integers,
    waiting: NDArray[np.int64],
) -> int:
    report = first[codes, top]
    reports[:] = report
    rows = np.flatnonzero(report == UNDECIDED)
    waiting[: rows.size] = rows
    return int(rows.size)


@compiled
def _complete(words: NDArray[np.uint64], top: NDArray[np.uint8], waiting: NDArray[np.int64]) -> None:
    """Prepend the top byte that was already drawn to 56 fresh bits."""
    for k in range(waiting.size):
        words[k] = (np.uint64(top[waiting[k]]) << np.uint64(56)) | (words[k] >> np.uint64(8))


@numpy_twin(_complete)
def _complete_few(words: NDArray[np.uint64], top: NDArray[np.uint8], waiting: NDArray[np.int64]) -> None:
    words[:] = (top[waiting].astype(np.uint64) << np.uint64(56)) | (words >> np.uint64(8))


@compiled
def _settle(
    codes: Integers,
    waiting: NDArray[np.int64],
    words: NDArray[np.uint64],
    intervals: Intervals,
    reports: Integers,
) -> int:
    """Decide reports by full words; move rejected rows to the front of ``waiting``; return their number."""
    outcomes, last, support, start = intervals
    left = 0
    for k in range(waiting.size):
        i = waiting[k]
        row = codes[i]
        low, high = 0, support[row]
        if start.size:
            byte = np.int64(words[k] >> np.uint64(56))
            low, high = start[row, byte], start[row, byte + 1]
        interval = _interval(last[row], low, high, words[k])
        if interval < support[row]:
            reports[i] = outcomes[row, interval]
        else:
            waiting[left] = i
            left += 1
    return left


@numpy_twin(_settle)
def _settle_few(
    codes: Integers,
    waiting: NDArray[np.int64],
    words: NDArray[np.uint64],
    intervals: Intervals,
    reports: Integers,
) -> int:
    outcomes, last, support, _ = intervals
    rows = codes[waiting]
    interval = np.empty(waiting.size, dtype=np.int64)
    for row in np.unique(rows):
        own = rows == row
        interval[own] = np.searchsorted(last[row, : support[row]], words[: waiting.size][own])
    decided = interval < support[rows]
    reports[waiting[decided]] = outcomes[rows[decided], interval[decided]]
    rejected = waiting[~decided]
    waiting[: rejected.size] = rejected
    return int(rejected.size)


@compiled
def _interval(last: NDArray[np.uint64], low: int, high: int, word: np.uint64) -> int:
    """Return the number of intervals that end before the word, known to be from ``low`` to ``high``."""
    while high - low > _LINEAR:
        middle = (low + high) >> 1
        if last[middle] < word:
            low = middle + 1
        else:
            high = middle
    # counting the last few intervals avoids a branch that is mispredicted for random words
    below = low
    for j in range(low, high):
        below += last[j] < word
    return below
