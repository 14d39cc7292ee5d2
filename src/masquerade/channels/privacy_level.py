"""Privacy levels: limits on what reports may reveal, stated as γ, ε or a pair of beliefs (a breach)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import Any, Final

from masquerade.channels.rationals import Rational, rational
from masquerade.core.errors import ChannelError, InputError
from masquerade.core.record_gamma import describe_gamma
from masquerade.core.util.formatting import epsilon_text, gamma_text, percent

LARGEST_EPSILON = 40
BITS = 32  # γ is rounded to this precision if its numerator is larger
KINDS = ("breach", "gamma", "epsilon")
LEAST_DELTA, LARGEST_DELTA = Fraction(1, 10**10), Fraction(1, 100)  # the same bounds as for noise on counts


@dataclass(frozen=True, slots=True)
class PrivacyLimit:
    """The most that all reports together may reveal about one person.

    Parameters
    ----------
    gamma : Fraction
        Largest γ of a whole record.
    kind : {"breach", "gamma", "epsilon"}
        Form in which the limit was stated.
    stated : tuple of Fraction
        The stated value: two beliefs, γ, or ε.
    delta : Fraction, default 0
        Largest probability with which sums with noise may reveal more. Reports of single records need δ = 0.

    Examples
    --------
    >>> limit = PrivacyLimit.parse({"breach": "5%:50%"})
    >>> limit.gamma, str(limit)
    (Fraction(19, 1), 'γ = 19, a belief of 5% rises to at most 50%')
    """

    gamma: Fraction
    kind: str
    stated: tuple[Fraction, ...]
    delta: Fraction = Fraction(0)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> PrivacyLimit:
        """Return the limit given as plain values: one of `breach`, `gamma` and `epsilon`.

        Parameters
        ----------
        values : mapping
            For example {"breach": "5%:50%"}, {"gamma": 19} or {"epsilon": 3, "delta": "1e-6"}. The default of
            `delta` is 0, which excludes sums with noise, since their bound fails with a small probability.

        Raises
        ------
        ChannelError
            If not exactly one of them is given, or it is out of range.
        """
        given = {name: value for name, value in values.items() if value is not None and name != "delta"}
        if len(given) != 1 or not set(given) <= set(KINDS):
            raise ChannelError(
                "a limit is one of {breach: 5%:50%}, {gamma: 19} and {epsilon: 2.9, delta: 0}."
            )
        delta = rational(values.get("delta") or 0, "delta")
        if delta != 0 and not LEAST_DELTA <= delta <= LARGEST_DELTA:
            raise ChannelError(
                f"the 'delta' of a limit must be 0, or from {float(LEAST_DELTA):g} to "
                f"{float(LARGEST_DELTA):g}. Got {float(delta):g} instead."
            )
        ((kind, value),) = given.items()
        if kind == "breach":
            stated = parse_breach(value)
            return cls(_of_breach(stated), kind, stated, delta)
        number = rational(value, kind)
        gamma = _of_epsilon(number) if kind == "epsilon" else number
        if gamma <= 1:
            raise ChannelError(f"the γ of a limit must be above 1. Got {float(gamma):g} instead.")
        return cls(gamma, kind, (number,), delta)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that `parse` reads back."""
        delta = {"delta": _plain(self.delta)} if self.delta or self.kind == "epsilon" else {}
        if self.kind == "breach":
            return {"breach": ":".join(f"{_plain(100 * belief)}%" for belief in self.stated)} | delta
        return {self.kind: _plain(self.stated[0])} | delta

    def __str__(self) -> str:
        """Return γ or ε, how far a belief can rise under it, and δ if there is one."""
        delta = f", except with probability δ = {float(self.delta):g}" if self.delta else ""
        if self.kind == "breach":
            before, after = (percent(float(belief)) for belief in self.stated)
            return f"γ = {gamma_text(self.gamma)}, a belief of {before} rises to at most {after}{delta}"
        if self.kind == "epsilon":
            return f"ε = {epsilon_text(float(self.stated[0]))} (γ = {gamma_text(self.gamma)}){delta}"
        return f"γ = {gamma_text(self.gamma)}{delta}"


def parse_limit(text: str | PrivacyLimit) -> PrivacyLimit:
    """Parse a limit: 5%:50%, gamma=19 or epsilon=2.9; a δ may follow, as in epsilon=2.9,delta=1e-6.

    >>> parse_limit("5%:50%") == DEFAULT_LIMIT, parse_limit("gamma=3").gamma
    (True, Fraction(3, 1))
    >>> float(parse_limit("5%:50%,delta=1e-6").delta)
    1e-06
    """
    if isinstance(text, PrivacyLimit):
        return text
    values: dict[str, str] = {}
    for part in text.split(","):
        kind, _, value = part.partition("=")
        name, value = (kind.strip(), value.strip()) if value else ("breach", part)
        if name in values:
            raise ChannelError(f"a limit must state {name!r} only once.")
        values[name] = value
    return PrivacyLimit.parse(values)


