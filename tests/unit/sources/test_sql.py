"""The SQL that counting needs: what it says, checked by running it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import UnknownValue
from masquerade.core.schema import Field, Variable
from masquerade.frames.label_codes import encode
from masquerade.sources.engines import sql
from masquerade.sources.engines.coded_rows import codes_of
from masquerade.sources.engines.engine_tables import DUCKDB, POSTGRES, SPARK
from masquerade.sources.engines.sql import EngineColumn, SqlDialect
from masquerade.sources.query_plan import Factor

CONNECTION = duckdb.connect()
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS)
def test_texts_and_names_survive_two_engines(text, name):
    query = f"SELECT {DUCKDB.label(text)} AS {DUCKDB.name('n' + name)}"  # an empty name is none
    found = CONNECTION.execute(query)
    assert found.description[0][0] == "n" + name
    assert found.fetchall() == [(text,)]
    with closing(sqlite3.connect(":memory:")) as lite:
        assert lite.execute(query).fetchall() == [(text,)]


@pytest.mark.parametrize(
    ("dialect", "text", "written"),
    [
        (DUCKDB, "it's \\ $x", "'it''s \\ $x'"),
        (POSTGRES, "it's \\ $x", "E'it''s \\\\ $x'"),
        (SPARK, "it's \\ $x", "'it\\'s \\\\ \\u0024x'"),
        (DUCKDB, True, "TRUE"),
        (DUCKDB, -3, "-3"),
        (DUCKDB, 1.0, "1.0"),
    ],
)
def test_labels_are_written_as_each_engine_reads_them(dialect, text, written):
    assert dialect.label(text) == written


def test_names_and_numbers():
    assert SPARK.name("a`b") == "`a``b`"
    assert DUCKDB.name('a"b') == '"a""b"'
    assert POSTGRES.number(-0.1) == "CAST(-0.1 AS DOUBLE PRECISION)"
    awkward = [0.1, 1 / 3, -1e-17, 123456.78901234567, 2.0**60]
    query = ", ".join(DUCKDB.number(value) for value in awkward)
    # decimals are rounded once on their way to a double: by one unit in the last place at most
    np.testing.assert_allclose(run(f"SELECT {query}")[0], awkward, rtol=2.3e-16)


def run(query: str, **tables: pa.Table) -> list[tuple]:
    for name, table in tables.items():
        CONNECTION.register(name, table)
    return CONNECTION.execute(query).fetchall()


def test_every_grouping_set_has_the_bits_of_the_columns_that_it_lacks():
    table = pa.table({"a": ["x", "x", None], "b": [1, 2, 2], "c": [True, True, False]})
    query = sql.select_grouped(DUCKDB, "t", [("a", "b"), ("b", "c"), ("a",)])
    rows = run(query, t=table)
    assert {row[-1] for row in rows} == {0b100, 0b001, 0b110}
    assert sorted((row[0] or "", row[3]) for row in rows if row[-1] == 0b110) == [("", 1), ("x", 2)]
    assert sum(row[3] for row in rows) == 9


def test_no_more_rows_than_wanted():
    table = pa.table({"a": list(range(100))})
    assert len(run(sql.select_grouped(DUCKDB, "t", [("a",)], most=7), t=table)) == 7


COLUMNS = {
    "text": EngineColumn(Field(Variable("text", ("x", "y", "gone")), missing="gone"), pa.string()),
    "whole": EngineColumn(Field(Variable("whole", (0, 1, 2))), pa.int64()),
    "float": EngineColumn(Field(Variable("float", (0, 1, "none")), missing="none"), pa.float64()),
    "csv": EngineColumn(Field(Variable("csv", (True, False, 3))), pa.string(), text=True),
}
VALUES = {
    "text": ["x", "y", None, "gone", "?"],
    "whole": [0, 1, 2, None, 3],
    "float": [0.0, -0.0, 1.0, None, float("nan")],
    "csv": ["true", "TRUE", "False", "3.0", "no"],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_conditions_hold_for_what_encode_reads_as_their_code(name):
    column = COLUMNS[name]
    conditions = sql.conditions(DUCKDB, name, column)
    for value in VALUES[name]:
        values = pa.array([value], column.kind)
        found = [
            code
            for code, test in conditions.items()
            if run(f"SELECT {test} FROM t", t=pa.table({name: values}))[0][0]  # noqa: S608
        ]
        try:
            assert found == encode(values, column.field, text=column.text).tolist()
        except UnknownValue:
            assert found == []


def test_weights_of_values_that_no_category_stands_for_are_missing_and_counted():
    factor = Factor(("text", "whole"), (3, 3), np.arange(9.0))
    weight = sql.weight(DUCKDB, [factor], COLUMNS)
    table = pa.table({"text": ["x", "y", None, "?", "y"], "whole": [0, 2, 1, 1, None]})
    (row,) = run(sql.select_weighed(DUCKDB, "t", (), [weight], only="", survey=None), t=table)
    assert row == (5, 0 + 5 + 7, 0 + 25 + 49, 2)


def test_a_column_that_can_hold_no_category_has_no_weight():
    column = {"a": EngineColumn(Field(Variable("a", (1, 2))), pa.string())}
    weight = sql.weight(DUCKDB, [Factor(("a",), (2,), np.ones(2))], column)
    (row,) = run(
        sql.select_weighed(DUCKDB, "t", (), [weight], only="", survey=None), t=pa.table({"a": ["1", "2"]})
    )
    assert row == (2, None, None, 2)


EDGES = (-1.5, 0.0, 1.0, 1e6)
NUMBERS = st.one_of(
    st.none(),
    st.sampled_from([*EDGES, -0.0, float("inf"), -float("inf"), float("nan"), 0.99999999]),
    st.floats(-3, 2e6),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=20), st.booleans())
def test_bins_found_by_an_engine_are_those_found_in_memory(values, missing):
    labels = ("low", "middle", "high", *(["none"] if missing else []))
    column = EngineColumn(Field(Variable("x", labels), "none" if missing else None, EDGES), pa.float64())
    table = pa.table({"x": pa.array(values, pa.float64())})
    relation = sql.with_bins(DUCKDB, "t", ["x"], {"x": column})
    marks = pa.array([row[0] for row in run(f"SELECT x FROM {relation}", t=table)])  # noqa: S608
    told = []
    for found in (lambda: encode(table["x"], column.field), lambda: codes_of(marks, column)):
        try:
            told.append(found().tolist())
        except UnknownValue as error:
            told.append(error.problem)
    assert told[0] == told[1]


def test_columns_without_bins_are_left_alone():
    assert sql.with_bins(DUCKDB, "t", ["whole", "v"], COLUMNS) == "t"
    text = EngineColumn(Field(Variable("x", ("low",)), edges=(0.0, 1.0)), pa.string(), text=True)
    assert (
        sql.with_bins(DUCKDB, "t", ["x"], {"x": text}) == "t"
    )  # a CSV file: what is a number is decided here


def test_what_an_unknown_engine_writes_is_plain():
    plain = SqlDialect(grouping_sets=False, knows_nan=False)
    assert "NaN" not in sql.conditions(plain, "float", COLUMNS["float"])[2]
