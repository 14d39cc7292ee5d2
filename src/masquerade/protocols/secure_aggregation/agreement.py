"""Terms that all people agreed to at enrolment, and the context that binds messages to one round.

The numbers of neighbours of a user, of shares that open a secret, and of witnesses who sign the list of
counted users follow from exact hypergeometric tails, because users collude or drop out before positions are
drawn.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Self

from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit
from masquerade.core.errors import InputError
from masquerade.core.guarantee import ADVERSARIES, Adversary
from masquerade.protocols.people.questions import Counts, Question, Sizes, encode_questions, tables_of
from masquerade.protocols.people.report_form import AnyPolicy, exceeds_limit, sizes_of
from masquerade.protocols.people.roster import Roster
from masquerade.protocols.secure_aggregation.masks import ring

if TYPE_CHECKING:
    from masquerade.channels.noise.terms import NoiseTerms
    from masquerade.core.query import Query

COMPLETE_BELOW = 300
PRIVACY_BITS = 40  # chance that privacy fails for any user: 2^-40
# chance that a round fails although at most the stated share drops out: 2^-20; against a malicious server
# 2^-19, so that each of ten thousand users receives less than 24 kB
SUCCESS_BITS: dict[Adversary, int] = {"semi-honest": 20, "malicious": 19}
COMMITTEE_BITS = 80  # chance that a whole committee colludes: 2^-40, even after 2^40 tries at session names
SMALLEST_ROSTER = 20
NOISE_SPREADS = 12  # standard deviations of the noise that a sum has capacity for


@dataclass(frozen=True, slots=True)
class SumNoise:
    """Noise that all users add to sums: the promise to each record over all tables of a session.

    Every user draws shares of integer noise and adds them to the vote before it is masked. Nobody knows the
    noise of a sum.

    Parameters
    ----------
    epsilon : float
        ε of all tables together.
    tables : int
        Total number of tables that will be counted.
    delta : float, default 1e-6
        δ; at least 1e-10, or 0.

    Examples
    --------
    >>> parameters = mq.people.Parameters.of(1000, noise=mq.people.SumNoise(epsilon=1, tables=10))
    >>> parameters.minimum, parameters.noise_terms.honest
    (950, 850)
    """

    epsilon: float
    tables: int
    delta: float = 1e-6

    @property
    def privacy(self) -> tuple[Fraction, Fraction]:
        """Return ε and δ, exactly as they were stated."""
        return Fraction(repr(float(self.epsilon))), Fraction(repr(float(self.delta)))

    def encode(self) -> bytes:
        """Return the bytes that represent this noise in hashes."""
        return f"noise {float(self.epsilon)!r} {float(self.delta)!r} {self.tables}".encode()


@dataclass(frozen=True, slots=True)
class Parameters:
    """The graph and the thresholds of a session, which all users compute from the terms.

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
    noise: SumNoise | None = None

    @classmethod
    def of(
        cls,
        users: int,
        *,
        colluders: float | str = "0.1",
        dropouts: float | str = "0.05",
        server: Adversary = "malicious",
        minimum: int | None = None,
        noise: SumNoise | None = None,
    ) -> Parameters:
        """Return the smallest parameters for a number of users of whom some may collude or drop out.

        Parameters
        ----------
        users : int
            Number of users n.
        colluders : float or str, optional
            Largest share γ of users who collude with the server.
        dropouts : float or str, optional
            Largest share δ of users who leave during a round.
        server : {"malicious", "semi-honest"}, optional
            Behaviour of the server to protect against.
        minimum : int, optional
            Least number of users in a sum. At least the colluders and two more, so that at least two honest
            users hide each other. By default 20, with noise all users but the dropouts, or this least number
            if it is larger.
        noise : SumNoise, optional
            Noise that users add. At least `minimum` − colluders of them are honest and counted, and their
            noise alone keeps the promise; so the more users must stay, the less noise each adds.

        Returns
        -------
        `Parameters`
            The graph and the thresholds.

        Notes
        -----
        Formula: of k neighbours c ~ Hyp(n−1, ⌈γn⌉, k) collude and s ~ Hyp(n−1, n−1−⌈δn⌉, k) survive. k is the
        smallest even number for which some threshold t meets these conditions; the smallest t is taken:

        - n·P[s < t] ≤ 2⁻²⁰ (2⁻¹⁹ for a malicious server);
        - for a semi-honest server n·P[c ≥ t] ≤ 2⁻⁴⁰ and ½(n(γ+δ)^(k/2))² ≤ 2⁻⁴⁰: dropouts are random, too;
        - for a malicious server n·P[c ≥ 2t − k] ≤ 2⁻⁴⁰ and ½(n·P[g ≥ t − k/2 − 1])² ≤ 2⁻⁴⁰, with
          g ~ Hyp(n, ⌈γn⌉, k/2 − 1): although the server chooses who drops out, no two gaps split the circle
          of users. A gap is k/2 − 1 positions in a row whose users all collude or have left, at least
          t − k/2 − 1 of them colluding (proof: `secure_aggregation.history`).

        Below 300 users all are neighbours. Of m witnesses q sign: the smallest m that has a q with
        P[Hyp(n, ⌈γn⌉, m) ≥ 2q − m] ≤ 2⁻⁴⁰, so that two quorums share an honest witness, and
        P[Hyp(n, n−⌈δn⌉, m) < q] ≤ 2⁻¹⁹; below 300 users all are witnesses.
        Reference: Bell et al. (2020), sections 3 and 4; the gaps and the witnesses are additions of this
        package.
        Cost: k grows with log n.
        """
        gamma, delta = share(colluders, "colluders"), share(dropouts, "dropouts")
        if server not in ADVERSARIES:
            raise InputError(f"The server must be one of {', '.join(ADVERSARIES)}. Got {server!r} instead.")
        if users < 3:
            raise InputError(f"Aggregation needs at least 3 users. Got {users} instead.")
        colluding, leaving = math.ceil(gamma * users), math.ceil(delta * users)
        safe = colluding + 2
        usual = max(SMALLEST_ROSTER, safe) if noise is None else max(users - leaving, safe)
        least = usual if minimum is None else minimum
        if least < safe:
            raise InputError(
                f"The minimum roster must be at least {safe}: with {colluding} colluders, fewer users would "
                f"not hide each other. Got {least} instead."
            )
        k, t = neighbourhood(users, gamma, delta, server)
        drawing = committee_size(users, colluding)
        signing = (0, 0) if server == "semi-honest" else witness_quorum(users, colluding, leaving)
        parameters = cls(users, k, t, colluding, leaving, least, drawing, *signing, server, noise)
        if noise is not None:
            _ = parameters.width  # noise that cannot be computed, drawn or summed is refused here
        return parameters

    @property
    def complete(self) -> bool:
        """Return True if all users are neighbours of each other."""
        return self.neighbours == self.users - 1

    @property
    def noise_terms(self) -> NoiseTerms | None:
        """Return the terms of the noise, None without noise: `minimum` users are sure to contribute."""
        if self.noise is None:
            return None
        from masquerade.channels.noise.terms import NoiseTerms  # noqa: PLC0415  (loads numpy)

        promise = self.noise
        return NoiseTerms(promise.epsilon, promise.tables, promise.delta, self.minimum, self.colluders)

    @property
    def width(self) -> int:
        """Return the number of bytes of each number in a sum of votes; with noise, numbers have a sign."""
        terms = self.noise_terms
        if terms is None:
            return ring(self.users)
        deviation = math.sqrt(terms.total_variance(terms.stages[0], self.users))
        return ring(2 * (self.users + math.ceil(NOISE_SPREADS * deviation)))

    def encode(self) -> bytes:
        """Return the bytes that represent these parameters in hashes."""
        *numbers, server, _ = astuple(self)
        encoded = b"".join(number.to_bytes(8, "big") for number in (*numbers, ADVERSARIES.index(server)))
        return encoded if self.noise is None else encoded + self.noise.encode()


