"""Rules of inference control that look at the counts: a refusal under them tells something itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, Refusal
from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.sources.control.answer_history import Knowledge
from masquerade.sources.control.cell_bounds import MOST_ATOMS, CellBounds
from masquerade.sources.control.cell_space import Codes, Selection

MOST_SETS = 1 << 18  # of one table: cells, margins, and these with conditions turned into their opposites
Members = Callable[[Selection], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class DataDependentRules:
    """Rules that look at the counts. A refusal under them tells that a set is small: it is not simulatable.

    `least_people` k: no set of fewer than k people is counted, directly or by adding and subtracting answers;
    sets are cells, with or without some conditions turned into their opposites, and all but a cell. Empty
    ones are as small as others unless `show_empty`, or known to be impossible. `most_overlap`: two different
    cells that were answered have at most so many people in common (Dobkin, Jones and Lipton 1979).
    `least_width`: of cells with fewer than k people, answers leave open at least so wide an interval, which
    matters since no count is negative; found by linear programming, over tables of at most 10,000 cells.

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
                    f"{name!r} of rules must be a whole number of at least {least}. Got {value!r} instead."
                )

    def few(self, people: Floats) -> NDArray[np.bool_]:
        """Tell which numbers of people are too small."""
        shown = (people == 0) if self.show_empty else np.zeros(people.shape, dtype=bool)
        return np.asarray((people < self.least_people) & ~shown)


@dataclass(frozen=True, slots=True)
class CountCheck:
    """What the counts say against a question: all that was known `before` it, and all that is with it."""

    before: Knowledge
    known: Knowledge
    rules: DataDependentRules
    counts: Tally

    def refusal(self, query: Query) -> Refusal | None:
        """Return why the question must not be answered, None if it may."""
        return self._small_set(query) or self._overlap(query) or self._narrow(query)

    def _small_set(self, query: Query) -> Refusal | None:
        """Refuse if a set of few people is determined that was not before."""
        known = self.known
        for joined in known.joined:
            names = known.ordered(joined)
            sets = {name: self._sets(name) for name in names}
            if prod(len(it) for it in sets.values()) > MOST_SETS:
                return self._too_large(query, names)
            for place in np.argwhere(self._small(names, sets)):
                chosen = {name: sets[name][at] for name, at in zip(names, place, strict=True) if at}
                if not chosen or not known.space.possible(chosen):
                    continue
                vector = known.space.vector(chosen)
                if known.span.contains(vector) and not self.before.span.contains(vector):
                    reason = (
                        f"{asked(query)} would show, alone or with what was answered before, a set of fewer "
                        f"than {self.rules.least_people} people. Ask with fewer variables or conditions."
                    )
                    return Refusal("too_few_people", reason[0].upper() + reason[1:], query)
        return None

    def _sets(self, name: str) -> list[Codes]:
        """Return what a set can ask of a variable: nothing, one category, or (of three or more) any other."""
        size = len(self.known.space.schema[name])
        whole = frozenset(range(size))
        each = [frozenset({code}) for code in range(size)]
        return [whole, *each, *([whole - one for one in each] if size > 2 else [])]

    def _small(self, names: Sequence[str], sets: dict[str, list[Codes]]) -> NDArray[np.bool_]:
        """Tell which sets, or what is left outside them, are small: all where they cannot be counted here."""
        if not set(names) <= set(self.counts.schema):
            return np.ones([len(sets[name]) for name in names], dtype=bool)
        table = self._exact(Query(by=names))
        for axis, name in enumerate(names):
            categories = range(len(self.known.space.schema[name]))
            sums = np.array([[float(code in codes) for code in categories] for codes in sets[name]])
            table = np.moveaxis(np.tensordot(sums, table, axes=(1, axis)), 0, axis)
        return np.asarray(self.rules.few(table) | self.rules.few(table.flat[0] - table))

    def _overlap(self, query: Query) -> Refusal | None:
        """Refuse if a cell has too many people in common with another one that was answered."""
        most = self.rules.most_overlap
        for other in self.known.queries if most is not None and query.names else ():
            where = dict(other.where)
            apart = any(where.get(name, label) != label for name, label in query.where)
            if apart or not other.names or set(query.names) == set(other.names):
                continue  # cells of the same variables are the same or have nobody in common
            where |= dict(query.where)
            by = [name for name in dict.fromkeys((*query.by, *other.by)) if name not in where]
            if self._exact(Query(by=by, where=where)).max(initial=0.0) > float(most or 0):
                reason = (
                    f"A cell of {asked(query)} has more than {most} people in common with one of "
                    f"{asked(other)}, which was answered before. Ask about other people: a condition that "
                    "keeps the two apart."
                )
                return Refusal("overlap", reason, query)
        return None

    def _narrow(self, query: Query) -> Refusal | None:
        """Refuse if the answers leave too little open about a cell of few people, of whichever variables."""
        known, width = self.known, self.rules.least_width
        if not width:
            return None
        names = known.ordered({name for joined in known.joined for name in joined})
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
                        f"With what was answered before, {asked(query)} would leave open an interval of less "
                        f"than {width} for a cell of fewer than {self.rules.least_people} people. Ask with "
                        "fewer variables or conditions."
                    )
                    return Refusal("too_narrow", reason, query)
        return None

    def _members(self, names: Sequence[str]) -> Members:
        """Return how to tell which atoms of some variables are in a set."""
        shape = self.known.space.schema.shape(names)
        codes = dict(zip(names, np.indices(shape).reshape(len(names), -1), strict=True))

        def members(selection: Selection) -> NDArray[np.bool_]:
            chosen = [np.isin(codes[name], list(allowed)) for name, allowed in selection.items()]
            return np.asarray(np.all([np.ones(prod(shape), dtype=bool), *chosen], axis=0))

        return members

    def _known_cells(self) -> Iterator[Selection]:
        """Yield every cell that was answered, and everybody."""
        schema = self.known.space.schema
        yield {}
        for query in self.known.queries:
            where = {name: frozenset({schema[name].code(label)}) for name, label in query.where}
            for cell in self.known.space.cells(query.by):
                yield {**where, **cell}

    def _exact(self, query: Query) -> Floats:
        (table,) = self.counts.answer([query])
        if np.any(table.covariance.diagonal("given_records")):
            raise InputError(
                "Rules that depend on the data need exact counts; these are of disguised records. Use rules "
                "that do not."
            )
        return np.asarray(table.values)

    def _too_large(self, query: Query, names: Sequence[str]) -> Refusal:
        reason = (
            f"Whether {asked(query)} shows a set of few people cannot be told here: the table of "
            f"{', '.join(names)} is too large, or not all of it is held. Ask with fewer variables."
        )
        return Refusal("too_many_cells", reason, query)


def asked(query: Query) -> str:
    """Return a question in words."""
    by = f"the table of {', '.join(query.by)}" if query.by else "the count"
    conditions = [f"{name} = {label}" for name, label in query.where]
    return by + (f" where {' and '.join(conditions)}" if conditions else "" if query.by else " of everybody")
