"""ID3 on shares: only splitting features and the classes of leaves are opened, no count and no gain.

Quinlan's (1986) tree over columns of several owners. N times the gain of a feature is a sum of x·ln x over
cells of secret counts, which is looked up in a table; the feature with the largest gain is found on shares,
and "no split" is one of the candidates. The reason why a node is a leaf (one class, too few records, no gain)
does not open. All nodes of a level take a step together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from math import ceil, log, log2, prod
from typing import Any

import numpy as np

from masquerade.core.errors import InputError
from masquerade.protocols.mpc.engine import Integers, SecretEngine, Steps, agree_to_open
from masquerade.protocols.mpc.family_counts import Family, FamilyCounts, HiddenColumns
from masquerade.protocols.mpc.structure import SCORE_BITS, SENTINEL, padded_rows

COUNT_BITS = 40
VALUE_BITS, MOST_DIGITS = 53, 30  # bits of a sum of x·ln x in fixed point; at most 30 are fractional
MOST_CELLS = 1 << 14  # cells of a table of the features on a path and the target
MOST_TOLD = 10**6  # bits: a larger number is not a useful bound


@dataclass(frozen=True)
class Growth:
    """Public parameters of a tree: its target, its features, and when it stops growing.

    The order of `features` settles ties. A node is split only if two branches have at least `min_records`
    records; a branch with fewer records has its parent's class.
    """

    target: str
    features: tuple[str, ...]
    max_depth: int
    min_records: int = 1

    def __post_init__(self) -> None:
        if self.max_depth < 0 or self.min_records < 0:
            raise InputError("The depth and the number of records must not be negative.")

    @classmethod
    def of(
        cls, target: str, features: Sequence[str], max_depth: int | None = None, min_records: float = 1.0
    ) -> Growth:
        """Return the parameters of a tree that uses every feature at most once on a path."""
        depth = len(features) if max_depth is None else min(max_depth, len(features))
        return cls(target, tuple(features), depth, max(ceil(min_records), 1))

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raise an error if a table of the features on a path and the target would be too large."""
        largest = sorted((sizes[name] for name in self.features), reverse=True)[: self.max_depth]
        cells = prod(largest) * sizes[self.target]
        if cells > MOST_CELLS:
            raise InputError(
                f"Counts of {self.max_depth} features on a path and the target have up to {cells:,} "
                f"cells (at most {MOST_CELLS:,} on shares): give a smaller max_depth."
            )

    def bits_told(self, sizes: Mapping[str, int]) -> int | None:
        """Return the largest number of bits that a tree reveals; None if there are too many.

        Formula: the logarithm of the number of trees, T(0) = classes; T(d) = classes + remaining features ·
        T(d − 1)^(most categories of a feature).
        """
        classes = sizes[self.target]
        branches = max((sizes[name] for name in self.features), default=1)
        bits = log2(classes)
        for depth in range(1, self.max_depth + 1):
            left = len(self.features) - (self.max_depth - depth)
            split = log2(left) + branches * bits
            bits = split + log2(1 + 2 ** (log2(classes) - split))
            if bits > MOST_TOLD:
                return None
        return ceil(bits - 1e-9)

    def bits_opened(self, sizes: Mapping[str, int]) -> int | None:
        """Return the largest number of bits that open, in whole bits per number; None if too many."""
        branches = max((sizes[name] for name in self.features), default=1)
        total, nodes = 0, 1
        for depth in range(self.max_depth):
            total += nodes * winner_bits(len(self.features) - depth)
            nodes *= branches
            if total > MOST_TOLD:
                return None
        return total + nodes * label_bits(sizes[self.target])


def winner_bits(features: int) -> int:
    """Return the number of bits that encode the splitting feature of a node, or no split."""
    return max(features.bit_length(), 1)


def label_bits(classes: int) -> int:
    """Return the number of bits that encode a class."""
    return max((classes - 1).bit_length(), 1)


@dataclass(frozen=True)
class TreeNode:
    """An opened node of a tree: its feature and the indices of its branches, or the class of a leaf."""

    feature: str | None = None
    branches: tuple[int, ...] = ()
    label: int | None = None


@dataclass(frozen=True)
class _Open:
    """A node of the level being grown: its index, the codes on its path, and the remaining features."""

    place: int
    path: Mapping[str, int]
    left: tuple[str, ...]
    parent: int


