"""An attacker who reads the files of a survey byte by byte, and puts people in order.

It knows SQLite's format: pages and the cells in them, the write-ahead log and its frames, the journal. It
looks for values (the id of a report, the digest of an invitation) and gives each a number by where they lie
or when they first appear. Each such *sign* is an order; it is compared with the true one.
"""

from __future__ import annotations

import math
import secrets
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

PAGE = 4096
LEAF = (0x0A, 0x0D)
LEAST_JOINS = 12  # of a random matching so many are right with probability at most 1/12! = 2.1e-9
LEAST_ORDER = 1e-9  # the p-value at which an order counts as read

Numbers = dict[bytes, tuple[float, ...]]


def pages_of(folder: Path, name: str) -> dict[int, bytes]:
    """Return the pages of a file by number, with what its write-ahead log has of them."""
    content = (folder / name).read_bytes()
    pages = {i // PAGE + 1: content[i : i + PAGE] for i in range(0, len(content), PAGE)}
    return pages | {number: page for _, number, page in frames_of(folder / f"{name}-wal")}


def frames_of(log: Path) -> list[tuple[int, int, bytes]]:
    """Return the frames of a log, oldest first, with the page's number; also those of an earlier round."""
    content = log.read_bytes() if log.exists() else b""
    frames = []
    for at in range(32, len(content) - PAGE - 23, 24 + PAGE):
        number, _, salt = struct.unpack_from(">III", content, at)
        if number:
            frames.append((salt, at, number, content[at + 24 : at + 24 + PAGE]))
    ordered = sorted(frames, key=lambda frame: frame[:2])  # the salt grows when the log begins again
    return [(turn, number, page) for turn, (_, _, number, page) in enumerate(ordered)]


def cells_of(number: int, page: bytes) -> list[int]:
    """Return where the cells of a leaf begin, in the order of its pointers."""
    start = 100 if number == 1 else 0
    if page[start] not in LEAF:
        return []
    (count,) = struct.unpack_from(">H", page, start + 3)
    return list(struct.unpack_from(f">{count}H", page, start + 8))


class Search:
    """Looks for many values of one length at once, by their first four bytes."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._values, self._size = frozenset(values), len(values[0])
        self._beginnings = np.unique(np.frombuffer(b"".join(value[:4] for value in values), ">u4"))

    def in_page(self, page: bytes) -> list[tuple[bytes, int]]:
        """Return the values in a page and where they are, from its beginning on."""
        bytes_ = np.frombuffer(page, np.uint8).astype(np.uint32)
        words = (bytes_[:-3] << 24) | (bytes_[1:-2] << 16) | (bytes_[2:-1] << 8) | bytes_[3:]
        at = np.searchsorted(self._beginnings, words)
        met = self._beginnings[np.minimum(at, len(self._beginnings) - 1)] == words
        places = np.flatnonzero(met).tolist()
        found = [(page[i : i + self._size], i) for i in places]
        return [(value, i) for value, i in found if value in self._values]


def signs(folder: Path, name: str, values: Sequence[bytes]) -> Iterator[tuple[str, Numbers]]:
    """Yield every sign of order that a file, and what lies beside it, has for values."""
    pages = pages_of(folder, name)
    for which in ("first", "last"):
        yield from _signs_of_pages(which, pages, values)
    for beside in sorted(folder.glob(f"{name}*")):
        if beside.name.endswith("-wal"):
            yield f"{beside.name}: new in a frame", _news(frames_of(beside), values)
        elif beside.name != name:
            content = beside.read_bytes()
            yield f"{beside.name}: is in it", {value: (float(value in content),) for value in values}
            yield f"{beside.name}: where", {value: (float(content.find(value)),) for value in values}


def _signs_of_pages(
    which: str, pages: Mapping[int, bytes], values: Sequence[bytes]
) -> Iterator[tuple[str, Numbers]]:
    places: dict[bytes, tuple[int, int]] = {}
    look = Search(values)
    for number, page in sorted(pages.items(), reverse=which == "first"):
        found = look.in_page(page)
        for value, at in reversed(found) if which == "first" else found:
            places[value] = (number, at)
    missing = (0, 0)
    at = {value: places.get(value, missing) for value in values}
    cells = {number: cells_of(number, pages[number]) for number in {n for n, _ in at.values()} & set(pages)}
    pointer: Numbers = {}
    height: Numbers = {}
    outside: Numbers = {}
    for value, (number, offset) in at.items():
        starts = cells.get(number, [])
        own = max((start for start in starts if start <= offset), default=-1)
        pointer[value] = (starts.index(own) / len(starts) if own >= 0 else -1.0,)
        above = sorted(starts, reverse=True)
        height[value] = (above.index(own) / len(above) if own >= 0 else -1.0,)
        outside[value] = (float(own < 0),)
    yield f"{which}: place in the file", {v: (float(n), float(o)) for v, (n, o) in at.items()}
    yield f"{which}: page", {v: (float(n),) for v, (n, _) in at.items()}
    yield f"{which}: from the end of the page", {v: (-float(o),) for v, (_, o) in at.items()}
    yield f"{which}: page, then from its end", {v: (float(n), -float(o)) for v, (n, o) in at.items()}
    yield f"{which}: height among the cells of the page", height
    yield f"{which}: place among the pointers of the page", pointer
    yield f"{which}: outside of any cell", outside


def _news(frames: Sequence[tuple[int, int, bytes]], values: Sequence[bytes]) -> Numbers:
    """Return in which frame a value is new: earlier frames of its page do not have it, nor do others."""
    look = Search(values)
    pages: dict[int, set[bytes]] = {}
    seen: set[bytes] = set()
    turns = dict.fromkeys(values, (-1.0,))
    for turn, number, page in frames:
        here = {value for value, _ in look.in_page(page)}
        for value in here - pages.get(number, here) - seen:  # when a page is split, nothing in it is new
            turns[value] = (float(turn),)
        pages[number] = here
        seen |= here
    return turns


def guess(numbers: Numbers) -> list[bytes]:
    """Return values in the order of their numbers; where these are equal, at random."""
    return sorted(numbers, key=lambda value: (numbers[value], secrets.randbits(64)))


def p_of_order(guessed: Sequence[bytes], truth: Sequence[bytes]) -> float:
    """Return how likely an order is by chance at least as near to the truth, or to its reverse.

    Two-sided, by the number of inversions: of a random permutation a sum of independent numbers, each
    uniform on 0, …, i - 1. Up to 150 values its distribution is computed; beyond, Hoeffding's inequality
    bounds it from above.
    """
    turn = {value: i for i, value in enumerate(truth)}
    order = [turn[value] for value in guessed]
    count = len(order)
    ranks = np.array(order)
    inversions = sum(int((ranks[:i] > ranks[i]).sum()) for i in range(1, count))
    most = count * (count - 1) // 2
    off = min(inversions, most - inversions)
    if count > 150:
        distance = most / 2 - off
        return min(1.0, 2 * math.exp(-2 * distance**2 / sum(i * i for i in range(count))))
    return min(1.0, 2 * sum(_permutations(count)[: off + 1]) / math.factorial(count))


@cache
def _permutations(count: int) -> list[int]:
    """Return how many permutations of `count` values have 0, 1, 2, … inversions."""
    ways = [1]
    for i in range(2, count + 1):
        total, longer = 0, []
        for k in range(len(ways) + i - 1):
            total += ways[k] if k < len(ways) else 0
            total -= ways[k - i] if k >= i else 0
            longer.append(total)
        ways = longer
    return ways


def right_joins(one: Sequence[bytes], other: Sequence[bytes], truth: Mapping[bytes, bytes]) -> int:
    """Return how many are joined rightly if the first of one order belongs to the first of the other, …"""
    return sum(truth.get(a) == b for a, b in zip(one, other, strict=False))
