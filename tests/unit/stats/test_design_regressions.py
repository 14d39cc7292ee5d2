"""Regressions of group and multi-parameter designs: the likelihood by hand, and simulated studies."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
from scipy.special import comb, expit

import masquerade as mq
from masquerade.core.errors import InputError, PolicyError
from masquerade.stats.regression.item_tests import boundary_tail
from masquerade.stats.regression.profile import ratio_statistic

C = mq.channels
YES = ["yes", "no"]
SLOPE = 0.8
RUNS = 30
MISSED = 13  # P(Binomial(30, .08) > 13) < 1e-6
ITEM = C.forced_response("1/6", "1/6")
MIXED = {
    "masquerade": 1,
    "variables": {"x": {"categories": YES}, "mode": {"categories": ["direct", "crosswise", "triangular"]}},
    "strata": {
        "by": "mode",
        "channels": {
            "crosswise": {"x": {"kind": "crosswise", "p": 0.2}},
            "triangular": {"x": {"kind": "triangular", "p": 0.25}},
        },
    },
}


def answers(truth):
    return np.where(truth, "yes", "no")


def items(k, size, eta):
    """Return the binomial probabilities of k items, 0 where k is impossible."""
    p, inside = expit(eta), np.clip(k, 0, size)
    return np.where(k == inside, comb(size, inside) * p**inside * (1 - p) ** (size - inside), 0.0)


@dataclass(frozen=True)
class Design:
    """A policy, how its truths are drawn, and the likelihood of a report by hand."""

    policy: mq.Policy
    draw: object
    by_hand: object
    formula: str = "x ~ z"
    options: dict = field(default_factory=dict)


def draw_double(draw, yes, n):
    return {"a": draw.binomial(3, 0.5, n), "b": draw.binomial(2, 0.4, n), "x": answers(yes)}


def double_by_hand(b, seen, z):
    held = (seen["group"] == "first").to_numpy()
    first, second = seen["first"].to_numpy(), seen["second"].to_numpy()
    eta_a, eta_b = b[2] + b[3] * z, b[4] + b[5] * z
    p = expit(b[0] + b[1] * z)
    yes = items(first - held, 3, eta_a) * items(second - ~held, 2, eta_b)
    return p * yes + (1 - p) * items(first, 3, eta_a) * items(second, 2, eta_b)


def draw_anchor(draw, yes, n):
    return {"x": np.where(draw.random(n) < 0.15, "inattentive", answers(yes))}


def anchor_by_hand(b, seen, z):
    same, anchored = (seen[name].to_numpy() == "same" for name in seen.columns)
    p, attends = expit(b[0] + b[1] * z), expit(b[2])
    told = p * np.where(same, 0.15, 0.85) + (1 - p) * np.where(same, 0.85, 0.15)
    return attends * told * np.where(anchored, 0.85, 0.15) + (1 - attends) / 4


def draw_unrelated(draw, yes, n):
    return {"x": answers(yes), "u": answers(draw.random(n) < 0.4)}


def unrelated_by_hand(b, seen, z):
    asked = np.where(seen["group"].to_numpy() == 1, 0.8, 0.2)
    said = seen["answer"].to_numpy() == "yes"
    chance = asked * expit(b[0] + b[1] * z) + (1 - asked) * (1 - expit(b[2]))
    return np.where(said, chance, 1 - chance)


def draw_items(draw, yes, n):
    other = draw.random(n) < np.where(yes, 0.6, 0.2)
    third = draw.random(n) < np.where(yes, 0.5, 0.3)
    rule = np.where(draw.random(n) < 0.15, "protective", "follows")
    return {"x": answers(yes), "b": answers(other), "c": answers(third), "rule": rule}


def items_by_hand(b, seen, z):
    told = [seen[name].to_numpy() == "yes" for name in ("item1", "item2", "item3")]
    p = expit(b[0] + b[1] * z)
    follows = np.zeros(len(z))
    for x, second, third in np.ndindex(2, 2, 2):  # 0 is yes
        chance = np.where(x == 0, p, 1 - p)
        for answer, eta in ((second, b[2] + b[3] * x), (third, b[4] + b[5] * x + b[6] * second)):
            chance = chance * (expit(eta) if answer else 1 - expit(eta))
        for said, truth in zip(told, (x, second, third), strict=True):
            yes = 5 / 6 if truth == 0 else 1 / 6
            chance = chance * np.where(said, yes, 1 - yes)
        follows += chance
    protects = expit(b[7])
    return protects * ~(told[0] | told[1] | told[2]) + (1 - protects) * follows


def draw_mixed(_, yes, n):
    return {"x": answers(yes), "mode": np.array(["direct", "crosswise", "triangular"])[np.arange(n) % 3]}


def mixed_by_hand(b, seen, z):
    p = expit(b[0] + b[1] * z)
    said = {"yes": p, "no": 1 - p, "same": 0.8 - 0.6 * p, "different": 0.2 + 0.6 * p}
    said |= {"triangle": 0.25 + 0.75 * p, "circle": 0.75 * (1 - p)}
    labels = seen["x"].to_numpy()
    return np.select([labels == label for label in said], list(said.values()))


DESIGNS = {
    "double list": Design(
        mq.Policy.build(
            {"a": [0, 1, 2, 3], "b": [0, 1, 2], "x": YES}, {("a", "b", "x"): C.double_list(3, 2)}
        ),
        draw_double,
        double_by_hand,
        options={"items": "binomial"},
    ),
    "crosswise with anchor": Design(
        mq.Policy.build({"x": [*YES, "inattentive"]}, {"x": C.crosswise("0.15", "0.15")}),
        draw_anchor,
        anchor_by_hand,
        "x[yes] ~ z",
        {"among": YES, "nuisance": {"inattentive": "~ 1"}},
    ),
    "unrelated question": Design(
        mq.Policy.build({"x": YES, "u": YES}, {("x", "u"): C.unrelated_unknown([0.8, 0.2])}),
        draw_unrelated,
        unrelated_by_hand,
    ),
    "several items": Design(
        mq.Policy.build(
            dict.fromkeys(("x", "b", "c"), YES) | {"rule": ["follows", "protective"]},
            {("x", "b", "c", "rule"): C.self_protective_no([ITEM] * 3)},
        ),
        draw_items,
        items_by_hand,
        options={"nuisance": {"b": "~ x", "c": "~ x + b"}},
    ),
    "strata": Design(mq.Policy.from_dict(MIXED), draw_mixed, mixed_by_hand),
}


LONG = ("double list", "several items")
QUICK = [name for name in DESIGNS if name not in LONG]


def study(design, seed, n=1500):
    """Return reports, their source and the covariate of one simulated survey with slope 0.8."""
    draw = np.random.default_rng(seed)
    z = draw.standard_normal(n)
    yes = draw.random(n) < expit(-0.7 + SLOPE * z)
    seen = mq.simulate(pd.DataFrame(design.draw(draw, yes, n)), design.policy, seed=seed)
    return seen, mq.tally(seen, design.policy), z


def fit_of(design, source, z):
    return mq.stats.logistic(source, design.formula, covariates=pd.DataFrame({"z": z}), **design.options)


@pytest.mark.parametrize("name", DESIGNS)
def test_a_design_maximises_the_likelihood_written_by_hand(name):
    design = DESIGNS[name]
    seen, source, z = study(design, 1)
    fit = fit_of(design, source, z)
    beta = np.concatenate([fit.values, fit.nuisance["coef"]])

    def value(b):
        return float(np.log(design.by_hand(b, seen, z)).sum())

    assert fit.certificate
    assert fit.llf == pytest.approx(value(beta), abs=1e-6)
    slopes = [(value(beta + e) - value(beta - e)) / 2e-5 for e in 1e-5 * np.eye(len(beta))]
    np.testing.assert_allclose(slopes, 0, atol=2e-4)
    observed = np.array([fit.bse["z"], abs(fit.params["z"] - SLOPE)])
    assert observed[1] < 5 * observed[0]  # false alarm 6e-7


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)])
def test_slopes_of_simulated_surveys_are_unbiased_and_covered(name):
    """Thirty surveys of 1,500 people.

    The mean of (estimate − truth)/error is within 6/√30 of 0 (errors vary, and estimates are skewed), and the
    95% profile interval misses the truth at most 13 times, which happens with chance < 1e-6 at coverage .92.
    """
    design = DESIGNS[name]
    missed, gaps = 0, []
    for seed in range(100, 100 + RUNS):
        _, source, z = study(design, seed)
        fit = fit_of(design, source, z).fit
        likelihood, solution = fit.problem.likelihood, fit.solution
        missed += ratio_statistic(likelihood, solution, {1: SLOPE}, fit.problem.starts[1:]) > 3.8415
        gaps.append((solution.beta[1] - SLOPE) / np.sqrt(fit.covariance[1, 1]))
    assert missed <= MISSED
    assert abs(np.mean(gaps)) < 6 / np.sqrt(RUNS)


def test_items_of_a_list_are_tested_against_larger_models():
    _, source, z = study(DESIGNS["double list"], 2)
    fit = mq.stats.logistic(source, "x ~ z", covariates=pd.DataFrame({"z": z}))
    notes = [note for note in fit.notes if note.startswith("Against")]
    assert len(notes) == 3
    larger = fit_of(Design(None, None, None, options={"items": "binomial-free"}), source, z)
    row = fit.compare(larger).iloc[1]
    assert f"LR {row['chi2']:.2f}, df {row['df']:.0f}" in notes[0]
    assert "df 2 on the boundary," in notes[1]  # two overdispersions
    assert boundary_tail(0.0, 1) == 1
    assert boundary_tail(2.7055, 1) == pytest.approx(0.05, abs=1e-5)
    assert boundary_tail(3.0, 2) == pytest.approx(0.0833 / 2 + np.exp(-1.5) / 4, abs=1e-4)


def test_wrong_items_are_found_by_their_test():
    """Two of the three items always hold: no binomial number. P(p > 1e-6) is far below 1e-6 at n = 1,500."""
    draw = np.random.default_rng(4)
    z = draw.standard_normal(1500)
    truth = pd.DataFrame({"k": 2 + draw.integers(0, 2, 1500), "x": answers(draw.random(1500) < 0.3)})
    policy = mq.Policy.build({"k": [0, 1, 2, 3], "x": YES}, {("k", "x"): C.list_experiment(3)})
    source = mq.tally(mq.simulate(truth, policy, seed=4), policy)
    fit = mq.stats.logistic(source, "x ~ z", covariates=pd.DataFrame({"z": z}))
    last = next(note for note in fit.notes if "multinomial" in note)
    assert "p <0.0001. Fit with items='multinomial' as well." in last


def test_shares_are_given_of_all_and_of_people_who_follow_the_design():
    design = DESIGNS["crosswise with anchor"]
    _, source, z = study(design, 5, n=4000)
    clear = pd.DataFrame({"z": z})
    honest = fit_of(design, source, z)
    everyone = mq.stats.logistic(source, "x[yes] ~ z", covariates=clear, nuisance={"inattentive": "~ 1"})
    for fit in (honest, everyone):
        rows = {row: i for i, row in enumerate(fit.outcome_shares().labels)}
        shares = fit.outcome_shares()
        assert shares.values[[rows[(x, "all")] for x in ("yes", "no", "inattentive")]].sum() == pytest.approx(
            1
        )
        assert abs(shares.values[rows[("inattentive", "all")]] - 0.15) < 5 * shares.stderr[2]
        ratio = shares.values[rows[("yes", "all")]] / (1 - shares.values[rows[("inattentive", "all")]])
        assert shares.values[rows[("yes", "yes, no")]] == pytest.approx(ratio)
        assert "of all; yes" in fit.summary()
        assert "of yes, no." in fit.summary()
    # a model of one intercept: the shares of the table itself, which are those of the likelihood
    plain = mq.stats.logistic(source, "x[yes] ~ 1", among=YES)
    table = source.answer([mq.Query(by="x")])[0].fit([["x"]])
    share = plain.outcome_shares()
    np.testing.assert_allclose(share.values[:3], table.expected / 4000, atol=1e-6)
    errors = [table.contrast(row / 4000).stderr for row in np.eye(3)]
    np.testing.assert_allclose(share.stderr[:3], errors, rtol=0.02)
    linear = mq.stats.linear(source, "z ~ 1", covariates=clear)
    with pytest.raises(InputError, match="logistic regressions"):
        linear.outcome_shares()


def test_nuisance_parameters_are_constant_or_depend_on_covariates():
    draw = np.random.default_rng(8)
    n = 6000
    z = draw.standard_normal(n)
    carrier = draw.random(n) < expit(0.3 + SLOPE * z)
    lies = carrier & (draw.random(n) < expit(-0.5 + 0.9 * z))
    truth = pd.DataFrame({"x": np.where(lies, "lying", answers(carrier))})
    policy = mq.Policy.build({"x": [*YES, "lying"]}, {"x": C.stochastic_lie_detector(["1/6", "5/6"])})
    source = mq.tally(mq.simulate(truth, policy, seed=8), policy)
    clear = pd.DataFrame({"z": z})
    constant = mq.stats.logistic(source, "x[yes, lying] ~ z", covariates=clear)
    free = mq.stats.logistic(source, "x[yes, lying] ~ z", covariates=clear, nuisance={"lying": "~ z"})
    assert len(constant.nuisance) == 1
    assert list(free.nuisance.index) == ["yes | yes, lying: Intercept", "yes | yes, lying: z"]
    found, error = free.nuisance.iloc[1]
    assert abs(found + 0.9) < 5 * error
    assert abs(free.params["z"] - SLOPE) < 5 * free.bse["z"]
    row = constant.compare(free).iloc[1]
    assert row["df"] == 1
    assert row["p_value"] < 1e-6


def test_several_items_in_long_form_have_a_random_intercept_or_clusters():
    """One row per person and item; the channel may differ by item. A person's answers go together."""
    draw = np.random.default_rng(9)
    people = 500
    person, item = np.repeat(np.arange(people), 3), np.tile(["a", "b", "c"], people)
    z = np.repeat(draw.standard_normal(people), 3)
    eta = -0.5 + 0.7 * (item == "b") + SLOPE * z + np.repeat(draw.standard_normal(people), 3)
    truth = pd.DataFrame({"x": answers(draw.random(3 * people) < expit(eta)), "item": item})
    channels = {"a": {"x": {"kind": "warner", "p": 0.2}}, "b": {"x": {"kind": "crosswise", "p": 0.15}}}
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {"x": {"categories": YES}, "item": {"categories": ["a", "b", "c"]}},
            "strata": {"by": "item", "channels": channels},
        }
    )
    source = mq.tally(mq.simulate(truth, policy, seed=9), policy)
    clear = pd.DataFrame({"z": z, "person": person})
    formula = "x ~ item + z"
    mixed = mq.stats.logistic(source, f"{formula} + (1 | person)", covariates=clear)
    assert abs(mixed.values[-1] - SLOPE) < 5 * np.sqrt(mixed.covariance[-1, -1])
    assert 0.4 < abs(mixed.nuisance["coef"].iloc[-1]) < 1.8
    by = mq.stats.logistic(source, formula, covariates=clear, clusters="person")
    alone = mq.stats.logistic(source, formula, covariates=clear)
    assert by.bse["z"] > alone.bse["z"]  # answers of a person go together
    assert "CR2, 500 clusters" in by.remarks[0]