def tree(
    engine: SecretEngine[Any],
    columns: HiddenColumns,
    growth: Growth,
    *,
    before_opening: Callable[[], object] = lambda: None,
) -> Steps[tuple[TreeNode, ...]]:
    """Grow a tree breadth first; only splits and the classes of leaves open, to all parties.

    `before_opening` is called once, before anything opens; if it raises at any party, nothing does.
    """
    growth.check(columns.sizes)
    grower = _Grower(engine, columns, growth)
    nodes: list[TreeNode] = [TreeNode()]
    level = [_Open(0, {}, growth.features, -1)]
    labels: dict[int, Any] = {-1: engine.constant(np.zeros(1, dtype=np.int64))}
    for depth in range(growth.max_depth + 1):
        classes = yield from grower.classes(level)
        found = yield from grower.labels(level, classes, labels)
        labels |= {node.place: found[np.array([at])] for at, node in enumerate(level)}
        if depth == growth.max_depth or not level:
            break
        winners = yield from grower.winners(level, classes, None if depth else before_opening)
        following = []
        for node, winner in zip(level, winners, strict=True):
            if winner is None:
                continue
            size = columns.sizes[winner]
            branches = tuple(range(len(nodes), len(nodes) + size))
            nodes[node.place] = TreeNode(winner, branches)
            nodes += [TreeNode()] * size
            left = tuple(name for name in node.left if name != winner)
            following += [
                _Open(place, {**node.path, winner: code}, left, node.place)
                for code, place in enumerate(branches)
            ]
        level = following
        if not level:
            break
    if not growth.max_depth:
        yield from agree_to_open(engine, before_opening)
    leaves = [place for place, node in enumerate(nodes) if node.feature is None]
    bits = [label_bits(columns.sizes[growth.target])] * len(leaves)
    opened = yield from engine.open(engine.stack([labels[place] for place in leaves]), bits)
    if opened.min() < 0 or opened.max() >= columns.sizes[growth.target]:
        raise InputError("An opened class is not a class of the target: a party's share was false.")
    for place, label in zip(leaves, opened.tolist(), strict=True):
        nodes[place] = TreeNode(label=label)
    return tuple(nodes)


