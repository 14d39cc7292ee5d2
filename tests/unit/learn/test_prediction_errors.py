"""Standard errors of predictions by a classifier that was fitted by the joint likelihood."""

from __future__ import annotations

import math

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import InputError

CATEGORIES = {"c": [0, 1], "x": [0, 1, 2], "y": [0, 1], "z": [0, 1]}
STRUCTURE = {"c": (), "x": ("c",), "y": ("c",), "z": ("c",)}
CHANCES = {
    "c": [0.4, 0.6],
    "x": [[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]],
    "y": [[0.8, 0.2], [0.4, 0.6]],
    "z": [[0.7, 0.3], [0.35, 0.65]],
}
ROWS = {"x": [0, 1, 2, 0], "y": [0, 1, 1, 1], "z": [0, 0, 1, 1]}


def known():
    return mq.learn.known_network(mq.Schema(CATEGORIES), STRUCTURE, CHANCES)


def source_of(seed, n=4000):
    masks = mq.Policy.build(
        CATEGORIES, {name: mq.channels.symmetric(len(own), "0.15") for name, own in CATEGORIES.items()}
    )
    return mq.tally(mq.simulate(known().sample(n, seed=seed), masks, seed=1000 + seed), masks)


def test_predictions_and_errors_are_those_of_the_network():
    source = source_of(1)
    model = mq.learn.naive_bayes(source, "c", method="likelihood")
    network = mq.learn.bayesian_network(source, STRUCTURE, method="likelihood")
    chances, errors = model.predict_proba(ROWS), model.predict_stderr(ROWS)
    for row in range(4):
        answer = network.query("c", {name: ROWS[name][row] for name in ROWS})
        np.testing.assert_allclose(chances[row], answer.probabilities, atol=1e-4)
        np.testing.assert_allclose(errors[row], answer.stderr, rtol=0.01)


def test_errors_are_those_of_repeated_samples():
    """60 runs: the ratio of a spread to its stated error leaves (0.6, 1.6) with a chance below 1e-6."""
    found, stated = [], []
    for run in range(60):
        model = mq.learn.naive_bayes(source_of(run), "c", method="likelihood")
        found.append(model.predict_proba(ROWS)[:, 0])
        stated.append(model.predict_stderr(ROWS)[:, 0])
    spread, truth = (
        np.std(found, axis=0, ddof=1),
        [known().query("c", {name: ROWS[name][row] for name in ROWS})[0] for row in range(4)],
    )
    ratio = spread / np.mean(stated, axis=0)
    assert np.all((ratio > 0.6) & (ratio < 1.6))
    assert np.all(np.abs(np.mean(found, axis=0) - truth) < 6 * spread / math.sqrt(60) + 0.01)


def test_models_from_counts_have_no_errors_of_predictions():
    source = mq.tally(known().sample(500, seed=1))
    with pytest.raises(InputError, match="method='likelihood'"):
        mq.learn.naive_bayes(source, "c").predict_stderr(ROWS)
    with pytest.raises(InputError, match="must be 'counts', 'likelihood' or 'composite'"):
        mq.learn.naive_bayes(source, "c", method="best")


def test_of_clear_records_both_methods_agree():
    source = mq.tally(known().sample(5000, seed=2), schema=mq.Schema(CATEGORIES))
    counts = mq.learn.naive_bayes(source, "c", alpha=0)
    jointly = mq.learn.naive_bayes(source, "c", method="likelihood")
    np.testing.assert_allclose(jointly.predict_proba(ROWS), counts.predict_proba(ROWS), atol=1e-4)
    for one, other in zip(counts.stderrs, jointly.stderrs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.1)
    assert mq.learn.NaiveBayes.from_dict(jointly.to_dict()).covariance is None


def test_errors_of_tables_alone_are_near_those_of_the_records():
    source = source_of(3)
    both = {
        method: mq.learn.naive_bayes(source, "c", method=method) for method in ("likelihood", "composite")
    }
    errors = {method: model.predict_stderr(ROWS) for method, model in both.items()}
    chances = {method: model.predict_proba(ROWS) for method, model in both.items()}
    assert np.all(np.abs(chances["composite"] - chances["likelihood"]) < 2 * errors["likelihood"])
    of_logits = {method: errors[method] / (chances[method] * (1 - chances[method])) for method in both}
    ratio = of_logits["composite"] / of_logits["likelihood"]
    assert np.all((ratio > 0.95) & (ratio < 1.2))


@pytest.mark.parametrize("target", ["c", "x"])
def test_errors_of_logistic_predictions_are_those_of_repeated_samples(target):
    """40 runs: the ratio of a spread to its stated error leaves (0.5, 1.8) with a chance below 1e-6."""
    rows = {name: codes for name, codes in {**ROWS, "c": [0, 1, 0, 1]}.items() if name != target}
    found, stated = [], []
    for run in range(40):
        model = mq.learn.linear_classifier(source_of(run), target, loss="logistic", counts="unbiased")
        found.append(model.predict_proba(rows))
        stated.append(model.predict_stderr(rows))
    ratio = np.std(found, axis=0, ddof=1) / np.mean(stated, axis=0)
    assert np.all((ratio > 0.5) & (ratio < 1.8))
    np.testing.assert_allclose(np.diag(model.covariance), model.stderr.ravel() ** 2, rtol=1e-9)


def test_linear_models_without_probabilities_or_covariance_say_why_there_are_no_errors():
    source = source_of(1)
    for loss in ("pocket", "squares"):
        with pytest.raises(InputError, match="Only loss='logistic'"):
            mq.learn.linear_classifier(source, "c", loss=loss).predict_stderr(ROWS)
    model = mq.learn.linear_classifier(source, "c", loss="logistic")
    loaded = mq.learn.LinearClassifier.from_dict(model.to_dict())
    np.testing.assert_allclose(loaded.predict_proba(ROWS), model.predict_proba(ROWS))
    with pytest.raises(InputError, match="loaded from a file"):
        loaded.predict_stderr(ROWS)


def test_every_classifier_states_errors_or_has_no_probabilities():
    source = source_of(2)
    tree = mq.learn.decision_tree(source, "c")
    assert np.all(tree.predict_stderr(ROWS) > 0)
    with_errors = (mq.learn.NaiveBayes, mq.learn.DecisionTree, mq.learn.LinearClassifier)
    assert all(hasattr(kind, "predict_stderr") for kind in with_errors)
    assert not hasattr(mq.learn.LabelTree, "predict_proba")
