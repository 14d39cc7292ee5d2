"""Delta tables: one version, whatever is committed later; logs that lie or are damaged are refused."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyroaring import BitMap
from tests.table_formats import write_delta

import masquerade as mq
from masquerade.core.errors import FileError, InputError, UnknownValue
from masquerade.frames.file_reader import open_batches
from masquerade.frames.streams import scanned_files

SCHEMA = mq.Schema({"a": ["x", "y"], "b": ["p q", "q%20", "ü/x=1"]})
TABLE = pa.table({"a": ["x", "y", "x", "x"], "b": ["p q", "q%20", "ü/x=1", "p q"], "n": [1, 2, 3, 4]})
MORE = pa.table({"a": ["y"] * 5, "b": ["p q"] * 5, "n": [5] * 5})
COUNTS = [[2, 0, 1], [0, 1, 0]]
BY = [None, ["b"], ["b", "n"]]
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def counts(source):
    [table] = source.answer([mq.Query(by=("a", "b"))])
    return table.values.tolist()


def first_commit(folder):
    return folder / "_delta_log" / f"{0:020}.json"


def edit_log(folder, edit):
    """Change the actions of the first commit."""
    path = first_commit(folder)
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("\n".join(json.dumps(action) for action in edit(actions) or actions))


@pytest.mark.parametrize("by", BY, ids=str)
@pytest.mark.parametrize("engine", ["auto", "memory", "duckdb"])
def test_the_newest_version_is_counted_without_deleted_files(tmp_path, engine, by):
    people = write_delta(MORE, tmp_path / "people", partition_by=by)
    write_delta(TABLE, people, partition_by=by, mode="overwrite")
    write_delta(MORE, people, partition_by=by, mode="append")
    deltalake.DeltaTable(str(people)).delete("n = 5")
    source = mq.tally(people, schema=SCHEMA, engine=engine)
    assert counts(source) == COUNTS
    assert source.n == 4 < sum(parquet.read_metadata(path).num_rows for path in people.rglob("*.parquet"))


@pytest.mark.parametrize("by", BY, ids=str)
@pytest.mark.parametrize("engine", ["auto", "memory", "duckdb"])
def test_a_source_keeps_its_version_when_others_commit(tmp_path, engine, by):
    people = write_delta(TABLE, tmp_path / "people", partition_by=by)
    source = mq.tally(people, schema=SCHEMA, engine=engine)
    source.answer([mq.Query(by="a")])
    write_delta(MORE, people, partition_by=by, mode="append")
    assert counts(source) == COUNTS
    write_delta(MORE, people, partition_by=by, mode="overwrite")
    assert counts(source) == COUNTS
    assert mq.tally(people, schema=SCHEMA, engine=engine).n == 5


def test_large_tables_are_read_late_and_keep_their_version(tmp_path):
    large = pa.table({"a": ["x", "y"] * 60_000, "b": ["p q"] * 120_000})
    people = write_delta(large, tmp_path / "people")
    source = mq.tally(people, schema=SCHEMA)
    write_delta(large, people, mode="append")
    assert counts(source) == [[60_000, 0, 0]] * 2


def test_a_version_whose_files_were_vacuumed_is_an_error(tmp_path):
    people = write_delta(TABLE, tmp_path / "people")
    source = mq.tally(people, schema=SCHEMA, engine="duckdb")
    write_delta(MORE, people, mode="overwrite")
    options = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}
    deltalake.DeltaTable(str(people)).vacuum(**options)
    with pytest.raises(FileError, match="no such file"):
        counts(source)


def test_columns_that_were_added_later_are_missing_in_earlier_files(tmp_path):
    people = write_delta(TABLE, tmp_path / "people", partition_by=["b"])
    wide = TABLE.append_column("c", pa.array(["k"] * 4))
    write_delta(wide, people, mode="append", schema_mode="merge")
    policy = {"masquerade": 1, "variables": {"c": {"categories": ["k", "none"], "missing": "none"}}}
    for engine in ("memory", "duckdb"):
        source = mq.tally(people, schema=mq.Policy.from_dict(policy), engine=engine)
        assert source.answer([mq.Query(by="c")])[0].values.tolist() == [4, 4]
        with pytest.raises(UnknownValue, match="'c'"):
            mq.tally(people, schema=mq.Schema({"c": ["k"]}), engine=engine).answer([mq.Query(by="c")])


def test_types_of_partitions_are_those_of_the_table(tmp_path):
    people = write_delta(TABLE, tmp_path / "people", partition_by=["b", "n"])
    write_delta(
        pa.table({"a": ["x"], "b": ["p q"], "n": pa.array([None], pa.int64())}), people, mode="append"
    )
    with open_batches(people, ["n", "b"]) as files:
        rows = [tuple(row.values()) for batch in files for row in batch.to_pylist()]
    assert sorted(rows, key=str) == [(1, "p q"), (2, "q%20"), (3, "ü/x=1"), (4, "p q"), (None, "p q")]


def test_the_version_is_said_and_a_table_is_opened_alone(tmp_path):
    people = write_delta(TABLE, tmp_path / "people")
    write_delta(MORE, people, mode="append")
    with open_batches(people) as files:
        assert files.notes == [f"{people} (Delta, version 1): this version is read."]
    others = [[people, people], f"{people}/*.parquet", f"{tmp_path}/**/*.parquet"]
    for given in others:
        with pytest.raises(FileError, match=r"this is a Delta table.*Pass the folder itself"):
            mq.tally(given)
    with pytest.raises(InputError, match="a later version may lack records"):
        mq.tally(people, schema=SCHEMA, growing=True)


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    people = write_delta(TABLE, tmp_path / "people")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(InputError) as refused:
        mq.tally(people)
    assert str(refused.value) == (f"{people}: Delta tables need deltalake: pip install 'masquerade[delta]'")


def deletion_vector(rows):
    """Return a deletion vector as Delta's protocol writes it into a log."""
    bitmap = (1681511377).to_bytes(4, "little") + (1).to_bytes(8, "little") + bytes(4)
    content = bitmap + BitMap(rows).serialize()
    content += bytes(-len(content) % 4)
    text = base64.b85encode(content).decode().translate(str.maketrans(B85, Z85))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(content), "cardinality": len(rows)}


