"""Ways to count at the same ε: errors of noise against the planner of tables, trust, refusals."""

import itertools
import math

import pytest

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.plan.counting import noise_factor

FIVE = {name: ["yes", "no"] for name in "abcde"}
THREE = {"parties": 3, "colluders": 1}


@pytest.mark.parametrize("queries", ["pairs", "singles", "a×b×c, d×e, a"])
def test_noise_of_a_plan_is_that_of_the_tables(queries):
    """The largest noise of a cell, by two ways: contrasts in closed form, and the fusion of tables."""
    schema = mq.Schema(FIVE | {"b": [1, 2, 3]})
    plan = mq.plan(schema, privacy=1, n=10_000, queries=queries, counted_by=THREE)
    asked = [mq.Query(by=table) for table in plan.task.tables]
    tables = mq.plan_tables(schema, asked, n=10_000, epsilon=1, contributors=3, colluders=1)
    sizes = {name: len(schema[name]) for name in schema}
    widest = [set(q.by) for q in asked if not any(set(q.by) < set(other.by) for other in asked)]
    factors = [noise_factor(frozenset(q.by), [frozenset(t) for t in widest], sizes) for q in asked]
    assert math.sqrt(max(factors) * tables.terms.variance) == pytest.approx(tables.worst, rel=1e-9)
    assert plan.counting.tables == tables.terms.number


def test_ways_are_ordered_as_their_trust_buys():
    plan = mq.plan(FIVE, privacy=1, n=10_000, counted_by=THREE)
    frame = plan.counting.to_frame().set_index("way")
    masks, shuffled, parties, people, curator = frame["stderr"]
    assert masks > shuffled > parties > curator
    assert curator < people < parties  # 15% of the people may be missing, a third of the parties
    assert frame.loc["masks", "delta"] == 0
    assert "at most 1 of 3 parties collude" in plan.summary()
    assert plan.counting.to_dict()["ways"][2]["way"] == "noise by 3 parties"
    assert plan.plot_counting().get_xlabel().startswith("± points")


def test_people_needed_for_an_error_reach_it():
    plan = mq.plan(FIVE, privacy=1, error=0.01, counted_by=THREE)
    needed = plan.counting.to_frame().set_index("way")["needed_n"]
    assert needed["masks"] == pytest.approx(plan.n, rel=1e-3)
    n = math.ceil(needed["noise by 3 parties"])
    again = mq.plan(FIVE, privacy=1, n=n, counted_by=THREE)
    assert again.counting.to_frame().set_index("way").loc["noise by 3 parties", "margin"] == pytest.approx(
        0.01, rel=1e-3
    )


def test_consistent_pairs_have_the_factor_of_the_closed_form():
    """All pairs of d variables with K categories: (1−1/K)² + 2(1−1/K)/(K(d−1)), .31 for ten yes/no."""
    names = [f"q{i}" for i in range(10)]
    pairs = [frozenset(pair) for pair in itertools.combinations(names, 2)]
    factor = noise_factor(pairs[0], pairs, dict.fromkeys(names, 2))
    assert factor == pytest.approx(0.25 + 2 * 0.5 / (2 * 9))


@pytest.mark.parametrize(
    "wrong", [{}, {"parties": 3, "colluders": 3}, {"parties": 0}, {"people": 3}, {"parties": True}]
)
def test_parties_that_cannot_count_are_refused(wrong):
    with pytest.raises(InputError):
        mq.plan(FIVE, privacy=1, n=1000, counted_by=wrong)
