"""k-anonymity of a table in one place: open only rows that do not stand alone, or star what sets rows apart.

Both are what the distributed protocols of Zhong, Yang & Wright (2005) compute without anybody seeing the
table. k-anonymity hides a row among at least k; it bounds no belief, and where a group shares its sensitive
value, that value is told.

Groups of at least k similar rows are found by Meyerson & Williams's greedy covers, mended into a partition.
Three covers, each with what it costs against the fewest stars possible. m columns, H_j = 1 + ½ + … + 1/j;
d(S) is the largest number of columns in which two rows of S differ. Two facts carry all bounds: a group S of
a best partition (k to 2k − 1 rows, without loss) needs at least k·d(S) stars, and one of s rows needs at
most s(s − 1)·d(S), since each row differs from a fixed one in at most d(S) columns. All of it needs only the
distances between rows, so it also runs where nobody sees the rows (`partition_distances`).
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

from masquerade.anonymity.columns import STAR, checked, coded, collapsed, text_column
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted

MOST_ROWS = 10_000
MOST_SETS = 200_000

Codes = NDArray[np.int64]
Distances = NDArray[np.uint16]
Cover = Callable[[Distances, int], list[set[int]]]


def ball_cover(between: Distances, k: int) -> list[set[int]]:
    """Cover all rows by balls of at least k rows, smallest radius per newly covered row first.

    Reference: Meyerson & Williams (2004), the polynomial algorithm; published with a factor O(k log m).
    Error: we found no constant for that factor. The ball of all rows costs little a row, and is then cut
    apart by the order of its values: pairs that differ in one column, but from all others in m, can cost m
    times the fewest stars. `lean_cover` has no such case.

    >>> import pandas as pd
    >>> people = pd.DataFrame({"zip": ["07030", "07030", "07029", "07029"]})
    >>> found = mq.anonymity.suppress(people, ["zip"], k=2, cover=mq.anonymity.ball_cover)
    >>> int(found.stars.sum())
    0
    """
    return _balls(between, k, lambda radius, new: radius / new, trimmed=False)


def lean_cover(between: Distances, k: int) -> list[set[int]]:
    """Cover all rows by the new rows of balls, filled up to k, fewest stars per newly covered row first.

    Formula: price = radius · max(k, new) / new; a chosen ball keeps its new rows, and of the others the
    nearest that it needs for k.
    Error: at most 2(2k − 1)(2k − 2)/k · (1 + H_k) times the fewest stars, O(k log k) in polynomial time.
    While j rows of a best group S are uncovered, the ball of radius d(S) around one of them costs at most
    d(S)·max(k, j)/j a row: the radii, weighted by max(k, new), sum to at most (1 + H_k)·Σ k·d(S); a ball has
    twice its radius as diameter.

    >>> import pandas as pd
    >>> people = pd.DataFrame({"zip": ["07030", "07030", "07029", "07029"]})
    >>> found = mq.anonymity.suppress(people, ["zip"], k=2, cover=mq.anonymity.lean_cover)
    >>> int(found.stars.sum())
    0
    """
    return _balls(between, k, lambda radius, new: radius * np.maximum(k, new) / new, trimmed=True)


def subset_cover(between: Distances, k: int) -> list[set[int]]:
    """Cover all rows by any sets of k to 2k − 1 rows, smallest diameter per newly covered row first.

    Reference: Meyerson & Williams (2004), the algorithm that is exponential in k, with a factor O(k log k).
    Error: at most (2k − 1)(2k − 2)/k · H_{2k−1} times the fewest stars: greedy set cover and the two facts.
    Cost: Σ C(n, k…2k − 1) sets, at most 200,000.

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
    """Return the group of every row, each of k to 2k − 1 rows, so that rows of a group differ in few columns.

    Formula: distance = number of differing columns; a greedy cover; overlaps mended; large sets split.
    Reference: Meyerson & Williams (2004).
    Cost: O(columns · rows²) time, rows² · 2 bytes; `subset_cover` is exponential in k.
    Error: fewest stars are NP-hard to find; each cover has its own bound.
    """
    rows = len(codes)
    if rows > MOST_ROWS:
        raise InputError(
            f"This algorithm compares all pairs of rows: at most {MOST_ROWS:,}. Got {rows:,} instead; "
            "anonymize() takes millions."
        )
    if not rows:
        return np.zeros(0, dtype=np.intp)
    _check_rows(rows, k)
    order = np.lexsort(codes.T[::-1])  # so that the order of the rows does not matter
    sets = mended(cover(distances(codes[order]), k), k)
    parts = [[int(order[row]) for row in part] for members in sets for part in split(members, k)]
    return _numbered(parts, rows)


def distances(codes: Codes) -> Distances:
    """Return in how many columns every two rows differ."""
    found = np.zeros((len(codes), len(codes)), dtype=np.uint16)
    for column in codes.T:
        found += column[:, None] != column[None, :]
    return found


def _balls(
    between: Distances, k: int, price: Callable[..., NDArray[np.float64]], *, trimmed: bool
) -> list[set[int]]:
    """Return balls of at least k rows that cover all, the cheapest by `price` of radius and new rows first.

    Ties go to the ball that covers more, then to the smaller radius and the earlier centre.
    """
    radii = range(int(between.max()) + 1)
    sizes = np.array([(between <= radius).sum(axis=1) for radius in radii])
    fresh = sizes.astype(np.float64)
    radius_of = np.broadcast_to(np.array(radii, dtype=np.float64)[:, None], sizes.shape)
    covered = np.zeros(len(between), dtype=bool)
    cover = []
    while not covered.all():
        usable = (sizes >= k) & (fresh > 0)
        asked = np.where(usable, price(radius_of, np.maximum(fresh, 1.0)), np.inf)
        cheapest = np.flatnonzero(asked == asked.min())
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


