"""Channels for a given γ or ε, with an invariant distribution, or with noise added to numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import numpy as np

from masquerade.channels.basic import check_categories, identity, near_symmetric, symmetric
from masquerade.channels.channel import Channel, check_cost, from_weights, rounded_weights
from masquerade.channels.rationals import Rational, rational
from masquerade.core.errors import ChannelError

SMALLEST_CHANCE = Fraction(1, 2**64)  # probability of a gaussian tail bin: negligible, but not 0
Noise = Literal["uniform", "gaussian"]


def for_gamma(categories: int, gamma: Rational) -> Channel:
    """Return the symmetric channel with exactly this γ: it changes values as rarely as γ permits.

    Parameters
    ----------
    categories : int
        Number of categories.
    gamma : number or str
        Largest ratio of the probabilities of a report under two truths, at least 1.

    Returns
    -------
    Channel
        A channel over the categories.

    Notes
    -----
    Formula: p = (K−1)/(γ+K−1).
    Reference: Kairouz, Oh & Viswanath (2016): optimal among all channels for large γ.
    Error: none if the probabilities fit in 62 bits; otherwise γ is rounded down by less than γ·2⁻³².

    Examples
    --------
    >>> mq.channels.for_gamma(5, 19).row(0)[0]
    Fraction(19, 23)
    """
    check_categories(categories)
    bound = rational(gamma, "gamma")
    if bound < 1:
        raise ChannelError(f"'gamma' must be at least 1. Got {float(bound):g} instead.")
    if categories == 1:
        return identity(1)
    return symmetric(categories, Fraction(categories - 1) / (bound + categories - 1))


def for_epsilon(categories: int, epsilon: Rational) -> Channel:
    """Return the symmetric channel for a budget ε of local differential privacy.

    Its γ is at most e^ε, and above (1 − 2⁻³²)·e^ε.

    Parameters
    ----------
    categories : int
        Number of categories.
    epsilon : number or str
        ε, at least 0.

    Returns
    -------
    Channel
        A channel over the categories.

    Examples
    --------
    >>> channel = mq.channels.for_epsilon(3, 1)
    >>> round(channel.epsilon, 6), channel.epsilon <= 1
    (1.0, True)
    """
    check_categories(categories)
    budget = rational(epsilon, "epsilon")
    if budget < 0:
        raise ChannelError(f"'epsilon' must be at least 0. Got {float(budget):g} instead.")
    if categories == 1:
        return identity(1)
    with localcontext(prec=60, rounding=ROUND_FLOOR):
        exponent = min(Decimal(budget.numerator) / Decimal(budget.denominator), Decimal(50))
        # exp() rounds to nearest in any context; one unit less is certainly below e^ε
        bound = Fraction(exponent.exp().next_minus())
    return near_symmetric(categories, max(bound, Fraction(1)))


def invariant(prior: Sequence[Rational], base: Channel, strength: Rational = 1) -> Channel:
    """Return invariant PRAM: a channel that leaves a distribution unchanged.

    Parameters
    ----------
    prior : sequence of numbers or str
        The distribution, exact: it must sum to 1.
    base : Channel
        A square channel over the same categories.
    strength : number or str, optional
        α from 0 (report the truth) to 1 (apply the base channel and its Bayes inverse in full).

    Returns
    -------
    Channel
        A channel over the categories of `base`.

    Notes
    -----
    Formula: R = αPQ + (1−α)I with Q[m,l] = π_l P[l,m] / Σ_j π_j P[j,m], so that πᵀR = πᵀ.
    Reference: Kooiman, Willenborg & Gouweleeuw (1997).
    Error: exact while denominators fit in 62 bits; beyond that rounded to denominator 2³² without raising γ,
    and invariant to about 1e-9.

    Examples
    --------
    >>> channel = mq.channels.invariant(["1/4", "3/4"], mq.channels.binary("0.2"))
    >>> ([0.25, 0.75] @ channel.matrix).round(9).tolist()
    [0.25, 0.75]
    """
    shares = [rational(share, "prior") for share in prior]
    if base.truths != base.reports or len(shares) != base.truths:
        raise ChannelError(f"A prior over {len(shares)} categories needs a square base channel of that size.")
    if any(share < 0 for share in shares) or sum(shares) != 1:
        raise ChannelError("'prior' must be probabilities that sum to exactly 1.")
    mix = rational(strength, "strength")
    if not 0 <= mix <= 1:
        raise ChannelError(f"'strength' must be in [0, 1]. Got {float(mix):g} instead.")
    # integers over common denominators: p for the prior, w for the base, c for the probability of a report
    size = range(base.truths)
    prior_scale = math.lcm(*(share.denominator for share in shares))
    whole = [share.numerator * (prior_scale // share.denominator) for share in shares]
    base_scale = math.lcm(*np.unique(base.denominators).tolist())
    check_cost(base.truths**3, base.truths * (prior_scale.bit_length() + base_scale.bit_length()))
    weights = np.array([[int(entry * base_scale) for entry in row] for row in base.rows], dtype=object)
    chance = [sum(whole[j] * weights[j, m] for j in size) for m in size]
    chance_scale = math.lcm(*(c for c in chance if c))
    back = np.array([chance_scale // c if c else 0 for c in chance], dtype=object)
    mixed = (weights * back) @ weights.T * np.array(whole, dtype=object)
    for m in size:
        if not chance[m]:  # a report of probability 0 is assigned to the truth with the same code
            mixed[:, m] += weights[:, m] * chance_scale
    kept = (mix.denominator - mix.numerator) * base_scale * chance_scale
    result = mixed * mix.numerator + np.diag(np.array([kept] * base.truths, dtype=object))
    return from_weights(result.tolist())


def additive(edges: Sequence[Rational], noise: Noise, scale: Rational, margin: int | None = None) -> Channel:
    """Return additive noise on binned numbers.

    Noise is added to the middle of the bin, and the bin of the sum is reported.

    Parameters
    ----------
    edges : sequence of numbers or str
        K+1 equally spaced bounds of the truths' bins.
    noise : {"uniform", "gaussian"}
        Uniform on [−scale, scale], or gaussian with standard deviation `scale`.
    scale : number or str
        Above 0.
    margin : int, optional
        Number of further report bins on each side; the outermost bins are open. By default, they cover
        uniform noise, or four standard deviations of gaussian noise.

    Returns
    -------
    Channel
        A channel from bins of truths to bins of reports.

    Notes
    -----
    Uniform noise has γ = ∞: an extreme report excludes truths. Gaussian noise has a finite but often huge γ,
    at most 2³², since probabilities are multiples of 2⁻³².
    Reference: Agrawal & Srikant (2000).

    Examples
    --------
    >>> channel = mq.channels.additive([0, 10, 20, 30], "uniform", 10)
    >>> channel.labels
    ('(-inf, 0)', '[0, 10)', '[10, 20)', '[20, 30)', '[30, inf)')
    >>> channel.gamma
    inf
    """
    cuts = [rational(edge, "edges") for edge in edges]
    widths = {right - left for left, right in pairwise(cuts)}
    if len(cuts) < 2 or len(widths) != 1 or min(widths) <= 0:
        raise ChannelError("'edges' of an additive channel must be at least two, rising and equally spaced.")
    width, spread = widths.pop(), rational(scale, "scale")
    if spread <= 0:
        raise ChannelError(f"'scale' must be above 0. Got {float(spread):g} instead.")
    if noise not in {"uniform", "gaussian"}:
        raise ChannelError(f"'noise' must be uniform or gaussian. Got {noise!r} instead.")
    truths = len(cuts) - 1
    reach = spread if noise == "uniform" else 4 * spread
    extra = math.ceil(reach / width - Fraction(1, 2)) if margin is None else margin
    if extra < 0:
        raise ChannelError(f"'margin' must be at least 0. Got {extra} instead.")
    bins = truths + 2 * extra
    check_cost(8 * truths * bins, (width / spread).denominator.bit_length())
    # limits of the report bins relative to the middle of the truth's bin, in units of `scale`
    first = -extra - truths
    ends = [(step - Fraction(1, 2)) * width / spread for step in range(first, bins)]
    between = [_noise_between(low, high, noise) for low, high in pairwise(ends)]
    low_end = [_noise_between(-math.inf, end, noise) for end in ends]
    high_end = [_noise_between(end, math.inf, noise) for end in ends]
    rows = []
    for truth in range(truths):
        at = 1 - extra - truth - first
        if bins == 1:
            chances = [Fraction(1)]
        else:
            chances = [low_end[at], *between[at : at + bins - 2], high_end[at + bins - 2]]
        unit = math.lcm(*(chance.denominator for chance in chances))
        rows.append([chance.numerator * (unit // chance.denominator) for chance in chances])
    start = cuts[0] - extra * width
    inner_cuts = [float(start + i * width) for i in range(1, bins)]
    labels = bin_labels([-math.inf, *inner_cuts, math.inf]) if extra else None  # the outermost bins are open
    return from_weights(rows, labels) if noise == "uniform" else rounded_weights(rows, labels)


def _noise_between(low: Fraction | float, high: Fraction | float, noise: Noise) -> Fraction:
    """Return P(low < noise < high) at unit scale: exact for uniform, in double precision for gaussian."""
    if noise == "uniform":
        inside = min(max(high, -1), 1) - min(max(low, -1), 1)
        return Fraction(inside) / 2
    # the smaller tail keeps the relative precision that γ needs
    near, far = (low, high) if low >= 0 else (-high, -low)
    return max(Fraction(_normal_tail(float(near)) - _normal_tail(float(far))), SMALLEST_CHANCE)


def _normal_tail(x: float) -> float:
    """Return P(Z > x) for a standard normal Z."""
    return math.erfc(x / math.sqrt(2)) / 2


def bin_labels(edges: Sequence[float]) -> tuple[str, ...]:
    """Return a label for every bin.

    >>> bin_labels([0, 10, 20])
    ('[0, 10)', '[10, 20]')
    """
    last = len(edges) - 2
    labels = []
    for i, (low, high) in enumerate(pairwise(edges)):
        left = "(-inf" if low == -math.inf else f"[{low:.15g}"
        right = "inf)" if high == math.inf else f"{high:.15g}" + ("]" if i == last else ")")
        labels.append(f"{left}, {right}")
    return tuple(labels)
