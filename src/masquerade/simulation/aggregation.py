"""A population counted by secure aggregation: people may leave, and nobody can tell who stuffs votes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, MasqueradeError, QueryRefused, Refusal, RoundAborted
from masquerade.core.guarantee import Adversary
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import KEY_SIZE, AgreementKey
from masquerade.protocols.aggregation import masks
from masquerade.protocols.aggregation.agreement import Batch, Terms
from masquerade.protocols.aggregation.history import against_another_list
from masquerade.protocols.aggregation.messages import (
    NONCE_SIZE,
    Delivery,
    MessageRefused,
    RoundMessage,
    Work,
    kind_of,
)
from masquerade.protocols.aggregation.parameters import Parameters, share
from masquerade.protocols.aggregation.server import Outcome, Server
from masquerade.protocols.aggregation.user import RoundState, User
from masquerade.protocols.people.ledger import Ledger, MemoryLedger
from masquerade.protocols.people.roster import enrol
from masquerade.simulation.costs import Meter
from masquerade.simulation.misbehaviour import Culprit, Trouble
from masquerade.simulation.model_comparison import Lesson, RecordedTally
from masquerade.simulation.people import People
from masquerade.simulation.results import LearntModel
from masquerade.sources.aggregation import AggregationTally

Wire = Callable[[int, bytes], Iterable[bytes]]
STUFFED = 10  # votes that a cheater adds to the first count of every round
ALONE = 5  # users who verify and agree by themselves, to see what a device takes
LEAST_PLANNED = "0.05"  # dropouts that a session is laid out for, at least


@dataclass(slots=True)
class Traffic:
    """What rounds have cost: bytes by user, processor seconds of all users together and of the server."""

    sent: NDArray[np.int64]
    received: NDArray[np.int64]
    user_seconds: float = 0.0
    server_seconds: float = 0.0
    rounds: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)


class SharedWork(Work):
    """For users that run in one process: what one of them has verified or agreed, the others look up.

    Simulations only: it halves the agreements and makes one verification of what k neighbours would verify.
    """

    def __init__(self) -> None:
        self._verified: dict[tuple[object, ...], bool] = {}
        self._agreed: dict[tuple[object, ...], bytes] = {}

    def verify(self, identity: bytes, signature: bytes, label: str, *fields: bytes) -> None:
        """Raise `SealBroken` unless the fields were signed."""
        key = (identity, signature, label, fields)
        if key not in self._verified:
            try:
                super().verify(identity, signature, label, *fields)
            except SealBroken:
                self._verified[key] = False
                raise
            self._verified[key] = True
        if not self._verified[key]:
            raise SealBroken("The signature does not belong to this identity and these fields.")

    def agree(
        self, key: AgreementKey, other: bytes, label: str, context: bytes, size: int = KEY_SIZE
    ) -> bytes:
        """Return the secret of a pair of keys for one purpose."""
        pair = (min(key.public, other), max(key.public, other), label, context)
        found = self._agreed.pop(pair, None)  # a pair has two ends: the second needs it no longer kept
        if found is None:
            found = self._agreed[pair] = super().agree(key, other, label, context, size)
        return found

    def forget(self) -> None:
        """Drop what was kept: the round is over."""
        self._verified.clear()
        self._agreed.clear()


class Population:
    """A session of users in this process: `ask` runs one round through bytes.

    Users share the verification of signatures and the agreement of keys (`SharedWork`), so the seconds of
    users are less than those of as many devices. `leaving` names users that vanish for good when they are
    due to reply to a kind of message; `outward` and `inward` may lose, repeat or change messages on their
    way.
    """

    def __init__(
        self,
        codes: Mapping[str, NDArray[Any]],
        policy: Policy,
        parameters: Parameters | None = None,
        *,
        ledgers: Sequence[Ledger] | None = None,
    ) -> None:
        lengths = {len(column) for column in codes.values()}
        if set(codes) != set(policy.schema) or len(lengths) != 1:
            raise InputError("A population needs one column of codes, equally long, for every variable.")
        rows = np.column_stack([codes[name] for name in policy.schema]).tolist()
        records = [dict(zip(policy.schema, row, strict=True)) for row in rows]
        roster, keys = enrol([f"user {place}" for place in range(len(rows))])
        self.terms = Terms(roster, parameters or Parameters.of(len(rows)), policy)
        self.ledgers = ledgers or [MemoryLedger() for _ in rows]
        self._work = SharedWork()
        self.users = [
            User(name, key, record, self.terms, ledger=ledger, work=self._work)
            for name, key, record, ledger in zip(roster, keys, records, self.ledgers, strict=True)
        ]
        self.leaving: dict[int, type[RoundMessage]] = {}
        self.outward: Wire = lambda _place, message: [message]
        self.inward: Wire = lambda _place, message: [message]
        nothing = np.zeros(len(rows), dtype=np.int64)
        self.cost = Traffic(nothing, nothing.copy())
        self.gone: set[int] = set()
        self.last: Outcome | None = None
        self._number = 0
        self._nonce = os.urandom(NONCE_SIZE)
        self._over: Refusal | None = None

    def refusals(self) -> list[Refusal]:
        """Return why no further round would be answered: too few users, or too few that left."""
        minimum = self.terms.parameters.minimum
        here = len(self.users) - len(self.gone)
        if here < minimum:
            reason = f"{here} users are here, at least {minimum} must hide each other"
            return [Refusal("roster_too_small", reason)]
        if self._over is not None:
            return [self._over]
        if self.last is None or self.terms.disguised:
            return []
        staying = len(self.gone.symmetric_difference(self.last.survivors) - self.gone)
        refusal = against_another_list(staying, len(self.last.survivors), minimum)
        return [] if refusal is None else [refusal]

    def ask(self, batch: Batch) -> Outcome:
        """Count a batch in one round."""
        refusals = self.refusals()
        if refusals:
            raise QueryRefused(refusals)
        self._number += 1
        server = Server(self.terms, self._nonce, self._number, batch, before=self.last)
        try:
            outcome = self._run(server)
        except RoundAborted as aborted:
            if aborted.spent and not self.terms.disguised:
                reason = "a round was aborted after votes had left, and clear votes are spent"
                self._over = Refusal("already_spent", reason)
            if self.last is None:
                self._nonce = os.urandom(NONCE_SIZE)  # users keep to one graph a session: draw another
            raise
        finally:
            self._work.forget()
            self.cost.rounds += 1
        self.last = outcome
        return outcome

    def _run(self, server: Server) -> Outcome:
        while True:
            start = time.process_time()
            outgoing = server.advance()
            self.cost.server_seconds += time.process_time() - start
            if not outgoing:
                break
            for place, message in outgoing.items():
                for arriving in self.outward(place, message):
                    self._exchange(server, place, arriving)
        if server.outcome is None:
            raise RoundAborted("The round ended without counts.", spent=True)
        return server.outcome

    def _exchange(self, server: Server, place: int, message: bytes) -> None:
        """Hand a message to a user and its reply to the server; what is refused is noted and lost."""
        if place in self.gone:
            return
        if self.leaving.get(place) is kind_or_none(message):
            self.gone.add(place)
            return
        self.cost.received[place] += len(message)
        start = time.process_time()
        try:
            reply = self.users[place].receive(message)
        except (DecodingError, MessageRefused, QueryRefused) as refused:
            self.cost.refused.append((place, str(refused)))
            reply = None
        self.cost.user_seconds += time.process_time() - start
        if reply is None:
            return
        self.cost.sent[place] += len(reply)
        for arriving in self.inward(place, reply):
            start = time.process_time()
            try:
                server.receive(place, arriving)
            except (DecodingError, MessageRefused) as refused:
                self.cost.refused.append((place, str(refused)))
            self.cost.server_seconds += time.process_time() - start


def kind_or_none(message: bytes) -> type[RoundMessage] | None:
    """Return the kind of a message, None if it has none."""
    try:
        return kind_of(message)
    except MasqueradeError:
        return None


class Stuffer(User):
    """A user who adds votes to the first count; under its masks nobody sees that."""

    @classmethod
    def in_place_of(cls, user: User) -> Self:
        """Return a cheater with somebody's identity and record."""
        key, reports = user._identity, user._reports  # noqa: SLF001  (this is a user of the same kind)
        cheater = cls(user.name, key, dict.fromkeys(reports, 0), user.terms, work=user.work)
        cheater._reports = reports
        return cheater

    def _masked(self, now: RoundState, held: Sequence[bytes | None]) -> masks.Ring:
        vector = super()._masked(now, held).copy()
        vector[:1] += vector.dtype.type(STUFFED)  # modulo the ring, as all sums are
        return vector


