"""Levels of generalisation: what each kind makes of a value, and files that are refused."""

import json
from datetime import date, datetime

import pytest

from masquerade.anonymity import as_hierarchies, load_hierarchies
from masquerade.core.errors import FileError, InputError


def words(given, values):
    found = as_hierarchies({"hierarchies": 1, "columns": {"c": given}})["c"]
    return found.generalise("c", values, rows=lambda place: place + 1)


def test_ranges_are_half_open_nested_and_exact():
    assert words({"ranges": [5, 10]}, [0, 4, 5, "9", -1, 10.0]) == [
        ["[0, 5)", "[0, 5)", "[5, 10)", "[5, 10)", "[-5, 0)", "[10, 15)"],
        ["[0, 10)", "[0, 10)", "[0, 10)", "[0, 10)", "[-10, 0)", "[10, 20)"],
    ]
    # 0.3 is not below 0.3, although 0.3 / 0.1 is below 3 in floating point
    assert words({"ranges": [0.1, 0.3]}, [0.3, 0.7]) == [
        ["[0.3, 0.4)", "[0.7, 0.8)"],
        ["[0.3, 0.6)", "[0.6, 0.9)"],
    ]
    assert words({"ranges": [10], "start": 18}, [18, 27, 28]) == [["[18, 28)", "[18, 28)", "[28, 38)"]]


def test_prefixes_keep_the_first_letters():
    assert words({"prefixes": [3, 2]}, ["07030", 7030, "ab", None]) == [
        ["070**", "703*", "ab", None],
        ["07***", "70**", "ab", None],
    ]


def test_dates_are_read_from_dates_and_from_text():
    days = [date(1990, 3, 14), datetime(1989, 12, 31, 23, 59), "2001-07-01"]  # noqa: DTZ001
    assert words({"dates": ["month", "quarter", "year", "decade"]}, days) == [
        ["1990-03", "1989-12", "2001-07"],
        ["1990-Q1", "1989-Q4", "2001-Q3"],
        ["1990", "1989", "2001"],
        ["1990s", "1980s", "2000s"],
    ]


def test_trees_may_have_branches_of_different_length():
    tree = {"Europe": {"West": ["France", "Spain"], "North": ["Norway"]}, "Asia": ["Japan", 7]}
    assert words({"tree": tree}, ["France", "Norway", "Japan", "7"]) == [
        ["West", "North", "Japan", "7"],
        ["Europe", "Europe", "Asia", "Asia"],
    ]


@pytest.mark.parametrize("ending", ["yaml", "yml", "json"])
def test_files_say_the_same_in_yaml_and_json(tmp_path, ending):
    given = {"hierarchies": 1, "columns": {"zip": {"prefixes": [2]}, "age": {"ranges": [10]}}}
    path = tmp_path / f"levels.{ending}"
    path.write_text(json.dumps(given), encoding="utf-8")  # JSON is YAML too
    assert set(load_hierarchies(path)) == {"zip", "age"}
    assert load_hierarchies(path)["zip"].generalise("zip", ["0703"], rows=int) == [["07**"]]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"ranges": [5, 7]}, "multiple"),
        ({"ranges": [5, 5]}, "multiple"),
        ({"ranges": []}, "above 0"),
        ({"ranges": [0]}, "above 0"),
        ({"ranges": [True]}, "above 0"),
        ({"ranges": [5], "start": "a"}, "a number"),
        ({"ranges": [float("inf")]}, "above 0"),
        ({"prefixes": [2, 3]}, "decreasing"),
        ({"prefixes": [0]}, "decreasing"),
        ({"prefixes": 3}, "decreasing"),
        ({"dates": ["year", "month"]}, "in this order"),
        ({"dates": ["week"]}, "some of month"),
        ({"tree": []}, "maps names"),
        ({"tree": {"a": ["x"], "b": ["x"]}}, "twice"),
        ({"tree": {"a": {"a": ["x"]}}}, "its own ancestor"),
        ({"tree": {"a": ["a"]}}, "a value and a name"),
        ({"tree": {"*": ["x"]}}, "the top of every tree"),
        ({"tree": {"a": [False]}}, "in quotes"),
        ({"tree": {"a": ["x"]}, "start": 1}, "'start' does not belong"),
        ({"ranges": [5], "dates": ["year"]}, "exactly one"),
        ({}, "exactly one"),
        ("ranges", "exactly one"),
    ],
)
def test_levels_that_make_no_sense_are_refused_by_column(given, complaint):
    with pytest.raises(InputError, match=f"column 'c': .*{complaint}"):
        as_hierarchies({"hierarchies": 1, "columns": {"c": given}})


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"columns": {}}, "hierarchies: 1"),
        ({"hierarchies": 2, "columns": {}}, "version"),
        ({"hierarchies": True, "columns": {}}, "version"),
        ({"hierarchies": 1, "columns": []}, "names of columns"),
        ([], "hierarchies: 1"),
    ],
)
def test_files_of_another_kind_are_refused(given, complaint):
    with pytest.raises(InputError, match=complaint):
        as_hierarchies(given)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.yaml", "hierarchies: 1\ncolumns: {a: {prefixes: [1]}, a: {prefixes: [2]}}", "'a' is given twice"),
        ("a.json", '{"hierarchies": 1, "hierarchies": 1}', "'hierarchies' is given twice"),
        ("a.yaml", "a: [", "line 1: not valid YAML"),
        ("a.json", "{", "line 1: not valid JSON"),
        ("a.txt", "", "read from .yaml, .yml or .json"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, text, complaint):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=complaint):
        load_hierarchies(tmp_path / name)


def test_a_file_that_is_not_there():
    with pytest.raises(FileError, match="cannot be read"):
        load_hierarchies("nowhere.yaml")
