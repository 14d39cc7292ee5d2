"""Data that keep coming: what is new is added to what was counted, and nothing else is scanned."""

from __future__ import annotations

import datetime
from itertools import count

import ibis
import numpy as np
import pandas as pd
import psycopg
import pyarrow as pa
import pytest

import masquerade as mq
from masquerade.core.errors import DataChanged, FileError, InputError, SchemaError, UnknownValue
from masquerade.disguising.files import disguise_file
from masquerade.sources.engines.engine_cache import EngineLimits

SCHEMA = {"a": ["x", "y"], "b": ["no", "yes"], "c": ["p", "q", "r"]}
POLICY = mq.Policy.build(SCHEMA, {"b": mq.channels.binary("1/4")})
STRATA = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            "a": {"categories": SCHEMA["a"]},
            "b": {"categories": SCHEMA["b"], "channel": {"kind": "binary", "p": 0.1}},
            "c": {"categories": SCHEMA["c"]},
        },
        "strata": {"by": "a", "channels": {"y": {"b": {"kind": "binary", "p": 0.3}}}},
    }
)
QUESTIONS = [mq.Query(by=("a",)), mq.Query(by=("a", "b")), mq.Query(by=("c",), where={"b": "yes"})]
LATER = [mq.Query(by=("b", "c")), mq.Query(by=("a", "b", "c"))]


def people(n: int, seed: int) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame({name: generator.choice(labels, n) for name, labels in SCHEMA.items()})
    return frame.assign(weight=generator.integers(1, 9, n) / 4, person=[f"{seed}-{i}" for i in range(n)])


def written(frame: pd.DataFrame, path) -> None:
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path, index=False)


class Spy:
    """Notes how many rows of files each scan of a growing source reads, by the file names in its SQL."""

    def __init__(self, monkeypatch) -> None:
        from masquerade.sources.engines.duckdb_files import DuckFiles  # noqa: PLC0415

        self.read: list[int] = []
        fetch = DuckFiles.fetch

        def noted(table, write, columns):
            if "LIMIT 0" not in write("t"):
                self.read.append(len(table.paths))
            return fetch(table, write, columns)

        monkeypatch.setattr(DuckFiles, "fetch", noted)


def assert_same(source: mq.Tally, fresh: mq.Tally, questions=QUESTIONS) -> None:
    for told, wanted in zip(source.answer(questions), fresh.answer(questions), strict=True):
        assert told.n == wanted.n
        np.testing.assert_allclose(told.values, wanted.values, rtol=1e-12)
        np.testing.assert_allclose(told.stderr(), wanted.stderr(), rtol=1e-9)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("policy", "options"),
    [(POLICY, {}), (STRATA, {}), (POLICY, {"weights": "weight", "id": "person"})],
    ids=["plain", "strata", "weights"],
)
def test_files_that_arrive_are_added(tmp_path, ending, policy, options, monkeypatch):
    pattern, parts = str(tmp_path / f"*.{ending}"), []
    for number in range(2):
        parts.append(people(400, number))
        written(parts[-1], tmp_path / f"{number}.{ending}")
    source = mq.tally(pattern, policy, growing=True, **options)
    source.answer(QUESTIONS)
    assert source.refresh() is source
    first, before = source, [people_of(parts)]
    for number in range(2, 5):
        parts.append(people(100 * number, number))
        written(parts[-1], tmp_path / f"{number}.{ending}")
        spy = Spy(monkeypatch)
        source = source.refresh()
        assert_same(source, mq.tally(people_of(parts), policy, engine="memory", **options))
        if "id" not in options:  # whether a person comes twice is seen in all of them
            assert set(spy.read) == {1}  # the file that is new, and no other
        monkeypatch.undo()
    fresh = mq.tally(people_of(parts), policy, engine="memory", **options)
    assert_same(source, fresh, LATER)  # which was not counted yet
    assert source.n == fresh.n == 800 + 200 + 300 + 400
    assert_same(first, mq.tally(before[0], policy, engine="memory", **options), QUESTIONS + LATER)


def people_of(parts) -> pd.DataFrame:
    return pd.concat(parts, ignore_index=True)


def test_what_is_summed_by_the_engine_and_what_is_not_held_is_counted_anew(tmp_path):
    parts = [people(300, number) for number in range(3)]
    for number in range(2):
        written(parts[number], tmp_path / f"{number}.parquet")
    source = mq.tally(tmp_path / "*.parquet", POLICY, growing=True)
    source.limits = EngineLimits(cells=1, rows=7, saving=1e9)
    source.answer(QUESTIONS[2:])
    written(parts[2], tmp_path / "2.parquet")
    assert_same(source.refresh(), mq.tally(people_of(parts), POLICY), QUESTIONS[2:])


def test_before_any_question_there_is_nothing_to_add_to(tmp_path):
    parts = [people(50, number) for number in range(2)]
    written(parts[0], tmp_path / "0.csv")
    source = mq.tally(tmp_path / "*.csv", POLICY, growing=True)
    written(parts[1], tmp_path / "1.csv")
    assert_same(source.refresh(), mq.tally(people_of(parts), POLICY))