def count(
    people: People,
    lesson: Lesson,
    names: Sequence[str],
    trouble: Trouble,
    *,
    colluders: float | str = "0.1",
    server: Adversary = "malicious",
) -> LearntModel:
    """Learn from people by secure aggregation.

    Whoever leaves does so in the first round, after having sent shares: the worst moment, since their masks
    have to be recovered.
    """
    n = len(people)
    leaving, cheating = trouble.among(n)
    planned = max(LEAST_PLANNED, str(trouble.dropouts), key=lambda text: share(text, "dropouts"))
    parameters = Parameters.of(n, colluders=colluders, dropouts=planned, server=server)
    meter = Meter(n)
    population = Population(people.codes, people.policy, parameters)
    population.leaving = dict.fromkeys(leaving, Delivery)
    alone = [place for place in range(n) if place not in leaving | cheating][:ALONE]
    for place in cheating:
        population.users[place] = Stuffer.in_place_of(population.users[place])
    for place in alone:
        population.users[place].work = Work()
    population.users[:] = [meter.watched(user, place) for place, user in enumerate(population.users)]
    asked = RecordedTally(AggregationTally(population, people.policy), names)
    meter.started = time.perf_counter()
    model = lesson.learn(asked)
    counted = population.last.survivors if population.last is not None else ()
    caught = population.last.culprits if population.last is not None else ()
    meter.roles["server"] = population.cost.server_seconds
    cost = meter.cost(alone, counted, population.cost.rounds)
    culprits = tuple(Culprit(name, "it gave wrong shares") for name in caught)
    return LearntModel(
        model, asked, counted, len(leaving), culprits, cost, tuple(notes(parameters, cheating))
    )


def notes(parameters: Parameters, cheating: frozenset[int]) -> list[str]:
    """Say how the session was laid out, and what cheaters did that nobody could notice."""
    others = " (all others)" if parameters.complete else ""
    laid_out = (
        f"each user has {parameters.neighbours:,} neighbours{others}, any {parameters.threshold:,} of whom "
        f"recover its masks; at most {parameters.colluders:,} may collude and {parameters.dropouts:,} leave "
        f"({parameters.server} server)."
    )
    found = [laid_out]
    if cheating:
        found.append(
            f"{len(cheating):,} cheaters each added {STUFFED} votes to the first count of every round; votes "
            "are not validated here, so nobody can notice: what they changed is in the differences."
        )
    return found
