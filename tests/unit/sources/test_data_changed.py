"""One source, one state of the data: what changes between two questions is never mixed into answers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import ibis
import numpy as np
import pandas as pd
import psycopg
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import masquerade as mq
from masquerade.core.errors import DataChanged
from masquerade.disguising.files import disguise_file
from masquerade.frames.file_reader import open_batches

POLICY = mq.Policy.build(
    {"a": ["x", "y"], "b": ["no", "yes"], "c": ["p", "q", "r"]}, {"b": mq.channels.binary("1/4")}
)
QUESTIONS = [mq.Query(by=("a",)), mq.Query(by=("b",)), mq.Query(by=("c",), where={"b": "yes"})]
FILES = {
    "csv": lambda frame, path: pa.csv.write_csv(pa.Table.from_pandas(frame), path),
    "parquet": lambda frame, path: frame.to_parquet(path),
}


def people(n: int) -> pd.DataFrame:
    codes = np.arange(n)
    return pd.DataFrame(
        {
            "a": np.take(["x", "y"], codes % 2),
            "b": np.take(["no", "yes"], codes // 2 % 2),
            "c": np.take(["p", "q", "r"], codes % 3),
        }
    )


def first_then(source: mq.Tally, change) -> tuple[list[mq.CountTable], list[mq.CountTable]]:
    """Ask one question, let somebody change the data, ask the others; return what should be told, and was."""
    from_scratch = mq.tally(people(1000), POLICY).answer(QUESTIONS)
    [first] = source.answer(QUESTIONS[:1])
    change()
    return from_scratch, [first, *source.answer(QUESTIONS[1:])]


def assert_same(wanted: list[mq.CountTable], told: list[mq.CountTable]) -> None:
    for table, other in zip(wanted, told, strict=True):
        assert (table.n, table.values.tolist()) == (other.n, pytest.approx(other.values.tolist()))


@pytest.mark.parametrize("ending", FILES)
@pytest.mark.parametrize("how", ["replaced", "in place", "grown", "same size and time"])
def test_files_that_changed_are_refused(tmp_path, ending, how):
    path = tmp_path / f"people.{ending}"
    FILES[ending](people(1000), path)
    before = path.stat()

    def change():
        other = people(1000).iloc[::-1] if how == "same size and time" else people(6000)
        if how == "grown" and ending == "csv":
            with path.open("ab") as file:
                file.write(b'"x","no","p"\n')
        elif how == "replaced":
            FILES[ending](other, tmp_path / "new")
            (tmp_path / "new").replace(path)
        else:
            FILES[ending](other, path)
        if how == "same size and time":
            assert path.stat().st_ino == before.st_ino
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    source = mq.tally(path, POLICY, engine="duckdb")
    with pytest.raises(
        DataChanged, match=rf"people\.{ending}: the data changed since .*\. Open the source again"
    ):
        first_then(source, change)
    mq.tally(path, POLICY, engine="duckdb").answer(QUESTIONS)


def test_a_file_that_arrives_belongs_to_the_next_source(tmp_path):
    people(1000).to_parquet(tmp_path / "1.parquet")
    source = mq.tally(tmp_path / "*.parquet", POLICY, engine="duckdb")
    assert_same(*first_then(source, lambda: people(5000).to_parquet(tmp_path / "2.parquet")))
    assert mq.tally(tmp_path / "*.parquet", POLICY).n == 6000


def test_a_release_under_another_policy_is_refused(tmp_path):
    path = tmp_path / "people.csv"
    people(1000).to_csv(path, index=False)
    weaker = mq.Policy.build(POLICY.schema, {"b": mq.channels.binary("1/8")})
    for number, policy in enumerate((POLICY, weaker)):
        disguise_file(path, tmp_path / f"release{number}.csv", policy)
    old, new = (tmp_path / f"release{number}.csv" for number in (0, 1))
    source = mq.tally(old, engine="duckdb")
    source.answer(QUESTIONS[:1])
    for found in (new, Path(f"{new}.masquerade.json")):
        found.replace(str(found).replace("release1", "release0"))
    with pytest.raises(DataChanged):
        source.answer(QUESTIONS[1:])
    with pytest.raises(mq.MasqueradeError, match=r"another policy|were disguised under"):
        mq.tally(old, POLICY)


def test_what_is_said_beside_a_file_belongs_to_it(tmp_path):
    path = tmp_path / "people.csv"
    people(10).to_csv(path, index=False)
    with open_batches(path) as batches:
        Path(f"{path}.masquerade.json").write_text("{}")
        with pytest.raises(DataChanged, match=r"masquerade\.json"):
            list(batches)


def test_pipes_have_no_state(tmp_path):
    pipe = tmp_path / "people.csv"
    os.mkfifo(pipe)
    writing = threading.Thread(target=people(5).to_csv, args=[pipe], kwargs={"index": False})
    writing.start()
    assert mq.tally(pipe, POLICY, engine="memory").n == 5
    writing.join()


def stored(connection) -> mq.Tally:
    table = connection.create_table("people", pa.Table.from_pandas(people(1000)))
    return mq.tally(table, POLICY)


INSERT = "INSERT INTO people SELECT a, b, c FROM people"
UPDATE = "UPDATE people SET b = 'yes', c = 'p'"


@pytest.mark.filterwarnings("ignore:fetch_arrow_table")
@pytest.mark.parametrize("statement", [INSERT, UPDATE, "DELETE FROM people WHERE a = 'x'"])
@pytest.mark.parametrize("backend", ["duckdb", "sqlite"])
def test_rows_that_change_in_a_database_are_not_seen(tmp_path, backend, statement):
    connection = getattr(ibis, backend).connect(tmp_path / "base")
    source = stored(connection)
    assert_same(*first_then(source, lambda: connection.con.execute(statement)))


@pytest.mark.parametrize("autocommit", [True, False])
def test_rows_that_change_in_postgresql_are_not_seen(postgres, autocommit):
    url = postgres.fresh_database().url
    with psycopg.connect(url, autocommit=autocommit) as theirs, psycopg.connect(url) as other:
        connection = ibis.postgres.from_connection(theirs)
        connection.create_table("people", pa.Table.from_pandas(people(1000)))
        theirs.commit()
        for statement in (INSERT, UPDATE):
            other.execute("TRUNCATE people")
            with other.cursor() as cursor:
                cursor.executemany("INSERT INTO people VALUES (%s, %s, %s)", people(1000).to_numpy().tolist())
            other.commit()
            source = mq.tally(connection.table("people"), POLICY)
            theirs.commit()

            def change(statement=statement):
                other.execute(statement)
                other.commit()

            assert_same(*first_then(source, change))
        source = mq.tally(connection.table("people"), POLICY)
        source.answer(QUESTIONS[:1])
        theirs.commit()
        other.execute("SET lock_timeout = '60s'")
        other.execute("DROP TABLE people")  # which a lock that a source held would not let happen
        other.commit()
        with pytest.raises(mq.MasqueradeError, match="nothing was answered"):
            source.answer(QUESTIONS[1:])


def test_a_temporary_table_of_postgresql_is_counted_where_it_is(postgres):
    with psycopg.connect(postgres.fresh_database().url, autocommit=True) as theirs:
        connection = ibis.postgres.from_connection(theirs)
        theirs.execute("CREATE TEMP TABLE people (a text, b text, c text)")
        with theirs.cursor() as cursor:
            cursor.executemany("INSERT INTO people VALUES (%s, %s, %s)", people(1000).to_numpy().tolist())
        source = mq.tally(connection.table("people"), POLICY)
        with pytest.raises(DataChanged, match="PostgreSQL: the data changed since this source was opened"):
            first_then(source, lambda: theirs.execute("INSERT INTO people SELECT a, b, c FROM people"))


@pytest.mark.filterwarnings("ignore:fetch_arrow_table")
@pytest.mark.parametrize("arrives", [True, False])
def test_files_behind_a_view_that_changed_are_refused(tmp_path, arrives):
    people(1000).to_parquet(tmp_path / "1.parquet")
    connection = ibis.duckdb.connect()
    source = mq.tally(connection.read_parquet(str(tmp_path / "*.parquet")), POLICY)
    place = tmp_path / ("2.parquet" if arrives else "1.parquet")
    with pytest.raises(DataChanged, match=r"\.parquet"):
        first_then(source, lambda: people(6000).to_parquet(place))


def test_files_that_spark_reads_and_that_changed_are_refused(the_spark_cluster, tmp_path):
    place = tmp_path / "people.parquet"
    pq.write_table(pa.Table.from_pandas(people(1000)), place)
    source = mq.tally(the_spark_cluster.session.read.parquet(str(place)), POLICY)
    with pytest.raises(DataChanged, match=r"people\.parquet"):
        first_then(source, lambda: people(6000).to_parquet(place))


def test_a_frame_that_changes_is_not_seen():
    frame = people(1000).astype("category")
    source = mq.tally(frame, POLICY)

    def change():
        for name in frame:
            frame.loc[:499, name] = frame[name].cat.categories[0]

    assert_same(*first_then(source, change))
