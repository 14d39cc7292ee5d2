"""Policies: files, ids, round trips."""

import copy
import json
import re
from fractions import Fraction
from types import MappingProxyType

import pytest

from masquerade import channels as ch
from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError, PolicyError, SchemaError
from masquerade.core.schema import Schema

YAML = """
masquerade: 1
title: A survey
variables:
  smoker: {categories: [yes, no], channel: {kind: binary, p: 0.1}}
  region: {categories: [n, s, e, w], channel: {kind: symmetric, p: 0.3}, missing: w}
  visits: {categories: [0, 1, 2]}
  member: {categories: [true, false], note: asked at the door}
  item1: {categories: [in, out]}
  item2: {categories: [in, out]}
  age: {bins: [0, 10, 20, 30], channel: {kind: additive, noise: uniform, scale: 10, margin: 0}}
joint:
  - {variables: [item2, item1], channel: {kind: flip, theta: 0.7}}
strata:
  by: visits
  channels:
    1: {smoker: {kind: binary, p: 0.25}}
"""


@pytest.fixture
def policy(tmp_path):
    (tmp_path / "policy.yaml").write_text(YAML, encoding="utf-8")
    return Policy.load(tmp_path / "policy.yaml")


def spec(**variables):
    return {"masquerade": 1, "variables": variables}


def test_a_yaml_policy_means_what_it_says(policy):
    assert policy.schema["smoker"].categories == ("yes", "no")
    assert policy.schema["visits"].categories == (0, 1, 2)
    assert policy.schema["member"].categories == (True, False)
    assert policy.group("smoker").channel.row(0)[1] == Fraction(1, 10)
    assert [group.names for group in policy.groups] == [
        ("smoker",), ("region",), ("visits",), ("member",), ("item2", "item1"), ("age",),
    ]  # fmt: skip
    assert policy.group("item1").sizes == (2, 2)
    assert policy.disguised == ("smoker", "region", "item1", "item2", "age")
    assert policy.strata == (0, 1, 2)
    assert policy.groups_of(1)[0].channel.row(0)[1] == Fraction(1, 4)
    assert policy.groups_of(2) == policy.groups_of(None) == policy.groups
    age = next(field for field in policy.fields if field.variable.name == "age")
    assert age.edges == (0, 10, 20, 30)
    assert age.variable.categories == ("[0, 10)", "[10, 20)", "[20, 30]")
    assert policy.fields[1].missing == "w"
    # no bins beyond the outermost: reports are the bins themselves
    assert policy.observed["age"].categories == age.variable.categories
    assert repr(policy) == f"Policy(7 variables, 5 disguised, id {policy.id[:12]})"


@pytest.mark.parametrize("name", ["again.json", "again.yaml", "again.yml"])
def test_a_saved_policy_is_the_same_policy(policy, tmp_path, name):
    policy.save(tmp_path / name)
    again = Policy.load(tmp_path / name)
    assert again == policy
    assert hash(again) == hash(policy)
    again.save(tmp_path / f"second-{name}")
    assert (tmp_path / f"second-{name}").read_text() == (tmp_path / name).read_text()


def test_a_policy_does_not_change_with_the_dict_it_came_from():
    values = spec(x={"categories": ["a", "b"], "channel": {"kind": "binary", "p": 0.1}})
    policy = Policy.from_dict(values)
    proxied = Policy.from_dict(MappingProxyType(values))
    before = copy.deepcopy(policy.to_dict())
    values["variables"]["x"]["channel"]["p"] = 0.4
    policy.to_dict()["variables"].clear()
    assert policy.to_dict() == proxied.to_dict() == before
    assert Policy.from_dict(policy.to_dict()) == policy


