"""k-means on shares: records whose cells lie with any owner; centres and sizes of steps open, nothing else.

Every cell of the table belongs to somebody, so the table is a sum of what the owners hold (Jagannathan &
Wright 2005). With public centres the distance of a record from each is linear in the record, up to a number
that is the same for all, so only the nearest centre has to be found on shares: by a tournament that carries
along who is ahead. Numbers are whole: `learn.clusters.Lattice` says in which units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.protocols.hidden.engine import Integers, SecretEngine, Steps

AT_ONCE = 1 << 16  # records
MOST_BITS, COUNT_BITS = 62, 40
MOST_STEPS = 100


@dataclass(frozen=True, eq=False)
class LloydStep:
    """What a step opens: how many records are nearest to each centre, and their sums."""

    sizes: Integers  # (centres,)
    sums: Integers  # (centres, columns)


@dataclass(frozen=True, eq=False)
class HiddenClusters:
    """Where centres came to lie, how many records are nearest to each, and how many steps that took.

    A cluster of fewer records than agreed shows a size of zero.
    """

    centres: Integers
    sizes: Integers
    steps: int


def clusters(
    engine: SecretEngine[Any],
    held: NDArray[np.int64],
    start: Integers,
    bits: int,
    *,
    moved: Callable[[Integers, Integers, Integers], Integers],
    least: int = 1,
    most_steps: int = MOST_STEPS,
) -> Steps[HiddenClusters]:
    """Take Lloyd's steps from public centres until none moves, opening centres and sizes of every step.

    `moved` returns where centres with some sizes and sums go, and leaves those without records where they
    are. Of a cluster with fewer than `least` records nothing opens in a step but that it is such a one, and
    its centre stays. Differences of two steps can be about fewer records than that: those who move.
    """
    centres, steps = start, 0
    while True:
        found = yield from step(engine, held, centres, bits, least=least)
        after, steps = moved(centres, found.sizes, found.sums), steps + 1
        if np.array_equal(after, centres) or steps >= most_steps:
            return HiddenClusters(after, found.sizes, steps)
        centres = after


def step(
    engine: SecretEngine[Any], held: NDArray[np.int64], centres: Integers, bits: int, *, least: int = 1
) -> Steps[LloydStep]:
    """Return the sizes and sums of the records nearest to each centre, the first of equally near ones.

    `held` is this party's part of the table (records × columns), zero where a cell is not its own; `bits` is
    how large a difference of distances may be. Clusters of fewer than `least` records open as empty ones.
    """
    if least < 1:
        raise InputError(f"Clusters have one record at least. Got {least} instead.")
    if bits > MOST_BITS:
        raise InputError(
            f"Distances of {bits} bits are more than {MOST_BITS}: give the numbers in coarser units."
        )
    sizes = np.zeros(len(centres), dtype=np.int64)
    sums = np.zeros(centres.shape, dtype=np.int64)
    totals: Any = None
    for start in range(0, len(held), AT_ONCE):
        some = held[start : start + AT_ONCE]
        table = yield from _table(engine, some)
        nearest = yield from _nearest(engine, table, centres, bits)
        summed = yield from engine.inner(nearest, table)
        counted = engine.linear(np.ones((1, len(some)), dtype=np.int64), nearest)
        both = engine.stack([summed, counted])
        totals = both if totals is None else totals + both
    if totals is not None:
        if least > 1:
            totals = yield from _large_enough(engine, totals, centres.shape, least)
        opened = yield from engine.open(totals)
        sums = opened[: centres.size].reshape(centres.shape)
        sizes = opened[centres.size :]
    return LloydStep(sizes, sums)


def _large_enough(engine: SecretEngine[Any], totals: Any, shape: tuple[int, ...], least: int) -> Steps[Any]:
    """Return sums and sizes of clusters that are large enough, and zeros of the others."""
    k, columns = shape
    sizes = totals[k * columns + np.arange(k)]
    small = yield from engine.less(sizes, engine.constant(np.full(k, least)), bits=COUNT_BITS)
    whole = engine.constant(np.ones(k, dtype=np.int64)) - small
    of = np.concatenate([np.repeat(np.arange(k), columns), np.arange(k)])
    return (yield from engine.product(whole[of], totals))


def _table(engine: SecretEngine[Any], held: Integers) -> Steps[Any]:
    """Return the table as one secret: the sum of what every owner holds."""
    total: Any = None
    for owner in engine.parties:
        part = yield from engine.share(owner, held if owner == engine.name else None, held.shape)
        total = part if total is None else total + part
    return total


def _nearest(engine: SecretEngine[Any], table: Any, centres: Integers, bits: int) -> Steps[Any]:
    """Return a secret 1 for every record under its nearest centre, else 0 (records × centres)."""
    records = len(table)
    squares = (centres * centres).sum(axis=1)
    products = engine.linear(-2 * centres, table.T)
    values = [
        product + engine.constant(np.full(records, square))
        for product, square in zip(products, squares.tolist(), strict=True)
    ]
    ahead = [[engine.constant(np.ones(records, dtype=np.int64))] for _ in centres]
    while len(values) > 1:
        pairs = range(0, len(values) - 1, 2)
        left, right = (engine.stack([values[at + side] for at in pairs]) for side in (0, 1))
        further = yield from engine.less(right, left, bits=bits)
        bit = [further[np.arange(at * records, (at + 1) * records)] for at in range(len(pairs))]
        # the distance that is ahead, and with it every mark of its side, in one product
        weights, numbers = [], []
        for which, at in enumerate(pairs):
            weights.append(bit[which])
            numbers.append(values[at + 1] - values[at])
            for side in (0, 1):
                for mark in ahead[at + side]:
                    weights.append(bit[which])
                    numbers.append(mark)
        product = yield from engine.product(engine.stack(weights), engine.stack(numbers))
        parts = [product[np.arange(at * records, (at + 1) * records)] for at in range(len(weights))]
        joined_values, joined_marks = [], []
        at_part = 0
        for at in pairs:
            joined_values.append(values[at] + parts[at_part])
            at_part += 1
            marks = []
            for side in (0, 1):
                for mark in ahead[at + side]:
                    marks.append(parts[at_part] if side else mark - parts[at_part])
                    at_part += 1
            joined_marks.append(marks)
        if len(values) % 2:
            joined_values.append(values[-1])
            joined_marks.append(ahead[-1])
        values, ahead = joined_values, joined_marks
    return engine.stack(ahead[0]).reshape(len(centres), records).T
