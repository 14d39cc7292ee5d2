"""Tests of classifiers on disguised records: all measures, their intervals, and the trivial classifier."""

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest
from benchmarks import classifier_tests
from sklearn.metrics import confusion_matrix, precision_score, recall_score, roc_auc_score

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.sources.group_counts import TooManyTruths

SCHEMA = {"b": [0, 1, 2], "c": ["u", "v"], "a": ["no", "yes"]}


def people(n, seed, share=0.1):
    draw = np.random.default_rng(seed)
    a = (draw.random(n) < share).astype(int)
    b = np.where(draw.random(n) < 0.6, 2 * a, draw.integers(3, size=n))
    c = np.where(draw.random(n) < 0.6, a, draw.integers(2, size=n))
    codes = {"b": b, "c": c, "a": a}
    return pd.DataFrame({name: np.array(SCHEMA[name])[codes[name]] for name in SCHEMA})


def source_of(frame):
    return mq.tally(frame, schema=mq.Schema(SCHEMA))


@pytest.fixture(scope="module")
def bayes():
    return mq.learn.naive_bayes(source_of(people(8000, 1, 0.4)), "a")


def test_performance_on_clear_records_is_scikit_learns(bayes):
    rows = people(3000, 2)
    result = mq.evaluate.performance(bayes, source_of(rows))
    truth, predicted = rows["a"] == "yes", bayes.predict(rows) == "yes"
    score = bayes.predict_proba(rows)[:, 1]
    expected = {
        "prevalence": truth.mean(),
        "accuracy": (truth == predicted).mean(),
        "accuracy above trivial": (truth == predicted).mean() - (~truth).mean(),
        "balanced accuracy": (recall_score(truth, predicted) + recall_score(~truth, ~predicted)) / 2,
        "sensitivity": recall_score(truth, predicted),
        "specificity": recall_score(~truth, ~predicted),
        "positive predictive value": precision_score(truth, predicted),
        "negative predictive value": precision_score(~truth, ~predicted),
        "AUC": roc_auc_score(truth, score),
        "observed minus predicted": truth.mean() - score.mean(),
    }
    assert result.positive == "yes"  # the rarer class
    assert dict(zip(result.measures, result.values, strict=True)) == pytest.approx(expected, abs=1e-9)
    assert np.all((result.lower <= result.values) & (result.values <= result.upper))
    assert np.allclose(result.confusion.shares, confusion_matrix(truth, predicted) / 3000)
    curve = result.curve.to_frame().set_index(["threshold", "measure"])["estimate"]
    for threshold in curve.index.levels[0]:
        selected = score >= threshold
        assert curve[threshold, "selected"] == pytest.approx(selected.mean())
        assert curve[threshold, "sensitivity"] == pytest.approx(recall_score(truth, selected))
        assert curve[threshold, "positive predictive value"] == pytest.approx(
            precision_score(truth, selected)
        )
    bins = result.calibration
    for i in range(len(bins.predicted)):
        inside = (score >= bins.lowest[i] - 1e-9) & (score <= bins.highest[i] + 1e-9)
        assert bins.records[i] == pytest.approx(inside.sum())
        assert bins.predicted[i] == pytest.approx(score[inside].mean())
        assert bins.observed[i] == pytest.approx(truth[inside].mean())


def test_wilson_intervals_of_shares_of_clear_records(bayes):
    rows = people(3000, 2)
    result = mq.evaluate.performance(bayes, source_of(rows)).to_frame().set_index("measure")
    truth, predicted = rows["a"] == "yes", bayes.predict(rows) == "yes"
    z, n, k = 1.959963984540054, int(truth.sum()), int((truth & predicted).sum())
    centre, half = (k + z * z / 2) / (n + z * z), z / (n + z * z) * np.sqrt(k * (n - k) / n + z * z / 4)
    row = result.loc["sensitivity"]
    assert [row["lower"], row["upper"]] == pytest.approx([centre - half, centre + half], abs=1e-6)


def test_a_model_that_always_says_no_is_the_trivial_classifier():
    """Where a class is rare, a model without a signal is accurate, and its sensitivity is 0."""
    draw = np.random.default_rng(7)
    frame = people(5000, 4, 0.02).assign(b=draw.integers(3, size=5000), c="u")
    model = mq.learn.naive_bayes(source_of(frame), "a")
    result = mq.evaluate.performance(model, source_of(frame))
    assert set(model.predict(frame)) == {"no"}
    assert result["accuracy"].value > 0.97
    assert result["accuracy above trivial"].value == 0
    assert result["sensitivity"].value == 0
    assert result["specificity"].value == 1
    at = result.measures.index("positive predictive value")
    assert np.isnan(result.values[at])
    assert (result.lower[at], result.upper[at]) == (0, 1)
    assert "predicts no for every record" in result.summary()
    with pytest.raises(InputError, match="There are: prevalence, accuracy"):
        result["recall"]


