"""Some variables of a source, of a policy, of a file; frames where a source is due."""

import numpy as np
import pandas as pd
import pytest
from tests.e2e.test_cli_app import ok, refused

import masquerade as mq
from masquerade.core.tally import Selected, Tally
from masquerade.sklearn import DisguisedNaiveBayes

SCHEMA = {"a": ["x", "y"], "b": [0, 1, 2], "c": ["u", "v"], "d": ["p", "q"]}
POLICY = mq.Policy.build(
    SCHEMA,
    {
        "a": mq.channels.binary("1/5"),
        "b": mq.channels.symmetric(3, 0.3),
        ("c", "d"): mq.channels.symmetric(4, 0.2),
    },
)


@pytest.fixture(scope="module")
def people():
    draw = np.random.default_rng(3)
    return pd.DataFrame({name: draw.choice(labels, 2000) for name, labels in SCHEMA.items()})


@pytest.fixture(scope="module")
def disguised(people):
    return mq.simulate(people, POLICY, seed=4)


def test_a_selection_is_a_source_that_answers_as_the_whole_does(disguised):
    whole = mq.tally(disguised, POLICY)
    some = whole.select(["c", "a"])
    assert isinstance(some, Tally)
    assert tuple(some.schema) == ("c", "a")
    query = mq.Query(by=("a", "c"))
    assert np.array_equal(some.answer([query])[0].values, whole.answer([query])[0].values)
    assert some.guarantee == whole.guarantee  # whoever sees the records sees all of them
    assert some.misfit(["a"]).p_value == whole.misfit(["a"]).p_value
    for ask in (some.answer, some.check):
        with pytest.raises(mq.MasqueradeError, match="no variable 'b'"):
            ask([mq.Query(by=("b",))])
    with pytest.raises(mq.MasqueradeError, match="no variable 'b'"):
        some.select(["b"])
    with pytest.raises(mq.MasqueradeError, match="at least one"):
        whole.select([])
    assert tuple(mq.Merged([whole, whole]).select("a").schema) == ("a",)
    assert tuple(mq.Cached(whole).select("a").schema) == ("a",)
    with pytest.raises(AttributeError):
        some.nothing  # noqa: B018
    # learners know of no others
    model = mq.learn.naive_bayes(some, "a")
    assert [feature.name for feature in model.features] == ["c"]
    assert mq.evaluate.accuracy(model, some).value == mq.evaluate.accuracy(model, whole).value


def test_a_sub_policy_of_the_policy_that_made_a_file_is_accepted(people, tmp_path):
    people.to_csv(tmp_path / "clear.csv", index=False)
    for name in ("d.csv", "d.parquet"):
        out = tmp_path / name
        mq.disguise_file(tmp_path / "clear.csv", out, POLICY)
        for names in (["a"], ["b", "c", "d"]):
            part = POLICY.select(names)
            found = mq.tally(out, part).answer([mq.Query(by=names)])[0]
            assert np.allclose(found.values, mq.tally(out, POLICY).answer([mq.Query(by=names)])[0].values)
        other = mq.Policy.build({"a": ["x", "y"]}, {"a": mq.channels.binary("1/4")})
        with pytest.raises(mq.MasqueradeError, match="disguised under policy"):
            mq.tally(out, other)
    with pytest.raises(mq.MasqueradeError, match="select all or none"):
        POLICY.select(["c"])
    assert POLICY.select(list(POLICY.schema)).id == POLICY.id


def test_a_selection_of_a_policy_keeps_strata_and_joint_reports():
    values = {
        "masquerade": 1,
        "variables": {
            "s": {"categories": ["m", "f"]},
            "a": {"categories": ["x", "y"], "channel": {"kind": "binary", "p": 0.2}},
            "b": {"categories": ["x", "y"], "channel": {"kind": "binary", "p": 0.2}},
        },
        "strata": {"by": "s", "channels": {"m": {"a": {"kind": "binary", "p": 0.1}}}},
    }
    policy = mq.Policy.from_dict(values)
    part = policy.select(["s", "a"])
    assert str(part.groups_of("m")[1].channel.gamma) == "9"
    assert str(part.groups_of("f")[1].channel.gamma) == "4"
    with pytest.raises(mq.MasqueradeError, match="select it too"):
        policy.select(["a"])


def test_variables_of_commands(disguised, tmp_path):
    disguised.to_csv(tmp_path / "d.csv", index=False)
    POLICY.save(tmp_path / "p.yaml")
    given = (tmp_path / "d.csv", "-p", tmp_path / "p.yaml")
    assert (
        "P(a | b)"
        in (shown := ok("learn", "naive-bayes", *given, "--target", "a", "--variables", "a,b").stdout)
        or "b" in shown
    )
    assert "P(c" not in shown
    assert "2 nodes" in ok("learn", "structure", *given, "--variables", "a,b").stdout
    assert "no variable 'z'" in refused("learn", "structure", *given, "--variables", "a,z")


def test_estimators_need_the_columns_of_their_features_only(disguised):
    features = ["b"]
    whole = DisguisedNaiveBayes(POLICY, target="a", features=features).fit(
        disguised.drop(columns="a"), disguised["a"]
    )
    some = DisguisedNaiveBayes(POLICY, target="a", features=features).fit(disguised[["b"]], disguised["a"])
    assert np.allclose(some.model_.prior, whole.model_.prior)
    double = DisguisedNaiveBayes(POLICY, target="a", features=features).fit(
        disguised[["b"]], disguised["a"], survey_weight=np.full(len(disguised), 2.0)
    )
    assert np.allclose(double.model_.prior, whole.model_.prior, atol=1e-3)  # but for what alpha adds
    ones = (disguised["a"] == "x").to_numpy(float)
    heavy = DisguisedNaiveBayes(POLICY, target="a", features=features).fit(
        disguised[["b"]], disguised["a"], ones * 3 + 1
    )
    assert heavy.model_.prior[0] > whole.model_.prior[0] + 0.2


@pytest.mark.parametrize(
    "learn",
    [
        lambda data: mq.learn.naive_bayes(data, "a"),
        lambda data: mq.learn.decision_tree(data, "a"),
        lambda data: mq.learn.linear_classifier(data, "a"),
        lambda data: mq.learn.bayesian_network(data, {"a": ()}),
        mq.learn.structure,
        mq.learn.association_rules,
        lambda data: Selected(data, ["a"]),
    ],
)
def test_a_frame_where_a_source_is_due_says_so(people, learn):
    with pytest.raises(mq.MasqueradeError, match="DataFrame is not a source of counts"):
        learn(people)
