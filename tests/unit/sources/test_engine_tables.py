"""Tables of engines: Ibis on any backend, PostgreSQL and Spark for real."""

from __future__ import annotations

import logging
import warnings
from decimal import Decimal
from itertools import product
from re import fullmatch

import ibis
import numpy as np
import pandas as pd
import psycopg
import pyarrow as pa
import pytest
from tests.unit.sources.test_engine import HOSTILE, NAMES, Spy, assert_same, hostile, hostile_queries

import masquerade as mq
from masquerade.core.errors import EngineError, InputError, PolicyMismatch, SchemaError, UnknownValue
from masquerade.sources.engines.engine import Engine
from masquerade.sources.engines.engine_cache import EngineLimits
from masquerade.sources.engines.engine_tables import (
    IbisTable,
    SparkFrame,
    array_of,
    dialect_of,
    table_of,
    translate_engine_errors,
    watching,
)

SUMMED_UP = EngineLimits(cells=1, saving=float("inf"))
HELD_AND_SUMMED_UP = pytest.mark.parametrize("limits", [EngineLimits(), SUMMED_UP], ids=["held", "summed up"])
TYPED = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            "text": {"categories": ["a", "b", "none"], "missing": "none"},
            "whole": {"categories": [0, 1]},
            "flag": {"categories": [True, False, "none"], "missing": "none"},
            "float": {"categories": [1, 2, "none"], "missing": "none"},
            "exact": {"categories": [3, 4]},
            "income": {"bins": [0, 10, 100], "missing": "none"},
        },
    }
)


def typed_rows() -> pd.DataFrame:
    generator = np.random.default_rng(31)

    def drawn(values):
        return [values[i] for i in generator.integers(0, len(values), 300)]

    return pd.DataFrame(
        {
            "text": pd.array(drawn(["a", "b", None]), dtype=object),
            "whole": drawn([0, 1]),
            "flag": pd.array(drawn([True, False, None]), dtype=object),
            "float": drawn([1.0, 2.0, float("nan")]),
            "exact": drawn([3, 4]),
            "income": drawn([0.0, 9.99, 10.0, 100.0, float("nan")]),
        }
    )


def typed_queries():
    one = [mq.Query(by=name) for name in TYPED.schema]
    conditions = [
        mq.Query(by="whole", where={"flag": True, "float": 2}),
        mq.Query(by="exact", where={"text": "none", "income": "none"}),
        mq.Query(by=("income", "float"), where={"flag": "none", "exact": 4}),
        mq.Query(where={"whole": 1, "flag": False, "float": "none"}),
    ]
    return [*one, mq.Query(by=("text", "flag", "exact")), *conditions]


def in_memory():
    return mq.tally(typed_rows(), schema=TYPED).answer(typed_queries())


@pytest.fixture(scope="module")
def connection(postgres):
    with psycopg.connect(postgres.fresh_database().url, autocommit=True) as opened:
        yield opened


def created(connection, name, kinds, frame):
    """Make a table of PostgreSQL with columns of given types; return it as an Ibis table."""
    columns = ", ".join(
        f'"{column.replace(chr(34), chr(34) * 2)}" {kind}' for column, kind in zip(frame, kinds, strict=True)
    )
    connection.execute(f"CREATE TABLE {name} ({columns})")
    with connection.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN") as copy:
        for row in frame.itertuples(index=False):
            copy.write_row(row)
    return ibis.postgres.from_connection(connection).table(name)


# --- Ibis


def lite(frame: pd.DataFrame, schema=None):
    return ibis.sqlite.connect().create_table(
        "t", pa.Table.from_pandas(frame, preserve_index=False), schema=schema
    )


@HELD_AND_SUMMED_UP
def test_types_and_missing_values_on_sqlite(limits):
    source = mq.tally(lite(typed_rows()), schema=TYPED)
    source.limits = limits
    assert_same(source.answer(typed_queries()), in_memory())


@HELD_AND_SUMMED_UP
def test_labels_and_names_that_are_hard_to_write_on_sqlite(limits):
    policy, frame = hostile()
    source = mq.tally(lite(frame), policy)
    source.limits = limits
    assert_same(source.answer(hostile_queries()), mq.tally(frame, policy).answer(hostile_queries()))


