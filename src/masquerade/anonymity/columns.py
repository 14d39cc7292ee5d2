"""Columns of the caller's frame as codes: sorted values, with a category for missing values."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from functools import reduce
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from masquerade.core.errors import InputError, did_you_mean
from masquerade.kernels.key_numbers import number_keys

STAR = "*"
LARGEST_KEY = 1 << 62

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CodedColumn:
    """A column: the code of every row, and the sorted distinct values; None, for missing values, is last."""

    name: str
    codes: Int64
    values: tuple[Hashable, ...]

    @property
    def texts(self) -> tuple[str | None, ...]:
        """Return the values as text, for columns in which other cells are stars."""
        stamps = [value for value in self.values if isinstance(value, datetime)]
        days = bool(stamps) and all(stamp.time() == time() for stamp in stamps)
        return tuple(
            None if value is None else str(value.date() if days and isinstance(value, datetime) else value)
            for value in self.values
        )


def require_quasi_identifiers(frame: Any, names: Sequence[str], k: int) -> nw.DataFrame[Any]:
    """Return the frame as a narwhals frame; raise InputError if `k` or a column name is not valid."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"'k' must be a whole number, at least 1. Got {k!r} instead.")
    return require_columns(frame, names, "quasi_identifiers")


def require_columns(frame: Any, names: Sequence[str], what: str) -> nw.DataFrame[Any]:
    """Return the frame as a narwhals frame; raise InputError if a column is missing or listed twice."""
    if isinstance(names, str) or not names:
        raise InputError(f"'{what}' must be a list of columns, at least one.")
    try:
        table: nw.DataFrame[Any] = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise InputError(
            f"A table must be a pandas, Polars or PyArrow frame. Got a {type(frame).__name__} instead."
        ) from None
    for name in names:
        if name not in table.columns:
            raise InputError(f"There is no column {name!r} in the frame.{did_you_mean(name, table.columns)}")
        if list(names).count(name) > 1:
            raise InputError(f"Column {name!r} is listed twice among '{what}'.")
    return table


def encode_column(series: nw.Series[Any]) -> CodedColumn:
    """Return a column as codes, which do not depend on the order of the rows."""
    try:
        given, labels = _by_arrow(series)
    except (pa.ArrowException, OverflowError, UnicodeError):  # values of several types
        given, labels = _by_value(series)
    try:
        order = sorted(range(len(labels)), key=lambda i: (type(labels[i]).__name__, labels[i]))
    except TypeError:
        raise InputError(
            f"Column {series.name!r} contains values without an order; give texts, numbers or dates."
        ) from None
    rank = np.empty(len(labels) + 1, dtype=np.int64)
    rank[order] = np.arange(len(labels))
    rank[-1] = len(labels)  # code of a missing value
    missing = bool(given.size) and bool((given < 0).any())
    values = (*(labels[i] for i in order), *([None] if missing else []))
    return CodedColumn(series.name, rank[given], values)


def has_distances(series: nw.Series[Any], column: CodedColumn) -> bool:
    """Return True if the values of a column have distances: numbers, dates or booleans, none missing."""
    ordered = series.dtype.is_numeric() or series.dtype.is_temporal() or series.dtype == nw.Boolean
    return ordered and None not in column.values


def _by_arrow(series: nw.Series[Any]) -> tuple[Int64, list[Hashable]]:
    """Return the code of every row, -1 if missing, and the distinct values, by Arrow's dictionaries."""
    values = series.to_arrow()
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # too long for one array of texts
        values = values.cast(pa.large_string()).combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    words = values.dictionary_encode()
    codes = words.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, words.dictionary.to_pylist()


def _by_value(series: nw.Series[Any]) -> tuple[Int64, list[Hashable]]:
    codes_by_value: dict[Any, int] = {}
    codes = []
    for value in series.to_list():
        missing = value is None or value != value  # noqa: PLR0124  (NaN)
        # 1, 1.0 and True are equal, but not the same value to show
        codes.append(-1 if missing else codes_by_value.setdefault((type(value), value), len(codes_by_value)))
    return np.array(codes, dtype=np.int64), [value for _, value in codes_by_value]


def text_column(
    name: str, words: Sequence[str | None], places: Int64, table: nw.DataFrame[Any]
) -> nw.Series[Any]:
    """Return a text column for the frame, given the distinct texts `words` and every row's index in them."""
    shown = pa.array(words, pa.string()).take(pa.array(places))
    column = nw.from_arrow(pa.table({name: shown}), backend=table.implementation)[name]
    return column.cast(nw.String)


def distinct_rows(codes: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the sorted distinct rows, the index of each row among them, and their numbers of rows."""
    sizes = [int(column.max(initial=0)) + 1 for column in codes.T]
    keys = row_keys(list(codes.T), sizes, rows=len(codes))
    numbers = np.empty(len(keys), dtype=np.int32)
    count = number_keys(keys, numbers)
    first = np.empty(count, dtype=np.int64)  # one row per distinct row: faster to sort than all rows
    first[numbers[::-1]] = np.arange(len(keys) - 1, -1, -1)
    order = np.argsort(keys[first])
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    kind = rank[numbers]
    return codes[first[order]], kind, np.bincount(kind, minlength=count)


def row_keys(columns: Sequence[Int64], sizes: Sequence[int], *, rows: int) -> Int64:
    """Return one number per row; numbers are equal if rows are equal, and sort in the order of the rows."""
    if not columns:
        return np.zeros(rows, dtype=np.int64)

    def join(left: tuple[Int64, int], right: tuple[Int64, int]) -> tuple[Int64, int]:
        keys, largest = left
        if largest * right[1] > LARGEST_KEY:  # ranks keep the order and are smaller
            keys = np.unique(keys, return_inverse=True)[1]
            largest = int(keys.max(initial=0)) + 1
        return keys * right[1] + right[0], largest * right[1]

    return reduce(join, zip(columns, sizes, strict=True))[0]
