"""Statistics in Parquet files omit NaN and may be wrong: DuckDB must count the rows, as memory does."""

import struct

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import masquerade as mq
from masquerade.core.errors import UnknownValue

NAN = float("nan")


def counts_of(path, schema, engine):
    [table] = mq.tally(path, schema=schema, engine=engine).answer([mq.Query(by="a")])
    return np.asarray(table.values).round().tolist()


def policy_of(**variable):
    return mq.Policy.from_dict({"masquerade": 1, "variables": {"a": variable}})


def test_nan_is_missing_and_in_no_bin(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"a": [0.0, 10.0, 20.0, NAN, NAN]}), path)
    attack = f"SELECT count(*) FROM '{path}' WHERE isnan(a)"  # noqa: S608
    assert duckdb.connect().sql(attack).fetchall() == [(0,)]  # by the statistics of the file
    bins = policy_of(bins=[0, 10, 20], missing="?")
    for engine in ("memory", "duckdb"):
        assert counts_of(path, bins, engine) == [1, 2, 2]
        with pytest.raises(UnknownValue, match="is missing and the policy does not say"):
            counts_of(path, policy_of(bins=[0, 10, 20]), engine)


def test_statistics_that_are_wrong_change_no_count(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"a": pa.array([0] * 500 + [77] * 500, pa.int64())})
    parquet.write_table(table, path, compression="none", use_dictionary=False)
    content = path.read_bytes()
    (length,) = struct.unpack("<I", content[-8:-4])
    start = len(content) - 8 - length
    largest = struct.pack("<q", 77)
    assert largest in content[start:]
    path.write_bytes(content[:start] + content[start:].replace(largest, struct.pack("<q", 1)))
    attack = f"SELECT count(*) FROM '{path}' WHERE a = 77"  # noqa: S608
    assert duckdb.connect().sql(attack).fetchall() == [(0,)]
    for engine in ("memory", "duckdb"):
        assert counts_of(path, policy_of(categories=[0, 1, 77]), engine) == [500, 0, 500]
