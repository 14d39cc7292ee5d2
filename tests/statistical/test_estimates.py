"""Unbiased estimates, correct standard errors, honest intervals: the papers' table and random policies."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.statistical.checks import assert_coverage, assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.linear_covariance import CovariancePart, LinearCovariance
from masquerade.core.table import CountTable
from masquerade.disguising.seeded import simulate_codes
from masquerade.estimate.evidence import ReportEvidence
from masquerade.sources.query_plan import QueryLayout
from masquerade.sources.records import Records

RUNS = 20_000

# Ma (2006), Table 2.1. It sums to 0.95 as printed: column 5 lacks 1/20, declared here as the cell (5, 5).
TABLE_2_1 = np.array(
    [
        [1 / 40, 3 / 10, 0, 1 / 60, 0],
        [3 / 40, 0, 1 / 30, 1 / 20, 1 / 20],
        [0, 1 / 10, 1 / 30, 0, 0],
        [1 / 20, 0, 0, 1 / 60, 1 / 10],
        [1 / 20, 0, 1 / 30, 1 / 60, 1 / 20],
    ]
)


def table_2_1_policy(p: float) -> mq.Policy:
    schema = mq.Schema({"X1": [1, 2, 3, 4, 5], "X2": [1, 2, 3, 4, 5]})
    channel = mq.channels.symmetric(5, p)
    return mq.Policy.build(schema, {"X1": channel, "X2": channel})


def random_joint_policy(seed: int) -> mq.Policy:
    """A group of two with any matrix, a rectangular channel and a symmetric one."""
    generator = np.random.default_rng(seed)
    schema = mq.Schema({"a": [0, 1], "b": [0, 1, 2], "c": ["x", "y"], "d": ["p", "q", "r"]})

    def rows(truths: int, reports: int) -> list[list[Fraction]]:
        weights = generator.integers(1, 20, (truths, reports))
        weights[:, :truths] += 60 * np.eye(truths, dtype=int)
        return [[Fraction(int(w), int(row.sum())) for w in row] for row in weights]

    return mq.Policy.build(
        schema,
        {
            ("a", "b"): mq.channels.matrix(rows(6, 6)),
            "c": mq.channels.matrix(rows(2, 4)),
            "d": mq.channels.symmetric(3, 0.25),
        },
    )


def answer(observed, plan, policy, by) -> CountTable:
    """The table that a source of records makes of observed counts."""
    values = plan.maps.apply(observed)
    covariance = LinearCovariance((CovariancePart(observed, plan.maps),), values, values, int(observed.sum()))
    evidence = ReportEvidence.of([plan.reports(observed)], values, covariance)
    return CountTable(tuple(policy.schema[name] for name in by), values, int(observed.sum()), evidence)


def simulated(policy: mq.Policy, by: tuple[str, ...], truth: np.ndarray, n: int, seed: int):
    """Yield tables estimated from multinomial draws of the observed counts."""
    plan = QueryLayout(policy.groups, policy.schema).plan(mq.Query(by=by))
    chances = truth
    for axis, observed_axis in enumerate(plan.axes):
        chances = np.moveaxis(np.tensordot(chances, observed_axis.channel.matrix, (axis, 0)), -1, axis)
    draws = np.random.default_rng(seed).multinomial(n, chances.ravel(), size=RUNS)
    for draw in draws:
        yield answer(draw.reshape(chances.shape).astype(float), plan, policy, by)


def test_table_2_1_is_completed_as_declared():
    assert TABLE_2_1.sum() == pytest.approx(1)
    assert TABLE_2_1.sum() - TABLE_2_1[4, 4] == pytest.approx(0.95)


def test_dissertation_table_2_1_is_estimated_without_bias_and_with_correct_errors():
    n = 5000
    tables = list(simulated(table_2_1_policy(0.5), ("X1", "X2"), TABLE_2_1, n, seed=21))
    assert_unbiased([table.values for table in tables], n * TABLE_2_1)
    assert_variance([table.values for table in tables], [table.stderr() ** 2 for table in tables])
    inside = [within(table, n * TABLE_2_1) for table in tables[::4]]
    frequent = n * TABLE_2_1 >= 30
    assert_coverage([cells[frequent] for cells in inside], 0.95, slack=0.005)


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_random_joint_policies_have_correct_errors_and_coverage(seed):
    policy, n = random_joint_policy(seed), 4000
    truth = np.random.default_rng(seed).dirichlet(np.full(12, 2.0))
    tables = list(simulated(policy, ("d", "c", "a"), marginalised(truth, policy), n, seed))
    expected = n * truth_over(truth)
    assert_unbiased([table.values for table in tables], expected)
    assert_variance([table.values for table in tables], [table.stderr() ** 2 for table in tables])
    frequent = expected >= 30
    assert frequent.any()
    assert_coverage([within(table, expected)[frequent] for table in tables[::4]], 0.95, slack=0.005)


def within(table: CountTable, expected: np.ndarray) -> np.ndarray:
    lower, upper = table.conf_int(0.95)
    return (lower <= expected) & (expected <= upper)


def truth_over(truth: np.ndarray) -> np.ndarray:
    """P(d, c, a) from the twelve cells drawn."""
    return truth.reshape(3, 2, 2)


def marginalised(truth: np.ndarray, policy: mq.Policy) -> np.ndarray:
    """P over the axes that are tabulated: d, c, then (a, b) together since the group is not lumpable."""
    b = np.array([0.5, 0.3, 0.2])
    joint = np.einsum("dca,b->dcab", truth.reshape(3, 2, 2), b)
    assert policy.groups[0].channel.marginal((2, 3), (2, 3), (0,)) is None
    return joint.reshape(3, 2, 6)


def test_intervals_of_clear_counts_cover():
    """Nothing disguised: Wilson's interval; its exact coverage goes up and down with the count."""
    n, counts = 5000, np.arange(30, 90)
    policy = mq.Policy.clear(mq.Schema({"a": ["x", "y"]}))
    plan = QueryLayout(policy.groups, policy.schema).plan(mq.Query(by="a"))
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    k = np.arange(0, 270)
    ends = [answer(np.array([x, n - x], float), plan, policy, ("a",)).conf_int() for x in k]
    lower, upper = (np.array([end[i][0] for end in ends]) for i in range(2))
    coverage = []
    for count in counts:
        p = count / n
        chance = np.exp(logs[n] - logs[k] - logs[n - k] + k * np.log(p) + (n - k) * np.log1p(-p))
        coverage.append(chance[(lower <= count) & (count <= upper)].sum())
    assert np.mean(coverage) == pytest.approx(0.95, abs=0.005)
    np.testing.assert_allclose(coverage, 0.95, atol=0.01)


