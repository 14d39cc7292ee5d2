"""Simulated twins of published designs: a regression finds the truth within six standard errors.

Their data are in test_published_regressions.py. A false alarm has a chance of about 2e-9 a coefficient.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import masquerade as mq
from masquerade.core.errors import InputError

C = mq.channels
YES = ["yes", "no"]
SIGMAS = 6


def answers(truth):
    return np.where(truth, "yes", "no")


def is_near(fit, truth):
    return bool(np.all(np.abs(fit.values - truth) < SIGMAS * np.asarray(fit.bse)))


def report(truth, variables, channels, seed=1):
    """Return a tally of drawn reports."""
    policy = mq.Policy.build(variables, channels)
    return mq.tally(mq.simulate(pd.DataFrame(truth), policy, seed=seed), policy)


def lie_detector(n=6000):
    draw = np.random.default_rng(21)
    clear = pd.DataFrame({"age": draw.standard_normal(n), "lr": draw.standard_normal(n)})
    yes = draw.random(n) < expit(0.5 + 0.6 * clear["lr"] - 0.3 * clear["age"] * clear["lr"])
    honest = draw.random(n) < 0.65
    truth = np.where(yes, np.where(honest, "yes", "lying"), "no")
    channel = C.stochastic_lie_detector(["1/6", "5/6"])
    return report({"ban": truth}, {"ban": ["yes", "no", "lying"]}, {"ban": channel}), clear, yes


def test_a_stochastic_lie_detector_finds_slopes_and_honesty():
    source, clear, _ = lie_detector()
    fit = mq.stats.logistic(source, "ban[yes, lying] ~ age * lr", covariates=clear)
    assert fit.certificate
    assert is_near(fit, [0.5, 0, 0.6, -0.3])
    honest = expit(fit.nuisance["coef"].iloc[0])
    assert abs(honest - 0.65) < SIGMAS * honest * (1 - honest) * fit.nuisance["stderr"].iloc[0]
    # the null fit has several maxima: that of fewer terms is the largest
    fewer = mq.stats.logistic(source, "ban[yes, lying] ~ age + lr", covariates=clear)
    statistic = fit.lr_test("age:lr").statistic
    np.testing.assert_allclose(statistic, 2 * (fit.llf - fewer.llf), atol=1e-5)


def test_a_lie_detectors_answer_explains_a_clear_number():
    source, clear, yes = lie_detector()
    draw = np.random.default_rng(22)
    clear = clear.assign(left=2 + 1.5 * yes + draw.normal(0, 1.5, len(clear)))
    fit = mq.stats.linear(source, "left ~ ban", covariates=clear, scores={"ban": [1, 0, 1]})
    assert is_near(fit, [2, 1.5])
    assert abs(np.exp(fit.nuisance["coef"].loc["log sd"]) - 1.5) < 0.2


def test_a_forced_response_explains_and_is_explained():
    draw = np.random.default_rng(23)
    n = 4000
    z = draw.standard_normal(n)
    q = draw.random(n) < expit(-0.5 + 0.5 * z)
    civic = draw.random(n) < expit(-0.3 + 0.8 * q + 0.2 * z)
    source = report({"q": answers(q)}, {"q": YES}, {"q": C.forced_response("1/6", "1/6")})
    clear = pd.DataFrame({"z": z, "civic": civic.astype(int)})
    assert is_near(mq.stats.logistic(source, "q ~ z", covariates=clear), [-0.5, 0.5])
    fit = mq.stats.logistic(source, "civic ~ q + z", covariates=clear, reference={"q": "no"})
    assert is_near(fit, [-0.3, 0.8, 0.2])


def test_a_list_experiment_finds_slopes_with_all_models_of_items():
    draw = np.random.default_rng(25)
    n = 4000
    clear = pd.DataFrame({"south": draw.integers(0, 2, n), "age": draw.standard_normal(n)})
    yes = draw.random(n) < expit(-1 + 1.2 * clear["south"] + 0.6 * clear["age"])
    items = draw.binomial(3, expit(0.3 - 0.3 * clear["south"]), n)
    truth = {"items": items, "angry": answers(yes)}
    source = report(truth, {"items": [0, 1, 2, 3], "angry": YES}, {("items", "angry"): C.list_experiment(3)})
    for name in ("binomial", "binomial-free", "beta-binomial", "multinomial"):
        fit = mq.stats.logistic(source, "angry ~ south + age", covariates=clear, items=name)
        assert is_near(fit, [-1, 1.2, 0.6]), name


def test_direct_and_crosswise_answers_together_with_a_random_intercept():
    draw = np.random.default_rng(24)
    n, groups = 3000, 30
    crosswise, z = draw.integers(0, 2, n), draw.standard_normal(n)
    group = np.arange(n) % groups
    copied = draw.random(n) < expit(
        -1 + 0.6 * z + 0.5 * crosswise + 0.7 * draw.standard_normal(groups)[group]
    )
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {"copied": {"categories": YES}, "RR": {"categories": [0, 1]}},
            "strata": {"by": "RR", "channels": {1: {"copied": {"kind": "warner", "p": 0.25}}}},
        }
    )
    truth = pd.DataFrame({"copied": answers(copied), "RR": crosswise})
    source = mq.tally(mq.simulate(truth, policy, seed=5), policy)
    clear = pd.DataFrame({"z": z, "group": group})
    fit = mq.stats.logistic(source, "copied ~ z + RR + (1 | group)", covariates=clear)
    assert is_near(fit, [-1, 0.6, 0.5])
    spread = fit.nuisance.iloc[-1]
    assert abs(abs(spread["coef"]) - 0.7) < SIGMAS * spread["stderr"]
    lower, upper = fit.profile("z")
    assert lower < fit.params["z"] < upper
    # predictions are averages over groups: those of the model without groups, not of a group in the middle
    share, plain = fit.shares(), mq.stats.logistic(source, "copied ~ z + RR", covariates=clear).shares()
    assert abs(share.values[0] - plain.values[0]) < 0.01
    middle = expit(fit.values[0] + fit.values[1] * z + fit.values[2] * crosswise).mean()
    assert abs(middle - plain.values[0]) > 0.01
    with pytest.raises(InputError, match="without random intercepts"):
        fit.outcome_shares()
