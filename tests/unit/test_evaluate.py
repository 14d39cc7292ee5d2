"""Testing on disguised records, and predictions for disguised rows: unbiased, Bayes' rule, or refused."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, binom
from tests.conformance.cases import BEYOND, SPECS, case
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning, SchemaError, UnknownValue
from masquerade.disguising.seeded import simulate_codes
from masquerade.evaluate import Accuracy, accuracy, disguised_view
from masquerade.learn.classifiers.bayes import naive_bayes
from masquerade.learn.classifiers.prediction_rows import row_codes
from masquerade.sources.expectation import _weighted_mean
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


def test_the_interval_is_wilsons_on_clear_records_and_exact_where_few_are_wrong():
    right = np.zeros(100)
    right[:60] = 1
    found = _weighted_mean(right, None)
    z = NormalDist().inv_cdf(0.975)
    for end in Accuracy(found.value, found.stderr, 100, None, found.spread, found.total).conf_int():
        assert (0.6 - end) ** 2 == pytest.approx(z * z * end * (1 - end) / 100)
    right[:99] = 1
    found = _weighted_mean(right, None)
    lower, upper = Accuracy(found.value, found.stderr, 100, None, found.spread, found.total).conf_int()
    assert (lower, upper) == pytest.approx((beta.ppf(0.025, 99, 2), beta.ppf(0.975, 100, 1)), rel=1e-6)


def test_intervals_of_high_accuracies_cover():
    """All outcomes of 100 clear records with their chances; the normal interval covers 0.63 at 0.99."""
    wrong = np.arange(101)
    ends = []
    for k in wrong:
        found = _weighted_mean(np.repeat([0.0, 1.0], [k, 100 - k]), None)
        ends.append(Accuracy(found.value, found.stderr, 100, None, found.spread, found.total).conf_int())
    lower, upper = np.array(ends).T
    for truth in (0.9, 0.95, 0.97, 0.99, 0.995):
        held = (lower <= truth) & (truth <= upper)
        assert binom.pmf(wrong, 100, 1 - truth)[held].sum() >= 0.93


def test_nothing_wrong_is_no_certainty():
    model, codes = trained(), draw(50, np.random.default_rng(5))
    predicted = row_codes({"c": model.predict(labels(codes))}, SCHEMA, ["c"])["c"].astype(np.uint8)
    found = accuracy(model, clear({**codes, "c": predicted}))
    assert (found.value, found.stderr) == (1.0, pytest.approx(1 / 50))
    assert found.conf_int()[0] == pytest.approx(0.025 ** (1 / 50))


def test_the_error_of_a_weighted_share_is_that_of_its_resamples():
    generator = np.random.default_rng(8)
    n = 400
    weights = generator.choice([1.0, 20.0], n)
    right = generator.random(n) < 0.9
    found = _weighted_mean(right.astype(float), weights)
    again = []
    for _ in range(3000):
        rows = generator.integers(0, n, n)
        again.append(float(weights[rows] @ right[rows] / weights[rows].sum()))
    assert found.stderr == pytest.approx(np.std(again), rel=0.1)


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
    assert high - low == pytest.approx(2 * 1.6448536 * found.stderr, rel=0.01)
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


def brute_force(model, policy, row):
    """Return P(class | reported features) from the exact rows of every channel, truth by truth.

    Variables that are neither target nor feature get some distribution, which must not matter.
    """
    names = [feature.name for feature in model.features]
    tables = dict(zip(names, model.probabilities, strict=True))
    stratum = None if policy.stratum_variable is None else row[policy.stratum_variable]
    result = np.zeros(len(model.target))
    for cell in product(*(range(size) for size in policy.schema.shape(policy.schema))):
        truth = dict(zip(policy.schema, cell, strict=True))
        c = truth[model.target.name]
        chance = model.prior[c]
        for name, code in truth.items():
            if name in tables:
                chance *= tables[name][c, code]
            elif name != model.target.name:
                chance *= (code + 1) / sum(range(1, len(policy.schema[name]) + 1))
        for group in policy.groups_of(stratum):
            own = np.ravel_multi_index([truth[name] for name in group.names], group.sizes)
            sums = 0.0
            for report, p in group.channel.row(int(own)).items():
                codes = np.unravel_index(report, group.report_sizes)
                shown = {
                    name: policy.observed[name].categories[code]
                    for name, code in zip(group.reports, codes, strict=True)
                }
                own_columns = group.reports != group.names and tables.keys() & set(group.names)
                if all(shown[name] == row[name] for name in group.reports if own_columns or name in tables):
                    sums += float(p)
            chance *= sums
        result[c] += chance
    return result / result.sum()


CHOICES = [
    ("independent", "A", ["B", "C", "D"]),
    ("independent", "D", ["A", "B"]),
    ("joint", "B", ["D", "A", "C"]),  # features disguised together
    ("joint", "B", ["A", "C"]),  # with an outsider, through the marginal channel
    ("joint", "A", ["D", "B"]),  # the target together with a feature
    ("not lumpable", "C", ["A", "B"]),
    ("not lumpable", "A", ["C", "B"]),  # and no marginal channel: the report depends on the class
    ("not lumpable", "D", ["A", "C", "B"]),
    ("more reports than truths", "B", ["A", "C", "D"]),
    ("strata", "D", ["A", "B", "C"]),
    ("strata", "D", ["B", "A"]),  # the stratum is no feature, but a column
]


@pytest.mark.parametrize(("name", "target", "features"), CHOICES)
def test_predictions_are_bayes_rule_over_all_truths(name, target, features):
    policy = case(name).policy
    model = naive_bayes(mq.tally(case(name).disguised, policy), target, features)
    rows = case(name).disguised.drop_duplicates().head(40).reset_index(drop=True)
    view = disguised_view(model, policy)
    found = view.predict_proba(rows)
    wanted = np.array([brute_force(model, policy, row) for row in rows.to_dict("records")])
    np.testing.assert_allclose(found, wanted, atol=1e-10)
    assert (view.predict(rows) == np.array(model.target.categories)[wanted.argmax(axis=1)]).all()
    np.testing.assert_allclose(np.exp(view.predict_log_proba(rows)).sum(axis=1), 1)
    assert [variable.name for variable in view.features] == features


def test_undisguised_rows_are_predicted_as_by_the_model_itself():
    chosen = case("independent")
    model = naive_bayes(mq.tally(chosen.disguised, chosen.policy), "D")
    view = disguised_view(model, chosen.policy.without_channels())
    np.testing.assert_allclose(view.predict_proba(chosen.clear), model.predict_proba(chosen.clear))


def test_seeing_through_the_disguise_beats_taking_it_at_face_value():
    """Asymmetric reports: "yes" is mostly a lie, and the view knows."""
    policy = mq.Policy.build({"c": ["u", "v"], "x": ["yes", "no"]}, {"x": mq.channels.binary("0.05", "0.6")})
    frame = pd.DataFrame(
        {"c": ["u"] * 60 + ["v"] * 40, "x": ["no"] * 55 + ["yes"] * 5 + ["yes"] * 35 + ["no"] * 5}
    )
    model = naive_bayes(mq.tally(frame, schema=policy), "c")
    assert model.predict({"x": ["yes"]}).tolist() == ["v"]
    # without alpha: P(u)·(5/60·.95 + 55/60·.6) = .3775 > P(v)·(35/40·.95 + 5/40·.6) = .3625
    assert disguised_view(model, policy).predict({"x": ["yes"]}).tolist() == ["u"]


def test_a_stranger_in_the_group_is_refused():
    policy = case("not lumpable").policy
    model = naive_bayes(mq.tally(case("not lumpable").disguised, policy), "B", ["C", "D"])
    with pytest.raises(InputError, match="the report of C depends on A"):
        disguised_view(model, policy)


def test_policies_that_do_not_fit_are_refused():
    chosen = case("strata")
    model = naive_bayes(mq.tally(chosen.disguised, chosen.policy), "C", ["A", "B"])
    with pytest.raises(InputError, match="has strata by 'C'"):
        disguised_view(model, chosen.policy)
    with pytest.raises(SchemaError, match="no variable 'A'"):
        disguised_view(model, mq.Policy.build({"B": [1, 2, 3], "C": [True, False]}, {}))
    other = mq.Policy.build({"A": ["no", "yes"], "B": [1, 2, 3], "C": [True, False]}, {})
    with pytest.raises(InputError, match="categories of 'A' are not the same"):
        disguised_view(model, other)


def test_rows_have_the_labels_of_reports():
    chosen = case("more reports than truths")
    model = naive_bayes(mq.tally(chosen.disguised, chosen.policy), "B", ["A"])
    view = disguised_view(model, chosen.policy)
    reports = list(chosen.policy.observed["A"].categories)
    assert len(reports) == 4  # 0 to 3 cards
    assert view.predict_proba({"A": reports}).shape == (4, 3)
    with pytest.raises(UnknownValue, match="column 'A', row 1"):
        view.predict({"A": ["yes"]})


def test_every_policy_of_the_conformance_suite_is_covered():
    assert {name for name, _, _ in CHOICES} == set(SPECS) - set(BEYOND)


@pytest.mark.parametrize("name", BEYOND)
def test_rows_with_one_report_of_several_variables_are_not_classified(name):
    model = naive_bayes(mq.tally(case(name).disguised, case(name).policy), "A", ["B", "D"])
    with pytest.raises(InputError, match="share one report"):
        disguised_view(model, case(name).policy)
