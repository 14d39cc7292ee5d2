"""Search for the parents of every variable on shares: each step's winner opens, but no count or score.

K2 (Cooper & Herskovits 1992) with hidden scores is the method of Wright & Yang (2004; Yang & Wright 2006) for
vertically partitioned records. Scores are sums of public functions of counts, so they are looked up in
tables; all variables take a step together. With `hide_order` only the final parents are opened, but every set
of parents is scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, comb, log2, prod
from typing import Any, Protocol

import numpy as np

from masquerade.core.errors import InputError
from masquerade.protocols.mpc.engine import Integers, SecretEngine, Steps, agree_to_open
from masquerade.protocols.mpc.family_counts import Family, FamilyCounts, HiddenColumns

SCORE_BITS = 56  # bits of a difference of scores
SENTINEL = -(2**54)
MOST_SETS = 20_000  # sets of parents of one variable that `hide_order` scores at most

Parents = dict[str, tuple[str, ...]]


class FamilyScore(Protocol):
    """A score: a sum over cells minus a sum over the parents' cells, as integers in fixed units.

    Both terms are convex functions of the number of records, such as x ln x and ln Γ.
    """

    def cells(self, configurations: int, categories: int) -> Integers:
        """Return the contribution of a cell with 0 … n records."""

    def margins(self, configurations: int, categories: int) -> Integers:
        """Return the deduction for a configuration of the parents with 0 … n records."""

    def constant(self, configurations: int, categories: int) -> int:
        """Return the contribution of a family that does not depend on its counts."""


@dataclass(frozen=True)
class Search:
    """Public parameters of a search.

    `candidates` has the possible parents of every variable; of equal scores, the earlier candidate wins.
    `limit` is the largest number of parents of a variable.
    """

    candidates: Mapping[str, Sequence[str]]
    limit: int
    hide_order: bool = False

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise InputError("A limit of parents must not be negative.")
        for child, others in self.candidates.items():
            if child in others or len(set(others)) < len(others) or not set(others) <= set(self.candidates):
                raise InputError(f"The candidates of {child!r} must be other variables, each listed once.")
        if self.hide_order and self.most_sets > MOST_SETS:
            raise InputError(
                f"Hiding the order of parents would score {self.most_sets:,} sets of parents for a "
                f"variable (at most {MOST_SETS:,}): allow fewer parents, or open the winner of each step."
            )

    @classmethod
    def in_order(cls, order: Sequence[str], limit: int, *, hide_order: bool = False) -> Search:
        """Return the search in which only earlier variables can be parents; ties are settled by name."""
        names = sorted(order)
        before = {name: set(order[:place]) for place, name in enumerate(order)}
        return cls({x: [z for z in names if z in before[x]] for x in names}, limit, hide_order)

    @property
    def most_sets(self) -> int:
        """Return the largest number of parent sets of a variable."""
        return max((sum(1 for _ in self.sets(child)) for child in self.candidates), default=0)

    def sets(self, child: str) -> Iterator[tuple[str, ...]]:
        """Yield every possible final set of parents of a variable, smaller sets first."""
        others = self.candidates[child]
        for size in range(min(self.limit, len(others)) + 1):
            yield from combinations(others, size)

    @property
    def bits_told(self) -> int:
        """Return the largest number of bits revealed: by the winner of each step, or by the final sets."""
        total = 0.0
        for others in self.candidates.values():
            steps = min(self.limit, len(others))
            if self.hide_order:
                total += log2(sum(comb(len(others), size) for size in range(steps + 1)))
            else:
                total += sum(log2(len(others) - step + 1) for step in range(steps))
        return ceil(total - 1e-9)

    @property
    def bits_opened(self) -> int:
        """Return the number of bits that open: all that is revealed, each number in whole bits."""
        total = 0
        for child, others in self.candidates.items():
            if self.hide_order:
                total += _bits(sum(1 for _ in self.sets(child)))
            else:
                total += sum(_bits(len(others) - step + 1) for step in range(min(self.limit, len(others))))
        return total


def _bits(count: int) -> int:
    """Return the number of bits that distinguish `count` values."""
    return (count - 1).bit_length()


def parents(
    engine: SecretEngine[Any],
    columns: HiddenColumns,
    search: Search,
    score: FamilyScore,
    counts: FamilyCounts | None = None,
    *,
    before_opening: Callable[[], object] = lambda: None,
) -> Steps[Parents]:
    """Return the parents of every variable to all parties; nothing else is opened.

    `before_opening` is called once, before anything opens; if it raises at any party, nothing does.
    """
    _check_range(columns, search, score)
    scores = _Scores(engine, columns, score, counts or FamilyCounts(engine, columns))
    if search.hide_order:
        return (yield from _hidden_order(engine, scores, search, before_opening))
    return (yield from _open_winners(engine, scores, search, before_opening))


def _check_range(columns: HiddenColumns, search: Search, score: FamilyScore) -> None:
    """Raise an error if scores could be so large that a comparison would silently be wrong."""
    for child, others in search.candidates.items():
        widths = sorted((columns.sizes[name] for name in others), reverse=True)
        for size in range(min(search.limit, len(widths)) + 1):
            if _reach(score, columns.n, prod(widths[:size]), columns.sizes[child]) >= -SENTINEL:
                raise InputError(
                    f"Scores of {child!r} with {size} parents could be too large to be compared on shares: "
                    "allow fewer parents, or join categories."
                )


def _reach(score: FamilyScore, n: int, configurations: int, categories: int) -> int:
    """Return a bound on the absolute score of a family, whatever the counts."""

    def between(table: Integers, count: int) -> tuple[int, int]:
        return count * int(table.min()), int(table[n]) + (count - 1) * int(table[0])

    cells = between(score.cells(configurations, categories), configurations * categories)
    margins = between(score.margins(configurations, categories), configurations)
    constant = score.constant(configurations, categories)
    return max(abs(cells[0] - margins[1] + constant), abs(cells[1] - margins[0] + constant))


def with_counts(
    engine: SecretEngine[Any],
    columns: HiddenColumns,
    search: Search,
    score: FamilyScore,
    opened: Sequence[str],
    *,
    admit: Callable[[Sequence[Family]], object] = lambda _families: None,
    before_opening: Callable[[], object] = lambda: None,
) -> Steps[tuple[Parents, dict[str, list[int]]]]:
    """Return the parents of every variable, and the counts of some families, which are opened as agreed.

    The counts of a child are the counts of its family in the order of the names, the last varying fastest.
    `admit` receives the families before any party opens their counts, and may raise. `before_opening` is
    called once, before anything opens: the first parents, or the counts if no variable can have parents.
    """
    counts = FamilyCounts(engine, columns)
    found = yield from parents(engine, columns, search, score, counts, before_opening=before_opening)
    families = {child: tuple(sorted((child, *found[child]))) for child in opened}
    if not families:
        return found, {}
    opens_first = not search.hide_order and search.bits_opened == 0  # no parents: nothing has opened yet

    def check() -> None:
        admit(list(families.values()))
        if opens_first:
            before_opening()

    yield from agree_to_open(engine, check)
    cells = yield from counts.cells(list(families.values()))
    told = {}
    for child, family in families.items():
        bits = [columns.n.bit_length()] * columns.width(family)
        numbers = yield from engine.open(cells[family], bits)
        if int(numbers.sum()) != columns.n or int(numbers.min()) < 0:
            raise InputError(
                "The opened counts do not add up to the number of records: a party's share was false."
            )
        told[child] = numbers.tolist()
    return found, told


class _Scores:
    """Scores of a child and its parents, as secrets; every table is looked up once for every family."""

    def __init__(
        self,
        engine: SecretEngine[Any],
        columns: HiddenColumns,
        score: FamilyScore,
        counts: FamilyCounts,
    ) -> None:
        self._engine, self._columns, self._score = engine, columns, score
        self._counts = counts
        self._sums: dict[tuple[Family, bytes], Any] = {}  # sums over a family's counts, looked up in a table
        self._known: dict[tuple[str, Family], Any] = {}

    def of(self, wanted: Sequence[tuple[str, Family]]) -> Steps[Any]:
        """Return the scores of children with their parents, as one secret vector."""
        columns = self._columns
        fresh = [pair for pair in dict.fromkeys(wanted) if pair not in self._known]
        families = {pair: tuple(sorted((pair[0], *pair[1]))) for pair in fresh}
        counts = yield from self._counts.cells([*families.values(), *(given for _, given in fresh if given)])
        tables: dict[bytes, Integers] = {}
        asked: list[tuple[Family, bytes]] = []
        terms = []
        for child, given in fresh:
            shape = columns.width(given), columns.sizes[child]
            plus, minus = self._score.cells(*shape), self._score.margins(*shape)
            both = [(families[child, given], plus.tobytes()), (given, minus.tobytes())]
            tables |= {both[0][1]: plus, both[1][1]: minus}
            asked += [one for one in both if one not in self._sums]
            terms.append((both, shape, minus))
        yield from self._look_up(dict.fromkeys(one for one in asked if one[0]), tables, counts)
        for pair, ((plus_key, minus_key), shape, minus) in zip(fresh, terms, strict=True):
            constant = self._engine.constant(np.array([self._score.constant(*shape)]))
            total = self._sums[plus_key] + constant
            if minus_key[0]:
                total = total - self._sums[minus_key]
            else:  # no parents: one configuration with all records, which is public
                total = total - self._engine.constant(minus[[columns.n]])
            self._known[pair] = total
        return self._engine.stack([self._known[pair] for pair in wanted])

    def _look_up(
        self, asked: Mapping[tuple[Family, bytes], None], tables: Mapping[bytes, Integers], counts: Any
    ) -> Steps[None]:
        if not asked:
            return
        numbers = {key: place for place, key in enumerate(tables)}
        widths = [self._columns.width(family) for family, _ in asked]
        secret = self._engine.stack([counts[family] for family, _ in asked])
        which = np.repeat([numbers[key] for _, key in asked], widths)
        found = yield from self._engine.lookup(secret, np.array(list(tables.values())), which)
        for one, end, width in zip(asked, np.cumsum(widths), widths, strict=True):
            part = found[np.arange(end - width, end)]
            self._sums[one] = self._engine.linear(np.ones((1, width), dtype=np.int64), part)


def _open_winners(
    engine: SecretEngine[Any], scores: _Scores, search: Search, before_opening: Callable[[], object]
) -> Steps[Parents]:
    """Add the best candidate to every variable until none gains; the winners are opened."""
    found: dict[str, tuple[str, ...]] = dict.fromkeys(search.candidates, ())
    growing = list(search.candidates)
    while growing:
        growing = [x for x in growing if len(found[x]) < min(search.limit, len(search.candidates[x]))]
        if not growing:
            break
        left = {x: [z for z in search.candidates[x] if z not in found[x]] for x in growing}
        wanted = [
            (x, tuple(sorted((*found[x], *more)))) for x in growing for more in ((), *((z,) for z in left[x]))
        ]
        values = yield from scores.of(wanted)
        _, places = yield from engine.largest(
            *padded_rows(engine, values, [1 + len(left[x]) for x in growing]), bits=SCORE_BITS
        )
        if not any(found.values()):  # the first step: before any later step, a candidate has won
            yield from agree_to_open(engine, before_opening)
        winners = yield from engine.open(places, [_bits(1 + len(left[x])) for x in growing])
        for x, place in zip(growing, winners.tolist(), strict=True):
            if not 0 <= place <= len(left[x]):
                raise InputError("The opened winner is not a candidate: a party's share was false.")
            if place:
                found[x] = (*found[x], left[x][place - 1])
        growing = [x for x, place in zip(growing, winners.tolist(), strict=True) if place]
    return {x: tuple(sorted(given)) for x, given in found.items()}


def padded_rows(engine: SecretEngine[Any], values: Any, widths: Sequence[int]) -> tuple[Any, tuple[int, int]]:
    """Return rows padded to equal length with values that never win."""
    width = max(widths)
    filler = engine.constant(np.array([SENTINEL]))
    places, start, end = [], 0, sum(widths)
    for count in widths:
        places += [*range(start, start + count), *[end] * (width - count)]
        start += count
    return engine.stack([values, filler])[np.array(places)], (len(widths), width)


class _Lattice:
    """The sets of parents of one variable by size, and the steps from each set to the next larger sets."""

    def __init__(self, search: Search, child: str) -> None:
        self.others = search.candidates[child]
        self.sets = list(search.sets(child))
        self.place = {frozenset(one): number for number, one in enumerate(self.sets)}

    def of_size(self, size: int) -> list[tuple[str, ...]]:
        """Return all sets of a size."""
        return [one for one in self.sets if len(one) == size]

    def steps(self, size: int) -> list[tuple[int, int, frozenset[str]]]:
        """Return the steps from sets of a size: indices of set and candidate, and the resulting set."""
        return [
            (i, k, frozenset({*one, z}))
            for i, one in enumerate(self.of_size(size))
            for k, z in enumerate(self.others)
            if z not in one
        ]


def _hidden_order(
    engine: SecretEngine[Any], scores: _Scores, search: Search, before_opening: Callable[[], object]
) -> Steps[Parents]:
    """Take every step on shares: the state of a search is a secret unit vector over all sets of parents.

    All variables take a step together; a variable without further candidates waits.
    """
    lattices = {x: _Lattice(search, x) for x in search.candidates}
    wanted = [(x, tuple(sorted(one))) for x, lattice in lattices.items() for one in lattice.sets]
    scored = yield from scores.of(wanted)
    values: dict[str, Any] = _split(scored, {x: len(lattice.sets) for x, lattice in lattices.items()})
    at: dict[str, Any] = {x: engine.constant(np.array([1])) for x in lattices}  # among the sets of this size
    now: dict[str, Any] = {x: values[x][np.array([0])] for x in lattices}
    ended: dict[str, list[Any]] = {x: [] for x in lattices}
    for size in range(search.limit):
        growing = [x for x, lattice in lattices.items() if size < len(lattice.others)]
        if not growing:
            break
        steps = {x: lattices[x].steps(size) for x in growing}
        weights = {x: at[x][np.array([i for i, _, _ in steps[x]])] for x in growing}
        whom = {x: np.array([lattices[x].place[to] for _, _, to in steps[x]]) for x in growing}
        lift = {x: engine.constant(np.full(len(steps[x]), SENTINEL)) for x in growing}
        gains = yield from engine.product(
            engine.stack([weights[x] for x in growing]),
            engine.stack([values[x][whom[x]] - lift[x] for x in growing]),
        )
        gained = _split(gains, {x: len(steps[x]) for x in growing})
        rows = []
        for x in growing:
            sums = np.zeros((len(lattices[x].others), len(steps[x])), dtype=np.int64)
            sums[[k for _, k, _ in steps[x]], np.arange(len(steps[x]))] = 1
            floor = engine.constant(np.full(len(sums), SENTINEL))
            rows.append(engine.stack([now[x], engine.linear(sums, gained[x]) + floor]))
        widths = {x: 1 + len(lattices[x].others) for x in growing}
        stacked = padded_rows(engine, engine.stack(rows), list(widths.values()))
        best, winners = yield from engine.largest(*stacked, bits=SCORE_BITS)
        rank = np.repeat(np.arange(len(growing)), list(widths.values()))
        choice = np.concatenate([np.arange(width) for width in widths.values()])
        units = np.eye(max(widths.values()), dtype=np.int64)
        found = yield from engine.lookup(winners[rank], units, choice)
        won = _split(found, widths)
        sizes = {x: len(lattices[x].of_size(size)) for x in growing}
        stay = [won[x][np.zeros(sizes[x], dtype=np.int64)] for x in growing]
        go = [won[x][np.array([1 + k for _, k, _ in steps[x]])] for x in growing]
        moved = yield from engine.product(
            engine.stack([*(at[x] for x in growing), *(weights[x] for x in growing)]),
            engine.stack([*stay, *go]),
        )
        parts = _split(
            moved, {**{(x, 0): sizes[x] for x in growing}, **{(x, 1): len(steps[x]) for x in growing}}
        )
        for number, x in enumerate(growing):
            now[x] = best[np.array([number])]
            ended[x].append(parts[x, 0])
            bigger = {frozenset(one): place for place, one in enumerate(lattices[x].of_size(size + 1))}
            sums = np.zeros((len(bigger), len(steps[x])), dtype=np.int64)
            sums[[bigger[to] for _, _, to in steps[x]], np.arange(len(steps[x]))] = 1
            at[x] = engine.linear(sums, parts[x, 1])
    numbers = [
        engine.linear(np.arange(len(lattice.sets))[None], engine.stack([*ended[x], at[x]]))
        for x, lattice in lattices.items()
    ]
    bits = [_bits(len(lattice.sets)) for lattice in lattices.values()]
    yield from agree_to_open(engine, before_opening)
    where = yield from engine.open(engine.stack(numbers), bits)
    for (x, lattice), number in zip(lattices.items(), where.tolist(), strict=True):
        if number >= len(lattice.sets):
            raise InputError(f"No set of parents of {x!r} was found: a party's share was false.")
    return {
        x: tuple(sorted(lattice.sets[number]))
        for (x, lattice), number in zip(lattices.items(), where.tolist(), strict=True)
    }


def _split(values: Any, sizes: Mapping[Any, int]) -> dict[Any, Any]:
    """Return the consecutive parts of a vector by name."""
    found, end = {}, 0
    for name, size in sizes.items():
        found[name] = values[np.arange(end, end + size)]
        end += size
    return found
