"""k-means on secret shares: each cell may belong to any owner; only centres and sizes of clusters open.

Every cell of the table has an owner, so the table is a sum of the owners' parts (Jagannathan & Wright 2005).
With public centres, the distance of a record from each centre is linear in the record, up to a number that is
the same for all centres. With secret centres, distances take a product of matrices. The nearest centre is
found by a tournament, which keeps the current winner of every record as secret flags. If centres stay secret,
means are divided digit by digit and are exact up to rounding. All numbers are whole, in the units of
`learn.clusters.Lattice`; centres are stored in fractions of a unit.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.protocols.mpc.engine import Integers, SecretEngine, Steps, agree_to_open

AT_ONCE, MOST_WORDS = 1 << 18, 1 << 21  # most records, and numbers sent for them, in one round
MOST_BITS, COUNT_BITS, WORD = 62, 40, 64
MOST_STEPS = 1000
FINEST, USUAL, COARSEST = 24, 16, 4  # binary digits of a centre after the point
CHEAP_BITS = 40  # differences of distances with at most this many bits allow centres finer than USUAL
DIGIT = 4  # bits of a quotient that are computed in one step
Draw = Callable[[int], int]


@dataclass(frozen=True, eq=False)
class Lloyd:
    """Public parameters of a search for clusters, which also determine what opens.

    Every column of `n` records has whole numbers from 0 to its `most`. `start` has the first centres, in the
    same units; with None, they are records drawn on shares, which no party knows. Without `hide_steps`,
    centres and sizes open after each of at most `steps` steps, until no centre moves. With it, exactly
    `steps` steps are taken, and centres and sizes open after the last step only. A cluster of
    fewer than `least` records keeps its centre, as an empty cluster does, and its size and sums are not
    opened.
    """

    n: int
    k: int
    most: tuple[int, ...]
    start: NDArray[np.float64] | None
    least: int = 1
    steps: int = 100
    hide_steps: bool = False

    def __post_init__(self) -> None:
        faults = []
        if self.least < 1:
            faults.append(f"'least' must be at least 1. Got {self.least} instead.")
        if not 1 <= self.steps <= MOST_STEPS:
            faults.append(f"'steps' must be from 1 to {MOST_STEPS}. Got {self.steps} instead.")
        if not 1 <= self.k <= max(self.n, 1):
            faults.append(f"'k' must be from 1 to the number of records ({self.n:,}). Got {self.k} instead.")
        if self.start is not None and self.start.shape != (self.k, len(self.most)):
            faults.append(f"'start' must have {self.k} centres of {len(self.most)} numbers each.")
        if not faults and self.fraction < COARSEST:
            faults.append(
                "Distances between records are too large to compute: give columns in coarser units."
            )
        if faults:
            raise InputError(" ".join(faults))

    @property
    def secret_start(self) -> bool:
        """Return True if no party knows the first centres."""
        return self.start is None

    @property
    def at_once(self) -> int:
        """Return the number of records processed together, so that the opened numbers fit into a message."""
        return min(AT_ONCE, max(MOST_WORDS // (self.k + len(self.most)), 1))

    @cached_property
    def reach(self) -> int:
        """Return an upper bound on squared distances between records and centres, in units."""
        low, high = np.zeros(len(self.most)), np.array(self.most, dtype=float)
        if self.start is not None:
            low, high = np.minimum(low, self.start.min(axis=0)), np.maximum(high, self.start.max(axis=0))
        return sum((ceil(span) + 1) ** 2 for span in (high - low).tolist())

    @cached_property
    def fraction(self) -> int:
        """Return the number of binary digits of centres after the point: as many as distances allow."""
        for bits in range(FINEST, -1, -1):
            if self._bits(bits) <= (MOST_BITS if bits <= USUAL else CHEAP_BITS):
                return bits
        return -1

    def _bits(self, fraction: int) -> int:
        """Return the number of bits of the largest compared number."""
        secret = self.hide_steps or self.secret_start
        found = self.distance_bits(fraction, secret=secret)
        return max(found, self.quotient_bits(fraction)[1]) if self.hide_steps else found

    def distance_bits(self, fraction: int, *, secret: bool) -> int:
        """Return the number of bits of a difference of two distances, from public or secret centres."""
        return ((self.reach << (2 * fraction if secret else fraction)) + 2).bit_length()

    def quotient_bits(self, fraction: int) -> tuple[int, int]:
        """Return the bits of a centre's coordinate, a multiple of `DIGIT`, and of the numbers compared."""
        digits = -(-((max(self.most) + 1) << fraction).bit_length() // DIGIT)
        return DIGIT * digits, DIGIT * digits + (2 * self.n).bit_length()

    @property
    def opened_bits(self) -> list[int]:
        """Return the numbers of bits of sums and sizes that open."""
        sums = [max((self.n * most).bit_length(), 1) for most in self.most]
        return sums * self.k + [self.n.bit_length()] * self.k

    @property
    def centre_bits(self) -> int:
        """Return the number of bits of a centre's coordinate; public first centres may be anywhere."""
        return WORD if self.start is not None else self.quotient_bits(self.fraction)[0]

    @property
    def first(self) -> Integers | None:
        """Return the first centres in fractions of a unit, if they are public."""
        if self.start is None:
            return None
        return np.rint(self.start * (1 << self.fraction)).astype(np.int64)

    def means(self, sizes: Integers, sums: Integers) -> Integers:
        """Return means in fractions of a unit, halves rounded up; zeros for an empty cluster."""
        by = np.maximum(sizes, 1)[:, None]
        found = [
            [(2 * (total << self.fraction) + size) // (2 * size) for total in row]
            for row, (size,) in zip(sums.tolist(), by.tolist(), strict=True)
        ]
        return np.array(found, dtype=np.int64).reshape(sums.shape)


@dataclass(frozen=True, eq=False)
class HiddenClusters:
    """Opened results: sizes and sums of the clusters with enough records, and zeros for the others.

    `kept` has the centres of the other clusters, in `2**-fraction` units, if they had enough records in an
    earlier step or were public. `known` is False for a cluster that never had enough records: no party knows
    its centre.
    """

    sizes: Integers  # (clusters,)
    sums: Integers  # (clusters, columns)
    kept: Integers  # (clusters, columns)
    known: NDArray[np.bool_]  # (clusters,)
    fraction: int
    steps: int

    def centres(self) -> NDArray[np.float64]:
        """Return the centres in units; unknown centres are NaN."""
        kept = np.where(self.known[:, None], self.kept / (1 << self.fraction), np.nan)
        means = self.sums / np.maximum(self.sizes, 1)[:, None]
        return np.where(self.sizes[:, None] > 0, means, kept)


@dataclass(frozen=True, eq=False)
class _Totals:
    """Sums (clusters × columns, flat) and sizes of a step, and 1 for clusters with too few records."""

    sums: Any
    sizes: Any
    small: Any


def clusters(
    engine: SecretEngine[Any],
    held: Integers,
    plan: Lloyd,
    draw: Draw = secrets.randbelow,
    *,
    before_opening: Callable[[], object] = lambda: None,
) -> Steps[HiddenClusters]:
    """Take Lloyd's steps, and return the opened clusters.

    `held` is this party's part of the table (records × columns), zero in cells of other owners. `draw`
    returns a random number below its argument. If steps open, two of them can differ by fewer than `least`
    records: the records that moved. `before_opening` is called once, before anything opens; if it raises at
    any party, nothing opens.
    """
    if held.shape != (plan.n, len(plan.most)):
        raise InputError(f"The table has {plan.n:,} records of {len(plan.most)} columns.")
    tables = []
    for begin in range(0, plan.n, plan.at_once):
        tables += [(yield from _table(engine, held[begin : begin + plan.at_once]))]
    drawn = (yield from _draw_centres(engine, tables, plan, draw)) if plan.secret_start else None
    if plan.hide_steps:
        return (yield from _hidden_steps(engine, tables, plan, drawn, before_opening))
    return (yield from _open_steps(engine, tables, plan, drawn, before_opening))


def _open_steps(
    engine: SecretEngine[Any],
    tables: Sequence[Any],
    plan: Lloyd,
    drawn: Any,
    before_opening: Callable[[], object],
) -> Steps[HiddenClusters]:
    """Open sizes and sums of every step; a drawn centre stays secret until its cluster has enough records."""
    k, width = plan.k, len(plan.most)
    known = np.full(k, drawn is None)
    centres = np.zeros((k, width), dtype=np.int64) if plan.first is None else plan.first
    steps = 0
    while True:
        secret = None
        if not known.all():
            still_drawn = engine.linear(np.diag(np.repeat(~known, width).astype(np.int64)), drawn)
            secret = engine.constant(centres.ravel()) + still_drawn
        totals = yield from _totals(engine, tables, plan, centres, secret)
        parts = [totals.sums, totals.sizes]
        if plan.least > 1:
            parts = [(yield from _large_enough(engine, totals, plan))]
        if not steps:
            yield from agree_to_open(engine, before_opening)
        opened = yield from engine.open(engine.stack(parts), plan.opened_bits)
        sums, sizes = opened[: k * width].reshape(k, width), opened[k * width :]
        _check(sizes, plan)
        steps += 1
        after = np.where(sizes[:, None] > 0, plan.means(sizes, sums), centres)
        found, known_after = (
            HiddenClusters(sizes, sums, centres, known, plan.fraction, steps),
            known | (sizes > 0),
        )
        if steps >= plan.steps or (np.array_equal(after, centres) and np.array_equal(known, known_after)):
            return found
        centres, known = after, known_after


def _hidden_steps(
    engine: SecretEngine[Any],
    tables: Sequence[Any],
    plan: Lloyd,
    drawn: Any,
    before_opening: Callable[[], object],
) -> Steps[HiddenClusters]:
    """Take all steps on shares, and open the result of the last step.

    `settled` is a secret 1 for every cluster whose centre is a mean of enough records, or was public.
    """
    k, width, first = plan.k, len(plan.most), plan.first
    of = np.repeat(np.arange(k), width)
    centres = drawn if first is None else engine.constant(first.ravel())
    ones = engine.constant(np.ones(k, dtype=np.int64))
    settled = engine.constant(np.full(k, 0 if first is None else 1, dtype=np.int64))
    for step in range(plan.steps):
        secret = centres if step or first is None else None
        totals = yield from _totals(engine, tables, plan, first, secret)
        if step == plan.steps - 1:
            break
        means = yield from _means(engine, totals, plan)
        centres = yield from engine.select(totals.small[of], centres, means)
        both = yield from engine.product(settled, totals.small)
        settled = ones - totals.small + both
    large = yield from _large_enough(engine, totals, plan)
    kept = yield from engine.product(settled, totals.small)
    kept_centres = yield from engine.product(kept[of], centres)
    bits = [*plan.opened_bits, *([plan.centre_bits] * (k * width)), *([1] * k)]
    yield from agree_to_open(engine, before_opening)
    opened = yield from engine.open(engine.stack([large, kept_centres, kept]), bits)
    sums, sizes, old, known = np.split(opened, np.cumsum([k * width, k, k * width]))
    _check(sizes, plan)
    return HiddenClusters(
        sizes,
        sums.reshape(k, width),
        old.reshape(k, width),
        (known > 0) | (sizes > 0),
        plan.fraction,
        plan.steps,
    )


def _check(sizes: Integers, plan: Lloyd) -> None:
    """Raise an error for impossible sizes."""
    if sizes.min() < 0 or sizes.sum() > plan.n or np.any((sizes > 0) & (sizes < plan.least)):
        raise InputError("The opened sizes of clusters are not possible: a party's share was false.")


def _totals(
    engine: SecretEngine[Any], tables: Sequence[Any], plan: Lloyd, public: Integers | None, secret: Any
) -> Steps[_Totals]:
    """Return sums and sizes of the records nearest to each centre; ties go to the first centre.

    Centres are `secret`, or `public` if `secret` is None.
    """
    totals: Any = None
    for table in tables:
        distances = (
            _from_public(engine, table, public, plan.fraction)
            if secret is None
            else (yield from _from_secret(engine, table, secret, plan))
        )
        bits = plan.distance_bits(plan.fraction, secret=secret is not None)
        nearest = yield from _nearest(engine, distances, bits)
        summed = yield from engine.inner(nearest, table)
        counted = engine.linear(np.ones((1, len(table)), dtype=np.int64), nearest)
        both = engine.stack([summed, counted])
        totals = both if totals is None else totals + both
    cells = plan.k * len(plan.most)
    sums, sizes = totals[np.arange(cells)], totals[cells + np.arange(plan.k)]
    small = engine.constant(np.zeros(plan.k, dtype=np.int64))
    if plan.least > 1 or plan.hide_steps:
        enough = engine.constant(np.full(plan.k, plan.least))
        small = yield from engine.less(sizes, enough, bits=COUNT_BITS)
    return _Totals(sums, sizes, small)


def _large_enough(engine: SecretEngine[Any], totals: _Totals, plan: Lloyd) -> Steps[Any]:
    """Return sums and sizes of clusters that are large enough, and zeros for the others."""
    whole = engine.constant(np.ones(plan.k, dtype=np.int64)) - totals.small
    of = np.concatenate([np.repeat(np.arange(plan.k), len(plan.most)), np.arange(plan.k)])
    return (yield from engine.product(whole[of], engine.stack([totals.sums, totals.sizes])))


def _table(engine: SecretEngine[Any], held: Integers) -> Steps[Any]:
    """Return the table as one secret: the sum of the owners' parts."""
    total: Any = None
    for owner in engine.parties:
        part = yield from engine.share(owner, held if owner == engine.name else None, held.shape)
        total = part if total is None else total + part
    return total


def _from_public(engine: SecretEngine[Any], table: Any, centres: Integers | None, fraction: int) -> list[Any]:
    """Return squared distances from each public centre, without the terms common to all centres."""
    if centres is None:
        raise InputError("Centres are public or secret.")
    # in fractions of a squared unit; the squares, which are public, are rounded to these
    squares = [(2 * sum(c * c for c in row) + (1 << fraction)) >> (fraction + 1) for row in centres.tolist()]
    products = engine.linear(-2 * centres, table.T)
    return [
        product + engine.constant(np.full(len(table), square))
        for product, square in zip(products, squares, strict=True)
    ]


def _from_secret(engine: SecretEngine[Any], table: Any, centres: Any, plan: Lloyd) -> Steps[list[Any]]:
    """Return squared distances from each secret centre, without the terms common to all centres."""
    k, width = plan.k, len(plan.most)
    squares = yield from engine.product(centres, centres)
    totals = engine.linear(np.repeat(np.eye(k, dtype=np.int64), width, axis=1), squares)
    products = yield from engine.inner(table.T, centres.reshape(k, width).T)
    scaled = engine.linear(-(2 << plan.fraction) * np.eye(k, dtype=np.int64), products.T)
    return [scaled[place] + totals[np.full(len(table), place)] for place in range(k)]


def _nearest(engine: SecretEngine[Any], distances: Sequence[Any], bits: int) -> Steps[Any]:
    """Return a secret 1 for every record under its nearest centre, else 0 (records × centres)."""
    values, records = list(distances), len(distances[0])
    ones = engine.constant(np.ones(records, dtype=np.int64))
    # secret flags of the winner among the centres of each side; None: a single centre always wins
    ahead: list[list[Any]] = [[None] for _ in values]
    while len(values) > 1:
        pairs = range(0, len(values) - 1, 2)
        left, right = (engine.stack([values[at + side] for at in pairs]) for side in (0, 1))
        further = yield from engine.less(right, left, bits=bits)
        bit = [further[np.arange(at * records, (at + 1) * records)] for at in range(len(pairs))]
        # select the smaller distance (not needed for the last pair) and the flags of its side by one product
        numbers = [
            ([values[at + 1] - values[at]] if len(values) > 2 else [])
            + [mark for side in (0, 1) for mark in ahead[at + side] if mark is not None]
            for at in pairs
        ]
        weights = [bit[which] for which, some in enumerate(numbers) for _ in some]
        parts: list[Any] = []
        if weights:
            flat = engine.stack([number for some in numbers for number in some])
            product = yield from engine.product(engine.stack(weights), flat)
            parts = [product[np.arange(at * records, (at + 1) * records)] for at in range(len(weights))]
        taken = iter(parts)
        joined_values, joined_marks = [], []
        for which, at in enumerate(pairs):
            joined_values.append(values[at] + next(taken) if len(values) > 2 else None)
            marks = []
            for side in (0, 1):
                for mark in ahead[at + side]:
                    alone = mark is None
                    part = bit[which] if alone else next(taken)
                    marks.append(part if side else (ones if alone else mark) - part)
            joined_marks.append(marks)
        if len(values) % 2:
            joined_values.append(values[-1])
            joined_marks.append(ahead[-1])
        values, ahead = joined_values, joined_marks
    marks = [ones if mark is None else mark for mark in ahead[0]]
    return engine.stack(marks).reshape(len(distances), records).T


def _means(engine: SecretEngine[Any], totals: _Totals, plan: Lloyd) -> Steps[Any]:
    """Return all means in fractions of a unit, halves rounded up; arbitrary for empty clusters."""
    cells, digits = plan.k * len(plan.most), plan.quotient_bits(plan.fraction)
    sizes = totals.sizes[np.repeat(np.arange(plan.k), len(plan.most))]
    one = np.eye(cells, dtype=np.int64)
    numerator = engine.linear(one << (plan.fraction + 1), totals.sums) + sizes
    return (yield from _quotients(engine, numerator, engine.linear(2 * one, sizes), *digits))


def _quotients(
    engine: SecretEngine[Any], numerators: Any, denominators: Any, places: int, bits: int
) -> Steps[Any]:
    """Return whole quotients below 2^places by long division, one digit at a time.

    `bits` bounds the differences of a numerator and a multiple of its denominator.
    """
    one = np.eye(len(numerators), dtype=np.int64)
    often = np.arange(1, 1 << DIGIT)[:, None]
    total = engine.constant(np.zeros(len(numerators), dtype=np.int64))
    for place in range(places - DIGIT, -1, -DIGIT):
        multiples = engine.linear(np.kron(often << place, one), denominators)
        rest = numerators[np.tile(np.arange(len(one)), len(often))]
        too_often = yield from engine.less(rest, multiples, bits=bits)
        all_of_them = engine.constant(np.full(len(one), len(often)))
        digit = all_of_them - engine.linear(np.tile(one, len(often)), too_often)
        taken = yield from engine.product(digit, denominators)
        numerators = numerators - engine.linear(one << place, taken)
        total = total + engine.linear(one << place, digit)
    return total


def _draw_centres(engine: SecretEngine[Any], tables: Sequence[Any], plan: Lloyd, draw: Draw) -> Steps[Any]:
    """Return first centres, in fractions of a unit: a record from each of k parts, known to no party.

    The position is the sum of two parties' draws, so neither knows it. Positions are arranged in a square:
    the secret flag of a position is the product of a flag of its row and a flag of its column.
    """
    k, width, among = plan.k, len(plan.most), plan.n // plan.k
    place: Any = None
    for owner in engine.parties[:2]:
        own = np.array([draw(among) for _ in range(k)]) if owner == engine.name else None
        part = yield from engine.share(owner, own, (k,))
        place = part if place is None else place + part
    side = max(isqrt(among - 1) + 1, 1)
    at = np.arange(2 * among) % among
    halves = yield from engine.lookup(
        engine.stack([place, place]), np.stack([at // side, at % side]), np.repeat([0, 1], k)
    )
    units = yield from engine.lookup(
        halves[np.repeat(np.arange(2 * k), side)],
        np.eye(side, dtype=np.int64),
        np.tile(np.arange(side), 2 * k),
    )
    rows, columns = np.divmod(np.arange(among), side)
    begin = side * np.arange(k)[:, None]
    marks = yield from engine.product(
        units[(begin + rows).ravel()], units[(side * k + begin + columns).ravel()]
    )
    records = engine.stack(tables).reshape(plan.n, width)
    found = []
    for which in range(k):
        total: Any = None
        for start in range(which * among, (which + 1) * among, plan.at_once):
            some = np.arange(start, min(start + plan.at_once, (which + 1) * among))
            part = yield from engine.inner(marks[some].reshape(len(some), 1), records[some])
            total = part if total is None else total + part
        found.append(total)
    return engine.linear(np.eye(k * width, dtype=np.int64) << plan.fraction, engine.stack(found))
