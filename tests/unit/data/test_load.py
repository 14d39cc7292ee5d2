"""Tables, networks and files by name: what they hold, where they are found, what is said when missing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.data.originals import NOTHING, original

import masquerade as mq
from masquerade.core.errors import DataMissing, FileError, InputError
from masquerade.data.catalogue import BASKETS, FILES, NETWORKS, SETS, UCI
from masquerade.data.load import frame_of, path_of
from masquerade.data.lookup import cache_directory, places
from masquerade.data.packages import digest, parse_table

DIRECTORY = os.environ.get("MASQUERADE_DATA")
UNKNOWN_ROWS = {
    "adult": 2_399,
    "adult-test": 1_221,
    "adult-all": 3_620,
    "breast-cancer-wisconsin": 16,
    "breast-cancer": 9,
    "mushroom": 2_480,
    "lenses": 0,
    "iris": 0,
}
ADULT_NUMBERS = frozenset(
    {"age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"}
)
NUMBERS = {
    **dict.fromkeys(["adult", "adult-test", "adult-all"], ADULT_NUMBERS),
    "breast-cancer-wisconsin": {*SETS["breast-cancer-wisconsin"].columns} - {"bare_nuclei"},
    "breast-cancer": {"deg_malig"},
    "mushroom": set(),
    "lenses": {*SETS["lenses"].columns},
    "iris": {"sepal_length", "sepal_width", "petal_length", "petal_width"},
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.setenv("MASQUERADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MASQUERADE_OFFLINE", "1")


def need(file):
    """Skip a test that needs a file no package carries."""
    if not DIRECTORY:
        pytest.skip(f"no package carries {file}, and MASQUERADE_DATA is not set")


@pytest.mark.parametrize("name", mq.data.names())
def test_a_table_is_the_published_one(name):
    if name == "breast-cancer":
        need("breast-cancer.data")
    frame, table = mq.data.load(name), SETS[name]
    assert tuple(frame.columns) == table.columns
    assert len(frame) == table.rows == sum(table.classes.values())
    assert {str(label): n for label, n in frame[table.target].value_counts().items()} == table.classes
    marks = (frame == "?").sum()
    assert marks[marks > 0].to_dict() == table.unknown
    assert (frame == "?").any(axis=1).sum() == UNKNOWN_ROWS[name]
    assert frame.notna().all(axis=None)
    assert digest(frame) == table.content
    assert frame.attrs["source"]["name"] == name
    assert frame.index.equals(pd.RangeIndex(table.rows))


@pytest.mark.parametrize("name", mq.data.names())
def test_numbers_are_numbers_and_labels_text(name):
    if name == "breast-cancer":
        need("breast-cancer.data")
    frame = mq.data.load(name)
    number = "float64" if name == "iris" else "int64"
    assert {column for column, kind in frame.dtypes.items() if kind == number} == NUMBERS[name]
    labels = frame[[column for column in frame if column not in NUMBERS[name]]]
    assert labels.map(lambda value: isinstance(value, str)).all(axis=None)
    assert not labels.map(lambda value: value != value.strip() or value.endswith(".")).any(axis=None)


def test_adult_keeps_the_order_of_its_files():
    train, test, both = (mq.data.load(name) for name in ("adult", "adult-test", "adult-all"))
    assert train.loc[0, ["age", "workclass", "fnlwgt"]].tolist() == [39, "State-gov", 77_516]
    assert train.loc[32_560, ["age", "fnlwgt", "income"]].tolist() == [52, 287_927, ">50K"]
    assert test.loc[0, ["age", "fnlwgt", "income"]].tolist() == [25, 226_802, "<=50K"]
    together = pd.concat([train, test]).sort_values(list(train.columns), ignore_index=True)
    pd.testing.assert_frame_equal(together, both)


def test_further_facts_of_the_tables():
    assert mq.data.load("breast-cancer-wisconsin")["sample_code_number"].nunique() == 645
    assert (mq.data.load("mushroom")["veil_type"] == "p").all()
    iris = mq.data.load("iris")
    assert iris.iloc[34, :4].tolist() == iris.iloc[37, :4].tolist() == [4.9, 3.1, 1.5, 0.1]
    lenses = mq.data.load("lenses").drop(columns=["id", "class"])
    assert len(lenses.drop_duplicates()) == 24  # every combination once
    assert lenses.nunique().tolist() == [3, 2, 2, 2]


@pytest.mark.parametrize("name", mq.data.names("network"))
def test_a_network_is_the_published_one(name):
    network, file = mq.data.network(name), NETWORKS[name]
    assert len(network.schema) == file.nodes
    assert sum(len(table.parents) for table in network.tables) == file.arcs
    assert sum(
        table.probabilities.size * (len(table.child) - 1) // len(table.child) for table in network.tables
    ) == (file.parameters)
    assert mq.data.network(name) is network


@pytest.mark.parametrize("name", mq.data.names("baskets"))
def test_basket_files_are_read(name):
    need(name)
    file = BASKETS[name]
    for given in (name, f"fimi/{name}"):
        assert mq.data.path(given) == Path(DIRECTORY).resolve() / "fimi" / name
    baskets = mq.read_baskets(mq.data.path(name))
    assert (baskets.n, len(baskets.items)) == (file.rows, file.items)


@pytest.mark.parametrize("flat", [True, False])
def test_files_are_found_in_their_folder_or_flat(tmp_path, flat):
    place = tmp_path / "own" if flat else tmp_path / "own" / "uci"
    place.mkdir(parents=True)
    (place / "iris.data").write_bytes(original("iris.data"))
    frame = mq.data.load("iris", tmp_path / "own")
    assert frame.attrs["source"] == {"name": "iris", "kind": "directory", "place": str(place / "iris.data")}
    assert mq.data.path("iris.data", str(tmp_path / "own")) == place / "iris.data"


def test_the_environment_names_the_directory_and_the_argument_wins(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "iris.data").write_bytes(original("iris.data"))
    monkeypatch.setenv("MASQUERADE_DATA", str(tmp_path / "a"))
    assert mq.data.load("iris").attrs["source"]["place"] == str(tmp_path / "a" / "iris.data")
    assert mq.data.load("iris", tmp_path / "b").attrs["source"]["place"] == str(tmp_path / "b" / "iris.data")


def test_another_file_in_the_directory_is_refused_not_passed_over(tmp_path):
    (tmp_path / "iris.data").write_bytes(original("iris.data").replace(b"\n", b"\r\n"))
    with pytest.raises(
        FileError, match=r"iris.data: not the file as published: 4,702 bytes .* expected 4,551"
    ):
        mq.data.load("iris", tmp_path)


def test_a_directory_that_is_none_is_refused(tmp_path, monkeypatch):
    with pytest.raises(FileError, match=r"'directory' must name a directory .*nowhere"):
        mq.data.load("iris", tmp_path / "nowhere")
    monkeypatch.setenv("MASQUERADE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileError, match=r"MASQUERADE_DATA must name a directory .*nowhere"):
        mq.data.network("asia")


def test_what_is_missing_is_said_with_where_and_what_to_do(tmp_path):
    (tmp_path / "own").mkdir()
    with pytest.raises(DataMissing) as caught:
        frame_of("adult-all", replace(NOTHING, directory=tmp_path / "own", cache=tmp_path / "cache"))
    text = str(caught.value)
    assert caught.value.name == "adult-all"
    assert f"the directory {tmp_path / 'own'}: it has no uci/adult.test and no adult.test" in text
    assert f"the cache {tmp_path / 'cache'} (MASQUERADE_CACHE): it has no uci/adult.data" in text
    assert "switched off by MASQUERADE_OFFLINE" in text
    assert "put adult.data and adult.test as published into a directory" in text
    assert "install shapiq" in text
    assert all(f"{place}. {reason}" in text for place, reason in enumerate(caught.value.tried, start=1))
    with pytest.raises(DataMissing, match=r"retail\.dat has no address"):
        path_of(FILES["retail.dat"], replace(NOTHING, cache=tmp_path / "cache"))


@pytest.mark.parametrize("ask", [mq.data.load, mq.data.network, mq.data.path])
def test_unknown_names_are_refused(ask):
    with pytest.raises(InputError, match="The catalogue has no"):
        ask("titanic")


def test_a_close_name_is_suggested():
    with pytest.raises(InputError, match=r"Did you mean 'mushroom'\?"):
        mq.data.load("mushrooms")
    with pytest.raises(InputError, match="table, network, baskets"):
        mq.data.names("tables")


def test_a_frame_is_found_once_and_belongs_to_the_caller():
    mine = mq.data.load("iris")
    mine.loc[0, "sepal_length"] = -1.0
    mine.attrs["source"]["name"] = "mine"
    hits = frame_of.cache_info().hits
    theirs = mq.data.load("iris")
    assert frame_of.cache_info().hits == hits + 1
    assert theirs.loc[0, "sepal_length"] == 5.1
    assert theirs.attrs["source"]["name"] == "iris"


def test_a_frame_goes_through_the_library():
    mushrooms = mq.data.load("mushroom")[["class", "odor"]]
    policy = mq.Policy.build(
        {"class": ["e", "p"], "odor": sorted(mushrooms["odor"].unique())},
        {"class": mq.channels.binary("1/4")},
    )
    disguised = mq.simulate(mushrooms, policy, seed=1)
    [table] = mq.tally(disguised, policy).answer([mq.Query(by=("class",))])
    # 4.9 standard errors: a false alarm in a million, were the seed not fixed
    assert abs(table.values[0] - 4_208) < 4.9 * table.stderr()[0]


def test_the_cache_is_where_the_platform_keeps_such_files(monkeypatch, tmp_path):
    assert cache_directory() == tmp_path / "cache"
    monkeypatch.delenv("MASQUERADE_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_directory() == tmp_path / "xdg" / "masquerade" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == tmp_path / ".cache" / "masquerade" / "data"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_directory() == tmp_path / "Library" / "Caches" / "masquerade" / "data"


def test_downloads_can_be_switched_off(monkeypatch):
    assert places().origins == ()
    monkeypatch.delenv("MASQUERADE_OFFLINE")
    assert [folder for folder, _ in places().origins] == [UCI, "bif"]


def test_remarks_blank_lines_and_full_stops_are_not_data():
    text = b"|1x3 Cross validator\n" + b", ".join([b"1"] * 14) + b", <=50K.\n\n"
    frame = parse_table(SETS["adult-test"], [text])
    assert frame.iloc[0].tolist() == [1] * 14 + ["<=50K"]
    assert len(frame) == 1


def test_everything_is_described():
    described = mq.data.describe()
    assert list(described.index) == [
        *(name for kind in ("table", "network", "baskets") for name in mq.data.names(kind))
    ]
    for column in ("kind", "title", "size", "licence", "citation", "files"):
        assert described[column].str.len().gt(0).all()
    assert described.loc["adult", "size"] == "32,561 rows, 15 columns"
    assert described.loc["iris", "packages"] == "mlxtend, scikit-learn"
