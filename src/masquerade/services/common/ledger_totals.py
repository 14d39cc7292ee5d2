"""Totals of a release ledger: the γ spent per recipient, and in total about one person.

For one recipient and one set of variables, the γ of all releases are multiplied, since each release can
change a belief about a person's values. A repeated release of the same draw reveals nothing new and is
counted once; that is why disguises are memoised. A release without a `draw` counts each time. ε and δ of
noisy sums add up. Variables released in clear are excluded: γ compares records with equal values of these
variables. The ledger cannot tell whether two releases are about the same people and assumes that they are, so
every number is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Final

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import gamma_figures
from masquerade.channels.privacy_level import PrivacyLimit, gamma_above
from masquerade.core.record_gamma import Gamma, describe_gamma
from masquerade.core.util.formatting import counted, gamma_words
from masquerade.services.common.release_ledger import (
    ABOUT_ITSELF,
    AGREED,
    CLEAR,
    KEYS,
    RESTORED,
    SIGNED,
    Entry,
    Release,
    limit_gamma,
    write_bound,
)

DISGUISED: Final = "disguised records"  # kind of releases of a disguised file
ANYBODY: Final = "anybody"  # recipient of a file that is published
NOTHING_LEFT: Final = Fraction(1001, 1000)  # γ below which no useful release fits
SAME_PEOPLE = "All releases are taken to be about the same people."


@dataclass(frozen=True, slots=True)
class Spent:
    """Total of one recipient about one set of variables; `gamma` is None if it is unbounded."""

    recipient: str
    variables: tuple[str, ...]
    gamma: Fraction | None
    releases: int
    repeats: int

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {**asdict(self), "variables": list(self.variables), "gamma": write_bound(self.gamma)}


@dataclass(frozen=True, slots=True)
class PersonTotal:
    """The total of all releases about one person.

    Parameters
    ----------
    gamma : Fraction or None
        Product over all draws, each counted once; None if unbounded.
    epsilon, delta : Fraction
        Sums over releases with noise.
    clear : tuple of str
        Variables that were released in clear.
    unbounded : tuple of str
        Variables of other releases without a bound, such as exact counts.
    releases, draws : int
        Number of releases, and of different draws among them.
    recipients : tuple of str
        Names of all recipients.
    """

    gamma: Fraction | None
    epsilon: Fraction
    delta: Fraction
    clear: tuple[str, ...]
    unbounded: tuple[str, ...]
    releases: int
    draws: int
    recipients: tuple[str, ...]

    @property
    def bound(self) -> Gamma:
        """Return the joint γ of reports and noise: the product of γ and e^ε, rounded up; inf if unbounded."""
        if self.gamma is None:
            return math.inf
        return self.gamma * gamma_above(self.epsilon)

    def is_within(self, limit: PrivacyLimit) -> bool:
        """Return True if the total is within a limit: γ·e^ε at most the limit's γ, and δ at most its δ."""
        return self.bound <= limit.gamma and self.delta <= limit.delta

    def left(self, limit: PrivacyLimit) -> Fraction:
        """Return the γ that may still be released within a limit; 1 if nothing is left."""
        if not self.is_within(limit):
            return Fraction(1)
        return limit.gamma / Fraction(self.bound)

    def lines(self, limit: PrivacyLimit) -> list[str]:
        """Return sentences about the total; the first states what it means for a person."""
        over = f"{counted(self.releases, 'release')}, {counted(self.draws, 'draw')}"
        shown = [describe_gamma(self.bound), f"Over {over}: {gamma_words(self.bound)}."]
        if self.clear and self.bound == 1:  # "at most 5% likely" would be false for variables in clear
            shown = [f"Over {over}: nothing was disguised."]
        if self.delta:
            shown.append(f"With noise: except with probability δ = {float(self.delta):.2g}.")
        if self.clear:
            shown.append(f"In clear: {', '.join(self.clear)}.")
        if self.unbounded:
            shown.append(f"Without a bound: {', '.join(self.unbounded)}.")
        if self.is_within(limit):
            left = self.left(limit)
            words = gamma_words(left) if left > NOTHING_LEFT else "nothing"
            shown.append(f"The limit for one person is {limit}: {words} is left.")
        else:
            shown.append(f"This is beyond the limit for one person, {limit}.")
            if self.bound <= limit.gamma:
                shown.append(
                    f"Only δ exceeds the limit: a limit with delta = {float(self.delta):g} would accept "
                    "that probability."
                )
        return [*shown, SAME_PEOPLE]

    def to_dict(self, limit: PrivacyLimit) -> dict[str, Any]:
        """Return the values for JSON; γ is null if unbounded."""
        return {
            **gamma_figures(self.bound),
            "delta": float(self.delta),
            "clear": list(self.clear),
            "unbounded": list(self.unbounded),
            "releases": self.releases,
            "draws": self.draws,
            "recipients": list(self.recipients),
            "limit": limit.to_dict(),
            "is_within": self.is_within(limit),
            "left": float(self.left(limit)),
        }


