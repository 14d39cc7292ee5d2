"""Reports in an engine: a few scans fetch compressed tables, which answer all queries.

Distinct rows with their multiplicities determine all counts. One scan tabulates all columns of a batch of
queries as few, large tables. They are cached in memory as codes, and later queries about the same columns
need no scan. Only a conditional query whose columns have too many combinations is summed, with its weights,
by the engine itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import DataChanged, InputError, UnknownValue
from masquerade.core.util.processes import ForkSafeLock
from masquerade.kernels.cover import cover_within
from masquerade.sources.engines import sql
from masquerade.sources.engines.coded_rows import Gathering, Overflow, add_stores, codes_of, numbers, split
from masquerade.sources.engines.engine_tables import Table
from masquerade.sources.engines.sql import EngineColumn
from masquerade.sources.query_plan import QueryLayout, QueryPlan
from masquerade.sources.record_store import Observed, Store, mean_weight

LOG = logging.getLogger("masquerade.sources")
MOST_GROUPED = 62  # most columns in one scan: grouping sets are numbered by the bits of an int64


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits of fetched and cached data: tables of up to `cells` combinations are always fetched.

    All cached tables take at most `bytes`, and each has at most `rows`. All columns are fetched if a sample
    of `sample` rows suggests at least `saving` rows per distinct row. `weights` is the number of weights
    summed in one scan.
    """

    cells: int = 1 << 20
    bytes: int = 1 << 30
    rows: int = 1 << 24
    sample: int = 1 << 17
    saving: float = 8
    weights: int = 64


