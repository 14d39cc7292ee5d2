"""Agglomerative merging: on a line, where only neighbours merge, and among all pairs of points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.kernels.jit import compiled

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Place = int | np.integer[Any]


def merged_neighbours(points: Floats, counts: Ints, k_min: int, g: float) -> tuple[Ints, Floats, Ints]:
    """Return where each group starts among sorted distinct points, its mean and its number of records."""
    means, sizes, highs = points.copy(), counts.copy(), points.copy()
    done = (counts >= k_min) & (g <= 0)
    following = np.append(np.arange(1, len(points), dtype=np.int64), -1)
    previous = np.arange(-1, len(points) - 1, dtype=np.int64)
    for both in (True, False):  # first the unfinished among themselves, then those left alone
        _merge_line(means, sizes, points, highs, done, following, previous, k_min, g, both)
    starts = [0]
    while following[starts[-1]] >= 0:
        starts.append(int(following[starts[-1]]))
    found = np.array(starts, dtype=np.int64)
    return found, means[found], sizes[found]


@compiled
def _gap(i: int, means: Floats, done: Bools, following: Ints, both: bool) -> float:  # noqa: FBT001
    # distance of a group from the next one; infinite where the two may not be merged
    j = following[i]
    if j < 0 or ((done[i] or done[j]) if both else (done[i] and done[j])):
        return np.inf
    return means[j] - means[i]  # type: ignore[no-any-return]


@compiled
def _merge_line(  # noqa: PLR0917
    means: Floats,
    sizes: Ints,
    lows: Floats,
    highs: Floats,
    done: Bools,
    following: Ints,
    previous: Ints,
    k_min: int,
    g: float,
    both: bool,  # noqa: FBT001
) -> None:
    # Walk downhill along the gaps; where a gap is smaller than both beside it, merge. Left of the walker gaps
    # fall strictly or may not be closed, so but for a step or two after a merge it goes right: linear time.
    i = 0
    while True:
        here = _gap(i, means, done, following, both)
        left = _gap(previous[i], means, done, following, both) if previous[i] >= 0 else np.inf
        j = following[i]
        if left < np.inf and left <= here:
            i = previous[i]
        elif j < 0:
            return
        elif here == np.inf or _gap(j, means, done, following, both) < here:
            i = j
        else:
            means[i] += (means[j] - means[i]) * (sizes[j] / (sizes[i] + sizes[j]))
            sizes[i] += sizes[j]
            highs[i] = highs[j]
            done[i] = done[i] or done[j] or (sizes[i] >= k_min and highs[i] - lows[i] >= g)
            following[i] = following[j]
            if following[j] >= 0:
                previous[following[j]] = i
            if previous[i] >= 0:  # a finished group hides gaps that were still open on its left
                i = previous[i]


def merged_pairs(points: Floats, counts: Ints, k_min: int, spans: Floats) -> Ints:
    """Return for every distinct point the first point of its group."""
    owner = np.arange(len(points), dtype=np.int64)
    sizes = counts.astype(np.int64)
    done = (sizes >= k_min) & bool(np.all(spans <= 0))
    means = points.copy()
    _merge_all(means, sizes, points.copy(), points.copy(), done, owner, k_min, spans)
    alone = np.flatnonzero((owner == np.arange(len(owner))) & ~done)
    if alone.size and done.any():  # one is left: it joins the nearest finished group
        other = _nearest(alone[0], means, done)[0]
        owner[max(alone[0], other)] = min(alone[0], other)
    while np.any(owner[owner] != owner):
        owner = owner[owner]
    return owner


@compiled
def _distance(i: Place, k: Place, means: Floats) -> float:
    total = 0.0
    for c in range(means.shape[1]):
        total += (means[k, c] - means[i, c]) ** 2
    return total


@compiled
def _nearest(i: Place, means: Floats, pool: Bools) -> tuple[int, float]:
    # the group of the pool that is nearest to group i (the first of equals), and its squared distance
    best, where = np.inf, -1
    for k in range(len(means)):
        if pool[k] and k != i:
            distance = _distance(i, k, means)
            if distance < best:
                best, where = distance, k
    return where, best


@compiled
def _join(  # noqa: PLR0917
    i: Place, j: Place, means: Floats, sizes: Ints, lows: Floats, highs: Floats, k_min: int, spans: Floats
) -> bool:
    # merge group j into group i; tell whether that is enough
    enough = sizes[i] + sizes[j] >= k_min
    for c in range(means.shape[1]):
        means[i, c] += (means[j, c] - means[i, c]) * (sizes[j] / (sizes[i] + sizes[j]))
        lows[i, c] = min(lows[i, c], lows[j, c])
        highs[i, c] = max(highs[i, c], highs[j, c])
        enough = enough and highs[i, c] - lows[i, c] >= spans[c]
    sizes[i] += sizes[j]
    return bool(enough)


@compiled
def _merge_all(  # noqa: PLR0917
    means: Floats,
    sizes: Ints,
    lows: Floats,
    highs: Floats,
    done: Bools,
    owner: Ints,
    k_min: int,
    spans: Floats,
) -> None:
    # every open group remembers the nearest other; a merge changes that for few of them
    m = len(sizes)
    pool = ~done
    nearest, gap = np.full(m, -1), np.full(m, np.inf)
    for i in np.flatnonzero(pool):
        nearest[i], gap[i] = _nearest(i, means, pool)
    while np.min(gap) < np.inf:
        i = np.argmin(gap)
        j = nearest[i]
        done[i] = _join(i, j, means, sizes, lows, highs, k_min, spans)
        owner[j], pool[j], gap[j] = i, False, np.inf
        if done[i]:
            pool[i], gap[i] = False, np.inf
        for k in np.flatnonzero(pool):
            if k == i or nearest[k] in (i, j):
                nearest[k], gap[k] = _nearest(k, means, pool)
            elif pool[i]:
                distance = _distance(i, k, means)
                if distance < gap[k] or (distance == gap[k] and i < nearest[k]):
                    nearest[k], gap[k] = i, distance
