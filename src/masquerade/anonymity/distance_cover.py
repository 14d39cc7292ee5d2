"""Meyerson & Williams's groups where only the distances between rows are known, not the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from masquerade.anonymity.cover import Cover, lean_cover, mended
from masquerade.core.errors import InputError
from masquerade.core.words import counted


def partition_distances(between: ArrayLike, k: int, *, cover: Cover = lean_cover) -> NDArray[np.intp]:
    """Return the group of every row, each of k to 2k − 1 rows, from the distances between all rows.

    Everybody who has the same distances gets the same groups: ties go to the earlier row.

    Formula: a greedy cover; overlaps mended; from a set of 2k or more rows the first remaining one and its
    k − 1 nearest are taken out until fewer than 2k are left.
    Reference: Meyerson & Williams (2004); the distributed form computes this in its second phase.
    Cost: O(diameter · rows²) for each set of the cover.
    Error: the bound of the cover, which rests on diameters alone, and no part has a larger one than its set.

    >>> partition_distances([[0, 0, 2, 2], [0, 0, 2, 2], [2, 2, 0, 1], [2, 2, 1, 0]], 2).tolist()
    [0, 0, 1, 1]
    """
    known = _checked(between)
    rows = len(known)
    if k < 2:
        raise InputError(f"'k' must be at least 2. Got {k} instead.")
    if rows < k:
        raise InputError(
            f"A table of {counted(rows, 'row')} has no groups of {k}: give more rows or a smaller 'k'."
        )
    sets = mended(cover(known, k), k)
    parts = [part for members in sets for part in _split(known, members, k)]
    groups = np.zeros(rows, dtype=np.intp)
    for number, part in enumerate(sorted(parts, key=min)):
        groups[part] = number
    return groups


def _split(between: NDArray[np.uint16], members: set[int], k: int) -> list[list[int]]:
    left, parts = sorted(members), []
    while len(left) >= 2 * k:
        nearest = sorted(left, key=lambda row: (int(between[left[0], row]), row != left[0], row))[:k]
        parts.append(nearest)
        left = [row for row in left if row not in nearest]
    return [*parts, left]


def _checked(between: ArrayLike) -> NDArray[np.uint16]:
    given: NDArray[Any] = np.asarray(between)
    square = given.ndim == 2 and given.shape[0] == given.shape[1] and given.dtype.kind in "iu"
    if not square or (given < 0).any() or (given > np.iinfo(np.uint16).max).any():
        raise InputError("Distances are a square matrix of whole numbers from 0 to 65,535.")
    if (given != given.T).any() or np.diagonal(given).any():
        raise InputError("Distances are the same both ways, and zero from a row to itself.")
    return given.astype(np.uint16)
