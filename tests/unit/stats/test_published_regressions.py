"""Published regressions of indirect questions, to four digits, through the public interface.

The data belong to R packages under the GPL and are not in the repository; without them tests are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.compare_regressions import stop_of_glmmrr, stop_of_list, value_at_rrs_point

import masquerade as mq
from masquerade.stats.regression.solver import maximise

BESIDE = Path(__file__).parents[4] / "shared" / "data" / "rr"
FOLDER = Path(os.environ.get("MASQUERADE_PUBLISHED", BESIDE))
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no published data: MASQUERADE_PUBLISHED names their folder"
)
LIST = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {"items": {"categories": [0, 1, 2, 3]}, "angry": {"categories": ["yes", "no"]}},
        "joint": [
            {
                "variables": ["items", "angry"],
                "report": ["treat", "y"],
                "channel": {"kind": "list_experiment", "groups": [0, 1]},
            }
        ],
    }
)
NIGERIA = "assets + married + a10 + a10sq + education + female"


def minarets():
    """Return the source and the covariates of the stochastic lie detector of RRreg."""
    frame = pd.read_csv(FOLDER / "minarets.csv").query("RRdesign == 1").reset_index(drop=True)
    channel = mq.channels.stochastic_lie_detector(["1/6", "5/6"])
    names = ["yes", "no", "lying"]
    policy = mq.Policy.build({"ban": names}, {"ban": channel}, {("ban",): ["condition", "rrt"]})
    said = np.where(frame["rrt"] == 1, "yes", "no")
    reports = pd.DataFrame({"condition": frame["condition"].astype(int), "rrt": said})
    clear = frame[["age.c", "leftRight.c", "leftRight"]].set_axis(["age", "lr", "left"], axis=1)
    return mq.tally(reports, policy), clear


def race():
    """Return the list experiment of the package list."""
    frame = pd.read_csv(FOLDER / "race.csv")
    return mq.tally(frame[["treat", "y"]], LIST), frame[["south", "age", "male", "college"]]


def nigeria():
    """Return the forced response of the package rr."""
    columns = ["cov.asset.index", "cov.married", "a10", "a10sq", "cov.education", "cov.female"]
    frame = pd.read_csv(FOLDER / "nigeria.csv").dropna(subset=[*columns, "rr.q1", "civic"])
    clear = frame[[*columns, "civic"]].reset_index(drop=True)
    clear.columns = ["assets", "married", "a10", "a10sq", "education", "female", "civic"]
    policy = mq.Policy.build({"q": ["yes", "no"]}, {"q": mq.channels.forced_response("1/6", "1/6")})
    reports = pd.DataFrame({"q": np.where(frame["rr.q1"] == 1, "yes", "no")})
    return mq.tally(reports, policy), clear


def plagiarism(*needed):
    """Return direct and crosswise answers of GLMMRR together, as strata."""
    frame = pd.read_csv(FOLDER / "plagiarism.csv").dropna(subset=["response", "Gender", "RR", "pp", *needed])
    frame = frame.reset_index(drop=True)
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {"copied": {"categories": ["yes", "no"]}, "RR": {"categories": [0, 1]}},
            "strata": {"by": "RR", "channels": {1: {"copied": {"kind": "warner", "p": 0.25}}}},
        }
    )
    reports = pd.DataFrame(
        {"copied": np.where(frame["response"] == 1, "yes", "no"), "RR": frame["RR"].astype(int)}
    )
    return mq.tally(reports, policy), frame[["Gender", "pp", "age"]]


def near(found, wanted, digits=4):
    np.testing.assert_allclose(found, wanted, atol=0.51 * 10.0**-digits)


def test_a_stochastic_lie_detector_is_rrregs():
    source, clear = minarets()
    fit = mq.stats.logistic(source, "ban[yes, lying] ~ age + lr", covariates=clear)
    near(fit.values, [2.0892, 0.0884, 0.6637])
    near(fit.bse, [0.4798, 0.0895, 0.1794])
    near([fit.llf], [-822.084], 3)
    honest = 1 / (1 + np.exp(-fit.nuisance["coef"].iloc[0]))
    near([honest, honest * (1 - honest) * fit.nuisance["stderr"].iloc[0]], [0.6488, 0.0178])
    near([fit.lr_test("lr").statistic], [21.34], 2)
    assert fit.certificate
    both = mq.stats.logistic(source, "ban[yes, lying] ~ age * lr", covariates=clear)
    near(both.values, [1.8964, 0.0136, 0.6245, -0.0204])
    near(both.bse, [0.38096, 0.06065, 0.15681, 0.01167], 3)  # RRreg has them by differences
    near([both.llf], [-821.084], 3)
    near(both.to_frame()["chi2"], [74.8273, 0.0634, 12.6147, 1.9996])
    assert both.lr_test("age", "lr").df == 3  # a variable's name selects its interactions, too
    assert fit.compare(both)["df"].tolist() == [0, 1]


def test_a_list_experiment_is_the_package_lists():
    """The package's EM stops where ℓ grows by less than 1e-8 a step, up to 0.0006 from the maximum."""
    source, clear = race()
    formula = "angry ~ south + age + male + college"
    fit = mq.stats.logistic(source, formula, covariates=clear, items="binomial")
    printed = [-5.5080, 1.6754, 0.6358, 0.8463, -0.3154]
    near(fit.values, [-5.5082, 1.6755, 0.6358, 0.8464, -0.3153])
    stop, value = stop_of_list(pd.read_csv(FOLDER / "race.csv"))
    near(stop, printed)
    assert value < fit.llf < value + 1e-6
    near(fit.bse, [1.0211, 0.5585, 0.1633, 0.4937, 0.4736])
    near(fit.bse, [1.0210, 0.5585, 0.1633, 0.4937, 0.4736], 3)  # at the stop of the package
    near([fit.llf], [-1444.394], 3)
    free = mq.stats.logistic(source, formula, covariates=clear, items="binomial-free")
    np.testing.assert_allclose(free.values, [-6.2263, 1.3797, 0.6551, 1.3653, -0.1823], atol=6e-4)
    near(free.values, [-6.226, 1.379, 0.655, 1.366, -0.182], 3)
    near([free.llf], [-1441.020], 3)
    test = fit.compare(free).iloc[1]
    assert (test["df"], round(test["chi2"], 2), round(test["p_value"], 2)) == (5, 6.75, 0.24)


