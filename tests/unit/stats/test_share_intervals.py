"""Intervals of shares: within [0, 1], never empty, and their coverage by summing over all reports."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, chi2

import masquerade as mq
from masquerade.core.errors import InputError, SchemaError

C = mq.channels
YES = ["yes", "no"]
FORCED = mq.Policy.build({"x": YES}, {"x": C.forced_response("1/6", "1/6")})


def shares_of(said, n, policy=FORCED):
    reports = pd.DataFrame({"x": ["yes"] * said + ["no"] * (n - said)})
    return mq.stats.shares(mq.tally(reports, policy), "x")


@pytest.mark.filterwarnings("ignore:No truth explains")
@pytest.mark.parametrize("said", [0, 3, 10, 16, 90, 100])
def test_intervals_are_within_0_and_1_and_not_empty(said):
    found = shares_of(said, 100)
    assert np.all(found.lower >= 0)
    assert np.all(found.upper <= 1)
    assert np.all(found.lower < found.upper)
    np.testing.assert_allclose(found.lower, 1 - found.upper[::-1], atol=1e-9)


def test_where_the_estimate_is_outside_the_likelihood_decides():
    found = shares_of(10, 100)
    assert found.values[0] < 0

    def loss(share):
        return 2 * (binom.logpmf(10, 100, 1 / 6) - binom.logpmf(10, 100, 1 / 6 + 2 / 3 * share))

    end = brentq(lambda share: loss(share) - chi2.ppf(0.95, 1), 0, 1)
    assert (found.lower[0], found.upper[0]) == pytest.approx((0, end), abs=1e-6)


@pytest.mark.filterwarnings("ignore:No truth explains")
@pytest.mark.parametrize("n", [100, 400])
@pytest.mark.parametrize("share", [0.005, 0.02, 0.1, 0.5])
def test_intervals_hold_as_often_as_they_state(n, share):
    """The coverage is exact: every number of reports that occurs with chance above 1e-9, by its chance."""
    chances = binom.pmf(np.arange(n + 1), n, 1 / 6 + 2 / 3 * share)
    held = 0.0
    for said in np.flatnonzero(chances > 1e-9):
        found = shares_of(int(said), n)
        held += chances[said] * (found.lower[0] <= share <= found.upper[0])
    assert 0.93 <= held <= 0.985


def test_three_categories_and_groups_have_intervals_within_0_and_1():
    draw = np.random.default_rng(1)
    schema = {"x": ["a", "b", "c"], "g": ["u", "v"]}
    policy = mq.Policy.build(schema, {"x": C.symmetric(3, "0.5"), "g": C.binary("0.3")})
    people = pd.DataFrame({"x": ["a"] * 60, "g": draw.choice(["u", "v"], 60)})
    source = mq.tally(mq.simulate(people, policy, seed=1), policy)
    for found in (mq.stats.shares(source, "x"), mq.stats.shares(source, "x", by="g")):
        assert np.all((found.lower >= 0) & (found.upper <= 1) & (found.lower <= found.upper))
    assert np.nanmin(mq.stats.shares(source, "x").values) < 0
    by = mq.stats.shares(source, "g", by="x")
    assert np.all((by.lower >= 0) & (by.upper <= 1) & (by.lower <= by.upper))


def test_no_records_have_shares_that_are_unknown_and_no_regression():
    source = mq.tally(pd.DataFrame({"x": []}, dtype=object), FORCED)
    found = mq.stats.shares(source, "x")
    assert np.isnan(found.values).all()
    assert np.isinf(found.stderr).all()
    assert found.notes == ("There are no records.",)
    assert (found.lower.tolist(), found.upper.tolist()) == ([0, 0], [1, 1])
    with pytest.raises(InputError, match="needs records"):
        mq.stats.logistic(source, "x ~ 1")


def test_counts_are_repeated_rows():
    schema = {"x": YES, "g": ["u", "v"]}
    policy = mq.Policy.build(schema, {"x": C.forced_response("1/6", "1/6")})
    short = pd.DataFrame({"x": ["yes", "no", "yes", "no"], "g": ["u", "u", "v", "v"], "n": [30, 90, 55, 25]})
    long = short.loc[short.index.repeat(short["n"]), ["x", "g"]].reset_index(drop=True)
    few, many = mq.tally(short, policy, counts="n"), mq.tally(long, policy)
    assert few.n == 200
    assert mq.stats.shares(few, "x", by="g").to_frame().equals(mq.stats.shares(many, "x", by="g").to_frame())
    one, other = (mq.stats.logistic(source, "x ~ g") for source in (few, many))
    assert one.summary() == other.summary()
    assert mq.tally(short.assign(n=0), policy, counts="n").n == 0
    clear = mq.tally(short, counts="n", schema=mq.Schema(schema))
    assert mq.stats.shares(clear, "g").values.tolist() == pytest.approx([0.6, 0.4])
    for wrong in ([1.5, 1, 1, 1], [-1, 1, 1, 1], [np.inf, 1, 1, 1]):
        with pytest.raises(InputError, match="whole numbers"):
            mq.tally(short.assign(n=wrong), policy, counts="n")
    for options in ({"weights": "n"}, {"id": "n"}, {"engine": "duckdb"}):
        with pytest.raises(InputError, match="counts"):
            mq.tally(short, policy, counts="n", **options)


def test_numbers_with_decimals_are_categories_by_how_they_are_written():
    doses = mq.Schema({"dose": [0.5, 1.0, 2.25]})
    assert doses["dose"].categories == ("0.5", 1, "2.25")
    source = mq.tally(pd.DataFrame({"dose": [0.5, 1.0, 2.25, 0.5]}), schema=doses)
    assert mq.stats.shares(source, "dose").values.tolist() == [0.5, 0.25, 0.25]
    assert mq.stats.mean(source, "dose").values[0] == pytest.approx(1.0625)
    assert doses["dose"].code(2.25) == 2
    inferred = mq.tally(pd.DataFrame({"dose": [0.5, 1.5, 0.5]}))
    assert inferred.schema["dose"].categories == ("0.5", "1.5")
    policy = mq.Policy.build({"dose": [0.5, 1.5]}, {"dose": C.binary("0.2")})
    assert mq.Policy.from_dict(policy.to_dict()) == policy
    for label in (float("nan"), float("inf")):
        with pytest.raises(SchemaError, match="finite"):
            mq.Schema({"dose": [0.5, label]})
