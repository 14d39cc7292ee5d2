"""Indirect questions: every design against the closed form of its literature, and against published data."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import inf

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import masquerade as mq
from masquerade.core.errors import ChannelError, InputError, PolicyError, QueryRefused

YES = {"x": ["yes", "no"]}
CONTROL = (8, 132, 222, 227, 0)
TREATED = {"race": (19, 123, 229, 219, 34), "affirm": (9, 78, 172, 184, 139)}
LIST = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {"items": {"categories": [0, 1, 2, 3]}, "x": {"categories": ["yes", "no"]}},
        "joint": [
            {
                "variables": ["items", "x"],
                "report": ["treat", "y"],
                "channel": {"kind": "list_experiment", "groups": [0, 1]},
            }
        ],
    }
)
CMDATA = {("same", "same"): 1116, ("same", "different"): 311, ("different", "same"): 425}
CMDATA |= {("different", "different"): 148}


def records(counts, columns):
    """Return a frame with so many rows of every combination of labels."""
    rows = [labels for labels, count in counts.items() for _ in range(count)]
    return pd.DataFrame(rows, columns=list(columns))


def source_of(variables, channel, counts):
    """Return a source of reports in the columns of a design of one variable, or of several."""
    names = tuple(variables)
    policy = mq.Policy.build(variables, {names if len(names) > 1 else names[0]: channel})
    return mq.tally(records(counts, policy.observed), policy)


def share(source, category="yes", name="x"):
    found = mq.stats.shares(source, name)
    at = [row[0] for row in found.labels].index(category)
    return found.values[at], found.stderr[at]


ONE_GROUP = {  # with p the chances of "yes": (λ − P(yes | no)) / (P(yes | yes) − P(yes | no))
    "warner": (mq.channels.warner("0.3"), 0.3, 0.7),
    "unrelated": (mq.channels.unrelated_question("0.7", "0.25"), 0.775, 0.075),
    "forced": (mq.channels.forced_response("1/6", "1/6"), 5 / 6, 1 / 6),
    "kuk": (mq.channels.kuk("0.8", "0.2"), 0.2, 0.8),
    "crosswise": (mq.channels.crosswise("0.15"), 0.15, 0.85),
    "triangular": (mq.channels.triangular("0.25"), 1.0, 0.25),
    "mangat": (mq.channels.mangat("0.6"), 1.0, 0.4),
}


@pytest.mark.parametrize("name", ONE_GROUP)
def test_designs_of_one_group_are_their_closed_forms(name):
    channel, if_yes, if_no = ONE_GROUP[name]
    n, said = 1000, 443
    policy = mq.Policy.build(YES, {"x": channel})
    first, second = policy.observed["x"].categories
    source = mq.tally(pd.DataFrame({"x": [first] * said + [second] * (n - said)}), policy)
    lam = said / n
    wanted = (lam - if_no) / (if_yes - if_no), np.sqrt(lam * (1 - lam) / (n - 1)) / abs(if_yes - if_no)
    assert share(source) == pytest.approx(wanted, rel=1e-9)


GROUPS = {(1, "yes"): 190, (1, "no"): 310, (2, "yes"): 420, (2, "no"): 180}
THREE = {"x": ["yes", "no", "other"]}


def lambdas():
    n = (500, 600)
    lam = (190 / 500, 420 / 600)
    return lam, [x * (1 - x) / m for x, m in zip(lam, n, strict=True)]


def test_cheater_detection_is_clarks_and_desharnais():
    (l1, l2), (v1, v2) = lambdas()
    p, q = 0.2, 0.8
    source = source_of(THREE, mq.channels.cheater_detection(["0.2", "0.8"]), GROUPS)
    yes = (q * l1 - p * l2) / (q - p), np.sqrt(q**2 * v1 + p**2 * v2) / (q - p)
    no = (l2 - l1) / (q - p), np.sqrt(v1 + v2) / (q - p)
    assert share(source) == pytest.approx(yes, rel=1e-3)
    assert share(source, "no") == pytest.approx(no, rel=1e-3)
    cheat = 1 - yes[0] - no[0], np.sqrt((1 - q) ** 2 * v1 + (1 - p) ** 2 * v2) / (q - p)
    assert share(source, "other") == pytest.approx(cheat, rel=1e-3)


def test_symmetric_cheater_detection_is_ostapczuks():
    (l1, l2), (v1, v2) = lambdas()
    a, b, c, d = 0.2, 0.1, 0.7, 0.05  # forced yes and no, in both groups
    channel = mq.channels.cheater_detection([a, c], [b, d])
    source = source_of(THREE, channel, GROUPS)
    below = c * (1 - b) - a * (1 - d)
    yes = (c * l1 - a * l2) / below, np.sqrt(c**2 * v1 + a**2 * v2) / abs(below)
    assert share(source) == pytest.approx(yes, rel=1e-3)
    cheat = -((a - l1) * (1 - c - d) - (c - l2) * (1 - a - b)) / below
    assert share(source, "other")[0] == pytest.approx(cheat, rel=1e-9)


def test_the_stochastic_lie_detector_is_moshagens():
    (l1, l2), (v1, v2) = lambdas()
    p1, p2 = 0.8, 0.4
    source = source_of(THREE, mq.channels.stochastic_lie_detector([p1, p2]), GROUPS)
    prevalence = 1 - (l1 - l2) / (p2 - p1)
    table = mq.stats.contrast(source.answer([mq.Query(by=("x",))])[0], [1, 0, 1])
    assert table.values[0] / 1100 == pytest.approx(prevalence, rel=1e-9)
    assert table.stderr[0] / 1100 == pytest.approx(np.sqrt(v1 + v2) / (p1 - p2), rel=1e-3)
    honest = (l2 * (1 - p1) - l1 * (1 - p2)) / (l2 - l1 + p2 - p1)  # among carriers
    assert share(source)[0] / prevalence == pytest.approx(honest, rel=1e-9)


def test_an_unrelated_question_of_unknown_prevalence_is_greenbergs():
    (l1, l2), (v1, v2) = lambdas()
    p1, p2 = 0.7, 0.2
    both = {"x": ["yes", "no"], "u": ["yes", "no"]}
    source = source_of(both, mq.channels.unrelated_unknown([p1, p2]), GROUPS)
    wanted = (l1 * (1 - p2) - l2 * (1 - p1)) / (p1 - p2)
    error = np.sqrt(v1 * (1 - p2) ** 2 + v2 * (1 - p1) ** 2) / (p1 - p2)
    assert share(source) == pytest.approx((wanted, error), rel=1e-3)
    assert share(source, name="u")[0] == pytest.approx((p2 * l1 - p1 * l2) / (p2 - p1), rel=1e-9)
    with pytest.raises(QueryRefused, match="does not follow"):
        source.answer([mq.Query(by=("x", "u"))])


@pytest.mark.parametrize(
    ("name", "estimate", "error", "distance"),
    [("race", 0.0678, 0.0495, 4.09), ("affirm", 0.4947, 0.0542, 0.07)],
)
def test_list_experiments_are_the_published_differences_of_means(name, estimate, error, distance):
    counts = {(0, y): count for y, count in enumerate(CONTROL)}
    counts |= {(1, y): count for y, count in enumerate(TREATED[name])}
    source = mq.tally(records(counts, ("treat", "y")), LIST)
    control, treated = (np.repeat(np.arange(5), row) for row in (CONTROL, TREATED[name]))
    gap = treated.mean() - control.mean()
    classical = np.sqrt(treated.var() / len(treated) + control.var() / len(control))
    found = share(source)
    assert found == pytest.approx((gap, classical), rel=1e-3)
    assert found[0] == pytest.approx(estimate, abs=1e-4)
    assert found[1] == pytest.approx(error, abs=1e-4)
    # the shares of those who answer yes and hold j others: Pr(Y ≤ j | control) − Pr(Y ≤ j | treated)
    ours = mq.stats.shares(source, ["items", "x"]).values[::2]
    sums = [np.cumsum(row) / sum(row) for row in (CONTROL, TREATED[name])]
    np.testing.assert_allclose(ours, (sums[0] - sums[1])[:4], atol=1e-9)
    misfit = source.misfit(["items", "x"])
    assert misfit.statistic == pytest.approx(distance, abs=0.005)
    assert mq.privacy(LIST).record_gamma == inf


def test_a_group_that_is_no_sample_of_known_size_is_less_precise():
    """Without columns the group is taken as drawn anew, as methods state: 0.0552 for race."""
    counts = [*CONTROL[:4], *TREATED["race"]]
    labels = [f"c{y}" for y in range(4)] + [f"t{y}" for y in range(5)]
    rows = np.zeros((8, 9), dtype=object)
    for held, sensitive in product(range(4), range(2)):  # the share of the control group as it was
        rows[2 * held + sensitive, held] = Fraction(589, 1213)
        rows[2 * held + sensitive, 4 + held + 1 - sensitive] = Fraction(624, 1213)
    channel = mq.channels.matrix(rows.tolist(), labels)
    names = ("items", "x")
    policy = mq.Policy.build({"items": [0, 1, 2, 3], "x": ["yes", "no"]}, {names: channel}, {names: "said"})
    source = mq.tally(pd.DataFrame({"said": np.repeat(labels, counts)}), policy)
    assert share(source) == pytest.approx((0.0678, 0.0552), abs=1e-4)


def test_double_lists_agree_with_the_mean_of_two_differences():
    generator = np.random.default_rng(5)
    n = 4000
    people = pd.DataFrame(
        {
            "a": generator.binomial(3, 0.5, n),
            "b": generator.binomial(2, 0.4, n),
            "x": np.where(generator.random(n) < 0.3, "yes", "no"),
        }
    )
    channel = mq.channels.double_list(3, 2)
    assert np.linalg.matrix_rank(channel.matrix) == 24
    variables = {"a": [0, 1, 2, 3], "b": [0, 1, 2], "x": ["yes", "no"]}
    policy = mq.Policy.build(variables, {("a", "b", "x"): channel})
    seen = mq.simulate(people, policy, seed=3)
    assert list(seen.columns) == ["group", "first", "second"]
    held = seen["group"] == "first"
    sizes = held.sum(), (~held).sum()
    gaps = seen["first"] - seen["second"]  # in the first group one more if the answer is yes
    classical = (gaps[held].mean() - gaps[~held].mean()) / 2
    error = np.sqrt(gaps[held].var() / sizes[0] + gaps[~held].var() / sizes[1]) / 2
    found = share(mq.tally(seen, policy))
    assert abs(found[0] - classical) < 5 * error
    assert abs(found[0] - (people["x"] == "yes").mean()) < 5 * found[1]
    assert found[1] < 1.02 * error


def test_crosswise_with_an_anchor_is_the_published_data():
    n, p = 2000, 0.15
    source = source_of({"x": ["yes", "no", "inattentive"]}, mq.channels.crosswise("0.15", "0.15"), CMDATA)
    lam, anchored = 1427 / n, 1541 / n
    naive, attentive = (lam + p - 1) / (2 * p - 1), (anchored - 0.5) / (0.5 - p)
    assert (naive, attentive) == pytest.approx((0.1950, 0.7729), abs=1e-4)
    # as if the two answers were of different people: the published correction
    assert (naive - (1 - attentive) / 2) / attentive == pytest.approx(0.1054, abs=1e-4)
    table = source.answer([mq.Query(by=("x",))])[0]
    fit = table.fit([["x"]])
    yes, no, other = fit.expected / n
    assert yes / (yes + no) == pytest.approx(0.1194, abs=1e-4)
    assert 1 - other == pytest.approx(0.7877, abs=1e-4)
    # the standard error of the share of yes among the attentive, by the expected information
    P = np.asarray(mq.channels.crosswise("0.15", "0.15").matrix)
    theta = fit.expected / n
    V = np.linalg.inv(n * (P / (theta @ P)) @ P.T) - np.outer(theta, theta) / n
    slope = np.array([no, -yes, 0]) / (yes + no) ** 2
    assert np.sqrt(slope @ V @ slope) == pytest.approx(0.0202, abs=1e-4)
    assert fit.contrast(slope / n).stderr == pytest.approx(0.0202, rel=0.02)  # by the observed one
    assert source.misfit(["x"]).statistic == pytest.approx(fit.deviance, rel=1e-6)


def test_more_cheaters_than_a_policy_knows_are_seen_by_the_misfit():
    """A design of two groups without a third truth: who always says no fits no prevalence."""
    policy = mq.Policy.build({"x": ["yes", "no", "cheat"]}, {"x": mq.channels.cheater_detection([0.2, 0.8])})
    rows = list(policy.group("x").matrix_channel.rows[:2])
    columns = {"group": [1, 2], "answer": ["yes", "no"]}
    strict = mq.Policy.build(YES, {"x": mq.channels.matrix(rows, columns=columns)})
    cheats = {(1, "yes"): 160, (1, "no"): 340, (2, "yes"): 250, (2, "no"): 250}
    honest = {(1, "yes"): 200, (1, "no"): 300, (2, "yes"): 425, (2, "no"): 75}
    p_values = [mq.tally(records(c, strict.observed), strict).misfit(["x"]).p_value for c in (cheats, honest)]
    assert p_values[0] < 1e-6
    assert p_values[1] > 0.05
    assert mq.tally(records(cheats, policy.observed), policy).misfit(["x"]).p_value > 0.05


def test_designs_are_written_and_read_and_say_what_is_wrong():
    for policy in (
        LIST,
        mq.Policy.build(THREE, {"x": mq.channels.cheater_detection([0.2, 0.8])}),
        mq.Policy.build(THREE, {"x": mq.channels.crosswise("0.2", "0.3")}, {("x",): ["said", "anchored"]}),
    ):
        again = mq.Policy.from_dict(policy.to_dict())
        assert again == policy
        assert list(again.observed) == list(policy.observed)
    assert list(LIST.observed) == ["treat", "y"]
    with pytest.raises(ChannelError, match="one for each group"):
        mq.channels.cheater_detection([0.2])
    with pytest.raises(ChannelError, match="from 1 to 30"):
        mq.channels.list_experiment(0)
    with pytest.raises(ChannelError, match="between 0 and 1"):
        mq.channels.list_experiment(3, share=0)
    with pytest.raises(ChannelError, match="at least two"):
        mq.channels.self_protective_no([mq.channels.warner("0.7")])
    spec = {"masquerade": 1, "variables": {"x": {"categories": ["yes", "no"]}}}
    spec["variables"]["x"]["channel"] = {"kind": "list_experiment"}
    with pytest.raises(PolicyError, match="for 2 variables together"):
        mq.Policy.from_dict(spec)
    names = ("items", "x")
    with pytest.raises(PolicyError, match="as many names in 'report'"):
        mq.Policy.build(
            {"items": [0, 1], "x": ["yes", "no"]}, {names: mq.channels.list_experiment(1)}, {names: ["y"]}
        )


def test_a_self_protective_no_is_told_by_a_model_of_the_items():
    """Independent items: shares and the share of who says no to all, against a search of the likelihood."""
    item = mq.channels.forced_response("1/6", "1/6")
    names = ("a", "b", "c", "rule")
    variables = dict.fromkeys(names[:3], ("yes", "no")) | {"rule": ("follows", "protective")}
    channel = mq.channels.self_protective_no([item] * 3)
    policy = mq.Policy.build(variables, {names: channel})
    shares, protective = np.array([0.3, 0.4, 0.25]), 0.15
    rates = 1 / 6 + 2 / 3 * shares
    profiles = np.array([np.prod(np.where(row, 1 - rates, rates)) for row in np.ndindex(2, 2, 2)])
    chances = (1 - protective) * profiles + protective * (np.arange(8) == 7)
    counts = np.random.default_rng(6).multinomial(20_000, chances)
    labels = [("yes", "no")[i] for i in range(2)]
    seen = {tuple(labels[i] for i in row): int(counts[k]) for k, row in enumerate(np.ndindex(2, 2, 2))}
    source = mq.tally(records(seen, policy.observed), policy)
    with pytest.raises(QueryRefused, match="no table can be queried"):
        source.answer([mq.Query(by=("a",))])
    fit = source.fit(names, ["a", "b", "c", "rule"])
    assert (fit.df, fit.converged) == (3, True)
    weights = np.zeros((4, 2, 2, 2, 2))
    weights[0, 0], weights[1, :, 0], weights[2, :, :, 0], weights[3, ..., 1] = 1, 1, 1, 1
    found = fit.contrast(weights / 20_000)
    truth = np.append(shares, protective)
    assert np.all(np.abs(found.value - truth) < 5 * found.stderr)

    def minus(parameters):
        rate = 1 / 6 + 2 / 3 * parameters[:3]
        said = np.array([np.prod(np.where(row, 1 - rate, rate)) for row in np.ndindex(2, 2, 2)])
        return -counts @ np.log((1 - parameters[3]) * said + parameters[3] * (np.arange(8) == 7))

    best = minimize(
        minus, truth, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9, "maxiter": 4000}
    )
    np.testing.assert_allclose(found.value, best.x, atol=1e-4)
    with pytest.raises(InputError, match="more parameters"):
        source.fit(names, [["a", "b", "c", "rule"]])


def test_shares_among_those_who_follow_the_design():
    """Cheater detection: yes/(yes + no), its error by the delta method."""
    channel = mq.channels.cheater_detection([0.1, 0.6])
    counts = [150, 350, 260, 240]
    codes = np.repeat(np.arange(4), counts)
    frame = pd.DataFrame({"x_group": codes // 2 + 1, "x_answer": np.where(codes % 2, "no", "yes")})
    source = mq.tally(frame, mq.Policy.build({"x": ["yes", "no", "cheat"]}, {"x": channel}))
    found = mq.stats.shares(source, "x", among=["yes", "no"])
    (table,) = source.answer([mq.Query(by="x")])
    yes, no, _ = table.values
    slope = np.array([no, -yes, 0]) / (yes + no) ** 2
    assert found.values == pytest.approx([yes / (yes + no), no / (yes + no)])
    assert found.stderr[0] == pytest.approx(np.sqrt(slope @ table.covariance.dense() @ slope), rel=1e-3)
    assert found.lower[0] < found.values[0] < found.upper[0]
    assert found.heading.startswith("Shares of x among yes, no")
    for among in (["yes"], "yes", ["yes", "perhaps"]):
        with pytest.raises(mq.MasqueradeError):
            mq.stats.shares(source, "x", among=among)
