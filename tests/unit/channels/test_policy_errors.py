"""A wrong policy is refused in one line that says where, what, and what instead."""

import pytest

from masquerade.channels.policy import Policy
from masquerade.core.errors import PolicyError

TWO = ["a", "b"]


def through(channel, **more):
    return {
        "masquerade": 1,
        "variables": {"x": {"categories": TWO, "channel": channel}, "y": {"categories": TWO}},
        **more,
    }


def holding(**entry):
    return {"masquerade": 1, "variables": {"x": entry, "y": {"categories": TWO}}}


BINARY = {"kind": "binary", "p": 0.1}
TWO_COLUMNS = {"kind": "matrix", "rows": [[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1]]}
TWO_COLUMNS |= {"columns": {"first": ["a", "b"], "second": ["a", "b"]}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        # what is not a policy at all
        ([], "not a policy: it must start with 'masquerade: 1' and list 'variables'."),
        ({"variables": {}}, "not a policy: it must start with 'masquerade: 1' and list 'variables'."),
        ({"masquerade": 2, "variables": {}}, "policy format 2 is not known; this version reads 1."),
        ({"masquerade": 1}, "variables: is missing."),
        ({"masquerade": 1, "variables": {}}, "variables: must not be empty."),
        ({"masquerade": 1, "variables": ["x"]}, "variables: must be keys with values."),
        ({"masquerade": 1, "variables": {"x": ["a"]}}, "variables.x: must be keys with values."),
        ({"masquerade": 1, "variables": {1: {"categories": TWO}}}, "variables.1: must be text; quote it."),
        # keys
        (through(BINARY, joints=[]), "joints: is not a known key. Did you mean 'joint'?"),
        (holding(categoris=TWO), "variables.x.categoris: is not a known key. Did you mean 'categories'?"),
        (through({**BINARY, "q": 1}), "variables.x.channel.q: is not a known key. Known: kind, p, p1, p2."),
        (
            through({"kind": "kuk", "p1": 0.1, "p2": 0.2, "card": 3}),
            "variables.x.channel.card: is not a known key. Did you mean 'cards'?",
        ),
        (
            through({"kind": "binary", "binary": 1, "p": 0.1}),
            "variables.x.channel.binary: is not a known key. Known: kind, p, p1, p2.",
        ),
        (
            through(BINARY, joint=[{"variables": ["y"], "channel": BINARY, "chanel": 1}]),
            "joint.0.chanel: is not a known key. Did you mean 'channel'?",
        ),
        (
            through(BINARY, strata={"by": "y", "channel": {}, "channels": {}}),
            "strata.channel: is not a known key. Did you mean 'channels'?",
        ),
        (through({"kind": "symmetric"}), "variables.x.channel.p: is missing."),
        (through(BINARY, joint=[{"variables": ["y"]}]), "joint.0.channel: is missing."),
        # kinds
        (through({"kind": "binry"}), "variables.x.channel: unknown kind 'binry'. Did you mean 'binary'?"),
        (through({"p": 0.1}), "variables.x.channel: needs a 'kind'."),
        (
            through("binary"),
            "variables.x.channel: must be keys with values, such as {kind: binary, p: 0.25}.",
        ),
        (
            through(None),
            (
                "variables.x.channel: is empty: give a channel, "
                "or leave 'channel' out to release it undisguised."
            ),
        ),
        (
            through({"kind": "decide"}),
            (
                "still to be decided: x. For each, choose a channel such as "
                "{kind: for_gamma, gamma: 19}, or remove 'channel' to release it undisguised."
            ),
        ),
        # categories and other plain values
        (
            holding(categories=[1.5, "a"]),
            "variables.x.categories.0: must be text, a whole number or true/false; quote it.",
        ),
        (
            holding(categories=["a", None]),
            "variables.x.categories.1: must be text, a whole number or true/false; quote it.",
        ),
        (holding(categories="ab"), "variables.x.categories: must be a list, such as [a, b]."),
        (
            holding(categories=["a", "a"]),
            "variables.x: Variable 'x' lists a category twice (true and 1 count as the same).",
        ),
        (holding(categories=[]), "variables.x: Variable 'x' has no categories."),
        (holding(), "variables.x: 'categories' are missing (they come from the policy, not from data)."),
        (holding(categories=TWO, missing="c"), "variables.x: 'c' is not a category of 'x'. Known: a, b."),
        (holding(categories=TWO, note=5), "variables.x.note: must be text; quote it."),
        (holding(categories=TWO, bins=[0, 1]), "variables.x: give either 'categories' or 'bins'."),
        (holding(bins=[0, 2, 1]), "variables.x.bins: at least two cut points, each above the one before."),
        (holding(bins=[0]), "variables.x.bins: at least two cut points, each above the one before."),
        (
            holding(bins=[0, "x"]),
            "variables.x.bins.1: must be a number such as 0.25 or '1/4'. Got 'x' instead.",
        ),
        (
            holding(bins=[0, 1], missing="[0, 1]"),
            "variables.x: Variable 'x' lists a category twice (true and 1 count as the same).",
        ),
        (
            holding(bins=[0, 1], missing="?", channel={"kind": "additive", "noise": "uniform", "scale": 1}),
            "variables.x.channel: additive noise cannot hide a missing number; choose another channel.",
        ),
        # parameters
        (
            through({"kind": "binary", "p": 1.5}),
            "variables.x.channel: The 'p1' parameter must be in [0, 1]. Got 1.5 instead.",
        ),
        (
            through({"kind": "binary", "p": "abc"}),
            "variables.x.channel.p: must be a number such as 0.25 or '1/4'. Got 'abc' instead.",
        ),
        (
            through({"kind": "binary", "p": True}),
            "variables.x.channel.p: must be a number such as 0.25 or a text such as '1/4'.",
        ),
        (
            through({"kind": "binary", "p": 0.1, "p1": 0.1}),
            "variables.x.channel: give either 'p', or both 'p1' and 'p2'.",
        ),
        (
            through({"kind": "ternary", "p": 0.1}),
            "variables.x.channel: a ternary channel needs 3 categories; 'x' has 2.",
        ),
        (
            through({"kind": "flip", "theta": [0.5, "x"]}),
            "variables.x.channel.theta.1: must be a number such as 0.25 or '1/4'. Got 'x' instead.",
        ),
        (
            through({"kind": "flip", "theta": "x"}),
            "variables.x.channel.theta: must be a number such as 0.25 or '1/4'. Got 'x' instead.",
        ),
        (
            through({"kind": "flip", "theta": 0.7, "groups": [["z"]]}),
            "variables.x.channel: 'z' is not one of the variables disguised together.",
        ),
        (
            through({"kind": "kuk", "p1": 0.1, "p2": 0.2, "cards": 0}),
            "variables.x.channel.cards: must be at least 1.",
        ),
        (
            through({"kind": "kuk", "p1": 0.1, "p2": 0.2, "cards": 1001}),
            "variables.x.channel.cards: must be at most 1000.",
        ),
        (
            through({"kind": "kuk", "p1": 0.1, "p2": 0.2, "cards": "x"}),
            "variables.x.channel.cards: must be a whole number.",
        ),
        (
            through({"kind": "kuk", "p1": 0.1, "p2": 0.2, "cards": 1.5}),
            "variables.x.channel.cards: must be a whole number.",
        ),
        (
            through({"kind": "additive", "noise": "laplace", "scale": 1}),
            "variables.x.channel.noise: must be 'uniform' or 'gaussian'.",
        ),
        (
            through({"kind": "additive", "noise": "uniform", "scale": 1}),
            "variables.x.channel: additive noise needs 'bins' on 'x', and a channel of its own.",
        ),
        (
            through({"kind": "grouped", "groups": [["a"], [1.5]], "p": 0.1}),
            "variables.x.channel.groups.1.0: must be text, a whole number or true/false; quote it.",
        ),
        (
            through({"kind": "grouped", "groups": [["a"], ["c"]], "p": 0.1}),
            "variables.x.channel: 'c' is not a category of 'x'. Known: a, b.",
        ),
        (
            through({"kind": "grouped", "groups": [TWO]}),
            "variables.x.channel: a grouped channel takes either 'p' or 'channels'.",
        ),
        (
            through({"kind": "grouped", "groups": [TWO], "channels": [BINARY, BINARY]}),
            "variables.x.channel: 1 groups need 1 channels. Got 2.",
        ),
        (
            through({"kind": "matrix", "rows": [[1, 0]]}),
            "variables.x.channel: the matrix has 1 rows for 2 categories.",
        ),
        (
            through({"kind": "matrix", "rows": [[1, 0], [0, 1]], "reports": ["r", "r", "g"]}),
            "variables.x.channel: A channel with 2 reports needs as many different labels.",
        ),
        (
            through({"kind": "matrix", "rows": [[1, 0], ["x", 1]]}),
            "variables.x.channel.rows.1.0: must be a number such as 0.25 or '1/4'. Got 'x' instead.",
        ),
        (through({"kind": "composition", "steps": []}), "variables.x.channel.steps: must not be empty."),
        (
            through({"kind": "composition", "steps": [BINARY, {"kind": "binary", "pp": 1}]}),
            "variables.x.channel.steps.1.pp: is not a known key. Did you mean 'p'?",
        ),
        (
            through({"kind": "invariant", "prior": [0.5, 0.5], "base": {"kind": "binary", "pp": 1}}),
            "variables.x.channel.base.pp: is not a known key. Did you mean 'p'?",
        ),
        # joint and strata
        (
            through(BINARY, joint=[{"variables": ["x", "y"], "channel": {"kind": "flip", "theta": 0.7}}]),
            "joint[0]: a variable disguised jointly cannot have a channel of its own too.",
        ),
        (
            through(BINARY, joint=[{"variables": ["z"], "channel": BINARY}]),
            "joint[0]: there is no variable 'z'. Known: x, y.",
        ),
        (through(BINARY, joint={"variables": ["x"]}), "joint: must be a list, such as [a, b]."),
        (
            through(BINARY, joint=[{"variables": [1], "channel": BINARY}]),
            "joint.0.variables.0: must be text; quote it.",
        ),
        (
            through(BINARY, joint=[{"variables": [], "channel": BINARY}]),
            "joint.0.variables: must not be empty.",
        ),
        (
            through(BINARY, strata={"by": "z", "channels": {}}),
            "strata.by: there is no variable 'z'. Known: x, y.",
        ),
        (
            through(BINARY, strata={"by": "x", "channels": {}}),
            "'x' defines the strata, so it cannot be disguised.",
        ),
        (
            through(BINARY, strata={"by": "y", "channels": {"c": {"x": BINARY}}}),
            "strata.channels: 'c' is not a category of 'y'. Known: a, b.",
        ),
        (
            through(BINARY, strata={"by": "y", "channels": {"a": {"z": BINARY}}}),
            "strata.channels.a: there is no variable 'z'. Known: x, y.",
        ),
        (
            through(BINARY, strata={"by": "y", "channels": {"a": {"y": BINARY}}}),
            "strata.channels.a: 'y' cannot have a channel per stratum.",
        ),
        (
            through(BINARY, strata={"by": "y", "channels": {"a": {"x": {"kind": "binary", "pp": 1}}}}),
            "strata.channels.a.x.pp: is not a known key. Did you mean 'p'?",
        ),
        (
            through(BINARY, strata={"by": "y", "channels": {"a": {"x": {"kind": "binary", "p": 2}}}}),
            "strata.channels.a.x: The 'p1' parameter must be in [0, 1]. Got 2 instead.",
        ),
        (
            through(BINARY, strata={"by": "y", "channels": {"a": {"x": TWO_COLUMNS}}}),
            (
                "strata.channels.a.x: a design of several columns must be the same in all strata. Give each "
                "design a policy, and join the sources with mq.Merged."
            ),
        ),
    ],
)
def test_one_line_says_where_what_and_what_instead(values, message):
    with pytest.raises(PolicyError) as caught:
        Policy.from_dict(values)
    assert str(caught.value) == message