def test_every_spelling_of_a_mechanism_has_one_id(tmp_path):
    categories = {"categories": ["a", "b"]}
    channels = [
        {"kind": "binary", "p": 0.2},
        {"kind": "binary", "p": "1/5"},
        {"kind": "binary", "p1": "0.2", "p2": "2/10"},
        {"kind": "symmetric", "p": 0.2},
        {"kind": "warner", "p": 0.8},
        {"kind": "for_gamma", "gamma": 4},
        {"kind": "matrix", "rows": [[0.8, 0.2], ["1/5", "4/5"]]},
        {"kind": "matrix", "rows": [[0.8, 0.2], ["1/5", "4/5"]], "reports": ["a", "b"]},
        {"kind": "composition", "steps": [{"kind": "identity"}, {"kind": "binary", "p": 0.2}]},
        {"kind": "grouped", "groups": [["b", "a"]], "p": 0.2},
    ]
    policies = [Policy.from_dict(spec(x={**categories, "channel": channel})) for channel in channels]
    policies.append(Policy.build({"x": ["a", "b"]}, {"x": ch.binary("0.2")}))
    policies.append(Policy.build(Schema({"x": ["a", "b"]}), {("x",): ch.binary(0.2)}))
    joint = {**spec(x=categories), "joint": [{"variables": ["x"], "channel": channels[0]}]}
    policies.append(Policy.from_dict({**joint, "title": "a title and a note are not the mechanism"}))
    for name, text in {
        "p.yaml": "masquerade: 1\nvariables:\n  x:\n    categories: [a, b]\n"
        "    channel: {kind: binary, p: 0.20}\n",
        "p.json": '{"masquerade": 1, "variables": {"x": {"categories": ["a", "b"], '
        '"channel": {"kind": "binary", "p": 2e-1}}}}',
    }.items():
        (tmp_path / name).write_text(text)
        policies.append(Policy.load(tmp_path / name))
    assert len({policy.id for policy in policies}) == 1


def test_whatever_matters_changes_the_id():
    binary = {"kind": "binary", "p": 0.2}
    two = ["a", "b"]
    base = {"x": {"categories": two, "channel": binary}, "y": {"categories": two}}
    flip = {"kind": "flip", "theta": 0.8}
    variants = [
        spec(**base),
        spec(y=base["y"], x=base["x"]),
        spec(z=base["x"], y=base["y"]),
        spec(x={"categories": two, "channel": {"kind": "binary", "p": "0.2000000001"}}, y=base["y"]),
        spec(x={"categories": ["b", "a"], "channel": binary}, y=base["y"]),
        spec(x={"categories": [0, 1], "channel": binary}, y=base["y"]),
        spec(x={"categories": [False, True], "channel": binary}, y=base["y"]),
        spec(x={"categories": ["0", "1"], "channel": binary}, y=base["y"]),
        spec(x={"categories": two, "channel": binary, "missing": "a"}, y=base["y"]),
        spec(x={"categories": two, "channel": {"kind": "crosswise", "p": 0.8}}, y=base["y"]),
        spec(x={"categories": two}, y=base["y"]),
        spec(x={"bins": [0, 1, 2], "channel": binary}, y=base["y"]),
        spec(x={"bins": [0, 1, 3], "channel": binary}, y=base["y"]),
        spec(x={"categories": ["[0, 1)", "[1, 2]"], "channel": binary}, y=base["y"]),
        {**spec(**base), "strata": {"by": "y", "channels": {"a": {"x": {"kind": "binary", "p": 0.3}}}}},
        {**spec(**base), "strata": {"by": "y", "channels": {"b": {"x": {"kind": "binary", "p": 0.3}}}}},
        {**spec(x=base["y"], y=base["y"]), "joint": [{"variables": ["x", "y"], "channel": flip}]},
        {**spec(x=base["y"], y=base["y"]), "joint": [{"variables": ["y", "x"], "channel": flip}]},
    ]
    assert len({Policy.from_dict(values).id for values in variants}) == len(variants)


def test_policies_built_in_code_round_trip(tmp_path):
    policy = Policy.build(
        {"a": ["yes", "no"], "b": [1, 2, 3], "c": ["x", "y"], "d": [True, False], "e": ["u", "v"]},
        {
            "a": ch.crosswise("1/4"),
            "b": ch.for_epsilon(3, 1),
            ("e", "c"): ch.symmetric(4, "0.3"),
            "d": ch.crosswise(1),
        },
    )
    for name in ("p.yaml", "p.json"):
        policy.save(tmp_path / name)
        assert Policy.load(tmp_path / name) == policy
    assert policy.observed["a"].categories == ("same", "different")
    assert policy.observed["d"].categories == ("same", "different")  # even where nothing is hidden
    assert Policy.clear(policy.schema).disguised == ()


def test_the_undisguised_policy_reads_the_same_columns(policy):
    clear = policy.without_channels()
    assert clear.fields == policy.fields
    assert clear.disguised == ()
    assert Policy.from_dict(clear.to_dict()) == clear  # bins and missing included


def test_more_reports_than_truths_are_numbered_unless_named():
    rows = [["1/2", "1/4", "1/4"], ["1/4", "1/4", "1/2"]]
    plain, named = (
        Policy.from_dict(
            spec(x={"categories": ["a", "b"], "channel": {"kind": "matrix", "rows": rows, **extra}})
        )
        for extra in ({}, {"reports": ["r", "g", True]})
    )
    assert plain.observed["x"].categories == (1, 2, 3)
    assert named.observed["x"].categories == ("r", "g", True)
    assert plain.schema["x"].categories == ("a", "b")


