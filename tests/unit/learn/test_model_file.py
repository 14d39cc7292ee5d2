"""Model files: a round trip, and everything that is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import FileError, InputError, MasqueradeWarning
from masquerade.learn import model_file
from masquerade.learn.classifiers.bayes import NaiveBayes, naive_bayes
from masquerade.sources.records import Records


def model():
    """Return a model with an empty class, whose errors are infinite, and labels of every type."""
    schema = mq.Schema({"c": [True, False, "é"], "x": [1, "1", 3]})
    codes = {"c": np.array([0, 1, 1, 0], np.uint8), "x": np.array([0, 1, 2, 0], np.uint8)}
    with pytest.warns(MasqueradeWarning, match="é"):
        return naive_bayes(Records(codes, mq.Policy.clear(schema)), "c")


def test_a_round_trip_keeps_every_bit(tmp_path):
    kept, path = model(), tmp_path / "model.json"
    kept.save(path)
    again = model_file.load(path)
    assert isinstance(again, NaiveBayes)
    assert (again.target, again.features) == (kept.target, kept.features)
    for name in ("prior", "prior_stderr", "reliable"):
        assert np.array_equal(getattr(again, name), getattr(kept, name))
    for name in ("probabilities", "stderrs"):
        assert all(map(np.array_equal, getattr(again, name), getattr(kept, name)))
    assert np.isinf(again.stderrs[0]).any()
    assert (again.alpha, again.n) == (kept.alpha, kept.n)


def test_the_file_is_plain_json_that_begins_with_version_and_kind(tmp_path):
    path = tmp_path / "model.json"
    model_file.save(model(), path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith('{\n  "masquerade_model": 1,\n  "kind": "naive_bayes",')
    assert "é" in text
    assert "Infinity" not in text  # which JSON does not have
    assert list(tmp_path.iterdir()) == [path]


def changed(**changes):
    values = model().to_dict()
    values.update(changes)
    return {key: value for key, value in values.items() if value is not ...}


def changed_feature(**changes):
    feature = {**model().to_dict()["features"][0], **changes}
    return changed(features=[{key: value for key, value in feature.items() if value is not ...}])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "not a model"),
        ("text", "not a model"),
        ({"kind": "naive_bayes"}, "not a model"),
        (lambda: changed(masquerade_model=2), "model format 2 is not known; this version reads 1"),
        (lambda: changed(masquerade_model=True), "model format True is not known"),
        (
            lambda: changed(kind="naive_byes"),
            "unknown kind of model 'naive_byes'. Did you mean 'naive_bayes'",
        ),
        (lambda: changed(kind=["x"]), "unknown kind of model"),
        (lambda: changed(alpha=...), "lacks 'alpha'"),
        (lambda: changed(n="many"), "'n' must be of type int"),
        (lambda: changed(target=3), "'target' must be of type dict"),
        (lambda: changed(features=[7]), "a variable must be an object"),
        (lambda: changed_feature(name=...), "lacks 'name'"),
        (lambda: changed_feature(name="c"), "lists a variable twice"),
        (lambda: changed_feature(categories=[1, 1]), "lists a category twice"),
        (lambda: changed_feature(categories=[1, 2]), r"'x.probabilities' must be 3×2 numbers. Got 3×3"),
        (lambda: changed_feature(probabilities=[[1, 2], [3]]), "lists of equal length"),
        (lambda: changed_feature(probabilities=[["1", 0, 0]] * 3), "'x.probabilities' must be numbers"),
        (lambda: changed_feature(probabilities=[[True, 0, 0]] * 3), "'x.probabilities' must be numbers"),
        (lambda: changed_feature(probabilities=[[0.5, 0, 0]] * 3), "rows that sum to 1"),
        (lambda: changed_feature(probabilities=[[1.5, -0.5, 0]] * 3), "rows that sum to 1"),
        (lambda: changed_feature(stderr=[[-1, 0, 0]] * 3), "errors of 0 or more"),
        (lambda: changed(target={**model().to_dict()["target"], "reliable": [1, 0, 1]}), "true or false"),
    ],
)
def test_wrong_contents_are_refused_with_the_file_named(tmp_path, values, message):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(values() if callable(values) else values), encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        model_file.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


MODELS = Path(__file__).parents[2] / "compatibility" / "v0_1" / "models"
CLUSTERS = {
    **model_file.header("k_means"), "names": ["a"], "centres": [[1], [2]], "centre_stderr": None,
    "shares": [0.5, 0.5], "share_stderr": [0, 0], "within": None, "n": 9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("naive_bayes", {"alpha": -1}, "'alpha' must not be negative"),
        ("logistic", {"ridge": -1}, "'ridge' must not be negative"),
        ("logistic", {"negative": -1}, "'negative' must not be negative"),
        ("logistic", {"accuracy": 7.5}, "'accuracy' must be between 0 and 1"),
        ("logistic", {"accuracy": -0.1}, "'accuracy' must be between 0 and 1"),
        ("logistic", {"coefficients": "inf"}, "'coefficients' must contain finite numbers"),
        ("rules", {"min_confidence": 7.5}, "'min_confidence' must be between 0 and 1"),
        ("rules", {"confidence": "inf"}, "'confidence' must contain finite numbers"),
        ("rules", {"p_value": 7.5}, "'p_value' must be between 0 and 1"),
        ("itemsets", {"min_support": -0.5}, "'min_support' must be between 0 and 1"),
        ("k_means", {"centres": "-inf"}, "'centres' must contain finite numbers"),
        ("k_means", {"shares": "inf"}, "'shares' must be between 0 and 1"),
        ("k_means", {"shares": 7.5}, "'shares' must be between 0 and 1"),
        ("k_means", {"share_stderr": -1}, "'share_stderr' must not be negative"),
    ],
)
def test_impossible_numbers_are_refused(name, change, message):
    values = CLUSTERS if name == "k_means" else json.loads((MODELS / f"{name}.json").read_text("utf-8"))
    model_file.model_of(values)
    (field, number), *_ = change.items()
    known = values.get(field, values.get("confidence"))  # rules of v0.1 have no p-values
    with pytest.raises(InputError, match=message):
        model_file.model_of({**values, field: fill(known, number)})


def fill(values, number):
    """Return nested lists of the same shape with the number everywhere."""
    return [fill(value, number) for value in values] if isinstance(values, list) else number


def test_the_share_of_unbiased_counts_may_lie_outside_its_range():
    values = json.loads((MODELS / "logistic.json").read_text("utf-8"))
    assert model_file.model_of({**values, "counts": "unbiased", "accuracy": 1.02}).accuracy == 1.02


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"masquerade_model": 1,\n "kind"', "line 2: not valid JSON"),
        (b"", "line 1: not valid JSON"),
        (b"\xff\xfe\x00", "is not a text file in UTF-8"),
        (b"[" * 100_000, "nested deeper than 100 levels"),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, message):
    path = tmp_path / "damaged.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=message):
        model_file.load(path)


def test_not_a_number_is_refused(tmp_path):
    path = tmp_path / "nan.json"
    values = changed_feature(probabilities=[[float("nan"), 0, 0]] * 3)
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(InputError, match="NaN is not a valid JSON number"):
        model_file.load(path)
    with pytest.raises(InputError, match="undefined numbers"):
        model_file.model_of(values)
    with pytest.raises(InputError, match="undefined numbers"):
        model_file.number_values(np.array([np.nan]))


def test_files_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(FileError, match="cannot be read"):
        model_file.load(tmp_path / "absent.json")
    with pytest.raises(FileError, match="cannot be written"):
        model_file.save(model(), tmp_path / "no such folder" / "model.json")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FileError, match="cannot be written"):
        model_file.save(model(), folder)  # the last step fails: what was written so far is taken away
    assert list(tmp_path.iterdir()) == [folder]


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.json"
    model_file.save(model(), path)
    before = path.read_bytes()

    class Broken:
        def to_dict(self):
            return {**model_file.header("naive_bayes"), "n": float("nan")}

    with pytest.raises(ValueError, match="Out of range"):
        model_file.save(Broken(), path)
    assert path.read_bytes() == before


def test_from_dict_refuses_another_kind():
    with pytest.raises(InputError, match="of kind 'decision_tree', not 'naive_bayes'"):
        NaiveBayes.from_dict(model_file.header("decision_tree"))
