"""Iceberg tables: the current snapshot, columns by field id; metadata that lie or are damaged are refused."""

from __future__ import annotations

import json
import os
import sys
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record
from pyiceberg.types import StringType
from tests.table_formats import create_iceberg, name_current

import masquerade as mq
from masquerade.core.errors import FileError, InputError
from masquerade.frames.file_reader import open_batches
from masquerade.frames.table_formats import iceberg

SCHEMA = mq.Schema({"a": ["x", "y"], "b": ["p q", "q%20", "ü/x=1"]})
TABLE = pa.table({"a": ["x", "y", "x", "x"], "b": ["p q", "q%20", "ü/x=1", "p q"], "n": [1, 2, 3, 4]})
MORE = pa.table({"a": ["y"] * 5, "b": ["p q"] * 5, "n": [5] * 5})
COUNTS = [[2, 0, 1], [0, 1, 0]]
HIDDEN = "Zyzzyva"


def counts(source, by=("a", "b")):
    [table] = source.answer([mq.Query(by=by)])
    return table.values.tolist()


def metadata_of(table):
    return Path(table.metadata_location.removeprefix("file://"))


@pytest.mark.parametrize("by", [None, "b", "n"])
@pytest.mark.parametrize("engine", ["auto", "memory", "duckdb"])
def test_the_current_snapshot_is_counted_without_deleted_files(tmp_path, engine, by):
    table = create_iceberg(MORE, tmp_path / "people", by)
    table.overwrite(TABLE)
    table.append(MORE)
    table.delete("n = 5")
    name_current(table)
    for place in (tmp_path / "people", metadata_of(table)):
        source = mq.tally(place, schema=SCHEMA, engine=engine)
        assert counts(source) == COUNTS
        assert source.n == 4 < len(list((tmp_path / "people" / "data").rglob("*.parquet"))) * 4


@pytest.mark.parametrize("by", [None, "b"])
@pytest.mark.parametrize("engine", ["auto", "memory", "duckdb"])
def test_a_source_keeps_its_snapshot_when_others_commit(tmp_path, engine, by):
    table = create_iceberg(TABLE, tmp_path / "people", by)
    source = mq.tally(tmp_path / "people", schema=SCHEMA, engine=engine)
    source.answer([mq.Query(by="a")])
    table.append(MORE)
    name_current(table)
    assert counts(source) == COUNTS
    table.overwrite(MORE)
    name_current(table)
    assert counts(source) == COUNTS
    assert mq.tally(tmp_path / "people", schema=SCHEMA, engine=engine).n == 5


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_renamed_and_added_and_dropped_columns_are_found_by_their_ids(tmp_path, engine):
    table = create_iceberg(TABLE, tmp_path / "people")
    with table.update_schema() as update:
        update.rename_column("a", "letter")
        update.delete_column("n")
        update.add_column("new", StringType())
    with table.update_schema() as update:
        update.rename_column("b", "a")  # the name of a column that older files have for another
    later = pa.table({"letter": ["y"], "a": ["p q"], "new": ["k"]})
    table.append(later)
    name_current(table)
    policy = {
        "masquerade": 1,
        "variables": {
            "letter": {"categories": ["x", "y"]},
            "a": {"categories": list(SCHEMA["b"].categories)},
            "new": {"categories": ["k", "none"], "missing": "none"},
        },
    }
    source = mq.tally(tmp_path / "people", schema=mq.Policy.from_dict(policy), engine=engine)
    assert counts(source, ("letter", "a")) == [[2, 0, 1], [1, 1, 0]]
    assert counts(source, ("new",)) == [1, 4]
    with open_batches(tmp_path / "people") as files:
        assert files.names == ("letter", "a", "new")


def test_files_without_ids_are_read_by_the_names_that_the_metadata_map(tmp_path):
    table = create_iceberg(TABLE, tmp_path / "people")
    plain = tmp_path / "people" / "data" / "plain.parquet"
    parquet.write_table(MORE, plain)
    table.add_files([str(plain)])  # PyIceberg writes the mapping of names
    with table.update_schema() as update:
        update.rename_column("a", "letter")
    name_current(table)
    schema = mq.Schema({"letter": ["x", "y"]})
    assert counts(mq.tally(tmp_path / "people", schema=schema), ("letter",)) == [3, 6]


def test_files_without_ids_and_names_are_refused(tmp_path):
    table = create_iceberg(TABLE, tmp_path / "people")
    [path] = (tmp_path / "people" / "data").rglob("*.parquet")
    parquet.write_table(TABLE, path)
    with pytest.raises(FileError, match="no field ids"):
        mq.tally(tmp_path / "people", schema=SCHEMA)
    assert table.metadata.name_mapping() is None


