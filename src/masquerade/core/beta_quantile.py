"""Quantiles of beta distributions: what exact intervals of rare reports are made of."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from masquerade.core.axes import Floats

MANY = 400.0  # both parameters from here on: the starting value is good to six digits
STEPS = 40
PRECISION = 1e-9
TERMS = 500
TINY = 1e-300


def beta_quantile(a: Floats, b: Floats, share: float) -> Floats:
    """Return the x below which this share of the Beta(a, b) distribution lies; 0 for a = 0, 1 for b = 0.

    Formula: Newton's steps on I_x(a, b) = share, kept within the bracket known so far, from the value that
    Wilson & Hilferty's cube root gives (Paulson, 1942). I by its continued fraction (Lentz, 1976).
    Cost: a few evaluations of the fraction for every different pair of parameters.
    Error: relative 1e-6 of the smaller of x and 1 − x (much less unless a or b is above 1e6).
    """
    a, b = np.broadcast_arrays(np.asarray(a, dtype=float), np.asarray(b, dtype=float))
    pairs, place = np.unique(np.stack([a.ravel(), b.ravel()]), axis=1, return_inverse=True)
    return _distinct(pairs[0], pairs[1], share)[place.ravel()].reshape(a.shape)


def beta_share(a: Floats, b: Floats, x: Floats) -> Floats:
    """Return I_x(a, b), the share of the Beta(a, b) distribution below x."""
    return _share(a, b, x, _log_constant(a, b))


def _share(a: Floats, b: Floats, x: Floats, constant: Floats) -> Floats:
    turned = x > (a + 1) / (a + b + 2)
    first, second = np.where(turned, b, a), np.where(turned, a, b)
    at = np.where(turned, 1 - x, x)
    inside = (at > 0) & (at < 1)
    safe = np.where(inside, at, 0.5)
    front = np.exp(constant + first * np.log(safe) + second * np.log1p(-safe)) / first
    part = np.where(inside, front * _fraction(first, second, safe), at)
    return np.where(turned, 1 - part, part)


def _distinct(a: Floats, b: Floats, share: float) -> Floats:
    x = np.where(a <= 0, 0.0, 1.0)
    plain = (a > 0) & (b > 0)
    a, b = a[plain], b[plain]
    guess = _start(a, b, share)
    few = np.minimum(a, b) < MANY
    guess[few] = _refined(a[few], b[few], share, guess[few])
    x[plain] = guess
    return x


def _start(a: Floats, b: Floats, share: float) -> Floats:
    """Return the quantile of the F distribution by cube roots, as a share."""
    z = NormalDist().inv_cdf(share)
    u, v = 1 / (9 * a), 1 / (9 * b)
    p, q, r = (1 - v) ** 2 - z * z * v, -(1 - u) * (1 - v), (1 - u) ** 2 - z * z * u
    root = np.sqrt(np.maximum(q * q - p * r, 0.0))
    cube = np.maximum((-q + np.sign(z) * root) / np.where(np.abs(p) > TINY, p, 1.0), 1e-3) ** 3
    odds = np.where(p > 0, cube * a / b, a / b)
    return np.asarray(np.clip(odds / (1 + odds), TINY, 1 - 1e-15))


def _refined(a: Floats, b: Floats, share: float, x: Floats) -> Floats:
    """Improve starting values by Newton's steps on the logarithms of x and of the share below it."""
    constant = _log_constant(a, b)
    power = np.exp(np.clip((np.log(share * a) - constant) / a, np.log(TINY), 0.0))  # I ≈ C·xᵃ near 0
    x = np.where((a < 1) & (power < x), power, x)
    low, high = np.full_like(x, TINY), np.ones_like(x)
    open_ = np.arange(x.size)
    for _ in range(STEPS):
        p, q, c, at = a[open_], b[open_], constant[open_], x[open_]
        below = np.maximum(_share(p, q, at, c), TINY)
        less = below < share
        low[open_], high[open_] = np.where(less, at, low[open_]), np.where(less, high[open_], at)
        density = np.exp(c + p * np.log(at) + (q - 1) * np.log1p(-at))  # of ln x
        moved = at * np.exp(np.clip(np.log(share / below) * below / np.maximum(density, TINY), -50, 50))
        outside = ~((moved >= low[open_]) & (moved <= high[open_]))
        moved = np.where(outside, np.sqrt(low[open_] * high[open_]), moved)
        x[open_] = np.clip(moved, TINY, 1 - 1e-16)
        wide = np.abs(moved - at) > PRECISION * np.minimum(moved, 1 - moved)
        open_ = open_[wide & (moved > 2 * TINY)]
        if not open_.size:
            break
    return x


def _fraction(a: Floats, b: Floats, x: Floats) -> Floats:
    """Return the continued fraction of I_x(a, b), evaluated from the front."""
    c = np.ones_like(x)
    d = 1 / _not_zero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _not_zero(1 + even * d), _not_zero(1 + even / c)
        result = result * d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / _not_zero(1 + odd * d), _not_zero(1 + odd / c)
        result = result * d * c
        if np.all(np.abs(d * c - 1) < PRECISION):
            break
    return result


def _not_zero(x: Floats) -> Floats:
    return np.where(np.abs(x) < TINY, TINY, x)


def _log_constant(a: Floats, b: Floats) -> Floats:
    return _log_gamma(a + b) - _log_gamma(a) - _log_gamma(b)


def _log_gamma(x: Floats) -> Floats:
    """Return ln Γ(x), x > 0: Stirling's series from 10 on, the recurrence below."""
    shift = np.zeros_like(x)
    y = np.array(x)
    for _ in range(10):
        small = y < 10
        if not small.any():
            break
        shift = np.where(small, shift - np.log(y), shift)
        y = np.where(small, y + 1, y)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * y**2)) / y**2) / y**2) / y
    return np.asarray(shift + (y - 0.5) * np.log(y) - y + np.log(2 * np.pi) / 2 + series)
