"""k-anonymous tables with little suppression, for tables of any size.

Each cell is shown as its value, as a generalised value or as a star (suppressed), and rows are recoded
independently of each other (local recoding). For the search, see `lattice`, `board` and `local_search`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from masquerade.anonymity.board import Board, new_board
from masquerade.anonymity.class_merge import SensitiveColumn, check_whole, merge_classes
from masquerade.anonymity.columns import (
    STAR,
    CodedColumn,
    Int64,
    distinct_rows,
    encode_column,
    has_distances,
    require_columns,
    require_quasi_identifiers,
    text_column,
)
from masquerade.anonymity.hierarchy import Hierarchy, as_hierarchies
from masquerade.anonymity.lattice import Kinds, Ladder, finest_nodes, nodes_for
from masquerade.anonymity.local_search import fewest_stars
from masquerade.anonymity.requirements import Closeness, Requirement, count_cells
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable

Words = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Utility:
    """Measures of information loss; smaller is better for all of them.

    Attributes
    ----------
    rows : int
        Rows of the table.
    cells : int
        Cells of quasi-identifiers.
    suppressed_cells : int
        Cells shown as a star.
    generalised_cells : int
        Cells shown as a coarser value.
    classes : int
        Number of classes: sets of rows that look the same.
    discernibility : int
        Σ (rows of a class)².
    average_class : float
        C_avg, the average number of rows in a class divided by k.
    loss : float
        Normalised certainty penalty, averaged over all cells: 0 for an unchanged value, 1 for a star, and for
        a generalised value the share of the column's distinct values that it represents.

    Examples
    --------
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
    """A k-anonymous table.

    Attributes
    ----------
    frame : DataFrame
        The table, of the caller's frame type.
    quasi_identifiers : tuple of str
        Columns in which the table is k-anonymous.
    k : int
        Minimum number of rows in a class.
    groups : ndarray of int
        Class of every row.
    levels : ndarray of int
        Level of every row and quasi-identifier: 0 for the value itself, the column's entry in `tops` for a
        star, and levels in between for generalised values.
    tops : tuple of int
        Level at which a cell is a star, for every quasi-identifier.
    utility : Utility
        Information lost.
    required : dict
        Requirements on sensitive columns, by column; the classes meet them.

    Examples
    --------
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
        """Return an array over rows and quasi-identifiers, True for every cell that is a star."""
        stars: NDArray[np.bool_] = self.levels == np.array(self.tops, dtype=np.int8)
        return stars

    @printable
    def summary(self) -> str:
        """Return the requirements met and the information lost, as text."""
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
    """Return a table in which each combination of quasi-identifiers occurs k times or more.

    Values are suppressed (shown as a star), or generalised if a hierarchy is given. All rows stay in their
    order, and all other columns are unchanged. A column in which a value was changed is returned as text.
    Missing values form a category of their own.

    Parameters
    ----------
    frame : DataFrame
        Table to anonymize: pandas, Polars or PyArrow.
    quasi_identifiers : sequence of str
        Columns by which a person could be recognised.
    k : int
        Minimum number of rows in a class.
    hierarchies : mapping of str to Hierarchy, optional
        Levels of generalisation by column, from `load_hierarchies`, or the plain values of such a file.
        Values of a column without a hierarchy can only be suppressed.
    sensitive : mapping of str to requirement, optional
        One or several of `DistinctDiversity`, `EntropyDiversity`, `RecursiveDiversity` and `Closeness` by
        sensitive column. A class that does not meet them is merged with similar classes.

    Returns
    -------
    Anonymized
        The table, its classes and the information lost.

    Raises
    ------
    InputError
        If a column is unknown, a value is missing from its hierarchy, the table has fewer than `k` rows, or
        the table as a whole does not meet a requirement.

    Notes
    -----
    Formula: minimise Σ loss over cells, a star counting 1, subject to classes of at least k rows.
    Cost: O(distinct rows · Π levels) memory and time, then a search of bounded effort.
    Error: the problem is NP-hard, so the result is a local optimum; for the Adult data it is within 0.5% of a
    lower bound. Classes are merged greedily for diversity and closeness.
    Privacy: k-anonymity hides a row among k. It does not bound an attacker's belief: a sensitive value that
    all rows of a class share is revealed.

    Examples
    --------
    >>> found = mq.anonymity.anonymize(mq.data.students(), ["exams", "year", "pills"], k=15)
    >>> mq.anonymity.check(found.frame, ["exams", "year", "pills"]).k >= 15
    True
    """
    table = require_quasi_identifiers(frame, quasi_identifiers, k)
    known = _hierarchies(hierarchies, quasi_identifiers)
    columns = [encode_column(table[name]) for name in quasi_identifiers]
    rows = len(table)
    if 0 < rows < k:
        raise InputError(
            f"A table of {counted(rows, 'row')} has no classes of {k}: give more rows or a smaller 'k'."
        )
    for column in columns:
        if STAR in column.texts:
            raise InputError(
                f"Column {column.name!r} already has the text {STAR!r}, which represents a suppressed value; "
                "give the table before it was suppressed, or replace that text."
            )
    required_columns = _sensitive(table, sensitive, quasi_identifiers)
    check_whole(required_columns)
    ladders, words = zip(*(_ladder(column, known.get(column.name)) for column in columns), strict=True)
    distinct, kind, weights = distinct_rows(np.stack([column.codes for column in columns], axis=1))
    kinds = Kinds(distinct, weights, ladders)
    if rows:
        board = fewest_stars(new_board(kinds, nodes_for(kinds, k), k), k)
        node_of, nodes = _finest_groups(board, kinds, kind)
    else:
        node_of, nodes = np.zeros(0, dtype=np.int64), np.zeros((1, len(columns)), dtype=np.int8)
    levels = nodes[node_of]
    if required_columns and rows:
        groups, _ = _classes(kinds, kind, levels)
        levels = merge_classes(kinds, kind, levels, groups, required_columns)
    changed = [
        text_column(column.name, *_texts(column, ladder, own, levels[:, i]), table)
        for i, (column, ladder, own) in enumerate(zip(columns, ladders, words, strict=True))
        if levels[:, i].any()
    ]
    groups, sizes = _classes(kinds, kind, levels)
    _verify(groups, sizes, k, required_columns)
    return Anonymized(
        table.with_columns(*changed).to_native(),
        tuple(quasi_identifiers),
        k,
        groups,
        levels,
        kinds.root,
        _utility(kinds, kind, levels, sizes, k),
        {column.name: column.required for column in required_columns},
    )


def _hierarchies(given: Any, quasi_identifiers: Sequence[str]) -> dict[str, Hierarchy]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(
            "'hierarchies' must come from load_hierarchies(path), or be plain values as in such a file."
        )
    plain = not all(isinstance(own, Hierarchy) for own in given.values())
    known = as_hierarchies(given) if plain else dict(given)
    for name in known:
        if name not in quasi_identifiers:
            raise InputError(
                f"There is a hierarchy for {name!r}, which is not a quasi-identifier."
                f"{did_you_mean(name, quasi_identifiers)}"
            )
    return known


def _ladder(column: CodedColumn, hierarchy: Hierarchy | None) -> tuple[Ladder, list[Words]]:
    """Return the levels of a column as codes and as texts; the texts omit the star."""
    if hierarchy is None:
        return Ladder.build(len(column.values)), [column.texts]
    rows = np.zeros(len(column.values), dtype=np.int64)
    rows[column.codes[::-1]] = np.arange(len(column.codes), 0, -1)  # first row of every value, from 1
    texts_by_level = hierarchy.generalise(column.name, column.values, lambda place: int(rows[place]))
    codes: list[Int64] = []
    names: list[Words] = [column.texts]
    for number, level in enumerate(texts_by_level, start=1):
        distinct = sorted({word for word in level if word is not None})
        place = {word: i for i, word in enumerate([*distinct, *([None] if None in level else [])])}
        own = np.array([place[word] for word in level], dtype=np.int64)
        if (
            codes
            and len(set(zip(codes[-1].tolist(), own.tolist(), strict=True))) > codes[-1].max(initial=-1) + 1
        ):
            raise InputError(
                f"column {column.name!r}: level {number} is not coarser than level {number - 1}."
            )
        codes.append(own)
        names.append(tuple(place))
    return Ladder.build(len(column.values), codes), names


def _finest_groups(board: Board, kinds: Kinds, kind: Int64) -> tuple[Int64, NDArray[np.int8]]:
    """Return the group of every row, and the finest node at which the rows of each group agree."""
    used = np.flatnonzero(board.shown)
    groups = np.unique(board.pattern[used], return_inverse=True)[1]
    nodes = finest_nodes(kinds, board.kind[used].astype(np.int64), groups)
    # Entries are sorted by kind, and so are the rows here. Equal rows may belong to different groups: their
    # order in the table decides which of them gets which group.
    node_of = np.empty(len(kind), dtype=np.int64)
    node_of[np.argsort(kind, kind="stable")] = np.repeat(groups, board.shown[used])
    return node_of, nodes


def _texts(
    column: CodedColumn, ladder: Ladder, words: Sequence[Words], levels: NDArray[np.int8]
) -> tuple[list[str | None], Int64]:
    """Return all texts that a column may show, and the index of every row's text."""
    table = [own[code] for level, own in enumerate(words) for code in ladder.codes[level]]
    places = np.minimum(levels.astype(np.int64) * len(column.values) + column.codes, len(table))
    return [*table, STAR], places


