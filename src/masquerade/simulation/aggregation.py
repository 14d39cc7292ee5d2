"""Secure aggregation of a population: users may drop out, and false votes cannot be detected."""

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
from masquerade.protocols.people.ledger import MemoryLedger, PersonLedger
from masquerade.protocols.people.roster import enrol
from masquerade.protocols.secure_aggregation import masks
from masquerade.protocols.secure_aggregation.agreement import (
    AggregationTerms,
    Parameters,
    QuestionBatch,
    SumNoise,
    share,
)
from masquerade.protocols.secure_aggregation.history import against_another_list
from masquerade.protocols.secure_aggregation.messages import (
    NONCE_SIZE,
    Delivery,
    MessageRefused,
    RoundMessage,
    Work,
    kind_of,
)
from masquerade.protocols.secure_aggregation.server import AggregationOutcome, Server
from masquerade.protocols.secure_aggregation.user import AggregationUser, RoundState
from masquerade.simulation.costs import Counted, Culprit, Learn, Meter
from masquerade.simulation.people import People, Trouble
from masquerade.sources.people.aggregation import AggregationTally
from masquerade.sources.people.noisy_people import NoisyPeople

Wire = Callable[[int, bytes], Iterable[bytes]]
STUFFED = 10  # votes that a cheater adds to the first count of every round
ALONE = 5  # users who share no work, to measure the time of a real device
LEAST_PLANNED = "0.05"  # smallest share of dropouts that a session is designed for


