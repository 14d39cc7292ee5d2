"""Reports that lie in an engine: few scans fetch compressed tables, and those answer what is asked.

Distinct rows with their multiplicities say everything that counts can say. One scan tabulates all columns
that a batch of questions touches, as few, large tables; they are kept, coded, in memory, and later questions
about the same columns need no scan. Only a conditioned question whose columns have too many combinations
is summed up, weights and all, by the engine itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from masquerade.core.errors import InputError, UnknownValue
from masquerade.frames.encode import encode
from masquerade.kernels.cover import cover_within
from masquerade.sources import sql
from masquerade.sources.reading import Layout, Reading
from masquerade.sources.sql import Column, Dialect
from masquerade.sources.store import Observed, Store

LOG = logging.getLogger("masquerade.sources")
MOST_CELLS_HELD = 1 << 20  # a table with at most so many cells is fetched without a second thought
MOST_BYTES_HELD = 1 << 30
SAMPLE = 1 << 17
WORTH = 8  # rows for each distinct one below which keeping distinct rows does not pay
MOST_WEIGHTS = 64  # weights summed up in one scan


class Table(Protocol):
    """A table in some engine, which runs SQL over it."""

    @property
    def dialect(self) -> Dialect:
        """How the engine writes."""

    @property
    def title(self) -> str:
        """What stands in logs and messages: which engine, never how to get in."""

    @property
    def text(self) -> bool:
        """Whether all columns are text, as in a CSV file."""

    @property
    def names(self) -> Sequence[str]:
        """The columns."""

    def kinds(self, names: Sequence[str]) -> Mapping[str, pa.DataType]:
        """Return the types of columns."""

    def fetch(self, write: Callable[[str], str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Run the SQL that `write` makes of the table's name, which needs these columns of it."""

    def refuse(self, error: UnknownValue, column: Column) -> UnknownValue:
        """Return the error about a value, with the place where it stands if that can be found out."""


class Overflow(Exception):
    """A result has more rows than can be held."""


