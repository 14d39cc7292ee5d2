"""ID3 on shares: which feature splits every node opens, and the class of every leaf; no count and no gain.

Quinlan's (1986) tree over columns of several owners. N times the gain of a feature is a sum of x·ln x over
cells of hidden counts, so a table of these is looked up, and the largest of all features is found on shares;
"no split" is a candidate of its own. Why a node is a leaf (one class, too few records, nothing gained) does
not open. All nodes of a level take a step together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from math import ceil, log, log2, prod
from typing import Any

import numpy as np

from masquerade.core.errors import InputError
from masquerade.protocols.mpc.engine import Integers, SecretEngine, Steps
from masquerade.protocols.mpc.family_counts import Family, FamilyCounts, HiddenColumns
from masquerade.protocols.mpc.structure import SCORE_BITS, SENTINEL, padded_rows

COUNT_BITS = 40
VALUE_BITS, MOST_DIGITS = 53, 30  # of a sum of x·ln x in units, and of these after the point at most
MOST_CELLS = 1 << 14  # of the features on a way down with the target
MOST_TOLD = 10**6  # bits: beyond that it is no bound


@dataclass(frozen=True)
class Growth:
    """What is public about a tree that is grown: what it predicts, from what, and when it stops.

    `features` settle ties by their order. A node is split only if two branches have `min_records` records; a
    branch of fewer, or of none, has its parent's class.
    """

    target: str
    features: tuple[str, ...]
    max_depth: int
    min_records: int = 1

    def __post_init__(self) -> None:
        if self.max_depth < 0 or self.min_records < 0:
            raise InputError("Neither a depth nor a number of records is negative.")

    @classmethod
    def of(
        cls, target: str, features: Sequence[str], max_depth: int | None = None, min_records: float = 1.0
    ) -> Growth:
        """Return the growth that asks about every feature at most once on a way down."""
        depth = len(features) if max_depth is None else min(max_depth, len(features))
        return cls(target, tuple(features), depth, max(ceil(min_records), 1))

    def check(self, sizes: Mapping[str, int]) -> None:
        """Refuse to count tables that would be too large: of all features on a way down and the target."""
        largest = sorted((sizes[name] for name in self.features), reverse=True)[: self.max_depth]
        cells = prod(largest) * sizes[self.target]
        if cells > MOST_CELLS:
            raise InputError(
                f"Counts of {self.max_depth} features on a way down and the target have up to {cells:,} "
                f"cells, of at most {MOST_CELLS:,} on shares: give a smaller max_depth."
            )

    def bits_told(self, sizes: Mapping[str, int]) -> int | None:
        """Return how many bits a tree tells at most: the logarithm of how many there are; None: too many.

        Formula: T(0) = classes; T(d) = classes + features left · T(d − 1)^(most categories of a feature).
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
        """Return how many bits open at most, each number of them by whole bits; None: too many to say."""
        branches = max((sizes[name] for name in self.features), default=1)
        total, nodes = 0, 1
        for depth in range(self.max_depth):
            total += nodes * winner_bits(len(self.features) - depth)
            nodes *= branches
            if total > MOST_TOLD:
                return None
        return total + nodes * label_bits(sizes[self.target])


def winner_bits(features: int) -> int:
    """Return how many bits tell which of some features splits a node, or none."""
    return max(features.bit_length(), 1)


def label_bits(classes: int) -> int:
    """Return how many bits tell a class."""
    return max((classes - 1).bit_length(), 1)


@dataclass(frozen=True)
class TreeNode:
    """A node of a tree that opened: what it asks and the places of its branches, or the class of a leaf."""

    feature: str | None = None
    branches: tuple[int, ...] = ()
    label: int | None = None


@dataclass(frozen=True)
class _Open:
    """A node of the level that is being grown: its place, the codes that lead there, and features left."""

    place: int
    path: Mapping[str, int]
    left: tuple[str, ...]
    parent: int


