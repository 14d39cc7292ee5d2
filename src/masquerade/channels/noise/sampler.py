"""Draw integer noise from 64-bit integer weights and OS randomness. No float enters a draw.

Noise is drawn in *shares*: the sum of `honest` independent shares has the distribution that the accountant
assumes. Skellam shares are closed under addition; discrete Laplace noise is a sum of differences of two
negative binomial (Pólya) draws.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError

BITS: Final = 64
_PRECISION: Final = 256  # bits of the recurrences
_CHUNK: Final = 1 << 18  # draws at a time
_LARGEST_TABLE: Final = 1 << 20  # outcomes of a table

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NoiseSampler:
    """Draws shares of noise by inversion: a uniform 64-bit word selects one of the outcomes.

    The search has the same depth for every word, so that its duration does not depend on the noise.

    Attributes
    ----------
    lowest : int
        Smallest outcome; the others follow in steps of one.
    weights : tuple of int
        Number of words that select each outcome. They add up to 2^64.
    error : Fraction
        Bound on the total variation distance between a share and its exact distribution.
    is_difference : bool
        True if a share is the difference of two draws.
    """

    lowest: int
    weights: tuple[int, ...]
    error: Fraction
    is_difference: bool = False

    @property
    def variance(self) -> Fraction:
        """Return the variance of a share, exactly."""
        moments = [
            Fraction(sum(w * (self.lowest + i) ** power for i, w in enumerate(self.weights)), 1 << BITS)
            for power in (1, 2)
        ]
        return (moments[1] - moments[0] ** 2) * (2 if self.is_difference else 1)

    def draw(self, shape: int | tuple[int, ...]) -> Integers:
        """Draw independent shares with OS randomness.

        Parameters
        ----------
        shape : int or tuple of int
            Shape of the result.

        Returns
        -------
        array of int64
            Shares of noise.
        """
        size = math.prod(shape) if isinstance(shape, tuple) else shape
        shares = np.empty(size, dtype=np.int64)
        for start in range(0, size, _CHUNK):
            part = shares[start : start + _CHUNK]
            part[:] = self._draw_outcomes(len(part))
            if self.is_difference:
                part -= self._draw_outcomes(len(part))
        return shares.reshape(shape)

    def _draw_outcomes(self, number: int) -> Integers:
        return self.outcomes_of(np.frombuffer(os.urandom(8 * number), dtype=np.uint64))

    def outcomes_of(self, words: NDArray[np.uint64]) -> Integers:
        """Return the outcome that each word selects."""
        last = _last_words(self)
        index = np.zeros(len(words), dtype=np.int64)
        step = len(last) >> 1
        while step:
            index += step * (last[index + (step - 1)] < words)
            step >>= 1
        return index + self.lowest


@lru_cache(maxsize=64)
def _last_words(sampler: NoiseSampler) -> NDArray[np.uint64]:
    """Return the last word of each outcome, padded to a power of two with the largest word."""
    sums = list(accumulate(sampler.weights))
    padded = 1 << math.ceil(math.log2(len(sums) + 1))
    last = np.full(padded, np.uint64((1 << BITS) - 1), dtype=np.uint64)
    last[: len(sums)] = np.array([total - 1 for total in sums], dtype=np.uint64)
    return last


@lru_cache(maxsize=64)
def skellam_shares(variance: Fraction, honest: int = 1) -> NoiseSampler:
    """Return the sampler of shares, `honest` of which add up to Skellam noise of the given variance.

    Formula: P(k) = e^{−v}I_|k|(v), v = variance/honest, by Miller's backward recurrence I_{k−1} = I_{k+1} +
    (2k/v)I_k in integers, all positive, normalised by P(0) + 2ΣP(k) = 1.
    Reference: Skellam (1946); Olver & Sookne (1972).
    Cost: O(√v) operations on 256-bit integers. Error: below 2^−50 in total variation; see `error`.
    """
    _check_shares(variance, honest)
    v = Fraction(variance) / honest
    root = math.isqrt(math.ceil(v)) + 1
    reach = 10 * root + 40
    if 2 * reach > _LARGEST_TABLE:
        raise InputError(
            f"Noise of variance {float(v):.3g} per share is too large to draw: at most "
            f"{(_LARGEST_TABLE / 20) ** 2:.2g}. Choose a larger epsilon or fewer tables."
        )
    beyond = 14 * root + 90
    one_sided = [0] * (beyond + 2)
    one_sided[beyond] = 1 << _PRECISION
    for k in range(beyond, 0, -1):
        one_sided[k - 1] = one_sided[k + 1] + 2 * k * v.denominator * one_sided[k] // v.numerator
        if one_sided[k - 1] >> (8 * _PRECISION):  # keep the integers short
            drop = 4 * _PRECISION
            one_sided[k - 1 :] = [value >> drop for value in one_sided[k - 1 :]]
    total = one_sided[0] + 2 * sum(one_sided[1:])
    inner = one_sided[1:reach]
    cut = 2 * sum(one_sided[reach:])
    return _from_masses([*inner[::-1], one_sided[0], *inner], total, 1 - reach, cut, mode=reach - 1)


@lru_cache(maxsize=64)
def polya_shares(ratio: Fraction, honest: int = 1) -> NoiseSampler:
    """Return the sampler of shares, `honest` of which add up to discrete Laplace noise P(k) ∝ ratio^|k|.

    Formula: differences of two negative binomial draws, P(k) = C(k + r − 1, k)(1 − q)^r q^k, r = 1/honest.
    Reference: Ghosh, Roughgarden & Sundararajan (2009); Goryczka & Xiong (2015).
    Cost: O(1/(1 − q)) operations on integers. Error: below 2^−50 in total variation; see `error`.
    """
    if not 0 < ratio < 1:
        raise InputError("The ratio of discrete Laplace noise must be between 0 and 1.")
    _check_shares(Fraction(1), honest)
    masses, value, k = [], 1 << _PRECISION, 0
    rest = 1 - Fraction(ratio)
    while value:
        masses.append(value)
        if len(masses) > _LARGEST_TABLE:
            raise InputError("This discrete Laplace noise is too large to draw. Choose a larger epsilon.")
        k += 1
        value = value * ratio.numerator * (honest * (k - 1) + 1) // (ratio.denominator * honest * k)
    # error: less than ratio/(1 − ratio) units in the tail, and less than one unit by rounding down each step
    cut = math.ceil(1 / rest) * len(masses)
    sampler = _from_masses(masses, sum(masses) + cut, 0, cut, mode=0)
    return NoiseSampler(sampler.lowest, sampler.weights, 2 * sampler.error, is_difference=True)


def _check_shares(variance: Fraction, honest: int) -> None:
    if variance <= 0:
        raise InputError("The variance of noise must be positive.")
    if honest < 1:
        raise InputError(f"Noise needs at least one honest contributor. Got {honest} instead.")


def _from_masses(masses: list[int], total: int, lowest: int, cut: int, mode: int) -> NoiseSampler:
    """Return a sampler: masses over `total` are rounded down to 64-bit weights, and the mode gets the rest.

    Rounding moves less than one word per outcome. The total variation distance is the number of words that
    the mode gained, over 2^64.
    """
    weights = [(mass << BITS) // total for mass in masses]
    gained = (1 << BITS) - sum(weights)
    weights[mode] += gained
    error = Fraction(gained, 1 << BITS) + Fraction(cut, total) + Fraction(1, 1 << (_PRECISION // 2))
    start = next(i for i, weight in enumerate(weights) if weight)
    end = next(i for i in range(len(weights), 0, -1) if weights[i - 1])
    return NoiseSampler(lowest + start, tuple(weights[start:end]), error)
