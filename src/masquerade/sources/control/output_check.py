"""Check of results against disclosure rules before they are published: pass, review or fail.

A table is checked cell by cell, and together with all tables that were published before: a set of few people
may follow from several tables by adding and subtracting, and this is decided from the tables alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from masquerade.channels.rationals import rational
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.sources.control.data_dependent_rules import DataDependentRules
from masquerade.sources.control.inference_control import Rules
from masquerade.sources.control.small_sets import MOST_CLASSES, MOST_SEARCHED, small_sets

PASS, REVIEW, FAIL = "pass", "review", "fail"
DISAGREEMENT = 1e-6  # largest misfit of tables about the same records, as a share of their number
MOST_PLACES = 1 << 24  # most atoms times cells of all tables together
LARGEST = 1e15  # whole numbers up to here are exact
TOO_MANY = "difference: too many cells of all published tables together"
OTHER = "(other)"  # the remaining categories of a variable that only conditions name


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of counts that is to be published."""

    by: tuple[str, ...]
    where: Mapping[str, str]
    n: int | None
    labels: tuple[tuple[str, ...], ...]
    counts: Floats
    contributions: tuple[tuple[Sequence[float], float | None] | None, ...] = ()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PublishedTable:
        """Return a table from its JSON, as `masquerade estimate --json` writes it."""
        by, cells = values.get("by"), values.get("cells")
        where = values.get("where")
        where = {} if where is None else where
        if (
            not isinstance(by, (list, tuple))
            or not all(isinstance(name, str) for name in by)
            or not isinstance(cells, (list, tuple))
            or not cells
            or not isinstance(where, Mapping)
            or not all(_is_cell(cell, by) for cell in cells)
        ):
            raise InputError(
                "A table of an output needs 'by' and 'cells', each with 'labels' and 'count', as masquerade "
                "estimate --json writes them."
            )
        if len(set(by)) < len(by):
            raise InputError("A table of an output must list each variable only once in 'by'.")
        if not all(isinstance(name, str) and _is_label(label) for name, label in where.items()):
            raise InputError("'where' of an output must have one category for each variable.")
        n = values.get("n")
        if n is not None and not (_is_number(n) and n >= 0 and n == int(n)):
            raise InputError("'n' of an output must be the number of records.")
        labels = tuple(tuple(str(cell["labels"][name]) for name in by) for cell in cells)
        if len(set(labels)) < len(labels):
            raise InputError("A table of an output must list each cell only once.")
        counts = np.array([float(cell["count"]) for cell in cells])
        sums = tuple(map(_contributions, cells))
        conditions = {name: str(label) for name, label in where.items()}
        return cls(tuple(by), conditions, None if n is None else int(n), labels, counts, sums)

    @property
    def is_magnitude(self) -> bool:
        """True if cells state contributions to sums."""
        return any(it is not None for it in self.contributions)


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """Result of a check.

    Attributes
    ----------
    status : {"pass", "review", "fail"}
        "review" if a rule could not be evaluated.
    reasons : tuple of str
        Broken rules, or rules that could not be evaluated.
    cells : tuple of tuples
        For each cell of a table, the rules that it breaks: threshold, zero, group, nk, p, dof, parameters,
        categories.
    """

    status: str
    reasons: tuple[str, ...] = ()
    cells: tuple[tuple[str, ...], ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain values."""
        return {
            "status": self.status,
            "reasons": list(self.reasons),
            "cells": [list(it) for it in self.cells],
        }


def check_output(
    output: Mapping[str, Any], rules: Rules, published: Sequence[Mapping[str, Any]] = ()
) -> OutputCheck:
    """Check a result against disclosure rules.

    Parameters
    ----------
    output : mapping
        A table (`by`, `where`, `n`, `cells`), a model (`type: model`, `n`, `parameters`), or an estimate from
        disguised records, which states its `gamma`.
    rules : Rules
        The rules.
    published : sequence of mappings, optional
        Outputs about the same records that were published before.

    Returns
    -------
    OutputCheck

    Raises
    ------
    InputError
        If the output cannot be read.
    """
    if stated_gamma(output) is not None:
        reason = (
            f"estimated from disguised records, gamma {output['gamma']}: thresholds of counts do not apply"
        )
        if _has_whole_counts(output):
            reason = "states a gamma, but its counts are whole numbers, as if counted from clear records"
            return OutputCheck(REVIEW, (reason,))
        return OutputCheck(PASS, (reason,))
    kind = output.get("type", "table")
    if kind == "model":
        return _check_model(output, rules)
    if kind != "table":
        return OutputCheck(REVIEW, (f"no rule is known for outputs of type {kind!r}",))
    table = PublishedTable.from_dict(output)
    cells = [*map(list, _cell_failures(table, rules))]
    for mark in _table_failures(table, rules):
        for marks in cells:
            marks.append(mark)
    reasons = [f"{mark}: {sum(mark in it for it in cells)} cells" for mark in _order(cells)]
    if reasons:
        return OutputCheck(FAIL, tuple(reasons), tuple(map(tuple, cells)))
    return _check_together(table, rules, published)


def stated_gamma(output: Mapping[str, Any]) -> Fraction | None:
    """Return the γ that an estimate from disguised records states; raise InputError if it is below 1."""
    value = output.get("gamma")
    if value is None:
        return None
    gamma = rational(value, "gamma")
    if gamma < 1:
        raise InputError("'gamma' of an output must be at least 1: the γ of its policy.")
    return gamma


def _has_whole_counts(output: Mapping[str, Any]) -> bool:
    cells = output.get("cells")
    counts = [it.get("count") for it in cells if isinstance(it, Mapping)] if isinstance(cells, list) else []
    return bool(counts) and all(map(_is_whole, counts))


def _is_number(value: object) -> bool:
    """Return True for a finite number that fits into floating point."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= LARGEST  # False for NaN


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, float)) and _is_number(value) and value >= 0 and value == round(value)


