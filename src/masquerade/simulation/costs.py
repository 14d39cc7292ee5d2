"""What comes out of a simulation as plain values, and what it costs whom: processor seconds and bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from masquerade.core.tally import Tally

P = TypeVar("P")
Learn = Callable[[Tally], Any]


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


class Result:
    """A dataclass whose fields are told as plain values, some under another name."""

    CALLED: ClassVar[Mapping[str, str]] = {"quasi": "quasi_identifiers", "compared": "compared_with_clear"}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            self.CALLED.get(one.name, one.name): _plain(getattr(self, one.name))
            for one in fields(self)  # type: ignore[arg-type]  # those that inherit this are dataclasses
        }


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@dataclass(frozen=True, slots=True)
class Culprit:
    """Somebody who did not follow the protocol, by name, and what gave them away."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """A model, the places of those whose records are in it, who was caught, and what happened on the way."""

    model: Any
    counted: tuple[int, ...]
    culprits: tuple[Culprit, ...]
    cost: Cost
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Meter:
    """Adds up a population's figures, by place."""

    n: int
    started: float = field(default_factory=time.perf_counter)
    seconds: NDArray[np.float64] = field(init=False)
    sent: NDArray[np.int64] = field(init=False)
    received: NDArray[np.int64] = field(init=False)
    roles: dict[str, float] = field(default_factory=dict)
    rounds: int = 0

    def __post_init__(self) -> None:
        self.seconds = np.zeros(self.n)
        self.sent, self.received = np.zeros((2, self.n), dtype=np.int64)

    @contextmanager
    def charged(self, who: int | str) -> Iterator[None]:
        """Charge what happens to the user at a place, or to a role (but for what users are charged for)."""
        start, users = time.process_time(), float(self.seconds.sum())
        try:
            yield
        finally:
            spent = time.process_time() - start - float(self.seconds.sum() - users)
            if isinstance(who, int):
                self.seconds[who] += spent
            else:
                self.roles[who] = self.roles.get(who, 0.0) + spent

    def watched(self, party: P, who: int | str) -> P:
        """Return a party whose methods are on the clock of whom they are charged to; of users bytes, too."""
        return cast("P", _WatchedParty(party, who, self))

    def cost(self, alone: Sequence[int], staying: Sequence[int]) -> Cost:
        """Return the cost; time is that of users who share nothing, bytes are those of all who stayed."""
        return Cost(
            Spread.of(self.seconds[list(alone)]),
            len(alone),
            Spread.of(self.sent[list(staying)]),
            Spread.of(self.received[list(staying)]),
            dict(self.roles),
            time.perf_counter() - self.started,
            self.rounds,
        )


class _WatchedParty:
    """A party behind a meter; whatever it has, it still has."""

    def __init__(self, party: Any, who: int | str, meter: Meter) -> None:
        vars(self).update(_party=party, _who=who, _meter=meter)

    def __repr__(self) -> str:
        return repr(self._party)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._party, name, value)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._party, name)
        if not callable(found):
            return found

        def timed(*given: Any) -> Any:
            if isinstance(self._who, int):
                self._meter.received[self._who] += _size(given)
            with self._meter.charged(self._who):
                result = found(*given)
            if isinstance(self._who, int):
                self._meter.sent[self._who] += _size(result)
            return result

        return timed


def _size(message: Any) -> int:
    """Return the bytes of a message, or of several; what is none has no size."""
    if isinstance(message, tuple):
        return sum(map(_size, message))
    return len(message) if isinstance(message, bytes) else 0
