"""What everybody agreed to at enrolment, and what binds messages to one round.

How many neighbours a user needs, how many shares open a secret and how many witnesses sign who is counted
follows from exact hypergeometric tails: users collude or drop out before anybody's place is drawn.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Self

from masquerade.core.errors import InputError
from masquerade.core.guarantee import ADVERSARIES, Adversary
from masquerade.protocols.people.questions import Counts, Question, Sizes, tables_of, written
from masquerade.protocols.people.report_form import AnyPolicy, sizes_of, tells_without_bound
from masquerade.protocols.people.roster import Roster
from masquerade.protocols.secure_aggregation.masks import ring

COMPLETE_BELOW = 300
PRIVACY_BITS = 40  # chance that privacy fails for anybody: 2^-40
# chance that a round fails although no more than the stated share drops out: 2^-20; against a malicious
# server 2^-19, so that each of ten thousand users receives less than 24 kB
SUCCESS_BITS: dict[Adversary, int] = {"semi-honest": 20, "malicious": 19}
COMMITTEE_BITS = 80  # all who draw the graph collude: 2^-40, and 2^40 tries at naming a session
SMALLEST_ROSTER = 20


@dataclass(frozen=True, slots=True)
class Parameters:
    """The graph and the thresholds of a session; everybody computes them alike from what was agreed.

    Any `threshold` of a user's `neighbours` open its seeds. A sum over fewer than `minimum` users is refused,
    and so is one that differs from an earlier sum by fewer than `minimum` users. `quorum` of the `witnesses`
    sign the list of those who are summed; a semi-honest server needs none.

    >>> parameters = mq.people.Parameters.of(60, dropouts="0.1", colluders="0.1")
    >>> parameters.users, parameters.threshold <= parameters.neighbours
    (60, True)
    """

    users: int
    neighbours: int
    threshold: int
    colluders: int
    dropouts: int
    minimum: int
    committee: int
    witnesses: int
    quorum: int
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
        smallest even k that has a t with n·P[s < t] ≤ 2⁻²⁰ (2⁻¹⁹, malicious) and, of several t the smallest,
        - for a semi-honest server n·P[c ≥ t] ≤ 2⁻⁴⁰ and ½(n(γ+δ)^(k/2))² ≤ 2⁻⁴⁰: dropouts are chance, too;
        - for a malicious one n·P[c ≥ 2t − k] ≤ 2⁻⁴⁰ and ½(n·P[g ≥ t − k/2 − 1])² ≤ 2⁻⁴⁰ with g ~ Hyp(n, ⌈γn⌉,
          k/2 − 1): it chooses who drops out, and still no two gaps part the circle (`history` says why).
        Below 300 users everybody is everybody's neighbour. The minimum is 20 users, or the colluders and two
        more, so that at least two honest users hide each other. Of m witnesses q sign: the smallest m that
        has a q with P[Hyp(n, ⌈γn⌉, m) ≥ 2q − m] ≤ 2⁻⁴⁰, so that two quorums share an honest witness, and
        P[Hyp(n, n−⌈δn⌉, m) < q] ≤ 2⁻¹⁹; below 300 users all are witnesses.
        Reference: Bell et al. (2020), sections 3 and 4; the gaps and the witnesses are ours.
        Cost: k grows with log n.
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
        drawing = committee_size(users, colluding)
        signing = (0, 0) if server == "semi-honest" else witness_quorum(users, colluding, leaving)
        return cls(users, k, t, colluding, leaving, least, drawing, *signing, server)

    @property
    def complete(self) -> bool:
        """Tell whether everybody is everybody's neighbour."""
        return self.neighbours == self.users - 1

    def encode(self) -> bytes:
        """Return the bytes that stand for these parameters in hashes."""
        *numbers, server = astuple(self)
        return b"".join(number.to_bytes(8, "big") for number in (*numbers, ADVERSARIES.index(server)))


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
            for t in thresholds(n, k, colluding, leaving, server):
                chosen = server == "malicious"
                gap = gap_chance(n, k, t, colluding) if chosen else (gamma + delta) ** (k // 2)
                # two gaps part the circle, each beginning at a place with this chance
                if (n * gap) ** 2 <= Fraction(2, 2**PRIVACY_BITS):
                    return k, t
    possible = thresholds(n, n - 1, colluding, leaving, server)
    if not possible:
        raise InputError(
            f"No threshold protects {n} users if {colluding} may collude and {leaving} may drop out: "
            "state smaller shares, or enrol more users."
        )
    return n - 1, possible[0]


def thresholds(n: int, k: int, colluding: int, leaving: int, server: Adversary) -> range:
    """Return the thresholds that protect everybody and let a round succeed."""
    reach = least_unreached(n - 1, k, colluding, n)
    least = max(reach if server == "semi-honest" else -(-(reach + k) // 2), 2)
    return range(least, min(largest_safe(n - 1, k, n - 1 - leaving, n << SUCCESS_BITS[server]), k) + 1)


def gap_chance(n: int, k: int, t: int, colluding: int) -> Fraction:
    """Return the chance that t − k/2 − 1 of k/2 − 1 users collude: a gap if all others there are gone."""
    weights, whole = hypergeometric(n, colluding, k // 2 - 1)
    return Fraction(sum(weights[max(t - k // 2 - 1, 0) :]), whole)


def witness_quorum(n: int, colluding: int, leaving: int) -> tuple[int, int]:
    """Return how many witnesses to draw, and how many of them have to sign."""
    for m in range(1, n) if n >= COMPLETE_BELOW else ():
        q = -(-(m + least_unreached(n, m, colluding, 1)) // 2)  # 2q − m colluders are out of reach
        if q <= min(largest_safe(n, m, n - leaving, 1 << SUCCESS_BITS["malicious"]), m):
            return m, q
    return n, (n + colluding) // 2 + 1


def least_unreached(population: int, drawn: int, colluding: int, tries: int) -> int:
    """Return the smallest r that fewer than r of those drawn collude, in all tries, but for 2⁻⁴⁰."""
    weights, whole = hypergeometric(population, min(colluding, population), drawn)
    tails = accumulate(reversed(weights))  # P[c ≥ drawn], P[c ≥ drawn − 1], …
    return drawn + 1 - sum((tries * tail) << PRIVACY_BITS <= whole for tail in tails)


def largest_safe(population: int, drawn: int, surviving: int, rare: int) -> int:
    """Return the largest t such that fewer than t of those drawn survive once in `rare` times at most."""
    weights, whole = hypergeometric(population, max(surviving, 0), drawn)
    tails = accumulate(weights)  # P[s ≤ t] decides whether t + 1 is still safe
    return min(sum(rare * tail <= whole for tail in tails), drawn)


def hypergeometric(population: int, marked: int, drawn: int) -> tuple[list[int], int]:
    """Return the numbers of draws with 0, 1, … marked, and of all draws: exact, as whole numbers."""
    rest = population - marked
    weights = [math.comb(marked, i) * math.comb(rest, drawn - i) for i in range(drawn + 1)]
    return weights, math.comb(population, drawn)


def committee_size(n: int, colluding: int) -> int:
    """Return how many users to draw so that all of them collude with chance 2⁻⁸⁰ at most."""
    chance = Fraction(1)
    for size in range(1, n + 1):
        chance *= Fraction(max(colluding - size + 1, 0), n - size + 1)
        if chance <= Fraction(1, 2**COMMITTEE_BITS):
            return size
    return n


MOST_COUNTS = 1 << 16


@dataclass(frozen=True, eq=False)
class Terms:
    """What everybody agreed to: who takes part, against whom it protects, how records are disguised first.

    A user is known by the place on the roster. `disguised` tells that the policy bounds what a report says
    about every variable: then the differences of sums need no protection of their own.
    """

    roster: Roster
    parameters: Parameters
    policy: AnyPolicy

    def __post_init__(self) -> None:
        if len(self.roster) != self.parameters.users:
            raise InputError(
                f"The parameters are for {self.parameters.users} users, the roster lists {len(self.roster)}."
            )

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return how many reports each variable has."""
        return sizes_of(self.policy)

    @cached_property
    def disguised(self) -> bool:
        """Tell whether what a report says is bounded for every variable."""
        return not tells_without_bound(self.policy)

    @cached_property
    def width(self) -> int:
        """Return the bytes of the numbers that votes are summed in."""
        return ring(self.parameters.users)


@dataclass(frozen=True)
class Batch:
    """The questions of a round, none twice; a vote is a one in every cell that a record is in."""

    questions: tuple[Question, ...]
    sizes: Sizes

    def __post_init__(self) -> None:
        if not self.questions or len(set(self.questions)) < len(self.questions):
            raise InputError("A batch asks at least one question, and none twice.")
        if self.length > MOST_COUNTS:
            raise InputError(f"A batch has at most {MOST_COUNTS:,} counts.")

    @cached_property
    def length(self) -> int:
        """Return the number of counts."""
        return sum(question.cells(self.sizes) for question in self.questions)

    @cached_property
    def hash(self) -> bytes:
        """Return the sha256 of what is asked."""
        return hashlib.sha256(b"masquerade aggregation batch" + written(self.questions, self)).digest()

    def vote(self, reports: Mapping[str, int], width: int) -> bytes:
        """Return the vector of one record."""
        vector, start = bytearray(self.length * width), 0
        for question in self.questions:
            cell = question.cell(reports, self.sizes)
            if cell is not None:
                vector[(start + cell) * width] = 1  # little-endian
            start += question.cells(self.sizes)
        return bytes(vector)

    def tables(self, counts: Counts) -> dict[Question, Counts]:
        """Return the tables that a vector of counts is made of."""
        spans = [question.cells(self.sizes) for question in self.questions]
        return tables_of(counts, self.questions, spans, self.sizes)


@dataclass(frozen=True)
class RoundContext:
    """What every key and signature of a round is bound to, and what the sizes of its messages follow from.

    It is bound to the session, the number of the round and the hash of the batch.
    """

    session: bytes
    round: int
    batch: bytes
    neighbours: int
    committee: int
    witnesses: int
    width: int
    length: int

    @classmethod
    def of(cls, terms: Terms, nonce: bytes, number: int, batch: Batch) -> Self:
        """Return that of a round; the session has a name that nobody who agreed to other terms gets."""
        parameters = terms.parameters
        digest = hashlib.sha256(b"masquerade aggregation session" + terms.roster.hash)
        digest.update(parameters.encode() + terms.policy.id.encode() + nonce)
        committee = 0 if parameters.complete else parameters.committee
        sizes = (parameters.neighbours, committee, parameters.witnesses, terms.width, batch.length)
        return cls(digest.digest(), number, batch.hash, *sizes)

    @cached_property
    def info(self) -> bytes:
        """Return session‖round‖batch hash."""
        return self.session + self.round.to_bytes(4, "big") + self.batch

    @cached_property
    def opening(self) -> RoundContext:
        """Return what the drawing of the graph is bound to: the session alone, which keeps its graph."""
        return replace(self, round=0, batch=bytes(32))

    @cached_property
    def tag(self) -> bytes:
        """Return eight bytes by which messages of another round are told apart."""
        return hashlib.sha256(b"masquerade aggregation tag" + self.info).digest()[:8]
