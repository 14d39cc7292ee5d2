"""The estimators: scikit-learn's own checks on clear data; the right folds, scores and rows on disguised."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.naive_bayes import CategoricalNB
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.statistical.checks import normal_bound

import masquerade as mq
from masquerade.core.errors import InputError, PolicyMismatch, QueryRefused, SchemaError, UnknownValue
from masquerade.frames.metadata import with_metadata
from masquerade.sklearn import DisguisedLinear, DisguisedNaiveBayes, DisguisedTree, MGASDiscretizer
from masquerade.sklearn._input import MOST_CELLS, learn_columns, learn_numbers

# categories learnt from thirty random numbers are warned about, and rightly so
may_warn = pytest.mark.filterwarnings("ignore::masquerade.core.errors.MasqueradeWarning")
CLASSIFIERS = [DisguisedNaiveBayes, DisguisedTree, DisguisedLinear]
POLICY = {
    "masquerade": 1,
    "variables": {
        "cough": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.2}},
        "age": {"bins": [0, 30, 60, 120], "channel": {"kind": "symmetric", "p": 0.25}},
        "region": {"categories": ["n", "s"]},
        "ill": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.15}},
    },
}
FEATURES = ["cough", "age", "region"]


def people(n, seed):
    """Return clear records in which illness shows in cough and age."""
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.4
    cough = rng.random(n) < np.where(ill, 0.85, 0.1)
    age = np.where(ill, rng.integers(20, 120, n), rng.integers(0, 80, n))
    yes_no = np.array(["no", "yes"])
    return pd.DataFrame(
        {
            "cough": yes_no[cough.astype(int)],
            "age": age,
            "region": np.array(["n", "s"])[rng.integers(0, 2, n)],
            "ill": yes_no[ill.astype(int)],
        }
    )


@pytest.fixture(scope="module")
def policy():
    return mq.Policy.from_dict(POLICY)


@pytest.fixture(scope="module")
def clear():
    return people(40_000, 1)


@pytest.fixture(scope="module")
def disguised(clear, policy):
    return mq.simulate(clear, policy, seed=2)


@may_warn
@parametrize_with_checks([DisguisedNaiveBayes(), DisguisedTree(), DisguisedLinear(), MGASDiscretizer()])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@may_warn
@parametrize_with_checks(
    [
        DisguisedTree(criterion="gain_ratio", significance=None, max_depth=3),
        DisguisedLinear(loss="squares"),
        DisguisedLinear(loss="pocket", steps=300),
        MGASDiscretizer(mode="mean", g=0.1),
    ]
)
def test_scikit_learns_own_checks_with_other_options(estimator, check):
    check(estimator)


def test_only_base_and_mixins_are_inherited():
    for kind in [*CLASSIFIERS, MGASDiscretizer]:
        theirs = {
            c.__name__ for c in kind.__mro__ if c.__module__.startswith("sklearn.") and c.__name__[0] != "_"
        }
        assert {name for name in theirs if not name.endswith("Mixin")} <= {"BaseEstimator"}


def test_the_package_does_not_load_scikit_learn_and_ours_is_not_taken_for_it():
    code = "import masquerade, sys, json; print(json.dumps('sklearn' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert json.loads(done.stdout) is False
    assert mq.__name__ not in sklearn.__name__
    assert hasattr(sklearn, "__version__")


@pytest.mark.parametrize("alpha", [0.5, 1.0, 20.0])
def test_on_clear_categories_it_is_categorical_nb(alpha):
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 500)
    X = (y[:, None] + rng.integers(0, 3, (500, 4))) % 5
    ours, theirs = DisguisedNaiveBayes(alpha=alpha).fit(X, y), CategoricalNB(alpha=alpha).fit(X, y)
    assert np.array_equal(ours.predict(X), theirs.predict(X))
    assert np.abs(ours.predict_proba(X) - theirs.predict_proba(X)).max() < 1e-9
    assert ours.score(X, y) == theirs.score(X, y)
    assert ours.accuracy(X, y).value == pytest.approx(theirs.score(X, y), abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_on_few_numbers_the_linear_one_is_logistic_regression(classes):
    rng = np.random.default_rng(4)
    X = rng.integers(-3, 4, (600, 3)) / 2
    y = np.clip(np.round(X @ [1.0, -0.5, 0.2] + rng.normal(size=600)), 0, classes - 1).astype(int)
    ours = DisguisedLinear().fit(X, y)
    for code in [1] if classes == 2 else range(3):  # one against the rest
        theirs = LogisticRegression(tol=1e-10, solver="newton-cholesky").fit(X, y == code)
        scores = ours.decision_function(X)
        own = scores if classes == 2 else scores[:, code]
        assert np.abs(own - theirs.decision_function(X)).max() < 1e-6


def test_labels_of_any_kind_go_in_and_come_out(clear):
    few = clear.head(3000)
    for kind in CLASSIFIERS:
        fitted = kind().fit(few[FEATURES], few["ill"])
        assert fitted.feature_names_in_.tolist() == FEATURES
        assert fitted.classes_.tolist() == ["no", "yes"]
        assert fitted.score(few[FEATURES], few["ill"]) > 0.8
        flags = kind().fit(few[FEATURES], few["ill"] == "yes")
        assert flags.predict(few[FEATURES]).dtype == bool
        assert np.array_equal(flags.predict(few[FEATURES]), fitted.predict(few[FEATURES]) == "yes")
        assert "age" in fitted.model_.summary()


def test_a_new_number_falls_to_the_nearest_and_a_new_label_is_refused():
    X = pd.DataFrame({"size": [1, 1, 4, 4] * 5, "colour": ["red", "blue"] * 10})
    y = X["size"] > 2
    fitted = DisguisedNaiveBayes().fit(X, y)
    new = pd.DataFrame({"size": [-9, 2, 3, 1000], "colour": ["red"] * 4})
    assert fitted.predict(new).tolist() == [False, False, True, True]
    with pytest.raises(UnknownValue, match="'colour', row 2"):
        fitted.predict(pd.DataFrame({"size": [1, 1], "colour": ["red", "green"]}))
    with pytest.raises(InputError, match="contained numbers when"):
        fitted.predict(pd.DataFrame({"size": ["1"], "colour": ["red"]}))
    with pytest.raises(InputError, match="not fitted with"):
        DisguisedNaiveBayes().fit(X, X["colour"]).accuracy(X, ["green"] * 20)


@given(
    st.lists(st.floats(-1e300, 1e300) | st.integers(-3, 3).map(float), min_size=1, max_size=80),
    st.integers(2, 6),
)
def test_learnt_categories_are_ordered_and_none_is_empty(values, most):
    numbers = np.array(values)
    column = learn_numbers("x", numbers, most)
    codes = column.codes(numbers)
    assert np.array_equal(np.unique(codes), np.arange(len(column.variable)))
    assert len(column.variable) == min(most, len(set(values))) or len(set(values)) > most >= len(
        column.variable
    )
    order = np.argsort(numbers, kind="stable")
    assert np.all(np.diff(codes[order]) >= 0)
    assert len(column.means) == len(column.variable)


def test_bins_are_equally_full():
    column = learn_numbers("x", np.arange(160.0), 16)
    assert np.bincount(column.codes(np.arange(160.0))).tolist() == [10] * 16
    assert column.variable.categories[0] == "(-inf, 10)"
    mostly_last = np.r_[np.arange(30.0), np.full(970, 99.0)]
    assert len(learn_numbers("x", mostly_last, 16).variable) == 2


def test_the_table_of_the_linear_one_stays_small():
    columns = {f"x{i}": np.random.default_rng(i).random(200) for i in range(10)}
    sizes = [len(column.variable) for column in learn_columns(columns, None, list(columns), 2)]
    assert np.prod(sizes) * 2 <= MOST_CELLS < (sizes[0] + 1) ** 10 * 2
    assert {len(c.variable) for c in learn_columns(columns, None, ["x0", "x1"], 2)} == {16}
    assert {len(c.variable) for c in learn_columns(columns, 5, list(columns), 2)} == {5}


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_the_score_of_disguised_records_is_the_clear_accuracy(kind, policy, clear, disguised):
    """False alarm 1e-6: the claimed error covers sampling too, so the disguise alone stays below it."""
    fitted = kind(policy).fit(disguised[FEATURES], disguised["ill"])
    truth = np.mean(fitted.predict(clear[FEATURES]) == clear["ill"])
    found = fitted.accuracy(disguised[FEATURES], disguised["ill"])
    bound = normal_bound(1) * found.stderr
    assert abs(found.value - truth) <= bound
    assert fitted.score(disguised[FEATURES], disguised["ill"]) == found.value
    # what scikit-learn would say of the disguised records is another number
    reports = fitted._input.rows(disguised[FEATURES], FEATURES, disguised=True)
    assert abs(np.mean(fitted.model_.predict(reports) == disguised["ill"]) - truth) > bound


def test_rows_that_are_disguised_are_classified_by_their_reports(policy, clear, disguised):
    """False alarm 1e-6, as above; here only the class is corrected, and the error is smaller."""
    on_reports = DisguisedNaiveBayes(policy, predict_on="disguised").fit(
        disguised[FEATURES], disguised["ill"]
    )
    found = on_reports.accuracy(disguised[FEATURES], disguised["ill"])
    truth = np.mean(on_reports.predict(disguised[FEATURES]) == clear["ill"])
    assert abs(found.value - truth) <= normal_bound(1) * found.stderr
    on_clear = clone(on_reports).set_params(predict_on="clear").fit(disguised[FEATURES], disguised["ill"])
    assert found.stderr < on_clear.accuracy(disguised[FEATURES], disguised["ill"]).stderr
    view = mq.evaluate.disguised_view(on_reports.model_, policy)
    assert np.array_equal(on_reports.predict(disguised[FEATURES]), view.predict(disguised))
    assert np.array_equal(
        on_reports.predict_proba(disguised[FEATURES]), view.predict_proba(disguised)[:, ::-1]
    )
    for kind in (DisguisedNaiveBayes, DisguisedTree, DisguisedLinear):
        reading = kind(policy).fit(disguised[FEATURES], disguised["ill"])
        with pytest.raises(PolicyMismatch, match="were disguised"):
            reading.predict(disguised[FEATURES])  # would be taken for clear rows


def test_a_grid_optimises_the_clear_accuracy(policy, clear, disguised):
    """False alarm 1e-6: the mean of three folds has the error of their independent errors."""
    grid = GridSearchCV(DisguisedNaiveBayes(policy), {"alpha": [1.0, 1e7]}, cv=KFold(3), refit=True)
    grid.fit(disguised[FEATURES], disguised["ill"])
    assert grid.best_params_ == {"alpha": 1.0}  # so much smoothing leaves nothing but the larger class
    truth = {1.0: [], 1e7: []}
    errors = {1.0: [], 1e7: []}
    for train, test in KFold(3).split(disguised):
        seen, hidden = disguised.iloc[train], disguised.iloc[test]
        for alpha in (1.0, 1e7):
            fitted = DisguisedNaiveBayes(policy, alpha=alpha).fit(seen[FEATURES], seen["ill"])
            right = fitted.predict(clear.iloc[test][FEATURES]) == clear.iloc[test]["ill"]
            truth[alpha].append(right.mean())
            errors[alpha].append(fitted.accuracy(hidden[FEATURES], hidden["ill"]).stderr)
    for alpha, score in zip((1.0, 1e7), grid.cv_results_["mean_test_score"], strict=True):
        bound = normal_bound(2) * np.sqrt(np.sum(np.square(errors[alpha]))) / 3
        assert abs(score - np.mean(truth[alpha])) <= bound
    assert grid.predict(clear.head(5)[FEATURES]).shape == (5,)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_frames_and_arrays_of_all_makes_say_the_same(kind, policy, clear, disguised):
    few, rows = disguised.head(4000), clear.head(50)[FEATURES]
    X, y = few[FEATURES], few["ill"]
    expected = kind(policy).fit(X, y)
    polars = kind(policy).fit(pl.from_pandas(X), pl.Series(y.tolist()))
    arrow = kind(policy).fit(pa.Table.from_pandas(X, preserve_index=False), y.to_numpy())
    array = kind(policy).fit(X.to_numpy(dtype=object), y.tolist())
    assert array.n_features_in_ == expected.n_features_in_ == arrow.n_features_in_ == 3
    for other, given_rows in [
        (polars, pl.from_pandas(rows)),
        (arrow, pa.Table.from_pandas(rows, preserve_index=False)),
        (array, rows.to_numpy(dtype=object)),
    ]:
        assert other.model_.to_dict() == expected.model_.to_dict()
        assert np.array_equal(other.predict(given_rows), expected.predict(rows))


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classes_are_sorted_as_scikit_learn_wants_them(kind, policy, clear, disguised):
    fitted = kind(policy).fit(disguised[FEATURES], disguised["ill"])
    rows = clear.head(500)[FEATURES]
    assert fitted.model_.target.categories == ("yes", "no")
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(fitted.classes_[fitted.predict_proba(rows).argmax(axis=1)], fitted.predict(rows))
    if kind is DisguisedLinear:
        assert np.array_equal(
            fitted.classes_[(fitted.decision_function(rows) > 0).astype(int)], fitted.predict(rows)
        )


def test_a_policy_may_be_a_path_or_plain_values(policy, disguised, tmp_path):
    policy.save(tmp_path / "policy.json")
    X, y = disguised[FEATURES], disguised["ill"]
    models = [
        DisguisedTree(given_policy).fit(X, y).model_.to_dict()
        for given_policy in (policy, POLICY, tmp_path / "policy.json", str(tmp_path / "policy.json"))
    ]
    assert all(model == models[0] for model in models)
    with pytest.raises(InputError, match="A Policy is needed"):
        DisguisedTree(7).fit(X, y)


def test_parameters_are_kept_cloned_and_pickled(policy, clear, disguised):
    first = DisguisedLinear(policy, loss="squares", ridge=2.0, features=["cough", "age"])
    assert first.get_params()["policy"] is policy
    again = clone(first).set_params(loss="logistic", features=["cough"])
    assert again.get_params()["ridge"] == 2.0
    assert again.policy == policy
    again.fit(disguised[FEATURES], disguised["ill"])
    assert [feature.name for feature in again.model_.features] == ["cough"]
    assert not hasattr(first, "predict_proba")
    assert hasattr(again, "predict_proba")
    back = pickle.loads(pickle.dumps(again))  # noqa: S301  (our own bytes)
    rows = clear.head(20)[FEATURES]
    assert np.array_equal(back.predict(rows), again.predict(rows))


def test_a_target_in_the_middle_and_weights(policy, clear, disguised):
    names = ["cough", "region", "ill"]
    fitted = DisguisedNaiveBayes(policy, target="age").fit(disguised[names], disguised["age"])
    assert fitted.classes_.tolist() == ["[0, 30)", "[30, 60)", "[60, 120]"]
    assert set(fitted.predict(clear[names])) <= set(fitted.classes_)
    half = np.arange(len(disguised)) < 20_000
    weighted = fitted.score(disguised[names], disguised["age"], sample_weight=half)
    assert weighted == pytest.approx(fitted.score(disguised[names][half], disguised["age"][half]), abs=1e-12)


def test_what_cannot_be_read_is_refused(policy, disguised):
    X, y = disguised[FEATURES], disguised["ill"]
    unmarked = pd.DataFrame(X[["region"]].to_dict("list"))
    refused = [
        (DisguisedNaiveBayes(policy), disguised, y, "remove the column"),
        (DisguisedNaiveBayes(policy), X.to_numpy()[:, :2], y, "needs the 3 columns cough, age, region"),
        (DisguisedNaiveBayes(policy), X, None, "target y is None"),
        (DisguisedNaiveBayes(policy), X, y[:-1], "inconsistent numbers of samples"),
        (DisguisedNaiveBayes(policy, target="il"), X, y, "Did you mean 'ill'"),
        (DisguisedNaiveBayes(policy, predict_on="both"), X, y, "'clear' or 'disguised'"),
        (DisguisedNaiveBayes(), X[["region"]], y, "disguised under policy"),
        (DisguisedNaiveBayes(predict_on="disguised"), unmarked, y.to_numpy(), "needs the policy"),
        (DisguisedNaiveBayes(bins=1), unmarked, y.to_numpy(), "'bins'"),
        (DisguisedTree(policy, features=["size"]), X, y, "no variable 'size'"),
    ]
    for estimator, rows, classes, reason in refused:
        with pytest.raises(ValueError, match=reason):
            estimator.fit(rows, classes)
    other = mq.Policy.from_dict(
        {"masquerade": 1, "variables": POLICY["variables"] | {"region": {"categories": ["n", "s", "e"]}}}
    )
    with pytest.raises(PolicyMismatch):
        DisguisedNaiveBayes(other).fit(X, y)


def test_a_class_disguised_with_others_is_scored_on_clear_rows_only():
    plain = {"a": ["0", "1"], "b": ["0", "1"], "c": ["0", "1"]}
    joint = mq.Policy.build(plain, {("b", "c"): mq.channels.symmetric(4, 0.2)})
    records = pd.DataFrame(
        np.random.default_rng(5).integers(0, 2, (2000, 3)).astype(str), columns=list("abc")
    )
    records["c"] = np.where(np.random.default_rng(6).random(2000) < 0.8, records["b"], records["c"])
    reports = mq.simulate(records, joint, seed=7)
    fitted = DisguisedNaiveBayes(joint, predict_on="disguised").fit(reports[["a", "b"]], reports["c"])
    with pytest.raises(InputError, match="disguised alone"):
        fitted.score(reports[["a", "b"]], reports["c"])
    assert 0.7 < fitted.set_params(predict_on="clear").score(reports[["a", "b"]], reports["c"]) < 1


def test_numbers_are_grouped_in_a_pipeline():
    rng = np.random.default_rng(8)
    y = np.arange(600) % 2
    X = pd.DataFrame({"height": rng.normal(170 + 10 * y, 6), "weight": rng.normal(70, 9, 600)})
    line = make_pipeline(MGASDiscretizer(k_min=60, g=1.0), DisguisedNaiveBayes())
    chance = 0.5 + normal_bound(1) * np.sqrt(0.25 / 600)  # guessing gets there once in a million
    assert cross_val_score(line, X, y, cv=KFold(4)).mean() > chance
    line.set_output(transform="pandas").fit(X, y)
    groups = line[0].transform(X)
    assert groups.columns.tolist() == line[0].get_feature_names_out().tolist() == ["height", "weight"]
    assert line[1].feature_names_in_.tolist() == ["height", "weight"]
    for name, bins in zip(X, line[0].bins_, strict=True):
        assert groups[name].value_counts().min() >= 60
        expected = mq.anonymity.mgas(X[name], 60, 1.0)
        assert np.array_equal(groups[name], expected.replace_by_order(X[name]))
        assert bins.policy_bins() == expected.policy_bins()
    by_hand = np.column_stack([mq.anonymity.mgas(X[name], 60, 1.0).replace_by_order(X[name]) for name in X])
    assert np.array_equal(line.predict(X), DisguisedNaiveBayes().fit(by_hand, y).predict(by_hand))
    beyond = pd.DataFrame({"height": [-1e6, 1e6], "weight": [70, 70]})
    assert line[0].transform(beyond)["height"].tolist() == [0, groups["height"].max()]
    means = MGASDiscretizer(k_min=60, g=1.0, mode="mean").fit_transform(X)
    assert means.mean(axis=0) == pytest.approx(X.mean().to_numpy(), abs=1e-9)


def test_groups_may_be_a_policys_bins():
    ages = pd.DataFrame({"age": [0, 29.9, 30, 120, 500]})
    given_bins = MGASDiscretizer(POLICY).fit(ages)
    assert given_bins.transform(ages).ravel().tolist() == [0, 0, 1, 2, 2]
    assert given_bins.set_params(mode="mean").transform(ages).ravel().tolist() == [15, 15, 45, 90, 90]
    assert MGASDiscretizer(POLICY).fit(ages.to_numpy()).transform([[31]]).tolist() == [[1]]
    for estimator, rows, reason in [
        (MGASDiscretizer(mode="median"), ages, "'order' or 'mean'"),
        (MGASDiscretizer(POLICY), ages.rename(columns={"age": "region"}), "no bins for 'region'"),
        (MGASDiscretizer(POLICY), [[1, 2]], "1 variables, X has 2"),
        (MGASDiscretizer(k_min=6), ages, "minimum of 6"),
    ]:
        with pytest.raises(ValueError, match=reason):
            estimator.fit(rows)
    with pytest.raises(SchemaError, match="no variable 'agee'"):
        MGASDiscretizer(POLICY).fit(ages.rename(columns={"age": "agee"}))


def test_strata_say_which_channel_a_row_went_through(clear):
    values = POLICY | {
        "strata": {"by": "region", "channels": {"s": {"cough": {"kind": "binary", "p": 0.4}}}},
    }
    strata = mq.Policy.from_dict(values)
    reports = mq.simulate(clear, strata, seed=9)
    fitted = DisguisedNaiveBayes(strata, features=["cough", "age"], predict_on="disguised")
    fitted.fit(reports[FEATURES], reports["ill"])
    found = fitted.predict_proba(reports[FEATURES])
    view = mq.evaluate.disguised_view(fitted.model_, strata)
    assert np.array_equal(found, view.predict_proba(reports)[:, ::-1])
    assert len(np.unique(found.round(9), axis=0)) == 2 * 2 * 3  # cough and age, each read by its region
    with pytest.raises(InputError, match="without strata"):
        fitted.score(reports[FEATURES], reports["ill"])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_estimators_refuse_what_frames_say_was_disguised_or_is_missing(disguised, policy, library):
    some = disguised.head(2000)
    marked = some if library == "pandas" else with_metadata(pl.from_pandas(some), {"policy": policy.id})
    as_clear = DisguisedNaiveBayes()
    with pytest.raises(PolicyMismatch, match="pass it as 'policy'"):
        as_clear.fit(marked, some["ill"].to_numpy())
    with pytest.raises(PolicyMismatch, match="pass it as 'policy'"):  # the classes alone say so
        as_clear.fit(some[["cough"]].to_numpy(), some["ill"])
    left = with_metadata(marked, {"policy": policy.id, "incomplete": "2 of 8 rows did not open"})
    X, y = with_metadata(left[FEATURES], {"incomplete": "2 of 8 rows did not open"}), some["ill"]
    with pytest.raises(QueryRefused, match="2 of 8 rows did not open"):
        DisguisedNaiveBayes(policy, target="ill").fit(X, y)
    accepted = DisguisedNaiveBayes(policy, target="ill", accept_incomplete=True).fit(X, y)
    assert accepted.score(X, y) == DisguisedNaiveBayes(policy, target="ill").fit(some[FEATURES], y).score(
        some[FEATURES], y
    )
    clear = with_metadata(some[["cough"]], {"incomplete": "2 of 8 rows did not open"})
    with pytest.raises(QueryRefused, match="2 of 8 rows did not open"):
        DisguisedNaiveBayes().fit(clear, some["ill"].to_numpy())
