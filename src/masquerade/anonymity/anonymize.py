"""A k-anonymous table with few stars, for tables of any size.

Rows are shown by value, by generalised value or with stars, each row on its own (local recoding). The
search is over patterns: see `lattice` and `local_search`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.board import Board, new_board
from masquerade.anonymity.class_merge import SensitiveColumn, check_whole, merged_levels
from masquerade.anonymity.columns import (
    STAR,
    Column,
    Int64,
    checked,
    coded,
    collapsed,
    in_order,
    listed,
    text_column,
)
from masquerade.anonymity.hierarchy import Hierarchy, as_hierarchies
from masquerade.anonymity.lattice import Kinds, Ladder, finest_nodes, nodes_for
from masquerade.anonymity.local_search import fewest_stars
from masquerade.anonymity.requirements import Closeness, Requirement, cells_of
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable

Words = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Utility:
    """Measures of what was taken away; smaller is better for all of them.

    `suppressed_cells` are stars and `generalised_cells` values shown more coarsely, among `cells` of
    quasi-identifiers. `discernibility` is Σ (rows of a class)². `average_class` is C_avg: the average class
    over k. `loss` is the normalised certainty penalty: 0 for a value as it was, 1 for a star, else the share
    of the column's distinct values that look the same, averaged over all cells.

    >>> found = mq.anonymity.anonymize(mq.data.students(), ["exams", "year"], k=20)
    >>> found.utility.suppressed_cells, found.utility.loss
    (0, 0.0)
    """

    rows: int
    cells: int
    suppressed_cells: int
    generalised_cells: int
    classes: int
    discernibility: int
    average_class: float
    loss: float

    def to_dict(self) -> dict[str, Any]:
        """Return the measures as plain values."""
        return asdict(self)

    @printable
    def summary(self) -> str:
        """Return the measures as text."""
        share = self.suppressed_cells / max(self.cells, 1)
        return (
            f"{self.suppressed_cells:,} of {counted(self.cells, 'cell')} suppressed ({share:.1%}), "
            f"{self.generalised_cells:,} generalised; {counted(self.classes, 'class', 'classes')} of "
            f"{counted(self.rows, 'row')}, "
            f"C_avg = {self.average_class:.2f}, discernibility {self.discernibility:,}, loss {self.loss:.4f}"
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Anonymized(Printed):
    """A k-anonymous table: `frame`, and for every row its class in `groups`.

    `levels` says for every row and quasi-identifier how it is shown: 0 as it was, the column's entry of
    `tops` as a star, in between generalised. `stars` tells the stars, `utility` what was lost, `required` by
    column what classes meet besides.

    >>> found = mq.anonymity.anonymize(mq.data.students(), ["exams", "year", "pills"], k=15)
    >>> found.utility.suppressed_cells, found.stars.shape
    (36, (600, 3))
    """

    frame: Any
    quasi_identifiers: tuple[str, ...]
    k: int
    groups: Int64
    levels: NDArray[np.int8]
    tops: tuple[int, ...]
    utility: Utility
    required: Mapping[str, tuple[Requirement, ...]] = field(default_factory=dict)

    @property
    def stars(self) -> NDArray[np.bool_]:
        """Tell for every row and quasi-identifier whether it is a star."""
        stars: NDArray[np.bool_] = self.levels == np.array(self.tops, dtype=np.int8)
        return stars

    @printable
    def summary(self) -> str:
        """Return what was done, as text."""
        met = [f", {name} {one}" for name, own in self.required.items() for one in own]
        by = ", ".join(self.quasi_identifiers)
        return f"{self.k}-anonymous in {by}{''.join(met)}: {self.utility.summary()}"


def anonymize(
    frame: Any,
    quasi_identifiers: Sequence[str],
    k: int,
    *,
    hierarchies: Mapping[str, Hierarchy] | Mapping[str, Any] | None = None,
    sensitive: Mapping[str, Requirement | Sequence[Requirement]] | None = None,
) -> Anonymized:
    """Return a table in which every combination of quasi-identifiers that is shown occurs at least k times.

    Values are starred, or generalised where `hierarchies` say how (from `load_hierarchies`, or plain values
    as in such a file); every row is kept, in its place, and every other column as it is. A column in which
    anything was changed comes back as text. Missing values are a category of their own.

    `sensitive` says by column what its classes must meet besides: `DistinctDiversity`, `EntropyDiversity`,
    `RecursiveDiversity` or `Closeness`, one or several. Classes that do not are put together with near ones.

    Formula: minimise Σ loss over cells, a star counting 1, subject to classes of at least k rows.
    Cost: O(kinds · Π levels) memory and time, then a search of bounded effort; kinds are distinct rows.
    Error: NP-hard, so a local optimum. On the Adult data it is within 0.5% of a lower bound. Diversity and
    closeness are met greedily.
    Privacy: k-anonymity hides a row among k. It bounds no belief, and what a class has in common is told.

    >>> found = mq.anonymity.anonymize(mq.data.students(), ["exams", "year", "pills"], k=15)
    >>> mq.anonymity.check(found.frame, ["exams", "year", "pills"]).k >= 15
    True
    """
    table = checked(frame, quasi_identifiers, k)
    known = _hierarchies(hierarchies, quasi_identifiers)
    columns = [coded(table[name]) for name in quasi_identifiers]
    rows = len(table)
    if 0 < rows < k:
        raise InputError(
            f"A table of {counted(rows, 'row')} has no classes of {k}: give more rows or a smaller 'k'."
        )
    for column in columns:
        if STAR in column.words:
            raise InputError(
                f"Column {column.name!r} already has the text {STAR!r}, which stands for a suppressed value; "
                "give the table before it was suppressed, or another text."
            )
    told = _sensitive(table, sensitive, quasi_identifiers)
    check_whole(told)
    ladders, words = zip(*(_ladder(column, known.get(column.name)) for column in columns), strict=True)
    distinct, kind, weights = collapsed(np.stack([column.codes for column in columns], axis=1))
    kinds = Kinds(distinct, weights, ladders)
    if rows:
        board = fewest_stars(new_board(kinds, nodes_for(kinds, k), k), k)
        node_of, nodes = _shown(board, kinds, kind)
    else:
        node_of, nodes = np.zeros(0, dtype=np.int64), np.zeros((1, len(columns)), dtype=np.int8)
    levels = nodes[node_of]
    if told and rows:
        groups, _ = _classes(kinds, kind, levels)
        levels = merged_levels(kinds, kind, levels, groups, told)
    changed = [
        text_column(column.name, *_texts(column, ladder, own, levels[:, i]), table)
        for i, (column, ladder, own) in enumerate(zip(columns, ladders, words, strict=True))
        if levels[:, i].any()
    ]
    groups, sizes = _classes(kinds, kind, levels)
    _verify(groups, sizes, k, told)
    return Anonymized(
        table.with_columns(*changed).to_native(),
        tuple(quasi_identifiers),
        k,
        groups,
        levels,
        kinds.root,
        _utility(kinds, kind, levels, sizes, k),
        {column.name: column.required for column in told},
    )


def _hierarchies(given: Any, quasi_identifiers: Sequence[str]) -> dict[str, Hierarchy]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(
            "'hierarchies' come from load_hierarchies(path), or are plain values as in such a file."
        )
    plain = not all(isinstance(own, Hierarchy) for own in given.values())
    known = as_hierarchies(given) if plain else dict(given)
    for name in known:
        if name not in quasi_identifiers:
            raise InputError(
                f"There is a hierarchy for {name!r}, which is no quasi-identifier."
                f"{did_you_mean(name, quasi_identifiers)}"
            )
    return known


def _ladder(column: Column, hierarchy: Hierarchy | None) -> tuple[Ladder, list[Words]]:
    """Return the levels of a column as codes and as words, the star left out of the words."""
    if hierarchy is None:
        return Ladder.build(len(column.values)), [column.words]
    rows = np.zeros(len(column.values), dtype=np.int64)
    rows[column.codes[::-1]] = np.arange(len(column.codes), 0, -1)  # first row of every value, from 1
    found = hierarchy.words(column.name, column.values, lambda place: int(rows[place]))
    codes: list[Int64] = []
    names: list[Words] = [column.words]
    for number, level in enumerate(found, start=1):
        distinct = sorted({word for word in level if word is not None})
        place = {word: i for i, word in enumerate([*distinct, *([None] if None in level else [])])}
        own = np.array([place[word] for word in level], dtype=np.int64)
        if (
            codes
            and len(set(zip(codes[-1].tolist(), own.tolist(), strict=True))) > codes[-1].max(initial=-1) + 1
        ):
            raise InputError(
                f"column {column.name!r}: level {number} of its hierarchy is no coarser than the one below."
            )
        codes.append(own)
        names.append(tuple(place))
    return Ladder.build(len(column.values), codes), names


def _shown(board: Board, kinds: Kinds, kind: Int64) -> tuple[Int64, NDArray[np.int8]]:
    """Return the group of every row, and the node of every group, made as fine as its rows allow."""
    used = np.flatnonzero(board.shown)
    groups = np.unique(board.pattern[used], return_inverse=True)[1]
    nodes = finest_nodes(kinds, board.kind[used].astype(np.int64), groups)
    # entries come kind by kind, as do the rows in this order: which of several equal rows goes where is
    # decided by their place in the table alone
    node_of = np.empty(len(kind), dtype=np.int64)
    node_of[np.argsort(kind, kind="stable")] = np.repeat(groups, board.shown[used])
    return node_of, nodes


def _texts(
    column: Column, ladder: Ladder, words: Sequence[Words], levels: NDArray[np.int8]
) -> tuple[list[str | None], Int64]:
    """Return all words in which a column may be shown, and the place of every row's among them."""
    table = [own[code] for level, own in enumerate(words) for code in ladder.codes[level]]
    places = np.minimum(levels.astype(np.int64) * len(column.values) + column.codes, len(table))
    return [*table, STAR], places


