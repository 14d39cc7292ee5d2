"""G with PG = I: identity, totals, and refusals that say why."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError, SingularChannel
from masquerade.estimate.inverse import unbiased_map


@st.composite
def channels(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    K, extra, empty = draw(st.integers(1, 8)), draw(st.integers(0, 4)), draw(st.integers(0, 2))
    P = rng.dirichlet(np.ones(K + extra), size=K)
    P = 0.5 * P + 0.5 * np.eye(K, K + extra)  # well conditioned, so that 1e-10 is rounding
    return np.insert(P, np.sort(rng.integers(0, K + extra + 1, empty)), 0.0, axis=1)


@settings(max_examples=50, deadline=None)
@given(channels(), st.booleans())
def test_inverts_the_channel_and_keeps_totals(P, with_prior):
    prior = np.arange(1.0, len(P) + 1) if with_prior else None
    G = unbiased_map(P, prior)
    assert G.shape == P.T.shape
    np.testing.assert_allclose(P @ G, np.eye(len(P)), atol=1e-10)
    possible = P.any(axis=0)
    np.testing.assert_allclose(G[possible].sum(axis=1), 1.0, rtol=0, atol=1e-13)
    assert not G[~possible].any()


def test_rectangular_is_the_formula_and_beats_other_inverses():
    P = np.random.default_rng(1).dirichlet(np.ones(5), size=3)
    theta = np.array([0.2, 0.3, 0.5])
    W_inverse = np.diag(1 / (theta @ P))
    expected = W_inverse @ P.T @ np.linalg.inv(P @ W_inverse @ P.T)
    G = unbiased_map(P, theta)
    np.testing.assert_allclose(G, expected, atol=1e-10)
    other = np.linalg.pinv(P)
    spread = theta @ P
    assert np.all(spread @ G**2 <= spread @ other**2 + 1e-12)


def test_one_category():
    assert unbiased_map(np.array([[1.0]])).tolist() == [[1.0]]
    assert unbiased_map(np.array([[0.3, 0.7]])).tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize(
    ("P", "words"),
    [
        ([[0.5, 0.5], [0.5, 0.5]], "Two truths give the same reports .rows 1 and 2"),
        ([[0.8, 0.1, 0.1], [0.3, 0.3, 0.4], [0.3, 0.3, 0.4]], "rows 2 and 3"),
        ([[0.8, 0.1, 0.1], [0.2, 0.4, 0.4], [0.5, 0.25, 0.25]], "linearly dependent|fewer reports"),
        ([[0.6, 0.3, 0.1], [0.2, 0.1, 0.7], [0.4, 0.2, 0.4]], "linearly dependent"),
        ([[0.8, 0.2], [0.5, 0.5], [0.1, 0.9]], "fewer reports than categories .2 possible reports for 3"),
        ([[0.8, 0.0, 0.2], [0.5, 0.0, 0.5], [0.1, 0.0, 0.9]], "fewer reports than categories"),
        (np.full((50, 50), 0.02), "same reports"),
    ],
)
def test_singular_channels_are_refused_with_the_reason(P, words):
    with pytest.raises(SingularChannel, match=words):
        unbiased_map(np.array(P))


@pytest.mark.parametrize("prior", [[1.0], [0.5, 0.0], [np.nan, 1.0]])
def test_unusable_priors_are_refused(prior):
    with pytest.raises(InputError, match="prior"):
        unbiased_map(np.eye(2), np.array(prior))
