"""Figures are written in one way: numbers of things, γ and ε, probabilities."""

import math
from fractions import Fraction

import pandas as pd
import pytest

import masquerade as mq
from masquerade.cli.simulation_report import people
from masquerade.core.util.formatting import epsilon_text, gamma_text, gamma_words, log_gamma, percent

FRAME = pd.DataFrame({"sex": ["f", "m", "f", "m"], "ill": ["no", "yes", "no", "no"]})


def test_one_feature_one_leaf_one_person():
    source = mq.tally(FRAME)
    assert ": 1 feature, alpha" in mq.learn.naive_bayes(source, "ill").summary()
    tree = mq.learn.decision_tree(source, "ill", max_depth=0)
    assert ": 1 leaf, depth 0" in tree.summary()
    assert "1 leaf, depth 0" in repr(tree)
    assert (people(1), people(2)) == ("1 person", "2 people")


@pytest.mark.parametrize(
    ("gamma", "written"),
    [
        (1, "1"),
        (Fraction(3), "3"),
        (Fraction(14, 3), "4.667"),
        (Fraction(15, 2), "7.5"),
        (Fraction(31, 3), "10.33"),
        (9.99996, "10"),
        (1234.5, "1,234"),
        (176_400, "176,400"),
        (1e6, "1×10^6"),
        (8.9e8, "8.9×10^8"),
        (9.999e9, "1×10^10"),
        (Fraction(3) ** 700, "9.66×10^333"),
        (math.inf, "no bound"),
        (None, "no bound"),
    ],
)
def test_gamma_has_four_digits_and_all_whole_ones_below_a_million(gamma, written):
    assert gamma_text(gamma) == written


@pytest.mark.parametrize(
    ("epsilon", "written"),
    [
        (0.0, "0"),
        (1.0, "1.00"),
        (math.log(3), "1.10"),
        (2.9444, "2.94"),
        (0.8473, "0.847"),
        (12.0805, "12.1"),
        (769.03, "769"),
        (999.6, "1,000"),
        (1098.6, "1,099"),
        (math.inf, "no bound"),
    ],
)
def test_epsilon_has_three_digits_zeros_kept(epsilon, written):
    assert epsilon_text(epsilon) == written


def test_gamma_and_epsilon_together():
    assert gamma_words(Fraction(3)) == "γ = 3 (ε = 1.10)"
    assert gamma_words(None) == gamma_words(math.inf) == "no bound"
    assert log_gamma(Fraction(3) ** 1000) == pytest.approx(1000 * math.log(3))
    assert log_gamma(None) == math.inf


def test_a_probability_is_never_rounded_to_certainty():
    assert [percent(share) for share in (0, 0.0001, 0.05, 0.25, 1 / 3, 0.9996, 0.9999999, 1)] == [
        "0%",
        "<0.1%",
        "5%",
        "25%",
        "33.3%",
        ">99.9%",
        ">99.9%",
        "100%",
    ]
