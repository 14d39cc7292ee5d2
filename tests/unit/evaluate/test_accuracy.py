"""Accuracy on test records: the plain share on clear ones, unbiased on disguised ones."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning, SchemaError
from masquerade.disguising.seeded import simulate_codes
from masquerade.evaluate import Accuracy, accuracy
from masquerade.learn.bayes import naive_bayes
from masquerade.sources.records import Records

SCHEMA = mq.Schema({"c": ["u", "v"], "x": [0, 1, 2], "y": ["a", "b"], "z": [True, False]})
JOINT = np.random.default_rng(0).dirichlet(np.full(24, 0.4)).reshape(2, 3, 2, 2)
POLICIES = {
    "ternary": mq.Policy.build(
        SCHEMA, {"c": mq.channels.binary("0.1", "0.2"), "x": mq.channels.ternary("0.15", "0.1")}
    ),
    "features together": mq.Policy.build(SCHEMA, {("x", "z"): mq.channels.symmetric(6, "0.3")}),
    "target and feature together": mq.Policy.build(
        SCHEMA,
        {
            ("y", "c"): mq.channels.matrix(
                [
                    ["0.7", "0.1", "0.1", "0.1"],
                    ["0.05", "0.8", "0.05", "0.1"],
                    ["0.2", "0.1", "0.6", "0.1"],
                    ["0.1", "0.2", "0", "0.7"],
                ]
            ),
            "z": mq.channels.kuk("0.8", "0.3", 3),
        },
    ),
}


def draw(n, generator):
    cells = generator.choice(JOINT.size, size=n, p=JOINT.ravel())
    return {
        name: codes.astype(np.uint8)
        for name, codes in zip(SCHEMA, np.unravel_index(cells, JOINT.shape), strict=True)
    }


def clear(codes):
    return Records(codes, mq.Policy.clear(SCHEMA))


def trained():
    return naive_bayes(clear(draw(2000, np.random.default_rng(1))), "c")


def labels(codes):
    return pd.DataFrame({name: np.array(SCHEMA[name].categories)[column] for name, column in codes.items()})


def population_accuracy(model):
    """Return the chance that a record of the population is predicted right, by enumeration."""
    right = 0.0
    for cell in product(*(range(size) for size in JOINT.shape)):
        row = {name: [SCHEMA[name].categories[code]] for name, code in zip(SCHEMA, cell, strict=True)}
        right += JOINT[cell] * (model.predict(row)[0] == row["c"][0])
    return right


def test_on_clear_records_it_is_the_plain_share_with_the_binomial_error():
    model, codes = trained(), draw(731, np.random.default_rng(2))
    found = accuracy(model, clear(codes))
    share = np.mean(model.predict(labels(codes)) == labels(codes)["c"].to_numpy())
    assert found.value == share
    assert found.stderr == pytest.approx(np.sqrt(share * (1 - share) / 731), rel=1e-12)
    assert (found.n, found.warning) == (731, None)
    assert 0 < share < 1


@pytest.mark.parametrize("name", list(POLICIES))
def test_on_disguised_records_it_is_unbiased_with_the_right_error(name):
    model, policy, generator = trained(), POLICIES[name], np.random.default_rng(3)
    runs = [
        accuracy(model, Records(simulate_codes(draw(5000, generator), policy, generator), policy))
        for _ in range(400)
    ]
    values = np.array([run.value for run in runs])
    assert_unbiased(values, population_accuracy(model))
    assert_variance(values, np.array([run.stderr**2 for run in runs]))


def test_what_disguised_records_say_when_read_as_clear_ones_is_wrong():
    """The estimate matters: read as clear, the same reports are off by more than chance explains."""
    model, policy = trained(), POLICIES["ternary"]
    reports = simulate_codes(draw(50_000, np.random.default_rng(4)), policy, 5)
    naive = accuracy(model, clear(reports))
    assert abs(naive.value - population_accuracy(model)) > 10 * naive.stderr


def test_sources_that_only_count_give_the_same():
    model, policy = trained(), POLICIES["features together"]
    reports = simulate_codes(draw(3000, np.random.default_rng(6)), policy, 7)
    whole = accuracy(model, Records(reports, policy))
    cached = accuracy(model, mq.Cached(Records(reports, policy)))
    assert (cached.value, cached.stderr) == pytest.approx((whole.value, whole.stderr), rel=1e-9)
    halves = [
        Records({name: column[i::2].copy() for name, column in reports.items()}, policy) for i in range(2)
    ]
    merged, parts = accuracy(model, mq.Merged(halves)), [accuracy(model, half) for half in halves]
    assert merged.value == pytest.approx(sum(part.value for part in parts) / 2, rel=1e-9)
    assert merged.value == pytest.approx(whole.value, rel=1e-9)
    assert merged.n == 3000


def test_a_source_may_bring_the_ability_itself():
    model, source = trained(), clear(draw(200, np.random.default_rng(8)))

    class Elsewhere:
        schema, guarantee, check, answer = source.schema, source.guarantee, source.check, source.answer

        def expect(self, f, over):
            assert over == ("x", "y", "z", "c")
            return f(np.zeros((1, 4), dtype=np.intp))[0], 0.01

    first = model.predict({"x": [0], "y": ["a"], "z": [True]})[0] == "u"
    assert accuracy(model, Elsewhere()) == Accuracy(float(first), 0.01, 200)


def test_a_useless_figure_is_called_so():
    policy = mq.Policy.build(
        SCHEMA, {name: mq.channels.symmetric(len(SCHEMA[name]), "0.4") for name in SCHEMA}
    )
    reports = simulate_codes(draw(300, np.random.default_rng(9)), policy, 10)
    with pytest.warns(MasqueradeWarning, match="useless: its standard error is"):
        found = accuracy(trained(), Records(reports, policy))
    assert found.stderr > 0.05
    assert found.warning in found.summary()
    low, high = found.conf_int(0.9)
    assert high - low == pytest.approx(2 * 1.6448536 * found.stderr, rel=1e-6)
    with pytest.raises(InputError, match="confidence level"):
        found.conf_int(95)


@dataclass
class Guess:
    """A classifier without `predict_codes`: the class is u where x is 1."""

    target = SCHEMA["c"]
    features = (SCHEMA["x"],)

    def predict(self, frame):
        return np.where(np.asarray(frame["x"]) == 1, "u", "v")


def test_any_model_with_target_features_and_predict_can_be_tested():
    codes = draw(900, np.random.default_rng(11))
    wanted = np.mean((codes["x"] == 1) == (codes["c"] == 0))
    assert accuracy(Guess(), clear(codes)).value == wanted


def test_the_target_may_have_another_name_in_the_source():
    codes = draw(400, np.random.default_rng(12))
    schema = mq.Schema({"class": ["u", "v"], **{name: SCHEMA[name].categories for name in "xyz"}})
    renamed = Records({"class": codes["c"], **{name: codes[name] for name in "xyz"}}, mq.Policy.clear(schema))
    assert accuracy(trained(), renamed, target="class") == accuracy(trained(), clear(codes))
    with pytest.raises(SchemaError, match="no variable 'c'"):
        accuracy(trained(), renamed)


def test_sources_that_do_not_fit_the_model_are_refused():
    codes = draw(20, np.random.default_rng(13))
    other = mq.Schema({**{name: SCHEMA[name].categories for name in SCHEMA}, "y": ["b", "a"]})
    with pytest.raises(InputError, match="categories of 'y' are not the same"):
        accuracy(trained(), Records(codes, mq.Policy.clear(other)))
    with pytest.raises(InputError, match="cannot be one of the features"):
        accuracy(trained(), clear(codes), target="y")
    with pytest.raises(InputError, match="no records"):
        accuracy(trained(), clear({name: column[:0] for name, column in codes.items()}))
    with pytest.raises(InputError, match="no records"):
        accuracy(trained(), mq.Cached(clear({name: column[:0] for name, column in codes.items()})))


def test_a_table_that_would_be_too_large_is_refused():
    names = [f"v{i}" for i in range(17)]
    source = Records(
        {name: np.arange(2, dtype=np.uint8) for name in names},
        mq.Policy.clear(mq.Schema({name: [0, 1] for name in names})),
    )
    model = naive_bayes(source, "v0")
    assert accuracy(model, source).value == 1
    with pytest.raises(InputError, match="131,072 cells"):
        accuracy(model, mq.Cached(source))
