"""Groups of at least k similar rows: Meyerson & Williams's greedy cover by balls, mended into a partition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError

MOST_ROWS = 10_000


def partition(codes: NDArray[np.int64], k: int) -> NDArray[np.intp]:
    """Return the group of every row, each of k to 2k − 1 rows, so that rows of a group differ in few columns.

    Formula: distance = number of differing columns; balls of at least k rows around every row, chosen by
    radius over newly covered rows until all are covered; overlaps mended; sets of 2k and more split.
    Reference: Meyerson & Williams (2004), the polynomial algorithm.
    Cost: O(columns · rows²) time, rows² bytes.
    Error: fewest stars are NP-hard to find; the published bound is a factor O(k log columns).
    """
    rows = len(codes)
    if rows > MOST_ROWS:
        raise InputError(
            f"Suppression compares all pairs of rows: at most {MOST_ROWS:,}. Got {rows:,} instead."
        )
    if 0 < rows < k:
        raise InputError(f"A table of {rows} rows has no groups of {k}: give more rows or a smaller 'k'.")
    groups = np.zeros(rows, dtype=np.intp)
    if not rows:
        return groups
    parts = [
        part for members in mended(greedy_cover(distances(codes), k), k) for part in split(members, codes, k)
    ]
    for number, part in enumerate(sorted(parts, key=min)):
        groups[part] = number
    return groups


def distances(codes: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Return in how many columns every two rows differ."""
    found = np.zeros((len(codes), len(codes)), dtype=np.uint16)
    for column in codes.T:
        found += column[:, None] != column[None, :]
    return found


def greedy_cover(between: NDArray[np.uint16], k: int) -> list[set[int]]:
    """Return balls of at least k rows that cover all rows, the cheapest per newly covered row first.

    Ties go to the ball that covers more, then to the smaller radius and the earlier centre.
    """
    radii = range(int(between.max()) + 1)
    sizes = np.array([(between <= radius).sum(axis=1) for radius in radii])
    fresh = sizes.astype(np.float64)
    cost = np.broadcast_to(np.array(radii, dtype=np.float64)[:, None], sizes.shape)
    covered = np.zeros(len(between), dtype=bool)
    cover = []
    while not covered.all():
        usable = (sizes >= k) & (fresh > 0)
        price = np.where(usable, cost / np.maximum(fresh, 1.0), np.inf)
        cheapest = np.flatnonzero(price == price.min())
        radius, centre = np.unravel_index(cheapest[fresh.ravel()[cheapest].argmax()], sizes.shape)
        ball = between[centre] <= radius
        new = ball & ~covered
        for other in radii:
            fresh[other] -= (between[:, new] <= other).sum(axis=1)
        covered |= ball
        cover.append(set(np.flatnonzero(ball).tolist()))
    return cover


def mended(cover: list[set[int]], k: int) -> list[set[int]]:
    """Return disjoint sets: a shared row leaves the larger set if that keeps k rows, else the two are one."""
    parts: list[set[int]] = []
    for ball in cover:
        own = set(ball)
        for part in list(parts):
            for row in sorted(own & part):
                larger = own if len(own) >= len(part) else part
                if len(larger) > k:
                    larger.discard(row)
                else:
                    own |= part
                    parts.remove(part)
                    break
        parts.append(own)
    return parts


def split(members: set[int], codes: NDArray[np.int64], k: int) -> list[list[int]]:
    """Return a set in parts of k to 2k − 1 rows, neighbours in the order of their values."""
    rows = sorted(members, key=lambda row: (*codes[row].tolist(), row))
    pieces = max(len(rows) // k, 1)
    cuts = [k * i for i in range(1, pieces)]
    return [list(map(int, part)) for part in np.split(np.array(rows), cuts)]
