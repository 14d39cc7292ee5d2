"""Information gain and the corrected test of independence, against textbook values and plain matrices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2_contingency
from tests.statistical.checks import normal_bound

import masquerade as mq
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn._information_gain import (
    association,
    chi_square_tail,
    clipped,
    entropy,
    information_gain,
    split_information,
)
from masquerade.sources.records import Records

# Quinlan's (1986) weather data: rows are the feature's categories, columns "play" and "don't"
OUTLOOK = np.array([[2.0, 3.0], [4.0, 0.0], [3.0, 2.0]])
WINDY = np.array([[3.0, 3.0], [6.0, 2.0]])


def test_gains_are_quinlans():
    # printed in the paper: 0.246 and 0.048 bits, by truncated intermediate values
    assert information_gain(OUTLOOK) == pytest.approx(0.2467, abs=1e-4)
    assert information_gain(WINDY) == pytest.approx(0.0481, abs=1e-4)
    assert split_information(OUTLOOK) == pytest.approx(1.5774, abs=1e-4)
    assert entropy(np.array([9.0, 5.0])) == pytest.approx(0.9403, abs=1e-4)


def test_gain_is_mutual_information_for_many_tables_at_once():
    tables = np.random.default_rng(1).gamma(1.0, 10.0, (20, 4, 3))
    joint = tables / tables.sum(axis=(1, 2), keepdims=True)
    product = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        information_gain(tables), (joint * np.log2(joint / product)).sum(axis=(1, 2)), atol=1e-12
    )


def test_empty_tables_tell_nothing():
    empty = np.zeros((2, 3, 2))
    assert information_gain(empty).tolist() == [0.0, 0.0]
    assert split_information(empty).tolist() == [0.0, 0.0]
    result = association(empty[0], np.zeros((6, 6)), 10)
    assert (result.df, result.p_value) == (0, 1.0)


def test_clipping_is_the_tables_own():
    policy = mq.Policy.build({"a": [0, 1, 2], "b": [0, 1]}, {"a": mq.channels.symmetric(3, "0.4")})
    codes = {"a": np.array([0, 0, 0, 1], np.uint8), "b": np.array([0, 1, 1, 0], np.uint8)}
    (table,) = Records(codes, policy).answer([mq.Query(by=("a", "b"))])
    assert table.values.min() < 0
    np.testing.assert_allclose(clipped(table.values), table.nonnegative("clip").values)
    assert clipped(-np.ones((2, 2))).tolist() == [[0, 0], [0, 0]]


def test_on_clear_records_it_is_the_ordinary_g_test():
    generator = np.random.default_rng(2)
    codes = {"a": generator.integers(0, 4, 300), "b": generator.integers(0, 3, 300)}
    policy = mq.Policy.build({"a": [0, 1, 2, 3], "b": [0, 1, 2]}, {})
    source = Records({k: v.astype(np.uint8) for k, v in codes.items()}, policy)
    (table,) = source.answer([mq.Query(by=("a", "b"))])
    result = association(table.values, table.covariance.dense(), table.n)
    expected = chi2_contingency(table.values, correction=False, lambda_="log-likelihood")
    assert result.design_effect == pytest.approx(1, abs=1e-9)
    assert result.df == expected.dof
    assert result.statistic == pytest.approx(expected.statistic, rel=1e-10)
    assert result.p_value == pytest.approx(expected.pvalue, rel=1e-8)


def test_an_unseen_category_lowers_the_degrees_of_freedom():
    values = np.array([[30.0, 10.0], [0.0, 0.0], [15.0, 25.0]])
    covariance = np.diag(values.ravel()) - np.outer(values, values) / 80
    whole = association(values, covariance, 80)
    kept = [0, 1, 4, 5]
    part = association(values[[0, 2]], covariance[np.ix_(kept, kept)], 80)
    assert whole.df == 1
    assert (whole.statistic, whole.p_value) == pytest.approx((part.statistic, part.p_value))


def test_the_design_effect_is_that_of_the_methods_formula():
    """Σ residual variance/(Eπ_xπ_z)/df with Kronecker products written out, the null part taken as exact."""
    policy = mq.Policy.build(
        {"a": [0, 1, 2], "b": [0, 1], "c": [0, 1]},
        {
            "a": mq.channels.symmetric(3, "0.3"),
            "b": mq.channels.binary("0.1"),
            "c": mq.channels.binary("0.2"),
        },
    )
    generator = np.random.default_rng(3)
    codes = {
        name: generator.integers(0, size, 20_000).astype(np.uint8)
        for name, size in (("a", 3), ("b", 2), ("c", 2))
    }
    source = Records(simulate_codes(codes, policy, generator), policy)
    (table,) = source.answer([mq.Query(by=("a", "b"), where={"c": 1})])
    values, total = table.values, table.total
    assert values.min() > 0
    x, z = values.sum(axis=1) / total, values.sum(axis=0) / total
    residual = np.kron(np.eye(3) - np.outer(x, np.ones(3)), np.eye(2) - np.outer(z, np.ones(2)))
    expected = total * np.kron(x, z)
    disguise = table.covariance.dense(kind="given_records")
    plain = np.diag(expected) - np.outer(expected, expected) / table.n
    variance = np.diag(residual @ (disguise + plain) @ residual.T)
    result = association(values, table.covariance.dense(), table.n)
    assert result.df == 2
    assert result.design_effect == pytest.approx((variance / expected).sum() / 2, rel=1e-9)
    # the eigenvalues behind the second order: their mean and spread
    scaled = residual @ (disguise + plain) @ residual.T / np.sqrt(np.outer(expected, expected))
    weights = np.linalg.eigvalsh(scaled)
    spread = 2 * (weights**2).sum() / weights.sum() ** 2
    tail = chi_square_tail(result.statistic / (weights.sum() / 2 * spread), 2 / spread)
    assert result.p_value == pytest.approx(tail, rel=1e-9)


@pytest.mark.parametrize(("change", "where"), [("0.2", {}), ("0.1", {"w": 1})])
def test_p_values_are_uniform_enough_under_noise(change, where):
    """Of 1,000 independent tables of six degrees of freedom, 5 % are rejected; uncorrected, most are.

    A binomial share of 1,000 trials leaves its expectation by the bound below with probability 1e-6.
    """
    sizes = {"x": 4, "y": 3, "w": 2}
    policy = mq.Policy.build(
        {name: list(range(size)) for name, size in sizes.items()},
        {name: mq.channels.symmetric(size, change) for name, size in sizes.items()},
    )
    generator = np.random.default_rng(4)
    corrected, plain = [], []
    for _ in range(1000):
        codes = {
            name: generator.choice(size, 5000, p=np.arange(1, size + 1) / (size * (size + 1) / 2))
            for name, size in sizes.items()
        }
        codes = {name: column.astype(np.uint8) for name, column in codes.items()}
        source = Records(simulate_codes(codes, policy, generator), policy)
        (table,) = source.answer([mq.Query(by=("x", "y"), where=where)])
        result = association(table.values, table.covariance.dense(), table.n)
        corrected.append(result.p_value)
        plain.append(chi_square_tail(result.statistic, result.df))
    for level in (0.05, 0.5):
        share = np.mean(np.array(corrected) <= level)
        assert abs(share - level) <= normal_bound(2) * np.sqrt(level * (1 - level) / 1000)
    assert np.mean(np.array(plain) <= 0.05) > 0.3
