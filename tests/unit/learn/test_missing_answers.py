"""Models of people some of whom did not answer: learned from answers, and they say so."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, UnknownValue

SIGMAS = 5.5  # false alarms below 4e-8 a comparison
N = 20_000


def _policy(flip: str | None) -> mq.Policy:
    channel = {} if flip is None else {"channel": {"kind": "symmetric", "p": flip}}
    yes_no = {"categories": ["no", "yes", "not stated"], "missing": "not stated", **channel}
    return mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "a": yes_no,
                "b": yes_no,
                "c": {"categories": ["no", "yes"], **channel},
                "v": {"categories": [0, 1, 2, 3, "refused"], "missing": "refused", **channel},
            },
        }
    )


def _people(n: int, seed: int) -> pd.DataFrame:
    """Return people of the chain a → b → c → v; a, b and v are missing for 10%, 20% and 15%."""
    rng = np.random.default_rng(seed)
    a = rng.random(n) < 0.4
    b = rng.random(n) < np.where(a, 0.7, 0.2)
    c = rng.random(n) < np.where(b, 0.8, 0.3)
    yes_no = [np.where(each, "yes", "no").astype(object) for each in (a, b, c)]
    people = pd.DataFrame(dict(zip("abc", yes_no, strict=True)))
    people["v"] = (rng.choice([0, 1, 2], n) + c).astype(object)
    for name, share in (("a", 0.1), ("b", 0.2), ("v", 0.15)):
        people.loc[rng.random(n) < share, name] = None
    return people


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    return _people(N, 3)


@pytest.fixture(scope="module", params=[None, "0.1"])
def source(request: pytest.FixtureRequest, people: pd.DataFrame) -> mq.Tally:
    policy = _policy(request.param)
    if request.param is None:
        return mq.tally(people, schema=policy)
    return mq.tally(mq.disguise(people, policy), policy)


def test_network_is_that_of_people_who_answered_each_family(source: mq.Tally) -> None:
    network = mq.learn.bayesian_network(source, {"a": (), "b": ("a",), "c": ("b",), "v": ("c",)})
    assert network.schema.shape(["a", "b", "c", "v"]) == (2, 2, 2, 4)
    for name, truth in (("b", [0.2, 0.7]), ("c", [0.3, 0.8])):
        table = network[name]
        assert np.all(np.abs(table.probabilities[:, 1] - truth) < SIGMAS * table.stderr[:, 1])
    assert "b is missing (not stated) for " in network.summary()
    assert "Every count is among people who answered" in network.summary()
    counted = mq.learn.bayesian_network(source, {"a": (), "b": ("a",)}, missing="category")
    assert counted["b"].probabilities.shape == (3, 3)
    assert "counted as categories" in counted.summary()


def test_structure_is_found_among_people_who_answered(source: mq.Tally) -> None:
    found = mq.learn.structure(source, order=["a", "b", "c", "v"], max_parents=1)
    assert found.structure == {"a": (), "b": ("a",), "c": ("b",), "v": ("c",)}
    assert {strength.df for strength in found.strengths} == {1.0, 3.0}
    assert found.summary().splitlines()[-1].startswith("a is missing (not stated) for ")


def test_share_of_missing_answers_is_estimated_with_its_error(source: mq.Tally, people: pd.DataFrame) -> None:
    model = mq.learn.naive_bayes(source, "c")
    shares = {share.name: share for share in model.missing.shares}
    assert set(shares) == {"a", "b", "v"}
    for name, share in shares.items():
        assert abs(share.share - people[name].isna().mean()) <= SIGMAS * share.stderr
        assert 0.001 < share.stderr < 0.01


def test_classifiers_predict_rows_with_and_without_an_answer(source: mq.Tally, people: pd.DataFrame) -> None:
    rows = pd.DataFrame({"a": ["yes", None, "not stated"], "b": ["yes", "yes", None], "v": [3, 2, "refused"]})
    for model in (
        mq.learn.naive_bayes(source, "c"),
        mq.learn.decision_tree(source, "c", max_depth=2),
        mq.learn.linear_classifier(source, "c", loss="logistic"),
    ):
        assert [len(feature) for feature in model.features] == [2, 2, 4]
        chances = model.predict_proba(rows)
        assert chances.sum(axis=1) == pytest.approx(1.0)
        assert chances[0, 1] > 0.85
        # nothing is known of the last row: its class has about the share of all
        assert abs(chances[2, 1] - (people["c"] == "yes").mean()) < 0.05
        with pytest.raises(UnknownValue):
            model.predict({"a": ["yes"], "b": ["perhaps"], "v": [1]})
        accuracy = mq.evaluate.accuracy(model, source)
        complete = people.dropna()
        truth = (model.predict(complete) == complete["c"]).mean()
        assert abs(accuracy.value - truth) < SIGMAS * accuracy.stderr
        assert mq.evaluate.confusion(model, source).shares.sum() == pytest.approx(1.0)


def test_naive_bayes_without_an_answer_sums_it_out(people: pd.DataFrame) -> None:
    source = mq.tally(people, schema=_policy(None))
    model = mq.learn.naive_bayes(source, "c", ["a", "b"])
    alone = mq.learn.naive_bayes(source, "c", ["b"])
    both = model.predict_proba({"a": [None], "b": ["yes"]})
    assert both == pytest.approx(alone.predict_proba({"b": ["yes"]}))


def test_clear_models_equal_those_of_complete_records(people: pd.DataFrame) -> None:
    source = mq.tally(people, schema=_policy(None))
    found = mq.learn.decision_tree(source, "c", ["b"])
    plain = mq.learn.decision_tree(mq.tally(people[["b", "c"]].dropna()), "c", ["b"])
    for one, other in zip(found.nodes[1:], plain.nodes[1:], strict=True):
        assert one.counts == pytest.approx(other.counts)
    correlation = mq.learn.correlations(source, ["c", "v"])
    pair = people[["c", "v"]].dropna()
    r = np.corrcoef(pair["c"] == "yes", pair["v"].astype(float))[0, 1]
    assert correlation.values[0, 1] == pytest.approx(r)
    clusters = mq.learn.k_means(source, 2, ["v"])
    assert clusters.shares.sum() == pytest.approx(1.0)
    assert clusters.centres.max() <= 3


def test_numbers_that_stand_for_missing_values_are_no_numbers_of_a_model() -> None:
    values = {"v": {"categories": [0, 1, 2, -1], "missing": -1}, "w": {"categories": [0, 1]}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = mq.Policy.from_dict({"masquerade": 1, "variables": values})
    frame = pd.DataFrame({"v": [0, 1, 2, None] * 50, "w": [0, 0, 1, 1] * 50})
    source = mq.tally(frame, schema=policy)
    assert mq.learn.k_means(source, 1, ["v"]).centres[0, 0] == pytest.approx(1.0)
    r = np.corrcoef([0, 1, 2], [0, 0, 1])[0, 1]
    assert mq.learn.correlations(source).values[0, 1] == pytest.approx(r)


def test_missing_answers_are_no_items(source: mq.Tally, people: pd.DataFrame) -> None:
    found = mq.learn.frequent_itemsets(source, 0.05, max_len=2)
    assert not any("not stated" in label or "refused" in label for label in found.labels)
    support = dict(zip(map(frozenset, found), found.column("values"), strict=True))
    errors = dict(zip(map(frozenset, found), found.column("stderr"), strict=True))
    pair = frozenset({"b=yes", "c=yes"})
    truth = ((people["b"] == "yes") & (people["c"] == "yes")).mean()
    assert abs(support[pair] - truth) <= SIGMAS * errors[pair]
    assert "Missing answers are not items" in found.summary()
    rules = mq.learn.association_rules(source, 0.05, max_len=2)
    assert "b is missing (not stated) for " in rules.summary()
    listed = mq.learn.frequent_itemsets(source, 0.05, items=[("b", "not stated")])
    assert listed.labels == ("b=not stated",)
    assert listed.missing is None


def test_files_of_models_keep_how_many_were_missing(source: mq.Tally, tmp_path) -> None:
    models = [
        mq.learn.naive_bayes(source, "c"),
        mq.learn.decision_tree(source, "c", max_depth=1),
        mq.learn.linear_classifier(source, "c", loss="squares"),
        mq.learn.bayesian_network(source, {"a": (), "b": ("a",)}),
        mq.learn.frequent_itemsets(source, 0.3),
        mq.learn.k_means(source, 2, ["v"]),
        mq.learn.structure(source, order=["a", "b", "c", "v"], max_parents=1),
    ]
    for model in models:
        mq.learn.save(model, tmp_path / "model.json")
        again = mq.learn.load(tmp_path / "model.json")
        assert again.missing == model.missing
        assert again.missing.text in again.summary()
    complete = mq.learn.naive_bayes(mq.tally(mq.data.students()), "sleep")
    assert complete.missing is None
    assert "missing" not in complete.to_dict()


def test_disguised_rows_need_a_model_that_counts_missing_answers(people: pd.DataFrame) -> None:
    policy = _policy("0.1")
    reports = mq.disguise(people, policy)
    source = mq.tally(reports, policy)
    with pytest.raises(InputError, match="missing='category'"):
        mq.evaluate.disguised_view(mq.learn.naive_bayes(source, "c"), policy)
    model = mq.learn.naive_bayes(source, "c", missing="category")
    found = mq.evaluate.disguised_view(model, policy).predict(reports)
    assert (found == people["c"]).mean() > 0.7
    with pytest.raises(InputError, match="such as the parents of a node"):
        mq.learn.bayesian_network(source, {"a": ()}, missing="at-random")  # type: ignore[arg-type]


def test_scikit_learn_classes_have_no_missing_answer(people: pd.DataFrame) -> None:
    from masquerade.sklearn import DisguisedNaiveBayes, DisguisedTree  # noqa: PLC0415

    policy = _policy("0.1")
    reports = mq.disguise(people, policy)
    X, y = reports.drop(columns="b"), reports["b"]
    rows = people.drop(columns="b")[:50]
    for estimator in (
        DisguisedNaiveBayes(policy=policy, target="b", features=["a"]),
        DisguisedTree(policy=policy, target="b", features=["a"]),
    ):
        estimator.fit(X, y)
        assert estimator.classes_.tolist() == ["no", "yes"]
        assert set(estimator.predict(rows)) <= {"no", "yes"}
        assert estimator.predict_proba(rows).shape == (50, 2)
        assert 0.5 < estimator.score(X, y) < 1
    on_reports = DisguisedNaiveBayes(policy=policy, target="c", predict_on="disguised")
    on_reports.fit(reports.drop(columns="c"), reports["c"])
    assert on_reports.model_.missing.taken == "category"


def test_tables_that_are_merged_from_several_sources_are_restricted_too(people: pd.DataFrame) -> None:
    policy = _policy("0.1")
    halves = [mq.tally(mq.disguise(part, policy), policy) for part in (people[::2], people[1::2])]
    merged = mq.Merged(halves)
    network = mq.learn.bayesian_network(merged, {"a": (), "b": ("a",)})
    table = network["b"]
    assert np.all(np.abs(table.probabilities[:, 1] - [0.2, 0.7]) < SIGMAS * table.stderr[:, 1])
