"""Privacy guarantees: who learns what, under which assumptions.

Sources compute their guarantees; users never type them in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, Final, Literal

from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import exact_text, gamma_words, log_gamma, printable

Integrity = Literal["none", "detects", "identifies"]
NOBODY = "as long as nobody colludes"
Adversary = Literal["semi-honest", "malicious"]
# Names of roles: printed in results and part of `--json`. Names of single parties, and names that a protocol
# signs ("miner"), stay with their sessions and protocols.
READER: Final = "anyone who sees the disguised records"
SEED_OWNER: Final = "anyone who knows the seed"
ANALYST: Final = "analyst"
AGGREGATOR: Final = "aggregator"
RELAY: Final = "relay"
PARTICIPANTS: Final = "every participant"
COLLECTOR: Final = "collector"
RANDOMNESS_SERVER: Final = "randomness server"
ENROLMENT_OFFICE: Final = "enrolment office"
DEALER: Final = "dealer"
KEY_HOLDER: Final = "key holder"
CLASS_MEMBER: Final = "user of the same class"
ADVERSARIES: tuple[Adversary, ...] = ("semi-honest", "malicious")
INTEGRITIES: tuple[Integrity, ...] = ("none", "detects", "identifies")


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What one role learns about each person.

    Attributes
    ----------
    role : str
        Who learns it, for example "analyst".
    kind : str
        What is learned, for example "disguised values".
    variables : tuple of str
        Variables concerned.
    gamma : Fraction or None
        Bound on the ratio of posterior to prior odds of any property of the variables. None means no bound:
        values are seen unchanged or nearly so, or noise on counts bounds them.
    noise_epsilon : float or None
        ε of noise on counts, for each record over all tables. None without noise.
    delta : float
        δ of the noise, which belongs to `noise_epsilon`.

    Examples
    --------
    >>> from fractions import Fraction
    >>> seen = mq.extend.Disclosure("analyst", "disguised values", ("pills",), Fraction(3))
    >>> round(seen.epsilon, 2)
    1.1
    """

    role: str
    kind: str
    variables: tuple[str, ...]
    gamma: Fraction | None
    noise_epsilon: float | None = None
    delta: float = 0.0

    @property
    def epsilon(self) -> float:
        """Return ε: ln γ of local differential privacy, or ε of the noise on counts."""
        return log_gamma(self.gamma) if self.noise_epsilon is None else self.noise_epsilon

    @property
    def bound(self) -> str:
        """Return the bound as text: γ and ε, or ε and δ of the noise on counts."""
        if self.noise_epsilon is None:
            return gamma_words(self.gamma)
        return f"ε = {self.noise_epsilon:.2f} (δ = {self.delta:g}) a record"


@dataclass(frozen=True, slots=True)
class Guarantee(Printed):
    """What answering counts reveals, and the conditions under which that holds.

    Attributes
    ----------
    disclosures : tuple of Disclosure
        What each role learns.
    assumptions : tuple of str
        Conditions, each completing the sentence "assuming …".
    adversaries : mapping of str to str
        Strongest behaviour of each role that is tolerated: "semi-honest" or "malicious".
    colluders : int or None
        Number of parties that may collude. None if it does not apply.
    excluded_coalitions : tuple of tuple of str
        Roles that must not collude.
    dropouts : int or None
        Number of parties that may drop out. None if it does not apply.
    integrity : {"none", "detects", "identifies"}
        Whether cheating goes unnoticed, is detected, or is traced to the cheater.

    Examples
    --------
    >>> guarantee = mq.privacy(mq.data.students_policy()).guarantee
    >>> print(guarantee.summary())
    anyone who sees the disguised records learns disguised values of pills: γ = 3 (ε = 1.10)
    anyone who sees the disguised records learns disguised values of sleep: γ = 4 (ε = 1.39)
    anyone who sees the disguised records learns clear values of exams, year: no bound
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
        """Return the guarantee of two releases about the *same* people.

        Factors γ of disclosures with the same role, kind and variables multiply; all other disclosures and
        assumptions are listed together. For adversaries, colluders, dropouts and integrity, the weaker of the
        two statements holds.
        """
        return self._merge(other, lambda first, second: first * second)

    def combine_disjoint(self, other: Guarantee) -> Guarantee:
        """Return the guarantee of two releases about *different* people.

        Like `combine`, but instead of the product of two factors γ the larger factor holds.
        """
        return self._merge(other, max)

    def _merge(self, other: Guarantee, join: Callable[[Fraction, Fraction], Fraction]) -> Guarantee:
        merged: dict[tuple[str, str, tuple[str, ...]], Disclosure] = {}
        for item in (*self.disclosures, *other.disclosures):
            key = (item.role, item.kind, item.variables)
            merged[key] = _join_bounds(merged[key], item, join) if key in merged else item
        return Guarantee(
            tuple(merged.values()),
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
        """Return plain values for JSON; γ as text (`exact_text`), null without a bound."""
        plain = asdict(self)
        for item in plain["disclosures"]:
            item["gamma"] = None if item["gamma"] is None else exact_text(item["gamma"])
            if item["noise_epsilon"] is None:  # only noise on counts has these
                del item["noise_epsilon"], item["delta"]
        return plain

    @printable
    def summary(self) -> str:
        """Return one line per disclosure, then the adversaries, limits and assumptions."""
        lines = [
            f"{item.role} learns {item.kind} of {', '.join(item.variables)}: {item.bound}"
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


def _join_bounds(
    first: Disclosure, second: Disclosure, join: Callable[[Fraction, Fraction], Fraction]
) -> Disclosure:
    """Return the bound of two disclosures of the same values: factors γ multiply, ε and δ of noise add up.

    For different people (`join` is max) the larger bound holds.
    """
    gamma = None if first.gamma is None or second.gamma is None else join(first.gamma, second.gamma)
    if first.noise_epsilon is None or second.noise_epsilon is None:
        return Disclosure(first.role, first.kind, first.variables, gamma)
    combine = max if join is max else _add
    epsilon, delta = combine(first.noise_epsilon, second.noise_epsilon), combine(first.delta, second.delta)
    return Disclosure(first.role, first.kind, first.variables, gamma, epsilon, delta)


def _add(first: float, second: float) -> float:
    return first + second


def _weaker(first: int | None, second: int | None) -> int | None:
    """Return the smaller of two limits, where None means that the limit does not apply."""
    known = [value for value in (first, second) if value is not None]
    return min(known) if known else None
