"""Regressions by likelihood through the public interface: identity channels, designs, covariates, surveys."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy.special import expit
from statsmodels.miscmodels.ordinal_model import OrderedModel

import masquerade as mq
from masquerade.core.errors import InputError, SchemaError

C = mq.channels
YES = ["yes", "no"]
EXACT = {"method": "newton", "disp": 0, "tol": 1e-14, "maxiter": 100}


def answers(truth):
    return np.where(truth, "yes", "no")


@pytest.fixture(scope="module")
def people():
    draw = np.random.default_rng(8)
    n = 700
    x, age = draw.integers(0, 2, n), draw.normal(0, 1, n)
    frame = pd.DataFrame({"x": np.where(x, "b", "a"), "age": age})
    frame["y"] = answers(draw.random(n) < expit(-0.5 + 0.8 * x + 0.5 * age))
    frame["k"] = draw.poisson(np.exp(0.2 + 0.3 * x))
    frame["z"] = draw.choice(["u", "v", "w"], n)
    frame["height"] = 2 + x - 0.4 * age + draw.normal(size=n)
    return frame


@pytest.fixture(scope="module")
def clear(people):
    names = ["x", "y", "z"]
    return mq.tally(people[names], schema=mq.Schema({"x": ["a", "b"], "y": YES, "z": ["u", "v", "w"]}))


def near(found, wanted, rtol=1e-8):
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=rtol, atol=1e-9)


@pytest.mark.filterwarnings("ignore:The Log link")  # a probability above 1 is possible
@pytest.mark.parametrize(
    ("link", "terms"),
    [("logit", "x * age"), ("probit", "x * age"), ("cloglog", "x * age"), ("log", "x")],
)
def test_clear_yes_no_outcomes_are_statsmodels(people, clear, link, terms):
    frame = people.assign(one=(people["y"] == "yes").astype(float))
    links = sm.families.links
    family = sm.families.Binomial(
        {"logit": links.Logit, "probit": links.Probit, "cloglog": links.CLogLog, "log": links.Log}[link]()
    )
    model = smf.glm(f"one ~ {terms}", frame, family=family)
    scoring = model.fit(tol=1e-14, maxiter=200)
    book = model.fit(method="newton", start_params=scoring.params, tol=1e-14, maxiter=100)
    fit = mq.stats.logistic(clear, f"y ~ {terms}", covariates=people, link=link)
    near(fit.values, book.params)
    near([fit.llf, fit.aic], [book.llf, book.aic])
    expected = mq.stats.logistic(clear, f"y ~ {terms}", covariates=people, link=link, errors="expected")
    near(expected.bse, scoring.bse)  # by the expected information
    if link == "logit":
        near(fit.bse, book.bse)
    if terms == "x * age":
        smaller = smf.glm("one ~ x + age", frame, family=family).fit(tol=1e-14, maxiter=200)
        assert fit.lr_test("x[T.b]:age").statistic == pytest.approx(2 * (book.llf - smaller.llf), abs=1e-6)


def test_clear_categories_counts_and_numbers_are_statsmodels(people, clear):
    frame = people.assign(code=people["z"].map({"u": 0, "v": 1, "w": 2}))
    book = smf.mnlogit("code ~ x + age", frame).fit(**EXACT)
    fit = mq.stats.multinomial(clear, "z ~ x + age", covariates=people)
    near(fit.values, np.asarray(book.params).T.ravel())
    near(fit.bse, np.asarray(book.bse).T.ravel())
    near([fit.llf], [book.llf])
    book = smf.poisson("k ~ x + age", frame).fit(**EXACT)
    fit = mq.stats.poisson(clear, "k ~ x + age", covariates=people)
    near(fit.values, book.params)
    near(fit.bse, book.bse)
    near([fit.llf], [book.llf])
    book = smf.ols("height ~ x + age", frame).fit()
    fit = mq.stats.linear(clear, "height ~ x + age", covariates=people)
    near(fit.values, book.params)
    near(fit.bse, book.bse * np.sqrt((len(frame) - 3) / len(frame)))
    near([fit.llf], [book.llf])


def test_a_clear_ordinal_outcome_is_statsmodels(people, clear):
    fit = mq.stats.proportional_odds(clear, "z ~ x + age", covariates=people)
    X = np.column_stack([people["x"] == "b", people["age"]]).astype(float)
    codes = people["z"].map({"u": 0, "v": 1, "w": 2}).to_numpy()
    model = OrderedModel(codes, X, distr="logit")
    rough = model.fit(method="bfgs", gtol=1e-8, maxiter=500, disp=0)
    book = model.fit(method="newton", start_params=rough.params, tol=1e-14, disp=0)
    slopes, (first, log_gap) = book.params[:2], book.params[2:]
    near(fit.values, [first, first + np.exp(log_gap), *slopes])
    near([fit.llf], [book.llf])
    near(fit.bse.iloc[2:], book.bse[:2], 1e-5)  # statsmodels has the information by differences


def cheaters(n=3000, seed=4):
    draw = np.random.default_rng(seed)
    z = draw.standard_normal(n)
    cheat, yes = draw.random(n) < expit(-1.5), draw.random(n) < expit(-1 + 0.7 * z)
    truth = np.where(cheat, "cheat", answers(yes))
    policy = mq.Policy.build({"x": ["yes", "no", "cheat"]}, {"x": C.cheater_detection([0.2, 0.8])})
    return mq.tally(mq.simulate(pd.DataFrame({"x": truth}), policy, seed=seed), policy), pd.DataFrame(
        {"z": z}
    )


def test_cheater_detection_takes_continuous_covariates():
    source, clear = cheaters()
    fit = mq.stats.logistic(source, "x[yes] ~ z", covariates=clear, among=YES, nuisance={"cheat": "~ 1"})
    assert fit.certificate
    assert abs(fit.params["z"] - 0.7) < 5 * fit.bse["z"]
    assert fit.lr_test("z").p_value < 1e-4
    assert len(fit.nuisance) == 1
    everyone = mq.stats.logistic(source, "x[yes] ~ z", covariates=clear)
    assert everyone.shares().values[0] < fit.shares().values[0]
    assert "among yes, no" in fit.heading


def listed(n=2400, seed=6):
    draw = np.random.default_rng(seed)
    g, z = draw.integers(0, 2, n), draw.standard_normal(n)
    x = draw.random(n) < expit(-1.5 + 1.5 * g)
    policy = mq.Policy.build(
        {"items": [0, 1, 2, 3], "x": YES, "g": [0, 1]}, {("items", "x"): C.list_experiment(3)}
    )
    truth = pd.DataFrame({"items": draw.binomial(3, 0.5, n), "x": answers(x), "g": g})
    return mq.tally(mq.simulate(truth, policy, seed=seed), policy), pd.DataFrame({"z": z})


def test_list_experiments_have_four_models_of_the_items():
    source, clear = listed()
    fits = {
        items: mq.stats.logistic(source, "x ~ g + z", covariates=clear, items=items)
        for items in ("binomial", "binomial-free", "beta-binomial", "multinomial")
    }
    for fit in fits.values():
        assert abs(fit.params["g"] - 1.5) < 5 * fit.bse["g"]
    assert fits["binomial-free"].llf >= fits["binomial"].llf
    assert fits["beta-binomial"].llf >= fits["binomial"].llf - 1e-6
    assert "Items of the list: multinomial" in mq.stats.logistic(source, "x ~ g").summary()
    with pytest.raises(InputError, match="'items' must be"):
        mq.stats.logistic(source, "x ~ g", items="normal")


def test_an_unrelated_question_of_unknown_prevalence_takes_covariates():
    draw = np.random.default_rng(9)
    n = 4000
    z = draw.standard_normal(n)
    truth = pd.DataFrame({"x": answers(draw.random(n) < expit(-1 + z)), "u": answers(draw.random(n) < 0.4)})
    policy = mq.Policy.build({"x": YES, "u": YES}, {("x", "u"): C.unrelated_unknown([0.8, 0.2])})
    source = mq.tally(mq.simulate(truth, policy, seed=3), policy)
    fit = mq.stats.logistic(source, "x ~ z", covariates=pd.DataFrame({"z": z}))
    assert abs(fit.params["z"] - 1) < 5 * fit.bse["z"]
    harmless = expit(-fit.nuisance["coef"].iloc[-1])
    assert abs(harmless - 0.4) < 0.1


def test_a_disguised_covariate_is_estimated_and_checked_by_the_corrected_score():
    draw = np.random.default_rng(11)
    n = 3000
    z = draw.standard_normal(n)
    g = draw.random(n) < expit(-0.5 + 0.7 * z)
    y = draw.random(n) < expit(-0.5 + g + 0.3 * z)
    policy = mq.Policy.build({"g": YES, "y": YES}, {"g": C.binary("1/5")})
    source = mq.tally(mq.simulate(pd.DataFrame({"g": answers(g), "y": answers(y)}), policy, seed=2), policy)
    clear = pd.DataFrame({"z": z})
    fit = mq.stats.logistic(source, "y ~ g + z", covariates=clear, reference={"g": "no"})
    assert abs(fit.params["g[T.yes]"] - 1) < 5 * fit.bse["g[T.yes]"]
    assert fit.robust is not None
    assert np.all(np.abs(fit.robust.values - fit.values) < 3 * fit.bse)
    effects = fit.marginal_effects()
    share = expit(fit.values[0] + fit.values[2] * z)
    slope = effects.values[[row[0] for row in effects.labels].index("z")]
    assert 0 < slope < 0.3 * max(share) + 0.1


def test_where_the_model_of_a_disguised_covariate_is_wrong_the_score_answers():
    draw = np.random.default_rng(12)
    n = 20_000
    z = draw.standard_normal(n)
    g = draw.random(n) < expit(-1.5 + 1.5 * z**2)
    y = draw.random(n) < expit(-0.5 + 2 * g + 0.3 * z)
    policy = mq.Policy.build({"g": YES, "y": YES}, {"g": C.binary("1/4")})
    source = mq.tally(mq.simulate(pd.DataFrame({"g": answers(g), "y": answers(y)}), policy, seed=2), policy)
    options = {"covariates": pd.DataFrame({"z": z}), "reference": {"g": "no"}}
    fit = mq.stats.logistic(source, "y ~ g + I(z**2)", **options)
    forced = mq.stats.logistic(source, "y ~ g + I(z**2)", **options, method="likelihood")
    assert forced.fit is not None
    assert fit.fit is None
    assert "doubtful" in fit.summary()


def test_direct_and_indirect_answers_are_merged():
    draw = np.random.default_rng(13)
    truth = pd.DataFrame({"x": answers(draw.random(1000) < 0.3), "g": draw.integers(0, 2, 1000)})
    schema = {"x": YES, "g": [0, 1]}
    asked = mq.Policy.build(schema, {})
    hidden = mq.Policy.build(schema, {"x": C.warner("0.8")})
    both = mq.Merged(
        [mq.tally(truth[:500], asked), mq.tally(mq.simulate(truth[500:], hidden, seed=1), hidden)]
    )
    fit = mq.stats.logistic(both, "x ~ g")
    alone = mq.stats.logistic(mq.tally(truth[:500], asked), "x ~ g")
    assert fit.n == 1000
    assert np.all(fit.bse < alone.bse)
    assert abs(fit.shares().values[0] - 0.3) < 0.12


def test_weights_of_ones_and_singleton_clusters_are_the_sandwich(people):
    frame = people.assign(w=1.0, c=np.arange(len(people)))
    policy = mq.Policy.build({"y": YES}, {"y": C.warner("0.8")})
    seen = mq.simulate(people[["y"]], policy, seed=4).assign(w=1.0, c=frame["c"])
    source = mq.tally(seen[["y"]], policy)
    robust = mq.stats.logistic(source, "y ~ age", covariates=people, errors="sandwich")
    survey = mq.SurveyRecords(seen, policy, weights="w")
    fit = mq.stats.logistic(survey, "y ~ age", covariates=people)
    near(fit.values, robust.values, 1e-6)
    np.testing.assert_allclose(fit.bse, robust.bse, rtol=2e-3)  # n/(n − 1)
    by = mq.stats.logistic(source, "y ~ age", covariates=frame, clusters="c")
    np.testing.assert_allclose(by.bse, robust.bse, rtol=0.15)  # expected, not observed information
    assert "CR2, 700 clusters" in by.summary()


def test_a_survey_of_strata_clusters_fpc_and_replicates(people):
    draw = np.random.default_rng(2)
    policy = mq.Policy.build({"y": YES}, {"y": C.warner("0.85")})
    seen = mq.simulate(people[["y"]], policy, seed=4)
    seen = seen.assign(w=draw.uniform(0.5, 1.5, len(seen)), h=np.arange(len(seen)) % 4)
    seen = seen.assign(c=np.arange(len(seen)) % 4 * 100 + np.arange(len(seen)) // 35, size=40)
    base = {"weights": "w", "strata": "h", "clusters": "c"}
    plain = mq.stats.logistic(mq.SurveyRecords(seen, policy, **base), "y ~ age", covariates=people)
    finite = mq.stats.logistic(
        mq.SurveyRecords(seen, policy, **base, fpc="size"), "y ~ age", covariates=people
    )
    assert "4 strata" in plain.summary()
    assert np.all(finite.bse < plain.bse)
    assert np.all(finite.bse > np.sqrt(0.5) * plain.bse)
    weights = np.stack([seen["w"] * draw.exponential(size=len(seen)) for _ in range(200)])
    names = [f"r{i}" for i in range(200)]
    wide = pd.concat([seen, pd.DataFrame(weights.T, columns=names)], axis=1)
    again = mq.SurveyRecords(wide, policy, weights="w", replicates=names)
    by = mq.stats.logistic(again, "y ~ age", covariates=people)
    alone = mq.stats.logistic(mq.SurveyRecords(seen, policy, weights="w"), "y ~ age", covariates=people)
    np.testing.assert_allclose(by.bse, alone.bse, rtol=0.35)  # 200 draws: relative error 5%, 7 of them


def test_random_intercepts_are_found():
    draw = np.random.default_rng(6)
    group = np.arange(1200) % 30
    z = draw.standard_normal(1200)
    truth = draw.random(1200) < expit(-0.5 + 0.5 * z + draw.standard_normal(30)[group])
    policy = mq.Policy.build({"y": YES}, {"y": C.forced_response("1/6", "1/6")})
    source = mq.tally(mq.simulate(pd.DataFrame({"y": answers(truth)}), policy, seed=1), policy)
    clear = pd.DataFrame({"z": z, "group": group})
    fit = mq.stats.logistic(source, "y ~ z + (1 | group)", covariates=clear)
    assert 0.4 < abs(fit.nuisance["coef"].loc["sd of groups"]) < 2
    assert "30 groups" in fit.notes[-1]
    with pytest.raises(InputError, match="Random intercepts are for"):
        mq.stats.linear(source, "z ~ 1 + (1 | group)", covariates=clear)
    for options in ({"errors": "sandwich"}, {"clusters": "group"}):
        with pytest.raises(InputError, match="observed information"):
            mq.stats.logistic(source, "y ~ z + (1 | group)", covariates=clear, **options)
    with pytest.raises(SchemaError, match="no clear column 'nothing'"):
        mq.stats.logistic(source, "y ~ z + (1 | nothing)", covariates=clear)


def test_results_have_all_that_a_reader_needs(people, clear):
    fit = mq.stats.logistic(clear, "y ~ x + age", covariates=people)
    again = pickle.loads(pickle.dumps(fit))  # noqa: S301  (our own)
    assert again.summary() == fit.summary()
    text = fit.summary()
    assert "Log-likelihood" in text
    assert "Maximum found, and it is finite." in text
    assert "odds ratio" in fit.to_latex()
    lower, upper = fit.profile("age")
    assert fit.conf_int().loc["age"].tolist() == [lower, upper]
    assert fit.profile("age", 0.5)[0] > lower
    assert fit.lr_test().df == 2
    smaller = mq.stats.logistic(clear, "y ~ age", covariates=people)
    table = fit.compare(smaller)
    assert table["chi2"].iloc[1] == pytest.approx(fit.lr_test("x").statistic, abs=1e-6)
    X = expit(fit.values[0] + fit.values[1] * (people["x"] == "b") + fit.values[2] * people["age"])
    effect = fit.marginal_effects()
    slope = effect.values[[row[0] for row in effect.labels].index("age")]
    assert slope == pytest.approx(float(np.mean(X * (1 - X))) * fit.values[2], rel=1e-5)
    assert fit.shares().values[0] == pytest.approx((people["y"] == "yes").mean(), abs=1e-8)
    assert len(fit.plot_residuals().get_yticklabels()) == 10
    spline = mq.stats.logistic(clear, "y ~ bs(age, df=4)", covariates=people)
    assert len(spline.predict([{"age": 0.1}, {"age": 0.4}])) == 2
    only = mq.stats.logistic(clear, "y ~ age", covariates=people, where={"x": "b"})
    assert only.n == (people["x"] == "b").sum()
    with pytest.raises(InputError, match="no likelihood"):
        mq.stats.logistic(clear, "y ~ x", method="score").lr_test("x")


def test_tests_of_no_effect_and_intervals_keep_their_level():
    """60 runs each; limits from the binomial distribution at a false alarm of one in a million."""
    hits = covered = 0
    runs, n = 60, 500
    policy = mq.Policy.build({"y": YES}, {"y": C.warner("0.8")})
    draw = np.random.default_rng(17)
    for run in range(runs):
        x = draw.standard_normal(n)
        truth = pd.DataFrame({"y": answers(draw.random(n) < 0.35)})
        source = mq.tally(mq.simulate(truth, policy, seed=run), policy)
        fit = mq.stats.logistic(source, "y ~ x", covariates=pd.DataFrame({"x": x}))
        hits += fit.lr_test("x").p_value < 0.05
        lower, upper = fit.profile("x")
        covered += lower < 0 < upper
    assert hits <= 14  # P(Binomial(60, .06) > 14) < 1e-6
    assert covered >= runs - 14


@pytest.mark.parametrize("design", ["missing and disguised covariates", "strata", "list"])
def test_records_in_an_engine_have_the_likelihood_of_records_in_memory(design, tmp_path):
    draw = np.random.default_rng(30)
    n = 3000
    x = draw.integers(0, 2, n)
    yes = answers(draw.random(n) < expit(-0.5 + 0.8 * x))
    variables = {
        "y": {
            "categories": [*YES, "refused"],
            "missing": "refused",
            "channel": {"kind": "symmetric", "p": "0.2"},
        },
        "x": {"categories": ["a", "b"], "channel": {"kind": "binary", "p": "0.1"}},
        "w": {"categories": ["u", "v"]},
    }
    truth = pd.DataFrame({"y": yes, "x": np.where(x, "b", "a"), "w": draw.choice(["u", "v"], n)})
    truth.loc[draw.random(n) < 0.1, "y"] = None
    formula, policy = "y ~ x * w", {"masquerade": 1, "variables": variables}
    if design == "strata":
        policy["strata"] = {"by": "w", "channels": {"u": {"y": {"kind": "symmetric", "p": "0.3"}}}}
    found = mq.Policy.from_dict(policy)
    if design == "list":
        formula, truth = "x ~ g", pd.DataFrame({"items": draw.binomial(3, 0.5, n), "x": yes, "g": x})
        found = mq.Policy.build(
            {"items": [0, 1, 2, 3], "x": YES, "g": [0, 1]}, {("items", "x"): C.list_experiment(3)}
        )
    path = tmp_path / "reports.parquet"
    pd.DataFrame(mq.simulate(truth, found, seed=3).to_dict("list")).to_parquet(path)
    memory, engine = (mq.tally(path, found, engine=name) for name in ("memory", "duckdb"))
    one, other = (mq.stats.logistic(source, formula) for source in (memory, engine))
    assert other.summary() == one.summary()
    near(other.values, one.values)
    near([other.llf], [one.llf], 1e-12)
    z = pd.DataFrame({"z": draw.standard_normal(n)})
    for options in ({"covariates": z}, {"clusters": np.arange(n) % 30}):
        with pytest.raises(InputError, match="no order in which 'covariates' or clusters"):
            mq.stats.logistic(engine, formula.split("~")[0] + "~ 1", **options)
