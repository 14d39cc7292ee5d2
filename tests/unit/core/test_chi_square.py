"""The tail of χ² against scipy's."""

import numpy as np
import pytest
from scipy import stats

from masquerade.core.chi_square import chi_square_point, chi_square_tail


@pytest.mark.parametrize("df", [0.3, 1, 2, 5.5, 30, 1000, 20_000])
def test_the_tail_is_scipys(df):
    for statistic in df * np.array([0.01, 0.5, 0.9, 1.0, 1.1, 2.0]) + np.array([0, 0, 0, 1, 10, 200]):
        assert chi_square_tail(statistic, df) == pytest.approx(stats.chi2.sf(statistic, df), rel=1e-9)


@pytest.mark.parametrize("df", [0.3, 1, 5.5, 1000])
@pytest.mark.parametrize("p", [0.9, 0.05, 1e-9])
def test_the_point_is_scipys_and_not_beyond(df, p):
    assert chi_square_point(p, df) == pytest.approx(stats.chi2.isf(p, df), rel=1e-8, abs=1e-12)
    assert chi_square_tail(chi_square_point(p, df), df) >= p


def test_nothing_to_test_and_no_doubt_left():
    assert chi_square_tail(5.0, 0) == chi_square_tail(0.0, 3) == 1.0
    assert chi_square_tail(np.inf, 3) == 0.0
