"""What a simulation costs whom, measured where the work is done: processor seconds and bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean over people, and the worst."""

    mean: float
    worst: float

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[Any]) -> Self:
        """Return the spread of some figures, at least one."""
        return cls(float(np.mean(values)), float(np.max(values)))


@dataclass(frozen=True, slots=True)
class Cost:
    """What a person pays (`client_seconds`, `sent`, `received`), what others do, and what the clock said.

    `measured_on` is how many people the client's time was measured on: those who shared no work with others,
    as on devices of their own. `roles` are processor seconds by role. `wall` is the simulation's own time,
    everybody's work one after the other.
    """

    client_seconds: Spread
    measured_on: int
    sent: Spread
    received: Spread
    roles: Mapping[str, float]
    wall: float
    rounds: int

    @property
    def server_seconds(self) -> float:
        """Return the processor seconds of all roles that are not users."""
        return sum(self.roles.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(slots=True)
class Meter:
    """Adds up a population's figures, by place."""

    n: int
    started: float = field(default_factory=time.perf_counter)
    seconds: NDArray[np.float64] = field(init=False)
    sent: NDArray[np.int64] = field(init=False)
    received: NDArray[np.int64] = field(init=False)
    roles: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seconds = np.zeros(self.n)
        self.sent, self.received = np.zeros((2, self.n), dtype=np.int64)

    @contextmanager
    def user(self, place: int) -> Iterator[None]:
        """Charge what happens to a user."""
        start = time.process_time()
        try:
            yield
        finally:
            self.seconds[place] += time.process_time() - start

    @contextmanager
    def role(self, name: str) -> Iterator[None]:
        """Charge what happens to a role, but for what users are charged for meanwhile."""
        start, users = time.process_time(), float(self.seconds.sum())
        try:
            yield
        finally:
            spent = time.process_time() - start - float(self.seconds.sum() - users)
            self.roles[name] = self.roles.get(name, 0.0) + spent

    def charged(self, who: int | str) -> AbstractContextManager[None]:
        """Charge what happens to the user at a place, or to a role."""
        return self.user(who) if isinstance(who, int) else self.role(who)

    def watched(self, party: P, who: int | str) -> P:
        """Return a party whose methods are on the clock of whom they are charged to; of users bytes, too."""
        return cast("P", _WatchedParty(party, who, self))

    def cost(self, alone: Sequence[int], staying: Sequence[int], rounds: int) -> Cost:
        """Return the cost; time is that of users who share nothing, bytes are those of all who stayed."""
        return Cost(
            Spread.of(self.seconds[list(alone)]),
            len(alone),
            Spread.of(self.sent[list(staying)]),
            Spread.of(self.received[list(staying)]),
            dict(self.roles),
            time.perf_counter() - self.started,
            rounds,
        )


class _WatchedParty:
    """A party behind a meter; whatever it has, it still has."""

    def __init__(self, party: Any, who: int | str, meter: Meter) -> None:
        self._party, self._who, self._meter = party, who, meter

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._party, name)
        if not callable(found):
            return found

        def timed(*given: Any) -> Any:
            with self._meter.charged(self._who):
                result = found(*given)
            if isinstance(self._who, int):
                self._meter.received[self._who] += _size(given)
                self._meter.sent[self._who] += _size(result)
            return result

        return timed


def _size(message: Any) -> int:
    """Return the bytes of a message, or of several; what is none has no size."""
    if isinstance(message, tuple):
        return sum(map(_size, message))
    return len(message) if isinstance(message, bytes) else 0
