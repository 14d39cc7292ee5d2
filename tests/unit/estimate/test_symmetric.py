"""The exact maximum likelihood of randomized response."""

import numpy as np
import pytest
from tests.unit.estimate.cases import symmetric

from masquerade.core.errors import ChannelError, InputError
from masquerade.estimate.symmetric import is_symmetric, symmetric_mle


def test_is_the_moment_estimate_when_that_is_interior():
    observed = np.array([30.0, 40.0, 30.0])
    moment = observed @ np.linalg.inv(symmetric(3, 0.2))
    np.testing.assert_allclose(symmetric_mle(observed, 0.2), moment, atol=1e-10)


def test_satisfies_the_optimality_conditions():
    rng = np.random.default_rng(4)
    for _ in range(300):
        K = int(rng.integers(2, 12))
        p = rng.uniform(0, 0.98 * (K - 1) / K)
        observed = rng.multinomial(rng.integers(1, 200), rng.dirichlet(np.full(K, 0.5))).astype(float)
        counts, P = symmetric_mle(observed, p), symmetric(K, p)
        n, expected = observed.sum(), counts @ P
        pull = P[:, observed > 0] @ (observed / np.where(expected > 0, expected, 1))[observed > 0]
        assert counts.sum() == pytest.approx(n)
        assert counts.min() >= 0
        assert pull.max() <= 1 + 1e-9
        np.testing.assert_allclose(pull[counts > 1e-9 * n], 1.0, atol=1e-7)


def test_edges():
    assert symmetric_mle(np.array([7.0]), 0.0).tolist() == [7.0]
    assert symmetric_mle(np.zeros(3), 0.2).tolist() == [0.0, 0.0, 0.0]
    assert symmetric_mle(np.array([3.0, 0.0, 1.0]), 0.0).tolist() == [3.0, 0.0, 1.0]


@pytest.mark.parametrize("p", [-0.1, 0.5, 0.9, np.nan])
def test_unusable_p_is_refused(p):
    with pytest.raises(ChannelError, match="symmetric_mle"):
        symmetric_mle(np.array([1.0, 2.0]), p)


@pytest.mark.parametrize("observed", [np.ones((2, 2)), np.array([]), np.array([1.0, -1.0])])
def test_unusable_counts_are_refused(observed):
    with pytest.raises(InputError):
        symmetric_mle(observed, 0.1)


def test_recognises_symmetric_channels_only():
    for K, p in [(2, 0.25), (5, 0.1), (7, 0.0), (50, 0.97)]:
        assert is_symmetric(symmetric(K, p)) == pytest.approx(p, abs=1e-12)
    assert is_symmetric(np.array([[1.0]])) == 0.0
    assert is_symmetric(symmetric(2, 0.5)) is None
    assert is_symmetric(symmetric(2, 0.7)) is None
    assert is_symmetric(np.array([[0.9, 0.1], [0.25, 0.75]])) is None
    assert is_symmetric(np.array([[0.8, 0.1, 0.1]])) is None
    assert is_symmetric(np.array([[0.8, 0.15, 0.05], [0.05, 0.8, 0.15], [0.15, 0.05, 0.8]])) is None