def test_a_forced_response_is_the_package_rrs():
    source, clear = nigeria()
    fit = mq.stats.logistic(source, f"q ~ {NIGERIA}", covariates=clear, errors="outer")
    near(fit.values, [-0.3402, 0.0790, -0.2674, -0.3528, 0.0410, -0.0069, -0.5544])
    near(fit.bse, [0.5086, 0.0414, 0.2545, 0.2642, 0.0260, 0.0456, 0.1624])


def test_a_disguised_predictor_is_at_the_maximum_of_its_likelihood():
    source, clear = nigeria()
    formula = f"civic ~ {NIGERIA} + q"
    fit = mq.stats.logistic(source, formula, covariates=clear, reference={"q": "no"})
    near([fit.params["q[T.yes]"], fit.bse["q[T.yes]"]], [0.4066, 0.1611])
    near([fit.llf], [-3127.077], 2)
    near([fit.lr_test("q").statistic], [6.58], 2)
    near(fit.profile("q[T.yes]"), [0.095, 0.729], 3)
    printed, best = value_at_rrs_point((source, clear))  # what rr prints is not at the maximum
    near([printed, best], [-3128.42, fit.llf], 2)


def test_direct_and_crosswise_answers_together_are_glmmrrs():
    source, clear = plagiarism()
    formula = "copied ~ Gender + RR + pp"
    fit = mq.stats.logistic(source, formula, covariates=clear, errors="expected")
    near(fit.values, [-4.7440, 0.0223, 1.2166, 2.2133])
    near(fit.bse, [0.9848, 0.4841, 0.4934, 0.9811])
    # R's glm stops where the deviance changes by less than 1e-8 of itself; its errors are a step older
    frame = pd.read_csv(FOLDER / "plagiarism.csv").dropna(subset=["response", "Gender", "RR", "pp"])
    stop, errors, value = stop_of_glmmrr(frame)
    near(stop, [-4.74412704, 0.02220801, 1.21661336, 2.21346519], 7)
    near(errors, [0.9843652, 0.4840434, 0.4934142, 0.9806478], 6)
    assert value < fit.llf < value + 1e-4
    observed = mq.stats.logistic(source, formula, covariates=clear)
    near(observed.bse, [0.9607, 0.4855, 0.4895, 0.9260])


def test_a_random_intercept_is_glmmrrs():
    source, clear = plagiarism("age")
    fit = mq.stats.logistic(source, "copied ~ Gender + RR + pp + (1 | age)", covariates=clear)
    near(fit.values, [-4.977, 0.107, 1.323, 2.164], 3)
    near([abs(fit.nuisance["coef"].iloc[-1])], [0.3696])
    near([fit.llf], [-403.1341])


def test_a_disguised_predictor_of_a_number_is_at_the_joint_maximum():
    """RRlin fixes the honesty at an earlier estimate: −1.618 (.254), 1.365 (.290) there."""
    source, clear = minarets()
    fit = mq.stats.linear(source, "left ~ ban", covariates=clear, scores={"ban": [1, 0, 1]})
    near(fit.values, [-1.5958, 1.3625])
    near(fit.bse, [0.2408, 0.2774])
    near([np.exp(fit.nuisance["coef"].loc["log sd"])], [1.7498])
    assert "Residual standard deviation 1.7498" in fit.summary()
    # with the honesty t fixed at RRreg's earlier estimate the maximum is what RRlin prints, to all digits
    frame = pd.read_csv(FOLDER / "minarets.csv").query("RRdesign == 1")
    first, second = (frame.loc[frame["condition"] == one, "rrt"].mean() for one in (1, 2))
    share = 1 - (first - second) / (5 / 6 - 1 / 6)
    honest = (first - (1 - share) * 5 / 6) / share
    near([share, honest], [0.8707, 0.6358])
    lying = [*fit.terms, *fit.fit.problem.nuisance].index("ban 3: Intercept")
    likelihood, start = fit.fit.problem.likelihood, fit.fit.solution.beta
    fixed = maximise(likelihood, start, {lying: np.log((1 - honest) / honest)})
    near(fixed.beta[:2], [-1.61795, 1.36462], 5)
    free = np.ix_(fixed.free, fixed.free)
    near(np.sqrt(np.diag(np.linalg.inv(fixed.observed[free])))[:2], [0.25415, 0.29005], 5)
    near([np.exp(fixed.beta[2])], [1.755], 3)
