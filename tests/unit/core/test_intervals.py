"""Wilson's where nothing is disguised, the normal one where noise dominates, Fieller's for shares."""

import numpy as np
import pytest

from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.intervals import (
    RatioErrors,
    count_interval,
    normal_interval,
    ratio_errors,
)
from masquerade.core.report_moments import share_interval


def wilson(share, n, z):
    """Return Wilson's (1927) interval of a share, as it is printed in textbooks."""
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return middle - half, middle + half


@pytest.mark.parametrize("n", [1, 40, 10_000])
def test_without_disguise_counts_and_shares_have_wilsons_interval(n):
    share, z = np.linspace(0, 1, 11), two_sided_quantile(0.95)
    expected = wilson(share, n, z)
    counts = share * n
    found = count_interval(counts, counts - counts**2 / n, n, z)
    assert np.allclose(found, np.array(expected) * n)
    as_share = count_interval(share, share * (1 - share) / n, n, z, 1 / n)
    assert np.allclose(as_share, expected)


def test_a_share_of_a_known_number_of_clear_records_has_wilsons_interval():
    counts, n = np.array([30.0, 10.0]), 40
    # the whole sample: the number of records is known, so that its variance is none
    covariance = np.diag(counts) - np.outer(counts, counts) / n
    errors = ratio_errors(counts / n, covariance, np.asarray(float(n)))
    assert errors.stderr == pytest.approx(np.sqrt(0.75 * 0.25 / n))
    found = share_interval(counts / n, errors, np.asarray(float(n)), 1.5, n=n)
    assert np.allclose(found[:2], wilson(counts / n, n, 1.5))
    assert found.bounded.all()


def test_where_noise_dominates_it_is_the_normal_interval():
    counts = np.array([1e6, 2e6])
    found = count_interval(counts, np.array([1e10, 1e10]), 1e9, 2.0)
    assert np.allclose(found, normal_interval(counts, np.array([1e5, 1e5]), 0.9544997361), rtol=1e-3)


def test_a_share_of_next_to_nothing_is_not_bounded():
    errors = RatioErrors(np.array([0.5]), np.array([4.0]), np.asarray(9.0))
    found = share_interval(np.array([0.3]), errors, np.asarray(1.0), 2.0, n=100)
    assert (found.lower, found.upper, found.bounded) == (0, 1, False)


@pytest.mark.parametrize("level", [0, 1, -0.5, 95])
def test_a_level_is_a_share(level):
    with pytest.raises(InputError, match="confidence level must be between 0 and 1"):
        two_sided_quantile(level)
