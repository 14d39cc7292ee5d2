"""Disguising files: streamed, atomic, the same as frames."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest

import masquerade as mq
from masquerade.core.errors import FileError, InputError, PolicyMismatch, UnknownValue
from masquerade.frames.file_reader import open_batches

POLICY = mq.Policy.build(
    {"a": ["x", "y"], "b": [1, 2, 3]},
    {"a": mq.channels.binary(0.2), "b": mq.channels.symmetric(3, 0.3)},
)
CLEAR = pd.DataFrame({"b": [1, 2, 3, 3] * 500, "a": ["x", "y", "x", "x"] * 500, "note": ["secret"] * 2000})


def write(path) -> None:
    if path.suffix == ".csv":
        CLEAR.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        CLEAR.to_parquet(path)
    else:
        pf.write_feather(pa.Table.from_pandas(CLEAR), path)


@pytest.mark.parametrize("source", ["in.csv", "in.parquet", "in.arrow"])
@pytest.mark.parametrize("target", ["out.csv", "out.parquet", "out.arrow"])
def test_every_format_to_every_format(tmp_path, source, target):
    write(tmp_path / source)
    seen: list[tuple[int, int | None]] = []
    release = mq.disguise_file(
        tmp_path / source, tmp_path / target, POLICY, progress=lambda done, total: seen.append((done, total))
    )
    assert release.rows == 2000
    assert seen
    (table,) = mq.tally(tmp_path / target, POLICY).answer([mq.Query(by=("a", "b"))])
    assert table.total == pytest.approx(2000)
    (truth,) = mq.tally(CLEAR, schema=POLICY).answer([mq.Query(by=("a", "b"))])
    # six cells at 1e-6: |z| < 5.4
    assert np.all(np.abs(table.values - truth.values) < 5.4 * table.stderr("given_records"))
    assert b"secret" not in (tmp_path / target).read_bytes()


def test_the_policy_id_travels_with_the_file(tmp_path):
    write(tmp_path / "in.csv")
    for name in ("out.csv", "out.parquet"):
        mq.disguise_file(tmp_path / "in.csv", tmp_path / name, POLICY)
        with pytest.raises(PolicyMismatch):
            mq.tally(tmp_path / name, mq.Policy.clear(POLICY.schema))
    assert json.loads((tmp_path / "out.csv.masquerade.json").read_text())["policy"] == POLICY.id
    assert pq.read_schema(tmp_path / "out.parquet").metadata[b"masquerade.policy"].decode() == POLICY.id


def test_an_unknown_value_late_in_the_file_leaves_nothing_behind(tmp_path):
    CLEAR.assign(a=["x"] * 1999 + ["classified"]).to_csv(tmp_path / "in.csv", index=False)
    memo = {"memo": tmp_path / "memo", "id": "note", "new_memo": True}
    with pytest.raises(UnknownValue) as caught:
        mq.disguise_file(tmp_path / "in.csv", tmp_path / "out.csv", POLICY, **memo)
    assert caught.value.row == 2000
    assert "classified" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_rows_are_counted_from_the_start_of_the_file_over_many_batches(tmp_path):
    frame = pd.concat([CLEAR] * 300, ignore_index=True)
    frame.loc[599_990, "a"] = "?"
    frame.to_parquet(tmp_path / "in.parquet")
    with pytest.raises(UnknownValue) as caught:
        mq.disguise_file(tmp_path / "in.parquet", tmp_path / "out.parquet", POLICY)
    assert (caught.value.column, caught.value.row) == ("a", 599_991)


def test_values_of_a_long_csv_are_found_and_faults_are_located_as_in_a_short_one(tmp_path):
    words = ["x", "y", '"x"', "", "?", "X", "x "]
    field = {"missing": "x", "recode": {"y": ["?"]}}
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {"a": {"categories": ["x", "y"], **field}, "b": {"categories": [1, 2, 3]}},
        }
    )
    good = [f"{words[row % 5]},{row % 3 + 1}" for row in range(9000)]
    (tmp_path / "in.csv").write_text("\n".join(["a,b", *good]))
    assert mq.disguise_file(tmp_path / "in.csv", tmp_path / "out.csv", policy).rows == 9000
    ((table,), (second,)) = (
        mq.tally(frame, schema=policy).answer([mq.Query(by=("a", "b"))])
        for frame in (
            pd.read_csv(tmp_path / "out.csv"),
            pd.DataFrame({"a": ["x", "y", "x", "x", "y"] * 1800, "b": [1, 2, 3] * 3000}),
        )
    )
    assert np.array_equal(table.values, second.values)
    for row in (1, 4095, 8999):
        (tmp_path / "bad.csv").write_text("\n".join(["a,b", *good[:row], f"{words[5]},1", f"{words[6]},4"]))
        with pytest.raises(UnknownValue) as caught:
            mq.disguise_file(tmp_path / "bad.csv", tmp_path / "none.csv", policy)
        assert [(own.column, own.rows) for own in caught.value.problems] == [
            ("a", (row + 1, row + 2)),
            ("b", (row + 2,)),
        ]
        assert not (tmp_path / "none.csv").exists()


def test_existing_output_and_half_a_memo_are_refused_before_any_work(tmp_path):
    write(tmp_path / "in.csv")
    (tmp_path / "out.csv").write_text("mine")
    with pytest.raises(FileError, match="exists already"):
        mq.disguise_file(tmp_path / "in.csv", tmp_path / "out.csv", POLICY)
    assert (tmp_path / "out.csv").read_text() == "mine"
    with pytest.raises(FileError, match="also the input"):
        mq.disguise_file(tmp_path / "in.csv", tmp_path / "in.csv", POLICY, overwrite=True)
    with pytest.raises(InputError, match="needs both"):
        mq.disguise_file(tmp_path / "in.csv", tmp_path / "new.csv", POLICY, id="note")
    mq.disguise_file(tmp_path / "in.csv", tmp_path / "out.csv", POLICY, overwrite=True)
    assert "mine" not in (tmp_path / "out.csv").read_text()


def test_a_file_with_a_header_only_gives_a_file_with_a_header_only(tmp_path):
    (tmp_path / "in.csv").write_text("b,a,note\n")
    assert mq.disguise_file(tmp_path / "in.csv", tmp_path / "out.csv", POLICY, keep=["note"]).rows == 0
    assert (tmp_path / "out.csv").read_text().strip().replace('"', "") == "b,a,note"
    (table,) = mq.tally(tmp_path / "out.csv", POLICY).answer([mq.Query(by="a")])
    assert list(table.values) == [0, 0]


def test_text_of_a_parquet_file_is_never_expanded(tmp_path):
    rows = 1 << 17
    words = pa.array(["x", "y"]).take(pa.array(np.arange(rows) % 2))
    names = pa.array([f"person {row}" for row in range(rows)])
    clear = pa.table({"a": words, "b": pa.array(np.arange(rows) % 3 + 1), "name": names})
    pq.write_table(clear, tmp_path / "in.parquet", row_group_size=rows // 2)
    with open_batches(tmp_path / "in.parquet", ["a", "b", "name"]) as batches:
        kinds = {batch.schema.field("a").type for batch in batches.select(batches.names, coded=["a", "name"])}
        assert all(pa.types.is_dictionary(kind) for kind in kinds)
        assert {batch.schema.field("name").type for batch in batches} == {pa.string()}  # all differ
    mq.disguise_file(tmp_path / "in.parquet", tmp_path / "out.parquet", POLICY, keep=["name"])
    written = pq.read_table(tmp_path / "out.parquet")
    assert written.schema.types == [pa.string(), pa.int64(), pa.string()]
    assert written["name"].equals(clear["name"])
    assert set(written["a"].to_pylist()) == {"x", "y"}
    group = pq.ParquetFile(tmp_path / "out.parquet").metadata.row_group(0)
    assert [group.column(i).statistics is not None for i in range(3)] == [False, False, True]  # drawn, kept
    pq.write_table(clear, tmp_path / "small.parquet", row_group_size=1000)
    mq.disguise_file(tmp_path / "small.parquet", tmp_path / "one.parquet", POLICY)
    assert pq.ParquetFile(tmp_path / "one.parquet").num_row_groups == 1


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Peak memory of the whole process for half a million and for four million records."""
    peaks = []
    for name, copies in (("small", 1), ("large", 8)):
        part = pa.Table.from_pandas(pd.concat([CLEAR] * 250, ignore_index=True))
        with pq.ParquetWriter(tmp_path / f"{name}.parquet", part.schema) as writer:
            for _ in range(copies):
                writer.write_table(part)
        POLICY.save(tmp_path / "policy.yaml")
        code = (
            "import masquerade as mq; "
            f"name = {str(tmp_path / name)!r}; mq.disguise_file(name + '.parquet', name + '.out.parquet', "
            f"mq.Policy.load({str(tmp_path / 'policy.yaml')!r})); "
            # getrusage would also count what this process held when it started the other
            "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
        )
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
        )
        peaks.append(int(done.stdout) // 1024)
    assert peaks[1] < 1024
    assert peaks[1] - peaks[0] < 200
