"""Quantiles of beta distributions, against SciPy's."""

import numpy as np
import pytest
from scipy.special import betainc, betaincinv

from masquerade.core.beta_quantile import beta_quantile, beta_share


@pytest.mark.parametrize("share", [0.0005, 0.025, 0.3, 0.975, 0.9999])
@pytest.mark.parametrize("m", [2, 11, 101, 10_001, 1_000_001])
def test_quantiles_are_scipys(share, m):
    k = np.concatenate([[1.0], np.random.default_rng(m).uniform(0.05, min(m - 0.5, 15), 60)])
    found, wanted = beta_quantile(k, m - k, share), betaincinv(k, m - k, share)
    assert np.all(np.abs(found - wanted) <= 1e-6 * np.minimum(wanted, 1 - wanted) + 1e-12 / m)


def test_quantiles_of_many_of_both_kinds_are_scipys():
    a, b = np.random.default_rng(1).uniform(400, 1e5, (2, 50))
    np.testing.assert_allclose(beta_quantile(a, b, 0.975), betaincinv(a, b, 0.975), rtol=1e-5)


def test_none_or_all_have_an_end_at_the_limit():
    assert beta_quantile(np.array([0.0, 5.0]), np.array([5.0, 0.0]), 0.3).tolist() == [0, 1]


def test_shares_below_are_scipys():
    a, b, x = np.random.default_rng(2).uniform([[0.1], [0.1], [0]], [[30], [300], [1]], (3, 200))
    np.testing.assert_allclose(beta_share(a, b, x), betainc(a, b, x), rtol=1e-7, atol=1e-12)