def _is_label(value: object) -> bool:
    return isinstance(value, (str, bool, int, float))


def _is_cell(cell: object, by: Sequence[str]) -> bool:
    """Return True for a cell with the labels of its variables and no others, which would be conditions."""
    labels = cell.get("labels") if isinstance(cell, Mapping) else None
    if not isinstance(cell, Mapping) or not isinstance(labels, Mapping) or labels.keys() != set(by):
        return False
    return all(map(_is_label, labels.values())) and _is_number(cell.get("count"))


def _contributions(cell: Mapping[str, Any]) -> tuple[Sequence[float], float | None] | None:
    """Return the contributions to a cell's sum and the sum; None if the cell does not state them."""
    if "contributions" not in cell:
        return None
    parts, total = cell["contributions"], cell.get("total")
    if not isinstance(parts, (list, tuple)) or not all(map(_is_number, parts)):
        raise InputError("'contributions' of a cell must be a list of numbers.")
    if total is not None and not _is_number(total):
        raise InputError("'total' of a cell must be a number.")
    return parts, total


def _check_together(
    table: PublishedTable, rules: Rules, published: Sequence[Mapping[str, Any]]
) -> OutputCheck:
    """Check a table whose cells pass: rules that cannot be evaluated, and earlier tables together with it."""
    marks = tuple(() for _ in table.labels)
    unknown = []
    if rules.dominance is not None and table.is_magnitude and None in table.contributions:
        unknown.append("dominance: a cell does not state its contributions")
    if table.n is None and rules.limits_models:
        unknown.append("dof: the table does not state n")
    if np.any(table.counts != np.round(table.counts)) or np.any(table.counts < 0):
        unknown.append(
            "threshold: not whole numbers of 0 or more. An estimate from disguised records states its gamma"
        )
    if rules.data_dependent is not None and not unknown:
        earlier = [
            PublishedTable.from_dict(it)
            for it in published
            if stated_gamma(it) is None and it.get("type", "table") == "table"
        ]
        status, reason = _difference([*earlier, table], rules.data_dependent)
        if status != PASS:
            return OutputCheck(status, (reason,), marks)
    return OutputCheck(REVIEW if unknown else PASS, tuple(unknown), marks)


def _check_model(output: Mapping[str, Any], rules: Rules) -> OutputCheck:
    n: Any = output.get("n")
    parameters: Any = output.get("parameters")
    stated = all(type(value) is int and 0 <= value <= LARGEST for value in (n, parameters))
    if not stated:
        return OutputCheck(REVIEW, ("a model needs n and parameters to be checked",))
    if rules.least_dof is None and rules.most_parameters is None:
        return OutputCheck(REVIEW, ("the rules say nothing about models",))
    problem = rules.model_problem(parameters, n)
    return OutputCheck(PASS) if problem is None else OutputCheck(FAIL, (f"dof: the model has {problem}",))


def _order(cells: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(mark for marks in cells for mark in marks))


def _cell_failures(table: PublishedTable, rules: Rules) -> list[tuple[str, ...]]:
    """Return the rules that each cell breaks by itself."""
    few, result = rules.data_dependent, []
    whole_groups = (
        _whole_group(table) if few is not None and not few.show_empty else np.zeros(len(table.counts), bool)
    )
    for place, count in enumerate(table.counts):
        marks = []
        if few is not None and 0 < count < few.least_people:
            marks.append("threshold")
        if few is not None and count == 0 and not few.show_empty:
            marks.append("zero")
        if whole_groups[place]:
            marks.append("group")
        stated = table.contributions[place] if table.contributions else None
        if rules.dominance is not None and stated is not None:
            parts, total = stated
            if len(parts) < min(rules.dominance.depth, int(count)):
                raise InputError(
                    f"Dominance needs the {rules.dominance.depth} largest contributions of a cell."
                )
            marks += rules.dominance.failures(list(parts), total)
        result.append(tuple(marks))
    return result


