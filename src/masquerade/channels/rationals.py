"""Exact rational probabilities: 0.1 in a policy means 1/10."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction

from masquerade.core.errors import ChannelError

LARGEST_EXPONENT = 330  # larger than the exponent of any floating-point number
MOST_BITS = 1100  # most bits of a denominator, enough for the smallest floating-point numbers
MOST_DIGITS = 1000
Rational = Fraction | int | str | float | Decimal


def rational(value: object, name: str = "value") -> Fraction:
    """Return the exact value of a number or a text such as "1/3"; a float is read as its shortest decimal.

    >>> rational(0.1), rational("1/3"), rational("2.5e-1")
    (Fraction(1, 10), Fraction(1, 3), Fraction(1, 4))
    """
    if type(value).__module__ == "numpy":  # checked by name, because people's devices do not have NumPy
        # the text of a 32-bit float is the decimal that was typed; its double is not
        value = str(value) if "float" in type(value).__name__ else getattr(value, "item", lambda: value)()
    if isinstance(value, bool) or not isinstance(value, (Fraction, int, str, float, Decimal)):
        raise ChannelError(f"{name!r} must be a number such as 0.25 or a text such as '1/4'.")
    try:
        # the shortest text of a float is the decimal that was typed
        number = repr(value) if isinstance(value, float) else value
        return _within_reach(number)
    except (ValueError, ZeroDivisionError, OverflowError, InvalidOperation):
        raise ChannelError(
            f"{name!r} must be a number such as 0.25 or '1/4'. Got {quote_value(value)} instead."
        ) from None


def _within_reach(number: Fraction | int | str | Decimal) -> Fraction:
    """Return the exact value of a number; refuse a huge number before its digits fill the memory."""
    if isinstance(number, str) and len(number) > MOST_DIGITS:
        raise OverflowError(f"more than {MOST_DIGITS} digits")
    exact = Decimal(number) if isinstance(number, str) and "/" not in number else number
    if isinstance(exact, Decimal) and exact.is_finite() and abs(exact.adjusted()) > LARGEST_EXPONENT:
        raise OverflowError(f"an exponent beyond {LARGEST_EXPONENT}")
    found = Fraction(exact)
    float(found)  # raises OverflowError if the number is too large for floating point
    if found.denominator.bit_length() > MOST_BITS:
        raise OverflowError(f"a denominator of more than {MOST_BITS} bits")
    return found


def quote_value(value: object) -> str:
    """Return the text of a value for an error message, truncated to 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to convert an integer of thousands of digits to text
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def probability(value: object, name: str, *, most: Fraction | int = 1) -> Fraction:
    """Return the exact value of a probability; raise ChannelError unless it is in [0, most]."""
    result = rational(value, name)
    if not 0 <= result <= most:
        raise ChannelError(f"The {name!r} parameter must be in [0, {most}]. Got {float(result):g} instead.")
    return result
