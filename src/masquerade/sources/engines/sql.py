"""SQL statements for counting, in the subset that DuckDB, PostgreSQL and Spark share.

Counts of reports are a GROUP BY; counts under a condition on a disguised variable are a GROUP BY with sums of
weights. This module only writes SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any

import pyarrow as pa

from masquerade.core.errors import InputError
from masquerade.core.schema import Field
from masquerade.frames.label_codes import OUTSIDE, kind_of, labels_of_type, missing_mark
from masquerade.sources.query_plan import Factor

# names of results, unlikely as names of users' columns
COUNT, FIRST, SECOND, THIRD, UNREAD, SET = (
    f"masquerade_{word}" for word in ("count", "first", "second", "third", "unread", "set")
)
WEIGHT, SURVEY = "masquerade_w", "masquerade_v"
RESULTS = (COUNT, FIRST, SECOND, THIRD, UNREAD, SET, WEIGHT, SURVEY)


@dataclass(frozen=True, slots=True)
class SqlDialect:
    """How an engine writes names, strings and numbers, and its features."""

    quote: str = '"'
    text_start: str = "'"
    escapes: tuple[tuple[str, str], ...] = (("'", "''"),)
    double: str = "DOUBLE"
    try_cast: str | None = None
    grouping_sets: bool = True
    knows_nan: bool = True
    zoned: str = "TIMESTAMP WITH TIME ZONE"
    substituted: str | None = None  # prefix of names that the engine replaces by a setting, even in quotes

    def problem_of(self, name: str) -> str | None:
        """Return the reason why a column cannot be counted under its name, or None."""
        if name.casefold().startswith(RESULTS):
            return "has a reserved name"
        if self.substituted is not None and self.substituted in name:
            return f"would be replaced by a setting ({self.substituted}…)"
        return None

    def name(self, name: str) -> str:
        """Return a quoted name."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def number(self, value: float) -> str:
        """Return a double literal: a bare decimal would be exact and slow in every engine."""
        return f"CAST({value!r} AS {self.double})"

    def moment(self, value: datetime) -> str:
        """Return a timestamp literal."""
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
class EngineColumn:
    """A column of a table: how its values are read, and their type."""

    field: Field
    kind: pa.DataType
    text: bool = False

    @property
    def cut_by_engine(self) -> bool:
        """True if the engine bins numbers: there may be too many distinct ones to fetch."""
        number = kind_of(self.kind) in {"whole", "number"}
        return self.field.edges is not None and self.field.date is None and number and not self.text


def sum_type(name: str) -> pa.DataType:
    """Return the type of a result column."""
    return pa.int64() if name.startswith((COUNT, UNREAD, SET)) else pa.float64()


def select_grouped(
    dialect: SqlDialect,
    table: str,
    sets: Sequence[Sequence[str]],
    *,
    only: str = "",
    weights: str | None = None,
    most: int | None = None,
) -> str:
    """Return the SELECT of the counts of every set of columns, with one bit per column that is summed out.

    With a column of survey weights v, also Σv and Σv². At most `most` rows are sent.
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
        grouping = (
            f" GROUP BY GROUPING SETS ({', '.join(_column_list(dialect, columns) for columns in sets)})"
        )
    elif names:
        grouping = f" GROUP BY {', '.join(quoted)}"
    limit = "" if most is None else f" LIMIT {most}"
    return f"SELECT {', '.join(chosen)} FROM {table}{only}{grouping}{limit}"


def _column_list(dialect: SqlDialect, columns: Sequence[str]) -> str:
    return f"({', '.join(dialect.name(name) for name in columns)})"


def select_weighed(
    dialect: SqlDialect,
    table: str,
    columns: Sequence[str],
    weights: Sequence[str],
    *,
    only: str,
    survey: str | None,
) -> str:
    """Return the SELECT of counts and sums of weights w and w² by the columns.

    With survey weights v, also Σvw, Σ(vw)² and Σv²w. Records whose weight is NULL have an unknown value: they
    are counted separately, never omitted silently.
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


def weight(dialect: SqlDialect, factors: Sequence[Factor], columns: Mapping[str, EngineColumn]) -> str:
    """Return the product of looked-up weights. NULL for a value that is not a category."""
    return " * ".join(_looked_up(dialect, factor, columns) for factor in factors)


def _looked_up(dialect: SqlDialect, factor: Factor, columns: Mapping[str, EngineColumn]) -> str:
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


