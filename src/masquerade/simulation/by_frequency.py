"""A population counted by frequency mining: all or nobody, and whoever votes twice is named."""

from __future__ import annotations

from collections.abc import Sequence

from masquerade.core.errors import RoundAborted
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.frequency import FrequencyTally, RosterChecks, Terms, User
from masquerade.protocols.frequency.messages import VOTE
from masquerade.protocols.frequency.voting import POINT
from masquerade.simulation.costs import Meter
from masquerade.simulation.counted import Caught, Counted, name_of
from masquerade.simulation.learning import Heard, Lesson
from masquerade.simulation.people import People
from masquerade.simulation.trouble import Trouble

MINIMUM = 10
ALONE = 3  # users who check everything themselves, to see what a device takes
MOST_EPOCHS = 5


class DoubleVoter(User):
    """A user who adds one to the first count they vote on, on top of what their record says."""

    def _answer(self, message: bytes) -> tuple[int, int, bytes]:
        kind, number, payload = super()._answer(message)
        if kind == VOTE:
            more = secp256k1.decode(payload[:POINT]) + secp256k1.generator
            payload = more.encode() + payload[POINT:]
        return kind, number, payload


class Epoch:
    """Users enrolled for one epoch, and the wire between them and the miner."""

    def __init__(
        self, people: People, places: Sequence[int], trouble: Trouble, meter: Meter, name: str
    ) -> None:
        leaving, cheating = trouble.among(len(people))
        self.places = {name_of(place): place for place in places}
        identities = {user: SigningKey() for user in self.places}
        members = {user: key.public for user, key in identities.items()}
        self.terms = Terms(name, people.policy, members, MINIMUM)
        shared = RosterChecks()
        self.alone = [place for place in places if place not in leaving | cheating][:ALONE]
        columns = {variable: people.codes[variable].tolist() for variable in people.policy.schema}
        self.users = {
            user: (DoubleVoter if place in cheating else User)(
                user,
                identities[user],
                {variable: column[place] for variable, column in columns.items()},
                self.terms,
                checks=None if place in self.alone else shared,
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


def count(people: People, lesson: Lesson, names: Sequence[str], trouble: Trouble) -> Counted:
    """Learn from people by frequency mining.

    Whoever leaves does so before posting keys: the round is void, nothing has left, and it goes on without
    them. Whoever cheats is seen when votes are checked: these votes are spent, so the others have to agree to
    be counted in another epoch.
    """
    leaving, _ = trouble.among(len(people))
    meter = Meter(len(people))
    places = list(range(len(people)))
    caught: list[Caught] = []
    notes: list[str] = []
    rounds = 0
    for number in range(1, MOST_EPOCHS + 1):
        epoch = Epoch(people, places, trouble, meter, f"simulation {number}")
        tally = FrequencyTally(epoch.terms, epoch.exchange, shared_checks=True, workers=1)
        while True:
            heard = Heard(tally, names)
            try:
                with meter.role("miner"):
                    model = lesson.learn(heard)
            except RoundAborted as error:
                rounds += not error.spent
                notes.append(told(number, error, len(tally.users) + len(error.culprits)))
                if not error.culprits or (error.spent and number == MOST_EPOCHS):
                    raise
                gone = {epoch.places[user] for user in error.culprits}
                caught += [Caught(name_of(p), "its vote is not proved valid") for p in sorted(gone - leaving)]
                places = [place for place in places if place not in gone]
                if error.spent:
                    break
            else:
                counted = tuple(epoch.places[user] for user in tally.users)
                cost = meter.cost(epoch.alone, counted, rounds + tally.rounds)
                return Counted(model, heard, counted, len(leaving), tuple(caught), cost, tuple(notes))
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
        "the others agreed to be counted in another epoch."
    )