def test_several_places_are_said_once_each_in_one_line():
    values = through({"kind": "binary", "q": 1}, joints=[])
    values["variables"]["y"]["categories"] = [1.5, 2.5]
    with pytest.raises(PolicyError) as caught:
        Policy.from_dict(values)
    told = str(caught.value)
    for place in ("x.channel.q", "y.categories.0", "y.categories.1", "joints"):
        assert told.count(f"{place}: ") == 1
    assert "\n" not in told


def test_of_many_places_the_first_are_said_and_the_others_counted():
    values = through({"kind": "binary", "p": 0.25})
    values["variables"]["y"]["categories"] = [0.5 + i for i in range(9)]
    with pytest.raises(PolicyError, match=r"categories\.4: .*quote it\. \(and 4 more\)$"):
        Policy.from_dict(values)


def test_a_misspelt_key_is_named_beside_the_one_that_is_missing():
    with pytest.raises(PolicyError, match=r"gamma: is missing\. .*gama: .* Did you mean 'gamma'\?"):
        Policy.from_dict(through({"kind": "for_gamma", "gama": 9}))


def test_variables_may_be_named_like_kinds_and_types():
    values = {"masquerade": 1, "variables": {"binary": {"categories": TWO}, "str": {"categories": TWO}}}
    values["strata"] = {"by": "str", "channels": {"a": {"binary": {"kind": "binary", "pp": 1}}}}
    with pytest.raises(PolicyError, match=r"^strata\.channels\.a\.binary\.pp: is not a known key"):
        Policy.from_dict(values)
    values = {"masquerade": 1, "variables": {"str": {"categories": [1.5]}}}
    with pytest.raises(PolicyError, match=r"^variables\.str\.categories\.0: must be text"):
        Policy.from_dict(values)


def test_an_error_in_a_file_starts_with_the_file(tmp_path):
    (tmp_path / "p.yaml").write_text("masquerade: 1\nvariables:\n  x: {categories: [1.5]}\n")
    with pytest.raises(PolicyError, match=r"p\.yaml: variables\.x\.categories\.0: must be text"):
        Policy.load(tmp_path / "p.yaml")
