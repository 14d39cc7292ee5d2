"""Distinct rows from an engine, batch by batch, as coded tables in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.frames.label_codes import MISSING, encode
from masquerade.sources.engines import sql
from masquerade.sources.engines.sql import EngineColumn
from masquerade.sources.query_plan import QueryLayout
from masquerade.sources.record_store import Store

MERGED_AT_ONCE = 1 << 20
LARGEST_KEY = 1 << 62


class Overflow(Exception):
    """A result has more rows than may be held."""


class Gathering:
    """The distinct rows of some columns, collected into a `Store`.

    Values with several spellings arrive as several rows, which are merged.
    """

    def __init__(
        self, names: Sequence[str], columns: Mapping[str, EngineColumn], *, weighted: bool, most: int
    ) -> None:
        self.names, self._columns, self._weighted, self._most = tuple(names), columns, weighted, most
        keys = (sql.COUNT, sql.FIRST, sql.SECOND) if weighted else (sql.COUNT,)
        self._codes: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
        self._sums: dict[str, list[NDArray[Any]]] = {key: [] for key in keys}
        self._rows = self._merged = 0
        fields = [columns[name].field for name in names]
        several = any(field.missing is not None or field.recodes or field.date for field in fields)
        self._spelled = several or any(columns[name].text for name in names)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add some rows.

        Raises
        ------
        Overflow
            If there are too many rows.
        UnknownValue
            If a value is not a category.
        """
        for name, parts in self._codes.items():
            parts.append(codes_of(batch[name], self._columns[name]))
        for key, parts in self._sums.items():
            parts.append(numbers(batch[key], key))
        self._rows += len(batch)
        if self._spelled and self._rows - self._merged >= max(self._merged, MERGED_AT_ONCE):
            self._merge()
        if self._rows > self._most:
            raise Overflow

    def store(self, layout: QueryLayout, sizes: Mapping[str, int]) -> Store:
        """Return all rows as a store."""
        columns = {name: join_parts(parts, np.uint8) for name, parts in self._codes.items()}
        counts = join_parts(self._sums[sql.COUNT], np.int64)
        rows = int(counts.sum())
        if not self._weighted:
            return Store(layout, columns, sizes, rows, counts)
        first, second = (join_parts(self._sums[key], np.float64) for key in (sql.FIRST, sql.SECOND))
        return Store(layout, columns, sizes, rows, *_as_weights(first, second))

    def _merge(self) -> None:
        """Merge rows that are equal once they are coded."""
        columns = [join_parts(parts, np.uint8) for parts in self._codes.values()]
        shape = [len(self._columns[name].field.variable) for name in self.names]
        merged = _equal_rows(columns, shape)
        if merged is not None:
            codes, place = merged
            for parts, new in zip(self._codes.values(), codes, strict=True):
                parts[:] = [new]
            for key, parts in self._sums.items():
                self._sums[key] = [_sum_by_row(join_parts(parts, parts[0].dtype.type), place)]
            self._rows = len(codes[0])
        self._merged = self._rows


def add_stores(store: Store, more: Store) -> Store:
    """Return the distinct rows of two stores over the same columns, with equal rows merged."""
    columns = {name: np.concatenate([codes, more.columns[name]]) for name, codes in store.columns.items()}
    times = np.concatenate([_times(store), _times(more)])
    merged = _equal_rows(list(columns.values()), [store.sizes[name] for name in columns])
    place = np.arange(len(times)) if columns else np.zeros(len(times), dtype=np.intp)
    if merged is not None:
        codes, place = merged
        columns = dict(zip(columns, codes, strict=True))
    rows = store.rows + more.rows
    if store.weights is None or more.weights is None:
        return Store(store.layout, columns, store.sizes, rows, _sum_by_row(times, place))
    weights = np.concatenate([store.weights, more.weights])
    first, second = _sum_by_row(times * weights, place), _sum_by_row(times * weights**2, place)
    return Store(store.layout, columns, store.sizes, rows, *_as_weights(first, second))


def _times(store: Store) -> NDArray[Any]:
    assert store.multiplicity is not None  # noqa: S101  (for the type checker: what engines send is counted)
    return store.multiplicity


def _equal_rows(
    columns: Sequence[NDArray[Any]], shape: Sequence[int]
) -> tuple[list[NDArray[Any]], NDArray[np.intp]] | None:
    """Return the distinct rows of columns, and the index of every row. None if rows cannot be numbered."""
    if prod(shape) > LARGEST_KEY or not columns:
        return None
    keys, place = np.unique(np.ravel_multi_index(list(columns), shape), return_inverse=True)
    codes = np.unravel_index(keys, shape)
    return [new.astype(old.dtype) for new, old in zip(codes, columns, strict=True)], place


def _sum_by_row(values: NDArray[Any], place: NDArray[np.intp]) -> NDArray[Any]:
    """Return the sums of values that belong to the same row."""
    total = np.zeros(int(place.max(initial=-1)) + 1, dtype=values.dtype)
    np.add.at(total, place, values)
    return total


def _as_weights(first: NDArray[Any], second: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows of weights v as (Σv)²/Σv² records of weight Σv²/Σv, from the two sums."""
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(first > 0, second / first, 0.0)
        times = np.where(second > 0, first**2 / second, 0.0)
    return times, weights


def codes_of(values: pa.Array | pa.ChunkedArray, column: EngineColumn) -> NDArray[Any]:
    """Return the codes of values, or the codes that the engine has computed."""
    if not column.cut_by_engine:
        return encode(values, column.field, text=column.text)
    size = len(column.field.variable)
    marks: NDArray[Any] = numbers(values, sql.COUNT)
    wrong = marks[marks >= size]
    if len(wrong):
        example = np.nan if wrong[0] == size + MISSING else np.inf
        encode(pa.array([example]), column.field)  # raises the error for such a value
    return marks.astype(np.min_scalar_type(size - 1))


def numbers(values: pa.Array | pa.ChunkedArray, key: str) -> NDArray[Any]:
    """Return a sum column. NULL is 0."""
    found: NDArray[Any] = values.cast(sql.sum_type(key)).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def split(batch: pa.RecordBatch, parts: Mapping[int, Gathering]) -> None:
    """Distribute the rows of several grouping sets to their parts, by the number of the set."""
    import pyarrow.compute as pc  # noqa: PLC0415  (slow to import)

    marks = numbers(batch[sql.SET], sql.SET)
    for mark in np.unique(marks).tolist():
        parts[mark].add(batch.filter(pc.equal(pa.array(marks), mark)))


def join_parts(parts: Sequence[NDArray[Any]], empty: type[np.generic]) -> NDArray[Any]:
    """Concatenate the parts. A single part is not copied."""
    if not parts:
        return np.zeros(0, dtype=empty)
    return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts))