@pytest.mark.parametrize("seed", range(2))
def test_given_the_records_the_disguise_is_the_only_error(seed):
    """The whole path, kernels included: records fixed, disguised again and again."""
    policy = random_joint_policy(10 + seed)
    generator = np.random.default_rng(seed)
    codes = {
        name: generator.integers(0, len(policy.schema[name]), 600).astype(np.uint8) for name in policy.schema
    }
    query = mq.Query(by=("b", "c"), where={"a": 1})
    clear = Records(codes, policy.without_channels())
    (truth,) = clear.answer([query])
    estimates, variances = [], []
    for _ in range(1500):
        (table,) = Records(simulate_codes(codes, policy, generator), policy).answer([query])
        estimates.append(table.values)
        variances.append(table.covariance.diagonal("given_records"))
    assert_unbiased(estimates, truth.values)
    assert_variance(estimates, variances)


def test_survey_weights_give_unbiased_totals_with_correct_errors():
    """Records drawn with replacement and unequal chances, weighted by their inverse."""
    policy = mq.Policy.build({"a": ["x", "y", "z"]}, {"a": mq.channels.symmetric(3, 0.3)})
    generator = np.random.default_rng(5)
    people = generator.integers(0, 3, 200)
    chances = generator.uniform(0.5, 2, 200)
    chances /= chances.sum()
    n = 150
    totals = np.bincount(people, minlength=3)
    estimates, variances = [], []
    for _ in range(3000):
        drawn = generator.choice(200, size=n, p=chances)
        reports = simulate_codes({"a": people[drawn].astype(np.uint8)}, policy, generator)
        (table,) = Records(reports, policy, 1 / (n * chances[drawn])).answer([mq.Query(by="a")])
        estimates.append(table.values)
        variances.append(table.stderr() ** 2)
    assert_unbiased(estimates, totals)
    assert_variance(estimates, variances)
