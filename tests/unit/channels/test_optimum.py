"""Optimal channels: known optima, certificates that hold, exact weights that never raise γ."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import masquerade as mq
from masquerade.channels import optimum, staircase
from masquerade.channels.block_designs import best_subset_size, staircase_channel, subset_second_moment
from masquerade.channels.privacy_level import gamma_of
from masquerade.core.errors import ChannelError, PolicyError

# Ye & Barg (2018): tr M⁻¹ of the best subset selection, uniform prior
YE_BARG = {
    (4, "0.5"): 37.7593,
    (5, "0.5"): 50.4587,
    (6, "0.5"): 66.0725,
    (8, "0.5"): 96.1114,
    (4, "1"): 8.5562,
    (5, "1"): 12.4298,
    (6, "1"): 15.8753,
    (8, "1"): 22.7364,
    (4, "2"): 2.2331,
    (5, "2"): 2.7421,
    (6, "2"): 3.3001,
    (8, "2"): 4.5631,
}


def enumerated(categories, epsilon, wanted=None, prior=None):
    columns = staircase.staircase_columns(categories, math.exp(epsilon))
    theta = np.full(categories, 1 / categories) if prior is None else prior
    return staircase.solve(
        staircase.DesignProblem(columns, theta, np.eye(categories) if wanted is None else wanted)
    )


@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 3])
@pytest.mark.parametrize("categories", [3, 4, 5, 6, 8])
def test_the_convex_optimum_is_the_best_subset_selection_with_a_certificate(categories, epsilon):
    found = enumerated(categories, epsilon)
    gamma = Fraction(math.exp(epsilon))
    best = min(subset_second_moment(categories, gamma, size) for size in range(1, categories))
    assert found.value == pytest.approx(float(best), abs=1e-6)
    assert 0 <= found.value - found.bound <= 1e-6


@pytest.mark.parametrize(("key", "value"), YE_BARG.items())
def test_the_table_of_known_optima(key, value):
    categories, epsilon = key
    found = mq.channels.optimal_design(categories, epsilon=epsilon)
    assert found.value == pytest.approx(value, abs=6e-5)
    assert found.gap <= 1e-6
    assert found.channel.epsilon <= float(epsilon)


def test_the_best_size_is_not_always_the_nearest():
    assert best_subset_size(7, gamma_of(epsilon="1.3")) == 2  # 7/(γ+1) = 1.50
    for categories, epsilon in itertools.product((3, 7, 20, 50), (0.3, 1.0, 2.5)):
        gamma = gamma_of(epsilon=epsilon)
        values = [subset_second_moment(categories, gamma, size) for size in range(1, categories)]
        assert best_subset_size(categories, gamma) == 1 + values.index(min(values))


def test_cumulative_counts_beat_what_was_published():
    found = mq.channels.optimal_design(8, epsilon=1, queries="cumulative")
    average = found.value - np.trace(np.tri(8).T @ np.tri(8)) / 8  # over truths that are all of one category
    assert average <= 23.04
    assert found.gap <= 1e-6
    assert found.channel.reports <= 8 * 9 // 2 + 1


def test_a_bound_holds_for_every_channel_that_is_tried():
    """No convex combination of other channels with the same γ comes below the certificate."""
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    rows = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    found = mq.channels.optimal_design(4, 3, queries=rows, prior=prior)
    assert found.gap < 1e-8
    rng = np.random.default_rng(5)
    columns = staircase.staircase_columns(4, 3.0)
    problem = staircase.DesignProblem(columns, prior, rows.T @ rows)
    for _ in range(200):
        mixed = rng.dirichlet(np.full(len(columns), 0.3))
        pairs = mixed + mixed[::-1]  # a column and its complement have the same sum for all truths
        pairs[0] = 0.0
        pairs /= (columns.T @ pairs)[0]
        if np.ptp(columns.T @ pairs) < 1e-9:
            assert problem.value(pairs) >= found.bound - 1e-9


def test_the_gradient_is_that_of_the_value():
    rng = np.random.default_rng(1)
    columns = staircase.staircase_columns(4, 2.5)
    problem = staircase.DesignProblem(columns, np.array([0.1, 0.2, 0.3, 0.4]), np.diag([1.0, 2.0, 1.0, 0.5]))
    weights = rng.uniform(0.5, 1, len(columns))
    step = 1e-6
    for place in range(0, len(columns), 4):
        ahead, behind = weights.copy(), weights.copy()
        ahead[place] += step
        behind[place] -= step
        slope = (problem.value(ahead) - problem.value(behind)) / (2 * step)
        assert -staircase.gradient(problem, weights)[place] == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("gamma", [Fraction(3, 2), 4, 100, "7.389056"])
def test_weights_are_whole_and_never_raise_gamma(gamma):
    prior = [0.5, 0.25, 0.15, 0.1]
    found = mq.channels.optimal_design(4, gamma, queries="cumulative", prior=prior)
    assert found.channel.gamma <= found.gamma <= gamma_of(gamma)
    assert len({sum(row) for row in found.channel.rows}) == 1
    assert found.gap < 1e-6
    assert all(isinstance(weight, int) and weight > 0 for weight in found.weights)


def test_exact_designs_have_small_weights_and_no_report_more():
    found = mq.channels.optimal_design(6, epsilon=1)
    assert found.weights == (1,) * 15
    assert found.channel.reports == 15


def test_what_is_missing_goes_to_one_more_report():
    channel = staircase_channel(3, Fraction(3), [[0], [1], [0, 2]], [5, 4, 3])
    assert channel.reports == 4
    assert channel.gamma == 3
    assert all(sum(row) == 1 for row in channel.rows)


def test_few_queries_leave_every_category_estimable():
    found = mq.channels.optimal_design(8, epsilon=1, queries=[1, 0, 0, 0, 0, 0, 0, 0])
    warner = enumerated(2, 1, np.diag([1.0, 0.0]), np.array([1 / 8, 7 / 8]))
    assert found.value == pytest.approx(warner.value, rel=2e-3)  # "it / not it" is the optimum for one
    assert found.gap < 2e-3
    assert found.channel.inverse.shape == (found.channel.reports, 8)


def test_many_categories_have_a_proved_gap():
    for categories, epsilon, most in ((50, 1, 0.02), (100, "0.5", 0.02), (200, 2, 0.02), (16, 1, 1e-9)):
        found = mq.channels.optimal_design(categories, epsilon=epsilon)
        assert 0 <= found.gap <= most
        assert found.channel.reports <= 4096


def test_columns_are_generated_beyond_ten_categories_and_all_are_priced():
    found = mq.channels.optimal_design(11, epsilon=1, queries="cumulative")
    assert found.gap < 1e-5
    assert "proved" in found.summary()
    other = mq.channels.optimal_design(11, epsilon=1, queries="cumulative")
    assert other.channel == found.channel  # the same problem gives the same channel


def test_a_limit_on_guesses_is_kept_and_binds():
    free = mq.channels.optimal_design(5, 4)
    bound = mq.channels.optimal_design(5, 4, vulnerability=0.4)
    assert free.channel.vulnerability() > 0.4 >= bound.channel.vulnerability() - 1e-9
    assert bound.value > free.value
    assert bound.gap < 1e-8


def test_anonymity_allows_only_reports_with_enough_behind_them():
    found = mq.channels.optimal_design(5, 4, anonymity=(2, 0.25))
    assert found.channel.k_anonymity(threshold=0.25).k >= 2
    assert mq.channels.optimal_design(5, 4).channel.k_anonymity(threshold=0.25).k < 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "Give one of 'gamma', 'epsilon' and 'breach'"),
        ({"gamma": 2, "epsilon": 1}, "Got gamma and epsilon"),
        ({"gamma": 1}, "γ must be above 1"),
        ({"epsilon": -1}, "'epsilon' must be above 0"),
        ({"breach": (0.5, 0.05)}, "the second above the first"),
        ({"gamma": 2, "prior": [0.5, 0.2, 0.1, 0.1, 0.2]}, "that sum to 1"),
        ({"gamma": 2, "prior": [1, 0, 0, 0, 0]}, "probabilities above 0"),
        ({"gamma": 2, "queries": "sums"}, "counts, cumulative, or rows"),
        ({"gamma": 2, "queries": [[1, 2]]}, "rows of 5 weights"),
        ({"gamma": 4, "vulnerability": 0.1}, "a guess without a report is right with probability 0.2"),
        ({"gamma": 4, "anonymity": (5, 0.2)}, "ask for fewer"),
    ],
)
def test_what_cannot_be_is_refused_in_words(arguments, said):
    with pytest.raises(ChannelError, match=said):
        mq.channels.optimal_design(5, **arguments)


def test_a_policy_holds_the_weights_and_loads_to_the_same_id(tmp_path):
    labels = ["a", "b", "c", "d"]
    found = mq.channels.optimal_design(4, epsilon=1, queries="cumulative", prior=[0.4, 0.3, 0.2, 0.1])
    values = {"masquerade": 1, "variables": {"x": {"categories": labels, "channel": found.spec(labels)}}}
    policy = mq.Policy.from_dict(values)
    assert policy.group("x").channel == found.channel
    policy.save(tmp_path / "policy.yaml")
    assert mq.Policy.load(tmp_path / "policy.yaml").id == policy.id
    plain = dict(values["variables"]["x"]["channel"])
    for name in ("queries", "prior", "second_moment", "lower_bound"):
        plain.pop(name)
    bare = {"masquerade": 1, "variables": {"x": {"categories": labels, "channel": plain}}}
    assert mq.Policy.from_dict(bare).id == policy.id  # the certificate documents, it changes nothing
    again = mq.channels.certify_design(found)
    assert again.value == pytest.approx(found.value, rel=1e-12)
    assert again.gap < 1e-8


def test_an_optimal_channel_without_weights_is_refused():
    values = {
        "masquerade": 1,
        "variables": {"x": {"categories": [1, 2, 3], "channel": {"kind": "optimal", "gamma": 3}}},
    }
    with pytest.raises(PolicyError, match="blocks: is missing"):
        mq.Policy.from_dict(values)
    bad = {"kind": "optimal", "gamma": 3, "blocks": [[1], [2], [4]], "weights": [1, 1, 1]}
    values["variables"]["x"]["channel"] = bad
    with pytest.raises(PolicyError, match="not a category"):
        mq.Policy.from_dict(values)


def test_the_second_moment_is_the_cramer_rao_bound_of_a_channel():
    channel = mq.channels.symmetric(5, 0.4)
    gamma = float(channel.gamma)
    closed = ((gamma + 3) ** 2 + 4) / (gamma - 1) ** 2
    assert optimum.second_moment(channel) == pytest.approx(closed)
