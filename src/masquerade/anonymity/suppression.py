"""k-anonymity of a table in one place: open only rows that do not stand alone, or star what sets rows apart.

Both are what the distributed protocols of Zhong, Yang & Wright (2005) compute without anybody seeing the
table. k-anonymity hides a row among at least k; it bounds no belief, and where a group shares its sensitive
value, that value is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.cover import partition
from masquerade.core.errors import InputError, did_you_mean

STAR = "*"


@dataclass(frozen=True, slots=True, eq=False)
class Suppression:
    """A k-anonymous table: the frame, which group each row is in, and which cells were starred.

    `stars` has a column for every quasi-identifier, in the order given.
    """

    frame: Any
    groups: NDArray[np.intp]
    stars: NDArray[np.bool_]


def open_repeated(frame: Any, quasi_identifiers: Sequence[str], k: int) -> Any:
    """Return the frame with every other column missing, but for rows whose quasi-identifier occurs k times.

    Formulation 1 of distributed k-anonymity: quasi-identifiers stay visible, the sensitive rest is opened for
    exactly the rows of the largest k-anonymous part. pandas, Polars or PyArrow in, the same kind out; in
    pandas, columns with something hidden become objects.
    """
    table, keys = read(frame, quasi_identifiers, k)
    rows = list(zip(*keys, strict=True))
    times = Counter(rows)
    seen = np.array([times[row] >= k for row in rows], dtype=bool)
    hidden = [hide(table[name], seen) for name in table.columns if name not in quasi_identifiers]
    return (table if seen.all() else table.with_columns(*hidden)).to_native()


def suppress(frame: Any, quasi_identifiers: Sequence[str], k: int) -> Suppression:
    """Return a k-anonymous table: quasi-identifiers that differ within a group of rows are starred.

    Groups come from Meyerson & Williams's ball cover, see `masquerade.anonymity.cover`. A column with a star
    comes back as text; all others, and all other columns, stay as they are.
    """
    table, keys = read(frame, quasi_identifiers, k)
    codes = np.array([coded(values) for values in keys], dtype=np.int64).T.reshape(len(table), len(keys))
    groups = partition(codes, k)
    stars = differing(codes, groups)
    starred = [
        nw.new_series(
            name,
            [STAR if star else text(value) for value, star in zip(values, stars[:, i], strict=True)],
            nw.String,
            backend=table.implementation,
        )
        for i, (name, values) in enumerate(zip(quasi_identifiers, keys, strict=True))
        if stars[:, i].any()
    ]
    return Suppression(table.with_columns(*starred).to_native(), groups, stars)


def differing(codes: NDArray[np.int64], groups: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Tell for every cell whether its column takes several values within the row's group."""
    stars = np.zeros(codes.shape, dtype=bool)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        stars[rows] = np.any(codes[rows] != codes[rows[0]], axis=0)
    return stars


def read(
    frame: Any, quasi_identifiers: Sequence[str], k: int
) -> tuple[nw.DataFrame[Any], list[list[Hashable]]]:
    """Return the frame and its quasi-identifiers as lists, missing values alike; refuse what cannot be."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"'k' must be a whole number, at least 1. Got {k!r} instead.")
    if isinstance(quasi_identifiers, str) or not quasi_identifiers:
        raise InputError("'quasi_identifiers' must be a list of columns, at least one.")
    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise InputError(
            f"A table must be a pandas, Polars or PyArrow frame. Got a {type(frame).__name__} instead."
        ) from None
    for name in quasi_identifiers:
        if name not in table.columns:
            raise InputError(f"There is no column {name!r} in the frame.{did_you_mean(name, table.columns)}")
        if list(quasi_identifiers).count(name) > 1:
            raise InputError(f"Column {name!r} is listed twice among the quasi-identifiers.")
    return table, [[plain(value) for value in table[name].to_list()] for name in quasi_identifiers]


def plain(value: Any) -> Hashable:
    """Return a value that equals itself: all missing ones are None."""
    return None if value is None or value != value else value  # noqa: PLR0124  (NaN)


def coded(values: Sequence[Hashable]) -> list[int]:
    """Return a number for every value, the same for equal ones."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(value, len(known)) for value in values]


def text(value: Hashable) -> str | None:
    """Return a value as it stands beside stars."""
    return None if value is None else str(value)


def hide(column: nw.Series[Any], seen: NDArray[np.bool_]) -> nw.Series[Any]:
    """Return a column with missing values where a row is not to be seen."""
    if column.implementation.is_pandas_like():  # whole numbers beside missing ones would become floats
        native = column.to_native().astype(object)
        return nw.from_native(native.where(seen, None), series_only=True)
    mask = nw.new_series("seen", seen.tolist(), nw.Boolean, backend=column.implementation)
    return column.zip_with(
        mask, nw.new_series("none", [None] * len(seen), column.dtype, backend=column.implementation)
    )