def mended(cover: Sequence[set[int]], k: int) -> list[set[int]]:
    """Return disjoint sets: a shared row leaves the larger set if that keeps k rows, else the two are one.

    The diameters do not grow by this, and two sets that become one share a row: at most their sum.
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


def split(members: set[int], k: int) -> list[list[int]]:
    """Return a set in parts of k to 2k − 1 rows, neighbours in their order."""
    rows = sorted(members)
    cuts = [k * i for i in range(1, max(len(rows) // k, 1))]
    return [list(map(int, part)) for part in np.split(np.array(rows), cuts)]


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
    _check_rows(rows, k)
    sets = mended(cover(known, k), k)
    return _numbered([part for members in sets for part in _nearest_parts(known, members, k)], rows)


def _nearest_parts(between: Distances, members: set[int], k: int) -> list[list[int]]:
    left, parts = sorted(members), []
    while len(left) >= 2 * k:
        nearest = sorted(left, key=lambda row: (int(between[left[0], row]), row != left[0], row))[:k]
        parts.append(nearest)
        left = [row for row in left if row not in nearest]
    return [*parts, left]


def _checked(between: ArrayLike) -> Distances:
    given: NDArray[Any] = np.asarray(between)
    square = given.ndim == 2 and given.shape[0] == given.shape[1] and given.dtype.kind in "iu"
    if not square or (given < 0).any() or (given > np.iinfo(np.uint16).max).any():
        raise InputError("Distances are a square matrix of whole numbers from 0 to 65,535.")
    if (given != given.T).any() or np.diagonal(given).any():
        raise InputError("Distances are the same both ways, and zero from a row to itself.")
    return given.astype(np.uint16)


def _check_rows(rows: int, k: int) -> None:
    if rows < k:
        raise InputError(
            f"A table of {counted(rows, 'row')} has no groups of {k}: give more rows or a smaller 'k'."
        )


def _numbered(parts: Sequence[list[int]], rows: int) -> NDArray[np.intp]:
    """Return the group of every row; groups are numbered by their first row."""
    groups = np.zeros(rows, dtype=np.intp)
    for number, part in enumerate(sorted(parts, key=min)):
        groups[part] = number
    return groups


@dataclass(frozen=True, slots=True, eq=False)
class Suppression:
    """A k-anonymous table: the frame, which group each row is in, and which cells were starred.

    `stars` has a column for every quasi-identifier, in the order given.

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
    """Return the frame with every other column missing, but for rows whose quasi-identifier occurs k times.

    Formulation 1 of distributed k-anonymity: quasi-identifiers stay visible, the sensitive rest is opened for
    exactly the rows of the largest k-anonymous part. pandas, Polars or PyArrow in, the same kind out; in
    pandas, columns with something hidden become objects.

    >>> import pandas as pd
    >>> people = pd.DataFrame({"zip": ["07030", "07030", "07029"], "ill": ["yes", "no", "yes"]})
    >>> mq.anonymity.open_repeated(people, ["zip"], k=2)["ill"].isna().tolist()
    [False, False, True]
    """
    table = checked(frame, quasi_identifiers, k)
    codes = np.stack([coded(table[name]).codes for name in quasi_identifiers], axis=1)
    _, kind, weights = collapsed(codes)
    seen = (weights >= k)[kind]
    hidden = [_hide(table[name], seen) for name in table.columns if name not in quasi_identifiers]
    return (table if seen.all() else table.with_columns(*hidden)).to_native()


def suppress(
    frame: Any, quasi_identifiers: Sequence[str], k: int, *, cover: Cover = ball_cover
) -> Suppression:
    """Return a k-anonymous table by Meyerson & Williams: what differs within a group of rows is starred.

    `cover` is how groups are found: `ball_cover`, `lean_cover` or `subset_cover`. A column with a star comes
    back as text; all others, and all other columns, stay as they are. `anonymize` takes larger tables and
    stars less.

    >>> import pandas as pd
    >>> people = pd.DataFrame({"zip": ["07030", "07030", "07029", "07029"], "sex": ["f", "f", "m", "f"]})
    >>> mq.anonymity.suppress(people, ["zip", "sex"], k=2).frame["sex"].tolist()
    ['f', 'f', '*', '*']
    """
    table = checked(frame, quasi_identifiers, k)
    columns = [coded(table[name]) for name in quasi_identifiers]
    codes = np.stack([column.codes for column in columns], axis=1)
    groups = partition(codes, k, cover)
    stars = differing(codes, groups)
    starred = []
    for i, column in enumerate(columns):
        if stars[:, i].any():
            words = [*column.words, STAR]
            places = np.where(stars[:, i], len(words) - 1, column.codes)
            starred.append(text_column(column.name, words, places, table))
    return Suppression(table.with_columns(*starred).to_native(), groups, stars)


def differing(codes: NDArray[np.int64], groups: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Tell for every cell whether its column takes several values within the row's group."""
    stars = np.zeros(codes.shape, dtype=bool)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        stars[rows] = np.any(codes[rows] != codes[rows[0]], axis=0)
    return stars


def _hide(column: nw.Series[Any], seen: NDArray[np.bool_]) -> nw.Series[Any]:
    if column.implementation.is_pandas_like():  # whole numbers beside missing ones would become floats
        native = column.to_native().astype(object)
        return nw.from_native(native.where(seen, None), series_only=True)
    mask = nw.new_series("seen", seen.tolist(), nw.Boolean, backend=column.implementation)
    return column.zip_with(
        mask, nw.new_series("none", [None] * len(seen), column.dtype, backend=column.implementation)
    )