def test_a_missing_number_is_one_more_category_after_the_bins():
    policy = Policy.from_dict(
        spec(x={"bins": [0, 1, 2], "missing": "none", "channel": {"kind": "symmetric", "p": 0.3}})
    )
    assert policy.schema["x"].categories == ("[0, 1)", "[1, 2]", "none")
    assert policy.group("x").channel.truths == 3
    assert Policy.from_dict(policy.without_channels().to_dict()) == policy.without_channels()


@pytest.mark.parametrize("label", [1, True, "1", "true"])
@pytest.mark.parametrize("name", ["p.yaml", "p.json"])
def test_strata_of_any_kind_survive_the_text_keys_of_json(tmp_path, label, name):
    values = {
        **spec(x={"categories": ["a", "b"]}, s={"categories": [label, "other"]}),
        "strata": {"by": "s", "channels": {label: {"x": {"kind": "binary", "p": 0.3}}}},
    }
    policy = Policy.from_dict(values)
    assert not policy.groups_of("other")[0].disguised
    assert policy.groups_of(label)[0].disguised
    policy.save(tmp_path / name)
    assert Policy.load(tmp_path / name) == policy


def test_a_variable_disguised_in_one_stratum_only_counts_as_disguised():
    values = {
        **spec(x={"categories": ["a", "b"]}, s={"categories": [1, 2]}),
        "strata": {"by": "s", "channels": {1: {"x": {"kind": "binary", "p": 0.3}}}},
    }
    assert Policy.from_dict(values).disguised == ("x",)


@pytest.mark.parametrize(
    ("channels", "error", "message"),
    [
        ({"z": ch.binary("0.1")}, SchemaError, "no variable 'z'"),
        ({"a": ch.symmetric(3, "0.1")}, PolicyError, "channel of a is for 3 categories, but there are 2"),
        (
            {"a": ch.binary("0.1"), ("a", "b"): ch.symmetric(4, "0.1")},
            PolicyError,
            "'a' goes through two channels",
        ),
        ({("a", "a"): ch.symmetric(4, "0.1")}, PolicyError, "'a' goes through two channels"),
        ({("a", "b"): ch.matrix([[0.5, 0.5]] * 4)}, PolicyError, "as many reports as combinations"),
    ],
)
def test_channels_that_do_not_fit_are_refused(channels, error, message):
    with pytest.raises(error, match=message):
        Policy.build({"a": ["x", "y"], "b": ["x", "y"]}, channels)


def test_a_policy_can_only_be_saved_where_its_form_is_known(policy, tmp_path):
    with pytest.raises(PolicyError, match=r"ends in \.yaml, \.yml or \.json"):
        policy.save(tmp_path / "policy.txt")
    with pytest.raises(FileError, match="cannot be written"):
        policy.save(tmp_path / "no" / "folder.yaml")


def resolve(schema, whole):
    return whole["$defs"][schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema


def test_the_json_schema_lists_the_keys_that_files_use(policy):
    whole = Policy.json_schema()
    json.dumps(whole)
    keys = {"masquerade", "title", "limit", "clear", "variables", "joint", "blocks", "strata"}
    assert set(whole["properties"]) == keys
    assert set(whole["required"]) == {"masquerade", "variables"}
    assert whole["additionalProperties"] is False
    variable = resolve(whole["properties"]["variables"]["additionalProperties"], whole)
    assert set(variable["properties"]) == {
        "categories", "bins", "channel", "missing", "clear_missing", "na", "recode", "date", "note"
    }  # fmt: skip
    listed = next(part for part in variable["properties"]["channel"]["anyOf"] if part.get("type") != "null")
    kinds = listed["discriminator"]["mapping"]
    for entry in policy.to_dict()["variables"].values():
        assert set(entry) <= set(variable["properties"])
        if "channel" in entry:
            model = whole["$defs"][kinds[entry["channel"]["kind"]].rsplit("/", 1)[1]]
            assert set(entry["channel"]) <= set(model["properties"])
            assert set(model["required"]) <= set(entry["channel"])


def test_the_json_schema_takes_every_number_that_saving_writes():
    whole = Policy.json_schema()
    number = whole["$defs"]["Symmetric"]["properties"]["p"]["anyOf"]
    pattern = re.compile(next(part["pattern"] for part in number if part["type"] == "string"))
    for text in ("0.25", "1/3", "-10.5", "1E-7", "+.5", "10"):
        assert pattern.search(text)
    for text in ("", "abc", "1/x", "0.5 "):
        assert not pattern.search(text)
