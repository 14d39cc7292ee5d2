"""A population counted by secure aggregation: people may leave, and nobody can tell who stuffs votes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Self

from masquerade.core.guarantee import Adversary
from masquerade.protocols.aggregation import masks
from masquerade.protocols.aggregation.crypto_cache import Work
from masquerade.protocols.aggregation.messages import Kind
from masquerade.protocols.aggregation.parameters import Parameters, share
from masquerade.protocols.aggregation.population import Population
from masquerade.protocols.aggregation.round_state import Round
from masquerade.protocols.aggregation.user import User
from masquerade.protocols.people.ledger import MemoryLedger
from masquerade.simulation.costs import Cost, Meter, Spread
from masquerade.simulation.misbehaviour import Trouble
from masquerade.simulation.model_comparison import Heard, Lesson
from masquerade.simulation.outcome import Caught, Counted
from masquerade.simulation.people import People
from masquerade.sources.aggregation import AggregationTally

STUFFED = 10  # votes that a cheater adds to the first count of every round
ALONE = 5  # users who verify and agree by themselves, to see what a device takes
LEAST_PLANNED = "0.05"  # dropouts that a session is laid out for, at least


class Stuffer(User):
    """A user who adds votes to the first count; under its masks nobody sees that."""

    @classmethod
    def in_place_of(cls, user: User) -> Self:
        """Return a cheater with somebody's identity and record."""
        key, record = user._key, user._record  # noqa: SLF001  (this is a user of the same kind)
        return cls(user.place, key, user.terms, record, MemoryLedger(), work=user.work)

    def _masked(self, now: Round, held: Sequence[bytes | None]) -> masks.Ring:
        vector = super()._masked(now, held).copy()
        vector[:1] += vector.dtype.type(STUFFED)  # modulo the ring, as all sums are
        return vector


class Metered:
    """A user whose time is taken."""

    def __init__(self, user: User, place: int, meter: Meter) -> None:
        self._user, self._place, self._meter = user, place, meter

    def receive(self, message: bytes) -> bytes | None:
        """Return what the user replies."""
        with self._meter.user(self._place):
            return self._user.receive(message)


def count(
    people: People,
    lesson: Lesson,
    names: Sequence[str],
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
    meter = Meter(n)
    population = Population(people.codes, people.policy, parameters)
    population.leaving = dict.fromkeys(leaving, Kind.DELIVERY)
    alone = [place for place in range(n) if place not in leaving | cheating][:ALONE]
    for place in cheating:
        population.users[place] = Stuffer.in_place_of(population.users[place])
    for place in alone:
        population.users[place].work = Work()
    metered = [Metered(user, place, meter) for place, user in enumerate(population.users)]
    population.users[:] = metered  # type: ignore[assignment]  # all that a round needs of a user is `receive`
    heard = Heard(AggregationTally(population, people.policy), names)
    start = time.perf_counter()
    model = lesson.learn(heard)
    wall = time.perf_counter() - start
    counted = population.last.survivors if population.last is not None else ()
    culprits = population.last.culprits if population.last is not None else ()
    cost = Cost(
        Spread.of(meter.seconds[alone]),
        len(alone),
        Spread.of(population.cost.sent[list(counted)]),
        Spread.of(population.cost.received[list(counted)]),
        {"server": population.cost.server_seconds},
        wall,
        population.cost.rounds,
    )
    caught = tuple(Caught(name, "it gave wrong shares") for name in culprits)
    return Counted(model, heard, counted, len(leaving), caught, cost, tuple(notes(parameters, cheating)))


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
