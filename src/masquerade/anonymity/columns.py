"""Columns of the caller's frame as codes: values in their own order, missing ones a category of their own."""

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
class Column:
    """A column: a code for every row, and the distinct values in order; a missing one is None, at the end."""

    name: str
    codes: Int64
    values: tuple[Hashable, ...]

    @property
    def words(self) -> tuple[str | None, ...]:
        """Return the values as they stand beside stars."""
        stamps = [value for value in self.values if isinstance(value, datetime)]
        days = bool(stamps) and all(stamp.time() == time() for stamp in stamps)
        return tuple(
            None if value is None else str(value.date() if days and isinstance(value, datetime) else value)
            for value in self.values
        )


def checked(frame: Any, names: Sequence[str], k: int) -> nw.DataFrame[Any]:
    """Return the frame by narwhals, after refusing what cannot be made k-anonymous."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"'k' must be a whole number, at least 1. Got {k!r} instead.")
    return listed(frame, names, "quasi_identifiers")


def listed(frame: Any, names: Sequence[str], what: str) -> nw.DataFrame[Any]:
    """Return the frame by narwhals, after checking that it has these columns, each once."""
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


def coded(series: nw.Series[Any]) -> Column:
    """Return a column as codes; the order of the rows does not matter for them."""
    try:
        given, labels = _by_arrow(series)
    except (pa.ArrowException, OverflowError, UnicodeError):  # values of several types
        given, labels = _by_value(series)
    try:
        order = sorted(range(len(labels)), key=lambda i: (type(labels[i]).__name__, labels[i]))
    except TypeError:
        raise InputError(
            f"Column {series.name!r} holds values without an order; give texts, numbers or dates."
        ) from None
    rank = np.empty(len(labels) + 1, dtype=np.int64)
    rank[order] = np.arange(len(labels))
    rank[-1] = len(labels)  # where a missing value is sent
    missing = bool(given.size) and bool((given < 0).any())
    values = (*(labels[i] for i in order), *([None] if missing else []))
    return Column(series.name, rank[given], values)


def in_order(series: nw.Series[Any], column: Column) -> bool:
    """Tell whether the values of a column lie on a line: numbers, dates or truth values, none missing."""
    ordered = series.dtype.is_numeric() or series.dtype.is_temporal() or series.dtype == nw.Boolean
    return ordered and None not in column.values


def _by_arrow(series: nw.Series[Any]) -> tuple[Int64, list[Hashable]]:
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
    known: dict[Any, int] = {}
    codes = []
    for value in series.to_list():
        missing = value is None or value != value  # noqa: PLR0124  (NaN)
        # 1, 1.0 and True are equal, but not the same value to show
        codes.append(-1 if missing else known.setdefault((type(value), value), len(known)))
    return np.array(codes, dtype=np.int64), [value for _, value in known]


def text_column(
    name: str, words: Sequence[str | None], places: Int64, table: nw.DataFrame[Any]
) -> nw.Series[Any]:
    """Return a column of text for the frame, given by the place of every row's word."""
    shown = pa.array(words, pa.string()).take(pa.array(places))
    column = nw.from_arrow(pa.table({name: shown}), backend=table.implementation)[name]
    return column.cast(nw.String)


def collapsed(codes: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the distinct rows in order, their kind for every row, and how many rows each has."""
    sizes = [int(column.max(initial=0)) + 1 for column in codes.T]
    keys = keys_of(list(codes.T), sizes, rows=len(codes))
    numbers = np.empty(len(keys), dtype=np.int32)
    count = number_keys(keys, numbers)
    first = np.empty(count, dtype=np.int64)  # a row of each: sorting these is less than sorting all
    first[numbers[::-1]] = np.arange(len(keys) - 1, -1, -1)
    order = np.argsort(keys[first])
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    kind = rank[numbers]
    return codes[first[order]], kind, np.bincount(kind, minlength=count)


def keys_of(columns: Sequence[Int64], sizes: Sequence[int], *, rows: int) -> Int64:
    """Return one number for every row, equal exactly for equal rows and in their order."""
    if not columns:
        return np.zeros(rows, dtype=np.int64)

    def join(left: tuple[Int64, int], right: tuple[Int64, int]) -> tuple[Int64, int]:
        keys, largest = left
        if largest * right[1] > LARGEST_KEY:  # ranks keep the order and need less room
            keys = np.unique(keys, return_inverse=True)[1]
            largest = int(keys.max(initial=0)) + 1
        return keys * right[1] + right[0], largest * right[1]

    return reduce(join, zip(columns, sizes, strict=True))[0]
