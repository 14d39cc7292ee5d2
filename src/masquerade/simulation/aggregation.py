"""A population counted by secure aggregation: people may leave, and nobody can tell who stuffs votes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, MasqueradeError, QueryRefused, Refusal, RoundAborted
from masquerade.core.guarantee import Adversary
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import KEY_SIZE, AgreementKey
from masquerade.protocols.people.ledger import Ledger, MemoryLedger
from masquerade.protocols.people.roster import enrol
from masquerade.protocols.secure_aggregation import masks
from masquerade.protocols.secure_aggregation.agreement import Batch, Parameters, Terms, share
from masquerade.protocols.secure_aggregation.history import against_another_list
from masquerade.protocols.secure_aggregation.messages import (
    NONCE_SIZE,
    Delivery,
    MessageRefused,
    RoundMessage,
    Work,
    kind_of,
)
from masquerade.protocols.secure_aggregation.server import Outcome, Server
from masquerade.protocols.secure_aggregation.user import RoundState, User
from masquerade.simulation.costs import Counted, Culprit, Learn, Meter
from masquerade.simulation.people import People, Trouble
from masquerade.sources.people.aggregation import AggregationTally

Wire = Callable[[int, bytes], Iterable[bytes]]
STUFFED = 10  # votes that a cheater adds to the first count of every round
ALONE = 5  # users who verify and agree by themselves, to see what a device takes
LEAST_PLANNED = "0.05"  # dropouts that a session is laid out for, at least


class _SharedWork(Work):
    """For users that run in one process: what one of them has verified or agreed, the others look up.

    Simulations only: it halves the agreements and makes one verification of what k neighbours would verify.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._verified: set[tuple[object, ...]] = set()
        self._agreed: dict[tuple[object, ...], bytes] = {}

    def verify(self, identity: bytes, signature: bytes, label: str, *fields: bytes) -> None:
        key = (identity, signature, label, fields)
        if key not in self._verified:
            super().verify(identity, signature, label, *fields)
            self._verified.add(key)

    def agree(
        self, key: AgreementKey, other: bytes, label: str, context: bytes, size: int = KEY_SIZE
    ) -> bytes:
        pair = (min(key.public, other), max(key.public, other), label, context)
        found = self._agreed.pop(pair, None)  # a pair has two ends: the second needs it no longer kept
        if found is None:
            found = self._agreed[pair] = super().agree(key, other, label, context, size)
        return found


class Population:
    """A session of users in this process: `ask` runs one round through bytes.

    Users share the verification of signatures and the agreement of keys but for those who are `alone`, so the
    seconds of the others are less than those of as many devices. `leaving` names users that vanish for good
    when they are due to reply to a kind of message; `outward` and `inward` may lose, repeat or change
    messages on their way; `refused` has what somebody refused. Users in `cheating` stuff votes.
    """

    def __init__(
        self,
        codes: Mapping[str, NDArray[Any]],
        policy: Policy,
        parameters: Parameters | None = None,
        *,
        ledgers: Sequence[Ledger] | None = None,
        alone: Collection[int] = (),
        cheating: Collection[int] = (),
    ) -> None:
        lengths = {len(column) for column in codes.values()}
        if set(codes) != set(policy.schema) or len(lengths) != 1:
            raise InputError("A population needs one column of codes, equally long, for every variable.")
        rows = np.column_stack([codes[name] for name in policy.schema]).tolist()
        roster, keys = enrol([f"user {place}" for place in range(len(rows))])
        self.terms = Terms(roster, parameters or Parameters.of(len(rows)), policy)
        self.ledgers = ledgers or [MemoryLedger() for _ in rows]
        self.meter, self._work = Meter(len(rows)), _SharedWork()
        self.users: list[User] = []
        for place, row in enumerate(rows):
            user = (_Stuffer if place in cheating else User)(
                roster.names[place],
                keys[place],
                dict(zip(policy.schema, row, strict=True)),
                self.terms,
                ledger=self.ledgers[place],
                work=Work() if place in alone else self._work,
            )
            self.users.append(self.meter.watched(user, place))
        self.leaving: dict[int, type[RoundMessage]] = {}
        self.outward: Wire = lambda _place, message: [message]
        self.inward: Wire = lambda _place, message: [message]
        self.gone: set[int] = set()
        self.refused: list[tuple[int, str]] = []
        self.last: Outcome | None = None
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
        self.meter.rounds += 1
        server = Server(self.terms, self._nonce, self.meter.rounds, batch, before=self.last)
        try:
            outcome = self.last = self._run(self.meter.watched(server, "server"))
        except RoundAborted as aborted:
            if aborted.spent and not self.terms.disguised:
                reason = "a round was aborted after votes had left, and clear votes are spent"
                self._over = Refusal("already_spent", reason)
            if self.last is None:
                self._nonce = os.urandom(NONCE_SIZE)  # users keep to one graph a session: draw another
            raise
        finally:
            self._work.forget()
        return outcome

    def _run(self, server: Server) -> Outcome:
        while outgoing := server.advance():
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
        if self.leaving.get(place) is _kind_or_none(message):
            self.gone.add(place)
            return
        try:
            reply = self.users[place].receive(message)
        except (DecodingError, MessageRefused, QueryRefused) as refused:
            self.refused.append((place, str(refused)))
            return
        for arriving in () if reply is None else self.inward(place, reply):
            try:
                server.receive(place, arriving)
            except (DecodingError, MessageRefused) as refused:
                self.refused.append((place, str(refused)))


def _kind_or_none(message: bytes) -> type[RoundMessage] | None:
    try:
        return kind_of(message)
    except MasqueradeError:
        return None


class _Stuffer(User):
    """A user who adds votes to the first count; under its masks nobody sees that."""

    def _masked(self, now: RoundState, held: Sequence[bytes | None]) -> bytes:
        length, width = now.batch.length, self.terms.width
        stuffed = STUFFED.to_bytes(width, "little").ljust(length * width, b"\0")
        return masks.total([super()._masked(now, held), stuffed], [], length, width)


def count(
    people: People,
    learn: Learn,
    trouble: Trouble,
    *,
    colluders: float | str = "0.1",
    server: Adversary = "malicious",
) -> Counted:
    """Learn from people by secure aggregation.

    Whoever leaves does so in the first round, after having sent shares: the worst moment, since their masks
    have to be recovered.
    """
    n = len(people)
    leaving, cheating = trouble.among(n)
    planned = max(LEAST_PLANNED, str(trouble.dropouts), key=lambda text: share(text, "dropouts"))
    parameters = Parameters.of(n, colluders=colluders, dropouts=planned, server=server)
    alone = [place for place in range(n) if place not in leaving | cheating][:ALONE]
    population = Population(people.codes, people.policy, parameters, alone=alone, cheating=cheating)
    population.leaving = dict.fromkeys(leaving, Delivery)
    meter = population.meter
    meter.started = time.perf_counter()
    model = learn(AggregationTally(population, people.policy))
    last = population.last or Outcome(np.zeros(0, dtype=np.int64), ())
    culprits = tuple(Culprit(name, "it gave wrong shares") for name in last.culprits)
    notes = tuple(_notes(parameters, cheating))
    return Counted(model, last.survivors, culprits, meter.cost(alone, last.survivors), notes)


def _notes(parameters: Parameters, cheating: frozenset[int]) -> list[str]:
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
