"""Measures of classifiers from disguised test records, rows that are disguised, scorers of scikit-learn."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, roc_auc_score
from sklearn.model_selection import cross_val_score, cross_validate
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq
from masquerade.sklearn import SCORERS, DisguisedLinear, DisguisedNaiveBayes, DisguisedTree

SCHEMA = {"b": [0, 1, 2], "c": ["u", "v"], "a": ["no", "yes"]}
POLICY = mq.Policy.build(
    SCHEMA,
    {"a": mq.channels.binary("1/8"), "b": mq.channels.symmetric(3, 0.2), "c": mq.channels.binary("1/10")},
)


def people(n, seed):
    draw = np.random.default_rng(seed)
    a = (draw.random(n) < 0.4).astype(int)
    b = np.where(draw.random(n) < 0.5, 2 * a, draw.integers(3, size=n))
    c = np.where(draw.random(n) < 0.5, a, draw.integers(2, size=n))
    codes = {"b": b, "c": c, "a": a}
    return pd.DataFrame({name: np.array(SCHEMA[name])[codes[name]] for name in SCHEMA})


@pytest.fixture(scope="module")
def trained():
    return mq.tally(people(4000, 1), schema=mq.Schema(SCHEMA))


def models(source):
    return {
        "bayes": mq.learn.naive_bayes(source, "a"),
        "tree": mq.learn.decision_tree(source, "a"),
        "linear": mq.learn.linear_classifier(source, "a", loss="logistic"),
    }


def test_on_clear_records_they_are_scikit_learns(trained):
    rows = people(1500, 2)
    test = mq.tally(rows, schema=mq.Schema(SCHEMA))
    truth = rows["a"].to_numpy()
    for name, model in models(trained).items():
        found = mq.evaluate.confusion(model, test)
        said = model.predict(rows)
        assert np.allclose(found.shares * 1500, confusion_matrix(truth, said)), name
        assert found.balanced.value == pytest.approx(balanced_accuracy_score(truth, said)), name
        assert mq.evaluate.balanced_accuracy(model, test).value == found.balanced.value
        scores = model.predict_proba(rows)[:, 1]
        assert mq.evaluate.roc_auc(model, test).value == pytest.approx(roc_auc_score(truth, scores)), name
        bins = mq.evaluate.calibration(model, test, bins=5)
        low = scores < 0.2
        if low.any():
            assert bins.observed[0] == pytest.approx(np.mean(truth[low] == "yes"))
        assert bins.records.sum() == 1500
        share = confusion_matrix(truth, said) / 1500
        assert np.allclose(found.stderr**2, share * (1 - share) / 1500, rtol=2e-3, atol=1e-12)
    assert "AUC 0." in mq.evaluate.roc_auc(model, test).summary()
    for result in (found, bins):
        assert result._repr_html_().startswith("<div>")
        assert result.plot().figure


def test_on_disguised_records_they_are_unbiased_and_know_their_errors(trained):
    """False alarms: 1e-6 each, from 100 disguises of new people against 50,000 clear ones."""
    model = mq.learn.naive_bayes(trained, "a")
    many = mq.tally(people(50_000, 5), schema=mq.Schema(SCHEMA))
    drawn = [
        mq.tally(mq.simulate(people(1000, 90_000 + i), POLICY, seed=70_000 + i), POLICY) for i in range(100)
    ]
    for measure in (mq.evaluate.roc_auc, mq.evaluate.balanced_accuracy):
        truth, found = measure(model, many), [measure(model, source) for source in drawn]
        values = np.array([item.value for item in found])
        assert truth.stderr < values.std() / 5  # as good as known
        assert_unbiased(values, truth.value)
        assert_variance(values, np.array([item.stderr**2 for item in found]))
    # what the reports say at face value is far off
    reports = pd.DataFrame(mq.simulate(people(5000, 9), POLICY, seed=9).to_dict("list"))
    clear = mq.tally(reports, schema=mq.Schema(SCHEMA))
    assert mq.evaluate.balanced_accuracy(model, clear).value < truth.value - 0.05


def test_cross_validation_on_disguised_folds_gives_numbers():
    disguised = mq.simulate(people(1500, 7), POLICY, seed=8)
    X, y = disguised[["b", "c"]], disguised["a"]
    clear = people(1500, 7)
    best = cross_val_score(
        DisguisedNaiveBayes(mq.Policy.build(SCHEMA, {}), target="a"),
        clear[["b", "c"]],
        clear["a"],
        cv=3,
        scoring=SCORERS["roc_auc"],
    ).mean()
    for estimator in (DisguisedNaiveBayes, DisguisedTree, DisguisedLinear):
        reading = estimator(POLICY, target="a")
        found = cross_validate(reading, X, y, cv=3, scoring=SCORERS, error_score="raise")
        assert found["test_roc_auc"].mean() == pytest.approx(
            best, abs=0.15
        )  # some 5 standard errors of folds
        assert np.isfinite(found["test_balanced_accuracy"]).all()
        told = estimator(POLICY, target="a", predict_on="disguised")
        own = cross_val_score(told, X, y, cv=3, scoring="roc_auc", error_score="raise")
        assert ((own > 0.5) & (own < 1)).all()
        corrected = cross_val_score(told, X, y, cv=3, scoring=SCORERS["roc_auc"], error_score="raise")
        assert corrected.mean() > own.mean()  # reports of the class tell less than the class


def test_models_predict_disguised_rows(trained):
    rows = people(6000, 11)
    disguised = mq.simulate(rows, POLICY, seed=12)
    truth = rows["a"].to_numpy()
    tree = mq.learn.decision_tree(trained, "a")
    network = mq.learn.bayesian_network(trained, {"a": (), "b": ("a",), "c": ("a",)})
    bayes = mq.learn.naive_bayes(trained, "a", alpha=0.0)
    exact = mq.evaluate.disguised_view(bayes, POLICY).predict_proba(disguised)
    seen = mq.evaluate.disguised_view(network, POLICY, target="a")
    assert np.allclose(seen.predict_proba(disguised), exact, atol=1e-6)  # the same model, by other sums
    branches = mq.evaluate.disguised_view(tree, POLICY)
    found = branches.predict_proba(disguised)
    assert np.allclose(found.sum(axis=1), 1)
    at_face_value = tree.predict_proba(disguised[["b", "c"]].to_dict("list"))
    is_yes = truth == "yes"
    assert np.mean((found[:, 1] - is_yes) ** 2) < np.mean((at_face_value[:, 1] - is_yes) ** 2)
    assert (seen.predict(disguised) == truth).mean() > 0.6
    untold = mq.evaluate.disguised_view(tree, mq.Policy.build(SCHEMA, {}))
    assert np.allclose(untold.predict_proba(rows), tree.predict_proba(rows))
    with pytest.raises(mq.MasqueradeError, match="variable to predict"):
        mq.evaluate.disguised_view(network, POLICY)
    linear = mq.learn.linear_classifier(trained, "a", loss="logistic")
    view = mq.evaluate.disguised_view(linear, POLICY)
    faced = linear.predict_proba(disguised[["b", "c"]].to_dict("list"))
    expected = view.predict_proba(disguised)
    assert np.mean((expected[:, 1] - is_yes) ** 2) < np.mean((faced[:, 1] - is_yes) ** 2)
    untold = mq.evaluate.disguised_view(linear, mq.Policy.build(SCHEMA, {}))
    assert np.allclose(untold.predict_proba(rows), linear.predict_proba(rows))
    again = mq.learn.LinearClassifier.from_dict(linear.to_dict())
    assert np.allclose(mq.evaluate.disguised_view(again, POLICY).predict_proba(disguised), expected)
    with pytest.raises(mq.MasqueradeError, match="learn it again"):
        mq.evaluate.disguised_view(replace(linear, shares=None), POLICY)
    other = mq.Policy.build(SCHEMA | {"b": ["no", "yes", "perhaps"]}, {})
    for model in (tree, linear, bayes):
        with pytest.raises(mq.MasqueradeError, match="rows are disguised"):
            model.predict(disguised)
        with pytest.raises(mq.MasqueradeError, match="not the same in the model and in the policy"):
            mq.evaluate.disguised_view(model, other)


@pytest.mark.parametrize("weighted", [False, True])
def test_truths_told_one_by_one_give_what_the_table_does(trained, monkeypatch, weighted):
    """Of few truths a report measures are summed over records, whose spread is that of the table's cells."""
    reports = mq.simulate(people(900, 3), POLICY, 4)
    weighed = reports.assign(weight=np.random.default_rng(5).uniform(0.5, 2, 900))
    test = mq.tally(weighed, POLICY, weights="weight") if weighted else mq.tally(reports, POLICY)
    model = models(trained)["bayes"]
    tabled = mq.evaluate.confusion(model, test), mq.evaluate.roc_auc(model, test)
    monkeypatch.setattr("masquerade.evaluate.MOST_TRUTHS", 1)
    told = mq.evaluate.confusion(model, test), mq.evaluate.roc_auc(model, test)
    assert np.allclose(told[0].shares, tabled[0].shares, atol=1e-12)
    assert np.allclose(told[0].stderr, tabled[0].stderr, rtol=1e-9)
    assert told[0].balanced.value == pytest.approx(tabled[0].balanced.value)
    assert told[0].balanced.stderr == pytest.approx(tabled[0].balanced.stderr)
    assert (told[1].value, told[1].stderr) == pytest.approx((tabled[1].value, tabled[1].stderr))


