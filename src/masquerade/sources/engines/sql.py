"""The few SQL sentences that counting needs, in words that DuckDB, PostgreSQL and Spark share.

A disguised count is a GROUP BY; a conditioned one a GROUP BY over weights. Nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any

import pyarrow as pa

from masquerade.core.schema import Field
from masquerade.frames.label_codes import OUTSIDE, kind_of, labels_of_type, missing_mark
from masquerade.sources.query_plan import Factor

# names of results, unlike any column that somebody would have
COUNT, FIRST, SECOND, THIRD, UNREAD, SET = (
    f"masquerade_{word}" for word in ("count", "first", "second", "third", "unread", "set")
)
WEIGHT, SURVEY = "masquerade_w", "masquerade_v"
RESULTS = (COUNT, FIRST, SECOND, THIRD, UNREAD, SET, WEIGHT, SURVEY)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an engine writes names, texts and numbers, and what it can do."""

    quote: str = '"'
    text_start: str = "'"
    escapes: tuple[tuple[str, str], ...] = (("'", "''"),)
    double: str = "DOUBLE"
    try_cast: str | None = None
    grouping_sets: bool = True
    knows_nan: bool = True
    zoned: str = "TIMESTAMP WITH TIME ZONE"
    substituted: str | None = None  # how a name begins that the engine replaces by a setting, even in quotes

    def problem_of(self, name: str) -> str | None:
        """Return why a column cannot be counted under its name; None if it can."""
        if name.casefold().startswith(RESULTS):
            return "is called as results are"
        if self.substituted is not None and self.substituted in name:
            return f"would be replaced by a setting ({self.substituted}…)"
        return None

    def name(self, name: str) -> str:
        """Return a name in quotes."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def number(self, value: float) -> str:
        """Return a double: a bare decimal would be exact and slow in every engine."""
        return f"CAST({value!r} AS {self.double})"

    def moment(self, value: datetime) -> str:
        """Return a point in time."""
        kind = "TIMESTAMP" if value.tzinfo is None else self.zoned
        return f"CAST('{value.isoformat(sep=' ')}' AS {kind})"

    def label(self, value: object) -> str:
        """Return a label as a literal."""
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if not isinstance(value, str):
            return repr(value)
        for plain, escaped in self.escapes:
            value = value.replace(plain, escaped)
        return f"{self.text_start}{value}'"

    def as_double(self, name: str) -> str:
        """Return a column as doubles."""
        return f"CAST({self.name(name)} AS {self.double})"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: how its values are read, and which type holds them."""

    field: Field
    kind: pa.DataType
    text: bool = False

    @property
    def cut_by_engine(self) -> bool:
        """Tell whether the engine puts numbers into bins: there may be too many to fetch them all."""
        number = kind_of(self.kind) in {"whole", "number"}
        return self.field.edges is not None and number and not self.text


def sum_type(name: str) -> pa.DataType:
    """Return the type of a result of ours."""
    return pa.int64() if name.startswith((COUNT, UNREAD, SET)) else pa.float64()


def grouped(
    dialect: Dialect,
    table: str,
    sets: Sequence[Sequence[str]],
    *,
    only: str = "",
    weights: str | None = None,
    most: int | None = None,
) -> str:
    """Return the counts of every set of columns; a bit per column says which it is missing from.

    With a column of survey weights v, also Σv and Σv². No more than `most` rows are sent.
    """
    names = list(dict.fromkeys(name for columns in sets for name in columns))
    quoted = [dialect.name(name) for name in names]
    chosen = [*quoted, f"COUNT(*) AS {COUNT}"]
    if weights is not None:
        v = dialect.as_double(weights)
        chosen += [f"SUM({v}) AS {FIRST}", f"SUM({v} * {v}) AS {SECOND}"]
    grouping = ""
    if len(sets) > 1:
        # the number of a set: bit i is set where column i is summed out
        bits = (f"{1 << i} * GROUPING({name})" for i, name in enumerate(quoted))
        chosen.append(f"{' + '.join(bits)} AS {SET}")
        grouping = f" GROUP BY GROUPING SETS ({', '.join(_listed(dialect, columns) for columns in sets)})"
    elif names:
        grouping = f" GROUP BY {', '.join(quoted)}"
    limit = "" if most is None else f" LIMIT {most}"
    return f"SELECT {', '.join(chosen)} FROM {table}{only}{grouping}{limit}"


