"""What sets of items weigh a record with: one factor for each group of variables disguised together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group
from masquerade.core.axes import Floats
from masquerade.core.query import Query
from masquerade.core.supports import Item, Parts, Sets
from masquerade.sources.query_plan import Factor, Layout

ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class _TwoValued:
    """A factor that is base + step·[reports of all items]; `wanted` are the reports of the only item."""

    base: float
    step: float
    wanted: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Blocks of some sets: the number of each item's block in its row, and what each block weighs.

    `base` and `step` are by row and block; `simple` tells which rows have two-valued blocks only.
    """

    blocks: NDArray[np.int8]
    base: Floats
    step: Floats
    simple: NDArray[np.bool_]


class Blocks:
    """The items of a question as parts of the groups of one layout."""

    def __init__(self, layout: Layout, items: tuple[Item, ...]) -> None:
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

    def plan(self, sets: Sets) -> Plan:
        """Return the blocks of sets of one size, in the order of the groups."""
        group = self._group[sets]
        blocks, lone = _ranks(group)
        base, step = np.zeros(sets.shape), np.ones(sets.shape)
        rows = np.arange(len(sets))[:, None]
        base[rows, blocks], step[rows, blocks] = self._base[sets], self._step[sets]
        if not lone:
            self._fill_joint(sets, group, blocks, base, step)
        return Plan(blocks, base, step, np.asarray(~np.isnan(base).any(axis=1)))

    def plan_parts(self, sets: Sets, parts: Parts, blocks: NDArray[np.int8]) -> tuple[Floats, Floats]:
        """Return base and step of the part of every block; 1 and 0 where the part has none of its items."""
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
        """Return a number whose sum over items of one group tells the sets of them apart."""
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
            return _of_channel(group.channel, self.layout.schema[name].code(label))
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
    """Return what one category of a variable disguised alone weighs, if that has two values."""
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
    """Return the rank of each entry among the different ones of its row, and whether all differ."""
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