def person_total(releases: Iterable[Release]) -> PersonTotal:
    """Return the total of releases about one person, for recipients that combine what they received.

    Parameters
    ----------
    releases : iterable of Release
        All releases, oldest first. Lines that a ledger writes about itself are ignored.

    Returns
    -------
    PersonTotal
        The total over all recipients.

    Notes
    -----
    Formula: γ = Π γ of draws · e^(Σ ε), except with probability Σ δ. A draw counts once, even if several
    recipients received it. A release does not count if another release of the same draw has all of its
    variables and at least its bound.
    Reference: Dwork & Roth (2014), theorem 3.16 (basic composition).
    """
    listed = [release for release in releases if release.kind not in ABOUT_ITSELF]
    # linked keys reveal no value, and γ is about values
    clear = dict.fromkeys(name for release in listed if release.kind == CLEAR for name in release.variables)
    draws = _distinct([one for one in listed if one.kind != CLEAR and one.variables != KEYS])
    unbounded = [release for release in draws if release.gamma is None]
    return PersonTotal(
        _product(release.gamma for release in draws),
        sum((release.epsilon or Fraction(0) for release in draws), Fraction(0)),
        sum((release.delta or Fraction(0) for release in draws), Fraction(0)),
        tuple(clear),
        tuple(dict.fromkeys(name for release in unbounded for name in release.variables)),
        len(listed),
        len(draws),
        tuple(dict.fromkeys(release.recipient for release in listed)),
    )


def releases_of_file(
    policy: Policy,
    file: str,
    rows: int,
    *,
    memo: str | None,
    digest: str | None,
    other_columns: Sequence[str] = (),
) -> list[Release]:
    """Return the ledger lines of a disguised file: one for disguised variables, one for clear variables.

    Reports from one memo and one policy are one draw, and count once however often they are released. A γ
    with more digits than a ledger stores counts as unbounded.

    Parameters
    ----------
    policy : Policy
        Policy of the file.
    file : str
        Name of the file.
    rows : int
        Number of records.
    memo : str or None
        Id of the memo that drew the reports.
    digest : str or None
        SHA-256 of the file.
    other_columns : sequence of str, optional
        Columns of the file, in clear, that the policy does not list.

    Returns
    -------
    list of Release
        At most two lines.
    """
    gamma = policy.record_gamma
    bounded = limit_gamma(Fraction(gamma)) if gamma != math.inf else None
    clear = [variable.name for variable in policy.schema.variables if variable.name not in policy.disguised]
    draw = None if memo is None else f"{memo} {policy.id}"
    lines = []
    if policy.disguised:
        what = (DISGUISED, tuple(policy.disguised), rows, policy.id, bounded, digest, draw)
        lines.append(Release(file, "disguise", ANYBODY, *what))
    if clear or other_columns:
        in_clear = (CLEAR, (*clear, *other_columns), rows, policy.id, None, digest)
        lines.append(Release(file, "disguise", ANYBODY, *in_clear))
    return lines


