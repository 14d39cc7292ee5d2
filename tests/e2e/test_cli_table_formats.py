"""Commands over Delta, Iceberg and folders of partitions answer as over a Parquet file."""

from __future__ import annotations

import sys

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import dataset
from tests.e2e.test_cli_app import ok, refused
from tests.table_formats import create_iceberg, write_delta

import masquerade as mq

KINDS = ["delta", "iceberg", "partitions", "metadata", "zst"]


def write(kind, frame, folder):
    """Write records, after other records that the current version has no more; return the path."""
    table, other = (
        pa.Table.from_pandas(frame, preserve_index=False),
        pa.Table.from_pandas(frame.iloc[:50], preserve_index=False),
    )
    if kind == "delta":
        write_delta(other, folder, partition_by=["year"])
        return write_delta(table, folder, partition_by=["year"], mode="overwrite")
    if kind in {"iceberg", "metadata"}:
        created = create_iceberg(table, folder, "year")
        return folder if kind == "iceberg" else created.metadata_location.removeprefix("file://")
    if kind == "zst":
        path = folder.with_suffix(".csv.zst")
        path.write_bytes(pa.compress(frame.to_csv(index=False).encode(), "zstd", asbytes=True))
        return path
    parts = dataset.partitioning(pa.schema([("year", table.schema.field("year").type)]), flavor="hive")
    dataset.write_dataset(table, folder, format="parquet", partitioning=parts)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    policy, clear = mq.data.students_policy(), mq.data.students()
    policy.save(folder / "policy.yaml")
    clear.to_parquet(folder / "clear.parquet", index=False)
    mq.simulate(clear, policy, seed=1).to_parquet(folder / "reports.parquet", index=False)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_counts_and_models_are_those_of_a_parquet_file(plain, tmp_path, kind):
    reports = pd.read_parquet(plain / "reports.parquet")
    place = write(kind, reports, tmp_path / "reports")
    commands = [
        ["estimate", "--by", "pills", "--where", "exams=many", "--json"],
        ["estimate", "--by", "pills,year", "--engine", "duckdb", "--json"],
        ["estimate", "--by", "pills,year", "--engine", "memory", "--json"],
        ["stats", "shares", "--of", "pills", "--by", "year", "--json"],
        ["learn", "naive-bayes", "--target", "pills", "--json"],
    ]
    for command in commands:
        words = 2 if command[0] in {"stats", "learn"} else 1
        told = [
            ok(*command[:words], data, "-p", plain / "policy.yaml", *command[words:])
            for data in (place, plain / "reports.parquet")
        ]
        assert told[0].stdout == told[1].stdout, command
        versions = {"delta": "(Delta, version 1)", "iceberg": "(Iceberg, snapshot"}
        assert versions.get(kind, "") in told[0].stderr


@pytest.mark.parametrize("kind", KINDS)
def test_clear_records_are_drafted_checked_and_disguised(plain, tmp_path, kind):
    clear = pd.read_parquet(plain / "clear.parquet")
    place = write(kind, clear, tmp_path / "clear")
    drafts = []
    for number, data in enumerate((place, plain / "clear.parquet")):
        draft = tmp_path / f"draft{number}.yaml"
        ok("policy", "init", data, "--sensitive", "pills", "--clear", "year,exams", "--out", draft)
        drafts.append(set(draft.read_text().split("variables:")[1].splitlines()))
    assert drafts[0] == drafts[1]  # the folder of a table may have its columns in another order
    assert "600 records" in ok("policy", "check", plain / "policy.yaml", place).stdout
    target = tmp_path / "out" / "reports.parquet"
    target.parent.mkdir()
    ok("disguise", place, "-p", plain / "policy.yaml", "--out", target)
    reports = pd.read_parquet(target)
    for name in ("year", "exams"):  # in clear
        assert (
            reports[name].astype(str).value_counts().to_dict()
            == clear[name].astype(str).value_counts().to_dict()
        )


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_spark_does_not_read_the_files_of_all_versions(plain, tmp_path, kind):
    place = write(kind, pd.read_parquet(plain / "reports.parquet"), tmp_path / "reports")
    for data in (f"{place}/", f"{place}/**/*.parquet"):
        command = ["estimate", data, "-p", plain / "policy.yaml", "--by", "pills", "--engine", "spark"]
        assert "this is a Delta or Iceberg table" in refused(*command, "--url", "local[1]")


@pytest.mark.parametrize(
    ("kind", "module", "line"),
    [
        ("delta", "deltalake", "Delta tables need deltalake: pip install 'masquerade[delta]'"),
        (
            "iceberg",
            "pyiceberg.table.metadata",
            "Iceberg tables need pyiceberg: pip install 'masquerade[iceberg]'",
        ),
    ],
)
def test_a_missing_package_is_a_line_that_names_the_extra(plain, tmp_path, monkeypatch, kind, module, line):
    place = write(kind, pd.read_parquet(plain / "reports.parquet"), tmp_path / "reports")
    monkeypatch.setitem(sys.modules, module, None)
    result = refused("estimate", place, "-p", plain / "policy.yaml", "--by", "pills")
    assert result.strip() == f"masquerade: {place}: {line}"


def test_a_database_of_duckdb_is_counted_and_says_how_to_disguise_it(plain, tmp_path):
    path = tmp_path / "people.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute(f"CREATE TABLE reports AS FROM '{plain / 'reports.parquet'}'")
    command = ["-p", plain / "policy.yaml", "--by", "pills", "--json"]
    assert ok("estimate", path, *command).stdout == ok("estimate", plain / "reports.parquet", *command).stdout
    result = refused("disguise", path, "-p", plain / "policy.yaml", "--out", tmp_path / "out.parquet")
    assert "COPY name_of_table TO 'people.parquet'" in result
    assert "give --policy FILE" in refused("estimate", path, "--by", "pills")
