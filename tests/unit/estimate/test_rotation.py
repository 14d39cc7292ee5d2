"""Rotations are uniform and exact; double projections have the covariance that is claimed."""

from __future__ import annotations

import numpy as np
import pytest
from tests.statistical.checks import assert_unbiased, assert_variance

from masquerade.estimate.rotation import (
    RandomProjection,
    inner_product_covariance,
    inner_product_covariance_from_estimates,
    rotate,
)

RUNS = 4000


@pytest.mark.parametrize("records", [1, 2, 7, 64, 65, 300])
def test_a_rotation_is_orthogonal(records):
    Q = rotate(np.eye(records), np.random.default_rng(records).standard_normal).T
    np.testing.assert_allclose(Q @ Q.T, np.eye(records), atol=1e-13 * records)


def test_rotations_are_uniform():
    # moments of Haar measure on O(n), n ≥ 4: E Q = 0, E Q² = 1/n, E Q⁴ = 3/(n(n+2)),
    # E Q_11² Q_12² = 1/(n(n+2)), E Q_11² Q_22² = (n+1)/((n−1)n(n+2)), traces have the moments
    # 0, 1, 0, 3, determinants ±1 alike
    n, rng = 4, np.random.default_rng(5)
    Q = np.array([rotate(np.eye(n), rng.standard_normal).T for _ in range(RUNS)])
    trace = np.trace(Q, axis1=1, axis2=2)
    assert_unbiased(Q, np.zeros((n, n)))
    assert_unbiased(Q**2, np.full((n, n), 1 / n))
    assert_unbiased(Q**4, np.full((n, n), 3 / (n * (n + 2))))
    assert_unbiased(Q[:, 0, 0] ** 2 * Q[:, 0, 1] ** 2, np.array(1 / (n * (n + 2))))
    assert_unbiased(Q[:, 0, 0] ** 2 * Q[:, 1, 1] ** 2, np.array((n + 1) / ((n - 1) * n * (n + 2))))
    for power, moment in enumerate((0, 1, 0, 3), start=1):
        assert_unbiased(trace**power, np.array(float(moment)))
    assert_unbiased(np.sign(np.linalg.det(Q)), np.array(0.0))


def columns():
    rng = np.random.default_rng(8)
    x, y, x2, y2 = rng.choice([-1.0, 1.0], size=(4, 30))
    return np.stack([x, np.where(rng.random(30) < 0.3, -x, y), x2, np.where(rng.random(30) < 0.2, y2, x)])


def products(x, y, x2, y2):
    return (x @ x2) * (y @ y2), (x @ y2) * (x2 @ y), (x @ y) * (x2 @ y2)


@pytest.mark.parametrize(
    "reduction", [RandomProjection(12, 7), RandomProjection(5, 4, 3), RandomProjection(20, 30)]
)
def test_the_covariance_of_inner_products(reduction):
    x, y, x2, y2 = columns()
    rng = np.random.default_rng(reduction.k)
    sent = np.array([reduction.project(np.stack([x, y, x2, y2]), rng.standard_normal) for _ in range(RUNS)])
    assert sent.shape[2] == reduction.k * reduction.trials
    gram = sent @ sent.transpose(0, 2, 1)
    assert_unbiased(gram, np.stack([x, y, x2, y2]) @ np.stack([x, y, x2, y2]).T)
    first, second = gram[:, 0, 1], gram[:, 2, 3]
    claimed = inner_product_covariance(reduction, *products(x, y, x2, y2))
    assert_unbiased((first - x @ y) * (second - x2 @ y2), np.array(claimed))
    own = inner_product_covariance(reduction, *products(x, y, x, y))
    assert_variance(first, np.full(RUNS, own))
    # from the estimates across owners; the products within one are known
    q = gram[:, 0, 3] * gram[:, 2, 1], first * second
    assert_unbiased(
        inner_product_covariance_from_estimates(reduction, (x @ x2) * (y @ y2), *q), np.array(claimed)
    )
    assert_unbiased(
        inner_product_covariance_from_estimates(reduction, 900.0, first**2, first**2), np.array(own)
    )


@pytest.mark.parametrize(("p", "k"), [(1, 1), (10, 3), (40, 80)])
def test_the_variance_is_the_known_formula(p, k):
    x, y, *_ = columns()
    a, b, c = x @ x, y @ y, x @ y
    formula = (a * b + c**2 + (a * b + 3 * c**2) / p) / k + (a * b + c**2) / p
    assert inner_product_covariance(RandomProjection(p, k), *products(x, y, x, y)) == pytest.approx(formula)
    assert inner_product_covariance(RandomProjection(p, k, 5), *products(x, y, x, y)) == pytest.approx(
        formula / 5
    )


def test_blocks_of_random_numbers_do_not_matter(monkeypatch):
    whole = RandomProjection(9, 4).project(columns(), np.random.default_rng(1).standard_normal)
    monkeypatch.setattr("masquerade.estimate.rotation.BLOCK", 70)
    np.testing.assert_allclose(
        RandomProjection(9, 4).project(columns(), np.random.default_rng(1).standard_normal), whole
    )