def gamma_above(epsilon: Fraction) -> Fraction:
    """Return a γ not below e^ε."""
    if not epsilon:
        return Fraction(1)
    with localcontext(prec=60):
        exponent = (Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).next_plus()
        return Fraction(exponent.exp().next_plus())


def check_delta(delta: Fraction, limit: PrivacyLimit, instead: str) -> None:
    """Raise InputError if the δ of sums with noise is above the δ of a limit.

    Parameters
    ----------
    delta : Fraction
        Sum of δ over all counts with noise.
    limit : PrivacyLimit
        Limit that the owner of the record accepts.
    instead : str
        Advice to the owner, which ends the message.
    """
    if delta > limit.delta:
        raise InputError(
            f"Nothing was sent: sums with noise keep their bound except with probability "
            f"δ = {float(delta):g}, and your limit ({limit}) allows δ = {float(limit.delta):g}. {instead}"
        )


def check_limit(gamma: Fraction | float, limit: PrivacyLimit, instead: str) -> None:
    """Raise InputError if all queries to one person together reveal more than the person's limit.

    Parameters
    ----------
    gamma : Fraction or float
        γ of all queries to the person together.
    limit : PrivacyLimit
        Limit that the owner of the record accepts.
    instead : str
        Advice to the owner, which ends the message.
    """
    if gamma > limit.gamma:
        raise InputError(
            f"Nothing was drawn: your reports would reveal more than your limit ({limit}). "
            f"{describe_gamma(gamma)} γ = {gamma_text(gamma)} per person. {instead}"
        )


def parse_breach(value: object) -> tuple[Fraction, Fraction]:
    """Return the two beliefs of a breach, given as "5%:50%" or as two numbers.

    >>> parse_breach("5%:50%")
    (Fraction(1, 20), Fraction(1, 2))
    """
    parts = value.split(":") if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or len(parts) != 2:
        raise ChannelError("A breach is two beliefs, such as 5%:50%: a belief of 5% may not rise above 50%.")
    before, after = (_belief(part) for part in parts)
    return before, after


def _belief(part: object) -> Fraction:
    if isinstance(part, str) and part.strip().endswith("%"):
        return rational(part.strip()[:-1].strip(), "breach") / 100
    return rational(part.strip() if isinstance(part, str) else part, "breach")


def _plain(number: Fraction) -> str | int:
    """Return a number in the form of policy files: an integer, a finite decimal, or a fraction."""
    if number.denominator == 1:
        return int(number)
    exact = Decimal(number.numerator) / Decimal(number.denominator)
    return f"{exact:f}" if Fraction(exact) == number else str(number)


def gamma_of(
    gamma: Rational | None = None,
    epsilon: Rational | None = None,
    breach: str | Sequence[Rational] | None = None,
) -> Fraction:
    """Return γ as a fraction with a precision of 32 bits, never above the requested level.

    Parameters
    ----------
    gamma, epsilon : number or str, optional
        The level as γ, or as ε = ln γ.
    breach : str or pair, optional
        (ρ1, ρ2): no belief of ρ1 may rise above ρ2. Give exactly one of the three.

    Returns
    -------
    Fraction
        γ.

    Notes
    -----
    Formula: γ = e^ε = ρ2(1−ρ1)/(ρ1(1−ρ2)).
    Reference: Evfimievski, Gehrke & Srikant (2003).

    Examples
    --------
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
        bound = _of_breach(parse_breach(breach))
    elif epsilon is not None:
        bound = _of_epsilon(rational(epsilon, "epsilon"))
    else:
        bound = rational(gamma, "gamma")
    if not 1 < bound <= Fraction(math.exp(LARGEST_EPSILON)):
        raise ChannelError(
            f"γ must be above 1, since reports tell nothing at γ = 1, and ε at most {LARGEST_EPSILON}. "
            f"Got γ = {float(bound):.6g}."
        )
    return shorten_gamma(bound)


def shorten_gamma(gamma: Fraction) -> Fraction:
    """Return γ itself if its numerator is small, otherwise γ rounded down to 32 bits."""
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
        # exp() always rounds to nearest, in any context. One unit less is certainly below e^ε.
        return Fraction((Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp().next_minus())


def _of_breach(breach: tuple[Fraction, Fraction]) -> Fraction:
    before, after = breach
    if not 0 < before < after < 1:
        raise ChannelError(
            "A breach is two beliefs between 0 and 1, the second above the first, such as (0.05, 0.5). "
            f"Got {float(before):g} and {float(after):g}."
        )
    return after * (1 - before) / (before * (1 - after))


DEFAULT_LIMIT: Final = PrivacyLimit.parse({"breach": "5%:50%"})
