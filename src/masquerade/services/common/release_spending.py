"""How much γ was spent: the rule by which the releases in a ledger add up.

The rule. Towards one recipient, and for one set of variables, the γ of all releases multiply: a belief about
a person's values can shift by every one of them. A release of the same kind, from a draw that this recipient
has already seen for these variables, tells nothing new and does not multiply; that is why disguises are
memoised. A release without a `draw` counts each time. One unbounded release leaves the product unbounded.

What a recipient can learn about a whole record is bounded by the product over all its sets of variables
(`total`); recipients who put together what they have are bounded by the product over all of them, each draw
counted once (`together`). The ledger does not know whether two releases are about the same people and takes
it that they are, so every figure is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from masquerade.core.words import gamma_words, log_gamma
from masquerade.services.common.release_store import RESTORED

if TYPE_CHECKING:
    from masquerade.services.common.release_store import Entry, Release


@dataclass(frozen=True, slots=True)
class Spent:
    """What one recipient was told about one set of variables: γ None means without bound."""

    recipient: str
    variables: tuple[str, ...]
    gamma: Fraction | None
    releases: int
    repeats: int

    @property
    def epsilon(self) -> float:
        """Return ln γ, the ε of local differential privacy."""
        return log_gamma(self.gamma)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        gamma = None if self.gamma is None else f"{self.gamma.numerator}/{self.gamma.denominator}"
        return {
            "recipient": self.recipient,
            "variables": list(self.variables),
            "gamma": gamma,
            "releases": self.releases,
            "repeats": self.repeats,
        }


def spending(
    entries: Iterable[Entry], *, policy: str | None = None, recipient: str | None = None
) -> tuple[Spent, ...]:
    """Return the γ spent by recipient and set of variables, of all releases or those chosen."""
    groups: dict[tuple[str, tuple[str, ...]], list[Release]] = {}
    for entry in entries:
        release = entry.release
        wanted = policy in (None, release.policy) and recipient in (None, release.recipient)
        if wanted and release.kind != RESTORED:
            groups.setdefault((release.recipient, tuple(sorted(set(release.variables)))), []).append(release)
    return tuple(_spent(who, variables, group) for (who, variables), group in groups.items())


def total(spent: Iterable[Spent]) -> Fraction | None:
    """Return the product: what bounds a belief about a whole record; None if there is no bound."""
    return _product(item.gamma for item in spent)


def together(entries: Iterable[Entry]) -> Fraction | None:
    """Return what bounds the belief of all recipients who put together what they have."""
    groups: dict[tuple[str, ...], list[Release]] = {}
    for entry in entries:
        if entry.release.kind != RESTORED:
            groups.setdefault(tuple(sorted(set(entry.release.variables))), []).append(entry.release)
    return _product(_spent("", variables, group).gamma for variables, group in groups.items())


def summary(entries: Sequence[Entry]) -> str:
    """Return what left, to whom and what it may have given away, in sentences."""
    lines = []
    spent = spending(entries)
    for who in dict.fromkeys(item.recipient for item in spent):
        mine = [item for item in spent if item.recipient == who]
        lines.append(f"{who}: a belief about a person can have shifted by {shift_words(total(mine))} in all.")
        lines += [
            f"- {', '.join(i.variables) or 'no variable'}: {shift_words(i.gamma)}, {_times(i)}." for i in mine
        ]
    for entry in entries:
        if entry.release.kind == RESTORED:
            lines.append(
                f"Restored from a backup at {entry.time}, before release {entry.number}: "
                "what left between the backup and then may be missing here."
            )
    return "\n".join(lines) or "Nothing has left."


def shift_words(gamma: Fraction | None) -> str:
    """Return by how much a belief can have shifted."""
    return "any factor (no bound on γ)" if gamma is None else gamma_words(gamma)


def _times(spent: Spent) -> str:
    again = f", {spent.repeats} of them the same again" if spent.repeats else ""
    return f"{spent.releases} release{'' if spent.releases == 1 else 's'}{again}"


def _spent(recipient: str, variables: tuple[str, ...], releases: Sequence[Release]) -> Spent:
    draws: dict[object, Fraction | None] = {}
    for i, release in enumerate(releases):
        draw = (release.kind, i if release.draw is None else release.draw)
        # one draw has one γ; should a ledger say two, the larger holds
        draws[draw] = _larger(draws.get(draw, Fraction(1)), release.gamma)
    return Spent(recipient, variables, _product(draws.values()), len(releases), len(releases) - len(draws))


def _larger(first: Fraction | None, second: Fraction | None) -> Fraction | None:
    return None if first is None or second is None else max(first, second)


def _product(gammas: Iterable[Fraction | None]) -> Fraction | None:
    result = Fraction(1)
    for gamma in gammas:
        if gamma is None:
            return None
        result *= gamma
    return result
