"""Policy text: YAML as people mean it, and JSON."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.channels.policy.text import parse, read, write
from masquerade.core.errors import FileError, PolicyError


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *((word, word) for word in ("no", "yes", "on", "off", "No", "YES", "y", "n", "On")),
        ("true", True), ("False", False), ("7", 7), ("-3", -3), ("0", 0),
        ("0.1", Decimal("0.1")), ("1e-3", Decimal("0.001")), (".5", Decimal("0.5")), ("2.", Decimal(2)),
        ("2020-01-31", "2020-01-31"), ("12:30", "12:30"), ("01234", "01234"), ("1_000", "1_000"),
        ("0x1F", "0x1F"),
        ("1/3", "1/3"), ('"0.1"', "0.1"), ('"7"', "7"), ("~", None),
    ],
)  # fmt: skip
def test_yaml_scalars(written, meant):
    (value,) = parse(f"[{written}]", "yaml")
    assert value == meant
    assert type(value) is type(meant)


def test_json_decimals_are_kept_as_written():
    assert parse('{"p": 0.1, "k": 3, "t": true}', "json") == {"p": Decimal("0.1"), "k": 3, "t": True}
    assert isinstance(parse("[0.1]", "json")[0], Decimal)


@pytest.mark.parametrize(
    ("text", "form", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", "yaml", r"^line 5: 'c' is given twice"),
        ('{"a": 1, "a": 2}', "json", "^'a' is given twice"),
        ("a: 1\n1.5: 2\n", "yaml", "^line 2: a key must be text, a whole number or true/false; quote it"),
        ("a: [1\nb: 2\n", "yaml", "^line 2: not valid YAML"),
        ("a: !!python/object:os.system x\n", "yaml", "^line 1: not valid YAML"),
        ('{"a": 1,\n}', "json", "^line 2: not valid JSON"),
        ("a: \x00", "yaml", "^not valid YAML"),
    ],
)
def test_bad_text_is_refused_with_its_line(text, form, message):
    with pytest.raises(PolicyError, match=message):
        parse(text, form)


scalars = (
    st.text(
        st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufeff\u2028\u2029")
    )
    | st.integers()
    | st.booleans()
    | st.sampled_from(
        ["no", "1e5", "0.1", "01", "1:30", "null", "~", "", "true", "1_0", ".5", "=", "<<", "0x1"]
    )
)


@given(
    st.dictionaries(scalars.filter(lambda key: isinstance(key, str)), st.lists(scalars)),
    st.sampled_from(["yaml", "json"]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_whatever_is_written_reads_back_the_same_with_its_types(values, form):
    def typed(parts):
        return [(key, [(type(item), item) for item in items]) for key, items in parts.items()]

    assert typed(parse(write(values, form), form)) == typed(values)


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_numbers_are_written_exactly(form):
    values = {
        "a": Fraction(1, 3),
        "b": Decimal("0.10"),
        "c": (1, np.int64(2)),
        "d": 0.1,
        "e": 1e-7,
        "f": np.float64(0.25),
    }
    back = parse(write(values, form), form)
    assert (back["a"], back["b"], back["c"]) == ("1/3", "0.10", [1, 2])
    assert (back["d"], back["e"], back["f"]) == (Decimal("0.1"), Decimal("1e-7"), Decimal("0.25"))


def test_files_that_cannot_be_read_say_so(tmp_path):
    with pytest.raises(FileError, match=r"none\.yaml: cannot be read"):
        read(tmp_path / "none.yaml")
    with pytest.raises(PolicyError, match=r"ends in \.yaml, \.yml or \.json"):
        read(tmp_path / "policy.toml")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match=r"binary\.json: is not a text file in UTF-8"):
        read(tmp_path / "binary.json")
    (tmp_path / "bad.yml").write_text("a: 1\na: 2\n")
    with pytest.raises(PolicyError, match=r"bad\.yml: line 2: 'a' is given twice"):
        read(tmp_path / "bad.yml")


def laughs(*, merge: bool, levels: int) -> str:
    """Return YAML of a few hundred bytes that stands for 9**levels values."""
    lines = ["a0: &a0 {x: 1}" if merge else "a0: &a0 [x]"]
    for i in range(1, levels):
        before = ", ".join([f"*a{i - 1}"] * 9)
        lines.append(f"a{i}: &a{i} {{<<: [{before}], y{i}: 1}}" if merge else f"a{i}: &a{i} [{before}]")
    return "\n".join(lines)


def test_merge_keys_that_would_hang_every_loader_are_refused():
    # the attack, at a size that still ends: every level merges the one before nine times
    small = laughs(merge=True, levels=4)
    assert len(yaml.safe_load(small)["a3"]) == 4
    nodes = yaml.compose(small)
    loader = yaml.SafeLoader("")
    loader.flatten_mapping(nodes.value[-1][1])
    assert len(nodes.value[-1][1].value) > 9**3  # pairs of a mapping with four keys
    with pytest.raises(PolicyError, match=r"line 2: merge keys \(<<\) are not read; write the keys out"):
        parse(laughs(merge=True, levels=12), "yaml")
    assert len(laughs(merge=True, levels=12)) < 800
    assert parse("'<<': 1", "yaml") == {"<<": 1}


def test_anchors_are_read_as_long_as_they_stay_small():
    assert parse("a: &c {p: 1}\nb: *c", "yaml") == {"a": {"p": 1}, "b": {"p": 1}}
    with pytest.raises(PolicyError, match="more than 1,048,576 values once anchors are written out"):
        parse(laughs(merge=False, levels=12), "yaml")
    with pytest.raises(PolicyError, match="an anchor must not contain itself"):
        parse("a: &a [*a]", "yaml")


@pytest.mark.parametrize(
    ("text", "form", "problem"),
    [
        ("[" * 3000, "json", "nested deeper"),
        ("[" * 3000 + "]" * 3000, "yaml", "nested deeper"),
        ("a: " + "9" * 5000, "yaml", "more than 300 digits"),
        ("[" + "9" * 5000 + "]", "json", "more than 300 digits"),
        ("a: !!int x", "yaml", "not valid YAML"),
        ("a: !!float x", "yaml", "not valid YAML"),
        ("a: !!bool x", "yaml", "not valid YAML"),
        ("a: !!timestamp x", "yaml", "not valid YAML"),
        ("a: !!set {b: c}", "yaml", "not valid YAML"),
        ('a: "\\ud800"', "yaml", "half a character"),
        ("? [a]\n: b", "yaml", "a key must be text"),
        ("a: " + "x" * (1 << 20), "yaml", "too long"),
    ],
)
def test_text_that_python_stumbles_over_is_refused(text, form, problem):
    with pytest.raises(PolicyError, match=problem):
        parse(text, form)
