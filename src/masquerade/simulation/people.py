"""People of a simulation: synthetic or from a file, and those who leave or cheat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema
from masquerade.core.util.formatting import counted
from masquerade.learn.networks.network import BayesianNetwork, known_network
from masquerade.protocols.secure_aggregation.agreement import share
from masquerade.sources.records import Records
from masquerade.sources.tally import tally, warn_missing

Codes = dict[str, NDArray[Any]]

PEOPLE = Schema(
    {
        "age": ["17-29", "30-44", "45-59", "60+"],
        "sex": ["female", "male"],
        "education": ["school", "college", "degree"],
        "marital": ["single", "married", "other"],
        "work": ["private", "government", "self-employed"],
        "hours": ["part-time", "full-time", "overtime"],
        "income": ["<=50K", ">50K"],
    }
)
TARGET = "income"
FEW = (
    "sex",
    "hours",
)  # for frequency mining, where every user checks a key of every other user for every count
QUASI, SENSITIVE = ("age", "sex", "education", "marital"), ("hours", "income")
STRUCTURE: dict[str, tuple[str, ...]] = {
    "age": (),
    "sex": (),
    "education": ("age",),
    "marital": ("age", "sex"),
    "work": ("education",),
    "hours": ("sex", "work"),
    "income": ("education", "marital", "hours"),
}
SEED = 2005


@dataclass(frozen=True, eq=False)
class People:
    """Records as codes, one per person, and the policy that disguises them."""

    codes: Codes
    policy: Policy

    def __len__(self) -> int:
        """Return the number of people."""
        return len(next(iter(self.codes.values())))

    def __getitem__(self, rows: NDArray[np.intp] | Sequence[int]) -> Self:
        """Return the people at the given rows."""
        return type(self)({name: column[rows] for name, column in self.codes.items()}, self.policy)

    def first(self, n: int) -> Self:
        """Return the first `n` people."""
        if not 1 <= n <= len(self):
            raise InputError(f"n must be from 1 to {len(self):,}, the number of people. Got {n:,} instead.")
        return self[np.arange(n)]

    def in_the_open(self) -> Records:
        """Return the clear records as a source of counts."""
        return Records(self.codes, self.policy.without_channels())


@dataclass(frozen=True, slots=True)
class Trouble:
    """Shares of the people who leave and who cheat. They are drawn by the seed, and nobody does both."""

    dropouts: float | str = 0
    cheaters: float | str = 0
    seed: int = 1

    def among(self, n: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return the indexes of those who leave and of those who cheat."""
        leaving = math.ceil(share(self.dropouts, "dropouts") * n)
        cheating = math.ceil(share(self.cheaters, "cheaters") * n)
        if leaving + cheating >= n:
            raise InputError(
                f"Of {counted(n, 'person', 'people')} {leaving:,} would leave and {cheating:,} cheat: nobody "
                "is left to be counted."
            )
        order = [int(index) for index in np.random.default_rng(self.seed).permutation(n)]
        return frozenset(order[:leaving]), frozenset(order[leaving : leaving + cheating])


def name_of(index: int) -> str:
    """Return the name of a person by index.

    >>> name_of(0)
    'user 1'
    """
    return f"user {index + 1}"


def check_clear(people: People, k: int) -> None:
    """Raise InputError if a policy disguises the people, or if there are fewer than k."""
    if people.policy.disguised:
        raise InputError("Clear rows are k-anonymized: the policy must not disguise any variable.")
    if len(people) < k:
        raise InputError(f"k = {k:,} needs at least {k:,} people. Got {len(people):,} instead.")


def people_from(data: Any, policy: Policy | None = None, *, seed: int | None = SEED) -> People:
    """Read people from a frame or file of clear records.

    Parameters
    ----------
    data : frame or path
        Clear records.
    policy : Policy, optional
        Policy that disguises them. Without it nothing is disguised, and the categories are those that occur.
    seed : int, optional
        Seed of the random order. With None the order is kept.

    Returns
    -------
    People
        One person per record.
    """
    records = tally(data, schema=policy, engine="memory")
    warn_missing(records.missing)
    order = np.arange(records.n) if seed is None else np.random.default_rng(seed).permutation(records.n)
    used = Policy.clear(records.schema) if policy is None else policy
    return People({name: records.codes[name][order] for name in records.schema}, used)


def synthetic_people(n: int, policy: Policy | None = None, *, seed: int = SEED) -> People:
    """Draw `n` synthetic people similar to the Adult census extract.

    Parameters
    ----------
    n : int
        Number of people.
    policy : Policy, optional
        Policy that disguises them. Without it nothing is disguised.
    seed : int, optional
        Seed of the draws.

    Returns
    -------
    People
        Equal for equal seeds.
    """
    return people_from(population().sample(n, seed), policy or Policy.clear(PEOPLE), seed=seed)


@cache
def population() -> BayesianNetwork:
    """Return the network that synthetic people are drawn from, with roughly the margins of the Adult data."""
    logit = (
        -2.6
        + np.array([0.0, 0.7, 1.7])[:, None, None]
        + np.array([0.0, 1.9, 0.3])[:, None]
        + np.array([-1.2, 0.0, 0.7])
    )
    rich = 1 / (1 + np.exp(-logit))
    probabilities: dict[str, Any] = {
        "age": [0.29, 0.37, 0.24, 0.10],
        "sex": [0.33, 0.67],
        "education": [[0.45, 0.38, 0.17], [0.41, 0.29, 0.30], [0.44, 0.26, 0.30], [0.58, 0.22, 0.20]],
        "marital": [
            [[0.72, 0.17, 0.11], [0.74, 0.22, 0.04]],
            [[0.32, 0.25, 0.43], [0.25, 0.60, 0.15]],
            [[0.15, 0.27, 0.58], [0.10, 0.75, 0.15]],
            [[0.09, 0.20, 0.71], [0.06, 0.78, 0.16]],
        ],
        "work": [[0.82, 0.09, 0.09], [0.78, 0.12, 0.10], [0.65, 0.23, 0.12]],
        "hours": [
            [[0.33, 0.50, 0.17], [0.25, 0.60, 0.15], [0.35, 0.30, 0.35]],
            [[0.13, 0.49, 0.38], [0.10, 0.58, 0.32], [0.12, 0.32, 0.56]],
        ],
        "income": np.stack([1 - rich, rich], axis=-1),
    }
    tables = {name: np.asarray(table, dtype=np.float64) for name, table in probabilities.items()}
    return known_network(PEOPLE, STRUCTURE, tables)
