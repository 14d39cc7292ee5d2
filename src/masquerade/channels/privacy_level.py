"""How much a report may tell, in whichever of the three ways people say it: γ, ε or a breach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

from masquerade.channels.rationals import Rational, rational
from masquerade.core.errors import ChannelError

LARGEST_EPSILON = 40
BITS = 32  # of γ that are kept where it is no small fraction


def gamma_of(
    gamma: Rational | None = None, epsilon: Rational | None = None, breach: Sequence[Rational] | None = None
) -> Fraction:
    """Return γ as a fraction of at most some 32 bits, never above what is asked.

    `breach` is (ρ1, ρ2): no belief of ρ1 may rise above ρ2.
    Formula: γ = e^ε = ρ2(1−ρ1)/(ρ1(1−ρ2)).
    Reference: Evfimievski, Gehrke & Srikant (2003).

    >>> gamma_of(breach=(0.05, 0.5)), gamma_of(gamma="7/2"), float(gamma_of(epsilon=1)) <= 2.718281828459045
    (Fraction(19, 1), Fraction(7, 2), True)
    """
    given = [
        name
        for name, value in (("gamma", gamma), ("epsilon", epsilon), ("breach", breach))
        if value is not None
    ]
    if len(given) != 1:
        raise ChannelError(
            "Give one of 'gamma', 'epsilon' and 'breach'."
            + (f" Got {' and '.join(given)}." if given else " Got none of them.")
        )
    if breach is not None:
        bound = _of_breach(breach)
    elif epsilon is not None:
        bound = _of_epsilon(rational(epsilon, "epsilon"))
    else:
        bound = rational(gamma, "gamma")
    if not 1 < bound <= Fraction(math.exp(LARGEST_EPSILON)):
        raise ChannelError(
            f"γ must be above 1 and ε above 0 (and ε at most {LARGEST_EPSILON}) to learn under a mask. "
            f"Got γ = {float(bound):.6g}."
        )
    return shortened(bound)


def shortened(gamma: Fraction) -> Fraction:
    """Return γ itself if its numbers are small, else the next fraction of 32 bits below."""
    if gamma.numerator < 2**BITS:
        return gamma
    denominator = 1 << max(BITS - math.floor(gamma).bit_length(), 0)
    return Fraction(math.floor(gamma * denominator), denominator)


def _of_epsilon(epsilon: Fraction) -> Fraction:
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise ChannelError(
            f"'epsilon' must be above 0 and at most {LARGEST_EPSILON}. Got {float(epsilon):g} instead."
        )
    with localcontext(prec=60, rounding=ROUND_FLOOR):
        # exp() rounds to nearest whatever the context says: one unit down is below e^ε for certain
        return Fraction((Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp().next_minus())


def _of_breach(breach: Sequence[Rational]) -> Fraction:
    if isinstance(breach, str) or len(breach) != 2:
        raise ChannelError("A breach is two beliefs, such as (0.05, 0.5): 5% may not rise above 50%.")
    before, after = (rational(belief, "breach") for belief in breach)
    if not 0 < before < after < 1:
        raise ChannelError(
            "A breach is two beliefs between 0 and 1, the second above the first, such as (0.05, 0.5). "
            f"Got {float(before):g} and {float(after):g}."
        )
    return after * (1 - before) / (before * (1 - after))
