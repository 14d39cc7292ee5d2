"""Folders of files: partitions with their columns, tables of Delta and Iceberg, and addresses."""

from __future__ import annotations

import os

import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import FileError
from masquerade.frames.file_reader import open_batches

SCHEMA = mq.Schema({"smoker": ["yes", "no"], "region": ["north", "south east"], "year": [2024, 2025]})


def write_partitions(folder, ending="parquet"):
    """Write five records for each region and year; three of them smoke in 2025."""
    for region in ("north", "south%20east"):
        for year in (2024, 2025):
            place = folder / f"region={region}" / f"year={year}"
            place.mkdir(parents=True)
            smokers = ["yes"] * (3 if year == 2025 else 1)
            frame = pd.DataFrame({"smoker": (smokers + ["no"] * 5)[:5]})
            if ending == "parquet":
                frame.to_parquet(place / "part-0.parquet", index=False)
            else:
                frame.to_csv(place / "part-0.csv", index=False)
    (folder / "_SUCCESS").touch()
    (folder / "region=north" / ".hidden.parquet").touch()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_folders_of_partitions_are_columns(tmp_path, ending, engine):
    write_partitions(tmp_path / "people", ending)
    source = mq.tally(tmp_path / "people", schema=SCHEMA, engine=engine)
    by_region, smokers = source.answer(
        [mq.Query(by=("region", "year")), mq.Query(by="smoker", where={"year": 2025, "region": "south east"})]
    )
    assert by_region.values.tolist() == [[5, 5], [5, 5]]
    assert smokers.values.tolist() == [3, 2]


def test_partitions_are_whole_numbers_if_all_values_are(tmp_path):
    write_partitions(tmp_path / "people")
    schema = mq.tally(tmp_path / "people").schema
    assert schema["year"].categories == (2024, 2025)
    assert schema["region"].categories == ("north", "south east")


def test_a_partition_without_a_value_is_missing(tmp_path):
    write_partitions(tmp_path / "people")
    place = tmp_path / "people" / "region=__HIVE_DEFAULT_PARTITION__" / "year=2024"
    place.mkdir(parents=True)
    pd.DataFrame({"smoker": ["yes"]}).to_parquet(place / "part-0.parquet", index=False)
    with open_batches(tmp_path / "people", ["region"]) as files:
        values = [value for batch in files for value in batch["region"].to_pylist()]
    assert values.count(None) == 1
    assert len(values) == 21


def test_partitions_are_disguised_as_columns(tmp_path):
    write_partitions(tmp_path / "people")
    policy = mq.Policy.build(SCHEMA, {"smoker": mq.channels.binary("1/4")})
    mq.disguise_file(tmp_path / "people", tmp_path / "reports.parquet", policy)
    [table] = mq.tally(tmp_path / "reports.parquet").answer([mq.Query(by="region")])
    assert table.values.tolist() == [10, 10]


def test_a_column_in_the_file_and_in_its_folder_is_refused(tmp_path):
    place = tmp_path / "people" / "region=north"
    place.mkdir(parents=True)
    pd.DataFrame({"region": ["south"]}).to_parquet(place / "part-0.parquet", index=False)
    with pytest.raises(FileError, match="'region' is in the file and in the names of its folders"):
        mq.tally(tmp_path / "people")


def test_files_below_different_keys_are_refused(tmp_path):
    write_partitions(tmp_path / "people")
    (tmp_path / "people" / "country=x").mkdir()
    pd.DataFrame({"smoker": ["yes"]}).to_parquet(tmp_path / "people" / "country=x" / "p.parquet", index=False)
    with pytest.raises(FileError, match="not all in folders of the same keys"):
        mq.tally(tmp_path / "people")


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_a_file_that_is_added_to_a_folder_changes_no_later_answer(tmp_path, engine):
    write_partitions(tmp_path / "people")
    source = mq.tally(tmp_path / "people", schema=SCHEMA, engine=engine)
    place = tmp_path / "people" / "region=north" / "year=2024"
    pd.DataFrame({"smoker": ["yes"] * 50}).to_parquet(place / "part-1.parquet", index=False)
    [table] = source.answer([mq.Query(by=("region", "smoker"))])
    assert table.values.sum() == source.n == 20
    assert mq.tally(tmp_path / "people", schema=SCHEMA, engine=engine).n == 70


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("s3://bucket/people.parquet", "an object in S3"),
        ("gs://bucket/people.parquet", "an object in Google Cloud Storage"),
        ("https://host.example/people.csv", "a file on a web server"),
        ("hf://datasets/a/b.parquet", "a file of the Hugging Face Hub"),
        ("other://x", "an address"),
        ("file:///people.csv", "write the path without file://"),
    ],
)
def test_addresses_are_named_and_nothing_is_fetched(address, name):
    with pytest.raises(FileError, match=name):
        mq.tally(address)


def test_a_plain_folder_names_the_pattern_to_use(tmp_path):
    with pytest.raises(FileError, match=r"this is a directory, not a file \(try .*/\*\.parquet\)"):
        mq.tally(tmp_path)


def link_file(folder, outside):
    (folder / "region=north" / "year=2024" / "more.parquet").symlink_to(outside / "part-0.parquet")


def link_folder(folder, outside):
    (folder / "region=west").symlink_to(outside.parent)


def link_loop(folder, _outside):
    (folder / "region=north" / "year=2024" / "k=again").symlink_to("../..")


def link_twice(folder, _outside):
    (folder / "region=north" / "year=2024" / "again.parquet").symlink_to("part-0.parquet")


def make_pipe(folder, _outside):
    os.mkfifo(folder / "region=north" / "year=2024" / "waits-for-ever.csv")


@pytest.mark.parametrize("attack", [link_file, link_folder, link_loop, link_twice, make_pipe])
def test_a_received_folder_reads_nothing_outside_and_nothing_twice(tmp_path, attack):
    write_partitions(tmp_path / "private")
    write_partitions(tmp_path / "received")
    attack(tmp_path / "received", tmp_path / "private" / "region=north" / "year=2024")
    with pytest.raises(FileError, match=r"is a link|is not a regular file"):
        mq.tally(tmp_path / "received")
    (tmp_path / "by-name").symlink_to(tmp_path / "private")  # a link that the user typed
    assert mq.tally(tmp_path / "by-name").n == 20


def test_the_number_of_files_is_bounded_over_all_folders(tmp_path, monkeypatch):
    write_partitions(tmp_path / "people")
    monkeypatch.setattr(
        "masquerade.frames.table_formats.partitions.MOST_FILES", 3
    )  # four files, two in each folder
    with pytest.raises(FileError, match="has more than 3 files"):
        mq.tally(tmp_path / "people")
