"""Supports of many itemsets from records in memory: popcounts on packed bits, then inversion of the channels.

A set of items weighs a record by one factor per group of variables that were disguised together. Most factors
have only two values (any binary item, symmetric channels of any size, alone or joint): one value if the
record reports all items of the block, another if not. Their sums follow from observed supports of subsets,
which Apriori has queried before. Sets with other factors, and survey weights, are summed record by record.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group
from masquerade.core.axes import Floats, times_ends
from masquerade.core.errors import QueryRefused, SingularChannel
from masquerade.core.query import Query
from masquerade.core.supports import Item, Parts, Sets, SupportAnswer, Supports
from masquerade.kernels.bits import Ints, Words, count_ones, count_sets, pack, weigh
from masquerade.kernels.itemtree import LONGEST_PART, BlockWeights, ItemTree
from masquerade.sources.query_plan import Factor, QueryLayout, refusal_of

if TYPE_CHECKING:
    from masquerade.sources.record_store import Store

Codes = NDArray[np.unsignedinteger[Any]]
ROUNDING: Final = 1e-12
MOST_SUBSETS: Final = 1 << 22
_TILE: Final = 1 << 13
_COUNTERS: WeakKeyDictionary[Any, tuple[tuple[Item, ...], list[_Counter]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class _TwoValued:
    """A factor base + step·[reports of all items]. `wanted` are the reports of a single item."""

    base: float
    step: float
    wanted: NDArray[np.bool_]


def weighs_items(layout: QueryLayout, names: Collection[str]) -> bool:
    """Return True if sets of items of these variables can be weights of records, group by group.

    If a group has report columns of its own, or a channel without inverse, tables are queried instead.
    """
    groups = [group for group in layout.groups if any(name in names for name in group.names)]
    return not any(
        group.own_report or (len(group.names) > 1 and group.matrix_channel.is_singular) for group in groups
    )


class _Blocks:
    """The items of a query by the groups of one layout."""

    def __init__(self, layout: QueryLayout, items: tuple[Item, ...]) -> None:
        self.layout, self.items = layout, items
        owners = {name: (place, group) for place, group in enumerate(layout.groups) for name in group.names}
        self._groups = [owners[name][1] for name, _ in items]
        self._group = np.array([owners[name][0] for name, _ in items], dtype=np.int64)
        self._codes = np.array(
            [self._code_of(item, group) for item, group in zip(items, self._groups, strict=True)],
            dtype=np.int64,
        )
        self.singles = [self._single(place) for place in range(len(items))]
        self._base = np.array([s.base if s else np.nan for s in self.singles])
        self._step = np.array([s.step if s else np.nan for s in self.singles])
        self._joint: dict[tuple[int, int], _TwoValued | None] = {}

    def weigh_blocks(self, sets: Sets) -> BlockWeights:
        """Return the weights of the blocks of sets of one size, by group. NaN for more than two values."""
        group = self._group[sets]
        blocks, lone = _ranks(group)
        base, step = np.zeros(sets.shape), np.ones(sets.shape)
        rows = np.arange(len(sets))[:, None]
        base[rows, blocks], step[rows, blocks] = self._base[sets], self._step[sets]
        if not lone:
            self._fill_joint(sets, group, blocks, base, step)
        return BlockWeights(blocks, base, step)

    def weighed_parts(self, sets: Sets, parts: Parts, blocks: NDArray[np.int8]) -> tuple[Floats, Floats]:
        """Return base and step of the part of every block. 1 and 0 if the part has none of its items."""
        base, step = np.ones(sets.shape), np.zeros(sets.shape)
        row, place = np.nonzero(parts)
        at = (row, blocks[row, place])
        base[at], step[at] = self._base[sets[row, place]], self._step[sets[row, place]]
        group = self._group[sets]
        if any(len(group.names) > 1 for group in self.layout.groups):
            self._fill_joint(np.where(parts, sets, -1), np.where(parts, group, -1), blocks, base, step)
        return base, step

    def factor(self, places: tuple[int, ...]) -> Factor:
        """Return the factor of items of one group."""
        plan = self.layout.plan(Query(where=[self.items[place] for place in places]))
        return plan.factors[0]

    def members(self, row: NDArray[np.int32]) -> list[tuple[int, ...]]:
        """Return the items of a set, block by block."""
        by_group: dict[int, list[int]] = {}
        for place in row.tolist():
            by_group.setdefault(int(self._group[place]), []).append(place)
        return [tuple(by_group[group]) for group in sorted(by_group)]

    def _fill_joint(
        self,
        sets: Sets,
        group: NDArray[np.int64],
        blocks: NDArray[np.int8],
        base: Floats,
        step: Floats,
    ) -> None:
        for number in np.unique(group[group >= 0]).tolist():
            if len(self.layout.groups[number].names) == 1:
                continue
            inside = group == number
            several = np.flatnonzero(inside.sum(axis=1) > 1)
            codes = np.where(inside[several], self._codes[sets[several]], 0).sum(axis=1)
            distinct, example, kind = np.unique(codes, return_index=True, return_inverse=True)
            found = []
            for code, first in zip(distinct.tolist(), several[example].tolist(), strict=True):
                if (number, code) not in self._joint:
                    self._joint[number, code] = self._several(tuple(sets[first][inside[first]].tolist()))
                found.append(self._joint[number, code])
            at = (several, blocks[several, inside[several].argmax(axis=1)])
            base[at] = np.array([f.base if f else np.nan for f in found])[kind]
            step[at] = np.array([f.step if f else np.nan for f in found])[kind]

    def _code_of(self, item: Item, group: Group) -> int:
        """Return a number whose sum over items of one group identifies the set."""
        name, label = item
        stride = 1
        for other, size in zip(group.names, group.sizes, strict=True):
            if other == name:
                break
            stride *= size + 1
        return (self.layout.schema[name].code(label) + 1) * stride

    def _single(self, place: int) -> _TwoValued | None:
        name, label = self.items[place]
        group = self._groups[place]
        if len(group.names) == 1:
            return _of_channel(group.matrix_channel, self.layout.schema[name].code(label))
        factor = self.factor((place,))
        return _two_valued(factor.vector) if factor.columns == (name,) else None

    def _several(self, places: tuple[int, ...]) -> _TwoValued | None:
        singles = [self.singles[place] for place in places]
        factor = self.factor(places)
        if len(factor.columns) != len(places) or any(single is None for single in singles):
            return None
        by_name = {self.items[place][0]: single for place, single in zip(places, singles, strict=True)}
        reported = np.ones((), dtype=bool)
        for name in factor.columns:
            single: Any = by_name[name]
            reported = np.logical_and.outer(reported, single.wanted)
        inside, outside = factor.vector[reported.ravel()], factor.vector[~reported.ravel()]
        slack = ROUNDING * max(float(np.abs(factor.vector).max()), 1.0)
        if np.ptp(inside) > slack or (outside.size and np.ptp(outside) > slack):
            return None
        base = float(outside.mean()) if outside.size else 0.0
        return _TwoValued(base, float(inside.mean()) - base, reported)


@lru_cache(maxsize=4096)
def _of_channel(channel: Channel, code: int) -> _TwoValued | None:
    """Return the weights of one category of a variable disguised alone, if they have two values."""
    return _two_valued(np.ascontiguousarray(channel.inverse[:, code]))


def _two_valued(vector: Floats) -> _TwoValued | None:
    """Return a factor as base and step, or None if it has more than two values."""
    high, low = float(vector.max()), float(vector.min())
    slack = ROUNDING * max(abs(high), abs(low), 1.0)
    wanted = vector >= high - slack
    if np.any(~wanted & (vector > low + slack)):
        return None
    if high - low <= slack:
        return _TwoValued(0.0, high, wanted)
    return _TwoValued(low, high - low, wanted)


def _ranks(group: NDArray[np.int64]) -> tuple[NDArray[np.int8], bool]:
    """Return the rank of each entry among the distinct ones of its row, and whether all are distinct."""
    size = group.shape[1]
    if size == 0 or np.all(group[:, 1:] > group[:, :-1]):
        return np.broadcast_to(np.arange(size, dtype=np.int8), group.shape).copy(), True
    order = np.argsort(group, axis=1, kind="stable")
    ordered = np.take_along_axis(group, order, axis=1)
    new = np.ones(group.shape, dtype=bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    result = np.empty(group.shape, dtype=np.int8)
    np.put_along_axis(result, order, (np.cumsum(new, axis=1) - 1).astype(np.int8), axis=1)
    return result, bool(new.all())


class CodedColumns:
    """The report columns of a `Store`. Merged rows are repeated before packing."""

    def __init__(self, store: Store) -> None:
        self._columns = store.columns
        self.layout, self.rows = store.layout, store.rows
        self.weights, self.multiplicity = store.weights, store.multiplicity

    def codes(self, name: str) -> Codes:
        """Return the report codes of a variable."""
        return self._columns[name]

    def pack(self, name: str, wanted: NDArray[np.bool_]) -> Words:
        """Return one bit per record: True if its report is wanted."""
        column = self._columns[name]
        return pack(column if self.multiplicity is None else np.repeat(column, self.multiplicity), wanted)


class _Counter:
    """Answers supports of one list of items from columns, and caches results for larger sets."""

    def __init__(self, columns: CodedColumns, items: tuple[Item, ...]) -> None:
        self.columns = columns
        self.blocks = _Blocks(columns.layout, items)
        self._tree = ItemTree(len(items), columns.rows)
        self._last: tuple[Sets, BlockWeights] | None = None
        self._packed: dict[int, Words] = {}
        self._matrix: tuple[NDArray[np.int64], Words] = (
            np.zeros(0, dtype=np.int64),
            np.zeros((0, 0), np.uint64),
        )

    def sums(self, sets: Sets) -> tuple[Floats, Floats]:
        """Return Σ weight and Σ weight² over records, for sets in lexicographic order without repeats."""
        if sets.shape[1] == 0:
            weights = self.columns.weights
            each = [self.columns.rows] * 2 if weights is None else [weights.sum(), (weights**2).sum()]
            return np.full(len(sets), each[0], dtype=float), np.full(len(sets), each[1], dtype=float)
        whole = self._weigh_blocks(sets)
        simple = ~np.isnan(whole.base).any(axis=1) & (self.columns.weights is None)
        firsts, squares = np.zeros(len(sets)), np.zeros(len(sets))
        some = BlockWeights(whole.blocks[simple], whole.base[simple], whole.step[simple])
        found = self._invert(sets[simple], some) if simple.any() else None
        if found is None:
            simple = np.zeros(len(sets), dtype=bool)
        else:
            firsts[simple], squares[simple] = found
        if not simple.all():
            members = [[(block, block[:0]) for block in self.blocks.members(row)] for row in sets[~simple]]
            firsts[~simple], squares[~simple] = self._weigh(members, squared=False)
        return firsts, squares

    def ends(self, sets: Sets) -> tuple[Floats, Floats]:
        """Return the smallest and the largest possible weight of a record for each set."""
        whole = self._weigh_blocks(sets)
        corners = np.stack([whole.base, whole.base + whole.step])
        low, high = np.ones(len(sets)), np.ones(len(sets))
        for block in range(sets.shape[1]):
            found = [one * end for one in (low, high) for end in corners[:, :, block]]
            low, high = np.minimum.reduce(found), np.maximum.reduce(found)
        for row in np.flatnonzero(np.isnan(whole.base).any(axis=1)).tolist():
            pair = np.ones(()), np.ones(())
            for members in self.blocks.members(sets[row]):
                vector = self.blocks.factor(members).vector
                pair = times_ends(pair, (np.asarray(vector.min()), np.asarray(vector.max())))
            low[row], high[row] = float(pair[0]), float(pair[1])
        return low, high

    def products(self, sets: Sets, parts: Parts) -> Floats:
        """Return Σ (weight of the set)·(weight of its part) over records."""
        whole = self.blocks.weigh_blocks(sets)
        base, step = self.blocks.weighed_parts(sets, parts, whole.blocks)
        plain = self.columns.weights is None and sets.shape[1] <= LONGEST_PART
        if plain and not (np.isnan(whole.base).any() or np.isnan(base).any()):
            if not (whole.base.any() or (base * step).any()):
                scale: Floats = whole.step.prod(axis=1) * (base + step).prod(axis=1)
                return self._count_sets(sets) * scale
            part = BlockWeights(whole.blocks, base, step)
            found = self._tree.products(sets, parts, whole, part)
            if found is not None:
                return found
        members = [
            [(block, tuple(p for p in block if p in given)) for block in self.blocks.members(row)]
            for row, given in zip(
                sets, [set(r[m].tolist()) for r, m in zip(sets, parts, strict=True)], strict=True
            )
        ]
        return self._weigh(members, squared=True)[0]

    def _weigh_blocks(self, sets: Sets) -> BlockWeights:
        """Return the weights of the blocks of sets. The latest result is stored, because it is used twice."""
        if self._last is None or self._last[0] is not sets:
            self._last = (sets, self.blocks.weigh_blocks(sets))
        return self._last[1]

    def _invert(self, sets: Sets, whole: BlockWeights) -> tuple[Floats, Floats] | None:
        """Return the sums of sets with two-valued blocks. None if too many subsets are not counted yet."""
        if not whole.base.any():
            scale = whole.step.prod(axis=1)
            counts = self._count_sets(sets)
            return counts * scale, counts * scale**2
        size = sets.shape[1]
        known = self._tree.find(sets)
        if known is not None:
            return self._tree.sums(known, size)
        self._tree.cut(size)
        found = self._tree.add(sets, whole, self._count_sets(sets))
        if found is not None or _subsets(sets) > MOST_SUBSETS:
            return found
        levels = [sets]
        while levels[-1].shape[1] > 1:
            levels.append(_facets(levels[-1]))
        self._tree.cut(1)
        for level in reversed(levels):
            found = self._tree.add(level, self.blocks.weigh_blocks(level), self._count_sets(level))
        return found

    def _count_sets(self, sets: Sets) -> Ints:
        if sets.shape[1] == 1:
            return np.array([count_ones(self._bits(place)) for place in sets[:, 0].tolist()], dtype=np.int64)
        used = np.unique(sets).astype(np.int64)
        if not np.isin(used, self._matrix[0]).all():
            self._matrix = (used, np.stack([self._bits(place) for place in used.tolist()]))
        places = np.searchsorted(self._matrix[0], sets).astype(np.int32)
        return count_sets(self._matrix[1], places, os.cpu_count() or 1)

    def _bits(self, place: int) -> Words:
        if place not in self._packed:
            single: Any = self.blocks.singles[place]
            self._packed[place] = self.columns.pack(self.blocks.items[place][0], single.wanted)
        return self._packed[place]

    def _weigh(
        self, members: Sequence[Sequence[tuple[tuple[int, ...], tuple[int, ...]]]], *, squared: bool
    ) -> tuple[Floats, Floats]:
        """Return Σ w and Σ w², record by record. A member is a block and the part of it that counts twice."""
        numbers: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        longest = max((len(row) for row in members), default=0)
        sets = np.full((len(members), longest), -1, dtype=np.int32)
        for row, listed in zip(sets, members, strict=True):
            row[: len(listed)] = [numbers.setdefault(member, len(numbers)) for member in listed]
        order = np.lexsort(sets.T[::-1])
        factors = [[self.blocks.factor(each) for each in (block, part) if each] for block, part in numbers]
        codes = {factor.columns: self._joint(factor) for pair in factors for factor in pair}
        stored = self.columns.rows if self.columns.multiplicity is None else len(self.columns.multiplicity)
        total = np.zeros((len(members), 2))
        for begin in range(0, stored, _TILE):
            tile = slice(begin, min(begin + _TILE, stored))
            weights = np.ones((len(factors), tile.stop - tile.start))
            for place, pair in enumerate(factors):
                for factor in pair:
                    weights[place] *= factor.vector[codes[factor.columns][tile]]
            root = np.ones(weights.shape[1]) if self.columns.weights is None else self.columns.weights[tile]
            times = self.columns.multiplicity
            repeated = np.ones(weights.shape[1]) if times is None else times[tile].astype(np.float64)
            weigh(weights, sets[order], root**2 if squared else root, repeated, total)
        result = np.empty_like(total)
        result[order] = total
        return result[:, 0], result[:, 1]

    def _joint(self, factor: Factor) -> Codes:
        joint = self.columns.codes(factor.columns[0])
        for name, size in zip(factor.columns[1:], factor.sizes[1:], strict=True):
            joint = joint.astype(np.uint32) * np.uint32(size) + self.columns.codes(name)
        return joint


def supports_of(
    owner: object, stores: Sequence[Store], question: Supports, n: int, weights: Floats | None
) -> SupportAnswer:
    """Answer supports from coded records, disguised or clear, with standard errors.

    Formula: N̂ = Σ w, w = Π over groups of the inverse's entry for the items; Var N̂ = Σ w² − N̂²/n.
    Reference: Ma (2006) §7.1.2, Propositions 7.1–7.4, generalised to any channels.
    Cost: one AND and one popcount per word of 64 records and set; inclusion–exclusion with as many steps as
    the set has disguised groups. One pass over the records for sets with other channels.
    """
    return answer_supports(owner, [CodedColumns(store) for store in stores], question, n, weights)


def answer_supports(
    owner: object, parts: Sequence[CodedColumns], question: Supports, n: int, weights: Floats | None
) -> SupportAnswer:
    """Answer a query from the parts of a source. Counters live as long as their owner."""
    question.check(parts[0].layout.schema)
    try:
        items, counters = _COUNTERS.get(owner, ((), []))
        if items != question.items or not counters:
            counters = [_Counter(part, question.items) for part in parts]
            _COUNTERS[owner] = (question.items, counters)
        sets, order, back = _distinct_sets(question.itemsets)
        sums = [counter.sums(sets) for counter in counters]
        ends = [counter.ends(sets) for counter in counters]
        products = None
        if question.parts is not None:
            rows, given = question.itemsets[order].astype(np.int32), question.parts[order]
            ordered = sum((counter.products(rows, given) for counter in counters), start=np.zeros(len(rows)))
            products = np.empty_like(ordered)
            products[order] = ordered
    except SingularChannel as error:
        raise QueryRefused([refusal_of(error)]) from None
    values = np.sum([first for first, _ in sums], axis=0)[back]
    squares = np.sum([second for _, second in sums], axis=0)[back]
    stderr = np.sqrt(np.maximum(squares - values**2 / max(n, 1), 0.0))
    total = float(n) if weights is None else float(weights.sum())
    ratio = 1.0 if weights is None or total == 0 else float((weights**2).sum()) / total
    if products is not None:
        products -= values * _parts_of(counters, question) / max(n, 1)
    low = ratio * np.minimum.reduce([pair[0] for pair in ends])[back]
    high = ratio * np.maximum.reduce([pair[1] for pair in ends])[back]
    return SupportAnswer(values, stderr, n, total, ratio, products, (low, high))


def _parts_of(counters: Sequence[_Counter], question: Supports) -> Floats:
    inside: Any = question.parts
    result = np.zeros(len(inside))
    sizes = inside.sum(axis=1)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        held = question.itemsets[rows][inside[rows]].reshape(len(rows), size)
        sets, _, back = _distinct_sets(held)
        result[rows] = np.sum([counter.sums(sets)[0] for counter in counters], axis=0)[back]
    return result


def _distinct_sets(sets: NDArray[Any]) -> tuple[Sets, NDArray[np.intp], NDArray[np.intp]]:
    """Return the distinct rows in lexicographic order, the order of all rows, and each row's index."""
    order = np.lexsort(sets.T[::-1]) if sets.shape[1] else np.arange(len(sets))
    ordered = np.ascontiguousarray(sets[order], dtype=np.int32)
    new = np.ones(len(sets), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    back = np.empty(len(sets), dtype=np.intp)
    back[order] = np.cumsum(new) - 1
    return ordered[new], order, back


def _subsets(sets: Sets) -> int:
    """Return the largest number of subsets that sets of one size have."""
    size, items = sets.shape[1], len(np.unique(sets))
    return int(min(len(sets) << size, sum(comb(items, some) for some in range(size + 1))))


def _facets(sets: Sets) -> Sets:
    size = sets.shape[1]
    smaller = [np.delete(sets, place, axis=1) for place in range(size)]
    return _distinct_sets(np.concatenate(smaller))[0]
