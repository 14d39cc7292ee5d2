"""Every constructor against rows written by hand."""

from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.channels.exact import fractions, random_rows, times

from masquerade import channels as ch
from masquerade.channels.channel import Channel
from masquerade.channels.rationals import rational
from masquerade.core.errors import ChannelError, SingularChannel


@pytest.mark.parametrize(
    ("channel", "rows"),
    [
        (ch.identity(3), fractions("1 0 0", "0 1 0", "0 0 1")),
        (ch.binary("0.1", "0.25"), fractions("9/10 1/10", "1/4 3/4")),
        (ch.binary(0.3), fractions("7/10 3/10", "3/10 7/10")),
        (ch.symmetric(4, "0.3"), fractions("7/10 1/10 1/10 1/10", "1/10 7/10 1/10 1/10",
                                           "1/10 1/10 7/10 1/10", "1/10 1/10 1/10 7/10")),
        (ch.symmetric(3, 1), fractions("0 1/2 1/2", "1/2 0 1/2", "1/2 1/2 0")),
        (ch.symmetric(1, "0.3"), fractions("1")),
        (ch.symmetric(2, 0), fractions("1 0", "0 1")),
        (ch.ternary("0.15", "0.1"), fractions("3/4 3/20 1/10", "1/10 3/4 3/20", "3/20 1/10 3/4")),
        (ch.ternary("0.15"), fractions("7/10 3/20 3/20", "3/20 7/10 3/20", "3/20 3/20 7/10")),
        (ch.within_groups([[0, 2], [1]], [ch.binary("1/4"), ch.identity(1)]),
         fractions("3/4 0 1/4", "0 1 0", "1/4 0 3/4")),
        (ch.matrix([["1/3", "2/3"], [1, 0]]), fractions("1/3 2/3", "1 0")),
        # Warner: with p the question itself, else its opposite
        (ch.warner("0.8"), fractions("4/5 1/5", "1/5 4/5")),
        # p + (1−p)·prevalence = .7 + .3·.5
        (ch.unrelated_question("0.7", "0.5"), fractions("17/20 3/20", "3/20 17/20")),
        (ch.unrelated_question("0.7", "0.2"), fractions("19/25 6/25", "3/50 47/50")),
        (ch.forced_response("0.1", "0.2"), fractions("4/5 1/5", "1/10 9/10")),
        # same answer: both yes with p, or both no with 1−p
        (ch.crosswise("1/4"), fractions("1/4 3/4", "3/4 1/4")),
        # two cards: (1−s)², 2s(1−s), s²
        (ch.kuk("0.8", "0.5", 2), fractions("1/25 8/25 16/25", "1/4 1/2 1/4")),
        # p = (K−1)/(γ+K−1) = 2/21, the truth 19/21
        (ch.for_gamma(3, 19), fractions("19/21 1/21 1/21", "1/21 19/21 1/21", "1/21 1/21 19/21")),
        (ch.for_gamma(1, 19), fractions("1")),
    ],
)  # fmt: skip
def test_rows(channel, rows):
    assert channel.rows == rows
    np.testing.assert_allclose(channel.matrix, np.array(rows, dtype=float), rtol=1e-15)


def test_labels_of_reports():
    assert ch.crosswise("1/4").labels == ("same", "different")
    assert ch.kuk("0.8", "0.5", 2).labels == (0, 1, 2)
    assert ch.binary("0.1").labels is None
    for labels in (["a"], ["a", "a"], ["a", "a", "b"], [1, True]):
        with pytest.raises(ChannelError, match="2 reports needs as many different labels"):
            ch.matrix([[1, 0], [0, 1]], labels)


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        (0.1, "1/10"), ("0.1", "1/10"), (Decimal("0.1"), "1/10"), (Fraction(1, 10), "1/10"), ("1/10", "1/10"),
        (np.float64(0.1), "1/10"), (np.float32(0.1), "1/10"), (np.int8(1), "1"), (1, "1"), ("1e-2", "1/100"),
        (1e-7, "1/10000000"), (0.30000000000000004, "30000000000000004/100000000000000000"),
    ],
)  # fmt: skip
def test_numbers_mean_what_was_typed(given, exact):
    assert rational(given) == Fraction(exact)