def share(given: float | str, name: str) -> Fraction:
    """Return a share as an exact decimal, so that 0.05 of 1,000 is 50."""
    try:
        value = Fraction(str(given))
    except (ValueError, ZeroDivisionError):
        value = Fraction(-1)
    if not 0 <= value < 1:
        raise InputError(f"The share of {name} must be at least 0 and below 1. Got {given!r} instead.")
    return value


@lru_cache(maxsize=256)
def neighbourhood(n: int, gamma: Fraction, delta: Fraction, server: Adversary) -> tuple[int, int]:
    """Return the number of neighbours, and the number of neighbours whose shares open a secret."""
    colluding, leaving = math.ceil(gamma * n), math.ceil(delta * n)
    if n >= COMPLETE_BELOW:
        for k in range(2, n - 1, 2):
            for t in thresholds(n, k, colluding, leaving, server):
                chosen = server == "malicious"
                gap = gap_chance(n, k, t, colluding) if chosen else (gamma + delta) ** (k // 2)
                # two gaps split the circle; each starts at a given position with this chance
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
    """Return the thresholds that protect all users and let a round succeed."""
    reach = least_unreached(n - 1, k, colluding, n)
    least = max(reach if server == "semi-honest" else -(-(reach + k) // 2), 2)
    return range(least, min(largest_safe(n - 1, k, n - 1 - leaving, n << SUCCESS_BITS[server]), k) + 1)


def gap_chance(n: int, k: int, t: int, colluding: int) -> Fraction:
    """Return the chance that at least t − k/2 − 1 of k/2 − 1 users collude: a gap if the others left."""
    weights, whole = hypergeometric(n, colluding, k // 2 - 1)
    return Fraction(sum(weights[max(t - k // 2 - 1, 0) :]), whole)


def witness_quorum(n: int, colluding: int, leaving: int) -> tuple[int, int]:
    """Return the number of witnesses to draw, and the number that must sign."""
    for m in range(1, n) if n >= COMPLETE_BELOW else ():
        q = -(-(m + least_unreached(n, m, colluding, 1)) // 2)  # so that there are never 2q − m colluders
        if q <= min(largest_safe(n, m, n - leaving, 1 << SUCCESS_BITS["malicious"]), m):
            return m, q
    return n, (n + colluding) // 2 + 1


def least_unreached(population: int, drawn: int, colluding: int, tries: int) -> int:
    """Return the smallest r such that in any of `tries` draws r or more users collude with chance ≤ 2⁻⁴⁰."""
    weights, whole = hypergeometric(population, min(colluding, population), drawn)
    tails = accumulate(reversed(weights))  # P[c ≥ drawn], P[c ≥ drawn − 1], …
    return drawn + 1 - sum((tries * tail) << PRIVACY_BITS <= whole for tail in tails)


def largest_safe(population: int, drawn: int, surviving: int, rare: int) -> int:
    """Return the largest t such that fewer than t of the drawn users survive with chance at most 1/`rare`."""
    weights, whole = hypergeometric(population, max(surviving, 0), drawn)
    tails = accumulate(weights)  # P[s ≤ t] decides whether t + 1 is still safe
    return min(sum(rare * tail <= whole for tail in tails), drawn)


def hypergeometric(population: int, marked: int, drawn: int) -> tuple[list[int], int]:
    """Return the exact numbers of draws with 0, 1, … marked users, and the number of all draws."""
    rest = population - marked
    weights = [math.comb(marked, i) * math.comb(rest, drawn - i) for i in range(drawn + 1)]
    return weights, math.comb(population, drawn)


def committee_size(n: int, colluding: int) -> int:
    """Return the number of users to draw so that all of them collude with probability 2⁻⁸⁰ at most."""
    chance = Fraction(1)
    for size in range(1, n + 1):
        chance *= Fraction(max(colluding - size + 1, 0), n - size + 1)
        if chance <= Fraction(1, 2**COMMITTEE_BITS):
            return size
    return n


MOST_COUNTS = 1 << 16


@dataclass(frozen=True, eq=False)
class AggregationTerms:
    """Terms that all people agreed to: the people, the protection, and the disguise of their records.

    A user is identified by the index in the roster. `disguised` is True if a whole report stays within
    `limit`: then differences of sums need no further protection. Each reader of the terms chooses the limit,
    which is not part of the agreement. With noise all variables are clear, and every sum has independent
    noise.
    """

    roster: Roster
    parameters: Parameters
    policy: AnyPolicy
    limit: PrivacyLimit = DEFAULT_LIMIT

    def __post_init__(self) -> None:
        if len(self.roster) != self.parameters.users:
            raise InputError(
                f"The parameters are for {self.parameters.users} users, but the roster lists "
                f"{len(self.roster)}."
            )
        if self.parameters.noise is not None and self.policy.disguised:
            raise InputError(
                "Noise is added to counts of clear records, and this policy disguises variables: choose "
                "either noise or a disguise."
            )

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return the number of possible reports of each variable."""
        return sizes_of(self.policy)

    @cached_property
    def disguised(self) -> bool:
        """Return True if a whole report stays within the limit."""
        return not exceeds_limit(self.policy, self.limit)

    @cached_property
    def bounded(self) -> bool:
        """Return True if differences of sums need no protection: by the limit, or by noise in every sum."""
        return self.parameters.noise is not None or self.disguised

    @cached_property
    def chained(self) -> bool:
        """Return True if every list of survivors includes a hash of all earlier lists.

        This holds unless sums have noise or reports are within the default limit, which all users know. A
        user with a lower limit also requires it, and stops if other users do not.
        """
        return self.parameters.noise is None and (exceeds_limit(self.policy) or not self.disguised)

    @cached_property
    def noise(self) -> NoiseTerms | None:
        """Return the terms of the noise that all users add, None without noise."""
        return self.parameters.noise_terms

    @cached_property
    def agreement(self) -> bytes:
        """Return a digest of the agreement, the same for all sessions: the scope of the noise budget."""
        digest = hashlib.sha256(b"masquerade aggregation agreement" + self.roster.hash)
        digest.update(self.parameters.encode() + self.policy.id.encode())
        return digest.digest()

    @cached_property
    def width(self) -> int:
        """Return the number of bytes of each number in a sum of votes."""
        return self.parameters.width


@dataclass(frozen=True)
class QuestionBatch:
    """The distinct questions of a round; a vote has a one in every cell that contains the record."""

    questions: tuple[Question, ...]
    sizes: Sizes

    def __post_init__(self) -> None:
        if not self.questions or len(set(self.questions)) < len(self.questions):
            raise InputError("A batch must have at least one question, and none twice.")
        if self.length > MOST_COUNTS:
            raise InputError(f"A batch has at most {MOST_COUNTS:,} counts.")

    @cached_property
    def length(self) -> int:
        """Return the number of counts."""
        return sum(question.cells(self.sizes) for question in self.questions)

    @cached_property
    def hash(self) -> bytes:
        """Return the sha256 of the questions."""
        return hashlib.sha256(
            b"masquerade aggregation batch" + encode_questions(self.questions, self)
        ).digest()

    def vote(self, reports: Mapping[str, int], width: int) -> bytes:
        """Return the vector of one record."""
        vector, start = bytearray(self.length * width), 0
        for question in self.questions:
            cell = question.cell(reports, self.sizes)
            if cell is not None:
                vector[(start + cell) * width] = 1  # little-endian
            start += question.cells(self.sizes)
        return bytes(vector)

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """Return the questions as queries over codes of reports, which determine the cost in noise."""
        from masquerade.core.query import Query  # noqa: PLC0415  (loads numpy, which devices do without)

        return tuple(Query(by=one.columns, where=one.conditions) for one in self.questions)

    def tables(self, counts: Counts) -> dict[Question, Counts]:
        """Split a vector of counts into tables."""
        spans = [question.cells(self.sizes) for question in self.questions]
        return tables_of(counts, self.questions, spans, self.sizes)


@dataclass(frozen=True)
class RoundContext:
    """Context of a round: every key and signature is bound to it, and it determines the sizes of messages.

    It contains the session, the number of the round and the hash of the batch.
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
    def of(cls, terms: AggregationTerms, nonce: bytes, number: int, batch: QuestionBatch) -> Self:
        """Return the context of a round; the name of its session depends on the terms."""
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
        """Return the context for drawing the graph: the session, whose rounds all have the same graph."""
        return replace(self, round=0, batch=bytes(32))

    @cached_property
    def tag(self) -> bytes:
        """Return eight bytes that distinguish the messages of this round."""
        return hashlib.sha256(b"masquerade aggregation tag" + self.info).digest()[:8]