def tree(engine: SecretEngine[Any], columns: HiddenColumns, growth: Growth) -> Steps[tuple[TreeNode, ...]]:
    """Grow a tree, the same for all parties, breadth first; splits and leaves' classes open, nothing else."""
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
        winners = yield from grower.winners(level, classes)
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
    leaves = [place for place, node in enumerate(nodes) if node.feature is None]
    bits = [label_bits(columns.sizes[growth.target])] * len(leaves)
    opened = yield from engine.open(engine.stack([labels[place] for place in leaves]), bits)
    if opened.min() < 0 or opened.max() >= columns.sizes[growth.target]:
        raise InputError("An opened class is none of the target's: a party's share was false.")
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
        """Return counts at nodes of a feature and the target, which varies fastest, or of that alone."""
        target, sizes = self._growth.target, self._columns.sizes
        families: list[Family] = [
            tuple(sorted({*node.path, target, *(() if name is None else (name,))})) for node, name in asked
        ]
        cells = yield from self._counts.cells(families)
        found = []
        for (node, name), family in zip(asked, families, strict=True):
            grid = np.arange(self._columns.width(family)).reshape([sizes[it] for it in family])
            picked = grid[tuple(node.path.get(it, slice(None)) for it in family)]
            if name is not None and name > target:  # axes stand in the order of their names
                picked = picked.T
            found.append(cells[family][picked.ravel()])
        return found

    def classes(self, level: Sequence[_Open]) -> Steps[list[Any]]:
        """Return how many records of each class nodes hold, as numbers that can be compared."""
        return (yield from self._numbers((yield from self._tables([(node, None) for node in level]))))

    def _numbers(self, counts: Sequence[Any]) -> Steps[list[Any]]:
        """Return counts, whose ring may be small, as numbers of any size: looked up where they stand."""
        engine, lengths = self._engine, [len(part) for part in counts]
        places = np.arange(self._columns.n + 1)[None, :]
        found = yield from engine.lookup(engine.stack(counts), places, np.zeros(sum(lengths), dtype=np.int64))
        ends = np.cumsum(lengths)
        return [found[np.arange(end - length, end)] for end, length in zip(ends, lengths, strict=True)]

    def labels(self, level: Sequence[_Open], classes: Sequence[Any], known: Mapping[int, Any]) -> Steps[Any]:
        """Return the most frequent class of every node, its parent's where it has too few records."""
        engine = self._engine
        rows = engine.stack(classes)
        _, own = yield from engine.largest(rows, (len(level), self._width), bits=COUNT_BITS)
        totals = self._sums(np.kron(np.eye(len(level)), np.ones(self._width)), rows)
        enough = engine.constant(np.full(len(level), max(self._growth.min_records, 1)))
        few = yield from engine.less(totals, enough, bits=COUNT_BITS)
        above = engine.stack([known[node.parent] for node in level])
        return (yield from engine.select(few, above, own))

    def winners(self, level: Sequence[_Open], classes: Sequence[Any]) -> Steps[list[str | None]]:
        """Return which feature splits every node, the first of equals, None where none gains anything."""
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
        # every table entry is off by a unit at most: gains that differ by that are equal
        slack = 2 * (max(sizes[name] for name in self._growth.features) + 1) * (width + 1) + 2
        rows, at = [], 0
        for number, node in enumerate(level):
            rows.append(whole[number] - total[number])
            for rank in range(1, len(node.left) + 1):
                rows.append(split[at] - engine.constant(np.array([rank * slack])))
                at += 1
        values = padded_rows(engine, engine.stack(rows), [1 + len(node.left) for node in level])
        _, places = yield from engine.largest(*values, bits=SCORE_BITS)
        opened = yield from engine.open(places, [winner_bits(len(node.left)) for node in level])
        found: list[str | None] = []
        for node, place in zip(level, opened.tolist(), strict=True):
            if not 0 <= place <= len(node.left):
                raise InputError("The opened winner is none of the features: a party's share was false.")
            found.append(node.left[place - 1] if place else None)
        return found

    def _splittable(self, split: Sequence[Any], margins: Sequence[Any]) -> Steps[list[Any]]:
        """Return values of splits, those that have not two branches with enough records below all others."""
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
    """Return x·ln x for 0 … n in units, the same at every party, whatever machine it has.

    Logarithms of primes are rounded correctly in decimals, those of other numbers are sums of them.
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
