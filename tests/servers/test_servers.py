"""The servers that other tests rely on are what they claim to be."""

from __future__ import annotations

import os
import stat

import psycopg
import pytest


def test_postgres_asks_for_the_password_on_loopback_and_socket(postgres, monkeypatch):
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    with psycopg.connect() as connection:
        assert connection.info.host == str(postgres.folder)
    for host in ("127.0.0.1", str(postgres.folder)):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(host=host, password="guessed")  # noqa: S106
    assert postgres.password not in repr(postgres)
    assert stat.S_IMODE(postgres.folder.stat().st_mode) == 0o700


def test_a_fresh_database_is_empty_and_apart(postgres):
    one, two = postgres.fresh_database(), postgres.fresh_database()
    with psycopg.connect(one.url) as connection:
        connection.execute("CREATE TABLE people (age int)")
    with psycopg.connect(two.url) as connection:
        assert connection.execute("SELECT to_regclass('people')").fetchone() == (None,)


def test_a_killed_postgres_breaks_its_connections(own_postgres):
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        own_postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(own_postgres.url)


def test_spark_runs_in_two_executors_of_their_own(spark):
    parents = spark.sparkContext.parallelize(range(2), 2).map(lambda _: os.getppid()).collect()
    assert len(set(parents)) == 2
    assert os.getpid() not in parents


@pytest.mark.slow  # tests of ours that lose a worker show it every time
def test_spark_survives_the_loss_of_a_worker(breakable_spark):
    frame = breakable_spark.session.range(0, 1000, 1, 4)
    assert frame.selectExpr("sum(id)").first()[0] == 499_500
    breakable_spark.kill_worker()
    assert frame.selectExpr("sum(id)").first()[0] == 499_500
