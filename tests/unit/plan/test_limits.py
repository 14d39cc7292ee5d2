"""The bound of docs/limits.md: attained by the best channel of one table, and beaten by no other."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

import masquerade as mq

ALARM = 1e-6


def bound(categories, gamma):
    """Return the least mean cell variance for one record, by the planner."""
    made = mq.plan({"x": list(range(categories))}, privacy={"gamma": gamma}, n=1000, queries="singles")
    return float(made.task.floor(math.log(gamma))[0]), made


def information_bound(matrix):
    """Return the mean variance of a cell by the Fisher information of equal shares, for one record."""
    size = len(matrix)
    reports = matrix.mean(axis=0)
    information = (matrix / reports) @ matrix.T
    return (np.trace(np.linalg.inv(information)) - 1 / size) / size


@pytest.mark.parametrize("gamma", [2, 3, 9, 19])
def test_a_yes_or_no_question_needs_so_many_times_the_people(gamma):
    least, made = bound(2, gamma)
    assert least == pytest.approx(0.25 * ((gamma + 1) / (gamma - 1)) ** 2, rel=1e-9)
    (error,) = made.errors
    assert error.variance == pytest.approx(least, rel=1e-4)


@pytest.mark.parametrize(("categories", "gamma"), [(3, 3), (4, 2), (4, 9), (5, 3), (6, 5)])
def test_no_mechanism_of_any_shape_is_below_the_bound(categories, gamma):
    """Mechanisms with γ are mixtures of columns of two values, 1 and γ: 400 random ones, fair by shifts."""
    generator = np.random.default_rng(categories * gamma)
    least, _ = bound(categories, gamma)
    errors = []
    for _ in range(400):
        patterns = generator.integers(0, 2, (generator.integers(1, 4), categories))
        columns = np.vstack([np.roll(some, shift) for some in patterns for shift in range(categories)])
        weights = np.repeat(generator.random(len(patterns)) + 0.01, categories)
        matrix = (weights[:, None] * gamma**columns).T
        matrix = matrix / matrix.sum(axis=1, keepdims=True)
        if np.linalg.cond(matrix @ matrix.T) < 1e10:
            errors.append(information_bound(matrix))
    assert len(errors) > 200
    assert min(errors) >= least * (1 - 1e-9)
    assert min(errors) <= least * (1 + 1e-6)  # the bound is attained: by subsets of the best size


def test_no_design_of_a_plan_is_below_the_bound():
    schema = {"a": [0, 1], "b": [0, 1, 2], "c": [0, 1, 2, 3]}
    for queries in ("singles", "pairs"):
        made = mq.plan(schema, privacy={"gamma": 9}, n=5000, queries=queries)
        floors = made.task.floor(made.epsilon)
        for way in made.ways:
            assert np.all(way.variances(made.epsilon) >= floors * (1 - 1e-9)), way.title
        assert made.queries["stderr"].ge(made.queries["floor"] * (1 - 1e-9)).all()


def test_simulated_errors_are_not_below_the_bound():
    """1,000 squared errors over the bound follow χ²; fewer than its 1e-6 quantile would beat it."""
    gamma, n, runs = 3, 400, 1000
    least, made = bound(2, gamma)
    policy = made.policy
    squares = 0.0
    generator = np.random.default_rng(1)
    for seed in range(runs):
        truth = generator.integers(0, 2, n)
        (table,) = mq.tally(mq.simulate(pd.DataFrame({"x": truth}), policy, seed), policy).answer(
            [mq.Query(by=("x",))]
        )
        squares += (table.values[1] / n - 0.5) ** 2
    assert squares / (least / n) > chi2.ppf(ALARM, runs)
    assert squares / (least / n) < chi2.isf(ALARM, runs)


def test_the_bound_falls_with_people_and_with_gamma():
    by_gamma = [bound(4, gamma)[0] for gamma in (2, 3, 5, 9, 19)]
    assert all(first > second for first, second in pairwise(by_gamma))