def delete_rows(actions):
    set_protocol(actions, "deletionVectors")
    for action in actions:
        if "add" in action:
            action["add"]["deletionVector"] = deletion_vector([1, 3])


def test_deletion_vectors_are_refused_and_what_deltalake_reads_is_counted(tmp_path):
    people = write_delta(TABLE, tmp_path / "people")

    edit_log(people, delete_rows)
    with pytest.raises(FileError, match=r"has deletion vectors.*DeltaTable\('.*people'\)\.scan\(\)"):
        mq.tally(people, schema=SCHEMA)
    source = mq.tally(deltalake.DeltaTable(str(people)).scan(), schema=SCHEMA)
    assert counts(source) == [[1, 0, 1], [0, 0, 0]]


def test_a_table_that_allows_deletion_vectors_and_has_none_is_read(tmp_path):
    people = write_delta(TABLE, tmp_path / "people")
    edit_log(people, lambda actions: set_protocol(actions, "deletionVectors"))
    assert counts(mq.tally(people, schema=SCHEMA)) == COUNTS


def set_protocol(actions, *features):
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": list(features), "writerFeatures": list(features),
            }  # fmt: skip


def rename_columns(actions):
    set_protocol(actions, "columnMapping")
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
            schema = json.loads(action["metaData"]["schemaString"])
            for number, field in enumerate(schema["fields"], 1):
                stored = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
                field["metadata"] = stored
            action["metaData"]["schemaString"] = json.dumps(schema)


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (rename_columns, "column mapping"),
        (lambda actions: set_protocol(actions, "typeWidening"), "typeWidening|too new"),
        (lambda actions: set_protocol(actions, "ofTheFuture"), "ofTheFuture|too new"),
    ],
    ids=["renamed columns", "typeWidening", "unknown feature"],
)
def test_features_that_change_how_files_are_read_are_refused(tmp_path, edit, what):
    people = write_delta(TABLE, tmp_path / "people")
    edit_log(people, edit)
    with pytest.raises(FileError, match=what):
        mq.tally(people, schema=SCHEMA)


def name_path(path):
    def edit(actions):
        for action in actions:
            if "add" in action:
                action["add"]["path"] = path

    return edit


