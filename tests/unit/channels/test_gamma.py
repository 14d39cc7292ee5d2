"""γ against the papers' values and against brute force in fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.channels import exact

from masquerade import channels as ch
from masquerade.channels.measures import breach_bound
from masquerade.core.errors import InputError

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("channel", "gamma"),
    [
        (ch.binary("0.2"), "4"),  # (1−p)/p
        (ch.binary("0.8"), "4"),
        (ch.ternary("0.15"), "14/3"),  # .7/.15
        (ch.symmetric(5, "0.4"), "6"),  # .6·4/.4
        (ch.symmetric(4, "0.9"), "3"),  # the truth rarer than another: .3/.1
        (ch.binary("0.1", "0.25"), "15/2"),  # max(.9/.25, .75/.1)
        (ch.symmetric(2**3, "0.3"), "49/3"),  # three binary items: (1−p)(2^g−1)/p
        (ch.symmetric(1, "0.3"), "1"),
        (ch.identity(1), "1"),
        (ch.matrix([["1/2", "1/2", 0], ["1/3", "2/3", 0]]), "3/2"),  # a report nobody gives
    ],
)
def test_known_values(channel, gamma):
    assert channel.gamma == Fraction(gamma)
    assert channel.epsilon == pytest.approx(math.log(Fraction(gamma)))


@pytest.mark.parametrize(
    "channel", [ch.identity(2), ch.binary("0.1", 0), ch.flip([2, 2], "0.7"), ch.symmetric(3, 1)]
)
def test_a_report_that_excludes_a_truth_is_unbounded(channel):
    assert channel.gamma == math.inf
    assert channel.epsilon == math.inf


@given(seeds)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_gamma_is_exact_for_rows_of_different_denominators(seed):
    rng = np.random.default_rng(seed)
    most = int(rng.choice([3, 50, 2**32]))
    rows = exact.random_rows(
        rng, int(rng.integers(1, 5)), int(rng.integers(1, 5)), most, rng.choice([0, 0.2])
    )
    assert ch.matrix(rows).gamma == exact.gamma(rows)


@given(seeds)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_gamma_decides_ties_that_floating_point_cannot(seed):
    # two columns with ratios (w+a)/w and (v+c)/v that agree to about 2⁻⁵⁷, finer than doubles tell apart
    rng = np.random.default_rng(seed)
    w, v = (int(x) for x in rng.integers(2**57, 2**58, 2))
    a = int(rng.integers(2**40, 2**50))
    c = v * a // w + int(rng.integers(0, 2))
    weights = ((w + a, v, 2**61 - w - a - v), (w, v + c, 2**61 - w - v - c))
    rows = [[Fraction(x, 2**61) for x in row] for row in weights]
    assert float(Fraction(w + a, w)) == pytest.approx(float(Fraction(v + c, v)), rel=1e-15)
    assert ch.matrix(rows).gamma == exact.gamma(rows) == max(Fraction(w + a, w), Fraction(v + c, v))


def test_gamma_19_is_the_breach_from_5_to_50_percent():
    # ρ2(1−ρ1)/(ρ1(1−ρ2)) = .5·.95/(.05·.5) = 19
    assert breach_bound(Fraction(19), 0.05) == pytest.approx(0.5)
    assert breach_bound(Fraction(19), 0.5) == pytest.approx(0.95)
    assert (breach_bound(math.inf, 0.1), breach_bound(math.inf, 0), breach_bound(5, 1)) == (1, 0, 1)
    assert breach_bound(1, 0.3) == pytest.approx(0.3)
    for prior in (-0.1, 1.1):
        with pytest.raises(InputError, match=r"must be in \[0, 1\]"):
            breach_bound(2, prior)


@given(seeds)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_no_belief_rises_beyond_its_bound(seed):
    rng = np.random.default_rng(seed)
    channel = ch.matrix(exact.random_rows(rng, 4, 3, 30))
    prior = rng.dirichlet(np.ones(4))
    about = rng.random(4) < 0.5  # a property: any set of truths
    before = min(float(prior[about].sum()), 1.0)
    joint = channel.matrix * prior[:, None]
    after = joint[about].sum(axis=0) / joint.sum(axis=0)
    assert after.max() <= breach_bound(channel.gamma, before) + 1e-12


def test_grouped_channels_disclose_the_group_and_are_finite_within():
    channel = ch.within_groups([[0, 3], [1, 2, 4]], [ch.binary("0.2"), ch.symmetric(3, "0.4")])
    assert channel.gamma == math.inf
    assert channel.blocks == ((0, 3), (1, 2, 4))
    assert channel.gamma_within == 4  # max(.8/.2, .6/.2)
    assert ch.binary("0.2").blocks == ((0, 1),)
    assert ch.binary("0.2").gamma_within == 4
    assert ch.identity(3).blocks == ((0,), (1,), (2,))
    assert ch.identity(3).gamma_within == 1


def test_truths_connected_only_through_a_third_are_one_block():
    # 0 and 2 share no report, both share one with 1: no report tells all three apart for certain
    channel = ch.matrix([["1/2", "1/2", 0, 0], [0, "1/2", "1/2", 0], [0, 0, "1/2", "1/2"]])
    assert channel.blocks == ((0, 1, 2),)
    assert channel.gamma_within == math.inf


@pytest.mark.parametrize(("g", "c"), [(2, 1), (3, 1), (3, 2), (5, 3)])
def test_the_marginal_of_a_symmetric_joint_channel_is_proposition_7_2(g, c):
    p = Fraction(3, 10)
    marginal = ch.symmetric(2**g, p).marginal([2] * g, [2] * g, range(c))
    diagonal = 1 - p + p * (2 ** (g - c) - 1) / (2**g - 1)
    other = p * 2 ** (g - c) / (2**g - 1)
    assert marginal.rows == tuple(
        tuple(diagonal if i == j else other for j in range(2**c)) for i in range(2**c)
    )


@given(seeds, st.booleans())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_marginal_exists_exactly_when_the_channel_is_lumpable(seed, lumpable):
    rng = np.random.default_rng(seed)
    sizes = [int(size) for size in rng.integers(1, 4, 3)]
    order = rng.permutation(3).tolist()
    keep = order[: int(rng.integers(0, 4))]
    cells = math.prod(sizes)
    if lumpable:  # independent channels side by side always are
        parts = [exact.random_rows(rng, size, size, 6) for size in sizes]
        rows = [[Fraction(1)]]
        for part in parts:
            rows = [[a * b for a in row for b in own] for row in rows for own in part]
    else:
        rows = exact.random_rows(rng, cells, cells, 4)
    codes = [np.unravel_index(cell, sizes) for cell in range(cells)]
    kept = math.prod(sizes[i] for i in keep)
    place = [
        int(np.ravel_multi_index([code[i] for i in keep], [sizes[i] for i in keep])) if keep else 0
        for code in codes
    ]
    # P·L: the chance of each kept report; lumpable if equal for all truths that agree on what is kept
    lumped = [
        tuple(sum((row[m] for m in range(cells) if place[m] == q), Fraction(0)) for q in range(kept))
        for row in rows
    ]
    by_kept = [{lumped[l] for l in range(cells) if place[l] == q} for q in range(kept)]
    result = ch.matrix(rows).marginal(sizes, sizes, keep)
    if all(len(options) == 1 for options in by_kept):
        assert result.rows == tuple(next(iter(options)) for options in by_kept)
    else:
        assert not lumpable
        assert result is None


def test_a_channel_that_mixes_its_variables_has_no_marginal():
    # the second variable leaks into the report of the first
    rows = [["0.9", "0.1", 0, 0], ["0.5", "0.1", "0.4", 0], [0, 0, "0.9", "0.1"], [0, 0, "0.1", "0.9"]]
    assert ch.matrix(rows).marginal([2, 2], [2, 2], [0]) is None
    assert ch.matrix(rows).marginal([2, 2], [2, 2], [0, 1]) == ch.matrix(rows)