def _listed(dialect: Dialect, columns: Sequence[str]) -> str:
    return f"({', '.join(dialect.name(name) for name in columns)})"


def weighed(
    dialect: Dialect,
    table: str,
    columns: Sequence[str],
    weights: Sequence[str],
    *,
    only: str,
    survey: str | None,
) -> str:
    """Return counts and sums of weights w and w² by the columns; with survey weights v: Σvw, Σ(vw)², Σv²w.

    Records whose weight is NULL hold an unknown value: they are counted apart, never left out in silence.
    """
    quoted = [dialect.name(name) for name in columns]
    inner = [*quoted, *(f"{text} AS {WEIGHT}{i}" for i, text in enumerate(weights))]
    if survey is not None:
        inner.append(f"{dialect.as_double(survey)} AS {SURVEY}")
    chosen = [*quoted, f"COUNT(*) AS {COUNT}"]
    for i in range(len(weights)):
        w = f"{WEIGHT}{i}" if survey is None else f"{SURVEY} * {WEIGHT}{i}"
        chosen += [
            f"SUM({w}) AS {FIRST}{i}",
            f"SUM({w} * {w}) AS {SECOND}{i}",
            f"COUNT(*) - COUNT({w}) AS {UNREAD}{i}",
        ]
        if survey is not None:
            chosen.append(f"SUM({SURVEY} * {SURVEY} * {WEIGHT}{i}) AS {THIRD}{i}")
    source = f"(SELECT {', '.join(inner)} FROM {table}{only}) AS weighed_"
    grouping = f" GROUP BY {', '.join(quoted)}" if quoted else ""
    return f"SELECT {', '.join(chosen)} FROM {source}{grouping}"


def weight(dialect: Dialect, factors: Sequence[Factor], columns: Mapping[str, Column]) -> str:
    """Return the product of looked-up weights; NULL for a value that no category stands for."""
    return " * ".join(_looked_up(dialect, factor, columns) for factor in factors)


def _looked_up(dialect: Dialect, factor: Factor, columns: Mapping[str, Column]) -> str:
    """Return the weight of one factor as a CASE over the labels of its columns."""
    tests = [conditions(dialect, name, columns[name]) for name in factor.columns]
    branches = []
    for codes in product(*(range(size) for size in factor.sizes)):
        place = 0
        for code, size in zip(codes, factor.sizes, strict=True):
            place = place * size + code
        given = [test.get(code) for test, code in zip(tests, codes, strict=True)]
        if all(condition is not None for condition in given):
            joined = " AND ".join(str(condition) for condition in given)
            branches.append(f"WHEN {joined} THEN {dialect.number(float(factor.vector[place]))}")
    return f"CASE {' '.join(branches)} END" if branches else f"CAST(NULL AS {dialect.double})"


def conditions(dialect: Dialect, name: str, column: Column) -> dict[int, str]:
    """Return for every code the condition that a value of the column stands for it."""
    quoted = dialect.name(name)
    if column.cut_by_engine:
        return {code: f"{quoted} = {code}" for code in range(len(column.field.variable))}
    spelled: dict[int, list[Any]] = {}
    for value, code in labels_of_type(column.kind, column.field, text=column.text).items():
        spelled.setdefault(code, []).append(value)
    found = {
        code: f"{quoted} = {dialect.label(values[0])}"
        if len(values) == 1
        else f"{quoted} IN ({', '.join(dialect.label(value) for value in values)})"
        for code, values in spelled.items()
    }
    code = missing_mark(column.field, text=column.text)
    if code < len(column.field.variable):
        hole, known = _is_missing(dialect, name, column.kind), found.get(code)
        found[code] = f"({known} OR {hole})" if known else f"({hole})"
    return found


def _is_missing(dialect: Dialect, name: str, kind: pa.DataType) -> str:
    """Return the condition that a value is missing, as NULL or as what is not a number."""
    quoted = dialect.name(name)
    if not (dialect.knows_nan and pa.types.is_floating(kind)):
        return f"{quoted} IS NULL"
    return f"{quoted} IS NULL OR {quoted} = CAST('NaN' AS {dialect.double})"  # equal to itself in SQL


def with_bins(dialect: Dialect, table: str, names: Sequence[str], columns: Mapping[str, Column]) -> str:
    """Return a table of these columns in which numbers are replaced by the codes of their bins."""
    cut = {name for name in names if name in columns and columns[name].cut_by_engine}
    if not cut:
        return table
    chosen = [
        f"{_bin_code(dialect, name, columns[name])} AS {dialect.name(name)}"
        if name in cut
        else dialect.name(name)
        for name in names
    ]
    return f"(SELECT {', '.join(chosen)} FROM {table}) AS cut_"


