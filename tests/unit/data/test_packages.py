"""Copies in packages: equal to the published data or refused."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.data.originals import NOTHING, PACKAGES_ONLY, original

from masquerade.core.errors import DataMissing
from masquerade.data import packages
from masquerade.data.catalogue import SETS
from masquerade.data.load import frame_of, network_of
from masquerade.data.packages import (
    COPIES,
    IRIS_FISHER,
    IRIS_UCI,
    digest,
    home,
    iris,
    iris_of_fisher,
    parse_table,
    wrong_count,
)

EVERY_COPY = [(name, copy) for name, held in COPIES.items() for copy in held]


@pytest.mark.parametrize(("name", "copy"), EVERY_COPY, ids=lambda value: getattr(value, "package", value))
def test_every_copy_is_the_published_table(name, copy):
    frame = packages.read(copy, SETS[name])
    assert isinstance(frame, pd.DataFrame), frame
    assert wrong_count(SETS[name], frame) == ""
    assert digest(frame) == SETS[name].content


@pytest.mark.parametrize(
    "file",
    ["adult.data", "adult.test", "breast-cancer-wisconsin.data", "agaricus-lepiota.data", "iris.data"],
)
def test_a_copy_gives_the_same_frame_as_the_published_file(file):
    [name] = [table.name for table in SETS.values() if [held.name for held in table.files] == [file]]
    pd.testing.assert_frame_equal(
        parse_table(SETS[name], [original(file)]), frame_of(name, PACKAGES_ONLY), check_exact=True
    )


def test_the_two_copies_of_iris_differ_in_two_rows_only():
    archive = iris(home("mlxtend") / "data/data/iris.csv.gz")
    restored = iris_of_fisher(home("sklearn") / "datasets/data/iris.csv")
    pd.testing.assert_frame_equal(archive, restored, check_exact=True)
    paper = pd.read_csv(home("sklearn") / "datasets/data/iris.csv", header=None, skiprows=1).iloc[:, :4]
    differ = (paper.to_numpy() != archive.iloc[:, :4].to_numpy()).any(axis=1)
    assert differ.nonzero()[0].tolist() == [34, 37] == list(IRIS_UCI)
    assert [tuple(paper.iloc[row]) for row in IRIS_FISHER] == list(IRIS_FISHER.values())


@pytest.fixture
def altered(tmp_path, monkeypatch):
    """Return a function that puts an altered copy in the place of a package's."""

    def put(package: str, file: str, change) -> None:
        target = tmp_path / package / file
        target.parent.mkdir(parents=True, exist_ok=True)
        change(home(package) / file, target)
        monkeypatch.setattr(packages, "home", lambda asked: tmp_path / package if asked == package else None)

    return put


def rows(change):
    """Return a change of a CSV file's rows below its head."""

    def write(source: Path, target: Path) -> None:
        head, *body = source.read_text().splitlines()
        target.write_text("\n".join([head, *change(body)]) + "\n")

    return write


def refusal(name):
    with pytest.raises(DataMissing) as caught:
        frame_of.__wrapped__(name, PACKAGES_ONLY)
    return str(caught.value)


ADULT = ("shapiq", "datasets/data/adult_census.csv")
MUSHROOM = ("subgroups", "datasets/csv/mushroom.csv")


@pytest.mark.parametrize("name", ["adult", "adult-test"])
def test_records_in_another_order_are_not_passed_off_as_the_files(altered, name):
    altered(*ADULT, rows(lambda body: body[1:] + body[:1]))
    told = refusal(name)
    assert "it has all records, but not in the order of the published files" in told
    assert "load 'adult-all' if the order does not matter" in told
    assert "put adult." in told
    assert digest(frame_of.__wrapped__("adult-all", PACKAGES_ONLY)) == SETS["adult-all"].content


def test_a_swap_that_no_count_shows_is_found(altered):
    altered(*ADULT, rows(lambda body: [*body[:-2], body[-1], body[-2]]))
    assert "not in the order of the published files" in refusal("adult")
    altered(*MUSHROOM, rows(lambda body: [body[1], body[0], *body[2:]]))
    assert "the counts are right, but not all values or not the order" in refusal("mushroom")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda body: body[:-1], "8,123 rows, expected 8,124"),
        (
            lambda body: ["e" + body[0][1:], *body[1:]],
            "4,209 e, 3,915 p in 'class', expected 4,208 e, 3,916 p",
        ),
        (
            lambda body: [line.replace("?", "b") for line in body],
            '"?" counted as none, expected 2,480 stalk_root',
        ),
        (lambda body: [*body[:-1], '"'], "no readable copy"),
    ],
)
def test_an_altered_copy_is_refused_with_the_count_that_tells(altered, change, complaint):
    altered(*MUSHROOM, rows(change))
    assert complaint in refusal("mushroom")


def test_an_altered_adult_is_not_the_whole_either(altered):
    altered(*ADULT, rows(lambda body: [line.replace("Widowed", "Divorced") for line in body]))
    assert "an altered copy: the counts are right, but not all values" in refusal("adult")
    assert "an altered copy" in refusal("adult-all")


def test_lenses_with_unknown_words_are_refused(altered):
    altered(
        "subgroups",
        "datasets/csv/lenses.csv",
        rows(lambda body: [body[0].replace("YOUNG", "OLD"), *body[1:]]),
    )
    assert "no readable copy (ValueError)" in refusal("lenses")


def test_irises_of_neither_kind_are_refused(altered):
    altered(
        "sklearn", "datasets/data/iris.csv", rows(lambda body: [*body[:34], "4.9,3.1,1.5,0.3,0", *body[35:]])
    )
    assert "scikit-learn" in refusal("iris")
    assert "no readable copy (ValueError)" in refusal("iris")


def test_a_package_that_no_longer_has_the_file_is_passed_over(altered):
    altered(*ADULT, lambda _source, _target: None)
    assert "no readable copy (FileNotFoundError)" in refusal("adult")
    assert "not installed" in refusal("mushroom")


def test_a_network_in_a_package_is_checked(altered):
    file = "utils/example_models/asia.bif.gz"

    def change(source: Path, target: Path) -> None:
        target.write_bytes(gzip.compress(gzip.decompress(source.read_bytes()).replace(b"0.5", b"0.4")))

    altered("pgmpy", file, change)
    with pytest.raises(DataMissing, match="an altered copy: 1,074 bytes"):
        network_of.__wrapped__("asia", PACKAGES_ONLY)
    with pytest.raises(DataMissing, match="no readable copy"):
        network_of.__wrapped__("alarm", PACKAGES_ONLY)
    altered("pgmpy", file, shutil.copyfile)
    assert len(network_of.__wrapped__("asia", PACKAGES_ONLY).schema) == 8
    with pytest.raises(DataMissing, match="pgmpy: not installed"):
        network_of.__wrapped__("asia", NOTHING)


def test_wrong_columns_are_told():
    frame = frame_of("iris", PACKAGES_ONLY)
    fault = wrong_count(SETS["iris"], frame.drop(columns="class"))
    assert fault == "4 columns that differ from the 5 expected columns"


def test_a_table_that_no_package_carries_says_so():
    assert "installed packages: no package includes it" in refusal("breast-cancer")
    assert replace(PACKAGES_ONLY, packages=False) == NOTHING