def _sensitive(
    table: nw.DataFrame[Any], given: Mapping[str, Any] | None, quasi_identifiers: Sequence[str]
) -> list[SensitiveColumn]:
    """Return the columns that have requirements."""
    if not given:
        return []
    if not isinstance(given, Mapping):
        raise InputError("'sensitive' must map the names of columns to requirements of their classes.")
    require_columns(table.to_native(), list(given), "sensitive")
    found = []
    for name, own in given.items():
        required = tuple(own) if isinstance(own, (list, tuple)) else (own,)
        if name in quasi_identifiers:
            raise InputError(f"Column {name!r} is a quasi-identifier; it cannot be sensitive as well.")
        if not required or not all(isinstance(one, Requirement) for one in required):
            raise InputError(
                f"column {name!r}: give DistinctDiversity, EntropyDiversity, RecursiveDiversity or Closeness."
            )
        column = encode_column(table[name])
        ordered = any(isinstance(one, Closeness) and one.ordered for one in required)
        if ordered and not has_distances(table[name], column):
            raise InputError(
                f"column {name!r}: only numbers, dates or booleans without missing values have an order; "
                "give a Closeness that is not 'ordered'."
            )
        overall = np.bincount(column.codes, minlength=len(column.values)) / max(len(column.codes), 1)
        found.append(SensitiveColumn(name, column.codes, overall, required))
    return found


