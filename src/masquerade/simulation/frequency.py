"""A population counted by frequency mining: all or nobody, and whoever votes twice is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from masquerade.channels.policy import Policy, check_policy
from masquerade.core.errors import RoundAborted
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.frames.label_codes import encode
from masquerade.frames.native import columns_of
from masquerade.protocols.frequency import MemoryLedger, RosterChecks, Terms, User
from masquerade.protocols.frequency.ballots import POINT
from masquerade.protocols.frequency.messages import Step
from masquerade.simulation.costs import Meter
from masquerade.simulation.misbehaviour import Culprit, Trouble, name_of
from masquerade.simulation.model_comparison import Lesson, RecordedTally
from masquerade.simulation.people import People
from masquerade.simulation.results import LearntModel
from masquerade.sources.frequency import FrequencyTally

MINIMUM = 10
ALONE = 3  # users who check everything themselves, to see what a device takes
MOST_EPOCHS = 5


class Population:
    """Users with their records, one for each row of a frame of clear records, and a transport between them.

    Every message passes as bytes. `gone` are names of users who no longer answer. Keys are checked once for
    the whole process unless `shared_checks` is False: then every user checks them, as real users do.
    """

    def __init__(
        self,
        frame: Any,
        policy: Policy,
        *,
        epoch: str = "simulation",
        minimum: int = 10,
        shared_checks: bool = True,
    ) -> None:
        check_policy(policy)
        columns = columns_of(frame)
        codes = {f.variable.name: encode(columns[f.variable.name], f).tolist() for f in policy.fields}
        width = len(str(columns.rows))
        names = [f"user {place:0{width}}" for place in range(1, columns.rows + 1)]
        identities = {name: SigningKey() for name in names}
        self.terms = Terms(epoch, policy, {name: key.public for name, key in identities.items()}, minimum)
        checks = RosterChecks() if shared_checks else None
        self.shared_checks = shared_checks
        self.users = {
            name: User(
                name,
                identities[name],
                {variable: column[row] for variable, column in codes.items()},
                self.terms,
                checks=checks,
            )
            for row, name in enumerate(names)
        }
        self.gone: set[str] = set()
        self.sent = self.received = 0

    def exchange(self, user: str, message: bytes) -> bytes | None:
        """Hand a user a message and return the answer; None from one who is gone."""
        if user in self.gone:
            return None
        reply = self.users[user].receive(message)
        self.received += len(message)
        self.sent += len(reply)
        return reply

    def tally(self) -> FrequencyTally:
        """Return the miner's view of these users: a source of counts."""
        return FrequencyTally(self.terms, self.exchange, shared_checks=self.shared_checks)


class DoubleVoter(User):
    """A user who adds one to the first count they vote on, on top of what their record says."""

    def _answer(self, message: bytes) -> tuple[Step, int, bytes]:
        step, number, payload = super()._answer(message)
        if step is Step.VOTE:
            more = secp256k1.decode(payload[:POINT]) + secp256k1.generator
            payload = more.encode() + payload[POINT:]
        return step, number, payload


class Device(NamedTuple):
    """What a person keeps from one epoch to the next."""

    identity: SigningKey
    ledger: MemoryLedger


class Epoch:
    """Users enrolled for one epoch, and the wire between them and the miner.

    `devices` are those of the people by place; `agreed` are earlier epochs that this one may differ from by
    few people, as everybody enrolled agrees.
    """

    def __init__(
        self,
        name: str,
        people: People,
        devices: Mapping[int, Device],
        trouble: Trouble,
        meter: Meter,
        *,
        agreed: Sequence[str] = (),
    ) -> None:
        leaving, cheating = trouble.among(len(people))
        self.places = {name_of(place): place for place in devices}
        members = {user: devices[place].identity.public for user, place in self.places.items()}
        self.terms = Terms(name, people.policy, members, MINIMUM)
        shared = RosterChecks()
        self.alone = [place for place in devices if place not in leaving | cheating][:ALONE]
        columns = {variable: people.codes[variable].tolist() for variable in people.policy.schema}
        self.users = {
            user: (DoubleVoter if place in cheating else User)(
                user,
                devices[place].identity,
                {variable: column[place] for variable, column in columns.items()},
                self.terms,
                ledger=devices[place].ledger,
                checks=None if place in self.alone else shared,
                agreed=agreed,
            )
            for user, place in self.places.items()
        }
        self.gone = {name_of(place) for place in leaving}
        self._meter = meter

    def exchange(self, user: str, message: bytes) -> bytes | None:
        """Hand a user a message and return the answer; None from one who is gone."""
        if user in self.gone:
            return None
        place = self.places[user]
        with self._meter.user(place):
            reply = self.users[user].receive(message)
        self._meter.received[place] += len(message)
        self._meter.sent[place] += len(reply)
        return reply


def count(people: People, lesson: Lesson, names: Sequence[str], trouble: Trouble) -> LearntModel:
    """Learn from people by frequency mining.

    Whoever leaves does so before posting keys: the round is void, nothing has left, and it goes on without
    them. Whoever cheats is seen when votes are checked: these votes are spent, so the others have to agree to
    be counted in another epoch, which differs from this one by few people.
    """
    leaving, _ = trouble.among(len(people))
    meter = Meter(len(people))
    devices = {place: Device(SigningKey(), MemoryLedger()) for place in range(len(people))}
    agreed: list[str] = []
    culprits: list[Culprit] = []
    notes: list[str] = []
    rounds = 0
    for number in range(1, MOST_EPOCHS + 1):
        epoch = Epoch(f"simulation {number}", people, devices, trouble, meter, agreed=agreed)
        tally = FrequencyTally(epoch.terms, epoch.exchange, shared_checks=True, agreed=agreed, workers=1)
        while True:
            asked = RecordedTally(tally, names)
            try:
                with meter.role("miner"):
                    model = lesson.learn(asked)
            except RoundAborted as error:
                rounds += not error.spent
                notes.append(told(number, error, len(tally.users) + len(error.culprits)))
                if not error.culprits or (error.spent and number == MOST_EPOCHS):
                    raise
                gone = {epoch.places[user] for user in error.culprits}
                culprits += [
                    Culprit(name_of(p), "its vote is not proved valid") for p in sorted(gone - leaving)
                ]
                devices = {place: device for place, device in devices.items() if place not in gone}
                if error.spent:
                    agreed.append(epoch.terms.epoch)
                    break
            else:
                counted = tuple(epoch.places[user] for user in tally.users)
                cost = meter.cost(epoch.alone, counted, rounds + tally.rounds)
                return LearntModel(model, asked, counted, len(leaving), tuple(culprits), cost, tuple(notes))
        rounds += tally.rounds
    raise AssertionError("the last epoch returned or raised")


def told(epoch: int, error: RoundAborted, users: int) -> str:
    """Say why a round came to nothing, and what follows from that."""
    who = f"{len(error.culprits):,} of {users:,} users"
    if not error.spent:
        return (
            f"epoch {epoch}: {who} did not answer, so no masks would cancel; nothing had left, and the round "
            "was repeated without them."
        )
    return (
        f"epoch {epoch}: the votes of {who} were not proved valid; all votes of the round were spent, and "
        "the others agreed to be counted in another epoch, though it differs from this one by few people: no "
        "count of this one came out, but a miner that lied about the cheat would have the difference."
    )