def test_an_ibis_expression_is_counted_and_not_its_table():
    frame = pd.DataFrame({"a": ["x", "y", "y"], "b": [1, 1, 2]})
    table = lite(frame)
    source = mq.tally(table.filter(table.b == 1).select("a"), mq.Policy.clear(mq.Schema({"a": ["x", "y"]})))
    assert source.answer([mq.Query(by="a")])[0].values.tolist() == [1, 1]


def test_an_engine_without_grouping_sets_scans_once_for_each_table():
    spy = Spy(IbisTable(lite(typed_rows())))
    policy = mq.Policy.clear(mq.Schema({"whole": [0, 1], "exact": [3, 4]}))
    source = Engine(spy, policy, policy.fields)
    source.limits = EngineLimits(cells=2)
    spy.sent.clear()
    source.answer([mq.Query(by="whole"), mq.Query(by="exact")])
    assert len(spy.sent) == 2
    assert not any("GROUPING" in sql for sql in spy.sent)


def test_a_memtable_is_refused():
    table = ibis.memtable(pa.table({"a": ["x"]}))
    with pytest.raises(InputError, match="memtable is in memory: pass the frame itself"):
        mq.tally(table, mq.Policy.clear(mq.Schema({"a": ["x"]})))


def test_clear_tables_need_a_schema():
    with pytest.raises(InputError, match="Clear records from SQLite need a 'schema'"):
        mq.tally(lite(pd.DataFrame({"a": ["x"]})))


@HELD_AND_SUMMED_UP
def test_an_unknown_value_of_a_table_is_named_by_its_column_only(limits):
    frame = pd.DataFrame({"a": ["x", "y", "x"], "b": ["x", "y", "secret"]})
    policy = mq.Policy.clear(mq.Schema({"a": ["x", "y"], "b": ["x", "y"]}))
    for query in (mq.Query(by="b"), mq.Query(by="a", where={"b": "x"}), mq.Query(where={"a": "x", "b": "y"})):
        source = mq.tally(lite(frame), policy)
        source.limits = limits
        with pytest.raises(UnknownValue) as told_so:
            source.answer([query])
        assert str(told_so.value) == "column 'b': a value is not one of the policy's categories"
    frame.loc[2, "b"] = None
    source = mq.tally(lite(frame), policy)
    source.limits = limits
    with pytest.raises(UnknownValue, match="column 'b': a value is missing and the policy does not say"):
        source.answer(
            [mq.Query(by="a", where={"a": "x", "b": "x"})] if False else [mq.Query(where={"b": "x"})]
        )


def test_backends_that_we_do_not_know_write_as_their_own_dialect_says():
    class Backend:
        name = "mysql"

        def __init__(self, dialect):
            import sqlglot  # noqa: PLC0415

            self.dialect = sqlglot.Dialect.get_or_raise(dialect)

    mysql = dialect_of(Backend("mysql"), "MySQL")
    assert (mysql.name("a`b"), mysql.label("it's \\")) == ("`a``b`", "'it\\'s \\\\'")
    assert not mysql.grouping_sets
    assert dialect_of(Backend("trino"), "Trino").label("it's \\") == "'it''s \\'"
    with pytest.raises(InputError, match="T-SQL cannot count records"):
        dialect_of(Backend("tsql"), "T-SQL")


def test_what_comes_back_has_the_type_of_its_column_whatever_the_values():
    assert array_of([None, None], pa.string()).type == pa.string()
    assert array_of([Decimal("2.50"), None], pa.float64()).to_pylist() == [2.5, None]
    assert array_of((1, 0, None), pa.bool_()).to_pylist() == [True, False, None]
    assert array_of([], pa.int64()).type == pa.int64()


def test_frames_are_no_tables():
    assert table_of(pd.DataFrame()) is None
    assert table_of("people.parquet") is None


# --- errors


class Refused(Exception):
    """An error whose words quote what they should not."""


def test_errors_of_an_engine_are_one_line_without_their_words():
    with pytest.raises(EngineError) as said, translate_engine_errors("PostgreSQL"):
        raise Refused("password=hunter2 host=db.example value 'Smith'")
    assert str(said.value) == "PostgreSQL: the engine failed (Refused); nothing was answered."
    with (
        pytest.raises(EngineError, match=r"the connection was lost \(OperationalError\)"),
        translate_engine_errors("PostgreSQL"),
    ):
        raise psycopg.OperationalError("server closed the connection")
    with pytest.raises(SchemaError, match="ours"), translate_engine_errors("PostgreSQL"):
        raise SchemaError("ours")


