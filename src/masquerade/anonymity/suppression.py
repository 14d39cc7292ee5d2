"""k-anonymity of a table in one place: open only rows that do not stand alone, or star what sets rows apart.

Both are what the distributed protocols of Zhong, Yang & Wright (2005) compute without anybody seeing the
table. k-anonymity hides a row among at least k; it bounds no belief, and where a group shares its sensitive
value, that value is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.columns import STAR, checked, coded, text_column
from masquerade.anonymity.cover import Cover, ball_cover, partition
from masquerade.anonymity.lattice import collapsed


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
    table = checked(frame, quasi_identifiers, k)
    codes = np.stack([coded(table[name]).codes for name in quasi_identifiers], axis=1)
    _, kind, weights = collapsed(codes)
    seen = (weights >= k)[kind]
    hidden = [hide(table[name], seen) for name in table.columns if name not in quasi_identifiers]
    return (table if seen.all() else table.with_columns(*hidden)).to_native()


def suppress(
    frame: Any, quasi_identifiers: Sequence[str], k: int, *, cover: Cover = ball_cover
) -> Suppression:
    """Return a k-anonymous table by Meyerson & Williams: what differs within a group of rows is starred.

    `cover` is how groups are found: `ball_cover`, `lean_cover` or `subset_cover`. A column with a star comes
    back as text; all others, and all other columns, stay as they are. `anonymize` takes larger tables and
    stars less.
    """
    table = checked(frame, quasi_identifiers, k)
    columns = [coded(table[name]) for name in quasi_identifiers]
    codes = np.stack([column.codes for column in columns], axis=1)
    groups = partition(codes, k, cover)
    stars = differing(codes, groups)
    starred = []
    for i, column in enumerate(columns):
        if stars[:, i].any():
            shown = column.words
            words = [
                STAR if star else shown[code] for code, star in zip(column.codes, stars[:, i], strict=True)
            ]
            starred.append(text_column(column.name, words, table))
    return Suppression(table.with_columns(*starred).to_native(), groups, stars)


def differing(codes: NDArray[np.int64], groups: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Tell for every cell whether its column takes several values within the row's group."""
    stars = np.zeros(codes.shape, dtype=bool)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        stars[rows] = np.any(codes[rows] != codes[rows[0]], axis=0)
    return stars


def hide(column: nw.Series[Any], seen: NDArray[np.bool_]) -> nw.Series[Any]:
    """Return a column with missing values where a row is not to be seen."""
    if column.implementation.is_pandas_like():  # whole numbers beside missing ones would become floats
        native = column.to_native().astype(object)
        return nw.from_native(native.where(seen, None), series_only=True)
    mask = nw.new_series("seen", seen.tolist(), nw.Boolean, backend=column.implementation)
    return column.zip_with(
        mask, nw.new_series("none", [None] * len(seen), column.dtype, backend=column.implementation)
    )
