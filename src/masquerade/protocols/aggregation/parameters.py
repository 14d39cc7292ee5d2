"""How many neighbours a user needs, and how many shares open a secret: from exact hypergeometric tails."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from masquerade.core.errors import InputError
from masquerade.core.guarantee import ADVERSARIES, Adversary

COMPLETE_BELOW = 300
PRIVACY_BITS = 40  # chance that privacy fails for anybody: 2^-40
SUCCESS_BITS = 20  # chance that a round fails although no more than the stated share drops out: 2^-20
COMMITTEE_BITS = (
    80  # all who draw the graph collude: 2^-40, and 2^40 tries at naming a session to their liking
)
SMALLEST_ROSTER = 20


@dataclass(frozen=True, slots=True)
class Parameters:
    """The graph and the thresholds of a session; everybody computes them alike from what was agreed.

    Any `threshold` of a user's `neighbours` open its seeds. A sum over fewer than `minimum` users is refused,
    and so is one that differs from an earlier sum by fewer than `minimum` users.
    """

    users: int
    neighbours: int
    threshold: int
    colluders: int
    dropouts: int
    minimum: int
    committee: int
    server: Adversary

    @classmethod
    def of(
        cls,
        users: int,
        *,
        colluders: float | str = "0.1",
        dropouts: float | str = "0.05",
        server: Adversary = "malicious",
        minimum: int | None = None,
    ) -> Parameters:
        """Return the smallest parameters for `users` of whom shares may collude or drop out.

        Formula: with c ~ Hyp(n−1, ⌈γn⌉, k) colluding and s ~ Hyp(n−1, n−1−⌈δn⌉, k) surviving neighbours, the
        smallest even k that has a t with n·P[s < t] ≤ 2⁻²⁰, n·P[c ≥ t] ≤ 2⁻⁴⁰ (a semi-honest server) or
        n·P[c ≥ 2t − k] ≤ 2⁻⁴⁰ (a malicious one), and ½(n(γ+δ)^(k/2))² ≤ 2⁻⁴⁰; of several t the smallest.
        Below 300 users everybody is everybody's neighbour. The minimum is 20 users, or the colluders and two
        more, so that at least two honest users hide each other.
        Reference: Bell et al. (2020), sections 3 and 4. Cost: k grows with log n.
        """
        gamma, delta = share(colluders, "colluders"), share(dropouts, "dropouts")
        if server not in ADVERSARIES:
            raise InputError(f"The server must be one of {', '.join(ADVERSARIES)}. Got {server!r} instead.")
        if users < 3:
            raise InputError(f"Aggregation needs at least 3 users. Got {users} instead.")
        colluding, leaving = math.ceil(gamma * users), math.ceil(delta * users)
        safe = colluding + 2
        least = max(SMALLEST_ROSTER, safe) if minimum is None else minimum
        if least < safe:
            raise InputError(
                f"The minimum roster must be at least {safe}: with {colluding} colluders, fewer users would "
                f"not hide each other. Got {least} instead."
            )
        k, t = neighbourhood(users, gamma, delta, server)
        return cls(users, k, t, colluding, leaving, least, committee_size(users, colluding), server)

    @property
    def complete(self) -> bool:
        """Tell whether everybody is everybody's neighbour."""
        return self.neighbours == self.users - 1

    def encode(self) -> bytes:
        """Return the bytes that stand for these parameters in hashes."""
        numbers = (
            self.users,
            self.neighbours,
            self.threshold,
            self.colluders,
            self.dropouts,
            self.minimum,
            self.committee,
            ADVERSARIES.index(self.server),
        )
        return b"".join(number.to_bytes(8, "big") for number in numbers)


def share(given: float | str, name: str) -> Fraction:
    """Return a share as the decimal that was written, so that 0.05 of 1,000 is 50."""
    try:
        value = Fraction(str(given))
    except (ValueError, ZeroDivisionError):
        value = Fraction(-1)
    if not 0 <= value < 1:
        raise InputError(f"The share of {name} must be at least 0 and below 1. Got {given!r} instead.")
    return value


@lru_cache(maxsize=256)
def neighbourhood(n: int, gamma: Fraction, delta: Fraction, server: Adversary) -> tuple[int, int]:
    """Return how many neighbours, and how many of them open a secret."""
    colluding, leaving = math.ceil(gamma * n), math.ceil(delta * n)
    if n >= COMPLETE_BELOW:
        for k in range(2, n - 1, 2):
            if connected(n, k, gamma + delta):
                t = least_threshold(n, k, colluding, leaving, server)
                if t is not None:
                    return k, t
    t = least_threshold(n, n - 1, colluding, leaving, server)
    if t is None:
        raise InputError(
            f"No threshold protects {n} users if {colluding} may collude and {leaving} may drop out: "
            "state smaller shares, or enrol more users."
        )
    return n - 1, t


def least_threshold(n: int, k: int, colluding: int, leaving: int, server: Adversary) -> int | None:
    """Return the smallest threshold that protects everybody and lets a round succeed, if there is one."""
    most = min(largest_safe(n, k, n - 1 - leaving), k)
    reach = least_unreached(n, k, colluding)
    t = max(reach if server == "semi-honest" else -(-(reach + k) // 2), 2)
    return t if t <= most else None


def connected(n: int, k: int, leaving: Fraction) -> bool:
    """Tell whether the honest survivors hang together: ½(n(γ+δ)^(k/2))² ≤ 2⁻⁴⁰, exactly."""
    return (n * leaving ** (k // 2)) ** 2 <= Fraction(2, 2**PRIVACY_BITS)


def least_unreached(n: int, k: int, colluding: int) -> int:
    """Return the smallest r with n·P[c ≥ r] ≤ 2⁻⁴⁰ for c of k neighbours colluding."""
    weights, whole = hypergeometric(n - 1, min(colluding, n - 1), k)
    tail = 0
    for r in range(k, -1, -1):
        tail += weights[r]
        if (n * tail) << PRIVACY_BITS > whole:
            return r + 1
    return 0


def largest_safe(n: int, k: int, surviving: int) -> int:
    """Return the largest t with n·P[s < t] ≤ 2⁻²⁰ for s of k neighbours surviving."""
    weights, whole = hypergeometric(n - 1, max(surviving, 0), k)
    tail = 0
    for t in range(k + 1):
        tail += weights[t]  # P[s ≤ t] decides whether t + 1 is still safe
        if (n * tail) << SUCCESS_BITS > whole:
            return t
    return k


def hypergeometric(population: int, marked: int, drawn: int) -> tuple[list[int], int]:
    """Return the numbers of draws with 0, 1, … marked, and of all draws: exact, as whole numbers."""
    rest = population - marked
    return [math.comb(marked, i) * math.comb(rest, drawn - i) for i in range(drawn + 1)], math.comb(
        population, drawn
    )


def committee_size(n: int, colluding: int) -> int:
    """Return how many users to draw so that all of them collude with chance 2⁻⁸⁰ at most."""
    chance = Fraction(1)
    for size in range(1, n + 1):
        chance *= Fraction(max(colluding - size + 1, 0), n - size + 1)
        if chance <= Fraction(1, 2**COMMITTEE_BITS):
            return size
    return n