@pytest.mark.parametrize(
    "given", [True, None, "", "a", "1/0", float("nan"), float("inf"), "1e-999999999", [1], "1/2/3"]
)
def test_what_is_no_number_is_refused(given):
    with pytest.raises(ChannelError, match=r"'p' must be a number such as 0\.25"):
        rational(given, "p")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ch.binary(1.2), r"'p1' parameter must be in \[0, 1\]. Got 1.2 instead"),
        (lambda: ch.binary(0.5, -0.1), r"'p2' parameter must be in \[0, 1\]. Got -0.1 instead"),
        (lambda: ch.symmetric(3, 2), r"'p' parameter must be in \[0, 1\]. Got 2 instead"),
        (lambda: ch.symmetric(0, 0.1), "whole number from 1. Got 0"),
        (lambda: ch.symmetric(2.0, 0.1), "whole number from 1. Got 2.0"),
        (lambda: ch.symmetric(5000, 0.1), r"5,000 categories is too large \(at most 2,048\)"),
        (lambda: ch.for_epsilon(5000, 1), r"5,000 categories is too large \(at most 2,048\)"),
        (lambda: ch.ternary(0.6, 0.6), r"'p1 \+ p2' parameter must be in \[0, 1\]. Got 1.2"),
        (lambda: ch.forced_response(0.6, 0.6), r"'p_yes \+ p_no' parameter"),
        (lambda: ch.unrelated_question(0.6, 1.5), "'prevalence' parameter"),
        (lambda: ch.kuk(0.6, 0.5, 0), "'cards' parameter must be a whole number from 1. Got 0"),
        (lambda: ch.matrix([]), "at least one truth and one report"),
        (lambda: ch.matrix([[]]), "at least one truth and one report"),
        (lambda: ch.matrix([[1, 0], [1]]), "same number of reports"),
        (lambda: ch.matrix([[0.5, 0.4], [0, 1]]), r"Row 1 .* sums to 0.9, not to 1\.$"),
        (lambda: ch.matrix([[0, 1], [0.3333, 0.6666]]), r"Row 2 .* 0.9999, not to 1 \(write thirds as"),
        (lambda: ch.matrix([[1.5, -0.5], [0, 1]]), "Row 1 of the channel has a negative probability"),
        (lambda: ch.matrix([[1, "x"], [0, 1]]), "'row 1, report 2' must be a number"),
        (lambda: ch.within_groups([[0], [0]], [ch.identity(1)] * 2), "every category exactly once"),
        (lambda: ch.within_groups([[0, 1]], []), "1 groups need 1 channels. Got 0"),
        (lambda: ch.within_groups([[0, 1]], [ch.identity(3)]), "of 2 categories must be square of that size"),
        (lambda: ch.flip([2, 2], 1.5), "'theta' parameter"),
        (lambda: ch.flip([2, 3], 0.7), "with 3 categories declare its 'opposites'"),
        (lambda: ch.flip([2, 3], 0.7, None, [None, [1, 2, 0]]), "opposite of the opposite"),
        (lambda: ch.flip([2, 2], [0.7, 0.8]), "1 groups need one theta or 1. Got 2"),
        (lambda: ch.flip([2, 2], 0.7, [[0]]), "every variable exactly once"),
        (lambda: ch.for_gamma(3, 0.5), "'gamma' must be at least 1. Got 0.5"),
        (lambda: ch.for_epsilon(3, -1), "'epsilon' must be at least 0. Got -1"),
        (lambda: ch.invariant([0.5, 0.4], ch.binary(0.1)), "sum to exactly 1"),
        (lambda: ch.invariant([0.5, 0.5, 0], ch.binary(0.1)), "square base channel of that size"),
        (lambda: ch.invariant([0.5, 0.5], ch.binary(0.1), 2), r"'strength' must be in \[0, 1\]. Got 2"),
        (lambda: ch.binary(0.1).then(ch.identity(3)), "2 reports cannot be followed by one for 3 truths"),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused_with_what_where_and_instead(build, message):
    with pytest.raises(ChannelError, match=message):
        build()


def test_one_group_is_flipped_as_a_whole():
    # P*(E) = θP(E) + (1−θ)P(Ē): a value and the one with every variable reversed
    channel = ch.flip([2, 2, 2], "0.7")
    for code in range(8):
        assert channel.row(code) == {code: Fraction(7, 10), 7 - code: Fraction(3, 10)}


def test_two_groups_are_the_kronecker_product_in_the_order_of_the_paper():
    # (E1E2, E1Ē2, Ē1E2, Ē1Ē2) with θ1 = .7, θ2 = .9: the first row of [[.7,.3],[.3,.7]] ⊗ [[.9,.1],[.1,.9]]
    one, two = ch.binary("0.3"), ch.binary("0.1")
    expected = tuple(
        tuple(one.rows[i][j] * two.rows[k][l] for j, l in product(range(2), repeat=2))
        for i, k in product(range(2), repeat=2)
    )
    assert ch.flip([2, 2], ["0.7", "0.9"], [[0], [1]]).rows == expected
    assert expected[0] == fractions("63/100 7/100 27/100 3/100")[0]