@pytest.mark.filterwarnings("ignore:fetch_arrow_table")
def test_a_table_that_is_gone_is_an_engine_error_and_no_lost_connection():
    backend = ibis.duckdb.connect()
    table = backend.create_table("t", pa.table({"a": ["x"]}), temp=True)  # which no other transaction sees
    source = mq.tally(table, mq.Policy.clear(mq.Schema({"a": ["x"]})))
    backend.drop_table("t")
    with pytest.raises(
        EngineError, match=r"DuckDB: the engine failed \(CatalogException\); nothing was answered"
    ):
        source.answer([mq.Query(by="a")])


def test_a_watcher_is_told_even_if_the_progress_is_unknown(monkeypatch):
    monkeypatch.setattr("masquerade.sources.engines.engine_tables.PATIENCE", 0.001)
    seen: list[float | None] = []

    def failing() -> float:
        raise RuntimeError

    for progress in (lambda: 0.5, failing):
        before = len(seen)
        with watching(seen.append, progress):
            while len(seen) == before:
                pass
    assert {0.5, None} <= set(seen)


# --- PostgreSQL


KINDS = ["text", "int2", "boolean", "float8", "numeric", "float4"]


@HELD_AND_SUMMED_UP
def test_types_and_missing_values_on_postgres(connection, limits, request):
    name = f"typed_{len(request.node.name)}"
    rows = typed_rows().astype(object).where(lambda frame: frame.notna(), None)
    rows.loc[:5, "float"] = float("nan")  # besides the missing ones
    connection.execute(f"DROP TABLE IF EXISTS {name}")
    source = mq.tally(created(connection, name, KINDS, rows), schema=TYPED)
    source.limits = limits
    wanted = mq.tally(typed_rows().assign(float=rows["float"].astype(float)), schema=TYPED)
    assert_same(source.answer(typed_queries()), wanted.answer(typed_queries()))


@pytest.fixture(scope="module")
def hostile_table(connection):
    return created(connection, "hostile", ["text"] * len(NAMES), hostile()[1])


@HELD_AND_SUMMED_UP
@pytest.mark.parametrize("conforming", ["on", "off"])
def test_labels_and_names_that_are_hard_to_write_on_postgres(connection, hostile_table, limits, conforming):
    connection.execute(f"SET standard_conforming_strings = {conforming}")
    try:
        source = mq.tally(hostile_table, hostile()[0])
        source.limits = limits
        wanted = mq.tally(hostile()[1], hostile()[0]).answer(hostile_queries())
        assert_same(source.answer(hostile_queries()), wanted)
    finally:
        connection.execute("SET standard_conforming_strings = on")


def test_large_results_of_postgres_come_in_batches_of_one_type(connection, monkeypatch):
    """Grouping sets leave whole batches of a column missing."""
    monkeypatch.setattr("masquerade.sources.engines.engine_tables.ROWS", 8)
    labels = [f"label {i}" for i in range(30)]
    rows = pd.DataFrame(product(labels, labels, ["x", "y"]), columns=["a", "b", "c"])
    policy = mq.Policy.clear(mq.Schema({"a": labels, "b": labels, "c": ["x", "y"]}))
    source = mq.tally(created(connection, "wide", ["text"] * 3, rows), policy)
    source.limits = EngineLimits(cells=60)
    queries = [mq.Query(by=("a", "c")), mq.Query(by=("b", "c")), mq.Query(by="a")]
    for table in source.answer(queries):
        assert set(table.values.ravel().tolist()) == {1800 / table.values.size}


def test_a_scan_of_postgres_that_is_given_up_leaves_the_connection_free(connection):
    rows = pd.DataFrame({"a": [f"x{i}" for i in range(3000)]})
    policy = mq.Policy.clear(mq.Schema({"a": list(rows["a"])}))
    source = mq.tally(created(connection, "many", ["text"], rows), policy)
    source.limits = EngineLimits(rows=10)
    with pytest.raises(InputError, match="too many distinct rows"):
        source.answer([mq.Query(by="a")])
    assert source.answer([mq.Query()])[0].total == 3000


