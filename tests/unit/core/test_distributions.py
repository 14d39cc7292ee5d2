"""Quantiles and tails, at their limits and against a second implementation."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from masquerade.core import distributions


@pytest.mark.parametrize("share", [0.0005, 0.025, 0.3, 0.975, 0.9999])
@pytest.mark.parametrize("m", [2, 11, 101, 10_001, 1_000_001])
def test_beta_quantile_inverts_the_beta_distribution(share, m):
    k = np.concatenate([[1.0], np.random.default_rng(m).uniform(0.05, min(m - 0.5, 15), 60)])
    found = distributions.beta_quantile(k, m - k, share)
    np.testing.assert_allclose(stats.beta.cdf(found, k, m - k), share, rtol=1e-7)


def test_beta_quantile_of_none_or_all_is_at_the_limit():
    ends = distributions.beta_quantile(np.array([0.0, 5.0]), np.array([5.0, 0.0]), 0.3)
    assert ends.tolist() == [0, 1]


@pytest.mark.parametrize("df", [0.3, 1, 2, 5.5, 30, 1000, 20_000])
def test_chi_square_tail_is_an_incomplete_gamma_function(df):
    for statistic in df * np.array([0.01, 0.5, 0.9, 1.0, 1.1, 2.0]) + np.array([0, 0, 0, 1, 10, 200]):
        wanted = stats.gamma.sf(statistic, df / 2, scale=2)
        assert distributions.chi_square_tail(statistic, df) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("df", [0.3, 1, 5.5, 1000])
@pytest.mark.parametrize("p", [0.9, 0.05, 1e-9])
def test_chi_square_point_is_not_beyond_its_tail(df, p):
    point = distributions.chi_square_point(p, df)
    assert point == pytest.approx(stats.chi2.isf(p, df), rel=1e-8, abs=1e-12)
    assert distributions.chi_square_tail(point, df) >= p


def test_chi_square_tail_at_its_limits():
    assert distributions.chi_square_tail(5.0, 0) == distributions.chi_square_tail(0.0, 3) == 1.0
    assert distributions.chi_square_tail(math.inf, 3) == 0.0


def test_normal_quantiles_invert_the_normal_distribution():
    assert distributions.normal_share(distributions.normal_quantile(0.123)) == pytest.approx(0.123)
    assert NormalDist().cdf(distributions.two_sided_quantile(0.9)) == pytest.approx(0.95)