class DeleteWriter(ManifestWriterV2):
    """A writer of manifests of delete files, which PyIceberg reads and does not write."""

    def content(self):
        return ManifestContent.DELETES


def write_delete_file(table, folder, writer_type=DeleteWriter):
    """Delete rows 0 and 2 of a table's only data file by a position delete, as Flink and Spark do."""
    [task] = table.scan().plan_files()
    place = folder / "data" / "delete.parquet"
    fields = [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
    rows = pa.table([[task.file.file_path] * 2, [0, 2]], schema=pa.schema(fields))
    parquet.write_table(rows, place)
    snapshot = table.current_snapshot()
    target = table.io.new_output(str(folder / "metadata" / "delete-m0.avro"))
    data = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=str(place),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=2,
        file_size_in_bytes=place.stat().st_size,
    )
    data.spec_id = 0
    known = {"snapshot_id": snapshot.snapshot_id, "sequence_number": 2, "file_sequence_number": 2}
    entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=data, **known)
    with writer_type(table.spec(), table.schema(), target, snapshot.snapshot_id, "deflate") as writer:
        writer.add_entry(entry)
    listed = table.io.new_output(str(folder / "metadata" / "snap-delete.avro"))
    with write_manifest_list(2, listed, snapshot.snapshot_id, None, 2, "deflate") as lister:
        lister.add_manifests([*snapshot.manifests(table.io), writer.to_manifest_file()])
    edit(
        metadata_of(table), lambda values: values["snapshots"][-1].update({"manifest-list": listed.location})
    )


@pytest.mark.parametrize("writer_type", [DeleteWriter, ManifestWriterV2], ids=["deletes", "called data"])
def test_delete_files_are_refused(tmp_path, writer_type):
    table = create_iceberg(TABLE, tmp_path / "people")
    write_delete_file(table, tmp_path / "people", writer_type)
    with pytest.raises(FileError, match=r"has delete files.*table\.scan\(\)\.to_arrow_batch_reader\(\)"):
        mq.tally(tmp_path / "people", schema=SCHEMA)
    if writer_type is DeleteWriter:
        reader = StaticTable.from_metadata(str(metadata_of(table))).scan().to_arrow_batch_reader()
        assert counts(mq.tally(reader, schema=SCHEMA)) == [[1, 0, 0], [0, 1, 0]]


def edit(path, change):
    values = json.loads(path.read_text())
    path.write_text(json.dumps(change(values) or values))


def test_a_folder_whose_current_metadata_only_a_catalog_knows_is_refused(tmp_path):
    table = create_iceberg(TABLE, tmp_path / "people")
    hint = tmp_path / "people" / "metadata" / "version-hint.text"
    hint.unlink()
    with pytest.raises(FileError, match=r"2 metadata files, and only its catalog says.*metadata_location"):
        mq.tally(tmp_path / "people", schema=SCHEMA)
    assert counts(mq.tally(metadata_of(table), schema=SCHEMA)) == COUNTS
    for text in ("99", "../../other.metadata.json", "", "\x00"):
        hint.write_text(text)
        with pytest.raises(FileError, match="does not name a metadata file of this table"):
            mq.tally(tmp_path / "people", schema=SCHEMA)
    metadata_of(table).rename(tmp_path / "people" / "metadata" / "v7.metadata.json")
    hint.write_text("7\n")
    assert counts(mq.tally(tmp_path / "people", schema=SCHEMA)) == COUNTS


def test_a_table_is_opened_alone(tmp_path):
    create_iceberg(TABLE, tmp_path / "people")
    for given in ([tmp_path / "people"] * 2, f"{tmp_path}/people/data/*.parquet", f"{tmp_path}/**/*.parquet"):
        with pytest.raises(FileError, match=r"this is an Iceberg table.*Pass the folder itself"):
            mq.tally(given)
    with pytest.raises(InputError, match="a later version may lack records"):
        mq.tally(tmp_path / "people", schema=SCHEMA, growing=True)


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    create_iceberg(TABLE, tmp_path / "people")
    monkeypatch.setitem(sys.modules, "pyiceberg.table.metadata", None)
    with pytest.raises(InputError) as refused:
        mq.tally(tmp_path / "people")
    told = f"{tmp_path}/people: Iceberg tables need pyiceberg: pip install 'masquerade[iceberg]'"
    assert str(refused.value) == told


def test_what_pyiceberg_itself_reads_is_counted(tmp_path):
    table = create_iceberg(TABLE, tmp_path / "people")
    assert counts(mq.tally(table.scan().to_arrow_batch_reader(), schema=SCHEMA)) == COUNTS


