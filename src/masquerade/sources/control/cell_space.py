"""Cells of cross-classifications as vectors: which sums of cells are which, over every possible combination.

A cell is a product of conditions on variables, and so is its indicator. Each variable's indicators are
written with its first category left out, 1[v = first] = 1 − Σ 1[v = c]: products of these (monomials) are a
basis of all functions of a record (Möbius), and a cell of a few variables has a few of them, however many
variables there are. Combinations that cannot occur are taken out by making one factor of the variables that
they connect, whose categories are the combinations that can.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.schema import Category, Schema

Codes = frozenset[int]
Selection = Mapping[str, Codes]
Monomial = tuple[tuple[int, int], ...]
MOST_COMBINATIONS = 4096  # of the variables that impossible cells connect


@dataclass(frozen=True, slots=True)
class _Factor:
    """Variables that are independent of all others, and the combinations of them that can occur."""

    names: tuple[str, ...]
    combinations: tuple[tuple[int, ...], ...]

    def allowed(self, selection: Selection) -> Codes:
        """Return which combinations satisfy a selection."""
        conditions = [(place, selection[name]) for place, name in enumerate(self.names) if name in selection]
        return frozenset(
            code
            for code, values in enumerate(self.combinations)
            if all(values[place] in codes for place, codes in conditions)
        )


class CellSpace:
    """The functions of a record of some schema; `impossible` are cells that are known never to occur."""

    def __init__(self, schema: Schema, impossible: Sequence[Mapping[str, Category]] = ()) -> None:
        self.schema = schema
        barred = [{name: schema[name].code(label) for name, label in cell.items()} for cell in impossible]
        if not all(barred):
            raise InputError("A cell that cannot occur names at least one variable and its category.")
        self._factors = tuple(self._factor(names, barred) for names in _connected(schema, barred))
        self._factor_of = {name: place for place, it in enumerate(self._factors) for name in it.names}
        self._constant = frozenset(
            name
            for factor in self._factors
            for name, values in zip(factor.names, zip(*factor.combinations, strict=True), strict=True)
            if len(set(values)) == 1
        )

    def _factor(self, names: tuple[str, ...], barred: Sequence[Mapping[str, int]]) -> _Factor:
        sizes = self.schema.shape(names)
        if prod(sizes) > MOST_COMBINATIONS:
            raise InputError(
                f"Cells that cannot occur connect {', '.join(names)}, with {prod(sizes):,} combinations; at "
                f"most {MOST_COMBINATIONS:,} can be told apart. Name fewer such cells."
            )
        cells = [cell for cell in barred if set(cell) <= set(names)]
        possible = tuple(
            values
            for values in product(*map(range, sizes))
            if not any(
                all(values[names.index(name)] == code for name, code in cell.items()) for cell in cells
            )
        )
        if not possible:
            raise InputError(f"Of {', '.join(names)} no combination at all could occur.")
        return _Factor(names, possible)

    def closure(self, names: Collection[str]) -> frozenset[str]:
        """Return the variables of all cells that a sum over cells of these can depend on.

        Those that impossible cells connect with them are among them, and those that have but one value.
        """
        connected = (self._factors[self._factor_of[name]].names for name in names)
        return self._constant.union(*connected)

    def possible(self, selection: Selection) -> bool:
        """Tell whether any combination satisfies a selection."""
        return all(self._factors[place].allowed(selection) for place in self._touched(selection))

    def vector(self, selection: Selection) -> dict[Monomial, int]:
        """Return the indicator of those whose value of every variable is among the codes selected."""
        terms: dict[Monomial, int] = {(): 1}
        for place in self._touched(selection):
            factor = self._factors[place]
            allowed = factor.allowed(selection)
            every = range(len(factor.combinations))
            parts: dict[Monomial, int]
            if 0 in allowed:
                parts = {(): 1, **{((place, code),): -1 for code in every if code not in allowed}}
            else:
                parts = {((place, code),): 1 for code in sorted(allowed)}
            terms = {
                (*left, *right): a * b for left, a in terms.items() for right, b in parts.items() if a * b
            }
        return terms

    def union(self, selections: Sequence[Selection]) -> dict[Monomial, int]:
        """Return the indicator of those who satisfy at least one selection, by inclusion and exclusion."""
        found: dict[Monomial, int] = {}
        for size in range(1, len(selections) + 1):
            for some in combinations(selections, size):
                both: dict[str, Codes] = {}
                for selection in some:
                    for name, codes in selection.items():
                        both[name] = both.get(name, codes) & codes
                for monomial, value in self.vector(both).items():
                    found[monomial] = found.get(monomial, 0) + (-1) ** (size + 1) * value
        return {monomial: value for monomial, value in found.items() if value}

    def answered(self, query: Query) -> Iterator[dict[Monomial, int]]:
        """Yield vectors that span the cells of a question.

        Of a variable that it counts by, its cells but the first and all of them together are the same.
        """
        where = {name: frozenset({self.schema[name].code(label)}) for name, label in query.where}
        if not self.possible(where):
            return
        choices = [[None, *range(1, len(self.schema[name]))] for name in query.by]
        for codes in product(*choices):
            chosen = zip(query.by, codes, strict=True)
            by = {name: frozenset({code}) for name, code in chosen if code is not None}
            vector = self.vector({**where, **by})
            if vector:
                yield vector

    def cells(self, names: Sequence[str]) -> Iterator[Selection]:
        """Yield the cells of a table that can occur."""
        for codes in product(*map(range, self.schema.shape(names))):
            cell = {name: frozenset({code}) for name, code in zip(names, codes, strict=True)}
            if self.possible(cell):
                yield cell

    def _touched(self, selection: Selection) -> list[int]:
        return sorted({self._factor_of[name] for name in selection})


def _connected(schema: Schema, barred: Sequence[Mapping[str, int]]) -> list[tuple[str, ...]]:
    """Return groups of variables such that no impossible cell names variables of two of them."""
    groups: list[set[str]] = [{name} for name in schema]
    for cell in barred:
        joined = [group for group in groups if not group.isdisjoint(cell)]
        groups = [group for group in groups if group.isdisjoint(cell)] + [set().union(*joined)]
    ordered = [tuple(name for name in schema if name in group) for group in groups]
    return sorted(ordered, key=lambda names: schema.names.index(names[0]))
