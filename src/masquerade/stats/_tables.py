"""Tables that statistics are computed from: queried from a source, or reduced from a larger table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import erfc, sqrt

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.bins import bin_edges
from masquerade.core.errors import InputError, SchemaError
from masquerade.core.query import Query
from masquerade.core.schema import Category, Schema, Variable, is_decimal
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally

Names = str | Iterable[str]
Where = Mapping[str, Category] | None
YES = ("yes", "true", "1", "ja", "oui", "si", "sí", "sì")


def names_of(names: Names) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def schema_of(data: Tally | CountTable) -> Schema:
    """Return the schema of a source or table."""
    if isinstance(data, CountTable):
        return Schema(data.axes)
    if not isinstance(data, Tally):
        raise InputError(
            "Statistics are functions of a source of counts or of a table: give mq.tally(data, policy), or a "
            f"CountTable. Got a {type(data).__name__} instead."
        )
    return data.schema


def table_of(data: Tally | CountTable, names: Sequence[str], where: Where = None) -> CountTable:
    """Return the table over the named variables, in this order, among the records that satisfy `where`."""
    schema = schema_of(data)
    for name in (*names, *(where or {})):
        schema[name]
    if not isinstance(data, CountTable):
        return data.answer([Query(by=names, where=where or {})])[0]
    if data.adjusted is not None:
        raise InputError(
            f"Statistics need the unbiased table; this one was made nonnegative by {data.adjusted!r}. Take "
            "the table before that step."
        )
    chosen = data.select(where) if where else data
    return chosen.marginal(names)


def category_of(variable: Variable, label: Category | None) -> int:
    """Return the code of a category; without a label, the code of the category that means yes."""
    if label is not None:
        return variable.code(label)
    codes = [code for code, category in enumerate(variable.categories) if str(category).lower() in YES]
    if len(codes) != 1 or len(variable) != 2:
        why = "it is not a plain yes/no variable" if codes else "no category means yes"
        raise SchemaError(
            f"Name the category of {variable.name!r} to count (category, or {variable.name}[…] in a "
            f"formula): {why}. It has: {', '.join(map(str, variable.categories))}."
        )
    return codes[0]


def reference_of(variable: Variable, label: Category | None) -> int:
    """Return the code of the reference category: the first unless it is named."""
    return 0 if label is None else variable.code(label)


def scores_of(
    variable: Variable, scores: Mapping[Category, float] | Sequence[float] | None
) -> tuple[Floats, str | None]:
    """Return a number for each category, and a note if midpoints of bins were used.

    Scores are given by category or in order. Without scores, categories that are numbers represent
    themselves, and bins are represented by their midpoints. Missing categories have no number: NaN.
    """
    answers = [variable.categories[code] for code in variable.answered_codes]
    if isinstance(scores, Mapping):
        missing = [str(label) for label in answers if label not in scores]
        if missing:
            raise InputError(f"Scores of {variable.name!r} lack: {', '.join(missing)}.")
        return np.array([float(scores.get(label, np.nan)) for label in variable.categories]), None
    if scores is not None:
        given = np.asarray(scores, dtype=float)
        if given.shape != (len(variable),) or not np.isfinite(given).all():
            raise InputError(
                f"Scores of {variable.name!r} must be {len(variable)} finite numbers, one for each category."
            )
        return given, None
    if all(isinstance(label, (int, bool)) or is_decimal(label) for label in answers):
        numbers = np.full(len(variable), np.nan)
        numbers[list(variable.answered_codes)] = [float(label) for label in answers]
        return numbers, None
    edges = bin_edges(variable)
    if edges is None:
        raise InputError(
            f"Give 'scores' for {variable.name!r}: its categories are not numbers "
            f"({', '.join(map(str, variable.categories[:6]))})."
        )
    low, high = edges
    if np.isinf(low).any() or np.isinf(high).any():
        raise InputError(f"Give 'scores' for {variable.name!r}: its outermost bins are open.")
    return (low + high) / 2, f"{variable.name}: bins are represented by their midpoints."


def normal_p(z: float) -> float:
    """Return the two-sided p-value of a standard normal statistic."""
    return float("nan") if np.isnan(z) else erfc(abs(z) / sqrt(2))


def z_of(value: float, variance: float) -> float:
    """Return a value over its standard error; NaN if the variance is not positive."""
    return float(value / sqrt(variance)) if variance > 0 else float("nan")


def null_variance(table: CountTable, weights: Floats, value: float) -> float:
    """Return the variance of `value` = Σ weights·cells under the hypothesis that its expectation is 0.

    Formula: the estimated variance plus value²/n, because deviations are taken from 0, not from the mean.
    """
    return squared_error(table, weights) + value**2 / max(table.n, 1)


def squared_error(table: CountTable, weights: Floats) -> float:
    """Return the variance of Σ weights·cells, clipped at 0."""
    return max(table.covariance.quadratic(weights), 0.0)
