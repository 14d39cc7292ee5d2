"""Naive Bayes: scikit-learn's on clear records, right with right errors on disguised ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.naive_bayes import CategoricalNB
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning, SchemaError, UnknownValue
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.classifiers.bayes import NaiveBayes, naive_bayes
from masquerade.sources.records import Records

SCHEMA = mq.Schema({"c": ["u", "v", "w"], "x": [0, 1], "y": ["a", "b", "d", "e"], "z": [True, False]})
PRIOR = np.array([0.5, 0.3, 0.2])
GIVEN = {
    "x": np.array([[0.8, 0.2], [0.4, 0.6], [0.5, 0.5]]),
    "y": np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]]),
    "z": np.array([[0.7, 0.3], [0.6, 0.4], [0.2, 0.8]]),
}
POLICY = mq.Policy.build(
    SCHEMA,
    {
        "c": mq.channels.symmetric(3, "0.2"),
        "x": mq.channels.binary("0.1", "0.25"),
        ("y", "z"): mq.channels.symmetric(8, "0.3"),
    },
)


def draw(n, generator):
    """Return clear codes of a naive Bayes population."""
    c = generator.choice(3, size=n, p=PRIOR)
    codes = {"c": c.astype(np.uint8)}
    for name, table in GIVEN.items():
        steps = np.cumsum(table, axis=1)[c, :-1]
        codes[name] = (generator.random(n)[:, None] >= steps).sum(axis=1).astype(np.uint8)
    return codes


def clear_source(codes):
    return Records(codes, POLICY.without_channels())


def labels(codes):
    return {name: np.array(SCHEMA[name].categories)[column] for name, column in codes.items()}


@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_clear_records_give_what_scikit_learn_gives(alpha):
    codes = draw(700, np.random.default_rng(1))
    matrix = np.column_stack([codes[name] for name in GIVEN])
    peer = CategoricalNB(alpha=alpha, min_categories=[2, 4, 2]).fit(matrix, codes["c"])
    model = naive_bayes(clear_source(codes), "c", alpha=alpha)
    np.testing.assert_allclose(np.log(model.prior), peer.class_log_prior_, atol=1e-9)
    for table, theirs in zip(model.probabilities, peer.feature_log_prob_, strict=True):
        np.testing.assert_allclose(np.log(table), theirs, atol=1e-9)
    frame = pd.DataFrame(labels(codes))
    np.testing.assert_allclose(model.predict_log_proba(frame), peer.predict_log_proba(matrix), atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(pl.DataFrame(labels(codes))), peer.predict_proba(matrix))
    assert (model.predict(frame) == np.array(["u", "v", "w"])[peer.predict(matrix)]).all()


def test_clear_standard_errors_are_the_binomial_ones():
    codes = draw(500, np.random.default_rng(2))
    model = naive_bayes(clear_source(codes), "c", alpha=0)
    np.testing.assert_allclose(model.prior_stderr, np.sqrt(model.prior * (1 - model.prior) / 500))
    counts = np.bincount(codes["c"])
    for table, errors in zip(model.probabilities, model.stderrs, strict=True):
        np.testing.assert_allclose(errors, np.sqrt(table * (1 - table) / counts[:, None]))
    assert model.reliable.all()


def test_disguised_records_give_unbiased_probabilities_with_right_errors():
    """Symmetric, asymmetric binary and joint channels; no cell is near zero, so that nothing is clipped."""
    generator = np.random.default_rng(3)
    estimates, variances = [], []
    for _ in range(300):
        source = Records(simulate_codes(draw(20_000, generator), POLICY, generator), POLICY)
        model = naive_bayes(source, "c", alpha=0)
        assert min(table.min() for table in model.probabilities) > 0
        parts = [model.prior, *(table.ravel() for table in model.probabilities)]
        errors = [model.prior_stderr, *(table.ravel() for table in model.stderrs)]
        estimates.append(np.concatenate(parts))
        variances.append(np.concatenate(errors) ** 2)
    # the ratio's own bias, of order 1/N_c, is far below the Monte-Carlo error over 300 runs
    assert_unbiased(estimates, np.concatenate([PRIOR, *(table.ravel() for table in GIVEN.values())]))
    assert_variance(estimates, variances)


class Watched:
    """A source that counts how often it is asked."""

    def __init__(self, source):
        self.source, self.schema, self.guarantee, self.batches = source, source.schema, source.guarantee, []

    def check(self, queries):
        return self.source.check(queries)

    def answer(self, queries):
        self.batches.append(list(queries))
        return self.source.answer(queries)


def test_everything_is_asked_in_one_batch():
    source = Watched(clear_source(draw(50, np.random.default_rng(4))))
    naive_bayes(source, "c", features=["z", "x"])
    assert source.batches == [[mq.Query(by="c"), mq.Query(by=("c", "z")), mq.Query(by=("c", "x"))]]


def test_pooled_and_remembered_sources_give_the_same_model():
    codes = simulate_codes(draw(3000, np.random.default_rng(5)), POLICY, 6)
    halves = [{name: column[i::2].copy() for name, column in codes.items()} for i in range(2)]
    whole = naive_bayes(Records(codes, POLICY), "c")
    for source in (
        mq.Cached(Records(codes, POLICY)),
        mq.Merged([Records(half, POLICY) for half in halves]),
    ):
        model = naive_bayes(source, "c")
        for table, wanted in zip(model.probabilities, whole.probabilities, strict=True):
            np.testing.assert_allclose(table, wanted)


def test_negative_counts_are_clipped_within_their_class():
    """Reports are chosen so that N̂ = G ᵀÑ is known: binary p = 1/4 has G = [[1.5, −.5], [−.5, 1.5]]."""
    policy = mq.Policy.build({"c": [0, 1], "x": [0, 1]}, {"x": mq.channels.binary("0.25", "0.25")})
    c = np.repeat([0, 1], [40, 60]).astype(np.uint8)
    x = np.concatenate([np.repeat([0, 1], [38, 2]), np.repeat([0, 1], [30, 30])]).astype(np.uint8)
    # class 0: 38·1.5 − 2·.5 = 56 and 2·1.5 − 38·.5 = −16 → 40 and 0; class 1: 30 and 30
    model = naive_bayes(Records({"c": c, "x": x}, policy), "c", alpha=1)
    np.testing.assert_allclose(model.prior, [0.4, 0.6])
    np.testing.assert_allclose(model.probabilities[0], [[41 / 42, 1 / 42], [0.5, 0.5]])


def test_a_class_that_nothing_speaks_for_is_warned_about_and_never_predicted():
    policy = mq.Policy.build({"c": ["u", "v", "w"], "x": [0, 1]}, {"c": mq.channels.symmetric(3, "0.5")})
    # all reports u: N̂ = (> n, < 0, < 0)
    source = Records({"c": np.zeros(9, np.uint8), "x": np.array([0, 1, 1] * 3, np.uint8)}, policy)
    with pytest.warns(MasqueradeWarning, match="c = 'v', 'w' is zero or negative"):
        model = naive_bayes(source, "c")
    assert model.prior.tolist() == [1, 0, 0]
    assert model.probabilities[0][1:].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert np.isinf(model.stderrs[0][1:]).all()
    assert np.isfinite(model.stderrs[0][0]).all()
    assert not model.reliable[1:].any()
    np.testing.assert_allclose(model.predict_proba({"x": [0, 1]}), [[1, 0, 0], [1, 0, 0]])
    assert model.predict({"x": [0]}).tolist() == ["u"]
    assert "Too rare" in model.summary()
    clear = Records({"c": np.array([0, 1], np.uint8), "x": np.zeros(2, np.uint8)}, policy.without_channels())
    with pytest.warns(MasqueradeWarning, match="'w'"):
        assert naive_bayes(clear, "c", alpha=0).prior.tolist() == [0.5, 0.5, 0]


def test_a_row_that_no_class_can_give_keeps_the_class_probabilities():
    schema = mq.Schema({"c": [0, 1], "x": [0, 1, 2], "y": [0, 1]})
    codes = {"c": [0, 0, 1], "x": [0, 0, 1], "y": [0, 0, 1]}
    source = Records({k: np.array(v, np.uint8) for k, v in codes.items()}, mq.Policy.clear(schema))
    model = naive_bayes(source, "c", alpha=0)
    with pytest.warns(MasqueradeWarning, match="1 rows have probability 0 under every class"):
        found = model.predict_proba({"x": [0, 2], "y": [0, 0]})
    np.testing.assert_allclose(found, [[1, 0], [2 / 3, 1 / 3]])
    with pytest.warns(MasqueradeWarning, match="probability 0"):
        assert model.predict({"x": [0, 2], "y": [0, 0]}).tolist() == [0, 0]


def test_equal_classes_go_to_the_first():
    schema = mq.Schema({"c": ["second", "first"], "x": [0, 1]})
    codes = {"c": np.array([0, 1], np.uint8), "x": np.zeros(2, np.uint8)}
    model = naive_bayes(Records(codes, mq.Policy.clear(schema)), "c")
    assert model.predict({"x": [0, 1]}).tolist() == ["second", "second"]


def test_bad_input_is_refused_by_name():
    source = clear_source(draw(20, np.random.default_rng(7)))
    with pytest.raises(SchemaError, match="no variable 'income'"):
        naive_bayes(source, "income")
    with pytest.raises(SchemaError, match="no variable 'q'"):
        naive_bayes(source, "c", features=["q"])
    with pytest.raises(InputError, match="target 'c' cannot be one of the features"):
        naive_bayes(source, "c", features=["x", "c"])
    with pytest.raises(InputError, match="'x' is named twice"):
        naive_bayes(source, "c", features=["x", "x"])
    with pytest.raises(InputError, match="at least one feature"):
        naive_bayes(source, "c", features=[])
    with pytest.raises(InputError, match="list of names"):
        naive_bayes(source, "c", features="x")
    for alpha in (-1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="'alpha'"):
            naive_bayes(source, "c", alpha=alpha)
    one = mq.tally(pd.DataFrame({"c": ["u", "u"], "x": [0, 1]}))
    with pytest.raises(InputError, match="only one class"):
        naive_bayes(one, "c")
    nobody = clear_source({name: np.zeros(0, np.uint8) for name in SCHEMA})
    with pytest.raises(InputError, match="no class of 'c' has a positive count"):
        naive_bayes(nobody, "c")


def test_rows_must_have_the_features_and_their_labels():
    model = naive_bayes(clear_source(draw(50, np.random.default_rng(8))), "c")
    with pytest.raises(SchemaError, match="no column 'y'"):
        model.predict({"x": [0], "z": [True]})
    with pytest.raises(UnknownValue, match="column 'y', row 2"):
        model.predict({"x": [0, 0], "y": ["a", "no such"], "z": [True, True]})
    assert model.predict({"x": [], "y": [], "z": []}).shape == (0,)
    assert model.predict_proba({"x": [], "y": [], "z": []}).shape == (0, 3)


def test_models_are_shown_with_their_errors():
    model = naive_bayes(clear_source(draw(400, np.random.default_rng(9))), "c")
    text = model.summary()
    assert "Naive Bayes of c: 3 features, alpha = 1, n = 400" in text
    assert f"{model.probabilities[1][2, 3]:.4f} ± {model.stderrs[1][2, 3]:.4f}" in text
    frame = model.to_frame()
    assert len(frame) == 3 + 3 * (2 + 4 + 2)
    row = frame[(frame["variable"] == "y") & (frame["category"] == "d") & (frame["class"] == "v")]
    assert row["probability"].item() == model.probabilities[1][1, 2]


def test_a_model_survives_plain_values():
    model = naive_bayes(clear_source(draw(60, np.random.default_rng(10))), "c")
    again = NaiveBayes.from_dict(model.to_dict())
    assert again.to_dict() == model.to_dict()
    rows = {"x": [0, 1], "y": ["a", "e"], "z": [True, False]}
    assert (again.predict_proba(rows) == model.predict_proba(rows)).all()
