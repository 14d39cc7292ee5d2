"""Reports that lie in an engine: few scans fetch compressed tables, and those answer what is asked.

Distinct rows with their multiplicities say everything that counts can say. One scan tabulates all columns
that a batch of questions touches, as few, large tables; they are kept, coded, in memory, and later questions
about the same columns need no scan. Only a conditioned question whose columns have too many combinations
is summed up, weights and all, by the engine itself.
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
from masquerade.core.util.processes import Turns
from masquerade.kernels.cover import cover_within
from masquerade.sources.engines import sql
from masquerade.sources.engines.coded_rows import Gathering, Overflow, added, codes_of, numbers, split
from masquerade.sources.engines.engine_tables import Table
from masquerade.sources.engines.sql import Column
from masquerade.sources.query_plan import Layout, QueryPlan
from masquerade.sources.record_store import Observed, Store, mean_weight

LOG = logging.getLogger("masquerade.sources")
MOST_GROUPED = 62  # columns in one scan: grouping sets are numbered by bits


@dataclass(frozen=True, slots=True)
class Limits:
    """What is fetched and held: a table with at most `cells` combinations without a second thought.

    All held tables take at most `bytes`, each has at most `rows`. All columns are fetched if a sample of
    `sample` rows promises at least `saving` rows for each distinct one. `weights` are summed in one scan.
    """

    cells: int = 1 << 20
    bytes: int = 1 << 30
    rows: int = 1 << 24
    sample: int = 1 << 17
    saving: float = 8
    weights: int = 64


@dataclass(eq=False)
class Scanned:
    """Reports of one stratum in an engine's table, as the sums that plans want."""

    table: Table
    layout: Layout
    columns: Mapping[str, Column]
    sizes: Mapping[str, int]
    limits: Limits = field(default_factory=Limits)
    only: str = ""
    only_by: str | None = None
    weights: str | None = None
    known_rows: int | None = None
    turns: Turns = field(default_factory=Turns)  # of threads, in the engine's table

    def __post_init__(self) -> None:
        self._held: list[Store] = []
        self._scans = 0
        self._whole_pays: bool | None = None

    @property
    def rows(self) -> int:
        """Return the number of records, which every held table tells."""
        with self.turns:
            if self.known_rows is None:
                if self._held:
                    self.known_rows = self._held[0].rows
                else:
                    row = self._fetched_row(
                        [], lambda t: sql.grouped(self.table.dialect, t, [()], only=self.only)
                    )
                    self.known_rows = int(row[sql.COUNT])
            return self.known_rows

    def observe(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        """Return the sums that plans want, from what is held or from as few scans as pay."""
        with self.turns:
            return self._observed(plans)

    def _observed(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        wants = [plan.joint_columns for plan in plans]
        if any(self._holder(want) is None for want in wants) and self._worth_whole():
            self._hold_whole()
        found: dict[int, Observed] = {}
        left = [i for i, want in enumerate(wants) if not self._summed_by_engine(plans[i], want)]
        while left:  # more than once only if the tables cannot be held together
            self._scan_for([wants[i] for i in left])
            holders = {i: store for i in left if (store := self._holder(wants[i])) is not None}
            for store in {id(store): store for store in holders.values()}.values():
                mine = [i for i, holder in holders.items() if holder is store]
                found |= zip(mine, store.observe([plans[i] for i in mine]), strict=True)
            left = [i for i in left if i not in holders]
        rest = [i for i in range(len(plans)) if i not in found]
        found |= zip(rest, self._pushed([plans[i] for i in rest]), strict=True)
        return [found[i] for i in range(len(plans))]

    def distinct_rows(self, names: Sequence[str]) -> Store | None:
        """Return the distinct rows of some columns; None if there are too many to be worth holding."""
        with self.turns:
            if self._holder(names) is None:
                if prod(self.sizes[name] for name in names) > self.limits.cells:
                    self._scans += 1  # such a question is the first of thousands
                    if self._worth_whole():
                        self._hold_whole()
                else:
                    self._scan_for([names])
            return self._holder(names)

    def take_over(self, old: Scanned, more: Scanned) -> None:
        """Hold what `old` holds with the records of `more` added: only these are scanned."""
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
                continue  # asked about again, they are scanned again
            except UnknownValue as error:
                raise more._refused(error) from None
            for store, new in zip(some, found, strict=True):
                more._check_rows(new.rows)
                held = added(store, new)
                if held_rows(held) <= self._most_rows(list(held.columns)):
                    self._held.append(held)

    def _scan_for(self, wants: Sequence[Sequence[str]]) -> None:
        """Scan once for the columns that no held table covers, or for as many as may be held together."""
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
                "have too many different rows to be counted together; ask about fewer at a time."
            ) from None

    def _holder(self, want: Sequence[str]) -> Store | None:
        covering = [store for store in self._held if store.covers(want)]
        return min(covering, key=held_rows, default=None)

    def _summed_by_engine(self, plan: QueryPlan, want: Sequence[str]) -> bool:
        """Tell whether a plan is better left to the engine: conditioned, over very many combinations."""
        if not plan.factors or self._holder(want) is not None:
            return False
        conditions = [self.columns[name] for factor in plan.factors for name in factor.columns]
        cut_here = any(column.field.edges is not None and not column.cut_by_engine for column in conditions)
        return prod(self.sizes[name] for name in want) > self.limits.cells and not cut_here

    def _worth_whole(self) -> bool:
        """Tell whether to fetch the distinct rows of all columns: when scans repeat, and rows do too."""
        if self._scans == 0 or self._whole_pays is False:
            return False
        if prod(self.sizes.values()) <= self.limits.cells:
            return True
        if self._whole_pays is None:
            self._whole_pays = self._looks_compressible()
        return self._whole_pays

    def _looks_compressible(self) -> bool:
        """Judge by the first rows: after m of them the next is new with probability (those seen once)/m.

        Reference: Good (1953), the frequencies of unseen species.
        """
        names, most = list(self.columns), self.limits.sample
        row = self._fetched_row(
            names, lambda t: sql.sampled(self.table.dialect, t, names, most, only=self.only)
        )
        kinds, once, seen = (int(row[key] or 0) for key in (sql.FIRST, sql.SECOND, sql.COUNT))
        expected = kinds + max(self.rows - seen, 0) * once / max(seen, 1)
        pays: bool = expected * self.limits.saving <= self.rows and expected <= self._most_rows(names)
        LOG.info(
            "%s: about %s of %s rows differ; %s",
            self.table.title,
            f"{int(expected):,}",
            f"{self.rows:,}",
            "they are fetched once" if pays else "every batch of questions is a scan",
        )
        return pays

    def _row_bytes(self, names: Sequence[str]) -> int:
        return sum(np.min_scalar_type(self.sizes[name] - 1).itemsize for name in names) + 16

    def _most_rows(self, names: Sequence[str]) -> int:
        return min(self.limits.bytes // self._row_bytes(names), self.limits.rows)

    def _hold_whole(self) -> None:
        """Try to keep the distinct rows of all columns; the first ones may not have been like the others."""
        try:
            self._hold([tuple(self.columns)])
        except Overflow:
            self._whole_pays = False

    def _hold(self, sets: Sequence[tuple[str, ...]]) -> None:
        """Scan once for the distinct rows of each set of columns, and keep them."""
        self._scans += 1
        try:
            new = self._scan(sets)
        except UnknownValue as error:
            raise self._refused(error) from None
        for store in new:
            self._check_rows(store.rows)
        self._held = [s for s in self._held if not any(n.covers(s.columns) for n in new)] + new
        while len(self._held) > len(new) and sum(map(held_bytes, self._held)) > self.limits.bytes:
            del self._held[0]

    def _check_rows(self, rows: int) -> None:
        """Refuse a scan that met more or fewer records than the first one."""
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
        spelled = any(self.columns[name].text for name in names)  # then there may be more rows to merge
        most = None if spelled else sum(self._most_rows(columns) for columns in sets) + 1
        batches = self._batches(
            names,
            lambda t: sql.grouped(
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
        """Run SQL that reads these columns; numbers that have bins are put into them first."""
        more = [name for name in (self.only_by, self.weights) if name is not None]
        used = list(dict.fromkeys([*names, *more]))
        return self.table.fetch(
            lambda t: write(sql.with_bins(self.table.dialect, t, used, self.columns)), used
        )

    def _fetched_row(self, names: Sequence[str], write: Callable[[str], str]) -> dict[str, Any]:
        return dict(pa.Table.from_batches(list(self._batches(names, write))).to_pylist()[0])

    def _pushed(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        """Let the engine sum up weights; plans that tabulate the same columns share scans."""
        dialect, most, found = self.table.dialect, self.limits.weights, dict[int, Observed]()
        shared: dict[tuple[str, ...], list[int]] = {}
        for i, plan in enumerate(plans):
            shared.setdefault(plan.columns, []).append(i)
        for places in (alike[i : i + most] for alike in shared.values() for i in range(0, len(alike), most)):
            some = [plans[i] for i in places]
            write = partial(
                sql.weighed,
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
                raise self._refused(error) from None
        return [found[i] for i in range(len(plans))]

    def _sums(self, plans: Sequence[QueryPlan], rows: pa.Table) -> list[Observed]:
        """Return the sums of plans over the same columns, as `sql.weighed` asked for them."""
        names = plans[0].columns
        shape = tuple(self.sizes[name] for name in names)
        codes = [codes_of(rows[name], self.columns[name]) for name in names]
        cells = np.ravel_multi_index(codes, shape) if names else np.zeros(len(rows), dtype=np.intp)

        def spread(key: str, plan: QueryPlan) -> Floats:
            table: NDArray[Any] = np.bincount(cells, weights=numbers(rows[key], key), minlength=prod(shape))
            return plan.lumped(table.reshape(plan.observed_shape))

        found = []
        for i, plan in enumerate(plans):
            first, second = spread(f"{sql.FIRST}{i}", plan), spread(f"{sql.SECOND}{i}", plan)
            third = first if self.weights is None else spread(f"{sql.THIRD}{i}", plan)
            counted = None if plan.weighing else first
            squared = None if self.weights is None else third
            found.append(Observed(first, second, third, counted, mean_weight(first, third), squared))
        return found

    def _refused(self, error: UnknownValue) -> UnknownValue:
        """Return the error about a value, with its place if that can be found out."""
        column = self.columns.get(error.column)
        return error if column is None else self.table.refuse(error, column)

    def _unread(self, names: Sequence[str]) -> UnknownValue:
        """Return the error about a value of one of these columns, whichever it stands in."""
        for name in names:
            try:
                self._scan([(name,)])
            except UnknownValue as error:
                return self._refused(error)
            except Overflow:
                break
        return UnknownValue(name, None)


def held_rows(store: Store) -> int:
    """Return how many distinct rows a held table has."""
    return 0 if store.multiplicity is None else len(store.multiplicity)


def held_bytes(store: Store) -> int:
    """Return the memory that a held table takes."""
    extra = [array for array in (store.multiplicity, store.weights) if array is not None]
    return sum(int(array.nbytes) for array in [*store.columns.values(), *extra])