def test_a_group_may_lie_apart_and_have_declared_opposites():
    # variables 0 and 2 turn together, 1 (three categories, 0 ↔ 2) alone
    channel = ch.flip([2, 3, 2], ["0.75", "0.9"], [[0, 2], [1]], [None, [2, 1, 0], None])
    for a, b, c in product(range(2), range(3), range(2)):
        expected: dict[int, Fraction] = {}
        for turn_outer, turn_inner in product((False, True), repeat=2):
            report = ((1 - a if turn_outer else a) * 3 + (2 - b if turn_inner else b)) * 2 + (
                1 - c if turn_outer else c
            )
            chance = Fraction(1 if turn_outer else 3, 4) * Fraction(1 if turn_inner else 9, 10)
            expected[report] = expected.get(report, Fraction(0)) + chance
        assert channel.row((a * 3 + b) * 2 + c) == expected


def test_thirteen_binary_variables_are_flipped_without_a_dense_matrix():
    channel = ch.flip([2] * 13, "0.7")
    assert channel.weights.shape == (2**13, 2)
    assert channel.row(5) == {5: Fraction(7, 10), 2**13 - 1 - 5: Fraction(3, 10)}
    assert len(channel.blocks) == 2**12
    assert channel.gamma_within == Fraction(7, 3)
    with pytest.raises(ChannelError, match="8,192 truths × 8,192 reports is too large"):
        _ = channel.matrix


@pytest.mark.parametrize("channel", [ch.binary("1/2"), ch.flip([2, 2], "1/2"), ch.symmetric(3, "2/3")])
def test_a_singular_channel_is_refused_when_its_inverse_is_asked_for_not_before(channel):
    assert channel.truths >= 2
    with pytest.raises(SingularChannel, match="they cannot be distinguished"):
        _ = channel.inverse


def test_inverses_undo_channels():
    for channel in (
        ch.binary("0.1", "0.25"),
        ch.ternary("0.15", "0.1"),
        ch.kuk("0.8", "0.3", 4),
        ch.identity(3),
    ):
        np.testing.assert_allclose(channel.matrix @ channel.inverse, np.eye(channel.truths), atol=1e-12)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_composition_is_the_exact_product(seed):
    rng = np.random.default_rng(seed)
    K, M, L = (int(size) for size in rng.integers(1, 5, 3))
    first, second = random_rows(rng, K, M, 20, 0.2), random_rows(rng, M, L, 20, 0.2)
    assert ch.matrix(first).then(ch.matrix(second)).rows == times(first, second)


def test_composition_keeps_the_labels_of_the_last_reports():
    assert ch.binary("0.1").then(ch.crosswise("1/4")).labels == ("same", "different")
    assert ch.crosswise("1/4").then(ch.binary("0.1")).labels == ("same", "different")
    assert ch.crosswise("1/4").then(ch.matrix([["1/2", "1/4", "1/4"], [0, 0, 1]])).labels is None


def test_equal_channels_are_equal_however_they_were_written():
    same = [
        ch.binary("0.2"),
        ch.binary("1/5", 0.2),
        ch.symmetric(2, "0.2"),
        ch.warner("0.8"),
        ch.for_gamma(2, 4),
        ch.matrix([["4/5", "1/5"], ["2/10", "8/10"]]),
        ch.flip([2], "0.8"),
    ]
    assert len({channel.fingerprint for channel in same}) == 1
    assert len(set(same)) == 1
    others = [
        ch.binary("0.2", "0.3"),
        ch.binary("0.8"),
        ch.crosswise("4/5"),
        ch.identity(2),
        ch.symmetric(3, "0.2"),
    ]
    assert len({same[0], *others}) == 6
    assert ch.crosswise("4/5") != same[0]  # other labels
    assert same[0] != "channel"


def test_a_channel_cannot_be_changed():
    channel = ch.binary("0.1")
    for array in (channel.weights, channel.outcomes, channel.matrix, channel.inverse):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 0


def test_small_channels_show_their_rows_and_large_ones_their_size():
    assert repr(ch.binary("0.1", "0.25")).splitlines() == [
        "Channel(2×2, γ=7.5)",
        "      9/10      1/10",
        "       1/4       3/4",
    ]
    assert repr(ch.symmetric(7, "0.5")) == "Channel(7×7, γ=6)"
    assert isinstance(ch.identity(2), Channel)


@pytest.mark.parametrize("zeros", [0.0, 0.6])
def test_rows_and_row_texts_equal_the_rows_of_each_truth(zeros):
    channel = ch.matrix(random_rows(np.random.default_rng(3), 9, 7, 50, zeros))
    expected = [
        [channel.row(truth).get(report, Fraction(0)) for report in range(channel.reports)]
        for truth in range(channel.truths)
    ]
    assert [list(row) for row in channel.rows] == expected
    assert channel.row_texts == [[str(chance) for chance in row] for row in expected]


def test_rows_of_many_categories_convert_each_weight_once():
    calls = []
    rows = ch.for_gamma(300, 4)._exact_rows(lambda chance: calls.append(chance) or str(chance))
    assert len(calls) == 1 + 300 * 2  # the zero, and two different weights in each row
    assert rows[7][7] == "4/303"
    assert rows[7][8] == "1/303"
