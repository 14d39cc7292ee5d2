"""Rules of query auditing that depend on the counts. A refusal under them reveals something itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, Refusal
from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.sources.control.answer_history import Knowledge
from masquerade.sources.control.cell_bounds import MOST_ATOMS, CellBounds
from masquerade.sources.control.cell_space import Codes, Monomial, Selection
from masquerade.sources.control.small_sets import MOST_CLASSES, MOST_SEARCHED, small_sets

MOST_SETS = 1 << 18  # most sets of one table: cells, margins, and both with negated conditions
Members = Callable[[Selection], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class DataDependentRules:
    """Rules of query auditing that depend on the counts.

    A refusal under them reveals that a set is small: it is not simulatable.

    Parameters
    ----------
    least_people : int, optional
        No set of fewer people may follow from the answers by adding and subtracting. All sets are considered
        where the variables that answers connect have at most 4,096 cells together. In larger tables sets are
        cells, with or without negated conditions, and complements of cells.
    show_empty : bool, optional
        Allow empty sets to be determined.
    most_overlap : int, optional
        Largest number of people that two different answered cells may have in common (Dobkin, Jones and
        Lipton 1979).
    least_width : int, optional
        Smallest interval that answers must leave open for cells with fewer than `least_people` people. Since
        no count is negative, answers bound cells; bounds are computed by linear programming over tables of at
        most 10,000 cells, margins included.

    Examples
    --------
    >>> rules = mq.Rules(data_dependent=mq.DataDependentRules(least_people=5))
    >>> rules.simulatable
    False
    """

    least_people: int
    show_empty: bool = False
    most_overlap: int | None = None
    least_width: int = 0

    def __post_init__(self) -> None:
        figures = {"least_people": (self.least_people, 1), "least_width": (self.least_width, 0)}
        if self.most_overlap is not None:
            figures["most_overlap"] = (self.most_overlap, 0)
        for name, (value, least) in figures.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(
                    f"{name!r} of rules must be an integer of at least {least}. Got {value!r} instead."
                )

    def few(self, people: Floats) -> NDArray[np.bool_]:
        """Return True for the numbers of people that are too small."""
        shown = (people == 0) if self.show_empty else np.zeros(people.shape, dtype=bool)
        return np.asarray((people < self.least_people) & ~shown)


@dataclass(frozen=True, slots=True)
class CountCheck:
    """Check of a query against the counts.

    `before` is the knowledge without the answer to the query, and `known` the knowledge with it.
    """

    before: Knowledge
    known: Knowledge
    rules: DataDependentRules
    counts: Tally

    def refusal(self, query: Query) -> Refusal | None:
        """Return the reason why the query must not be answered, or None."""
        return self._small_set(query) or self._any_set(query) or self._overlap(query) or self._narrow(query)

    def _small_set(self, query: Query) -> Refusal | None:
        """Return a refusal if a set of few people is newly determined."""
        known = self.known
        for joined in known.joined:
            names = known.sort_names(joined)
            sets = {name: self._sets(name) for name in names}
            if prod(len(it) for it in sets.values()) > MOST_SETS:
                return self._too_large(query, names)
            for place in np.argwhere(self._small(names, sets)):
                chosen = {name: sets[name][at] for name, at in zip(names, place, strict=True) if at}
                if not chosen or not known.space.possible(chosen):
                    continue
                vector = known.space.vector(chosen)
                if self._new(vector):
                    return self._too_few(query)
        return None

    def _any_set(self, query: Query) -> Refusal | None:
        """Return a refusal if a set of few people of any shape is newly determined."""
        knowledge = self.known
        names = knowledge.sort_names(_connected_names(knowledge.joined, knowledge.space.closure(query.names)))
        sizes = knowledge.space.schema.shape(names)
        if not names or prod(sizes) > MOST_SEARCHED or not set(names) <= set(self.counts.schema):
            return None  # cells and their complements were checked
        atoms, members = self._exact(Query(by=names)).ravel(), self._members(names)
        cells = [members(cell) for cell in self._known_cells(set(names))]
        every = [
            {name: frozenset({code}) for name, code in zip(names, codes, strict=True)}
            for codes in product(*map(range, sizes))
        ]
        possible = np.array([knowledge.space.possible(atom) for atom in every])
        if np.unique(np.array(cells)[:, possible], axis=1).shape[1] > MOST_CLASSES:
            return None
        small = small_sets(
            [cell[possible] for cell in cells],
            atoms[possible],
            self.rules.least_people - 1,
            empty=not self.rules.show_empty,
        )
        places = np.flatnonzero(possible)
        for inside in small:
            vector: dict[Monomial, int] = {}
            for place in places[inside]:
                for monomial, value in knowledge.space.vector(every[place]).items():
                    vector[monomial] = vector.get(monomial, 0) + value
            if self._new(vector):
                return self._too_few(query)
        return None

    def _new(self, vector: dict[Monomial, int]) -> bool:
        """Return True if a sum follows from the answers with this query, and not without it."""
        return self.known.span.contains(vector) and not self.before.span.contains(vector)

    def _too_few(self, query: Query) -> Refusal:
        reason = (
            f"{describe_query(query)} would show, alone or with earlier answers, a set of fewer "
            f"than {self.rules.least_people} people. Query fewer variables or conditions."
        )
        return Refusal("too_few_people", reason[0].upper() + reason[1:], query)

    def _sets(self, name: str) -> list[Codes]:
        """Return the possible conditions on a variable: none, one category, or all but one."""
        size = len(self.known.space.schema[name])
        whole = frozenset(range(size))
        each = [frozenset({code}) for code in range(size)]
        return [whole, *each, *([whole - one for one in each] if size > 2 else [])]

    def _small(self, names: Sequence[str], sets: dict[str, list[Codes]]) -> NDArray[np.bool_]:
        """Return True for sets that are small, have a small complement, or cannot be counted."""
        if not set(names) <= set(self.counts.schema):
            return np.ones([len(sets[name]) for name in names], dtype=bool)
        table = self._exact(Query(by=names))
        for axis, name in enumerate(names):
            categories = range(len(self.known.space.schema[name]))
            sums = np.array([[float(code in codes) for code in categories] for codes in sets[name]])
            table = np.moveaxis(np.tensordot(sums, table, axes=(1, axis)), 0, axis)
        return np.asarray(self.rules.few(table) | self.rules.few(table.flat[0] - table))

    def _overlap(self, query: Query) -> Refusal | None:
        """Return a refusal if a cell has too many people in common with another answered cell."""
        most = self.rules.most_overlap
        for other in self.known.queries if most is not None and query.names else ():
            where = dict(other.where)
            apart = any(where.get(name, label) != label for name, label in query.where)
            if apart or not other.names or set(query.names) == set(other.names):
                continue  # cells of the same variables are equal or disjoint
            where |= dict(query.where)
            by = [name for name in dict.fromkeys((*query.by, *other.by)) if name not in where]
            if self._exact(Query(by=by, where=where)).max(initial=0.0) > float(most or 0):
                reason = (
                    f"A cell of {describe_query(query)} has more than {most} people in common with a cell "
                    f"of {describe_query(other)}, which was answered before. Query other people: add a "
                    "condition that makes the two disjoint."
                )
                return Refusal("overlap", reason, query)
        return None

    def _narrow(self, query: Query) -> Refusal | None:
        """Return a refusal if the answers leave too narrow an interval for a cell of few people."""
        known, width = self.known, self.rules.least_width
        if not width:
            return None
        names = known.sort_names({name for joined in known.joined for name in joined})
        sizes = known.space.schema.shape(names)
        if prod(size + 1 for size in sizes) > MOST_ATOMS or not set(names) <= set(self.counts.schema):
            return self._too_large(query, names)
        atoms, members = self._exact(Query(by=names)).ravel(), self._members(names)
        sets = [members(cell) for cell in self._known_cells()]
        barred = ~np.any([members(cell) for cell in known.space.cells(names)], axis=0)
        sets += [barred] if barred.any() else []
        bounds = CellBounds(sets, [float(atoms[it].sum()) for it in sets])
        for size in range(1, len(names) + 1):
            for cell in (cell for some in combinations(names, size) for cell in known.space.cells(some)):
                inside = members(cell)
                people = np.array([atoms[inside].sum()])
                if self.rules.few(people)[0] and bounds.interval(inside).width < width:
                    reason = (
                        f"With earlier answers, {describe_query(query)} would leave open an interval of less "
                        f"than {width} for a cell of fewer than {self.rules.least_people} people. Query "
                        "fewer variables or conditions."
                    )
                    return Refusal("too_narrow", reason, query)
        return None

    def _members(self, names: Sequence[str]) -> Members:
        """Return a function that selects the atoms of a set."""
        shape = self.known.space.schema.shape(names)
        codes = dict(zip(names, np.indices(shape).reshape(len(names), -1), strict=True))

        def members(selection: Selection) -> NDArray[np.bool_]:
            chosen = [np.isin(codes[name], list(allowed)) for name, allowed in selection.items()]
            return np.asarray(np.all([np.ones(prod(shape), dtype=bool), *chosen], axis=0))

        return members

    def _known_cells(self, names: Collection[str] | None = None) -> Iterator[Selection]:
        """Yield every answered cell, of all variables or of some, and the set of all records."""
        schema = self.known.space.schema
        yield {}
        for query in self.known.queries:
            if names is not None and not set(query.names) <= set(names):
                continue
            where = {name: frozenset({schema[name].code(label)}) for name, label in query.where}
            for cell in self.known.space.cells(query.by):
                yield {**where, **cell}

    def _exact(self, query: Query) -> Floats:
        (table,) = self.counts.answer([query])
        if np.any(table.covariance.diagonal("given_records")):
            raise InputError(
                "Rules that depend on the data need exact counts, and these records are disguised. Use rules "
                "without 'data_dependent'."
            )
        return np.asarray(table.values)

    def _too_large(self, query: Query, names: Sequence[str]) -> Refusal:
        reason = (
            f"Whether {describe_query(query)} shows a set of few people cannot be decided: the table of "
            f"{', '.join(names)} is too large, or partly unavailable. Query fewer variables."
        )
        return Refusal("too_many_cells", reason, query)


def _connected_names(joined: Sequence[frozenset[str]], names: Collection[str]) -> frozenset[str]:
    """Return the variables that answers connect with the given ones, directly or through others."""
    reached, waiting = frozenset(names), list(joined)
    while touching := [some for some in waiting if not reached.isdisjoint(some)]:
        reached = reached.union(*touching)
        waiting = [some for some in waiting if some not in touching]
    return reached


def describe_query(query: Query) -> str:
    """Return a query as text."""
    by = f"the table of {', '.join(query.by)}" if query.by else "the count"
    conditions = [f"{name} = {label}" for name, label in query.where]
    return by + (
        f" where {' and '.join(conditions)}" if conditions else "" if query.by else " of all records"
    )