def _classes(kinds: Kinds, kind: Int64, levels: NDArray[np.int8]) -> tuple[Int64, Int64]:
    """Return the class of every row (rows that look the same) and the number of rows of each class."""
    shown = []
    for place, ladder in enumerate(kinds.ladders):
        own = levels[:, place]
        shown.append(np.stack(ladder.codes)[own, kinds.codes[kind, place]] * (ladder.top + 1) + own)
    _, groups, sizes = distinct_rows(np.stack(shown, axis=1))
    return groups, sizes


def _verify(groups: Int64, sizes: Int64, k: int, required_columns: Sequence[SensitiveColumn]) -> None:
    """Raise RuntimeError if a class does not meet the requirements, so that a bug cannot release data."""
    if len(sizes) and sizes.min() < k:
        raise RuntimeError("A class is smaller than k: this is a bug; nothing is returned.")
    for column in required_columns if len(sizes) else ():
        cells = count_cells(groups, column.codes, sizes, column.overall)
        if not all(required.holds_for(cells).all() for required in column.required):
            raise RuntimeError("A class does not meet its requirements: this is a bug; nothing is returned.")


def _utility(kinds: Kinds, kind: Int64, levels: NDArray[np.int8], sizes: Int64, k: int) -> Utility:
    """Return the measures of information loss."""
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
