"""People counted by a protocol, a model learnt, and both compared with what clear records give."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from masquerade.core.errors import InputError
from masquerade.core.guarantee import Adversary, Guarantee
from masquerade.simulation import aggregation, frequency, mix
from masquerade.simulation.costs import Cost
from masquerade.simulation.misbehaviour import Trouble
from masquerade.simulation.model_comparison import Compared, Lesson, compared
from masquerade.simulation.outcome import Caught, Counted
from masquerade.simulation.people import People

Protocol = Literal["frequency", "aggregation", "mix"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """What came out: the model, how it compares, who left, who was caught, what it cost, what it reveals."""

    protocol: Protocol
    n: int
    counted: int
    left: int
    caught: tuple[Caught, ...]
    model: Any
    compared: Compared
    cost: Cost
    guarantee: Guarantee
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "protocol": self.protocol,
            "n": self.n,
            "counted": self.counted,
            "left": self.left,
            "caught": [asdict(one) for one in self.caught],
            "notes": list(self.notes),
            "compared_with_clear": self.compared.to_dict(),
            "cost": self.cost.to_dict(),
            "guarantee": self.guarantee.to_dict(),
            "model": self.model.to_dict(),
        }


def users(
    people: People,
    lesson: Lesson,
    protocol: Protocol = "aggregation",
    *,
    trouble: Trouble | None = None,
    colluders: float | str = "0.1",
    server: Adversary = "malicious",
    leaders: int = 2,
) -> Simulation:
    """Have people counted by a protocol, every message as bytes, and learn from the counts.

    `colluders` and `server` are what secure aggregation is laid out against, `leaders` shuffle in a mix. The
    comparison is with the clear records of those who were counted.
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"The protocol must be one of {', '.join(PROTOCOLS)}. Got {protocol!r} instead.")
    names = lesson.about(people.policy.schema)
    given = trouble or Trouble()
    result: Counted
    if protocol == "frequency":
        result = frequency.count(people, lesson, names, given)
    elif protocol == "aggregation":
        result = aggregation.count(people, lesson, names, given, colluders=colluders, server=server)
    else:
        result = mix.count(people, lesson, names, given, leaders=leaders)
    clear = people[list(result.counted)].in_the_open()
    return Simulation(
        protocol,
        len(people),
        len(result.counted),
        result.left,
        result.caught,
        result.model,
        compared(result.heard, lesson, result.model, clear),
        result.cost,
        result.heard.guarantee,
        result.notes,
    )