def _whole_group(table: PublishedTable) -> NDArray[np.bool_]:
    """Return True for cells that contain a whole group: all people who agree on the other variables."""
    flags = np.zeros(len(table.counts), dtype=bool)
    for axis in range(len(table.by) if len(table.by) > 1 else 0):
        groups: dict[tuple[str, ...], list[int]] = {}
        for place, labels in enumerate(table.labels):
            groups.setdefault(labels[:axis] + labels[axis + 1 :], []).append(place)
        for places in groups.values():
            filled = [place for place in places if table.counts[place] > 0]
            if len(filled) == 1 and len(places) > 1:
                flags[filled[0]] = True
    return flags


def _table_failures(table: PublishedTable, rules: Rules) -> list[str]:
    """Return the rules that a table breaks by its numbers of cells and categories."""
    if table.n is None or not rules.limits_models:
        return []
    result, parameters = [], len(table.counts) - 1
    if rules.least_dof is not None and table.n - parameters < rules.least_dof:
        result.append("dof")
    share_only = Rules(most_variables=1, most_parameters=rules.most_parameters)
    if share_only.model_problem(parameters, table.n) is not None:
        result.append("parameters")
    sizes = [len({labels[axis] for labels in table.labels}) for axis in range(len(table.by))]
    if rules.most_categories is not None and max(sizes, default=0) > rules.most_categories.limit(table.n):
        result.append("categories")
    return result


def _difference(tables: Sequence[PublishedTable], rules: DataDependentRules) -> tuple[str, str]:
    """Return the status of all tables together, and its reason.

    Determined sets have the same size in every table of people that fits the published tables, and any
    such table without negative counts serves to search for small sets.
    """
    categories = _categories(tables)
    if not categories:
        return PASS, ""  # the number of all records
    size = prod(len(it) for it in categories.values())
    if size > MOST_SEARCHED or size * sum(len(it.counts) + 1 for it in tables) > MOST_PLACES:
        return REVIEW, TOO_MANY
    atoms = np.array(list(product(*categories.values())), dtype=object).reshape(-1, len(categories))
    columns = dict(zip(categories, atoms.T, strict=True))
    cells: list[NDArray[np.bool_]] = []
    sizes: list[float] = []
    for table in tables:
        selected = _members(columns, table.where, len(atoms))
        if table.n is not None:
            cells.append(np.ones(len(atoms), dtype=bool))
            sizes.append(float(table.n))
        for labels, count in zip(table.labels, table.counts, strict=True):
            cells.append(selected & _members(columns, dict(zip(table.by, labels, strict=True)), len(atoms)))
            sizes.append(float(count))
    classes, members = np.unique(np.array(cells), axis=1, return_inverse=True)
    if classes.shape[1] > MOST_CLASSES:
        return REVIEW, TOO_MANY
    people, misfit = nnls(classes.astype(float), np.array(sizes))
    if misfit > DISAGREEMENT * max(1.0, *sizes):
        return REVIEW, "difference: the published tables do not fit together, as if about different records"
    inverse = members.reshape(-1)
    spread = people[inverse] / np.bincount(inverse, minlength=classes.shape[1])[inverse]
    result = next(small_sets(cells, spread, rules.least_people - 1, empty=not rules.show_empty), None)
    if result is None:
        return PASS, ""
    least = rules.least_people
    return FAIL, f"difference: the published tables together show a set of fewer than {least} people"


def _categories(tables: Sequence[PublishedTable]) -> dict[str, list[str]]:
    """Return the categories of all variables of tables, plus `OTHER` where only conditions name some."""
    result: dict[str, dict[str, None]] = {}
    for table in tables:
        for axis, name in enumerate(table.by):
            result.setdefault(name, {}).update(dict.fromkeys(it[axis] for it in table.labels))
        for name, label in table.where.items():
            result.setdefault(name, {}).update({label: None})
    counted = {name for table in tables for name in table.by}
    return {name: [*labels, *([] if name in counted else [OTHER])] for name, labels in result.items()}


def _members(columns: Mapping[str, NDArray[Any]], where: Mapping[str, str], count: int) -> NDArray[np.bool_]:
    """Return True for the atoms that satisfy conditions."""
    chosen = [columns[name] == label for name, label in where.items()]
    return np.asarray(np.all([np.ones(count, dtype=bool), *chosen], axis=0))
