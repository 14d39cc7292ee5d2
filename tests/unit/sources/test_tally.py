"""`mq.tally`: frames and files, disguised and clear."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, SchemaError, UnknownValue

FRAME = pd.DataFrame(
    {
        "who": list("pqrstu"),
        "sex": ["f", "m", "f", "f", "m", "f"],
        "kids": [0, 1, 2, 0, 0, 1],
        "w": [1.5, 2, 1, 1, 0.5, 1],
    }
)


def test_clear_records_learn_their_categories_from_the_data_in_order():
    source = mq.tally(FRAME[["sex", "kids"]])
    assert source.schema == mq.Schema({"sex": ["f", "m"], "kids": [0, 1, 2]})
    (table,) = source.answer([mq.Query(by=("sex", "kids"))])
    assert table.values.tolist() == [[2, 1, 1], [1, 1, 0]]


def test_a_schema_decides_what_is_known():
    schema = mq.Schema({"sex": ["f", "m", "x"]})
    (table,) = mq.tally(FRAME, schema=schema).answer([mq.Query(by="sex")])
    assert table.values.tolist() == [4, 2, 0]
    with pytest.raises(UnknownValue, match="column 'sex', row 2"):
        mq.tally(FRAME, schema=mq.Schema({"sex": ["f"]}))
    with pytest.raises(SchemaError, match="no column 'age'"):
        mq.tally(FRAME, schema=mq.Schema({"age": [1]}))


def test_weights_and_persons():
    (table,) = mq.tally(FRAME, schema=mq.Schema({"sex": ["f", "m"]}), weights="w", id="who").answer(
        [mq.Query(by="sex")]
    )
    assert table.values.tolist() == [4.5, 2.5]
    assert table.n == 6
    with pytest.raises(InputError, match="3 records repeat a person of column 'kids'"):
        mq.tally(FRAME, schema=mq.Schema({"sex": ["f", "m"]}), id="kids")
    with pytest.raises(InputError, match="must be numbers"):
        mq.tally(FRAME, schema=mq.Schema({"sex": ["f", "m"]}), weights="who")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_equal_frames(tmp_path, suffix):
    halves = [tmp_path / f"part{i}.{suffix}" for i in range(2)]
    for path, part in zip(halves, (FRAME[:2], FRAME[2:]), strict=True):
        part.to_csv(path, index=False) if suffix == "csv" else part.to_parquet(path)
    schema = mq.Schema({"kids": [0, 1, 2], "sex": ["f", "m"]})
    for source in (halves, str(tmp_path / f"*.{suffix}")):
        (table,) = mq.tally(source, schema=schema, weights="w").answer([mq.Query(by="kids")])
        assert table.values.tolist() == [3.0, 3.0, 1.0]


def test_polars_and_missing_values():
    assert mq.tally(pl.from_pandas(FRAME[["sex"]])).n == 6
    with pytest.raises(InputError, match="has missing values"):
        mq.tally(pd.DataFrame({"a": ["x", None]}))


def test_contradictions_are_refused():
    policy = mq.Policy.clear(mq.Schema({"sex": ["f", "m"]}))
    with pytest.raises(InputError, match="not both"):
        mq.tally(FRAME, policy, schema=policy)
    with pytest.raises(InputError, match="more than 1,000 different values"):
        mq.tally(pd.DataFrame({"a": range(2000)}))