def list_twice(actions):
    again = json.loads(json.dumps(next(action for action in actions if "add" in action)))
    again["add"]["path"] = "./" + again["add"]["path"]
    return [*actions, again]


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("../private.parquet", "outside"),
        ("%2E%2E/private.parquet", "outside"),
        ("{outside}/private.parquet", "outside"),
        ("inner/../../private.parquet", "outside"),
        ("file://{outside}/private.parquet", "by an address, and nothing is fetched"),
        ("s3://bucket/private.parquet", "by an address, and nothing is fetched"),
        ("http://127.0.0.1:9/private.parquet", "by an address, and nothing is fetched"),
        ("linked.parquet", "through a link"),
        ("linked/private.parquet", "through a link"),
        ("gone.parquet", "was it deleted"),
        ("", "was it deleted"),
        ("_delta_log", "was it deleted"),
        ("a%00b.parquet", "not valid|cannot be read"),
    ],
)
def test_a_log_names_no_file_outside_its_folder(tmp_path, path, what):
    people = write_delta(TABLE, tmp_path / "people")
    parquet.write_table(MORE, tmp_path / "private.parquet")
    (people / "linked.parquet").symlink_to(tmp_path / "private.parquet")
    (people / "linked").symlink_to(tmp_path)
    edit_log(people, name_path(path.format(outside=tmp_path)))
    with pytest.raises(FileError, match=what):
        mq.tally(people, schema=SCHEMA)


def test_a_file_that_is_listed_twice_is_refused(tmp_path):
    people = write_delta(TABLE, tmp_path / "people")
    edit_log(people, list_twice)
    with pytest.raises(FileError, match="listed twice"):
        mq.tally(people, schema=SCHEMA)


def write_bytes(content):
    return lambda people: first_commit(people).write_bytes(content)


def make_pipe(people):
    os.mkfifo(people / "_delta_log" / f"{1:020}.json")


def link_log(people):
    (people / "_delta_log").rename(people.parent / "log")
    (people / "_delta_log").symlink_to(people.parent / "log")


def break_checkpoint(people):
    deltalake.DeltaTable(str(people)).create_checkpoint()
    [path] = (people / "_delta_log").glob("*.checkpoint.parquet")
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    "attack",
    [
        write_bytes(b""),
        write_bytes(b"{"),
        write_bytes(b"[" * 100_000),
        write_bytes(b'{"secret": "Zyzzyva"'),
        write_bytes(bytes(range(256))),
        make_pipe,
        link_log,
        break_checkpoint,
        lambda people: shutil.rmtree(people / "_delta_log") or (people / "_delta_log").mkdir(),
    ],
)
def test_damaged_logs_are_refused_in_a_line_without_their_content(tmp_path, attack):
    people = write_delta(TABLE, tmp_path / "people")
    attack(people)
    with pytest.raises(FileError) as refused:
        mq.tally(people, schema=SCHEMA)
    assert "\n" not in str(refused.value)
    assert "Zyzzyva" not in str(refused.value)
    assert refused.value.__cause__ is None is refused.value.__context__


def test_a_checkpoint_that_would_fill_the_memory_is_refused(tmp_path):
    people = write_delta(TABLE, tmp_path / "people")
    bomb = pa.table({"add": pa.array(["x" * (1 << 20)] * 1000)})
    path = people / "_delta_log" / f"{0:020}.checkpoint.parquet"
    parquet.write_table(bomb, path, compression="zstd", use_dictionary=False, data_page_size=1 << 30)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(FileError, match="MB"):
        mq.tally(people, schema=SCHEMA)


def test_checkpoints_are_read(tmp_path):
    people = write_delta(MORE, tmp_path / "people")
    write_delta(TABLE, people, mode="overwrite")
    deltalake.DeltaTable(str(people)).create_checkpoint()
    for commit in (people / "_delta_log").glob("*.json"):
        commit.unlink()
    assert counts(mq.tally(people, schema=SCHEMA)) == COUNTS


def test_a_relative_path_and_a_link_that_the_user_typed_are_followed(tmp_path, monkeypatch):
    write_delta(TABLE, tmp_path / "people", partition_by=["b"])
    (tmp_path / "by-name").symlink_to(tmp_path / "people")
    monkeypatch.chdir(tmp_path)
    for given in ("people", Path("./people"), "by-name", tmp_path / "by-name"):
        assert counts(mq.tally(given, schema=SCHEMA)) == COUNTS


def test_a_lazy_scan_of_a_table_with_deletion_vectors_is_not_read_as_its_files(tmp_path):
    people = write_delta(TABLE, tmp_path / "people")
    assert scanned_files(pl.scan_delta(str(people))) is None
    assert counts(mq.tally(pl.scan_delta(str(people)), schema=SCHEMA)) == COUNTS
    edit_log(people, delete_rows)
    scan = pl.scan_delta(str(people))
    assert scanned_files(scan) is None
    assert counts(mq.tally(scan, schema=SCHEMA)) == [[1, 0, 1], [0, 0, 0]]
