"""Classifiers as ONNX: onnxruntime computes what the model itself does, and refuses what it would."""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.interop import to_onnx, write_onnx
from masquerade.learn.classifiers.bayes import NaiveBayes

CATEGORIES = {"kind": ["a", "b", "c"], "size": [1, 2, 5], "old": [True, False], "ill": ["yes", "no"]}


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    chance = np.random.default_rng()
    frame = pd.DataFrame({name: chance.choice(labels, 4000) for name, labels in CATEGORIES.items()})
    sick = chance.random(4000) < np.where((frame["kind"] == "a") & (frame["size"] > 1), 0.9, 0.2)
    return frame.assign(ill=np.where(sick ^ (frame["old"] & (frame["size"] == 5)), "yes", "no"))


@pytest.fixture(scope="module")
def source(people) -> mq.Tally:
    policy = mq.Policy.build(CATEGORIES, {"kind": mq.channels.symmetric(3, "1/5")})
    return mq.tally(mq.disguise(people, policy), policy)


def run(data: bytes, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and probabilities as onnxruntime computes them."""
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    given = {one.name: frame[one.name].to_numpy() for one in session.get_inputs()}
    label, probabilities = session.run(["label", "probabilities"], given)
    return label, probabilities


def tree(source, target):
    """Return a tree that asks about everything."""
    return mq.learn.decision_tree(source, target, significance=None)


@pytest.mark.parametrize("target", ["ill", "size", "old"])
@pytest.mark.parametrize("learn", [mq.learn.naive_bayes, tree], ids=["bayes", "tree"])
def test_onnxruntime_computes_what_the_model_does(source, people, learn, target):
    model = learn(source, target)
    plain = people.astype({name: object for name in people if isinstance(CATEGORIES[name][0], str)})
    label, probabilities = run(to_onnx(model), plain)
    assert np.array_equal(label, model.predict(people))
    assert np.allclose(probabilities, model.predict_proba(people), rtol=0, atol=1e-12)
    assert len(set(label)) > 1  # a model that says one thing would prove little


def test_an_unknown_label_is_an_error_of_the_runtime(source, people, tmp_path):
    for model in (mq.learn.naive_bayes(source, "ill"), tree(source, "ill")):
        write_onnx(model, tmp_path / "model.onnx")
        strange = people.head(5).astype({"kind": object}).assign(kind="unheard of")
        with pytest.raises(Exception, match=r"out of (data )?bounds|indices"):
            run((tmp_path / "model.onnx").read_bytes(), strange)


def test_rows_that_no_class_can_give_keep_the_class_probabilities():
    target, feature = mq.Variable("t", ("x", "y")), mq.Variable("f", (0, 1, 2))
    table = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    prior, none = np.array([0.25, 0.75]), np.zeros(2)
    model = NaiveBayes(target, (feature,), prior, none, (table,), (table * 0,), none == 0, 0.0, 10)
    rows = pd.DataFrame({"f": [0, 1, 2]})
    label, probabilities = run(to_onnx(model), rows)
    with pytest.warns(MasqueradeWarning, match="probability 0"):
        assert np.allclose(probabilities, model.predict_proba(rows), atol=1e-15)
    assert label.tolist() == ["y", "x", "y"]


def test_what_onnx_cannot_hold_is_said():
    with pytest.raises(InputError, match="naive Bayes and decision trees"):
        to_onnx(mq.learn.known_network(mq.Schema({"a": ["x", "y"]}), {"a": ()}, {"a": np.array([0.5, 0.5])}))
    none = np.zeros(2)
    for name, told in (("mixed", "several types"), ("label", "cannot be called")):
        table = np.full((2, 2), 0.5)
        feature = mq.Variable(name, (1, "one") if name == "mixed" else ("u", "v"))
        parts = (none + 0.5, none, (table,), (table * 0,), none == 0, 0.0, 10)
        with pytest.raises(InputError, match=told):
            to_onnx(NaiveBayes(mq.Variable("t", ("p", "q")), (feature,), *parts))


def test_without_its_package_the_extra_is_named(source, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)  # as if it were not installed
    with pytest.raises(InputError, match=r"pip install 'masquerade\[onnx\]'"):
        to_onnx(mq.learn.naive_bayes(source, "ill"))