@dataclass(eq=False)
class Scanned:
    """Reports of one stratum in an engine's table, as the sums that readings want."""

    table: Table
    layout: Layout
    columns: Mapping[str, Column]
    sizes: Mapping[str, int]
    rows: int
    only: str = ""
    only_by: str | None = None
    weights: str | None = None

    def __post_init__(self) -> None:
        self._held: list[Store] = []
        self._scans = 0
        self._whole_pays: bool | None = None

    def observe(self, plans: Sequence[Reading]) -> list[Observed]:
        """Return the sums that readings want, from what is held or from as few scans as pay."""
        wants = [wanted(plan) for plan in plans]
        stores = self.stores(wants, [self._summed_by_engine(p, w) for p, w in zip(plans, wants, strict=True)])
        found: dict[int, Observed] = {}
        for store in {id(store): store for store in stores if store is not None}.values():
            mine = [i for i, held in enumerate(stores) if held is store]
            found |= zip(mine, store.observe([plans[i] for i in mine]), strict=True)
        rest = [i for i, store in enumerate(stores) if store is None]
        found |= zip(rest, self._weigh([plans[i] for i in rest]), strict=True)
        return [found[i] for i in range(len(plans))]

    def stores(
        self, wants: Sequence[Sequence[str]], by_engine: Sequence[bool] | None = None
    ) -> list[Store | None]:
        """Return a store that covers each set of columns, scanning for those that none does.

        None for those that the engine shall sum up, unless they happen to be covered.
        """
        skip = by_engine or [False] * len(wants)
        missing = [want for want in wants if self._holder(want) is None]
        if missing and self._worth_whole():
            self._hold([tuple(self.columns)])
        missing = [w for w, left in zip(wants, skip, strict=True) if not left and self._holder(w) is None]
        if missing:
            names = list(self.columns)
            places = list(dict.fromkeys(tuple(sorted(names.index(name) for name in w)) for w in missing))
            blocks = cover_within([self.sizes[name] for name in names], places, MOST_CELLS_HELD)
            self._hold([tuple(names[place] for place in block.columns) for block in blocks])
        return [self._holder(want) for want in wants]

    def refused(self, error: UnknownValue) -> UnknownValue:
        """Return the error about a value, with its place if that can be found out."""
        column = self.columns.get(error.column)
        return error if column is None else self.table.refuse(error, column)

    def _unread(self, names: Sequence[str]) -> UnknownValue:
        """Return the error about a value of one of these columns, the first that can be placed."""
        errors = [self.refused(UnknownValue(name, None)) for name in names]
        return next((error for error in errors if error.row is not None), errors[0])

    def distinct_rows(self, names: Sequence[str]) -> Store | None:
        """Return the distinct rows of some columns; None if there are too many to be worth holding."""
        if self._holder(names) is None and prod(self.sizes[n] for n in names) > MOST_CELLS_HELD:
            self._scans += 1  # such a question is the first of thousands
            if not self._worth_whole():
                return None
        return self.stores([names])[0]

    def _holder(self, want: Sequence[str]) -> Store | None:
        """Return the smallest held table with these columns."""
        covering = [store for store in self._held if store.covers(want)]
        return min(covering, key=lambda store: len(store.multiplicity), default=None)  # type: ignore[arg-type]

    def _summed_by_engine(self, plan: Reading, want: Sequence[str]) -> bool:
        """Tell whether a reading is better left to the engine: conditioned, over very many combinations."""
        cut = any(self.columns[n].field.edges is not None for f in plan.factors for n in f.columns)
        large = prod(self.sizes[name] for name in want) > MOST_CELLS_HELD
        return bool(plan.factors) and large and not cut

    def _worth_whole(self) -> bool:
        """Tell whether to fetch the distinct rows of all columns: when scans repeat, and rows do too."""
        if self._scans == 0 or self._whole_pays is False:
            return False
        cells = prod(self.sizes.values())
        if cells <= MOST_CELLS_HELD:
            return True
        if self._whole_pays is None:
            self._whole_pays = self._looks_compressible()
        return self._whole_pays

    def _looks_compressible(self) -> bool:
        """Judge by the first rows: after m of them the next is new with probability (those seen once)/m.

        Reference: Good (1953), the frequencies of unseen species.
        """
        names = list(self.columns)
        batches = self.table.fetch(
            lambda t: sql.sampled(self.table.dialect, t, names, SAMPLE, only=self.only), self._read(names)
        )
        row = pa.Table.from_batches(list(batches)).to_pylist()[0]
        kinds, once, seen = (int(row[key] or 0) for key in (sql.FIRST, sql.SECOND, sql.COUNT))
        expected = kinds + max(self.rows - seen, 0) * once / max(seen, 1)
        pays = expected * WORTH <= self.rows and expected <= self._most_rows(names)
        LOG.info(
            "%s: about %s of %s rows differ; %s",
            self.table.title,
            f"{int(expected):,}",
            f"{self.rows:,}",
            "they are fetched once" if pays else "every batch of questions is a scan",
        )
        return pays

    def _most_rows(self, names: Sequence[str]) -> int:
        """Return how many coded rows of these columns may be held."""
        width = sum(np.min_scalar_type(self.sizes[name] - 1).itemsize for name in names)
        return MOST_BYTES_HELD // (width + 16)

    def _hold(self, sets: Sequence[tuple[str, ...]]) -> None:
        """Scan once for the distinct rows of each set of columns, and keep them."""
        self._scans += 1
        whole = len(sets) == 1 and len(sets[0]) == len(self.columns)
        try:
            new = self._scan(sets)
        except Overflow:
            if whole and self._whole_pays:  # the first rows were not like the others
                self._whole_pays = False
                return
            raise InputError(
                f"{self.table.title}: the columns {', '.join(dict.fromkeys(n for s in sets for n in s))} "
                "have too many different rows to be counted together; ask about fewer at a time."
            ) from None
        except UnknownValue as error:
            raise self.refused(error) from None
        self._held = [s for s in self._held if not any(n.covers(s.columns) for n in new)] + new
        while len(self._held) > len(new) and sum(map(held_bytes, self._held)) > MOST_BYTES_HELD:
            del self._held[0]

    def _scan(self, sets: Sequence[tuple[str, ...]]) -> list[Store]:
        dialect = self.table.dialect
        if len(sets) == 1 or not dialect.grouping_sets:
            return [self._store(names, self._grouped([names])) for names in sets]
        everything = pa.Table.from_batches(list(self._grouped(sets)))
        names = list(dict.fromkeys(name for columns in sets for name in columns))
        numbers = everything[sql.SET].cast(pa.int64())
        result = []
        for columns in sets:
            number = sum(1 << i for i, name in enumerate(names) if name not in columns)
            rows = everything.filter(pc.equal(numbers, number))
            result.append(self._store(columns, iter(rows.to_batches())))
        return result

    def _grouped(self, sets: Sequence[Sequence[str]]) -> Iterator[pa.RecordBatch]:
        names = list(dict.fromkeys(name for columns in sets for name in columns))
        return self.table.fetch(
            lambda t: sql.grouped(self.table.dialect, t, sets, only=self.only, weights=self.weights),
            self._read(names),
        )

    def _read(self, names: Sequence[str]) -> list[str]:
        """Return the columns that SQL about these ones reads."""
        more = [name for name in (self.only_by, self.weights) if name is not None]
        return list(dict.fromkeys([*names, *more]))

    def _store(self, names: tuple[str, ...], batches: Iterator[pa.RecordBatch]) -> Store:
        """Return distinct rows as a coded store."""
        codes: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
        sums: dict[str, list[NDArray[Any]]] = {key: [] for key in (sql.COUNT, *self._survey_sums())}
        rows, most = 0, self._most_rows(names)
        for batch in batches:
            rows += len(batch)
            if rows > most:
                raise Overflow
            for name in names:
                column = self.columns[name]
                codes[name].append(encode(batch[name], column.field, text=column.text))
            for key, parts in sums.items():
                parts.append(batch[key].cast(kind_of(key)).fill_null(0).to_numpy(zero_copy_only=False))
        counts = joined(sums[sql.COUNT], np.int64)
        coded = {name: joined(parts, np.uint8) for name, parts in codes.items()}
        total = int(counts.sum())
        if self.weights is None:
            return Store(self.layout, coded, self.sizes, total, counts)
        if int(joined(sums[sql.UNREAD], np.int64).sum()) != total:
            raise UnknownValue(self.weights, None, "is missing")
        first, second = joined(sums[sql.FIRST], np.float64), joined(sums[sql.SECOND], np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = np.where(first > 0, second / first, 0.0)
            times = np.where(second > 0, first**2 / second, 0.0)
        return Store(self.layout, coded, self.sizes, total, times, weights)

    def _survey_sums(self) -> tuple[str, ...]:
        return () if self.weights is None else (sql.FIRST, sql.SECOND, sql.UNREAD)

    def _weigh(self, plans: Sequence[Reading]) -> list[Observed]:
        """Let the engine sum up weights; readings that tabulate the same columns share scans."""
        result: dict[int, Observed] = {}
        shared: dict[tuple[str, ...], list[int]] = {}
        for i, plan in enumerate(plans):
            shared.setdefault(plan.columns, []).append(i)
        for columns, places in shared.items():
            for start in range(0, len(places), MOST_WEIGHTS):
                some = places[start : start + MOST_WEIGHTS]
                self._scans += 1
                result |= zip(some, self._weigh_together(columns, [plans[i] for i in some]), strict=True)
        return [result[i] for i in range(len(plans))]

    def _weigh_together(self, columns: tuple[str, ...], plans: Sequence[Reading]) -> list[Observed]:
        dialect = self.table.dialect
        texts = [sql.weight(dialect, plan.factors, self.columns) for plan in plans]
        names = [name for plan in plans for name in wanted(plan)]
        batches = self.table.fetch(
            lambda t: sql.weighed(dialect, t, columns, texts, only=self.only, survey=self.weights),
            self._read(names),
        )
        rows = pa.Table.from_batches(list(batches))
        for i, plan in enumerate(plans):
            if pc.sum(rows[f"{sql.UNREAD}{i}"]).as_py():
                raise self._unread([name for factor in plan.factors for name in factor.columns])
        try:
            codes = [
                encode(rows[name], self.columns[name].field, text=self.columns[name].text) for name in columns
            ]
        except UnknownValue as error:
            raise self.refused(error) from None
        shape = tuple(self.sizes[name] for name in columns)
        cells = np.ravel_multi_index(codes, shape) if columns else np.zeros(len(rows), dtype=np.intp)

        def spread(key: str, plan: Reading) -> NDArray[np.float64]:
            values = rows[key].cast(pa.float64()).fill_null(0.0).to_numpy()
            table: NDArray[Any] = np.bincount(cells, weights=values, minlength=prod(shape))
            return table.reshape(plan.observed_shape)

        found = []
        for i, plan in enumerate(plans):
            first, second = spread(f"{sql.FIRST}{i}", plan), spread(f"{sql.SECOND}{i}", plan)
            found.append(
                Observed(first, second, first if self.weights is None else spread(f"{sql.THIRD}{i}", plan))
            )
        return found


def wanted(plan: Reading) -> tuple[str, ...]:
    """Return the columns that a reading touches."""
    return tuple(dict.fromkeys([*plan.columns, *(name for f in plan.factors for name in f.columns)]))


def held_bytes(store: Store) -> int:
    """Return the memory that a held table takes."""
    extra = [array for array in (store.multiplicity, store.weights) if array is not None]
    return sum(int(array.nbytes) for array in [*store.columns.values(), *extra])


def kind_of(key: str) -> pa.DataType:
    """Return the type of a sum."""
    return pa.int64() if key in {sql.COUNT, sql.UNREAD} else pa.float64()


def joined(parts: Sequence[NDArray[Any]], empty: type[np.generic]) -> NDArray[Any]:
    """Return the parts as one array."""
    return np.concatenate(parts) if parts else np.zeros(0, dtype=empty)
