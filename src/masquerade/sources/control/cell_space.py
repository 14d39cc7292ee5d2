"""Cells of cross-classifications as vectors, which decide whether a sum of cells follows from others.

A cell is a product of conditions on variables, and so is its indicator. Each variable's indicators are
written without its first category, 1[v = first] = 1 − Σ 1[v = c]. Products of these (monomials) are a basis
of all functions of a record (Möbius), and a cell of a few variables has few of them, however many variables
there are. Impossible combinations are removed by merging the variables that they connect into one factor,
whose categories are the possible combinations.
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
MOST_COMBINATIONS = 4096  # most combinations of the variables that impossible cells connect


@dataclass(frozen=True, slots=True)
class _Factor:
    """Variables that are independent of all others, and their possible combinations."""

    names: tuple[str, ...]
    combinations: tuple[tuple[int, ...], ...]

    def allowed_codes(self, selection: Selection) -> Codes:
        """Return the combinations that satisfy a selection."""
        conditions = [(place, selection[name]) for place, name in enumerate(self.names) if name in selection]
        return frozenset(
            code
            for code, values in enumerate(self.combinations)
            if all(values[place] in codes for place, codes in conditions)
        )


class CellSpace:
    """The functions of a record of a schema. `impossible` are cells that never occur."""

    def __init__(self, schema: Schema, impossible: Sequence[Mapping[str, Category]] = ()) -> None:
        self.schema = schema
        barred = [{name: schema[name].code(label) for name, label in cell.items()} for cell in impossible]
        if not all(barred):
            raise InputError("An impossible cell must name at least one variable and its category.")
        self._factors = tuple(self._factor(names, barred) for names in _connected_groups(schema, barred))
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
                f"Impossible cells connect {', '.join(names)}, with {prod(sizes):,} combinations, more than "
                f"{MOST_COMBINATIONS:,}. Name fewer such cells."
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
            raise InputError(f"All combinations of {', '.join(names)} would be impossible.")
        return _Factor(names, possible)

    def closure(self, names: Collection[str]) -> frozenset[str]:
        """Return the variables of all cells that a sum over cells of these variables can depend on.

        These include the variables that impossible cells connect with the given ones, and all variables with
        a single value.
        """
        connected = (self._factors[self._factor_of[name]].names for name in names)
        return self._constant.union(*connected)

    def possible(self, selection: Selection) -> bool:
        """Return True if some combination satisfies a selection."""
        return all(
            self._factors[place].allowed_codes(selection) for place in self._touched_factors(selection)
        )

    def vector(self, selection: Selection) -> dict[Monomial, int]:
        """Return the indicator of the records whose values are among the selected codes of every variable."""
        terms: dict[Monomial, int] = {(): 1}
        for place in self._touched_factors(selection):
            factor = self._factors[place]
            allowed = factor.allowed_codes(selection)
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
        """Return the indicator of the records that satisfy at least one selection, by inclusion–exclusion."""
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

    def query_vectors(self, query: Query) -> Iterator[dict[Monomial, int]]:
        """Yield vectors that span the cells of a query.

        For a grouping variable, all cells but the first, together with the total, span the same space.
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
        """Yield the possible cells of a table."""
        for codes in product(*map(range, self.schema.shape(names))):
            cell = {name: frozenset({code}) for name, code in zip(names, codes, strict=True)}
            if self.possible(cell):
                yield cell

    def _touched_factors(self, selection: Selection) -> list[int]:
        return sorted({self._factor_of[name] for name in selection})


def _connected_groups(schema: Schema, barred: Sequence[Mapping[str, int]]) -> list[tuple[str, ...]]:
    """Return groups of variables such that no impossible cell names variables of two groups."""
    groups: list[set[str]] = [{name} for name in schema]
    for cell in barred:
        joined = [group for group in groups if not group.isdisjoint(cell)]
        groups = [group for group in groups if group.isdisjoint(cell)] + [set().union(*joined)]
    ordered = [tuple(name for name in schema if name in group) for group in groups]
    return sorted(ordered, key=lambda names: schema.names.index(names[0]))