def _sensitive(
    table: nw.DataFrame[Any], given: Mapping[str, Any] | None, quasi_identifiers: Sequence[str]
) -> list[SensitiveColumn]:
    """Return the columns of which something is required."""
    if not given:
        return []
    if not isinstance(given, Mapping):
        raise InputError("'sensitive' maps the names of columns to what their classes must meet.")
    listed(table.to_native(), list(given), "sensitive")
    found = []
    for name, own in given.items():
        required = tuple(own) if isinstance(own, (list, tuple)) else (own,)
        if name in quasi_identifiers:
            raise InputError(f"Column {name!r} is a quasi-identifier; it cannot be sensitive as well.")
        if not required or not all(isinstance(one, Requirement) for one in required):
            raise InputError(
                f"column {name!r}: give DistinctDiversity, EntropyDiversity, RecursiveDiversity or Closeness."
            )
        column = coded(table[name])
        ordered = any(isinstance(one, Closeness) and one.ordered for one in required)
        if ordered and not in_order(table[name], column):
            raise InputError(
                f"column {name!r}: only numbers, dates or truth values without missing ones have an order; "
                "give a Closeness that is not 'ordered'."
            )
        overall = np.bincount(column.codes, minlength=len(column.values)) / max(len(column.codes), 1)
        found.append(SensitiveColumn(name, column.codes, overall, required))
    return found


