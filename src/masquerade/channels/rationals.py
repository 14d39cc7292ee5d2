"""Probabilities as exact rationals: 0.1 in a policy means 1/10."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction

import numpy as np

from masquerade.core.errors import ChannelError

LARGEST_EXPONENT = 1000
Rational = Fraction | int | str | float | Decimal


def rational(value: object, name: str = "value") -> Fraction:
    """Return the rational that a person means: text "0.1" or "1/3", a number, a decimal.

    >>> rational(0.1), rational("1/3"), rational("2.5e-1")
    (Fraction(1, 10), Fraction(1, 3), Fraction(1, 4))
    """
    if isinstance(value, np.generic):
        # the text of a 32-bit float is the decimal that was typed; its double is not
        value = str(value) if isinstance(value, np.floating) else value.item()
    if isinstance(value, bool) or not isinstance(value, (Fraction, int, str, float, Decimal)):
        raise ChannelError(f"{name!r} must be a number such as 0.25 or a text such as '1/4'.")
    try:
        # the shortest text of a float is the decimal that was typed
        number = repr(value) if isinstance(value, float) else value
        exact = Decimal(number) if isinstance(number, str) and "/" not in number else number
        return Fraction(_within_reach(exact) if isinstance(exact, Decimal) else exact)
    except (ValueError, ZeroDivisionError, OverflowError, InvalidOperation):
        raise ChannelError(
            f"{name!r} must be a number such as 0.25 or '1/4'. Got {value!r} instead."
        ) from None


def _within_reach(value: Decimal) -> Decimal:
    """Refuse an exponent that would fill the memory before any check of the number's size."""
    if value.is_finite() and abs(value.adjusted()) > LARGEST_EXPONENT:
        raise OverflowError(f"an exponent beyond {LARGEST_EXPONENT}")
    return value


def probability(value: object, name: str, *, most: Fraction | int = 1) -> Fraction:
    """Return a rational in [0, most]."""
    result = rational(value, name)
    if not 0 <= result <= most:
        raise ChannelError(f"The {name!r} parameter must be in [0, {most}]. Got {float(result):g} instead.")
    return result
