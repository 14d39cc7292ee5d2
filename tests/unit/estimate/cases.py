"""Channels and tables that the tests of estimates share."""

import numpy as np
from scipy.special import ndtr

from masquerade.core.axes import contract


def symmetric(K, p):
    P = np.full((K, K), p / (K - 1) if K > 1 else 0.0)
    np.fill_diagonal(P, 1 - p)
    return P


def gaussian_noise(K, sd):
    """Noise added to K bins of width 1, reported in four standard deviations more on each side."""
    margin = int(np.ceil(4 * sd))
    edges = np.arange(-margin, K + margin + 1.0) - 0.5
    edges[0], edges[-1] = -np.inf, np.inf
    return np.diff(ndtr((edges - np.arange(K)[:, None]) / sd), axis=1)


def random_channel(rng, K, M, weight=0.5):
    return (1 - weight) * np.eye(K, M) + weight * rng.dirichlet(np.ones(M), size=K)


def draw_table(rng, n, theta, channels):
    q = contract(theta, channels)
    return rng.multinomial(n, q.ravel() / q.sum()).reshape(q.shape).astype(float)


def boundary_case(rng, shape, n, p, concentration=0.1):
    """A truth with most cells nearly empty, so that the moment estimate turns negative."""
    theta = rng.dirichlet(np.full(int(np.prod(shape)), concentration)).reshape(shape)
    channels = [symmetric(K, p) for K in shape]
    return draw_table(rng, n, theta, channels), channels