class _SharedWork(Work):
    """Cache of verifications and key agreements for users in one process.

    For simulations only. It halves the agreements and replaces the verifications of k neighbours by one.
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
        found = self._agreed.pop(pair, None)  # both users of a pair have it now: drop it
        if found is None:
            found = self._agreed[pair] = super().agree(key, other, label, context, size)
        return found


class Aggregation:
    """Session of users in this process. `ask` runs one round, every message encoded as bytes.

    Users share the verification of signatures and the agreement of keys, except those in `alone`, so the
    others take less time than real devices.

    Attributes
    ----------
    leaving : mapping
        Users who drop out permanently, each with the type of message to which they do not reply any more.
    outward, inward : callable
        Hooks that may lose, repeat or change messages.
    refused : list
        Messages that a user or the server refused.
    cheating : collection of int
        Users who add false votes.
    """

    def __init__(
        self,
        codes: Mapping[str, NDArray[Any]],
        policy: Policy,
        parameters: Parameters | None = None,
        *,
        ledgers: Sequence[PersonLedger] | None = None,
        alone: Collection[int] = (),
        cheating: Collection[int] = (),
    ) -> None:
        lengths = {len(column) for column in codes.values()}
        if set(codes) != set(policy.schema) or len(lengths) != 1:
            raise InputError("A population needs one column of codes, equally long, for every variable.")
        rows = np.column_stack([codes[name] for name in policy.schema]).tolist()
        roster, keys = enrol([f"user {place}" for place in range(len(rows))])
        self.terms = AggregationTerms(roster, parameters or Parameters.of(len(rows)), policy)
        self.ledgers = ledgers or [MemoryLedger() for _ in rows]
        self.meter, self._work = Meter(len(rows)), _SharedWork()
        self.users: list[AggregationUser] = []
        for place, row in enumerate(rows):
            user = (_Stuffer if place in cheating else AggregationUser)(
                roster.names[place],
                keys[place],
                dict(zip(policy.schema, row, strict=True)),
                self.terms,
                ledger=self.ledgers[place],
                work=Work() if place in alone else self._work,
            )
            self.users.append(self.meter.watch(user, place))
        self.leaving: dict[int, type[RoundMessage]] = {}
        self.outward: Wire = lambda _place, message: [message]
        self.inward: Wire = lambda _place, message: [message]
        self.gone: set[int] = set()
        self.refused: list[tuple[int, str]] = []
        self.last: AggregationOutcome | None = None
        self._nonce = os.urandom(NONCE_SIZE)
        self._over: Refusal | None = None

    def refusals(self) -> list[Refusal]:
        """Return the refusal of a further round: too few users, or rounds that differ by too few users."""
        minimum = self.terms.parameters.minimum
        here = len(self.users) - len(self.gone)
        if here < minimum:
            reason = f"{here} users are present, but at least {minimum} are needed to hide each other"
            return [Refusal("roster_too_small", reason)]
        if self._over is not None:
            return [self._over]
        if self.last is None or self.terms.bounded:
            return []
        staying = len(self.gone.symmetric_difference(self.last.survivors) - self.gone)
        refusal = against_another_list(staying, len(self.last.survivors), minimum)
        return [] if refusal is None else [refusal]

    def ask(self, batch: QuestionBatch) -> AggregationOutcome:
        """Count a batch in one round."""
        refusals = self.refusals()
        if refusals:
            raise QueryRefused(refusals)
        self.meter.rounds += 1
        server = Server(self.terms, self._nonce, self.meter.rounds, batch, before=self.last)
        try:
            outcome = self.last = self._run(self.meter.watch(server, "server"))
        except RoundAborted as aborted:
            if aborted.spent and not self.terms.bounded:
                reason = "a round was aborted after votes had been sent, and clear votes cannot be sent twice"
                self._over = Refusal("already_spent", reason)
            if self.last is None:
                self._nonce = os.urandom(NONCE_SIZE)  # users accept one graph per session: draw a new nonce
            raise
        finally:
            self._work.forget()
        return outcome

    def _run(self, server: Server) -> AggregationOutcome:
        while outgoing := server.advance():
            for place, message in outgoing.items():
                for arriving in self.outward(place, message):
                    self._exchange(server, place, arriving)
        if server.outcome is None:
            raise RoundAborted("The round ended without counts.", spent=True)
        return server.outcome

    def _exchange(self, server: Server, place: int, message: bytes) -> None:
        """Deliver a message to a user and the reply to the server. Refused messages are recorded and lost."""
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


class _Stuffer(AggregationUser):
    """A user who adds votes to the first count. The masks hide this from all other parties."""

    def _mask(self, now: RoundState, held: Sequence[bytes | None]) -> bytes:
        length, width = now.batch.length, self.terms.width
        stuffed = STUFFED.to_bytes(width, "little").ljust(length * width, b"\0")
        return masks.total([super()._mask(now, held), stuffed], [], length, width)


def count(
    people: People,
    learn: Learn,
    trouble: Trouble,
    *,
    colluders: float | str = "0.1",
    server: Adversary = "malicious",
    noise: SumNoise | None = None,
) -> Counted:
    """Learn from people by secure aggregation, with noise that no party knows if `noise` is given.

    People who leave do so in the first round, after sending shares: the worst moment, since their masks have
    to be recovered.
    """
    n = len(people)
    leaving, cheating = trouble.among(n)
    planned = max(LEAST_PLANNED, str(trouble.dropouts), key=lambda text: share(text, "dropouts"))
    parameters = Parameters.of(n, colluders=colluders, dropouts=planned, server=server, noise=noise)
    alone = [place for place in range(n) if place not in leaving | cheating][:ALONE]
    population = Aggregation(people.codes, people.policy, parameters, alone=alone, cheating=cheating)
    population.leaving = dict.fromkeys(leaving, Delivery)
    meter = population.meter
    meter.started = time.perf_counter()
    kind = AggregationTally if noise is None else NoisyPeople
    model = learn(kind(population, people.policy))
    last = population.last or AggregationOutcome(np.zeros(0, dtype=np.int64), ())
    culprits = tuple(Culprit(name, "it sent wrong shares") for name in last.culprits)
    notes = tuple(_notes(parameters, cheating))
    return Counted(model, last.survivors, culprits, meter.cost(alone, last.survivors), notes)


def _notes(parameters: Parameters, cheating: frozenset[int]) -> list[str]:
    """Describe the parameters of the session, and cheating that cannot be detected."""
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
            "are not validated here, so this cannot be detected: the differences show its effect."
        )
    return found