def test_files_that_changed_shrank_or_went_are_refused(tmp_path):
    for number in range(2):
        written(people(50, number), tmp_path / f"{number}.csv")
    source = mq.tally(tmp_path / "*.csv", POLICY, growing=True)
    source.answer(QUESTIONS)
    old = (tmp_path / "1.csv").read_bytes()
    for content in (old + b"x,no,p,1,z\n", old[: len(old) // 2], b""):  # grown in place, shrunk, emptied
        (tmp_path / "1.csv").write_bytes(content)
        written(people(50, 2), tmp_path / "2.csv")
        with pytest.raises(DataChanged, match=r"1\.csv"):
            source.refresh()
    (tmp_path / "1.csv").unlink()
    with pytest.raises(FileError, match=r"1\.csv"):
        source.refresh()


def test_new_files_that_do_not_fit_are_refused_and_change_nothing(tmp_path):
    written(people(50, 0), tmp_path / "0.csv")
    source = mq.tally(tmp_path / "*.csv", POLICY, growing=True, id="person")
    before = source.answer(QUESTIONS)
    new = tmp_path / "1.csv"
    for frame, error, words in (
        (people(9, 1).assign(b="perhaps"), UnknownValue, r"1\.csv.*'b'"),
        (people(9, 1).drop(columns="c"), SchemaError, "unknown column 'c'"),
        (people(9, 0), InputError, "repeat a person"),
    ):
        written(frame, new)
        with pytest.raises(error, match=words):
            source.refresh()
        assert [table.values.tolist() for table in source.answer(QUESTIONS)] == [
            table.values.tolist() for table in before
        ]


def test_a_release_under_another_policy_that_arrives_is_refused(tmp_path):
    weaker = mq.Policy.build(SCHEMA, {"b": mq.channels.binary("1/8")})
    written(people(50, 0)[[*SCHEMA]], tmp_path / "clear.csv")
    disguise_file(tmp_path / "clear.csv", tmp_path / "0.parquet", POLICY)
    source = mq.tally(tmp_path / "*.parquet", growing=True)  # which says its policy
    assert source.policy == POLICY
    source.answer(QUESTIONS)
    disguise_file(tmp_path / "clear.csv", tmp_path / "1.parquet", weaker)
    with pytest.raises(FileError, match=r"1\.parquet: was not disguised as .*0\.parquet was"):
        source.refresh()


def numbered(n: int, seed: int, numbers, kind: str) -> pa.Table:
    frame = people(n, seed).drop(columns=["weight", "person"])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    column = [next(numbers) for _ in range(n)]
    if kind == "time":
        column = [start + datetime.timedelta(microseconds=number) for number in column]
    return pa.Table.from_pandas(frame.assign(number=column), preserve_index=False)


@pytest.mark.filterwarnings("ignore:fetch_arrow_table")
@pytest.mark.parametrize(
    ("backend", "kind"), [("duckdb", "number"), ("duckdb", "time"), ("sqlite", "number")]
)
def test_rows_that_are_added_to_a_table_are_added(tmp_path, backend, kind):
    connection, numbers = getattr(ibis, backend).connect(tmp_path / "base"), count(1)
    parts = [numbered(300, 0, numbers, kind)]
    table = connection.create_table("people", parts[0])
    source = mq.tally(table, POLICY, growing="number")
    source.answer(QUESTIONS)
    assert source.refresh() is source
    for seed in (1, 2):
        parts.append(numbered(100, seed, numbers, kind))
        connection.insert("people", parts[-1])
        source = source.refresh()
        assert_same(source, mq.tally(pa.concat_tables(parts).drop_columns("number"), POLICY))
    assert_same(source, mq.tally(pa.concat_tables(parts).drop_columns("number"), POLICY), LATER)
    connection.con.execute("DELETE FROM people WHERE number = (SELECT MIN(number) FROM people)")
    with pytest.raises(DataChanged, match="the data changed"):
        source.refresh()


def test_a_transaction_that_ends_late_in_postgresql_is_never_left_out(postgres):
    url = postgres.fresh_database().url
    with psycopg.connect(url, autocommit=True) as theirs, psycopg.connect(url) as late:
        theirs.execute("CREATE TABLE people (number BIGSERIAL, a text, b text, c text)")
        insert = "INSERT INTO people (a, b, c) VALUES (%s, %s, %s)"
        for row in people(60, 0)[[*SCHEMA]].to_numpy().tolist():
            theirs.execute(insert, row)
        source = mq.tally(ibis.postgres.from_connection(theirs).table("people"), POLICY, growing="number")
        source.answer(QUESTIONS)
        late.execute(insert, ["x", "no", "p"])  # has a number, and is seen when it is committed
        theirs.execute(insert, ["y", "no", "p"])
        later = source.refresh()
        assert (source.n, later.n) == (60, 61)
        assert later.answer(QUESTIONS[:1])[0].values.sum() == 61
        late.commit()
        with pytest.raises(DataChanged, match="PostgreSQL"):
            later.refresh()


@pytest.mark.filterwarnings("ignore:fetch_arrow_table")
def test_what_cannot_grow_says_so(tmp_path):
    written(people(9, 0), tmp_path / "0.csv")
    connection = ibis.duckdb.connect()
    table = connection.create_table("people", pa.Table.from_pandas(people(9, 0)))
    for data, growing, words in (
        (tmp_path / "0.csv", "person", "pass a pattern, and growing=True"),
        (people(9, 0), True, "A frame is one state"),
        (table, True, "A growing table needs growing="),
        (table, "persn", "unknown column 'persn'. Did you mean 'person'"),
        (table, "person", "integers or times"),
    ):
        with pytest.raises((InputError, SchemaError), match=words):
            mq.tally(data, POLICY, growing=growing)
    with pytest.raises(InputError, match="omit 'engine'"):
        mq.tally(tmp_path / "0.csv", POLICY, growing=True, engine="memory")
    with pytest.raises(InputError, match="growing=True"):
        mq.tally(tmp_path / "0.csv", POLICY, engine="duckdb").refresh()
