"""What everybody agreed to at enrolment, what binds messages to one round, and what it guarantees."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.channels.privacy import guarantee_of
from masquerade.core.errors import InputError
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.protocols.aggregation.masks import ring
from masquerade.protocols.aggregation.parameters import Parameters
from masquerade.protocols.codec import Writer
from masquerade.protocols.people.questions import Counts, Question, Sizes, tables_of
from masquerade.protocols.people.roster import Roster

MOST_COUNTS = 1 << 16
MINER = "miner"
ENROLMENT = "enrolment gives each person one identity key, and everybody the same roster"
PRIMITIVES = "X25519, Ed25519, SHA-256, AES-256 and ChaCha20-Poly1305 are as hard to break as is thought"
NO_VALIDATION = "votes are not validated: one user can shift any count"
STANDING = "every record was disguised first: γ bounds what sums say even if all other users help the miner"


@dataclass(frozen=True, eq=False)
class Terms:
    """What everybody agreed to: who takes part, against whom it protects, how records are disguised first.

    A user is known by the place on the roster. `disguised` tells that the policy bounds what a report says
    about every variable: then the differences of sums need no protection of their own.
    """

    roster: Roster
    parameters: Parameters
    policy: Policy

    def __post_init__(self) -> None:
        if len(self.roster) != self.parameters.users:
            raise InputError(
                f"The parameters are for {self.parameters.users} users, the roster lists {len(self.roster)}."
            )

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return how many reports each variable has."""
        observed = self.policy.observed
        return dict(zip(observed, observed.shape(observed), strict=True))

    @cached_property
    def disguised(self) -> bool:
        """Tell whether what a report says is bounded for every variable."""
        return all(item.gamma is not None for item in guarantee_of(self.policy).disclosures)

    @cached_property
    def width(self) -> np.dtype[Any]:
        """Return the numbers that votes are summed in."""
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
        writer = Writer(self)
        for question in self.questions:
            question.write(writer)
        return hashlib.sha256(b"masquerade aggregation batch" + writer.done()).digest()

    def vote(self, reports: Mapping[str, int], width: np.dtype[Any]) -> NDArray[Any]:
        """Return the vector of one record."""
        vector = np.zeros(self.length, dtype=width)
        start = 0
        for question in self.questions:
            cell = question.cell(reports, self.sizes)
            if cell is not None:
                vector[start + cell] = 1
            start += question.cells(self.sizes)
        return vector

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
    width: np.dtype[Any]
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


def aggregation_guarantee(terms: Terms) -> Guarantee:
    """Return what the miner learns: every count over at least the minimum of users, and nothing else.

    Disguised first, the sums are sums of reports: γ bounds what they say about a person even to a miner who
    knows everybody else's report, and no report is ever seen alone.
    """
    parameters = terms.parameters
    own = guarantee_of(terms.policy)
    whom = f"over at least {parameters.minimum} users"
    disclosures = tuple(
        Disclosure(MINER, f"sums of {item.kind} {whom}", item.variables, item.gamma)
        for item in own.disclosures
    )
    colluding = f"at most {parameters.colluders} of {parameters.users} users collude with the miner"
    chance = "but for a chance of 2^-40, no neighbourhood and no group of witnesses has too many colluders"
    bounded = (STANDING,) if any(item.gamma is not None for item in own.disclosures) else ()
    return Guarantee(
        disclosures,
        (colluding, chance, ENROLMENT, PRIMITIVES, NO_VALIDATION, *bounded, *own.assumptions),
        {MINER: parameters.server, "user": "malicious"},
        parameters.colluders,
        ((MINER, f"more than {parameters.colluders} users"),),
        parameters.dropouts,
        "none",
    )