def test_fourteen_attributes_that_are_reported_or_reversed_take_megabytes():
    """The table of Zhan's fourteen attributes has 32,768 cells, its channel 268 million probabilities."""
    names, draw = [f"x{i}" for i in range(14)], np.random.default_rng(14)
    ill = draw.integers(0, 2, 3000)
    frame = pd.DataFrame(
        {name: np.where(draw.random(3000) < 0.7, ill, 1 - ill) for name in names} | {"ill": ill}
    )
    policy = mq.Policy.build(
        dict.fromkeys((*names, "ill"), (0, 1)), {tuple(names): mq.channels.flip([2] * 14, "0.8")}
    )
    test = mq.tally(mq.simulate(frame, policy, 2), policy)
    model = mq.learn.naive_bayes(mq.tally(frame, schema=policy.schema), "ill")
    tracemalloc.start()
    found, area = mq.evaluate.confusion(model, test), mq.evaluate.roc_auc(model, test)
    view = mq.evaluate.disguised_view(model, policy)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 200e6
    right = mq.evaluate.accuracy(model, test)
    assert np.trace(found.shares) == pytest.approx(right.value)
    clear = mq.evaluate.roc_auc(model, mq.tally(frame, schema=policy.schema))
    assert abs(area.value - clear.value) < 6 * np.hypot(area.stderr, clear.stderr)
    [part] = view.emissions[None]
    assert part.table.sum(axis=1) == pytest.approx([1, 1])
    share = {0: 1.0, 1: 1.0}  # P(all zero | class) and P(all one | class), mixed by the flip
    for place in range(14):
        for code in share:
            share[code] *= model.probabilities[place][1, code]
    assert part.table[1, 0] == pytest.approx(0.8 * share[0] + 0.2 * share[1])
