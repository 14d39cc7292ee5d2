"""Formulas as R users write them give the terms that R gives."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, SchemaError
from masquerade.stats.regression.formula import select_terms, translate_r


@pytest.fixture(scope="module")
def survey():
    draw = np.random.default_rng(1)
    n = 600
    clear = pd.DataFrame(
        {"x": draw.normal(5, 1, n), "g": draw.choice(["a", "b"], n), "k": draw.integers(1, 4, n)}
    )
    yes = draw.random(n) < 1 / (1 + np.exp(-0.6 * (clear["x"] - 5)))
    policy = mq.Policy.build({"y": ["yes", "no"]}, {"y": mq.channels.warner("0.8")})
    reports = mq.simulate(pd.DataFrame({"y": np.where(yes, "yes", "no")}), policy, seed=1)
    return mq.tally(reports, policy), clear


def fit(survey, terms, **columns):
    source, clear = survey
    return mq.stats.logistic(source, f"y ~ {terms}", covariates=clear.assign(**columns))


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        ("x*g", ["x", "g[T.b]", "x:g[T.b]"]),
        ("(x + g)^2", ["x", "g[T.b]", "x:g[T.b]"]),
        ("x + I(x^2)", ["x", "I(x ** 2)"]),
        ("factor(k)", ["C(k)[T.2]", "C(k)[T.3]"]),
        ("sqrt(x) + log(x)", ["np.sqrt(x)", "log(x)"]),
        ("poly(x, 2)", ["poly(x, 2)[1]", "poly(x, 2)[2]"]),
        ("bs(x, df=4)", [f"bs(x, df=4)[{i}]" for i in range(1, 5)]),
    ],
)
def test_terms_are_named_for_what_they_are(survey, terms, names):
    assert list(fit(survey, terms).terms) == ["Intercept", *names]
    assert fit(survey, f"{terms} - 1").terms[0] != "Intercept"


def test_powers_inside_calls_are_powers_of_numbers():
    assert translate_r("I((x + 1)^2)*g + (a + b)^2") == "I((x + 1)**2)*g + (a + b)^2"
    assert translate_r(translate_r("factor(k) + sqrt(x) + ns(x, df=3)")) == translate_r(
        "factor(k) + sqrt(x) + ns(x, df=3)"
    )


def test_squares_and_natural_splines_are_the_columns_by_hand(survey):
    x = survey[1]["x"].to_numpy()
    assert fit(survey, "x + I(x^2)").llf == pytest.approx(fit(survey, "x + s", s=x**2).llf, abs=1e-8)
    # natural cubic splines: knots at the thirds and at both ends, as ns(x, df = 3) of R has them
    knots = np.quantile(x, [0, 1 / 3, 2 / 3, 1])

    def cut(k):
        return np.clip(x - knots[k], 0, None) ** 3

    def bend(k):
        return (cut(k) - cut(3)) / (knots[3] - knots[k])

    by_hand = fit(survey, "x + u + v", u=bend(0) - bend(2), v=bend(1) - bend(2))
    assert fit(survey, "ns(x, df=3)").llf == pytest.approx(by_hand.llf, abs=1e-6)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("x +", r"The terms 'x \+' cannot be read: [^\x1b\n]*\.$"),
        (".", "names its terms"),
        ("x + .", "names its terms"),
        ("(x | g)", r"Random effects are intercepts, written as '\(1 \| group\)'"),
        ("x | g", "Random effects are intercepts"),
        ("log(x - 100)", "cannot be used"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_formulas_that_cannot_be_used_are_refused_in_one_line(survey, terms, message):
    with pytest.raises(InputError, match=message) as refusal:
        fit(survey, terms)
    assert "\n" not in str(refusal.value)


def test_columns_and_options_that_cannot_be_used_are_named(survey):
    source, clear = survey
    far = clear["x"].where(clear["x"] > 4, np.inf)
    with pytest.raises(InputError, match="far is infinite for some records"):
        fit(survey, "far", far=far)
    with pytest.raises(InputError, match="'nuisance' names 'lying'"):
        mq.stats.logistic(source, "y ~ x", covariates=clear, nuisance={"lying": "~ x"})
    with pytest.raises(SchemaError, match="'where' takes variables of the source; 'g' is unknown to it"):
        mq.stats.logistic(source, "y ~ x", covariates=clear, where={"g": "a"})
    with pytest.raises(InputError, match="confidence level"):
        mq.stats.logistic(source, "y ~ x", covariates=clear, level=95)
    with pytest.raises(InputError, match="a category that no record of the regression has"):
        fit(survey, "g").predict({"g": "c"})


def test_the_name_of_a_variable_selects_all_terms_that_contain_it(survey):
    model = fit(survey, "x * factor(k) + I(x^2) + g")
    chosen = {model.terms[place] for place in select_terms(model.terms, "x")}
    assert chosen == {"x", "x:C(k)[T.2]", "x:C(k)[T.3]", "I(x ** 2)"}
    assert model.lr_test("k").df == 4  # whichever variable of an interaction comes first
    assert model.lr_test("x:k").df == model.lr_test("k:x").df == 2
    assert model.lr_test("I(x ** 2)").df == model.lr_test("g[T.b]").df == 1
    smaller = fit(survey, "x + I(x^2) + g")
    statistic = 2 * (model.llf - smaller.llf)
    assert model.lr_test("k").statistic == pytest.approx(statistic, abs=1e-6)
    with pytest.raises(InputError, match="No term has the name 'df'"):
        fit(survey, "bs(x, df=4)").lr_test("df")


def test_the_level_of_shown_intervals_is_chosen(survey):
    source, clear = survey
    model = mq.stats.logistic(source, "y ~ x", covariates=clear, level=0.5)
    assert "50% profile intervals" in model.summary()
    assert model.to_frame()["lower"].tolist() == model.conf_int(0.5)[0].tolist()
    assert "50% intervals" in model.plot().get_xlabel()
