"""People counted by a protocol, a model learnt, and both compared with what clear records give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from masquerade.core.errors import InputError
from masquerade.core.guarantee import Adversary, Guarantee
from masquerade.simulation import aggregation, frequency, mix
from masquerade.simulation.costs import Cost
from masquerade.simulation.misbehaviour import Culprit, Trouble
from masquerade.simulation.model_comparison import Comparison, Lesson, compare
from masquerade.simulation.people import People
from masquerade.simulation.results import LearntModel, Result

Protocol = Literal["frequency", "aggregation", "mix"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


@dataclass(frozen=True, slots=True, eq=False)
class Census(Result):
    """What came out: who was counted, who left, who was caught, how it compares, costs, the model."""

    protocol: Protocol
    n: int
    counted: int
    left: int
    caught: tuple[Culprit, ...]
    notes: tuple[str, ...]
    compared: Comparison
    cost: Cost
    guarantee: Guarantee
    model: Any


def users(
    people: People,
    lesson: Lesson,
    protocol: Protocol = "aggregation",
    *,
    trouble: Trouble | None = None,
    colluders: float | str = "0.1",
    server: Adversary = "malicious",
    leaders: int = 2,
) -> Census:
    """Have people counted by a protocol, every message as bytes, and learn from the counts.

    `colluders` and `server` are what secure aggregation is laid out against, `leaders` shuffle in a mix. The
    comparison is with the clear records of those who were counted.
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"The protocol must be one of {', '.join(PROTOCOLS)}. Got {protocol!r} instead.")
    names = lesson.about(people.policy.schema)
    given = trouble or Trouble()
    found: LearntModel
    if protocol == "frequency":
        found = frequency.count(people, lesson, names, given)
    elif protocol == "aggregation":
        found = aggregation.count(people, lesson, names, given, colluders=colluders, server=server)
    else:
        found = mix.count(people, lesson, names, given, leaders=leaders)
    clear = people[list(found.counted)].in_the_open()
    return Census(
        protocol,
        len(people),
        len(found.counted),
        found.left,
        found.culprits,
        found.notes,
        compare(found.asked, lesson, found.model, clear),
        found.cost,
        found.asked.guarantee,
        found.model,
    )
