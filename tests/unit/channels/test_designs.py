"""Channels made for a guarantee, an invariant distribution, noise; and rounding that never weakens them."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.channels import exact

from masquerade import channels as ch
from masquerade.channels.basic import near_symmetric
from masquerade.channels.channel import DENOMINATOR, LARGEST_DENOMINATOR, round_rows
from masquerade.channels.designs import bin_labels
from masquerade.core.errors import ChannelError

seeds = st.integers(0, 2**32 - 1)


@given(st.integers(2, 30), st.fractions(1, 1000, max_denominator=1000))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_for_gamma_is_exact(categories, gamma):
    channel = ch.for_gamma(categories, gamma)
    assert channel.gamma == gamma
    assert channel.row(0)[0] == gamma / (gamma + categories - 1)


@given(st.integers(2, 40), st.fractions(0, 40, max_denominator=10**6))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_for_epsilon_stays_below_and_close(categories, epsilon):
    gamma = ch.for_epsilon(categories, epsilon).gamma
    with localcontext(prec=80):
        power = Fraction((Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp())
    assert gamma <= power
    assert gamma >= power * (1 - Fraction(1, 10**8))


@pytest.mark.parametrize("epsilon", ["0", "1e-12", "1e-9", "1e-300"])
def test_a_tiny_epsilon_is_never_exceeded(epsilon):
    # e^ε ≥ 1 + ε, so 1 + ε bounds γ from the safe side
    for categories in (2, 3, 7):
        assert 1 <= ch.for_epsilon(categories, epsilon).gamma <= 1 + Fraction(epsilon)


def test_a_huge_epsilon_or_gamma_gives_the_largest_weights_there_are():
    for channel in (ch.for_epsilon(3, "1e300"), ch.for_gamma(3, "1e300"), ch.symmetric(3, "1e-300")):
        assert channel.gamma == 2**61
        assert int(channel.denominators.max()) <= LARGEST_DENOMINATOR


@given(
    st.integers(2, 9),
    st.fractions(Fraction(1, 1000), Fraction(999, 1000)).map(lambda p: p + Fraction(1, 3**45)),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_symmetric_channel_with_unwieldy_probabilities_never_gains_gamma(categories, p):
    # a denominator with a factor 3⁴⁵ > 2⁶² cannot be kept exactly
    wanted = (1 - p) * (categories - 1) / p
    channel = ch.symmetric(categories, p)
    assert int(channel.denominators.max()) <= LARGEST_DENOMINATOR
    assert channel.gamma <= max(wanted, 1 / wanted)
    got = channel.row(0)[0] / channel.row(0)[1]
    assert min(wanted, 1) <= got <= max(wanted, 1)
    assert abs(got - wanted) <= Fraction(1, 2**32) * max(wanted, 1)


def test_near_symmetric_rounds_towards_one():
    # 10/3·2³² is no integer: down above one, up below
    above, below = near_symmetric(2, Fraction(10, 3)), near_symmetric(2, Fraction(3, 10))
    assert above.row(0)[0] / above.row(0)[1] == Fraction(math.floor(Fraction(10 * 2**32, 3)), 2**32)
    assert below.row(0)[0] / below.row(0)[1] == Fraction(math.ceil(Fraction(3 * 2**32, 10)), 2**32)


@pytest.mark.parametrize("strength", ["1", "1/2", "0"])
@pytest.mark.parametrize("prior", [["1/2", "1/3", "1/6"], ["0.7", "0.3", "0"]])
def test_invariant_pram_leaves_the_prior_exactly_as_it_is(prior, strength):
    shares = [Fraction(share) for share in prior]
    channel = ch.invariant(prior, ch.ternary("0.15", "0.1"), strength)
    assert exact.times([shares], channel.rows) == (tuple(shares),)
    assert channel.is_identity == (strength == "0")


def test_invariant_pram_is_bayes_after_the_base_channel():
    # π = (1/2, 1/2), P = binary(1/4): Q = P, so R = P² with 9/16 + 1/16 = 5/8 on the diagonal
    assert ch.invariant(["1/2", "1/2"], ch.binary("1/4")).rows == exact.fractions("5/8 3/8", "3/8 5/8")


def test_uniform_noise_is_exact_and_excludes_truths():
    # bins of width 10, noise on ±10: from the middle, 5/20 below, 10/20 inside, 5/20 above
    channel = ch.additive([0, 10, 20], "uniform", 10)
    assert channel.rows == exact.fractions("1/4 1/2 1/4 0", "0 1/4 1/2 1/4")
    assert channel.gamma == math.inf
    assert channel.labels == ("(-inf, 0)", "[0, 10)", "[10, 20)", "[20, inf)")


def gaussian_rows(truths, bins, extra, step, digits=50):
    """Return the exact gaussian chances by the series of erf, in `digits` digits."""
    with localcontext(prec=digits + 60):

        def erf(x):
            term, total, k = x, x, 0
            while abs(term) > Decimal(10) ** -(digits + 40):
                k += 1
                term *= -x * x / k
                total += term / (2 * k + 1)
            return total

        # ∫ e^{−t²} over the half line, from the series itself at x = 14 (beyond, e^{−196} is nothing)
        half = erf(Decimal(14))
        rows = []
        for truth in range(truths):
            ends = [
                erf((Decimal(r - extra - truth) - Decimal("0.5")) * step / Decimal(2).sqrt()) / half
                for r in range(1, bins)
            ]
            ends = [Decimal(-1), *ends, Decimal(1)]
            rows.append([Fraction((b - a) / 2) for a, b in pairwise(ends)])
        return rows


@pytest.mark.parametrize("margin", [None, 0, 2])
def test_gaussian_noise_is_close_and_its_gamma_not_raised(margin):
    # five bins of width 1, standard deviation 1.25: a step of 0.8 standard deviations
    channel = ch.additive([0, 1, 2, 3, 4, 5], "gaussian", "1.25", margin)
    extra = (channel.reports - 5) // 2
    assert extra == (5 if margin is None else margin)  # 4·1.25 = 5 widths, half a width of it inside the bin
    rows = gaussian_rows(5, channel.reports, extra, Decimal("0.8"))
    true_gamma = exact.gamma(rows)
    # double precision of erfc moves γ by some 1e-15; rounding to 2⁻³² may only lower it
    assert channel.gamma <= true_gamma * (1 + Fraction(1, 10**13))
    np.testing.assert_allclose(channel.matrix, np.array(rows, dtype=float), atol=2**-28)
    assert set(channel.denominators.tolist()) == {DENOMINATOR}


def test_gaussian_noise_is_bounded_even_where_double_precision_calls_the_tail_zero():
    channel = ch.additive(range(12), "gaussian", "0.1")  # the far bins are 100 standard deviations away
    assert np.all(channel.weights > 0)
    assert channel.gamma < 2**32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1, 3], "uniform", 1), "rising and equally spaced"),
        (([0], "uniform", 1), "at least two"),
        (([1, 0], "uniform", 1), "rising"),
        (([0, 1], "uniform", 0), "'scale' must be above 0. Got 0"),
        (([0, 1], "laplace", 1), "must be uniform or gaussian. Got 'laplace'"),
        (([0, 1], "uniform", 1, -1), "'margin' must be at least 0. Got -1"),
    ],
)
def test_bad_noise_is_refused(arguments, message):
    with pytest.raises(ChannelError, match=message):
        ch.additive(*arguments)


def test_labels_of_bins_tell_large_numbers_apart():
    assert bin_labels([0, 0.5, 1]) == ("[0, 0.5)", "[0.5, 1]")
    assert bin_labels([1234567, 1234568, 1234569, 1234570]) == (
        "[1234567, 1234568)",
        "[1234568, 1234569)",
        "[1234569, 1234570]",
    )


@given(seeds)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_rounding_keeps_supports_and_sums_and_never_raises_gamma(seed):
    rng = np.random.default_rng(seed)
    truths, reports = int(rng.integers(1, 5)), int(rng.integers(1, 7))
    shape = str(rng.choice(["plain", "tails", "near"]))
    if shape == "near":  # all but equal rows: γ − 1 far below what 2⁻³² can express
        base = rng.integers(1, 100, reports)
        scaled = [[int(w) * 10**12 + int(rng.integers(0, 3)) for w in base] for _ in range(truths)]
        rows = [[Fraction(w, sum(row)) for w in row] for row in scaled]
    elif shape == "tails":  # chances down to 10⁻²⁰
        scaled = [[10 ** int(e) for e in rng.integers(0, 20, reports)] for _ in range(truths)]
        rows = [[Fraction(w, sum(row)) for w in row] for row in scaled]
    else:
        rows = exact.random_rows(rng, truths, reports, 10**6, rng.choice([0, 0.3]))
    result = round_rows(rows)
    assert [[bool(p) for p in row] for row in result.rows] == [[bool(p) for p in row] for row in rows]
    assert set(result.denominators.tolist()) == {DENOMINATOR}
    assert np.all(result.weights >= 0)
    assert result.gamma <= exact.gamma(rows)
    if shape == "plain" and exact.gamma(rows) == math.inf:
        np.testing.assert_allclose(result.matrix, np.array(rows, dtype=float), atol=6 * 2**-32)


def test_rounding_stops_for_rows_that_differ_by_less_than_it_can_express():
    # thirds rounded by largest remainder differ by 2⁻³²; γ − 1 = 6e-20 allows no difference at all
    tiny = Fraction(1, 10**20)
    third = Fraction(1, 3)
    rows = [[third + tiny, third, third - tiny], [third - tiny, third, third + tiny]]
    assert round_rows(rows).gamma == 1
    wide = [
        [Fraction(1, 100) + (tiny if m == l else 0) - (tiny if m == 99 else 0) for m in range(100)]
        for l in range(2)
    ]
    assert np.all(round_rows(wide).weights > 0)
    assert round_rows(wide).gamma == 1


def test_unwieldy_compositions_fall_back_to_rounding():
    one = ch.binary("0.1234567890123", "0.3333333333333")
    both = one.then(one).then(one)
    brute = exact.times(exact.times(one.rows, one.rows), one.rows)
    assert int(both.denominators.max()) == DENOMINATOR
    assert both.gamma <= exact.gamma(brute)
    np.testing.assert_allclose(both.matrix, np.array(brute, dtype=float), atol=2**-28)
