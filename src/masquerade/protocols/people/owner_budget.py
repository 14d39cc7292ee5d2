"""Privacy budget of a device's owner: the total γ of reports sent under several policies, and its limit.

γ multiplies over policies, whose draws are independent. Under one policy a device draws once and stores the
draw, so a repeated request reveals nothing new. Counts with noise add their ε to ln γ, and their δ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from masquerade.channels.privacy_level import PrivacyLimit, check_delta, check_limit, gamma_above
from masquerade.core.record_gamma import Gamma, describe_gamma, multiply_gammas
from masquerade.core.util.formatting import counted, gamma_text


@dataclass(frozen=True, slots=True)
class OwnerBudget:
    """γ of the reports sent so far, by draw, and the limit set by the owner of the device.

    Parameters
    ----------
    spent : mapping of str to Fraction or float
        γ of the reports sent, by the name of their draw.
    limit : PrivacyLimit
        Limit of γ over all draws, and of δ.
    noise : mapping of str to tuple of Fraction, optional
        ε and δ of the counts with noise that the owner participates in, by the digest of their terms.

    Examples
    --------
    >>> from masquerade.channels.privacy_level import DEFAULT_LIMIT
    >>> budget = OwnerBudget({"health survey": Fraction(9)}, DEFAULT_LIMIT)
    >>> budget.total("second survey", Fraction(3)), budget.total("health survey", Fraction(9))
    (Fraction(27, 1), Fraction(9, 1))
    """

    spent: Mapping[str, Gamma]
    limit: PrivacyLimit
    noise: Mapping[str, tuple[Fraction, Fraction]] = field(default_factory=dict)

    def total(self, draw: str, gamma: Gamma) -> Gamma:
        """Return the total γ including a draw of this γ and noise; what was sent before counts once."""
        return multiply_gammas([gamma, *self._others(draw), gamma_above(self.epsilon)])

    @property
    def epsilon(self) -> Fraction:
        """Return ε of all counts with noise together."""
        return sum((epsilon for epsilon, _ in self.noise.values()), Fraction(0))

    @property
    def delta(self) -> Fraction:
        """Return δ of all counts with noise together."""
        return sum((delta for _, delta in self.noise.values()), Fraction(0))

    def left(self, draw: str) -> PrivacyLimit:
        """Return the limit that remains for this draw after all others; γ = 1 if nothing remains."""
        others = self._others(draw)
        if not others and not self.noise:
            return self.limit
        before = multiply_gammas([*others, gamma_above(self.epsilon)])
        left = self.limit.gamma / before if isinstance(before, Fraction) else Fraction(1)
        return PrivacyLimit(max(Fraction(1), left), "gamma", (max(Fraction(1), left),))

    def check(self, draw: str, gamma: Gamma, instead: str) -> None:
        """Raise InputError if the total γ, including this draw, exceeds the limit.

        Parameters
        ----------
        draw : str
            Name of the draw.
        gamma : Fraction or float
            γ of a whole record under it. At γ = 1, and without noise, nothing is checked.
        instead : str
            Advice to the owner, the end of the error message.
        """
        if gamma != 1 or self.noise:
            check_limit(self.total(draw, gamma), self.limit, instead)
            check_delta(self.delta, self.limit, instead)

    def describe(self, draw: str, gamma: Gamma) -> str:
        """Describe the total with earlier draws; empty if there are none, or at γ = 1."""
        others = self._others(draw)
        if not others or gamma == 1:
            return ""
        total = self.total(draw, gamma)
        return (
            f"With what you sent under {counted(len(others), 'other policy', 'other policies')}: "
            f"{describe_gamma(total)} (γ = {gamma_text(total)} in all)"
        )

    def _others(self, draw: str) -> list[Gamma]:
        """Return γ of the other draws that disguise something; a γ below 1 is not a bound."""
        others = [gamma for name, gamma in self.spent.items() if name != draw and gamma != 1]
        return [gamma if gamma > 1 else math.inf for gamma in others]
