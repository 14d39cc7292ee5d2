"""Text formats of numbers, durations, probabilities, γ and ε."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import wraps
from typing import ParamSpec
from unicodedata import category

NO_BOUND = "no bound"
MOST_DIGITS = 10**6  # from this value on, γ is written as a power of ten
MOST_EPSILON = 700.0  # beyond this, γ = exp(ε) overflows floating point
MOST_EXACT_BITS = 4096  # longest fraction written exactly: Python limits integer texts to 4,300 digits
JOINERS = "\u200c\u200d"  # zero-width joiners, which some scripts need
Given = ParamSpec("Given")


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return text with control and other invisible characters escaped, so that no terminal interprets them.

    With `lines`, line breaks are kept.

    >>> visible("a\x1b[31m\u202eb\n")
    'a\\x1b[31m\\u202eb\\n'
    >>> visible("a\r\nb\n\n\x1b", lines=True)
    'a\\r\nb\n\n\\x1b'
    """
    if text.isprintable():
        return text
    if lines and "\n" in text:  # a page has few lines to escape
        return "\n".join(visible(line) for line in text.split("\n"))
    return "".join(_escape(char, lines=lines) for char in text)


def _escape(char: str, *, lines: bool) -> str:
    harmless = char.isprintable() or (lines and char == "\n") or char in JOINERS or category(char) == "Zs"
    return char if harmless else char.encode("unicode_escape").decode()


def printable(method: Callable[Given, str]) -> Callable[Given, str]:
    """Decorate a method that returns text with labels from the data: escape invisible characters in it."""

    @wraps(method)
    def escaped(*given: Given.args, **named: Given.kwargs) -> str:
        return visible(method(*given, **named), lines=True)

    return escaped


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun in the singular or plural.

    >>> counted(1, "row"), counted(2000, "row"), counted(1, "person", "people"), counted(0, "leaf", "leaves")
    ('1 row', '2,000 rows', '1 person', '0 leaves')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def category_text(label: object) -> str:
    """Return a category in the form in which files contain it.

    >>> category_text(True), category_text(3)
    ('true', '3')
    """
    return str(label).lower() if isinstance(label, bool) else str(label)


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit.

    >>> duration(0.0002), duration(0.25), duration(10), duration(7200)
    ('0.2 ms', '250 ms', '10 s', '2 h')
    """
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= (size if unit == "s" else 2 * size):
            return f"{seconds / size:.3g} {unit}"
    return f"{1000 * seconds:.3g} ms"


def percent(share: float) -> str:
    """Return a probability in percent, never rounded to 0 or 1.

    >>> percent(0.05), percent(0.136), percent(0.99999), percent(1.0)
    ('5%', '13.6%', '>99.9%', '100%')
    """
    if 0.999 < share < 1:
        return ">99.9%"
    if 0 < share < 0.001:
        return "<0.1%"
    return f"{100 * share:.1f}".removesuffix(".0") + "%"


def log_gamma(gamma: Fraction | float | None) -> float:
    """Return ε = ln γ, also if γ is too large for floating point (a product over many variables)."""
    if isinstance(gamma, Fraction):
        return math.log(gamma.numerator) - math.log(gamma.denominator)
    return math.inf if gamma is None else math.log(gamma)


def exact_text(gamma: Fraction) -> str:
    """Return γ as a fraction, or rounded up to a short decimal if the fraction has thousands of digits.

    >>> exact_text(Fraction(14, 3)), exact_text(Fraction(3) ** 3000)
    ('14/3', '2.311E+1431')
    """
    if max(gamma.numerator.bit_length(), gamma.denominator.bit_length()) <= MOST_EXACT_BITS:
        return str(gamma)
    power = math.floor(log_gamma(gamma) / math.log(10)) - 3
    digits = math.ceil(gamma * Fraction(10) ** -power)  # rounding up may give a fifth digit
    return f"{Decimal(digits).scaleb(power):E}"


def gamma_text(gamma: Fraction | float | None) -> str:
    """Return γ to four digits. Integers below a million are exact; larger values have a power of ten.

    >>> gamma_text(3), gamma_text(Fraction(14, 3)), gamma_text(176_400), gamma_text(Fraction(3) ** 700)
    ('3', '4.667', '176,400', '9.66×10^333')
    """
    if gamma is None or gamma == math.inf:
        return NO_BOUND
    if gamma < MOST_DIGITS:
        whole = f"{int(gamma)}"
        return _short(f"{float(gamma):,.{max(4 - len(whole), 0)}f}")
    power, rest = divmod(log_gamma(gamma) / math.log(10), 1)
    if round(10**rest, 2) >= 10:
        power, rest = power + 1, 0.0
    return f"{_short(f'{10**rest:.2f}')}×10^{power:.0f}"


def epsilon_text(epsilon: float) -> str:
    """Return ε to three digits, with trailing zeros; as an integer from 1,000 on.

    >>> epsilon_text(1.0986), epsilon_text(0.0), epsilon_text(769.03), epsilon_text(1098.6)
    ('1.10', '0', '769', '1,099')
    """
    if epsilon == math.inf:
        return NO_BOUND
    if not epsilon or epsilon >= 999.5:
        return f"{epsilon:,.0f}"
    return f"{epsilon:#.3g}".removesuffix(".")


def epsilon_words(epsilon: float | None) -> str:
    """Return γ and ε for a given ε, or "no bound".

    >>> epsilon_words(math.log(9)), epsilon_words(3000.0), epsilon_words(None)
    ('γ = 9 (ε = 2.20)', 'ε = 3,000', 'no bound')
    """
    if epsilon is None or epsilon == math.inf:
        return NO_BOUND
    return gamma_words(math.exp(epsilon)) if epsilon < MOST_EPSILON else f"ε = {epsilon_text(epsilon)}"


def gamma_words(gamma: Fraction | float | None) -> str:
    """Return γ and ε for a given γ, or "no bound".

    >>> gamma_words(Fraction(3)), gamma_words(None)
    ('γ = 3 (ε = 1.10)', 'no bound')
    """
    if gamma is None or gamma == math.inf:
        return NO_BOUND
    return f"γ = {gamma_text(gamma)} (ε = {epsilon_text(log_gamma(gamma))})"


def _short(number: str) -> str:
    """Return a decimal without trailing zeros."""
    return number.rstrip("0").rstrip(".") if "." in number else number
