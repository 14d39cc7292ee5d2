"""Frequency mining of a population: all users answer or nobody is counted, and double votes are detected.

`mine_frequencies` is the primitive as printed in Wright's talk of 2005, for timing. It lacks the repairs of
this package (proofs, checked rosters, signatures) and protects nobody against an active attacker.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from masquerade.channels.policy import check_policy
from masquerade.core.errors import RoundAborted
from masquerade.crypto.group import SmallLog
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.proofs import BallotKeys, mask
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.frequency_mining.ballots import POINT, public_keys, sum_of_keys
from masquerade.protocols.frequency_mining.messages import FrequencyTerms, MiningStep
from masquerade.protocols.frequency_mining.roles import MiningUser
from masquerade.protocols.frequency_mining.vote_noise import VoteNoise
from masquerade.protocols.people.checks import Checks
from masquerade.protocols.people.ledger import MemoryLedger
from masquerade.simulation.costs import Counted, Culprit, Learn, Meter
from masquerade.simulation.people import People, Trouble, name_of
from masquerade.sources.people.frequency import FrequencyTally

ALONE = 3  # users who share no work, to measure the time of a real device
MOST_EPOCHS = 5


class _DoubleVoter(MiningUser):
    """A user who adds one to the first count that they vote on."""

    def _answer(self, message: bytes) -> tuple[MiningStep, int, bytes]:
        step, number, payload = super()._answer(message)
        if step is MiningStep.VOTE:
            more = secp256k1.decode(payload[:POINT]) + secp256k1.generator
            payload = more.encode() + payload[POINT:]
        return step, number, payload


class UserDevice(NamedTuple):
    """State that a person keeps from one epoch to the next."""

    identity: SigningKey
    ledger: MemoryLedger


class FrequencyMining:
    """Users enrolled for one epoch, one per person with a device, and their connection to the miner.

    Every message is encoded as bytes. Keys are checked once for the whole process, except by the first
    `alone` users, who check them as real users do.

    Attributes
    ----------
    gone : collection of str
        Users who do not answer.
    agreed : sequence of str
        Earlier epochs from which this epoch may differ by few people, with the agreement of all users.
    """

    def __init__(
        self,
        people: People,
        *,
        epoch: str = "simulation",
        minimum: int = 10,
        alone: int = 0,
        devices: Mapping[int, UserDevice] | None = None,
        trouble: Trouble | None = None,
        meter: Meter | None = None,
        agreed: Sequence[str] = (),
        noise: VoteNoise | None = None,
    ) -> None:
        check_policy(people.policy)
        devices = _new_devices(people) if devices is None else devices
        leaving, cheating = (trouble or Trouble()).among(len(people))
        self.places = {name_of(place): place for place in devices}
        members = {user: devices[place].identity.public for user, place in self.places.items()}
        self.terms = FrequencyTerms(epoch, people.policy, members, minimum, noise=noise)
        self.alone = [place for place in devices if place not in leaving | cheating][:alone]
        self.gone = {name_of(place) for place in leaving}
        self.agreed, self.meter = agreed, meter or Meter(len(people))
        self.users: dict[str, MiningUser] = {}
        shared = Checks()
        columns = {variable: people.codes[variable].tolist() for variable in people.policy.schema}
        for name, place in self.places.items():
            user = (_DoubleVoter if place in cheating else MiningUser)(
                name,
                devices[place].identity,
                {variable: column[place] for variable, column in columns.items()},
                self.terms,
                ledger=devices[place].ledger,
                checks=None if place in self.alone else shared,
                agreed=agreed,
            )
            self.users[name] = self.meter.watch(user, place)

    def exchange(self, user: str, message: bytes) -> bytes | None:
        """Deliver a message to a user and return the answer. None if the user is gone."""
        return None if user in self.gone else self.users[user].receive(message)

    def tally(self) -> FrequencyTally:
        """Return the miner's view of these users: a source of counts."""
        shared = len(self.alone) < len(self.users)
        return FrequencyTally(self.terms, self.exchange, shared_checks=shared, agreed=self.agreed, workers=1)


