"""JSON from strangers: whatever it is, an error of ours or values that nobody trips over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from masquerade.core.errors import FileError, InputError
from masquerade.core.util import json_text
from masquerade.core.util.json_text import MOST_DEPTH, parse_json, read_json


@pytest.mark.parametrize(
    ("text", "escapes", "problem"),
    [
        ("[" * 100_000 + "]" * 100_000, RecursionError, "nested deeper than 100 levels"),
        ("[" * (MOST_DEPTH + 2) + "]" * (MOST_DEPTH + 2), None, "nested deeper than 100 levels"),
        ("9" * 5000, ValueError, "more than 300 digits"),
        ("1" + "0" * 400, None, "more than 300 digits"),
        ("1e400", None, "a number is too large"),
        ("NaN", None, "NaN is not a valid JSON number"),
        ('"\\ud800"', None, "half a character"),
        ('{"\\udfff": 1}', None, "half a character"),
        ('{"a": 1, "a": 2}', None, "'a' is given twice"),
        (b"\xff", UnicodeDecodeError, "not a text in UTF-8"),
        ("{", ValueError, "line 1: not valid JSON"),
        ("1" * 200, None, "too long"),
    ],
)  # fmt: skip
def test_what_python_stumbles_over_is_refused(text, escapes, problem):
    if escapes is not None:  # what came before, from json itself
        with pytest.raises(escapes):
            json.loads(text)
    else:
        json.loads(text)
    with pytest.raises(InputError, match=problem):
        parse_json(text, most=100 if problem == "too long" else 1 << 20)


def test_ordinary_values_are_read_as_they_are():
    values = {"a": [1, 2.5, "ü", None, True], "b": {"c": {"d": -(10**298)}}}
    assert parse_json(json.dumps(values)) == values
    deep = "[" * MOST_DEPTH + "]" * MOST_DEPTH
    assert parse_json(deep) == json.loads(deep)


def test_files_are_read_within_bounds_and_named(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[1, 2]")
    assert read_json(path) == [1, 2]
    with pytest.raises(FileError, match=r"a\.json: is too long: at most 3 bytes are read"):
        read_json(path, most=3)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FileError, match=r"a\.json: is not a text file in UTF-8"):
        read_json(path)
    for nowhere in (tmp_path / "none.json", tmp_path / "a\0b.json", tmp_path):
        with pytest.raises(FileError, match="cannot be read"):
            read_json(nowhere)
    with pytest.raises(FileError, match="is too long"):  # a file without an end
        read_json(Path("/dev/zero"), most=1000)


def test_very_many_small_lists_are_refused_before_they_fill_the_memory(monkeypatch):
    text = "[" + "[]," * 2000 + "[]]"
    assert len(parse_json(text)) == 2001
    monkeypatch.setattr(json_text, "MOST_PARTS", 2001)
    for given in (text, text.encode(), text.replace("[]", "{}")):
        with pytest.raises(InputError, match="more than 2,001 objects and lists"):
            parse_json(given)