@dataclass(eq=False)
class Scanned:
    """Reports of one stratum in an engine's table, as the sums that plans need."""

    table: Table
    layout: QueryLayout
    columns: Mapping[str, EngineColumn]
    sizes: Mapping[str, int]
    limits: EngineLimits = field(default_factory=EngineLimits)
    only: str = ""
    only_by: str | None = None
    weights: str | None = None
    known_rows: int | None = None
    turns: ForkSafeLock = field(default_factory=ForkSafeLock)  # one thread at a time uses the engine's table

    def __post_init__(self) -> None:
        self._held: list[Store] = []
        self._scans = 0
        self._whole_pays: bool | None = None

    @property
    def rows(self) -> int:
        """Number of records, known from any cached table."""
        with self.turns:
            if self.known_rows is None:
                if self._held:
                    self.known_rows = self._held[0].rows
                else:
                    row = self._fetched_row(
                        [], lambda t: sql.select_grouped(self.table.dialect, t, [()], only=self.only)
                    )
                    self.known_rows = int(row[sql.COUNT])
            return self.known_rows

    def observe(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        """Return the sums that plans need, from cached tables or from as few scans as possible."""
        with self.turns:
            return self._observe(plans)

    def _observe(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        wants = [plan.joint_columns for plan in plans]
        if any(self._holder(want) is None for want in wants) and self._worth_whole():
            self._hold_whole()
        found: dict[int, Observed] = {}
        left = [i for i, want in enumerate(wants) if not self._summed_by_engine(plans[i], want)]
        while left:  # repeats only if the tables do not fit together
            self._scan_for([wants[i] for i in left])
            holders = {i: store for i in left if (store := self._holder(wants[i])) is not None}
            for store in {id(store): store for store in holders.values()}.values():
                mine = [i for i, holder in holders.items() if holder is store]
                found |= zip(mine, store.observe([plans[i] for i in mine]), strict=True)
            left = [i for i in left if i not in holders]
        rest = [i for i in range(len(plans)) if i not in found]
        found |= zip(rest, self._push_down([plans[i] for i in rest]), strict=True)
        return [found[i] for i in range(len(plans))]

    def distinct_rows(self, names: Sequence[str]) -> Store | None:
        """Return the distinct rows of some columns. None if there are too many to cache."""
        with self.turns:
            if self._holder(names) is None:
                if prod(self.sizes[name] for name in names) > self.limits.cells:
                    self._scans += 1  # thousands of such queries will follow
                    if self._worth_whole():
                        self._hold_whole()
                else:
                    self._scan_for([names])
            return self._holder(names)

    def take_over(self, old: Scanned, more: Scanned) -> None:
        """Take over the cached tables of `old`, with the records of `more` added. Only these are scanned."""
        self._scans, self._whole_pays = old._scans, old._whole_pays
        left = list(old._held)
        while left:
            some, used = list[Store](), set[str]()
            while left and (not some or len(used | {*left[0].columns}) <= MOST_GROUPED):
                used |= {*left[0].columns}
                some.append(left.pop(0))
            try:
                found = more._scan([tuple(store.columns) for store in some])
            except Overflow:
                continue  # the next query about them scans again
            except UnknownValue as error:
                raise more._locate_value(error) from None
            for store, new in zip(some, found, strict=True):
                more._check_rows(new.rows)
                held = add_stores(store, new)
                if held_rows(held) <= self._most_rows(list(held.columns)):
                    self._held.append(held)

    def _scan_for(self, wants: Sequence[Sequence[str]]) -> None:
        """Scan once for the columns that no cached table covers, or for as many as fit."""
        missing = [want for want in wants if self._holder(want) is None]
        if not missing:
            return
        names = list(self.columns)
        places = list(dict.fromkeys(tuple(sorted(names.index(name) for name in want)) for want in missing))
        sets: list[tuple[str, ...]] = []
        size, used = 0, set[str]()
        for block in cover_within([self.sizes[name] for name in names], places, self.limits.cells):
            columns = tuple(names[place] for place in block.columns)
            size += prod(self.sizes[name] for name in columns) * self._row_bytes(columns)
            used |= {*columns}
            if sets and (size > self.limits.bytes or len(used) > MOST_GROUPED):
                break
            sets.append(columns)
        try:
            self._hold(sets)
        except Overflow:
            raise InputError(
                f"{self.table.title}: the columns {', '.join(dict.fromkeys(n for s in sets for n in s))} "
                "have too many distinct rows to be counted together: query fewer at a time."
            ) from None

    def _holder(self, want: Sequence[str]) -> Store | None:
        covering = [store for store in self._held if store.covers(want)]
        return min(covering, key=held_rows, default=None)

    def _summed_by_engine(self, plan: QueryPlan, want: Sequence[str]) -> bool:
        """Return True if the engine should sum a plan: a conditional query over very many combinations."""
        if not plan.factors or self._holder(want) is not None:
            return False
        conditions = [self.columns[name] for factor in plan.factors for name in factor.columns]
        cut_here = any(
            (column.field.edges is not None or column.field.date is not None) and not column.cut_by_engine
            for column in conditions
        )
        return prod(self.sizes[name] for name in want) > self.limits.cells and not cut_here

    def _worth_whole(self) -> bool:
        """Return True to fetch the distinct rows of all columns: not at the first scan, and only if few."""
        if self._scans == 0 or self._whole_pays is False:
            return False
        if prod(self.sizes.values()) <= self.limits.cells:
            return True
        if self._whole_pays is None:
            self._whole_pays = self._looks_compressible()
        return self._whole_pays

    def _looks_compressible(self) -> bool:
        """Estimate from the first m rows: the next row is new with probability (rows seen once)/m.

        Reference: Good (1953), the frequencies of unseen species.
        """
        names, most = list(self.columns), self.limits.sample
        row = self._fetched_row(
            names, lambda t: sql.select_sample(self.table.dialect, t, names, most, only=self.only)
        )
        kinds, once, seen = (int(row[key] or 0) for key in (sql.FIRST, sql.SECOND, sql.COUNT))
        expected = kinds + max(self.rows - seen, 0) * once / max(seen, 1)
        pays: bool = expected * self.limits.saving <= self.rows and expected <= self._most_rows(names)
        LOG.info(
            "%s: about %s of %s rows differ; %s",
            self.table.title,
            f"{int(expected):,}",
            f"{self.rows:,}",
            "they are fetched once" if pays else "every batch of queries needs a scan",
        )
        return pays

    def _row_bytes(self, names: Sequence[str]) -> int:
        return sum(np.min_scalar_type(self.sizes[name] - 1).itemsize for name in names) + 16

    def _most_rows(self, names: Sequence[str]) -> int:
        return min(self.limits.bytes // self._row_bytes(names), self.limits.rows)

    def _hold_whole(self) -> None:
        """Try to cache the distinct rows of all columns. The first rows may have been unrepresentative."""
        try:
            self._hold([tuple(self.columns)])
        except Overflow:
            self._whole_pays = False

    def _hold(self, sets: Sequence[tuple[str, ...]]) -> None:
        """Scan once for the distinct rows of each set of columns, and cache them."""
        self._scans += 1
        try:
            new = self._scan(sets)
        except UnknownValue as error:
            raise self._locate_value(error) from None
        for store in new:
            self._check_rows(store.rows)
        self._held = [s for s in self._held if not any(n.covers(s.columns) for n in new)] + new
        while len(self._held) > len(new) and sum(map(held_bytes, self._held)) > self.limits.bytes:
            del self._held[0]

    def _check_rows(self, rows: int) -> None:
        """Raise DataChanged if a scan found more or fewer records than the first one."""
        if self.known_rows is None:
            self.known_rows = rows
        elif rows != self.known_rows:
            raise DataChanged(self.table.title)

    def _scan(self, sets: Sequence[tuple[str, ...]]) -> list[Store]:
        if len(sets) > 1 and not self.table.dialect.grouping_sets:
            return [store for columns in sets for store in self._scan([columns])]
        names = list(dict.fromkeys(name for columns in sets for name in columns))
        gathered = {
            sum(1 << i for i, name in enumerate(names) if name not in columns): Gathering(
                columns, self.columns, weighted=self.weights is not None, most=self._most_rows(columns)
            )
            for columns in sets
        }
        spelled = any(
            self.columns[name].text for name in names
        )  # spellings may differ, so there may be more rows to merge
        most = None if spelled else sum(self._most_rows(columns) for columns in sets) + 1
        batches = self._batches(
            names,
            lambda t: sql.select_grouped(
                self.table.dialect, t, sets, only=self.only, weights=self.weights, most=most
            ),
        )
        with closing(batches):
            for batch in batches:
                if len(sets) == 1:
                    gathered[0].add(batch)
                else:
                    split(batch, gathered)
        return [part.store(self.layout, self.sizes) for part in gathered.values()]

    def _batches(self, names: Sequence[str], write: Callable[[str], str]) -> Generator[pa.RecordBatch]:
        """Run SQL that reads these columns, with binned numbers replaced by their codes."""
        more = [name for name in (self.only_by, self.weights) if name is not None]
        used = list(dict.fromkeys([*names, *more]))
        return self.table.fetch(
            lambda t: write(sql.with_bins(self.table.dialect, t, used, self.columns)), used
        )

    def _fetched_row(self, names: Sequence[str], write: Callable[[str], str]) -> dict[str, Any]:
        return dict(pa.Table.from_batches(list(self._batches(names, write))).to_pylist()[0])

    def _push_down(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        """Sum weights in the engine. Plans that tabulate the same columns share scans."""
        dialect, most, found = self.table.dialect, self.limits.weights, dict[int, Observed]()
        shared: dict[tuple[str, ...], list[int]] = {}
        for i, plan in enumerate(plans):
            shared.setdefault(plan.columns, []).append(i)
        for places in (alike[i : i + most] for alike in shared.values() for i in range(0, len(alike), most)):
            some = [plans[i] for i in places]
            write = partial(
                sql.select_weighed,
                dialect,
                columns=some[0].columns,
                weights=[sql.weight(dialect, plan.factors, self.columns) for plan in some],
                only=self.only,
                survey=self.weights,
            )
            names = dict.fromkeys(name for plan in some for name in plan.joint_columns)
            self._scans += 1
            rows = pa.Table.from_batches(list(self._batches(list(names), write)))
            self._check_rows(int(numbers(rows[sql.COUNT], sql.COUNT).sum()))
            for i, plan in enumerate(some):
                if numbers(rows[f"{sql.UNREAD}{i}"], sql.UNREAD).any():
                    raise self._unread([name for factor in plan.factors for name in factor.columns])
            try:
                found |= zip(places, self._sums(some, rows), strict=True)
            except UnknownValue as error:
                raise self._locate_value(error) from None
        return [found[i] for i in range(len(plans))]

    def _sums(self, plans: Sequence[QueryPlan], rows: pa.Table) -> list[Observed]:
        """Return the sums of plans over the same columns, from the result of `sql.select_weighed`."""
        names = plans[0].columns
        shape = tuple(self.sizes[name] for name in names)
        codes = [codes_of(rows[name], self.columns[name]) for name in names]
        cells = np.ravel_multi_index(codes, shape) if names else np.zeros(len(rows), dtype=np.intp)

        def spread(key: str, plan: QueryPlan) -> Floats:
            table: NDArray[Any] = np.bincount(cells, weights=numbers(rows[key], key), minlength=prod(shape))
            return plan.lump(table.reshape(plan.observed_shape))

        found = []
        for i, plan in enumerate(plans):
            first, second = spread(f"{sql.FIRST}{i}", plan), spread(f"{sql.SECOND}{i}", plan)
            third = first if self.weights is None else spread(f"{sql.THIRD}{i}", plan)
            counted = None if plan.weighing else first
            squared = None if self.weights is None else third
            found.append(Observed(first, second, third, counted, mean_weight(first, third), squared))
        return found

    def _locate_value(self, error: UnknownValue) -> UnknownValue:
        """Return the error about a value, with its position if it can be found."""
        column = self.columns.get(error.column)
        return error if column is None else self.table.refuse(error, column)

    def _unread(self, names: Sequence[str]) -> UnknownValue:
        """Return the error about a value in one of these columns."""
        for name in names:
            try:
                self._scan([(name,)])
            except UnknownValue as error:
                return self._locate_value(error)
            except Overflow:
                break
        return UnknownValue(name, None)


def held_rows(store: Store) -> int:
    """Return the number of distinct rows of a cached table."""
    return 0 if store.multiplicity is None else len(store.multiplicity)


def held_bytes(store: Store) -> int:
    """Return the memory of a cached table."""
    extra = [array for array in (store.multiplicity, store.weights) if array is not None]
    return sum(int(array.nbytes) for array in [*store.columns.values(), *extra])
