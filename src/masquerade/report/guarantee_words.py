"""Texts of a guarantee for a page: bounds by variable, and disclosures."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from masquerade.channels.measures import breach_bound
from masquerade.core.util.formatting import epsilon_text, gamma_text, log_gamma, percent

if TYPE_CHECKING:
    from masquerade.channels.policy.privacy import PolicyPrivacy
    from masquerade.core.guarantee import Guarantee

BELIEF = 0.1


@dataclass(frozen=True, slots=True)
class Bound:
    """Bound of a channel, or of the whole record."""

    name: str
    gamma: str
    epsilon: str
    reach: str


def bounds(privacy: PolicyPrivacy) -> list[Bound]:
    """Return γ, ε and the largest posterior of a prior of 10%: for the whole record, then by channel."""
    figures: list[tuple[str, Fraction | float]] = [("record", privacy.record_gamma)]
    figures += [(item.title, item.gamma) for item in (*privacy.variables, *privacy.groups)]
    return [
        Bound(name, gamma_text(gamma), epsilon_text(log_gamma(gamma)), percent(breach_bound(gamma, BELIEF)))
        for name, gamma in figures
    ]


def list_disclosures(guarantee: Guarantee) -> list[tuple[str, str, str]]:
    """Return role, type of values, and variables with their bounds, for every disclosure."""
    lines: dict[tuple[str, str], list[str]] = {}
    for item in guarantee.disclosures:
        bound = "no bound" if item.gamma is None else f"γ = {gamma_text(item.gamma)}"
        lines.setdefault((item.role, item.kind), []).append(f"{', '.join(item.variables)} ({bound})")
    return [(role, kind, "; ".join(items)) for (role, kind), items in lines.items()]