def _bin_code(dialect: Dialect, name: str, column: Column) -> str:
    """Return the code of a number's bin [e_k, e_k+1), the last one closed; or a mark past the last code."""
    edges, x = column.field.edges or (), dialect.name(name)
    first, *inner, last = (dialect.number(float(edge)) for edge in edges)
    outside = len(column.field.variable) + OUTSIDE
    recoded = labels_of_type(column.kind, column.field, text=False)
    branches = [
        f"WHEN {_is_missing(dialect, name, column.kind)} THEN {missing_mark(column.field, text=False)}",
        *(f"WHEN {x} = {dialect.label(value)} THEN {mark}" for value, mark in recoded.items()),
        f"WHEN {x} < {first} OR {x} > {last} THEN {outside}",
        *(f"WHEN {x} < {edge} THEN {code}" for code, edge in enumerate(inner)),
    ]
    return f"CASE {' '.join(branches)} ELSE {len(inner)} END"


def checked_weights(dialect: Dialect, table: str, name: str, *, is_text: bool) -> str:
    """Return how many survey weights there are, how many are numbers, the least, and their sum.

    A weight that is not finite shows in the sum; the largest would be looked up without reading any.
    """
    quoted = dialect.name(name)
    v = f"{dialect.try_cast}({quoted} AS {dialect.double})" if is_text else dialect.as_double(name)
    return (
        f"SELECT COUNT(*) AS {COUNT}, COUNT({quoted}) AS {COUNT}_given, COUNT({v}) AS {UNREAD}, "
        f"MIN({v}) AS {FIRST}, SUM({v}) AS {SECOND} FROM {table}"
    )


def persons(dialect: Dialect, table: str, name: str) -> str:
    """Return how many records and how many different persons there are; nobody is one person."""
    quoted = dialect.name(name)
    nobody = f"MAX(CASE WHEN {quoted} IS NULL THEN 1 ELSE 0 END)"
    return (
        f"SELECT COUNT(*) AS {COUNT}, COUNT(DISTINCT {quoted}) AS {FIRST}, {nobody} AS {SECOND} FROM {table}"
    )


def numbered(dialect: Dialect, table: str, column: str, last: str | None) -> str:
    """Return how many rows there are, how many have a number, the highest, and how many up to the last."""
    quoted = dialect.name(column)
    before = "0" if last is None else f"SUM(CASE WHEN {quoted} <= {last} THEN 1 ELSE 0 END)"
    return (
        f"SELECT COUNT(*) AS {COUNT}, COUNT({quoted}) AS {COUNT}_given, {before} AS {COUNT}_before, "
        f"MAX({quoted}) AS {quoted} FROM {table}"
    )


def between(
    dialect: Dialect, table: str, names: Sequence[str], column: str, ends: tuple[str | None, str | None]
) -> str:
    """Return these columns of the rows whose number is above one and at most another; of none, no rows."""
    quoted, (low, high) = dialect.name(column), ends
    met = [f"{quoted} <= {high}" if high is not None else "1 = 0"]
    if low is not None:
        met.append(f"{quoted} > {low}")
    chosen = ", ".join(dialect.name(name) for name in names)
    return f"(SELECT {chosen} FROM {table} WHERE {' AND '.join(met)}) AS numbered_"


def only_code(dialect: Dialect, name: str, column: Column, code: int) -> str:
    """Return the WHERE that keeps the records with one category."""
    return f" WHERE {conditions(dialect, name, column).get(code, '1 = 0')}"


def sampled(dialect: Dialect, table: str, columns: Sequence[str], rows: int, *, only: str) -> str:
    """Return how many different rows the first ones hold, and how many of those occur once."""
    names = ", ".join(dialect.name(name) for name in columns)
    first = f"SELECT {names} FROM {table}{only} LIMIT {rows}"
    sizes = f"SELECT COUNT(*) AS {COUNT} FROM ({first}) AS first_rows_ GROUP BY {names}"
    once = f"SUM(CASE WHEN {COUNT} = 1 THEN 1 ELSE 0 END)"
    return f"SELECT COUNT(*) AS {FIRST}, {once} AS {SECOND}, SUM({COUNT}) AS {COUNT} FROM ({sizes}) AS sizes_"
