"""What comes out when a population has been counted by a protocol, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from masquerade.simulation.costs import Cost
from masquerade.simulation.model_comparison import Heard


@dataclass(frozen=True, slots=True)
class Caught:
    """Somebody who did not follow the protocol, by name, and what gave them away."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """A model, the answers behind it, and the places of the people whose records are in them.

    `left` are those who left, `caught` those who cheated and were seen to. `notes` say what happened on the
    way and what nobody could notice.
    """

    model: Any
    heard: Heard
    counted: tuple[int, ...]
    left: int
    caught: tuple[Caught, ...]
    cost: Cost
    notes: tuple[str, ...] = ()


def name_of(place: int) -> str:
    """Return how a person is called, by the place in the population.

    >>> name_of(0)
    'user 1'
    """
    return f"user {place + 1}"