def _new_devices(people: People) -> dict[int, UserDevice]:
    return {place: UserDevice(SigningKey(), MemoryLedger()) for place in range(len(people))}


def count(people: People, learn: Learn, trouble: Trouble) -> Counted:
    """Learn from people by frequency mining.

    People who leave do so before posting keys: the round is void, no vote has been sent, and the count
    continues without them. Cheaters are detected when votes are checked: all votes of the round are then
    spent, and the others must agree to be counted in another epoch, which differs from this one by few
    people.
    """
    leaving, _ = trouble.among(len(people))
    meter, devices = Meter(len(people)), _new_devices(people)
    agreed: list[str] = []
    culprits: list[Culprit] = []
    notes: list[str] = []
    for number in range(1, MOST_EPOCHS + 1):
        epoch = FrequencyMining(
            people,
            epoch=f"simulation {number}",
            alone=ALONE,
            devices=devices,
            trouble=trouble,
            meter=meter,
            agreed=tuple(agreed),
        )
        tally = epoch.tally()
        while True:
            try:
                with meter.charge("miner"):
                    model = learn(tally)
            except RoundAborted as error:
                meter.rounds += not error.spent
                notes.append(_describe_abort(number, error, len(tally.users) + len(error.culprits)))
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
                meter.rounds += tally.rounds
                counted = tuple(epoch.places[user] for user in tally.users)
                return Counted(
                    model, counted, tuple(culprits), meter.cost(epoch.alone, counted), tuple(notes)
                )
        meter.rounds += tally.rounds
    raise AssertionError("the last epoch returned or raised")


def _describe_abort(epoch: int, error: RoundAborted, users: int) -> str:
    """Explain why a round failed, and its consequence."""
    who = f"{len(error.culprits):,} of {users:,} users"
    if not error.spent:
        return (
            f"epoch {epoch}: {who} did not answer, so no masks would cancel. No vote had been sent, and the "
            "round was repeated without them."
        )
    return (
        f"epoch {epoch}: the votes of {who} were not proved valid. All votes of the round were spent, and "
        "the others agreed to be counted in another epoch that differs from this one by few people. No count "
        "of this epoch was released, but a miner that lied about the cheating could compute the difference."
    )


@dataclass(frozen=True, slots=True)
class Mined:
    """Frequencies and their cost: processor seconds of the miner and, on average, of a user; bytes sent.

    `miner_operations` is the number of group elements that the miner added, `user_operations` the number that
    a user computed. Neither depends on the load of the machine.
    """

    counts: tuple[int, ...]
    miner_seconds: float
    user_seconds: float
    sent: int
    miner_operations: int
    user_operations: int


def mine_frequencies(bits: Sequence[Sequence[int]]) -> Mined:
    """Compute the frequencies of the users' bits, one row per user.

    Key setup is not timed, as in the talk.
    """
    counts = len(bits[0])
    pairs = [[BallotKeys.fresh(secp256k1) for _ in range(counts)] for _ in bits]
    X, Y = sum_of_keys([public_keys(own) for own in pairs])
    start = time.process_time()
    masked = [
        [mask(bit, pair, x, y) for bit, pair, x, y in zip(own, keys, X, Y, strict=True)]
        for own, keys in zip(bits, pairs, strict=True)
    ]
    flows = [b"".join([point.encode() for both in own for point in both]) for own in masked]
    voted = time.process_time()
    logs = SmallLog(secp256k1, len(bits))
    found, added = [], 0
    for at in range(0, 2 * counts * POINT, 2 * POINT):
        m, h = (b"".join([sent[place : place + POINT] for sent in flows]) for place in (at, at + POINT))
        found.append(logs.find(secp256k1.sum_encoded(m, workers=1) - secp256k1.sum_encoded(h, workers=1)))
        added += (len(m) + len(h)) // POINT
    summed = time.process_time()
    formed = sum(len(both) for both in masked[0])
    user_seconds = (voted - start) / len(bits)
    return Mined(tuple(found), summed - voted, user_seconds, len(flows[0]), added, formed)
