"""Who does not do their part in a simulation: people who leave, people who cheat, and who is caught at it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from masquerade.core.errors import InputError
from masquerade.core.words import counted
from masquerade.protocols.aggregation.parameters import share


@dataclass(frozen=True, slots=True)
class Trouble:
    """Shares of the people that leave and that cheat; who it is follows from the seed, nobody is both."""

    dropouts: float | str = 0
    cheaters: float | str = 0
    seed: int = 1

    def among(self, n: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return the places of those who leave and of those who cheat."""
        leaving = math.ceil(share(self.dropouts, "dropouts") * n)
        cheating = math.ceil(share(self.cheaters, "cheaters") * n)
        if leaving + cheating >= n:
            raise InputError(
                f"Of {counted(n, 'person', 'people')} {leaving:,} would leave and {cheating:,} cheat: none "
                "is left to be counted."
            )
        order = [int(place) for place in np.random.default_rng(self.seed).permutation(n)]
        return frozenset(order[:leaving]), frozenset(order[leaving : leaving + cheating])


@dataclass(frozen=True, slots=True)
class Culprit:
    """Somebody who did not follow the protocol, by name, and what gave them away."""

    name: str
    why: str


def name_of(place: int) -> str:
    """Return how a person is called, by the place in the population.

    >>> name_of(0)
    'user 1'
    """
    return f"user {place + 1}"