def conditions(dialect: SqlDialect, name: str, column: EngineColumn) -> dict[int, str]:
    """Return, for every code, the condition that a value of the column has it."""
    quoted = dialect.name(name)
    if column.cut_by_engine:
        return {code: f"{quoted} = {code}" for code in range(len(column.field.variable))}
    if column.field.date is not None:
        raise InputError(
            f"{name!r}: an engine cannot select by dates that are read as {column.field.date.unit}s."
        )
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


def _is_missing(dialect: SqlDialect, name: str, kind: pa.DataType) -> str:
    """Return the condition that a value is missing: NULL or NaN."""
    quoted = dialect.name(name)
    if not (dialect.knows_nan and pa.types.is_floating(kind)):
        return f"{quoted} IS NULL"
    return f"{quoted} IS NULL OR {quoted} = CAST('NaN' AS {dialect.double})"  # equal to itself in SQL


def with_bins(
    dialect: SqlDialect, table: str, names: Sequence[str], columns: Mapping[str, EngineColumn]
) -> str:
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


def _bin_code(dialect: SqlDialect, name: str, column: EngineColumn) -> str:
    """Return the code of a number's bin [e_k, e_k+1), the last one closed, or a code beyond the last bin."""
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


def checked_weights(dialect: SqlDialect, table: str, name: str, *, is_text: bool) -> str:
    """Return the SELECT of the numbers of survey weights and numeric weights, their minimum and sum.

    A weight that is not finite makes the sum not finite. The maximum is not used, since an engine may take it
    from an index without reading the values.
    """
    quoted = dialect.name(name)
    v = f"{dialect.try_cast}({quoted} AS {dialect.double})" if is_text else dialect.as_double(name)
    return (
        f"SELECT COUNT(*) AS {COUNT}, COUNT({quoted}) AS {COUNT}_given, COUNT({v}) AS {UNREAD}, "
        f"MIN({v}) AS {FIRST}, SUM({v}) AS {SECOND} FROM {table}"
    )


def persons(dialect: SqlDialect, table: str, name: str) -> str:
    """Return the SELECT of the numbers of records and of distinct persons. NULL counts as one person."""
    quoted = dialect.name(name)
    nobody = f"MAX(CASE WHEN {quoted} IS NULL THEN 1 ELSE 0 END)"
    return (
        f"SELECT COUNT(*) AS {COUNT}, COUNT(DISTINCT {quoted}) AS {FIRST}, {nobody} AS {SECOND} FROM {table}"
    )


def select_numbered(dialect: SqlDialect, table: str, column: str, last: str | None) -> str:
    """Return the SELECT of the numbers of rows, numbered rows and rows up to `last`, and the highest."""
    quoted = dialect.name(column)
    before = "0" if last is None else f"SUM(CASE WHEN {quoted} <= {last} THEN 1 ELSE 0 END)"
    return (
        f"SELECT COUNT(*) AS {COUNT}, COUNT({quoted}) AS {COUNT}_given, {before} AS {COUNT}_before, "
        f"MAX({quoted}) AS {quoted} FROM {table}"
    )


def between(
    dialect: SqlDialect, table: str, names: Sequence[str], column: str, ends: tuple[str | None, str | None]
) -> str:
    """Return these columns of the rows with a number above the first of `ends` and at most the second."""
    quoted, (low, high) = dialect.name(column), ends
    met = [f"{quoted} <= {high}" if high is not None else "1 = 0"]
    if low is not None:
        met.append(f"{quoted} > {low}")
    chosen = ", ".join(dialect.name(name) for name in names)
    return f"(SELECT {chosen} FROM {table} WHERE {' AND '.join(met)}) AS numbered_"


def only_code(dialect: SqlDialect, name: str, column: EngineColumn, code: int) -> str:
    """Return the WHERE clause for the records with one category."""
    return f" WHERE {conditions(dialect, name, column).get(code, '1 = 0')}"


def select_sample(dialect: SqlDialect, table: str, columns: Sequence[str], rows: int, *, only: str) -> str:
    """Return the SELECT of the numbers of distinct and of unique rows among the first `rows` rows."""
    names = ", ".join(dialect.name(name) for name in columns)
    first = f"SELECT {names} FROM {table}{only} LIMIT {rows}"
    sizes = f"SELECT COUNT(*) AS {COUNT} FROM ({first}) AS first_rows_ GROUP BY {names}"
    once = f"SUM(CASE WHEN {COUNT} = 1 THEN 1 ELSE 0 END)"
    return f"SELECT COUNT(*) AS {FIRST}, {once} AS {SECOND}, SUM({COUNT}) AS {COUNT} FROM ({sizes}) AS sizes_"