def _distinct(releases: Sequence[Release]) -> list[Release]:
    """Return one release per draw and set of variables, without sets that another set contains."""
    draws: dict[object, list[Release]] = {}
    for number, release in enumerate(releases):
        # reports of one draw are equal, whether sent or counted; exact results are distinguished by kind
        kind = release.kind if release.gamma is None else None
        draws.setdefault((kind, number if release.draw is None else release.draw), []).append(release)
    distinct = []
    for same in draws.values():
        largest: list[Release] = []
        for release in sorted(same, key=lambda one: (-len(set(one.variables)), *_rank(one))):
            # one draw has one bound; if a ledger states two, the larger bound of a smaller set is kept too
            if not any(_covers(other, release) for other in largest):
                largest.append(release)
        distinct += largest
    return distinct


def _rank(release: Release) -> tuple[Fraction, Fraction, Fraction]:
    """Return a sort key: releases without a bound come first, then larger bounds before smaller ones."""
    gamma = Fraction(0) if release.gamma is None else 1 / release.gamma
    return gamma, -(release.epsilon or Fraction(0)), -(release.delta or Fraction(0))


def _covers(one: Release, other: Release) -> bool:
    """Return True if `one` reveals at least as much as `other`, a release of the same draw."""
    bounded = one.gamma is None or (other.gamma is not None and other.gamma <= one.gamma)
    noisy = all((getattr(other, name) or 0) <= (getattr(one, name) or 0) for name in ("epsilon", "delta"))
    return set(other.variables) <= set(one.variables) and bounded and noisy


def spending(entries: Iterable[Entry]) -> tuple[Spent, ...]:
    """Return the γ spent by recipient and set of variables."""
    groups: dict[tuple[str, tuple[str, ...]], list[Release]] = {}
    for release in (entry.release for entry in entries if entry.release.kind not in ABOUT_ITSELF):
        groups.setdefault((release.recipient, tuple(sorted(set(release.variables)))), []).append(release)
    return tuple(_sum_group(who, variables, group) for (who, variables), group in groups.items())


def total(spent: Iterable[Spent]) -> Fraction | None:
    """Return the product of all γ, which bounds a whole record; None if unbounded."""
    return _product(item.gamma for item in spent)


def summary(entries: Sequence[Entry]) -> str:
    """Return a summary of releases and their γ by recipient, in sentences."""
    spent = spending(entries)
    whole = person_total(entry.release for entry in entries)
    lines = [f"One person: {describe_gamma(whole.bound)}"] if spent else []
    for who in dict.fromkeys(item.recipient for item in spent):
        mine = [item for item in spent if item.recipient == who]
        lines.append(f"{who}: a belief about a person can have shifted by {_gamma_text(total(mine))} in all.")
        lines += [
            f"- {', '.join(i.variables) or 'no variable'}: {_gamma_text(i.gamma)}, "
            f"{counted(i.releases, 'release')}{f', {i.repeats} of them repeated' if i.repeats else ''}."
            for i in mine
        ]
    for entry in entries:
        if entry.release.kind == RESTORED:
            lines.append(
                f"Restored from a backup at {entry.time}, before release {entry.number}: releases between "
                "the backup and then may be missing here."
            )
        if entry.release.kind == AGREED:
            lines.append(f"The operator agreed at {entry.time}: {entry.release.protocol}.")
        if entry.release.kind == SIGNED:
            lines.append(
                f"From release {entry.number} on ({entry.time}), the end is signed; before, it was not."
            )
    return "\n".join(lines) or "Nothing was released."


def _gamma_text(gamma: Fraction | None) -> str:
    return "any factor (no bound on γ)" if gamma is None else gamma_words(gamma)


def _sum_group(recipient: str, variables: tuple[str, ...], releases: Sequence[Release]) -> Spent:
    draws: dict[object, list[Release]] = {}
    for i, release in enumerate(releases):
        draws.setdefault((release.kind, i if release.draw is None else release.draw), []).append(release)
    # one draw has one γ; if a ledger states two, the larger counts
    gammas = [
        None if any(it.gamma is None for it in same) else max(it.gamma or Fraction(1) for it in same)
        for same in draws.values()
    ]
    return Spent(recipient, variables, _product(gammas), len(releases), len(releases) - len(draws))


def _product(gammas: Iterable[Fraction | None]) -> Fraction | None:
    result = Fraction(1)
    for gamma in gammas:
        if gamma is None:
            return None
        result *= gamma
    return limit_gamma(result)