@pytest.mark.parametrize(
    ("location", "what"),
    [
        ("s3://bucket/list.avro", "by an address, and nothing is fetched"),
        ("http://127.0.0.1:9/list.avro", "by an address, and nothing is fetched"),
        ("file://host/list.avro", "outside"),
        ("{outside}/private.avro", "outside"),
        ("file://{outside}/private.avro", "outside"),
        ("{folder}/metadata/../../private.avro", "outside"),
        ("{folder}/metadata/linked.avro", "through a link"),
        ("{folder}/metadata/gone.avro", "was it deleted"),
    ],
)
def test_metadata_name_no_file_outside_the_folder(tmp_path, location, what):
    table = create_iceberg(TABLE, tmp_path / "people")
    listed = Path(table.current_snapshot().manifest_list.removeprefix("file://"))
    (tmp_path / "private.avro").write_bytes(listed.read_bytes())
    (listed.parent / "linked.avro").symlink_to(tmp_path / "private.avro")
    place = location.format(outside=tmp_path, folder=tmp_path / "people")
    edit(metadata_of(table), lambda values: values["snapshots"][-1].update({"manifest-list": place}))
    with pytest.raises(FileError, match=what):
        mq.tally(tmp_path / "people", schema=SCHEMA)


def test_manifests_name_no_file_outside_the_folder(tmp_path):
    table = create_iceberg(TABLE, tmp_path / "people")
    (tmp_path / "people").rename(tmp_path / "moved")
    with pytest.raises(FileError, match=r"outside .*was the table moved"):
        mq.tally(tmp_path / "moved", schema=SCHEMA)
    assert table is not None


def test_properties_of_metadata_load_no_code(tmp_path, monkeypatch):
    table = create_iceberg(TABLE, tmp_path / "people")
    (tmp_path / "evil_io.py").write_text("raise SystemExit('loaded')")
    monkeypatch.syspath_prepend(tmp_path)
    named = {"py-io-impl": "evil_io.Files", "py-location-provider-impl": "evil_io.Places"}
    edit(metadata_of(table), lambda values: values["properties"].update(named))
    assert counts(mq.tally(tmp_path / "people", schema=SCHEMA)) == COUNTS
    assert "evil_io" not in sys.modules
    with pytest.raises(SystemExit):  # as PyIceberg itself does
        StaticTable.from_metadata(str(metadata_of(table)))


def cut_list(table):
    path = Path(table.current_snapshot().manifest_list.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-9])


def make_pipe(table):
    path = metadata_of(table)
    path.unlink()
    os.mkfifo(path)


def link_metadata(table):
    path = metadata_of(table)
    path.rename(path.parent.parent.parent / "elsewhere.json")
    path.symlink_to(path.parent.parent.parent / "elsewhere.json")


def forget_schema(values):
    values["schemas"] = []


@pytest.mark.parametrize(
    "attack",
    [
        lambda table: metadata_of(table).write_text(""),
        lambda table: metadata_of(table).write_text("{"),
        lambda table: metadata_of(table).write_text("{}"),
        lambda table: metadata_of(table).write_text("[" * 100_000),
        lambda table: metadata_of(table).write_text(f'{{"format-version": 2, "location": "{HIDDEN}"}}'),
        lambda table: metadata_of(table).write_bytes(b"\xff\xfe"),
        lambda table: metadata_of(table).write_bytes(b"\x1f\x8b" + bytes(100)),
        lambda table: edit(metadata_of(table), forget_schema),
        lambda table: edit(metadata_of(table), lambda values: {**values, "format-version": 99}),
        cut_list,
        make_pipe,
        link_metadata,
    ],
)
def test_damaged_metadata_are_refused_in_a_line_without_their_content(tmp_path, attack):
    attack(create_iceberg(TABLE, tmp_path / "people"))
    with pytest.raises(FileError) as refused:
        mq.tally(tmp_path / "people", schema=SCHEMA)
    assert "\n" not in str(refused.value)
    assert HIDDEN not in str(refused.value)


def number(value):
    """Return an integer as Avro writes it."""
    value <<= 1
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*content, value])


def test_a_manifest_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    table = create_iceberg(TABLE, tmp_path / "people")
    monkeypatch.setattr(iceberg, "MOST_MANIFEST", 1 << 20)
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    block = packer.compress(bytes(1 << 24)) + packer.flush()
    path = Path(table.current_snapshot().manifest_list.removeprefix("file://"))
    content = path.read_bytes()
    mark = content[-16:]
    path.write_bytes(content + number(1) + number(len(block)) + block + mark)
    with pytest.raises(FileError, match="takes more than 1 MiB of memory"):
        mq.tally(tmp_path / "people", schema=SCHEMA)
