"""Quantiles and tails of the normal, beta and chi-square distributions.

SciPy computes them. It is imported when a function first needs it, because loading it takes 0.3 s.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError

_NORMAL = NormalDist()


def two_sided_quantile(level: float) -> float:
    """Return the number of standard errors that an interval of this level reaches to each side.

    >>> round(two_sided_quantile(0.95), 3)
    1.96
    """
    if not 0 < level < 1:
        raise InputError(f"The confidence level must be between 0 and 1. Got {level} instead.")
    return _NORMAL.inv_cdf(0.5 + level / 2)


def normal_quantile(share: float) -> float:
    """Return the quantile of the standard normal distribution."""
    return _NORMAL.inv_cdf(share)


def normal_share(value: float) -> float:
    """Return the probability that a standard normal variable is below a value."""
    return _NORMAL.cdf(value)


def beta_quantile(a: Floats, b: Floats, share: float) -> Floats:
    """Return the `share` quantile of Beta(a, b); 0 if a = 0, 1 if b = 0."""
    from scipy.special import betaincinv  # noqa: PLC0415  (slow to import)

    a, b = np.broadcast_arrays(np.asarray(a, dtype=float), np.asarray(b, dtype=float))
    inside = (a > 0) & (b > 0)  # SciPy returns NaN at a = 0 and b = 0
    quantiles = betaincinv(np.where(inside, a, 1.0), np.where(inside, b, 1.0), share)
    return np.where(inside, quantiles, np.where(a <= 0, 0.0, 1.0))


def chi_square_tail(statistic: float, df: float) -> float:
    """Return P(χ² > statistic) with `df` degrees of freedom, which may be fractional; 1 if df = 0.

    >>> round(chi_square_tail(3.841458820694124, 1), 12)
    0.05
    """
    from scipy.special import chdtrc  # noqa: PLC0415  (slow to import)

    if df <= 0 or statistic <= 0:
        return 1.0
    return float(chdtrc(df, statistic))


@lru_cache(maxsize=1024)
def chi_square_point(p: float, df: float) -> float:
    """Return the statistic exceeded with probability `p`.

    It is rounded down, so that its tail probability is at least `p`.

    >>> round(chi_square_point(0.05, 1), 6)
    3.841459
    """
    from scipy.special import chdtri  # noqa: PLC0415  (slow to import)

    point = float(chdtri(df, p))
    while point > 0 and chi_square_tail(point, df) < p:
        point = math.nextafter(point * (1 - 1e-15), 0.0)
    return point
