"""Where files are counted: in memory what fits easily, in DuckDB what does not."""

from __future__ import annotations

import gzip
import io
import logging
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.frames.file_reader import open_batches
from masquerade.sources import tally as planner
from masquerade.sources.engines.duckdb_files import DuckFiles
from masquerade.sources.engines.engine import Engine
from masquerade.sources.records import Records

POLICY = mq.Policy.build({"a": ["x", "y"], "b": [0, 1]}, {"a": mq.channels.binary("0.1")})
FRAME = pd.DataFrame({"a": ["x", "y"] * 500, "b": [0, 1, 1, 0] * 250})


@pytest.fixture
def files(tmp_path):
    FRAME.to_parquet(tmp_path / "f.parquet")
    FRAME.to_csv(tmp_path / "f.csv", index=False)
    return tmp_path


def placed(data, **options):
    with open_batches(data, []) as opened:
        return planner.table_for(opened, POLICY, **{"engine": "auto", **options})


def bytes_needed(data, policy):
    with open_batches(data, []) as opened:
        return planner.codes_of(opened, policy)


@pytest.mark.parametrize(
    ("allowed", "engine"), [(1999, DuckFiles), (2000, type(None))], ids=["beyond the limit", "at the limit"]
)
def test_what_is_larger_than_the_limit_goes_to_duckdb(files, allowed, engine, caplog):
    with caplog.at_level(logging.INFO, "masquerade.sources"):
        assert type(placed(files / "f.parquet", allowed=allowed)) is engine
    (record,) = caplog.records
    where = "memory" if engine is type(None) else "DuckDB over 1 file"
    said = f"counting in {where}: 0 MiB of codes, memory is used up to 0 MiB ({files / 'f.parquet'})"
    assert record.getMessage() == said  # which file, and nothing that is in it


def test_the_line_in_the_log_has_the_sizes(files, caplog, monkeypatch):
    monkeypatch.setattr(planner, "codes_of", lambda *_: 700 << 20)
    with caplog.at_level(logging.INFO, "masquerade.sources"):
        placed(files / "f.parquet", allowed=256 << 20)
    sizes = "700 MiB of codes, memory is used up to 256 MiB"
    assert caplog.messages == [f"counting in DuckDB over 1 file: {sizes} ({files / 'f.parquet'})"]


def test_small_files_never_open_duckdb(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)  # importing it would fail
    for name in ("f.parquet", "f.csv"):
        assert isinstance(mq.tally(files / name, POLICY), Records)


def test_an_engine_that_is_asked_for_is_used(files, caplog):
    with caplog.at_level(logging.INFO, "masquerade.sources"):
        assert isinstance(mq.tally(files / "f.csv", POLICY, engine="duckdb"), Engine)
    assert caplog.messages == [f"counting in DuckDB over 1 file: asked for ({files / 'f.csv'})"]
    assert placed(files / "f.csv", engine="memory", allowed=0) is None


def test_large_files_are_counted_in_duckdb_by_themselves(files, monkeypatch):
    monkeypatch.setattr(planner, "largest_in_memory", lambda: 10)
    source = mq.tally(files / "f.parquet", POLICY)
    assert isinstance(source, Engine)
    np.testing.assert_allclose(
        source.answer([mq.Query(by=("a", "b"))])[0].values,
        mq.tally(FRAME, POLICY).answer([mq.Query(by=("a", "b"))])[0].values,
    )


@pytest.mark.parametrize("engine", ["spark", "", None, "DuckDB"])
def test_an_engine_that_is_none_is_refused(files, engine):
    with pytest.raises(InputError, match="must be one of auto, memory, duckdb"):
        mq.tally(files / "f.csv", POLICY, engine=engine)


def test_frames_are_counted_where_they_are():
    assert isinstance(mq.tally(FRAME, POLICY), Records)
    assert isinstance(mq.tally(FRAME, POLICY, engine="memory"), Records)
    with pytest.raises(InputError, match="engine='duckdb' is for files"):
        mq.tally(FRAME, POLICY, engine="duckdb")


def test_standard_input_is_for_memory_only(monkeypatch):
    text = FRAME.to_csv(index=False)
    for data in ("-", ["-"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert placed(data) is None
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    with pytest.raises(InputError, match="Standard input"):
        placed("-", engine="duckdb")


def test_codes_take_a_byte_each_and_two_where_there_are_many_categories(tmp_path):
    pq.write_table(pa.table({"a": list(range(100)), "b": list(range(100))}), tmp_path / "f.parquet")
    for size, width in ((256, 1), (257, 2), (70_000, 4)):
        policy = mq.Policy.clear(mq.Schema({"a": range(size), "b": [0]}))
        assert bytes_needed(tmp_path / "f.parquet", policy) == 100 * (width + 1)


def test_csv_files_are_never_taken_for_smaller_than_they_are(files):
    assert bytes_needed(files / "f.csv", POLICY) >= FRAME.size
    rare = np.random.default_rng(1).random((20_000, 2)) < 0.03  # nearly all rows alike: packs well
    frame, packed = (
        pd.DataFrame({"a": np.where(rare[:, 0], "x", "y"), "b": rare[:, 1] * 1}),
        files / "g.csv.gz",
    )
    with gzip.open(packed, "wt") as file:
        frame.to_csv(file, index=False)
    assert packed.stat().st_size < frame.size / 10
    assert bytes_needed(packed, POLICY) >= frame.size
    assert bytes_needed([files / "f.csv", packed], POLICY) >= FRAME.size + frame.size


def test_no_more_than_a_part_of_the_free_memory_is_used(monkeypatch, tmp_path):
    monkeypatch.setattr(planner, "free_memory", lambda: 800)
    assert planner.largest_in_memory() == 100
    monkeypatch.setattr(planner, "free_memory", lambda: 1 << 60)
    assert planner.largest_in_memory() == planner.LARGEST_IN_MEMORY
    monkeypatch.undo()
    assert planner.free_memory() > 0
    monkeypatch.setattr(planner, "CONTROL_GROUP", tmp_path)
    without = planner.kept_free_by_machine()
    assert abs(planner.free_memory() - without) < without / 2  # no such group: what the machine has
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 450\n")
    assert planner.free_memory() == 550
    (tmp_path / "memory.max").write_text("max\n")
    assert planner.free_memory() > 550
