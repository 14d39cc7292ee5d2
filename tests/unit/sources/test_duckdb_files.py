"""Files in DuckDB mean the same as in memory: names, folders, types, damage."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import masquerade as mq
from masquerade.core.errors import EngineError, FileError, InputError, SchemaError, UnknownValue
from masquerade.sources.engines.duckdb_files import DuckFiles
from masquerade.sources.engines.engine_cache import EngineLimits

KIDS = mq.Policy.clear(mq.Schema({"x": [0, 1, 2]}))
WORDS = mq.Policy.clear(mq.Schema({"x": ["a", "b", "1"]}))


def written(path: Path, **columns) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        table.to_pandas().to_csv(path, index=False)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return path


def counts(data, policy=KIDS, name="x") -> list[float]:
    """Return the counts of one column, the same in DuckDB and in memory."""
    tables = [
        mq.tally(data, policy, engine=engine).answer([mq.Query(by=name)])[0].values.tolist()
        for engine in ("duckdb", "memory")
    ]
    assert tables[0] == tables[1]
    return tables[0]


# --- names of files


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow"])
def test_a_file_is_taken_by_its_name_even_if_that_looks_like_a_pattern(tmp_path, suffix):
    wanted = written(tmp_path / f"part[1].{suffix}", x=[1, 1])
    written(tmp_path / f"part1.{suffix}", x=[2])
    star = written(tmp_path / f"st*r?.{suffix}", x=[0])
    written(tmp_path / f"stars.{suffix}", x=[2])
    assert counts(wanted) == [0, 2, 0]
    assert counts([star, wanted]) == [1, 2, 0]


def test_a_pattern_is_all_its_files_and_hidden_ones_are_not(tmp_path):
    for i in range(3):
        written(tmp_path / f"part-{i}.parquet", x=[i])
    written(tmp_path / ".part-9.parquet", x=[2])
    assert counts(str(tmp_path / "part-*.parquet")) == [1, 1, 1]
    assert counts([tmp_path / "part-0.parquet", tmp_path / "part-2.parquet"]) == [1, 0, 1]


def test_folders_are_not_columns(tmp_path):
    path = written(tmp_path / "x=2" / "y=7" / "f.parquet", x=[0, 1])
    assert counts(path) == [1, 1, 0]


def test_a_relative_path_and_a_name_with_a_quote(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "~" / "it's.parquet", x=[1])
    assert counts("~/it's.parquet") == [0, 1, 0]


# --- types of columns


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_files_that_hold_whole_numbers_in_different_types_are_read_as_they_are(tmp_path, suffix):
    paths = [
        written(tmp_path / f"0.{suffix}", x=pa.array([0, 1], pa.int8())),
        written(tmp_path / f"1.{suffix}", x=pa.array([2.0, 0.0])),
        written(tmp_path / f"2.{suffix}", x=pa.array([2, 2], pa.uint32())),
    ]
    assert counts(paths) == [2, 1, 3]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_half_is_never_rounded_to_a_whole_number(tmp_path, suffix):
    paths = [written(tmp_path / f"0.{suffix}", x=[1]), written(tmp_path / f"1.{suffix}", x=[1.0, 1.5])]
    with pytest.raises(UnknownValue, match=f"1.{suffix}: column 'x', row 2"):
        mq.tally(paths, KIDS, engine="duckdb").answer([mq.Query(by="x")])


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("second", "word"), [([1], "whole numbers"), ([True], "true/false"), ([1.5], "numbers")]
)
def test_labels_of_another_kind_are_refused_and_the_file_is_named(tmp_path, suffix, second, word):
    paths = [written(tmp_path / f"0.{suffix}", x=["1"]), written(tmp_path / f"1.{suffix}", x=second)]
    with pytest.raises(
        SchemaError, match=f"1.{suffix}: column 'x' holds {word}, in .*0.{suffix} it holds text"
    ):
        mq.tally(paths, WORDS, engine="duckdb")


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_texts_of_several_types_and_columns_of_nothing(tmp_path, suffix):
    policy = mq.Policy.from_dict(
        {"masquerade": 1, "variables": {"x": {"categories": ["a", "b", "?"], "missing": "?"}}}
    )
    paths = [
        written(tmp_path / f"0.{suffix}", x=pa.nulls(2)),
        written(tmp_path / f"1.{suffix}", x=pa.array(["a", "b"]).dictionary_encode()),
        written(tmp_path / f"2.{suffix}", x=pa.array(["b"], pa.large_string())),
    ]
    found = [
        mq.tally(data, schema=policy, engine=engine).answer([mq.Query(by="x")])[0].values.tolist()
        for engine in ("duckdb", "memory")
        for data in (paths, paths[::-1])
    ]
    assert found == [[1, 2, 2]] * 4
    assert mq.tally(paths[0], schema=policy, engine="duckdb").answer([mq.Query()])[0].total == 2


def test_parquet_and_arrow_files_together(tmp_path):
    paths = [written(tmp_path / "0.parquet", x=[0]), written(tmp_path / "1.arrow", x=[1, 1])]
    assert counts(paths) == [1, 2, 0]
    assert counts(paths[::-1]) == [1, 2, 0]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow"])
def test_files_may_have_more_columns_than_are_asked_for_and_in_another_order(tmp_path, suffix):
    paths = [
        written(tmp_path / f"0.{suffix}", more=["?"], x=[1]),
        written(tmp_path / f"1.{suffix}", x=[2], other=[7.5]),
    ]
    assert counts(paths) == [0, 1, 1]
    lacking = written(tmp_path / f"2.{suffix}", y=[2])
    with pytest.raises(SchemaError, match=f"2.{suffix}: there is no column 'x'"):
        mq.tally([paths[0], lacking], KIDS, engine="duckdb").answer([mq.Query(by="x")])
    with pytest.raises(SchemaError, match="unknown column 'x'"):
        mq.tally(lacking, KIDS, engine="duckdb")


@pytest.mark.parametrize(
    "limits", [EngineLimits(), EngineLimits(cells=1, saving=float("inf"))], ids=["held", "summed up"]
)
def test_the_spellings_of_a_csv_file_are_one_category(tmp_path, limits):
    frame = pd.DataFrame({"b": ["true", "TRUE", "True", "false"] * 9, "i": ["1", "1.0", "2", "2.0"] * 9})
    path = tmp_path / "spelled.csv.gz"
    with gzip.open(path, "wt") as file:
        frame.to_csv(file, index=False)
    policy = mq.Policy.clear(mq.Schema({"b": [True, False], "i": [1, 2]}))
    queries = [mq.Query(by="b"), mq.Query(by=("i", "b")), mq.Query(by="i", where={"b": True})]
    source = mq.tally(path, policy, engine="duckdb")
    source.limits = limits
    found = [table.values.tolist() for table in source.answer(queries)]
    assert found == [[27, 9], [[18, 0], [9, 9]], [18, 9]]


def test_a_csv_file_of_numbers_is_merged_into_its_bins_as_it_comes(tmp_path, monkeypatch):
    """Raw numbers that differ in every row are never held all at once."""
    monkeypatch.setattr("masquerade.sources.engines.coded_rows.MERGED_AT_ONCE", 500)
    monkeypatch.setattr("masquerade.sources.engines.duckdb_files.BATCH", 256)
    values = np.random.default_rng(3).random(4000) * 100
    pd.DataFrame({"x": values, "y": ["a", "b"] * 2000}).to_csv(tmp_path / "f.csv", index=False)
    policy = mq.Policy.from_dict(
        {"masquerade": 1, "variables": {"x": {"bins": [0, 10, 50, 100]}, "y": {"categories": ["a", "b"]}}}
    )
    source = mq.tally(tmp_path / "f.csv", schema=policy, engine="duckdb")
    source.limits = EngineLimits(rows=1500)
    (table,) = source.answer([mq.Query(by=("x", "y"))])
    cells = np.searchsorted([10, 50], values, side="right") * 2 + np.arange(4000) % 2
    assert table.values.ravel().tolist() == np.bincount(cells, minlength=6).tolist()


# --- what goes wrong


def test_standard_input_cannot_be_read_twice():
    for data in ("-", ["-"], ["a.csv", "-"]):
        with pytest.raises(InputError, match="Standard input can only be read once"):
            DuckFiles(data)


def test_a_file_that_is_gone_or_damaged_is_named_as_one_that_cannot_be_read(tmp_path):
    path = written(tmp_path / "f.parquet", x=[0, 1, 2] * 1000)
    source = mq.tally(path, KIDS, engine="duckdb")
    whole = path.read_bytes()
    path.write_bytes(whole[:20] + bytes(40) + whole[60:])
    with pytest.raises((FileError, EngineError), match=r"f\.parquet: "):
        source.answer([mq.Query(by="x")])
    path.unlink()
    with pytest.raises(FileError, match=r"f\.parquet: .*"):
        mq.Cached(source).answer([mq.Query(by="x")])
    with pytest.raises(FileError):
        mq.tally(path, KIDS, engine="duckdb")


def test_a_csv_row_that_is_too_short_is_told_in_our_words_and_never_quoted(tmp_path):
    (tmp_path / "f.csv").write_text("x,y\n1,secret\n2\n")
    with pytest.raises(FileError, match="data row 2 has 1 field, the first row has 2") as told:
        mq.tally(tmp_path / "f.csv", KIDS, engine="duckdb").answer([mq.Query(by="x")])
    assert "secret" not in str(told.value)


def test_the_private_folder_goes_with_the_source(tmp_path):
    table = DuckFiles(written(tmp_path / "f[0].parquet", x=[0]))
    spill = Path(table._spill)
    assert spill.is_dir()
    assert spill.stat().st_mode & 0o077 == 0
    del table
    assert not spill.exists()


def test_a_scan_that_is_given_up_leaves_the_connection_free(tmp_path):
    path = written(tmp_path / "f.csv", x=np.arange(300_000) % 3, y=np.arange(300_000))
    table = DuckFiles(path)
    batches = table.fetch(lambda t: f"SELECT y, COUNT(*) FROM {t} GROUP BY y", ["y"])  # noqa: S608
    assert len(next(batches)) > 0
    batches.close()
    (batch,) = table.fetch(lambda t: f"SELECT COUNT(*) AS n FROM {t}", [])  # noqa: S608
    assert batch["n"].to_pylist() == [300_000]


def test_a_watcher_is_told_while_a_scan_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("masquerade.sources.engines.engine_tables.PATIENCE", 0.01)
    seen = []
    path = written(tmp_path / "f.parquet", x=np.arange(450) % 3)
    table = DuckFiles(path, watch=seen.append)
    # a join that takes far longer than that
    slow = "SELECT COUNT(*) AS n FROM {0} a, {0} b, {0} c WHERE a.x + b.x > c.x"
    (batch,) = table.fetch(slow.format, ["x"])
    assert batch["n"].to_pylist()[0] > 0
    assert seen
    assert all(share is None or 0 <= share <= 1 for share in seen)