def test_several_classes_have_measures_each():
    frame = people(4000, 5)
    model = mq.learn.naive_bayes(source_of(frame), "b")
    result = mq.evaluate.performance(model, source_of(frame))
    said = model.predict(frame)
    for label in SCHEMA["b"]:
        assert result[f"sensitivity of {label}"].value == pytest.approx(
            recall_score(frame["b"] == label, said == label)
        )
    assert result.curve is None
    assert "Name the positive class" in result.summary()
    named = mq.evaluate.performance(model, source_of(frame), positive=2)
    assert named["AUC"].value == pytest.approx(
        roc_auc_score(frame["b"] == 2, model.predict_proba(frame)[:, 2])
    )
    assert named["sensitivity"].value == pytest.approx(result["sensitivity of 2"].value)


def test_a_linear_model_without_probabilities_has_no_calibration():
    model = mq.learn.linear_classifier(source_of(people(8000, 1, 0.4)), "a", loss="pocket")
    result = mq.evaluate.performance(model, source_of(people(3000, 2)))
    assert result.calibration is None
    assert result.curve is None
    assert 0.5 < result["AUC"].value < 1


def test_errors_without_a_table_are_those_of_the_table(bayes, monkeypatch):
    """Records of large groups have the error of a sum alone; its covariances follow by polarisation."""
    policy = mq.Policy.build(
        SCHEMA, {"a": mq.channels.binary("1/8"), ("b", "c"): mq.channels.symmetric(6, 0.2)}
    )
    source = mq.tally(mq.simulate(people(3000, 6), policy, seed=3), policy)
    by_table = mq.evaluate.performance(bayes, source)
    monkeypatch.setattr("masquerade.sources.group_counts.LARGE_GROUP", 1)
    alone = mq.evaluate.performance(bayes, source)
    assert np.allclose(by_table.values, alone.values, equal_nan=True)
    assert np.allclose(by_table.stderr, alone.stderr, rtol=1e-3)
    assert np.allclose(by_table.lower, alone.lower, atol=0.05)


def test_too_many_truths_are_refused_and_few_records_are_useless(bayes, monkeypatch):
    policy = mq.Policy.build(SCHEMA, {name: mq.channels.symmetric(len(SCHEMA[name]), 0.4) for name in SCHEMA})
    source = mq.tally(mq.simulate(people(100, 6), policy, seed=3), policy)
    with pytest.warns(MasqueradeWarning, match="useless"):
        result = mq.evaluate.performance(bayes, source)
    assert "useless" in result.notes[-1]
    assert np.all((result.lower[:2] >= 0) & (result.upper[:2] <= 1))  # whatever the estimates are
    monkeypatch.setattr("masquerade.sources.group_counts.MOST_TRUTHS", 4)
    monkeypatch.setattr(type(source), "group_counts", lambda *_: None)  # as with many possible truths
    with pytest.raises(TooManyTruths, match="reads fewer"):
        mq.evaluate.performance(bayes, source)
    with pytest.raises(InputError, match="between 0 and 1"):
        mq.evaluate.performance(bayes, source, level=95)


def test_performance_shows_itself(bayes):
    result = mq.evaluate.performance(bayes, source_of(people(3000, 2)))
    assert result._repr_html_().count("<table>") == 4
    assert json.loads(json.dumps(result.to_dict()))["thresholds"][0]["measure"] == "selected"
    for part in (result, *result.parts):
        assert part.plot().figure
    assert "Thresholds of P(yes)" in result.summary()


SETTINGS = list(product(classifier_tests.PREVALENCES, [("ill",), tuple(classifier_tests.SCHEMA)]))


@pytest.mark.parametrize(
    ("prevalence", "disguised"),
    [*(pytest.param(*setting, marks=pytest.mark.slow) for setting in SETTINGS[:-1]), SETTINGS[-1]],
)
def test_intervals_hold_in_the_kept_study(prevalence, disguised):
    """The study repeats its kept numbers: 2,000 runs, coverage from 0.93 to 0.97, more only at 0 and 1."""
    kept = json.loads(classifier_tests.RESULTS.read_text(encoding="utf-8"))
    (setting,) = [
        one
        for one in kept["settings"]
        if (one["prevalence"], tuple(one["disguised"])) == (prevalence, disguised)
    ]
    assert kept["runs"] == 2000
    again = classifier_tests.study(prevalence, disguised, kept["runs"], setting["seed"])
    assert {name: list(one) for name, one in again.items()} == setting["coverage"]
    assert len(again) > 35
    assert classifier_tests.outside_band(again) == {}


@pytest.mark.parametrize(("prevalence", "disguised"), SETTINGS)
def test_the_study_has_the_numbers_of_the_product(prevalence, disguised):
    assert classifier_tests.check_against_product(prevalence, disguised, 1, seed=3) < 1e-9
