"""Regression: statsmodels on clear records, the likelihood of the reports on disguised ones, refusals."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from benchmarks.statistics_coverage import BETA, BINARY, Survey, regressed, symmetric
from scipy.optimize import minimize
from scipy.stats import chi2_contingency
from statsmodels.miscmodels.ordinal_model import OrderedModel

import masquerade as mq
from masquerade.core.errors import InputError, NotConverged, SchemaError

SCHEMA = mq.Schema({"x": ["a", "b"], "z": ["u", "v", "w"], "k": [0, 1, 2, 3], "y": ["yes", "no"]})


@pytest.fixture(scope="module")
def people():
    draw = np.random.default_rng(3)
    n = 2000
    x, z = draw.random(n) < 0.4, draw.choice(3, n, p=[0.5, 0.3, 0.2])
    eta = -0.5 + x + 0.5 * (z == 1)
    return pd.DataFrame(
        {
            "x": np.where(x, "b", "a"),
            "z": np.array(["u", "v", "w"])[z],
            "k": np.minimum(draw.poisson(np.exp(0.2 * x)), 3),
            "y": np.where(draw.random(n) < 1 / (1 + np.exp(-eta)), "yes", "no"),
            "age": draw.normal(40, 10, n),
        }
    )


@pytest.fixture(scope="module")
def clear(people):
    return mq.tally(people[list(SCHEMA)], schema=SCHEMA)


@pytest.fixture(scope="module")
def disguised(people):
    policy = mq.Policy.build(
        SCHEMA, {"x": mq.channels.symmetric(2, "0.1"), "y": mq.channels.symmetric(2, "0.1")}
    )
    return mq.tally(mq.simulate(people[list(SCHEMA)], policy, seed=1), policy)


def same(ours, book, rtol=1e-6):
    np.testing.assert_allclose(ours.values, book.params, rtol=rtol, atol=1e-8)
    np.testing.assert_allclose(ours.bse, book.bse, rtol=max(rtol, 1e-6))


def test_clear_records_give_what_statsmodels_gives(people, clear):
    """By the corrected score, with sandwich errors."""
    frame = people.assign(one=(people["y"] == "yes").astype(float))
    robust, by = {"disp": 0, "cov_type": "HC0"}, {"method": "score"}
    same(mq.stats.logistic(clear, "y ~ x * z", **by), smf.logit("one ~ x * z", frame).fit(**robust))
    same(mq.stats.poisson(clear, "k ~ x + z", **by), smf.poisson("k ~ x + z", frame).fit(**robust), 1e-5)
    same(mq.stats.linear(clear, "k ~ x", **by), smf.ols("k ~ x", frame).fit(cov_type="HC0"))
    number = smf.logit("one ~ C(x, Treatment('b')) + k", frame).fit(**robust)
    same(mq.stats.logistic(clear, "y ~ x + k", reference={"x": "b"}, **by), number)


def test_clear_categories_give_what_statsmodels_gives(people, clear):
    frame = people.assign(code=people["z"].map({"u": 0, "v": 1, "w": 2}))
    book = smf.mnlogit("code ~ x", frame).fit(disp=0)
    ours = mq.stats.multinomial(clear, "z ~ x")
    np.testing.assert_allclose(ours.values, np.asarray(book.params).T.ravel(), rtol=1e-6)
    np.testing.assert_allclose(ours.bse, np.asarray(book.bse).T.ravel(), rtol=0.05)
    other = mq.stats.multinomial(clear, "z ~ x", reference={"z": "w"})
    assert other.params["u: x[T.b]"] == pytest.approx(-ours.params["w: x[T.b]"])
    ordered = OrderedModel(frame["k"], (frame["x"] == "b").astype(float).to_frame(), distr="logit")
    book = ordered.fit(method="bfgs", disp=0)
    ours = mq.stats.proportional_odds(clear, "k ~ x")
    assert ours.params["x[T.b]"] == pytest.approx(book.params.iloc[0], rel=1e-3)
    cuts = ordered.transform_threshold_params(book.params.to_numpy())[1:-1]
    np.testing.assert_allclose(ours.values[:3], cuts, atol=1e-3)


def test_disguised_records_agree_with_the_likelihood_of_the_reports():
    survey, rows = regressed()
    table = survey.table(20_000, np.random.default_rng(5))
    found = mq.stats.logistic(table, "y ~ x1 + x2")
    observed = table.evidence.parts[0].observed
    P = np.kron(np.kron(*survey.channels[:2]), survey.channels[2])

    def loss(v):
        weight = np.exp(np.r_[0, v[4:]] - v[4:].max())
        mean = 1 / (1 + np.exp(-rows @ v[:4]))
        truth = (weight / weight.sum())[:, None] * np.stack([mean, 1 - mean], axis=1)
        return -float(observed.ravel() @ np.log(P.T @ truth.ravel()))

    best = minimize(loss, np.r_[found.values, np.zeros(5)], method="BFGS", options={"gtol": 1e-3})
    assert np.all(np.abs(found.values - best.x[:4]) < 0.5 * found.bse)
    assert np.all(np.abs(found.values - BETA) < 5 * found.bse)
    assert found.fit_test.p_value > 1e-6


def test_a_model_that_does_not_fit_is_told():
    survey, _ = regressed()
    truth = survey.truth.copy()
    truth[1, 2] = truth[1, 2, ::-1]
    bent = type(survey)(truth, {axis.name: axis.categories for axis in survey.axes}, survey.channels)
    table = bent.table(200_000, np.random.default_rng(5))
    assert mq.stats.logistic(table, "y ~ x1 + x2").fit_test.p_value < 1e-6
    assert mq.stats.logistic(table, "y ~ x1 * x2").fit_test is None


def test_columns_beside_the_policy_need_records_and_agree_with_tables(people, disguised):
    by_table = mq.stats.logistic(disguised, "y ~ x + z", method="score")
    by_record = mq.stats.logistic(disguised, "y ~ x + z", covariates=people[["age"]], method="score")
    np.testing.assert_allclose(by_record.values, by_table.values, rtol=1e-6)
    np.testing.assert_allclose(by_record.bse, by_table.bse, rtol=1e-3)
    found = mq.stats.logistic(disguised, "y ~ x + age", covariates=people[["age"]])
    assert found.terms == ("Intercept", "x[T.b]", "age")
    with pytest.raises(InputError, match="a row for each of the 2,000 records"):
        mq.stats.logistic(disguised, "y ~ age", covariates=people[["age"]][:5])
    table = disguised.answer([mq.Query(by=("x", "y"))])[0]
    with pytest.raises(InputError, match="source of records"):
        mq.stats.logistic(table, "y ~ age", covariates=people[["age"]])
    with pytest.raises(InputError, match="Give rows to predict"):
        found.predict()
    assert len(found.predict([{"x": "a", "age": 30.0}, {"x": "b", "age": 30.0}])) == 2


def test_clear_columns_with_a_clear_outcome_are_statsmodels(people, clear):
    frame = people.assign(one=(people["y"] == "yes").astype(float))
    book = smf.logit("one ~ x + age", frame).fit(disp=0, cov_type="HC0")
    score = mq.stats.logistic(clear, "y ~ x + age", covariates=people[["age"]], method="score")
    same(score, book)


def test_predictions_are_those_of_the_saturated_table(clear, people):
    found = mq.stats.logistic(clear, "y ~ x * z").predict()
    shares = people.assign(one=people["y"] == "yes").groupby(["x", "z"])["one"].mean()
    np.testing.assert_allclose(found.values, shares, rtol=1e-6)
    one = mq.stats.multinomial(clear, "z ~ x").predict({"x": "b"})
    assert one.values.sum() == pytest.approx(1)
    assert np.all((one.lower < one.values) & (one.values < one.upper))
    mean = mq.stats.linear(clear, "k ~ x").predict([{"x": "a"}, {"x": "b"}])
    np.testing.assert_allclose(mean.values, people.groupby("x")["k"].mean())
    with pytest.raises(InputError, match="Not given: z"):
        mq.stats.logistic(clear, "y ~ x * z").predict({"x": "a"})


def test_results_are_values_that_show_themselves(disguised):
    found = mq.stats.logistic(disguised, "y ~ x + z")
    again = pickle.loads(pickle.dumps(found))  # noqa: S301  (our own)
    assert again.summary() == found.summary()
    assert found.conf_int(0.1).shape == (4, 2)
    assert found.cov_params().loc["x[T.b]", "x[T.b]"] == pytest.approx(found.bse["x[T.b]"] ** 2)
    assert found.pvalues["x[T.b]"] < 0.05
    assert found.wald_test("z").df == 2
    assert "<table" in found._repr_html_()
    assert found.to_dict()["rows"][1]["term"] == "x[T.b]"
    assert len(found.plot().get_yticklabels()) == 3
    assert found.nobs == 2000
    with pytest.raises(InputError, match="No term has the name 'age'"):
        found.wald_test("age")


def test_separation_has_words_and_no_clipping():
    counts = np.array([[50.0, 0.0], [20.0, 30.0]])
    with pytest.raises(NotConverged, match="nothing was clipped"):
        mq.stats.logistic(Survey(counts, BINARY, [None, None]).table_of(counts), "y ~ x")
    noisy = Survey(counts, BINARY, [None, symmetric(2, 0.3)])
    with pytest.raises(NotConverged, match="no root"):
        mq.stats.logistic(noisy.table_of([[48, 2], [20, 30]]), "y ~ x")


def test_doubt_is_told():
    few = Survey(np.ones((2, 2)), BINARY, [symmetric(2, 0.4), symmetric(2, 0.3)])
    found = mq.stats.logistic(few.table_of([[30, 34], [36, 40]]), "y ~ x")
    assert "Doubtful" in found.summary()


@pytest.mark.parametrize(
    ("formula", "error", "words"),
    [
        ("y x", InputError, "written as"),
        ("y ~ q", SchemaError, "no variable 'q'"),
        ("y ~ x + y", InputError, "both sides"),
        ("z ~ x", SchemaError, "no category means yes"),
        ("y[maybe] ~ x", SchemaError, "not a category"),
        ("y ~ x +", InputError, "cannot be read"),
        ("y ~ C(k) + k", InputError, "linear combinations of other terms"),
    ],
)
def test_formulas_that_cannot_be_are_refused(formula, error, words, clear):
    with pytest.raises(error, match=words):
        mq.stats.logistic(clear, formula)


def test_without_the_package_for_formulas_it_says_how_it_is_installed(clear, monkeypatch):
    monkeypatch.setitem(sys.modules, "formulaic", None)
    with pytest.raises(InputError, match=r"pip install 'masquerade\[stats\]'"):
        mq.stats.logistic(clear, "y ~ x")


def test_loglinear_models_are_those_of_the_table(clear, disguised):
    independent = mq.stats.loglinear(clear, "x + z")
    [table] = clear.answer([mq.Query(by=("x", "z"))])
    likelihood_ratio = chi2_contingency(table.values, correction=False, lambda_="log-likelihood")
    assert independent.deviance == pytest.approx(likelihood_ratio.statistic, abs=1e-3)
    pearson = chi2_contingency(table.values, correction=False)
    assert mq.stats.independence(clear, "x", "z").statistic == pytest.approx(pearson.statistic, abs=1e-3)
    assert mq.stats.independence(clear, "x", "z").p_value == pytest.approx(pearson.pvalue, rel=1e-3)
    smaller = mq.stats.loglinear(disguised, "x*y + z")
    larger = mq.stats.loglinear(disguised, [["x", "y"], ["z", "y"]])
    assert smaller.generators == (("z",), ("x", "y")) or set(smaller.generators) == {("z",), ("x", "y")}
    test = smaller.compare(larger)
    assert test.df == 2
    assert test.statistic == pytest.approx(smaller.deviance - larger.deviance)
    assert larger.expected.sum() == pytest.approx(2000)
    assert "BIC" in larger.summary()
    assert mq.stats.loglinear(disguised, "x*y").remarks[0].startswith("The model is saturated")
    with pytest.raises(InputError, match="Only nested models"):
        larger.compare(smaller)
    with pytest.raises(InputError, match="needs a term"):
        mq.stats.loglinear(clear, [])