def test_persons_who_come_twice_are_refused_on_postgres(connection):
    rows = pd.DataFrame({"a": ["x", "y", "x"], "who": ["p", "q", "p"]})
    table = created(connection, "persons", ["text", "text"], rows)
    policy = mq.Policy.clear(mq.Schema({"a": ["x", "y"]}))
    with pytest.raises(InputError, match="1 records repeat a person of column 'who'"):
        mq.tally(table, policy, id="who")


def test_weights_that_are_text_are_refused_on_postgres(connection):
    table = created(connection, "weights", ["text", "text"], pd.DataFrame({"a": ["x"], "w": ["1.5"]}))
    source = mq.tally(table, mq.Policy.clear(mq.Schema({"a": ["x"]})), weights="w")
    with pytest.raises(InputError, match="must be numeric"):
        source.answer([mq.Query()])


def test_a_lost_connection_to_postgres_is_one_clear_error_and_no_partial_result(own_postgres, caplog):
    rows = pd.DataFrame({"a": ["x", "y", "x"], "b": ["x", "y", "y"]})
    policy = mq.Policy.clear(mq.Schema({"a": ["x", "y"], "b": ["x", "y"]}))
    opened = psycopg.connect(own_postgres.url, autocommit=True)
    try:
        source = mq.tally(created(opened, "lost", ["text", "text"], rows), policy)
        assert source.answer([mq.Query(by="a")])[0].values.tolist() == [2, 1]
        own_postgres.kill()
        with caplog.at_level(logging.DEBUG):
            for _ in range(2):  # the first call finds out, the second knows
                with pytest.raises(EngineError) as said:
                    source.answer([mq.Query(by="a"), mq.Query(by="b")])
                assert fullmatch(
                    r"PostgreSQL: the connection was lost \(\w+\); nothing was answered\.", str(said.value)
                )
                assert said.value.__suppress_context__
        assert caplog.text == ""
        # what is held needs no connection
        assert source.answer([mq.Query(by="a", where={})])[0].values.tolist() == [2, 1]
    finally:
        opened.close()


def test_neither_log_nor_words_about_a_postgres_table_say_how_to_get_in(postgres, connection, caplog):
    table = created(connection, "quiet", ["text"], pd.DataFrame({"a": ["x"]}))
    with caplog.at_level(logging.DEBUG):
        source = mq.tally(table, mq.Policy.clear(mq.Schema({"a": ["x"]})))
        source.answer([mq.Query(by="a")])
        connection.execute("DROP TABLE quiet")
        with pytest.raises(EngineError) as said:
            mq.tally(table, source.policy).answer([mq.Query()])
    assert caplog.messages[0] == "counting in PostgreSQL: the records stay there"
    for text in (caplog.text, repr(source), str(said.value)):
        for secret in (postgres.password, postgres.user, str(postgres.port)):
            assert secret not in text


# --- Spark


def spark_frame(spark, frame: pd.DataFrame):
    return spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False))


def test_types_and_missing_values_on_spark(spark):
    frame = spark_frame(spark, typed_rows()).selectExpr(
        "text",
        "CAST(whole AS TINYINT) AS whole",
        "flag",
        "float",
        "CAST(exact AS DECIMAL(10, 0)) AS exact",
        "income",
    )
    wanted = in_memory()
    assert_same(mq.tally(frame, schema=TYPED).answer(typed_queries()), wanted)
    source = mq.tally(frame, schema=TYPED)
    source.limits = SUMMED_UP
    assert_same(source.answer(typed_queries()[-3:]), wanted[-3:])  # each is a job of its own


def test_labels_and_names_that_are_hard_to_write_on_spark(spark):
    policy, frame = hostile()
    queries = [hostile_queries()[0], *hostile_queries()[len(NAMES) : len(NAMES) + len(HOSTILE) + 1]]
    for limits in (EngineLimits(), SUMMED_UP):
        source = mq.tally(spark_frame(spark, frame), policy)
        source.limits = limits
        assert_same(source.answer(queries), mq.tally(frame, policy).answer(queries))
    assert not spark.catalog.listTables()


