"""Lazy frames, data sets and readers of record batches are read in batches, and only asked columns."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

import masquerade as mq
from masquerade.core.errors import DataChanged, FileError, InputError, SchemaError, UnknownValue
from masquerade.frames.streams import ROWS, scanned_files, stream_of

SCHEMA = mq.Schema({"a": ["x", "y"], "b": [0, 1, 2]})
N = 2 * ROWS + 17


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(5)
    return pa.table(
        {"a": generator.choice(["x", "y"], N), "b": generator.integers(0, 3, N), "c": np.zeros(N)}
    )


def sources(table, folder):
    parquet.write_table(table, folder / "t.parquet", row_group_size=50_000)
    return {
        "lazy frame": pl.from_arrow(table).lazy(),
        "lazy scan": pl.scan_parquet(folder / "t.parquet"),
        "data set": dataset.dataset(folder / "t.parquet"),
        "scanner": dataset.dataset(folder / "t.parquet").scanner(columns=["a", "b"]),
        "reader": table.to_reader(max_chunksize=10_000),
    }


@pytest.mark.parametrize("name", ["lazy frame", "lazy scan", "data set", "scanner", "reader"])
def test_counts_equal_those_of_the_frame_in_memory(table, tmp_path, name):
    source = mq.tally(sources(table, tmp_path)[name], schema=SCHEMA)
    expected = mq.tally(table.select(["a", "b"]), schema=SCHEMA)
    query = mq.Query(by=("a", "b"))
    assert source.n == N
    assert source.answer([query])[0].values.tolist() == expected.answer([query])[0].values.tolist()


@pytest.mark.parametrize("name", ["lazy frame", "data set", "reader"])
def test_no_batch_is_larger_than_the_limit_and_only_asked_columns_are_read(table, tmp_path, name):
    batches = list(stream_of(sources(table, tmp_path)[name]).batches(["b"]))
    assert max(len(batch) for batch in batches) <= ROWS
    assert sum(len(batch) for batch in batches) == N
    assert {tuple(batch.schema.names) for batch in batches} == {("b",)}


@pytest.mark.parametrize("name", ["lazy frame", "data set", "reader"])
def test_unknown_values_are_refused_by_their_row_over_all_batches(table, tmp_path, name):
    values = table["a"].to_pylist()
    values[ROWS + 4] = "secret"
    changed = table.set_column(0, "a", pa.array(values))
    with pytest.raises(UnknownValue, match=f"row {ROWS + 5}") as refused:
        mq.tally(sources(changed, tmp_path)[name], schema=SCHEMA)
    assert "secret" not in str(refused.value)


def test_categories_are_inferred_of_what_can_be_read_twice(table, tmp_path):
    found = sources(table.select(["a", "b"]), tmp_path)
    assert mq.tally(found["lazy frame"]).schema == mq.tally(found["data set"]).schema == SCHEMA
    with pytest.raises(InputError, match="a reader of record batches need a 'schema'"):
        mq.tally(found["reader"])


def test_a_reader_can_be_read_once_only(table):
    stream = stream_of(table.to_reader())
    assert sum(len(batch) for batch in stream.batches(["a"])) == N
    with pytest.raises(InputError, match="can be read once only"):
        next(stream.batches(["a"]))


def test_a_missing_column_is_named_with_the_nearest(table):
    with pytest.raises(SchemaError, match="no column 'aa' in the lazy frame"):
        mq.tally(pl.from_arrow(table).lazy(), schema=mq.Schema({"aa": ["x", "y"]}))


def test_metadata_of_a_disguised_data_set_is_read(tmp_path):
    policy = mq.data.students_policy()
    mq.data.students().to_csv(tmp_path / "clear.csv", index=False)
    mq.disguise_file(tmp_path / "clear.csv", tmp_path / "reports.parquet", policy)
    source = mq.tally(dataset.dataset(tmp_path / "reports.parquet"))
    assert source.policy.id == policy.id


def test_a_data_set_whose_file_is_damaged_is_an_error_without_data(table, tmp_path):
    parquet.write_table(table, tmp_path / "t.parquet")
    data = dataset.dataset(tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(FileError, match="data set cannot be read to its end"):
        mq.tally(data, schema=SCHEMA)


@pytest.mark.parametrize("cut", [None, 0.5])
def test_csv_files_compressed_by_zstandard(tmp_path, cut):
    generator = np.random.default_rng(2)
    frame = pd.DataFrame({"a": generator.choice(["x", "y"], 400_000), "noise": generator.random(400_000)})
    packed = pa.compress(frame.to_csv(index=False).encode(), "zstd", asbytes=True)
    path = tmp_path / "t.csv.zst"
    path.write_bytes(packed if cut is None else packed[: int(cut * len(packed))])
    schema = mq.Schema({"a": ["x", "y"]})
    if cut is not None:
        with pytest.raises(FileError, match="the compressed file is truncated or damaged after data row"):
            mq.tally(path, schema=schema, engine="memory")
        return
    for engine in ("memory", "duckdb"):
        [table] = mq.tally(path, schema=schema, engine=engine).answer([mq.Query(by="a")])
        assert table.values.tolist() == [(frame["a"] == label).sum() for label in ("x", "y")]


def test_a_database_of_several_tables_names_them(tmp_path):
    path = tmp_path / "people.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE old AS SELECT 'x' AS a; CREATE TABLE new AS SELECT 'y' AS a")
    with pytest.raises(FileError, match=r"this one has: 'new', 'old'\. Pass one: ibis\.duckdb\.connect"):
        mq.tally(path, schema=SCHEMA)
    path.write_text("not a database")
    with pytest.raises(FileError, match="is not a database that DuckDB can open"):
        mq.tally(path, schema=SCHEMA)
    with pytest.raises(FileError, match="there is no such file"):
        mq.tally(tmp_path / "others.duckdb", schema=SCHEMA)


def test_a_lazy_scan_of_one_file_is_that_file(table, tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(table, path)
    scan = pl.scan_parquet(path)
    assert scanned_files(scan) == [path]
    source = mq.tally(scan, schema=SCHEMA)
    query = mq.Query(by="a")
    [before] = source.answer([query])
    assert before.values.tolist() == [table["a"].to_pylist().count(label) for label in ("x", "y")]
    parquet.write_table(table.slice(0, 5), path)
    with pytest.raises(DataChanged):
        source.answer([mq.Query(by="b")])  # read only now, and not mixed with what was read before


def other_frames(path):
    scan = pl.scan_parquet(path)
    return {
        "filter": scan.filter(pl.col("a") == "x"),
        "slice": scan.head(100),
        "first rows": pl.scan_parquet(path, n_rows=100),
        "computed column": scan.with_columns(a=pl.lit("x")),
        "renamed": scan.rename({"a": "c", "c": "a"}).select("a", "b"),
        "another type": scan.with_columns(pl.col("b").cast(pl.String)),
        "row numbers": pl.scan_parquet(path, row_index_name="n"),
        "path as a column": pl.scan_parquet(path, include_file_paths="from"),
        "union": pl.concat([scan, scan]),
        "memory": scan.collect().lazy(),
        "partition": pl.scan_parquet(path.parent.parent, hive_partitioning=True),
    }


def test_a_lazy_frame_that_does_anything_else_is_no_file(table, tmp_path):
    place = tmp_path / "k=1"
    place.mkdir()
    parquet.write_table(table.slice(0, 1000), place / "t.parquet")
    for name, frame in other_frames(place / "t.parquet").items():
        assert scanned_files(frame) is None, name
    rows = {"slice": 100, "first rows": 100, "union": 2000}
    for name in ("slice", "first rows", "union", "row numbers", "partition"):
        source = mq.tally(other_frames(place / "t.parquet")[name], schema=SCHEMA)
        assert source.n == rows.get(name, 1000), name


@pytest.mark.parametrize("files", [2, 60])
def test_a_lazy_scan_of_several_files_is_those_files(table, tmp_path, files):
    """A long list of paths, which a plan abbreviates, is read by Polars, with the same counts."""
    for number in range(files):
        parquet.write_table(table.slice(100 * number, 100), tmp_path / f"{number:02}.parquet")
    scan = pl.scan_parquet(tmp_path / "*.parquet")
    assert scanned_files(scan) in (sorted(tmp_path.glob("*.parquet")), None)
    assert (scanned_files(scan) is None) == ("other" in scan.explain())
    source = mq.tally(scan, schema=SCHEMA)
    expected = mq.tally(table.slice(0, 100 * files).select(["a", "b"]), schema=SCHEMA)
    query = mq.Query(by=("a", "b"))
    assert source.answer([query])[0].values.tolist() == expected.answer([query])[0].values.tolist()


def test_a_scan_of_fewer_records_than_its_files_have_is_no_file(table, tmp_path, monkeypatch):
    """Deletion files are not in a plan: the number of records tells."""
    path = tmp_path / "t.parquet"
    parquet.write_table(table.slice(0, 1000), path)
    scan = pl.scan_parquet(path)
    plan = scan.explain()
    fewer = scan.filter(pl.int_range(pl.len()) > 9)
    monkeypatch.setattr(pl.LazyFrame, "explain", lambda _: plan)
    assert scanned_files(scan) == [path]
    assert scanned_files(fewer) is None
    assert mq.tally(fewer, schema=SCHEMA).n == 990


def test_a_scan_of_files_with_field_ids_is_no_file(table, tmp_path):
    """Formats of tables find columns by these ids, and may call them otherwise."""
    fields = [
        field.with_metadata({"PARQUET:field_id": str(1 + place)}) for place, field in enumerate(table.schema)
    ]
    parquet.write_table(table.slice(0, 10).cast(pa.schema(fields)), tmp_path / "t.parquet")
    assert scanned_files(pl.scan_parquet(tmp_path / "t.parquet")) is None
