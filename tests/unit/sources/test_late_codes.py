"""Large Parquet files: only the columns that are asked for are read, and they are those of one state."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import masquerade as mq
from masquerade.core.errors import DataChanged, SchemaError, UnknownValue
from masquerade.sources import read_records
from masquerade.sources.late_codes import LateCodes

POLICY = mq.Policy.build(
    {"a": ["x", "y"], "b": ["no", "yes"], "c": ["p", "q", "r"]}, {"b": mq.channels.binary("1/4")}
)
QUERIES = [mq.Query(by=("a", "b")), mq.Query(by="b", where={"a": "x"}), mq.Query(by=("c",))]


def people(n=3000, c=("p", "q", "r")):
    codes = np.arange(n)
    return pa.table(
        {
            "a": np.take(["x", "y"], codes % 2),
            "b": np.take(["no", "yes"], codes // 2 % 2),
            "c": np.take(c, codes % 7 % len(c)),
        }
    )


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(read_records, "LEAST_LATE", 1000)
    pq.write_table(people(), tmp_path / "people.parquet", row_group_size=700)
    return tmp_path / "people.parquet"


def loaded(source):
    return sorted(source.codes._columns)


def test_a_question_reads_its_columns(path):
    source, whole = mq.tally(path, POLICY), mq.tally(path, POLICY, engine="memory")
    assert isinstance(source.codes, LateCodes)
    assert isinstance(whole.codes, dict)
    assert loaded(source) == []
    read = [["a", "b"], ["a", "b"], ["a", "b", "c"]]
    for query, columns in zip(QUERIES, read, strict=True):
        [table], [known] = source.answer([query]), whole.answer([query])
        assert loaded(source) == columns
        np.testing.assert_array_equal(table.values, known.values)
        np.testing.assert_array_equal(table.stderr(), known.stderr())


def test_all_columns_are_read_to_merge_equal_rows_after_many_questions(path):
    source = mq.tally(path, POLICY)
    for _ in range(70):
        [table] = source.answer(QUERIES[:1])
    assert loaded(source) == ["a", "b", "c"]
    [known] = mq.tally(people(), POLICY).answer(QUERIES[:1])
    np.testing.assert_array_equal(table.values, known.values)


def test_small_files_and_weighted_records_are_read_at_once(path, monkeypatch):
    counted = mq.tally(path, POLICY.select(["a", "b"]), id=None)
    assert isinstance(counted.codes, LateCodes)
    numbered = people().append_column("weight", pa.array(np.ones(3000)))
    pq.write_table(numbered, path)
    assert isinstance(mq.tally(path, POLICY, weights="weight").codes, dict)
    monkeypatch.setattr(read_records, "LEAST_LATE", 3001)
    assert isinstance(mq.tally(path, POLICY).codes, dict)


def test_a_file_that_changed_before_a_column_is_read_is_refused(path):
    source = mq.tally(path, POLICY)
    source.answer(QUERIES[:1])
    pq.write_table(people(3100), path)
    source.answer(QUERIES[:2])  # these columns are in memory
    with pytest.raises(DataChanged):
        source.answer(QUERIES[2:])


def test_values_that_are_no_category_are_found_when_their_column_is_read(path):
    pq.write_table(people(c=("p", "z")), path)
    source = mq.tally(path, POLICY)
    source.answer(QUERIES[:1])
    with pytest.raises(UnknownValue, match="'c'"):
        source.answer(QUERIES[2:])
    pq.write_table(people().drop_columns(["c"]), path)
    with pytest.raises(SchemaError, match="there is no column 'c'"):
        mq.tally(path, POLICY)


def test_a_pickle_has_all_columns(path):
    source = pickle.loads(pickle.dumps(mq.tally(path, POLICY)))  # noqa: S301
    path.unlink()
    [table] = source.answer(QUERIES[2:])
    assert table.values.tolist() == mq.tally(people(), POLICY).answer(QUERIES[2:])[0].values.tolist()


@pytest.mark.filterwarnings("ignore::masquerade.core.errors.MasqueradeWarning")
def test_learners_read_what_they_ask_about(path):
    source = mq.tally(path, POLICY)
    mq.learn.naive_bayes(source, "a", features=["b"])
    assert loaded(source) == ["a", "b"]
    known = mq.learn.structure(mq.tally(people(), POLICY), order=["a", "b", "c"])
    assert mq.learn.structure(source, order=["a", "b", "c"]).links == known.links