def _classes(kinds: Kinds, kind: Int64, levels: NDArray[np.int8]) -> tuple[Int64, Int64]:
    """Return the class of every row (rows that look alike), and how many rows each has."""
    shown = []
    for place, ladder in enumerate(kinds.ladders):
        own = levels[:, place]
        shown.append(np.stack(ladder.codes)[own, kinds.codes[kind, place]] * (ladder.top + 1) + own)
    _, groups, sizes = collapsed(np.stack(shown, axis=1))
    return groups, sizes


def _verify(groups: Int64, sizes: Int64, k: int, told: Sequence[SensitiveColumn]) -> None:
    """Return nothing that is not what was asked for."""
    if len(sizes) and sizes.min() < k:
        raise RuntimeError("A class is smaller than k: this is a bug; nothing is returned.")
    for column in told if len(sizes) else ():
        cells = cells_of(groups, column.codes, sizes, column.overall)
        if not all(required.met(cells).all() for required in column.required):
            raise RuntimeError("A class does not meet what is required: this is a bug; nothing is returned.")


def _utility(kinds: Kinds, kind: Int64, levels: NDArray[np.int8], sizes: Int64, k: int) -> Utility:
    """Return what was lost."""
    rows, columns = levels.shape
    loss = sum(
        float(np.stack(ladder.loss)[levels[:, place], kinds.codes[kind, place]].sum())
        for place, ladder in enumerate(kinds.ladders)
    )
    stars = int((levels == np.array(kinds.root, dtype=np.int8)).sum())
    return Utility(
        rows=rows,
        cells=rows * columns,
        suppressed_cells=stars,
        generalised_cells=int((levels > 0).sum()) - stars,
        classes=len(sizes),
        discernibility=int((sizes.astype(object) ** 2).sum()) if len(sizes) else 0,
        average_class=rows / len(sizes) / k if len(sizes) else 0.0,
        loss=loss / max(rows * columns, 1),
    )
