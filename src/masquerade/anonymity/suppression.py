"""k-anonymity by a single data owner: show only repeated rows in full, or suppress cells that differ.

The distributed protocols of Zhong, Yang & Wright (2005) compute the same results without any party that sees
the whole table. k-anonymity hides a row among at least k rows. It does not bound an attacker's belief: a
sensitive value that all rows of a group share is revealed.

To find groups of at least k similar rows, a greedy cover of Meyerson & Williams is made disjoint. There are
three covers; two of them (`lean_cover` and `subset_cover`) have a bound on their stars (suppressed cells)
relative to the minimum. Notation: m columns; H_j = 1 + ½ + … + 1/j; d(S) is the largest number of columns in
which two rows of S differ. All bounds follow from two facts. A group S of an optimal partition (k to 2k − 1
rows, without loss of generality) needs at least k·d(S) stars. A group S of s rows needs at most s(s − 1)·d(S)
stars, since each row differs from a fixed row in at most d(S) columns. Only the distances between rows are
needed, so the groups can also be computed if no party sees the rows (`partition_distances`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

from masquerade.anonymity.columns import (
    STAR,
    distinct_rows,
    encode_column,
    require_quasi_identifiers,
    text_column,
)
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted

MOST_ROWS = 10_000
MOST_SETS = 200_000

Codes = NDArray[np.int64]
Distances = NDArray[np.uint16]
Cover = Callable[[Distances, int], list[set[int]]]


def ball_cover(between: Distances, k: int) -> list[set[int]]:
    """Cover all rows by balls of at least k rows, in order of increasing radius per newly covered row.

    Parameters
    ----------
    between : ndarray of int
        Number of differing columns of every pair of rows.
    k : int
        Least number of rows in a ball.

    Returns
    -------
    list of set of int
        Rows of each ball.

    Notes
    -----
    Reference: Meyerson & Williams (2004), the polynomial algorithm, published with a factor of O(k log m).
    Error: no constant is known for that factor. The ball of all rows costs little per row, but is then split
    by sort order instead of distance. If each row differs from one other row in one column, and from all
    further rows in m columns, the result can cost m times the minimum. `lean_cover` has no such case.

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"zip": ["07030", "07030", "07029", "07029"]})
    >>> found = mq.anonymity.suppress(people, ["zip"], k=2, cover=mq.anonymity.ball_cover)
    >>> int(found.stars.sum())
    0
    """
    return _balls(between, k, lambda radius, new: radius / new, trimmed=False)


def lean_cover(between: Distances, k: int) -> list[set[int]]:
    """Cover all rows greedily by balls that are reduced to their new rows and filled up to k rows.

    The ball with the fewest stars per newly covered row comes first.

    Parameters
    ----------
    between : ndarray of int
        Number of differing columns of every pair of rows.
    k : int
        Least number of rows in a set.

    Returns
    -------
    list of set of int
        Rows of each set.

    Notes
    -----
    Formula: price = radius · max(k, new) / new. A chosen ball keeps its new rows and is filled up to k rows
    with the nearest of its other rows.
    Error: at most 2(2k − 1)(2k − 2)/k · (1 + H_k) times the minimum, O(k log k) in polynomial time. While j
    rows of an optimal group S are uncovered, the ball of radius d(S) around one of them costs at most
    d(S)·max(k, j)/j per row. So the radii, weighted by max(k, new), sum to at most (1 + H_k)·Σ k·d(S), and
    the diameter of a ball is at most twice its radius.

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"zip": ["07030", "07030", "07029", "07029"]})
    >>> found = mq.anonymity.suppress(people, ["zip"], k=2, cover=mq.anonymity.lean_cover)
    >>> int(found.stars.sum())
    0
    """
    return _balls(between, k, lambda radius, new: radius * np.maximum(k, new) / new, trimmed=True)


def subset_cover(between: Distances, k: int) -> list[set[int]]:
    """Cover all rows by sets of k to 2k − 1 rows, in order of increasing diameter per newly covered row.

    Parameters
    ----------
    between : ndarray of int
        Number of differing columns of every pair of rows.
    k : int
        Least number of rows in a set.

    Returns
    -------
    list of set of int
        Rows of each set.

    Raises
    ------
    InputError
        If there are more than 200,000 such sets.

    Notes
    -----
    Reference: Meyerson & Williams (2004), the algorithm that is exponential in k, with a factor O(k log k).
    Error: at most (2k − 1)(2k − 2)/k · H_{2k−1} times the minimum, by greedy set cover and the two facts
    above.
    Cost: Σ C(n, k…2k − 1) sets, at most 200,000.

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"zip": ["07030", "07030", "07029", "07029"]})
    >>> found = mq.anonymity.suppress(people, ["zip"], k=2, cover=mq.anonymity.subset_cover)
    >>> int(found.stars.sum())
    0
    """
    rows = len(between)
    sizes = range(k, min(2 * k - 1, rows) + 1)
    count = sum(comb(rows, size) for size in sizes)
    if count > MOST_SETS:
        raise InputError(
            f"{rows} rows have {count:,} sets of {k} to {2 * k - 1}; at most {MOST_SETS:,} are searched: "
            "use ball_cover or lean_cover."
        )
    sets = [members for size in sizes for members in combinations(range(rows), size)]
    inside = np.zeros((len(sets), rows), dtype=bool)
    for place, members in enumerate(sets):
        inside[place, members] = True
    diameter = np.array([between[np.ix_(members, members)].max() for members in sets], dtype=float)
    covered = np.zeros(rows, dtype=bool)
    cover = []
    while not covered.all():
        fresh = (inside & ~covered).sum(axis=1)
        price = np.where(fresh, diameter / np.maximum(fresh, 1), np.inf)
        cheapest = np.flatnonzero(price == price.min())
        chosen = cheapest[fresh[cheapest].argmax()]
        covered |= inside[chosen]
        cover.append(set(sets[chosen]))
    return cover


def partition(codes: Codes, k: int, cover: Cover = ball_cover) -> NDArray[np.intp]:
    """Return the group of every row; groups have k to 2k − 1 rows that differ in few columns.

    Formula: the distance of two rows is the number of differing columns. A greedy cover is made disjoint, and
    large sets are split.
    Reference: Meyerson & Williams (2004).
    Cost: O(columns · rows²) time, rows² · 2 bytes; `subset_cover` is exponential in k.
    Error: the minimum is NP-hard to find; see the covers for their bounds.
    """
    rows = len(codes)
    if rows > MOST_ROWS:
        raise InputError(
            f"This algorithm compares all pairs of rows and takes at most {MOST_ROWS:,} rows. Got {rows:,} "
            "instead; use anonymize(), which takes millions."
        )
    if not rows:
        return np.zeros(0, dtype=np.intp)
    _check_rows(rows, k)
    order = np.lexsort(codes.T[::-1])  # the result does not depend on the order of the rows
    sets = make_disjoint(cover(distances(codes[order]), k), k)
    parts = [[int(order[row]) for row in part] for members in sets for part in split_set(members, k)]
    return _number_groups(parts, rows)


def distances(codes: Codes) -> Distances:
    """Return, for every pair of rows, the number of columns in which they differ, as a square matrix."""
    found = np.zeros((len(codes), len(codes)), dtype=np.uint16)
    for column in codes.T:
        found += column[:, None] != column[None, :]
    return found


def _balls(
    between: Distances, k: int, price: Callable[..., NDArray[np.float64]], *, trimmed: bool
) -> list[set[int]]:
    """Cover all rows by balls of at least k rows, in order of `price`, a function of radius and new rows.

    Ties go to the ball that covers more new rows, then to the smaller radius, then to the earlier centre.
    With `trimmed`, a ball keeps only as many already covered rows as it needs to have k rows.
    """
    radii = range(int(between.max()) + 1)
    sizes = np.array([(between <= radius).sum(axis=1) for radius in radii])
    fresh = sizes.astype(np.float64)
    radius_of = np.broadcast_to(np.array(radii, dtype=np.float64)[:, None], sizes.shape)
    covered = np.zeros(len(between), dtype=bool)
    cover = []
    while not covered.all():
        usable = (sizes >= k) & (fresh > 0)
        prices = np.where(usable, price(radius_of, np.maximum(fresh, 1.0)), np.inf)
        cheapest = np.flatnonzero(prices == prices.min())
        radius, centre = np.unravel_index(cheapest[fresh.ravel()[cheapest].argmax()], sizes.shape)
        ball = between[centre] <= radius
        new = ball & ~covered
        for other in radii:
            fresh[other] -= (between[:, new] <= other).sum(axis=1)
        covered |= ball
        if trimmed:
            old = np.flatnonzero(ball & ~new)
            near = old[np.argsort(between[centre][old], kind="stable")]
            ball = new.copy()
            ball[near[: max(k - int(new.sum()), 0)]] = True
        cover.append(set(np.flatnonzero(ball).tolist()))
    return cover


def make_disjoint(cover: Sequence[set[int]], k: int) -> list[set[int]]:
    """Return disjoint sets of at least k rows.

    A shared row leaves the larger set if k rows remain; otherwise the two sets are merged. Removing a row
    does not increase a diameter. Merged sets share a row, so the diameter of their union is at most the sum
    of their diameters.
    """
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


def split_set(members: set[int], k: int) -> list[list[int]]:
    """Split a set into parts of k to 2k − 1 rows, in the order of their indices."""
    rows = sorted(members)
    cuts = [k * i for i in range(1, max(len(rows) // k, 1))]
    return [list(map(int, part)) for part in np.split(np.array(rows), cuts)]


def partition_distances(between: ArrayLike, k: int, *, cover: Cover = lean_cover) -> NDArray[np.intp]:
    """Return the group of every row from the distances between all rows; groups have k to 2k − 1 rows.

    All parties that have the same distances compute the same groups: ties go to the earlier row.

    Parameters
    ----------
    between : array_like of int
        Square symmetric matrix of distances.
    k : int
        Least number of rows in a group, at least 2.
    cover : callable, default lean_cover
        Function that covers the rows by sets: `lean_cover`, `ball_cover` or `subset_cover`.

    Returns
    -------
    ndarray of int
        Group of every row; groups are numbered in the order of their first rows.

    Raises
    ------
    InputError
        If the distances are not valid or there are fewer than `k` rows.

    Notes
    -----
    Formula: a greedy cover, made disjoint. From a set of 2k or more rows, the first remaining row and its
    k − 1 nearest rows are split off until fewer than 2k remain.
    Reference: Meyerson & Williams (2004); the distributed protocol runs this function in its second phase.
    Cost: O(diameter · rows²) for each set of the cover.
    Error: the bound of the cover, which depends only on diameters. A part of a set never has a larger
    diameter than the set.

    Examples
    --------
    >>> partition_distances([[0, 0, 2, 2], [0, 0, 2, 2], [2, 2, 0, 1], [2, 2, 1, 0]], 2).tolist()
    [0, 0, 1, 1]
    """
    checked = _check_distances(between)
    rows = len(checked)
    if k < 2:
        raise InputError(f"'k' must be at least 2. Got {k} instead.")
    _check_rows(rows, k)
    sets = make_disjoint(cover(checked, k), k)
    return _number_groups([part for members in sets for part in _nearest_parts(checked, members, k)], rows)


def _nearest_parts(between: Distances, members: set[int], k: int) -> list[list[int]]:
    left, parts = sorted(members), []
    while len(left) >= 2 * k:
        nearest = sorted(left, key=lambda row: (int(between[left[0], row]), row != left[0], row))[:k]
        parts.append(nearest)
        left = [row for row in left if row not in nearest]
    return [*parts, left]


def _check_distances(between: ArrayLike) -> Distances:
    given: NDArray[Any] = np.asarray(between)
    square = given.ndim == 2 and given.shape[0] == given.shape[1] and given.dtype.kind in "iu"
    if not square or (given < 0).any() or (given > np.iinfo(np.uint16).max).any():
        raise InputError("Distances must be a square matrix of whole numbers from 0 to 65,535.")
    if (given != given.T).any() or np.diagonal(given).any():
        raise InputError("Distances must be symmetric, and zero from a row to itself.")
    return given.astype(np.uint16)


def _check_rows(rows: int, k: int) -> None:
    if rows < k:
        raise InputError(
            f"A table of {counted(rows, 'row')} has no groups of {k}: give more rows or a smaller 'k'."
        )


def _number_groups(parts: Sequence[list[int]], rows: int) -> NDArray[np.intp]:
    """Return the group of every row; groups are numbered by their first row."""
    groups = np.zeros(rows, dtype=np.intp)
    for number, part in enumerate(sorted(parts, key=min)):
        groups[part] = number
    return groups


@dataclass(frozen=True, slots=True, eq=False)
class SuppressionResult:
    """A k-anonymous table with suppressed cells.

    Attributes
    ----------
    frame : DataFrame
        The table, of the caller's frame type.
    groups : ndarray of int
        Group of every row.
    stars : ndarray of bool
        True for suppressed cells: one column per quasi-identifier, in the given order.

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"zip": ["07030", "07030", "07029"], "born": [1970, 1971, 1970]})
    >>> found = mq.anonymity.suppress(people, ["zip", "born"], k=3)
    >>> int(found.stars.sum()), found.groups.tolist()
    (6, [0, 0, 0])
    """

    frame: Any
    groups: NDArray[np.intp]
    stars: NDArray[np.bool_]


def open_repeated(frame: Any, quasi_identifiers: Sequence[str], k: int) -> Any:
    """Hide all columns but the quasi-identifiers in rows whose quasi-identifiers occur fewer than k times.

    Formulation 1 of distributed k-anonymity: quasi-identifiers stay visible, and the sensitive columns are
    shown for exactly the rows of the largest k-anonymous subset.

    Parameters
    ----------
    frame : DataFrame
        Table: pandas, Polars or PyArrow.
    quasi_identifiers : sequence of str
        Columns by which a person could be recognised. They stay unchanged.
    k : int
        Least number of rows with the same quasi-identifiers.

    Returns
    -------
    DataFrame
        Table of the same frame type, with hidden cells missing. In pandas, columns with a hidden cell get the
        dtype object.

    Raises
    ------
    InputError
        If a column is unknown or `k` is not a whole number of at least 1.

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"zip": ["07030", "07030", "07029"], "ill": ["yes", "no", "yes"]})
    >>> mq.anonymity.open_repeated(people, ["zip"], k=2)["ill"].isna().tolist()
    [False, False, True]
    """
    table = require_quasi_identifiers(frame, quasi_identifiers, k)
    codes = np.stack([encode_column(table[name]).codes for name in quasi_identifiers], axis=1)
    _, kind, weights = distinct_rows(codes)
    seen = (weights >= k)[kind]
    hidden = [_hide(table[name], seen) for name in table.columns if name not in quasi_identifiers]
    return (table if seen.all() else table.with_columns(*hidden)).to_native()


def suppress(
    frame: Any, quasi_identifiers: Sequence[str], k: int, *, cover: Cover = ball_cover
) -> SuppressionResult:
    """Make a table k-anonymous by suppressing the cells in which the rows of a group differ.

    This is the algorithm of Meyerson & Williams. `anonymize` takes larger tables and suppresses less.

    Parameters
    ----------
    frame : DataFrame
        Table: pandas, Polars or PyArrow, at most 10,000 rows.
    quasi_identifiers : sequence of str
        Columns by which a person could be recognised.
    k : int
        Least number of rows in a group.
    cover : callable, default ball_cover
        Function that finds the groups: `ball_cover`, `lean_cover` or `subset_cover`.

    Returns
    -------
    SuppressionResult
        The table. A column with a star is returned as text; all other columns are unchanged.

    Raises
    ------
    InputError
        If a column is unknown, or the table has fewer than `k` or more than 10,000 rows.

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"zip": ["07030", "07030", "07029", "07029"], "sex": ["f", "f", "m", "f"]})
    >>> mq.anonymity.suppress(people, ["zip", "sex"], k=2).frame["sex"].tolist()
    ['f', 'f', '*', '*']
    """
    table = require_quasi_identifiers(frame, quasi_identifiers, k)
    columns = [encode_column(table[name]) for name in quasi_identifiers]
    codes = np.stack([column.codes for column in columns], axis=1)
    groups = partition(codes, k, cover)
    stars = differing_cells(codes, groups)
    starred = []
    for i, column in enumerate(columns):
        if stars[:, i].any():
            words = [*column.texts, STAR]
            places = np.where(stars[:, i], len(words) - 1, column.codes)
            starred.append(text_column(column.name, words, places, table))
    return SuppressionResult(table.with_columns(*starred).to_native(), groups, stars)


def differing_cells(codes: NDArray[np.int64], groups: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return an array that is True for every cell whose column has several values within the row's group."""
    stars = np.zeros(codes.shape, dtype=bool)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        stars[rows] = np.any(codes[rows] != codes[rows[0]], axis=0)
    return stars


def _hide(column: nw.Series[Any], seen: NDArray[np.bool_]) -> nw.Series[Any]:
    if column.implementation.is_pandas_like():  # integers with missing values would become floats
        native = column.to_native().astype(object)
        return nw.from_native(native.where(seen, None), series_only=True)
    mask = nw.new_series("seen", seen.tolist(), nw.Boolean, backend=column.implementation)
    return column.zip_with(
        mask, nw.new_series("none", [None] * len(seen), column.dtype, backend=column.implementation)
    )
