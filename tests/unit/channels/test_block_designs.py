"""Block designs: balance, the variance of all subsets, exact γ; subsets, Hadamard response, unary bits."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import masquerade as mq
from masquerade.channels.block_designs import BalancedDesign, best_design, designs, subset_second_moment
from masquerade.channels.optimum import second_moment
from masquerade.channels.privacy_level import gamma_of
from masquerade.core.errors import ChannelError

SYMMETRIC = [
    *[BalancedDesign("paley", q, (q - 1) // 2, q) for q in (3, 7, 11, 19, 23, 27, 31)],
    *[BalancedDesign("geometry", q * q + q + 1, q + 1, q) for q in (2, 3, 4, 5, 7, 8, 9)],
    BalancedDesign("geometry", 15, 7, 2),
    BalancedDesign("geometry", 40, 13, 3),
    BalancedDesign("geometry", 21, 16, 4, complement=True),
]


@pytest.mark.parametrize("design", SYMMETRIC, ids=lambda d: f"{d.family}-{d.points}-{d.size}")
def test_every_two_points_are_together_equally_often(design):
    blocks = design.blocks().astype(int)
    together = Fraction(design.size * (design.size - 1), design.points - 1)
    expected = np.full((design.points, design.points), float(together))
    np.fill_diagonal(expected, design.size)
    assert np.array_equal(blocks.T @ blocks, expected)
    assert np.all(blocks.sum(axis=1) == design.size)


def test_the_fano_plane_has_the_variance_of_all_subsets():
    plane = mq.channels.block_design(7, 2, size=3)
    assert plane.reports == 7
    assert second_moment(plane) == pytest.approx(43.0)
    assert second_moment(mq.channels.subset_selection(7, 2, size=3)) == pytest.approx(43.0)
    assert second_moment(mq.channels.for_gamma(7, 2)) == pytest.approx(55.0)
    assert second_moment(mq.channels.block_design(7, "4/3", size=3)) == pytest.approx(247.0)


@pytest.mark.parametrize("gamma", [Fraction(3, 2), Fraction(5), gamma_of(epsilon=1)])
@pytest.mark.parametrize("categories", [3, 7, 12, 21, 33])
def test_gamma_is_exact_and_the_variance_as_the_formula_says(categories, gamma):
    design = best_design(categories, gamma)
    channel = mq.channels.block_design(categories, gamma)
    assert channel.gamma == gamma
    value, formula = second_moment(channel), float(design.second_moment(categories, gamma))
    if design.points == categories:
        assert value == pytest.approx(formula)
        assert value == pytest.approx(float(subset_second_moment(categories, gamma, design.size)))
    assert value <= formula * (1 + 1e-9)  # with points left out the estimate weighs reports better


def test_the_best_design_is_chosen_among_those_that_there_are():
    gamma = gamma_of(epsilon="0.5")
    best = best_design(50, gamma)
    values = [design.second_moment(50, gamma) for design in designs(50)]
    assert best.second_moment(50, gamma) == min(values)
    with pytest.raises(ChannelError, match="blocks of 1, "):
        mq.channels.block_design(7, 2, size=2)


def test_subsets_that_would_explode_are_refused_with_what_to_take_instead():
    with pytest.raises(ChannelError, match=r"block_design\(\) gives the same variance"):
        mq.channels.subset_selection(64, epsilon="0.5")
    assert mq.channels.block_design(64, epsilon="0.5").reports < 200


def test_hadamard_response_is_within_reach_of_the_optimum():
    channel = mq.channels.hadamard_response(100, epsilon="0.5")
    assert channel.reports == 128
    assert channel.gamma == gamma_of(epsilon="0.5")
    best = mq.channels.optimal_design(100, epsilon="0.5").bound
    assert best <= second_moment(channel) <= 1.15 * best


@pytest.mark.parametrize("kind", ["block_design", "subset_selection", "hadamard_response"])
def test_each_is_a_kind_of_policy_files(kind):
    variables = {"x": {"categories": list("abcdefg"), "channel": {"kind": kind, "epsilon": 1}}}
    policy = mq.Policy.from_dict({"masquerade": 1, "variables": variables})
    channel = policy.group("x").channel
    assert channel == getattr(mq.channels, kind)(7, epsilon=1)
    assert policy.observed["x"].categories == tuple(range(1, channel.reports + 1))


def test_unary_bits_of_one_category_have_the_gamma_that_was_asked():
    """Against the definition: the largest ratio over all reports and pairs of truths."""
    policy = mq.channels.unary_encoding(mq.Variable("x", ("a", "b", "c")), 3)
    assert mq.channels.unary_gamma(policy) == 3
    bit = policy.group("x=a").channel.rows
    worst = Fraction(0)
    for report in itertools.product((0, 1), repeat=3):
        chance = [
            np.prod([bit[0 if place == truth else 1][sign] for place, sign in enumerate(report)])
            for truth in range(3)
        ]
        worst = max(worst, max(chance) / min(chance))
    assert worst == 3
    with pytest.raises(ChannelError, match="not a unary encoding"):
        mq.channels.unary_gamma(mq.Policy.clear(mq.Schema({"x": ["a", "b", "c"]})))


def test_only_yes_is_sensitive_is_a_forced_yes():
    found = mq.channels.optimal_pairwise(mq.channels.only_sensitive(2, [0], gamma=3))
    forced = mq.channels.forced_response("1/3", 0)
    assert found.value == pytest.approx(second_moment(forced), rel=1e-6)
    assert found.value < second_moment(mq.channels.for_gamma(2, 3))
    assert found.gap < 1e-6


def test_bounds_that_are_all_the_same_give_the_optimum_of_one_gamma():
    for categories in (3, 5):
        found = mq.channels.optimal_pairwise([[4] * categories] * categories, "cumulative")
        same = mq.channels.optimal_design(categories, 4, queries="cumulative")
        assert found.value == pytest.approx(same.value, rel=1e-6)


def test_bounds_by_distance_are_kept_exactly():
    step = Fraction(3, 2)
    found = mq.channels.optimal_pairwise([[step ** abs(i - j) for j in range(5)] for i in range(5)])
    rows = found.channel.rows
    for i, j in itertools.permutations(range(5), 2):
        for report in range(found.channel.reports):
            assert rows[i][report] <= step ** abs(i - j) * rows[j][report]
    assert found.gap < 1e-6
    assert found.value < mq.channels.optimal_design(5, step).value


def test_bounds_that_allow_nothing_are_refused():
    with pytest.raises(ChannelError, match="no report may distinguish them"):
        mq.channels.optimal_pairwise([[1, 1], [1, 1]])
    with pytest.raises(ChannelError, match="at least 1"):
        mq.channels.optimal_pairwise([[1, "1/2"], [2, 1]])
