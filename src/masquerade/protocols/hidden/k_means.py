"""k-means on shares: records whose cells lie with any owner; centres and sizes of a step open, nothing else.

Every cell of the table belongs to somebody, so the table is a sum of what the owners hold (Jagannathan &
Wright 2005). With public centres the distance of a record from each is linear in the record, up to a number
that is the same for all, so only the nearest centre has to be found on shares: by a tournament that carries
along who is ahead. Numbers are whole: `learn.clusters.Lattice` says in which units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.protocols.hidden.engine import Integers, SecretEngine, Steps

AT_ONCE = 1 << 16  # records
MOST_BITS = 62


@dataclass(frozen=True, eq=False)
class LloydStep:
    """What a step opens: how many records are nearest to each centre, and their sums."""

    sizes: Integers  # (centres,)
    sums: Integers  # (centres, columns)


def step(
    engine: SecretEngine[Any], held: NDArray[np.int64], centres: Integers, bits: int
) -> Steps[LloydStep]:
    """Return the sizes and sums of the records nearest to each centre, the first of equally near ones.

    `held` is this party's part of the table (records × columns), zero where a cell is not its own; `bits` is
    how large a difference of distances may be.
    """
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
        opened = yield from engine.open(totals)
        sums = opened[: centres.size].reshape(centres.shape)
        sizes = opened[centres.size :]
    return LloydStep(sizes, sums)


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
