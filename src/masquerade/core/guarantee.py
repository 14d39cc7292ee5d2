"""Who learns what, from whom protected, under which assumption: computed by sources, never typed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, Literal

from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import exact_text, gamma_words, log_gamma, printable

Integrity = Literal["none", "detects", "identifies"]
NOBODY = "as long as nobody colludes"
Adversary = Literal["semi-honest", "malicious"]
ADVERSARIES: tuple[Adversary, ...] = ("semi-honest", "malicious")
INTEGRITIES: tuple[Integrity, ...] = ("none", "detects", "identifies")


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What one role learns about each person.

    `gamma` bounds how far any belief about the variables can shift (posterior odds over prior odds);
    None means no bound: they are seen as they are, or as good as.

    Examples
    --------
    >>> from fractions import Fraction
    >>> seen = mq.extend.Disclosure("the analyst", "disguised values", ("pills",), Fraction(3))
    >>> round(seen.epsilon, 2)
    1.1
    """

    role: str
    kind: str
    variables: tuple[str, ...]
    gamma: Fraction | None

    @property
    def epsilon(self) -> float:
        """Return ln γ, the parameter of local differential privacy."""
        return log_gamma(self.gamma)


@dataclass(frozen=True, slots=True)
class Guarantee(Printed):
    """What a way of answering counts reveals, and what must hold for that to be true.

    >>> guarantee = mq.privacy(mq.data.students_policy()).guarantee
    >>> print(guarantee.summary())
    whoever sees the disguised records learns disguised values of pills: γ = 3 (ε = 1.10)
    whoever sees the disguised records learns disguised values of sleep: γ = 4 (ε = 1.39)
    whoever sees the disguised records learns clear values of exams, year: no bound
    assuming every value is drawn once per person (memoise repeated releases; each further draw multiplies γ)
    assuming the disguise used OS randomness that nobody recorded
    """

    disclosures: tuple[Disclosure, ...]
    assumptions: tuple[str, ...] = ()
    adversaries: Mapping[str, Adversary] = field(default_factory=dict)
    colluders: int | None = None
    excluded_coalitions: tuple[tuple[str, ...], ...] = ()
    dropouts: int | None = None
    integrity: Integrity = "none"

    def combine(self, other: Guarantee) -> Guarantee:
        """Return what two releases about the *same* people reveal together.

        Disclosures of the same role, kind and variables multiply their γ; the rest is the union; of
        adversaries, colluders, dropouts and integrity the weakest holds.
        """
        return self._merged(other, lambda first, second: first * second)

    def beside(self, other: Guarantee) -> Guarantee:
        """Return what two releases about *different* people reveal: as `combine`, but the larger γ counts."""
        return self._merged(other, max)

    def _merged(self, other: Guarantee, join: Callable[[Fraction, Fraction], Fraction]) -> Guarantee:
        merged: dict[tuple[str, str, tuple[str, ...]], Fraction | None] = {}
        for item in (*self.disclosures, *other.disclosures):
            key = (item.role, item.kind, item.variables)
            before = merged.get(key, Fraction(1))
            merged[key] = None if before is None or item.gamma is None else join(before, item.gamma)
        return Guarantee(
            tuple(Disclosure(*key, gamma) for key, gamma in merged.items()),
            tuple(dict.fromkeys(self.assumptions + other.assumptions)),
            {
                role: min(
                    (g.adversaries[role] for g in (self, other) if role in g.adversaries),
                    key=ADVERSARIES.index,
                )
                for role in {**self.adversaries, **other.adversaries}
            },
            _weaker(self.colluders, other.colluders),
            tuple(dict.fromkeys(self.excluded_coalitions + other.excluded_coalitions)),
            _weaker(self.dropouts, other.dropouts),
            min(self.integrity, other.integrity, key=INTEGRITIES.index),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; γ as text (`exact_text`), unbounded as null."""
        plain = asdict(self)
        for item in plain["disclosures"]:
            item["gamma"] = None if item["gamma"] is None else exact_text(item["gamma"])
        return plain

    @printable
    def summary(self) -> str:
        """Return who learns what, a line each, then against whom that holds, and the assumptions."""
        lines = [
            f"{item.role} learns {item.kind} of {', '.join(item.variables)}: {gamma_words(item.gamma)}"
            for item in self.disclosures
        ]
        by_kind = {kind: [r for r, k in self.adversaries.items() if k == kind] for kind in ADVERSARIES}
        lines += [f"against a {kind} {', '.join(roles)}" for kind, roles in by_kind.items() if roles]
        if self.colluders is not None:
            lines.append(f"as long as no more than {self.colluders} collude" if self.colluders else NOBODY)
        lines += [f"never if {' and '.join(roles)} collude" for roles in self.excluded_coalitions]
        if self.dropouts is not None:
            lines.append(f"{self.dropouts} may drop out" if self.dropouts else "nobody may drop out")
        return "\n".join(lines + [f"assuming {text}" for text in self.assumptions])


def _weaker(first: int | None, second: int | None) -> int | None:
    """Return the smaller of two limits, where None means that the limit does not apply."""
    known = [value for value in (first, second) if value is not None]
    return min(known) if known else None
