"""Supports of many itemsets from records in memory: popcounts on packed bits, then the disguise undone.

A set of items weighs a record by one factor per group of variables that were disguised together. Most
factors have two values only (any binary item, symmetric channels of any size, alone or joint): one if the
record reports all items of the block, another if not. Their sums follow from observed supports of subsets,
which Apriori has asked for before. Sets with other factors, and survey weights, are summed record by record.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import QueryRefused, Refusal, SingularChannel
from masquerade.core.supports import Item, Parts, Sets, SupportAnswer, Supports
from masquerade.kernels.bits import Ints, Words, count_ones, count_sets, pack, weigh
from masquerade.kernels.itemtree import LONGEST_PART, ItemTree, Weighed
from masquerade.sources.itemset_weights import Blocks, Plan

if TYPE_CHECKING:
    from masquerade.sources.query_plan import Factor, Layout
    from masquerade.sources.record_store import Store

Codes = NDArray[np.unsignedinteger[Any]]
MOST_SUBSETS: Final = 1 << 22
_TILE: Final = 1 << 13
_COUNTERS: WeakKeyDictionary[Any, tuple[tuple[Item, ...], list[_Counter]]] = WeakKeyDictionary()


class _Columns(Protocol):
    """Report columns of records that share their channels, as codes and as packed bits."""

    layout: Layout
    rows: int
    weights: Floats | None
    multiplicity: NDArray[np.int64] | None

    def codes(self, name: str) -> Codes:
        """Return the report codes of a variable."""

    def packed(self, name: str, wanted: NDArray[np.bool_]) -> Words:
        """Return one bit per record: whether its report is a wanted one."""


class _CodedColumns:
    """The columns of a `Store`; rows that stand for several are spread out again before packing."""

    def __init__(self, store: Store) -> None:
        self._columns = store.columns
        self.layout, self.rows = store.layout, store.rows
        self.weights, self.multiplicity = store.weights, store.multiplicity

    def codes(self, name: str) -> Codes:
        return self._columns[name]

    def packed(self, name: str, wanted: NDArray[np.bool_]) -> Words:
        column = self._columns[name]
        return pack(column if self.multiplicity is None else np.repeat(column, self.multiplicity), wanted)


class _Counter:
    """Answers supports of one list of items from columns; remembers what later, larger sets need."""

    def __init__(self, columns: _Columns, items: tuple[Item, ...]) -> None:
        self.columns = columns
        self.blocks = Blocks(columns.layout, items)
        self._tree = ItemTree(len(items), columns.rows)
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
        plan = self.blocks.plan(sets)
        simple = plan.simple & (self.columns.weights is None)
        firsts, squares = np.zeros(len(sets)), np.zeros(len(sets))
        found = self._undone(sets[simple], _rows_of(plan, simple)) if simple.any() else None
        if found is None:
            simple = np.zeros(len(sets), dtype=bool)
        else:
            firsts[simple], squares[simple] = found
        if not simple.all():
            members = [[(block, block[:0]) for block in self.blocks.members(row)] for row in sets[~simple]]
            firsts[~simple], squares[~simple] = self._weighed(members, squared=False)
        return firsts, squares

    def products(self, sets: Sets, parts: Parts) -> Floats:
        """Return Σ (weight of the set)·(weight of its part) over records."""
        plan = self.blocks.plan(sets)
        base, step = self.blocks.plan_parts(sets, parts, plan.blocks)
        plain = self.columns.weights is None and sets.shape[1] <= LONGEST_PART
        if plain and plan.simple.all() and not np.isnan(base).any():
            if not (plan.base.any() or (base * step).any()):
                scale: Floats = plan.step.prod(axis=1) * (base + step).prod(axis=1)
                return self._counted(sets) * scale
            part = Weighed(plan.blocks, base, step)
            found = self._tree.products(sets, parts, weighed(plan), part)
            if found is not None:
                return found
        members = [
            [(block, tuple(p for p in block if p in given)) for block in self.blocks.members(row)]
            for row, given in zip(
                sets, [set(r[m].tolist()) for r, m in zip(sets, parts, strict=True)], strict=True
            )
        ]
        return self._weighed(members, squared=True)[0]

    def _undone(self, sets: Sets, plan: Plan) -> tuple[Floats, Floats] | None:
        """Return the sums of sets with two-valued blocks; None if too many subsets are yet to be counted."""
        if not plan.base.any():
            scale = plan.step.prod(axis=1)
            counts = self._counted(sets)
            return counts * scale, counts * scale**2
        size = sets.shape[1]
        known = self._tree.find(sets)
        if known is not None:
            return self._tree.sums(known, size)
        self._tree.cut(size)
        found = self._tree.add(sets, weighed(plan), self._counted(sets))
        if found is not None or len(sets) << size > MOST_SUBSETS:
            return found
        levels = [sets]
        while levels[-1].shape[1] > 1:
            levels.append(_facets(levels[-1]))
        self._tree.cut(1)
        for level in reversed(levels):
            found = self._tree.add(level, weighed(self.blocks.plan(level)), self._counted(level))
        return found

    def _counted(self, sets: Sets) -> Ints:
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
            self._packed[place] = self.columns.packed(self.blocks.items[place][0], single.wanted)
        return self._packed[place]

    def _weighed(
        self, members: Sequence[Sequence[tuple[tuple[int, ...], tuple[int, ...]]]], *, squared: bool
    ) -> tuple[Floats, Floats]:
        """Return Σ w and Σ w² record by record; a member is a block and the part of it that counts twice."""
        numbers: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        longest = max((len(row) for row in members), default=0)
        sets = np.full((len(members), longest), -1, dtype=np.int32)
        for row, listed in zip(sets, members, strict=True):
            row[: len(listed)] = [numbers.setdefault(member, len(numbers)) for member in listed]
        order = np.lexsort(sets.T[::-1])
        factors = [_product_of(self.blocks, block, part) for block, part in numbers]
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
    """Answer supports from coded records, disguised or clear, standard errors included.

    Formula: N̂ = Σ w, w = Π over groups of the inverse's entry for the items; Var N̂ = Σ w² − N̂²/n.
    Reference: Ma (2006) §7.1.2, Propositions 7.1–7.4, generalised to any channels.
    Cost: one AND and one popcount a word of 64 records for each set; inclusion and exclusion in as many
    steps as the set has disguised groups. One pass over the records for sets with other channels.
    """
    return counted(owner, [_CodedColumns(store) for store in stores], question, n, weights)


def counted(
    owner: object, parts: Sequence[_Columns], question: Supports, n: int, weights: Floats | None
) -> SupportAnswer:
    """Answer a question from the parts of a source; counters are kept for as long as their owner lives."""
    question.check(parts[0].layout.schema)
    try:
        items, counters = _COUNTERS.get(owner, ((), []))
        if items != question.items or not counters:
            counters = [_Counter(part, question.items) for part in parts]
            _COUNTERS[owner] = (question.items, counters)
        sets, order, back = _distinct_sets(question.itemsets)
        sums = [counter.sums(sets) for counter in counters]
        products = None
        if question.parts is not None:
            rows, given = question.itemsets[order].astype(np.int32), question.parts[order]
            ordered = sum((counter.products(rows, given) for counter in counters), start=np.zeros(len(rows)))
            products = np.empty_like(ordered)
            products[order] = ordered
    except SingularChannel as error:
        raise QueryRefused([Refusal("singular", str(error))]) from None
    values = np.sum([first for first, _ in sums], axis=0)[back]
    squares = np.sum([second for _, second in sums], axis=0)[back]
    stderr = np.sqrt(np.maximum(squares - values**2 / max(n, 1), 0.0))
    total = float(n) if weights is None else float(weights.sum())
    ratio = 1.0 if weights is None or total == 0 else float((weights**2).sum()) / total
    if products is not None:
        products -= values * _parts_of(counters, question) / max(n, 1)
    return SupportAnswer(values, stderr, n, total, ratio, products)


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
    """Return the different rows in lexicographic order, the order of all rows, and each row's place."""
    order = np.lexsort(sets.T[::-1]) if sets.shape[1] else np.arange(len(sets))
    ordered = np.ascontiguousarray(sets[order], dtype=np.int32)
    new = np.ones(len(sets), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    back = np.empty(len(sets), dtype=np.intp)
    back[order] = np.cumsum(new) - 1
    return ordered[new], order, back


def _facets(sets: Sets) -> Sets:
    size = sets.shape[1]
    smaller = [np.delete(sets, place, axis=1) for place in range(size)]
    return _distinct_sets(np.concatenate(smaller))[0]


def weighed(plan: Plan) -> Weighed:
    """Return what the blocks weigh, for compiled loops."""
    return Weighed(plan.blocks, plan.base, plan.step)


def _rows_of(plan: Plan, rows: NDArray[np.bool_]) -> Plan:
    return Plan(plan.blocks[rows], plan.base[rows], plan.step[rows], plan.simple[rows])


def _product_of(blocks: Blocks, block: tuple[int, ...], part: tuple[int, ...]) -> list[Factor]:
    """Return the factors whose product a block weighs: its own, and that of its part if it has one."""
    return [blocks.factor(block), *([blocks.factor(part)] if part else [])]
