"""Tables by name: one state of the database, nothing written, nothing left open, nothing said."""

from __future__ import annotations

import gc
import os
import socket
import time
import warnings

import psycopg
import pytest

import masquerade as mq
from masquerade.core.errors import EngineError, InputError
from masquerade.core.schema import Field, Variable
from masquerade.sources.engines import connections
from masquerade.sources.engines.connections import postgres_table, spark_table, spark_type, url_of

POLICY = mq.Policy.build({"smoker": ["yes", "no"], "age": [1, 2, 3]}, {"smoker": mq.channels.binary("0.2")})


@pytest.fixture
def database(postgres):
    """Return a database with a small table and a view of it."""
    server = postgres.fresh_database()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE people AS SELECT 'yes' AS smoker, 1 + i % 3 AS age "
                           "FROM generate_series(1, 300) AS i")  # fmt: skip
        connection.execute("CREATE VIEW elders AS SELECT * FROM people WHERE age = 3")
        connection.execute('CREATE TABLE "a.b" AS SELECT * FROM people LIMIT 7')
        connection.execute("CREATE SEQUENCE numbers")
    return server


def open_connections(server):
    """Return the number of connections; a server that is busy ends a closed one a moment later."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        for _ in range(600):
            (found,) = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
                [server.database],
            ).fetchone()
            if not found:
                break
            time.sleep(0.1)
    return found


def ages(source):
    return source.answer([mq.Query(by="age")])[0].values.tolist()


def test_all_questions_see_one_state(database):
    with postgres_table("people", database.url) as table:
        source = mq.tally(table, POLICY)
        assert source.n == 300
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute("DELETE FROM people WHERE age = 2")
        assert ages(source) == [100, 100, 100]
        assert ages(mq.tally(table, POLICY)) == [100, 100, 100]
    with postgres_table("people", database.url) as table:
        assert ages(mq.tally(table, POLICY)) == [100, 0, 100]


def test_nothing_can_be_written(database):
    with postgres_table("people", database.url) as table:
        cursor = table.get_backend().con.cursor()
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            cursor.execute("DELETE FROM people")


@pytest.mark.parametrize(("name", "n"), [("elders", 100), ('"a.b"', 7), ("public.people", 300)])
def test_views_and_quoted_names(database, name, n):
    with postgres_table(name, database.url) as table:
        assert mq.tally(table, POLICY).n == n


@pytest.mark.parametrize(
    "name", ["nobody", "people.people", "a..b", "numbers", "", "people; DROP TABLE people"]
)
def test_what_is_no_table_is_refused_and_nothing_stays_open(database, name):
    with (
        pytest.raises(InputError, match="this database has no table or view"),
        postgres_table(name, database.url),
    ):
        pass
    assert open_connections(database) == 0


def test_connections_are_closed_without_a_warning(database):
    def used_and_failed():
        with postgres_table("people", database.url) as table:
            mq.tally(table, POLICY).answer([mq.Query(by="age")])
            raise KeyError

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyError):
            used_and_failed()
        gc.collect()
    assert open_connections(database) == 0


def test_a_lost_server_is_an_engine_error(own_postgres):
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE people (smoker text, age int)")
    with postgres_table("people", own_postgres.url) as table:
        source = mq.tally(table, POLICY)
        own_postgres.kill()
        for _ in range(2):
            with pytest.raises(EngineError, match="PostgreSQL: the connection was lost") as error:
                source.answer([mq.Query(by="age")])
            assert own_postgres.password not in str(error.value)
    with (
        pytest.raises(EngineError, match="no server answers") as error,
        postgres_table("people", own_postgres.url),
    ):
        pass
    assert own_postgres.password not in str(error.value)


def test_no_driver_error_hides_behind_ours(database):
    wrong = database.url.replace(database.password, "Zyzzyva")
    with pytest.raises(EngineError, match="password was refused") as error, postgres_table("people", wrong):
        pass
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_the_given_url_comes_first(monkeypatch):
    monkeypatch.delenv(connections.URL, raising=False)
    assert url_of(None) is None
    monkeypatch.setenv(connections.URL, "postgresql://there")
    assert url_of(None) == "postgresql://there"
    assert url_of("postgresql://here") == "postgresql://here"


@pytest.mark.parametrize(("ours", "theirs"), [("2", ""), ("600", "?connect_timeout=2")])
def test_a_silent_server_is_given_up_on(monkeypatch, ours, theirs):
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    monkeypatch.setitem(connections.PATIENT, "connect_timeout", ours)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://tester@127.0.0.1:{silent.getsockname()[1]}/people{theirs}"
        with pytest.raises(EngineError, match="did not answer in time"), postgres_table("people", url):
            pass


@pytest.mark.parametrize(
    ("categories", "edges", "kind"),
    [
        (("yes", "no"), None, "STRING"),
        ((0, 1), None, "BIGINT"),
        ((True, False), None, "BOOLEAN"),
        ((0, "more"), None, "STRING"),
        (("0-9", "10-20"), (0.0, 10.0, 20.0), "DOUBLE"),
    ],
)
def test_columns_of_csv_files_get_the_type_of_their_categories(categories, edges, kind):
    assert spark_type(Field(Variable("x", categories), None, edges)) == kind


def test_the_active_session_is_used_and_left_running(spark, tmp_path):
    frame = spark.createDataFrame([("yes", 1), ("no", 3)], "smoker string, age int")
    frame.createOrReplaceTempView("two_people")
    with spark_table(["two_people"]) as table:
        assert ages(mq.tally(table, POLICY)) == [1, 0, 1]
    spark.catalog.dropTempView("two_people")
    (tmp_path / "one.csv").write_text("age,smoker,`odd` name\n1,yes,x\n2,no,y\n")
    (tmp_path / "two.csv").write_text("age,smoker,`odd` name\n2,yes,x\n")
    with spark_table([f"{tmp_path}/*.csv"], fields=POLICY.fields) as table:
        assert dict(table.dtypes) == {"age": "bigint", "smoker": "string", "`odd` name": "string"}
        assert ages(mq.tally(table, POLICY)) == [1, 2, 0]
    for missing in ("nobody", str(tmp_path / "none.parquet"), os.fspath(tmp_path / "none.csv")):
        with pytest.raises(InputError, match="Spark: found no readable"), spark_table([missing]):
            pass
    assert spark.range(3).count() == 3