def test_a_direct_question_next_to_a_lie_detector_is_merged():
    """Asked directly, carriers who lie say no: the analyst states it, the rest is one likelihood."""
    draw = np.random.default_rng(10)
    n = 4000
    z = draw.standard_normal(n)
    carrier = draw.random(n) < expit(0.2 + SLOPE * z)
    lies = carrier & (draw.random(n) < 0.3)
    truth = pd.DataFrame({"x": np.where(lies, "lying", answers(carrier))})
    schema = {"x": [*YES, "lying"]}
    direct = mq.Policy.build(schema, {"x": C.matrix([[1, 0], [0, 1], [0, 1]], YES)})
    detector = mq.Policy.build(schema, {"x": C.stochastic_lie_detector(["1/6", "5/6"])})
    parts = [(truth[:2000], direct), (truth[2000:], detector)]
    sources = [mq.tally(mq.simulate(part, policy, seed=10), policy) for part, policy in parts]
    both = mq.stats.logistic(mq.Merged(sources), "x[yes, lying] ~ z", covariates=pd.DataFrame({"z": z}))
    half = mq.stats.logistic(sources[1], "x[yes, lying] ~ z", covariates=pd.DataFrame({"z": z[2000:]}))
    assert abs(both.params["z"] - SLOPE) < 5 * both.bse["z"]
    assert both.bse["z"] < half.bse["z"]


def test_reports_of_a_different_stratum_are_refused():
    design = DESIGNS["strata"]
    seen, _, _ = study(design, 3, n=300)
    wrong = seen.copy()
    wrong.loc[0, "x"] = "same"  # a label of the crosswise model, given to a direct question
    with pytest.raises(InputError, match="where mode = direct has a label of a different design"):
        mq.tally(wrong, design.policy)
    table = mq.stats.shares(mq.tally(seen, design.policy), "x", by="mode")
    assert len(table) == 6
    assert mq.Policy.from_dict(design.policy.to_dict()) == design.policy
    several = {
        **MIXED,
        "strata": {"by": "mode", "channels": {"direct": {"x": {"kind": "cheater_detection"}}}},
    }
    several["strata"]["channels"]["direct"]["x"]["p"] = [0.2, 0.8]
    with pytest.raises(PolicyError):
        mq.Policy.from_dict(several)
