"""The misfit test: silent under the right policy, loud under a wrong one."""

import numpy as np
import pytest
from scipy.stats import binom
from tests.unit.estimate.cases import draw_table, random_channel, symmetric

from masquerade.core.axes import contract
from masquerade.estimate.misfit import misfit

RUNS = 400


@pytest.mark.parametrize(
    ("shape", "channels"),
    [
        ((4,), [symmetric(4, 0.4)]),
        ((1,), [np.array([[0.2, 0.3, 0.5]])]),
        ((3,), [random_channel(np.random.default_rng(0), 3, 6)]),
        ((2, 3), [None, symmetric(3, 0.3)]),
        ((2, 2), [symmetric(2, 0.2), symmetric(2, 0.3)]),
    ],
)
@pytest.mark.parametrize("corner", [True, False])
def test_conservative_under_the_truth(shape, channels, corner):
    """Rejections at each level are at most binomial(RUNS, 1.1·level): false alarm below 1e-6 a level.

    The tenth allows for the chi-square approximation at n = 3000.
    """
    rng = np.random.default_rng(11)
    theta = np.zeros(shape) if corner else np.ones(shape)
    theta[(..., 0)] = 1.0
    theta /= theta.sum()
    values = [misfit(draw_table(rng, 3000, theta, channels), channels).p_value for _ in range(RUNS)]
    for level in (0.01, 0.05, 0.2, 0.5):
        rejected = int(np.sum(np.array(values) <= level))
        assert binom.sf(rejected - 1, RUNS, 1.1 * level) > 1e-6


def test_rejects_a_wrong_policy():
    """All is one value, disguised with p = .1, analysed with p = .3: counts come out negative.

    The observed share of the others is .1 where at least .3 is expected: rejection fails with
    probability far below 1e-6.
    """
    rng = np.random.default_rng(12)
    observed = draw_table(rng, 1000, np.array([1.0, 0.0, 0.0]), [symmetric(3, 0.1)])
    result = misfit(observed, [symmetric(3, 0.3)])
    assert result.p_value < 1e-6
    assert result.reliable
    assert misfit(observed, [symmetric(3, 0.1)]).p_value > 1e-6


def test_is_zero_when_the_moment_estimate_is_interior():
    result = misfit(np.array([300.0, 400.0, 300.0]), [symmetric(3, 0.2)])
    assert (result.statistic, result.degrees, result.p_value, result.reliable) == (0.0, 2, 1.0, True)


def test_statistic_is_twice_the_likelihood_gap():
    observed = np.array([50.0, 950.0])
    result = misfit(observed, [symmetric(2, 0.1)])
    expected = np.array([100.0, 900.0])
    assert result.statistic == pytest.approx(2 * np.sum(observed * np.log(observed / expected)), rel=1e-6)
    assert result.degrees == 1


def test_degrees_count_non_empty_configurations_and_possible_reports():
    P = np.insert(symmetric(3, 0.3), 1, 0.0, axis=1)
    observed = contract(np.array([[500.0, 300.0, 200.0], [0.0, 0.0, 0.0]]), [None, P])
    assert misfit(observed, [None, P]).degrees == 2
    assert misfit(np.ones((2, 3)), [None, None]).degrees == 0
    assert misfit(np.ones((2, 3)), [None, None]).p_value == 1.0


def test_unreliable_when_cells_expect_too_little():
    assert not misfit(np.array([3.0, 2.0, 1.0]), [symmetric(3, 0.3)]).reliable
    empty = misfit(np.zeros(3), [symmetric(3, 0.3)])
    assert (empty.statistic, empty.p_value, empty.reliable) == (0.0, 1.0, False)