class _Grower:
    """Counts, classes and gains of nodes, as secrets."""

    def __init__(self, engine: SecretEngine[Any], columns: HiddenColumns, growth: Growth) -> None:
        self._engine, self._columns, self._growth = engine, columns, growth
        self._counts = FamilyCounts(engine, columns)
        self._table = x_ln_x(columns.n)[None, :]
        self._width = columns.sizes[growth.target]

    def _sums(self, matrix: Any, secret: Any) -> Any:
        return self._engine.linear(np.asarray(matrix, dtype=np.int64), secret)

    def _tables(self, asked: Sequence[tuple[_Open, str | None]]) -> Steps[list[Any]]:
        """Return, for each node and feature, counts of feature × target; without a feature, of the target."""
        target, sizes = self._growth.target, self._columns.sizes
        families: list[Family] = [
            tuple(sorted({*node.path, target, *(() if name is None else (name,))})) for node, name in asked
        ]
        cells = yield from self._counts.cells(families)
        found = []
        for (node, name), family in zip(asked, families, strict=True):
            grid = np.arange(self._columns.width(family)).reshape([sizes[it] for it in family])
            picked = grid[tuple(node.path.get(it, slice(None)) for it in family)]
            if name is not None and name > target:  # axes are in the order of their names
                picked = picked.T
            found.append(cells[family][picked.ravel()])
        return found

    def classes(self, level: Sequence[_Open]) -> Steps[list[Any]]:
        """Return the number of records of each class at each node, as comparable numbers."""
        return (yield from self._numbers((yield from self._tables([(node, None) for node in level]))))

    def _numbers(self, counts: Sequence[Any]) -> Steps[list[Any]]:
        """Return counts, whose ring may be small, as numbers modulo 2^64, by table lookup."""
        engine, lengths = self._engine, [len(part) for part in counts]
        places = np.arange(self._columns.n + 1)[None, :]
        found = yield from engine.lookup(engine.stack(counts), places, np.zeros(sum(lengths), dtype=np.int64))
        ends = np.cumsum(lengths)
        return [found[np.arange(end - length, end)] for end, length in zip(ends, lengths, strict=True)]

    def labels(self, level: Sequence[_Open], classes: Sequence[Any], known: Mapping[int, Any]) -> Steps[Any]:
        """Return the most frequent class of every node, or its parent's class if it has too few records."""
        engine = self._engine
        rows = engine.stack(classes)
        _, own = yield from engine.largest(rows, (len(level), self._width), bits=COUNT_BITS)
        totals = self._sums(np.kron(np.eye(len(level)), np.ones(self._width)), rows)
        enough = engine.constant(np.full(len(level), max(self._growth.min_records, 1)))
        few = yield from engine.less(totals, enough, bits=COUNT_BITS)
        above = engine.stack([known[node.parent] for node in level])
        return (yield from engine.select(few, above, own))

    def winners(
        self, level: Sequence[_Open], classes: Sequence[Any], before_opening: Callable[[], object] | None
    ) -> Steps[list[str | None]]:
        """Return the splitting feature of every node (the first of equals), None if none gains."""
        engine, sizes, width = self._engine, self._columns.sizes, self._width
        asked = [(node, name) for node in level for name in node.left]
        tables = yield from self._tables(asked)
        margins = [
            self._sums(np.kron(np.eye(sizes[name]), np.ones(width)), table)
            for (_, name), table in zip(asked, tables, strict=True)
        ]
        totals = [self._sums(np.ones((1, width)), own) for own in classes]
        parts = [*tables, *margins, *classes, *totals]
        lengths = [sizes[name] * width for _, name in asked] + [sizes[name] for _, name in asked]
        lengths += [width] * len(level) + [1] * len(level)
        secret = engine.stack(parts)
        looked_up = yield from engine.lookup(secret, self._table, np.zeros(sum(lengths), dtype=np.int64))
        ends = np.cumsum(lengths)
        sums = [
            self._sums(np.ones((1, length)), looked_up[np.arange(end - length, end)])
            for end, length in zip(ends, lengths, strict=True)
        ]
        split = [plus - minus for plus, minus in zip(sums, sums[len(asked) :], strict=False)][: len(asked)]
        whole, total = sums[2 * len(asked) :][: len(level)], sums[2 * len(asked) + len(level) :]
        if self._growth.min_records > 1 and asked:
            split = yield from self._splittable(split, margins)
        # table entries may be off by one unit: a later candidate wins only if it is better by over `slack`
        slack = 2 * (max(sizes[name] for name in self._growth.features) + 1) * (width + 1) + 2
        rows, at = [], 0
        for number, node in enumerate(level):
            rows.append(whole[number] - total[number])
            for rank in range(1, len(node.left) + 1):
                rows.append(split[at] - engine.constant(np.array([rank * slack])))
                at += 1
        values = padded_rows(engine, engine.stack(rows), [1 + len(node.left) for node in level])
        _, places = yield from engine.largest(*values, bits=SCORE_BITS)
        if before_opening is not None:
            yield from agree_to_open(engine, before_opening)
        opened = yield from engine.open(places, [winner_bits(len(node.left)) for node in level])
        found: list[str | None] = []
        for node, place in zip(level, opened.tolist(), strict=True):
            if not 0 <= place <= len(node.left):
                raise InputError("The opened winner is not a feature: a party's share was false.")
            found.append(node.left[place - 1] if place else None)
        return found

    def _splittable(self, split: Sequence[Any], margins: Sequence[Any]) -> Steps[list[Any]]:
        """Return the values of splits; splits without two large enough branches are below all others."""
        engine, lengths = self._engine, [len(margin) for margin in margins]
        numbers = yield from self._numbers(margins)
        enough = engine.constant(np.full(sum(lengths), self._growth.min_records))
        few = yield from engine.less(engine.stack(numbers), enough, bits=COUNT_BITS)
        ends = np.cumsum(lengths)
        full = [
            engine.constant(np.array([length]))
            - self._sums(np.ones((1, length)), few[np.arange(end - length, end)])
            for end, length in zip(ends, lengths, strict=True)
        ]
        two = engine.constant(np.full(len(split), 2))
        fewer = yield from engine.less(engine.stack(full), two, bits=COUNT_BITS)
        lowest = engine.constant(np.full(len(split), SENTINEL))
        values = yield from engine.select(fewer, lowest, engine.stack(split))
        return [values[np.array([place])] for place in range(len(split))]


@lru_cache(maxsize=4)
def x_ln_x(n: int) -> Integers:
    """Return x·ln x for 0 … n in fixed point, as integers that are identical on all machines.

    The unit is 2^−digits, with as many digits as `VALUE_BITS` and `MOST_DIGITS` allow.

    Logarithms of primes are rounded correctly in decimal arithmetic; other logarithms are sums of these.
    """
    digits = min(MOST_DIGITS, VALUE_BITS - ceil(log2(n * log(max(n, 2)) + 2)))
    factor = list(range(n + 1))
    for prime in range(2, int(n**0.5) + 1):
        if factor[prime] == prime:
            for multiple in range(prime * prime, n + 1, prime):
                factor[multiple] = min(factor[multiple], prime)
    scale, context = 2**80, Context(prec=40)
    logs = [0] * (n + 1)
    for number in range(2, n + 1):
        least = factor[number]
        if least == number:
            logs[number] = int((context.ln(Decimal(number)) * scale).to_integral_value())
        else:
            logs[number] = logs[least] + logs[number // least]
    half = 1 << (79 - digits)
    return np.array([(count * one + half) >> (80 - digits) for count, one in enumerate(logs)], dtype=np.int64)