def test_an_unknown_value_of_a_spark_frame_is_named_by_its_column_only(spark):
    frame = pd.DataFrame({"a": ["x", "y", "x"], "b": ["x", "y", "secret"]})
    policy = mq.Policy.clear(mq.Schema({"a": ["x", "y"], "b": ["x", "y"]}))
    source = mq.tally(spark_frame(spark, frame), policy)
    source.limits = SUMMED_UP
    with pytest.raises(UnknownValue, match=r"^column 'b': a value is not one of the policy's categories$"):
        source.answer([mq.Query(where={"a": "x", "b": "x"})])


def test_a_spark_frame_that_names_another_policy_is_refused(spark):
    policy = mq.Policy.build({"a": ["x", "y"]}, {"a": mq.channels.binary("0.1")})
    other = mq.Policy.build({"a": ["x", "y"]}, {"a": mq.channels.binary("0.2")})
    frame = spark_frame(spark, pd.DataFrame({"a": ["x", "y"]}))
    marked = frame.withMetadata("a", {"masquerade": {"policy": policy.id}})
    assert SparkFrame(marked).policies(["a"]) == {policy.id}
    mq.tally(marked, policy)
    mq.tally(frame, other)
    with pytest.raises(PolicyMismatch, match="estimates would be wrong"):
        mq.tally(marked, other)
    with pytest.raises(PolicyMismatch):
        mq.tally(marked, schema=policy)


def test_a_spark_frame_that_says_that_rows_are_missing_is_refused_until_accepted(spark):
    schema = mq.Schema({"a": ["x", "y"]})
    mark = {"masquerade": {"incomplete": "2 of 8 rows did not open"}}
    frame = spark_frame(spark, pd.DataFrame({"a": ["x", "y"], "b": ["x", "x"]})).withMetadata("b", mark)
    (refusal,) = mq.tally(frame, schema=schema).check([mq.Query(by="a")])
    assert refusal.code == "incomplete"
    assert "2 of 8 rows did not open" in refusal.reason
    (table,) = mq.tally(frame, schema=schema, accept_incomplete=True).answer([mq.Query(by="a")])
    assert table.values.tolist() == [1, 1]


def test_names_that_spark_or_results_of_ours_would_take_are_refused(spark):
    for name in ("${spark.app.name}", "Masquerade_count"):
        frame = spark_frame(spark, pd.DataFrame({name: ["x", "y"], "b": ["x", "x"]}))
        with pytest.raises(SchemaError, match="rename it, or count in memory"):
            mq.tally(frame, mq.Policy.clear(mq.Schema({name: ["x", "y"]})))
        other = mq.tally(frame, mq.Policy.clear(mq.Schema({"b": ["x"]})))  # it may stand beside others
        assert other.answer([mq.Query(by="b")])[0].total == 2


def test_a_spark_error_quotes_no_value(spark, capfd):
    frame = spark_frame(spark, pd.DataFrame({"a": ["secret"], "w": ["1"]}))
    broken = frame.selectExpr("CAST(a AS INT) AS a")
    with pytest.raises(EngineError) as said:
        mq.tally(broken, mq.Policy.clear(mq.Schema({"a": [1, 2]}))).answer([mq.Query(by="a")])
    assert "secret" not in str(said.value)
    assert "secret" not in "".join(capfd.readouterr())
    assert str(said.value).startswith("Spark: the engine failed (")
    weighted = mq.tally(frame, mq.Policy.clear(mq.Schema({"a": ["secret"]})), weights="a")
    with pytest.raises(InputError, match="Column 'a' contains survey weights and must be numeric"):
        weighted.answer([mq.Query()])
    assert mq.tally(frame, mq.Policy.clear(mq.Schema({"a": ["secret"]})), weights="w").n == 1


def test_ibis_on_spark(spark):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ibis's and PySpark's about pandas
        backend = ibis.pyspark.connect(spark)
        frame = spark_frame(spark, typed_rows()[["text", "whole"]])
        frame.createOrReplaceTempView("for_ibis")
        table = backend.table("for_ibis")
    policy = mq.Policy.from_dict(
        {"masquerade": 1, "variables": {k: TYPED.to_dict()["variables"][k] for k in ("text", "whole")}}
    )
    try:
        found = mq.tally(table, schema=policy).answer([mq.Query(by=("text", "whole"))])
    finally:
        spark.catalog.dropTempView("for_ibis")
    assert_same(found, mq.tally(typed_rows(), schema=policy).answer([mq.Query(by=("text", "whole"))]))
