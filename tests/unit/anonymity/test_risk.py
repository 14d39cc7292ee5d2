"""The risk of a record is the expected 1/F of its class, by two other roads than ours."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from tests.statistical.checks import assert_unbiased

from masquerade.anonymity import risk
from masquerade.core.errors import InputError


def by_integral(f, p):
    """Return E[1/F] of a negative binomial F as the integral of its generating function."""
    return quad(lambda t: (p * np.exp(-t) / (1 - (1 - p) * np.exp(-t))) ** f, 0, np.inf)[0]


def by_sum(f, p):
    """Return E[1/F] of a negative binomial F term by term."""
    total, term, h = 0.0, p**f, f
    while term / h > 1e-16 * total or h < f / p:
        total += term / h
        term *= h / (h - f + 1) * (1 - p)  # C(h, f−1) / C(h−1, f−1)
        h += 1
    return total


@pytest.mark.parametrize(("f", "people"), [(1, 2), (1, 1000), (2, 3), (3, 40), (7, 7.5), (25, 4000)])
def test_a_record_has_the_risk_of_the_model(f, people):
    frame = pd.DataFrame({"q": ["a"] * f, "people": [people / f] * f})
    found = risk(frame, ["q"], weight="people")
    assert found.records == pytest.approx(by_integral(f, f / people), rel=1e-8)
    assert found.records == pytest.approx(by_sum(f, f / people), rel=1e-8)
    assert found.estimated == pytest.approx(people)
    assert found.expected_count == pytest.approx(f * by_sum(f, f / people))


def test_closed_forms_of_unique_and_paired_records():
    frame = pd.DataFrame({"q": ["a", "b", "b"], "people": [50.0, 10.0, 30.0]})
    p, odds = 1 / 50, (1 / 20) / (19 / 20)
    first = p / (1 - p) * np.log(1 / p)
    pair = odds - odds**2 * np.log(20)
    assert risk(frame, ["q"], weight="people").records == pytest.approx([first, pair, pair])


def test_without_weights_it_is_one_over_the_class_and_a_household_shares_it():
    frame = pd.DataFrame({"q": ["a", "b", "b", "b"], "home": [1, 2, 2, 3]})
    found = risk(frame, ["q"], household="home")
    assert found.records == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])
    assert found.households == pytest.approx([1, 5 / 9, 5 / 9, 1 / 3])
    assert found.above(0.5) == 1
    assert found.to_dict()["expected"] == pytest.approx(2)
    assert risk(frame, ["q"]).households is None


def test_the_estimate_is_right_on_average_where_the_model_holds():
    generator = np.random.default_rng()
    f, p = 3, 0.1
    people = f + generator.negative_binomial(f, p, 40_000)  # F given f, as the model has it
    frame = pd.DataFrame({"q": ["a"] * f, "people": [1 / p] * f})
    expected = risk(frame, ["q"], weight="people").records[0]
    assert_unbiased(1 / people, expected)


@pytest.mark.parametrize("weight", [0.5, float("nan"), None, "many", True])
def test_a_weight_that_is_none_is_refused_by_its_row(weight):
    frame = pd.DataFrame({"q": ["a", "b"], "people": pd.Series([2, weight], dtype=object)})
    with pytest.raises(InputError, match="'people', row 2") as problem:
        risk(frame, ["q"], weight="people")
    assert "many" not in str(problem.value)


def test_columns_that_are_not_there_are_named_and_no_rows_have_no_risk():
    with pytest.raises(InputError, match=r"'peple'.*Did you mean 'people'"):
        risk(pd.DataFrame({"q": [1], "people": [2]}), ["q"], weight="peple")
    empty = risk(pd.DataFrame({"q": []}), ["q"])
    assert empty.expected_count == 0
    assert "no rows" in empty.summary()
